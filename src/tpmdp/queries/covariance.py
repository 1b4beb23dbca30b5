"""Covariances and correlations of several columns, with public bounds."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar, Final

import numpy as np

from tpmdp._util.arrays import FloatArray
from tpmdp.errors import InputError
from tpmdp.queries.answer import Answer
from tpmdp.queries.error_bars import first_order
from tpmdp.queries.moments import Moments, MomentsQuery, Ranges

_DROWNED: Final = "drowned by the noise"
_FEW: Final = 4.0  # standard errors: a smaller number of records or variance is lost in the noise


@dataclass(frozen=True)
class Covariance(MomentsQuery):
    """The covariance (divided by the number of records) of every pair of columns, values clipped to their bounds.

    >>> from tpmdp.queries.ranges import Range
    >>> query = Covariance("both", (Range("age", 0, 10), Range("stay", 0, 10)))
    >>> total = query.statistic({"age": np.array([0.0, 10.0]), "stay": np.array([10.0, 0.0])})
    >>> [(answer.part, round(answer.value, 6)) for answer in query.answers(total, 2, 0.0)]
    [('age, age', 25.0), ('age, stay', -25.0), ('stay, stay', 25.0)]
    """

    bounds: Ranges

    _skip: ClassVar[int] = 0  # 1 leaves out a column with itself

    def __post_init__(self) -> None:
        self.moments  # noqa: B018  # checks the bounds

    @property
    def moments(self) -> Moments:
        return Moments(self.bounds, self.counted)

    def answers(self, total: FloatArray, records: int, standard_error: float) -> list[Answer]:
        """One answer for each pair; its error is to first order."""
        return self._pairs(total, records, standard_error, bars=True)

    def estimates(self, total: FloatArray, records: int, standard_error: float) -> list[Answer]:
        return self._pairs(total, records, standard_error, bars=False)

    def _pairs(self, total: FloatArray, records: int, standard_error: float, *, bars: bool) -> list[Answer]:
        sums = self.moments.matrix(total, records)
        names = [each.column for each in self.bounds]
        pairs = [(i, j) for i in range(len(names)) for j in range(i + self._skip, len(names))]
        return [
            self._pair(f"{names[i]}, {names[j]}", sums, (i + 1, j + 1), error=standard_error, bars=bars)
            for i, j in pairs
        ]

    def _pair(self, part: str, sums: FloatArray, columns: tuple[int, int], *, error: float, bars: bool) -> Answer:
        i, j = columns
        most = self._scale(i, j)
        used = sums[np.ix_([0, i, j], [0, i, j])] if i != j else sums[np.ix_([0, i], [0, i])]
        if self._drowned(used, error):
            return Answer.drowned(self.name, part, (-most, most), note=_DROWNED)
        if not bars:
            return Answer(self.name, self._value(used) * most, 0.0, part=part)
        places = [(r, c) for r in range(len(used)) for c in range(r, len(used)) if self.mode != "all" or c > 0]
        errors = [error * (math.sqrt(2) if r == c else 1.0) for r, c in places]  # see Moments.matrix

        def value(shift: FloatArray) -> FloatArray:
            moved = used.copy()
            for (r, c), each, way in zip(places, errors, shift, strict=True):
                moved[r, c] = moved[c, r] = used[r, c] + each * way
            return np.array([self._value(moved) * most])

        still = np.zeros(len(places))
        return Answer(self.name, float(value(still)[0]), float(first_order(value, still, 1.0)[0]), part=part)

    def _scale(self, i: int, j: int) -> float:
        """The unit of a covariance of columns in [-1, 1]."""
        return self.bounds[i - 1].width * self.bounds[j - 1].width / 4

    def _value(self, sums: FloatArray) -> float:
        return float(_centred(sums)[0, -1])

    def _drowned(self, sums: FloatArray, error: float) -> bool:
        return bool(sums[0, 0] <= _FEW * error * math.sqrt(2)) and self.mode != "all"


def _centred(sums: FloatArray) -> FloatArray:
    """The covariance matrix of the columns of z without the constant."""
    mean = sums[0, 1:] / sums[0, 0]
    return np.asarray(sums[1:, 1:] / sums[0, 0] - np.outer(mean, mean), dtype=np.float64)


@dataclass(frozen=True)
class Correlation(Covariance):
    """The correlation of every two columns.

    >>> from tpmdp.queries.ranges import Range
    >>> query = Correlation("both", (Range("age", 0, 10), Range("stay", 0, 10)))
    >>> total = query.statistic({"age": np.array([0.0, 10.0]), "stay": np.array([10.0, 0.0])})
    >>> [(answer.part, round(answer.value, 6)) for answer in query.answers(total, 2, 0.0)]
    [('age, stay', -1.0)]
    """

    _skip: ClassVar[int] = 1

    def __post_init__(self) -> None:
        super().__post_init__()
        if len(self.bounds) < 2:
            raise InputError(f"bounds of {self.name}", len(self.bounds), "must name two columns or more", "add one")

    def _scale(self, i: int, j: int) -> float:
        del i, j
        return 1.0

    def _value(self, sums: FloatArray) -> float:
        matrix = _centred(sums)
        return float(matrix[0, 1] / math.sqrt(matrix[0, 0] * matrix[1, 1]))

    def _drowned(self, sums: FloatArray, error: float) -> bool:
        """Also where a variance might be noise only."""
        if super()._drowned(sums, error):
            return True
        least = float(np.diag(_centred(sums)).min()) * float(sums[0, 0])
        return least <= _FEW * error * math.sqrt(2)
