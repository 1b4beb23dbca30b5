"""Queries about columns of the same people that different parties hold, in the same order.

Products of columns of two parties are computed on shares; each party adds up everything else itself. Columns hold
whole multiples of a power of two, and products of two lie on the grid of the noise, so nothing is rounded on shares.
Theory, "Vertical regression".
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from tpmdp._util.arrays import IntArray
from tpmdp.data.table import Table
from tpmdp.errors import InputError
from tpmdp.noise.grid import Grid
from tpmdp.queries.share_query import Parties, ShareQuery


@dataclass(frozen=True)
class VerticalQuery(ShareQuery):
    """A party's input is what it computed alone, then its columns; entries of columns are at most 1 in size."""

    in_pairs: ClassVar[bool] = True
    functions: ClassVar[Mapping[str, str]] = {
        "mpyc": "tpmdp.engines.mpyc.functions:gram",
        "spu": "tpmdp.engines.spu.functions:gram",
    }

    @property
    @abstractmethod
    def holders(self) -> Sequence[str]:
        """The parties that hold columns."""

    @abstractmethod
    def holder_field(self, party: str) -> str:
        """Where the study names a holder, for errors."""

    @abstractmethod
    def layout_of(self, party: str) -> tuple[int, int]:
        """How many numbers a holder computes alone, and how many columns it puts in."""

    @abstractmethod
    def column_bits(self, grid: Grid) -> int:
        """Entries of columns are whole multiples of 2**-bits. Refuses a grid that is too coarse."""

    @abstractmethod
    def encode_columns(self, party: str, table: Table, grid: Grid) -> IntArray:
        """What a holder puts in, from its data."""

    def check(self, parties: Parties) -> None:
        for holder in self.holders:
            if holder not in parties:
                raise InputError(self.holder_field(holder), holder, "is not a party of the study", "correct the name")
        counts = {name: parties[name] for name in self.holders}
        if len(set(counts.values())) > 1:
            text = ", ".join(f"{name} {count}" for name, count in counts.items())
            raise InputError("records", text, "must be the same people for all that hold columns", "align the data")
        for name, records in parties.items():
            if records and name not in self.holders:
                rule = f"holds no column of {self.name} but has records"
                raise InputError("party", name, rule, "set its records to 0, or say what it holds")

    def records_of(self, parties: Parties) -> int:
        """The number of people: all holders have records of the same."""
        return max(parties.values())

    def bound(self, records: int) -> float:
        """Every product is at most 1."""
        return float(records)

    def encode(self, party: str, table: Table, grid: Grid) -> IntArray:
        if party not in self.holders or not table:
            return np.zeros(0, dtype=np.int64)
        return self.encode_columns(party, table, grid)

    def _layouts(self, parties: Parties) -> list[tuple[int, int]]:
        return [self.layout_of(party) if party in self.holders else (0, 0) for party in parties]

    def sizes(self, parties: Parties) -> Sequence[int]:
        layouts = zip(self._layouts(parties), parties.values(), strict=True)
        return [local + columns * records for (local, columns), records in layouts]

    def parameters(self, parties: Parties, grid: Grid) -> dict[str, Any]:
        """The shape of every party's input, and the factor that brings products of columns to the grid."""
        layouts, bits, people = self._layouts(parties), self.column_bits(grid), self.records_of(parties)
        most, widest = round(people / grid.step) + 1, 2**bits
        return {
            "limits": [[[local, most], [columns * people, widest]] if columns else [] for local, columns in layouts],
            "records": people,
            "columns": [columns for _, columns in layouts],
            "local": [local for local, _ in layouts],
            "scale": 2 ** (grid_bits(grid) - 2 * bits),
        }


def grid_bits(grid: Grid) -> int:
    """Bits after the binary point: the step is 2**-bits.

    >>> grid_bits(Grid(0.25, 1, 64)), grid_bits(Grid(2.0, 1, 64))
    (2, -1)
    """
    return 1 - math.frexp(grid.step)[1]


def check_room(grid: Grid, enough: bool) -> None:
    """Refuse a grid without enough bits for columns and their products."""
    if not enough:
        rule = "leaves no room for products of columns"
        raise InputError("grid", f"step {grid.step:g}", rule, "give larger budgets: the noise would drown everything")
