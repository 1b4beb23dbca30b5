"""The number of records in each of several bins or categories."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from tpmdp._util.arrays import FloatArray
from tpmdp.data.table import ColumnKind, Table
from tpmdp.errors import InputError
from tpmdp.queries.answer import Answer, with_bands
from tpmdp.queries.base import Query
from tpmdp.queries.binned_column import BinnedColumn
from tpmdp.queries.bins import Spans, places_of_spans
from tpmdp.queries.categories import Categories, exact_name
from tpmdp.queries.prefix_factor import STEP
from tpmdp.queries.range_strategy import RANGES_MAX, RangeStrategy, range_strategy


@dataclass(frozen=True)
class Histogram(Query):
    """Counts of edges[i] <= column < edges[i + 1], or of each category; values outside all of them are not counted.

    With `ranges`, each a union of adjacent bins, the counts of these instead: less noise than by adding up bins.

    >>> Histogram("ages", "age", (0.0, 18.0, 65.0)).statistic({"age": np.array([5.0, 18.0, 64.0, 90.0])})
    array([1., 2.])
    """

    column: str
    edges: tuple[float, ...] = ()
    categories: Categories = ()
    ranges: Spans = ()

    is_linear: ClassVar[bool] = True
    leaves: ClassVar[str] = "the number of records in each bin or category, or weighted sums of these for ranges"
    counts: ClassVar[bool] = True
    has_parts: ClassVar[bool] = True

    def __post_init__(self) -> None:
        self._binned.check(self.name)
        if self.ranges:
            if not self.edges:
                raise InputError(f"ranges of {self.name}", len(self.ranges), "need edges", "give edges, or no ranges")
            places_of_spans(self.name, self.ranges, self.edges)
            if len(self.ranges) > RANGES_MAX:
                rule = f"must be at most {RANGES_MAX}"
                raise InputError(f"ranges of {self.name}", len(self.ranges), rule, "ask for fewer, or a distribution")

    @property
    def _binned(self) -> BinnedColumn:
        return BinnedColumn(self.column, self.edges, self.categories)

    @property
    def columns(self) -> Mapping[str, ColumnKind]:
        return {self.column: self._binned.kind}

    @property
    def strategy(self) -> RangeStrategy | None:
        """What it releases for its ranges; None if it has none."""
        if not self.ranges:
            return None
        return range_strategy(self._binned.count, places_of_spans(self.name, self.ranges, self.edges))

    @property
    def dimension(self) -> int:
        strategy = self.strategy
        return self._binned.count if strategy is None else len(strategy.steps)

    @property
    def choice_digest(self) -> str:  # type: ignore[override]  # nothing is chosen without ranges
        """That of the strategy."""
        strategy = self.strategy
        return "" if strategy is None else strategy.digest

    @property
    def step(self) -> float:  # type: ignore[override]  # a constant without ranges
        return STEP if self.ranges else 1.0

    @property
    def spread(self) -> float:
        """A record leaves one bin and enters another: sqrt(2), rounded up; with ranges, see their strategy."""
        strategy = self.strategy
        return self._binned.spread if strategy is None else strategy.spread

    @property
    def size(self) -> float:
        strategy = self.strategy
        return 1.0 if strategy is None else strategy.size

    def selected(self, table: Table) -> Table:
        inside = self._binned.places(table) >= 0
        return {name: column[inside] for name, column in table.items()}

    def has_nothing(self, table: Table) -> bool:
        return bool((self._binned.places(table) < 0).all())

    def features(self, table: Table) -> list[FloatArray]:
        place, strategy = self._binned.places(table), self.strategy
        if strategy is not None:
            return strategy.features(place)
        return [(place == entry).astype(np.float64) for entry in range(self.dimension)]

    def statistic(self, table: Table, records: int | None = None) -> FloatArray:
        """The party's counts, without a column for each bin."""
        del records
        place = self._binned.places(table)
        counts, strategy = np.bincount(place[place >= 0], minlength=self._binned.count), self.strategy
        return counts.astype(np.float64) if strategy is None else strategy.applied(counts)

    def answers(self, total: FloatArray, records: int, standard_error: float) -> list[Answer]:
        """The noisy counts: unbiased, so they may be negative."""
        del records
        strategy = self.strategy
        if strategy is not None:
            values, errors = strategy.read(total).tolist(), (standard_error * strategy.errors).tolist()
            names = [f"{exact_name(low)} to below {exact_name(high)}" for low, high in self.ranges]
            return [
                Answer(self.name, value, error, part=name)
                for name, value, error in zip(names, values, errors, strict=True)
            ]
        pairs = zip(self._binned.names, total.tolist(), strict=True)
        return with_bands([Answer(self.name, value, standard_error, part=name) for name, value in pairs])
