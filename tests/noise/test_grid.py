"""The grid: exact encoding, honest rounding costs, and the lemmas of Theory checked by plain summation."""

from __future__ import annotations

import math
from fractions import Fraction

import mpmath
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from tests.oracles import DIGITS, exact_delta
from tpmdp import InputError
from tpmdp.noise.grid import (
    ROUNDING_VARIANCE,
    SIGMA_MAX,
    SIGMA_MIN,
    Grid,
    closeness,
    discrete_factor,
    fits,
    power_of_two_below,
    reach,
    rounded_sensitivity,
    sigma_in_steps,
)

Floats = NDArray[np.float64]


def mass(sigma: float, span: int) -> Floats:
    x = np.arange(-span, span + 1, dtype=np.float64)
    weights = np.exp(-(x * x) / (2 * sigma * sigma))
    return np.asarray(weights / math.fsum(weights.tolist()))


def discrete_delta(sigma: float, shift: tuple[int, ...], epsilon: float) -> float:
    """delta of the discrete Gaussian under an integer shift, summed over the whole grid of one or two dimensions."""
    span = math.ceil(14 * sigma)
    axis = np.arange(-span, span + 1, dtype=np.float64)
    weights, product = mass(sigma, span), axis * shift[0]
    if len(shift) == 2:
        weights = np.outer(weights, mass(sigma, span)).ravel()
        product = np.add.outer(product, axis * shift[1]).ravel()
    norm = sum(v * v for v in shift)
    loss = (2 * product + norm) / (2 * sigma * sigma)  # of x against x + shift
    gain = -np.expm1(np.minimum(epsilon - loss, 0.0))
    return math.fsum((weights * gain).tolist())


SHIFTS = [(1,), (3,), (12,), (40,), (1, 1), (3, 4), (5, 1), (12, 9), (7, 24)]


@pytest.mark.parametrize("sigma", [4, 5, 8, 20])
@pytest.mark.parametrize("shift", SHIFTS)
def test_discrete_noise_protects_like_continuous_noise_of_nine_steps_less(sigma: int, shift: tuple[int, ...]) -> None:
    """Lemma G2 in one and two dimensions, along the axes and across them."""
    norm = math.sqrt(sum(v * v for v in shift))
    mu = norm / math.sqrt(sigma * sigma - ROUNDING_VARIANCE)
    for epsilon in (0.0, 0.01, 0.1, 0.5, 1.0, 3.0, 8.0):
        continuous = exact_delta(DIGITS(mu), epsilon)
        if continuous > 1e-11:  # below, the plain sum itself is inexact
            assert discrete_delta(sigma, shift, epsilon) <= float(continuous) * (1 + 1e-9)


def test_without_that_allowance_a_coarse_grid_breaks_the_promise() -> None:
    """Why it is needed: at the same variance the discrete Gaussian can leak up to a third more (sigma = 2)."""
    worst = max(
        discrete_delta(2, (shift,), epsilon) / float(exact_delta(DIGITS(shift) / 2, epsilon))
        for shift in (1, 2, 3)
        for epsilon in np.linspace(0.1, 4, 40)
        if exact_delta(DIGITS(shift) / 2, epsilon) > 1e-9
    )
    assert worst > 1.2


@pytest.mark.parametrize("sigmas", [(1.0, 1.0), (1.0, 1.5, 1.0), (1.2, 1.2, 1.2, 3.0)])
def test_sums_of_discrete_gaussians_are_nearly_one(sigmas: tuple[float, ...]) -> None:
    """Lemma G1 where its error is large enough to be seen: sigmas near 1 instead of 4 and more."""
    span = 60
    joint = mass(sigmas[0], span)
    for sigma in sigmas[1:]:
        joint = np.convolve(joint, mass(sigma, span))
    half = len(joint) // 2
    total = math.sqrt(sum(s * s for s in sigmas))
    middle = slice(half - 6, half + 7)  # far out, doubles run out before the lemma does
    ratio = np.log(joint[middle] / mass(total, half)[middle])
    bound = 5 * len(sigmas) * math.exp(-(math.pi**2) * min(sigmas) ** 2)
    assert 1e-12 < np.abs(ratio).max() <= bound


