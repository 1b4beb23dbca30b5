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

CLEAR: Final = 2.0  # times the noise of an eigenvalue: below, the form is repaired
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


def spectral_noise(size: int, error: float) -> float:
    """About the largest eigenvalue of the noise: 2 sqrt(size) standard errors (Wigner's semicircle).

    >>> spectral_noise(4, 1.0)
    4.0
    """
    return 2 * math.sqrt(size) * error
