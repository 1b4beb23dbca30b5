"""How many records have a value in a range."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from tpmdp.queries.base import Answer, Table, Unit, units_of
from tpmdp.validate import FloatArray


@dataclass(frozen=True)
class Count:
    """The number of records with at_least <= column < below.

    >>> Count("old", "age", at_least=65).statistic({"age": np.array([70.0, 20.0, 65.0])})
    array([2.])
    """

    name: str
    column: str
    at_least: float = -math.inf
    below: float = math.inf

    dimension = 1

    @property
    def columns(self) -> tuple[str, ...]:
        """The column it reads."""
        return (self.column,)

    def statistic(self, table: Table) -> FloatArray:
        """How many of the party's records are in the range."""
        values = table[self.column]
        return np.array([np.count_nonzero((values >= self.at_least) & (values < self.below))], dtype=np.float64)

    def sensitivity(self, unit: Unit, records: int) -> float:
        """Each record counts once."""
        return float(units_of(unit, records))

    def bound(self, records: int) -> float:
        """All of them."""
        return float(records)

    def answers(self, total: FloatArray, records: int, standard_error: float) -> list[Answer]:
        """The noisy count as it is: it may be negative or fractional, and is unbiased."""
        del records
        return [Answer(self.name, float(total[0]), standard_error)]
