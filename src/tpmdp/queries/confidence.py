"""95 % confidence sets of numbers that are not linear in the noisy sums: what they can be within a ball about the sums.

A number that can be reached from the noisy sums within 1.96 standard errors is in the set, any other is not: this
inverts the likelihood ratio test of each possible number. Where the sums lie outside of what data can give, at a
distance d, the ball grows to sqrt(1.96^2 + d^2), as the likelihood ratio has it. The set of all sums that give the same
number is curved, so noise leaves it more often on one side: 1.96 is corrected by half the curvature. Theory, Q21.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Final

import numpy as np

from tpmdp._util.arrays import FloatArray
from tpmdp.queries.answer import Z_95

Gradients = Callable[[FloatArray], tuple[FloatArray, FloatArray]]
"""From points, (..., K, d), the values of K functions, (..., K), and their gradients, (..., K, d)."""

LEAST: Final = 1.3  # standard errors, however strong the curvature
MOST: Final = 2.8
_SIGNS: Final = np.array([[-1.0], [1.0]])
_STEPS: Final = 40
_CLOSE: Final = 1e-3  # of what a straight line gives at the start
_STEP_MIN: Final = 1e-6
_WAYS: Final = 4
_NEAR: Final = 0.01  # standard errors, for differences of normals
_INSIDE: Final = 0.98  # of the distance to where a function breaks down


@dataclass(frozen=True, eq=False)
class Ball:
    """Noisy sums, one row for each function, and how far the true ones may be.

    The noise is normal and independent along `axes`, (D, d), which are orthonormal; there is none in other directions.
    `bias` is a further error, of any direction. `outside` is the distance of the sums to what data can give, and `room`
    the distance to where the function breaks down.
    """

    centre: FloatArray
    axes: FloatArray
    noise: float
    bias: float = 0.0
    outside: float = 0.0
    room: float = np.inf

    def radius(self, errors: FloatArray) -> FloatArray:
        """For so many standard errors."""
        return np.minimum(np.hypot(errors * self.noise + self.bias, self.outside), _INSIDE * self.room)

    def interval(self, gradients: Gradients, largest: FloatArray | float = MOST) -> tuple[FloatArray, FloatArray]:
        """The lower and the upper limits of the functions; `largest` is the most standard errors to count.

        >>> ball = Ball(np.array([[3.0, 4.0]]), np.eye(2), 0.1)
        >>> def length(points):
        ...     norms = np.linalg.norm(points, axis=-1)
        ...     return norms, points / norms[..., None]
        >>> [limits.round(3).tolist() for limits in ball.interval(length)]
        [[4.803], [5.195]]
        """
        errors = np.full((2, len(self.centre)), Z_95)
        ways = _first_ways(gradients, self.centre, self.axes)
        _, ways = extremes(gradients, self.centre, self.radius(errors), ways=ways)
        ends = self.centre + self.radius(errors)[..., None] * ways
        shift = self.noise / 2 * self._curvature(gradients, ends)
        errors = np.clip(errors - _SIGNS * shift, LEAST, largest)
        (low, high), _ = extremes(gradients, self.centre, self.radius(errors), ways=ways[None])
        return low, high

    def _curvature(self, gradients: Gradients, points: FloatArray) -> FloatArray:
        """The sum of the principal curvatures of the surfaces on which the functions are constant."""
        step = _NEAR * self.noise
        moved = points + step * np.stack((self.axes, -self.axes))[:, :, None, None, :]  # (2, D, 2, K, d)
        _, slopes = gradients(moved)
        normals = slopes / np.maximum(_norm(slopes), np.finfo(float).tiny)
        return np.asarray(np.einsum("aijk,ak->ij", normals[0] - normals[1], self.axes) / (2 * step))


def extremes(
    gradients: Gradients, centre: FloatArray, radius: FloatArray, ways: FloatArray
) -> tuple[FloatArray, FloatArray]:
    """The least and the largest value of each of K functions on spheres, (2, K), and the ways to them, (2, K, d).

    `radius` is (2, K), and `ways` are unit vectors to begin with, (starts, 2, K, d): there may be several extremes.
    Steps turn the way toward the gradient, as far as that helps, until a straight line would gain next to nothing
    (Frank and Wolfe 1956); that little is added.

    >>> def line(points):
    ...     return points.sum(axis=-1), np.ones_like(points)
    >>> begin = np.tile([1.0, 0.0], (1, 2, 1, 1))
    >>> extremes(line, np.zeros((1, 2)), np.ones((2, 1)), ways=begin)[0].round(6).ravel()
    array([-1.414214,  1.414214])
    """
    reach = radius[..., None]
    values, slopes = gradients(centre + reach * ways)
    values, slopes = _SIGNS * values, _SIGNS[..., None] * slopes
    step, close = np.ones_like(values), _CLOSE * radius * _norm(slopes)[..., 0].max(axis=0)
    for _ in range(_STEPS):
        length = _norm(slopes)
        turn = slopes / np.where(length > 0, length, 1.0) - ways
        gain = radius * np.einsum("aijk,aijk->aij", slopes, turn)  # of a straight line
        going = (gain > close) & (step > _STEP_MIN)
        if not going.any():
            break
        tried = ways + np.where(going, step, 0.0)[..., None] * turn
        tried /= np.maximum(_norm(tried), _STEP_MIN)
        there, turned = gradients(centre + reach * tried)
        better = going & (_SIGNS * there > values)
        ways = np.where(better[..., None], tried, ways)
        slopes = np.where(better[..., None], _SIGNS[..., None] * turned, slopes)
        values = np.where(better, _SIGNS * there, values)
        step = np.where(better, np.minimum(1.5 * step, 1.0), step / 2)
    best = values.argmax(axis=0)[None]
    ends = np.take_along_axis(ways, best[..., None], axis=0)[0]
    return _SIGNS * np.take_along_axis(values + gain, best, axis=0)[0], ends


def _norm(vectors: FloatArray) -> FloatArray:
    return np.asarray(np.sqrt(np.einsum("...k,...k->...", vectors, vectors))[..., None])


def _first_ways(gradients: Gradients, centre: FloatArray, axes: FloatArray) -> FloatArray:
    """Along the gradients, and in a few other directions."""
    _, slopes = gradients(centre)
    ahead = _SIGNS[..., None] * slopes / np.maximum(_norm(slopes), np.finfo(float).tiny)
    others = np.broadcast_to((_directions(len(axes)) @ axes)[:, None, None, :], (_WAYS, *ahead.shape))
    return np.concatenate((ahead[None], others))


@cache
def _directions(count: int) -> FloatArray:
    """Unit vectors, in opposite pairs."""
    random = np.random.default_rng(0)  # nothing secret depends on it
    ways = random.normal(size=(_WAYS // 2, count))
    ways /= _norm(ways)
    return np.concatenate((ways, -ways))


def below_parabola(mean: float, square: float, weight: float) -> float:
    """How far a mean and a mean square are from those of any data, which have square >= mean^2; 0 if they have it.

    The distance is (weight (a difference of means)^2 + (a difference of mean squares)^2)^(1/2).

    >>> below_parabola(0.0, -2.0, 1.0), below_parabola(0.5, 0.3, 1.0)
    (2.0, 0.0)
    """
    if square >= mean * mean:
        return 0.0
    roots = np.roots([2.0, 0.0, weight - 2 * square, -weight * mean])
    nearest = np.append(roots.real, mean)
    return float(np.sqrt((weight * (nearest - mean) ** 2 + (nearest * nearest - square) ** 2).min()))
