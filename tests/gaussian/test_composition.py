"""Composition: the three rules, vectorised over parties, never understated."""

from __future__ import annotations

import mpmath
import numpy as np
import pytest

import tpmdp
from tests.oracles import DIGITS, exact_delta
from tpmdp.gaussian.composition import compose_advanced, compose_basic, compose_gaussian, epsilon_of


def test_basic_adds_up_per_party() -> None:
    epsilon, delta = compose_basic([[0.1, 1.0], [0.2, 2.0]], [[1e-6, 1e-7], [1e-6, 1e-7]])
    assert np.allclose(epsilon, [0.3, 3.0])
    assert np.allclose(delta, [2e-6, 2e-7])
    assert (np.asarray(epsilon) >= [0.1 + 0.2, 3.0]).all()
    assert compose_basic([1.0], [0.9, 0.9])[1] == 1.0


def test_advanced_composes_epsilon_with_the_slip_corrected() -> None:
    epsilon, delta = compose_advanced([0.1, 0.01], 1e-8, releases=100, extra_delta=1e-6)
    expected = [np.sqrt(200 * np.log(1e6)) * e + 100 * e * np.expm1(e) for e in (0.1, 0.01)]
    assert np.allclose(epsilon, expected)
    assert (np.asarray(epsilon) > [0.1, 0.01]).all()  # the paper's first component says epsilon_i itself
    assert delta == pytest.approx(2e-6)


def test_exact_gaussian_composition_matches_one_release_with_the_joint_noise() -> None:
    mu = compose_gaussian([0.02] * 100)
    assert mu == pytest.approx(0.2)
    assert mu >= 0.2
    assert epsilon_of(mu, 1e-6) == pytest.approx(tpmdp.epsilon_at(5.0, 1e-6))
    assert exact_delta(DIGITS(mu), float(epsilon_of(mu, 1e-6))) <= DIGITS(1e-6)
    assert np.allclose(compose_gaussian([[0.3, 1.0], [0.4, 0.0]]), [0.5, 1.0])


def test_the_worked_example_of_the_specification() -> None:
    """epsilon_0 = 0.1, 100 releases, 1e-6 in all: each release calibrated at half of delta / 100."""
    mu = tpmdp.mu_at(tpmdp.calibrate(0.1, 5e-9))
    assert epsilon_of(compose_gaussian([mu] * 100), 1e-6) == pytest.approx(0.886, abs=5e-4)
    assert 100 * float(epsilon_of(mu, 1e-8)) == pytest.approx(9.71, abs=5e-3)
    advanced = min(
        float(compose_advanced(epsilon_of(mu, (1e-6 - x) / 100), 1e-8, 100, x)[0])
        for x in np.linspace(1e-8, 9.9e-7, 99)
    )
    assert advanced == pytest.approx(6.42, abs=5e-3)


def test_exact_composition_is_the_cheapest() -> None:
    for releases in (2, 10, 100, 1000):
        mu = tpmdp.mu_at(tpmdp.calibrate(0.05, 1e-9))
        exact = float(epsilon_of(compose_gaussian([mu] * releases), releases * 1e-9))
        assert exact < compose_basic([0.05] * releases, [1e-9] * releases)[0]


def test_infinite_costs_stay_infinite() -> None:
    assert compose_basic([1.0, float("inf")], [0.0, 0.0])[0] == float("inf")
    assert compose_advanced(float("inf"), 0.0, 2, 1e-6)[0] == float("inf")
    assert epsilon_of(0.0, 1e-6) == 0.0
    assert epsilon_of(float("inf"), 1e-6) == float("inf")
    assert compose_gaussian([1.0, float("inf")]) == float("inf")


def test_extreme_costs_are_not_understated() -> None:
    assert compose_gaussian([1e-170]) >= 1e-170
    assert compose_gaussian([3e-320, 4e-320]) >= 5e-320
    assert compose_gaussian([1e200, 1e200]) >= 1.4142135623730951e200
    assert compose_gaussian([0.0, 0.0]) == 0.0
    assert epsilon_of(1e-170, 1e-6) == 0.0
    near_one = 0.9999999925311298
    truth = mpmath.sqrt(-84 * mpmath.log(DIGITS(near_one))) * DIGITS(1e-3) + 42 * DIGITS(1e-3) * mpmath.expm1(
        DIGITS(1e-3)
    )
    assert DIGITS(compose_advanced(1e-3, 0.0, 42, near_one)[0]) >= truth


def test_negative_costs_are_refused() -> None:
    with pytest.raises(tpmdp.InputError, match=r"epsilon = -1.0 must not be negative or NaN"):
        compose_basic([-1.0], [0.1])
    with pytest.raises(tpmdp.InputError, match=r"mu = nan"):
        compose_gaussian([float("nan")])
    with pytest.raises(tpmdp.InputError, match=r"releases = 0 must be a whole number from 1"):
        compose_advanced(0.1, 0.0, 0, 1e-6)
    with pytest.raises(tpmdp.InputError, match=r"delta = 0.0 cannot be met"):
        compose_advanced(0.1, 0.0, 1, 0.0)
