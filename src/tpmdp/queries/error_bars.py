"""Error bars of answers that are not linear in the noisy sums: exact for ratios, to first order for others."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Final

import numpy as np

from tpmdp._util.arrays import FloatArray
from tpmdp.queries.answer import Z_95

_DRAWS: Final = 400
_STEP: Final = 0.01  # of a standard error, for derivatives


def ratio_interval(
    top: float, bottom: float, top_error: float, bottom_error: float, low: float, high: float
) -> tuple[float, float]:
    """The 95 % interval of a ratio known to lie in [low, high], from two independent normal estimates (Fieller 1954).

    It covers the truth in 95 % of all cases, however noisy the bottom is; if that is all noise, it is the whole range.

    >>> low, high = ratio_interval(50.0, 100.0, 1.0, 1.0, 0.0, 1.0)
    >>> round(low, 4), round(high, 4)
    (0.4783, 0.5221)
    >>> ratio_interval(50.0, 1.0, 10.0, 10.0, 0.0, 1.0)
    (0.0, 1.0)
    """
    square = Z_95 * Z_95
    a = bottom * bottom - square * bottom_error * bottom_error
    b = top * bottom
    # b^2 - a c for c = top^2 - z^2 top_error^2, written such that it is 0 where there are no errors
    cross = (bottom * top_error) ** 2 + (top * bottom_error) ** 2
    inside = square * (cross - square * (top_error * bottom_error) ** 2)
    if a <= 0 or inside < 0:
        return low, high
    root = math.sqrt(inside)
    return min(max((b - root) / a, low), high), max(min((b + root) / a, high), low)


def first_order(function: Callable[[FloatArray], FloatArray], total: FloatArray, standard_error: float) -> FloatArray:
    """Standard errors of smooth functions of sums with independent errors (the delta method).

    >>> first_order(lambda sums: np.array([sums[0] + 2 * sums[1]]), np.zeros(2), 1.0).round(6)
    array([2.236068])
    """
    if standard_error == 0:
        return np.zeros_like(function(total))
    errors = np.zeros_like(function(total))
    for place in range(len(total)):
        moved = [total.copy(), total.copy()]
        moved[0][place] += _STEP * standard_error
        moved[1][place] -= _STEP * standard_error
        errors = np.hypot(errors, (function(moved[0]) - function(moved[1])) / (2 * _STEP))
    return errors


def simulated(function: Callable[[FloatArray], float], total: FloatArray, standard_error: float) -> float:
    """The error of a function that is far from linear: its spread and bias under noise like that in the sums.

    >>> simulated(lambda sums: float(sums[0] ** 2), np.zeros(1), 1.0) > 1
    True
    """
    random = np.random.default_rng(0)  # nothing secret depends on it
    moved = [function(total + standard_error * random.normal(size=len(total))) for _ in range(_DRAWS)]
    return math.hypot(float(np.std(moved)), float(np.mean(moved)) - function(total))
