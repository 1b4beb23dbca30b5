"""Weights with one or two levels: against all subsets of parties and the linear program of all coalitions."""

from __future__ import annotations

from itertools import pairwise, product
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import minimize_scalar

from tests.mechanisms.cases import specs
from tests.planning.test_balance import least_total, studies
from tpmdp import InputError, Spec
from tpmdp.planning import levels
from tpmdp.planning.balance import balance, burden
from tpmdp.planning.levels import one_budget, two_levels
from tpmdp.planning.plan import needs, plan
from tpmdp.planning.weights import BASELINES, baseline_weights


def expected_error(weights: Any, need: Any, threshold: int, receivers: Any, *, spread: float, records: Any) -> float:
    """The expected squared error of the rescaled sum, from its definition."""
    scale = records.sum() / (weights * records).sum()
    noise = scale**2 * least_total(weights**2 * need, threshold, receivers)
    return float(noise + spread**2 * np.sum((records * (scale * weights - 1)) ** 2))


def best_of_subsets(need: Any, threshold: int, receivers: Any, *, spread: float, records: Any, lower: bool) -> float:
    """The least error over every subset of liberal parties; with `lower`, also over the weight of the others."""
    best = np.inf
    for subset in product((0.0, 1.0), repeat=len(need)):
        upper = np.array(subset)

        def error(share: float, upper: Any = upper) -> float:
            weights = np.where(upper > 0, 1.0, share)
            return expected_error(weights, need, threshold, receivers, spread=spread, records=records)

        if (upper * records).any():
            best = min(best, error(0.0))
            if lower:
                found: Any = minimize_scalar(error, bounds=(0, 1), method="bounded", options={"xatol": 1e-9})
                best = min(best, float(found.fun))
    return best


def test_no_subset_of_like_parties_is_better_than_the_most_liberal() -> None:
    for need, threshold, receivers, spread in studies((2, 3, 4), 11):
        ones = np.ones(len(need))
        weights = one_budget(need, threshold, receivers, spread).weights
        assert set(weights.tolist()) <= {0.0, 1.0}
        error = expected_error(weights, need, threshold, receivers, spread=spread, records=ones)
        best = best_of_subsets(need, threshold, receivers, spread=spread, records=ones, lower=False)
        assert error == pytest.approx(best, rel=1e-7, abs=1e-9)


@pytest.mark.slow
@pytest.mark.parametrize("threshold", [1, 2, 3])
@pytest.mark.parametrize("receivers", [(True,) * 4, (True, False, False, False), (True, True, False, False)])
def test_no_two_levels_of_like_parties_are_better(threshold: int, receivers: tuple[bool, ...]) -> None:
    random, mask, ones = np.random.default_rng(threshold), np.array(receivers), np.ones(4)
    need, spread = np.exp(random.uniform(-1, 6, 4)), float(np.exp(random.uniform(-2, 2)))
    weights = two_levels(need, threshold, mask, spread).weights
    assert len(set(weights.tolist())) <= 2
    error = expected_error(weights, need, threshold, mask, spread=spread, records=ones)
    best = best_of_subsets(need, threshold, mask, spread=spread, records=ones, lower=True)
    assert error == pytest.approx(best, rel=1e-6)


def test_of_unlike_parties_another_subset_can_be_better() -> None:
    """The strictest party holds most of the records: leaving it out costs more than leaving out a liberal one."""
    need, records = np.array([4.0, 2.0, 1.0]), np.array([100.0, 1.0, 1.0])
    mask, spread = np.full(3, True), 0.5
    weights = one_budget(need, 2, mask, spread, records).weights
    error = expected_error(weights, need, 2, mask, spread=spread, records=records)
    without = expected_error(np.array([1.0, 0.0, 1.0]), need, 2, mask, spread=spread, records=records)
    assert weights.tolist() == [1.0, 1.0, 1.0]
    assert without < 0.9 * error
    best = best_of_subsets(need, 2, mask, spread=spread, records=records, lower=False)
    assert best <= without


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::tpmdp.errors.NoNoiseWarning")
@settings(max_examples=150, deadline=None)
@given(specs(least=2), st.data())
def test_each_kind_of_weights_contains_the_one_before(spec: Spec, data: st.DataObject) -> None:
    """Equal weights are one budget for all, one budget is two levels with 0 below; balanced weights are best."""
    records = data.draw(st.lists(st.sampled_from([1, 1, 5, 40]), min_size=spec.count, max_size=spec.count))
    known: Any = {"spread": 0.25, "records": records, "width": 1.0}
    need = needs(spec)
    errors = [plan(spec, weighting="equal", **known).expected_error]
    for kind in ("one budget", "two levels"):
        weights = baseline_weights(spec, need, kind, **known)
        assert weights.each.max() == 1
        errors.append(plan(spec, weighting=weights.each, **known).expected_error)
    errors.append(plan(spec, weighting="balanced", **known).expected_error)
    for before, after in pairwise(errors):
        assert after <= before * (1 + 1e-7) + 1e-12


