"""The kinds of queries a study can ask for, and how an entry of a study file becomes one."""

from __future__ import annotations

import typing
from collections.abc import Mapping
from dataclasses import MISSING, fields
from functools import cache
from typing import Any, Final

from tpmdp._util import fields as read
from tpmdp.errors import InputError
from tpmdp.queries.base import Query
from tpmdp.queries.categories import Categories
from tpmdp.queries.condition import Condition, Joined, parse_condition
from tpmdp.queries.count import Count
from tpmdp.queries.covariance import Correlation, Covariance
from tpmdp.queries.histogram import BINS_MAX, Histogram
from tpmdp.queries.joint import JointQuery
from tpmdp.queries.linear_regression import LinearRegression
from tpmdp.queries.logistic_regression import LogisticRegression
from tpmdp.queries.maximum import Maximum
from tpmdp.queries.mean import Mean
from tpmdp.queries.moments import Ranges
from tpmdp.queries.quantile import Quantiles
from tpmdp.queries.ranges import Range
from tpmdp.queries.subset import GroupBy, Where
from tpmdp.queries.sum import Sum
from tpmdp.queries.variance import Variance
from tpmdp.queries.vertical_regression import VerticalRegression

Kinds = Mapping[str, type[Query]]
_CLASSES: Final = (
    Count,
    Sum,
    Mean,
    Variance,
    Histogram,
    Quantiles,
    Covariance,
    Correlation,
    LinearRegression,
    LogisticRegression,
)
KINDS: Final[Kinds] = {one.kind_name(): one for one in _CLASSES}
JOINT_KINDS: Final[Mapping[str, type[JointQuery]]] = {one.kind: one for one in (Maximum, VerticalRegression)}
EXAMPLES: Final[Mapping[str, str]] = {
    "count": 'name = "long stays"\nkind = "count"\ncolumn = "days"\nat_least = 7\nwhere = "age >= 65"',
    "sum": 'name = "days in all"\nkind = "sum"\ncolumn = "days"\nlow = 0\nhigh = 30',
    "mean": 'name = "stay"\nkind = "mean"\ncolumn = "days"\nlow = 0\nhigh = 30\nby = { ward = ["north", "south"] }',
    "variance": 'name = "spread of stays"\nkind = "variance"\ncolumn = "days"\nlow = 0\nhigh = 30',
    "histogram": 'name = "ages"\nkind = "histogram"\ncolumn = "age"\nedges = [0, 18, 40, 65, 120]',
    "quantiles": (
        'name = "stay"\nkind = "quantiles"\ncolumn = "days"\nlow = 0\nhigh = 30\nprobabilities = [0.25, 0.5, 0.75]'
    ),
    "covariance": 'name = "age and stay"\nkind = "covariance"\nbounds = { age = [0, 120], days = [0, 30] }',
    "correlation": 'name = "age and stay"\nkind = "correlation"\nbounds = { age = [0, 120], days = [0, 30] }',
    "linear_regression": (
        'name = "stay by age"\nkind = "linear_regression"\ntarget = "days"\n'
        "bounds = { days = [0, 30], age = [0, 120], severity = [0, 10] }"
    ),
    "logistic_regression": (
        'name = "long stay by age"\nkind = "logistic_regression"\ntarget = "days"\nthreshold = 7\n'
        "bounds = { age = [0, 120], severity = [0, 10] }"
    ),
    "maximum": 'name = "busiest"\nkind = "maximum"\nof = { kind = "count", column = "days", at_least = 7 }',
    "vertical_regression": (
        'name = "income"\nkind = "vertical_regression"\ntarget = "income"\n'
        "bounds = { income = [0, 200000], education = [1, 24], age = [18, 96], children = [0, 10] }\n"
        'held_by = { bank = ["income"], school = ["education", "age"], family = ["children"] }'
    ),
}
WEIGHT_MIN: Final = 1e-6
_PARTS: Final = ("where", "by")


def make_query(
    entry: Mapping[str, Any], kinds: Kinds = KINDS, everywhere: Condition | None = None
) -> Query | JointQuery:
    """A query from a table of a study file; `everywhere` is the condition of the whole study.

    >>> make_query({"name": "old", "kind": "count", "where": "age >= 65"}).columns
    {'age': 'number'}
    """
    kind = entry.get("kind")
    if isinstance(kind, str) and kind in JOINT_KINDS:
        if everywhere is not None:
            raise InputError("where", str(everywhere), f"cannot be used with a {kind} query", "filter the data instead")
        return _maximum(entry, kinds) if kind == Maximum.kind else _vertical(entry)
    return _sum_query(entry, kinds, everywhere)


def _sum_query(entry: Mapping[str, Any], kinds: Kinds, everywhere: Condition | None = None) -> Query:
    kind = entry.get("kind")
    if not isinstance(kind, str) or kind not in kinds:
        rule = f"must be one of {', '.join([*kinds, *JOINT_KINDS])}"
        remedy = "choose one, or name the file of your own with --queries"
        raise InputError("kind of a query", read.written(kind), rule, remedy)
    maker = kinds[kind]
    required, optional = keys_of(maker)
    name = read.title("name of a query", entry.get("name"))
    read.check_keys(f"the {kind} query {name}", entry, ["name", "kind", *required], [*optional, *_PARTS])
    types = _types(maker)
    given = {key: _value(f"{key} of {name}", types[key], entry[key]) for key in (*required, *optional) if key in entry}
    query = maker(name=name, **given)
    if not WEIGHT_MIN <= query.weight <= 1 / WEIGHT_MIN:
        rule = f"must lie between {WEIGHT_MIN:g} and {1 / WEIGHT_MIN:g}"
        raise InputError(f"weight of {name}", query.weight, rule, "2 is twice the share of the budget of 1")
    return _with_parts(query, entry, everywhere)


