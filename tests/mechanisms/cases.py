"""What the tests of mechanisms share: studies to draw, a scripted generator, and independent truth about mixtures."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations, pairwise, product
from typing import Any, cast

import mpmath
import numpy as np
from hypothesis import strategies as st

from tests.oracles import DIGITS
from tpmdp import Spec
from tpmdp._util.arrays import FloatArray
from tpmdp.mechanisms.mechanism import Mechanism, Setting
from tpmdp.mechanisms.problem import CountProblem, Problem, RegressionProblem

INF = float("inf")
EPSILONS = st.one_of(
    st.sampled_from([0.1, 0.1, 0.5, 1.0, 2.0, INF]),  # ties and parties that ask for nothing
    st.floats(-5, 3).map(lambda x: 10**x),
)
DELTAS = st.sampled_from([1e-6, 1e-6, 1e-12, 1e-3, 0.2])
SENSITIVITIES = st.sampled_from([1.0, 1.0, 3.0])


@st.composite
def specs(draw: st.DrawFn, least: int = 1, most: int = 6) -> Spec:
    """Every threshold and any receivers, none included; budgets and sensitivities differ between parties."""
    count = draw(st.integers(least, most))

    def each(of: st.SearchStrategy[Any]) -> list[Any]:
        return draw(st.lists(of, min_size=count, max_size=count))

    return Spec(
        epsilon=each(EPSILONS),
        delta=each(DELTAS),
        sensitivity=each(SENSITIVITIES),
        threshold=draw(st.integers(0, count - 1)),
        receivers=np.array(each(st.booleans()), dtype=bool),
    )


def study(problem: Problem, epsilon: Sequence[float], delta: Any = 1e-6, **more: Any) -> Setting:
    """A setting whose noise is for the sensitivity of this problem; everybody may collude unless told."""
    fields = {"threshold": len(epsilon) - 1, "sensitivity": problem.sensitivity, **more}
    return Setting.of(Spec(epsilon=list(epsilon), delta=delta, **fields))


def both_problems(count: int) -> list[Problem]:
    """A count and a regression over as many parties, with inputs that are neither symmetric nor all alike."""
    rng = np.random.default_rng(count)
    bits = (np.arange(count) % 3 != 1).astype(np.float64)
    return [CountProblem(bits), RegressionProblem(rng.uniform(-1, 1, (count, 3)))]


class Scripted:
    """A generator that says what it is told: one uniform a party, and the noise on records; all other noise is 0."""

    def __init__(self, uniform: Any = 0.5, normal: Any = 0.0, final: float = 0.0) -> None:
        self._uniform, self._normal, self._final = np.asarray(uniform), np.asarray(normal), final

    def random(self, size: Any = None) -> FloatArray:
        return np.array(np.broadcast_to(self._uniform, size), dtype=np.float64)

    def normal(self, loc: float = 0.0, scale: float = 1.0, size: Any = None) -> FloatArray:
        on_records = self._normal.ndim > 0 and tuple(np.atleast_1d(size))[-2:] == self._normal.shape
        standard = self._normal if on_records else np.asarray(self._final)
        return np.array(loc + scale * np.broadcast_to(standard, size), dtype=np.float64)


def scripted(uniform: Any = 0.5, normal: Any = 0.0, final: float = 0.0) -> np.random.Generator:
    return cast(np.random.Generator, Scripted(uniform, normal, final))


def least_honest_of_any_size(variance: Any, threshold: int, receivers: Any) -> list[Any]:
    """For each party the least noise any coalition of 1 to t others with a receiver leaves; None if there is none."""
    count = len(variance)
    values = [DIGITS(float(value)) for value in variance]
    result = []
    for party in range(count):
        others = [other for other in range(count) if other != party]
        left = [
            mpmath.fsum(values[i] for i in range(count) if i not in group)
            for size in range(1, threshold + 1)
            for group in combinations(others, size)
            if any(receivers[i] for i in group)
        ]
        result.append(min(left) if left else None)
    return result


def _mass(low: Any, high: Any) -> Any:
    """Standard normal mass of an interval, by the tail that does not cancel."""
    return mpmath.ncdf(-low) - mpmath.ncdf(-high) if low > 0 else mpmath.ncdf(high) - mpmath.ncdf(low)


def mixture_delta(epsilon: Any, chance: Any, kept: Any, replaced: Any, dropped: Any, deviation: Any) -> Any:
    """The least delta at which p N(kept) + (1-p) N(dropped) is within e^epsilon of p N(replaced) + (1-p) N(dropped).

    The hockey-stick divergence from its definition. Over the density of N(dropped), the integrand is two exponentials
    and a constant, so it has at most one stationary point; its sign is found by bisection on either side.
    """
    epsilon, chance, deviation = DIGITS(epsilon), DIGITS(chance), DIGITS(deviation)
    here, there = (DIGITS(kept) - DIGITS(dropped)) / deviation, (DIGITS(replaced) - DIGITS(dropped)) / deviation
    if here == there:
        return DIGITS(0)
    times = mpmath.exp(epsilon)

    def integrand(x: Any) -> Any:
        own = mpmath.exp(here * x - here**2 / 2) - times * mpmath.exp(there * x - there**2 / 2)
        return chance * own + (1 - chance) * (1 - times)

    end = 100 + abs(here) + abs(there)  # beyond lies less than 1e-2000
    cuts = [-end, end]
    if here * there > 0:
        still = (epsilon + mpmath.log(there / here) + (here**2 - there**2) / 2) / (here - there)
        if -end < still < end:
            cuts.insert(1, still)
    total = DIGITS(0)
    for low, high in pairwise(cuts):
        rising, falling = integrand(low) > 0, integrand(high) > 0
        left, right = low, high
        if rising != falling:
            for _ in range(100):
                middle = (left + right) / 2
                left, right = (middle, right) if (integrand(middle) > 0) == rising else (left, middle)
            low, high = (low, left) if rising else (left, high)
        elif not rising:
            continue
        total += chance * _mass(low - here, high - here) - chance * times * _mass(low - there, high - there)
        total += (1 - chance) * (1 - times) * _mass(low, high)
    return total


def removal_deltas(epsilon: Any, chance: Any, distance: Any, deviation: Any) -> tuple[Any, Any]:
    """The same for p N(distance) + (1-p) N(0) against N(0), in both directions, by the roots in closed form."""
    epsilon, p, mu = DIGITS(epsilon), DIGITS(chance), DIGITS(distance) / DIGITS(deviation)
    times = mpmath.exp(epsilon)
    if not p:
        return DIGITS(0), DIGITS(0)
    above = mpmath.log((times - 1 + p) / p) / mu + mu / 2
    with_it = p * mpmath.ncdf(mu - above) + (1 - p - times) * mpmath.ncdf(-above)
    inside = (1 / times - 1 + p) / p
    if inside <= 0:
        return with_it, DIGITS(0)
    below = mpmath.log(inside) / mu + mu / 2
    without = mpmath.ncdf(below) * (1 - times * (1 - p)) - times * p * mpmath.ncdf(below - mu)
    return with_it, without


def over_all_patterns(mechanism: Mechanism, setting: Setting, problem: Problem, chance: list[Any]) -> tuple[Any, Any]:
    """Bias and variance of what is released when parties are kept by coins of these chances: all 2^n patterns, each
    with its exact chance. The mechanism must draw its coins from `scripted` numbers, and nothing else."""
    size = len(problem.total)
    total, square = [DIGITS(0)] * size, [DIGITS(0)] * size
    for pattern in product((True, False), repeat=len(chance)):
        weight = mpmath.fprod(p if keep else 1 - p for p, keep in zip(chance, pattern, strict=True))
        if not weight:
            continue
        uniform = [0.0 if keep else 1 - 2.0**-53 for keep in pattern]
        answer = mechanism.release(setting, problem, scripted(uniform))[0].tolist()
        total = [one + weight * DIGITS(value) for one, value in zip(total, answer, strict=True)]
        square = [one + weight * DIGITS(value) ** 2 for one, value in zip(square, answer, strict=True)]
    variance = np.array([float(two - one**2) for one, two in zip(total, square, strict=True)])
    return np.array([float(one) for one in total]) - problem.total, variance
