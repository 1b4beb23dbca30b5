"""A plan for real computers: the same promises with discrete noise, rounded inputs and machine words.

The spec is made stricter by exactly what the grid costs, then planned and certified like any other. Variances become
whole sigmas in grid steps. Theory, "Grid".
"""

from __future__ import annotations

import math
import warnings
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import ArrayLike

from tpmdp._util.arrays import BoolArray, FloatArray, IntArray
from tpmdp._util.budget_rules import DELTA_MIN, EPSILON_MIN, SENSITIVITY_MAX, as_floats
from tpmdp._util.frames import data_frame
from tpmdp._util.html import ROWS_MAX
from tpmdp._util.numbers import number
from tpmdp.errors import InputError
from tpmdp.noise.grid import (
    SIGMA_MAX,
    WORDS,
    Grid,
    closeness,
    discrete_factor,
    error_in_steps,
    fits,
    largest_sigma,
    power_of_two_below,
    reach,
    rounded_sensitivity,
    sigma_in_steps,
    sum_of_squares,
)
from tpmdp.planning.coalition import worst_coalitions
from tpmdp.planning.plan import Plan, needs, plan, plan_html
from tpmdp.spec import Spec

STEPS_A_SIGMA: Final = 64  # of an average party: rounding sigma up to a whole number then costs at most 1.6 %
STEPS_OF_HONEST: Final = 1024  # of the least honest noise
SENSITIVITY_SHARE: Final = 0.02  # of a sensitivity that rounding may add
ROUNDING_SHARE: Final = 0.05  # of the noise that the rounding of all parties together may reach in a narrow word
DIMENSION_MAX: Final = 1 << 40
FINER_BITS: Final = 10  # how much finer than good a grid may be where the word allows
COARSER_BITS: Final = 40  # how much coarser to try where the sampler demands it
ERROR_MAX: Final = 2.0  # how much larger that may make the error
BOUND_MIN, BOUND_MAX = 1e-100, 1e100


