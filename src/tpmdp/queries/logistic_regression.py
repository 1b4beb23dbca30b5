"""Logistic regression by the Functional Mechanism: the log-loss to second order, from noisy moments.

log(1 + e^s) is log 2 + s/2 + s^2/8 near 0 (Zhang et al. 2012, section 5). The minimum of that is known from moments of
inputs and target alone; coefficients are drawn towards 0 where probabilities come close to 0 or 1.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from tpmdp.errors import InputError
from tpmdp.queries.base import Answer
from tpmdp.queries.functional import minimum
from tpmdp.queries.linear_regression import INTERCEPT, natural, with_errors
from tpmdp.queries.moments import Moments, MomentsQuery, Ranges
from tpmdp.queries.shares import Range, numbers
from tpmdp.table import Table
from tpmdp.validate import FloatArray


@dataclass(frozen=True)
class LogisticRegression(MomentsQuery):
    """Log-odds that target >= threshold, from the columns of `bounds`, to second order; values are clipped.

    >>> query = LogisticRegression("ill", "ill", (Range("age", -1, 1),))
    >>> total = query.statistic({"ill": np.array([0.0, 1, 0, 1]), "age": np.array([-1.0, 1, 1, 1])})
    >>> [(answer.part, round(answer.value, 6)) for answer in query.answers(total, 4, 0.0)]
    [('intercept', -0.666667), ('age', 1.333333)]
    """

    target: str
    bounds: Ranges
    threshold: float = 0.5

    leaves: ClassVar[str] = "the sums of the scaled columns and the target, of their squares and of products of two"

    def __post_init__(self) -> None:
        if self.target in [one.column for one in self.bounds]:
            rule, remedy = "must not have the target", "it is target >= threshold: remove its bounds"
            raise InputError(f"bounds of {self.name}", self.target, rule, remedy)
        if not np.isfinite(self.threshold):
            raise InputError(f"threshold of {self.name}", self.threshold, "must be finite", "0.5 suits 0 and 1")
        self.moments  # noqa: B018  # checks the bounds

    @property
    def moments(self) -> Moments:
        """Inputs first, the target as -1 or 1 last."""
        return Moments((*self.bounds, Range(self.target, -1.0, 1.0)), self.counted)

    def features(self, table: Table) -> list[FloatArray]:
        """See `Moments`."""
        inputs = [2 * one.shares(table) for one in self.bounds]
        target = np.where(numbers(table, self.target) >= self.threshold, 1.0, -1.0)
        return self.moments.features([*inputs, target])

    def answers(self, total: FloatArray, records: int, standard_error: float) -> list[Answer]:
        """Coefficients for inputs in their own units: a unit more of an input adds so much to the log-odds."""

        def solve(sums: FloatArray, error: float) -> tuple[FloatArray, str]:
            moments = self.moments.matrix(sums, records)
            # The sum of s^2/8 + s/2 - y s, with s = z b and y in {0, 1}, is least at b = 2 (z z^T)^-1 z (2y - 1).
            solved = minimum(moments[:-1, :-1], moments[:-1, -1], error)
            intercept, slopes = natural(2 * solved.coefficients, self.bounds, 1.0)
            return np.array([intercept, *slopes]), solved.note

        values, note = solve(total, standard_error)
        parts = [INTERCEPT, *(one.column for one in self.bounds)]
        return with_errors(self.name, parts, values, lambda sums: solve(sums, 0.0)[0], total, standard_error, note)
