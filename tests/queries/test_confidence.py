"""Confidence sets of numbers that are not linear: against a plain search, at the edges of what is possible, and cover.

The oracles share no code with the intervals: a fine grid over all points of a ball, and the answers of many releases.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from tests.queries.cases import sum_query
from tpmdp._util.arrays import FloatArray
from tpmdp.queries.answer import CANNOT_TELL, Z_95, Answer
from tpmdp.queries.confidence import Ball, below_parabola, extremes
from tpmdp.queries.error_bars import ratio_interval
from tpmdp.queries.noisy_moments import NoisyMoments, coefficients, correlation, covariance, r_squared

RECORDS = 1000
RANGE: dict[str, Any] = {"column": "x", "low": -1, "high": 1}
PAIR: dict[str, Any] = {"x": [-1, 1], "y": [-1, 1]}


def moments_of(columns: FloatArray) -> FloatArray:
    rows = np.column_stack((np.ones(len(columns)), columns))
    return np.asarray(rows.T @ rows)


def correlated(count: int) -> FloatArray:
    random = np.random.default_rng(count)
    columns = random.uniform(-1, 1, (RECORDS, count))
    columns[:, -1] = 0.3 * columns[:, 0] + 0.2 * columns.mean(axis=1) + 0.3 * columns[:, -1]
    return columns


# The search for extremes ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("mean", [0.0, 0.02, -0.4, 0.9])
@pytest.mark.parametrize("radius", [0.01, 0.2, 0.6])
def test_the_extremes_of_a_variance_are_those_of_a_fine_grid(mean: float, radius: float) -> None:
    """The least is at two places alike where the mean is 0, and the way from the centre leads to neither."""

    def variance(points: FloatArray) -> tuple[FloatArray, FloatArray]:
        slopes = np.stack((-2 * points[..., 0], np.ones(points.shape[:-1])), axis=-1)
        return points[..., 1] - points[..., 0] ** 2, slopes

    centre = np.array([[mean, 0.5]])
    ways = np.array([[1.0, 0.0], [-1.0, 0.0], [0.0, 1.0], [0.0, -1.0]])[:, None, None, :].repeat(2, axis=1)
    (low, high), _ = extremes(variance, centre, np.full((2, 1), radius), ways=ways)
    turn = np.linspace(0, 2 * math.pi, 200_001)
    values = 0.5 + radius * np.sin(turn) - (mean + radius * np.cos(turn)) ** 2
    slack = 1e-3 * (values.max() - values.min())
    assert low[0] == pytest.approx(values.min(), abs=slack)
    assert high[0] == pytest.approx(values.max(), abs=slack)


FUNCTIONS: dict[str, Any] = {
    "covariance": (covariance, 2),
    "correlation": (correlation, 2),
    "slope": (coefficients(np.array([0.3, 1.0, -0.2])), 3),
    "r_squared": (r_squared, 3),
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_gradients_are_those_of_differences(name: str) -> None:
    function, count = FUNCTIONS[name]
    sums = moments_of(correlated(count))
    _, slopes = function(sums)
    random = np.random.default_rng(1)
    for _ in range(20):
        way = random.normal(size=sums.shape)
        way = way + way.T
        difference = (function(sums + 1e-3 * way)[0] - function(sums - 1e-3 * way)[0]) / 2e-3
        assert float((slopes * way).sum()) == pytest.approx(float(difference), rel=1e-5, abs=1e-9)


@pytest.mark.parametrize("name", FUNCTIONS)
@pytest.mark.parametrize("counted", [False, True])
def test_no_sums_within_the_ball_give_more_than_the_limits(name: str, counted: bool) -> None:
    function, count = FUNCTIONS[name]
    sums = NoisyMoments(moments_of(correlated(count)), RECORDS / 60, counted)
    radius = math.sqrt(2) * Z_95 * sums.error
    random = np.random.default_rng(2)
    ways = random.normal(size=(20_000, *sums.sums.shape))
    ways = (ways + np.swapaxes(ways, 1, 2)) / 2
    ways[:, 0, 0] *= counted
    ways *= radius / np.linalg.norm(ways, axis=(1, 2))[:, None, None]
    values = function(sums.sums + ways)[0]
    mask = np.ones(sums.sums.shape)
    mask[0, 0] = counted

    def flat(points: FloatArray) -> tuple[FloatArray, FloatArray]:
        found, slopes = function(points.reshape(*points.shape[:-1], *sums.sums.shape))
        return found, ((slopes + np.swapaxes(slopes, -1, -2)) / 2 * mask).reshape(points.shape)

    size = len(sums.sums) ** 2
    begin = ways[:4].reshape(4, 1, 1, size).repeat(2, axis=1) / radius
    (low, high), _ = extremes(flat, sums.sums.reshape(1, size), np.full((2, 1), radius), ways=begin)
    assert low[0] <= values.min()
    assert values.max() <= high[0]
    middle = float(function(sums.sums)[0])
    assert high[0] - middle <= 2.5 * (values.max() - middle)  # so that they are not just wide: random ways reach less
    assert middle - low[0] <= 2.5 * (middle - values.min())


@pytest.mark.slow
def test_an_interval_of_a_distance_counts_the_curvature() -> None:
    """The distance to the origin of a point in the plane: noise makes it longer, by half the curvature on average."""

    def length(points: FloatArray) -> tuple[FloatArray, FloatArray]:
        norms = np.linalg.norm(points, axis=-1)
        return norms, points / norms[..., None]

    missed = np.zeros(2)
    for point in np.array([3.0, 0.0]) + np.random.default_rng(3).normal(0, 1, (2000, 2)):
        (low,), (high,) = Ball(point[None], np.eye(2), 1.0).interval(length)
        missed += [low > 3, high < 3]
    assert (missed / 2000 <= 0.042).all()  # 2.5 % and five standard errors
    assert missed.sum() / 2000 >= 0.03


# The edges of what is possible ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("weight", [0.25, 1.0, 2.0])
def test_the_distance_to_a_parabola_is_that_of_a_fine_grid(weight: float) -> None:
    grid = np.linspace(-20, 20, 400_001)
    random = np.random.default_rng(4)
    for mean, square in random.normal(0, 2, (30, 2)).tolist():
        wanted = np.sqrt(weight * (grid - mean) ** 2 + (grid**2 - square) ** 2).min()
        found = below_parabola(mean, square, weight)
        assert found == 0 if square >= mean * mean else found == pytest.approx(wanted, rel=1e-4, abs=1e-6)


def every_answer(entry: dict[str, Any], table: dict[str, Any], error: float, runs: int) -> list[Answer]:
    query = sum_query(entry)
    exact = query.statistic({name: table[name] for name in query.columns})
    noise = np.random.default_rng(5).normal(0, error, (runs, len(exact)))
    return [answer for each in noise for answer in query.answers(exact + each, RECORDS, error)]


CONSTANT = {name: np.full(RECORDS, value) for name, value in (("x", 0.3), ("y", 1.0), ("w", 1.0), ("g", 0.0))}
ONE = {**CONSTANT, "x": np.append(np.full(RECORDS - 1, -1.0), 1.0), "y": np.append(np.full(RECORDS - 1, -1.0), 1.0)}
NOBODY = {**CONSTANT, "w": np.zeros(RECORDS), "g": np.full(RECORDS, 9.0)}


@pytest.mark.parametrize("part", [{}, {"where": "w = 1"}, {"by": {"g": [0, 1]}}], ids=["all", "where", "by"])
@pytest.mark.parametrize(
    ("entry", "low", "high"),
    [
        ({"kind": "mean", **RANGE}, -1, 1),
        ({"kind": "variance", **RANGE}, 0, 1),
        ({"kind": "covariance", "bounds": PAIR}, -1, 1),
        ({"kind": "correlation", "bounds": PAIR}, -1, 1),
        ({"kind": "linear_regression", "target": "y", "bounds": PAIR}, -math.inf, math.inf),
    ],
    ids=lambda value: value["kind"] if isinstance(value, dict) else "",
)
@pytest.mark.parametrize("table", [CONSTANT, ONE, NOBODY], ids=["constant", "outlier", "nobody"])
def test_what_cannot_be_is_never_printed(
    entry: dict[str, Any], low: float, high: float, part: dict[str, Any], table: dict[str, Any]
) -> None:
    """No value and no limit beyond what is possible, and no interval without width, at any noise."""
    for error in (0.01, 3.0, 50.0, 200.0, 5000.0):
        for answer in every_answer({**entry, **part}, table, error, 20):
            least, most = (0.0, 1.0) if answer.part.endswith("R squared") else (low, high)
            if entry["kind"] == "covariance" and answer.part.endswith(("x, x", "y, y")):
                least = 0.0
            first, last = answer.interval
            assert least <= first < last <= most
            assert answer.is_drowned or first <= answer.value <= last
            assert answer.note or not answer.is_drowned


def test_an_answer_beyond_its_range_has_the_interval_of_the_likelihood_ratio() -> None:
    """All values v of the range with (x - v)^2 - (x - range)^2 <= 1.96^2; it says so where that is the whole range."""
    random = np.random.default_rng(6)
    grid = np.linspace(0, 1, 100_001)
    for value in random.uniform(-3, 4, 200).tolist():
        for error in (0.05, 0.4):
            nearest = min(max(value, 0.0), 1.0)
            kept = grid[(value - grid) ** 2 - (value - nearest) ** 2 <= (Z_95 * error) ** 2]
            answer = Answer("q", value, error).within(0.0, 1.0)
            assert answer.interval == pytest.approx((kept.min(), kept.max()), abs=2e-5)
            assert (answer.interval == (0.0, 1.0)) == (answer.note == CANNOT_TELL)


def test_a_ratio_beyond_its_range_keeps_an_interval_with_a_width() -> None:
    random = np.random.default_rng(7)
    for top in random.uniform(-300, 300, 200).tolist():
        low, high = ratio_interval(top, 100.0, 3.0, 2.0, -0.5, 0.5)
        assert -0.5 <= low < high <= 0.5
    assert ratio_interval(5.0, -50.0, 1.0, 1.0, -0.5, 0.5) == (-0.5, 0.5)


# Noise and limits -----------------------------------------------------------------------------------------------------


def test_more_noise_never_tells_more() -> None:
    """Widths grow with the noise until the answer cannot be told, for the same sums."""
    table = {"x": correlated(2)[:, 0], "y": correlated(2)[:, 1]}
    for entry in ({"kind": "variance", **RANGE}, {"kind": "correlation", "bounds": PAIR}):
        query = sum_query(entry)
        exact = query.statistic({name: table[name] for name in query.columns})
        widths = []
        for error in (0.1, 1.0, 10.0, 40.0, 100.0, 1000.0):
            (answer,) = query.answers(exact, RECORDS, error)
            widths.append(answer.interval[1] - answer.interval[0])
        assert widths == sorted(widths)
        assert answer.is_drowned


@pytest.mark.parametrize("part", [{}, {"where": "w >= 0"}])
@pytest.mark.parametrize("kind", ["variance", "covariance", "correlation", "linear_regression"])
def test_limits_with_a_bias_contain_those_without(kind: str, part: dict[str, Any]) -> None:
    """And the interval of every sum that the bias may have moved, at no more than 1.96 standard errors."""
    bounds = RANGE if kind == "variance" else {"bounds": PAIR}
    target = {"target": "y"} if kind == "linear_regression" else {}
    query = sum_query({"kind": kind, **bounds, **target, **part})
    columns = {"x": correlated(2)[:, 0], "y": correlated(2)[:, 1], "w": np.zeros(RECORDS)}
    total = query.statistic({name: columns[name] for name in query.columns})
    wide = query.limits(total, RECORDS, 2.0, 15.0)
    random = np.random.default_rng(8)
    for _ in range(50):
        way = random.normal(size=len(total))
        moved = total + 15.0 * way / np.linalg.norm(way)
        for (low, high), answer in zip(wide, query.answers(moved, RECORDS, 0.0), strict=True):
            assert low <= answer.value <= high
