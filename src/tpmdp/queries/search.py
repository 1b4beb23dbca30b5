"""A search for neighbouring data that move a statistic as far as possible.

It uses only the public methods of a query, and tries the values at which bugs show: the ends of every range, just
inside and just outside, huge and tiny values, every category and none. Then it climbs from the best pairs.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass, replace
from itertools import pairwise
from typing import Any, Final

import numpy as np

from tpmdp._util.arrays import FloatArray
from tpmdp.data.table import ColumnKind, Table, Text
from tpmdp.queries.base import Query, Unit
from tpmdp.queries.condition import Compare, OneOf, add_column
from tpmdp.queries.rounds import RoundsQuery

RECORDS: Final = 5
_NO_CONSTANTS: Final = ("name", "mode", "weight", "column", "word", "scales")  # fields not compared with records
CLOSE: Final = 0.9  # of the declared sensitivity that a search should reach
_POINTS: Final = 6  # of queries by rounds
_TABLES: Final = 60  # to see whether it is a sum
_ENTRIES_MAX: Final = 20_000_000  # of all statistics in memory at once
_BOTH: Final = 0.3  # of the tries change both records; of the others
_AGAIN: Final = 0.3  # change a further column
Record = Mapping[str, float | str]


@dataclass(frozen=True)
class SearchResult:
    """The largest move of the statistic that a search reached, and what the query declares."""

    unit: Unit
    declared: float
    largest: float
    entry: float  # the largest absolute value of an entry
    bound: float  # the declared largest value of an entry
    additive: bool  # whether the statistic is the sum over its records

    @property
    def verdict(self) -> str:
        """The result in words.

        >>> SearchResult("record", declared=1.0, largest=1.5, entry=1.0, bound=1.0, additive=True).verdict
        'EXCEEDED: the promise would break'
        """
        if self.largest > self.declared:
            return "EXCEEDED: the promise would break"
        if self.entry > self.bound:
            return "EXCEEDED: an entry leaves its bound"
        if not self.additive:
            return "NOT A SUM over records"
        return "tight" if self.largest >= CLOSE * self.declared else "not reached: perhaps more noise than needed"

    @property
    def is_safe(self) -> bool:
        """Whether the search did not break the promise."""
        return self.largest <= self.declared and self.entry <= self.bound and self.additive


def search(query: Query, unit: Unit, tries: int = 2000, seed: int = 0) -> SearchResult:
    """Search for two neighbouring tables whose statistics are far apart.

    >>> from tpmdp.queries.count import Count
    >>> search(Count("old", "age", at_least=65.0), "record", tries=200).verdict
    'tight'
    """
    random = np.random.default_rng(seed)
    if not isinstance(query, RoundsQuery) or query.rounds == 1:
        return _search(query, unit, tries, random=random)
    guessed, *last = [
        query.asked(query.rounds, point)
        for point in (query.guessed_point, *(query.trial_point(random) for _ in range(_POINTS)))
    ]
    results = [_search(each, unit, tries, random=random) for each in (query.asked(1, ()), guessed)]
    results += [_search(each, unit, tries // 2, random=random) for each in last]
    declared = query.sensitivity(unit, RECORDS)  # of the last round
    results[1:] = [replace(each, declared=declared) for each in results[1:]]
    worst = max(results, key=lambda each: each.largest / each.declared)
    return next((each for each in results if not each.is_safe), worst)


def _search(query: Query, unit: Unit, tries: int, *, random: np.random.Generator) -> SearchResult:
    hunt = _Hunt(query, unit, random)
    largest, _ = hunt.farthest(tries)
    declared, bound = query.sensitivity(unit, RECORDS), query.bound(RECORDS)
    return SearchResult(unit, declared, largest, entry=hunt.entry, bound=bound, additive=hunt.is_additive())


@dataclass(frozen=True)
class _JointStatistic:
    """The vector of several queries, each multiplied by its scale, as one statistic."""

    queries: tuple[Query, ...]
    scales: tuple[float, ...]

    @property
    def columns(self) -> Mapping[str, ColumnKind]:
        columns: dict[str, ColumnKind] = {}
        for query in self.queries:
            for column, kind in query.columns.items():
                add_column(columns, column, kind)
        return columns

    @property
    def dimension(self) -> int:
        return sum(query.dimension for query in self.queries)

    def bound(self, records: int) -> float:
        pairs = zip(self.queries, self.scales, strict=True)
        return max(scale * query.bound(records) for query, scale in pairs)

    def statistic(self, table: Table, records: int | None = None) -> FloatArray:
        pairs = zip(self.queries, self.scales, strict=True)
        return np.concatenate([scale * query.statistic(table, records) for query, scale in pairs])


def farthest_records(
    queries: Sequence[Query], scales: Sequence[float], unit: Unit, *, tries: int = 2000, seed: int = 0
) -> tuple[Record, Record]:
    """Two records that move the joint vector of the queries as far as a search found, if one replaces the other.

    >>> from tpmdp.queries.count import Count
    >>> pair = farthest_records([Count("old", "age", at_least=65.0)], [1.0], "record", tries=200)
    >>> sorted(float(record["age"]) >= 65 for record in pair)
    [False, True]
    """
    hunt = _Hunt(_JointStatistic(tuple(queries), tuple(scales)), unit, np.random.default_rng(seed))
    _, pair = hunt.farthest(tries)
    return pair


def _far_pairs(statistics: FloatArray, count: int) -> list[tuple[int, int]]:
    """The pairs farthest apart, each point used once as the first."""
    squares = (statistics * statistics).sum(axis=1)
    distances = squares[:, None] + squares[None, :] - 2 * statistics @ statistics.T
    best = distances.argmax(axis=1)
    order = np.argsort(-distances[np.arange(len(best)), best])[:count]
    return [(int(first), int(best[first])) for first in order]


class _Hunt:
    """One search: a fixed table of other records, and records to put into it."""

    def __init__(self, query: Query | _JointStatistic, unit: Unit, random: np.random.Generator) -> None:
        self._query, self._unit, self._random = query, unit, random
        self._domain = {column: _candidates(query, kind, random) for column, kind in query.columns.items()}
        self._others = [self.draw() for _ in range(RECORDS - 1)]
        self.entry = 0.0

    def farthest(self, tries: int) -> tuple[float, tuple[Record, Record]]:
        """The largest distance reached, and the pair of records that reached it."""
        rooms = max(4, min(tries // 4, _ENTRIES_MAX // self._query.dimension))
        records = [self.draw() for _ in range(rooms)]
        statistics = np.array([self.statistic(record) for record in records])
        largest, result = -1.0, (records[0], records[0])
        for first, second in _far_pairs(statistics, 6):
            pair = [records[first], records[second]]
            distance = self.climb(pair, statistics[[first, second]], max(1, tries // 8))
            if distance > largest:
                largest, result = distance, (pair[0], pair[1])
        return largest, result

    def draw(self) -> Record:
        return {column: self._pick(values) for column, values in self._domain.items()}

    def _pick(self, values: list[Any]) -> Any:
        return values[int(self._random.integers(len(values)))]

    def statistic(self, record: Record) -> FloatArray:
        """The statistic of a table with this record: once among others, or as all of its records."""
        rows = [record] * RECORDS if self._unit == "party" else [record, *self._others]
        statistic = self._query.statistic(_table(rows, self._query))
        self.entry = max(self.entry, float(np.abs(statistic).max(initial=0.0)))
        return statistic

    def climb(self, pair: list[Record], statistics: FloatArray, tries: int) -> float:
        """Change one record, or one column of both, and keep changes that move the two further apart."""
        best = float(np.linalg.norm(statistics[0] - statistics[1]))
        current = [statistics[0], statistics[1]]
        for _ in range(tries):
            moved = self._moved_pair(pair)
            changed = [
                current[side] if record is pair[side] else self.statistic(record) for side, record in enumerate(moved)
            ]
            distance = float(np.linalg.norm(changed[0] - changed[1]))
            if distance >= best:
                best, pair[:], current = distance, moved, changed
        return best

    def _moved_pair(self, pair: list[Record]) -> list[Record]:
        if self._random.random() < _BOTH:
            column = self._pick(list(self._domain))
            return [{**record, column: self._pick(self._domain[column])} for record in pair]
        side = int(self._random.integers(2))
        moved = self._moved(pair[side])
        while self._random.random() < _AGAIN:
            moved = self._moved(moved)
        return [moved, pair[1]] if side == 0 else [pair[0], moved]

    def _moved(self, record: Record) -> Record:
        column = self._pick(list(self._domain))
        value = record[column]
        if isinstance(value, str) or self._random.random() < 0.5:
            return {**record, column: self._pick(self._domain[column])}
        numbers = [number for number in self._domain[column] if abs(number) < 1e200]
        width = (max(numbers) - min(numbers)) or 1.0
        return {**record, column: value + width * float(self._random.normal()) * 10.0 ** self._random.uniform(-4, 0)}

    def is_additive(self) -> bool:
        """Whether statistics of tables are the sums of those of their single records, up to rounding."""
        for turn in range(_TABLES):
            rows = [self.draw() for _ in range(1 + turn % (2 * RECORDS))]
            if turn % 3 == 0:
                rows = [rows[0]] * len(rows)
            whole = self._query.statistic(_table(rows, self._query))
            alone = sum(self._query.statistic(_table([row], self._query), len(rows)) for row in rows)
            if not np.allclose(whole, alone, rtol=0, atol=1e-6 * max(1.0, self._query.bound(len(rows)))):
                return False
        return True


def _table(rows: list[Record], query: Query | _JointStatistic) -> Table:
    return {
        column: Text.of([str(row[column]) for row in rows])
        if kind == "text"
        else np.array([row[column] for row in rows], dtype=np.float64)
        for column, kind in query.columns.items()
    }


def _candidates(query: Query | _JointStatistic, kind: str, random: np.random.Generator) -> list[Any]:
    """Values to try: all constants of the query, their neighbours, and values far away."""
    constants = list(_constants(query))
    if kind == "text":
        texts = [value for value in constants if isinstance(value, str)]
        return list(dict.fromkeys([*texts, "something else"]))
    numbers = {float(value) for value in constants if not isinstance(value, str) and math.isfinite(value)}
    ends = sorted(numbers | {0.0, 1.0})
    near = [math.nextafter(end, side) for end in ends for side in (-math.inf, math.inf)]
    low, high = ends[0], ends[-1]
    inner = (low + (high - low) * random.random(20)).tolist()
    middle = [(left + right) / 2 for left, right in pairwise(ends)]
    # more weight for the ends: sensitivities are reached there
    return [*ends * 4, *near, *middle, *inner, -1e300, 1e300, -1e-300, 5e-324]


def _constants(value: Any) -> Iterator[float | str]:
    """All numbers and texts inside a query."""
    if isinstance(value, bool):
        return
    if isinstance(value, int | float | str):
        yield value
    elif isinstance(value, Compare):
        yield value.value
    elif isinstance(value, OneOf):
        yield from value.values
    elif isinstance(value, tuple | list):
        for each in value:
            yield from _constants(each)
    elif is_dataclass(value) and not isinstance(value, type):
        for each in fields(value):
            if each.name not in _NO_CONSTANTS:
                yield from _constants(getattr(value, each.name))
