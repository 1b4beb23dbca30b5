"""Logistic regression by rounds.

Round 1 gives a start by linear discriminant analysis, which is close to maximum likelihood where the inputs look
normal; each further round is a step of Newton's method. One round only leaves the start, which is an approximation.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from tpmdp._util.arrays import FloatArray
from tpmdp.data.table import Table
from tpmdp.errors import InputError
from tpmdp.queries.generalized_linear_model import GeneralizedLinearModel
from tpmdp.queries.guesses import TypicalData
from tpmdp.queries.ranges import numbers
from tpmdp.queries.starting_moments import StartingMoments
from tpmdp.queries.steady_exp import logistic


@dataclass(frozen=True)
class LogisticRegression(GeneralizedLinearModel):
    """Log-odds that target >= threshold, from the columns of `bounds`, by maximum likelihood; values are clipped.

    >>> from tpmdp.queries.ranges import Range
    >>> query = LogisticRegression("ill", "ill", (Range("age", -1, 1),))
    >>> table = {"ill": np.array([0.0, 1, 0, 1, 1]), "age": np.array([-1.0, -1, -1, 1, 1])}
    >>> [round(each, 3) for each in query.asked(2, (0.0, 0.0)).features(table)[0].tolist()]
    [0.5, -0.5, 0.5, -0.5, -0.5]
    """

    threshold: float = 0.5

    has_start: ClassVar[bool] = True
    hessian_weight: ClassVar[float] = 24.0
    squared_spread: ClassVar[float] = 4.0
    squared_size: ClassVar[float] = 1.78

    def __post_init__(self) -> None:
        super().__post_init__()
        if not np.isfinite(self.threshold):
            raise InputError(f"threshold of {self.name}", self.threshold, "must be finite", "0.5 suits 0 and 1")

    def outcome(self, table: Table) -> FloatArray:
        return np.where(numbers(table, self.target) >= self.threshold, 1.0, 0.0)

    def score(self, predictor: FloatArray, outcome: FloatArray) -> tuple[FloatArray, FloatArray]:
        """The curvature is |r| (1 - |r|) in terms of the score r: what the bound on the distance needs."""
        score = logistic(predictor) - outcome
        length = np.abs(score)
        return score, length * (1.0 - length)

    def share(self, table: Table) -> FloatArray:
        return self.outcome(table)

    def start(self, moments: StartingMoments) -> list[float]:
        return moments.discriminant()

    def typical_curvature(self, scenario: TypicalData) -> float:
        """The mean of p (1 - p) is at most that of the overall rate less what the inputs explain of the outcome."""
        share = min(max(scenario.share, 0.01), 0.99)
        inputs, correlation = len(self.bounds), scenario.correlation
        explained = min(inputs * correlation**2 / (1 + (inputs - 1) * correlation), 0.8)
        return share * (1 - share) * (1 - explained)
