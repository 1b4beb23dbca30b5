"""Queries of every kind, alone and with `where`, `by` and both, and finite sets of records that are hard on them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import product
from typing import Any, Final

import numpy as np

from tpmdp._util.arrays import FloatArray
from tpmdp.data.table import Table, Text
from tpmdp.queries.answer import Answer
from tpmdp.queries.base import Query, Unit, length
from tpmdp.queries.catalogue import KINDS, make_query
from tpmdp.queries.computation import MaskedSum
from tpmdp.queries.pair_function import PairFunction
from tpmdp.queries.rounds import Point, RoundsQuery
from tpmdp.queries.vertical_query import VerticalQuery
from tpmdp.study.contribution import checked_table
from tpmdp.study.model import Study

Record = Mapping[str, float | str]
VERTICAL_KINDS: Final = tuple(kind for kind, maker in KINDS.items() if issubclass(maker, VerticalQuery | PairFunction))
UNITS: Final[tuple[Unit, ...]] = ("record", "party")
TURN: Final = 0.5 - (16 + 128**0.5) / 64  # of a range, below its middle: farthest from an end in mean and square


@dataclass(frozen=True)
class Case:
    """A query, and values of its columns worth trying."""

    label: str
    entry: Mapping[str, Any]
    values: Mapping[str, Sequence[float | str]]

    @property
    def query(self) -> Query:
        return sum_query(self.entry)

    def records(self) -> list[Record]:
        """All combinations of the values."""
        names = list(self.values)
        return [dict(zip(names, row, strict=True)) for row in product(*self.values.values())]


def sum_query(entry: Mapping[str, Any]) -> Query:
    """A query that is a sum, of an entry whose name may be missing."""
    query = make_query({"name": "q", **entry})
    assert isinstance(query, Query)
    return query


def records_at(entry: Mapping[str, Any], names: Sequence[str], records: int) -> dict[str, int]:
    """So many records at each party; of a vertical query, only at those that hold columns."""
    query = make_query({"name": "q", **entry})
    holders = query.holders if isinstance(query, VerticalQuery | PairFunction) else names
    return {name: records if name in holders else 0 for name in names}


def statistic(study: Study, name: str, table: Table) -> FloatArray:
    """A party's vector before it is rounded to the grid."""
    computation = study.computation
    assert isinstance(computation, MaskedSum)
    weight = float(study.weights.each[study.index(name)])
    return computation.statistic(checked_table(study, name, table), weight)


def run_rounds(query: RoundsQuery, table: Table, noises: Sequence[float] | None = None, seed: int = 0) -> list[Answer]:
    """The answers after all rounds, with noise of these standard errors."""
    random, records = np.random.default_rng(seed), length(table)
    point: Point = ()
    errors = noises or [0.0] * query.rounds
    for number, error in enumerate(errors, start=1):
        asked = query.asked(number, point)
        total = asked.statistic(table) + random.normal(0.0, error, asked.dimension)
        if number == query.rounds:
            return asked.answers(total, records, error)
        point = query.next_point(number, point, total=total, records=records, standard_error=error)
    return query.stopped(len(errors), point)


def rounds_query(entry: Mapping[str, Any]) -> RoundsQuery:
    """A query by rounds, of an entry whose name may be missing."""
    query = sum_query(entry)
    assert isinstance(query, RoundsQuery)
    return query


def table_of(rows: Sequence[Record]) -> Table:
    """Records as columns."""
    found: dict[str, Any] = {}
    for name, first in rows[0].items():
        entries = [row[name] for row in rows]
        found[name] = (
            Text.of([str(entry) for entry in entries])
            if isinstance(first, str)
            else np.array(entries, dtype=np.float64)
        )
    return found


def study_of(*queries: Mapping[str, Any], **top: Any) -> Study:
    """A study of three parties."""
    parties = [{"name": name, "records": 10} for name in ("a", "b", "c")]
    base = {"name": "s", "threshold": 1, "receivers": "all", "delta": 1e-6, "epsilon": 1.0, "parties": parties}
    return Study.parse({**base, **top, "queries": list(queries)})


