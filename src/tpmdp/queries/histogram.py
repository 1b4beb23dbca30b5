"""The number of records in each of several bins or categories."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import ClassVar, Final

import numpy as np

from tpmdp._util.arrays import FloatArray, IntArray
from tpmdp.data.table import ColumnKind, Table
from tpmdp.errors import InputError
from tpmdp.queries.answer import Answer
from tpmdp.queries.base import Query
from tpmdp.queries.categories import Categories, category_names, check_categories, exact_name, kind_of, places
from tpmdp.queries.ranges import numbers

BINS_MAX: Final = 1_000_000


def check_edges(field: str, edges: Sequence[float]) -> None:
    """Refuse edges that do not rise, too few and too many.

    >>> check_edges("ages", (0.0, 0.0))
    Traceback (most recent call last):
        ...
    tpmdp.errors.InputError: edges of ages = 0, 0 must rise: sort them, each once
    """
    text = ", ".join(f"{edge:g}" for edge in edges[:20])
    if not 2 <= len(edges) <= BINS_MAX + 1:
        raise InputError(f"edges of {field}", text, f"must be 2 to {BINS_MAX + 1} numbers", "list the edges")
    if not all(low < high for low, high in pairwise(edges)):
        raise InputError(f"edges of {field}", text, "must rise", "sort them, each once")


@dataclass(frozen=True)
class Histogram(Query):
    """Counts of edges[i] <= column < edges[i + 1], or of each category; values outside all of them are not counted.

    >>> Histogram("ages", "age", (0.0, 18.0, 65.0)).statistic({"age": np.array([5.0, 18.0, 64.0, 90.0])})
    array([1., 2.])
    """

    column: str
    edges: tuple[float, ...] = ()
    categories: Categories = ()

    is_linear: ClassVar[bool] = True
    leaves: ClassVar[str] = "the number of records in each bin or category"
    whole: ClassVar[bool] = True
    counts: ClassVar[bool] = True
    has_parts: ClassVar[bool] = True
    size: ClassVar[float] = 1.0

    def __post_init__(self) -> None:
        if bool(self.edges) == bool(self.categories):
            value = "both" if self.edges else "neither"
            raise InputError(f"edges or categories of {self.name}", value, "must be one of the two", "give one")
        if self.edges:
            check_edges(self.name, self.edges)
        else:
            check_categories(self.name, self.categories)

    @property
    def columns(self) -> Mapping[str, ColumnKind]:
        return {self.column: "number" if self.edges else kind_of(self.categories)}

    @property
    def dimension(self) -> int:
        return len(self.edges) - 1 if self.edges else len(self.categories)

    @property
    def spread(self) -> float:
        """A record leaves one bin and enters another: sqrt(2), rounded up."""
        return 1.0 if self.dimension == 1 else math.sqrt(2) * (1 + 2.0**-50)

    def _places(self, table: Table) -> IntArray:
        """The bin of every record, or -1."""
        if self.categories:
            return places(table[self.column], self.categories)
        place = np.searchsorted(np.array(self.edges), numbers(table, self.column), side="right") - 1
        return np.where(place < self.dimension, place, -1)

    def selected(self, table: Table) -> Table:
        inside = self._places(table) >= 0
        return {name: column[inside] for name, column in table.items()}

    def has_nothing(self, table: Table) -> bool:
        return bool((self._places(table) < 0).all())

    def features(self, table: Table) -> list[FloatArray]:
        place = self._places(table)
        return [(place == entry).astype(np.float64) for entry in range(self.dimension)]

    def statistic(self, table: Table, records: int | None = None) -> FloatArray:
        """The party's counts, without a column for each bin."""
        del records
        place = self._places(table)
        return np.bincount(place[place >= 0], minlength=self.dimension).astype(np.float64)

    def answers(self, total: FloatArray, records: int, standard_error: float) -> list[Answer]:
        """The noisy counts: unbiased, so they may be negative."""
        del records
        names = [f"{exact_name(low)} to below {exact_name(high)}" for low, high in pairwise(self.edges)]
        names = names or list(category_names(self.categories))
        pairs = zip(names, total.tolist(), strict=True)
        return [Answer(self.name, value, standard_error, part=name) for name, value in pairs]
