"""Queries about times until an event, some of which are censored: what they read and release.

Time is cut into public bins. Of every group the parties count the events d and the censorings c in each bin; released
is (C d, C c), from which sums over the first bins are read with little noise: see `prefix_factor`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import ClassVar, Final, Self

import numpy as np

from tpmdp._util.arrays import FloatArray, IntArray
from tpmdp.data.table import ColumnKind, Table
from tpmdp.errors import InputError
from tpmdp.queries.base import Mode, Query
from tpmdp.queries.bins import check_edges
from tpmdp.queries.categories import exact_name
from tpmdp.queries.guesses import TypicalData
from tpmdp.queries.prefix_factor import STEP, PrefixFactor, prefix_factor
from tpmdp.queries.ranges import Range

BINS_MAX: Final = 1000
MEDIAN: Final = "median"
_RISKS_MOST: Final = 6  # times at which the number at risk is told
_EVENT: Final = 1.0
_SHARES: Final = (0.02, 0.98)  # of records with an event, in made-up data
_LOST: Final = 0.2  # of the records drop out before the end, in made-up data


@dataclass(frozen=True)
class SurvivalQuery(Query):
    """Times in public bins; where `event` is 1 the time is that of the event, otherwise the record is censored then.

    Times below the first edge count as in the first bin. From the last edge on nothing is known of a record but that it
    had no event before: it is censored in the last bin.
    """

    time: str
    event: str
    edges: tuple[float, ...] = ()
    low: float = 0.0
    high: float = -math.inf
    bins: int = 50
    sizes: tuple[float, ...] = ()  # public numbers of records of the groups

    leaves: ClassVar[str] = (
        "weighted sums of the numbers of events, and of censored records, in the bins up to each time"
    )
    step: ClassVar[float] = STEP
    has_parts: ClassVar[bool] = True

    def __post_init__(self) -> None:
        if bool(self.edges) == math.isfinite(self.high):
            value = "both" if self.edges else "neither"
            raise InputError(f"edges or high of {self.name}", value, "must be one of the two", "give one")
        if self.edges:
            check_edges(self.name, self.edges)
            if not all(map(math.isfinite, self.edges)):
                raise InputError(f"edges of {self.name}", "inf", "must be finite", "later times need no edge")
            Range(self.name, self.edges[0], self.edges[-1])  # checks them
        else:
            Range(self.name, self.low, self.high)
        if not 1 <= self.count <= BINS_MAX:
            raise InputError(f"bins of {self.name}", self.count, f"must be from 1 to {BINS_MAX}", "change it")
        if not all(math.isfinite(size) and size >= 1 and size == int(size) for size in self.sizes):
            text = ", ".join(map(exact_name, self.sizes[:20]))
            raise InputError(f"sizes of {self.name}", text, "must be numbers of records", "give one for each group")

    @property
    def columns(self) -> Mapping[str, ColumnKind]:
        return {self.time: "number", self.event: "number"}

    @property
    def count(self) -> int:
        """The number of bins."""
        return len(self.edges) - 1 if self.edges else self.bins

    @property
    def times(self) -> FloatArray:
        """The edges of the bins, each in units of the column."""
        return np.array(self.edges) if self.edges else np.linspace(self.low, self.high, self.bins + 1)

    @property
    def factor(self) -> PrefixFactor:
        """C."""
        return prefix_factor(self.count)

    @property
    def dimension(self) -> int:
        return 2 * self.count

    @property
    def spread(self) -> float:
        """A record leaves one bin of one of the two histograms and enters another."""
        return self.factor.pair_distance

    @property
    def size(self) -> float:
        return self.factor.norm

    def _places(self, table: Table) -> tuple[IntArray, IntArray]:
        """The bin of every record that has an event, and of every one that is censored; -1 for the others."""
        times = self.times
        values, events = np.asarray(table[self.time]), np.asarray(table[self.event])
        place = np.clip(np.searchsorted(times, values, side="right") - 1, 0, self.count - 1)
        is_event = (events == _EVENT) & (values < times[-1])
        return np.where(is_event, place, -1), np.where(is_event, -1, place)

    def features(self, table: Table) -> list[FloatArray]:
        return [feature for places in self._places(table) for feature in self.factor.features(places)]

    def statistic(self, table: Table, records: int | None = None) -> FloatArray:
        """C times the party's counts, without a column for each bin."""
        del records
        counts = [np.bincount(places[places >= 0], minlength=self.count) for places in self._places(table)]
        return np.concatenate([self.factor.applied(each) for each in counts])

    def resolution_of(self, part: str) -> float:
        return float(np.diff(self.times).max()) if part == MEDIAN else 0.0

    def typical(self, records: float) -> FloatArray:
        return self.guess(records, TypicalData())

    def guess(self, records: float, scenario: TypicalData) -> FloatArray:
        """Events at a constant rate; some records drop out evenly over time, the others are followed to the end.

        Where the study guesses the times, and for hard data, which end early, they are like a bell instead.
        """
        number = self.sizes[0] if self.sizes else records
        is_guessed = any(each.column == self.event for each in scenario.columns)
        share = (scenario.shape(Range(self.event, 0.0, 1.0))[0] + 1) / 2 if is_guessed else scenario.share
        share = min(max(share, _SHARES[0]), _SHARES[1])
        is_bell = scenario.middle < 0 or any(each.column == self.time for each in scenario.columns)
        counts = self._bell if is_bell else self._constant_rate
        events, censored = counts(share, scenario)
        return number * np.concatenate([self.factor.product(each) for each in (events, censored)])

    def _constant_rate(self, share: float, scenario: TypicalData) -> tuple[FloatArray, FloatArray]:
        """Shares of the records that have an event, and that are censored, in each bin."""
        del scenario
        times = self.times
        passed = (times - times[0]) / (times[-1] - times[0])
        at_risk = (1 - share) ** passed * (1 - _LOST * passed)
        events = at_risk[:-1] * -np.expm1(np.diff(passed) * math.log1p(-share))
        censored = -np.diff(at_risk) - events
        censored[-1] += at_risk[-1]
        return events, censored

    def _bell(self, share: float, scenario: TypicalData) -> tuple[FloatArray, FloatArray]:
        times = self.times
        mean, deviation = scenario.shape(Range(self.time, float(times[0]), float(times[-1])))
        places = ((times - times[0]) / (times[-1] - times[0]) * 2 - 1 - mean) / deviation
        below = np.array([(1 + math.erf(place / math.sqrt(2))) / 2 for place in places.tolist()])
        counts = np.diff(below)
        counts[0] += below[0]
        censored = (1 - share) * counts
        censored[-1] += 1 - below[-1]
        return share * counts, censored

    def partial(self, mode: Mode) -> Query:
        if mode == "some" and len(self.sizes) > 1:
            raise _not_one_size(self, 1)
        return replace(self, mode=mode)

    def of_group(self, place: int, groups: int) -> Self:
        if self.sizes and len(self.sizes) != groups:
            raise _not_one_size(self, groups)
        return replace(self, sizes=self.sizes[place : place + 1]) if self.sizes else self

    def check_study(self, records: int, tolerate: int, weighting: str) -> None:
        if not self.sizes:
            return
        if self.mode == "all":
            rule = "are of groups or of a part, and the number of all records is known"
            raise InputError(f"sizes of {self.name}", "(given)", rule, "remove it, or give `by`")
        field = f"sizes of {self.name}"
        if sum(self.sizes) > records:
            raise InputError(field, exact_name(sum(self.sizes)), f"are more than all {records} records", "correct them")
        if tolerate or weighting != "equal":
            reason = "tolerate" if tolerate else "weighting"
            rule = f"cannot be used with `{reason}`, which leaves it open how many records are counted"
            raise InputError(field, "(given)", rule, "remove one of the two")


def _not_one_size(query: SurvivalQuery, groups: int) -> InputError:
    rule = f"must be one number for each of {groups} groups, in their order"
    return InputError(f"sizes of {query.name}", len(query.sizes), rule, "add or remove some")


def risk_step(bins: int) -> int:
    """How many bins lie between times at which the number at risk is told; it divides the bins if that is possible.

    >>> [risk_step(bins) for bins in (1, 6, 24, 50, 53, 200)]
    [1, 1, 4, 10, 9, 40]
    """
    least = math.ceil(bins / _RISKS_MOST)
    return next((step for step in range(least, 2 * least + 1) if bins % step == 0), least)
