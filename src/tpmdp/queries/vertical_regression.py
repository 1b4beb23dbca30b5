"""Linear regression over columns of the same people that different parties hold, in the same order."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from tpmdp._util.arrays import FloatArray
from tpmdp.queries.answer import Answer
from tpmdp.queries.linear_regression import check_target, regression
from tpmdp.queries.moments import Moments, Ranges
from tpmdp.queries.vertical_moments import Holders, VerticalMoments


@dataclass(frozen=True)
class VerticalRegression(VerticalMoments):
    """Least squares of the target on all other columns of `bounds`; `held_by` says which party has which columns.

    >>> from tpmdp.queries.ranges import Range
    >>> query = VerticalRegression("pay", "pay", (Range("pay", 0, 9), Range("age", 0, 9)),
    ...                            (("bank", ("pay",)), ("school", ("age",))))
    >>> query.dimension, query.sizes({"bank": 10, "school": 10, "lab": 0})
    (5, [12, 12, 0])
    """

    target: str
    bounds: Ranges
    held_by: Holders

    for_one_party: ClassVar[str] = "linear_regression"

    def __post_init__(self) -> None:
        check_target(self.name, self.target, self.bounds)
        super().__post_init__()

    @property
    def moments(self) -> Moments:
        """Inputs first, the target last."""
        inputs = tuple(each for each in self.bounds if each.column != self.target)
        output = next(each for each in self.bounds if each.column == self.target)
        return Moments((*inputs, output), counted=False)

    def estimates(self, total: FloatArray, records: int, standard_error: float) -> list[Answer]:
        return regression(self.name, self.moments, total, records=records, error=standard_error, bars=False)

    def answers(self, total: FloatArray, records: int, standard_error: float) -> list[Answer]:
        return regression(self.name, self.moments, total, records=records, error=standard_error)
