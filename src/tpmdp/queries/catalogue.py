"""The kinds of queries, and how an entry of a study file becomes a query."""

from __future__ import annotations

import typing
from collections.abc import Mapping
from dataclasses import MISSING, fields
from functools import cache
from typing import Any, Final

from tpmdp._util import fields as read
from tpmdp.errors import InputError
from tpmdp.queries.base import BaseQuery, Query
from tpmdp.queries.binned_column import BinnedColumn
from tpmdp.queries.bins import BINS_MAX, Spans
from tpmdp.queries.categories import Categories
from tpmdp.queries.condition import Condition, Joined, parse_condition
from tpmdp.queries.count import Count
from tpmdp.queries.covariance import Correlation, Covariance
from tpmdp.queries.distribution import Distribution
from tpmdp.queries.histogram import Histogram
from tpmdp.queries.joint_table import HeldColumn, JointTable
from tpmdp.queries.kaplan_meier import KaplanMeier
from tpmdp.queries.linear_regression import LinearRegression
from tpmdp.queries.log_rank import LogRank
from tpmdp.queries.logistic_regression import LogisticRegression
from tpmdp.queries.maximum import Maximum
from tpmdp.queries.mean import Mean
from tpmdp.queries.moments import Ranges
from tpmdp.queries.pair_function import PairFunction
from tpmdp.queries.poisson_regression import PoissonRegression
from tpmdp.queries.quantile import Quantiles
from tpmdp.queries.ranges import Range
from tpmdp.queries.subset import GroupBy, Where
from tpmdp.queries.sum import Sum
from tpmdp.queries.variance import Variance
from tpmdp.queries.vertical_covariance import VerticalCorrelation, VerticalCovariance
from tpmdp.queries.vertical_moments import Holders
from tpmdp.queries.vertical_regression import VerticalRegression

Kinds = Mapping[str, type[BaseQuery]]
_SUMS: Final[tuple[type[Query], ...]] = (
    Count,
    Sum,
    Mean,
    Variance,
    Histogram,
    Quantiles,
    Distribution,
    Covariance,
    Correlation,
    LinearRegression,
    LogisticRegression,
    PoissonRegression,
    KaplanMeier,
    LogRank,
)
SUM_KINDS: Final[Mapping[str, type[Query]]] = {kind.kind_name(): kind for kind in _SUMS}
_ON_SHARES: Final[tuple[type[BaseQuery], ...]] = (
    Maximum,
    VerticalCovariance,
    VerticalCorrelation,
    VerticalRegression,
    JointTable,
    PairFunction,
)
SHARE_KINDS: Final[Kinds] = {kind.kind_name(): kind for kind in _ON_SHARES}
KINDS: Final[Kinds] = {**SUM_KINDS, **SHARE_KINDS}
EXAMPLES: Final[Mapping[str, str]] = {
    "count": 'name = "long stays"\nkind = "count"\ncolumn = "days"\nat_least = 7\nwhere = "age >= 65"',
    "sum": 'name = "days in all"\nkind = "sum"\ncolumn = "days"\nlow = 0\nhigh = 30',
    "mean": 'name = "stay"\nkind = "mean"\ncolumn = "days"\nlow = 0\nhigh = 30\nby = { ward = ["north", "south"] }',
    "variance": 'name = "spread of stays"\nkind = "variance"\ncolumn = "days"\nlow = 0\nhigh = 30',
    "histogram": 'name = "ages"\nkind = "histogram"\ncolumn = "age"\nedges = [0, 18, 40, 65, 120]',
    "quantiles": (
        'name = "stay"\nkind = "quantiles"\ncolumn = "days"\nlow = 0\nhigh = 30\nprobabilities = [0.25, 0.5, 0.75]'
    ),
    "distribution": 'name = "stays up to"\nkind = "distribution"\ncolumn = "days"\nedges = [1, 2, 3, 5, 7, 14, 21, 30]',
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
    "poisson_regression": (
        'name = "visits by age"\nkind = "poisson_regression"\ntarget = "visits"\nhigh = 20\n'
        "bounds = { age = [0, 120], severity = [0, 10] }"
    ),
    "kaplan_meier": (
        'name = "relapse"\nkind = "kaplan_meier"\ntime = "months"\nevent = "relapsed"\nhigh = 24\nbins = 24\n'
        'by = { arm = ["standard", "new"] }'
    ),
    "log_rank": (
        'name = "arms"\nkind = "log_rank"\ntime = "months"\nevent = "relapsed"\nhigh = 24\nbins = 24\n'
        'group = "arm"\ncategories = ["standard", "new"]'
    ),
    "maximum": 'name = "busiest"\nkind = "maximum"\nof = { kind = "count", column = "days", at_least = 7 }',
    "vertical_covariance": (
        'name = "pay and schooling"\nkind = "vertical_covariance"\n'
        "bounds = { income = [0, 200000], education = [1, 24] }\n"
        'held_by = { bank = ["income"], school = ["education"] }'
    ),
    "vertical_correlation": (
        'name = "pay and schooling"\nkind = "vertical_correlation"\n'
        "bounds = { income = [0, 200000], education = [1, 24], age = [18, 96] }\n"
        'held_by = { bank = ["income"], school = ["education", "age"] }'
    ),
    "vertical_regression": (
        'name = "income"\nkind = "vertical_regression"\ntarget = "income"\n'
        "bounds = { income = [0, 200000], education = [1, 24], age = [18, 96], children = [0, 10] }\n"
        'held_by = { bank = ["income"], school = ["education", "age"], family = ["children"] }'
    ),
    "joint_table": (
        'name = "pay by degree"\nkind = "joint_table"\n'
        'rows = { party = "bank", column = "income", edges = [0, 30000, 60000, 200000] }\n'
        'columns = { party = "school", column = "degree", categories = ["none", "first", "higher"] }'
    ),
    "pair_function": (
        'name = "repay more than their stipend"\nkind = "pair_function"\n'
        'function = "tpmdp.engines.spu.functions:count_larger"\n'
        "bounds = { repayment = [0, 5000], stipend = [0, 5000] }\n"
        'held_by = { bank = ["repayment"], school = ["stipend"] }\nsensitivity = 1\nlargest = 20000'
    ),
}
WEIGHT_MIN: Final = 1e-6
_PARTS: Final = ("where", "by")


