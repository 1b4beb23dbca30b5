"""Independent truth for the tests: slow, obvious, and sharing no code with the package."""

from __future__ import annotations

from fractions import Fraction
from itertools import combinations
from typing import Any

import mpmath
import numpy as np

mpmath.mp.dps = 80
DIGITS = mpmath.mpf


def exact_delta(mu: Any, epsilon: float) -> Any:
    """delta(mu) of the Gaussian mechanism in 80-digit arithmetic, from its definition."""
    mu, epsilon = DIGITS(mu), DIGITS(epsilon)
    below = mpmath.ncdf(mu / 2 - epsilon / mu)
    return below - mpmath.exp(epsilon) * mpmath.ncdf(-mu / 2 - epsilon / mu)


def exact_mu(epsilon: float, delta: float, start: float) -> Any:
    """The mu at which delta(mu) is delta: Newton in 80 digits from a good start, checked to have converged."""
    mu, target = DIGITS(start), DIGITS(delta)
    for _ in range(9):
        a = DIGITS(epsilon) / mu - mu / 2
        step = (exact_delta(mu, epsilon) - target) / mpmath.npdf(a)
        mu -= step
    assert abs(step) < abs(mu) * DIGITS(10) ** -35
    return mu


def dangerous_coalitions(count: int, size: int, receivers: Any, without: int) -> list[tuple[int, ...]]:
    """Every coalition of this size that holds a receiver and not the given party."""
    others = [party for party in range(count) if party != without]
    return [group for group in combinations(others, size) if any(receivers[party] for party in group)]


def least_honest(variance: Any, threshold: Any, receivers: Any) -> list[Fraction | None]:
    """For each party the least honest noise over all dangerous coalitions, by trying every one of them."""
    count = len(variance)
    values = [Fraction(float(value)) for value in variance]
    thresholds = np.broadcast_to(np.asarray(threshold), (count,)).tolist()
    result: list[Fraction | None] = []
    for party in range(count):
        sums = [
            sum((values[i] for i in range(count) if i not in group), Fraction(0))
            for group in dangerous_coalitions(count, thresholds[party], receivers, party)
        ]
        result.append(min(sums) if sums else None)
    return result
