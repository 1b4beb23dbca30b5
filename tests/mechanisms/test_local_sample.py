"""LS: private coins. Its privacy against the mixtures themselves, its error against every pattern of kept inputs."""

from __future__ import annotations

import math

import mpmath
import numpy as np
import pytest
from hypothesis import given, settings
from scipy.integrate import quad
from scipy.stats import norm

from tests.mechanisms.cases import (
    INF,
    both_problems,
    least_honest_of_any_size,
    mixture_delta,
    over_all_patterns,
    removal_deltas,
    scripted,
    specs,
    study,
)
from tests.oracles import DIGITS
from tpmdp import Spec
from tpmdp.experiments.scenario import DEFAULT
from tpmdp.mechanisms.additive import Optimal
from tpmdp.mechanisms.local_sample import LocalSample, best_dropping, drop_below
from tpmdp.mechanisms.mechanism import Setting
from tpmdp.mechanisms.problem import CountProblem
from tpmdp.mechanisms.registry import MECHANISMS

LS = LocalSample()


@settings(max_examples=40, deadline=None)
@given(specs(most=5))
@pytest.mark.slow
def test_drawn_studies_keep_every_budget(spec: Spec) -> None:
    """What the worst coalition sees of party j: p N(x) + (1 - p) N(0), with the noise of those who do not collude."""
    setting = Setting.of(spec)
    drop, enjoyed = best_dropping(setting), LS.enjoyed(setting)
    assert (enjoyed <= spec.epsilon).all()
    left = least_honest_of_any_size(Optimal().variance(drop.inner), setting.threshold, spec.receivers)
    rows = zip(left, drop.chance, spec.epsilon, enjoyed, spec.delta, spec.sensitivity, strict=True)
    for honest, chance, epsilon, claimed, delta, moved in rows:
        if honest is None or epsilon == INF or not moved:
            continue
        for target in {float(epsilon), float(claimed)}:
            for found in removal_deltas(target, chance, moved, mpmath.sqrt(honest)):
                assert found <= delta


@pytest.mark.parametrize("star", [0.3, 1.0, 2.5])
@pytest.mark.slow
def test_the_coin_is_worth_what_is_said(star: float) -> None:
    """By plain integration of both densities, in both directions; and no larger chance would do."""
    setting = Setting.of(Spec(epsilon=[0.1, 0.25, 3.0], delta=1e-3, threshold=2))
    drop = drop_below(setting, star)
    assert drop.inner.spec.epsilon.tolist() == [star, star, 3.0]
    for party in (0, 1):
        epsilon, p = float(setting.spec.epsilon[party]), float(drop.chance[party])
        deviation = math.sqrt(drop.inner.need[party])

        def ahead(x: float, forth: bool, p: float = p, deviation: float = deviation, e: float = epsilon) -> float:
            out = norm.pdf(x, 0, deviation)
            mixed = p * norm.pdf(x, 1, deviation) + (1 - p) * out
            one, other = (mixed, out) if forth else (out, mixed)
            return max(0.0, float(one - math.exp(e) * other))

        for forth in (True, False):
            steps = range(-9, 10)
            found = sum(
                quad(ahead, at * deviation, (at + 1) * deviation, args=(forth,), epsabs=1e-12, limit=200)[0]
                for at in steps
            )
            assert found <= 1e-3 * (1 + 1e-6)
            oracle = removal_deltas(epsilon, p, 1.0, deviation)[0 if forth else 1]
            assert found == pytest.approx(float(oracle), rel=1e-4, abs=1e-9)
        assert max(removal_deltas(epsilon, p * 1.001, 1.0, deviation)) > 1e-3


def test_replacing_and_leaving_out_on_a_line() -> None:
    setting = Setting.of(Spec(epsilon=[0.2, 0.6, 1.1], delta=1e-5, threshold=2))
    drop = drop_below(setting, 1.1)
    for party in (0, 1):
        deviation = mpmath.sqrt(drop.inner.need[party])
        for dropped in (0.0, 0.25, 0.5, 1.0):
            for kept, replaced in ((0.0, 1.0), (1.0, 0.0), (0.0, dropped), (dropped, 0.0)):
                found = mixture_delta(
                    setting.spec.epsilon[party], drop.chance[party], kept, replaced, dropped, deviation
                )
                assert found <= 1e-5


@pytest.mark.slow
@pytest.mark.parametrize("epsilon", [[0.1, 2.0], [0.05, 0.5, 3.0, INF], [0.1, 0.9, 1.5, 4.0]], ids=str)
def test_every_pattern_of_kept_inputs_gives_bias_and_variance_exactly(epsilon: list[float]) -> None:
    for problem in both_problems(len(epsilon)):
        setting = study(problem, epsilon)
        chance = [DIGITS(float(p)) for p in best_dropping(setting).chance]
        assert min(chance) < 1
        bias, variance = over_all_patterns(LS, setting, problem, chance)
        computed = LS.error(setting, problem)
        noise = LS.noise(setting)
        assert computed.bias == pytest.approx(bias, rel=1e-9, abs=1e-12)
        assert computed.variance - noise == pytest.approx(variance, rel=1e-9, abs=1e-11 * (1 + noise))


def test_noise_is_what_is_simulated() -> None:
    problem = CountProblem([1, 0, 1, 1, 0])
    setting = study(problem, [0.1, 0.4, 0.9, 2.0, 2.0], threshold=2)
    moved = LS.release(setting, problem, scripted(0.0, final=1.0))[0] - LS.release(setting, problem, scripted(0.0))[0]
    assert moved[0] == pytest.approx(LS.noise(setting) ** 0.5, rel=1e-9)


@pytest.mark.parametrize("delta", [1e-300, 1e-6, 0.9])
@pytest.mark.parametrize("epsilon", [[1e-20, 800.0, INF], [0.1, 0.1], [INF, INF], [1e9], [1e-20, 1e-9, 0.1, 1e9]])
@pytest.mark.slow
def test_ugly_budgets_give_numbers(epsilon: list[float], delta: float) -> None:
    for problem in both_problems(len(epsilon)):
        setting = study(problem, epsilon, delta)
        error = LS.error(setting, problem)
        assert np.isfinite(error.bias).all()
        assert np.isfinite(error.variance).all()
        assert (LS.enjoyed(setting) <= setting.spec.epsilon).all()
        assert np.isfinite(LS.release(setting, problem, np.random.default_rng(0))).all()


@pytest.mark.slow
def test_it_lies_between_the_plan_and_weights() -> None:
    """At the paper's default: dropping adds the chance of the coin to what weights have."""
    squares: dict[str, list[float]] = {"G": [], "LS": [], "W": []}
    for seed in range(6):
        random = np.random.default_rng(seed)
        problem = CountProblem(random.permutation(np.arange(1000) < 150))
        setting = DEFAULT.setting(random, 1.0)
        for name in squares:
            mechanism = LS if name == "LS" else MECHANISMS[name]
            squares[name].append(float(mechanism.error(setting, problem).rmse[0]) ** 2)
    errors = {name: math.sqrt(np.mean(values)) for name, values in squares.items()}
    assert errors["W"] < 0.9 * errors["LS"] < 0.2 * errors["G"]


def test_equal_budgets_drop_nobody() -> None:
    setting = Setting.of(Spec(epsilon=[0.5] * 4, delta=1e-6, threshold=2))
    assert best_dropping(setting).chance.tolist() == [1.0] * 4
    assert LS.noise(setting) == Optimal().noise(setting)
