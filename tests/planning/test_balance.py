"""Optimal weights: against the linear program of all coalitions, a generic optimiser, and their own proof."""

from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np
import pytest
from scipy.optimize import linprog, minimize

from tests.oracles import dangerous_coalitions
from tpmdp.errors import InputError
from tpmdp.planning.balance import balance, burden, concerned


def least_total(need: Any, threshold: int, receivers: Any) -> float:
    """The least total noise by the program with a row for each coalition and honest party."""
    count = len(need)
    rows, bounds = [], []
    for party in range(count):
        for group in dangerous_coalitions(count, threshold, receivers, party):
            rows.append([0.0 if other in group else -1.0 for other in range(count)])
            bounds.append(-float(need[party]))
    if not rows or threshold == 0:
        return 0.0
    found: Any = linprog(np.ones(count), A_ub=rows, b_ub=bounds, method="highs")
    return float(found.fun)


def expected_error(weights: Any, need: Any, threshold: int, receivers: Any, spread: float) -> float:
    """The expected squared error of the rescaled sum, from its definition."""
    share = len(weights) * weights / weights.sum()
    noise = (len(weights) / weights.sum()) ** 2 * least_total(weights**2 * need, threshold, receivers)
    return float(noise + spread**2 * np.sum((share - 1) ** 2))


def studies(sizes: tuple[int, ...], seed: int) -> Any:
    """Every threshold and every set of receivers, with needs that differ by orders of magnitude."""
    random = np.random.default_rng(seed)
    for count in sizes:
        for threshold, receivers in product(range(count), product((True, False), repeat=count)):
            need = np.exp(random.uniform(-3, 8, count)) * (random.random(count) > 0.1)
            yield need, threshold, np.array(receivers), float(np.exp(random.uniform(-3, 3)))


def test_the_optimal_total_is_the_largest_pressure_on_needs() -> None:
    for need, threshold, receivers, _ in studies((2, 3, 4, 5), 1):
        whole = burden(len(need), threshold, int(receivers.sum()))
        ordered = np.sort(need[concerned(threshold, receivers)])[::-1]
        by_pressure = sum(min(1.0, max(0.0, float(whole - rank))) * value for rank, value in enumerate(ordered))
        assert by_pressure == pytest.approx(least_total(need, threshold, receivers), rel=1e-7, abs=1e-9)


def test_no_weights_are_better_and_these_attain_the_bound() -> None:
    for need, threshold, receivers, spread in studies((2, 3, 4, 5), 2):
        found = balance(need, threshold, receivers, spread)
        error = expected_error(found.weights, need, threshold, receivers, spread)
        assert error == pytest.approx(found.bound, rel=1e-6, abs=1e-7 * spread**2)
        assert found.weights.max() == 1
        assert found.weights.min() > 0
        assert ((found.pressure >= 0) & (found.pressure <= 1)).all()


@pytest.mark.slow
@pytest.mark.parametrize("threshold", [1, 2, 3, 4])
@pytest.mark.long
def test_a_generic_optimiser_finds_nothing_better(threshold: int) -> None:
    random = np.random.default_rng(threshold)
    need, receivers = np.exp(random.uniform(-2, 6, 5)), np.array([True, True, False, True, False])
    found = balance(need, threshold, receivers, 0.5)

    def error(logarithms: Any) -> float:
        return expected_error(np.exp(logarithms - logarithms.max()), need, threshold, receivers, 0.5)

    best = min(
        minimize(error, random.normal(size=5), method="Nelder-Mead", options={"maxfev": 1500}).fun for _ in range(2)
    )
    assert found.bound <= best * (1 + 1e-9)
    assert best <= found.bound * 1.5  # it does come near, as far as the many edges let it


def test_the_three_kinds_of_weights() -> None:
    """Equal for the liberal, one over sigma for the strict; as for independent errors when all others may collude."""
    sigma = np.array([0.0001, 0.0002, 50.0, 100.0, 200.0, 60.0, 70.0, 80.0])
    few = balance(sigma**2, 4, np.full(8, True), 0.5)
    assert few.weights[:2].tolist() == [1.0, 1.0]
    np.testing.assert_allclose(few.weights[2:] * sigma[2:], few.weights[2] * sigma[2], rtol=1e-12)
    most = balance(sigma**2, 7, np.full(8, True), 0.5)
    np.testing.assert_allclose(most.weights, (sigma[0] ** 2 + 0.25) / (sigma**2 + 0.25), rtol=1e-12)
    assert (most.pressure == 1).all()


@pytest.mark.parametrize("count", [2, 3, 50, 1000])
@pytest.mark.parametrize("kind", ["all", "one", "some"])
def test_the_bound_is_attained_for_every_threshold_of_larger_studies(count: int, kind: str) -> None:
    from tpmdp.planning.baselines import total  # the closed form, proved against the program elsewhere

    random = np.random.default_rng(count)
    need = np.exp(random.uniform(0, 9, count))
    receivers = {"all": np.full(count, True), "one": np.arange(count) == 0, "some": random.random(count) < 0.3}[kind]
    receivers[0] = True
    for threshold in np.unique(np.linspace(0, count - 1, 12).astype(int)).tolist():
        found = balance(need, threshold, receivers, 0.5)
        whole = found.weights.sum()
        noise = (count / whole) ** 2 * total(found.weights**2 * need, threshold, receivers)
        error = noise + 0.25 * float(np.sum((count * found.weights / whole - 1) ** 2))
        assert error == pytest.approx(found.bound, rel=1e-9, abs=1e-9)


def test_ties_and_extremes() -> None:
    everyone = np.full(4, True)
    assert balance(np.full(4, 9.0), 2, everyone, 0.5).weights.tolist() == [1.0] * 4
    assert balance(np.zeros(4), 2, everyone, 0.5).weights.tolist() == [1.0] * 4
    assert balance(np.zeros(4), 2, everyone, 0.5).bound == 0
    assert balance(np.full(4, 9.0), 0, everyone, 0.5).weights.tolist() == [1.0] * 4
    wide = balance(np.array([1e-30, 1e30, 1e300, 1.0]), 1, everyone, 1e-3)
    assert np.isfinite(wide.weights).all()
    assert np.isfinite(wide.bound)
    assert wide.weights.argmin() == 2


@pytest.mark.parametrize("spread", [0.0, -1.0, float("nan"), float("inf")])
def test_a_bad_spread_is_refused(spread: float) -> None:
    with pytest.raises(InputError, match="must be a positive number: give half the range"):
        balance(np.ones(2), 1, np.full(2, True), spread)
