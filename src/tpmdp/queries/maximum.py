"""The maximum over parties of a number that each has: a count, sum or mean of its own records."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Final

import numpy as np

from tpmdp._util.arrays import FloatArray, IntArray
from tpmdp.data.table import ColumnKind, Table
from tpmdp.errors import InputError
from tpmdp.noise.grid import Grid
from tpmdp.queries.answer import Answer
from tpmdp.queries.base import Query, Unit, length
from tpmdp.queries.count import Count
from tpmdp.queries.guesses import TypicalData
from tpmdp.queries.mean import Mean
from tpmdp.queries.ranges import Range
from tpmdp.queries.share_query import Parties, ShareQuery
from tpmdp.queries.subset import Where
from tpmdp.queries.sum import Sum

_DIVISION: Final = 2.0**-50  # above the rounding error of a mean in [-1/2, 1/2]


@dataclass(frozen=True)
class Maximum(ShareQuery):
    """The maximum over parties of a count, a sum or a mean; which party has it is not told.

    A maximum moves by at most as much as the number that moves, so its sensitivity is that of the number.

    >>> Maximum("longest", Mean("longest", "days", 0, 10)).sensitivity_of("record", "bank", 100) < 0.0101
    True
    """

    of: Query  # the number, as the query would answer it for each party alone

    kind: ClassVar[str] = "maximum"
    leaves: ClassVar[str] = "the party's own number, encrypted or as shares, which tell t parties nothing"
    functions: ClassVar[Mapping[str, str]] = {
        "mpyc": "tpmdp.engines.mpyc.functions:maximum",
        "spu": "tpmdp.engines.spu.functions:maximum",
    }
    dimension: ClassVar[int] = 1

    def __post_init__(self) -> None:
        query: object = self.of
        inner = query.query if isinstance(query, Where) else query
        if not isinstance(inner, Count | Sum | Mean) or (isinstance(inner, Mean) and inner is not query):
            rule = "must be a count, a sum or a mean without `where`"
            raise InputError(f"of in {self.name}", self.of.settings()["kind"], rule, "choose one")
        if isinstance(query, Sum):  # sums of parties with different numbers of records are compared from 0
            object.__setattr__(self, "of", query.partial("some"))

    @property
    def code(self) -> str:  # type: ignore[override]  # that of the number
        """Hash of the file of the number, if it is a custom query."""
        return self.of.code

    @property
    def is_linear(self) -> bool:  # type: ignore[override]  # as the number
        """Whether the number is."""
        return self.of.is_linear or isinstance(self.of, Where)

    @property
    def _is_mean(self) -> bool:
        return isinstance(self.of, Mean)

    def check(self, parties: Parties) -> None:
        holders = sum(records > 0 for records in parties.values())
        if holders < 2:
            rule = "must have records at two parties or more for a maximum"
            raise InputError("parties", f"{holders} with records", rule, "add parties")

    def columns_of(self, party: str) -> Mapping[str, ColumnKind]:
        return self.of.columns_of(party)

    def ranges_of(self, party: str) -> Sequence[Range]:
        return self.of.ranges_of(party)

    def selected(self, table: Table) -> Table:
        return self.of.selected(table)

    def sensitivity_of(self, unit: Unit, party: str, records: int) -> float:
        sensitivity = self.of.sensitivity_of(unit, party, records)
        return sensitivity / records + _DIVISION if self._is_mean and records else sensitivity

    def bound(self, records: int) -> float:
        return min(0.5, float(records)) if self._is_mean else self.of.bound(records)

    def encode(self, party: str, table: Table, grid: Grid) -> IntArray:
        del party
        if not table:
            return np.zeros(0, dtype=np.int64)
        records = length(table)
        value = self.of.statistic(table) / (records if self._is_mean else 1)
        return grid.encode(np.clip(value, -self.bound(records), self.bound(records)), self.bound(records))

    def sizes(self, parties: Parties) -> Sequence[int]:
        return [min(records, 1) for records in parties.values()]

    def parameters(self, parties: Parties, grid: Grid) -> dict[str, Any]:
        largest = [round(self.bound(records) / grid.step) + 1 for records in parties.values()]
        pairs = zip(parties.values(), largest, strict=True)
        return {"limits": [[[1, most]] if records else [] for records, most in pairs]}

    def guess(self, records: float, scenario: TypicalData) -> FloatArray:
        """The mean of each party, which is the maximum if all are alike; other numbers do not matter for the error."""
        return self.of.guess(1.0, scenario) if self._is_mean else self.typical(records)

    def answers(self, total: FloatArray, records: int, standard_error: float) -> list[Answer]:
        del records
        return self.of.answers(total, 1, standard_error)

    def settings(self) -> dict[str, Any]:
        inner = {key: value for key, value in self.of.settings().items() if key != "name"}
        return {**super().settings(), "of": inner}
