"""Planning backwards, against plans for every threshold and factors around the answer."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

import tpmdp
from tpmdp.errors import InputError
from tpmdp.planning.inverse import budget_factor, budget_floor, largest_threshold

EPSILONS = [[0.5, 1.0, 2.0, 2.0], [1.0] * 6, [0.1, 3.0], [0.3, 0.8, 0.8, 1.0, 2.0, 3.0, 2.0]]
RECEIVERS: list[Any] = ["all", [0], [0, 1]]


def error_of(spec: tpmdp.Spec, **weights: Any) -> float:
    return tpmdp.plan(spec, **weights).expected_error


@pytest.mark.parametrize("epsilon", EPSILONS)
@pytest.mark.parametrize("receivers", RECEIVERS)
@pytest.mark.parametrize("weighting", ["equal", "balanced"])
def test_the_largest_threshold_is_that_of_a_search(epsilon: list[float], receivers: Any, weighting: str) -> None:
    spec = tpmdp.Spec(epsilon=epsilon, delta=1e-6, threshold=1, receivers=receivers)
    errors = {t: error_of(spec.replace(threshold=t), weighting=weighting) for t in range(1, spec.count)}
    for wanted in (*(value * (1 + 1e-9) for value in errors.values()), *(value * 0.99 for value in errors.values())):
        reached = [t for t, value in errors.items() if value <= wanted]
        assert largest_threshold(spec, wanted, weighting=weighting) == (max(reached) if reached else None)


@pytest.mark.parametrize("weighting", ["equal", "balanced"])
def test_losses_bound_the_threshold_and_not_the_error(weighting: str) -> None:
    spec = tpmdp.Spec(epsilon=[1.0, 1.0, 1.0, 2.0, 2.0, 3.0], delta=1e-6, threshold=1)
    errors = {t: error_of(spec.replace(threshold=t), weighting=weighting) for t in range(1, 5)}
    for wanted, threshold in ((errors[4], 4), (errors[2], 2)):
        largest = [
            largest_threshold(spec, wanted * (1 + 1e-9), tolerate=losses, weighting=weighting) for losses in range(4)
        ]
        assert largest == [threshold, min(threshold, 3), 1, None]


@pytest.mark.parametrize("epsilon", EPSILONS)
@pytest.mark.parametrize("wanted", [0.5, 3.0, 50.0])
@pytest.mark.parametrize("weighting", ["equal", "balanced"])
def test_the_factor_reaches_the_error_and_a_smaller_one_does_not(
    epsilon: list[float], wanted: float, weighting: str
) -> None:
    spec = tpmdp.Spec(epsilon=epsilon, delta=1e-6, threshold=1)
    factor = budget_factor(spec, wanted, weighting=weighting)
    assert factor is not None
    assert error_of(spec.replace(epsilon=spec.epsilon * factor), weighting=weighting) <= wanted
    assert error_of(spec.replace(epsilon=spec.epsilon * factor * 0.989), weighting=weighting) > wanted


@pytest.mark.parametrize("epsilon", EPSILONS)
@pytest.mark.parametrize("weighting", ["equal", "balanced"])
def test_a_floor_reaches_the_error_with_the_least_epsilon_for_all_below_it(
    epsilon: list[float], weighting: str
) -> None:
    spec = tpmdp.Spec(epsilon=epsilon, delta=1e-6, threshold=1)
    now = error_of(spec, weighting=weighting)
    assert budget_floor(spec, now * 1.001, weighting=weighting) is None
    for share in (0.9, 0.3):
        floor = budget_floor(spec, now * share, weighting=weighting)
        assert floor is not None
        raised = error_of(spec.replace(epsilon=np.maximum(epsilon, floor)), weighting=weighting)
        before = error_of(spec.replace(epsilon=np.maximum(epsilon, floor * 0.989)), weighting=weighting)
        assert raised <= now * share < before
        assert (np.asarray(epsilon) < floor).any()


@pytest.mark.parametrize("wanted", [0.0, -1.0, math.inf, math.nan])
def test_an_error_that_nobody_can_want_is_refused(wanted: float) -> None:
    spec = tpmdp.Spec(epsilon=[1.0, 1.0], delta=1e-6, threshold=1)
    for inverse in (largest_threshold, budget_factor, budget_floor):
        with pytest.raises(InputError, match="wanted error"):
            inverse(spec, wanted)


def test_without_noise_there_is_no_factor() -> None:
    spec = tpmdp.Spec(epsilon=np.full(3, np.inf), delta=1e-6, threshold=1)
    assert budget_factor(spec, 1.0) is None
    assert largest_threshold(spec, 1.0) == 2
    assert largest_threshold(spec.replace(epsilon=1.0), 1e-9) is None
