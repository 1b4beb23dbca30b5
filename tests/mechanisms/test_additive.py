"""G, TMDP, non-thre, MIN and non-pri: what every coalition leaves to every party, and what the noise costs."""

from __future__ import annotations

from itertools import combinations, product
from typing import Any

import mpmath
import numpy as np
import pytest
from hypothesis import given, settings
from scipy.optimize import linprog

import tpmdp
from tests.mechanisms.cases import INF, least_honest_of_any_size, specs
from tests.oracles import DIGITS, exact_delta
from tpmdp import Spec
from tpmdp._util.arrays import FloatArray
from tpmdp.mechanisms.additive import AnyCoalition, NonPrivate, Optimal, SameBudget, Shared, TrustedCurator
from tpmdp.mechanisms.mechanism import Setting
from tpmdp.planning import baselines

SHARED = (Optimal(), SameBudget(), AnyCoalition())


def delta_left(honest: Any, epsilon: float, sensitivity: float) -> Any:
    """The delta at this epsilon under so much noise, from the definition."""
    if not sensitivity or epsilon == INF:
        return DIGITS(0)
    return exact_delta(DIGITS(sensitivity) / mpmath.sqrt(honest), epsilon) if honest else DIGITS(1)


def assert_enjoyed(spec: Spec, honest: list[Any], enjoyed: FloatArray) -> None:
    """The budget is kept; the epsilon that is reported is true, and no larger than it must be."""
    for left, epsilon, delta, sensitivity, claimed in zip(
        honest, spec.epsilon.tolist(), spec.delta.tolist(), spec.sensitivity.tolist(), enjoyed.tolist(), strict=True
    ):
        assert claimed <= epsilon
        if left is None:  # no coalition can attack
            assert claimed == 0
            continue
        assert delta_left(left, epsilon, sensitivity) <= delta
        assert delta_left(left, claimed, sensitivity) <= delta
        less = claimed * (1 - 1e-9) - 1e-11 * delta  # where epsilon is far below delta, rounding of delta decides
        if 0 < less < INF:
            assert delta_left(left, less, sensitivity) > delta


def check(mechanism: Shared, setting: Setting) -> None:
    spec, variance = setting.spec, mechanism.variance(setting)
    assert variance.shape == (spec.count,)
    assert (variance >= 0).all()
    honest = least_honest_of_any_size(variance, setting.threshold, spec.receivers)
    assert_enjoyed(spec, honest, mechanism.enjoyed(setting))


@pytest.mark.slow
@pytest.mark.parametrize("mechanism", SHARED, ids=lambda one: one.name)
@pytest.mark.parametrize("count", [2, 3, 4, 5])
def test_every_threshold_and_receiver_pattern_keeps_every_budget(mechanism: Shared, count: int) -> None:
    rng = np.random.default_rng(count)
    for threshold in range(count):
        for pattern in product((False, True), repeat=count):
            spec = Spec(
                epsilon=rng.choice([0.1, 0.5, 0.5, 1.0, 3.0, 20.0, INF], count) * rng.choice([1.0, rng.random()]),
                delta=rng.choice([1e-9, 1e-6, 1e-6, 0.01], count),
                sensitivity=rng.choice([1.0, 1.0, 2.5], count),
                threshold=threshold,
                receivers=np.array(pattern),
            )
            check(mechanism, Setting.of(spec))


@settings(max_examples=120, deadline=None)
@given(specs())
@pytest.mark.slow
def test_drawn_studies_keep_every_budget(spec: Spec) -> None:
    for mechanism in SHARED:
        check(mechanism, Setting.of(spec))


@settings(max_examples=60, deadline=None)
@given(specs(least=2))
@pytest.mark.slow
def test_without_threshold_every_number_of_colluders_is_withstood(spec: Spec) -> None:
    variance = AnyCoalition().variance(Setting.of(spec))
    for threshold in range(spec.count):
        other = Setting.of(spec.replace(threshold=threshold))
        assert np.array_equal(AnyCoalition().variance(other), variance)
        honest = least_honest_of_any_size(variance, threshold, spec.receivers)
        assert_enjoyed(other.spec, honest, AnyCoalition().enjoyed(other))


@settings(max_examples=60, deadline=None)
@given(specs(least=2))
@pytest.mark.slow
def test_one_budget_for_all_is_the_strictest_one(spec: Spec) -> None:
    """Everybody who can be attacked has the noise that any budget of any party asks for."""
    setting = Setting.of(spec)
    honest = least_honest_of_any_size(SameBudget().variance(setting), setting.threshold, spec.receivers)
    budgets = list(zip(spec.epsilon.tolist(), spec.delta.tolist(), spec.sensitivity.tolist(), strict=True))
    for left in honest:
        if left is not None:
            for epsilon, delta, sensitivity in budgets:
                assert delta_left(left, epsilon, sensitivity) <= delta


