"""Settings, what does not fit, and ugly studies: nothing warns, nothing is NaN, and every refusal says what to do."""

from __future__ import annotations

import math
from functools import partial
from itertools import product
from typing import Any

import numpy as np
import pytest

from tests.mechanisms.cases import INF, both_problems, study
from tests.mechanisms.test_problem import assert_one_line
from tpmdp import InputError, Spec
from tpmdp.mechanisms.mechanism import Mechanism, Setting, check_fit
from tpmdp.mechanisms.problem import CountProblem, Problem, RegressionProblem
from tpmdp.mechanisms.registry import MECHANISMS

EVERY = pytest.mark.parametrize("mechanism", MECHANISMS.values(), ids=MECHANISMS)


def example() -> Setting:
    return Setting.of(
        Spec(
            epsilon=[0.5, 1.0, 2.0, INF, 0.5],
            delta=[1e-6, 1e-5, 1e-4, 0.0, 1e-3],
            sensitivity=[1.0, 2.0, 3.0, 4.0, 5.0],
            threshold=3,
            receivers=[0, 2],
        ),
        0.25,
    )


@pytest.mark.parametrize("chosen", [np.array([4, 0, 2]), np.array([1, 3]), np.array([2])], ids=str)
def test_a_part_keeps_needs_and_order(chosen: Any) -> None:
    whole = example()
    part = whole.part(chosen, len(chosen) - 1)
    assert part.need.tolist() == whole.need[chosen].tolist() == Setting.of(part.spec).need.tolist()
    for field in ("epsilon", "delta", "sensitivity", "receivers"):
        assert getattr(part.spec, field).tolist() == getattr(whole.spec, field)[chosen].tolist()
    assert (part.spec.count, part.threshold) == (len(chosen), len(chosen) - 1)
    assert whole.spread == part.spread == 0.25
    assert whole.spec.count == 5


def test_a_part_by_mask_is_the_part_by_index() -> None:
    mask, index = np.array([True, False, True, False, True]), np.array([0, 2, 4])
    by_mask, by_index = example().part(mask, 1), example().part(index, 1)
    assert by_mask.spec == by_index.spec
    assert by_mask.need.tolist() == by_index.need.tolist()


def test_a_part_of_one_value_for_all() -> None:
    part = Setting.of(Spec(epsilon=[0.5, 1.0, 2.0], delta=1e-6, threshold=1)).part(np.array([2, 1]), 0)
    assert part.spec.delta.tolist() == [1e-6] * 2
    assert part.need[0] < part.need[1]


def test_parts_are_checked_like_any_study() -> None:
    for chosen, threshold in ((np.array([0, 1]), 2), (np.array([0, 1]), -1), (np.array([], dtype=np.int64), 0)):
        with pytest.raises(InputError):
            example().part(chosen, threshold)


def test_personal_thresholds_are_refused() -> None:
    with pytest.raises(InputError, match="threshold = personal differs between parties") as caught:
        Setting.of(Spec(epsilon=[1.0, 1.0, 1.0], delta=1e-6, threshold=[1, 2, 1]))
    assert_one_line(caught.value)
    assert Setting.of(Spec(epsilon=[1.0, 1.0], delta=1e-6, threshold=[1, 1])).threshold == 1  # the same for all


@EVERY
@pytest.mark.parametrize("problem", both_problems(3), ids=["count", "regression"])
def test_budgets_for_others_are_refused(mechanism: Mechanism, problem: Problem) -> None:
    rng = np.random.default_rng(0)
    for epsilon in ([1.0, 1.0], [1.0] * 4, [1.0]):
        setting = study(problem, epsilon)
        for act in (
            lambda setting=setting: mechanism.error(setting, problem),
            lambda setting=setting: mechanism.release(setting, problem, rng),
            lambda setting=setting: check_fit(setting, problem),
        ):
            with pytest.raises(InputError) as caught:
                act()
            assert (caught.value.field, caught.value.value) == ("budgets", len(epsilon))
            assert_one_line(caught.value)


@EVERY
@pytest.mark.parametrize("problem", both_problems(3), ids=["count", "regression"])
def test_noise_for_less_than_the_inputs_can_change_is_refused(mechanism: Mechanism, problem: Problem) -> None:
    enough = problem.sensitivity
    less = math.nextafter(enough, 0.0)
    for sensitivity in (less, [enough, less, enough], 0.0):
        setting = study(problem, [1.0, 2.0, 3.0], sensitivity=sensitivity)
        for act in (mechanism.error, partial(mechanism.release, random=np.random.default_rng(0))):
            with pytest.raises(InputError, match="is less than that of the problem") as caught:
                act(setting, problem)
            assert (caught.value.field, caught.value.value) == ("sensitivity", np.min(sensitivity))
            assert_one_line(caught.value)
    check_fit(study(problem, [1.0, 2.0, 3.0], sensitivity=[enough, 2 * enough, enough]), problem)