def test_closeness_is_negligible_for_any_real_study() -> None:
    assert closeness(10**7, 10**9) < 1e-50


@settings(max_examples=300, deadline=None)
@given(st.lists(st.floats(-100, 100), min_size=1, max_size=20), st.integers(-20, 3))
@pytest.mark.slow
def test_encoding_is_the_nearest_grid_point_and_decodes_exactly(values: list[float], exponent: int) -> None:
    grid = Grid(2.0**exponent, len(values), 64)
    steps = grid.encode(values, bound=100.0)
    for value, step in zip(values, steps.tolist(), strict=True):
        assert abs(Fraction(value) - step * Fraction(grid.step)) <= Fraction(grid.step) / 2
    assert np.array_equal(grid.encode(grid.decode(steps), bound=108.0), steps)


@settings(max_examples=200, deadline=None)
@given(st.integers(1, 30), st.data())
@pytest.mark.slow
def test_rounding_raises_the_sensitivity_by_no_more_than_stated(dimension: int, data: st.DataObject) -> None:
    grid = Grid(2.0**-3, dimension, 32)
    vectors = [np.array(data.draw(st.lists(st.floats(-5, 5), min_size=dimension, max_size=dimension))) for _ in (1, 2)]
    before = np.linalg.norm(vectors[0] - vectors[1])
    after = np.linalg.norm(np.subtract(*(grid.decode(grid.encode(vector, 5.0)) for vector in vectors)))
    assert after <= rounded_sensitivity(np.array([max(before, 1e-30)]), grid.step, dimension)[0]


@settings(max_examples=300, deadline=None)
@given(st.floats(1e-12, 1e12), st.integers(-30, 10))
def test_sigmas_are_whole_and_never_too_small(variance: float, exponent: int) -> None:
    step = 2.0**exponent
    (sigma,) = sigma_in_steps(np.array([variance]), step).tolist()
    assert sigma >= SIGMA_MIN
    if sigma > SIGMA_MAX:  # too large to be drawn, and refused by whoever asked
        assert SIGMA_MAX**2 * Fraction(step) ** 2 < Fraction(variance)
        return
    assert sigma**2 * Fraction(step) ** 2 >= Fraction(variance)
    assert sigma == SIGMA_MIN or (sigma - 1) ** 2 * Fraction(step) ** 2 < Fraction(variance)


def test_the_discrete_factor_adds_nine_steps_to_the_need() -> None:
    need, step = np.array([0.5, 7.0, 1e6]), 2.0**-4
    raised = need * discrete_factor(need, step) ** 2
    assert (raised >= need + ROUNDING_VARIANCE * step**2).all()
    assert np.allclose(raised, need + ROUNDING_VARIANCE * step**2, rtol=1e-10)


def test_the_range_bound_holds_with_room_for_the_stated_probability() -> None:
    bounds, sigma = np.array([2.0, 3.0]), np.array([10, 20])
    largest = reach(bounds, sigma, 0.5, 1000)
    noise = largest - (5 / 0.5 + 1)
    tail = 2 * 1000 * mpmath.exp(-(DIGITS(noise) ** 2) / (2 * 500))
    assert tail < DIGITS(2) ** -100
    assert fits(32, largest)


def test_powers_of_two() -> None:
    assert [power_of_two_below(x) for x in (1.0, 1.5, 0.9, 1e-3)] == [1.0, 1.0, 0.5, 2.0**-10]


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ([1.0], "must be a vector of 2 entries"),
        ([1.0, 9.0], r"entry 2 = .not shown. must lie in \[-5, 5\]: clip it"),
        ([float("nan"), 1.0], "entry 1 = .not shown. must lie in"),
        ([float("inf"), 1.0], "entry 1 = .not shown. must lie in"),
    ],
)
def test_values_that_do_not_fit_are_refused(values: list[float], message: str) -> None:
    with pytest.raises(InputError, match=message):
        Grid(1.0, 2, 32).encode(values, 5.0)