def make_query(entry: Mapping[str, Any], kinds: Kinds = KINDS, everywhere: Condition | None = None) -> BaseQuery:
    """A query from a table of a study file; `everywhere` is the condition of the whole study.

    >>> make_query({"name": "old", "kind": "count", "where": "age >= 65"}).columns_of("bank")
    {'age': 'number'}
    """
    kind = entry.get("kind")
    if not isinstance(kind, str) or kind not in kinds:
        remedy = "choose one, or name the file of a custom query with --queries"
        raise InputError("kind of a query", read.written(kind), f"must be one of {', '.join(kinds)}", remedy)
    maker = kinds[kind]
    is_sum = issubclass(maker, Query)
    if everywhere is not None and not is_sum:
        raise InputError("where", str(everywhere), f"cannot be used with a {kind} query", "filter the data instead")
    required, optional = keys_of(maker)
    name = read.title("name of a query", entry.get("name"))
    allowed = [*optional, *(_PARTS if is_sum else ())]
    read.check_keys(f"the {kind} query {name}", entry, ["name", "kind", *required], optional=allowed)
    types = _types(maker)
    values = {
        key: _value(name, key, types[key], value=entry[key], kinds=kinds)
        for key in (*required, *optional)
        if key in entry
    }
    query = maker(name=name, **values)
    return _with_parts(_check_weight(query), entry, everywhere) if isinstance(query, Query) else query


def _check_weight(query: Query) -> Query:
    if not WEIGHT_MIN <= query.weight <= 1 / WEIGHT_MIN:
        rule = f"must lie between {WEIGHT_MIN:g} and {1 / WEIGHT_MIN:g}"
        raise InputError(f"weight of {query.name}", query.weight, rule, "2 is twice the share of the budget of 1")
    return query


def keys_of(maker: type[BaseQuery]) -> tuple[list[str], list[str]]:
    """The required and the optional keys of a kind, without name and kind.

    >>> keys_of(Count)
    ([], ['column', 'at_least', 'below', 'weight'])
    """
    public = [each for each in fields(maker) if each.name != "name" and not each.metadata.get("hidden")]
    required = [each.name for each in public if each.default is MISSING]
    optional = [each.name for each in public if each.default is not MISSING]
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


