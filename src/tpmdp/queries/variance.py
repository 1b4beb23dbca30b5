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
from tpmdp.queries.error_bars import first_order
from tpmdp.queries.guesses import TypicalData
from tpmdp.queries.ranges import Range

# The largest distance of (s, 4 s^2 - 1/2) for s in [-1/2, 1/2]: between s = 1/2 and s = -a, where b = 1/2 - a solves
# 32 b^2 - 16 b + 1 = 0; squared it is (1 - b)^2 (1 + 16 b^2) = 1.286134...
_LARGER_ROOT: Final = (16 + math.sqrt(128)) / 64
PAIR_SPREAD: Final = (1 - _LARGER_ROOT) * math.sqrt(1 + 16 * _LARGER_ROOT**2) * (1 + 2.0**-40)
# Where only some records count, each also adds a constant that costs nothing, to count them: 1/2 + weight^2 <= 1.286
# for a record that vanishes, 2 (1/2 + weight^2) <= 1.286 for a record that changes its group.
_WEIGHT: Final[dict[Mode, float]] = {"some": 0.875, "groups": 0.375}
_POINTS: Final = 2000  # of a circle or sphere
_COARSE: Final = 0.01  # of the range of values at the points: more than what lies between them
_FEW: Final = 4.0  # standard errors of their number: fewer records have no variance to speak of


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

    def _variance(self, sums: FloatArray, records: int) -> FloatArray:
        """Mean square minus square of the mean; the sums are in the last axis."""
        number = records if self.mode == "all" else sums[..., 2] / _WEIGHT[self.mode]
        mean, square = sums[..., 0] / number, (sums[..., 1] / number + 0.5) / 4
        return np.atleast_1d((square - mean * mean) * self.width**2)

    def limits(self, total: FloatArray, records: int, noise: float, bias: float) -> list[tuple[float, float]]:
        """The bias exactly, the noise to first order.

        The variance is linear in the sum of squares, so its extremes in a ball are on the surface.
        """
        scale = self.width**2
        room = float(total[2]) - bias if self.mode != "all" else math.inf
        if room <= _FEW * noise:
            return [(0.0, scale / 4)]
        moved = total + bias * _directions(self.dimension)
        values = self._variance(moved, records)
        error = max(
            float(first_order(lambda sums: self._variance(sums, records), moved[place], noise)[0])
            for place in (int(values.argmin()), int(values.argmax()))
        )
        reach = Z_95 * error + _COARSE * float(np.ptp(values))
        return [(max(float(values.min()) - reach, 0.0), min(float(values.max()) + reach, scale / 4))]

    def answers(self, total: FloatArray, records: int, standard_error: float) -> list[Answer]:
        """Mean square minus square of the mean; the error is to first order."""
        scale = self.width**2

        def variance(sums: FloatArray) -> FloatArray:
            return self._variance(sums, records)

        if self.mode != "all" and float(total[2]) <= _FEW * standard_error:
            return [Answer.drowned(self.name, "", (0.0, scale / 4), note="too few records for the noise")]
        error = float(first_order(variance, total, standard_error)[0])
        return [Answer(self.name, float(variance(total)[0]), error).within(0.0, scale / 4)]


def _directions(dimension: int) -> FloatArray:
    """Points all over the unit circle or sphere.

    >>> bool(np.allclose(np.linalg.norm(_directions(3), axis=1), 1))
    True
    """
    steps = np.arange(_POINTS) + 0.5
    if dimension == 2:
        turn = 2 * math.pi * steps / _POINTS
        return np.stack((np.cos(turn), np.sin(turn)), axis=1)
    height = 1 - 2 * steps / _POINTS
    angle = math.pi * (1 + math.sqrt(5)) * steps  # Fibonacci's sphere
    width = np.sqrt(1 - height * height)
    return np.stack((width * np.cos(angle), width * np.sin(angle), height), axis=1)
