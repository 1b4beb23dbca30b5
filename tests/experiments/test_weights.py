"""The experiment of weights: who holds the ones, the stated bound, how often intervals cover, and what is wanted."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest
from scipy import stats

import tpmdp.experiments.count_experiment as count
import tpmdp.experiments.regression_experiment as regression
import tpmdp.experiments.weights_experiment as weights
from tpmdp.errors import InputError
from tpmdp.experiments.claims.claim import ClaimStatus
from tpmdp.experiments.experiment_run import ExperimentRun
from tpmdp.experiments.jobs import Job, Row
from tpmdp.experiments.population import People
from tpmdp.experiments.results import Results
from tpmdp.experiments.summary import column, ratio_interval
from tpmdp.experiments.weights_checks import WANTED, adversary_table, measures, records_table
from tpmdp.experiments.weights_records import RECORDS, SPREADS
from tpmdp.mechanisms.problem import CountProblem
from tpmdp.mechanisms.registry import MECHANISMS


@pytest.mark.parametrize("correlation", [-1.0, -0.3, 0.0, 0.3, 1.0])
def test_ones_are_where_the_correlation_puts_them(correlation: float) -> None:
    random = np.random.default_rng(1)
    epsilon = random.permutation(np.repeat([0.1, 0.5, 1.0], [25, 25, 50]))  # many ties
    bits = np.mean([weights.correlated_bits(epsilon, correlation, random) for _ in range(200)], axis=0)
    assert bits.sum() == pytest.approx(50)
    strict, liberal = bits[epsilon < 1].mean(), bits[epsilon == 1].mean()
    part = abs(correlation) + (1 - abs(correlation)) ** 2 / (2 - abs(correlation))  # of the favoured half holds a 1
    assert (liberal if correlation > 0 else strict) == pytest.approx(part, abs=0.02)
    if abs(correlation) < 1:
        assert bits.min() > 0
        assert bits.max() < 1


def judged(panel: str, x: float, draws: int = 8) -> list[Row]:
    rows = weights.run(Job("weights", panel, x, 0, draws, 1))
    return [row for row in rows if row["mechanism"] == "W"]


def test_the_stated_bound_is_never_exceeded_and_attained() -> None:
    for correlation in (-1.0, -0.4, 0.0, 0.4, 1.0):
        rows = judged("adversary", correlation)
        used = np.abs(column(rows, "bias")) / column(rows, "bound")
        assert used.max() <= 1
        assert (used.max() < 0.2) == (correlation == 0)
        assert (column(rows, "error") <= column(rows, "at_most")).all()
        assert column(rows, "covered_wide").min() >= 0.95 - 1e-12
    for side in (-1.0, 1.0):
        rows = judged("worst", side)
        np.testing.assert_allclose(column(rows, "bias"), side * column(rows, "bound"), rtol=1e-9)
        assert (np.abs(column(rows, "bias")) <= column(rows, "bound")).all()
        assert column(rows, "covered_wide") == pytest.approx(np.full(8, 0.975), abs=1e-6)  # just one end fails
        assert column(rows, "covered").max() < 0.01


def test_coverage_is_that_of_simulated_answers() -> None:
    random = np.random.default_rng(2)
    setting = weights.draw_setting(50, random)
    problem = CountProblem(setting.spec.epsilon > np.median(setting.spec.epsilon))
    error = MECHANISMS["W"].error(setting, problem)
    deviation = float(np.sqrt(error.variance[0]))
    off = MECHANISMS["W"].release(setting, problem, random, 4000)[:, 0] - problem.total[0]
    found = weights.coverage(setting, error.bias, deviation)
    stated = setting.weights
    halves = 1.96 * np.hypot(deviation, stated.spread_error), 1.96 * deviation + stated.bias_bound
    for half, chance in zip(halves, found, strict=True):
        assert np.mean(np.abs(off) <= half) == pytest.approx(chance[0], abs=0.02)
    assert found[0][0] < 0.93 < found[1][0]


def test_intervals_cover_where_budgets_have_nothing_to_do_with_the_data() -> None:
    for parties in (5, 100):
        rows = weights.run(Job("weights", "coverage", float(parties), 0, 20, 1))
        fair = [row for row in rows if row["density"] == 0.5]
        assert column(fair, "covered").mean() == pytest.approx(0.95, abs=0.005)
        assert column(rows, "covered").mean() > 0.948
        assert column(rows, "covered_wide").min() > 0.95


def test_errors_at_a_threshold_are_those_of_the_mechanisms() -> None:
    rows = weights.run(Job("weights", "threshold", 10.0, 0, 2, 1))
    assert {row["threshold"] for row in rows} == set(range(1, 10))
    assert {row["mechanism"] for row in rows} == set(count.NAMES)
    by = {(row["draw"], row["threshold"], row["mechanism"]): float(row["error"] or 0) for row in rows}
    for draw in (0, 1):
        for name in ("MIN", "Sample", "PLDP", "non-thre"):
            assert len({by[draw, threshold, name] for threshold in range(1, 10)}) == 1
        ours = [by[draw, threshold, "G"] for threshold in range(1, 10)]
        assert ours == sorted(ours)
        assert all(by[draw, threshold, "W"] < by[draw, threshold, "G"] for threshold in range(1, 10))


# --- measures --------------------------------------------------------------------------------------------------------


def made_up(ours: float) -> Results:
    """All others err by 100 a count or sum and 0.1 a regression beyond 0.4; W by so much of that."""
    rows: list[Row] = []
    for draw in range(4):
        shake = 1 + 0.01 * (-1) ** draw
        others = [name for name in (*weights.RIVALS, "LS") if name != "W"]
        for name, error in (*((name, 100.0) for name in others), ("W", 100 * ours * shake)):
            row: Row = {"draw": draw, "mechanism": name, "error": error}
            rows += [{**row, "panel": "default", "x": float(parties)} for parties in weights.MEASURED]
            at = [(5, 2), (5, 3), (20, 10)]  # the one at 3 of 5 is not the one that is asked for
            rows += [
                {
                    **row,
                    "panel": "threshold",
                    "x": float(x),
                    "threshold": t,
                    "error": error * (9 if (x, t) == (5, 3) else 1),
                }
                for x, t in at
            ]
            rows += [
                {**row, "panel": "records", "x": 20.0, "records": records, "spread": spread}
                for records in RECORDS
                for spread in SPREADS
            ]
        for name in (*others, "W", "non-pri"):
            error = {"W": 0.1 * ours, "non-pri": 0.0}.get(name, 0.1)
            row = {"panel": "regression", "x": 5e4, "draw": draw, "fold": 0, "mechanism": name}
            rows.append({**row, "error": 0.4 + error * shake})
        for panel in ("adversary", "worst", "coverage"):
            row = {"panel": panel, "x": 1.0, "draw": draw, "mechanism": "W", "threshold": 1, "density": 0.5}
            row |= {"error": 1.0, "bias": 9 * ours, "bound": 5.0, "covered": 1 - ours / 10 * shake}
            rows.append({**row, "covered_wide": 1 - ours / 10})
    times: list[Row] = [{"panel": "time", "x": 1e6, "balance_s": 30 * ours, "plan_s": 1.0}]
    return Results(weights_rows=rows, weights_time_rows=times)


@pytest.mark.parametrize(
    ("ours", "met"),
    [(0.05, "yes"), (1.3, "no")],
)
def test_measures_are_met_or_not(ours: float, met: str) -> None:
    found = measures(made_up(ours))
    assert [one.met for one in found] == [met] * len(WANTED)
    assert found[0].measured.startswith(f"{ours:.3f} (")
    assert found[4].measured.startswith(f"{ours:.3f}")


def test_what_was_not_run_is_not_measured() -> None:
    assert measures(Results()) == []
    found = measures(Results(weights_rows=judged("adversary", 0.0, 2)))
    assert len(found) == len(WANTED)
    assert {one.status for one in found if "Bias" not in one.what} == {ClaimStatus.UNKNOWN}
    few = People(data="file", count=7000)
    assert ExperimentRun("weights", quick=True, people=few).left_out == [regression.PARTIES]
    assert ExperimentRun("weights", people=People(data="file", count=62_500)).left_out == []
    with pytest.raises(InputError, match="62,500 are needed"):
        ExperimentRun("weights", people=few)


def test_the_table_of_budgets_that_go_with_data() -> None:
    rows = [row for x in (-1.0, 0.05, 0.0) for row in weights.run(Job("weights", "adversary", x, 0, 2, 1))]
    rows += weights.run(Job("weights", "worst", 1.0, 0, 2, 1))
    table = adversary_table(Results(weights_rows=rows))
    assert [row["ones placed by budget"] for row in table] == ["-1", "0", "chosen against W (+1)"]
    assert float(str(table[0]["RMSE of W"])) > float(str(table[0]["RMSE of G"]))  # where weights lose
    assert float(str(table[1]["RMSE of W"])) < 0.2 * float(str(table[1]["RMSE of G"]))
    assert table[2]["bias of W"] == table[2]["stated bound"]
    assert table[2]["RMSE of Sample"] == ""


def test_the_table_of_records_has_the_ratios_of_its_errors() -> None:
    table = records_table(made_up(0.5))
    assert [(row["records per party"], row["spread"]) for row in table] == list(product(RECORDS, ("0.5", "0.05")))
    assert {row["T"] for row in table} == {"100.0"}
    assert {row["W/T"] for row in table} == {row["W/G"] for row in table} == {"0.50"}
    assert records_table(Results()) == []


def test_weights_gain_with_few_records_and_not_with_many() -> None:
    rows = weights.run(Job("weights", "records", 20.0, 0, 4, 1))
    by = {
        (row["records"], row["spread"], row["mechanism"]): np.sqrt(np.mean(column(some, "error") ** 2))
        for row in rows
        for some in [[r for r in rows if all(r[key] == row[key] for key in ("records", "spread", "mechanism"))]]
    }
    for records, spread in product(RECORDS, SPREADS):
        errors = [by[records, spread, name] for name in ("W", "two levels", "T", "G")]
        assert errors == sorted(errors)
    assert by["1", 0.5, "W"] < 0.6 * by["1", 0.5, "T"] < 0.4 * by["1", 0.5, "G"]
    for records in ("100 to 10,000", "10,000"):
        assert by[records, 0.5, "W"] > 0.97 * by[records, 0.5, "G"]


def test_the_interval_of_a_ratio_covers_as_often_as_it_says() -> None:
    random = np.random.default_rng(3)
    covered = 0
    for _ in range(1000):
        common = random.gamma(4.0, size=30)
        above, below = common * random.gamma(9.0, size=30) / 9, 2 * common
        _, low, high = ratio_interval(above, below)
        covered += low <= 0.5 <= high
    assert 920 <= covered <= 975
    assert ratio_interval(np.array([-1.0, 0.5]), np.array([1.0, 1.0]))[1:] == (-np.inf, np.inf)


@pytest.mark.slow
def test_the_paper_default_beats_what_is_wanted_even_on_few_draws() -> None:
    rows = weights.run(Job("weights", "default", 1000.0, 0, 6, 1))
    square = {name: np.mean(column([r for r in rows if r["mechanism"] == name], "error") ** 2) for name in ("W", "G")}
    assert square["W"] < 0.08**2 * square["G"]
    assert stats.norm.cdf(weights._Z) == pytest.approx(0.975)
