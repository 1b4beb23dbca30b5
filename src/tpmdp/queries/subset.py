"""Subsets of the data: a query on the records that meet a condition, or on each of several groups.

It is private which records count. So their number is not known, and a record may appear, vanish or change its group.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from tpmdp._util.arrays import FloatArray
from tpmdp.data.table import ColumnKind, Table
from tpmdp.errors import InputError
from tpmdp.queries.answer import ALL_BINS, Answer, with_bands
from tpmdp.queries.base import Mode, Query, length
from tpmdp.queries.categories import Categories, category_names, check_categories, kind_of, places
from tpmdp.queries.condition import Condition, add_column
from tpmdp.queries.guesses import TypicalData
from tpmdp.queries.ranges import Range
from tpmdp.queries.rounds import Point, RoundsQuery


@dataclass(frozen=True)
class SubsetQuery(Query):
    """A query around another; a record adds at most what it adds to that one."""

    query: Query = field(metadata={"hidden": True})

    def __post_init__(self) -> None:
        self.columns  # noqa: B018  # refuses a column read in two ways

    def ranges_of(self, party: str) -> Sequence[Range]:
        return self.query.ranges_of(party)

    def check_study(self, records: int, tolerate: int, weighting: str) -> None:
        self.query.check_study(records, tolerate, weighting)

    @property
    def fine_parts(self) -> frozenset[str]:
        return self.query.fine_parts

    @property
    def size(self) -> float:
        """That of the inner query: a record is in one group at most."""
        return self.query.size

    @property
    def resolution(self) -> float:
        return self.query.resolution

    def resolution_of(self, part: str) -> float:
        return self.query.resolution_of(part)

    @property
    def largest(self) -> float:  # type: ignore[override]  # as the query
        return self.query.largest

    @property
    def step(self) -> float:  # type: ignore[override]  # as the query
        return self.query.step

    @property
    def counts(self) -> bool:  # type: ignore[override]  # as the query
        return self.query.counts

    @property
    def is_linear(self) -> bool:  # type: ignore[override]  # as the query
        return self.query.is_linear

    @property
    def curve_at(self) -> Sequence[float]:
        return self.query.curve_at

    @property
    def model(self) -> str:  # type: ignore[override]  # as the query
        return self.query.model

    @property
    def code(self) -> str:  # type: ignore[override]  # as the query
        return self.query.code

    @property
    def choice_digest(self) -> str:  # type: ignore[override]  # as the query
        return self.query.choice_digest


@dataclass(frozen=True)
class Where(SubsetQuery):
    """A query on the records that meet a condition; other records add nothing.

    >>> from tpmdp.queries.condition import parse_condition
    >>> from tpmdp.queries.count import Count
    >>> query = Where.of(Count("old men", "age", at_least=65), parse_condition("where", "sex = 1"))
    >>> query.statistic({"age": np.array([70.0, 80.0, 20.0]), "sex": np.array([1.0, 0.0, 1.0])})
    array([1.])
    """

    condition: Condition = field(metadata={"hidden": True})

    @classmethod
    def of(cls, query: Query, condition: Condition) -> Where:
        """The query on the records that meet the condition."""
        inner = query if isinstance(query, GroupBy) else query.partial("some")
        if isinstance(inner, RoundsQuery) and inner.rounds > 1:
            return RoundsWhere(query.name, inner, condition, weight=query.weight, rounds=inner.rounds)
        return cls(query.name, inner, condition, weight=query.weight)

    @property
    def columns(self) -> Mapping[str, ColumnKind]:
        return _merged(self.query.columns, self.condition.columns)

    @property
    def vector(self) -> Hashable:
        inner = self.query.vector
        return None if inner is None else (inner, str(self.condition))

    @property
    def dimension(self) -> int:
        return self.query.dimension

    @property
    def spread(self) -> float:
        """A record changes or vanishes."""
        return max(self.query.spread, self.query.size)

    def features(self, table: Table) -> list[FloatArray]:
        holds = self.condition.holds(table)
        return [np.where(holds, feature, 0.0) for feature in self.query.features(table)]

    def statistic(self, table: Table, records: int | None = None) -> FloatArray:
        rows = length(table) if records is None else records
        return self.query.statistic(_rows(table, self.condition.holds(table)), rows)

    def selected(self, table: Table) -> Table:
        return self.query.selected(_rows(table, self.condition.holds(table)))

    def has_nothing(self, table: Table) -> bool:
        part = _rows(table, self.condition.holds(table))
        return length(part) == 0 or self.query.has_nothing(part)

    def typical(self, records: float) -> FloatArray:
        return self.query.typical(records / 2)

    def guess(self, records: float, scenario: TypicalData) -> FloatArray:
        return self.query.guess(records * scenario.share, scenario)

    def answers(self, total: FloatArray, records: int, standard_error: float) -> list[Answer]:
        return self.query.answers(total, records, standard_error)

    def estimates(self, total: FloatArray, records: int, standard_error: float) -> list[Answer]:
        return self.query.estimates(total, records, standard_error)

    def limits(self, total: FloatArray, records: int, noise: float, bias: float) -> list[tuple[float, float]]:
        return self.query.limits(total, records, noise, bias)

    def settings(self) -> dict[str, Any]:
        return {**self.query.settings(), "where": str(self.condition)}


@dataclass(frozen=True)
class GroupBy(SubsetQuery):
    """A query on each group of records: those with one of several public values of a column; other values add nothing.

    >>> from tpmdp.queries.mean import Mean
    >>> query = GroupBy.of(Mean("stay", "days", 0, 10), "sex", (0.0, 1.0))
    >>> total = query.statistic({"days": np.array([1.0, 2.0, 4.0]), "sex": np.array([0.0, 1.0, 1.0])})
    >>> [(answer.part, round(answer.value, 9)) for answer in query.answers(total, 3, 0.0)]
    [('sex 0', 1.0), ('sex 1', 3.0)]
    """

    column: str = field(metadata={"hidden": True})
    categories: Categories = field(metadata={"hidden": True})

    @classmethod
    def of(cls, query: Query, column: str, categories: Categories) -> GroupBy:
        """The query on each group."""
        check_categories(column, categories)
        query.of_group(0, len(categories))  # refuses what does not fit so many groups
        inner = query.partial("groups")
        if isinstance(inner, RoundsQuery) and inner.rounds > 1:
            return RoundsGroupBy(
                query.name, inner, column, categories=categories, weight=query.weight, rounds=inner.rounds
            )
        return cls(query.name, inner, column, categories=categories, weight=query.weight)

    def inner(self, group: int) -> Query:
        """The query on one group: the same for all, unless it knows something of each, or rounds led it elsewhere."""
        return self.query.of_group(group, len(self.categories))

    @property
    def inner_queries(self) -> list[Query]:
        """The query as it is asked of each group."""
        return [self.inner(group) for group in range(len(self.categories))]

    @property
    def fine_parts(self) -> frozenset[str]:
        names = [f"{self.column} {name}" for name in category_names(self.categories)]
        return frozenset(f"{name}, {part}" for name in names for part in self.query.fine_parts)

    def resolution_of(self, part: str) -> float:
        names = [f"{self.column} {name}, " for name in category_names(self.categories)]
        inner = next((part.removeprefix(name) for name in names if part.startswith(name)), "")
        return self.query.resolution_of(inner)

    @property
    def columns(self) -> Mapping[str, ColumnKind]:
        return _merged(self.query.columns, {self.column: kind_of(self.categories)})

    @property
    def vector(self) -> Hashable:
        inner = self.query.vector
        return None if inner is None else (inner, self.column, self.categories)

    @property
    def dimension(self) -> int:
        return len(self.categories) * self.query.dimension

    @property
    def spread(self) -> float:
        """A record changes within its group, or leaves one group (or none) for another."""
        if len(self.categories) == 1:
            return max(self.query.spread, self.query.size)
        return max(self.query.spread, math.sqrt(2) * self.query.size * (1 + 2.0**-50))

    def features(self, table: Table) -> list[FloatArray]:
        place = places(table[self.column], self.categories)
        groups = range(len(self.categories))
        return [
            np.where(place == group, feature, 0.0) for group in groups for feature in self.inner(group).features(table)
        ]

    def statistic(self, table: Table, records: int | None = None) -> FloatArray:
        rows = length(table) if records is None else records
        place = places(table[self.column], self.categories)
        order = np.argsort(place, kind="stable")
        ends = np.searchsorted(place[order], np.arange(len(self.categories) + 1))
        parts = []
        for group in range(len(self.categories)):
            inside = order[ends[group] : ends[group + 1]]
            parts.append(self.inner(group).statistic(_rows(table, inside), rows))
        return np.concatenate(parts)

    def selected(self, table: Table) -> Table:
        return self.query.selected(_rows(table, places(table[self.column], self.categories) >= 0))

    def has_nothing(self, table: Table) -> bool:
        return bool((places(table[self.column], self.categories) < 0).all())

    def typical(self, records: float) -> FloatArray:
        return np.concatenate([query.typical(records / len(self.categories)) for query in self.inner_queries])

    def guess(self, records: float, scenario: TypicalData) -> FloatArray:
        groups = len(self.categories)
        return np.concatenate(
            [query.guess(records / groups * scenario.crowd, scenario) for query in self.inner_queries]
        )

    def answers(self, total: FloatArray, records: int, standard_error: float) -> list[Answer]:
        answers = self._by_group(total, lambda query, part: query.answers(part, records, standard_error))
        has_bands = self.query.is_linear and any(answer.further_interval(ALL_BINS) for answer in answers)
        return with_bands(answers) if has_bands else answers  # others know how many groups there are

    def estimates(self, total: FloatArray, records: int, standard_error: float) -> list[Answer]:
        return self._by_group(total, lambda query, part: query.estimates(part, records, standard_error))

    def _by_group(self, total: FloatArray, answer_group: Callable[[Query, FloatArray], list[Answer]]) -> list[Answer]:
        parts = np.split(total, len(self.categories))
        return self.named([answer_group(query, part) for query, part in zip(self.inner_queries, parts, strict=True)])

    def named(self, answers: Sequence[Sequence[Answer]]) -> list[Answer]:
        """The answers of all groups, with the name of the group in each."""
        result = []
        for name, group in zip(category_names(self.categories), answers, strict=True):
            for answer in group:
                text = f"{self.column} {name}"
                result.append(replace(answer, part=f"{text}, {answer.part}" if answer.part else text))
        return result

    def limits(self, total: FloatArray, records: int, noise: float, bias: float) -> list[tuple[float, float]]:
        pairs = zip(self.inner_queries, np.split(total, len(self.categories)), strict=True)
        return [limits for query, part in pairs for limits in query.limits(part, records, noise, bias)]

    def partial(self, mode: Mode) -> Query:
        del mode
        raise InputError("query", self.name, "already has `by`", "name one column")

    def settings(self) -> dict[str, Any]:
        return {**self.query.settings(), "by": {self.column: self.categories}}


# Queries by rounds ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class RoundsWhere(Where, RoundsQuery):
    """A query by rounds on the records that meet a condition."""

    query: RoundsQuery = field(metadata={"hidden": True})

    @property
    def shares(self) -> tuple[float, ...]:
        return self.query.shares

    @property
    def guessed_point(self) -> Point:
        return self.query.guessed_point

    def trial_point(self, random: np.random.Generator) -> Point:
        return self.query.trial_point(random)

    def asked(self, number: int, point: Point) -> Query:
        return Where(self.name, self.query.asked(number, point), self.condition, weight=self.weight)

    def next_point(self, number: int, point: Point, *, total: FloatArray, records: int, standard_error: float) -> Point:
        return self.query.next_point(number, point, total=total, records=records, standard_error=standard_error)

    def stopped(self, number: int, point: Point) -> list[Answer]:
        return self.query.stopped(number, point)


@dataclass(frozen=True)
class RoundsGroupBy(GroupBy, RoundsQuery):
    """A query by rounds on each group; its point is the points of all groups, one after the other."""

    query: RoundsQuery = field(metadata={"hidden": True})

    @property
    def shares(self) -> tuple[float, ...]:
        return self.query.shares

    @property
    def guessed_point(self) -> Point:
        return self.query.guessed_point * len(self.categories)

    def trial_point(self, random: np.random.Generator) -> Point:
        return tuple(each for _ in self.categories for each in self.query.trial_point(random))

    def points(self, point: Point) -> list[Point]:
        """The point of each group."""
        size = len(point) // len(self.categories)
        return [point[group * size : (group + 1) * size] for group in range(len(self.categories))]

    def asked(self, number: int, point: Point) -> Query:
        each = tuple(self.query.asked(number, part) for part in self.points(point))
        return GroupsAtPoints(
            self.name, each[0], self.column, categories=self.categories, each=each, weight=self.weight
        )

    def next_point(self, number: int, point: Point, *, total: FloatArray, records: int, standard_error: float) -> Point:
        points = self.points(point)
        size = len(total) // len(points)
        moved: Point = ()
        for group, each in enumerate(points):
            part = total[group * size : (group + 1) * size]
            moved += self.query.next_point(number, each, total=part, records=records, standard_error=standard_error)
        return moved

    def stopped(self, number: int, point: Point) -> list[Answer]:
        return self.named([self.query.stopped(number, part) for part in self.points(point)])


@dataclass(frozen=True)
class GroupsAtPoints(GroupBy):
    """One round of a query on groups, each at its own point."""

    each: tuple[Query, ...] = field(metadata={"hidden": True})

    def inner(self, group: int) -> Query:
        return self.each[group]

    def settings(self) -> dict[str, Any]:
        return {**super().settings(), "point": [query.settings()["point"] for query in self.inner_queries]}


def _merged(first: Mapping[str, ColumnKind], second: Mapping[str, ColumnKind]) -> Mapping[str, ColumnKind]:
    columns = dict(first)
    for column, kind in second.items():
        add_column(columns, column, kind)
    return columns


def _rows(table: Table, rows: Any) -> Table:
    return {name: column[rows] for name, column in table.items()}
