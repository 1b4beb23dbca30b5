"""Intervals of coefficients from the noisy gradient g and Hessian H of a round.

At the true step d from the round's point g + H d is noise only, plus what the curvature changes on the way. The noise
has variance s^2 + f h^2 |d|^2 in each direction, f between 1/2 and 1. So {d : |g + H d|^2 <= 3.84 (s^2 + f h^2 |d|^2)}
holds the part of d that matters for one direction, and its shadow there is an interval, at every noise level. Theory
M7.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final

import numpy as np

from tpmdp._util.arrays import FloatArray
from tpmdp.queries.answer import Z_95

_ENDLESS: Final = (-math.inf, math.inf)
_ROUNDING: Final = 1e-9  # of the largest curvature: less is none
_SETTLED: Final = 0.5  # of predictors, root mean square: where the last step moves them further, it may not be the last
_FAR: Final = 3.0  # times the root mean square: few predictors move further


@dataclass(frozen=True, eq=False)
class NoisyStep:
    """The last step, from the gradient and the Hessian at a point.

    `gradient_error` is the standard error of entries of the gradient, `form_error` that of the Hessian's diagonal.
    """

    gradient: FloatArray
    form: FloatArray
    gradient_error: float
    form_error: float
    bend: float = 1.0  # curvatures change by a factor e^bend at most, if a predictor moves by 1

    def step(self) -> FloatArray | None:
        """From the point to the estimate; None if some direction has no curvature, or if the estimate is too far."""
        least, most = np.linalg.eigvalsh(self.form)[[0, -1]]
        if least <= max(_ROUNDING * most, 0.0):
            return None
        step = np.asarray(-np.linalg.solve(self.form, self.gradient), dtype=np.float64)
        return step if self.bend * self._moved(step) <= _SETTLED else None

    def _moved(self, step: FloatArray) -> float:
        """How far the step moves predictors: the root mean square, weighted by curvature."""
        return math.sqrt(float(step @ self.form @ step) / float(self.form[0, 0]))

    def intervals(self, directions: FloatArray, step: FloatArray) -> list[tuple[float, float]]:
        """The interval of directions @ step, one for each row; endless where the noise leaves all open.

        >>> noisy = NoisyStep(np.array([-1.0]), np.array([[10.0]]), 1.0, form_error=0.0)
        >>> [round(limit, 3) for limit in noisy.intervals(np.eye(1), np.array([0.1]))[0]]
        [-0.096, 0.296]
        """
        values, vectors = np.linalg.eigh(self.form)
        length = math.sqrt(float(step @ self.form @ step))
        far = self.bend * min(float(np.abs(step).sum()), _FAR * self._moved(step))
        return [
            self._interval(direction @ vectors, values, vectors.T @ step, bend=length * _bend(far))
            for direction in directions
        ]

    def _interval(self, along: FloatArray, values: FloatArray, step: FloatArray, *, bend: float) -> tuple[float, float]:
        """That of one direction, which, like the step, is given along the axes of the form; `values` are its own."""
        toward = along / values
        lengths = float(toward @ toward) * float(step @ step)
        same = float(toward @ step) ** 2 / lengths if lengths else 0.0
        noise = (Z_95 * self.form_error) ** 2 * (1 + same) / 2
        curves = values * values - noise
        if values[0] <= 0 or float(curves.min()) <= (_ROUNDING * values[-1]) ** 2:
            return _ENDLESS
        gradient = -values * step  # at the point, along the axes
        middle = float(-(along * values / curves) @ gradient)
        # g' H M^-1 H g - g' g for M = H^2 - noise is noise g' M^-1 g: no difference of large numbers
        inside = (Z_95 * self.gradient_error) ** 2 + noise * float(gradient * gradient @ (1 / curves))
        half = math.sqrt(inside * float(along * along @ (1 / curves)))
        bent = bend * math.sqrt(float(along * along @ (1 / values)))
        half = math.hypot(half, bent)
        return middle - half, middle + half


def _bend(far: float) -> float:
    """How far e^v is from 1 + v, over v, for v as large as this.

    >>> round(_bend(0.1), 3), _bend(0.0)
    (0.052, 0.0)
    """
    return (math.expm1(far) - far) / far if far > 1e-8 else far / 2
