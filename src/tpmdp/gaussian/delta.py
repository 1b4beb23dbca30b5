"""log delta of the Gaussian mechanism in doubles, each value with a proven bound on its rounding error.

Symbols: mu = sensitivity / sigma, m = epsilon / mu, a = m - mu/2, b = m + mu/2, and R the Mills ratio
Phi(-x) / phi(x). Then delta = phi(a) (R(a) - R(b)) and 1 - delta = phi(a) (R(-a) + R(b)); Theory, Lemma C1.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, NamedTuple

import numpy as np
from scipy.special import erfcx

from tpmdp._util.arrays import FloatArray

U: Final = 2.0**-53
_LOG_SQRT_2PI: Final = 0.9189385332046727


class LogDelta(NamedTuple):
    """log delta at (mu, m), or log(1 - delta) if `side` is -1; see Theory, Lemma C1."""

    log_value: FloatArray
    kappa: FloatArray  # d log mu / d log_value, without its sign
    tau: FloatArray  # bound on the rounding error of log_value
    mills_b: FloatArray  # R(b), to first order in the series region


Evaluate = Callable[[FloatArray, FloatArray, int], LogDelta]


def mills(x: FloatArray) -> FloatArray:
    """The Mills ratio R(x) = Phi(-x) / phi(x).

    >>> mills(np.array([0.0, 2.0])).round(6)
    array([1.253314, 0.421369])
    """
    value: FloatArray = 1.2533141373155003 * erfcx(x * 0.7071067811865476)
    return value


def mills_error(x: FloatArray) -> FloatArray:
    """Bound on the relative error of `mills` for x >= -1.5; Theory, assumption A3.

    >>> float(mills_error(np.array(0.0))) == 24 * U
    True
    """
    return (12 * U) * (1.0 + 1.0 / (1.0 + x * x))


def evaluate_direct(mu: FloatArray, m: FloatArray, side: int) -> LogDelta:
    """Lemma C1, regions "difference" (side 1) and "complement" (side -1).

    >>> np.exp(evaluate_direct(np.array(1.0), np.array(1.0), 1).log_value).round(6)
    np.float64(0.126937)
    """
    half = 0.5 * mu
    a, b = m - half, m + half
    mills_a, mills_b = mills(a if side > 0 else -a), mills(b)
    value = mills_a - side * mills_b
    slope_a = np.abs(side * a * mills_a - 1.0)
    absolute = mills_error(a) * mills_a + mills_error(b) * mills_b
    absolute += (4 * U) * b * (slope_a + np.abs(1.0 - b * mills_b) + 8 * U)
    return _finish(a, b, value, absolute=absolute, kappa=value / mu, mills_b=mills_b)


def evaluate_series(mu: FloatArray, m: FloatArray, side: int) -> LogDelta:
    """Lemma C1, region "series": R(a) - R(b) by seven odd Taylor terms about m.

    >>> np.exp(evaluate_series(np.array(0.1), np.array(1.0), 1).log_value).round(6)
    np.float64(0.008752)
    """
    del side  # always 1: delta is small here
    half = 0.5 * mu
    a, b = m - half, m + half
    ratio = mills(m)
    square = half * half
    previous, current = ratio, m * ratio - 1.0  # R and R', then R^(j+1) = j R^(j-1) + m R^(j)
    slope = current
    kappa = -current
    term = np.ones_like(mu)
    for order in (1, 3, 5, 7, 9, 11):
        previous, current = current, order * previous + m * current
        previous, current = current, (order + 1) * previous + m * current
        term = term * (square / ((order + 1) * (order + 2)))
        kappa = kappa - term * current
    remainder = 6144.0 * term * square  # twice the first omitted term at m = 0, where it is largest
    y = half * (m + 1.0)
    growth = 0.17 * y * y * np.exp(0.05 * y * y) + 0.15 * mu * mu  # of errors through the recurrence
    absolute = mu * (mills_error(m) + (16 * U) + (32 * U) * growth + remainder)
    mills_b = ratio + half * (slope + 0.5 * half * (ratio + m * slope))
    return _finish(a, b, kappa * mu, absolute=absolute, kappa=kappa, mills_b=mills_b)


def _finish(
    a: FloatArray, b: FloatArray, value: FloatArray, absolute: FloatArray, kappa: FloatArray, mills_b: FloatArray
) -> LogDelta:
    """log value and the bound tau on its error, from the absolute error of the value."""
    log_value = np.log(value)
    size = np.abs(a)
    tau = absolute / value + U * (size * (4 * b + 3 * size) + 8 * np.abs(log_value) + 16)
    return LogDelta(log_value - (0.5 * a * a + _LOG_SQRT_2PI), kappa, tau, mills_b=mills_b)
