"""Exact sums of doubles as integers times a power of two, for checks that must not round.

A double is an integer times a power of two, and so is any sum of doubles.
"""

from __future__ import annotations

from collections.abc import Iterable
from fractions import Fraction
from typing import Final

import numpy as np

from tpmdp._util.arrays import FloatArray

SCALE_BITS: Final = 1074  # every finite double is a whole number of 2**-1074
_SPLIT: Final = 26


def to_integer(value: float) -> int:
    """The double as a whole number of 2**-1074, exactly.

    >>> to_integer(0.5) == 2**1073
    True
    """
    numerator, denominator = value.as_integer_ratio()
    return numerator << (SCALE_BITS + 1 - denominator.bit_length())


def to_integers(values: FloatArray) -> list[int]:
    """`to_integer` for each entry.

    >>> to_integers(np.array([0.0, 1.0])) == [0, 2**1074]
    True
    """
    return [to_integer(value) for value in values.tolist()]


def to_float(scaled: int) -> float:
    """The double nearest to a whole number of 2**-1074.

    >>> to_float(to_integer(0.1))
    0.1
    """
    return scaled / (1 << SCALE_BITS)


def to_fraction(scaled: int) -> Fraction:
    """The same number as a fraction.

    >>> to_fraction(to_integer(0.75))
    Fraction(3, 4)
    """
    return Fraction(scaled, 1 << SCALE_BITS)


def exact_sum(values: FloatArray) -> int:
    """The exact sum of non-negative finite doubles, as a whole number of 2**-1074; O(n) in NumPy.

    Mantissas are split into halves of 26 and 27 bits and added by exponent; up to 2**26 such halves add up exactly
    in a double.

    >>> to_float(exact_sum(np.array([1e100, 1.0]))) == 1e100, exact_sum(np.array([1e100, 1.0])) > to_integer(1e100)
    (True, True)
    """
    total = 0
    for start in range(0, len(values), 1 << _SPLIT):
        mantissa, exponent = np.frexp(values[start : start + (1 << _SPLIT)])
        scaled = mantissa * 2.0**27
        high = np.floor(scaled)
        low = (scaled - high) * 2.0**26
        lowest = int(exponent.min())
        index = exponent - lowest
        for weights, shift in ((high, -27), (low, -53)):
            for offset, part in enumerate(np.bincount(index, weights=weights).tolist()):
                if part:
                    bits = SCALE_BITS + lowest + offset + shift
                    whole = int(part)
                    total += whole << bits if bits >= 0 else whole >> -bits
    return total


def prefix_sums(values: Iterable[int]) -> list[int]:
    """Sums of the first 0, 1, 2, ... entries.

    >>> prefix_sums([1, 2, 3])
    [0, 1, 3, 6]
    """
    sums = [0]
    for value in values:
        sums.append(sums[-1] + value)
    return sums
