"""Subsets of the data: a query on the records that meet a condition, or on each of several groups.

It is private which records count. So their number is not known, and a record may appear, vanish or change its group.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from tpmdp._util.arrays import FloatArray
from tpmdp.data.table import ColumnKind, Table
from tpmdp.errors import InputError
from tpmdp.queries.answer import Answer
from tpmdp.queries.base import Mode, Query, length
from tpmdp.queries.categories import Categories, category_names, check_categories, kind_of, places
from tpmdp.queries.condition import Condition, add_column
from tpmdp.queries.guesses import TypicalData
from tpmdp.queries.ranges import Range


@dataclass(frozen=True)
class SubsetQuery(Query):
    """A query around another; a record adds at most what it adds to that one."""

    query: Query = field(metadata={"hidden": True})

    def __post_init__(self) -> None:
        self.columns  # noqa: B018  # refuses a column read in two ways

    def ranges_of(self, party: str) -> Sequence[Range]:
        return self.query.ranges_of(party)

    @property
    def size(self) -> float:
        """That of the inner query: a record is in one group at most."""
        return self.query.size

    @property
    def largest(self) -> float:  # type: ignore[override]  # as the query
        return self.query.largest

    @property
    def whole(self) -> bool:  # type: ignore[override]  # as the query
        return self.query.whole

    @property
    def counts(self) -> bool:  # type: ignore[override]  # as the query
        return self.query.counts

    @property
    def is_linear(self) -> bool:  # type: ignore[override]  # as the query
        return self.query.is_linear

    @property
    def model(self) -> str:  # type: ignore[override]  # as the query
        return self.query.model

    @property
    def code(self) -> str:  # type: ignore[override]  # as the query
        return self.query.code


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
        return cls(query.name, inner, condition, weight=query.weight)

    @property
    def columns(self) -> Mapping[str, ColumnKind]:
        return _merged(self.query.columns, self.condition.columns)

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
        return cls(query.name, query.partial("groups"), column, categories=categories, weight=query.weight)

    @property
    def columns(self) -> Mapping[str, ColumnKind]:
        return _merged(self.query.columns, {self.column: kind_of(self.categories)})

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
        place, inner = places(table[self.column], self.categories), self.query.features(table)
        groups = range(len(self.categories))
        return [np.where(place == group, feature, 0.0) for group in groups for feature in inner]

    def statistic(self, table: Table, records: int | None = None) -> FloatArray:
        rows = length(table) if records is None else records
        place = places(table[self.column], self.categories)
        order = np.argsort(place, kind="stable")
        ends = np.searchsorted(place[order], np.arange(len(self.categories) + 1))
        parts = []
        for group in range(len(self.categories)):
            inside = order[ends[group] : ends[group + 1]]
            parts.append(self.query.statistic(_rows(table, inside), rows))
        return np.concatenate(parts)

    def selected(self, table: Table) -> Table:
        return self.query.selected(_rows(table, places(table[self.column], self.categories) >= 0))

    def has_nothing(self, table: Table) -> bool:
        return bool((places(table[self.column], self.categories) < 0).all())

    def typical(self, records: float) -> FloatArray:
        return np.tile(self.query.typical(records / len(self.categories)), len(self.categories))

    def guess(self, records: float, scenario: TypicalData) -> FloatArray:
        groups = len(self.categories)
        return np.tile(self.query.guess(records / groups * scenario.crowd, scenario), groups)

    def answers(self, total: FloatArray, records: int, standard_error: float) -> list[Answer]:
        return self._by_group(total, lambda part: self.query.answers(part, records, standard_error))

    def estimates(self, total: FloatArray, records: int, standard_error: float) -> list[Answer]:
        return self._by_group(total, lambda part: self.query.estimates(part, records, standard_error))

    def _by_group(self, total: FloatArray, answer_group: Callable[[FloatArray], list[Answer]]) -> list[Answer]:
        answers = []
        size = self.query.dimension
        for group, name in enumerate(category_names(self.categories)):
            for answer in answer_group(total[group * size : (group + 1) * size]):
                text = f"{self.column} {name}"
                answers.append(replace(answer, part=f"{text}, {answer.part}" if answer.part else text))
        return answers

    def limits(self, total: FloatArray, records: int, noise: float, bias: float) -> list[tuple[float, float]]:
        size = self.query.dimension
        parts = [total[start : start + size] for start in range(0, len(total), size)]
        return [limits for part in parts for limits in self.query.limits(part, records, noise, bias)]

    def partial(self, mode: Mode) -> Query:
        del mode
        raise InputError("query", self.name, "already has `by`", "name one column")

    def settings(self) -> dict[str, Any]:
        return {**self.query.settings(), "by": {self.column: self.categories}}


def _merged(first: Mapping[str, ColumnKind], second: Mapping[str, ColumnKind]) -> Mapping[str, ColumnKind]:
    columns = dict(first)
    for column, kind in second.items():
        add_column(columns, column, kind)
    return columns


def _rows(table: Table, rows: Any) -> Table:
    return {name: column[rows] for name, column in table.items()}
