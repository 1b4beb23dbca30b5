"""Steps that all parties must agree on: right, the same bits everywhere, and harmless whatever the noise did."""

from __future__ import annotations

import math
import random as python_random
from typing import Final

import mpmath
import numpy as np
import pytest

from tpmdp.queries.logistic_regression import LogisticRegression
from tpmdp.queries.newton import COEFFICIENT_MAX, STEP_MAX, bounded, moved, solve
from tpmdp.queries.poisson_regression import PoissonRegression
from tpmdp.queries.ranges import Range
from tpmdp.queries.rounds import RoundsQuery
from tpmdp.queries.starting_moments import logarithm
from tpmdp.queries.steady_exp import exp_below_0, logistic


def test_clear_forms_are_solved() -> None:
    random = np.random.default_rng(0)
    for size in (1, 2, 5, 12):
        half = random.normal(size=(size, size))
        form, right = half @ half.T + np.eye(size), random.normal(size=size)
        assert solve(form.tolist(), right.tolist(), 1e-6) == pytest.approx(np.linalg.solve(form, right), rel=1e-9)


def test_unclear_forms_give_short_steps() -> None:
    """Where the noise exceeds the form, the step is that of a ridge of the noise at least."""
    random = np.random.default_rng(1)
    for _ in range(200):
        half = random.normal(size=(4, 4))
        step = solve(((half + half.T) / 2).tolist(), [1.0] * 4, 3.0)
        assert np.isfinite(step).all()
        assert np.linalg.norm(step) <= 2.0


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
def test_what_is_not_finite_moves_nothing(bad: float) -> None:
    assert solve([[bad, 0.0], [0.0, 1.0]], [1.0, 1.0], 1.0) == [0.0, 0.0]
    assert solve([[1.0, 0.0], [0.0, 1.0]], [1.0, bad], 1.0) == [0.0, 0.0]
    assert solve([[1.0, 0.0], [0.0, 1.0]], [1.0, 1.0], abs(bad)) == [0.0, 0.0]
    assert moved((1.0, 2.0), (bad, 0.0)) == (1.0, 2.0)


def test_steps_and_points_are_bounded() -> None:
    assert sum(map(abs, moved((0.0, 0.0), (1e300, -1e300)))) == pytest.approx(STEP_MAX)
    assert bounded([1e300, -math.inf]) == (COEFFICIENT_MAX, -COEFFICIENT_MAX)


LOGISTIC = LogisticRegression("q", "t", (Range("x", 0.0, 1.0), Range("y", 0.0, 1.0)))
POISSON = PoissonRegression("q", "t", (Range("x", 0.0, 1.0), Range("y", 0.0, 1.0)), 9.0)
TOTAL = [400.5, 31.25, -77.125, 1000.0, 12.5, 480.75, -3.0, 61.5, 333.25]
BITS: Final[dict[str, list[list[str]]]] = {
    "logistic": [
        ["0x1.2f4fcaa1769aap-1", "0x1.92cc3b233875fp-4", "-0x1.35d3358eb5d7ep-2"],
        ["-0x1.12ec9be8ea68cp-1", "-0x1.01f803ddd6ed4p-3", "0x1.7f163ca14c108p-2"],
        ["-0x1.aa948139a5b61p+0", "-0x1.66ab12a6a50abp-2", "0x1.0cffebb4537e3p+0"],
    ],
    "poisson": [
        ["-0x1.c76914bf010e4p-2", "0x1.1cf51b72d4814p-5", "-0x1.b65e5da8ba712p-4"],
        ["-0x1.a77064173d760p-1", "-0x1.510783abc343ep-5", "0x1.f3d6a9daae3fcp-4"],
        ["-0x1.35961ee77d328p+0", "-0x1.df8211652d847p-4", "0x1.6782ec5785bc2p-2"],
    ],
}


def points_of(query: RoundsQuery, total: list[float]) -> list[tuple[float, ...]]:
    point: tuple[float, ...] = ()
    points = []
    for number in range(1, 4):
        each = np.array(total) / number
        point = query.next_point(number, point, total=each, records=1400, standard_error=5.0)
        points.append(point)
    return points


@pytest.mark.parametrize("query", [LOGISTIC, POISSON], ids=["logistic", "poisson"])
def test_points_have_the_same_bits_on_every_machine(query: RoundsQuery) -> None:
    name = query.kind_name().partition("_")[0]
    assert [[each.hex() for each in point] for point in points_of(query, TOTAL)] == BITS[name]


@pytest.mark.parametrize("query", [LOGISTIC, POISSON], ids=["logistic", "poisson"])
@pytest.mark.parametrize("records", [0, 1, 2, 10**9])
def test_no_total_breaks_a_point(query: RoundsQuery, records: int) -> None:
    random = np.random.default_rng(2)
    for trial in range(60):
        total = random.normal(0, 10.0 ** (trial % 12 - 3), query.dimension)
        total[trial % query.dimension] = [0.0, math.nan, math.inf, -math.inf, 1e300][trial % 5]
        point: tuple[float, ...] = ()
        for number in range(1, query.rounds):
            error = [0.0, 1.0, 1e6][trial % 3]
            point = query.next_point(number, point, total=total, records=records, standard_error=error)
            assert len(point) == 3
            assert all(math.isfinite(each) and abs(each) <= COEFFICIENT_MAX for each in point)
        for answers in (query.stopped(3, point), query.asked(4, point).answers(total, records, 1.0)):
            for answer in answers:
                assert answer.is_drowned or math.isfinite(answer.value)


def test_logarithms_are_rounded_correctly() -> None:
    mpmath.mp.prec = 200
    source = python_random.Random(3)
    for _ in range(300):
        number = math.ldexp(source.random() + 0.5, source.randrange(-60, 60))
        assert logarithm(number) == float(mpmath.log(mpmath.mpf(number)))


def test_exponentials_are_accurate_and_do_not_depend_on_their_neighbours() -> None:
    mpmath.mp.prec = 200
    values = np.concatenate((-np.random.default_rng(4).exponential(20.0, 997), [0.0, -5e-324, -1e-9]))
    together = exp_below_0(values)
    assert together.tolist() == [float(exp_below_0(np.array([value]))[0]) for value in values]
    for value, result in zip(values[::10].tolist(), together[::10].tolist(), strict=True):
        assert result == pytest.approx(float(mpmath.exp(mpmath.mpf(value))), rel=1e-15)
    assert exp_below_0(np.array([-math.inf, 7.0])).tolist() == [pytest.approx(math.exp(-700)), 1.0]
    odds = np.linspace(-40, 40, 101)
    assert logistic(odds) == pytest.approx(1 / (1 + np.exp(-odds)), rel=1e-14)
    assert (logistic(odds) + logistic(-odds)) == pytest.approx(np.ones(101), abs=1e-15)
