"""What one round of a model releases: sums of (r z, b w z z^T) over the records.

z is the constant and the inputs scaled to [-1, 1], r the score and w the curvature of a record. Entries of z z^T off
the diagonal are multiplied by sqrt(2), so that lengths are those of matrices. With b^2 = weight / len(z) the squared
distance of two records is at most len(z) times a number that theory M1 and M2 prove.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from tpmdp._util.arrays import FloatArray
from tpmdp.queries.newton import Matrix, Vector

_ROOT: Final = math.sqrt(2)


@dataclass(frozen=True)
class ScoreSum:
    """The layout of the sums, and how far two records are apart.

    >>> ScoreSum(3, weight=1.0, squared_spread=5.0, squared_size=2.0).dimension
    9
    """

    entries: int  # of z
    weight: float  # b^2 times the entries of z
    squared_spread: float  # over the entries of z: the largest squared distance of two records
    squared_size: float  # the largest squared length of one

    @property
    def dimension(self) -> int:
        """Those of the gradient, then the lower triangle of the Hessian."""
        return self.entries + self.entries * (self.entries + 1) // 2

    @property
    def spread(self) -> float:
        """The largest distance of two records."""
        return math.sqrt(self.squared_spread * self.entries)

    @property
    def size(self) -> float:
        """The largest length of one record."""
        return math.sqrt(self.squared_size * self.entries)

    @property
    def factor(self) -> float:
        """b, which the Hessian is multiplied by."""
        return math.sqrt(self.weight / self.entries)

    def features(self, inputs: Sequence[FloatArray], score: FloatArray, curvature: FloatArray) -> list[FloatArray]:
        """The features of records with these scaled inputs."""
        columns = [np.ones_like(score), *inputs]
        curved = [self.factor * curvature * column for column in columns]
        products = [
            curved[i] * columns[j] if i == j else _ROOT * curved[i] * columns[j]
            for i in range(self.entries)
            for j in range(i + 1)
        ]
        return [*(score * column for column in columns), *products]

    def parts(self, total: FloatArray) -> tuple[Vector, Matrix]:
        """The gradient and the Hessian that a total stands for.

        >>> layout = ScoreSum(2, weight=2.0, squared_spread=6.0, squared_size=3.0)
        >>> layout.parts(np.array([1.0, 2.0, 3.0, _ROOT * 4.0, 5.0]))
        ([1.0, 2.0], [[3.0, 4.0], [4.0, 5.0]])
        """
        numbers = [float(each) for each in total]
        form: Matrix = [[0.0] * self.entries for _ in range(self.entries)]
        rest = iter(numbers[self.entries :])
        for i in range(self.entries):
            for j in range(i + 1):
                entry = next(rest) / self.factor
                form[i][j] = form[j][i] = entry if i == j else entry / _ROOT
        return numbers[: self.entries], form

    def total(self, gradient: FloatArray, form: FloatArray) -> FloatArray:
        """The inverse of `parts`."""
        products = [
            self.factor * form[i, j] * (1.0 if i == j else _ROOT) for i in range(self.entries) for j in range(i + 1)
        ]
        return np.concatenate((gradient, products))

    def form_error(self, error: float) -> float:
        """The standard error of the diagonal of the Hessian; off the diagonal it is sqrt(2) times less."""
        return error / self.factor

    def form_noise(self, error: float) -> float:
        """About the largest eigenvalue of the Hessian's noise (Wigner's semicircle)."""
        return math.sqrt(2 * self.entries) * self.form_error(error)
