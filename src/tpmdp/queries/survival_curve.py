"""Survival curves from noisy sums, with intervals that count all noise: Theory, "Survival".

Everything is read from numbers of records n (at risk in a bin) and s (of these, without an event in it), which are
linear in the released vector, so that their errors are normal with known covariances. The curve is the product of s/n.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Final

import numpy as np

from tpmdp._util.arrays import FloatArray
from tpmdp.queries.answer import Z_95
from tpmdp.queries.prefix_factor import prefix_factor

CLEAR: Final = 3.0  # standard errors that n and s must have for a curve to be told
_FLOOR: Final = 5.0  # at risk: noise may not let a curve drop faster
_MOST_OF_RANGE: Final = 0.5  # an interval that is longer tells nothing
_NOTHING: Final = 1e-6  # at risk: nobody, where there is no noise but rounding


@dataclass(frozen=True, eq=False)
class _Reading:
    """How the noise of each entry enters n and d, the events: one row per bin. `size` is whether a total is known."""

    at_risk: FloatArray
    events: FloatArray

    @cached_property
    def errors(self) -> tuple[FloatArray, FloatArray]:
        """Standard errors of n and of s where each entry of the vector has noise of variance 1."""
        staying = self.at_risk - self.events
        return np.sqrt((self.at_risk**2).sum(axis=1)), np.sqrt((staying**2).sum(axis=1))


@lru_cache(maxsize=4)
def _reading(bins: int, is_known: bool) -> _Reading:
    sums = prefix_factor(bins).reading_matrix()
    nothing = np.zeros_like(sums)
    events, censored = np.hstack([sums, nothing]), np.hstack([nothing, sums])
    total = events[-1] + censored[-1]
    if is_known:  # the best linear estimates, given the sum of all counts
        share = (sums @ sums[-1]) / (2 * sums[-1] @ sums[-1])
        events, censored = events - np.outer(share, total), censored - np.outer(share, total)
        total = np.zeros(2 * bins)
    before = np.vstack([np.zeros(2 * bins), (events + censored)[:-1]])
    return _Reading(total - before, np.diff(events, axis=0, prepend=0.0))


@dataclass(frozen=True, eq=False)
class FollowUp:
    """What is read of one group: noisy numbers by bin, and the same made to be possible (`calm`)."""

    at_risk: FloatArray
    staying: FloatArray  # without an event in the bin
    calm_at_risk: FloatArray  # falling, not negative
    calm_events: FloatArray  # not negative, at most the number at risk
    error: float  # standard error of an entry of the vector
    reading: _Reading

    @classmethod
    def read(cls, vector: FloatArray, error: float, *, size: float | None) -> FollowUp:
        """From (C d, C c) plus noise of this standard error in each entry; `size` is the number of records, if public.

        >>> counts = [np.array([1, 2]), np.array([0, 7])]
        >>> vector = np.concatenate([prefix_factor(2).applied(each) for each in counts])
        >>> FollowUp.read(vector, 0.0, size=None).at_risk
        array([10.,  9.])
        """
        bins = len(vector) // 2
        factor = prefix_factor(bins)
        events, censored = factor.prefix_sums(vector[:bins]), factor.prefix_sums(vector[bins:])
        total = events[-1] + censored[-1]
        if size is not None:
            share = factor.covariances_with_total / (2 * factor.variances[-1])
            events, censored = events - share * (total - size), censored - share * (total - size)
            total = size
        calm_events, calm_censored = (_rising(each) for each in (events, censored))
        most = max(total if size is not None else calm_events[-1] + calm_censored[-1], 0.0)
        at_risk, calm = (
            whole - np.concatenate([[0.0], (happened + lost)[:-1]])
            for whole, happened, lost in ((total, events, censored), (most, calm_events, calm_censored))
        )
        calm = np.maximum(calm, 0.0)
        happened = np.minimum(np.diff(calm_events, prepend=0.0), calm)
        return cls(
            at_risk,
            at_risk - np.diff(events, prepend=0.0),
            calm,
            calm_events=happened,
            error=error,
            reading=_reading(bins, size is not None),
        )

    @cached_property
    def risk_errors(self) -> FloatArray:
        """Standard errors of the numbers at risk."""
        return self.error * self.reading.errors[0]

    @cached_property
    def clear(self) -> int:
        """The number of first bins in which noise does not hide how many are at risk, or how many of them stay."""
        least = [CLEAR * self.error * each for each in self.reading.errors]
        calm = self.calm_at_risk, self.calm_at_risk - self.calm_events
        pairs = zip((self.at_risk, self.staying), calm, least, strict=True)
        is_clear = np.all([(np.minimum(noisy, smooth) >= low) for noisy, smooth, low in pairs], axis=0)
        is_clear &= calm[1] > _NOTHING
        return len(is_clear) if is_clear.all() else int(np.argmin(is_clear))

    @cached_property
    def values(self) -> FloatArray:
        """Kaplan and Meier's curve after each bin, from the calm numbers."""
        floor = np.clip(self.risk_errors, _NOTHING, _FLOOR)
        return np.cumprod(1 - np.minimum(self.calm_events / np.maximum(self.calm_at_risk, floor), 1.0))


