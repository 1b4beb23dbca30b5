"""Bias and variance of every mechanism: computed against simulated, and against every pattern of kept inputs."""

from __future__ import annotations

import mpmath
import numpy as np
import pytest

from tests.mechanisms.cases import INF, both_problems, over_all_patterns, scripted, study
from tests.oracles import DIGITS
from tpmdp.mechanisms.mechanism import Mechanism, Setting
from tpmdp.mechanisms.problem import CountProblem, Problem, RegressionProblem
from tpmdp.mechanisms.registry import MECHANISMS

EPSILON = [0.4, 0.9, 1.5, 2.5, 6.0]
PROBLEMS = both_problems(len(EPSILON))
UNBIASED = {"G", "TMDP", "non-thre", "MIN", "non-pri"}
RUNS = 6000


def setting_of(problem: Problem) -> Setting:
    """Deltas so large that the noise does not drown what is done to the inputs."""
    return study(problem, EPSILON, delta=[0.1, 0.3, 0.05, 0.2, 0.1], threshold=2, receivers=[0, 3])


def test_all_mechanisms_are_here_by_the_names_of_the_paper() -> None:
    assert list(MECHANISMS) == [
        "G",
        "W",
        "two levels",
        "T",
        "TMDP",
        "non-thre",
        "MIN",
        "Sample",
        "Sample, scaled back",
        "PLDP",
        "non-pri",
    ]
    for name, mechanism in MECHANISMS.items():
        assert mechanism.name == name
        assert mechanism.meaning
        assert mechanism.trust


@pytest.mark.slow
@pytest.mark.parametrize("problem", PROBLEMS, ids=["count", "regression"])
@pytest.mark.parametrize("mechanism", MECHANISMS.values(), ids=MECHANISMS)
@pytest.mark.long
def test_error_is_what_is_simulated(mechanism: Mechanism, problem: Problem) -> None:
    """Five standard errors; that of a variance is estimated from the fourth powers."""
    setting = setting_of(problem)
    computed = mechanism.error(setting, problem)
    answers = mechanism.release(setting, problem, np.random.default_rng(20), RUNS)
    assert answers.shape == (RUNS, len(problem.total))
    assert np.isfinite(answers).all()
    off = answers - (problem.total + computed.bias)
    spread = np.sqrt(computed.variance)
    assert (np.abs(off.mean(axis=0)) <= 5 * spread / RUNS**0.5 + 1e-12).all()
    squares = off**2
    assert (np.abs(squares.mean(axis=0) - computed.variance) <= 5 * squares.std(axis=0) / RUNS**0.5 + 1e-12).all()
    assert np.allclose(computed.rmse, np.sqrt(computed.bias**2 + computed.variance), rtol=1e-12)


@pytest.mark.parametrize("problem", PROBLEMS, ids=["count", "regression"])
def test_who_is_unbiased(problem: Problem) -> None:
    setting = setting_of(problem)
    for name, mechanism in MECHANISMS.items():
        bias = mechanism.error(setting, problem).bias
        if name in UNBIASED or (name == "PLDP" and isinstance(problem, CountProblem)):
            assert not bias.any(), name
        else:
            assert bias.any(), name


@pytest.mark.parametrize("problem", PROBLEMS, ids=["count", "regression"])
def test_added_noise_has_one_variance_in_all_coordinates(problem: Problem) -> None:
    setting = setting_of(problem)
    for name in UNBIASED:
        mechanism = MECHANISMS[name]
        noise = mechanism.noise(setting)
        assert (mechanism.error(setting, problem).variance == noise).all()
        moved = mechanism.release(setting, problem, scripted(final=1.0))[0] - problem.total
        assert moved == pytest.approx(np.full(len(moved), noise**0.5), rel=1e-9)
    ours, strict, alone, curator, exact = (
        MECHANISMS[name].noise(setting) for name in ("G", "TMDP", "non-thre", "MIN", "non-pri")
    )
    assert exact == 0 < curator <= ours <= min(strict, alone)


@pytest.mark.parametrize(
    "epsilon", [[0.7], [0.1, 2.0], [1.0, 1.0, 1.0], [0.05, 0.5, 3.0, INF], [0.1, 0.2, 0.9, 1.5, 1.5, 4.0]], ids=str
)
def test_every_pattern_of_kept_inputs_gives_bias_and_variance_exactly(epsilon: list[float]) -> None:
    """No simulation: all 2^n patterns, each with its exact chance."""
    mechanism, mean = MECHANISMS["Sample"], float(np.mean(epsilon))
    chance = [
        DIGITS(1) if e >= mean else DIGITS(0) if mean == INF else mpmath.expm1(e) / mpmath.expm1(mean) for e in epsilon
    ]
    for problem in both_problems(len(epsilon)):
        setting = study(problem, epsilon)
        bias, variance = over_all_patterns(mechanism, setting, problem, chance)
        computed = mechanism.error(setting, problem)
        assert computed.bias == pytest.approx(bias, rel=1e-9, abs=1e-12)
        assert computed.variance - mechanism.noise(setting) == pytest.approx(
            variance, rel=1e-9, abs=1e-12 * (1 + mechanism.noise(setting))
        )


def test_dropping_inputs_makes_sums_too_small() -> None:
    problem = CountProblem([1, 1, 1, 0])
    setting = study(problem, [0.1, 0.2, 2.0, 0.1])
    chance = np.expm1([0.1, 0.2]) / np.expm1(0.6)
    assert MECHANISMS["Sample"].error(setting, problem).bias == pytest.approx([-(2 - chance.sum())], rel=1e-12)


def test_a_seed_repeats_and_another_does_not() -> None:
    problem = RegressionProblem(np.full((3, 2), 0.5))
    setting = study(problem, [0.5, 1.0, 2.0])
    for name, mechanism in MECHANISMS.items():
        first, again, other = (
            mechanism.release(setting, problem, np.random.default_rng(seed), 3) for seed in (1, 1, 2)
        )
        assert np.array_equal(first, again)
        assert np.array_equal(first, other) == (name == "non-pri")
        assert name == "non-pri" or len(np.unique(first, axis=0)) == 3
