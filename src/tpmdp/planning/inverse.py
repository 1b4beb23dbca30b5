"""Planning backwards: the threshold or the budgets with which the answer has a wanted error."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Final

import numpy as np

from tpmdp.errors import InputError
from tpmdp.planning.baselines import totals_by_threshold
from tpmdp.planning.plan import needs
from tpmdp.planning.plan import plan as make_plan
from tpmdp.spec import Spec

_STEPS: Final = 40
_DIGITS: Final = 3
_FACTOR_MAX: Final = 1e6
_PLANS_MAX: Final = 200  # of weighted plans that are tried


def largest_threshold(spec: Spec, error: float, tolerate: int = 0, **weights: Any) -> int | None:
    """The largest threshold, from 1 on, at which the expected error is at most this; None if there is none.

    `tolerate` parties may drop out besides. `weights` are the weighting arguments of `plan`. With weights, and more
    parties than can be tried one by one, some thresholds only are tried.

    >>> spec = Spec(epsilon=[1.0, 1.0, 1.0, 2.0], delta=1e-6, threshold=1)
    >>> largest_threshold(spec, error=7.0), largest_threshold(spec, error=1.0)
    (2, None)
    """
    checked_error(error)
    most = spec.count - 1 - tolerate
    if most < 1:
        return None
    if weights.get("weighting", "equal") == "equal":
        thresholds = list(range(1 + tolerate, most + tolerate + 1))
        errors = np.sqrt(totals_by_threshold(needs(spec), thresholds, spec.receivers))
        reached = np.flatnonzero(errors <= error)
        return None if not len(reached) else int(reached[-1]) + 1
    tried = sorted({int(each) for each in np.linspace(1, most, min(most, _PLANS_MAX)).round()}, reverse=True)
    planned = (each for each in tried if _error_at(spec.replace(threshold=each + tolerate), weights) <= error)
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
    checked_error(error)
    scaled = np.full(spec.count, party is None)
    if party is not None:
        scaled[[party] if isinstance(party, int) else list(party)] = True

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
    return _rounded_up(math.exp(high))


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
