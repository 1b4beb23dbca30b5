"""A plan that survives a computer: the same promises with discrete noise, rounded inputs and machine words.

The spec is made stricter by exactly what the grid costs, planned and certified as any other, and the variances become
whole sigmas in grid steps. docs/theory.md, "Grid".
"""

from __future__ import annotations

import math
import warnings
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import ArrayLike

from tpmdp.errors import InputError
from tpmdp.noise.grid import (
    SIGMA_MAX,
    WORDS,
    Grid,
    IntArray,
    closeness,
    discrete_factor,
    fits,
    power_of_two_below,
    reach,
    rounded_sensitivity,
    sigma_in_steps,
    sum_of_squares,
)
from tpmdp.planning.coalition import worst_coalitions
from tpmdp.planning.plan import Plan, needs, plan
from tpmdp.spec import Spec
from tpmdp.validate import FloatArray, as_floats

STEPS_A_SIGMA: Final = 64  # of the least noisy party at the coarsest grid: rounding sigma up costs at most 1.6 %
STEPS_OF_HONEST: Final = 1024  # of the least honest noise
SENSITIVITY_SHARE: Final = 0.02  # of a sensitivity that rounding may add at the coarsest grid
DIMENSION_MAX: Final = 1 << 40
FINER_MAX: Final = 1 << 10  # how much finer than that a grid may be where the word allows


@dataclass(frozen=True, eq=False)
class GridPlan:
    """A plan for the stricter spec, the grid, and each party's whole sigma in grid steps."""

    asked: Spec  # what the parties asked for
    plan: Plan  # for the stricter spec
    grid: Grid
    sigma: IntArray

    @property
    def standard_deviation(self) -> float:
        """Expected error of each coordinate, noise and rounding together."""
        return math.sqrt(sum_of_squares(self.sigma) + self.asked.count / 4) * self.grid.step


def stricter_spec(spec: Spec, step: float, dimension: int) -> Spec:
    """The spec whose continuous plan keeps the promises of `spec` with discrete noise on a grid of this step.

    >>> spec = Spec(epsilon=[1.0, 1.0], delta=1e-6, threshold=1)
    >>> bool((stricter_spec(spec, 2.0**-10, 4).sensitivity > spec.sensitivity).all())
    True
    """
    finite = np.isfinite(spec.epsilon)
    tau = closeness(spec.count, dimension)
    if tau > 2.0**-54 * min(1.0, float(spec.epsilon[finite].min(initial=1.0))):
        raise InputError("dimension", dimension, "is too large for the proof of exact noise", "split the query")
    one_less = spec.replace(
        epsilon=np.where(finite, np.nextafter(spec.epsilon, 0.0), np.inf),
        delta=np.where(finite, np.nextafter(spec.delta, 0.0), spec.delta),
        sensitivity=rounded_sensitivity(spec.sensitivity, step, dimension),
    )
    return one_less.replace(sensitivity=one_less.sensitivity * discrete_factor(needs(one_less), step))


def coarsest_step(spec: Spec, first: Plan, bounds: FloatArray, dimension: int) -> float:
    """The coarsest power of two that costs little: rounding adds 2 % of a sensitivity and less noise than that.

    >>> spec = Spec(epsilon=[1.0, 1.0], delta=1e-6, threshold=1)
    >>> coarsest_step(spec, plan(spec), np.ones(2), 1)
    0.00390625
    """
    honest = worst_coalitions(first.variance, spec.threshold, spec.receivers).honest_variance
    columns = (
        (np.sqrt(first.variance), 1.0 / STEPS_A_SIGMA),
        (np.sqrt(honest), 1.0 / STEPS_OF_HONEST),
        (spec.sensitivity, SENSITIVITY_SHARE / math.sqrt(dimension)),
    )
    limit = min(float(np.where(column > 0, column, np.inf).min()) * share for column, share in columns)
    return power_of_two_below(limit if math.isfinite(limit) else (float(bounds.max()) or 1.0) * 2.0**-20)


def plan_on_grid(spec: Spec, bound: ArrayLike, dimension: int = 1) -> GridPlan:
    """Choose a grid and plan on it; refuse what could leave the widest word.

    `bound` is the largest absolute value of any coordinate a party contributes, one number or one a party.

    >>> result = plan_on_grid(Spec(epsilon=[0.5, 1, 2], delta=1e-6, threshold=1), bound=1.0)
    >>> result.grid.word, int(result.sigma.min()) >= 4
    (32, True)
    """
    if isinstance(dimension, bool) or not isinstance(dimension, int) or not 1 <= dimension <= DIMENSION_MAX:
        rule = f"must be a whole number from 1 to {DIMENSION_MAX}"
        raise InputError("dimension", dimension, rule, "give the length of the answer")
    bounds = np.broadcast_to(as_floats("bound", bound), (spec.count,))
    if not ((bounds >= 0) & np.isfinite(bounds)).all():
        value = float(bounds[~((bounds >= 0) & np.isfinite(bounds))][0])
        raise InputError("bound", value, "must be finite and not negative", "give the largest value after clipping")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        step = coarsest_step(spec, plan(spec), bounds, dimension)
    finest = step / FINER_MAX
    for word in WORDS:
        candidate = finest
        while candidate <= step:
            found = _try(spec, bounds, dimension, candidate, word)
            if found is not None:
                return found
            candidate *= 2
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        largest = sigma_in_steps(plan(stricter_spec(spec, step, dimension)).variance, step).max(initial=0)
    if largest > SIGMA_MAX:
        rule = f"spans noise levels that differ by more than a factor of {SIGMA_MAX // STEPS_A_SIGMA}"
        raise InputError("epsilon", f"{spec.epsilon.min():g} to {spec.epsilon.max():g}", rule, "bring budgets closer")
    rule = "makes sums that could leave a 64-bit word at the coarsest useful grid"
    raise InputError("bound", float(bounds.max()), rule, "clip to smaller values or rescale the answer")


def _try(spec: Spec, bounds: FloatArray, dimension: int, step: float, word: int) -> GridPlan | None:
    """The plan on this grid, if its sums provably fit the word."""
    quick = sum(bounds.tolist()) / step
    if quick >= 2.0 ** (word - 1):
        return None
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        made = plan(stricter_spec(spec, step, dimension))
    sigma = sigma_in_steps(made.variance, step)
    if sigma.max(initial=0) > SIGMA_MAX or not fits(word, reach(bounds, sigma, step, dimension)):
        return None
    return GridPlan(spec, made, Grid(step, dimension, word), sigma)
