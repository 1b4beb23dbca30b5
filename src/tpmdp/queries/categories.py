"""Public categories of a column: text, or numbers that stand for something."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final

import numpy as np

from tpmdp._util.arrays import IntArray
from tpmdp.data.table import Column, ColumnKind, Text
from tpmdp.errors import InputError

Categories = tuple[str, ...] | tuple[float, ...]
CATEGORIES_MAX: Final = 100_000


def check_categories(field: str, categories: Categories) -> None:
    """Refuse an empty list, equal categories, and categories of two types.

    >>> check_categories("sex", ("f", "m", "f"))
    Traceback (most recent call last):
        ...
    tpmdp.errors.InputError: categories of sex = f, m, f must be different: name each once
    """
    text = ", ".join(map(str, categories[:20]))
    if not 1 <= len(categories) <= CATEGORIES_MAX:
        rule = f"must be 1 to {CATEGORIES_MAX}"
        raise InputError(f"categories of {field}", len(categories), rule, "list the public categories")
    if len({isinstance(category, str) for category in categories}) > 1:
        raise InputError(f"categories of {field}", text, "must be all text or all numbers", "choose one")
    if any(isinstance(category, float) and not math.isfinite(category) for category in categories):
        raise InputError(f"categories of {field}", text, "must be finite numbers", "correct them")
    if len(set(categories)) < len(categories):
        raise InputError(f"categories of {field}", text, "must be different", "name each once")


def kind_of(categories: Categories) -> ColumnKind:
    """Whether the column is read as text or as numbers.

    >>> kind_of(("f", "m")), kind_of((0.0, 1.0))
    ('text', 'number')
    """
    return "text" if isinstance(categories[0], str) else "number"


def places(column: Column, categories: Categories) -> IntArray:
    """For every record the place of its value among the categories, or -1.

    >>> places(np.array([1.0, 0.0, 7.0]), (0.0, 1.0))
    array([ 1,  0, -1])
    """
    if isinstance(column, Text):
        return column.places([str(category) for category in categories])
    wanted = np.array(categories, dtype=np.float64)
    order = np.argsort(wanted)
    nearest = np.minimum(np.searchsorted(wanted[order], column), len(wanted) - 1)
    return np.where(wanted[order][nearest] == column, order[nearest], -1)


def category_names(categories: Categories) -> Sequence[str]:
    """The names of categories in reports.

    >>> category_names((0.0, 1.5))
    ['0', '1.5']
    """
    return [category if isinstance(category, str) else exact_name(category) for category in categories]


def exact_name(value: float) -> str:
    """A number as text, different for different numbers.

    >>> exact_name(18.0), exact_name(0.1), exact_name(1234567.0), exact_name(float("inf"))
    ('18', '0.1', '1234567', 'inf')
    """
    return str(int(value)) if math.isfinite(value) and value == int(value) and abs(value) < 1e15 else repr(float(value))
