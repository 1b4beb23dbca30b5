"""Public ranges of columns, and values as shares of them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np

from tpmdp._util.arrays import FloatArray
from tpmdp.data.table import Column, Table, Text
from tpmdp.errors import InputError

BOUND_MAX: Final = 1e100  # so that squares of ranges are numbers
BOUND_MIN: Final = 1e-100


@dataclass(frozen=True)
class Range:
    """Public bounds of a column; values outside are clipped to them.

    >>> Range("age", 18.0, 96.0).width
    78.0
    """

    column: str
    low: float
    high: float

    def __post_init__(self) -> None:
        object.__setattr__(self, "low", float(self.low))
        object.__setattr__(self, "high", float(self.high))
        check_range(self.column, self.low, self.high)

    @property
    def width(self) -> float:
        """High minus low."""
        return self.high - self.low

    def shares(self, table: Table) -> FloatArray:
        """The clipped values as shares of the range, counted from its middle: each in [-1/2, 1/2].

        >>> Range("age", 0.0, 10.0).shares({"age": np.array([0.0, 5.0, 99.0])})
        array([-0.5,  0. ,  0.5])
        """
        return shares_of(numbers(table, self.column), self.low, self.high)


def check_range(field: str, low: float, high: float) -> None:
    """Refuse bounds that are not a finite range.

    >>> check_range("age", 5.0, 1.0)
    Traceback (most recent call last):
        ...
    tpmdp.errors.InputError: bounds of age = 5.0 to 1.0 must be a finite range: high must be more than low
    """
    widest = max(abs(low), abs(high))
    if not (widest <= BOUND_MAX and high - low >= BOUND_MIN and high - low >= 1e-9 * widest):
        remedy = "give public bounds, low less than high, not too close for their size"
        remedy = "high must be more than low" if low >= high else remedy
        raise InputError(f"bounds of {field}", f"{low!r} to {high!r}", "must be a finite range", remedy)


def shares_of(values: FloatArray, low: float, high: float) -> FloatArray:
    """The clipped values as shares of the range, counted from its middle: each in [-1/2, 1/2].

    >>> shares_of(np.array([0.0, 5.0, 99.0]), 0.0, 10.0)
    array([-0.5,  0. ,  0.5])
    """
    return np.clip((np.clip(values, low, high) - low) / (high - low) - 0.5, -0.5, 0.5)


def numbers(table: Table, column: str) -> FloatArray:
    """A column that must hold numbers.

    >>> numbers({"age": np.array([1.0])}, "age")
    array([1.])
    """
    values: Column = table[column]
    if isinstance(values, Text):
        raise InputError("column", column, "holds text, not numbers", "give a column of numbers")
    return values
