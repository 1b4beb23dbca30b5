"""Linear regression by the Functional Mechanism: least squares from noisy moments."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar, Final

import numpy as np

from tpmdp._util.arrays import FloatArray
from tpmdp.errors import InputError
from tpmdp.queries.base import Answer
from tpmdp.queries.error_bars import simulated
from tpmdp.queries.functional import Minimum, coefficient_errors, minimum
from tpmdp.queries.moments import Moments, MomentsQuery, Ranges
from tpmdp.queries.ranges import Range

INTERCEPT: Final = "intercept"
_DROWNED: Final = 4.0  # standard errors


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
        """The columns it explains the target with."""
        return tuple(one for one in self.bounds if one.column != self.target)

    @property
    def _output(self) -> Range:
        return next(one for one in self.bounds if one.column == self.target)

    def answers(self, total: FloatArray, records: int, standard_error: float) -> list[Answer]:
        """Coefficients in the units of the columns, and R squared, all from the noisy moments alone."""
        return regression(self.name, self.moments, total, records, standard_error)


def check_target(name: str, target: str, bounds: Ranges) -> None:
    """Refuse bounds without the target or without inputs.

    >>> check_target("pay", "pay", (Range("pay", 0, 1),))
    Traceback (most recent call last):
        ...
    tpmdp.errors.InputError: bounds of pay = pay must name at least one input besides the target: add it
    """
    names = [one.column for one in bounds]
    if target not in names:
        raise InputError(f"bounds of {name}", ", ".join(names), f"lack the target {target}", "give it bounds too")
    if len(names) < 2:
        rule = "must name at least one input besides the target"
        raise InputError(f"bounds of {name}", ", ".join(names), rule, "add it")
    Moments(bounds, counted=False)


def regression(name: str, moments: Moments, total: FloatArray, records: int, error: float) -> list[Answer]:
    """Intercept, slopes and R squared in the units of the columns; the target is the last column of the moments."""
    inputs, output = moments.ranges[:-1], moments.ranges[-1]
    sums = moments.matrix(total, records)
    solved = minimum(sums[:-1, :-1], sums[:-1, -1], error)
    middle = np.append((output.low + output.high) / 2, np.zeros(len(inputs)))
    found = coefficients(name, solved, sums, inputs, output.width / 2, error, moments.counted, middle)
    return [*found, _fit(name, solved, moments, total, records, error)]


def coefficients(
    name: str,
    solved: Minimum,
    sums: FloatArray,
    inputs: Ranges,
    unit: float,
    error: float,
    counted: bool,
    offset: FloatArray | float = 0.0,
) -> list[Answer]:
    """Intercept and slopes for columns in their own units; errors to first order, or none if the form was repaired."""
    units = natural_units(inputs, unit)
    values = units @ solved.coefficients + offset
    parts = [INTERCEPT, *(one.column for one in inputs)]
    if solved.note:
        return [
            without_interval(name, part, float(value), solved.note) for part, value in zip(parts, values, strict=True)
        ]
    errors = coefficient_errors(sums, solved.coefficients, error, counted, units)
    return [Answer(name, float(v), float(e), part) for part, v, e in zip(parts, values, errors, strict=True)]


def without_interval(name: str, part: str, value: float, note: str) -> Answer:
    """A value nothing is claimed about."""
    return Answer(name, value, np.inf, part, (-np.inf, np.inf), note)


def _fit(name: str, solved: Minimum, moments: Moments, total: FloatArray, records: int, error: float) -> Answer:
    """R squared; without an interval where the target's own variance is close to the noise."""
    sums = moments.matrix(total, records)
    value, spread = r_squared(sums)
    part = "R squared"
    if solved.note:
        return without_interval(name, part, value, solved.note)
    if error and spread <= _DROWNED * error * math.sqrt(2):
        return without_interval(name, part, value, "the target's variance is drowned by the noise")
    each = simulated(lambda moved: r_squared(moments.matrix(moved, records))[0], total, error) if error else 0.0
    return Answer(name, value, each, part).within(0.0, 1.0)


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
    halves = np.array([one.width / 2 for one in inputs])
    middles = np.array([(one.low + one.high) / 2 for one in inputs])
    units = np.diag(np.append(1.0, 1 / halves))
    units[0, 1:] = -middles / halves
    return units * unit