def keys_of(maker: type[Query]) -> tuple[list[str], list[str]]:
    """The required and the optional keys of a kind, name and kind left out.

    >>> keys_of(Count)
    ([], ['column', 'at_least', 'below', 'weight'])
    """
    shown = [one for one in fields(maker) if one.name != "name" and not one.metadata.get("hidden")]
    required = [one.name for one in shown if one.default is MISSING]
    optional = [one.name for one in shown if one.default is not MISSING]
    return required, sorted(optional, key="weight".__eq__)  # weight last


def _with_parts(query: Query, entry: Mapping[str, Any], everywhere: Condition | None) -> Query:
    if "by" in entry:
        by, field = entry["by"], f"by of {query.name}"
        if not isinstance(by, dict) or len(by) != 1:
            rule, remedy = "must name one column and its categories", 'write by = { region = ["north", "south"] }'
            raise InputError(field, read.written(by), rule, remedy)
        ((column, values),) = by.items()
        query = GroupBy.of(query, read.title(field, column), read.categories(field, values))
    conditions = [] if everywhere is None else [everywhere]
    if "where" in entry:
        text, field = entry["where"], f"where of {query.name}"
        if not isinstance(text, str):
            raise InputError(field, read.written(text), "must be text", 'write where = "age >= 18"')
        conditions.append(parse_condition(field, text))
    if conditions:
        whole = conditions[0] if len(conditions) == 1 else Joined("and", tuple(conditions))
        query = Where.of(query, whole)
    if not query.columns:
        rule = "leaves a count of all records, which is public"
        raise InputError(f"column of {query.name}", "(none)", rule, "give column and at_least or below, where or by")
    return query


def _maximum(entry: Mapping[str, Any], kinds: Kinds) -> Maximum:
    name = read.title("name of a query", entry.get("name"))
    read.check_keys(f"the maximum query {name}", entry, ["name", "kind", "of"], [])
    inner = entry["of"]
    if not isinstance(inner, dict):
        remedy = 'write such as of = { kind = "count", column = "days", at_least = 7 }'
        raise InputError(f"of in {name}", read.written(inner), "must be a table", remedy)
    if "name" in inner:
        raise InputError(f"of in {name}, name", read.written(inner["name"]), "is not needed", "remove it")
    return Maximum.of(_sum_query({**inner, "name": name}, kinds))


def _vertical(entry: Mapping[str, Any]) -> VerticalRegression:
    keys = ["name", "kind", "target", "bounds", "held_by"]
    name = read.title("name of a query", entry.get("name"))
    read.check_keys(f"the vertical_regression query {name}", entry, keys, [])
    held = entry["held_by"]
    field = f"held_by of {name}"
    if not isinstance(held, dict) or not all(isinstance(columns, list) for columns in held.values()):
        remedy = 'write such as held_by = { bank = ["income"], school = ["education", "age"] }'
        raise InputError(field, read.written(held), "must give each party its columns", remedy)
    holders = tuple((party, tuple(read.title(field, column) for column in columns)) for party, columns in held.items())
    target = read.title(f"target of {name}", entry["target"])
    return VerticalRegression(name, target, _ranges(f"bounds of {name}", entry["bounds"]), holders)


@cache
def _types(maker: type[Query]) -> dict[str, Any]:
    return typing.get_type_hints(maker)


def _value(field: str, kind: Any, value: Any) -> Any:
    """A value of a study file as the query's class wants it."""
    if kind is str:
        return read.title(field, value)
    if kind is float:
        return read.number(field, value)
    if kind is int:
        if isinstance(value, bool) or not isinstance(value, int):
            remedy = "remove the quotes" if isinstance(value, str) else "write a number without a point"
            raise InputError(field, read.written(value), "must be a whole number", remedy)
        return value
    if kind is bool:
        return read.truth(field, value)
    if kind == tuple[float, ...]:
        found = read.numbers(field, value)
        if not 1 <= len(found) <= BINS_MAX + 1:
            rule = f"must be a list of 1 to {BINS_MAX + 1} numbers"
            raise InputError(field, f"{len(found)} numbers", rule, "change it")
        return found
    if kind == tuple[str, ...]:
        if not isinstance(value, list):
            raise InputError(field, read.written(value), "must be a list of texts", 'write such as ["a", "b"]')
        return tuple(read.title(field, entry) for entry in value)
    if kind == Categories:
        return read.categories(field, value)
    if kind == Ranges:
        return _ranges(field, value)
    raise InputError(field, str(kind), "is of a type that study files do not have", "use str, float, int, bool, tuples")


def _ranges(field: str, value: Any) -> Ranges:
    remedy = "write such as bounds = { age = [18, 96], income = [0, 200000] }"
    if not isinstance(value, dict) or not value:
        raise InputError(field, read.written(value), "must give each column [low, high]", remedy)
    found = []
    for name, ends in value.items():
        column = read.title(f"{field}, column", name)
        each = read.numbers(f"{field}, {column}", ends)
        if len(each) != 2:
            raise InputError(f"{field}, {column}", read.written(ends), "must be [low, high]", remedy)
        found.append(Range(column, *each))
    return tuple(found)
