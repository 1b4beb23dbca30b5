"""The first round of a model: moments of the inputs and of the outcome, at no point yet.

It releases the sums of (y z, b z z^T), y the outcome scaled to [-1, 1]: what least squares needs. From these a model
gets its first point. In plain Python, as all parties must get the same bits.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Context, Decimal
from typing import Final

from tpmdp.queries.newton import Matrix, Vector, dot, solve

_DIGITS: Final = Context(prec=30)
_R_SQUARED_MAX: Final = 0.8  # noise may suggest more


@dataclass(frozen=True)
class StartingMoments:
    """Means and covariances of the inputs, scaled to [-1, 1], and of the outcome, scaled to [0, 1]."""

    count: float
    mean: float  # of the outcome
    centre: Vector  # means of the inputs
    effects: Vector  # of least squares of the outcome on the inputs
    shared: Vector  # covariances of the outcome with the inputs

    @classmethod
    def of(
        cls, gradient: Sequence[float], form: Matrix, *, records: int | None, noise: float, rarest: float
    ) -> StartingMoments:
        """From the sums; the mean of the outcome is kept `rarest` away from 0 and 1, and half a record more."""
        count = max(form[0][0] if records is None else float(records), 1.0)
        least = min(max(rarest, 0.5 / count), 0.5)
        mean = min(max((gradient[0] / count + 1) / 2, least), 1 - least)
        centre = [min(max(each / count, -1.0), 1.0) for each in form[0][1:]]
        shared = [(sums / count + at) / 2 - at * mean for sums, at in zip(gradient[1:], centre, strict=True)]
        size = len(centre)
        covariance = [[form[i + 1][j + 1] / count - centre[i] * centre[j] for j in range(size)] for i in range(size)]
        return cls(count, mean, centre, solve(covariance, shared, noise / count), shared=shared)

    def discriminant(self) -> list[float]:
        """Linear discriminant analysis: log-odds of a yes or no, if the inputs are normal with equal covariances."""
        curve = self.mean * (1 - self.mean)
        explained = min(max(dot(self.effects, self.shared) / curve, 0.0), _R_SQUARED_MAX)
        slopes = [each / (curve * (1 - explained)) for each in self.effects]
        apart = [each / curve for each in self.shared]  # the mean inputs of yes less those of no
        middle = [at + (0.5 - self.mean) * each for at, each in zip(self.centre, apart, strict=True)]
        return [logarithm(self.mean / (1 - self.mean)) - dot(slopes, middle), *slopes]

    def normal_log_rate(self) -> list[float]:
        """The logarithm of a rate, if the inputs are normal."""
        slopes = [each / self.mean for each in self.effects]
        # the mean of e^(slopes x) for normal x is e^(slopes centre + slopes covariance slopes / 2)
        bent = dot(slopes, self.shared) / (2 * self.mean)
        return [logarithm(self.mean) - dot(slopes, self.centre) - bent, *slopes]


def logarithm(number: float) -> float:
    """The natural logarithm, rounded correctly: the same bits everywhere.

    >>> logarithm(1.0), logarithm(2.718281828459045)
    (0.0, 1.0)
    """
    return float(_DIGITS.ln(Decimal(number)))
