"""Shares of a budget never cost more than the budget, all together, by 50-digit arithmetic that shares no code."""

from __future__ import annotations

import mpmath
import numpy as np
import pytest

from tpmdp.errors import InputError
from tpmdp.gaussian.budget_share import share_of_budget

SHARES = (0.05, 0.1, 0.2, 0.65)


def mu_of(epsilon: float, delta: float) -> mpmath.mpf:
    """The mu whose Gaussian release is exactly (epsilon, delta)-DP."""

    def excess(log_mu: mpmath.mpf) -> mpmath.mpf:
        mu, eps = mpmath.exp(log_mu), mpmath.mpf(epsilon)
        value = mpmath.ncdf(mu / 2 - eps / mu) - mpmath.exp(eps) * mpmath.ncdf(-mu / 2 - eps / mu)
        return value - mpmath.mpf(delta)

    low, high = mpmath.log(mpmath.mpf("1e-20")), mpmath.log(mpmath.mpf("1e4"))
    for _ in range(200):
        middle = (low + high) / 2
        low, high = (middle, high) if excess(middle) < 0 else (low, middle)
    return mpmath.exp(low)


@pytest.mark.parametrize(
    ("epsilon", "delta"), [(1.0, 1e-6), (0.01, 1e-9), (50.0, 1e-12), (0.1, 0.5), (1e-6, 0.3), (1e-9, 1e-3), (3.0, 0.9)]
)
def test_rounds_cost_the_budget_at_most_and_nearly_all_of_it(epsilon: float, delta: float) -> None:
    with mpmath.workdps(50):
        parts = [share_of_budget(epsilon, delta, share) for share in SHARES]
        squares = mpmath.fsum(mu_of(float(eps[0]), float(dlt[0])) ** 2 for eps, dlt in parts)
        ratio = mpmath.sqrt(squares) / mu_of(epsilon, delta)
        assert 1 - mpmath.mpf("1e-6") < ratio < 1
    assert all(float(dlt[0]) <= delta for _, dlt in parts)


def test_extremes() -> None:
    epsilon, delta = share_of_budget([np.inf, 1.0, np.inf], [0.5, 1e-6, 0.0], 0.2)
    assert epsilon[0] == epsilon[2] == np.inf
    assert delta.tolist() == [0.5, 1e-6, 0.0]
    assert 0 < epsilon[1] < 1
    whole = share_of_budget([1.0, 2.0], 1e-6, 1.0)
    assert whole[0].tolist() == [1.0, 2.0]  # nothing is lost where there is one round
    with pytest.raises(InputError, match="must be more than 0"):
        share_of_budget(1.0, 1e-6, 0.0)


def test_the_same_on_machines_whose_logarithms_differ_in_the_last_digits() -> None:
    epsilon = np.linspace(0.1, 3.0, 200)
    shares = share_of_budget(epsilon, 1e-6, 0.2)
    for values in shares:
        assert (np.ldexp(np.frexp(values)[0], 24) % 1 == 0).all() or (values == 1e-6).all()
