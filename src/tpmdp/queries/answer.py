"""An answer: one number with its error bars."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

Z_95: Final = 1.959963984540054  # 97.5 % quantile of the standard normal distribution


@dataclass(frozen=True)
class Answer:
    """One number with its error bars. They cover the noise and rounding added for privacy, not sampling.

    `part` names the number where a query gives several. `value` is NaN where the noise drowned it; `note` says why.
    `limits` is the 95 % interval where it is not symmetric.
    `note` is for people, for instance that the noise is larger than the answer. With weights, `noise` is the part of
    the standard error that is noise, and `always` the interval that holds even if data and budgets are related.
    """

    query: str
    value: float
    standard_error: float
    part: str = ""
    limits: tuple[float, float] | None = None
    note: str = ""
    noise: float | None = None
    always: tuple[float, float] | None = None

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
        """The same answer, cut to a range in which the truth is known to lie.

        >>> Answer("share", 0.9, 0.1).within(0.0, 1.0).interval[1]
        1.0
        """
        limits = tuple(min(max(limit, low), high) for limit in self.interval)
        if limits == self.interval:
            return self
        note = self.note or ("" if low <= self.value <= high else "noise took it beyond what is possible")
        return replace(self, value=min(max(self.value, low), high), limits=(limits[0], limits[1]), note=note)

    def plain(self) -> dict[str, Any]:
        """As values for JSON, where None stands for infinity, and for a value that the noise drowned.

        >>> Answer("count", 10.0, math.inf, limits=(0.0, math.inf)).plain()["high"] is None
        True
        """
        low, high = self.interval
        numbers = {"value": self.value, "standard_error": self.standard_error, "low": low, "high": high}
        if self.noise is not None and self.always is not None:
            numbers |= {"noise": self.noise, "always_low": self.always[0], "always_high": self.always[1]}
        finite = {key: number if math.isfinite(number) else None for key, number in numbers.items()}
        return {"query": self.query, "part": self.part, **finite, "note": self.note}

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
        return answer if answer.interval == (low, high) else replace(answer, limits=(low, high))
