"""A custom function of the columns of two parties: it is written in JAX, and the two compute it by CHEETAH."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Final

import numpy as np

from tpmdp._util.arrays import FloatArray, IntArray
from tpmdp._util.function_file import function_file
from tpmdp.data.table import ColumnKind, Table
from tpmdp.errors import InputError
from tpmdp.noise.grid import Grid
from tpmdp.queries.answer import Answer
from tpmdp.queries.base import Unit, units_of
from tpmdp.queries.moments import Ranges
from tpmdp.queries.ranges import Range, numbers
from tpmdp.queries.share_query import Parties, ShareQuery
from tpmdp.queries.vertical_moments import Holders
from tpmdp.queries.vertical_query import check_room, grid_bits

LARGEST: Final = 2.0**40  # of a value of a column, and of a result


@dataclass(frozen=True)
class PairFunction(ShareQuery):
    """What `function` gives for the columns of two parties, as rows of whole numbers; `largest` bounds its results.

    Values are rounded to whole numbers within their bounds. `sensitivity` says how far, in L2 norm, all results
    together move when one record of one party changes. `results` names them, if there are several.

    >>> query = PairFunction("above", "tpmdp.engines.spu.functions:count_larger", (Range("a", 0, 9), Range("b", 0, 9)),
    ...                      (("bank", ("a",)), ("shop", ("b",))), sensitivity=1.0, largest=100.0)
    >>> query.sizes({"bank": 100, "shop": 100, "office": 0})
    [100, 100, 0]
    """

    function: str
    bounds: Ranges
    held_by: Holders
    sensitivity: float
    largest: float
    results: tuple[str, ...] = ()

    kind: ClassVar[str] = "pair_function"
    is_linear: ClassVar[bool] = True
    leaves: ClassVar[str] = "the party's columns, encrypted or as shares that tell the other party nothing"

    def __post_init__(self) -> None:
        function_file(self.function)
        names = [column for _, columns in self.held_by for column in columns]
        wanted = [each.column for each in self.bounds]
        if sorted(names) != sorted(wanted) or len(self.held_by) != 2 or not all(columns for _, columns in self.held_by):
            rule = f"must be two parties, with each column of bounds once ({', '.join(wanted)})"
            raise InputError(f"held_by of {self.name}", ", ".join(names), rule, "say who holds which column")
        for each in self.bounds:
            ends = (each.low, each.high)
            if any(end != round(end) or abs(end) > LARGEST for end in ends):
                rule = f"must be whole numbers of at most {LARGEST:,.0f}"
                raise InputError(f"bounds of {self.name}, {each.column}", list(ends), rule, "scale the column")
        for key in ("sensitivity", "largest"):
            value = getattr(self, key)
            if not 0 < value <= LARGEST:
                rule = f"must lie above 0 and be at most {LARGEST:,.0f}"
                raise InputError(f"{key} of {self.name}", value, rule, "work it out from the function")

    @property
    def functions(self) -> Mapping[str, str]:  # type: ignore[override]  # one for each query
        """Only pairs can compute it."""
        return {"spu": self.function}

    @property
    def code(self) -> str:  # type: ignore[override]  # of the function's file
        """Hash of the file of the function."""
        return hashlib.sha256(function_file(self.function).read_bytes()).hexdigest()

    @property
    def dimension(self) -> int:
        return max(1, len(self.results))

    @property
    def holders(self) -> Sequence[str]:
        """The two parties."""
        return [name for name, _ in self.held_by]

    def _held(self, party: str) -> list[Range]:
        by_name = {each.column: each for each in self.bounds}
        return [by_name[column] for column in dict(self.held_by).get(party, ())]

    def check(self, parties: Parties) -> None:
        names = list(self.holders)
        for name in names:
            if name not in parties or not parties[name]:
                rule = "must be a party of the study with records"
                raise InputError(f"held_by of {self.name}", name, rule, "correct the name")
        if names != [name for name in parties if name in names]:
            rule = "must name the two in the order of the study, because the function gets them in that order"
            raise InputError(f"held_by of {self.name}", ", ".join(names), rule, "exchange them")
        for name, records in parties.items():
            if records and name not in names:
                rule = f"holds no column of {self.name} but has records"
                raise InputError("party", name, rule, "set its records to 0")

    def columns_of(self, party: str) -> Mapping[str, ColumnKind]:
        return {each.column: "number" for each in self._held(party)}

    def ranges_of(self, party: str) -> Sequence[Range]:
        return self._held(party)

    def records_of(self, parties: Parties) -> int:
        return max(parties.values())

    def sensitivity_of(self, unit: Unit, party: str, records: int) -> float:
        """As declared; all records change one after the other."""
        return units_of(unit, records) * self.sensitivity if self._held(party) else 0.0

    def bound(self, records: int) -> float:
        return self.largest if records else 0.0

    def encode(self, party: str, table: Table, grid: Grid) -> IntArray:
        del grid
        if not table:
            return np.zeros(0, dtype=np.int64)
        rows = [np.rint(np.clip(numbers(table, each.column), each.low, each.high)) for each in self._held(party)]
        return np.concatenate(rows).astype(np.int64)

    def shapes(self, parties: Parties) -> list[list[int]]:
        """Of the two inputs: columns and records."""
        return [[len(self._held(name)), parties[name]] for name, _ in self.held_by]

    def sizes(self, parties: Parties) -> Sequence[int]:
        return [len(self._held(name)) * records for name, records in parties.items()]

    def parameters(self, parties: Parties, grid: Grid) -> dict[str, Any]:
        """The shapes of the inputs, their bounds, and the factor that brings results to the grid."""
        check_room(grid, grid_bits(grid) >= 0)
        limits = [
            [[records, int(max(abs(each.low), abs(each.high)))] for each in self._held(name)]
            for name, records in parties.items()
        ]
        return {"limits": limits, "shapes": self.shapes(parties), "scale": round(1 / grid.step)}

    def answers(self, total: FloatArray, records: int, standard_error: float) -> list[Answer]:
        del records
        parts = self.results or ("",)
        pairs = zip(parts, total.tolist(), strict=True)
        return [Answer(self.name, value, standard_error, part=part) for part, value in pairs]

    def settings(self) -> dict[str, Any]:
        return {**super().settings(), "held_by": dict(self.held_by)}