def exact_distance(one: FloatArray, two: FloatArray) -> Fraction:
    """The square of the L2 distance, without rounding."""
    squares = [(Fraction(a) - Fraction(b)) ** 2 for a, b in zip(one.tolist(), two.tolist(), strict=True)]
    return sum(squares, Fraction(0))


def _ends(low: float, high: float, *more: float) -> list[float]:
    """The ends of a range, their neighbours, what is far outside, and points inside."""
    inside = [low + share * (high - low) for share in (0.5, 0.25, 0.5 - TURN, 0.5 + TURN)]
    near = [float(np.nextafter(end, side)) for end in (low, high) for side in (-np.inf, np.inf)]
    return [low, high, *inside, *near, *more, -1e308, 1e308, -0.0, 5e-324]


_X: Final = _ends(-2.0, 8.0)
_TEN: Final = _ends(0.0, 10.0)
_FAR: Final = _ends(1e12, 1e12 + 1e4)
_BOUNDS: Final = {"x": [0, 10], "y": [-5, 5], "z": [1, 3]}
_CUBE: Final = {"x": [0.0, 5.0, 10.0], "y": [-5.0, 0.0, 99.0], "z": [-1e308, 2.0, 3.0]}

PLAIN: Final = (
    Case("count", {"kind": "count", "column": "x", "at_least": 3}, {"x": _ends(3.0, 4.0)}),
    Case("count in a range", {"kind": "count", "column": "x", "at_least": -1, "below": 7.5}, {"x": _ends(-1, 7.5)}),
    Case("sum", {"kind": "sum", "column": "x", "low": -2, "high": 8}, {"x": _X}),
    Case("sum below 0", {"kind": "sum", "column": "x", "low": -9, "high": -1}, {"x": _ends(-9.0, -1.0)}),
    Case("sum far from 0", {"kind": "sum", "column": "x", "low": 1e12, "high": 1e12 + 1e4}, {"x": _FAR}),
    Case("sum of tiny", {"kind": "sum", "column": "x", "low": 0, "high": 1e-100}, {"x": _ends(0.0, 1e-100)}),
    Case("mean", {"kind": "mean", "column": "x", "low": -2, "high": 8}, {"x": _X}),
    Case("mean far from 0", {"kind": "mean", "column": "x", "low": 1e12, "high": 1e12 + 1e4}, {"x": _FAR}),
    Case("mean of huge", {"kind": "mean", "column": "x", "low": -1e100, "high": 1e100}, {"x": _ends(-1e100, 1e100)}),
    Case("variance", {"kind": "variance", "column": "x", "low": -2, "high": 8}, {"x": _X}),
    Case("variance of small", {"kind": "variance", "column": "x", "low": 0, "high": 1e-3}, {"x": _ends(0.0, 1e-3)}),
    Case("histogram", {"kind": "histogram", "column": "x", "edges": [-np.inf, 0, 1, 5]}, {"x": _ends(0, 1, 5.0, 4.0)}),
    Case(
        "histogram with ranges",
        {"kind": "histogram", "column": "x", "edges": [0, 1, 3, 5], "ranges": [[0, 1], [1, 5], [0, 5]]},
        {"x": _ends(0, 1, 5.0, 4.0)},
    ),
    Case("histogram of one bin", {"kind": "histogram", "column": "x", "edges": [0, 1]}, {"x": _ends(0.0, 1.0)}),
    Case("texts", {"kind": "histogram", "column": "t", "categories": ["a", "b"]}, {"t": ["a", "b", "c", ""]}),
    Case("numbers", {"kind": "histogram", "column": "x", "categories": [2, 0, 7]}, {"x": [-0.0, 0.0, 2.0, 7.0, 7.1]}),
    Case(
        "quantiles",
        {"kind": "quantiles", "column": "x", "low": -2, "high": 8, "bins": 5, "probabilities": [0.25, 0.5]},
        {"x": [*_X, 0.0, 2.0]},
    ),
    Case(
        "distribution",
        {"kind": "distribution", "column": "x", "edges": [-2, 0, 1, 8]},
        {"x": [*_X, 0.0, float(np.nextafter(0.0, 1.0)), 1.0]},
    ),
    Case(
        "kaplan_meier",
        {"kind": "kaplan_meier", "time": "x", "event": "e", "low": -2, "high": 8, "bins": 5},
        {"x": [*_X, 0.0, 2.0], "e": [0.0, 1.0, 2.0]},
    ),
    Case(
        "kaplan_meier with edges",
        {"kind": "kaplan_meier", "time": "x", "event": "e", "edges": [0, 1, 5]},
        {"x": _ends(0.0, 1.0, 5.0), "e": [0.0, 1.0, -1e308]},
    ),
    Case(
        "log_rank",
        {"kind": "log_rank", "time": "x", "event": "e", "high": 8, "bins": 5, "group": "k", "categories": [3, 4]},
        {"x": [*_X, 0.0, 2.0], "e": [0.0, 1.0], "k": [3.0, 4.0, 3.1]},
    ),
    Case("covariance of one", {"kind": "covariance", "bounds": {"x": [-2, 8]}}, {"x": _X}),
    Case("covariance", {"kind": "covariance", "bounds": _BOUNDS}, _CUBE),
    Case("correlation", {"kind": "correlation", "bounds": {"x": [0, 10], "y": [-5, 5]}}, {"x": _TEN, "y": _CUBE["y"]}),
    Case("linear_regression", {"kind": "linear_regression", "target": "y", "bounds": _BOUNDS}, _CUBE),
    Case(
        "logistic_regression",
        {"kind": "logistic_regression", "target": "t", "threshold": 1, "bounds": _BOUNDS},
        {**_CUBE, "t": [1.0, float(np.nextafter(1.0, 0.0))]},
    ),
    Case(
        "logistic_regression of one round",
        {"kind": "logistic_regression", "target": "t", "threshold": 1, "bounds": _BOUNDS, "rounds": 1},
        {**_CUBE, "t": [1.0, float(np.nextafter(1.0, 0.0))]},
    ),
    Case(
        "poisson_regression of one round",
        {"kind": "poisson_regression", "target": "t", "high": 8, "bounds": _BOUNDS, "rounds": 1},
        {**_CUBE, "t": [-1e308, 0.0, 8.0, 9.0]},
    ),
)  # fmt: skip
_WHERE: Final = {"where": "w >= 1 and not v in ('no', 'never')"}
_WHERE_VALUES: Final[dict[str, Sequence[float | str]]] = {"w": [0.0, 1.0], "v": ["yes", "no"]}


def _parted(case: Case) -> list[Case]:
    def more(label: str, entry: Mapping[str, Any], values: Mapping[str, Sequence[float | str]]) -> Case:
        return Case(f"{case.label} {label}", {**case.entry, **entry}, {**case.values, **values})

    groups, one = {"by": {"g": ["u", "v"]}}, {"by": {"k": [3]}}
    return [
        case,
        more("where", _WHERE, _WHERE_VALUES),
        more("by", groups, {"g": ["u", "v", "w"]}),
        more("by one", one, {"k": [3.0, 3.1]}),
        more("by where", {**groups, "where": "w >= 1"}, {"g": ["u", "v", "w"], "w": [0.0, 1.0]}),
    ]


CASES: Final = [parted for case in PLAIN for parted in _parted(case)]
CASES.append(Case("count where", {"kind": "count", **_WHERE}, _WHERE_VALUES))
CASES.append(Case("count by", {"kind": "count", "by": {"g": ["u", "v"]}}, {"g": ["u", "v", "w"]}))
