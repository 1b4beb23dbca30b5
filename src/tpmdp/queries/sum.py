"""The sum of a column, with public bounds."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from tpmdp._util.arrays import FloatArray
from tpmdp.data.table import Table
from tpmdp.queries.answer import Answer
from tpmdp.queries.bounded import BoundedQuery
from tpmdp.queries.ranges import numbers


@dataclass(frozen=True)
class Sum(BoundedQuery):
    """The sum of a column whose values are clipped to [low, high].

    >>> query = Sum("days in all", "days", 0, 10)
    >>> query.answers(query.statistic({"days": np.array([0.0, 10.0, 99.0])}), 3, 0.0)[0].value
    20.0
    """

    is_linear: ClassVar[bool] = True
    leaves: ClassVar[str] = "the sum of the values, each cut to the bounds and scaled to at most 1 in size"
    dimension: ClassVar[int] = 1

    @property
    def _reach(self) -> float:
        return max(abs(self.low), abs(self.high))

    @property
    def spread(self) -> float:
        """From end to end, in units of the range, or of the farther end if not all records count."""
        return 1.0 if self.mode == "all" else (self.high - self.low) / self._reach

    @property
    def size(self) -> float:
        return 0.5 if self.mode == "all" else 1.0

    @property
    def largest(self) -> float:  # type: ignore[override]  # a constant of each mode
        return self.size

    def features(self, table: Table) -> list[FloatArray]:
        """The share of the range from its middle if all records count, else the value divided by the farther end."""
        if self.mode == "all":
            return [self.shares(table)]
        return [np.clip(numbers(table, self.column), self.low, self.high) / self._reach]

    def answers(self, total: FloatArray, records: int, standard_error: float) -> list[Answer]:
        if self.mode != "all":
            return [Answer(self.name, float(total[0]) * self._reach, standard_error * self._reach)]
        width = self.width
        value = float(total[0]) * width + (self.low + self.high) / 2 * records
        return [Answer(self.name, value, standard_error * width)]
