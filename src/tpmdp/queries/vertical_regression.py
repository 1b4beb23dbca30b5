"""Linear regression over columns of the same people that different parties hold, in the same order.

Products of columns of two parties are computed on shares; each party adds up everything else itself. Columns are
rounded to a grid whose products lie on the grid of the noise, so nothing is rounded on shares. Theory,
"Vertical regression".
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any, ClassVar, Final

import numpy as np

from tpmdp._util.arrays import FloatArray, IntArray
from tpmdp.data.table import ColumnKind, Table
from tpmdp.errors import InputError
from tpmdp.noise.grid import Grid
from tpmdp.queries.answer import Answer
from tpmdp.queries.base import Unit, units_of
from tpmdp.queries.exact_total import exact_total, rounding_of
from tpmdp.queries.guesses import TypicalData
from tpmdp.queries.linear_regression import check_target, regression
from tpmdp.queries.moments import Moments, Ranges
from tpmdp.queries.share_query import Parties, ShareQuery

_UP: Final = 1 + 2.0**-40
Holders = tuple[tuple[str, tuple[str, ...]], ...]  # party and its columns


@dataclass(frozen=True)
class VerticalRegression(ShareQuery):
    """Least squares of the target on all other columns of `bounds`; `held_by` says which party has which columns.

    >>> from tpmdp.queries.ranges import Range
    >>> query = VerticalRegression("pay", "pay", (Range("pay", 0, 9), Range("age", 0, 9)),
    ...                            (("bank", ("pay",)), ("school", ("age",))))
    >>> query.dimension, query.sizes({"bank": 10, "school": 10, "lab": 0})
    (5, [12, 12, 0])
    """

    target: str
    bounds: Ranges
    held_by: Holders

    kind: ClassVar[str] = "vertical_regression"
    leaves: ClassVar[str] = "the party's columns, as shares that tell t parties nothing"
    in_pairs: ClassVar[bool] = True
    functions: ClassVar[Mapping[str, str]] = {
        "mpyc": "tpmdp.engines.mpyc.functions:gram",
        "spu": "tpmdp.engines.spu.functions:gram",
    }

    def __post_init__(self) -> None:
        check_target(self.name, self.target, self.bounds)
        held = [column for _, columns in self.held_by for column in columns]
        wanted = [each.column for each in self.bounds]
        if sorted(held) != sorted(wanted):
            rule = f"must name each column of bounds once ({', '.join(wanted)})"
            raise InputError(f"held_by of {self.name}", ", ".join(held), rule, "say who holds which column")
        if not all(columns for _, columns in self.held_by):
            raise InputError(f"held_by of {self.name}", "[]", "must not be empty for a party", "remove the party")

    @property
    def _moments(self) -> Moments:
        """Inputs first, the target last."""
        inputs = tuple(each for each in self.bounds if each.column != self.target)
        output = next(each for each in self.bounds if each.column == self.target)
        return Moments((*inputs, output), counted=False)

    @property
    def dimension(self) -> int:
        return self._moments.dimension

    def _of(self, party: str) -> Moments | None:
        """The moments of the columns that a party holds."""
        mine = dict(self.held_by).get(party, ())
        by_name = {each.column: each for each in self.bounds}
        return Moments(tuple(by_name[column] for column in mine), counted=False) if mine else None

    def check(self, parties: Parties) -> None:
        names = [name for name, _ in self.held_by]
        for name in names:
            if name not in parties:
                raise InputError(f"held_by of {self.name}", name, "is not a party of the study", "correct the name")
        if len(names) < 2:
            rule = "must be two parties or more: a single party can use linear_regression"
            raise InputError(f"held_by of {self.name}", ", ".join(names), rule, "say who holds which column")
        counts = {name: parties[name] for name in names}
        if len(set(counts.values())) > 1:
            text = ", ".join(f"{name} {count}" for name, count in counts.items())
            raise InputError("records", text, "must be the same people for all that hold columns", "align the data")
        for name, records in parties.items():
            if records and name not in names:
                rule = f"holds no column of {self.name} but has records"
                raise InputError("party", name, rule, "set its records to 0, or say what it holds")

    def columns_of(self, party: str) -> Mapping[str, ColumnKind]:
        mine = self._of(party)
        return mine.columns if mine is not None else {}

    def ranges_of(self, party: str) -> Ranges:
        mine = self._of(party)
        return mine.ranges if mine is not None else ()

    def records_of(self, parties: Parties) -> int:
        """The number of people: all holders have records of the same."""
        return max(parties.values())

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

    def bound(self, records: int) -> float:
        """Every product is at most 1."""
        return float(records)

    def encode(self, party: str, table: Table, grid: Grid) -> IntArray:
        """The moments of the party's columns, then the columns, each rounded up or down by a public dither."""
        mine = self._of(party)
        if mine is None or not table:
            return np.zeros(0, dtype=np.int64)
        places = [each.column for each in self.bounds]
        scale = 2.0 ** _column_bits(grid)
        columns = []
        for bounds, values in zip(mine.ranges, mine.scaled(table), strict=True):
            dither = np.random.default_rng(places.index(bounds.column)).random(len(values))  # public: by place only
            columns.append(np.clip(np.floor(values * scale + dither), -scale, scale))
        records = len(columns[0])
        features = mine.features([column / scale for column in columns])
        own = rounding_of(exact_total(features, records, records), records)
        return np.concatenate([np.rint(own / grid.step), *columns]).astype(np.int64)

    def sizes(self, parties: Parties) -> Sequence[int]:
        layouts = [(self._of(party), records) for party, records in parties.items()]
        return [0 if mine is None else mine.dimension + mine.count * records for mine, records in layouts]

    def parameters(self, parties: Parties, grid: Grid) -> dict[str, Any]:
        """The shape of every party's input, and the factor that brings products of columns to the grid."""
        layouts = [self._of(party) for party in parties]
        most, widest = round(max(parties.values()) / grid.step) + 1, 2 ** _column_bits(grid)
        limits = [
            [] if mine is None else [[mine.dimension, most], [mine.count * records, widest]]
            for mine, records in zip(layouts, parties.values(), strict=True)
        ]
        return {
            "limits": limits,
            "records": max(parties.values()),
            "columns": [0 if mine is None else mine.count for mine in layouts],
            "local": [0 if mine is None else mine.dimension for mine in layouts],
            "scale": 2 ** (_grid_bits(grid) - 2 * _column_bits(grid)),
        }

    def ordered(self, total: FloatArray, parties: Sequence[str]) -> FloatArray:
        """From every party's own moments, then the products of columns of two parties, to the order of `Moments`."""
        whole = self._moments
        names = [each.column for each in whole.ranges]
        count = whole.count
        pairs = [(i, j) for i in range(count) for j in range(i + 1, count)]
        result = np.zeros(whole.dimension)
        taken = 0

        def put(entry: int) -> None:
            nonlocal taken
            result[entry] = total[taken]
            taken += 1

        def put_product(a: str, b: str) -> None:
            i, j = sorted((names.index(a), names.index(b)))
            put(2 * count + pairs.index((i, j)))

        holders = [(party, dict(self.held_by)[party]) for party in parties if party in dict(self.held_by)]
        for _, mine in holders:
            for column in mine:
                put(names.index(column))
            for column in mine:
                put(count + names.index(column))
            for a, b in combinations(mine, 2):
                put_product(a, b)
        for first, (_, left) in enumerate(holders):
            for _, right in holders[first + 1 :]:
                for a in left:
                    for b in right:
                        put_product(a, b)
        return result

    def typical(self, records: float) -> FloatArray:
        return self._moments.typical(records)

    def guess(self, records: float, scenario: TypicalData) -> FloatArray:
        return self._moments.guess(records, scenario)

    def estimates(self, total: FloatArray, records: int, standard_error: float) -> list[Answer]:
        return regression(self.name, self._moments, total, records=records, error=standard_error, bars=False)

    def answers(self, total: FloatArray, records: int, standard_error: float) -> list[Answer]:
        return regression(self.name, self._moments, total, records=records, error=standard_error)

    def settings(self) -> dict[str, Any]:
        return {**super().settings(), "held_by": dict(self.held_by)}


def _grid_bits(grid: Grid) -> int:
    """Bits after the binary point: the step is 2**-bits."""
    return 1 - math.frexp(grid.step)[1]


def _column_bits(grid: Grid) -> int:
    """Columns are multiples of 2**-bits, so that products of two are multiples of the step."""
    bits = _grid_bits(grid) // 2
    if bits < 1:
        rule = "leaves no room for products of columns"
        raise InputError("grid", f"step {grid.step:g}", rule, "give larger budgets: the noise would drown everything")
    return bits
