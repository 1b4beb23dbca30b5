"""Logistic regression by rounds: the task, its truth, and the table."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression  # type: ignore[import-untyped]

from tpmdp.experiments.experiment_run import GROUPS, ExperimentRun
from tpmdp.experiments.jobs import Job, Row
from tpmdp.experiments.population import People
from tpmdp.experiments.rounds_experiment import CURATOR, ROUNDS, _task, jobs, rounds_table, run


@pytest.fixture(scope="module")
def rows() -> list[Row]:
    (job,) = jobs(True, 1)
    return run(Job("rounds", "census", job.x, 0, 6, 1, job.settings))


def test_its_truth_is_that_of_scikit_learn() -> None:
    task = _task(People(), 1)
    fitted = LogisticRegression(penalty=None, tol=1e-10, max_iter=500).fit(task.inputs, task.outcome)
    assert task.truth == pytest.approx([*fitted.intercept_, *fitted.coef_[0]], rel=1e-4)
    assert len(task.outcome) == 50_000
    assert 0.02 < task.outcome.mean() < 0.3


@pytest.mark.slow
def test_four_rounds_are_close_and_one_is_not(rows: list[Row]) -> None:
    def errors(name: str) -> list[float]:
        return [float(row["slope"] or 0) / float(row["truth"] or 1) - 1 for row in rows if row["mechanism"] == name]

    assert np.sqrt(np.mean(np.square(errors("four rounds")))) < 0.15
    assert max(errors("one round")) < -0.01  # on the synthetic population; on census data far more
    assert {row["mechanism"] for row in rows} >= set(ROUNDS)
    assert all(row["covered"] is None for row in rows if row["mechanism"] in ("one round", CURATOR))


@pytest.mark.slow
def test_the_table_has_a_row_for_each_mechanism(rows: list[Row]) -> None:
    table = rounds_table(rows)
    assert [row["logistic regression"] for row in table][:4] == list(ROUNDS)
    assert {row["runs"] for row in table} == {6}
    assert table[3]["coverage"] == "no interval"
    assert all(str(row["bias"]).count("%") == 1 for row in table)


def test_runs_that_tell_nothing_are_not_averaged() -> None:
    told: Row = {"mechanism": "four rounds", "slope": 1.1, "truth": 1.0, "told": True, "kept": 0.9, "covered": True}
    drowned: Row = {**told, "slope": None, "told": False, "kept": None}
    (row,) = rounds_table([told, told, drowned])
    assert row["bias"] == "10.00 % (0.00)"
    assert row["runs"] == 3
    (row,) = rounds_table([drowned])
    assert row["bias"] == row["error of the slope"] == "-"


def test_it_is_run_on_its_own_only() -> None:
    assert "rounds" not in GROUPS["all"]
    assert sum(job.count for job in ExperimentRun("rounds").jobs("rounds")) == 1000
