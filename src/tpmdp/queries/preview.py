"""The error that a run would have: the query is answered from made-up sums again and again, with new noise.

Answers that are linear in the sums need no simulation. For others the error depends on the data, so several ways that
the data might be are tried (`Guesses.scenarios`).
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import Final

import numpy as np

from tpmdp._util.arrays import FloatArray
from tpmdp.queries.answer import Z_95, Answer
from tpmdp.queries.base import BaseQuery
from tpmdp.queries.guesses import Guesses, TypicalData
from tpmdp.queries.subset import GroupBy, Where

_DRAWS_MAX: Final = 300
_DRAWS_MIN: Final = 20
_WORK: Final = 20_000  # draws times entries
_DIMENSION_MAX: Final = 2_000  # above, no simulation
_FEW: Final = 0.05  # of the runs must give an answer for an error to be stated
_SAME: Final = 0.15  # a simulated error this close to the one in the error bars confirms it
NEAR: Final = 1.5  # a preview keeps within this factor, or says that it cannot
_CLOSE: Final = 1.25  # an error that varies less with the data is called known: other data may be harder still
MAY: Final = 0.025  # of the runs: where more drown, a user should know


@dataclass(frozen=True)
class PreviewedError:
    """The standard error of one answer (95 % of the runs keep within 1.96 of them), and how often there is none.

    `least` and `most` are for data that are kind or hard to the query; `likely` is for those in between, or as guessed.
    An error is None where nearly every run drowns. A run is weak if its answer is drowned or has no interval.
    """

    likely: float | None
    least: float | None
    most: float | None
    drowned: float = 0.0  # share of the runs without an answer, for likely data
    weak: float = 0.0  # share of the weak runs, for likely data
    weak_most: float = 0.0  # for hard data
    reason: str = ""  # why they are weak
    resolution: float = 0.0  # a smaller error cannot be told
    is_simulated: bool = True
    is_guess: bool = False  # nobody said what typical sums are, or the query is too large to simulate

    @property
    def is_known(self) -> bool:
        """Whether the error hardly depends on what nobody has guessed.

        >>> PreviewedError(1.0, 0.9, 1.2).is_known, PreviewedError(1.0, 0.9, 9.0).is_known
        (True, False)
        """
        if self.is_guess or self.may_drown or self.is_fine or None in (self.likely, self.least, self.most):
            return False
        assert self.likely is not None
        assert self.least is not None
        assert self.most is not None
        return self.most <= _CLOSE * self.likely and self.likely <= _CLOSE * self.least

    @property
    def is_fine(self) -> bool:
        """Whether the noise matters less than the bins that a query puts values into."""
        return self.most is not None and Z_95 * self.most < self.resolution

    @property
    def may_drown(self) -> bool:
        """Whether some runs would give no answer, or one without an interval."""
        return max(self.weak, self.weak_most) > MAY

    @property
    def would_drown(self) -> bool:
        """Whether most runs would give no answer, even for likely data."""
        return self.drowned >= 0.5 or (self.likely is None and not self.is_guess)


def preview(
    query: BaseQuery, records: int, noise: float, *, guesses: Guesses, bars: list[float], error: float | None = None
) -> list[PreviewedError]:
    """One error for each answer; `bars` are the standard errors that the query itself states for likely data.

    `noise` is the standard error of an entry that the answer knows of, and `error` the real one, if that is larger.
    """
    if query.is_linear or not noise:
        return [PreviewedError(each, each, each, is_simulated=False) for each in bars]
    stated = [each if np.isfinite(each) else None for each in bars]
    unknown = [PreviewedError(each, each, each, is_guess=True) for each in stated]
    if _inner(query).dimension > _DIMENSION_MAX:
        return unknown
    real = noise if error is None else error
    simulation = _Simulation(records, noise, real)
    runs = [simulation.runs(query, float(records), scenario) for scenario in guesses.scenarios()]
    if any(len(each) != len(bars) for each in runs):  # a custom query whose answers depend on the noise
        return unknown
    kind = type(_inner(query))
    has_typical = kind.typical is not BaseQuery.typical or kind.guess is not BaseQuery.guess
    result = []
    for bar, each in zip(bars, zip(*runs, strict=True), strict=True):
        likely = each[0].error
        if likely is not None and abs(likely - bar) <= _SAME * likely:
            likely = bar
        errors = [error for error in (likely, *(run.error for run in each[1:])) if error is not None]
        result.append(
            PreviewedError(
                likely,
                min(errors, default=None),
                max(errors, default=None),
                drowned=each[0].drowned,
                weak=each[0].weak,
                weak_most=max(run.weak for run in each),
                resolution=each[0].resolution,
                reason=next((run.reason for run in each if run.reason), ""),
                is_guess=not has_typical,
            )
        )
    return result


def _inner(query: BaseQuery) -> BaseQuery:
    while isinstance(query, Where | GroupBy):
        query = query.query
    return query


@dataclass(frozen=True)
class _Runs:
    error: float | None
    drowned: float
    weak: float
    reason: str
    resolution: float


class _Simulation:
    """Runs with noise of this size; data that look the same to a query are simulated once."""

    def __init__(self, records: int, noise: float, error: float) -> None:
        self._records, self._noise, self._error = records, noise, error
        self._known: dict[bytes, list[_Runs]] = {}

    def runs(self, query: BaseQuery, counted: float, scenario: TypicalData) -> list[_Runs]:
        """What simulated runs give for each answer; `counted` is how many records count."""
        if isinstance(query, Where):
            return self.runs(query.query, counted * scenario.share, scenario)
        if isinstance(query, GroupBy):
            groups = len(query.categories)
            crowd = counted / groups * scenario.crowd
            return [run for each in query.inner_queries for run in self.runs(each, crowd, scenario)]
        total = np.asarray(query.guess(counted, scenario), dtype=np.float64)
        key = total.tobytes()
        if key not in self._known:
            self._known[key] = self._simulate(query, total)
        return self._known[key]

    def _simulate(self, query: BaseQuery, total: FloatArray) -> list[_Runs]:
        truth = self._answers(query, total, 0.0)
        random = np.random.default_rng(0)  # nothing secret depends on it
        draws = min(max(_WORK // query.dimension, _DRAWS_MIN), _DRAWS_MAX)
        noise = self._error * random.normal(size=(draws, len(total)))
        answers = [self._answers(query, total + each, self._noise) for each in noise]
        if {len(run) for run in answers} != {len(truth)}:
            return []
        return [
            _summary(answer.value, [run[place] for run in answers], query.resolution_of(answer.part))
            for place, answer in enumerate(truth)
        ]

    def _answers(self, query: BaseQuery, total: FloatArray, noise: float) -> list[Answer]:
        """None where the code of a custom query fails."""
        try:
            return query.estimates(total, self._records, noise)
        except (ArithmeticError, LookupError, TypeError, ValueError):
            if not query.code:
                raise
            return []


def _summary(truth: float, runs: list[Answer], resolution: float) -> _Runs:
    off = [abs(run.value - truth) for run in runs if not run.is_drowned]
    weak = Counter(run.note for run in runs if run.is_drowned or not np.isfinite(run.interval[1] - run.interval[0]))
    enough = len(off) >= max(2, _FEW * len(runs)) and np.isfinite(truth)
    error = float(np.quantile(off, 0.95)) / Z_95 if enough else None
    reason = weak.most_common(1)[0][0] if weak else ""
    return _Runs(error, 1 - len(off) / len(runs), weak.total() / len(runs), reason=reason, resolution=resolution)