UGLY = [1e-20, 1e-9, 0.1, 800.0, 1e9, INF]


@pytest.mark.slow
@EVERY
def test_ugly_budgets_give_numbers(mechanism: Mechanism) -> None:
    """Every warning is an error here, so neither overflow nor 0 times infinity can hide."""
    rng = np.random.default_rng(0)
    budgets = [*product(UGLY, repeat=1), *product(UGLY, repeat=2), (1e-20, 1e9, INF), (0.1, 0.1, 0.1), (1e9, 1e9, 1.0)]
    for epsilon, delta in product(budgets, (1e-300, 1e-6, 0.9)):
        for problem in both_problems(len(epsilon)):
            setting = study(problem, epsilon, delta)
            error = mechanism.error(setting, problem)
            assert np.isfinite(error.bias).all()
            assert np.isfinite(error.variance).all()
            assert (error.variance >= 0).all()
            assert np.isfinite(mechanism.release(setting, problem, rng, 2)).all()
            enjoyed = mechanism.enjoyed(setting)
            assert enjoyed.shape == (len(epsilon),)
            assert (enjoyed >= 0).all()
            assert mechanism.name == "non-pri" or (enjoyed <= setting.spec.epsilon).all()


@EVERY
@pytest.mark.parametrize("count", [1, 2, 4])
def test_who_asks_for_nothing_gets_the_exact_sum(mechanism: Mechanism, count: int) -> None:
    for problem, delta in product(both_problems(count), (0.0, 1e-6)):
        setting = study(problem, [INF] * count, delta)
        error = mechanism.error(setting, problem)
        assert not error.bias.any()
        assert not error.variance.any()
        answer = mechanism.release(setting, problem, np.random.default_rng(0), 2)
        assert answer == pytest.approx(np.stack([problem.total] * 2), rel=1e-12, abs=1e-12)
        assert mechanism.noise(setting) == 0


@EVERY
@pytest.mark.parametrize("count", [1, 2, 3])
def test_every_threshold_and_few_receivers_are_allowed(mechanism: Mechanism, count: int) -> None:
    epsilon = [0.5, 2.0, 0.5][:count]
    receivers: list[Any]
    for threshold in range(count):
        for receivers in ([], [0], list(range(count))):
            for problem in both_problems(count):
                setting = study(problem, epsilon, threshold=threshold, receivers=receivers)
                assert np.isfinite(mechanism.release(setting, problem, np.random.default_rng(0))).all()
                noise, enjoyed = mechanism.noise(setting), mechanism.enjoyed(setting)
                assert mechanism.error(setting, problem).variance.shape == problem.total.shape
                if mechanism.name in ("G", "TMDP") and (threshold == 0 or not receivers):
                    assert noise == 0  # nobody attacks
                    assert (enjoyed == 0).all()
                if mechanism.name == "MIN":
                    assert noise == setting.need.max() > 0
                if mechanism.name == "non-thre":
                    assert (noise > 0) == (count > 1 and bool(receivers))


@EVERY
@pytest.mark.parametrize("bits", [[0, 0, 0], [1, 1, 1]])
def test_all_bits_alike(mechanism: Mechanism, bits: list[int]) -> None:
    problem = CountProblem(bits)
    setting = study(problem, [0.5, 2.0, 30.0])
    bias = float(mechanism.error(setting, problem).bias[0])
    if mechanism.name == "Sample" and sum(bits) == 3:
        assert bias < -0.1
    else:
        assert bias == pytest.approx(0, abs=1e-12)  # weights of parties that are all alike do not matter
    assert np.isfinite(mechanism.release(setting, problem, np.random.default_rng(0), 5)).all()


@EVERY
def test_no_inputs_fit_no_study(mechanism: Mechanism) -> None:
    """A study has at least one party, so a problem without any is refused where they meet, if not before."""

    def meet(kind: Any, inputs: Any) -> None:
        mechanism.error(Setting.of(Spec(epsilon=[1.0], delta=1e-6, sensitivity=100.0, threshold=0)), kind(inputs))

    for kind, inputs in ((CountProblem, []), (RegressionProblem, np.empty((0, 2)))):
        with pytest.raises(InputError) as caught:
            meet(kind, inputs)
        assert_one_line(caught.value)
