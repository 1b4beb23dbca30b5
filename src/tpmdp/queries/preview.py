"""The error that a run would have: the query is answered from made-up sums again and again, with new noise.

Answers that are linear in the sums need no simulation. For others the error depends on the data, so several ways that
the data might be are tried (`Guesses.scenarios`).
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import Final

import numpy as np

from tpmdp.queries.answer import Z_95
from tpmdp.queries.base import BaseQuery
from tpmdp.queries.guesses import Guesses, Scenario
from tpmdp.queries.subset import GroupBy, Where

_DRAWS_MAX: Final = 400
_DRAWS_MIN: Final = 20
_WORK: Final = 40_000  # draws times entries
_DIMENSION_MAX: Final = 2_000  # above, no simulation
_SAME: Final = 0.15  # a simulated error this close to the one in the error bars confirms it
NEAR: Final = 1.5  # errors within this factor are called the same
MAY: Final = 0.025  # of the runs: where more drown, a user should know


@dataclass(frozen=True)
class PreviewedError:
    """The standard error of one answer (a 95 % interval is 1.96 of them), and how often the noise drowns it.

    `least` and `most` are for data that are kind or hard to the query; `likely` is for those in between, or as guessed.
    An error is None where nearly every run drowns.
    """

    likely: float | None
    least: float | None
    most: float | None
    drowned: float = 0.0  # share of the runs, for likely data
    drowned_most: float = 0.0  # for hard data
    reason: str = ""  # why it drowns
    is_simulated: bool = True
    is_guess: bool = False  # nobody said what typical sums are

    @property
    def is_known(self) -> bool:
        """Whether the error hardly depends on what nobody has guessed.

        >>> PreviewedError(1.0, 0.9, 1.2).is_known, PreviewedError(1.0, 0.9, 9.0).is_known
        (True, False)
        """
        if self.is_guess or self.may_drown or None in (self.likely, self.least, self.most):
            return False
        assert self.likely is not None
        assert self.least is not None
        assert self.most is not None
        return self.most <= NEAR * self.likely and self.likely <= NEAR * self.least

    @property
    def may_drown(self) -> bool:
        """Whether some runs would give no answer, or one without an interval."""
        return max(self.drowned, self.drowned_most) > MAY

    @property
    def would_drown(self) -> bool:
        """Whether most runs would, even for likely data."""
        return self.drowned >= 0.5


def preview(
    query: BaseQuery, records: int, noise: float, *, guesses: Guesses, bars: list[float], error: float | None = None
) -> list[PreviewedError]:
    """One error for each answer; `bars` are the standard errors that the query itself states for likely data.

    `noise` is the standard error of an entry that the answer knows of, and `error` the real one, if that is larger.
    """
    if query.is_linear or not noise or query.dimension > _DIMENSION_MAX:
        return [PreviewedError(each, each, each, is_simulated=False) for each in bars]
    real = noise if error is None else error
    runs = [_runs(query, records, float(records), noise=noise, error=real, scenario=s) for s in guesses.scenarios()]
    has_typical = type(_inner(query)).typical is not BaseQuery.typical
    result = []
    for stated, each in zip(bars, zip(*runs, strict=True), strict=True):
        likely = each[0].error
        if likely is not None and abs(likely - stated) <= _SAME * likely:
            likely = stated
        errors = [one for one in (likely, *(run.error for run in each[1:])) if one is not None]
        result.append(
            PreviewedError(
                likely,
                min(errors, default=None),
                max(errors, default=None),
                drowned=each[0].drowned,
                drowned_most=max(run.drowned for run in each),
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
    reason: str


def _runs(
    query: BaseQuery, records: int, counted: float, *, noise: float, error: float, scenario: Scenario
) -> list[_Runs]:
    """What simulated runs give for each answer; `counted` is how many records count."""
    if isinstance(query, Where):
        return _runs(query.query, records, counted * scenario.share, noise=noise, error=error, scenario=scenario)
    if isinstance(query, GroupBy):
        groups = len(query.categories)
        size = counted / groups * scenario.crowd
        return groups * _runs(query.query, records, size, noise=noise, error=error, scenario=scenario)
    total = np.asarray(query.guess(counted, scenario), dtype=np.float64)
    truth = [answer.value for answer in query.estimates(total, records, 0.0)]
    random = np.random.default_rng(0)  # nothing secret depends on it
    draws = min(max(_WORK // query.dimension, _DRAWS_MIN), _DRAWS_MAX)
    answers = [query.estimates(total + error * random.normal(size=len(total)), records, noise) for _ in range(draws)]
    result = []
    for place, value in enumerate(truth):
        runs = [answer[place] for answer in answers]
        off = [abs(run.value - value) for run in runs if not run.is_drowned]
        weak = Counter(run.note for run in runs if not np.isfinite(run.interval[1] - run.interval[0]) or run.is_drowned)
        quantile = float(np.quantile(off, 0.95)) / Z_95 if len(off) >= max(2, 0.05 * draws) else None
        reason = weak.most_common(1)[0][0] if weak else ""
        result.append(_Runs(quantile, weak.total() / draws, reason))
    return result
