"""What mechanisms are compared on: every party holds one input, and the sum of a vector of each is asked for."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from functools import cached_property
from typing import Final

import numpy as np
from numpy.typing import ArrayLike

from tpmdp._util.arrays import FloatArray
from tpmdp.errors import InputError
from tpmdp.gaussian.calibration import calibrate

ROOT_2: Final = math.sqrt(2.0)


@dataclass(frozen=True, eq=False)
class Accuracy:
    """Bias and variance of a released sum, for each coordinate."""

    bias: FloatArray
    variance: FloatArray

    @property
    def rmse(self) -> FloatArray:
        """Root mean squared error of each coordinate.

        >>> Accuracy(np.array([3.0]), np.array([16.0])).rmse
        array([5.])
        """
        return np.asarray(np.sqrt(self.bias**2 + self.variance), dtype=np.float64)


class Problem(ABC):
    """The inputs of all parties, and the sum that is wanted."""

    count: int
    """How many parties."""

    @property
    @abstractmethod
    def sensitivity(self) -> float:
        """How much the sum can change (L2) if one party's input is replaced or left out."""

    @property
    @abstractmethod
    def spread(self) -> float:
        """Bound on the standard deviation of a coordinate of a party's vector: the root mean square of all of them."""

    @abstractmethod
    def weighted(self, weights: FloatArray) -> FloatArray:
        """The sum of each party's vector times its weight."""

    @abstractmethod
    def weighted_squares(self, weights: FloatArray) -> FloatArray:
        """The sum of the squares of each party's vector, times its weight: for variances."""

    @abstractmethod
    def local(self, epsilon: FloatArray, delta: FloatArray, random: np.random.Generator) -> FloatArray:
        """The estimate of the sum if each party perturbs its own input."""

    @abstractmethod
    def local_error(self, epsilon: FloatArray, delta: FloatArray) -> Accuracy:
        """The error of `local`."""

    @cached_property
    def total(self) -> FloatArray:
        """The true sum."""
        return self.weighted(np.ones(self.count))


def _numbers(field: str, values: ArrayLike, rule: str, remedy: str) -> FloatArray:
    """The values as real numbers, or an error that does not show them."""
    try:
        numbers = np.asarray(values)
    except (ValueError, TypeError):
        numbers = np.asarray(None)
    if isinstance(values, np.ma.MaskedArray) or numbers.dtype.kind not in "fiub":
        raise InputError(field, "(not shown)", rule, remedy)
    return numbers.astype(np.float64, copy=False)


class CountProblem(Problem):
    """Each party holds a 0 or a 1; how many hold a 1? Locally: randomised response (Kairouz et al. 2015).

    >>> CountProblem([1, 0, 1]).total
    array([2.])
    """

    sensitivity = 1.0
    spread = 0.5

    def __init__(self, bits: ArrayLike) -> None:
        self._bits = _numbers("bits", bits, "must be 0 or 1, one per party", remedy="give a list of zeros and ones")
        if self._bits.ndim != 1 or not np.isin(self._bits, (0.0, 1.0)).all():
            raise InputError("bits", "(not shown)", "must be 0 or 1, one per party", "give a list of zeros and ones")
        self.count = len(self._bits)

    def weighted(self, weights: FloatArray) -> FloatArray:
        return np.array([weights @ self._bits])

    def weighted_squares(self, weights: FloatArray) -> FloatArray:
        """1 is its own square."""
        return self.weighted(weights)

    def local(self, epsilon: FloatArray, delta: FloatArray, random: np.random.Generator) -> FloatArray:
        """Each party reports its bit, or with chance 1/(1 + e^epsilon) the other one; the estimator is unbiased."""
        del delta  # randomised response needs none
        inverse = np.exp(-epsilon)
        # Rounded up, and never to 0: a lie that is a little too rare would break the guarantee.
        lie = np.minimum(inverse / (1 + inverse) * (1 + 2.0**-50) + 5e-324, 0.5)
        lie = np.where(np.isinf(epsilon), 0.0, lie)
        answers = np.where(random.random(self.count) < lie, 1 - self._bits, self._bits)
        return np.array([np.sum((answers * (1 + inverse) - inverse) / -np.expm1(-epsilon))])

    def local_error(self, epsilon: FloatArray, delta: FloatArray) -> Accuracy:
        """e^epsilon / (e^epsilon - 1)^2 from each party, whatever its bit."""
        del delta
        return Accuracy(np.zeros(1), np.array([np.sum(np.exp(-epsilon) / np.expm1(-epsilon) ** 2)]))


