"""Moments of columns that different parties hold; what is told from them are covariances, correlations, a regression.

Each party adds up the columns, squares and products that it has alone; columns are rounded for all other products.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from itertools import combinations, product
from typing import Any, ClassVar, Final

import numpy as np

from tpmdp._util.arrays import FloatArray, IntArray
from tpmdp.data.table import ColumnKind, Table
from tpmdp.errors import InputError
from tpmdp.noise.grid import Grid
from tpmdp.queries.base import Unit, units_of
from tpmdp.queries.exact_total import exact_total, rounding_of
from tpmdp.queries.guesses import TypicalData
from tpmdp.queries.moments import Moments, Ranges
from tpmdp.queries.share_query import Parties
from tpmdp.queries.vertical_query import VerticalQuery, check_room, grid_bits

_UP: Final = 1 + 2.0**-40
Holders = tuple[tuple[str, tuple[str, ...]], ...]  # party and its columns


class VerticalMoments(VerticalQuery):
    """`held_by` says which party has which columns."""

    # No dataclass, so that each kind has its fields in the order of its study file.
    bounds: Ranges
    held_by: Holders

    leaves: ClassVar[str] = "the party's columns, encrypted or as shares, which tell t parties nothing"
    for_one_party: ClassVar[str]  # the kind of query that a party can use that holds all columns

    def __post_init__(self) -> None:
        self.moments  # noqa: B018  # checks the bounds
        held = [column for _, columns in self.held_by for column in columns]
        wanted = [each.column for each in self.bounds]
        if sorted(held) != sorted(wanted):
            rule = f"must name each column of bounds once ({', '.join(wanted)})"
            raise InputError(f"held_by of {self.name}", ", ".join(held), rule, "say who holds which column")
        if not all(columns for _, columns in self.held_by):
            raise InputError(f"held_by of {self.name}", "[]", "must not be empty for a party", "remove the party")

    @property
    @abstractmethod
    def moments(self) -> Moments:
        """The layout of the moments of all columns."""

    @property
    def dimension(self) -> int:
        return self.moments.dimension

    @property
    def holders(self) -> Sequence[str]:
        return [party for party, _ in self.held_by]

    def holder_field(self, party: str) -> str:
        del party
        return f"held_by of {self.name}"

    def _of(self, party: str) -> Moments | None:
        """The moments of the columns that a party holds."""
        mine = dict(self.held_by).get(party, ())
        by_name = {each.column: each for each in self.bounds}
        return Moments(tuple(by_name[column] for column in mine), counted=False) if mine else None

    def check(self, parties: Parties) -> None:
        if len(self.holders) < 2:
            rule = f"must be two parties or more: a single party can use {self.for_one_party}"
            raise InputError(f"held_by of {self.name}", ", ".join(self.holders), rule, "say who holds which column")
        super().check(parties)

    def columns_of(self, party: str) -> Mapping[str, ColumnKind]:
        mine = self._of(party)
        return mine.columns if mine is not None else {}

    def ranges_of(self, party: str) -> Ranges:
        mine = self._of(party)
        return mine.ranges if mine is not None else ()

    def sensitivity_of(self, unit: Unit, party: str, records: int) -> float:
        """One person's values at this party change: Theory, "Vertical regression"."""
        mine, rows = self._of(party), units_of(unit, records)
        if mine is None or not rows:
            return 0.0
        own, others = mine.count, 1 + len(self.bounds) - mine.count
        whole = others + own
        square = 4 * others * own if others >= own else whole * whole - whole % 2  # of the largest distance
        spread = math.sqrt(square)
        bits = records.bit_length()
        rounding = math.sqrt(mine.dimension) * (rows * 2.0 ** (bits - 60) + 2.0 ** (bits - 51))  # see exact_total
        return (rows * spread + rounding) * _UP

    def layout_of(self, party: str) -> tuple[int, int]:
        mine = self._of(party)
        return (0, 0) if mine is None else (mine.dimension, mine.count)

    def column_bits(self, grid: Grid) -> int:
        bits = grid_bits(grid) // 2
        check_room(grid, bits >= 1)
        return bits

    def encode_columns(self, party: str, table: Table, grid: Grid) -> IntArray:
        """The moments of the party's columns, then the columns, each rounded up or down by a public dither."""
        mine = self._of(party)
        assert mine is not None
        places = [each.column for each in self.bounds]
        scale = 2.0 ** self.column_bits(grid)
        columns = []
        for bounds, values in zip(mine.ranges, mine.scaled(table), strict=True):
            dither = np.random.default_rng(places.index(bounds.column)).random(len(values))  # public: by place only
            columns.append(np.clip(np.floor(values * scale + dither), -scale, scale))
        records = len(columns[0])
        features = mine.features([column / scale for column in columns])
        own = rounding_of(exact_total(features, records, records), records)
        return np.concatenate([np.rint(own / grid.step), *columns]).astype(np.int64)

    def ordered(self, total: FloatArray, parties: Sequence[str]) -> FloatArray:
        """From every party's own moments, then the products of columns of two parties, to the order of `Moments`."""
        result = np.zeros(self.dimension)
        result[list(self._entries(parties))] = total
        return result

    def _entries(self, parties: Sequence[str]) -> Iterator[int]:
        """The entry of `Moments` of each number that the function gives."""
        names = [each.column for each in self.moments.ranges]
        count = len(names)
        pairs = {pair: place for place, pair in enumerate(combinations(names, 2))}

        def of_product(one_column: str, other: str) -> int:
            pair = (one_column, other) if (one_column, other) in pairs else (other, one_column)
            return 2 * count + pairs[pair]

        held = dict(self.held_by)
        sets = [held[party] for party in parties if party in held]
        for mine in sets:
            yield from (names.index(column) for column in mine)
            yield from (count + names.index(column) for column in mine)
            yield from (of_product(*pair) for pair in combinations(mine, 2))
        for left, right in combinations(sets, 2):
            yield from (of_product(*pair) for pair in product(left, right))

    def typical(self, records: float) -> FloatArray:
        return self.moments.typical(records)

    def guess(self, records: float, scenario: TypicalData) -> FloatArray:
        return self.moments.guess(records, scenario)

    def settings(self) -> dict[str, Any]:
        return {**super().settings(), "held_by": dict(self.held_by)}