@cache
def _types(maker: type[BaseQuery]) -> dict[str, Any]:
    return typing.get_type_hints(maker)


def _value(name: str, key: str, kind: Any, *, value: Any, kinds: Kinds) -> Any:
    """A value of a study file, as the type that the query's class declares."""
    field = f"{key} of {name}"
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
        numbers = read.numbers(field, value)
        if not 1 <= len(numbers) <= BINS_MAX + 1:
            rule = f"must be a list of 1 to {BINS_MAX + 1} numbers"
            raise InputError(field, f"{len(numbers)} numbers", rule, "change it")
        return numbers
    if kind == tuple[str, ...]:
        if not isinstance(value, list):
            raise InputError(field, read.written(value), "must be a list of texts", 'write such as ["a", "b"]')
        return tuple(read.title(field, entry) for entry in value)
    if kind == Categories:
        return read.categories(field, value)
    if kind == Ranges:
        return _ranges(field, value)
    if kind == Spans:
        return _spans(field, value)
    if kind == Holders:
        return _holders(field, value)
    if kind is HeldColumn:
        return _held_column(field, value)
    if kind is Query:
        return _inner(name, f"{key} in {name}", value, kinds=kinds)
    raise InputError(field, str(kind), "is of a type that study files do not have", "use str, float, int, bool, tuples")


def _ranges(field: str, value: Any) -> Ranges:
    remedy = "write such as bounds = { age = [18, 96], income = [0, 200000] }"
    if not isinstance(value, dict) or not value:
        raise InputError(field, read.written(value), "must give each column [low, high]", remedy)
    ranges = []
    for name, ends in value.items():
        column = read.title(f"{field}, column", name)
        numbers = read.numbers(f"{field}, {column}", ends)
        if len(numbers) != 2:
            raise InputError(f"{field}, {column}", read.written(ends), "must be [low, high]", remedy)
        ranges.append(Range(column, *numbers))
    return tuple(ranges)


def _spans(field: str, value: Any) -> Spans:
    if not isinstance(value, list | tuple) or not value:
        remedy = "write such as ranges = [[0, 18], [18, 65], [0, 65]]"
        raise InputError(field, read.written(value), "must be a list of pairs [low, high]", remedy)
    spans = [read.numbers(field, ends) for ends in value]
    for ends in spans:
        if len(ends) != 2:
            raise InputError(field, f"{len(ends)} numbers", "must be pairs [low, high]", "write such as [[0, 18]]")
    return tuple((ends[0], ends[1]) for ends in spans)


def _holders(field: str, value: Any) -> Holders:
    if not isinstance(value, dict) or not all(isinstance(columns, list) for columns in value.values()):
        remedy = 'write such as held_by = { bank = ["income"], school = ["education", "age"] }'
        raise InputError(field, read.written(value), "must give each party its columns", remedy)
    return tuple((party, tuple(read.title(field, column) for column in columns)) for party, columns in value.items())


def _held_column(field: str, value: Any) -> HeldColumn:
    entry = read.table(field, value, ("party", "column"), optional=("edges", "categories"))
    edges = read.numbers(f"edges of {field}", entry["edges"]) if "edges" in entry else ()
    categories = read.categories(f"categories of {field}", entry["categories"]) if "categories" in entry else ()
    column = read.title(f"{field}, column", entry["column"])
    return HeldColumn(read.title(f"{field}, party", entry["party"]), BinnedColumn(column, edges, categories))


def _inner(name: str, field: str, value: Any, kinds: Kinds) -> BaseQuery:
    """A query inside a query, under the same name."""
    if not isinstance(value, dict):
        remedy = 'write such as of = { kind = "count", column = "days", at_least = 7 }'
        raise InputError(field, read.written(value), "must be a table", remedy)
    if "name" in value:
        raise InputError(f"{field}, name", read.written(value["name"]), "is not needed", "remove it")
    sums = {kind: maker for kind, maker in kinds.items() if issubclass(maker, Query)}
    return make_query({**value, "name": name}, sums)
