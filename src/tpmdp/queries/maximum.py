"""The largest number that any party has: a count, sum or mean of its own records."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Final

import numpy as np

from tpmdp._util.arrays import FloatArray, IntArray
from tpmdp.data.table import ColumnKind, Table
from tpmdp.errors import InputError
from tpmdp.noise.grid import Grid
from tpmdp.queries.base import Answer, Query, Unit
from tpmdp.queries.count import Count
from tpmdp.queries.joint import JointQuery, Parties
from tpmdp.queries.mean import Mean
from tpmdp.queries.subset import Where
from tpmdp.queries.sum import Sum

_DIVISION: Final = 2.0**-50  # above the rounding error of a mean in [-1/2, 1/2]


@dataclass(frozen=True)
class Maximum(JointQuery):
    """The maximum over parties of a count, a sum or a mean; which party has it is not told.

    A maximum moves by at most as much as the number that moves, so its sensitivity is that of the number.

    >>> Maximum.of(Mean("longest mean stay", "days", 0, 10)).sensitivity("record", "bank", 100) < 0.0101
    True
    """

    number: Query = field(metadata={"hidden": True})

    kind: ClassVar[str] = "maximum"
    leaves: ClassVar[str] = "the party's own number, as shares that tell t parties nothing"
    function: ClassVar[str] = "tpmdp.engines.mpyc.functions:maximum"
    dimension: ClassVar[int] = 1

    @classmethod
    def of(cls, query: Query) -> Maximum:
        """The maximum of what the query would say of each party alone."""
        inner = query.query if isinstance(query, Where) else query
        if not isinstance(inner, Count | Sum | Mean) or (isinstance(inner, Mean) and inner is not query):
            kind = query.settings()["kind"]
            rule = "must be a count, a sum or a mean without `where`"
            raise InputError(f"of in {query.name}", kind, rule, "choose one")
        # sums of parties with different numbers of records are compared from 0, not from the middle of the range
        return cls(query.name, query.partial("some") if isinstance(query, Sum) else query)

    @property
    def code(self) -> str:
        """Hash of the file of a number that is a query of one's own."""
        return self.number.code

    @property
    def _is_mean(self) -> bool:
        return isinstance(self.number, Mean)

    def check(self, parties: Parties) -> None:
        """Refuse a maximum of fewer than two numbers."""
        holders = sum(records > 0 for records in parties.values())
        if holders < 2:
            rule = "must have records at two parties or more for a maximum"
            raise InputError("parties", f"{holders} with records", rule, "add parties")

    def columns_of(self, party: str) -> Mapping[str, ColumnKind]:
        """The same for every party."""
        del party
        return self.number.columns

    def sensitivity(self, unit: Unit, party: str, records: int) -> float:
        """That of the party's number."""
        del party
        whole = self.number.sensitivity(unit, records)
        return whole / records + _DIVISION if self._is_mean and records else whole

    def bound(self, records: int) -> float:
        """That of the party's number."""
        return min(0.5, float(records)) if self._is_mean else self.number.bound(records)

    def encode(self, party: str, table: Table, grid: Grid) -> IntArray:
        """The party's number on the grid."""
        del party
        if not table:
            return np.zeros(0, dtype=np.int64)
        records = len(next(iter(table.values())))
        value = self.number.statistic(table) / (records if self._is_mean else 1)
        return grid.encode(np.clip(value, -self.bound(records), self.bound(records)), self.bound(records))

    def sizes(self, parties: Parties) -> Sequence[int]:
        """One number a party with records."""
        return [min(records, 1) for records in parties.values()]

    def parameters(self, parties: Parties, grid: Grid) -> dict[str, Any]:
        """How large each party's number may be."""
        largest = [round(self.bound(records) / grid.step) + 1 for records in parties.values()]
        pairs = zip(parties.values(), largest, strict=True)
        return {"limits": [[[1, most]] if records else [] for records, most in pairs]}

    def typical(self, records: int) -> FloatArray:
        """Its error does not depend on it."""
        del records
        return np.zeros(1)

    def answers(self, total: FloatArray, records: int, standard_error: float) -> list[Answer]:
        """As the query's own, of one party."""
        del records
        return self.number.answers(total, 1, standard_error)

    def settings(self) -> dict[str, Any]:
        """The number is a table of its own."""
        inner = {key: value for key, value in self.number.settings().items() if key != "name"}
        return {"name": self.name, "kind": self.kind, "of": inner}
