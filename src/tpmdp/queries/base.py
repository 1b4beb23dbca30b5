"""What every query declares. A statistic is a sum over records of a short vector, the record's features.

`spread` is the largest distance between the features of two records: how far replacing one record (unit "record")
moves the statistic. Replacing all records of a party (unit "party") moves it by at most that for each of them. Where
only some records count (`where`, `by`), a record may also appear, vanish or change its group; then `size`, the largest
length of the features of one record, matters too. Features are added up exactly, so these are sensitivities of what a
computer really computes: not up to floating-point errors. docs/theory.md, "Queries".
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any, ClassVar, Final, Literal

import numpy as np

from tpmdp._util.arrays import FloatArray
from tpmdp.data.table import ColumnKind, Table
from tpmdp.errors import InputError
from tpmdp.queries.exact_total import exact_total, rounding_of

Z_95: Final = 1.959963984540054  # 97.5 % quantile of the standard normal distribution
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
class Answer:
    """One number with its error bars. They cover the noise and rounding added for privacy, not sampling.

    `part` says which number of a query with several. `limits` is the 95 % interval where it is not symmetric;
    `note` is for people, for instance that noise drowned the answer. With weights, `noise` is the part of the standard
    error that is noise, and `always` the interval that holds even where data and budgets are related.
    """

    query: str
    value: float
    standard_error: float
    part: str = ""
    limits: tuple[float, float] | None = None
    note: str = ""
    noise: float | None = None
    always: tuple[float, float] | None = None

    @property
    def label(self) -> str:
        """Query and part.

        >>> Answer("ages", 10.0, 1.0, "0 to below 18").label
        'ages: 0 to below 18'
        """
        return f"{self.query}: {self.part}" if self.part else self.query

    @property
    def interval(self) -> tuple[float, float]:
        """The 95 % interval.

        >>> low, high = Answer("count", 10.0, 1.0).interval
        >>> round(low, 2), round(high, 2)
        (8.04, 11.96)
        """
        if self.limits is not None:
            return self.limits
        return self.value - Z_95 * self.standard_error, self.value + Z_95 * self.standard_error

    def within(self, low: float, high: float) -> Answer:
        """The same, where the truth is known to lie in a range: what noise put outside is cut off.

        >>> Answer("share", 0.9, 0.1).within(0.0, 1.0).interval[1]
        1.0
        """
        limits = tuple(min(max(limit, low), high) for limit in self.interval)
        if limits == self.interval:
            return self
        note = self.note or ("" if low <= self.value <= high else "noise took it beyond what is possible")
        return replace(self, value=min(max(self.value, low), high), limits=(limits[0], limits[1]), note=note)

    def plain(self) -> dict[str, Any]:
        """As values for JSON, where nothing stands for infinity.

        >>> Answer("count", 10.0, math.inf, limits=(0.0, math.inf)).plain()["high"] is None
        True
        """
        low, high = self.interval
        numbers = {"value": self.value, "standard_error": self.standard_error, "low": low, "high": high}
        if self.noise is not None and self.always is not None:
            numbers |= {"noise": self.noise, "always_low": self.always[0], "always_high": self.always[1]}
        finite = {key: number if math.isfinite(number) else None for key, number in numbers.items()}
        return {"query": self.query, "part": self.part, **finite, "note": self.note}

    @classmethod
    def of_plain(cls, told: Mapping[str, Any]) -> Answer:
        """From what `plain` gave.

        >>> answer = Answer("count", 10.0, math.inf, limits=(0.0, math.inf))
        >>> Answer.of_plain(answer.plain()) == answer
        True
        """

        def read(key: str, infinite: float = math.inf) -> float:
            return infinite if told[key] is None else float(told[key])

        low, high = read("low", -math.inf), read("high")
        plain = cls(told["query"], float(told["value"]), read("standard_error"), told["part"], None, told["note"])
        if "noise" in told:
            always = read("always_low", -math.inf), read("always_high")
            plain = replace(plain, noise=read("noise"), always=always)
        return plain if plain.interval == (low, high) else replace(plain, limits=(low, high))


@dataclass(frozen=True)
class Query(ABC):
    """One question of a study. Subclasses are frozen dataclasses; their fields are the keys of the study file.

    A query of your own needs `columns`, `dimension`, `spread`, `features` and `answers`; docs/queries.md has one.
    """

    name: str
    weight: float = field(default=1.0, kw_only=True)  # its share of the privacy budget, against the study's others
    mode: Mode = field(default="all", kw_only=True, metadata={"hidden": True})  # which records count

    kind: ClassVar[str] = ""  # what the study file calls it; default: the class name in snake_case
    leaves: ClassVar[str] = ""  # what leaves the party, for people
    largest: ClassVar[float] = 1.0  # absolute value of a feature, a power of two; features are clipped to it
    whole: ClassVar[bool] = False  # features are whole numbers
    has_parts: ClassVar[bool] = False  # works for any mode: may have `where` and `by`
    model: ClassVar[str] = ""  # what holds under its model whatever weights records have, for people
    code: ClassVar[str] = ""  # hash of the file of a query that is not tpmdp's own

    @property
    @abstractmethod
    def columns(self) -> Mapping[str, ColumnKind]:
        """The columns it reads, and whether as numbers or as text."""

    @property
    @abstractmethod
    def dimension(self) -> int:
        """How many entries it adds to the vector."""

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
        """One array an entry, each with one number a record, which depends on that record only."""

    @abstractmethod
    def answers(self, total: FloatArray, records: int, standard_error: float) -> list[Answer]:
        """From the noisy sum over all records of all parties, which has this standard error in each entry."""

    def limits(self, total: FloatArray, records: int, noise: float, bias: float) -> list[tuple[float, float]]:
        """95 % intervals of the answers where the total may be off by a vector of this length, whatever its direction.

        For answers that are linear in the total, or ratios, it is as if the noise were larger by bias/1.96; for others
        that are smooth the same to first order. A query of your own has no such interval, unless it defines this: if
        its answers are linear, by the intervals of `self.answers(total, records, noise + bias / 1.96)`.
        """
        found = [answer.interval for answer in self.answers(total, records, noise + bias / Z_95)]
        return [(-math.inf, math.inf)] * len(found) if self.code and bias else found

    def partial(self, mode: Mode) -> Query:
        """The query where only some of the records count, and their number is not known."""
        if not self.has_parts:
            rule = f"of kind {self.kind_name()} cannot have `where` or `by`"
            raise InputError("query", self.name, rule, "remove it")
        return replace(self, mode=mode)

    def typical(self, records: float) -> FloatArray:
        """A plausible noiseless sum over so many records, to tell the expected error before anything is run."""
        del records
        return np.zeros(self.dimension)

    def statistic(self, table: Table, records: int | None = None) -> FloatArray:
        """A party's sum over its records. `records` is their public number, where the table holds only some of them."""
        rows = length(table)
        whole = rows if records is None else records
        totals = np.zeros(self.dimension, dtype=np.int64)
        chunk = max(1, min(_CHUNK, _CHUNK_ENTRIES // self.dimension))
        for start in range(0, rows, chunk):
            part = {name: column[start : start + chunk] for name, column in table.items()}
            found = self.features(part)
            if len(found) != self.dimension:
                rule = f"must give {self.dimension} features, its dimension"
                raise InputError(f"query {self.name}", len(found), rule, "correct the query")
            totals += exact_total(found, min(chunk, rows - start), whole, self.largest)
        return rounding_of(totals, whole, self.largest)

    def has_nothing(self, table: Table) -> bool:
        """Whether no record of a table can count: of a category or group that is not named, or by a condition."""
        del table
        return False

    def sensitivity(self, unit: Unit, records: int) -> float:
        """How far the statistic of a party with so many records can move, in L2 norm."""
        rows = units_of(unit, records)
        if not rows:
            return 0.0
        if self.whole:
            return rows * self.spread
        bits = records.bit_length()
        each, once = self.largest * 2.0 ** (bits - 60), self.largest * 2.0 ** (bits - 51)  # see exact_total
        return (rows * (self.spread + each * math.sqrt(self.dimension)) + once * math.sqrt(self.dimension)) * _UP

    def bound(self, records: int) -> float:
        """The largest absolute value of an entry of the statistic of this many records."""
        return records * self.largest

    def settings(self) -> dict[str, Any]:
        """The keys and values of the study file that make this query."""
        shown = [one.name for one in fields(self) if not one.metadata.get("hidden")]
        values = {name: getattr(self, name) for name in shown}
        defaults = {one.name: one.default for one in fields(self)}
        kept = {name: value for name, value in values.items() if value != defaults[name]}
        return {"name": self.name, "kind": self.kind_name(), **kept}

    @classmethod
    def kind_name(cls) -> str:
        """What the study file calls this kind of query."""
        return cls.kind or "".join(f"_{char.lower()}" if char.isupper() else char for char in cls.__name__).lstrip("_")


def length(table: Table) -> int:
    """How many records a table has.

    >>> length({"age": np.array([1.0, 2.0])}), length({})
    (2, 0)
    """
    return len(next(iter(table.values()))) if table else 0
