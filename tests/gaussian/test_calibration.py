"""Calibration against 80-digit arithmetic and dp-accounting: accurate, and never on the wrong side."""

from __future__ import annotations

import mpmath
import numpy as np
import pytest
from dp_accounting import gaussian_mechanism
from numpy.typing import NDArray
from scipy.special import erfcx

import tpmdp
from tests.effort import tries
from tests.oracles import DIGITS, exact_delta, exact_mu
from tpmdp.gaussian.delta import evaluate_direct, evaluate_series, mills, mills_error

POINTS = tries(800, 3000)
Floats = NDArray[np.float64]


def random_budgets(count: int, seed: int) -> tuple[Floats, Floats]:
    """Budgets over the whole promised range: epsilon 1e-8..1e3, delta 1e-30..1 - 1e-9, dense at both ends."""
    rng = np.random.default_rng(seed)
    epsilon = 10 ** rng.uniform(-8, 3, count)
    low, high = 10 ** rng.uniform(-30, np.log10(0.5), count), 1 - 10 ** rng.uniform(-9, np.log10(0.5), count)
    return epsilon, np.where(rng.random(count) < 0.75, low, high)


EXTREME_EPSILON = [1e-8, 1e-7, 1e-4, 0.01, 0.1, 1.0, 3.999, 4.001, 10.0, 100.0, 999.0, 1e3]
EXTREME_DELTA = [1e-30, 1e-29, 1e-15, 1e-9, 1e-8, 1e-6, 1e-3, 0.1, 0.499999, 0.5, 0.500001, 0.9, 1 - 1e-6, 1 - 1e-9]


def all_points() -> tuple[Floats, Floats]:
    epsilon, delta = random_budgets(POINTS, seed=2026)
    corner_epsilon, corner_delta = (grid.ravel() for grid in np.meshgrid(EXTREME_EPSILON, EXTREME_DELTA))
    # delta close to epsilon times a constant is where the small-mu series starts: sample it on its own.
    rng = np.random.default_rng(7)
    edge = 10 ** rng.uniform(-3, 0, 300)
    return (
        np.concatenate((epsilon, corner_epsilon, edge)),
        np.concatenate((delta, corner_delta, np.clip(edge * rng.uniform(0.01, 1, 300), 1e-30, 0.9))),
    )


@pytest.mark.slow
@pytest.mark.parametrize("part", range(4))
def test_sigma_is_accurate_to_1e_12_and_never_too_small(part: int) -> None:
    epsilon, delta = (column[part::4] for column in all_points())
    sigma = tpmdp.calibrate(epsilon, delta)
    for eps, dlt, sig in zip(epsilon.tolist(), delta.tolist(), sigma.tolist(), strict=True):
        assert exact_delta(1 / DIGITS(sig), eps) <= DIGITS(dlt), (eps, dlt)
        error = DIGITS(sig) * exact_mu(eps, dlt, 1 / sig) - 1
        assert 0 <= error <= 1e-12, (eps, dlt, float(error))


@pytest.mark.slow
def test_sigma_is_never_too_small_far_outside_the_promised_range() -> None:
    rng = np.random.default_rng(11)
    count = tries(80, 250)
    epsilon = 10 ** rng.uniform(-20, 9, count)
    delta = 10 ** rng.uniform(-300, -0.001, count)
    sensitivity = 10 ** rng.uniform(-60, 60, count)
    sigma = tpmdp.calibrate(epsilon, delta, sensitivity)
    mpmath.mp.dps = 400
    try:
        for eps, dlt, sens, sig in zip(epsilon, delta, sensitivity, sigma, strict=True):
            assert exact_delta(DIGITS(sens) / DIGITS(sig), eps) <= DIGITS(dlt), (eps, dlt)
    finally:
        mpmath.mp.dps = 80


