"""Linear regression by the Functional Mechanism: least squares from noisy moments."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar, Final

import numpy as np

from tpmdp._util.arrays import FloatArray
from tpmdp.errors import InputError
from tpmdp.queries.answer import Answer
from tpmdp.queries.error_bars import simulated
from tpmdp.queries.moments import Moments, MomentsQuery, Ranges
from tpmdp.queries.noisy_quadratic import coefficient_errors, minimum
from tpmdp.queries.ranges import Range

INTERCEPT: Final = "intercept"
R_SQUARED: Final = "R squared"
_NO_FIT: Final = "drowned: large noise for so few records"
_DROWNED: Final = 4.0  # standard errors: a smaller variance is lost in the noise


@dataclass(frozen=True)
class LinearRegression(MomentsQuery):
    """Least squares of the target on all other columns of `bounds`, with an intercept; values are clipped.

    >>> query = LinearRegression("pay", "pay", (Range("pay", 0, 10), Range("age", 0, 10)))
    >>> total = query.statistic({"pay": np.array([1.0, 3.0, 5.0]), "age": np.array([0.0, 1.0, 2.0])})
    >>> [(answer.part, round(answer.value, 6)) for answer in query.answers(total, 3, 0.0)]
    [('intercept', 1.0), ('age', 2.0), ('R squared', 1.0)]
    """

    target: str
    bounds: Ranges

    model: ClassVar[str] = (
        "weighted least squares, whose coefficients are right on average where the model holds for all parties, "
        "whatever the budgets"
    )

    def __post_init__(self) -> None:
        check_target(self.name, self.target, self.bounds)

    @property
    def moments(self) -> Moments:
        """Inputs first, the target last."""
        return Moments((*self.inputs, self._output), self.counted)

    @property
    def inputs(self) -> Ranges:
        """The columns that explain the target."""
        return tuple(each for each in self.bounds if each.column != self.target)

    @property
    def _output(self) -> Range:
        return next(each for each in self.bounds if each.column == self.target)

    def answers(self, total: FloatArray, records: int, standard_error: float) -> list[Answer]:
        """Coefficients in the units of the columns, and R squared, computed from the noisy moments only."""
        return regression(self.name, self.moments, total, records=records, error=standard_error)

    def estimates(self, total: FloatArray, records: int, standard_error: float) -> list[Answer]:
        return regression(self.name, self.moments, total, records=records, error=standard_error, bars=False)


def check_target(name: str, target: str, bounds: Ranges) -> None:
    """Refuse bounds without the target or without inputs.

    >>> check_target("pay", "pay", (Range("pay", 0, 1),))
    Traceback (most recent call last):
        ...
    tpmdp.errors.InputError: bounds of pay = pay must name at least one input besides the target: add it
    """
    names = [each.column for each in bounds]
    if target not in names:
        raise InputError(f"bounds of {name}", ", ".join(names), f"lack the target {target}", "give it bounds too")
    if len(names) < 2:
        rule = "must name at least one input besides the target"
        raise InputError(f"bounds of {name}", ", ".join(names), rule, "add it")
    Moments(bounds, counted=False)


def regression(
    name: str, moments: Moments, total: FloatArray, *, records: int, error: float, bars: bool = True
) -> list[Answer]:
    """Intercept, slopes and R squared in the units of the columns; the target is the last column of the moments.

    Errors are to first order, or missing if the quadratic form had to be repaired. Without `bars` that of R squared,
    which takes long, is left out.
    """
    inputs, output = moments.ranges[:-1], moments.ranges[-1]
    sums = moments.matrix(total, records)
    solved = minimum(sums[:-1, :-1], sums[:-1, -1], error)
    units = natural_units(inputs, output.width / 2)
    middle = np.append((output.low + output.high) / 2, np.zeros(len(inputs)))
    values = (units @ solved.coefficients + middle).tolist()
    parts = [INTERCEPT, *(each.column for each in inputs)]
    fit, spread = r_squared(sums)
    if solved.note:
        repaired = [without_interval(name, *pair, note=solved.note) for pair in zip(parts, values, strict=True)]
        return [*repaired, without_interval(name, R_SQUARED, math.nan, note=_NO_FIT)]
    errors = coefficient_errors(sums, solved.coefficients, error, counted=moments.counted, units=units).tolist()
    answers = [Answer(name, value, each, part=part) for part, value, each in zip(parts, values, errors, strict=True)]
    if error and spread <= _DROWNED * error * math.sqrt(2):
        note = "the target's variance is drowned by the noise"
        return [*answers, without_interval(name, R_SQUARED, math.nan, note=note)]
    if not bars:
        return [*answers, Answer(name, min(max(fit, 0.0), 1.0), 0.0, part=R_SQUARED)]
    each = simulated(lambda moved: r_squared(moments.matrix(moved, records))[0], total, error) if error else 0.0
    return [*answers, Answer(name, fit, each, part=R_SQUARED).within(0.0, 1.0)]


def without_interval(name: str, part: str, value: float, note: str) -> Answer:
    """A value without error bars."""
    return Answer(name, value, math.inf, part=part, limits=(-math.inf, math.inf), note=note)


def r_squared(sums: FloatArray) -> tuple[float, float]:
    """R squared of the best fit, and the sum of squares of the target about its mean.

    >>> r_squared(np.array([[4.0, 0.0, 0.0], [0.0, 2.0, 1.0], [0.0, 1.0, 1.0]]))
    (0.5, 1.0)
    """
    best = minimum(sums[:-1, :-1], sums[:-1, -1], 0.0).coefficients
    unexplained = float(sums[-1, -1] - 2 * best @ sums[:-1, -1] + best @ sums[:-1, :-1] @ best)
    spread = float(sums[-1, -1] - sums[0, -1] ** 2 / sums[0, 0]) if sums[0, 0] > 0 else 0.0
    return (1 - unexplained / spread if spread > 0 else 0.0), spread


def natural_units(inputs: Ranges, unit: float) -> FloatArray:
    """The matrix from coefficients for columns in [-1, 1] to those for columns in their own units.

    >>> natural_units((Range("age", 0, 4),), 1.0) @ np.array([1.0, 2.0])
    array([-1.,  1.])
    """
    halves = np.array([each.width / 2 for each in inputs])
    middles = np.array([(each.low + each.high) / 2 for each in inputs])
    units = np.diag(np.append(1.0, 1 / halves))
    units[0, 1:] = -middles / halves
    return units * unit
