"""Kaplan and Meier's estimate of a survival curve, with its median and restricted mean, and how many are at risk."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from tpmdp._util.arrays import FloatArray
from tpmdp.errors import InputError
from tpmdp.queries.answer import Z_95, Answer, FurtherInterval
from tpmdp.queries.categories import exact_name
from tpmdp.queries.survival_curve import Estimate, FollowUp, SurvivalCurve, limits_within, median, restricted_mean
from tpmdp.queries.survival_query import MEDIAN, SurvivalQuery, risk_step

WITH_SAMPLING: Final = "noise and sampling"
_OPEN: Final = "it may lie beyond the last bin"
_HIDDEN: Final = "so few are at risk that noise hides the curve; it can only fall"


@dataclass(frozen=True)
class KaplanMeier(SurvivalQuery):
    """The share without the event after each bin of time, the median, the restricted mean and the numbers at risk.

    Within a bin, events come before censorings: who is censored in a bin is at risk in it.

    >>> query = KaplanMeier("relapse", "months", "relapsed", high=3, bins=3)
    >>> table = {"months": [0.5, 1.5, 1.6, 2.5], "relapsed": [1, 1, 0, 0]}
    >>> answers = query.answers(query.statistic(table), 4, 0.0)
    >>> [(answer.part, round(answer.value, 3)) for answer in answers]  # doctest: +NORMALIZE_WHITESPACE
    [('median', 2.0), ('restricted mean to 3', 2.25), ('at risk at 0', 4.0), ('at risk at 1', 3.0),
     ('at risk at 2', 1.0), ('survival to 1', 0.75), ('survival to 2', 0.5), ('survival to 3', 0.5)]
    """

    horizon: float = math.inf  # of the restricted mean; at most the last edge

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.horizon > self.times[0]:
            rule = "must be later than the first edge"
            raise InputError(
                f"horizon of {self.name}", exact_name(self.horizon), rule, "leave it out for the last edge"
            )

    @property
    def fine_parts(self) -> frozenset[str]:
        step, names = risk_step(self.count), [survival_part(time) for time in self.times[1:].tolist()]
        shown = names[step - 1 :: step]
        return frozenset(names).difference(shown)

    def answers(self, total: FloatArray, records: int, standard_error: float) -> list[Answer]:
        """The curve is that of numbers made to be possible; its intervals are of the noisy ones: Theory, "Survival"."""
        follow_up = self.follow_up(total, records, standard_error)
        curve = SurvivalCurve(follow_up)
        return [*self._summaries(curve), *self._at_risk(follow_up, records), *self._survival(curve)]

    def follow_up(self, total: FloatArray, records: int, standard_error: float) -> FollowUp:
        """What is read from the noisy vector; the number of records is public of all of them, or where it is stated."""
        return FollowUp.read(total, standard_error, size=self._known_size(records))

    def _known_size(self, records: int) -> float | None:
        return float(records) if self.mode == "all" else self.sizes[0] if self.sizes else None

    def _summaries(self, curve: SurvivalCurve) -> Iterator[Answer]:
        times, end = self.times, float(self.times[-1])
        middle = median(curve, times)
        reached = _OPEN if math.isinf(middle.noise[1]) else ""
        yield self._answer(
            MEDIAN, middle, reached, missing=f"more than half are left at {exact_name(end)}, or noise hides it"
        )
        horizon = min(self.horizon, end)
        hidden = (
            f"noise hides the curve beyond {exact_name(float(times[curve.clear]))}: the interval allows for anything"
        )
        note = hidden if curve.follow_up.error and horizon > times[min(curve.clear + 1, self.count)] else ""
        mean = restricted_mean(curve, times, horizon)
        yield self._answer(mean_part(horizon), mean, note, missing=_HIDDEN)

    def _answer(self, part: str, estimate: Estimate, note: str, *, missing: str) -> Answer:
        width = estimate.noise[1] - estimate.noise[0]
        value, note = (math.nan, missing) if estimate.value is None else (estimate.value, note)
        further = (FurtherInterval(WITH_SAMPLING, *estimate.full),)
        return Answer(
            self.name, value, width / (2 * Z_95), part=part, limits=estimate.noise, note=note, further=further
        )

    def _at_risk(self, follow_up: FollowUp, records: int) -> Iterator[Answer]:
        size = self._known_size(records)
        most = math.inf if size is None else size
        for place in range(0, self.count, risk_step(self.count)):
            value, error = float(follow_up.calm_at_risk[place]), float(follow_up.risk_errors[place])
            low, high = limits_within(float(follow_up.at_risk[place]), error, 0.0, high=most)
            limits = (min(low, value), max(high, value)) if error else None
            yield Answer(self.name, value, error, part=risk_part(float(self.times[place])), limits=limits)

    def _survival(self, curve: SurvivalCurve) -> Iterator[Answer]:
        bands = (curve.noise_band, curve.full_band)
        for place, time in enumerate(self.times[1:].tolist()):
            noise, full = ((float(each.low[place]), float(each.high[place])) for each in bands)
            further, part = (FurtherInterval(WITH_SAMPLING, *full),), survival_part(time)
            value = float(curve.values[place])
            if place < curve.clear:
                error = value * float(curve.noise[place])
                yield Answer(self.name, value, error, part=part, limits=noise, further=further)
            elif curve.follow_up.error:
                yield Answer.drowned(self.name, part, noise, note=_HIDDEN)
            else:
                yield Answer(self.name, value, 0.0, part=part, further=further)


def survival_part(time: float) -> str:
    """The name of the share without the event at a time."""
    return f"survival to {exact_name(time)}"


def risk_part(time: float) -> str:
    """The name of the number at risk at a time."""
    return f"at risk at {exact_name(time)}"


def mean_part(horizon: float) -> str:
    """The name of the restricted mean."""
    return f"restricted mean to {exact_name(horizon)}"