def test_one_budget_for_all_is_enjoyed_by_all() -> None:
    setting = Setting.of(Spec(epsilon=[0.2, 1.0, 4.0, INF], delta=1e-6, threshold=2))
    assert SameBudget().enjoyed(setting) == pytest.approx(np.full(4, 0.2), rel=1e-9)
    assert Optimal().enjoyed(setting)[0] == pytest.approx(0.2, rel=1e-9)
    assert (Optimal().enjoyed(setting)[1:] > 0.3).all()


@settings(max_examples=120, deadline=None)
@given(specs())
@pytest.mark.slow
def test_a_curator_keeps_every_budget_whoever_colludes(spec: Spec) -> None:
    setting, curator = Setting.of(spec), TrustedCurator()
    honest = [DIGITS(curator.noise(setting))] * spec.count
    assert_enjoyed(spec, honest, curator.enjoyed(setting))


def strictest_need(epsilon: float, delta: float, sensitivity: float) -> Any:
    """The least variance for one budget, by bisection on the definition."""
    if epsilon == INF:
        return DIGITS(0)
    low, high = DIGITS(-40), DIGITS(100)
    while high - low > 1e-10:
        middle = (low + high) / 2
        enough = delta_left(mpmath.exp(middle), epsilon, sensitivity) <= delta
        low, high = (low, middle) if enough else (middle, high)
    return mpmath.exp(high)


@settings(max_examples=25, deadline=None)
@given(specs())
@pytest.mark.slow
def test_a_curator_adds_what_the_strictest_needs_and_no_more(spec: Spec) -> None:
    rows = zip(spec.epsilon.tolist(), spec.delta.tolist(), spec.sensitivity.tolist(), strict=True)
    least = float(max(strictest_need(*row) for row in rows))
    assert TrustedCurator().noise(Setting.of(spec)) == pytest.approx(least, rel=1e-9)


def test_no_noise_is_no_protection() -> None:
    setting = Setting.of(Spec(epsilon=[0.1, 1.0, INF], delta=1e-6, threshold=1))
    assert NonPrivate().enjoyed(setting).tolist() == [INF] * 3
    assert NonPrivate().noise(setting) == 0


def least_total(need: FloatArray, threshold: int, receivers: Any) -> float:
    """The least total variance that withstands every coalition, by a linear program over all of them."""
    count = len(need)
    rows, least = [], []
    for group in combinations(range(count), threshold):
        outside = [i for i in range(count) if i not in group]
        if any(receivers[i] for i in group):
            rows.append([-float(i in outside) for i in range(count)])
            least.append(-max(need[i] for i in outside))
    if not rows:
        return 0.0
    solved = linprog(np.ones(count), A_ub=rows, b_ub=least)
    assert solved.success
    assert solved.fun is not None
    return float(solved.fun)


@settings(max_examples=60, deadline=None)
@given(specs(least=2))
def test_each_plan_has_the_least_noise_for_what_it_promises(spec: Spec) -> None:
    setting = Setting.of(spec)
    scale = max(float(setting.need.max()), 1e-300)
    need, worst = setting.need / scale, np.full(spec.count, setting.need.max() / scale)
    least = (
        least_total(need, setting.threshold, spec.receivers),
        least_total(worst, setting.threshold, spec.receivers),
        least_total(need, spec.count - 1, spec.receivers),
    )
    for mechanism, total in zip(SHARED, least, strict=True):
        assert mechanism.noise(setting) == pytest.approx(total * scale, rel=1e-6, abs=1e-9 * scale)


@pytest.mark.filterwarnings("ignore::tpmdp.errors.NoNoiseWarning")
@settings(max_examples=120, deadline=None)
@given(specs())
@pytest.mark.slow
def test_noise_and_protection_are_those_of_the_planner_and_the_report(spec: Spec) -> None:
    setting, plan = Setting.of(spec), tpmdp.plan(spec)
    need, threshold, receivers = plan.need, setting.threshold, spec.receivers
    assert np.array_equal(setting.need, need)
    assert np.array_equal(Optimal().variance(setting), plan.variance)
    assert Optimal().noise(setting) == plan.total_variance == baselines.total(need, threshold, receivers)
    assert np.array_equal(Optimal().enjoyed(setting), plan.protection().epsilon)
    assert SameBudget().noise(setting) == baselines.tmdp(need, threshold, receivers).total_variance
    assert AnyCoalition().noise(setting) == baselines.non_threshold(need, receivers).total_variance
    assert TrustedCurator().noise(setting) == baselines.trusted_curator(need).total_variance
