"""The variance of a column over all records, with public bounds."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final

import numpy as np

from tpmdp.queries.base import Answer, Table, Unit, units_of
from tpmdp.queries.shares import exact_total, shares_of
from tpmdp.validate import FloatArray

# The largest distance of (s, 4 s^2 - 1/2) for s in [-1/2, 1/2]: between s = 1/2 and s = -a, where b = 1/2 - a solves
# 32 b^2 - 16 b + 1 = 0; squared it is (1 - b)^2 (1 + 16 b^2) = 1.286134...
_LARGER_ROOT: Final = (16 + math.sqrt(128)) / 64
PAIR_SENSITIVITY: Final = (1 - _LARGER_ROOT) * math.sqrt(1 + 16 * _LARGER_ROOT**2) * (1 + 2.0**-40)


@dataclass(frozen=True)
class Variance:
    """The variance (divided by the number of records) of a column whose values are clipped to [low, high].

    >>> query = Variance("spread", "days", 0, 10)
    >>> query.answers(query.statistic({"days": np.array([0.0, 10.0])}), 2, 0.0)[0].value
    25.0
    """

    name: str
    column: str
    low: float
    high: float

    dimension = 2

    @property
    def columns(self) -> tuple[str, ...]:
        """The column it reads."""
        return (self.column,)

    def statistic(self, table: Table) -> FloatArray:
        """Sums of the shares s of the range, from its middle, and of 4 s^2 - 1/2: both in [-1/2, 1/2]."""
        shares = shares_of(table[self.column], self.low, self.high)
        squares = np.clip(4 * shares * shares - 0.5, -0.5, 0.5)
        return np.array([exact_total(shares), exact_total(squares)])

    def sensitivity(self, unit: Unit, records: int) -> float:
        """The two entries cannot both move by 1: a record moves them by at most 1.135 together.

        Rounding to the exact sums moves each share by less than 2^-20 (below 2^31 records): that is added.
        """
        rounding = 4 * 2.0 ** (records.bit_length() - 52)
        return units_of(unit, records) * (PAIR_SENSITIVITY + rounding)

    def bound(self, records: int) -> float:
        """All values at one end of the range."""
        return records / 2

    def answers(self, total: FloatArray, records: int, standard_error: float) -> list[Answer]:
        """Mean square less square of the mean; error by the delta method."""
        mean, square = float(total[0]) / records, (float(total[1]) / records + 0.5) / 4
        scale = (self.high - self.low) ** 2
        error = standard_error / records * math.sqrt(1 / 16 + 4 * mean * mean)
        return [Answer(self.name, (square - mean * mean) * scale, error * scale)]
