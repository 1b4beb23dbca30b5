"""Sample: exact hockey-stick divergences of its mixtures, against every promise it makes."""

from __future__ import annotations

import math
from typing import Any

import mpmath
import numpy as np
import pytest
from dp_accounting.pld import privacy_loss_mechanism as accounting
from hypothesis import given, settings
from scipy.integrate import quad
from scipy.stats import norm

from tests.mechanisms.cases import INF, mixture_delta, removal_deltas, specs
from tests.oracles import DIGITS, exact_delta
from tpmdp import Spec
from tpmdp.mechanisms.mechanism import Setting
from tpmdp.mechanisms.sample import Sample, kept_chance

SAMPLE = Sample()


def plain_chance(epsilon: float, mean: float) -> Any:
    """(e^epsilon - 1) / (e^mean - 1) as it is written, in digits enough for epsilon = 1e-20."""
    if epsilon >= mean:
        return DIGITS(1)
    return DIGITS(0) if mean == INF else mpmath.expm1(DIGITS(epsilon)) / mpmath.expm1(DIGITS(mean))


@pytest.mark.parametrize(
    "epsilon",
    [
        [0.1, 0.1, 1.0],
        [1e-20, 1.0],
        [1e-20, 3e-20, 1e-19],
        [1e-20, 1e-9, 800.0],
        [800.0, 801.0, 1e-3],
        [1e-20, 1e9],
        [700.0, 720.0, 5.0],
        [0.3, INF, 800.0, INF],
        [INF, INF],
        [2.0],
        [0.1, 0.1, 0.1],
        [1.0, math.nextafter(1.0, 2.0)],
    ],
)
def test_the_chance_is_the_plain_formula(epsilon: list[float]) -> None:
    chance, mean = kept_chance(np.array(epsilon)), float(np.mean(epsilon))
    assert ((chance >= 0) & (chance <= 1)).all()
    for got, own in zip(chance.tolist(), epsilon, strict=True):
        exact = plain_chance(own, mean)
        assert abs(DIGITS(got) - exact) <= exact * DIGITS(1e-12) + DIGITS(1e-307)  # the last: the least doubles


@pytest.mark.slow
@pytest.mark.parametrize(
    ("epsilon", "chance", "deviation"), [(0.5, 0.3, 2.0), (0.05, 0.9, 4.0), (2.0, 0.1, 0.5), (0.3, 1.0, 1.5)]
)
def test_the_oracles_agree_with_each_other_and_with_dp_accounting(
    epsilon: float, chance: float, deviation: float
) -> None:
    closed = removal_deltas(epsilon, chance, 1.0, deviation)
    general = (
        mixture_delta(epsilon, chance, 1.0, 0.0, 0.0, deviation),
        mixture_delta(epsilon, chance, 0.0, 1.0, 0.0, deviation),
    )
    for one, other in zip(closed, general, strict=True):
        assert abs(one - other) < 1e-40
    kinds = (accounting.AdjacencyType.REMOVE, accounting.AdjacencyType.ADD)
    for one, kind in zip(closed, kinds, strict=True):
        mixture = accounting.MixtureGaussianPrivacyLoss(
            deviation, [0.0, 1.0], [1 - chance, chance], adjacency_type=kind
        )
        assert mixture.get_delta_for_epsilon([epsilon])[0] == pytest.approx(float(one), rel=1e-9, abs=1e-15)
    for kept, replaced in ((0.6, -0.4), (1.0, 0.4), (0.4, 1.0), (-0.5, 0.5)):  # by plain integration, c = 0

        def positive(x: float, kept: float = kept, replaced: float = replaced) -> float:
            rest = (1 - chance) * norm.pdf(x, 0, deviation)
            first = chance * norm.pdf(x, kept, deviation) + rest
            second = chance * norm.pdf(x, replaced, deviation) + rest
            return max(0.0, float(first - math.exp(epsilon) * second))

        found = sum(quad(positive, at * deviation, (at + 1) * deviation, limit=200)[0] for at in range(-12, 12))
        exact = mixture_delta(epsilon, chance, kept, replaced, 0.0, deviation)
        assert found == pytest.approx(float(exact), rel=1e-6, abs=1e-9)


def assert_promises(setting: Setting) -> None:
    """Count: replacing 1 by 0, or leaving the 1 out, is the same; both directions, at the budget and as reported."""
    spec, noise = setting.spec, SAMPLE.noise(setting)
    chance, enjoyed = kept_chance(spec.epsilon), SAMPLE.enjoyed(setting)
    assert (enjoyed <= spec.epsilon).all()
    rows = zip(chance.tolist(), spec.epsilon.tolist(), enjoyed.tolist(), spec.delta.tolist(), strict=True)
    for kept, epsilon, claimed, delta in rows:
        if claimed == INF:
            continue
        if noise == 0:  # the average is infinite: who asks for protection must be left out
            assert kept == 0
            continue
        for target in {epsilon, claimed} - {INF}:
            for found in removal_deltas(target, kept, float(spec.sensitivity.max()), math.sqrt(noise)):
                assert found <= delta


@settings(max_examples=150, deadline=None)
@given(specs())
@pytest.mark.slow
def test_drawn_studies_keep_every_promise(spec: Spec) -> None:
    assert_promises(Setting.of(spec))


