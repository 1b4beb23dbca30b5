"""The log-rank test: whether survival is the same in two or more groups, with the curve of each."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Final, Self

import numpy as np

from tpmdp._util.arrays import FloatArray
from tpmdp.data.table import ColumnKind, Table
from tpmdp.errors import InputError
from tpmdp.queries.answer import Z_95, Answer, FurtherInterval
from tpmdp.queries.base import BaseQuery, Mode, Query
from tpmdp.queries.categories import Categories, category_names, exact_name
from tpmdp.queries.guesses import TypicalData
from tpmdp.queries.kaplan_meier import WITH_SAMPLING, KaplanMeier
from tpmdp.queries.log_rank_test import LogRankTest
from tpmdp.queries.subset import GroupBy, Where
from tpmdp.queries.survival_query import MEDIAN, SurvivalQuery

P_VALUE: Final = "p value"
CHI_SQUARE: Final = "chi-square"
_COUNTED: Final = "counts the noise and sampling"
_HIDDEN: Final = "too few are at risk or have events for the noise"
_LOGARITHM_MOST: Final = 50.0
_FAR: Final = 3.0  # standard errors that the variance of the difference must have for a hazard ratio


@dataclass(frozen=True)
class LogRank(SurvivalQuery):
    """Whether survival is the same in the groups: chi-square, p value, hazard ratio, and the curve of each group.

    All come from one release. The test counts the noise beside sampling; without that, it would find differences that
    are noise.

    >>> query = LogRank("arms", "months", "died", high=3, bins=3, group="arm", categories=(0.0, 1.0))
    >>> table = {"months": np.array([0.5, 2.5, 1.5, 3]), "died": np.ones(4), "arm": np.array([0.0, 1, 0, 1])}
    >>> [(answer.part, round(answer.value, 2)) for answer in query.answers(query.statistic(table), 4, 0.0)[:3]]
    [('p value', 0.09), ('chi-square', 2.88), ('arm 1, observed less expected', -1.17)]
    """

    group: str = field(kw_only=True)
    categories: Categories = field(kw_only=True)

    def __post_init__(self) -> None:
        super().__post_init__()
        if len(self.categories) < 2:
            rule = "must be two or more, to be compared"
            raise InputError(f"categories of {self.name}", len(self.categories), rule, "name the groups")
        self.curves  # noqa: B018  # refuses what does not fit

    @cached_property
    def curves(self) -> GroupBy:
        """The curves of the groups: what is released is the same."""
        curve = KaplanMeier(
            self.name,
            self.time,
            self.event,
            edges=self.edges,
            low=self.low,
            high=self.high,
            bins=self.bins,
            sizes=self.sizes,
        )
        return GroupBy.of(curve, self.group, self.categories)

    @property
    def columns(self) -> Mapping[str, ColumnKind]:
        return self.curves.columns

    @property
    def dimension(self) -> int:
        return self.curves.dimension

    @property
    def spread(self) -> float:
        return self.curves.spread

    @property
    def size(self) -> float:
        return self.curves.size

    @property
    def fine_parts(self) -> frozenset[str]:
        return self.curves.fine_parts

    def resolution_of(self, part: str) -> float:
        return self.curves.query.resolution_of(MEDIAN) if part.endswith(f", {MEDIAN}") else 0.0

    def features(self, table: Table) -> list[FloatArray]:
        return self.curves.features(table)

    def statistic(self, table: Table, records: int | None = None) -> FloatArray:
        return self.curves.statistic(table, records)

    def selected(self, table: Table) -> Table:
        return self.curves.selected(table)

    def has_nothing(self, table: Table) -> bool:
        return self.curves.has_nothing(table)

    def guess(self, records: float, scenario: TypicalData) -> FloatArray:
        return self.curves.guess(records, scenario)

    def partial(self, mode: Mode) -> Query:
        return replace(self, mode=mode)

    def of_group(self, place: int, groups: int) -> Self:
        del place, groups
        if self.sizes:
            raise InputError(f"sizes of {self.name}", "(given)", "cannot be used with `by`", "remove one of the two")
        return self

    def check_study(self, records: int, tolerate: int, weighting: str) -> None:
        if weighting != "equal":
            rule = "cannot be used with a log-rank test: what sampling does to weighted sums is not known"
            raise InputError("weighting", weighting, rule, 'write weighting = "equal"')
        self.curves.check_study(records, tolerate, weighting)

    def answers(self, total: FloatArray, records: int, standard_error: float) -> list[Answer]:
        """The test before the curves: Theory, "Survival"."""
        test = self.test_of(total, records, standard_error)
        summaries = self._told(test) if test.is_told else self._hidden()
        return [*summaries, *self.curves.answers(total, records, standard_error)]

    def test_of(self, total: FloatArray, records: int, standard_error: float) -> LogRankTest:
        """The test from the noisy vector."""
        parts = np.split(total, len(self.categories))
        queries = [query for query in self.curves.inner_queries if isinstance(query, KaplanMeier)]
        pairs = zip(queries, parts, strict=True)
        return LogRankTest([query.follow_up(part, records, standard_error) for query, part in pairs])

    @property
    def _names(self) -> list[str]:
        return [f"{self.group} {name}" for name in category_names(self.categories)]

    def _parts(self) -> list[str]:
        differences = [f"{name}, observed less expected" for name in self._names[1:]]
        ratio = [f"hazard ratio, {self._names[1]} to {self._names[0]}"] if len(self._names) == 2 else []
        return [P_VALUE, CHI_SQUARE, *differences, *ratio]

    def _hidden(self) -> Iterator[Answer]:
        for part in self._parts():
            low = -math.inf if part.endswith("expected") else 0.0
            high = 1.0 if part == P_VALUE else math.inf
            yield Answer.drowned(self.name, part, (low, high), note=_HIDDEN)

    def _told(self, test: LogRankTest) -> Iterator[Answer]:
        p_part, square_part, *others = self._parts()
        note = "" if test.clear == self.count else f"of the time to {exact_name(float(self.times[test.clear]))}"
        counted = "; ".join(filter(None, [_COUNTED if test.noise.any() else "", note]))
        square, (low, high) = test.chi_square(), test.chi_square_limits()
        low, high = min(low, square), max(high, square)
        p_value, p_limits = test.p_value(square), (test.p_value(high), test.p_value(low))
        yield self._answer(p_part, p_value, p_limits, note=counted)
        yield self._answer(square_part, square, (low, high), note=counted)
        sampling, noise = (np.sqrt(np.maximum(np.diag(each), 0.0)) for each in (test.sampling, test.noise))
        for place in range(1, len(self._names)):
            value, error = float(test.observed_less_expected[place]), float(noise[place])
            full = math.hypot(error, float(sampling[place]))
            further = (FurtherInterval(WITH_SAMPLING, value - Z_95 * full, value + Z_95 * full),)
            yield Answer(self.name, value, error, part=others[place - 1], note=note, further=further)
        if len(self._names) == 2:
            yield self._hazard_ratio(test, others[-1], note)

    def _answer(self, part: str, value: float, limits: tuple[float, float], *, note: str) -> Answer:
        error = (limits[1] - limits[0]) / (2 * Z_95)
        return Answer(self.name, value, error, part=part, limits=limits, note=note)

    def _hazard_ratio(self, test: LogRankTest, part: str, note: str) -> Answer:
        """Peto's: the exponential of the difference over its variance; close to 1 if hazards are, else nearer to it."""
        variance, error = float(test.sampling[1, 1]), test.variance_error
        if variance < _FAR * error:
            return Answer.drowned(self.name, part, (0.0, math.inf), note=_HIDDEN)
        logarithm = float(test.observed_less_expected[1]) / variance
        noise = math.hypot(math.sqrt(max(float(test.noise[1, 1]), 0.0)), logarithm * error) / variance
        noise *= 1 + (error / variance) ** 2
        full = math.hypot(noise, 1 / math.sqrt(variance))
        value = _exponential(logarithm)
        limits, further = (
            (_exponential(logarithm - Z_95 * each), _exponential(logarithm + Z_95 * each)) for each in (noise, full)
        )
        wider = (FurtherInterval(WITH_SAMPLING, *further),)
        return Answer(self.name, value, value * noise, part=part, limits=limits, note=note, further=wider)


def _exponential(logarithm: float) -> float:
    return math.exp(min(max(logarithm, -_LOGARITHM_MOST), _LOGARITHM_MOST))


def survival_groups(query: BaseQuery) -> list[tuple[str, KaplanMeier]]:
    """The curves that a query answers, each with the name of its group; none for other kinds.

    >>> [name for name, _ in survival_groups(LogRank("q", "t", "e", high=9, group="arm", categories=("a", "b")))]
    ['arm a', 'arm b']
    """
    match query:
        case Where():
            return survival_groups(query.query)
        case LogRank():
            return survival_groups(query.curves)
        case GroupBy():
            inner = survival_groups(query.query)
            names = [f"{query.column} {name}" for name in category_names(query.categories)]
            return [(f"{name}, {group}" if group else name, each) for name in names for group, each in inner]
        case KaplanMeier():
            return [("", query)]
        case _:
            return []
