"""A query of our own: the geometric mean."""

import math
from dataclasses import dataclass

import numpy as np

from tpmdp import Answer, Query
from tpmdp.queries.ranges import numbers, shares_of


@dataclass(frozen=True)
class GeometricMean(Query):
    """The geometric mean of a column whose values are clipped to [low, high], both above 0."""

    column: str
    low: float
    high: float

    dimension = 1  # one sum
    spread = 1.0  # the features of two records differ by at most the whole range, which is 1
    largest = 0.5  # they lie in [-1/2, 1/2]
    leaves = "the sum of the clipped logarithms, as shares of their range"

    @property
    def columns(self):
        return {self.column: "number"}

    def features(self, table):
        logarithms = np.log(np.clip(numbers(table, self.column), self.low, self.high))
        return [shares_of(logarithms, math.log(self.low), math.log(self.high))]

    def answers(self, total, records, standard_error):
        width = math.log(self.high / self.low)
        middle = (math.log(self.low) + math.log(self.high)) / 2
        value = math.exp(middle + width * total[0] / records)
        return [Answer(self.name, value, value * width * standard_error / records)]