def test_one_budget_loses_at_most_a_harmonic_factor_where_only_noise_counts() -> None:
    random = np.random.default_rng(8)
    for count in (2, 10, 200):
        harmonic = float(np.sum(1 / np.arange(1, count + 1)))
        for deviation in (np.exp(random.normal(0, 2, count)), np.arange(1.0, count + 1)):
            for threshold in (1, count // 2, count - 1):
                arguments: Any = (deviation**2, threshold, np.full(count, True), 1e-6)
                ratio = (one_budget(*arguments).expected_square / balance(*arguments).bound) ** 0.5
                assert ratio * (1 + 1e-9) >= 1
                assert ratio <= float(burden(count, threshold, count)) ** 0.5 * harmonic * (1 + 1e-6)


@pytest.mark.parametrize("threshold", [1, 20, 39])
def test_the_computed_error_is_that_of_the_plan(threshold: int) -> None:
    """Prefix sums against a plan for the weighted budgets, at the best point and at others."""
    random = np.random.default_rng(threshold)
    spec = Spec(epsilon=random.uniform(0.05, 3, 40), delta=1e-6, threshold=threshold)
    records = random.integers(1, 9, 40).astype(np.float64)
    split = levels._Split.of(needs(spec), threshold, spec.receivers, spread=0.5, records=records)
    for liberal, share in ((40, 0.3), (25, 0.0), (25, 0.4), (1, 0.9), (39, 1.0)):
        found = split.levels(liberal, share)
        made = plan(spec, weighting=found.weights, spread=0.5, records=records)
        assert made.expected_error**2 == pytest.approx(found.expected_square, rel=1e-9)


def test_many_parties_are_searched_in_two_rounds(monkeypatch: pytest.MonkeyPatch) -> None:
    random = np.random.default_rng(5)
    spec = Spec(epsilon=random.uniform(0.01, 1, 500), delta=1e-4, threshold=250)
    arguments: Any = (needs(spec), 250, spec.receivers, 0.5)
    whole = two_levels(*arguments).weights
    monkeypatch.setattr(levels, "SPLITS_MAX", 40)
    some = two_levels(*arguments).weights
    errors = [plan(spec, weighting=weights, spread=0.5).expected_error for weights in (whole, some)]
    assert errors[0] <= errors[1] * (1 + 1e-12) <= errors[0] * 1.001


@pytest.mark.parametrize("kind", BASELINES)
def test_ugly_parties(kind: Any) -> None:
    inf = float("inf")
    for epsilon, threshold, receivers in (
        ([1.0], 0, "all"),
        ([inf, inf], 1, "all"),
        ([1e-20, inf], 1, "all"),
        ([0.5, 0.5, 0.5], 2, [0]),
        ([1e-9, 1.0, 1e9], 2, []),
        ([0.1, 1.0], 0, "all"),
    ):
        spec = Spec(epsilon=epsilon, delta=1e-6, threshold=threshold, receivers=receivers)
        each = baseline_weights(spec, needs(spec), kind).each
        assert each.max() == 1
        assert ((each >= 0) & np.isfinite(each)).all()
    spec = Spec(epsilon=[1.0, 2.0, 4.0], delta=1e-6, threshold=1)
    assert baseline_weights(spec, needs(spec), kind, records=[0, 3, 1]).each[0] == 0
    with pytest.raises(InputError, match="records"):
        baseline_weights(spec, needs(spec), kind, records=[1, 2])
