"""Made-up records that fit the queries of a study, for trials."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from tpmdp.queries.base import BaseQuery
from tpmdp.queries.condition import Compare, Condition, Joined, Not, OneOf
from tpmdp.queries.subset import Where
from tpmdp.study.model import Study

Values = list[float] | list[str]


def sample_columns(study: Study, party: str, random: np.random.Generator) -> dict[str, Values]:
    """Values for every column that the study needs of a party: numbers over their bounds, and texts that it names.

    >>> query = {"name": "old", "kind": "count", "column": "age", "at_least": 65, "where": "region = 'north'"}
    >>> study = Study.parse({"name": "demo", "delta": 1e-6, "threshold": 1, "receivers": "all", "queries": [query],
    ...                      "parties": [{"name": name, "epsilon": 1, "records": 3} for name in ("a", "b")]})
    >>> columns = sample_columns(study, "a", np.random.default_rng(1))
    >>> sorted(set(columns["region"]) | {"north", "other"}), len(columns["age"])
    (['north', 'other'], 3)
    """
    count = study.party(party).records
    columns: dict[str, Values] = {}
    for column, kind in study.columns_of(party).items():
        known = [value for query in study.queries for value in _known(query, column)]
        if kind == "text":
            named = list(dict.fromkeys(value for value in known if isinstance(value, str)))
            texts = named if len(named) > 1 else [*named, "other"]
            columns[column] = random.choice(texts, count).tolist()
        else:
            columns[column] = _numbers([value for value in known if isinstance(value, float)], count, random)
    return columns


def _numbers(known: Sequence[float], count: int, random: np.random.Generator) -> list[float]:
    if set(known) == {0.0, 1.0}:  # a yes or no
        return [float(value) for value in random.integers(0, 2, count)]
    low, high = (min(known), max(known)) if known else (0.0, 100.0)
    if low == high:
        low, high = (0.0, 1.5 * high) if high > 0 else (high, high + 100.0)
    digits = 1 if high - low >= 10 else 3
    return [float(value) for value in np.round(low + (high - low) * random.beta(2.0, 3.0, count), digits)]


def _known(query: BaseQuery, column: str) -> Iterator[float | str]:
    """The constants that a query compares a column with: bounds, edges, categories, conditions and groups."""
    settings = query.settings()
    if isinstance(query, Where):
        yield from _constants(query.condition, column)
    yield from map(_plain, settings.get("by", {}).get(column, ()))
    for bounds in settings.get("bounds", ()):
        if bounds.column == column:
            yield from (float(bounds.low), float(bounds.high))
    if settings.get("column") == column:
        for key in ("low", "high", "at_least", "below", "edges", "categories"):
            value = settings.get(key)
            for each in value if isinstance(value, tuple | list) else () if value is None else (value,):
                if isinstance(each, str) or np.isfinite(each):
                    yield _plain(each)


def _constants(condition: Condition, column: str) -> Iterator[float | str]:
    if isinstance(condition, Compare) and condition.column == column:
        yield _plain(condition.value)
    elif isinstance(condition, OneOf) and condition.column == column:
        yield from map(_plain, condition.values)
    elif isinstance(condition, Not):
        yield from _constants(condition.part, column)
    elif isinstance(condition, Joined):
        for part in condition.parts:
            yield from _constants(part, column)


def _plain(value: Any) -> float | str:
    return value if isinstance(value, str) else float(value)
