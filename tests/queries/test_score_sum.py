"""How far one record moves a round of a model: the steps of the proof exactly, and searches that share no code."""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction
from itertools import pairwise
from typing import Any

import numpy as np
import pytest

from tests.queries.cases import Case, exact_distance, rounds_query, sum_query, table_of
from tpmdp._util.arrays import FloatArray
from tpmdp.queries.base import Query
from tpmdp.queries.logistic_regression import LogisticRegression
from tpmdp.queries.poisson_regression import PoissonRegression
from tpmdp.queries.ranges import Range
from tpmdp.queries.rounds import RoundsQuery
from tpmdp.queries.score_sum import ScoreSum
from tpmdp.queries.search import search

BOUNDS = (Range("x", 0.0, 10.0), Range("y", -5.0, 5.0), Range("z", 1.0, 3.0))
LOGISTIC = LogisticRegression("q", "t", BOUNDS)
POISSON = PoissonRegression("q", "t", BOUNDS, 8.0)


def least(values: list[Fraction], slope: Fraction, step: Fraction) -> Fraction:
    """A lower bound of a function that changes by at most `slope` per unit, from its values on a grid of this step."""
    return min(min(pair) for pair in pairwise(values)) - slope * step / 2


def grid(low: Fraction, high: Fraction, count: int = 4000) -> tuple[list[Fraction], Fraction]:
    step = (high - low) / count
    return [low + step * place for place in range(count + 1)], step


def length(x: Fraction) -> Fraction:
    """The squared length of a record over s, with x = 1 - |r|: g of theory M1."""
    return (1 - x) ** 2 * (1 + 24 * x * x)


def test_the_steps_of_the_proof_for_logistic_regression_hold_exactly() -> None:
    """Theory M1, in exact arithmetic: slopes on [0, 1] are at most 169 (first) and 120 (g)."""
    points, step = grid(Fraction(0), Fraction(1))
    assert least([4 - u - 24 * u * (1 - u) ** 2 for u in points], Fraction(169), step) > 0
    assert -least([-length(x) for x in points], Fraction(120), step) < Fraction(1789, 1000)
    highest = max(points, key=length)
    points, step = grid(highest - Fraction(1, 100), highest + Fraction(1, 100))
    assert -least([-length(x) for x in points], Fraction(120), step) < Fraction(1774, 1000)
    points, step = grid(Fraction(0), Fraction(178, 1000))
    assert -least([-length(x) for x in points], Fraction(120), step) < Fraction(1195, 1000)
    last = [(1 - q) ** 2 / (48 * q * q) for q in (Fraction(178, 1000), Fraction(1443, 10_000))]
    assert Fraction(1443, 10_000) ** 2 * 48 < 1
    assert 2 * Fraction(1774, 1000) + last[0] < 4
    assert Fraction(1195, 1000) + Fraction(1774, 1000) + last[1] < 4


def squared_distances(one: FloatArray, two: FloatArray, factor: float) -> FloatArray:
    """Of pairs of records, given as rows (r, w, z): with matrices, no formula."""
    gradients = one[:, :1] * one[:, 2:] - two[:, :1] * two[:, 2:]
    forms = np.zeros((len(one), one.shape[1] - 2, one.shape[1] - 2))
    for sign, rows in ((1, one), (-1, two)):
        forms += sign * rows[:, 1, None, None] * rows[:, 2:, None] * rows[:, None, 2:]
    return np.asarray((gradients**2).sum(axis=1) + factor**2 * (forms**2).sum(axis=(1, 2)))


Family = Callable[[FloatArray], FloatArray]  # three numbers in [0, 1] to score and curvature


def any_score(shares: FloatArray) -> FloatArray:
    return np.column_stack((2 * shares[:, 0] - 1, shares[:, 1]))


def logistic_score(shares: FloatArray) -> FloatArray:
    chance = shares[:, 0]
    return np.column_stack((chance - (shares[:, 1] > 0.5), chance * (1 - chance)))


def poisson_score(shares: FloatArray) -> FloatArray:
    mean = shares[:, 0]
    return np.column_stack((mean - shares[:, 1], np.minimum(mean, 2 * (1 - mean))))


def flat_score(shares: FloatArray) -> FloatArray:
    return np.column_stack((2 * shares[:, 0] - 1, np.ones(len(shares))))


def farthest(entries: int, weight: float, family: Family, seed: int = 0) -> float:
    """The largest squared distance over the entries that many climbers find."""
    random = np.random.default_rng(seed)

    def records(shares: FloatArray) -> FloatArray:
        inputs = np.column_stack((np.ones(len(shares)), 2 * shares[:, 2:] - 1))
        return np.column_stack((family(shares), inputs))

    def lengths(pairs: FloatArray) -> FloatArray:
        factor = math.sqrt(weight / entries)
        return squared_distances(records(pairs[:, : entries + 1]), records(pairs[:, entries + 1 :]), factor) / entries

    places = random.random((600, 2 * (entries + 1)))
    best = lengths(places)
    for turn in range(500):
        moves = random.normal(0, 0.5 * 0.99**turn, places.shape) * (random.random(places.shape) < 0.4)
        tried = np.clip(places + moves, 0.0, 1.0)
        reached = lengths(tried)
        better = reached > best
        places[better], best[better] = tried[better], reached[better]
    return float(best.max())


