"""Covariances and correlations of several columns, with public bounds."""

from __future__ import annotations

import math
from collections.abc import Hashable
from dataclasses import dataclass
from itertools import combinations, combinations_with_replacement
from typing import ClassVar

from tpmdp._util.arrays import FloatArray
from tpmdp.errors import InputError
from tpmdp.queries.answer import CANNOT_TELL, Answer
from tpmdp.queries.confidence import Gradients, below_parabola
from tpmdp.queries.moments import Moments, MomentsQuery, Ranges
from tpmdp.queries.noisy_moments import NoisyMoments, correlation, covariance


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

    with_itself: ClassVar[bool] = True  # whether a column makes a pair with itself, as a variance
    function: ClassVar[Gradients] = covariance  # read from the class: it is no method

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
        return self._pairs(total, records, standard_error)

    def estimates(self, total: FloatArray, records: int, standard_error: float) -> list[Answer]:
        return self._pairs(total, records, standard_error, bars=False)

    def limits(self, total: FloatArray, records: int, noise: float, bias: float) -> list[tuple[float, float]]:
        return [answer.interval for answer in self._pairs(total, records, noise, bias=bias)]

    def _pairs(
        self, total: FloatArray, records: int, error: float, *, bias: float = 0.0, bars: bool = True
    ) -> list[Answer]:
        sums = NoisyMoments(self.moments.matrix(total, records), error, self.counted, bias=bias)
        places = range(1, len(self.bounds) + 1)
        pairs = combinations_with_replacement(places, 2) if self.with_itself else combinations(places, 2)
        return [self._pair(sums, first, second, bars=bars) for first, second in pairs]

    def _pair(self, sums: NoisyMoments, first: int, second: int, *, bars: bool) -> Answer:
        names = [self.bounds[place - 1] for place in (first, second)]
        part = ", ".join(each.column for each in names)
        most = names[0].width * names[1].width / 4 if self.with_itself else 1.0
        possible = (0.0 if first == second else -most, most)
        block = sums.of(*dict.fromkeys((first, second)))
        room = self._room(block)
        if not room:
            return Answer.drowned(self.name, part, possible, note=CANNOT_TELL)
        value = float(type(self).function(block.sums)[0])
        if not bars or not (sums.error or sums.bias):
            return Answer(self.name, min(max(value * most, possible[0]), possible[1]), 0.0, part=part)
        (low,), (high,) = block.interval(type(self).function, room=room, outside=self._outside(block, value))
        limits = float(low) * most, float(high) * most
        return Answer.between(self.name, part, value * most, limits=limits, possible=possible)

    def _room(self, block: NoisyMoments) -> float:
        """How far it is to sums that have no answer; 0 if the noise may have come from there."""
        if not block.counted:
            return math.inf if block.sums[0, 0] > 0 else 0.0
        return float(block.sums[0, 0]) if block.of().is_clear() else 0.0

    def _outside(self, block: NoisyMoments, value: float) -> float:
        """How far the sums are from those with a possible answer."""
        count = float(block.sums[0, 0])
        beyond = max(abs(value) - 1, 0.0)
        if len(block.sums) > 2:
            return math.sqrt(2) * count * beyond
        mean, square = (block.sums[0, 1] / count, block.sums[1, 1] / count)
        return count * (below_parabola(float(mean), float(square), 2.0) if value < 0 else beyond)


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

    with_itself: ClassVar[bool] = False
    function: ClassVar[Gradients] = correlation

    def __post_init__(self) -> None:
        super().__post_init__()
        if len(self.bounds) < 2:
            raise InputError(f"bounds of {self.name}", len(self.bounds), "must name two columns or more", "add one")

    def _room(self, block: NoisyMoments) -> float:
        """0 also where a variance might be noise only."""
        variances = [block.of(place) for place in (1, 2)]
        return min(each.room for each in variances) if all(each.is_clear() for each in variances) else 0.0

    def _outside(self, block: NoisyMoments, value: float) -> float:
        del value
        return block.outside
