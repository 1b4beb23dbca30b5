"""The variance of a column, with public bounds."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar, Final

import numpy as np

from tpmdp.queries.base import Answer, Mode
from tpmdp.queries.bounded import BoundedQuery
from tpmdp.queries.error_bars import first_order
from tpmdp.table import Table
from tpmdp.validate import FloatArray

# The largest distance of (s, 4 s^2 - 1/2) for s in [-1/2, 1/2]: between s = 1/2 and s = -a, where b = 1/2 - a solves
# 32 b^2 - 16 b + 1 = 0; squared it is (1 - b)^2 (1 + 16 b^2) = 1.286134...
_LARGER_ROOT: Final = (16 + math.sqrt(128)) / 64
PAIR_SPREAD: Final = (1 - _LARGER_ROOT) * math.sqrt(1 + 16 * _LARGER_ROOT**2) * (1 + 2.0**-40)
# Where only some records count each also counts itself, with a weight that costs nothing: 1/2 + weight^2 <= 1.286 for
# a record that vanishes, 2 (1/2 + weight^2) <= 1.286 for one that changes its group.
_WEIGHT: Final[dict[Mode, float]] = {"some": 0.875, "groups": 0.375}
_FEW: Final = 4.0  # standard errors of their number: fewer records have no variance to speak of


@dataclass(frozen=True)
class Variance(BoundedQuery):
    """The variance (divided by the number of records) of a column whose values are clipped to [low, high].

    >>> query = Variance("spread", "days", 0, 10)
    >>> query.answers(query.statistic({"days": np.array([0.0, 10.0])}), 2, 0.0)[0].value
    25.0
    """

    leaves: ClassVar[str] = "the sums of the clipped values and of their squares, scaled to about 1 a record"
    spread: ClassVar[float] = PAIR_SPREAD  # the two entries cannot both move by 1

    @property
    def dimension(self) -> int:
        """Two sums, and the number of records where it is not known."""
        return 2 if self.mode == "all" else 3

    @property
    def size(self) -> float:
        """At an end of the range."""
        return math.hypot(0.5, 0.5, _WEIGHT.get(self.mode, 0.0))

    @property
    def largest(self) -> float:  # type: ignore[override]  # a constant of each mode
        """At an end of the range; the weight of a record may be above."""
        return 1.0 if self.mode == "some" else 0.5

    def features(self, table: Table) -> list[FloatArray]:
        """The share s of the range, from its middle, and 4 s^2 - 1/2: both in [-1/2, 1/2]."""
        shares = self.shares(table)
        pair = [shares, 4 * shares * shares - 0.5]
        return pair if self.mode == "all" else [*pair, np.full(len(shares), _WEIGHT[self.mode])]

    def typical(self, records: float) -> FloatArray:
        """Values spread evenly over the range: the mean of s^2 is 1/12."""
        return np.array([0.0, records * (4 / 12 - 0.5), records * _WEIGHT.get(self.mode, 0.0)])[: self.dimension]

    def answers(self, total: FloatArray, records: int, standard_error: float) -> list[Answer]:
        """Mean square less square of the mean; error to first order."""
        scale = self.width**2

        def variance(sums: FloatArray) -> FloatArray:
            number = records if self.mode == "all" else float(sums[2]) / _WEIGHT[self.mode]
            mean, square = float(sums[0]) / number, (float(sums[1]) / number + 0.5) / 4
            return np.array([(square - mean * mean) * scale])

        if self.mode != "all" and float(total[2]) <= _FEW * standard_error:
            limits, note = (0.0, scale / 4), "too few records for the noise"
            return [Answer(self.name, scale / 12, scale / 8, limits=limits, note=note)]
        error = float(first_order(variance, total, standard_error)[0])
        return [Answer(self.name, float(variance(total)[0]), error).within(0.0, scale / 4)]
