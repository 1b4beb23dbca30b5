"""Queries that are no sums: a function of what all parties hold together, computed on shares (engine mpyc)."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from tpmdp._util.arrays import FloatArray, IntArray
from tpmdp.data.table import ColumnKind, Table
from tpmdp.noise.grid import Grid
from tpmdp.queries.base import Answer, Unit

Parties = Mapping[str, int]  # the number of records of every party, by name, in the order of the study


@dataclass(frozen=True)
class JointQuery(ABC):
    """One question whose answer multiplies or compares what different parties hold. It is alone in its study."""

    name: str

    kind: ClassVar[str] = ""
    leaves: ClassVar[str] = ""
    function: ClassVar[str] = ""  # of tpmdp.engines.mpyc.functions, as module:name

    @property
    @abstractmethod
    def dimension(self) -> int:
        """How many entries the answer has before it is read."""

    @abstractmethod
    def check(self, parties: Parties) -> None:
        """Refuse parties that the query does not fit."""

    @abstractmethod
    def columns_of(self, party: str) -> Mapping[str, ColumnKind]:
        """The columns this party must have."""

    @abstractmethod
    def sensitivity(self, unit: Unit, party: str, records: int) -> float:
        """How far the answer can move, in L2 norm, when this party's data change."""

    @abstractmethod
    def bound(self, records: int) -> float:
        """The largest absolute value of an entry that a party with so many records can bring about."""

    @abstractmethod
    def encode(self, party: str, table: Table, grid: Grid) -> IntArray:
        """What the party puts into the computation: whole numbers."""

    @abstractmethod
    def sizes(self, parties: Parties) -> Sequence[int]:
        """How many numbers each party puts in; public."""

    @abstractmethod
    def parameters(self, parties: Parties, grid: Grid) -> dict[str, Any]:
        """What the function needs to know besides."""

    @abstractmethod
    def typical(self, records: int) -> FloatArray:
        """A plausible noiseless answer, to tell the expected error before anything is run."""

    @abstractmethod
    def answers(self, total: FloatArray, records: int, standard_error: float) -> list[Answer]:
        """From the noisy answer, which has this standard error in each entry."""

    @abstractmethod
    def settings(self) -> dict[str, Any]:
        """The keys and values of the study file that make this query."""
