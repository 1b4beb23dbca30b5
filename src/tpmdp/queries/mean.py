"""The mean of a column, with public bounds."""

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
from tpmdp.queries.error_bars import ratio_interval
from tpmdp.queries.guesses import TypicalData
from tpmdp.queries.ranges import Range

# Where only some records count, each also adds a constant, the largest that costs nothing, to count them: a record may
# vanish (some: 1/4 + weight^2 <= 1) or change its group (groups: 2 (1/4 + weight^2) <= 1).
_WEIGHT: Final[dict[Mode, float]] = {"some": 0.866, "groups": 0.5}


@dataclass(frozen=True)
class Mean(BoundedQuery):
    """The mean of a column whose values are clipped to [low, high].

    >>> Mean("stay", "days", 0, 10).statistic({"days": np.array([0.0, 10.0, 99.0])})
    array([0.5])
    """

    leaves: ClassVar[str] = "the sum of the values, each cut to the bounds and scaled to between -1/2 and 1/2"
    spread: ClassVar[float] = 1.0  # one end of the range to the other

    @property
    def dimension(self) -> int:
        """The sum, and the number of records where that is not known."""
        return 1 if self.mode == "all" else 2

    @property
    def size(self) -> float:
        return 0.5 if self.mode == "all" else math.hypot(0.5, _WEIGHT[self.mode])

    @property
    def largest(self) -> float:  # type: ignore[override]  # a constant of each mode
        """Reached at an end of the range, or by the constant."""
        return 1.0 if self.mode == "some" else 0.5

    def features(self, table: Table) -> list[FloatArray]:
        """The share of the range from its middle, and the constant."""
        shares = self.shares(table)
        return [shares] if self.mode == "all" else [shares, np.full(len(shares), _WEIGHT[self.mode])]

    def typical(self, records: float) -> FloatArray:
        return np.array([0.0, records * _WEIGHT.get(self.mode, 0.0)])[: self.dimension]

    def guess(self, records: float, scenario: TypicalData) -> FloatArray:
        mean, _ = scenario.shape(Range(self.column, self.low, self.high))
        return np.array([records * mean / 2, records * _WEIGHT.get(self.mode, 0.0)])[: self.dimension]

    def answers(self, total: FloatArray, records: int, standard_error: float) -> list[Answer]:
        width = self.width
        if self.mode == "all":
            share = float(total[0]) / records + 0.5
            answer = Answer(self.name, self.low + share * width, standard_error / records * width)
            return [answer.within(self.low, self.high)]
        weight = _WEIGHT[self.mode]
        top, count = float(total[0]), float(total[1]) / weight
        low, high = ratio_interval(top, count, standard_error, bottom_error=standard_error / weight, low=-0.5, high=0.5)
        share = min(max(top / count, -0.5), 0.5) if count > 0 else 0.0
        limits = (self.low + (low + 0.5) * width, self.low + (high + 0.5) * width)
        if high - low >= 1:
            return [Answer.drowned(self.name, "", limits, note="too few records for the noise")]
        error = (high - low) * width / (2 * Z_95)
        return [Answer(self.name, self.low + (share + 0.5) * width, error, limits=limits)]