@pytest.mark.parametrize("delta", [1e-300, 1e-6, 0.3, 0.9])
@pytest.mark.parametrize(
    "epsilon",
    [
        [0.1, 0.1, 0.1],  # the rounded mean may lie above all of them
        [0.1] * 7,
        [0.7] * 49,
        [1.1, 1.1, 1.1],
        [1.0, math.nextafter(1.0, 0.0)],
        [1.0, 1.0, math.nextafter(1.0, 2.0)],
        [0.3 - 1e-15, 0.3, 0.3 + 1e-15],
        [1e-20, 1e-20, 2e-20],
        [1e-20, 1.0, 800.0],
        [799.0, 800.0, 800.0],
        [800.0 - 1e-10, 800.0],
        [1e-3, INF, 2.0],
        [INF, INF],
        [1e-20],
        [800.0],
    ],
)
def test_ties_and_extremes_keep_every_promise(epsilon: list[float], delta: float) -> None:
    assert_promises(Setting.of(Spec(epsilon=epsilon, delta=delta, threshold=0)))
    deltas = [delta if i % 2 else delta / 3 + 1e-300 for i in range(len(epsilon))]
    assert_promises(Setting.of(Spec(epsilon=epsilon, delta=deltas, threshold=0)))


@pytest.mark.parametrize("epsilon", [[0.1, 0.1, 1.0], [0.5, 1.0, 3.0], [0.01, 0.2, 0.99, 1.0], [2.0, 9.0]])
def test_the_chance_cannot_be_larger(epsilon: list[float]) -> None:
    """A dropped party has exactly delta' = p delta* at its epsilon: no slack that would hide a wrong chance."""
    setting = Setting.of(Spec(epsilon=epsilon, delta=1e-6, threshold=0))
    deviation, mean = mpmath.sqrt(SAMPLE.noise(setting)), float(np.mean(epsilon))
    star = exact_delta(1 / deviation, mean)
    assert float(star) == pytest.approx(1e-6, rel=1e-9)
    for own, kept in zip(epsilon, kept_chance(np.array(epsilon)).tolist(), strict=True):
        assert float(max(removal_deltas(min(own, mean), kept, 1.0, deviation))) == pytest.approx(kept * 1e-6, rel=1e-9)


# A regression moves in many dimensions, but only three points matter: with the input, with another, without. They span
# a plane, noise at a right angle to it is the same for all, and the divergence depends on their mutual distances alone.
# With alpha = e^epsilon* it equals p H(A || (1-b) C + b B) (Balle, Barthe and Gaboardi 2018, Theorem 2), which is
# convex: at most p max(H(A || C), H(A || B)), a function of one distance. Both are tried: the line and the plane.
@pytest.mark.parametrize("epsilon", [[0.3, 1.0, 2.0], [0.5, 0.5, 4.0], [1.0, 1.5]])
@pytest.mark.parametrize("delta", [1e-2, 1e-5])
@pytest.mark.slow
def test_replacing_and_leaving_out_in_a_plane(epsilon: list[float], delta: float) -> None:
    setting = Setting.of(Spec(epsilon=epsilon, delta=delta, sensitivity=5.0, threshold=0))
    reach = 5.0 / math.sqrt(SAMPLE.noise(setting))
    step = 0.02
    x = np.arange(-8.5, 8.5 + reach, step)
    first, second = x[:, None], x[None, :]

    def density(at: complex) -> Any:
        point = at * reach
        return np.exp(-((first - point.real) ** 2 + (second - point.imag) ** 2) / 2) / (2 * math.pi)

    half = math.sqrt(0.5)
    corners = [  # two records of a regression are at a right angle, seen from nothing; then the widest triangle
        (half, half * 1j, 0.0),
        (1.0, 0.5 + half * math.sqrt(1.5) * 1j, 0.0),
        (1.0, 0.0, 0.0),  # a count
        (0.3j, 0.9, 0.4),
    ]
    chance = kept_chance(np.array(epsilon))
    for corner in corners:
        kept, replaced, dropped = (density(complex(at)) for at in corner)
        for own, p in zip(epsilon, chance.tolist(), strict=True):
            if p == 1:
                continue
            for one, other in ((kept, replaced), (replaced, kept), (kept, dropped), (dropped, kept)):
                ahead = p * one + (1 - p) * dropped - math.exp(own) * (p * other + (1 - p) * dropped)
                assert np.maximum(ahead, 0).sum() * step**2 <= p * delta * (1 + 1e-3)  # the last: the grid


@pytest.mark.parametrize("delta", [1e-9, 1e-3])
@pytest.mark.parametrize("epsilon", [[0.2, 0.8, 1.1], [1.0, math.nextafter(1.0, 2.0)], [0.9, 1.0, 1.0], [3.0, 30.0]])
@pytest.mark.slow
def test_replacing_and_leaving_out_on_a_line(epsilon: list[float], delta: float) -> None:
    setting = Setting.of(Spec(epsilon=epsilon, delta=delta, threshold=0))
    deviation, mean = mpmath.sqrt(SAMPLE.noise(setting)), float(np.mean(epsilon))
    for own, p in zip(epsilon, kept_chance(np.array(epsilon)).tolist(), strict=True):
        for dropped in (0.0, 0.25, 0.5, 1.0):  # the sum with an input, with another, and without
            for kept, replaced in ((0.0, 1.0), (1.0, 0.0), (0.0, dropped), (dropped, 0.0)):
                found = mixture_delta(own, p, kept, replaced, dropped, deviation)
                assert found <= delta
                assert own > mean or found <= p * delta * (1 + 1e-9)
