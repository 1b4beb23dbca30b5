"""A study built in code: parties and queries one call at a time, checked by the same rules as a study file."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Generic, TypedDict, TypeVar, Unpack

import numpy as np
from numpy.typing import NDArray

from tpmdp._util import fields as read
from tpmdp._util.numbers import plural
from tpmdp.errors import InputError, shown
from tpmdp.queries.catalogue import Kinds, make_query
from tpmdp.queries.condition import Condition, parse_condition
from tpmdp.study.file import STUDY_KEYS, check_party_names, check_query_names, parse_party

StudyType = TypeVar("StudyType")
Numbers = Sequence[float] | NDArray[Any]
Bounds = Mapping[str, Numbers]  # low and high of every column


class QueryOptions(TypedDict, total=False):
    """What every query may have besides: which records count, and its share of the budget."""

    name: str
    where: str
    by: Mapping[str, Sequence[str] | Sequence[float]]
    weight: float


@dataclass(frozen=True, eq=False, repr=False)
class StudyBuilder(Generic[StudyType]):
    """A study in the making, from `Study.new`. It never changes: every call returns a new one; `build` gives the study.

    Each call checks what it is given, and an error names the call. A query is called after its kind and column unless
    it has a `name`. All parties need the same names, so choose them with care, or share the file that `Study.write`
    writes.

    >>> import tpmdp
    >>> study = (
    ...     tpmdp.Study.new("flu", threshold=1, receivers=["north"], delta=1e-6)
    ...     .party("north", epsilon=1, records=100)
    ...     .party("south", epsilon=2, records=80)
    ...     .count("age", at_least=65)
    ...     .mean("days", low=0, high=30, name="stay")
    ...     .build()
    ... )
    >>> [query.name for query in study.queries]
    ['count of age', 'stay']
    >>> tpmdp.Study.new("flu").mean("days", low=30, high=0)
    Traceback (most recent call last):
        ...
    tpmdp.errors.InputError: .mean("days"): bounds of mean of days = 30.0 to 0.0 must be a finite range: high must
    be more than low
    """

    make: Callable[[Mapping[str, Any], Kinds], StudyType]
    kinds: Kinds
    settings: Mapping[str, Any]
    everywhere: Condition | None = None
    parties: tuple[Mapping[str, Any], ...] = ()
    queries: tuple[Mapping[str, Any], ...] = ()

    if not TYPE_CHECKING:  # type checkers know already what it has not

        def __getattr__(self, name: str) -> Any:
            raise AttributeError(f"a StudyBuilder has no {name}: call .build() first, which gives the study")

    def __repr__(self) -> str:
        sizes = f"{plural(len(self.parties), 'party', 'parties')}, {plural(len(self.queries), 'query', 'queries')}"
        return f"StudyBuilder({_quoted(self.settings['name'])}: {sizes} so far)"

    def party(
        self,
        name: str,
        *,
        records: int,
        epsilon: float | None = None,
        delta: float | None = None,
        public_key: str | None = None,
        address: str | None = None,
        weight: float | None = None,
    ) -> StudyBuilder[StudyType]:
        """One more party. Without a budget of its own it has the one given to `Study.new`."""
        given = {"name": name, "records": records, "epsilon": epsilon, "delta": delta}
        given |= {"public_key": public_key, "address": address, "weight": weight}
        entry = {key: plain_value(value) for key, value in given.items() if value is not None}
        with _naming_call(f".party({_quoted(name)})"):
            parse_party(len(self.parties) + 1, entry, self.settings)
            check_party_names([*(str(other["name"]) for other in self.parties), name])
        return replace(self, parties=(*self.parties, entry))

    def query(self, kind: str, *, name: str | None = None, **settings: Any) -> StudyBuilder[StudyType]:
        """One more query of any kind, custom kinds included, with the keys of a study file."""
        given = {key: plain_value(value) for key, value in settings.items() if value is not None}
        subject = given.get("column") or given.get("target") or ""
        title = _default_name(kind, str(subject), given) if name is None else name
        entry = {"name": title, "kind": kind, **given}
        shown_name = _quoted(name if subject == "" else subject) if name or subject else ""
        with _naming_call(f".{kind}({shown_name})"):
            checked = make_query(entry, self.kinds, self.everywhere)
            check_query_names([*(str(other["name"]) for other in self.queries), checked.name])
        return replace(self, queries=(*self.queries, entry))

    def count(
        self,
        column: str | None = None,
        *,
        at_least: float | None = None,
        below: float | None = None,
        **options: Unpack[QueryOptions],
    ) -> StudyBuilder[StudyType]:
        """How many records have a value in a range, or fulfil a condition."""
        return self.query("count", column=column, at_least=at_least, below=below, **options)

    def sum(self, column: str, low: float, high: float, **options: Unpack[QueryOptions]) -> StudyBuilder[StudyType]:
        """The sum of a column, each value clipped to [low, high]."""
        return self.query("sum", column=column, low=low, high=high, **options)

    def mean(self, column: str, low: float, high: float, **options: Unpack[QueryOptions]) -> StudyBuilder[StudyType]:
        """The mean of a column, each value clipped to [low, high]."""
        return self.query("mean", column=column, low=low, high=high, **options)

    def variance(
        self, column: str, low: float, high: float, **options: Unpack[QueryOptions]
    ) -> StudyBuilder[StudyType]:
        """Mean, variance and standard deviation of a column, each value clipped to [low, high]."""
        return self.query("variance", column=column, low=low, high=high, **options)

    def histogram(
        self,
        column: str,
        *,
        edges: Numbers | None = None,
        categories: Sequence[str] | Sequence[float] | None = None,
        ranges: Sequence[tuple[float, float]] | None = None,
        **options: Unpack[QueryOptions],
    ) -> StudyBuilder[StudyType]:
        """How many records lie between each two edges, in each range between edges, or belong to each category."""
        given = {"column": column, "edges": edges, "categories": categories, "ranges": ranges}
        return self.query("histogram", **given, **options)

    def quantiles(
        self,
        column: str,
        low: float,
        high: float,
        *,
        probabilities: Numbers | None = None,
        bins: int | None = None,
        **options: Unpack[QueryOptions],
    ) -> StudyBuilder[StudyType]:
        """Quantiles of a column, the median by default."""
        given = {"column": column, "low": low, "high": high, "probabilities": probabilities, "bins": bins}
        return self.query("quantiles", **given, **options)

    def distribution(
        self,
        column: str,
        *,
        edges: Numbers | None = None,
        low: float | None = None,
        high: float | None = None,
        bins: int | None = None,
        **options: Unpack[QueryOptions],
    ) -> StudyBuilder[StudyType]:
        """Which share of the records has at most each edge: edges are listed, or equally spaced from low to high."""
        given = {"column": column, "edges": edges, "low": low, "high": high, "bins": bins}
        return self.query("distribution", **given, **options)

    def covariance(self, bounds: Bounds, **options: Unpack[QueryOptions]) -> StudyBuilder[StudyType]:
        """Covariances of all columns in `bounds`, which gives low and high of each."""
        return self.query("covariance", bounds=bounds, **options)

    def correlation(self, bounds: Bounds, **options: Unpack[QueryOptions]) -> StudyBuilder[StudyType]:
        """Correlations of all columns in `bounds`, which gives low and high of each."""
        return self.query("correlation", bounds=bounds, **options)

    def linear_regression(
        self, target: str, *, bounds: Bounds, **options: Unpack[QueryOptions]
    ) -> StudyBuilder[StudyType]:
        """The target as a linear function of the other columns in `bounds`."""
        return self.query("linear_regression", target=target, bounds=bounds, **options)

    def logistic_regression(
        self,
        target: str,
        *,
        bounds: Bounds,
        threshold: float | None = None,
        rounds: int | None = None,
        **options: Unpack[QueryOptions],
    ) -> StudyBuilder[StudyType]:
        """The chance that the target is at least the threshold, by the columns in `bounds`; in 4 rounds by default."""
        given = {"target": target, "bounds": bounds, "threshold": threshold, "rounds": rounds}
        return self.query("logistic_regression", **given, **options)

    def poisson_regression(
        self, target: str, *, bounds: Bounds, high: float, rounds: int | None = None, **options: Unpack[QueryOptions]
    ) -> StudyBuilder[StudyType]:
        """The mean of a target from 0 to `high`, such as a number of visits, by the columns in `bounds`."""
        given = {"target": target, "bounds": bounds, "high": high, "rounds": rounds}
        return self.query("poisson_regression", **given, **options)

    def kaplan_meier(
        self,
        time: str,
        event: str,
        *,
        edges: Numbers | None = None,
        low: float | None = None,
        high: float | None = None,
        bins: int | None = None,
        horizon: float | None = None,
        sizes: Numbers | None = None,
        **options: Unpack[QueryOptions],
    ) -> StudyBuilder[StudyType]:
        """The share of records without the event after each bin of time; `event` is 1 where it came, else censored."""
        given = {"time": time, "event": event, "edges": edges, "low": low, "high": high, "bins": bins}
        return self.query("kaplan_meier", **given, horizon=horizon, sizes=sizes, **options)

    def log_rank(
        self,
        time: str,
        event: str,
        *,
        group: str,
        categories: Sequence[str] | Sequence[float],
        edges: Numbers | None = None,
        low: float | None = None,
        high: float | None = None,
        bins: int | None = None,
        sizes: Numbers | None = None,
        **options: Unpack[QueryOptions],
    ) -> StudyBuilder[StudyType]:
        """Whether survival is the same in the groups: the test, the hazard ratio and the curve of each group."""
        given = {"time": time, "event": event, "group": group, "categories": categories, "edges": edges}
        return self.query("log_rank", **given, low=low, high=high, bins=bins, sizes=sizes, **options)

    def maximum(self, of: Mapping[str, Any], *, name: str | None = None) -> StudyBuilder[StudyType]:
        """Which party has the largest value of a query: `of={"kind": "count", "column": "days", "at_least": 7}`."""
        return self.query("maximum", name=name, of=of)

    def vertical_covariance(
        self, bounds: Bounds, *, held_by: Mapping[str, Sequence[str]], name: str | None = None
    ) -> StudyBuilder[StudyType]:
        """Covariances where the parties in `held_by` have different columns of the same people."""
        return self.query("vertical_covariance", name=name, bounds=bounds, held_by=held_by)

    def vertical_correlation(
        self, bounds: Bounds, *, held_by: Mapping[str, Sequence[str]], name: str | None = None
    ) -> StudyBuilder[StudyType]:
        """Correlations where the parties in `held_by` have different columns of the same people."""
        return self.query("vertical_correlation", name=name, bounds=bounds, held_by=held_by)

    def vertical_regression(
        self, target: str, *, bounds: Bounds, held_by: Mapping[str, Sequence[str]], name: str | None = None
    ) -> StudyBuilder[StudyType]:
        """A linear regression where the parties in `held_by` have different columns of the same people."""
        return self.query("vertical_regression", name=name, target=target, bounds=bounds, held_by=held_by)

    def joint_table(
        self, rows: Mapping[str, Any], columns: Mapping[str, Any], *, name: str | None = None
    ) -> StudyBuilder[StudyType]:
        """How many people there are with each pair of values of two parties.

        Both are such as `{"party": "bank", "column": "pay", "edges": [0, 10, 20]}`, or have `categories`.
        """
        return self.query("joint_table", name=name, rows=rows, columns=columns)

    def pair_function(
        self,
        function: str,
        *,
        bounds: Bounds,
        held_by: Mapping[str, Sequence[str]],
        sensitivity: float,
        largest: float,
        results: Sequence[str] | None = None,
        name: str | None = None,
    ) -> StudyBuilder[StudyType]:
        """What a JAX function `module:function` gives for the columns of two parties."""
        given = {"bounds": bounds, "held_by": held_by, "sensitivity": sensitivity, "largest": largest}
        return self.query("pair_function", name=name, function=function, **given, results=results)

    def build(self) -> StudyType:
        """The study, checked as a whole."""
        with _naming_call(".build()"):
            if not self.parties:
                remedy = 'add .party("north", epsilon=1, records=100) and another'
                raise InputError("parties", 0, "must be at least 2", remedy)
            if not self.queries:
                raise InputError("queries", 0, "must be at least 1", 'add such as .count("age", at_least=65)')
            for key, example in (("threshold", "threshold=1"), ("receivers", 'receivers="all"')):
                if key not in self.settings:
                    raise InputError(key, "(none)", "is missing", f"give it to Study.new, such as {example}")
            parties, queries = list(map(dict, self.parties)), list(map(dict, self.queries))
            return self.make({**self.settings, "parties": parties, "queries": queries}, self.kinds)


def begin_study(
    make: Callable[[Mapping[str, Any], Kinds], StudyType], kinds: Kinds, settings: Mapping[str, Any]
) -> StudyBuilder[StudyType]:
    """A builder without parties and queries; settings that are None are left out."""
    given = {key: plain_value(value) for key, value in settings.items() if value is not None}
    if isinstance(given.get("receivers"), str) and given["receivers"] != "all":
        given["receivers"] = [given["receivers"]]
    with _naming_call(f"Study.new({_quoted(given.get('name'))})"):
        read.check_keys("a study", given, ("name",), optional=STUDY_KEYS)
        read.title("name", given["name"])
        everywhere = parse_condition("where", str(given["where"])) if "where" in given else None
    return StudyBuilder(make, kinds, given, everywhere=everywhere)


@contextmanager
def _naming_call(call: str) -> Iterator[None]:
    """An error in the block names the call."""
    try:
        yield
    except InputError as error:
        raise InputError(f"{call}: {error.field}", error.value, error.rule, error.remedy) from None


def _quoted(name: Any) -> str:
    return f'"{shown(name)}"'


def _default_name(kind: str, subject: str, given: Mapping[str, Any]) -> str:
    name = str(kind).replace("_", " ") + (f" of {subject}" if subject else "")
    by = given.get("by")
    if isinstance(by, dict) and by:
        name += f" by {', '.join(by)}"
    return name + (f" where {given['where']}" if "where" in given else "")


def plain_value(value: Any) -> Any:
    """A value of Python as a study file would give it.

    >>> plain_value({"edges": range(3), "low": np.float64(0.5), "deadline": timedelta(minutes=2)})
    {'edges': [0, 1, 2], 'low': 0.5, 'deadline': '120s'}
    """
    if isinstance(value, timedelta):
        return f"{math.ceil(value.total_seconds())}s"
    if isinstance(value, Mapping):
        return {key: plain_value(each) for key, each in value.items()}
    if isinstance(value, np.generic | np.ndarray):
        return value.tolist()
    if isinstance(value, list | tuple | range):
        return [plain_value(each) for each in value]
    return value
