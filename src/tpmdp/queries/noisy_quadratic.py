"""The Functional Mechanism (Zhang et al. 2012): minimise a quadratic loss whose coefficients are noisy.

Noise can make the quadratic form indefinite or nearly singular. Then it is regularised (one standard error on the
diagonal; Zhang et al. take four, of Laplace noise), and directions that still have no clear positive curvature are cut
off. Such an answer has no interval.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final

import numpy as np

from tpmdp._util.arrays import FloatArray

CLEAR: Final = 2.0  # times the noise of an eigenvalue: below, first-order intervals would not hold
_REGULAR: Final = 1.0  # standard errors
REGULARISED: Final = "large noise for so few records: the fit was stabilised; no interval"
TRIMMED: Final = "large noise for so few records: the fit was stabilised and cut; no interval"


@dataclass(frozen=True, eq=False)
class Minimum:
    """The coefficients, and a note if the form had to be repaired to get them."""

    coefficients: FloatArray
    note: str


def minimum(form: FloatArray, right: FloatArray, error: float) -> Minimum:
    """Solve form @ coefficients = right, where entries of the form have this standard error (diagonal: sqrt(2) times).

    >>> minimum(np.diag([100.0, 200.0]), np.array([100.0, 100.0]), 1.0).coefficients
    array([1. , 0.5])
    >>> minimum(np.diag([100.0, -1.0]), np.array([100.0, 1.0]), 0.1).note
    'large noise for so few records: the fit was stabilised and cut; no interval'
    """
    noise = spectral_noise(len(form), error)
    values, vectors = np.linalg.eigh(form)
    if values[0] > max(CLEAR * noise, 1e-9 * values[-1]):
        return Minimum(np.asarray(np.linalg.solve(form, right), dtype=np.float64), "")
    values = values + _REGULAR * error
    good = values > max(noise, 1e-9 * float(values[-1]), 1e-300)
    inverse = np.where(good, 1.0 / np.where(good, values, 1.0), 0.0)
    return Minimum(vectors @ (inverse * (vectors.T @ right)), REGULARISED if good.all() else TRIMMED)


def coefficient_errors(
    sums: FloatArray, coefficients: FloatArray, error: float, counted: bool, units: FloatArray
) -> FloatArray:
    """Standard errors of units @ coefficients, to first order; `sums` is z z^T with the target last.

    With v = (coefficients, -1) a change E of the sums moves the coefficients by -form^-1 (E v). E is symmetric, with
    standard errors `error` off the diagonal and sqrt(2) times that on it, so E v has covariance
    error^2 (|v|^2 I + v v^T); the number of records, its first entry, has no error unless it is counted.

    >>> sums = np.diag([100.0, 100.0, 50.0])
    >>> coefficient_errors(sums, np.zeros(2), 1.0, False, np.eye(2))
    array([0.01, 0.01])
    """
    v = np.append(coefficients, -1.0)
    moved = error**2 * ((v @ v) * np.eye(len(v)) + np.outer(v, v))[:-1, :-1]
    if not counted:
        moved[0, 0] -= 2 * (error * v[0]) ** 2
    applied = np.linalg.solve(sums[:-1, :-1], np.eye(len(coefficients)))
    spread = units @ applied @ moved @ applied.T @ units.T
    return np.asarray(np.sqrt(np.maximum(np.diag(spread), 0.0)), dtype=np.float64)


def spectral_noise(size: int, error: float) -> float:
    """About the largest eigenvalue of the noise: 2 sqrt(size) standard errors (Wigner's semicircle).

    >>> spectral_noise(4, 1.0)
    4.0
    """
    return 2 * math.sqrt(size) * error
