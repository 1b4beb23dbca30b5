"""Covariances and correlations of several columns, with public bounds."""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from itertools import combinations, combinations_with_replacement
from typing import ClassVar, Final

from tpmdp._util.arrays import FloatArray
from tpmdp.errors import InputError
from tpmdp.queries.answer import CANNOT_TELL, Answer
from tpmdp.queries.confidence import Gradients, below_parabola
from tpmdp.queries.moments import Moments, MomentsQuery, Ranges
from tpmdp.queries.noisy_moments import NoisyMoments, correlation, covariance
from tpmdp.queries.ranges import Range


@dataclass(frozen=True)
class PairStatistic:
    """A number of every pair of columns, and what is known of it when it is read from noisy moments."""

    function: Gradients  # from sums for columns in [-1, 1]
    with_itself: bool  # whether a column makes a pair with itself, as a variance
    has_units: bool  # whether the number is in the units of the columns; otherwise it lies in [-1, 1]
    room: Callable[[NoisyMoments], float]  # how far it is to sums without an answer; 0 if the noise may have done that
    outside: Callable[[NoisyMoments, float], float]  # how far the sums are from those with a possible answer

    def answers(
        self,
        name: str,
        moments: Moments,
        total: FloatArray,
        *,
        records: int,
        error: float,
        bias: float = 0.0,
        bars: bool = True,
    ) -> list[Answer]:
        """One for each pair. `bias` is as in `NoisyMoments`; without `bars` there are no intervals."""
        sums = NoisyMoments(moments.matrix(total, records), error, moments.counted, bias=bias)
        places = range(1, moments.count + 1)
        pairs = combinations_with_replacement(places, 2) if self.with_itself else combinations(places, 2)
        return [
            self._answer(name, sums.of(*dict.fromkeys(pair)), [moments.ranges[place - 1] for place in pair], bars=bars)
            for pair in pairs
        ]

    def _answer(self, name: str, block: NoisyMoments, ranges: list[Range], *, bars: bool) -> Answer:
        part = ", ".join(each.column for each in ranges)
        most = ranges[0].width * ranges[1].width / 4 if self.has_units else 1.0
        possible = (0.0 if ranges[0] == ranges[1] else -most, most)
        room = self.room(block)
        if not room:
            return Answer.drowned(name, part, possible, note=CANNOT_TELL)
        value = float(self.function(block.sums)[0])
        if not bars or not (block.error or block.bias):
            return Answer(name, min(max(value * most, possible[0]), possible[1]), 0.0, part=part)
        (low,), (high,) = block.interval(self.function, room=room, outside=self.outside(block, value))
        limits = float(low) * most, float(high) * most
        return Answer.between(name, part, value * most, limits=limits, possible=possible)


def _room_of_covariance(block: NoisyMoments) -> float:
    if not block.counted:
        return math.inf if block.sums[0, 0] > 0 else 0.0
    return float(block.sums[0, 0]) if block.of().is_clear() else 0.0


def _outside_of_covariance(block: NoisyMoments, value: float) -> float:
    count = float(block.sums[0, 0])
    beyond = max(abs(value) - 1, 0.0)
    if len(block.sums) > 2:
        return math.sqrt(2) * count * beyond
    mean, square = (block.sums[0, 1] / count, block.sums[1, 1] / count)
    return count * (below_parabola(float(mean), float(square), 2.0) if value < 0 else beyond)


def _room_of_correlation(block: NoisyMoments) -> float:
    """0 also where a variance might be noise only."""
    variances = [block.of(place) for place in (1, 2)]
    return min(each.room for each in variances) if all(each.is_clear() for each in variances) else 0.0


def _outside_of_correlation(block: NoisyMoments, value: float) -> float:
    del value
    return block.outside


COVARIANCE: Final = PairStatistic(
    covariance, with_itself=True, has_units=True, room=_room_of_covariance, outside=_outside_of_covariance
)
CORRELATION: Final = PairStatistic(
    correlation, with_itself=False, has_units=False, room=_room_of_correlation, outside=_outside_of_correlation
)


@dataclass(frozen=True)
class Covariance(MomentsQuery):
    """The covariance (divided by the number of records) of every pair of columns, values clipped to their bounds.

    >>> import numpy as np
    >>> from tpmdp.queries.ranges import Range
    >>> query = Covariance("both", (Range("age", 0, 10), Range("stay", 0, 10)))
    >>> total = query.statistic({"age": np.array([0.0, 10.0]), "stay": np.array([10.0, 0.0])})
    >>> [(answer.part, round(answer.value, 6)) for answer in query.answers(total, 2, 0.0)]
    [('age, age', 25.0), ('age, stay', -25.0), ('stay, stay', 25.0)]
    """

    bounds: Ranges

    pairs: ClassVar[PairStatistic] = COVARIANCE

    def __post_init__(self) -> None:
        self.moments  # noqa: B018  # checks the bounds

    @property
    def moments(self) -> Moments:
        return Moments(self.bounds, self.counted)

    @property
    def vector(self) -> Hashable:
        return self.moments

    def answers(self, total: FloatArray, records: int, standard_error: float) -> list[Answer]:
        """One answer for each pair."""
        return self.pairs.answers(self.name, self.moments, total, records=records, error=standard_error)

    def estimates(self, total: FloatArray, records: int, standard_error: float) -> list[Answer]:
        return self.pairs.answers(self.name, self.moments, total, records=records, error=standard_error, bars=False)

    def limits(self, total: FloatArray, records: int, noise: float, bias: float) -> list[tuple[float, float]]:
        answers = self.pairs.answers(self.name, self.moments, total, records=records, error=noise, bias=bias)
        return [answer.interval for answer in answers]


@dataclass(frozen=True)
class Correlation(Covariance):
    """The correlation of every two columns.

    >>> import numpy as np
    >>> from tpmdp.queries.ranges import Range
    >>> query = Correlation("both", (Range("age", 0, 10), Range("stay", 0, 10)))
    >>> total = query.statistic({"age": np.array([0.0, 10.0]), "stay": np.array([10.0, 0.0])})
    >>> [(answer.part, round(answer.value, 6)) for answer in query.answers(total, 2, 0.0)]
    [('age, stay', -1.0)]
    """

    pairs: ClassVar[PairStatistic] = CORRELATION

    def __post_init__(self) -> None:
        super().__post_init__()
        if len(self.bounds) < 2:
            raise InputError(f"bounds of {self.name}", len(self.bounds), "must name two columns or more", "add one")
