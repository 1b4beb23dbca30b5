"""Made-up records that fit the queries of a study, for trials."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from scipy.special import betaincinv, ndtr

from tpmdp._util.arrays import FloatArray
from tpmdp.queries.base import BaseQuery
from tpmdp.queries.condition import Compare, Condition, Joined, Not, OneOf
from tpmdp.queries.generalized_linear_model import GeneralizedLinearModel
from tpmdp.queries.guesses import NO_GUESSES, Guesses
from tpmdp.queries.joint_table import JointTable
from tpmdp.queries.logistic_regression import LogisticRegression
from tpmdp.queries.poisson_regression import PoissonRegression
from tpmdp.queries.ranges import Range
from tpmdp.queries.subset import SubsetQuery, Where
from tpmdp.study.model import Study

Values = list[float] | list[str]
_SHAPE: Final = (2.0, 3.0)  # of the beta distribution that numbers have where nothing is guessed
_VARIANCE_MOST: Final = 0.9  # of the most that a mean allows: with all of it, every value lies at a bound


def sample_columns(study: Study, party: str, random: np.random.Generator) -> dict[str, Values]:
    """Values for every column that the study needs of a party: numbers over their bounds, and texts that it names.

    Numbers have the mean, spread and correlation that the study's table `typical` guesses, as far as it does.

    >>> query = {"name": "old", "kind": "count", "column": "age", "at_least": 65, "where": "region = 'north'"}
    >>> study = Study.parse({"name": "demo", "delta": 1e-6, "threshold": 1, "receivers": "all", "queries": [query],
    ...                      "parties": [{"name": name, "epsilon": 1, "records": 3} for name in ("a", "b")]})
    >>> columns = sample_columns(study, "a", np.random.default_rng(1))
    >>> sorted(set(columns["region"]) | {"north", "other"}), len(columns["age"])
    (['north', 'other'], 3)
    """
    count = study.party(party).records
    columns: dict[str, Values] = {}
    common = _Common.of(study.typical, count, random)
    for column, kind in study.columns_of(party).items():
        known = [value for query in study.queries for value in _known(query, column)]
        if kind == "text":
            named = list(dict.fromkeys(value for value in known if isinstance(value, str)))
            texts = named if len(named) > 1 else [*named, "other"]
            columns[column] = random.choice(texts, count).tolist()
        else:
            constants = [value for value in known if isinstance(value, float)]
            columns[column] = _numbers(column, constants, count, common=common)
    return columns


@dataclass(frozen=True)
class _Common:
    """What the columns of numbers of one party share."""

    random: np.random.Generator
    guesses: Guesses
    factor: FloatArray  # one normal value per record, from which all columns take their correlation

    @classmethod
    def of(cls, guesses: Guesses, count: int, random: np.random.Generator) -> _Common:
        return cls(random, guesses, np.zeros(0) if guesses == NO_GUESSES else random.normal(size=count))

    def levels(self, count: int) -> FloatArray:
        """Uniform values, correlated with those of other columns as the study guesses."""
        share = self.guesses.correlation or 0.0
        return np.asarray(ndtr(np.sqrt(share) * self.factor + np.sqrt(1 - share) * self.random.normal(size=count)))


def _numbers(column: str, known: Sequence[float], count: int, common: _Common) -> list[float]:
    low, high = (min(known), max(known)) if known else (0.0, 100.0)
    if low == high:
        low, high = (0.0, 1.5 * high) if high > 0 else (high, high + 100.0)
    is_yes_or_no, digits = set(known) == {0.0, 1.0}, 1 if high - low >= 10 else 3
    guesses = common.guesses
    if guesses == NO_GUESSES:
        if is_yes_or_no:
            return [float(value) for value in common.random.integers(0, 2, count)]
        return np.round(low + (high - low) * common.random.beta(*_SHAPE, count), digits).tolist()  # type: ignore[no-any-return]
    is_guessed = any(each.column == column for each in guesses.columns)
    middle, deviation = guesses.scenarios()[0].shape(Range(column, low, high))
    levels, mean = common.levels(count), (middle + 1) / 2 if is_guessed else 0.5
    if is_yes_or_no:
        return [float(level > 1 - mean) for level in levels]
    first, second = _SHAPE
    if is_guessed:
        most = mean * (1 - mean)
        size = most / min((deviation / 2) ** 2, _VARIANCE_MOST * most) - 1
        first, second = mean * size, (1 - mean) * size
    values = low + (high - low) * betaincinv(first, second, levels)
    return np.round(values, max(digits, _digits_of(deviation * (high - low)))).tolist()  # type: ignore[no-any-return]


def _digits_of(deviation: float) -> int:
    """Enough decimals to tell values apart that vary so much."""
    return min(max(0, 1 - math.floor(math.log10(deviation))), 300)


def _known(query: BaseQuery, column: str) -> Iterator[float | str]:
    """The constants that a query compares a column with: bounds, edges, categories, conditions and groups."""
    settings = query.settings()
    yield from _outcomes(query, column)
    if isinstance(query, Where):
        yield from _constants(query.condition, column)
    yield from map(_plain, settings.get("by", {}).get(column, ()))
    for bounds in settings.get("bounds", ()):
        if bounds.column == column:
            yield from (float(bounds.low), float(bounds.high))
    if settings.get("event") == column:
        yield from (0.0, 1.0)
    sides = [query.rows.settings(), query.columns.settings()] if isinstance(query, JointTable) else []
    for part in (settings, *sides):
        if column in (part.get("column"), part.get("time"), part.get("group")):
            for key in ("low", "high", "at_least", "below", "edges", "categories"):
                value = part.get(key)
                for each in value if isinstance(value, tuple | list) else () if value is None else (value,):
                    if isinstance(each, str) or np.isfinite(each):
                        yield _plain(each)


def _outcomes(query: BaseQuery, column: str) -> Iterator[float]:
    """The ends of a target that has no bounds of its own: about as many records on either side of a threshold."""
    while isinstance(query, SubsetQuery):
        query = query.query
    if isinstance(query, GeneralizedLinearModel) and query.target == column:
        if isinstance(query, LogisticRegression):
            size = abs(query.threshold) or 1.0
            yield from (query.threshold - size, query.threshold + size)
        elif isinstance(query, PoissonRegression):
            yield from (0.0, query.high)


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
