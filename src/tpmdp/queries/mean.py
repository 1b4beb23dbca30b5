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

    def statistic(self, table: Table) -> FloatArray:
        """Sum of clipped values as shares of the range, from its middle: each in [-1/2, 1/2].

        Shares become whole multiples of a power of two small enough that the sum is exact: a floating-point sum would
        let one record move it by a little more than its share. They are rounded up or down by a dither that depends on
        the record's place only, so that the errors of many records do not add up.
        """
        clipped = np.clip(table[self.column], self.low, self.high)
        shares = np.clip((clipped - self.low) / (self.high - self.low) - 0.5, -0.5, 0.5)
        scale = 2.0 ** (52 - len(shares).bit_length())
        dither = np.random.default_rng(0).random(len(shares))  # public
        whole = np.clip(np.floor(shares * scale + dither), -scale / 2, scale / 2).astype(np.int64)
        return np.array([whole.sum() / scale], dtype=np.float64)

    def bound(self, records: int) -> float:
        """All values at one end of the range."""
        return records / 2

    def answers(self, total: FloatArray, records: int, standard_error: float) -> list[Answer]:
        """Back to the scale of the column."""
        width = self.high - self.low
        share = float(total[0]) / records + 0.5
        return [Answer(self.name, self.low + share * width, standard_error / records * width)]
