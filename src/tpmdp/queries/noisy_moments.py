"""What noisy moments tell about covariances, correlations, coefficients and R squared: their confidence sets.

The sums of z z^T have normal noise: standard error e off the diagonal and sqrt(2) e on it, so that as vectors of all
entries they have noise of standard deviation sqrt(2) e in each direction of the symmetric matrices. Theory, Q22.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import cache
from typing import Final

import numpy as np
from scipy.special import chdtri

from tpmdp._util.arrays import FloatArray
from tpmdp.queries.answer import Z_95
from tpmdp.queries.confidence import MOST, Ball, Gradients

_FLAT: Final = 1e-12  # of the largest eigenvalue: below, there is nothing but rounding errors


@dataclass(frozen=True, eq=False)
class NoisyMoments:
    """Noisy sums of z z^T with the constant first; off the diagonal they have this standard error.

    `counted` says whether the number of records is noisy too. `bias` is a further error of the features, any way.
    """

    sums: FloatArray
    error: float
    counted: bool
    bias: float = 0.0

    def of(self, *places: int) -> NoisyMoments:
        """The constant and some columns, counted from 1."""
        return replace(self, sums=self.sums[np.ix_([0, *places], [0, *places])])

    @property
    def room(self) -> float:
        """How far it is, at least, to a matrix that is not positive definite: the least eigenvalue."""
        return float(np.linalg.eigvalsh(self.sums)[0])

    def is_clear(self, errors: float = Z_95) -> bool:
        """Whether all matrices that the noise allows are positive definite."""
        values = np.linalg.eigvalsh(self.sums)
        return bool(values[0] > max(math.sqrt(2) * (errors * self.error + self.bias), _FLAT * abs(values[-1])))

    def is_known(self, errors: float = Z_95) -> bool:
        """Whether records are certain to be there."""
        return not self.counted or self.of().is_clear(errors)

    @property
    def outside(self) -> float:
        """An upper bound on the distance to the sums that data can give, which are positive semidefinite."""
        count = self.sums[0, 0]
        mean = self.sums[0, 1:] / count
        values = np.linalg.eigvalsh(self.sums[1:, 1:] - count * np.outer(mean, mean))
        return float(np.linalg.norm(np.minimum(values, 0.0)))

    def interval(
        self, gradients: Gradients, count: int = 1, *, room: float, outside: float = 0.0, largest: float = MOST
    ) -> tuple[FloatArray, FloatArray]:
        """The limits of `count` functions of the sums; `largest` is the most standard errors for the lower ones."""
        root, size = math.sqrt(2), len(self.sums)
        mask = np.ones((size, size))
        mask[0, 0] = float(self.counted)

        def flat(points: FloatArray) -> tuple[FloatArray, FloatArray]:
            values, slopes = gradients(points.reshape(*points.shape[:-1], size, size))
            slopes = (slopes + np.swapaxes(slopes, -1, -2)) / 2 * mask
            return values, slopes.reshape(points.shape)

        centre = np.broadcast_to(self.sums.ravel(), (count, size * size))
        ball = Ball(
            centre,
            _axes(size, self.counted),
            root * self.error,
            bias=root * self.bias,
            outside=outside,
            room=room,
        )
        return ball.interval(flat, np.array([[largest], [MOST]]))


@cache
def _axes(size: int, counted: bool) -> FloatArray:
    """The symmetric matrices of this size, as vectors: an orthonormal basis."""
    rows, columns = np.triu_indices(size)
    axes = np.zeros((len(rows), size, size))
    each = np.arange(len(rows))
    axes[each, rows, columns] = axes[each, columns, rows] = np.where(rows == columns, 1.0, math.sqrt(0.5))
    return np.ascontiguousarray(axes.reshape(len(rows), -1)[0 if counted else 1 :])


def _outer(first: FloatArray, second: FloatArray) -> FloatArray:
    return np.asarray(first[..., :, None] * second[..., None, :])


def _centred(sums: FloatArray, place: int) -> FloatArray:
    """The vector w with w' z a column less its mean."""
    vector = np.zeros(sums.shape[:-1])
    vector[..., 0] = -sums[..., 0, place] / sums[..., 0, 0]
    vector[..., place] = 1.0
    return vector


