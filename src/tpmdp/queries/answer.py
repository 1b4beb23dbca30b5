"""An answer: one number with its error bars."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import NormalDist
from typing import Any, Final

Z_95: Final = 1.959963984540054  # 97.5 % quantile of the standard normal distribution
ALL_BINS: Final = "all bins at once"  # what the bands of a histogram cover
BEYOND: Final = "noise took it beyond what is possible"
CANNOT_TELL: Final = "cannot be told: the noise allows all that is possible"


@dataclass(frozen=True)
class FurtherInterval:
    """Another 95 % interval of an answer, and in words what it covers: `Answer.interval` covers the noise alone."""

    covers: str
    low: float
    high: float


@dataclass(frozen=True)
class Answer:
    """One number with its error bars. They cover the noise and rounding added for privacy, not sampling.

    `part` names the number where a query gives several. `value` is NaN where the noise drowned it; `note` says why.
    `limits` is the 95 % interval where it is not symmetric.
    `note` is for people, for instance that the noise is larger than the answer. With weights, `noise` is the part of
    the standard error that is noise, and `always` the interval that holds even if data and budgets are related.
    `further` are intervals that cover more than the noise.
    """

    query: str
    value: float
    standard_error: float
    part: str = ""
    limits: tuple[float, float] | None = None
    note: str = ""
    noise: float | None = None
    always: tuple[float, float] | None = None
    further: tuple[FurtherInterval, ...] = ()

    @property
    def label(self) -> str:
        """Query and part.

        >>> Answer("ages", 10.0, 1.0, "0 to below 18").label
        'ages: 0 to below 18'
        """
        return f"{self.query}: {self.part}" if self.part else self.query

    @classmethod
    def drowned(cls, query: str, part: str, limits: tuple[float, float], *, note: str) -> Answer:
        """No answer, for the reason in the note; the truth lies within the limits.

        >>> Answer.drowned("mean", "", (0.0, 9.0), note="too few records").is_drowned
        True
        """
        return cls(query, math.nan, limits[1] - limits[0], part, limits=limits, note=note)

    @property
    def is_drowned(self) -> bool:
        """Whether there is no value, because noise hides it."""
        return math.isnan(self.value)

    @property
    def interval(self) -> tuple[float, float]:
        """The 95 % interval.

        >>> low, high = Answer("count", 10.0, 1.0).interval
        >>> round(low, 2), round(high, 2)
        (8.04, 11.96)
        """
        if self.limits is not None:
            return self.limits
        return self.value - Z_95 * self.standard_error, self.value + Z_95 * self.standard_error

    def within(self, low: float, high: float) -> Answer:
        """The same answer, cut to a range in which the truth is known to lie; says so if that is all one can say.

        Beyond the range by d standard errors the interval has sqrt(1.96^2 + d^2) of them to each side, as the
        likelihood ratio has it, so it reaches into the range.

        >>> Answer("share", 0.9, 0.1).within(0.0, 1.0).interval[1]
        1.0
        >>> round(Answer("share", 2.0, 0.1).within(0.0, 1.0).interval[0], 3)
        0.981
        """
        value = min(max(self.value, low), high)
        limits = self.interval
        if self.limits is None and value != self.value:
            reach = math.hypot(Z_95 * self.standard_error, self.value - value)
            limits = self.value - reach, self.value + reach
        limits = min(max(limits[0], low), high), min(max(limits[1], low), high)
        if limits == self.interval:
            return self
        note = self.note or ("" if value == self.value else BEYOND)
        if limits == (low, high):
            note = CANNOT_TELL
        return replace(self, value=value, limits=limits, note=note)

    @classmethod
    def between(
        cls, query: str, part: str, value: float, *, limits: tuple[float, float], possible: tuple[float, float]
    ) -> Answer:
        """An answer with this 95 % interval, which has noise, in a range in which the truth is known to lie.

        >>> Answer.between("share", "", 1.2, limits=(0.5, 1.3), possible=(0.0, 1.0)).interval
        (0.5, 1.0)
        """
        low, high = max(limits[0], possible[0]), min(limits[1], possible[1])
        if not low < high or (low, high) == possible:
            return cls.drowned(query, part, possible, note=CANNOT_TELL)
        note = "" if possible[0] <= value <= possible[1] else BEYOND
        return cls(query, min(max(value, low), high), (high - low) / (2 * Z_95), part, limits=(low, high), note=note)

    def plain(self) -> dict[str, Any]:
        """As values for JSON, where None stands for infinity, and for a value that the noise drowned.

        >>> Answer("count", 10.0, math.inf, limits=(0.0, math.inf)).plain()["high"] is None
        True
        """
        low, high = self.interval
        numbers = {"value": self.value, "standard_error": self.standard_error, "low": low, "high": high}
        if self.noise is not None and self.always is not None:
            numbers |= {"noise": self.noise, "always_low": self.always[0], "always_high": self.always[1]}
        finite = {key: _finite(number) for key, number in numbers.items()}
        further = {each.covers: [_finite(each.low), _finite(each.high)] for each in self.further}
        return {
            "query": self.query,
            "part": self.part,
            **finite,
            **({"further": further} if further else {}),
            "note": self.note,
        }

    @classmethod
    def of_plain(cls, values: Mapping[str, Any]) -> Answer:
        """The inverse of `plain`.

        >>> answer = Answer("count", 10.0, math.inf, limits=(0.0, math.inf))
        >>> Answer.of_plain(answer.plain()) == answer
        True
        """

        def read(key: str, infinite: float = math.inf) -> float:
            return infinite if values[key] is None else float(values[key])

        low, high = read("low", -math.inf), read("high")
        names = {key: values[key] for key in ("query", "part", "note")}
        value = math.nan if values["value"] is None else float(values["value"])
        answer = cls(value=value, standard_error=read("standard_error"), **names)
        if "noise" in values:
            always = read("always_low", -math.inf), read("always_high")
            answer = replace(answer, noise=read("noise"), always=always)
        further = tuple(
            FurtherInterval(covers, -math.inf if ends[0] is None else ends[0], math.inf if ends[1] is None else ends[1])
            for covers, ends in values.get("further", {}).items()
        )
        answer = replace(answer, further=further) if further else answer
        return answer if answer.interval == (low, high) else replace(answer, limits=(low, high))

    def further_interval(self, covers: str) -> tuple[float, float] | None:
        """The further interval that covers this.

        >>> answer = Answer("old", 9.0, 1.0, further=(FurtherInterval("noise and sampling", 5.0, 13.0),))
        >>> answer.further_interval("noise and sampling"), answer.further_interval("all bins at once")
        ((5.0, 13.0), None)
        """
        return next(((each.low, each.high) for each in self.further if each.covers == covers), None)


def with_bands(answers: Sequence[Answer]) -> list[Answer]:
    """Answers with independent normal noise, each with a further interval; all these hold at once in 95 % of releases.

    That is exact: K independent ones all stay within c standard errors with chance (2 Phi(c) - 1)^K. Theory, Q23.

    >>> both = with_bands([Answer("h", 5.0, 1.0, "a"), Answer("h", 7.0, 1.0, "b")])
    >>> [round(end, 3) for end in both[0].further_interval(ALL_BINS)]
    [2.764, 7.236]
    """
    if len(answers) < 2:
        return list(answers)
    errors = NormalDist().inv_cdf((1 + 0.95 ** (1 / len(answers))) / 2)
    bands = []
    for answer in answers:
        reach = errors * answer.standard_error
        band = FurtherInterval(ALL_BINS, answer.value - reach, answer.value + reach)
        others = tuple(each for each in answer.further if each.covers != ALL_BINS)
        bands.append(replace(answer, further=(*others, band)))
    return bands


def further_names(answers: Iterable[Answer]) -> list[str]:
    """What further intervals of these answers cover, each once.

    >>> further_names([Answer("old", 9.0, 1.0), Answer("old", 9.0, 1.0, further=(FurtherInterval("a", 5.0, 13.0),))])
    ['a']
    """
    return list(dict.fromkeys(each.covers for answer in answers for each in answer.further))


def _finite(number: float) -> float | None:
    return number if math.isfinite(number) else None
