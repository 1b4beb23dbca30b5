"""How many people fall into each bin or category of one party's column and each of another party's: a cross-table."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any, ClassVar, Final

import numpy as np

from tpmdp._util.arrays import FloatArray, IntArray
from tpmdp.data.table import ColumnKind, Table
from tpmdp.errors import InputError
from tpmdp.noise.grid import Grid
from tpmdp.queries.answer import Answer, with_bands
from tpmdp.queries.base import Unit, units_of
from tpmdp.queries.binned_column import BinnedColumn
from tpmdp.queries.vertical_query import VerticalQuery, check_room, grid_bits

CELLS_MAX: Final = 10_000


@dataclass(frozen=True)
class HeldColumn:
    """A column of a party, in bins or categories."""

    party: str
    bins: BinnedColumn

    def settings(self) -> dict[str, Any]:
        """As in a study file.

        >>> HeldColumn("bank", BinnedColumn("pay", (0.0, 9.0))).settings()
        {'party': 'bank', 'column': 'pay', 'edges': (0.0, 9.0)}
        """
        bins = {"edges": self.bins.edges, "categories": self.bins.categories}
        return {"party": self.party, "column": self.bins.column, **{key: each for key, each in bins.items() if each}}


@dataclass(frozen=True)
class JointTable(VerticalQuery):
    """The number of people in each pair of a bin or category of `rows` and one of `columns`, of two parties.

    A person whose value at one of the parties lies outside of all of them is counted in no cell.

    >>> pay, sick = BinnedColumn("pay", (0.0, 5.0, 9.0)), BinnedColumn("sick", categories=("no", "yes"))
    >>> query = JointTable("both", HeldColumn("bank", pay), HeldColumn("clinic", sick))
    >>> [answer.part for answer in query.answers(np.zeros(4), 10, 1.0)][:2]
    ['pay 0 to below 5, sick no', 'pay 0 to below 5, sick yes']
    """

    rows: HeldColumn
    columns: HeldColumn

    is_linear: ClassVar[bool] = True
    counts: ClassVar[bool] = True
    leaves: ClassVar[str] = (
        "0 or 1 for each record and bin or category, encrypted or as shares, which tell t parties nothing"
    )

    def __post_init__(self) -> None:
        for key, side in self._sides.items():
            side.bins.check(f"{key} of {self.name}")
        if self.rows.party == self.columns.party:
            rule = "must be another party than that of the rows"
            remedy = "name the party that holds the other column; for columns of one party use histogram with by"
            raise InputError(self._field("columns"), self.columns.party, rule, remedy)
        if self.dimension > CELLS_MAX:
            rule, remedy = f"must be at most {CELLS_MAX:,}", "use fewer, wider bins or fewer categories"
            raise InputError(f"cells of {self.name}", self.dimension, rule, remedy)

    @property
    def _sides(self) -> Mapping[str, HeldColumn]:
        return {"rows": self.rows, "columns": self.columns}

    def _field(self, key: str) -> str:
        return f"{key} of {self.name}, party"

    def _of(self, party: str) -> BinnedColumn | None:
        """The column that a party holds."""
        return next((side.bins for side in self._sides.values() if side.party == party), None)

    @property
    def dimension(self) -> int:
        return self.rows.bins.count * self.columns.bins.count

    @property
    def holders(self) -> Sequence[str]:
        return [side.party for side in self._sides.values()]

    def holder_field(self, party: str) -> str:
        return self._field("rows" if party == self.rows.party else "columns")

    def columns_of(self, party: str) -> Mapping[str, ColumnKind]:
        mine = self._of(party)
        return {} if mine is None else {mine.column: mine.kind}

    def sensitivity_of(self, unit: Unit, party: str, records: int) -> float:
        """A person leaves one cell and enters another one: Theory, "Joint table"."""
        mine = self._of(party)
        return 0.0 if mine is None else units_of(unit, records) * mine.spread

    def layout_of(self, party: str) -> tuple[int, int]:
        mine = self._of(party)
        return (0, 0) if mine is None else (0, mine.count)

    def column_bits(self, grid: Grid) -> int:
        check_room(grid, grid_bits(grid) >= 0)
        return 0

    def encode_columns(self, party: str, table: Table, grid: Grid) -> IntArray:
        """For each bin or category whether a record is in it, 1 or 0."""
        del grid
        mine = self._of(party)
        assert mine is not None
        entries: IntArray = (mine.places(table) == np.arange(mine.count)[:, None]).astype(np.int64)
        return entries.ravel()

    def ordered(self, total: FloatArray, parties: Sequence[str]) -> FloatArray:
        """Row by row, whichever of the two parties comes first."""
        order = list(parties)
        if order.index(self.rows.party) < order.index(self.columns.party):
            return total
        return total.reshape(self.columns.bins.count, self.rows.bins.count).T.ravel()

    def answers(self, total: FloatArray, records: int, standard_error: float) -> list[Answer]:
        """The noisy counts, row by row: unbiased, so they may be negative."""
        del records
        parts = [f"{row}, {column}" for row, column in product(*map(self._names, self._sides.values()))]
        pairs = zip(parts, total.tolist(), strict=True)
        return with_bands([Answer(self.name, value, standard_error, part=part) for part, value in pairs])

    def _names(self, side: HeldColumn) -> list[str]:
        """The bins or categories with their column, and its party where both columns have one name."""
        owner = f"{side.party} " if self.rows.bins.column == self.columns.bins.column else ""
        return [f"{owner}{side.bins.column} {name}" for name in side.bins.names]

    def settings(self) -> dict[str, Any]:
        return {**super().settings(), **{key: side.settings() for key, side in self._sides.items()}}
