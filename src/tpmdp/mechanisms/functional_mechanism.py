"""The Functional Mechanism for linear regression (Zhang et al. 2012): least squares on products that are noisy."""

from __future__ import annotations

from typing import Final

import numpy as np

from tpmdp._util.arrays import FloatArray

REGULAR: Final = 4.0
"""Standard deviations of the noise that are added to the diagonal (Zhang et al., Section 6.1)."""
_TINY: Final = 1e-12


def fit(matrix: FloatArray, deviation: float) -> FloatArray:
    """Coefficients of the features and of the constant, from the matrix of products of (features, target, 1).

    `deviation` is that of the noise of its diagonal. With noise the form is regularised, and directions in which it is
    still not positive are trimmed (Section 6.2 there).

    >>> fit(np.array([[2.0, 1.0, 0.0], [1.0, 5.0, 2.0], [0.0, 2.0, 4.0]]), 0.0)
    array([0.5, 0.5])
    """
    size = len(matrix)
    inside = [place for place in range(size) if place != size - 2]
    form, right = matrix[np.ix_(inside, inside)], matrix[inside, size - 2]
    values, vectors = np.linalg.eigh(form + REGULAR * deviation * np.eye(size - 1))
    good = values > _TINY * max(float(values[-1]), _TINY)
    inverse = np.where(good, 1.0 / np.where(good, values, 1.0), 0.0)
    return np.asarray(vectors @ (inverse * (vectors.T @ right)), dtype=np.float64)


def predict(coefficients: FloatArray, features: FloatArray) -> FloatArray:
    """The target of each row of features.

    >>> predict(np.array([2.0, 1.0]), np.array([[3.0], [0.0]]))
    array([7., 1.])
    """
    return np.asarray(features @ coefficients[:-1] + coefficients[-1], dtype=np.float64)