@pytest.mark.slow
def test_the_mills_ratio_is_as_accurate_as_the_proof_assumes() -> None:
    x = np.concatenate((np.linspace(-1.5, 12, 2500), np.geomspace(1e-12, 1e8, 500)))
    for point, value, bound in zip(x.tolist(), mills(x).tolist(), mills_error(x).tolist(), strict=True):
        if point < 60:
            true = mpmath.ncdf(-DIGITS(point)) / mpmath.npdf(DIGITS(point))
            assert abs(DIGITS(value) / true - 1) <= 0.75 * bound, point
    big = x[x >= 60]  # asymptotic series, exact to far beyond a double there
    series = (1 - 1 / big**2 + 3 / big**4) / big
    assert np.allclose(mills(big), series, rtol=1e-9)
    assert erfcx(0.0) == 1.0


def test_dp_accounting_agrees() -> None:
    rng = np.random.default_rng(3)
    epsilon, delta = 10 ** rng.uniform(-3, 2, 150), 10 ** rng.uniform(-12, -1, 150)
    ours = tpmdp.calibrate(epsilon, delta)
    theirs = [gaussian_mechanism.get_sigma_gaussian(e, d) for e, d in zip(epsilon, delta, strict=True)]
    assert np.allclose(ours, theirs, rtol=1e-6)


def test_infinite_epsilon_and_zero_sensitivity_need_no_noise() -> None:
    assert tpmdp.calibrate(float("inf"), 1e-6) == 0.0
    assert tpmdp.calibrate(float("inf"), 0.0) == 0.0
    assert tpmdp.calibrate([1.0, 1.0], 1e-6, [0.0, 1.0])[0] == 0.0


def test_scalars_give_floats_and_arrays_give_arrays_with_the_same_values() -> None:
    epsilon, delta = random_budgets(200, seed=5)
    together = tpmdp.calibrate(epsilon, delta, 2.5)
    assert isinstance(tpmdp.calibrate(1.0, 1e-6), float)
    assert together.tolist() == [tpmdp.calibrate(float(e), float(d), 2.5) for e, d in zip(epsilon, delta, strict=True)]


def test_threads_change_nothing() -> None:
    epsilon, delta = random_budgets(1 << 18, seed=6)
    seen: list[tuple[int, int]] = []
    from tpmdp.gaussian.calibration import calibrate_checked

    threaded = calibrate_checked(epsilon, delta, np.ones(1), lambda done, total: seen.append((done, total)))
    assert seen[-1] == (1 << 18, 1 << 18)
    for start in (0, 1 << 16, (1 << 18) - 1000):
        part = slice(start, start + 1000)
        assert np.array_equal(threaded[part], tpmdp.calibrate(epsilon[part], delta[part]))


def test_stricter_budgets_and_larger_sensitivities_never_need_less_noise() -> None:
    grid = np.geomspace(1e-6, 1e3, 4001)
    slack = 1 + 1e-12
    assert (np.diff(tpmdp.calibrate(grid, 1e-6)) <= (slack - 1) * tpmdp.calibrate(grid, 1e-6)[1:]).all()
    deltas = np.linspace(1e-9, 1 - 1e-9, 4001)
    assert (np.diff(tpmdp.calibrate(1.0, deltas)) <= (slack - 1) * tpmdp.calibrate(1.0, deltas)[1:]).all()
    sizes = np.geomspace(1e-3, 1e3, 101)
    assert np.allclose(tpmdp.calibrate(1.0, 1e-6, sizes), sizes * tpmdp.calibrate(1.0, 1e-6), rtol=1e-14)


def test_delta_at_is_accurate_and_never_too_small() -> None:
    epsilon, delta = random_budgets(800, seed=8)
    rng = np.random.default_rng(9)
    sensitivity = 10 ** rng.uniform(-3, 3, 800)
    sigma = tpmdp.calibrate(epsilon, delta) * rng.uniform(0.8, 1.3, 800) * sensitivity
    found = tpmdp.delta_at(sigma, epsilon, sensitivity)
    for eps, sig, sens, value in zip(epsilon, sigma, sensitivity, found, strict=True):
        true = exact_delta(DIGITS(sens) / DIGITS(sig), eps)
        assert DIGITS(value) >= true
        if true > 1e-30:
            assert DIGITS(value) <= true * (1 + DIGITS(1e-12))