class RegressionProblem(Problem):
    """Each party holds a record scaled to [-1, 1]; asked for are all products of two entries of z = (record, 1).

    The last column is the target. Products of different entries are scaled by sqrt(2), so that the vector is as long
    as the matrix z z^T (Frobenius): at most |z|^2. Locally: each party adds Gaussian noise to its own record.

    >>> problem = RegressionProblem([[1.0, -1.0], [0.5, 0.0]])
    >>> problem.matrix(problem.total)
    array([[ 1.25, -1.  ,  1.5 ],
           [-1.  ,  1.  , -1.  ],
           [ 1.5 , -1.  ,  2.  ]])
    """

    def __init__(self, records: ArrayLike) -> None:
        rule, remedy = "must be a table of two or more columns from -1 to 1", "scale them by their public bounds first"
        values = _numbers("records", records, rule, remedy=remedy)
        if values.ndim != 2 or values.shape[1] < 2 or not (np.abs(values) <= 1).all():
            raise InputError("records", "(not shown)", rule, remedy)
        self._records = values
        self.count = len(values)
        self._size = values.shape[1] + 1
        self._upper = np.triu_indices(self._size)
        self._scale = np.where(self._upper[0] == self._upper[1], 1.0, ROOT_2)

    @property
    def sensitivity(self) -> float:
        """|z z^T - w w^T|^2 = |z|^4 + |w|^4 - 2 (z w)^2, largest at corners of the cube that are as nearly orthogonal
        as corners can be; leaving a record out changes less.
        """
        size = self._size
        return float(np.nextafter(math.sqrt(2 * (size * size - size % 2)), np.inf))

    @property
    def spread(self) -> float:
        """Variances of the entries of z z^T add up to s (s - 1) at most, s entries in z: independent signs have that.

        They are E|z|^4 - |E z z^T|^2 <= sum_(i != j) E u_i u_j + sum (E u_i^2 - m_i^2) with u_i = z_i^2, of mean m_i,
        and E u_i u_j <= (m_i + m_j)/2, E u_i^2 <= m_i: at most sum (s m_i - m_i^2), which rises with every m_i.
        """
        size = self._size
        return math.sqrt(size * (size - 1) / len(self._scale))

    def matrix(self, total: FloatArray) -> FloatArray:
        """The vector as the symmetric matrix it stands for."""
        result = np.empty((self._size, self._size))
        result[self._upper] = total / self._scale
        result.T[self._upper] = result[self._upper]
        return result

    def weighted(self, weights: FloatArray) -> FloatArray:
        """The sum of z z^T times the weight."""
        return self._products(self._records, weights) * self._scale

    def weighted_squares(self, weights: FloatArray) -> FloatArray:
        return np.asarray(self._products(self._records**2, weights) * self._scale**2, dtype=np.float64)

    def _products(self, records: FloatArray, weights: FloatArray) -> FloatArray:
        matrix = np.empty((self._size, self._size))
        heavy = records * weights[:, None]
        matrix[:-1, :-1] = heavy.T @ records
        matrix[-1, :-1] = matrix[:-1, -1] = heavy.sum(axis=0)
        matrix[-1, -1] = weights.sum()
        return np.asarray(matrix[self._upper], dtype=np.float64)

    def _deviation(self, epsilon: FloatArray, delta: FloatArray) -> FloatArray:
        """The noise of each party's record, which may lie anywhere in the cube."""
        across = 2 * math.sqrt(self._size - 1) * (1 + 1e-15)
        return np.asarray(calibrate(epsilon, delta, np.full(self.count, across)), dtype=np.float64)

    def local(self, epsilon: FloatArray, delta: FloatArray, random: np.random.Generator) -> FloatArray:
        """Products of noisy records; least squares accepts that squares are too large by the variance of the noise."""
        noise = random.normal(size=self._records.shape)
        noise *= self._deviation(epsilon, delta)[:, None]
        noise += self._records
        return self._products(noise, np.ones(self.count)) * self._scale

    def local_error(self, epsilon: FloatArray, delta: FloatArray) -> Accuracy:
        """With independent noise of variance v on a and b: products vary by (a^2 + b^2) v + v^2, squares by
        4 a^2 v + 2 v^2 and are v too large.
        """
        variance = self._deviation(epsilon, delta) ** 2
        squares = self._records**2
        size = self._size
        spread, bias = np.zeros((size, size)), np.zeros((size, size))
        by_column = variance @ squares
        spread[:-1, :-1] = by_column[:, None] + by_column[None, :] + variance @ variance
        np.fill_diagonal(spread[:-1, :-1], 4 * by_column + 2 * (variance @ variance))
        np.fill_diagonal(bias[:-1, :-1], variance.sum())
        spread[-1, :-1] = spread[:-1, -1] = variance.sum()
        return Accuracy(bias[self._upper] * self._scale, spread[self._upper] * self._scale**2)
