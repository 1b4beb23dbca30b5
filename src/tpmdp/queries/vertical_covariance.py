"""Covariances and correlations of columns of the same people that different parties hold, in the same order."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from tpmdp._util.arrays import FloatArray
from tpmdp.queries.answer import Answer
from tpmdp.queries.covariance import CORRELATION, COVARIANCE, PairStatistic
from tpmdp.queries.moments import Moments, Ranges
from tpmdp.queries.vertical_moments import Holders, VerticalMoments


@dataclass(frozen=True)
class VerticalCovariance(VerticalMoments):
    """The covariance of every pair of columns of `bounds`; `held_by` says which party has which columns.

    >>> from tpmdp.queries.ranges import Range
    >>> query = VerticalCovariance("both", (Range("pay", 0, 9), Range("age", 0, 9)),
    ...                            (("bank", ("pay",)), ("school", ("age",))))
    >>> [answer.part for answer in query.answers(query.typical(10), 10, 0.1)]
    ['pay, pay', 'pay, age', 'age, age']
    """

    bounds: Ranges
    held_by: Holders

    for_one_party: ClassVar[str] = "covariance"
    pairs: ClassVar[PairStatistic] = COVARIANCE

    @property
    def moments(self) -> Moments:
        return Moments(self.bounds, counted=False)

    def estimates(self, total: FloatArray, records: int, standard_error: float) -> list[Answer]:
        return self.pairs.answers(self.name, self.moments, total, records=records, error=standard_error, bars=False)

    def answers(self, total: FloatArray, records: int, standard_error: float) -> list[Answer]:
        return self.pairs.answers(self.name, self.moments, total, records=records, error=standard_error)


@dataclass(frozen=True)
class VerticalCorrelation(VerticalCovariance):
    """The correlation of every two columns of `bounds`; `held_by` says which party has which columns.

    >>> from tpmdp.queries.ranges import Range
    >>> query = VerticalCorrelation("both", (Range("pay", 0, 9), Range("age", 0, 9)),
    ...                             (("bank", ("pay",)), ("school", ("age",))))
    >>> [(answer.part, answer.value) for answer in query.answers(query.typical(10), 10, 0.0)]
    [('pay, age', 0.0)]
    """

    for_one_party: ClassVar[str] = "correlation"
    pairs: ClassVar[PairStatistic] = CORRELATION
