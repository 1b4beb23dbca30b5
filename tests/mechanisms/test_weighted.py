"""W: its noise against the program of all coalitions, its bias against every set of bits, and every party's budget."""

from __future__ import annotations

import math
from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings

import tpmdp
from tests.mechanisms.cases import INF, both_problems, least_honest_of_any_size, specs, study
from tests.mechanisms.test_additive import assert_enjoyed
from tests.planning.test_balance import least_total
from tpmdp import InputError, Spec
from tpmdp.mechanisms.additive import Optimal
from tpmdp.mechanisms.mechanism import Setting
from tpmdp.mechanisms.problem import CountProblem, RegressionProblem
from tpmdp.mechanisms.public_weights import OneBudget, PublicWeights, TwoLevels, Weighted

W = Weighted()
EVERY: tuple[PublicWeights, ...] = (W, TwoLevels(), OneBudget())
ALL_BITS = [np.array(bits, dtype=np.float64) for bits in product((0, 1), repeat=6)]
STUDIES = [
    Spec(epsilon=[0.05, 0.1, 0.3, 1.0, 2.0, 2.0], delta=1e-4, threshold=threshold, receivers=receivers)
    for threshold in (1, 3, 5)
    for receivers in ("all", [0], [1, 4])
]


@pytest.mark.parametrize("spec", STUDIES, ids=lambda spec: f"t = {spec.threshold}, {spec.receiver_count} receive")
def test_error_is_least_and_as_expected_over_all_data(spec: Spec) -> None:
    """Fair coins have the spread of 0.5: over all 64 sets of bits the mean squared error is the weights' least one."""
    setting = Setting.of(spec, 0.5)
    weights = setting.weights
    scale = 6 / weights.each.sum()
    noise = scale**2 * least_total(weights.each**2 * setting.need, int(np.max(spec.threshold)), spec.receivers)
    assert W.noise(setting) == pytest.approx(noise, rel=1e-7)
    assert W.noise(setting) < 0.5 * Optimal().noise(setting)
    squares, biases = [], []
    for bits in ALL_BITS:
        error = W.error(setting, CountProblem(bits))
        assert error.bias[0] == pytest.approx(scale * weights.each @ bits - bits.sum(), abs=1e-12)
        assert error.variance[0] == W.noise(setting)
        biases.append(abs(float(error.bias[0])))
        squares.append(float(error.rmse[0]) ** 2)
    assert weights.least is not None
    assert np.mean(squares) == pytest.approx(weights.least, rel=1e-9)
    assert max(biases) <= weights.bias_bound  # whatever the data
    assert max(biases) == pytest.approx(weights.bias_bound, rel=1e-9)  # and no bound would be smaller


@settings(max_examples=100, deadline=None)
@given(specs())
@pytest.mark.slow
def test_drawn_studies_keep_every_budget(spec: Spec) -> None:
    """Against every coalition, for a contribution that is weighted: an input moves the sum by so much less."""
    setting = Setting.of(spec)
    for mechanism in EVERY:
        weights = mechanism.weights(setting)
        weighted = setting.weighted(weights)
        honest = least_honest_of_any_size(Optimal().variance(weighted), setting.threshold, spec.receivers)
        enjoyed = mechanism.enjoyed(setting)
        assert (enjoyed <= spec.epsilon).all()
        assert (weighted.spec.sensitivity >= weights.each * spec.sensitivity).all()
        assert_enjoyed(weighted.spec, honest, enjoyed)


@pytest.mark.parametrize("spec", STUDIES, ids=lambda spec: f"t = {spec.threshold}, {spec.receiver_count} receive")
def test_baselines_err_as_expected_over_all_data_and_more_than_balanced_weights(spec: Spec) -> None:
    setting = Setting.of(spec, 0.5)
    means = []
    for mechanism in (*EVERY, Optimal()):
        squares = [float(mechanism.error(setting, CountProblem(bits)).rmse[0]) ** 2 for bits in ALL_BITS]
        means.append(float(np.mean(squares)))
        if isinstance(mechanism, PublicWeights):
            weights = mechanism.weights(setting)
            assert np.mean(squares) == pytest.approx(mechanism.noise(setting) + weights.spread_error**2, rel=1e-9)
    assert means == sorted(means)
    assert means[-1] > 2 * means[0]