@pytest.mark.slow
def test_epsilon_at_is_accurate_and_never_too_small() -> None:
    epsilon, delta = random_budgets(800, seed=10)
    sigma = tpmdp.calibrate(epsilon, delta) * np.random.default_rng(12).uniform(0.8, 1.3, 800)
    found = tpmdp.epsilon_at(sigma, delta)
    zeros = 0
    for sig, dlt, value in zip(sigma.tolist(), delta.tolist(), found.tolist(), strict=True):
        mu = 1 / DIGITS(sig)
        if exact_delta(mu, 0.0) <= DIGITS(dlt):
            zeros += 1
            assert value <= 1e-12 * float(mu)
            continue
        assert exact_delta(mu, value) <= DIGITS(dlt)
        # A smaller epsilon, by the stated error, is not enough.
        smaller = DIGITS(value) - DIGITS(1e-12) * max(DIGITS(value), mu)
        assert smaller <= 0 or exact_delta(mu, smaller) > DIGITS(dlt)
    assert 0 < zeros < 400


def test_ends_of_the_inverses() -> None:
    assert tpmdp.epsilon_at(0.0, 1e-6) == float("inf")
    assert tpmdp.epsilon_at(float("inf"), 1e-6) == 0.0
    assert tpmdp.epsilon_at(1.0, 0.0) == float("inf")
    assert tpmdp.epsilon_at(1.0, 1e-6, 0.0) == 0.0
    assert tpmdp.epsilon_at(1.0, 0.9) == 0.0
    assert tpmdp.delta_at(0.0, 1.0) == 1.0
    assert tpmdp.delta_at(0.0, float("inf")) == 0.0
    assert tpmdp.delta_at(1.0, 1.0, 0.0) == 0.0
    assert 0.0 < tpmdp.delta_at(1e3, 1e6) < 1e-300
    assert tpmdp.delta_at(1e-3, 1.0) == 1.0
    assert tpmdp.delta_at(2.0, 0.0) == pytest.approx(0.19741265136584760, rel=1e-12)
    assert tpmdp.mu_at(0.0) == float("inf")
    assert tpmdp.delta_at(1e-320, 1e-6) == tpmdp.delta_at(1e-200, 1.0) == 1.0
    assert tpmdp.epsilon_at(1e-320, 1e-6) == float("inf")
    assert tpmdp.epsilon_at(1e308, 1e-6, 1e-60) == 0.0
    assert 5e199 < tpmdp.epsilon_at(1e-100, 1e-6) < 5.1e199
    assert tpmdp.epsilon_at(0.99e-7, 1e-6) == pytest.approx(
        tpmdp.epsilon_at(1.01e-7, 1e-6) * (1.01 / 0.99) ** 2, rel=1e-6
    )
    assert tpmdp.mu_at(4.0, 2.0) >= 0.5


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((-1.0, 1e-6), "epsilon = -1.0 must be greater than 0"),
        ((0.0, 1e-6), "epsilon = 0.0 must be greater than 0"),
        ((float("nan"), 1e-6), "epsilon = nan must be greater than 0"),
        ((1e-40, 1e-6), "epsilon = 1e-40 must lie in"),
        ((1.0, 0.0), "delta = 0.0 cannot be met by Gaussian noise"),
        ((1.0, 1.0), "delta = 1.0 must lie in (0, 1)"),
        ((1.0, -0.1), "delta = -0.1 must lie in (0, 1)"),
        ((1.0, float("nan")), "delta = nan must lie in (0, 1)"),
        ((1.0, 1e-310), "delta = 1e-310 must be at least"),
        ((1.0, 1e-6, -1.0), "sensitivity = -1.0 must be finite and not negative"),
        ((1.0, 1e-6, float("inf")), "sensitivity = inf must be finite"),
        ((1.0, 1e-6, 1e-99), "sensitivity = 1e-99 must be 0 or lie in"),
        (([1.0, 2.0], [0.1, 0.1, 0.1]), "arrays of length 2 and 3 do not match"),
        (("one", 1e-6), "epsilon = one is not a number"),
        ((True, 1e-6), "epsilon = True is not a number"),
        (([[1.0]], 1e-6), "has more than one dimension"),
        (([1.0, -2.0], 1e-6), "epsilon of party 2 = -2.0"),
    ],
)
def test_bad_values_get_one_clear_line(arguments: tuple[object, ...], message: str) -> None:
    with pytest.raises(tpmdp.InputError) as caught:
        tpmdp.calibrate(*arguments)  # type: ignore[call-overload]
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def test_bad_sigma_is_refused_by_every_inverse() -> None:
    message = r"sigma = .* must not be negative or NaN"
    with pytest.raises(tpmdp.InputError, match=message):
        tpmdp.delta_at(-1.0, 1.0)
    with pytest.raises(tpmdp.InputError, match=message):
        tpmdp.epsilon_at(float("nan"), 0.1)
    with pytest.raises(tpmdp.InputError, match=message):
        tpmdp.mu_at(-2.0)