def _product(sums: FloatArray, first: FloatArray, second: FloatArray) -> FloatArray:
    return np.asarray(np.einsum("...i,...ij,...j->...", first, sums, second))


def covariance(sums: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Of the first column and the last, and its gradient.

    >>> covariance(np.array([[2.0, 0.0, 0.0], [0.0, 2.0, 1.0], [0.0, 1.0, 2.0]]))[0].item()
    0.5
    """
    left, right = _centred(sums, 1), _centred(sums, sums.shape[-1] - 1)
    count = sums[..., 0, 0]
    value = _product(sums, left, right) / count
    slopes = _outer(left, right)
    slopes[..., 0, 0] -= value
    return value, slopes / count[..., None, None]


def correlation(sums: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Of two columns, and its gradient.

    >>> correlation(np.array([[2.0, 0.0, 0.0], [0.0, 2.0, 1.0], [0.0, 1.0, 2.0]]))[0].item()
    0.5
    """
    left, right = _centred(sums, 1), _centred(sums, 2)
    first, second = _product(sums, left, left), _product(sums, right, right)
    scale = np.sqrt(first * second)
    value = _product(sums, left, right) / scale
    own = _outer(left, left) / first[..., None, None] + _outer(right, right) / second[..., None, None]
    return value, _outer(left, right) / scale[..., None, None] - value[..., None, None] / 2 * own


def _fit(sums: FloatArray) -> tuple[FloatArray, FloatArray]:
    """The form of least squares, and the vector v with v' z the prediction of the last column less the column."""
    form = sums[..., :-1, :-1]
    solved = np.linalg.solve(form, sums[..., :-1, -1:])[..., 0]
    return form, np.concatenate((solved, np.full((*solved.shape[:-1], 1), -1.0)), axis=-1)


def coefficients(units: FloatArray) -> Gradients:
    """Least squares of the last column on the others: `units` times the coefficients, and the gradients."""

    def function(sums: FloatArray) -> tuple[FloatArray, FloatArray]:
        form, fitted = _fit(sums)
        rows = np.broadcast_to(units, fitted[..., :-1].shape)
        applied = np.zeros(fitted.shape)
        applied[..., :-1] = np.linalg.solve(form, rows[..., None])[..., 0]
        return np.einsum("...i,...i->...", rows, fitted[..., :-1]), -_outer(applied, fitted)

    return function


def r_squared(sums: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Of the best fit of the last column, and its gradient.

    >>> r_squared(np.array([[4.0, 0.0, 0.0], [0.0, 2.0, 1.0], [0.0, 1.0, 1.0]]))[0].item()
    0.5
    """
    _, fitted = _fit(sums)
    about = _centred(sums, sums.shape[-1] - 1)
    left, spread = _product(sums, fitted, fitted), _product(sums, about, about)
    share = (left / spread)[..., None, None]
    return 1 - left / spread, (share * _outer(about, about) - _outer(fitted, fitted)) / spread[..., None, None]


def r_squared_limits(moments: NoisyMoments) -> tuple[float, float] | None:
    """The 95 % interval of R squared, or None if it cannot be told.

    R squared is 0 only where all inputs have no covariance with the target. So the error at 0 has as many dimensions
    as there are inputs, and the lower limit counts more standard errors than 1.96.
    """
    sums, last = moments.sums, len(moments.sums) - 1
    inputs = last - 1
    most = math.sqrt(float(chdtri(inputs, 0.05)))
    target, form = moments.of(last), moments.of(*range(1, last))
    if not (target.is_clear(most) and form.is_clear(most)):
        return None
    room, outside = min(target.room, form.room), moments.outside
    if math.hypot(math.sqrt(2) * (most * moments.error + moments.bias), outside) >= room:
        return None
    (low,), (high,) = moments.interval(r_squared, room=room, outside=outside, largest=most)
    mean = sums[0, -1] / sums[0, 0]
    shared = sums[1:-1, -1] - sums[1:-1, 0] * mean
    if np.linalg.norm(shared) <= (most * moments.error + moments.bias) * math.hypot(1.0, mean):
        low = 0.0
    return max(float(low), 0.0), min(float(high), 1.0)