@dataclass(frozen=True, eq=False)
class GridPlan:
    """A plan for the stricter spec, the grid, and each party's whole sigma in grid steps."""

    asked: Spec  # what the parties asked for
    plan: Plan  # for the stricter spec
    grid: Grid
    sigma: IntArray

    def __repr__(self) -> str:
        parties = f"{self.asked.count} parties"
        return f"GridPlan({parties}, standard deviation {self.standard_deviation:.4g}, {self.grid.word}-bit words)"

    def _repr_html_(self) -> str:
        entry = f"Noise in each entry of what is summed: standard deviation {number(self.standard_deviation)}."
        rows = self._asked(self.plan.first_rows(ROWS_MAX))
        return plan_html(rows, self.asked.count, entry, reason=self.plan.no_noise_reason)

    def rows(self) -> list[dict[str, Any]]:
        """One mapping per party, as of a plan; the budgets are those that the parties asked for."""
        return self._asked(self.plan.rows())

    def _asked(self, rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
        """The rows with the budgets that the parties asked for."""
        budgets = zip(self.asked.epsilon.tolist(), self.asked.delta.tolist(), strict=True)
        pairs = zip(rows, budgets, strict=False)  # perhaps only the first rows
        return [{**row, "epsilon": epsilon, "delta": delta} for row, (epsilon, delta) in pairs]

    def to_frame(self) -> Any:
        """The rows as a pandas DataFrame."""
        return data_frame(self.rows())

    @property
    def needs_in_steps(self) -> FloatArray:
        """The variance that each party needs, in squared steps; exact, as steps are powers of two."""
        return self.plan.need / self.grid.step**2

    @property
    def standard_deviation(self) -> float:
        """Error of each coordinate: of the noise, and the most that rounding can add, were it the same everywhere."""
        return error_in_steps(self.sigma) * self.grid.step


def stricter_spec(spec: Spec, step: float, dimension: int) -> Spec:
    """The spec whose continuous plan keeps the promises of `spec` with discrete noise on a grid of this step.

    >>> spec = Spec(epsilon=[1.0, 1.0], delta=1e-6, threshold=1)
    >>> bool((stricter_spec(spec, 2.0**-10, 4).sensitivity > spec.sensitivity).all())
    True
    """
    finite = np.isfinite(spec.epsilon)
    _check_room(spec, finite)
    tau = closeness(spec.count, dimension)
    if tau > 2.0**-54 * min(1.0, float(spec.epsilon[finite].min(initial=1.0))):
        raise InputError("dimension", dimension, "is too large for the proof of exact noise", "split the query")
    one_less = spec.replace(
        epsilon=np.where(finite, np.nextafter(spec.epsilon, 0.0), np.inf),
        delta=np.where(finite, np.nextafter(spec.delta, 0.0), spec.delta),
        sensitivity=rounded_sensitivity(spec.sensitivity, step, dimension),
    )
    return one_less.replace(sensitivity=one_less.sensitivity * discrete_factor(needs(one_less), step))


def _check_room(spec: Spec, finite: BoolArray) -> None:
    """A stricter spec must still be valid; the error shows what the user asked for, not the stricter value."""
    checks = (
        ("epsilon", spec.epsilon[finite], 2 * EPSILON_MIN, math.inf),
        ("delta", spec.delta[finite], 2 * DELTA_MIN, 1.0),
        ("sensitivity", spec.sensitivity, 0.0, SENSITIVITY_MAX / 1024),
    )
    for field, values, low, high in checks:
        bad = (values < low) | (values > high)
        if bad.any():
            rule = (
                f"must be at least {low:g} on a grid" if values[bad][0] < low else f"must be at most {high:g} on a grid"
            )
            raise InputError(field, float(values[bad][0]), rule, "rescale the answer or relax the budget")


def good_step(spec: Spec, first: Plan, bounds: FloatArray, dimension: int) -> float:
    """The coarsest power of two that costs little, judged by the plan without a grid.

    Rounding then adds 2 % to a sensitivity that matters, the least honest noise has 1024 steps, and the noise of an
    average party 64; a party with far less gets the least sigma, which adds next to nothing to the total.

    >>> spec = Spec(epsilon=[1.0, 1.0], delta=1e-6, threshold=1)
    >>> good_step(spec, plan(spec), np.ones(2), 1)
    0.00390625
    """
    honest = worst_coalitions(first.variance, spec.threshold, spec.receivers).honest_variance
    sensitive = spec.sensitivity[first.need > 0]
    limits = [
        math.sqrt(first.total_variance / spec.count) / STEPS_A_SIGMA,
        math.sqrt(float(honest.min())) / STEPS_OF_HONEST,
        SENSITIVITY_SHARE * float(sensitive.min(initial=math.inf)) / math.sqrt(dimension),
    ]
    limit = min(value if value > 0 else math.inf for value in limits)
    return power_of_two_below(limit if math.isfinite(limit) else (float(bounds.max()) or 1.0) * 2.0**-20)


def plan_on_grid(
    spec: Spec, bound: ArrayLike, dimension: int = 1, finest: bool = False, groups: bool = False
) -> GridPlan:
    """Choose a grid and plan on it; refuse what could leave the widest word.

    `bound` is the largest absolute value of any coordinate a party contributes, one number or one per party. `finest`
    uses the widest word, for the finest grid. With `groups`, the grid serves every group that may be left, too.

    >>> result = plan_on_grid(Spec(epsilon=[0.5, 1, 2], delta=1e-6, threshold=1), bound=1.0)
    >>> result.grid.word, int(result.sigma.min()) >= 4
    (32, True)
    """
    if isinstance(dimension, bool) or not isinstance(dimension, int) or not 1 <= dimension <= DIMENSION_MAX:
        rule = f"must be a whole number from 1 to {DIMENSION_MAX}"
        raise InputError("dimension", dimension, rule, "give the length of the answer")
    bounds = _check_bounds(bound, spec.count)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # `plan` has warned its caller already
        first = plan(spec)
        step = good_step(spec, first, bounds, dimension=dimension)
        for word in WORDS[-1:] if finest else WORDS:  # the narrowest word, and the finest grid in it
            for finer in range(FINER_BITS, -1, -1):
                attempt = _try(spec, bounds, Grid(math.ldexp(step, -finer), dimension, word), groups=groups)
                if attempt is not None:
                    return attempt
        for coarser in range(1, COARSER_BITS + 1):  # sigmas too large for the sampler: a coarser grid, at a price
            attempt = _try(spec, bounds, Grid(math.ldexp(step, coarser), dimension, WORDS[-1]), groups=groups)
            if attempt is not None and attempt.standard_deviation <= ERROR_MAX * first.standard_deviation:
                return attempt
    value = f"up to {float(bounds.max()):g} in {dimension} dimensions with error {first.standard_deviation:g}"
    rule = f"fits no grid (64-bit words, sigmas up to {SIGMA_MAX} steps) without an error {ERROR_MAX:g} times larger"
    raise InputError("bound", value, rule, "clip to smaller values, split the query or bring budgets closer")


def _check_bounds(bound: ArrayLike, count: int) -> FloatArray:
    values = as_floats("bound", bound)
    if values.ndim and len(values) != count:
        raise InputError("bound", f"{len(values)} values", f"must be one number or {count}", "give one per party")
    bounds = np.broadcast_to(values, (count,))
    bad = ~((bounds == 0) | ((bounds >= BOUND_MIN) & (bounds <= BOUND_MAX)))
    if bad.any():
        rule = f"must be 0 or lie in [{BOUND_MIN:g}, {BOUND_MAX:g}]"
        raise InputError("bound", float(bounds[bad][0]), rule, "give the largest absolute value after clipping")
    return bounds


def _try(spec: Spec, bounds: FloatArray, grid: Grid, *, groups: bool) -> GridPlan | None:
    """The plan on this grid, if its sigmas can be drawn and its sums provably fit the word."""
    if float(bounds.sum()) / grid.step >= 2.0 ** (grid.word - 1):
        return None
    stricter = plan(stricter_spec(spec, grid.step, grid.dimension))
    sigma = sigma_in_steps(stricter.variance, grid.step)
    rounding = spec.count / 2 / (math.sqrt(sum_of_squares(sigma)) or math.inf)
    if grid.word < WORDS[-1] and rounding > ROUNDING_SHARE:
        return None  # too coarse for so many parties: rounding could show in the error
    most = np.full_like(sigma, largest_sigma(stricter.need / grid.step**2)) if groups else sigma
    largest = reach(bounds, most, grid.step, dimension=grid.dimension)
    if most.max(initial=0) > SIGMA_MAX or not fits(grid.word, largest):
        return None
    return GridPlan(spec, stricter, grid, sigma=sigma)