@pytest.mark.slow
@pytest.mark.parametrize(("side", "series"), [(1, True), (1, False), (-1, False)])
@pytest.mark.long
def test_the_rounding_error_stays_within_the_proven_bound(side: int, series: bool) -> None:
    """Lemma C1 of Theory, entry by entry: |computed log delta - true log delta| <= tau, with room."""
    rng = np.random.default_rng(13)
    count = tries(200, 600)
    evaluate = evaluate_series if series else evaluate_direct
    mu = 10 ** (rng.uniform(-20, np.log10(0.3), count) if series else rng.uniform(-1, 4, count))
    a = rng.uniform(-0.7, 37, count) if side > 0 else -rng.uniform(0.7, 8.2, count)
    m = np.maximum(a + mu / 2, 10 ** rng.uniform(-20, -1, count))
    epsilon = mu * m
    m = epsilon / mu
    keep = (m - mu / 2 > -1) if side > 0 else (m - mu / 2 < -0.5)
    at = evaluate(mu, m, side)
    used = 0
    mpmath.mp.dps = 420
    try:
        for i in np.flatnonzero(keep).tolist():
            delta = exact_delta(float(mu[i]), float(epsilon[i]))
            truth = mpmath.log(delta if side > 0 else 1 - delta)
            assert abs(DIGITS(float(at.log_value[i])) - truth) <= DIGITS(float(at.tau[i])) / 2, (mu[i], m[i])
            used += 1
    finally:
        mpmath.mp.dps = 80
    assert used > count / 6


def test_logarithm_and_exponential_are_as_accurate_as_the_proof_assumes() -> None:
    """Assumption A2: relative error at most 7u, on arguments as the evaluation uses them."""
    rng = np.random.default_rng(14)
    limit = 7 * DIGITS(2) ** -53
    positive = np.concatenate((10 ** rng.uniform(-300, 3, 1500), rng.uniform(0.5, 2, 500)))
    small = -(10 ** rng.uniform(-300, 0, 1500)) * (1 - 1e-16)
    exponents = np.concatenate((rng.uniform(-700, 5, 1500), rng.uniform(-1e-3, 1e-3, 300)))
    cases = ((np.log, mpmath.log, positive), (np.log1p, mpmath.log1p, small), (np.exp, mpmath.exp, exponents))
    for ours, exact, points in cases:
        for x, value in zip(points.tolist(), ours(points).tolist(), strict=True):
            true = exact(DIGITS(x))
            assert abs(DIGITS(value) - true) <= limit * abs(true), (ours, x)
