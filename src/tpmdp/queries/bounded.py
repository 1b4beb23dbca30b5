"""Queries on one column with public bounds."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from tpmdp._util.arrays import FloatArray
from tpmdp.data.table import ColumnKind, Table
from tpmdp.queries.base import Query
from tpmdp.queries.ranges import Range


@dataclass(frozen=True)
class BoundedQuery(Query):
    """One column whose values are clipped to [low, high]."""

    column: str
    low: float
    high: float

    has_parts: ClassVar[bool] = True

    def __post_init__(self) -> None:
        Range(self.name, self.low, self.high)  # checks the bounds

    @property
    def columns(self) -> Mapping[str, ColumnKind]:
        return {self.column: "number"}

    def ranges_of(self, party: str) -> list[Range]:
        del party
        return [Range(self.column, self.low, self.high)]

    @property
    def width(self) -> float:
        """The width of the range."""
        return self.high - self.low

    def shares(self, table: Table) -> FloatArray:
        """The values as shares of the range, counted from its middle: each in [-1/2, 1/2]."""
        return Range(self.column, self.low, self.high).shares(table)
