"""PLDP: exact likelihood ratios of randomised response, and the noise a record needs on its own."""

from __future__ import annotations

import math
from itertools import product
from typing import Any

import mpmath
import numpy as np
import pytest
from dp_accounting import gaussian_mechanism
from numpy.polynomial.hermite_e import hermegauss

from tests.mechanisms.cases import INF, scripted, study
from tests.oracles import DIGITS, exact_delta
from tpmdp.mechanisms.local import Local
from tpmdp.mechanisms.problem import CountProblem, RegressionProblem

LOCAL = Local()


def told(bit: float, epsilon: float, uniform: float) -> float:
    problem = CountProblem([bit])
    return float(LOCAL.release(study(problem, [epsilon]), problem, scripted(uniform))[0, 0])


def chance_of_a_lie(bit: float, epsilon: float) -> float:
    """The least uniform number at which the truth is told, found by bisection over all doubles from 0 to 1."""
    truth = told(bit, epsilon, 1 - 2.0**-53)
    low, high = 0, int(np.float64(1.0).view(np.int64))
    while low < high:
        middle = (low + high) // 2
        honest = told(bit, epsilon, float(np.int64(middle).view(np.float64))) == truth
        low, high = (low, middle) if honest else (middle + 1, high)
    return float(np.int64(low).view(np.float64))


RATIOS = [1e-20, 1e-10, 0.01, 0.1, 0.3, 0.5, 0.7, 1.0, 1.7, 2.0, 3.0, 5.0, 10.0, 36.0, 40.0, 100.0, 700.0]


@pytest.mark.parametrize("epsilon", [*RATIOS, 750.0, 800.0, 1e9])
@pytest.mark.slow
def test_no_answer_is_more_than_e_to_the_epsilon_times_likelier(epsilon: float) -> None:
    """Exactly: neither a lie nor the truth is rarer than 1/(1 + e^epsilon), not by a unit in the last place."""
    least = 1 / (1 + mpmath.exp(DIGITS(epsilon)))
    for bit in (0.0, 1.0):
        lie = DIGITS(chance_of_a_lie(bit, epsilon))
        assert lie >= least
        assert 1 - lie >= least


@pytest.mark.parametrize("epsilon", RATIOS)
def test_the_ratio_is_attained(epsilon: float) -> None:
    zero, one = (DIGITS(chance_of_a_lie(bit, epsilon)) for bit in (0.0, 1.0))
    assert zero == one
    assert abs((1 - zero) / zero / mpmath.exp(DIGITS(epsilon)) - 1) <= 1e-14


def test_who_asks_for_nothing_tells_the_truth() -> None:
    assert [told(bit, INF, 0.0) for bit in (0.0, 1.0)] == [0.0, 1.0]
    assert chance_of_a_lie(1.0, INF) == 0


@pytest.mark.parametrize("bits", [[1], [0, 1], [1, 1, 1], [0, 0, 0, 0], [1, 0, 0, 1, 1, 0]])
def test_every_pattern_of_lies_gives_bias_and_variance_exactly(bits: list[int]) -> None:
    """No simulation: all 2^n patterns, each with its exact chance."""
    problem = CountProblem(bits)
    for epsilon in ([0.3, 1.0, 2.0, 0.05, 4.0, 7.0], [1e-6] * 6, [1.0, 1.0, INF, 30.0, 1e-3, 1.0]):
        setting = study(problem, epsilon[: len(bits)])
        lie = [1 / (1 + mpmath.exp(DIGITS(e))) if e < INF else DIGITS(0) for e in epsilon]
        total, square, mass = DIGITS(0), DIGITS(0), DIGITS(0)
        for pattern in product((False, True), repeat=len(bits)):
            weight = mpmath.fprod(lie[i] if lies else 1 - lie[i] for i, lies in enumerate(pattern))
            if not weight:
                continue
            uniform = [0.0 if lies else 1 - 2.0**-53 for lies in pattern]
            answer = DIGITS(float(LOCAL.release(setting, problem, scripted(uniform))[0, 0]))
            mass, total, square = mass + weight, total + weight * answer, square + weight * answer**2
        error = LOCAL.error(setting, problem)
        variance = square - total**2
        assert abs(mass - 1) < 1e-50
        assert error.bias.tolist() == [0.0]
        assert abs(total - sum(bits)) <= 1e-12 * (1 + mpmath.sqrt(variance))
        assert error.variance[0] == pytest.approx(float(variance), rel=1e-9, abs=1e-12)


BUDGETS: list[tuple[float, float]] = [(0.1, 1e-6), (1.0, 1e-9), (5.0, 0.01), (1e-20, 1e-300), (800.0, 1e-6), (1.0, 0.9)]


@pytest.mark.parametrize("columns", [2, 3, 4, 9])
@pytest.mark.parametrize(("epsilon", "delta"), BUDGETS)
def test_a_record_may_cross_the_whole_cube(columns: int, epsilon: float, delta: float) -> None:
    problem = RegressionProblem(np.zeros((1, columns)))
    answer = LOCAL.release(study(problem, [epsilon], delta), problem, scripted(normal=np.ones((1, columns))))
    deviation = mpmath.sqrt(DIGITS(float(answer[0, 0])))  # a record of zeros: its first square is the noise's
    across = 2 * mpmath.sqrt(columns)  # from (-1, ..., -1) to (1, ..., 1)
    assert exact_delta(across / deviation, epsilon) <= delta
    assert exact_delta(across / deviation * (1 + 1e-9), epsilon) > delta
    if 1e-12 < epsilon < 100 and delta > 1e-100:
        known = gaussian_mechanism.get_sigma_gaussian(epsilon, delta) * float(across)
        assert float(deviation) == pytest.approx(known, rel=1e-6)


def test_bias_and_variance_of_noisy_records_exactly() -> None:
    """No simulation: entries of noise z z^T are polynomials of degree 4 when squared, which three nodes integrate."""
    records = np.array([[0.3, -1.0], [0.9, 0.25]])
    problem = RegressionProblem(records)
    for epsilon in ([0.5, 3.0], [20.0, 1.0], [2.0, INF]):
        setting = study(problem, epsilon)
        nodes, weights = hermegauss(3)
        weights = weights / weights.sum()
        total, square = np.zeros(6), np.zeros(6)
        for choice in product(range(3), repeat=4):
            noise, weight = nodes[list(choice)].reshape(2, 2), math.prod(weights[list(choice)])
            answer = LOCAL.release(setting, problem, scripted(normal=noise))[0] - problem.total
            total, square = total + weight * answer, square + weight * answer**2
        error = LOCAL.error(setting, problem)
        scale = float(np.sqrt(error.variance.max()))
        assert error.bias == pytest.approx(total, rel=1e-9, abs=1e-9 * scale)
        assert error.variance == pytest.approx(square - total**2, rel=1e-9, abs=1e-9 * scale)
        bias = problem.matrix(error.bias)
        assert (np.diag(bias)[:-1] > 0).all()  # squares of noisy entries
        assert np.count_nonzero(bias) == 2  # and nothing else


def test_everybody_has_what_it_asked_for() -> None:
    problem: Any = CountProblem([1, 0, 1])
    assert LOCAL.enjoyed(study(problem, [0.1, 2.0, INF])).tolist() == [0.1, 2.0, INF]
    assert LOCAL.noise(study(problem, [0.1, 2.0, INF])) == 0
