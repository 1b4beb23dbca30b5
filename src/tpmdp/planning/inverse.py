"""Planning backwards: the threshold or the budgets with which the answer has a wanted error."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Final

import numpy as np

from tpmdp._util.arrays import BoolArray
from tpmdp.errors import InputError
from tpmdp.planning.baselines import totals_by_threshold
from tpmdp.planning.losses import most_lost
from tpmdp.planning.plan import Plan, needs
from tpmdp.planning.plan import plan as make_plan
from tpmdp.spec import Spec

_STEPS: Final = 40
_DIGITS: Final = 3
_FACTOR_MAX: Final = 1e6
_PLANS_MAX: Final = 200  # of weighted plans that are tried
_RECEIVERS_MAX: Final = 50
_WEIGHTED_MAX: Final = 5
_UNUSED: Final = 0.02  # a smaller part of a budget is not worth a word
_SAME: Final = 1e-9  # relative


def highest_threshold(count: int, tolerate: int = 0) -> int:
    """The highest threshold at which so many parties may drop out; 0 if there is none.

    >>> highest_threshold(5), highest_threshold(5, 1), highest_threshold(5, 2)
    (4, 2, 0)
    """
    return max((each for each in range(1, count) if most_lost(count, each) >= tolerate), default=0)


def largest_threshold(spec: Spec, error: float, tolerate: int = 0, **weights: Any) -> int | None:
    """The largest threshold, from 1 on, at which the expected error is at most this; None if there is none.

    `tolerate` parties may drop out at that threshold. `weights` are the weighting arguments of `plan`. With weights,
    and more parties than can be tried one by one, some thresholds only are tried.

    >>> spec = Spec(epsilon=[1.0, 1.0, 1.0, 2.0], delta=1e-6, threshold=1)
    >>> largest_threshold(spec, error=7.0), largest_threshold(spec, error=1.0)
    (2, None)
    """
    checked_error(error)
    most = highest_threshold(spec.count, tolerate)
    if most < 1:
        return None
    if weights.get("weighting", "equal") == "equal":
        thresholds = list(range(1, most + 1))
        errors = np.sqrt(totals_by_threshold(needs(spec), thresholds, spec.receivers))
        reached = np.flatnonzero(errors <= error)
        return None if not len(reached) else int(reached[-1]) + 1
    tried = sorted({int(each) for each in np.linspace(1, most, min(most, _PLANS_MAX)).round()}, reverse=True)
    planned = (each for each in tried if _error_at(spec.replace(threshold=each), weights) <= error)
    return next(planned, None)


def budget_factor(spec: Spec, error: float, party: int | Sequence[int] | None = None, **weights: Any) -> float | None:
    """The least factor on all epsilons, or on those of some parties, with which the expected error is at most this.

    It has three digits. None if no factor up to a million reaches it, or if there is no noise that it could change.

    >>> spec = Spec(epsilon=[1.0, 1.0, 1.0, 2.0], delta=1e-6, threshold=2)
    >>> budget_factor(spec, error=3.0)
    2.12
    >>> strict = spec.replace(epsilon=[0.5, 1.0, 1.0, 2.0])
    >>> budget_factor(strict, error=7.0, party=0), budget_factor(strict, error=3.0, party=0)
    (1.49, None)
    >>> alike = spec.replace(epsilon=[0.5, 0.5, 1.0, 2.0])
    >>> budget_factor(alike, error=7.0, party=0), budget_factor(alike, error=7.0, party=(0, 1))
    (None, 1.69)
    """
    factor = _least_factor(spec, error, _scaled(spec, party), weights=weights)
    return None if factor is None else _rounded_up(factor)


def raised_budgets(spec: Spec, error: float, party: int | Sequence[int], **weights: Any) -> list[float] | None:
    """The least epsilons of some parties, all times one factor, with which the expected error is at most this.

    They have three digits, as those of `budget_floor`. None where `budget_factor` gives None.

    >>> strict = Spec(epsilon=[0.5, 1.0, 1.0, 2.0], delta=1e-6, threshold=2)
    >>> raised_budgets(strict, error=7.0, party=0), budget_floor(strict, error=7.0)
    ([0.742], 0.742)
    """
    scaled = _scaled(spec, party)
    factor = _least_factor(spec, error, scaled, weights=weights)
    return None if factor is None else [_rounded_up(each * factor) for each in spec.epsilon[scaled].tolist()]


def _scaled(spec: Spec, party: int | Sequence[int] | None) -> BoolArray:
    """Whose epsilons change."""
    scaled = np.full(spec.count, party is None)
    if party is not None:
        scaled[[party] if isinstance(party, int) else list(party)] = True
    return scaled


def _least_factor(spec: Spec, error: float, scaled: BoolArray, weights: dict[str, Any]) -> float | None:
    checked_error(error)

    def reaches(factor: float) -> bool:
        try:
            return (
                _error_at(spec.replace(epsilon=np.where(scaled, spec.epsilon * factor, spec.epsilon)), weights) <= error
            )
        except InputError:  # beyond what calibration can do
            return factor > 1.0

    if not _error_at(spec, weights) or not reaches(_FACTOR_MAX):
        return None
    low, high = -math.log(_FACTOR_MAX), math.log(_FACTOR_MAX)
    if reaches(math.exp(low)):
        return None
    for _ in range(_STEPS):
        middle = (low + high) / 2
        low, high = (low, middle) if reaches(math.exp(middle)) else (middle, high)
    return math.exp(high)


def budget_floor(spec: Spec, error: float, **weights: Any) -> float | None:
    """The least epsilon to which every smaller one has to be raised, so that the expected error is at most this.

    It asks nobody whose epsilon is as large already. It has three digits. None if it is not reached, or reached as is.

    >>> spec = Spec(epsilon=[0.5, 1.0, 1.0, 2.0], delta=1e-6, threshold=2)
    >>> budget_floor(spec, error=6.0), budget_floor(spec, error=100.0)
    (0.991, None)
    """
    checked_error(error)

    def reaches(floor: float) -> bool:
        try:
            return _error_at(spec.replace(epsilon=np.maximum(spec.epsilon, floor)), weights) <= error
        except InputError:  # beyond what calibration can do
            return True

    least = float(np.min(spec.epsilon))
    if not math.isfinite(least) or reaches(least) or not reaches(least * _FACTOR_MAX):
        return None
    low, high = math.log(least), math.log(least * _FACTOR_MAX)
    for _ in range(_STEPS):
        middle = (low + high) / 2
        low, high = (low, middle) if reaches(math.exp(middle)) else (middle, high)
    return _rounded_up(math.exp(high))


def error_at_threshold(spec: Spec, threshold: int, **weights: Any) -> float:
    """The expected error at another threshold.

    >>> spec = Spec(epsilon=[1.0, 1.0, 1.0, 2.0], delta=1e-6, threshold=1)
    >>> error_at_threshold(spec, 2) <= 7.0 < error_at_threshold(spec, 3)
    True
    """
    return _error_at(spec.replace(threshold=threshold), weights)


def unused_budgets(plan: Plan, **weights: Any) -> dict[int, float]:
    """Parties that offer more than the plan uses, and the epsilon that each of them could offer instead.

    That is its real epsilon, rounded up to three digits: the noise of the plan is enough for all of them at once, so
    the expected error does not grow. It is computed again; the result is empty if it would grow nevertheless.

    >>> unused_budgets(make_plan(Spec(epsilon=[0.5, 1.0, 2.0, 2.0], delta=1e-6, threshold=1)))
    {2: 1.0, 3: 1.0}
    """
    spec, epsilon = plan.spec, plan.spec.epsilon.copy()
    unused = {}
    for party, (offered, real) in enumerate(
        zip(spec.epsilon.tolist(), plan.protection().epsilon.tolist(), strict=True)
    ):
        lower = _rounded_up(real) if 0 < real < math.inf else offered
        if lower < offered * (1 - _UNUSED):
            unused[party] = epsilon[party] = lower
    grown = unused and _error_at(spec.replace(epsilon=epsilon), weights) > plan.expected_error * (1 + _SAME)
    return {} if grown else unused


def best_single_receiver(spec: Spec, **weights: Any) -> tuple[int, float] | None:
    """The receiver that alone gives the least expected error, and that error; None if there is one receiver at most.

    Of many receivers, those with the largest needs are tried.

    >>> best_single_receiver(Spec(epsilon=[2.0, 0.5, 1.0, 1.0], delta=1e-6, threshold=2, receivers=[0, 1]))[0]
    1
    """
    receivers = np.flatnonzero(spec.receivers)
    if len(receivers) < 2:
        return None
    most = _RECEIVERS_MAX if weights.get("weighting", "equal") == "equal" else _WEIGHTED_MAX
    need = needs(spec)
    tried = sorted(receivers.tolist(), key=lambda each: -need[each])[:most]
    return min(((each, _error_at(spec.replace(receivers=[each]), weights)) for each in tried), key=lambda pair: pair[1])


def _error_at(spec: Spec, weights: dict[str, Any]) -> float:
    if weights.get("weighting", "equal") == "equal" and isinstance(spec.threshold, int):
        return math.sqrt(float(totals_by_threshold(needs(spec), [spec.threshold], spec.receivers)[0]))
    return make_plan(spec, **weights).expected_error


def _rounded_up(value: float) -> float:
    """In three digits, never smaller.

    >>> _rounded_up(1.2301), _rounded_up(2.0)
    (1.24, 2.0)
    """
    unit = 10.0 ** (math.floor(math.log10(value)) - _DIGITS + 1)
    return float(f"{math.ceil(value / unit * (1 - 1e-12)) * unit:.{_DIGITS}g}")


def checked_error(error: float) -> float:
    """An error that can be wanted."""
    if not (math.isfinite(error) and error > 0):
        raise InputError("wanted error", error, "must be more than 0", "write the error that you can accept")
    return error
