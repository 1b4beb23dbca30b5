"""How many records lie in each of several bins."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from tpmdp.queries.base import Answer, Table, Unit, units_of
from tpmdp.validate import FloatArray


@dataclass(frozen=True)
class Histogram:
    """Counts of edges[i] <= column < edges[i + 1]; values outside all bins are not counted.

    >>> Histogram("ages", "age", (0.0, 18.0, 65.0)).statistic({"age": np.array([5.0, 18.0, 64.0, 90.0])})
    array([1., 2.])
    """

    name: str
    column: str
    edges: tuple[float, ...]

    @property
    def columns(self) -> tuple[str, ...]:
        """The column it reads."""
        return (self.column,)

    @property
    def dimension(self) -> int:
        """One entry a bin."""
        return len(self.edges) - 1

    def statistic(self, table: Table) -> FloatArray:
        """The party's counts."""
        place = np.searchsorted(np.array(self.edges), table[self.column], side="right") - 1
        inside = (place >= 0) & (place < self.dimension)
        return np.bincount(place[inside], minlength=self.dimension).astype(np.float64)

    def sensitivity(self, unit: Unit, records: int) -> float:
        """A record leaves one bin and enters another: sqrt(2)."""
        if self.dimension == 1:
            return float(units_of(unit, records))
        return units_of(unit, records) * math.sqrt(2) * (1 + 2.0**-50)

    def bound(self, records: int) -> float:
        """All of them in one bin."""
        return float(records)

    def answers(self, total: FloatArray, records: int, standard_error: float) -> list[Answer]:
        """Noisy counts as they are: unbiased, perhaps negative."""
        del records
        bins = zip(self.edges[:-1], self.edges[1:], strict=True)
        names = [f"{self.name}: {low:g} to below {high:g}" for low, high in bins]
        return [Answer(name, float(value), standard_error) for name, value in zip(names, total, strict=True)]
