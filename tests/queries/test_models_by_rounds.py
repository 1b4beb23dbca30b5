"""Models by rounds: the right coefficients, intervals that cover, and no nonsense from data that have no answer."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any, ClassVar, Final

import numpy as np
import pytest
from scipy.optimize import minimize
from scipy.stats import binom
from sklearn.linear_model import PoissonRegressor  # type: ignore[import-untyped]

from tests.queries.cases import rounds_query, run_rounds, sum_query
from tpmdp._util.arrays import FloatArray
from tpmdp.data.table import Table, Text
from tpmdp.errors import InputError
from tpmdp.queries.catalogue import make_query
from tpmdp.queries.custom import check_custom, load_queries
from tpmdp.queries.generalized_linear_model import ONE_ROUND, UNCLEAR, GeneralizedLinearModel
from tpmdp.queries.logistic_regression import LogisticRegression
from tpmdp.queries.poisson_regression import PoissonRegression
from tpmdp.queries.ranges import Range
from tpmdp.queries.rounds import Point, RoundsQuery
from tpmdp.queries.schedule import Schedule

BOUNDS: Final = (Range("x", -1.0, 1.0), Range("z", -1.0, 1.0))
LOGISTIC: Final = LogisticRegression("q", "y", BOUNDS)
POISSON: Final = PoissonRegression("q", "y", BOUNDS, 12.0)
PEOPLE: Final = 4000


@cache
def data(kind: str, is_count: bool) -> dict[str, FloatArray]:
    """Two inputs and an outcome."""
    random = np.random.default_rng(1)
    x = random.uniform(-1, 1, PEOPLE)
    z = np.clip(0.5 * x + random.normal(0, 0.4, PEOPLE), -1, 1)
    if kind == "skewed":
        x = np.clip(np.exp(random.normal(-3, 1.5, PEOPLE)), 0, 1) * 2 - 1
    if kind == "constant input":
        z = np.full(PEOPLE, 0.3)
    predictor = {"steep": -0.3 + 3 * x - 2 * z, "rare": -3.5 + 1.5 * x - z, "skewed": -1 + 2 * x}.get(kind, 0.4 + x - z)
    if is_count:
        y = random.poisson(np.exp(predictor / 2 + 0.5)).astype(np.float64)
    else:
        y = (random.random(PEOPLE) < 1 / (1 + np.exp(-predictor))).astype(np.float64)
    if kind == "separable":
        y = np.where(x > 0.2, 12.0 if is_count else 1.0, 0.0)
    if kind == "nothing":
        y = np.zeros(PEOPLE)
    return {"x": x, "z": z, "y": y}


def noises(query: RoundsQuery, noise: float) -> list[float]:
    """The standard error of each round, if a sum of spread 1 with the whole budget had this one."""
    spreads = [query.asked(1, ()).spread, *[query.spread] * (query.rounds - 1)]
    return [noise * spread / math.sqrt(share) for spread, share in zip(spreads, query.shares, strict=True)]


def converged(query: RoundsQuery, table: Table) -> list[float]:
    """The coefficients without noise, after eight rounds."""
    return [answer.value for answer in run_rounds(replace(query, rounds=8), table)]


# Right answers --------------------------------------------------------------------------------------------------------


@pytest.mark.process
def test_poisson_regression_is_that_of_scikit_learn() -> None:
    """Where fitted means stay below two thirds of the bound."""
    table = data("plain", is_count=True)
    fitted = PoissonRegressor(alpha=0, tol=1e-12, max_iter=1000)
    query = replace(POISSON, high=20.0)
    fitted.fit(np.column_stack((table["x"], table["z"])), np.clip(table["y"], 0, 20))
    expected = [float(fitted.intercept_), *fitted.coef_.tolist()]
    assert [answer.value for answer in run_rounds(query, table)] == pytest.approx(expected, rel=1e-4)


@pytest.mark.parametrize("high", [3.0, 6.0])
def test_poisson_regression_with_a_low_bound_minimises_the_bent_loss(high: float) -> None:
    """The loss is integrated numerically here from its slope: e^s up to 2/3 of the bound, then bent."""
    table = data("plain", is_count=True)
    inputs = np.column_stack((np.ones(PEOPLE), table["x"], table["z"]))
    outcome = np.clip(table["y"], 0, high) / high
    cut = math.log(2 / 3)

    def loss(weights: Any) -> float:
        score = inputs @ weights
        above = np.maximum(score - cut, 0)
        whole = np.where(score > cut, 2 / 3 + above + (np.exp(-2 * above) - 1) / 6, np.exp(np.minimum(score, cut)))
        return float(np.mean(whole - outcome * score))

    found = minimize(loss, np.zeros(3), method="BFGS", options={"gtol": 1e-9}).x
    expected = [found[0] + math.log(high), found[1], found[2]]
    assert converged(replace(POISSON, high=high), table) == pytest.approx(expected, rel=1e-3, abs=1e-4)


@pytest.mark.parametrize("query", [LOGISTIC, POISSON], ids=["logistic", "poisson"])
def test_four_rounds_are_enough_and_one_says_that_it_is_not(query: RoundsQuery) -> None:
    table = data("steep", is_count=query is POISSON)
    truth = converged(query, table)
    assert [answer.value for answer in run_rounds(query, table)] == pytest.approx(truth, rel=2e-3)
    one = run_rounds(replace(query, rounds=1), table)
    assert [answer.value for answer in one] != pytest.approx(truth, rel=0.02)
    assert {answer.note for answer in one} == {ONE_ROUND}
    assert {answer.interval for answer in one} == {(-math.inf, math.inf)}


def test_units_are_those_of_the_columns() -> None:
    table = data("plain", is_count=False)
    other = {"x": 30 + 10 * table["x"], "z": table["z"], "y": table["y"]}
    (base, slope, _), (_, moved, _) = (
        [answer.value for answer in run_rounds(replace(LOGISTIC, bounds=bounds), each)]
        for bounds, each in ((BOUNDS, table), ((Range("x", 20.0, 40.0), BOUNDS[1]), other))
    )
    assert moved == pytest.approx(slope / 10, rel=1e-6)
    shifted = run_rounds(replace(LOGISTIC, bounds=(Range("x", 20.0, 40.0), BOUNDS[1])), other)[0].value
    assert shifted == pytest.approx(base - 3 * slope, rel=1e-6)


def test_weights_leave_coefficients_right_where_the_model_holds() -> None:
    """In both kinds of parties one in ten with x = -1 is a case, and half of those with x = 1, in other proportions."""
    tables = []
    for zeros, ones in ((100, 20), (100, 900)):
        cases = np.concatenate((np.arange(zeros) < zeros // 10, np.arange(ones) < ones // 2))
        tables.append({"x": np.repeat([-1.0, 1.0], (zeros, ones)), "y": cases.astype(np.float64)})
    query = LogisticRegression("q", "y", BOUNDS[:1])
    found = []
    for light in (1.0, 0.2):
        point: Point = ()
        for number in range(1, 7):
            asked = query.asked(number, point)
            total = asked.statistic(tables[0]) + light * asked.statistic(tables[1])
            point = query.next_point(number, point, total=total, records=1120, standard_error=0.0)
        found.append(point)
    assert found[0] == pytest.approx(found[1], rel=1e-9)


# Intervals ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("noise", [0.0003, 0.3, 2.0, 6.0, 25.0])
@pytest.mark.parametrize("kind", ["plain", "steep", "rare", "skewed"])
@pytest.mark.parametrize("query", [LOGISTIC, POISSON], ids=["logistic", "poisson"])
@pytest.mark.slow
@pytest.mark.long
def test_intervals_cover(query: RoundsQuery, kind: str, noise: float) -> None:
    """In at least 94 % of the runs the interval holds the truth, or none is claimed."""
    table, runs = data(kind, is_count=query is POISSON), 150
    truth, errors = converged(query, table), noises(query, noise)
    answers = [run_rounds(query, table, errors, seed=seed) for seed in range(runs)]
    for place, true in enumerate(truth):
        covered = sum(run[place].interval[0] <= true <= run[place].interval[1] for run in answers)
        assert covered >= binom.ppf(1e-8, runs, 0.94), (place, covered)
        for run in answers:
            answer = run[place]
            assert answer.is_drowned == (answer.note == UNCLEAR)
            assert answer.is_drowned or answer.interval[0] <= answer.value <= answer.interval[1]


@pytest.mark.slow
def test_with_little_noise_intervals_are_tight() -> None:
    """Not wider than 1.1 times 1.96 standard deviations either side."""
    table, errors = data("plain", is_count=False), noises(LOGISTIC, 1.0)
    runs = [run_rounds(LOGISTIC, table, errors, seed=seed) for seed in range(200)]
    for place in range(3):
        deviation = np.std([run[place].value for run in runs])
        width = np.median([run[place].interval[1] - run[place].interval[0] for run in runs])
        assert 0.85 < width / (2 * 1.96 * deviation) < 1.25


@pytest.mark.parametrize("noise", [0.0, 0.3, 3.0, 30.0])
@pytest.mark.parametrize("kind", ["separable", "nothing", "constant input"])
@pytest.mark.parametrize("query", [LOGISTIC, POISSON], ids=["logistic", "poisson"])
def test_data_without_an_answer_get_none(query: RoundsQuery, kind: str, noise: float) -> None:
    """Separable, constant or collinear data: it cannot be told, but for a few runs that noise deceives."""
    table, errors, told = data(kind, is_count=query is POISSON), noises(query, noise), 0
    if query is POISSON and kind == "separable":
        return  # has an answer: the mean is bounded
    for seed in range(20):
        for answer in run_rounds(query, table, errors, seed=seed):
            told += not answer.is_drowned
            assert answer.is_drowned == (answer.note == UNCLEAR)
            assert not answer.is_drowned or answer.interval == (-math.inf, math.inf)
    assert told <= (0 if noise == 0 else 4 * 3)


@pytest.mark.parametrize("records", [0, 1, 2])
@pytest.mark.parametrize("noise", [0.0, 1.0])
def test_hardly_any_records_tell_nothing(records: int, noise: float) -> None:
    table = {name: column[:records] for name, column in data("plain", is_count=False).items()}
    for rounds in (1, 2, 4):
        query = replace(LOGISTIC, rounds=rounds)
        for answer in run_rounds(query, table, noises(query, noise)):
            assert answer.note
            assert answer.interval == (-math.inf, math.inf)


def test_a_bias_of_weights_leaves_no_interval() -> None:
    table = data("plain", is_count=False)
    asked = LOGISTIC.asked(4, (0.4, 1.0, -1.0))
    total = asked.statistic(table)
    assert asked.limits(total, PEOPLE, 1.0, 1.0) == [(-math.inf, math.inf)] * 3
    assert asked.limits(total, PEOPLE, 1.0, 0.0) == [answer.interval for answer in asked.answers(total, PEOPLE, 1.0)]


# Rounds ---------------------------------------------------------------------------------------------------------------


def test_shares_add_up_and_the_last_round_has_most() -> None:
    for rounds in range(1, 9):
        shares = replace(LOGISTIC, rounds=rounds).shares
        assert len(shares) == rounds
        assert math.fsum(shares) == pytest.approx(1.0, abs=1e-12)
        assert list(shares) == sorted(shares)
        Schedule((replace(LOGISTIC, rounds=rounds),)).check()
    assert LOGISTIC.shares == pytest.approx((0.05, 0.1, 0.2, 0.65))


@pytest.mark.parametrize("rounds", [0, -1, 9, True])
def test_rounds_are_few(rounds: Any) -> None:
    with pytest.raises(InputError, match="rounds of q"):
        replace(LOGISTIC, rounds=rounds)


def test_what_is_asked_binds_its_point_and_number() -> None:
    one, two = LOGISTIC.asked(2, (0.1, 0.2, 0.3)), LOGISTIC.asked(2, (0.1, 0.2, 0.3 + 2**-50))
    assert one.settings() != two.settings()
    assert one.settings() != LOGISTIC.asked(3, (0.1, 0.2, 0.3)).settings()
    assert one.settings() == LOGISTIC.asked(2, (0.1, 0.2, 0.3)).settings()


def test_stopped_early_it_gives_the_last_point_and_says_so() -> None:
    table = data("plain", is_count=False)
    answers = run_rounds(LOGISTIC, table, [0.0, 0.0])
    assert {answer.note for answer in answers} == {"stopped after 2 rounds of 4: no interval"}
    assert {answer.interval for answer in answers} == {(-math.inf, math.inf)}
    assert [answer.value for answer in answers] == pytest.approx(converged(LOGISTIC, table), rel=0.1)
    assert [answer.part for answer in answers] == ["intercept", "x", "z"]


def test_groups_have_points_of_their_own() -> None:
    table: Table = {**data("plain", is_count=False), "g": Text.of(["a", "b"])[np.arange(PEOPLE) % 2]}
    entry = {"kind": "logistic_regression", "target": "y", "bounds": {"x": [-1, 1], "z": [-1, 1]}}
    both = run_rounds(rounds_query({**entry, "by": {"g": ["a", "b"]}, "where": "x >= -0.5"}), table)
    for group, name in enumerate(("a", "b")):
        alone = run_rounds(rounds_query({**entry, "where": f"g = '{name}' and x >= -0.5"}), table)
        values = [answer.value for answer in both[3 * group : 3 * group + 3]]
        assert values == pytest.approx([answer.value for answer in alone], rel=1e-9)
    assert [answer.part for answer in both][:2] == ["g a, intercept", "g a, x"]


def test_an_ordinary_query_of_it_is_its_last_round() -> None:
    for query in (LOGISTIC, POISSON):
        last = query.asked(4, (0.3, -0.2, 0.1))
        assert (query.dimension, query.spread, query.size) == (last.dimension, last.spread, last.size)
        typical = query.typical(10_000.0)
        (first, *_) = query.answers(typical, 10_000, 20.0)
        assert 0 < first.standard_error < 1


# Models of further kinds ----------------------------------------------------------------------------------------------

HUBER: Final = '''
from dataclasses import dataclass
import numpy as np
from tpmdp.queries.generalized_linear_model import GeneralizedLinearModel

@dataclass(frozen=True)
class HuberRegression(GeneralizedLinearModel):
    """Least squares, but linear for large residuals."""

    scale: float = 1.0

    def score(self, predictor, outcome):
        residual = (predictor - outcome) / self.scale
        return np.clip(residual, -1, 1), (np.abs(residual) < 1) * 1.0
'''


@dataclass(frozen=True)
class Probit(GeneralizedLinearModel):
    """A model of no kind, for its noise only: a bounded score that jumps."""

    loss: ClassVar[float] = 1.0

    def score(self, predictor: FloatArray, outcome: FloatArray) -> tuple[FloatArray, FloatArray]:
        return 9 * np.sign(predictor - outcome), np.full_like(outcome, 9.0)


def test_scores_and_curvatures_are_clipped() -> None:
    query = Probit("q", "y", BOUNDS)
    table = data("plain", is_count=False)
    features = np.array(query.asked(2, (0.5, 0.0, 0.0)).features(table))
    assert np.abs(features).max() <= 1.0
    assert (features**2).sum(axis=0).max() <= query.size**2 + 1e-12


def test_a_model_from_a_file_is_fitted_and_tried_first(tmp_path: Path) -> None:
    file = tmp_path / "huber.py"
    file.write_text(HUBER)
    kinds = load_queries(file)
    entry = {"name": "q", "kind": "huber_regression", "target": "y", "bounds": {"x": [-1, 1], "z": [-1, 1]}}
    query = make_query(entry, kinds)
    assert isinstance(query, RoundsQuery)
    assert query.code
    check_custom(query, "record", 100)
    random = np.random.default_rng(5)
    table = dict(data("plain", is_count=False))
    table["y"] = 0.3 + 0.5 * table["x"] - 0.2 * table["z"] + random.normal(0, 0.2, PEOPLE)
    values = [answer.value for answer in run_rounds(query, table, noises(query, 0.3))]
    assert values == pytest.approx([0.3, 0.5, -0.2], abs=0.05)


@pytest.mark.slow
def test_a_model_that_declares_too_little_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "huber.py"
    file.write_text(HUBER.replace("    scale:", "    squared_spread = 2.5\n    scale:"))
    entry = {"name": "q", "kind": "huber_regression", "target": "y", "bounds": {"x": [-1, 1], "z": [-1, 1]}}
    query: Any = make_query(entry, load_queries(file))
    with pytest.raises(InputError, match="sensitivity of q"):
        check_custom(query, "record", 100)


def test_a_query_that_is_written_and_read_is_the_same() -> None:
    entry = {"kind": "poisson_regression", "target": "y", "high": 12, "rounds": 3, "bounds": {"x": [0, 1]}}
    query = sum_query(entry)
    assert query.settings()["rounds"] == 3
    assert query == PoissonRegression("q", "y", (Range("x", 0.0, 1.0),), 12.0, rounds=3)
