"""Jobs divide the work without gap or overlap, and their randomness does not depend on the division."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import pytest

import tpmdp.experiments.agreement_experiment as agreement
import tpmdp.experiments.consortium_experiment as consortium
import tpmdp.experiments.count_experiment as count
import tpmdp.experiments.efficiency_experiment as efficiency
import tpmdp.experiments.regression_experiment as regression
import tpmdp.experiments.weights_experiment as weights
from tpmdp.experiments.jobs import Job, Row
from tpmdp.experiments.population import People

MODULES = {
    "count": (count.jobs, count.QUICK_REPETITIONS, count.REPETITIONS),
    "regression": (regression.jobs, regression.QUICK_RUNS, regression.RUNS),
}


@pytest.mark.parametrize("name", MODULES)
@pytest.mark.parametrize("quick", [True, False])
def test_every_repetition_of_every_point_is_in_just_one_job(name: str, quick: bool) -> None:
    jobs, few, many = MODULES[name]
    seen = Counter(
        (job.panel, job.x, repetition)
        for job in jobs(quick, 1)
        for repetition in range(job.first, job.first + job.count)
    )
    panels = {
        "count": (count.QUICK, count.PANELS),
        "regression": (regression.QUICK, regression.PANELS),
    }[name]
    wanted = {
        (panel, float(x), repetition)
        for panel, points in panels[0 if quick else 1].items()
        for x in points
        for repetition in range(few if quick else many)
    }
    assert set(seen) == wanted
    assert set(seen.values()) == {1}


def test_the_paper_asks_for_a_hundred_repetitions_and_twenty_runs() -> None:
    assert count.REPETITIONS >= 100
    assert regression.RUNS >= 20
    assert regression.FOLDS == 5
    assert max(regression.PANELS["parties"]) == 1_000_000


@pytest.mark.parametrize("module", [count, regression, consortium, agreement, efficiency, weights])
def test_every_job_has_a_key_of_its_own(module: object) -> None:
    jobs: list[Job] = module.jobs(False, 1) + module.jobs(False, 2)  # type: ignore[attr-defined]
    assert len({job.key for job in jobs}) == len(jobs)
    assert all(job.weight > 0 for job in jobs)


def test_a_key_depends_on_all_but_the_weight() -> None:
    job = Job("count", "parties", 20.0, 0, 2, 1, (("a", 1),))
    assert replace(job, weight=9.0).key == job.key
    others = [
        replace(job, panel="density"),
        replace(job, x=21.0),
        replace(job, first=1),
        replace(job, count=3),
        replace(job, seed=2),
        replace(job, settings=(("a", 2),)),
    ]
    assert len({job.key, *(other.key for other in others)}) == len(others) + 1


def _all_rows(job: Job, parts: list[tuple[int, int]]) -> list[Row]:
    modules = {"count": count, "regression": regression, "consortium": consortium, "weights": weights}
    run = modules[job.experiment].run
    return [row for first, size in parts for row in run(replace(job, first=first, count=size))]


@pytest.mark.parametrize(
    "job",
    [
        Job("count", "threshold", 3.0, 0, 4, 5),
        Job("count", "density", 0.4, 0, 4, 5),
        Job("regression", "conservative", 0.1, 0, 4, 5, (("parties", 40),)),
        Job("consortium", "price", 5.0, 0, 4, 5),
        Job("consortium", "relax", 0.0, 0, 4, 5),
        Job("weights", "threshold", 5.0, 0, 4, 5),
        Job("weights", "adversary", 0.5, 0, 4, 5),
        Job("weights", "worst", -1.0, 0, 4, 5),
        Job("weights", "coverage", 20.0, 0, 4, 5),
        Job("weights", "regression", 40.0, 0, 4, 5),
    ],
)
@pytest.mark.slow
def test_rows_do_not_depend_on_how_repetitions_are_divided(job: Job) -> None:
    together = _all_rows(job, [(0, 4)])
    assert _all_rows(job, [(0, 1), (1, 3)]) == together
    assert _all_rows(replace(job, seed=6), [(0, 4)]) != together


def test_points_that_need_more_people_than_a_file_has_are_left_out() -> None:
    few = regression.jobs(False, 1, People(data="file", count=100_000))
    assert {job.x for job in few if job.panel == "parties"} == {10_000.0, 20_000.0, 50_000.0}
    assert {job.panel for job in few} == set(regression.PANELS)
    panels = {job.panel for job in weights.jobs(False, 1)}
    assert {job.panel for job in weights.jobs(True, 1, People(data="file", count=62_499))} == panels - {"regression"}
    assert {job.panel for job in weights.jobs(True, 1, People(data="file", count=62_500))} == panels
