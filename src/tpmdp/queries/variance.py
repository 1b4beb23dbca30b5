"""The variance of a column, with public bounds."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar, Final

import numpy as np

from tpmdp._util.arrays import FloatArray
from tpmdp.data.table import Table
from tpmdp.queries.answer import Z_95, Answer
from tpmdp.queries.base import Mode
from tpmdp.queries.bounded import BoundedQuery
from tpmdp.queries.confidence import Ball, below_parabola
from tpmdp.queries.guesses import TypicalData
from tpmdp.queries.ranges import Range

# The largest distance of (s, 4 s^2 - 1/2) for s in [-1/2, 1/2]: between s = 1/2 and s = -a, where b = 1/2 - a solves
# 32 b^2 - 16 b + 1 = 0; squared it is (1 - b)^2 (1 + 16 b^2) = 1.286134...
_LARGER_ROOT: Final = (16 + math.sqrt(128)) / 64
PAIR_SPREAD: Final = (1 - _LARGER_ROOT) * math.sqrt(1 + 16 * _LARGER_ROOT**2) * (1 + 2.0**-40)
# Where only some records count, each also adds a constant that costs nothing, to count them: 1/2 + weight^2 <= 1.286
# for a record that vanishes, 2 (1/2 + weight^2) <= 1.286 for a record that changes its group.
_WEIGHT: Final[dict[Mode, float]] = {"some": 0.875, "groups": 0.375}


@dataclass(frozen=True)
class Variance(BoundedQuery):
    """The variance (divided by the number of records) of a column whose values are clipped to [low, high].

    >>> query = Variance("spread", "days", 0, 10)
    >>> query.answers(query.statistic({"days": np.array([0.0, 10.0])}), 2, 0.0)[0].value
    25.0
    """

    leaves: ClassVar[str] = (
        "the sums of the values and of their squares, each cut to the bounds and scaled to between -1/2 and 1/2"
    )
    spread: ClassVar[float] = PAIR_SPREAD  # the two entries cannot both move by 1

    @property
    def dimension(self) -> int:
        """Two sums, and the number of records where that is not known."""
        return 2 if self.mode == "all" else 3

    @property
    def size(self) -> float:
        return math.hypot(0.5, 0.5, _WEIGHT.get(self.mode, 0.0))

    @property
    def largest(self) -> float:  # type: ignore[override]  # a constant of each mode
        """Reached at an end of the range, or by the constant."""
        return 1.0 if self.mode == "some" else 0.5

    def features(self, table: Table) -> list[FloatArray]:
        """The share s of the range, from its middle, and 4 s^2 - 1/2: both in [-1/2, 1/2]."""
        shares = self.shares(table)
        pair = [shares, 4 * shares * shares - 0.5]
        return pair if self.mode == "all" else [*pair, np.full(len(shares), _WEIGHT[self.mode])]

    def typical(self, records: float) -> FloatArray:
        """Values spread evenly over the range: the mean of s^2 is 1/12."""
        return np.array([0.0, records * (4 / 12 - 0.5), records * _WEIGHT.get(self.mode, 0.0)])[: self.dimension]

    def guess(self, records: float, scenario: TypicalData) -> FloatArray:
        mean, deviation = scenario.shape(Range(self.column, self.low, self.high))
        square = mean * mean + deviation * deviation  # of 2 s, so 4 s^2
        sums = [records * mean / 2, records * (square - 0.5), records * _WEIGHT.get(self.mode, 0.0)]
        return np.array(sums[: self.dimension])

    def limits(self, total: FloatArray, records: int, noise: float, bias: float) -> list[tuple[float, float]]:
        return [self._answer(total, records, noise, bias=bias).interval]

    def answers(self, total: FloatArray, records: int, standard_error: float) -> list[Answer]:
        """Mean square minus square of the mean."""
        return [self._answer(total, records, standard_error)]

    def estimates(self, total: FloatArray, records: int, standard_error: float) -> list[Answer]:
        return [self._answer(total, records, standard_error, bars=False)]

    def _answer(self, total: FloatArray, records: int, noise: float, *, bias: float = 0.0, bars: bool = True) -> Answer:
        most = self.width**2 / 4
        room = math.inf if self.mode == "all" else float(total[2])
        if room <= Z_95 * noise + bias:
            return Answer.drowned(self.name, "", (0.0, most), note="too few records for the noise")

        def scaled(sums: FloatArray) -> tuple[FloatArray, FloatArray]:
            """The variance of values scaled to [-1, 1]: mean square less square of the mean, and its gradient."""
            number = records if self.mode == "all" else sums[..., 2] / _WEIGHT[self.mode]
            mean, square = 2 * sums[..., 0] / number, sums[..., 1] / number + 0.5
            slopes = np.empty(sums.shape)
            slopes[..., 0], slopes[..., 1] = -4 * mean / number, 1 / number
            if self.mode != "all":
                slopes[..., 2] = (2 * mean * mean - square + 0.5) / number / _WEIGHT[self.mode]
            return square - mean * mean, slopes

        value = float(scaled(total)[0])
        if not bars or not (noise or bias):
            return Answer(self.name, min(max(value, 0.0), 1.0) * most, 0.0)
        number = records if self.mode == "all" else float(total[2]) / _WEIGHT[self.mode]
        mean, square = 2 * float(total[0]) / number, float(total[1]) / number + 0.5
        outside = number * (below_parabola(mean, square, 0.25) + max(value - 1, 0.0))
        ball = Ball(total[None], np.eye(len(total)), noise, bias=bias, outside=outside, room=room)
        (low,), (high,) = ball.interval(scaled)
        limits = float(low) * most, float(high) * most
        return Answer.between(self.name, "", value * most, limits=limits, possible=(0.0, most))
