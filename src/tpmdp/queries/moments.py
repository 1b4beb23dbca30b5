"""All first and second moments of several bounded columns, for covariances and regressions.

With z = (1, x_1, ..., x_p) and every x in [-1, 1], a record's features are the entries of z z^T / sqrt(2), those off
the diagonal times sqrt(2), so that their L2 norm is the Frobenius norm of z z^T / sqrt(2). Two records are farthest
apart at corners of the cube that are as nearly orthogonal as corners can be: p + 1 for an odd number of columns, and
sqrt((p + 1)^2 - 1) for an even one, as z.w is odd then; Theory, Q4.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import ClassVar, Final

import numpy as np

from tpmdp._util.arrays import FloatArray, IntArray
from tpmdp.data.table import ColumnKind, Table
from tpmdp.errors import InputError
from tpmdp.queries.base import Query
from tpmdp.queries.guesses import TypicalData
from tpmdp.queries.ranges import Range

COLUMNS_MAX: Final = 200
Ranges = tuple[Range, ...]
_HALF: Final = math.sqrt(0.5)


@dataclass(frozen=True)
class Moments:
    """The layout: 1 (where the number of records is not known), all x, all squares, all products of two.

    >>> Moments((Range("age", 0, 1), Range("stay", 0, 1)), counted=False).dimension
    5
    """

    ranges: Ranges
    counted: bool  # whether records add a constant, to count them

    def __post_init__(self) -> None:
        names = [each.column for each in self.ranges]
        if not 1 <= len(names) <= COLUMNS_MAX or len(set(names)) < len(names):
            rule = f"must name 1 to {COLUMNS_MAX} different columns"
            raise InputError("bounds", ", ".join(names), rule, "give each column [low, high] once")

    @property
    def count(self) -> int:
        """The number of columns."""
        return len(self.ranges)

    @property
    def columns(self) -> Mapping[str, ColumnKind]:
        """The columns it reads."""
        return {each.column: "number" for each in self.ranges}

    @property
    def dimension(self) -> int:
        """The number of entries."""
        return self.counted + self.count + self.count * (self.count + 1) // 2

    @property
    def spread(self) -> float:
        """The largest distance of two records, rounded up.

        >>> round(Moments((Range("age", 0, 1), Range("stay", 0, 1)), counted=False).spread, 6)
        2.828427
        """
        size = self.count + 1
        return float(size) if size % 2 == 0 else math.nextafter(math.sqrt(size * size - 1), math.inf)

    @property
    def size(self) -> float:
        """The largest norm of one record, the entry of the constant included."""
        return (self.count + 1) * _HALF

    def features(self, columns: Sequence[FloatArray]) -> list[FloatArray]:
        """The features of columns scaled to [-1, 1]."""
        features = [np.full(len(columns[0]), _HALF)] if self.counted else []
        features += columns
        features += [column * column * _HALF for column in columns]
        features += [columns[i] * columns[j] for i in range(self.count) for j in range(i + 1, self.count)]
        return features

    def scaled(self, table: Table) -> list[FloatArray]:
        """The columns of a table, clipped and scaled to [-1, 1]."""
        return [2 * each.shares(table) for each in self.ranges]

    def matrix(self, total: FloatArray, records: float) -> FloatArray:
        """The sums of z z^T that a total stands for, (p + 1) x (p + 1).

        >>> layout = Moments((Range("age", -1, 1),), counted=False)
        >>> layout.matrix(np.array([3.0, 2.0 * _HALF]), 4).round(12).tolist()
        [[4.0, 3.0], [3.0, 2.0]]
        """
        p, start = self.count, int(self.counted)
        result = np.zeros((p + 1, p + 1))
        result[0, 0] = float(total[0]) / _HALF if self.counted else records
        result[0, 1:] = result[1:, 0] = total[start : start + p]
        result[np.arange(1, p + 1), np.arange(1, p + 1)] = total[start + p : start + 2 * p] / _HALF
        rows, columns = _above_diagonal(p)
        result[rows + 1, columns + 1] = result[columns + 1, rows + 1] = total[start + 2 * p :]
        return result

    def typical(self, records: float) -> FloatArray:
        """The sums for independent columns whose values spread evenly over their ranges."""
        p = self.count
        first = [records * _HALF] if self.counted else []
        return np.array([*first, *[0.0] * p, *[records / 3 * _HALF] * p, *[0.0] * (p * (p - 1) // 2)])

    def guess(self, records: float, scenario: TypicalData, share: float | None = None) -> FloatArray:
        """The sums for columns of these shapes, any two of which correlate alike.

        With `share`, the last column is 1 for this share of the records, and -1 for the others.
        """
        shapes = [scenario.shape(each) for each in self.ranges]
        if share is not None:
            lean = min(max(2 * share - 1, -0.998), 0.998)
            shapes[-1] = (lean, math.sqrt(1 - lean * lean))
        mean, deviation = np.array(shapes).T
        product = np.outer(mean, mean) + scenario.correlation * np.outer(deviation, deviation)
        squares = (mean * mean + deviation * deviation) * _HALF
        rows, columns = _above_diagonal(self.count)
        first = [_HALF] if self.counted else []
        return records * np.concatenate([first, mean, squares, product[rows, columns]])


@cache
def _above_diagonal(count: int) -> tuple[IntArray, IntArray]:
    rows, columns = np.triu_indices(count, 1)
    return rows, columns


@dataclass(frozen=True)
class MomentsQuery(Query):
    """A query that is answered from the moments of several columns."""

    has_parts: ClassVar[bool] = True
    leaves: ClassVar[str] = "the sums of the scaled columns, of their squares and of all products of two"

    @property
    @abstractmethod
    def moments(self) -> Moments:
        """The layout of the columns that it needs."""

    @property
    def counted(self) -> bool:
        """Whether records must be counted: where only some of them count, their number is not known."""
        return self.mode != "all"

    @property
    def columns(self) -> Mapping[str, ColumnKind]:
        return self.moments.columns

    @property
    def dimension(self) -> int:
        return self.moments.dimension

    @property
    def spread(self) -> float:
        return self.moments.spread

    @property
    def size(self) -> float:
        return self.moments.size

    def features(self, table: Table) -> list[FloatArray]:
        return self.moments.features(self.moments.scaled(table))

    def guess(self, records: float, scenario: TypicalData) -> FloatArray:
        return self.moments.guess(records, scenario)

    def ranges_of(self, party: str) -> Ranges:
        del party
        return self.moments.ranges

    def typical(self, records: float) -> FloatArray:
        return self.moments.typical(records)
