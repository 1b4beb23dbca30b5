"""The interface of all queries, and `Query`: the sum over records of a short vector, the record's features.

`spread` is the largest distance between the features of two records: how far replacing one record (unit "record")
moves the statistic. Replacing all records of a party (unit "party") moves it by at most that for each of them. Where
only some records count (`where`, `by`), a record may also appear, vanish or change its group; then `size`, the largest
length of the features of one record, matters too. Features are added up exactly, so these sensitivities hold for what
a computer really computes, floating-point errors included. Theory, "Queries".
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any, ClassVar, Final, Literal

import numpy as np

from tpmdp._util.arrays import FloatArray
from tpmdp.data.table import ColumnKind, Table
from tpmdp.errors import InputError
from tpmdp.queries.answer import Z_95, Answer
from tpmdp.queries.exact_total import exact_total, rounding_of
from tpmdp.queries.guesses import TypicalData
from tpmdp.queries.ranges import Range

Unit = Literal["record", "party"]
Mode = Literal["all", "some", "groups"]  # which records count: all, those of a condition, each in one group
_UP: Final = 1 + 2.0**-40  # above the rounding errors of features, a few units in the last place each
_CHUNK: Final = 1 << 18  # records at once
_CHUNK_ENTRIES: Final = 1 << 23  # features at once: 64 MB


def units_of(unit: Unit, records: int) -> int:
    """How many records may change at once.

    >>> units_of("record", 9), units_of("party", 9), units_of("record", 0)
    (1, 9, 0)
    """
    return min(records, 1) if unit == "record" else records


@dataclass(frozen=True)
class BaseQuery(ABC):
    """One question of a study. Subclasses are frozen dataclasses; their fields are the keys of the study file.

    `Query` is a sum over records, `ShareQuery` any other function of the parties' data.
    """

    name: str

    kind: ClassVar[str] = ""  # its name in the study file; default: the class name in snake_case
    leaves: ClassVar[str] = ""  # what leaves the party, for people
    counts: ClassVar[bool] = False  # its answers are numbers of records
    is_linear: ClassVar[bool] = False  # answers are linear in the vector, so the error is the same for all data
    has_parts: ClassVar[bool] = False  # works for any mode: may have `where` and `by`
    code: ClassVar[str] = ""  # hash of the file of a custom query
    choice_digest: ClassVar[str] = ""  # of what it works out from its settings by comparing rounded numbers

    @property
    @abstractmethod
    def dimension(self) -> int:
        """How many entries it adds to the vector."""

    @abstractmethod
    def columns_of(self, party: str) -> Mapping[str, ColumnKind]:
        """The columns this party must have, and whether as numbers or as text."""

    @abstractmethod
    def sensitivity_of(self, unit: Unit, party: str, records: int) -> float:
        """How far the vector can move, in L2 norm, when the data of this party change."""

    @abstractmethod
    def bound(self, records: int) -> float:
        """The largest absolute value of an entry that a party with this many records can cause."""

    @abstractmethod
    def answers(self, total: FloatArray, records: int, standard_error: float) -> list[Answer]:
        """From the noisy vector of all parties, which has this standard error in each entry."""

    def typical(self, records: float) -> FloatArray:
        """A plausible noiseless vector for this many records, for the error that is expected before a run."""
        del records
        return np.zeros(self.dimension)

    def guess(self, records: float, scenario: TypicalData) -> FloatArray:
        """The noiseless vector if this many records count and the data are as in the scenario, for previews."""
        del scenario
        return self.typical(records)

    def estimates(self, total: FloatArray, records: int, standard_error: float) -> list[Answer]:
        """As `answers`, possibly without error bars: for simulations."""
        return self.answers(total, records, standard_error)

    def ranges_of(self, party: str) -> Sequence[Range]:
        """The public bounds to which it clips columns of this party; none that are known of a custom query."""
        del party
        return ()

    def selected(self, table: Table) -> Table:
        """The records that count: all, unless a condition, groups or bins leave some out."""
        return table

    @property
    def fine_parts(self) -> frozenset[str]:
        """The answers, by part, that only files and pictures have: most points of a curve. Tables leave them out."""
        return frozenset()

    @property
    def resolution(self) -> float:
        """The step below which an answer says nothing, whatever the noise; 0 for most kinds."""
        return 0.0

    @property
    def curve_at(self) -> Sequence[float]:
        """Where the answers lie that make up one curve, such as the edges of a distribution; empty for most kinds."""
        return ()

    def resolution_of(self, part: str) -> float:
        """The same of one answer."""
        del part
        return self.resolution

    def settings(self) -> dict[str, Any]:
        """The keys and values of the study file that define this query."""
        public = [each for each in fields(self) if not each.metadata.get("hidden")]
        values = {each.name: getattr(self, each.name) for each in public if getattr(self, each.name) != each.default}
        return {"name": self.name, "kind": self.kind_name(), **values}

    def signed_settings(self) -> dict[str, Any]:
        """What all parties must agree on: the settings, the code, and what the query chose by itself, if it did."""
        choice = {"choice": self.choice_digest} if self.choice_digest else {}
        return {**self.settings(), "code": self.code, **choice}

    @classmethod
    def kind_name(cls) -> str:
        """The name of this kind of query in the study file."""
        return cls.kind or "".join(f"_{char.lower()}" if char.isupper() else char for char in cls.__name__).lstrip("_")


@dataclass(frozen=True)
class Query(BaseQuery):
    """A sum over the records of all parties. The base class of custom queries.

    A custom query needs `columns`, `dimension`, `spread`, `features` and `answers`; see docs/how-to/queries.md.
    """

    weight: float = field(default=1.0, kw_only=True)  # its share of the privacy budget, against the study's others
    mode: Mode = field(default="all", kw_only=True, metadata={"hidden": True})  # which records count

    largest: ClassVar[float] = 1.0  # absolute value of a feature, a power of two; features are clipped to it
    step: ClassVar[float] = 0.0  # a power of two of which all features are whole multiples; 0 if there is none
    model: ClassVar[str] = ""  # what holds under its model whatever weights records have, for people

    @property
    def vector(self) -> Hashable:
        """What its features are: queries of a study with the same are read together. None if nothing else has them."""
        return None

    @property
    @abstractmethod
    def columns(self) -> Mapping[str, ColumnKind]:
        """The columns it reads, and whether as numbers or as text."""

    @property
    @abstractmethod
    def spread(self) -> float:
        """The largest L2 distance between the features of two records."""

    @property
    def size(self) -> float:
        """The largest L2 norm of the features of one record."""
        return self.largest * math.sqrt(self.dimension)

    @abstractmethod
    def features(self, table: Table) -> Sequence[FloatArray]:
        """One array per entry. It has one number per record, which depends on that record only."""

    def limits(self, total: FloatArray, records: int, noise: float, bias: float) -> list[tuple[float, float]]:
        """95 % intervals of the answers where the total may be off by a vector of this length, in any direction.

        For answers that are linear in the total, or ratios, this is as if the noise were larger by bias/1.96; for
        other smooth answers the same to first order. A custom query has no such interval unless it defines this
        method: if its answers are linear, by the intervals of `self.answers(total, records, noise + bias / 1.96)`.
        """
        intervals = [answer.interval for answer in self.answers(total, records, noise + bias / Z_95)]
        return [(-math.inf, math.inf)] * len(intervals) if self.code and bias else intervals

    def partial(self, mode: Mode) -> Query:
        """The query where only some of the records count, and their number is not known."""
        if not self.has_parts:
            rule = f"of kind {self.kind_name()} cannot have `where` or `by`"
            raise InputError("query", self.name, rule, "remove it")
        return replace(self, mode=mode)

    def of_group(self, place: int, groups: int) -> Query:
        """The query as it is asked of one group of several; the same for all, unless it knows something of each."""
        del place, groups
        return self

    def check_study(self, records: int, tolerate: int, weighting: str) -> None:
        """Refuse a study in which it would have no right answer: one with dropouts, weights or so many records."""

    def statistic(self, table: Table, records: int | None = None) -> FloatArray:
        """A party's sum over its records. `records` is their public number, where the table holds only some of them."""
        rows = length(table)
        public = rows if records is None else records
        totals = np.zeros(self.dimension, dtype=np.int64)
        chunk = max(1, min(_CHUNK, _CHUNK_ENTRIES // self.dimension))
        for start in range(0, rows, chunk):
            features = self.features({name: column[start : start + chunk] for name, column in table.items()})
            if len(features) != self.dimension:
                rule = f"must give {self.dimension} features, its dimension"
                raise InputError(f"query {self.name}", len(features), rule, "correct the query")
            totals += exact_total(features, min(chunk, rows - start), public, largest=self.largest)
        return rounding_of(totals, public, self.largest)

    def has_nothing(self, table: Table) -> bool:
        """Whether no record of a table counts, because of a condition or because no category matches."""
        del table
        return False

    def sensitivity(self, unit: Unit, records: int) -> float:
        """How far the statistic of a party with this many records can move, in L2 norm."""
        rows = units_of(unit, records)
        if not rows:
            return 0.0
        bits = records.bit_length()
        if self.largest * 2.0 ** (bits - 52) <= self.step:  # so that `exact_total`, and a double, rounds nothing
            return rows * self.spread
        each, once = self.largest * 2.0 ** (bits - 60), self.largest * 2.0 ** (bits - 51)  # see exact_total
        return (rows * (self.spread + each * math.sqrt(self.dimension)) + once * math.sqrt(self.dimension)) * _UP

    def columns_of(self, party: str) -> Mapping[str, ColumnKind]:
        del party
        return self.columns

    def sensitivity_of(self, unit: Unit, party: str, records: int) -> float:
        del party
        return self.sensitivity(unit, records)

    def bound(self, records: int) -> float:
        return records * self.largest


def length(table: Table) -> int:
    """How many records a table has.

    >>> length({"age": np.array([1.0, 2.0])}), length({})
    (2, 0)
    """
    return len(next(iter(table.values()))) if table else 0