def _rising(sums: FloatArray) -> FloatArray:
    """The nearest sums that rise (isotonic regression), cut off below 0: where they would fall, runs are averaged.

    >>> _rising(np.array([-1.0, 3.0, 1.0, 4.0]))
    array([0., 2., 2., 4.])
    """
    levels: list[float] = []
    lengths: list[int] = []
    for value in sums.tolist():
        level, length = value, 1
        while levels and levels[-1] > level:
            before, many = levels.pop(), lengths.pop()
            level, length = (before * many + level * length) / (many + length), many + length
        levels.append(level)
        lengths.append(length)
    rising: FloatArray = np.repeat(np.array(levels), lengths)
    return np.maximum(rising, 0.0)


@dataclass(frozen=True, eq=False)
class Band:
    """95 % intervals of a curve after each bin, each for itself."""

    low: FloatArray
    high: FloatArray

    @cached_property
    def falling(self) -> Band:
        """Wider limits that fall as the curve does: for where it crosses a level."""
        return Band(np.minimum.accumulate(self.low), np.maximum.accumulate(self.high[::-1])[::-1])


@dataclass(frozen=True, eq=False)
class SurvivalCurve:
    """A curve with its noise: `gradient` is how the noise of each entry moves -log of the curve, in the clear bins.

    Where noise hides how many are at risk, nothing is known but that the curve falls on, and not below 0.
    """

    follow_up: FollowUp

    @property
    def clear(self) -> int:
        """The number of bins in which the curve is told."""
        return self.follow_up.clear

    @property
    def values(self) -> FloatArray:
        """The curve after each bin."""
        return self.follow_up.values

    @cached_property
    def gradient(self) -> FloatArray:
        """One row per clear bin."""
        reading, at_risk, staying = self.follow_up.reading, *self._calm
        rows = reading.at_risk[: self.clear] * (1 / at_risk - 1 / staying)[:, None]
        return np.cumsum(rows + reading.events[: self.clear] / staying[:, None], axis=0)

    @cached_property
    def _calm(self) -> tuple[FloatArray, FloatArray]:
        """The calm numbers at risk and staying, in the clear bins."""
        at_risk = self.follow_up.calm_at_risk[: self.clear]
        return at_risk, at_risk - self.follow_up.calm_events[: self.clear]

    @cached_property
    def _noisy(self) -> list[tuple[FloatArray, FloatArray]]:
        """The noisy numbers at risk and staying, in the clear bins, each with its standard errors."""
        numbers = self.follow_up.at_risk[: self.clear], self.follow_up.staying[: self.clear]
        units = (unit[: self.clear] for unit in self.follow_up.reading.errors)
        return [(each, self.follow_up.error * unit) for each, unit in zip(numbers, units, strict=True)]

    @cached_property
    def hazards(self) -> FloatArray:
        """-log of the curve after each clear bin, without the bias that noise would give the logarithms."""
        at_risk, staying = (np.log(number) + (error / number) ** 2 / 2 for number, error in self._noisy)
        return np.cumsum(at_risk - staying)

    @cached_property
    def widening(self) -> FloatArray:
        """What standard errors are multiplied by, as they are estimated from noisy numbers at risk themselves."""
        at_risk, staying = (error / number for number, error in self._noisy)
        return 1 + np.maximum.accumulate(np.maximum(at_risk, staying)) ** 2

    @cached_property
    def noise(self) -> FloatArray:
        """Standard errors of the hazards in the clear bins, of the noise alone."""
        errors: FloatArray = np.sqrt((self.gradient**2).sum(axis=1)) * self.widening
        return self.follow_up.error * errors

    @cached_property
    def sampling(self) -> FloatArray:
        """The same of sampling alone (Greenwood), from the calm numbers."""
        return np.asarray(np.sqrt(np.cumsum(self.sampling_variances)), dtype=np.float64)

    @cached_property
    def sampling_variances(self) -> FloatArray:
        """What sampling adds in each clear bin to the variance of the hazards (Greenwood)."""
        at_risk, staying = self._calm
        return 1 / staying - 1 / at_risk

    @cached_property
    def noise_band(self) -> Band:
        """Intervals that cover the curve without noise."""
        return self._band(self.noise) if self.follow_up.error else Band(self.values, self.values)

    @cached_property
    def full_band(self) -> Band:
        """Intervals that cover the curve of all people from whom the records are a sample."""
        return self._band(np.hypot(self.noise, self.sampling))

    def _band(self, errors: FloatArray) -> Band:
        clear, values = self.clear, self.values
        low, high = np.zeros(len(values)), np.ones(len(values))
        reach = np.hypot(Z_95 * errors, np.minimum(self.hazards, 0.0))
        low[:clear] = np.minimum(np.exp(-self.hazards - reach), values[:clear])
        high[:clear] = np.maximum(np.minimum(np.exp(-self.hazards + reach), 1.0), values[:clear])
        high[clear:] = high[clear - 1] if clear else 1.0
        return Band(low, high)


