"""A column whose values fall into bins or categories."""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from tpmdp._util.arrays import IntArray
from tpmdp.data.table import ColumnKind, Table
from tpmdp.errors import InputError
from tpmdp.queries.bins import check_edges
from tpmdp.queries.categories import Categories, category_names, check_categories, exact_name, kind_of, places
from tpmdp.queries.ranges import numbers


@dataclass(frozen=True)
class BinnedColumn:
    """Bins edges[i] <= value < edges[i + 1], or categories; values outside all of them are in none.

    >>> ages = BinnedColumn("age", (0.0, 18.0, 65.0))
    >>> ages.names, ages.places({"age": np.array([5.0, 18.0, 90.0])})
    (['0 to below 18', '18 to below 65'], array([ 0,  1, -1]))
    """

    column: str
    edges: tuple[float, ...] = ()
    categories: Categories = ()

    def check(self, field: str) -> None:
        """Refuse neither edges nor categories, both, and wrong ones; errors name this field.

        >>> BinnedColumn("age").check("ages")
        Traceback (most recent call last):
            ...
        tpmdp.errors.InputError: edges or categories of ages = neither must be one of the two: give one
        """
        if bool(self.edges) == bool(self.categories):
            value = "both" if self.edges else "neither"
            raise InputError(f"edges or categories of {field}", value, "must be one of the two", "give one")
        if self.edges:
            check_edges(field, self.edges)
        else:
            check_categories(field, self.categories)

    @property
    def kind(self) -> ColumnKind:
        """Whether the column is read as text or as numbers."""
        return "number" if self.edges else kind_of(self.categories)

    @property
    def count(self) -> int:
        """The number of bins or categories."""
        return len(self.edges) - 1 if self.edges else len(self.categories)

    @property
    def names(self) -> list[str]:
        """Of the bins or categories, for reports."""
        spans = [f"{exact_name(low)} to below {exact_name(high)}" for low, high in pairwise(self.edges)]
        return spans or list(category_names(self.categories))

    @property
    def spread(self) -> float:
        """How far one value can move the counts: out of one bin and into another, sqrt(2), rounded up."""
        return 1.0 if self.count == 1 else math.sqrt(2) * (1 + 2.0**-50)

    def places(self, table: Table) -> IntArray:
        """The bin or category of every record, or -1."""
        if self.categories:
            return places(table[self.column], self.categories)
        place = np.searchsorted(np.array(self.edges), numbers(table, self.column), side="right") - 1
        return np.where(place < self.count, place, -1)