@pytest.mark.parametrize("entries", [2, 3, 4, 7])
@pytest.mark.slow
def test_no_two_records_are_farther_apart_than_proven(entries: int) -> None:
    assert 3.9 < farthest(entries, LogisticRegression.hessian_weight, logistic_score) <= 4 + 1e-9
    assert 3.9 < farthest(entries, PoissonRegression.hessian_weight, poisson_score) <= 4 + 1e-9
    assert 4.9 < farthest(entries, 1.0, any_score) <= 5 + 1e-9
    assert 3.9 < farthest(entries, 1.0, flat_score) <= 4.5 + 1e-9


def test_the_proven_weights_of_the_hessian_are_nearly_the_largest() -> None:
    """With 24.7 instead of 24, or 2.76 instead of 2.75, two records with one z are farther apart."""
    place = 0.3555  # 1 - |r| of the one; the other has |r| = 1, at the same z
    one, two = (np.array([[rho, abs(rho) * (1 - abs(rho)), 1.0, 1.0]]) for rho in (1 - place, -1.0))
    assert squared_distances(one, two, math.sqrt(24 / 2))[0] / 2 <= 4
    assert squared_distances(one, two, math.sqrt(24.7 / 2))[0] / 2 > 4
    one, two = np.array([[2 / 3, 2 / 3, 1.0, 1.0]]), np.array([[-1.0, 0.0, 1.0, 1.0]])
    assert squared_distances(one, two, math.sqrt(2.75 / 2))[0] / 2 <= 4 + 1e-12
    assert squared_distances(one, two, math.sqrt(2.76 / 2))[0] / 2 > 4


@pytest.mark.parametrize("query", [LOGISTIC, POISSON], ids=["logistic", "poisson"])
def test_features_at_any_point_stay_within_the_declared_distance(query: RoundsQuery) -> None:
    """Pairs of records of a finite set at many points, steep ones among them; in exact arithmetic."""
    random = np.random.default_rng(1)
    values = {"x": [0.0, 9.9, 10.0, 5.0], "y": [-5.0, 5.0, 4.9], "z": [-1e308, 3.0, 2.97], "t": [0.0, 8.0, 1.0]}
    rows = table_of(Case("", {}, values).records())
    largest = Fraction(0)
    for trial in range(30):
        point = query.trial_point(random) if trial % 2 else tuple(random.normal(0, 10.0 ** (trial % 4 - 1), 4).tolist())
        asked = query.asked(2, point)
        features = np.array(asked.features(rows)).T
        assert np.abs(features).max() <= asked.largest
        squares = (features * features).sum(axis=1)
        assert squares.max() <= asked.size**2
        distances = squares[:, None] + squares[None, :] - 2 * features @ features.T
        one, two = np.unravel_index(int(distances.argmax()), distances.shape)
        largest = max(largest, exact_distance(features[one], features[two]))
        assert largest <= Fraction(asked.sensitivity("record", 1)) ** 2
    assert float(largest) >= 0.85 * query.spread**2


@pytest.mark.parametrize("query", [LOGISTIC, POISSON], ids=["logistic", "poisson"])
@pytest.mark.slow
def test_a_search_over_points_finds_the_spread_and_a_spread_too_small(query: RoundsQuery) -> None:
    assert search(query, "record", tries=300).verdict == "tight"
    less: Any = type("Less", (type(query),), {"squared_spread": type(query).squared_spread * 0.8})  # type: ignore[attr-defined]
    assert not search(less(**vars(query)), "record", tries=400).is_safe


@pytest.mark.parametrize("mode", ["some", "groups"])
@pytest.mark.parametrize("query", [LOGISTIC, POISSON], ids=["logistic", "poisson"])
def test_conditions_and_groups_cost_nothing(query: Query, mode: Any) -> None:
    part: dict[str, Any] = {"where": "t >= 0"} if mode == "some" else {"by": {"g": ["a", "b"]}}
    entry = {**query.settings(), "bounds": {each.column: [each.low, each.high] for each in BOUNDS}, **part}
    assert sum_query(entry).spread == query.spread


def test_a_sum_and_its_parts_are_inverse() -> None:
    layout = ScoreSum(3, weight=24.0, squared_spread=4.0, squared_size=2.0)
    random = np.random.default_rng(2)
    half = random.normal(size=(3, 3))
    gradient, form = layout.parts(layout.total(np.array([1.0, 2.0, 3.0]), half + half.T))
    assert gradient == [1.0, 2.0, 3.0]
    assert np.array(form) == pytest.approx(half + half.T)


def test_what_noise_the_hessian_has() -> None:
    layout = ScoreSum(4, weight=24.0, squared_spread=4.0, squared_size=2.0)
    noise = np.random.default_rng(3).normal(0, 2.0, (4000, layout.dimension))
    forms = np.array([layout.parts(each)[1] for each in noise])
    assert forms[:, 1, 1].std() == pytest.approx(layout.form_error(2.0), rel=0.06)
    assert forms[:, 1, 0].std() == pytest.approx(layout.form_error(2.0) / math.sqrt(2), rel=0.06)
    largest = np.linalg.eigvalsh(forms)[:, -1].mean()
    assert 0.6 < largest / layout.form_noise(2.0) < 1.1


def test_each_round_has_the_spread_of_its_sum() -> None:
    query = rounds_query({"kind": "logistic_regression", "target": "t", "bounds": {"x": [0, 1], "y": [0, 1]}})
    assert query.asked(1, ()).spread == pytest.approx(math.sqrt(4.5 * 3))
    assert query.asked(2, (0.0,) * 3).spread == query.spread == pytest.approx(2 * math.sqrt(3))
