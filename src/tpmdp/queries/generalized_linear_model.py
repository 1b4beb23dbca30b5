"""Generalised linear models with a bounded score, fitted by Newton's method in rounds.

A record with inputs z (the constant first, the others scaled to [-1, 1]) has a score r z and a curvature w z z^T at
the coefficients beta, where r is in [-1, 1] and w in [0, 1]. Each round releases the noisy sums of both at a public
beta, and all parties take the same step. The noise protects whatever beta is. Theory M1 to M7.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Final

import numpy as np

from tpmdp._util.arrays import FloatArray
from tpmdp._util.numbers import plural
from tpmdp.data.table import ColumnKind, Table
from tpmdp.errors import InputError
from tpmdp.queries.answer import Z_95, Answer
from tpmdp.queries.base import Query
from tpmdp.queries.guesses import TypicalData
from tpmdp.queries.linear_regression import INTERCEPT, natural_units, without_interval
from tpmdp.queries.moments import Moments, Ranges
from tpmdp.queries.newton import bounded, moved, solve
from tpmdp.queries.profile_set import NoisyStep
from tpmdp.queries.ranges import Range, numbers
from tpmdp.queries.rounds import Point, RoundsQuery
from tpmdp.queries.score_sum import ScoreSum
from tpmdp.queries.starting_moments import StartingMoments

ROUNDS_MAX: Final = 8
RIGHT: Final = (
    "weighted maximum likelihood, whose coefficients are right on average where the model holds for all parties, "
    "whatever the budgets"
)
ONE_ROUND: Final = "an approximation from one round: no interval"
UNCLEAR: Final = "cannot be told: the noise hides how this outcome depends on these columns"
_USUAL: Final = 1e100
_LAST: Final = 0.65  # of the budget of all rounds


@dataclass(frozen=True)
class GeneralizedLinearModel(RoundsQuery):
    """Coefficients at which the scores of all records add up to 0. The base class of further models.

    A model defines `score`, and `outcome` if that is not the target as it stands. Intervals take for granted that the
    curvature of a record changes by a factor e^`bend` at most if its predictor moves by 1.
    """

    target: str
    bounds: Ranges

    has_parts: ClassVar[bool] = True
    leaves: ClassVar[str] = "in each round, the sums of each record's score and curvature, times its scaled columns"
    has_start: ClassVar[bool] = False  # whether round 1 releases moments; else it is asked at coefficients of 0
    bend: ClassVar[float] = 1.0
    hessian_weight: ClassVar[float] = 1.0  # see ScoreSum; the next two follow from it by theory M1 or M2
    squared_spread: ClassVar[float] = 5.0
    squared_size: ClassVar[float] = 2.0

    def __post_init__(self) -> None:
        if isinstance(self.rounds, bool) or not 1 <= self.rounds <= ROUNDS_MAX:
            rule = f"must be a whole number from 1 to {ROUNDS_MAX}"
            raise InputError(f"rounds of {self.name}", self.rounds, rule, "4 suits most models")
        if self.target in [each.column for each in self.bounds]:
            rule, remedy = "must not have the target", "give the bounds of inputs only"
            raise InputError(f"bounds of {self.name}", self.target, rule, remedy)
        Moments(self.bounds, counted=False)

    @abstractmethod
    def score(self, predictor: FloatArray, outcome: FloatArray) -> tuple[FloatArray, FloatArray]:
        """The scores of records, in [-1, 1], and how fast they grow with the predictor, in [0, 1]; both are clipped."""

    def outcome(self, table: Table) -> FloatArray:
        """The outcome of records: the target, unless a model changes it."""
        return numbers(table, self.target)

    def share(self, table: Table) -> FloatArray:
        """The outcome in [0, 1], of which round 1 releases moments; only where `has_start`."""
        raise NotImplementedError

    def start(self, moments: StartingMoments) -> list[float]:
        """The first point, from moments; only where `has_start`. All parties must get the same bits."""
        raise NotImplementedError

    def typical_curvature(self, scenario: TypicalData) -> float:
        """The curvature of a record in such a scenario, for previews."""
        del scenario
        return 0.25

    def guessed_moments(self, scenario: TypicalData) -> FloatArray:
        """The moments of one record in such a scenario: of the inputs, and of the outcome in [-1, 1] last."""
        layout = Moments((*self.bounds, Range(self.target, -1.0, 1.0)), counted=True)
        return layout.matrix(layout.guess(1.0, scenario, share=scenario.share), 1.0)

    def in_units(self, coefficients: FloatArray) -> FloatArray:
        """Coefficients for columns in their own units, from those for columns scaled to [-1, 1]."""
        return natural_units(self.bounds, 1.0) @ coefficients

    @property
    def shares(self) -> tuple[float, ...]:
        """The last round gets 65 %; each before it twice as much as the one before."""
        if self.rounds == 1:
            return (1.0,)
        all_before = 2 ** (self.rounds - 1) - 1
        return (*((1 - _LAST) * (2**place / all_before) for place in range(self.rounds - 1)), _LAST)

    @property
    def layout(self) -> ScoreSum:
        """Of the sums at a point."""
        return ScoreSum(self.entries, self.hessian_weight, self.squared_spread, squared_size=self.squared_size)

    @property
    def start_layout(self) -> ScoreSum:
        """Of the sums of round 1 if there is a start: the curvature is 1 for all records."""
        return ScoreSum(self.entries, weight=1.0, squared_spread=4.5, squared_size=2.0)

    @property
    def entries(self) -> int:
        """The number of coefficients."""
        return 1 + len(self.bounds)

    @property
    def parts(self) -> list[str]:
        """The names of the coefficients."""
        return [INTERCEPT, *(each.column for each in self.bounds)]

    @property
    def guessed_point(self) -> Point:
        return (0.0,) * self.entries

    def trial_point(self, random: np.random.Generator) -> Point:
        """A steep step that passes close to a corner, on whose two sides scores are far apart."""
        slopes = random.normal(size=self.entries - 1)
        corner = random.choice([-1.0, 1.0], size=self.entries - 1)
        steepness = 10 ** random.uniform(0, 4)
        middle = float(slopes @ corner) * (1 - 10 ** random.uniform(-2, 0))
        return tuple((steepness * np.array([-middle, *slopes])).tolist())

    def asked(self, number: int, point: Point) -> RoundSum:
        here = point if point or (self.has_start and number == 1) else self.guessed_point
        return RoundSum(self.name, self, number, point=here, weight=self.weight, mode=self.mode)

    def next_point(self, number: int, point: Point, *, total: FloatArray, records: int, standard_error: float) -> Point:
        round_sum = self.asked(number, point)
        layout, here = round_sum.layout, round_sum.point
        if not _is_usual(total):
            return here or self.guessed_point
        gradient, form = layout.parts(total)
        noise = layout.form_noise(standard_error)
        if here:
            return moved(here, solve(form, [-each for each in gradient], noise))
        known = records if self.mode == "all" else None
        rarest = standard_error / max(records, 1)
        return bounded(self.start(StartingMoments.of(gradient, form, records=known, noise=noise, rarest=rarest)))

    def stopped(self, number: int, point: Point) -> list[Answer]:
        return self.without_intervals(point, f"stopped after {plural(number, 'round')} of {self.rounds}: no interval")

    def without_intervals(self, point: Point, note: str) -> list[Answer]:
        """The coefficients of a point."""
        values = self.in_units(np.array(point)).tolist()
        pairs = zip(self.parts, values, strict=True)
        return [without_interval(self.name, part, value, note=note) for part, value in pairs]

    def estimate(self, point: Point, total: FloatArray, error: float) -> list[Answer]:
        """The answers of the last round, asked at this point."""
        if not _is_usual(total):
            return self._unclear()
        layout, at = self.layout, np.array(point)
        gradient, form = (np.array(part) for part in layout.parts(total))
        noisy = NoisyStep(gradient, form, error, form_error=layout.form_error(error), bend=self.bend)
        step = noisy.step()
        if step is None:
            return self._unclear()
        start, values = self.in_units(at).tolist(), self.in_units(at + step).tolist()
        intervals = noisy.intervals(natural_units(self.bounds, 1.0), step)
        if not np.isfinite(intervals).all():
            return self._unclear()
        answers = []
        for part, value, origin, (low, high) in zip(self.parts, values, start, intervals, strict=True):
            limits = (min(origin + low, value), max(origin + high, value))
            answers.append(Answer(self.name, value, (high - low) / (2 * Z_95), part=part, limits=limits))
        return answers

    def _unclear(self) -> list[Answer]:
        return [Answer.drowned(self.name, part, (-math.inf, math.inf), note=UNCLEAR) for part in self.parts]

    # As an ordinary query -------------------------------------------------------------------------------------------

    @property
    def alone(self) -> RoundSum:
        """The sum of the last round, at a guessed point if there are several."""
        return self.asked(self.rounds, self.guessed_point if self.rounds > 1 else ())

    @property
    def columns(self) -> Mapping[str, ColumnKind]:
        return {**{each.column: "number" for each in self.bounds}, self.target: "number"}

    def ranges_of(self, party: str) -> Sequence[Range]:
        del party
        return self.bounds

    @property
    def largest(self) -> float:  # type: ignore[override]  # as the sum
        return RoundSum.largest

    @property
    def model(self) -> str:  # type: ignore[override]  # one round is an approximation
        return RIGHT if self.rounds > 1 else ""

    @property
    def dimension(self) -> int:
        return self.alone.dimension

    @property
    def spread(self) -> float:
        return self.alone.spread

    @property
    def size(self) -> float:
        return self.alone.size

    def features(self, table: Table) -> Sequence[FloatArray]:
        return self.alone.features(table)

    def typical(self, records: float) -> FloatArray:
        return self.alone.typical(records)

    def guess(self, records: float, scenario: TypicalData) -> FloatArray:
        return self.alone.guess(records, scenario)

    def answers(self, total: FloatArray, records: int, standard_error: float) -> list[Answer]:
        return self.alone.answers(total, records, standard_error)

    def estimates(self, total: FloatArray, records: int, standard_error: float) -> list[Answer]:
        return self.alone.estimates(total, records, standard_error)

    def limits(self, total: FloatArray, records: int, noise: float, bias: float) -> list[tuple[float, float]]:
        return self.alone.limits(total, records, noise, bias)


def _is_usual(total: FloatArray) -> bool:
    """Whether a total can be computed with; what no records and no noise could give need not be."""
    return bool((np.abs(total) < _USUAL).all())


@dataclass(frozen=True)
class RoundSum(Query):
    """What one round of a model releases: at a point, or moments if the point is empty."""

    fit: GeneralizedLinearModel = field(metadata={"hidden": True})
    number: int = field(metadata={"hidden": True})
    point: Point = field(metadata={"hidden": True})

    has_parts: ClassVar[bool] = True
    largest: ClassVar[float] = 2.0  # products of the Hessian may be a little above 1

    @property
    def layout(self) -> ScoreSum:
        """Of its vector."""
        return self.fit.layout if self.point else self.fit.start_layout

    @property
    def columns(self) -> Mapping[str, ColumnKind]:
        return self.fit.columns

    @property
    def dimension(self) -> int:
        return self.layout.dimension

    @property
    def spread(self) -> float:
        return self.layout.spread

    @property
    def size(self) -> float:
        return self.layout.size

    @property
    def leaves(self) -> str:  # type: ignore[override]  # as the model
        return self.fit.leaves

    @property
    def model(self) -> str:  # type: ignore[override]  # as the model
        return self.fit.model

    @property
    def code(self) -> str:  # type: ignore[override]  # as the model
        return self.fit.code

    def ranges_of(self, party: str) -> Sequence[Range]:
        return self.fit.ranges_of(party)

    def features(self, table: Table) -> list[FloatArray]:
        inputs = [2 * each.shares(table) for each in self.fit.bounds]
        if not self.point:
            outcome = 2 * np.clip(self.fit.share(table), 0.0, 1.0) - 1
            return self.layout.features(inputs, outcome, np.ones_like(outcome))
        outcome = self.fit.outcome(table)
        predictor = np.full_like(outcome, self.point[0])
        for coefficient, column in zip(self.point[1:], inputs, strict=True):
            predictor = predictor + coefficient * column
        score, curvature = self.fit.score(predictor, outcome)
        return self.layout.features(inputs, np.clip(score, -1.0, 1.0), np.clip(curvature, 0.0, 1.0))

    def answers(self, total: FloatArray, records: int, standard_error: float) -> list[Answer]:
        if self.fit.rounds > 1:
            return self.fit.estimate(self.point, total, standard_error)
        point = self.fit.next_point(1, self.point, total=total, records=records, standard_error=standard_error)
        return self.fit.without_intervals(point, ONE_ROUND)

    def limits(self, total: FloatArray, records: int, noise: float, bias: float) -> list[tuple[float, float]]:
        """No interval if there is a bias: it may move the point of the last round, too."""
        if not bias:
            return super().limits(total, records, noise, bias)
        return [(-math.inf, math.inf)] * self.fit.entries

    def typical(self, records: float) -> FloatArray:
        return self.guess(records, TypicalData())

    def guess(self, records: float, scenario: TypicalData) -> FloatArray:
        """At a point where the gradient is 0, or the moments in such a scenario."""
        moments = self.fit.guessed_moments(scenario)
        form, shared = moments[:-1, :-1], moments[:-1, -1]
        if not self.point:
            return records * self.layout.total(shared, form)
        return records * self.layout.total(np.zeros(len(form)), self.fit.typical_curvature(scenario) * form)

    def settings(self) -> dict[str, Any]:
        return {**self.fit.settings(), "round": self.number, "point": list(self.point)}
