"""The mean of a column over all records, with public bounds."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tpmdp.queries.base import Answer, Table
from tpmdp.validate import FloatArray


@dataclass(frozen=True)
class Mean:
    """The mean of a column whose values are clipped to [low, high]. The number of records is public.

    >>> Mean("stay", "days", 0, 10).statistic({"days": np.array([0.0, 10.0, 99.0])})
    array([0.5])
    """

    name: str
    column: str
    low: float
    high: float

    dimension = 1

    @property
    def columns(self) -> tuple[str, ...]:
        """The column it reads."""
        return (self.column,)

    @property
    def _middle(self) -> float:
        return self.low + (self.high - self.low) / 2

    def statistic(self, table: Table) -> FloatArray:
        """Sum of clipped values as shares of the range, from its middle: each in [-1/2, 1/2].

        Shares become whole multiples of a power of two small enough that the sum is exact: a floating-point sum would
        let one record move it by a little more than its share.
        """
        clipped = np.clip(table[self.column], self.low, self.high)
        shares = np.clip((clipped - self._middle) / (self.high - self.low), -0.5, 0.5)
        scale = 2.0 ** (52 - len(shares).bit_length())
        return np.array([np.rint(shares * scale).astype(np.int64).sum() / scale], dtype=np.float64)

    def bound(self, records: int) -> float:
        """All values at one end of the range."""
        return records / 2

    def answers(self, total: FloatArray, records: int, standard_error: float) -> list[Answer]:
        """Back to the scale of the column."""
        scale = (self.high - self.low) / records
        return [Answer(self.name, self._middle + float(total[0]) * scale, standard_error * scale)]
