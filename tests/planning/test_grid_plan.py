"""Plans on a grid: the same promises with discrete noise, certified, and refused when a sum could wrap."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

import tpmdp
from tests.noise.test_grid import mass
from tests.oracles import least_honest
from tests.planning.test_plan import specs
from tpmdp import InputError, Spec
from tpmdp.noise.grid import SIGMA_MAX, SIGMA_MIN, sigma_in_steps
from tpmdp.planning.enclosure import is_enough
from tpmdp.planning.grid_plan import GridPlan, plan_on_grid, stricter_spec

pytestmark = pytest.mark.filterwarnings("ignore::tpmdp.errors.NoNoiseWarning")


def check_promises(result: GridPlan) -> None:
    """Against every coalition: honest variance less nine steps^2 is enough for budget and rounded sensitivity."""
    asked, grid = result.asked, result.grid
    step = Fraction(grid.step)
    honest = least_honest([float(s) ** 2 for s in result.sigma.tolist()], asked.threshold, asked.receivers)
    for party, least in enumerate(honest):
        if least is None or np.isinf(asked.epsilon[party]) or asked.sensitivity[party] == 0:
            continue
        root = Fraction(math.isqrt(grid.dimension * 10**30) + 1, 10**15)
        sensitivity = Fraction(float(asked.sensitivity[party])) + step * root
        budget = (Fraction(float(asked.epsilon[party])), Fraction(float(asked.delta[party])))
        assert is_enough((least - 9) * step**2, *budget, sensitivity)


@settings(max_examples=150, deadline=None)
@given(specs(most=6), st.sampled_from([1, 2, 100, 10**6]), st.sampled_from([0.0, 1.0, 1e6]))
@pytest.mark.slow
def test_every_budget_holds_on_the_grid(spec: Spec, dimension: int, bound: float) -> None:
    try:
        result = plan_on_grid(spec, bound, dimension)
    except InputError as error:  # noise 60,000 times a sensitivity in a million dimensions: beyond the sampler
        assume("fits no grid" not in str(error) or tpmdp.plan(spec).standard_deviation < 1000)
        raise
    assert all(s == 0 or SIGMA_MIN <= s <= SIGMA_MAX for s in result.sigma.tolist())
    assert math.frexp(result.grid.step)[0] == 0.5
    check_promises(result)
    assert result.plan.certificate().check(result.plan.spec).gap <= 1e-12


def test_the_grid_costs_next_to_nothing() -> None:
    spec = Spec(epsilon=[0.5, 0.8, 1, 2, 3], delta=1e-6, threshold=2, receivers=[0, 4])
    for dimension in (1, 1000):
        result = plan_on_grid(spec, 1.0, dimension)
        assert 1 <= result.standard_deviation / tpmdp.plan(spec).standard_deviation < 1.001


def test_honest_discrete_noise_meets_its_delta_by_direct_summation() -> None:
    """A deliberately coarse grid: convolve the exact laws of the honest parties and sum the privacy loss."""
    spec, step = Spec(epsilon=[1.0, 1.0, 1.0], delta=1e-3, threshold=1), 2.0**-3
    sigma = sigma_in_steps(tpmdp.plan(stricter_spec(spec, step, 1)).variance, step)
    joint = np.convolve(mass(sigma[0], 300), mass(sigma[1], 300))
    shift = 9  # steps: a change of 1 is 8 steps, and rounding can add one
    delta = math.fsum(np.maximum(joint[:-shift] - math.e * joint[shift:], 0.0).tolist())
    assert 5e-4 < delta <= 1e-3


def test_words_are_as_narrow_as_the_proof_allows() -> None:
    spec = Spec(epsilon=[1.0] * 5, delta=1e-6, threshold=2)
    assert plan_on_grid(spec, 1.0, 100).grid.word == 32
    assert plan_on_grid(spec, 1e9, 100).grid.word == 64


@pytest.mark.parametrize(
    ("bound", "dimension", "message"),
    [
        (1e25, 1, r"bound = up to 1e\+25 in 1 dimensions .* fits no grid"),
        (float("inf"), 1, "bound = inf must be 0 or lie in"),
        (-1.0, 1, r"bound = -1\.0 must be 0 or lie in"),
        (1e-316, 1, "bound = .* must be 0 or lie in"),
        ([1.0, 2.0], 1, "bound = 2 values must be one number or 3"),
        (1.0, 0, "dimension = 0 must be a whole number from 1"),
        (1.0, 2.5, "dimension = 2.5 must be a whole number from 1"),
        (1.0, 10**40, r"dimension = 1000\d* must be a whole number from 1 to"),
    ],
)
def test_what_could_wrap_is_refused(bound: Any, dimension: int, message: str) -> None:
    with pytest.raises(InputError, match=message):
        plan_on_grid(Spec(epsilon=[1.0] * 3, delta=1e-6, threshold=1), bound, dimension)


@pytest.mark.parametrize(
    ("spec", "dimension"),
    [
        (Spec(epsilon=[2, 0.3, 0.1 + 0.2], delta=1e-6, threshold=1, receivers=[1, 2]), 1),  # a variance of 1e-14
        (Spec(epsilon=[3, 0.2, 1, 1], delta=1e-6, threshold=[0, 1, 1, 3], receivers=[0]), 1),  # a solver's residue
        (Spec(epsilon=[1, 1, float("inf")], delta=1e-6, threshold=1, sensitivity=[1e6, 1e6, 1.0]), 1),
        (Spec(epsilon=[1e-3] * 3, delta=1e-10, threshold=1), 10**6),  # huge noise beside a small sensitivity
        (Spec(epsilon=[1e-7, 1e7, 1e7], delta=1e-9, threshold=2), 1),  # budgets far apart
    ],
)
def test_uneven_studies_still_get_a_grid(spec: Spec, dimension: int) -> None:
    result = plan_on_grid(spec, 1.0, dimension)
    check_promises(result)
    assert result.standard_deviation <= 2 * tpmdp.plan(spec).standard_deviation


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"epsilon": [1e-20] * 3}, "epsilon = 1e-20 must be at least 2e-20 on a grid"),
        ({"delta": 1e-300}, "delta = 1e-300 must be at least 2e-300 on a grid"),
        ({"sensitivity": 1e60}, r"sensitivity = 1e\+60 must be at most"),
        ({"epsilon": [1e-10] * 3, "delta": 1e-10}, "fits no grid"),
    ],
)
def test_studies_beyond_any_grid_are_refused_by_what_was_asked(changes: dict[str, Any], message: str) -> None:
    spec = Spec(**{"epsilon": [1.0] * 3, "delta": 1e-6, "threshold": 1, **changes})
    with pytest.raises(InputError, match=message):
        plan_on_grid(spec, 1.0, 2**40 if "fits" in message else 1)


def test_no_noise_still_has_a_grid() -> None:
    result = plan_on_grid(Spec(epsilon=[1.0, 1.0], delta=1e-6, threshold=0), 5.0, 3)
    assert result.sigma.tolist() == [0, 0]
    nothing = plan_on_grid(Spec(epsilon=float("inf"), delta=0.0, threshold=1, receivers=[True, True]), 0.0)
    assert nothing.grid.word == 32
