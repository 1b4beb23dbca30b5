"""The joint cost of several releases per party: basic, advanced and exact Gaussian composition.

Axis 0 runs over releases, a second axis (if any) over parties. Every result is rounded up: a cost is never
understated. Theory, "Composition".
"""

from __future__ import annotations

from typing import Final

import numpy as np
from numpy.typing import ArrayLike

from tpmdp._util.arrays import FloatArray
from tpmdp._util.budget_rules import SENSITIVITY_MAX, SENSITIVITY_MIN, check_delta
from tpmdp.errors import InputError
from tpmdp.gaussian.calibration import epsilon_at

_EPS: Final = float(np.finfo(np.float64).eps)


def _costs(field: str, values: ArrayLike) -> FloatArray:
    array = np.atleast_1d(np.asarray(values, dtype=np.float64))
    if not (array >= 0).all():
        bad = float(array[~(array >= 0)].flat[0])
        raise InputError(field, bad, "must not be negative or NaN", "give the cost of each release")
    return array


def _sum_up(values: FloatArray) -> FloatArray:
    """The sum over releases, rounded up by the largest possible rounding error."""
    with np.errstate(over="ignore"):
        return np.asarray(values.sum(axis=0) * (1.0 + (len(values) + 2) * _EPS))


def _plain(result: FloatArray) -> float | FloatArray:
    return result if result.ndim else float(result)


def compose_basic(epsilon: ArrayLike, delta: ArrayLike) -> tuple[float | FloatArray, float | FloatArray]:
    """Basic composition (Theorem 4): epsilons add up, deltas add up.

    >>> epsilon, delta = compose_basic([0.1, 0.2], [1e-6, 1e-6])
    >>> print(f"{epsilon:.3f} {delta:.1e}")
    0.300 2.0e-06
    """
    return _plain(_sum_up(_costs("epsilon", epsilon))), _plain(np.minimum(_sum_up(_costs("delta", delta)), 1.0))


def compose_advanced(
    epsilon: ArrayLike, delta: ArrayLike, releases: int, extra_delta: ArrayLike
) -> tuple[float | FloatArray, float | FloatArray]:
    """Advanced composition of like releases (Theorem 5, with its first component corrected to the composed epsilon).

    `epsilon` and `delta` are those of one release, a number or one per party; the result's delta is
    releases * delta + extra_delta.

    >>> epsilon, delta = compose_advanced(0.1, 0.0, releases=100, extra_delta=1e-6)
    >>> print(f"{epsilon:.3f} {delta:.1e}")
    6.308 1.0e-06
    """
    if releases < 1 or releases != int(releases):
        raise InputError("releases", releases, "must be a whole number from 1", "give how many releases are composed")
    eps, dlt = np.asarray(epsilon, dtype=np.float64), np.asarray(delta, dtype=np.float64)
    extra = np.asarray(extra_delta, dtype=np.float64)
    _costs("epsilon", eps)
    _costs("delta", dlt)
    check_delta(extra, np.array(1.0))
    with np.errstate(over="ignore"):
        composed = np.sqrt(-2.0 * releases * np.log(extra)) * eps + releases * eps * np.expm1(eps)
    total = np.minimum((releases * dlt + extra) * (1.0 + 4 * _EPS), 1.0)
    return _plain(np.asarray(composed * (1.0 + 16 * _EPS))), _plain(np.asarray(total))


def compose_gaussian(mu: ArrayLike) -> float | FloatArray:
    """Exact composition of Gaussian releases: their joint mu is the root of the sum of squares.

    Holds for adaptively chosen releases too, as a filter on the sum of mu^2 (Smith and Thakurta 2022).

    >>> print(f"{compose_gaussian([0.3, 0.4]):.6f}")
    0.500000
    """
    values = _costs("mu", mu)
    scale = np.asarray(values.max(axis=0))  # so that no square overflows or vanishes
    with np.errstate(invalid="ignore", divide="ignore"):
        shares = np.where(scale > 0, values / scale, 0.0)
        joint = scale * np.sqrt(_sum_up(shares * shares)) * (1.0 + 4 * _EPS)
    return _plain(
        np.asarray(np.where(np.isfinite(scale), np.nextafter(joint, np.where(scale > 0, np.inf, 0.0)), np.inf))
    )


def epsilon_of(mu: ArrayLike, delta: ArrayLike) -> float | FloatArray:
    """The epsilon at this delta of Gaussian releases with this mu; never too small.

    >>> import tpmdp
    >>> mu = compose_gaussian([tpmdp.mu_at(tpmdp.calibrate(0.1, 1e-6))] * 100)
    >>> print(f"{epsilon_of(mu, 1e-6):.3f}")
    1.178
    """
    values = np.asarray(mu, dtype=np.float64)
    _costs("mu", values)
    floor = np.where(values > 0, np.maximum(values, SENSITIVITY_MIN), 0.0)
    finite = np.where(values <= SENSITIVITY_MAX, floor, 1.0)
    result = np.asarray(epsilon_at(1.0, delta, finite))
    return _plain(np.where(values <= SENSITIVITY_MAX, result, np.inf))