@dataclass(frozen=True)
class Estimate:
    """A number read off a curve, with its intervals; None for one that the curve does not reach."""

    value: float | None
    noise: tuple[float, float]
    full: tuple[float, float]  # counts sampling, too


def median(curve: SurvivalCurve, times: FloatArray) -> Estimate:
    """The first time after which at most half are left; infinite ends are beyond the last time.

    Limits are where limits of the curve that fall cross one half: Theory, "Survival".
    """
    value = _first_low(curve.values, times)
    bands = (curve.noise_band.falling, curve.full_band.falling)
    noise, full = ((min(_first_low(each.low, times), float(times[-1])), _first_low(each.high, times)) for each in bands)
    return Estimate(value if math.isfinite(value) else None, noise, full)


def _first_low(levels: FloatArray, times: FloatArray) -> float:
    """The time after the first bin at whose end a curve is at most one half."""
    low = levels <= 0.5 + _NOTHING  # what is one half but for rounding
    return float(times[1:][np.argmax(low)]) if low.any() else math.inf


def restricted_mean(curve: SurvivalCurve, times: FloatArray, horizon: float) -> Estimate:
    """The mean time until the event or the horizon: the area under the curve, which falls at the ends of bins.

    Beyond the clear bins the curve may be anything that falls, and the interval counts all of it.
    """
    clear = curve.clear
    widths = np.diff(np.minimum(times, horizon))
    factors = np.append(widths[1:], 0.0)  # of the curve after each bin
    least, most = float(times[0] + widths[0]), float(times[0] + widths.sum())
    value = least + float(factors @ curve.values)
    if not clear:
        is_exact = curve.follow_up.error == 0
        return Estimate(value if is_exact else None, (value, value) if is_exact else (least, most), (least, most))
    noise = curve.noise
    levels = factors[:clear] * np.exp(-curve.hazards - noise**2 / 2)
    used = int(np.flatnonzero(np.append(1.0, factors[1:clear]))[-1])  # the last bin that matters
    error = curve.follow_up.error * float(np.linalg.norm(levels @ curve.gradient)) * float(curve.widening[used])
    areas = np.cumsum(levels[::-1])[::-1]
    sampling = math.sqrt(float(areas**2 @ curve.sampling_variances))
    centre, tail = least + float(levels.sum()), float(factors[clear:].sum())
    ends = []
    for each, band in ((error, curve.noise_band), (math.hypot(error, sampling), curve.full_band)):
        low, high = limits_within(centre, each, least, high=most)
        ends.append((min(low, value), max(min(high + tail * float(band.high[clear - 1]), most), value)))
    if not curve.follow_up.error:
        ends[0] = value, value
    is_told = ends[0][1] - ends[0][0] <= _MOST_OF_RANGE * (most - least)
    return Estimate(value if is_told else None, *ends)


def limits_within(centre: float, error: float, low: float, *, high: float) -> tuple[float, float]:
    """The 95 % interval of a number known to lie in a range; from beyond it, the interval reaches into the range.

    >>> low, high = limits_within(1.5, 0.5, 0.0, high=1.0)
    >>> round(low, 3), high
    (0.4, 1.0)
    """
    reach = math.hypot(Z_95 * error, centre - min(max(centre, low), high))
    return max(centre - reach, low), min(centre + reach, high)
