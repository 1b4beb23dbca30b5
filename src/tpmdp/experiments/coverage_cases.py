"""What `tpmdp experiment coverage` tries: for each kind of query an entry of a study file, data, and the truth.

A new kind of query needs one entry in `CASES`.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

from tpmdp.data.table import Table
from tpmdp.experiments.coverage_data import COUNT_MOST, RECORDS, TIME_END, outcomes_of, records_of, times_of
from tpmdp.experiments.coverage_releases import Releases
from tpmdp.queries.answer import ALL_BINS, Answer
from tpmdp.queries.base import Query
from tpmdp.queries.catalogue import SUM_KINDS, make_query
from tpmdp.queries.log_rank import LogRank
from tpmdp.queries.log_rank_test import LogRankTest
from tpmdp.queries.subset import Where
from tpmdp.queries.survival_query import MEDIAN

PARTS: Final[Mapping[str, Mapping[str, Any]]] = {
    "all": {},
    "where": {"where": "w = 1"},
    "by": {"by": {"g": [0, 1]}},
}
_ALL_AND_WHERE: Final = ("all", "where")
Ends = tuple[float, float]


@dataclass(frozen=True)
class CoverageCase:
    """One kind of query: what is asked, of which data, and what is right."""

    entry: Mapping[str, Any]
    """As in a study file, without name and kind."""
    possible: Callable[[str], Ends]
    """Between which numbers the answer of this part may lie; infinite where it may be anything."""
    family: Callable[[str], str] = lambda _: ""
    """What the table calls the answer of this part; parts of one name share a row."""
    parts: tuple[str, ...] = tuple(PARTS)
    data: Callable[[str], Table] = records_of
    truth: Callable[[Releases], list[float]] = Releases.noiseless
    """Of the first answers or all; NaN where there is none."""
    truth_of: Callable[[Releases, Sequence[Answer]], list[float]] | None = None
    """The same of a release with these answers, where the noise decides what exactly they are of."""
    bands: tuple[str, ...] = field(default=())
    """Further intervals that hold for all answers at once, by what they cover."""
    cautious: str = ""
    """Why intervals may cover more than they need to, for people."""
    slow: bool = False

    def query(self, name: str, part: str) -> Query:
        """The query on all records, on some, or by group; the name is that of its kind, unless the entry has one."""
        query = make_query({"name": name, "kind": name, **self.entry, **PARTS[part]})
        assert isinstance(query, Query)
        return query


def _between(low: float, high: float) -> Callable[[str], Ends]:
    return lambda _: (low, high)


def _of_pair(part: str) -> str:
    """Whether a pair of columns is a column with itself."""
    *_, first, second = part.split(", ")
    return "a column with itself" if first == second else "two columns"


def _covariance_ends(part: str) -> Ends:
    return (0.0, 1.0) if _of_pair(part) == "a column with itself" else (-1.0, 1.0)


def _of_regression(part: str) -> str:
    name = part.split(", ")[-1]
    return name if name in ("intercept", "R squared") else "slopes"


def _regression_ends(part: str) -> Ends:
    return (0.0, 1.0) if _of_regression(part) == "R squared" else (-math.inf, math.inf)


def _last(part: str) -> str:
    """Of an answer by group, what it is without the group."""
    return part.split(", ")[-1]


def _of_curve(part: str) -> str:
    name = _last(part)
    return next((family for family in ("survival", "at risk", "restricted mean") if name.startswith(family)), name)


def _curve_ends(part: str) -> Ends:
    ends = {"survival": (0.0, 1.0), "at risk": (0.0, float(RECORDS)), "restricted mean": (_BIN, TIME_END)}
    return ends.get(_of_curve(part), (_BIN, TIME_END))


def _curve_truth(releases: Releases) -> list[float]:
    """A median that is not reached is endless, and intervals have to say so."""
    answers = releases.query.answers(releases.exact, RECORDS, 0.0)
    return [math.inf if _last(answer.part) == MEDIAN and answer.is_drowned else answer.value for answer in answers]


def _log_rank_truth(releases: Releases) -> list[float]:
    """Of the comparison; the curves that follow are those of `kaplan_meier` by group."""
    return _compared(releases, _BINS)


def _log_rank_truth_of(releases: Releases, answers: Sequence[Answer]) -> list[float]:
    """Where noise hides the end, the answer is of the time before, as its note says."""
    end = re.search(r"of the time to ([0-9.]+)", answers[2].note)
    return _compared(releases, round(float(end[1]) / _BIN) if end else _BINS)


def _compared(releases: Releases, bins: int) -> list[float]:
    """p value, chi-square, observed less expected and hazard ratio of the first bins; without events nothing differs.

    There is no hazard ratio then.
    """
    query = releases.query.query if isinstance(releases.query, Where) else releases.query
    assert isinstance(query, LogRank)
    whole = query.test_of(releases.exact, RECORDS, 0.0)
    first = ("at_risk", "staying", "calm_at_risk", "calm_events")
    test = LogRankTest(
        [replace(group, **{name: getattr(group, name)[:bins] for name in first}) for group in whole.groups]
    )
    difference = float(test.observed_less_expected[1])
    if not test.is_told:
        return [1.0, 0.0, difference, math.nan]
    square = test.chi_square()
    return [test.p_value(square), square, difference, math.exp(difference / float(test.sampling[1, 1]))]


def _of_comparison(part: str) -> str:
    return next((name for name in ("observed less expected", "hazard ratio") if name in part), part)


def _comparison_ends(part: str) -> Ends:
    counts = (-float(RECORDS), float(RECORDS))
    return {"p value": (0.0, 1.0), "observed less expected": counts}.get(_of_comparison(part), (0.0, math.inf))


def _of_model(part: str) -> str:
    return "intercept" if _last(part) == "intercept" else "slopes"


_X: Final = {"column": "x", "low": -1, "high": 1}
_PAIR: Final = {"x": [-1, 1], "y": [-1, 1]}
_BINS: Final = 8
_BIN: Final = TIME_END / _BINS
CASES: Final[Mapping[str, CoverageCase]] = {
    "count": CoverageCase({"column": "x", "at_least": -0.8}, _between(0, RECORDS)),
    "sum": CoverageCase(_X, _between(-RECORDS, RECORDS)),
    "mean": CoverageCase(_X, _between(-1, 1)),
    "variance": CoverageCase(_X, _between(0, 1)),
    "histogram": CoverageCase(
        {"column": "x", "edges": [-1, -0.9, -0.5, 0, 0.5, 1.1]}, _between(0, RECORDS), bands=(ALL_BINS,)
    ),
    "quantiles": CoverageCase({**_X, "bins": 20, "probabilities": [0.1, 0.5, 0.9]}, _between(-1, 1)),
    "covariance": CoverageCase({"bounds": _PAIR}, _covariance_ends, _of_pair, parts=_ALL_AND_WHERE),
    "correlation": CoverageCase({"bounds": _PAIR}, _between(-1, 1), parts=_ALL_AND_WHERE),
    "linear_regression": CoverageCase(
        {"target": "z", "bounds": {**_PAIR, "z": [-1, 1]}}, _regression_ends, _of_regression, parts=_ALL_AND_WHERE
    ),
    "distribution": CoverageCase({"column": "x", "edges": [-0.9, -0.5, 0, 0.5]}, _between(0, 1), bands=(ALL_BINS,)),
    "ranges": CoverageCase(
        {
            "kind": "histogram",
            "column": "x",
            "edges": [-1, -0.9, -0.5, 0, 0.5, 1.1],
            "ranges": [[-1, -0.5], [-0.9, 0.5], [0, 1.1], [-1, 1.1]],
        },
        _between(0, RECORDS),
    ),
    "kaplan_meier": CoverageCase(
        {"time": "time", "event": "event", "high": TIME_END, "bins": _BINS},
        _curve_ends,
        _of_curve,
        data=times_of,
        truth=_curve_truth,
        cautious=(
            "Releases in which noise hides the curve claim nothing, and those are the ones whose interval would miss. "
            "A restricted mean counts all that the curve may be where it is hidden, which is more than noise."
        ),
        slow=True,
    ),
    "logistic_regression": CoverageCase(
        {"target": "yes", "bounds": _PAIR}, _between(-math.inf, math.inf), _of_model, data=outcomes_of, slow=True
    ),
    "poisson_regression": CoverageCase(
        {"target": "times", "high": COUNT_MOST, "bounds": _PAIR},
        _between(-math.inf, math.inf),
        _of_model,
        data=outcomes_of,
        slow=True,
    ),
    "log_rank": CoverageCase(
        {"time": "time", "event": "event", "high": TIME_END, "bins": _BINS, "group": "g", "categories": [0, 1]},
        _comparison_ends,
        _of_comparison,
        parts=_ALL_AND_WHERE,
        data=times_of,
        truth=_log_rank_truth,
        truth_of=_log_rank_truth_of,
        cautious=(
            "Intervals count the noise of the numbers at risk as they are released. What is compared are numbers made "
            "to fall, which have less where the true ones stay the same for a while."
        ),
        slow=True,
    ),
}


def without_case() -> list[str]:
    """Kinds of the catalogue that have no case.

    >>> without_case()
    []
    """
    return [kind for kind in SUM_KINDS if kind not in CASES]


def is_untold(answer: Answer) -> bool:
    """Whether an answer says that the number cannot be told."""
    low, high = answer.interval
    return answer.is_drowned or not (math.isfinite(low) and math.isfinite(high))
