"""Real numbers on a grid: encoding, the cost of rounding, and the proof that a sum fits its machine word.

A grid has a step that is a power of two, so scaling is exact. Theory, "Grid", proves the facts used here:
rounding raises an L2 sensitivity by at most step * sqrt(dimension); discrete noise of variance s^2 (in steps) protects
as well as continuous noise of variance s^2 - ROUNDING_VARIANCE; a sum of discrete Gaussians behaves like a single one.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from typing import Final

import numpy as np
from numpy.typing import ArrayLike

from tpmdp._util.arrays import FloatArray, IntArray
from tpmdp._util.budget_rules import as_floats
from tpmdp._util.exact import exact_sum, to_fraction
from tpmdp.errors import InputError

SIGMA_MAX: Final = 1 << 26  # steps; the sampler keeps every product below 2**63
SIGMA_MIN: Final = 4  # steps; below, a sum of discrete Gaussians is not close enough to one
ROUNDING_VARIANCE: Final = 9  # steps^2; theory: r = 3
WRAP_BITS: Final = 100  # a sum leaves its range with probability at most 2**-WRAP_BITS
WORDS: Final = (32, 64)
_UP: Final = 1.0 + 2.0**-50


def power_of_two_below(value: float) -> float:
    """The largest power of two that is at most value.

    >>> power_of_two_below(0.3), power_of_two_below(4.0)
    (0.25, 4.0)
    """
    return math.ldexp(1.0, math.frexp(value)[1] - 1)


def rounded_sensitivity(sensitivity: FloatArray, step: float, dimension: int) -> FloatArray:
    """L2 sensitivity after every coordinate is rounded to the grid; 0 stays 0, for data that cannot change the answer.

    >>> rounded_sensitivity(np.array([1.0, 0.0]), 0.125, 4).round(6)
    array([1.25, 0.  ])
    """
    raised = (sensitivity + step * math.sqrt(dimension) * _UP) * _UP
    return np.where(sensitivity > 0, raised, 0.0)


def discrete_factor(need: FloatArray, step: float) -> FloatArray:
    """The factor for a sensitivity that raises its need by ROUNDING_VARIANCE steps^2 (needs grow as squares).

    >>> discrete_factor(np.array([3.0, 0.0]), 1.0)
    array([2., 1.])
    """
    safe = np.where(need > 0, need * (1.0 - 1e-11), 1.0)  # a need may lie 4e-12 above the least possible
    factor = np.sqrt(1.0 + ROUNDING_VARIANCE * step * step / safe) * _UP
    return np.where(need > 0, factor, 1.0)


def sigma_in_steps(variance: FloatArray, step: float) -> IntArray:
    """Whole sigmas whose squares, in steps^2, are at least the variances: 0 for no noise, else SIGMA_MIN or more.

    A sigma above SIGMA_MAX, which the sampler does not draw, is returned as SIGMA_MAX + 1.

    >>> sigma_in_steps(np.array([0.0, 1e-9, 25.0, 26.0]), 1.0)
    array([0, 4, 5, 6])
    """
    scale = Fraction(step) ** 2
    result = np.zeros(len(variance), dtype=np.int64)
    unique, where = np.unique(variance, return_inverse=True)
    for position, value in enumerate(unique.tolist()):
        if value > 0:
            wanted = Fraction(value) / scale
            root = math.isqrt(math.ceil(wanted))
            root += root * root < wanted
            result[where == position] = min(max(root, SIGMA_MIN), SIGMA_MAX + 1)  # more is refused anyway
    return result


def largest_sigma(needs: FloatArray) -> int:
    """A bound on the sigmas of every group: nobody adds more, in an optimal plan, than the largest need (steps^2).

    >>> largest_sigma(np.array([25.0, 26.0]))
    6
    """
    return int(sigma_in_steps(np.nextafter(needs.max(keepdims=True), np.inf), 1.0)[0])


def closeness(parties: int, dimension: int) -> float:
    """Bound on the log-ratio between honest discrete noise and its idealisation, all coordinates; theory, G1, G2.

    >>> closeness(1000, 10**6) < 1e-50
    True
    """
    each = 5.0 * parties * math.exp(-(math.pi**2) * SIGMA_MIN**2) + 9.0 * math.exp(-2 * math.pi**2 * ROUNDING_VARIANCE)
    return dimension * each


@dataclass(frozen=True, eq=False)
class Grid:
    """Step, dimension and word of a sum of encoded vectors."""

    step: float
    dimension: int
    word: int

    def encode(self, values: ArrayLike, bound: float) -> IntArray:
        """The nearest grid points of a vector whose entries lie within the bound, as whole numbers of steps.

        >>> Grid(0.25, 3, 32).encode([1.0, -0.3, 0.1], bound=1.0)
        array([ 4, -1,  0])
        """
        array = np.atleast_1d(as_floats("values", values))
        if array.shape != (self.dimension,):
            rule = f"must be a vector of {self.dimension} entries"
            raise InputError("values", f"shape {array.shape}", rule, "check the query")
        bad = ~(np.abs(array) <= bound)
        if bad.any():
            where = int(np.argmax(bad))  # the value itself is private
            raise InputError(f"entry {where + 1}", "(not shown)", f"must lie in [{-bound:g}, {bound:g}]", "clip it")
        return np.rint(array / self.step).astype(np.int64)

    def decode(self, steps: IntArray) -> FloatArray:
        """The real numbers that whole numbers of steps stand for.

        >>> Grid(0.25, 2, 32).decode(np.array([4, -1]))
        array([ 1.  , -0.25])
        """
        return steps.astype(np.float64) * self.step


def sum_of_squares(sigma: IntArray) -> int:
    """The exact sum of the squares, whatever its size.

    >>> sum_of_squares(np.array([3, 4]))
    25
    """
    values, counts = np.unique(sigma, return_counts=True)
    return sum(value * value * count for value, count in zip(values.tolist(), counts.tolist(), strict=True))


def error_in_steps(sigma: IntArray) -> float:
    """Standard deviation of the noisy sum, with the worst rounding: half a step per party, all in one direction.

    >>> error_in_steps(np.array([3, 4]))
    5.0990195135927845
    """
    return math.sqrt(sum_of_squares(sigma) + (len(sigma) / 2) ** 2)


def reach(bounds: FloatArray, sigma: IntArray, step: float, dimension: int) -> int:
    """The largest number of steps the noisy sum can reach, up to a probability of 2**-WRAP_BITS; theory, G4.

    >>> reach(np.array([1.0, 1.0]), np.array([4, 4]), 1.0, 1) < 100
    True
    """
    inputs = to_fraction(exact_sum(bounds)) / Fraction(step) + Fraction(len(bounds), 2)
    square = sum_of_squares(sigma)
    nats = WRAP_BITS + (2 * dimension).bit_length()  # at least ln(2 d 2**WRAP_BITS)
    return math.ceil(inputs) + math.isqrt(2 * square * nats) + 1


def fits(word: int, largest: int) -> bool:
    """Whether numbers up to this size stay in the signed range of the word.

    >>> fits(32, 2**31 - 1), fits(32, 2**31)
    (True, False)
    """
    return largest < 1 << (word - 1)
