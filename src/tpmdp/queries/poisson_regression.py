"""Poisson regression by rounds: the logarithm of the mean of a count, which is clipped to [0, high].

In units of `high` the fitted mean is e^s up to 2/3, and from there 1 - e^(-2 v) / 3 with v = s - log(2/3): it bends
smoothly and stays below 1, so that scores are bounded and Newton's method converges. Theory M6.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar, Final

import numpy as np

from tpmdp._util.arrays import FloatArray
from tpmdp.data.table import Table
from tpmdp.queries.generalized_linear_model import GeneralizedLinearModel
from tpmdp.queries.guesses import TypicalData
from tpmdp.queries.moments import Ranges
from tpmdp.queries.ranges import Range, check_range, numbers
from tpmdp.queries.starting_moments import StartingMoments
from tpmdp.queries.steady_exp import exp_below_0

_LOG_STRAIGHT: Final = math.log(2 / 3)


@dataclass(frozen=True)
class PoissonRegression(GeneralizedLinearModel):
    """The logarithm of the target's mean, from the columns of `bounds`; the target is clipped to [0, high].

    >>> query = PoissonRegression("visits", "visits", (Range("age", -1, 1),), 10.0)
    >>> score, curvature = query.score(np.array([math.log(0.5), 99.0]), np.array([1.0, 0.0]))
    >>> score.round(9).tolist(), curvature.round(9).tolist()
    ([-0.5, 1.0], [0.5, 0.0])
    """

    high: float
    has_start: ClassVar[bool] = True
    bend: ClassVar[float] = 2.0
    hessian_weight: ClassVar[float] = 2.75
    squared_spread: ClassVar[float] = 4.0
    squared_size: ClassVar[float] = 1.67

    def __post_init__(self) -> None:
        super().__post_init__()
        check_range(f"{self.target} in {self.name}", 0.0, self.high)

    def outcome(self, table: Table) -> FloatArray:
        """In units of `high`."""
        return np.clip(numbers(table, self.target), 0.0, self.high) / self.high

    def score(self, predictor: FloatArray, outcome: FloatArray) -> tuple[FloatArray, FloatArray]:
        beyond = np.maximum(predictor - _LOG_STRAIGHT, 0.0)
        left = np.where(beyond > 0, exp_below_0(-2 * beyond) / 3, 0.0)  # to 1
        straight = exp_below_0(np.minimum(predictor, _LOG_STRAIGHT))
        return np.where(beyond > 0, 1 - left, straight) - outcome, np.where(beyond > 0, 2 * left, straight)

    def share(self, table: Table) -> FloatArray:
        return self.outcome(table)

    def start(self, moments: StartingMoments) -> list[float]:
        return moments.normal_log_rate()

    def in_units(self, coefficients: FloatArray) -> FloatArray:
        values = super().in_units(coefficients)
        values[0] += math.log(self.high)
        return values

    def ranges_of(self, party: str) -> Ranges:
        del party
        return (*self.bounds, Range(self.target, 0.0, self.high))

    def typical_curvature(self, scenario: TypicalData) -> float:
        return (1 + scenario.shape(Range(self.target, 0.0, self.high))[0]) / 2
