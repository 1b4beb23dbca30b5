"""The number of records with a value in a range, or that meet the condition of the query."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from tpmdp._util.arrays import FloatArray
from tpmdp.data.table import ColumnKind, Table
from tpmdp.errors import InputError
from tpmdp.queries.answer import Answer
from tpmdp.queries.base import Query, length
from tpmdp.queries.ranges import numbers


@dataclass(frozen=True)
class Count(Query):
    """The number of records with a column from `at_least` on and below `below`; or all that `where` or `by` select.

    >>> Count("old", "age", at_least=65).statistic({"age": np.array([70.0, 20.0, 65.0])})
    array([2.])
    """

    column: str = ""
    at_least: float = -math.inf
    below: float = math.inf

    is_linear: ClassVar[bool] = True
    leaves: ClassVar[str] = "the number of records in the range"
    step: ClassVar[float] = 1.0
    counts: ClassVar[bool] = True
    has_parts: ClassVar[bool] = True
    dimension: ClassVar[int] = 1
    spread: ClassVar[float] = 1.0
    size: ClassVar[float] = 1.0

    def __post_init__(self) -> None:
        where = f"bounds of {self.name}"
        if not self.at_least < self.below or self.at_least == math.inf or self.below == -math.inf:
            rule, remedy = "hold no value", "give at_least less than below"
            raise InputError(where, f"{self.at_least!r} to {self.below!r}", rule, remedy)
        if self.column and math.isinf(self.at_least) and math.isinf(self.below):
            raise InputError(where, "(none)", "leave a count of all records, which is public", "give at_least or below")
        if not self.column and not (math.isinf(self.at_least) and math.isinf(self.below)):
            raise InputError(f"column of {self.name}", "(none)", "is missing", "say which column is in the range")

    @property
    def columns(self) -> Mapping[str, ColumnKind]:
        return {self.column: "number"} if self.column else {}

    def selected(self, table: Table) -> Table:
        (inside,) = self.features(table)
        return {name: column[inside > 0] for name, column in table.items()}

    def features(self, table: Table) -> list[FloatArray]:
        if not self.column:
            return [np.ones(length(table))]
        values = numbers(table, self.column)
        return [((values >= self.at_least) & (values < self.below)).astype(np.float64)]

    def answers(self, total: FloatArray, records: int, standard_error: float) -> list[Answer]:
        """The noisy count: unbiased, so it may be negative or fractional."""
        del records
        return [Answer(self.name, float(total[0]), standard_error)]