def test_a_party_that_is_left_out_is_protected_wholly() -> None:
    setting = Setting.of(Spec(epsilon=[0.01, 1.0, 1.0, 1.0], delta=1e-6, threshold=2), 0.5)
    assert setting.one_budget.each.tolist() == [0.0, 1.0, 1.0, 1.0]
    assert setting.one_budget is setting.one_budget  # found once
    assert OneBudget().enjoyed(setting)[0] == 0
    assert 0 < TwoLevels().enjoyed(setting)[0] <= 0.01


@pytest.mark.filterwarnings("ignore::tpmdp.errors.NoNoiseWarning")
@settings(max_examples=60, deadline=None)
@given(specs())
def test_it_is_the_balanced_plan(spec: Spec) -> None:
    setting, plan = Setting.of(spec), tpmdp.plan(spec, weighting="balanced")
    assert np.array_equal(setting.weights.each, plan.weights.each)
    assert math.sqrt(W.noise(setting)) == pytest.approx(plan.standard_deviation, rel=1e-9)
    assert W.enjoyed(setting) == pytest.approx(plan.protection().epsilon, rel=1e-6, abs=1e-9)


def test_parts_and_other_coalitions_have_weights_of_their_own() -> None:
    setting = Setting.of(Spec(epsilon=[0.1, 0.5, 1.0, 2.0], delta=1e-6, threshold=1), 0.5)
    more = setting.against(3)
    assert np.array_equal(more.need, Setting.of(setting.spec.replace(threshold=3)).need)
    assert not np.allclose(more.weights.each, setting.weights.each)
    assert setting.weights is setting.weights  # found once
    assert len(setting.part(np.array([0, 3]), 1).weights.each) == 2
    with pytest.raises(InputError, match="spread = -1"):
        W.noise(Setting.of(setting.spec, -1.0))


def test_a_smaller_spread_means_less_noise_and_more_imbalance() -> None:
    spec = Spec(epsilon=np.geomspace(0.5, 40, 200), delta=1e-6, threshold=100)
    found = [Setting.of(spec, spread) for spread in (0.001, 0.01, 0.1, 0.5)]
    noise, imbalance = [W.noise(one) for one in found], [one.weights.imbalance for one in found]
    assert noise[0] <= noise[1] * (1 + 1e-9) < noise[2] < noise[3] < Optimal().noise(found[-1])
    assert imbalance[0] >= imbalance[1] * (1 - 1e-9) > imbalance[2] > imbalance[3] > 0


def test_who_asks_for_nothing_keeps_its_whole_weight() -> None:
    for problem in both_problems(4):
        setting = study(problem, [0.01, 1.0, INF, INF])
        assert setting.weights.each[2:].tolist() == [1.0, 1.0]
        assert W.enjoyed(setting)[:2].tolist() == pytest.approx([0.01, 1.0], rel=1e-6)


# --- the spread of a problem -----------------------------------------------------------------------------------------


def total_variance(records: object, chances: object) -> float:
    """Variances of all entries of a party's vector, added up, when its record is drawn with these chances."""
    vectors = np.stack([RegressionProblem([record]).total for record in np.asarray(records)])
    chance = np.asarray(chances)
    mean = chance @ vectors
    return float(chance @ np.sum((vectors - mean) ** 2, axis=1))


@pytest.mark.parametrize("columns", [2, 3, 5])
def test_no_records_spread_more_than_independent_signs(columns: int) -> None:
    problem = RegressionProblem(np.zeros((1, columns)))
    limit = problem.spread**2 * len(problem.total)
    corners = np.array(list(product((-1.0, 1.0), repeat=columns)))
    assert total_variance(corners, np.full(len(corners), 1 / len(corners))) == pytest.approx(limit, rel=1e-12)
    random = np.random.default_rng(columns)
    for _ in range(300):
        records = np.clip(random.normal(0, random.choice([0.3, 1.0, 5.0]), (random.integers(2, 30), columns)), -1, 1)
        chances = random.dirichlet(np.full(len(records), random.choice([0.1, 1.0, 10.0])))
        assert total_variance(records, chances) <= limit
    assert problem.spread < problem.sensitivity / math.sqrt(2 * (len(problem.total) + 1))  # as Jung's theorem has it


def test_no_bit_spreads_more_than_a_fair_coin() -> None:
    assert CountProblem([0]).spread ** 2 == max(p * (1 - p) for p in np.linspace(0, 1, 101))
