"""The mean of a column over all records, with public bounds."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tpmdp.queries.base import Answer, Table, Unit, units_of
from tpmdp.queries.shares import exact_total, shares_of
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
        """Sum of clipped values as shares of the range, from its middle."""
        return np.array([exact_total(shares_of(table[self.column], self.low, self.high))])

    def sensitivity(self, unit: Unit, records: int) -> float:
        """A record moves the sum by at most the whole range, which is 1."""
        return float(units_of(unit, records))

    def bound(self, records: int) -> float:
        """All values at one end of the range."""
        return records / 2

    def answers(self, total: FloatArray, records: int, standard_error: float) -> list[Answer]:
        """Back to the scale of the column."""
        width = self.high - self.low
        share = float(total[0]) / records + 0.5
        return [Answer(self.name, self.low + share * width, standard_error / records * width)]
