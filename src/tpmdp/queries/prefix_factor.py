"""The square root of prefix sums: a matrix C such that noise on C x hurts the prefix sums of x far less than on x.

C is lower triangular, and constant along its diagonals: binom(2k, k)/4^k, rounded to whole multiples of 2^-13, so that
C x is computed without any rounding error for whole counts x of up to 2^40 records. Everything is then read with the
rounded C itself: nothing is lost, and distances of its columns are exact. Theory, "Factor of prefix sums".
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from typing import Final

import numpy as np

from tpmdp._util.arrays import FloatArray, IntArray
from tpmdp.errors import InputError
from tpmdp.queries.bins import BINS_MAX

STEP: Final = 2.0**-13  # of the entries of C; counts of 2^40 records times 2^13 still fit a double
_SCALE: Final = 1 << 13
_LIMB: Final = 14  # bits of a count per transform, so that rounding to whole numbers is safe
_LIMBS: Final = 3  # for counts below 2^42
_MORE_BITS: Final = 32  # of a square root, before it is rounded up
_READ_BITS: Final = 40  # of a prefix sum
_DENSE_MAX: Final = 4096  # rows of a matrix that is written out


@dataclass(frozen=True, eq=False)
class PrefixFactor:
    """C for this many bins. Get it from `prefix_factor`, which remembers it.

    >>> factor = prefix_factor(3)
    >>> vector = factor.applied(np.array([2, 0, 5]))
    >>> vector
    array([2.  , 1.  , 5.75])
    >>> factor.prefix_sums(vector), factor.counts_of(vector)
    (array([2., 2., 7.]), array([2., 0., 5.]))
    """

    bins: int
    steps: IntArray = field(repr=False)  # the first column of C, in multiples of STEP

    @cached_property
    def coefficients(self) -> FloatArray:
        """The first column of C; column j is this one, moved down by j and cut off."""
        return np.asarray(self.steps * STEP, dtype=np.float64)

    def applied(self, counts: IntArray) -> FloatArray:
        """C x, exactly, for whole counts of up to 2^40 records."""
        whole = np.asarray(counts, dtype=np.int64)
        total = np.zeros(self.bins, dtype=np.int64)
        for limb in range(_LIMBS):
            part = (whole >> (_LIMB * limb)) & ((1 << _LIMB) - 1)
            total += _whole_product(part, self.steps)[: self.bins] << (_LIMB * limb)
        return np.asarray(total * STEP, dtype=np.float64)

    def product(self, numbers: FloatArray) -> FloatArray:
        """C x for any numbers, with rounding errors: for made-up data."""
        return _product(self.coefficients, numbers)[: self.bins]

    def features(self, places: IntArray) -> list[FloatArray]:
        """For each entry of C x, what a record adds that is in this bin; nothing where the bin is negative."""
        padded = np.append(self.coefficients, 0.0)  # the last one stands for no entry
        return [
            padded[np.where((places >= 0) & (places <= entry), entry - places, self.bins)] for entry in range(self.bins)
        ]

    def counts_of(self, vector: FloatArray) -> FloatArray:
        """The counts x of which the vector is C x, perhaps with noise."""
        return np.diff(self.prefix_sums(vector), prepend=0.0)

    def prefix_sums(self, vector: FloatArray) -> FloatArray:
        """The sums of the first 1, 2, ... counts; noise of one size in the vector enters them by `reading`.

        They are rounded to 40 bits, so that sums of whole counts without noise are whole.
        """
        sums = _product(self.reading, vector)[: self.bins]
        step = math.ldexp(1.0, math.frexp(float(np.abs(vector).max()))[1] - _READ_BITS)
        return np.rint(sums / step) * step + 0.0

    @cached_property
    def reading(self) -> FloatArray:
        """The first column of A C^-1, which turns C x into prefix sums: lower triangular and constant along diagonals.

        Row k of the matrix (from 0) holds the entries 0 to k of this, backwards.
        """
        inverse = np.array([1.0])  # of a power series, by Newton's method: each turn doubles the number of terms
        while len(inverse) < self.bins:
            size = min(2 * len(inverse), self.bins)
            rest = -_product(self.coefficients[:size], inverse)[:size]
            rest[0] += 2.0
            inverse = _product(inverse, rest)[:size]
        return np.cumsum(inverse)

    @cached_property
    def variances(self) -> FloatArray:
        """Of each prefix sum, where every entry of the vector has noise of variance 1."""
        return np.cumsum(self.reading**2)

    @cached_property
    def covariances_with_total(self) -> FloatArray:
        """Of each prefix sum with the last one, the total."""
        return _product(self.reading, self.reading[::-1])[: self.bins]

    def covariance(self) -> FloatArray:
        """Of all prefix sums, as a matrix, where every entry of the vector has noise of variance 1."""
        matrix = self.reading_matrix()
        return np.asarray(matrix @ matrix.T, dtype=np.float64)

    def reading_matrix(self) -> FloatArray:
        """A C^-1, written out; for a moderate number of bins."""
        assert self.bins <= _DENSE_MAX
        lag = np.subtract.outer(np.arange(self.bins), np.arange(self.bins))
        return np.where(lag >= 0, self.reading[np.maximum(lag, 0)], 0.0)

    @cached_property
    def norm(self) -> float:
        """The largest length of a column, rounded up: how far a record moves C x that appears or vanishes."""
        return root_up(self._square)

    @cached_property
    def distance(self) -> float:
        """The largest distance of two columns, rounded up: how far a record moves C x that changes its bin."""
        if self.bins == 1:
            return 0.0
        tails = np.cumsum(self.steps**2)[::-1]  # squared lengths of the columns
        return root_up(int((self._square + tails[1:] - 2 * self._products[1:]).max()))

    @cached_property
    def pair_distance(self) -> float:
        """How far a record moves (C d, C c) that is in one bin of one of the two histograms d and c, rounded up."""
        return max(self.distance, root_up(2 * self._square))

    @cached_property
    def _square(self) -> int:
        """The squared length of the first column, the longest, in steps."""
        return int((self.steps**2).sum())

    @cached_property
    def _products(self) -> IntArray:
        """The inner products of the first column with every column, in steps; the distance to the first is largest."""
        return _whole_product(self.steps, self.steps[::-1])[: self.bins][::-1]


@lru_cache(maxsize=8)
def prefix_factor(bins: int) -> PrefixFactor:
    """C for this many bins: the same bits on every machine.

    >>> [round(prefix_factor(bins).distance, 3) for bins in (64, 256, 1024)]
    [1.912, 2.131, 2.329]
    """
    if not 1 <= bins <= BINS_MAX:
        raise InputError("bins", bins, f"must be from 1 to {BINS_MAX}", "change it")
    place = np.arange(1, bins)
    ratios = (2 * place - 1) / (2 * place)
    plain = np.cumprod(np.concatenate(([1.0], ratios)))  # binom(2k, k)/4^k, one factor after the other
    sums = (2 * np.arange(bins) + 1) * plain  # of the first k + 1 of them: rounding these keeps errors from adding up
    steps = np.diff(np.rint(sums * _SCALE).astype(np.int64), prepend=0)
    steps.flags.writeable = False
    return PrefixFactor(bins, steps)


def _product(left: FloatArray, right: FloatArray) -> FloatArray:
    """The coefficients of the product of two polynomials, by Fourier transforms."""
    size = len(left) + len(right) - 1
    length = 1 << max(size - 1, 1).bit_length()
    return np.fft.irfft(np.fft.rfft(left, length) * np.fft.rfft(right, length), length)[:size]


def _whole_product(left: IntArray, right: IntArray) -> IntArray:
    """The same of whole numbers, without error where `_product` errs by less than 1/2: Theory says why it does."""
    return np.rint(_product(left.astype(np.float64), right.astype(np.float64))).astype(np.int64)


def root_up(square: int) -> float:
    """The square root of a number of squared steps, in units of 1, rounded up."""
    root = math.isqrt(square << (2 * _MORE_BITS)) + 1
    return math.ldexp(root, -_MORE_BITS) * STEP * (1 + 2.0**-50)
