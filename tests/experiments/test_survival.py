"""The experiment on survival curves: what it measures, and its page."""

from __future__ import annotations

from pathlib import Path

from click.testing import CliRunner

from tpmdp.cli.main import cli
from tpmdp.experiments.jobs import Job
from tpmdp.experiments.survival_experiment import jobs, noise_of_sum, run, survival_points
from tpmdp.experiments.survival_report import tables, write_survival


def test_the_factor_errs_less_than_the_histogram(tmp_path: Path) -> None:
    rows = [row for bins in (50, 200) for row in run(Job("survival", f"{bins} bins", 0.7, 0, 12, 1))]
    few, many = survival_points(rows)
    assert float(few["gain"] or 0) > 1.2
    assert float(many["gain"] or 0) > 2
    for point in (few, many):
        assert point["runs"] == 12
        assert float(point["coverage"] or 0) > 0.85
        assert 0 < float(point["lifelines"] or 0) < 0.05
    page = write_survival(rows, tmp_path / "survival.md", "a command").read_text()
    assert "| 200 bins | 0.7 |" in page
    assert len(tables(rows)[1][1]) == 2


def test_a_repetition_is_the_same_in_any_block() -> None:
    alone = run(Job("survival", "50 bins", 1.0, 3, 1, 9))
    assert run(Job("survival", "50 bins", 1.0, 2, 2, 9))[1] == alone[0]


def test_jobs_cover_all_repetitions_and_the_noise_is_that_of_a_plan() -> None:
    assert sum(job.count for job in jobs(quick=False, seed=1)) == 4 * 1000
    assert 4 < noise_of_sum() < 8


def test_the_command_says_that_it_exists() -> None:
    result = CliRunner().invoke(cli, ["experiment", "--help"])
    assert "survival" in result.output
