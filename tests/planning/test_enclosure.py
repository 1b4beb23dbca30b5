"""The exact check of a need against 80-digit arithmetic: always right, and sharp enough to be useful."""

from __future__ import annotations

from fractions import Fraction

import mpmath
import numpy as np

import tpmdp
from tests.gaussian.test_calibration import random_budgets
from tests.oracles import DIGITS
from tpmdp.planning.enclosure import ONE, exp_scaled, is_enough, is_too_little, mills

UNIT = DIGITS(2) ** 256


def test_the_mills_ratio_is_enclosed() -> None:
    points = [0.0, 1e-20, *np.linspace(0, 8.2, 150).tolist(), *np.geomspace(8.2, 1e5, 100).tolist()]
    mpmath.mp.dps = 110
    try:
        for x in points:
            scaled = int(Fraction(x) * ONE)
            low, high = mills(scaled)
            argument = DIGITS(scaled) / UNIT
            if x < 60:
                true = mpmath.ncdf(-argument) / mpmath.npdf(argument) * UNIT
                assert low < true < high, x
            assert high - low < 1 << 70
    finally:
        mpmath.mp.dps = 80


def test_the_exponential_is_within_its_stated_error() -> None:
    mpmath.mp.dps = 110
    try:
        for y in (0.0, 1e-30, 0.5, 0.6931, 1.0, 10.0, 100.0, 760.5):
            mantissa, k = exp_scaled(int(Fraction(y) * ONE))
            true = mpmath.exp(DIGITS(y)) * UNIT / DIGITS(2) ** k
            assert abs(DIGITS(mantissa) - true) < 2**16
    finally:
        mpmath.mp.dps = 80


def test_calibrated_needs_are_accepted_and_slightly_smaller_ones_refused() -> None:
    epsilon, delta = random_budgets(400, seed=21)
    sensitivity = 10 ** np.random.default_rng(22).uniform(-3, 3, 400)
    sigma = tpmdp.calibrate(epsilon, delta, sensitivity)
    for row in zip(sigma, epsilon, delta, sensitivity, strict=True):
        dev, *budget = (Fraction(float(value)) for value in row)
        less = dev**2 * (1 - Fraction(4, 10**12))
        assert is_enough(dev**2, *budget)
        assert not is_too_little(dev**2, *budget)
        assert is_too_little(less, *budget)
        assert not is_enough(less, *budget)


def test_absurd_variances_are_decided_too() -> None:
    budget = Fraction(1), Fraction(1, 10**6), Fraction(1)
    assert not is_enough(Fraction(0), *budget)
    assert is_too_little(Fraction(0), *budget)
    assert is_enough(Fraction(10**300), *budget)
    assert not is_too_little(Fraction(10**300), *budget)
    assert not is_enough(Fraction(1, 10**300), *budget)
    assert is_too_little(Fraction(1, 10**300), *budget)
