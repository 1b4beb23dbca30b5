"""Lower confidence bounds on a privacy loss: they err as often as they say, exactly, and show what they promise."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy.stats import binom, chi2, norm

from tpmdp.gaussian.calibration import calibrate
from tpmdp.gaussian.composition import epsilon_of
from tpmdp.gaussian.lower_bounds import (
    DRAWS_MAX,
    DRAWS_MIN,
    POWER,
    chance_of_alarm,
    counted_bound,
    draws_for,
    excess_ratio,
    mu_bound,
    mu_estimate,
    ratio_shown,
)


def test_the_bound_is_that_of_chi_squared() -> None:
    noise = np.random.default_rng(1).normal(size=(2, 400)) * 3 + np.array([[5.0], [-7.0]])  # means do not matter
    squares = sum(float(np.sum((row - row.mean()) ** 2)) for row in noise)
    for doubt in (0.5, 1e-3, 1e-9):
        assert mu_bound(noise, doubt) == pytest.approx(math.sqrt(chi2.ppf(doubt, 798) / squares), rel=1e-9)
    assert mu_bound(noise, 1e-3) < mu_estimate(noise) == pytest.approx(math.sqrt(798 / squares))


@pytest.mark.parametrize("doubt", [0.2, 0.01])
def test_it_errs_as_often_as_it_says(doubt: float) -> None:
    random = np.random.default_rng(2)
    wrong = sum(mu_bound(random.normal(size=(2, 10)) * 2, doubt) > 0.5 for _ in range(20_000))
    assert abs(wrong - 20_000 * doubt) < 5 * math.sqrt(20_000 * doubt)


@pytest.mark.parametrize(("ratio", "doubt"), [(1.0, 1e-3), (1.02, 1e-5), (1.1, 1e-4), (0.99, 1e-3)])
def test_the_chance_of_an_alarm_is_exact(ratio: float, doubt: float) -> None:
    draws = 2000
    exact = chi2.cdf(ratio**2 * chi2.ppf(doubt, draws - 2), draws - 2)
    assert chance_of_alarm(ratio, draws, doubt) == pytest.approx(exact, rel=1e-6)


def test_draws_are_as_many_as_needed_and_no_more() -> None:
    for ratio in (1.02, 1.05, 1.2):
        draws = draws_for(ratio, 1e-4)
        assert chance_of_alarm(ratio, draws, 1e-4) >= POWER
        assert draws == DRAWS_MIN or chance_of_alarm(ratio, draws - 2, 1e-4) < POWER
        assert ratio_shown(draws, 1e-4) <= ratio
    assert (draws_for(1.0, 1e-4), draws_for(9.0, 1e-4)) == (DRAWS_MAX, DRAWS_MIN)


@pytest.mark.parametrize(("epsilon", "delta"), [(0.01, 1e-9), (1.0, 1e-6), (30.0, 0.1)])
def test_an_excess_of_epsilon_as_one_of_mu(epsilon: float, delta: float) -> None:
    mu = 1 / calibrate(epsilon, delta)
    ratio = excess_ratio(epsilon, delta, mu, excess=0.05)
    assert epsilon_of(mu * ratio, delta) == pytest.approx(1.05 * epsilon, rel=1e-6)


def test_where_there_is_no_epsilon_to_exceed_mu_counts() -> None:
    assert excess_ratio(0.0, 0.5, 0.1, excess=0.05) == 1.05
    assert excess_ratio(math.inf, 0.5, math.inf, excess=0.05) == 1.05


@pytest.mark.parametrize("mu", [0.0, 0.5, 2.0, 6.0])
@pytest.mark.parametrize("draws", [5, 60])
def test_counts_err_as_often_as_they_say_at_most(mu: float, draws: int) -> None:
    """All pairs of counts, with their exact chances, for a Gaussian mechanism cut in the middle."""
    doubt, rate = 0.01, float(norm.cdf(-mu / 2))
    chances = binom.pmf(np.arange(draws + 1), draws, rate)
    wrong = sum(
        chances[above] * chances[below]
        for above in range(draws + 1)
        for below in range(draws + 1)
        if counted_bound(above, below, draws, doubt=doubt) > mu
    )
    assert wrong <= doubt


def test_counts_of_a_mechanism_without_noise() -> None:
    assert counted_bound(0, 0, 10_000, doubt=1e-3) > 6
    assert counted_bound(10_000, 10_000, 10_000, doubt=1e-3) == 0.0
    assert mu_bound(np.zeros((2, 50)), 1e-3) == mu_estimate(np.zeros((2, 50))) == math.inf
