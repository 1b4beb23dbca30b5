"""Linear regression by the Functional Mechanism: least squares from noisy moments."""

from __future__ import annotations

import math
from collections.abc import Hashable
from dataclasses import dataclass
from typing import ClassVar, Final

import numpy as np

from tpmdp._util.arrays import FloatArray
from tpmdp.errors import InputError
from tpmdp.queries.answer import CANNOT_TELL, Z_95, Answer
from tpmdp.queries.moments import Moments, MomentsQuery, Ranges
from tpmdp.queries.noisy_moments import NoisyMoments, coefficients, r_squared, r_squared_limits
from tpmdp.queries.noisy_quadratic import minimum
from tpmdp.queries.ranges import Range

INTERCEPT: Final = "intercept"
R_SQUARED: Final = "R squared"


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

    @property
    def vector(self) -> Hashable:
        return self.moments

    def answers(self, total: FloatArray, records: int, standard_error: float) -> list[Answer]:
        """Coefficients in the units of the columns, and R squared, computed from the noisy moments only."""
        return regression(self.name, self.moments, total, records=records, error=standard_error)

    def estimates(self, total: FloatArray, records: int, standard_error: float) -> list[Answer]:
        return regression(self.name, self.moments, total, records=records, error=standard_error, bars=False)

    def limits(self, total: FloatArray, records: int, noise: float, bias: float) -> list[tuple[float, float]]:
        answers = regression(self.name, self.moments, total, records=records, error=noise, bias=bias)
        return [answer.interval for answer in answers]


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
    name: str,
    moments: Moments,
    total: FloatArray,
    *,
    records: int,
    error: float,
    bias: float = 0.0,
    bars: bool = True,
) -> list[Answer]:
    """Intercept, slopes and R squared in the units of the columns; the target is the last column of the moments.

    If the noise allows inputs that determine each other, coefficients cannot be told: they come without an interval,
    from a form that had to be repaired. `bias` is as in `NoisyMoments`; without `bars` there are no intervals.
    """
    inputs, output = moments.ranges[:-1], moments.ranges[-1]
    sums = NoisyMoments(moments.matrix(total, records), error, moments.counted, bias=bias)
    form = sums.of(*range(1, len(inputs) + 1))
    solved = minimum(form.sums, sums.sums[:-1, -1], 0.0 if form.is_clear() else error)
    units = natural_units(inputs, output.width / 2)
    middle = np.append((output.low + output.high) / 2, np.zeros(len(inputs)))
    values = (units @ solved.coefficients + middle).tolist()
    parts = [INTERCEPT, *(each.column for each in inputs)]
    if solved.note or not form.is_clear():
        repaired = [without_interval(name, *pair, note=solved.note) for pair in zip(parts, values, strict=True)]
        return [*repaired, Answer.drowned(name, R_SQUARED, (0.0, 1.0), note=CANNOT_TELL)]
    share = _share(name, sums, bars=bars)
    if not bars or not (error or bias):
        return [*(Answer(name, value, 0.0, part=part) for part, value in zip(parts, values, strict=True)), share]
    lows, highs = sums.interval(coefficients(units), len(parts), room=form.room)
    return [
        *(
            Answer(name, value, (high - low) / (2 * Z_95), part=part, limits=(low, high))
            for part, value, low, high in zip(
                parts, values, (lows + middle).tolist(), (highs + middle).tolist(), strict=True
            )
        ),
        share,
    ]


def _share(name: str, sums: NoisyMoments, *, bars: bool) -> Answer:
    """R squared, where the inputs do not determine each other."""
    possible = (0.0, 1.0)
    if not sums.of(len(sums.sums) - 1).is_clear():
        return Answer.drowned(name, R_SQUARED, possible, note="the target's variance is drowned by the noise")
    value = float(r_squared(sums.sums)[0])
    if not bars or not (sums.error or sums.bias):
        return Answer(name, min(max(value, 0.0), 1.0), 0.0, part=R_SQUARED)
    limits = r_squared_limits(sums) or possible
    return Answer.between(name, R_SQUARED, value, limits=limits, possible=possible)


def without_interval(name: str, part: str, value: float, note: str) -> Answer:
    """A value without error bars."""
    return Answer(name, value, math.inf, part=part, limits=(-math.inf, math.inf), note=note)


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
