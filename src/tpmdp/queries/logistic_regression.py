"""Logistic regression by the Functional Mechanism: the log-loss to second order, from noisy moments.

Zhang et al. (2012, section 5) expand log(1 + e^s) about 0, which is far off if the outcome is rare. Here it is expanded
about the log-odds c of the overall rate r, which is one of the moments: p(s) is r + r (1 - r) (s - c) to first order,
so the minimum is b = c e_1 + (r (1 - r) sum z z^T)^-1 sum z (y - r). With lean = 2 r - 1, curve = r (1 - r) and the
least squares b' of 2 y - 1 on z this is b' / (2 curve) + (c - lean / (2 curve)) e_1. Coefficients are biased towards 0
if single probabilities lie far from the overall rate.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar, Final

import numpy as np

from tpmdp._util.arrays import FloatArray
from tpmdp.data.table import Table
from tpmdp.errors import InputError
from tpmdp.queries.answer import Answer
from tpmdp.queries.guesses import TypicalData
from tpmdp.queries.linear_regression import INTERCEPT, natural_units, without_interval
from tpmdp.queries.moments import Moments, MomentsQuery, Ranges
from tpmdp.queries.noisy_quadratic import coefficient_errors, minimum
from tpmdp.queries.ranges import Range, numbers

_MOST: Final = 1 - 1e-6  # largest lean: a rate of 0 or 1 has no log-odds


@dataclass(frozen=True)
class LogisticRegression(MomentsQuery):
    """Log-odds that target >= threshold, from the columns of `bounds`: an approximation; values are clipped.

    >>> query = LogisticRegression("ill", "ill", (Range("age", -1, 1),))
    >>> total = query.statistic({"ill": np.array([0.0, 1, 0, 1]), "age": np.array([-1.0, 1, 1, 1])})
    >>> [(answer.part, round(answer.value, 6)) for answer in query.answers(total, 4, 0.0)]
    [('intercept', -0.666667), ('age', 1.333333)]
    """

    target: str
    bounds: Ranges
    threshold: float = 0.5

    model: ClassVar[str] = (
        "weighted least squares for the log-odds; where the model holds for all parties, weights change its "
        "coefficients only as far as the approximation is off"
    )
    leaves: ClassVar[str] = "the sums of the scaled columns and the target, of their squares and of products of two"

    def __post_init__(self) -> None:
        if self.target in [each.column for each in self.bounds]:
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
        inputs = [2 * each.shares(table) for each in self.bounds]
        target = np.where(numbers(table, self.target) >= self.threshold, 1.0, -1.0)
        return self.moments.features([*inputs, target])

    def guess(self, records: float, scenario: TypicalData) -> FloatArray:
        return self.moments.guess(records, scenario, share=scenario.share)

    def ranges_of(self, party: str) -> Ranges:
        del party
        return self.bounds  # the target is compared, not clipped

    def limits(self, total: FloatArray, records: int, noise: float, bias: float) -> list[tuple[float, float]]:
        """No interval if there is a bias: log-odds of rare outcomes are too far from linear."""
        if not bias:
            return super().limits(total, records, noise, bias)
        return [(-math.inf, math.inf)] * (len(self.bounds) + 1)

    def answers(self, total: FloatArray, records: int, standard_error: float) -> list[Answer]:
        """Coefficients for inputs in their own units: what one unit of an input adds to the log-odds."""
        sums = self.moments.matrix(total, records)
        solved = minimum(sums[:-1, :-1], sums[:-1, -1], standard_error)
        lean = float(np.clip(sums[0, -1] / sums[0, 0], -_MOST, _MOST)) if sums[0, 0] > 0 else 0.0
        rate, curve = (1 + lean) / 2, (1 - lean * lean) / 4  # of log(1 + e^s) at the log-odds of the overall rate
        first = np.eye(len(self.bounds) + 1)[0]
        values = solved.coefficients / (2 * curve) + first * (math.log(rate / (1 - rate)) - lean / (2 * curve))
        units = natural_units(self.bounds, 1.0)
        parts = [INTERCEPT, *(each.column for each in self.bounds)]
        pairs = list(zip(parts, (units @ values).tolist(), strict=True))
        if solved.note:
            return [without_interval(self.name, part, value, note=solved.note) for part, value in pairs]
        moves = (solved.coefficients * lean / (4 * curve**2)) + first * _intercept_move(lean)
        errors = self._errors(sums, solved.coefficients, standard_error, units=units / (2 * curve), moves=units @ moves)
        return [Answer(self.name, value, error, part=part) for (part, value), error in zip(pairs, errors, strict=True)]

    def _errors(
        self, sums: FloatArray, fitted: FloatArray, error: float, *, units: FloatArray, moves: FloatArray
    ) -> list[float]:
        """Errors to first order of units @ fitted + moves * lean: those of the fit and of the overall rate."""
        count, target = float(sums[0, 0]), float(sums[0, -1])
        counted = float(self.counted)
        lean_variance = (error / count) ** 2 * (1 + 2 * counted * (target / count) ** 2)
        toward = np.linalg.solve(sums[:-1, :-1], np.eye(len(fitted))[0])
        shared = error**2 / count * (1 + 2 * counted * fitted[0] * target / count) * (units @ toward)
        fit = coefficient_errors(sums, fitted, error, counted=self.counted, units=units) ** 2
        variances = np.maximum(fit + moves**2 * lean_variance + 2 * moves * shared, 0.0)
        return [float(error) for error in np.sqrt(variances)]


def _intercept_move(lean: float) -> float:
    """How fast log(rate / (1 - rate)) - lean / (2 curve) moves with the lean, where curve = (1 - lean^2) / 4."""
    return -4 * lean * lean / (1 - lean * lean) ** 2
