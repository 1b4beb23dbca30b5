"""Linear regression by the Functional Mechanism: least squares from noisy moments."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tpmdp.errors import InputError
from tpmdp.queries.base import Answer
from tpmdp.queries.error_bars import first_order
from tpmdp.queries.functional import minimum
from tpmdp.queries.moments import Moments, MomentsQuery, Ranges
from tpmdp.queries.shares import Range
from tpmdp.validate import FloatArray

INTERCEPT = "intercept"


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

        def found(sums: FloatArray) -> FloatArray:
            return regression(self.moments.matrix(sums, records), self.inputs, self._output, 0.0)[0]

        values, note = regression(self.moments.matrix(total, records), self.inputs, self._output, standard_error)
        parts = [INTERCEPT, *(one.column for one in self.inputs), "R squared"]
        return with_errors(self.name, parts, values, found, total, standard_error, note)


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


def with_errors(
    name: str, parts: list[str], values: FloatArray, function: object, total: FloatArray, error: float, note: str
) -> list[Answer]:
    """Answers with first-order errors, or without any where the form had to be repaired."""
    assert callable(function)
    unbounded = (-np.inf, np.inf)
    if note:
        return [
            Answer(name, float(value), np.inf, part, unbounded, note) for part, value in zip(parts, values, strict=True)
        ]
    errors = first_order(function, total, error)
    rows = zip(parts, values, errors, strict=True)
    return [Answer(name, float(value), float(each), part) for part, value, each in rows]


def regression(sums: FloatArray, inputs: Ranges, output: Range, error: float) -> tuple[FloatArray, str]:
    """Intercept, slopes and R squared in the units of the columns, and a note if the form had to be repaired.

    `sums` is z z^T over all records, with z = (1, inputs, output) and columns scaled to [-1, 1].
    """
    solved = minimum(sums[:-1, :-1], sums[:-1, -1], error)
    scaled = solved.coefficients
    unexplained = float(sums[-1, -1] - 2 * scaled @ sums[:-1, -1] + scaled @ sums[:-1, :-1] @ scaled)
    spread = float(sums[-1, -1] - sums[0, -1] ** 2 / sums[0, 0])
    fit = 1 - unexplained / spread if spread > 0 else 0.0
    intercept, slopes = natural(scaled, inputs, output.width / 2)
    middle = (output.low + output.high) / 2
    return np.array([intercept + middle, *slopes, fit]), solved.note


def natural(scaled: FloatArray, inputs: Ranges, unit: float) -> tuple[float, FloatArray]:
    """Coefficients for columns in their own units, from those for columns in [-1, 1].

    >>> natural(np.array([1.0, 2.0]), (Range("age", 0, 4),), 1.0)
    (-1.0, array([1.]))
    """
    halves = np.array([one.width / 2 for one in inputs])
    middles = np.array([(one.low + one.high) / 2 for one in inputs])
    slopes = scaled[1:] * unit / halves
    return float(scaled[0] * unit - slopes @ middles), slopes
