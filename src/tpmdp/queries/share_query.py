"""Non-additive queries: functions of the data of all parties, computed on shares."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from tpmdp._util.arrays import FloatArray, IntArray
from tpmdp.data.table import Table
from tpmdp.noise.grid import Grid
from tpmdp.queries.base import BaseQuery

Parties = Mapping[str, int]  # the number of records of every party, by name, in the order of the study


@dataclass(frozen=True)
class ShareQuery(BaseQuery):
    """A query that multiplies or compares data of different parties. It is the only query of its study."""

    functions: ClassVar[Mapping[str, str]] = {}  # what computes it, by engine, as module:name
    in_pairs: ClassVar[bool] = False  # only data of two parties are multiplied at a time, whatever their number

    @abstractmethod
    def check(self, parties: Parties) -> None:
        """Refuse parties that do not fit the query."""

    @abstractmethod
    def encode(self, party: str, table: Table, grid: Grid) -> IntArray:
        """What the party puts into the computation, as whole numbers."""

    @abstractmethod
    def sizes(self, parties: Parties) -> Sequence[int]:
        """How many numbers each party puts in; public."""

    @abstractmethod
    def parameters(self, parties: Parties, grid: Grid) -> dict[str, Any]:
        """The public parameters of the function."""

    def records_of(self, parties: Parties) -> int:
        """How many records all parties have together."""
        return sum(parties.values())

    def ordered(self, total: FloatArray, parties: Sequence[str]) -> FloatArray:
        """The vector in the order that `answers` expects, from the order in which the function gives it."""
        del parties
        return total
