"""`tpmdp experiment coverage`: it has a case for every kind, and its verdict finds intervals that are wrong."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from fractions import Fraction
from itertools import accumulate
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner
from scipy import optimize, stats

import tpmdp.experiments.coverage_experiment as coverage
from tpmdp.cli.main import cli
from tpmdp.experiments.coverage_cases import CASES, PARTS, without_case
from tpmdp.experiments.coverage_data import COUNT_MOST, DATA, RECORDS, TIME_END, outcomes_of, records_of, times_of
from tpmdp.experiments.coverage_releases import Releases
from tpmdp.experiments.coverage_report import coverage_rows, outside_rows, verdict, write_coverage
from tpmdp.experiments.jobs import Job
from tpmdp.queries.answer import ALL_BINS, Answer
from tpmdp.queries.catalogue import SUM_KINDS
from tpmdp.queries.histogram import Histogram
from tpmdp.queries.rounds import RoundsQuery


def job_of(kind: str, part: str, data: str, *, level: float, runs: int = coverage.RUNS) -> Job:
    settings = (("kind", kind), ("part", part), ("data", data))
    return Job("coverage", f"{kind} {part} {data}", level, 0, count=runs, seed=1, settings=settings)


def test_every_kind_of_query_has_a_case() -> None:
    missing = without_case()
    assert not missing, f"add a case for {', '.join(missing)} to CASES in tpmdp.experiments.coverage_cases"


@pytest.mark.parametrize("kind", CASES)
def test_every_case_fits_its_query(kind: str) -> None:
    """Each answer lies in its possible range; each truth is what a release without noise says."""
    case = CASES[kind]
    for part in case.parts:
        query = case.query(kind, part)
        assert query.kind_name() in SUM_KINDS or part != "all"
        for data in DATA:
            releases = Releases(query, case.data(data))
            truth = case.truth(releases)
            (answers,) = releases.runs(1, 0.0, np.random.default_rng(1))
            assert len(truth) == len(answers) or (kind == "log_rank" and len(truth) == 4)
            for answer, true in zip(answers, truth, strict=False):
                low, high = case.possible(answer.part)
                assert math.isnan(true) or math.isinf(true) or low - 1e-9 <= true <= high + 1e-9
                if not (math.isnan(true) or isinstance(query, RoundsQuery)):
                    assert answer.interval[0] - 1e-9 <= true <= answer.interval[1] + 1e-9
            for covers in case.bands:
                assert all(answer.further_interval(covers) or answer.is_drowned for answer in answers)


def likeliest(kind: str, data: str) -> list[float]:
    """The coefficients, by a search of SciPy's for the largest likelihood, without any code of queries."""
    table = outcomes_of(data)
    design = np.column_stack((np.ones(RECORDS), np.asarray(table["x"]), np.asarray(table["y"])))
    yes, times = np.asarray(table["yes"]), np.asarray(table["times"])

    def loss(coefficients: Any) -> float:
        predictor = design @ coefficients
        if kind == "logistic_regression":
            return float(np.mean(np.logaddexp(0.0, predictor) - yes * predictor))
        return float(np.mean(np.exp(predictor) - times * predictor))

    coefficients = optimize.minimize(loss, np.zeros(3), tol=1e-12).x
    if kind == "poisson_regression":
        assert np.exp(design @ coefficients).max() < COUNT_MOST * 2 / 3  # beyond, the query's mean bends
    return [float(each) for each in coefficients]


@pytest.mark.parametrize("data", ["even", "skewed", "outlier"])
@pytest.mark.parametrize("kind", ["logistic_regression", "poisson_regression"])
def test_the_truth_of_a_model_is_the_largest_likelihood(kind: str, data: str) -> None:
    case = CASES[kind]
    truth = case.truth(Releases(case.query(kind, "all"), case.data(data)))
    assert truth == pytest.approx(likeliest(kind, data), abs=1e-4)


def test_a_model_without_largest_likelihood_has_no_truth() -> None:
    """All outcomes are yes; or the columns are one constant."""
    case = CASES["logistic_regression"]
    for data in ("constant", "empty"):
        assert np.isnan(case.truth(Releases(case.query("logistic_regression", "all"), case.data(data)))).all()


def test_each_round_has_the_noise_of_its_share(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is what reaches the query less the exact sums at its point."""
    case = CASES["logistic_regression"]
    query = case.query("logistic_regression", "all")
    assert isinstance(query, RoundsQuery)
    noise: dict[int, list[float]] = {}
    step = type(query).next_point

    def spy(self: Any, number: int, point: Any, *, total: Any, records: int, standard_error: float) -> Any:
        exact = self.asked(number, point).statistic(outcomes_of("even"))
        noise.setdefault(number, []).extend(((total - exact) / 30.0).tolist())
        assert standard_error == pytest.approx(30.0 / math.sqrt(query.shares[number - 1]))
        return step(self, number, point, total=total, records=records, standard_error=standard_error)

    monkeypatch.setattr(type(query), "next_point", spy)
    list(Releases(query, outcomes_of("even")).runs(40, 30.0, np.random.default_rng(2)))
    assert list(noise) == list(range(1, query.rounds))
    for number, values in noise.items():
        scaled = float(np.sum(np.square(values))) * query.shares[number - 1]
        low, high = stats.chi2.interval(1 - 1e-7, len(values))
        assert low < scaled < high


def test_the_truths_of_a_log_rank_test_are_those_of_a_plain_one() -> None:
    """Bin by bin with plain sums, also where noise hides the end."""
    case, table = CASES["log_rank"], times_of("even")
    releases = Releases(case.query("log_rank", "all"), table)
    time, event, group = (np.asarray(table[name]) for name in ("time", "event", "g"))
    place = np.minimum((time / TIME_END * 8).astype(int), 7)
    died = (event == 1) & (time < TIME_END)

    def plain(bins: int) -> list[float]:
        difference = variance = 0.0
        for bin_ in range(bins):
            at_risk, dead = place >= bin_, died & (place == bin_)
            n, n1, d = int(at_risk.sum()), int((at_risk & (group == 1)).sum()), int(dead.sum())
            difference += int((dead & (group == 1)).sum()) - d * n1 / n
            variance += d * (n1 / n) * (1 - n1 / n) * (n - d) / (n - 1)
        square = difference**2 / variance
        return [float(stats.chi2.sf(square, 1)), square, difference, math.exp(difference / variance)]

    assert case.truth(releases) == pytest.approx(plain(8))
    assert case.truth_of is not None
    answers = releases.query.answers(releases.exact, RECORDS, 0.0)
    answers[2] = replace(answers[2], note="of the time to 1.25")
    assert case.truth_of(releases, answers) == pytest.approx(plain(5))


def test_a_median_that_is_not_reached_is_endless() -> None:
    """An interval that ends before misses it; one without end holds it."""
    rows = coverage.run(job_of("kaplan_meier", "all", "outlier", level=1000.0, runs=20))
    (median,) = [row for row in rows if row["answer"] == "median"]
    assert (median["inside"], median["share"]) == (20, 1.0)
    ends = [Answer("m", 1.0, 0.0, part="median", limits=(0.5, 1.5))]
    row = coverage._row(CASES["kaplan_meier"], ends, np.array([math.inf]), resolution=0.25)
    assert row["inside"] == 0


def test_what_is_public_has_no_row() -> None:
    rows = coverage.run(job_of("kaplan_meier", "all", "even", level=100.0, runs=5))
    names = {row["answer"] for row in rows}
    assert "at risk at 0" not in names
    assert "at risk at 0.5" in names


def test_the_data_are_as_they_are_called() -> None:
    x = {data: np.asarray(records_of(data)["x"]) for data in DATA}
    assert np.ptp(x["constant"]) == 0
    assert np.sort(x["outlier"])[-2:].tolist() == [-1, 1]
    assert stats.skew(x["skewed"]) > 0.5
    empty = {name: np.asarray(values) for name, values in records_of("empty").items()}
    assert not (empty["w"] == 1).any()
    assert not np.isin(empty["g"], (0, 1)).any()
    assert set(PARTS) == {"all", "where", "by"}


def cell(inside: int, **more: Any) -> Any:
    return {"runs": 2000, "inside": inside, "narrow": inside, "share": 0.1, **more}


def test_the_verdict_is_that_of_exact_tests() -> None:
    """By plain sums of binomial chances, at the edges of the verdict."""
    words = {}
    for inside in (*range(1780, 1900), 1900, 1970, 2000):
        (row,) = coverage.judged([cell(inside)])
        words[inside] = row["verdict"]
    rare, usual = Fraction(6, 100), Fraction(94, 100)
    chances = (math.comb(2000, k) * usual**k * rare ** (2000 - k) for k in range(1, 2000))
    below = accumulate(chances, initial=rare**2000)
    first_fine = next(k for k, chance in enumerate(below) if chance >= coverage.DOUBT / 2)
    assert words[first_fine - 1] == "too low"
    assert words[first_fine] == ""
    assert (words[1900], words[1970], words[2000]) == ("", "", "too high")
    (wide,) = coverage.judged([cell(2000, share=0.6)])
    assert wide["verdict"] == ""
    (binned,) = coverage.judged([cell(2000, narrow=1900)])
    assert binned["verdict"] == ""
    assert coverage.judged([{**cell(0), "inside": None}]) == []


def test_an_interval_that_misses_too_often_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nine tenths of the noise are counted, or twice as much."""
    honest = Histogram.answers
    for factor, wanted in ((0.9, "too low"), (1.0, ""), (2.0, "too high")):
        monkeypatch.setattr(
            Histogram,
            "answers",
            lambda self, total, records, error, factor=factor: honest(self, total, records, factor * error),
        )
        rows = coverage.run(job_of("histogram", "all", "skewed", level=100.0))
        verdicts = {row["verdict"] for row in coverage.judged(rows)}
        assert wanted in verdicts
        assert verdicts <= {wanted, ""}


@pytest.mark.parametrize("part", ["all", "by"])
@pytest.mark.slow
def test_bands_hold_together_and_single_intervals_do_not(part: str) -> None:
    rows = coverage.run(job_of("histogram", part, "skewed", level=20.0))
    (inside,) = [float(row["inside"] or 0) for row in rows if row["answer"] == ALL_BINS]
    assert stats.binom.cdf(inside, 2000, 0.95) > 1e-6
    assert stats.binom.sf(inside, 2000, 0.95) > 1e-6
    case = CASES["histogram"]
    query = case.query("histogram", part)
    exact = query.statistic({name: records_of("skewed")[name] for name in query.columns})
    noise = np.random.default_rng(3).normal(0, 50.0, (500, len(exact)))
    together = [
        all(one.interval[0] <= true <= one.interval[1] for one, true in zip(answers, exact, strict=True))
        for answers in (query.answers(exact + each, RECORDS, 50.0) for each in noise)
    ]
    assert np.mean(together) < 0.88


def test_bands_of_a_distribution_hold_in_all_groups_at_once() -> None:
    """Where much cannot be told, too."""
    for level in (100.0, 4.7):
        rows = coverage.run(job_of("distribution", "by", "even", level=level, runs=400))
        (inside,) = [float(row["inside"] or 0) for row in rows if row["answer"] == ALL_BINS]
        assert stats.binom.cdf(inside, 400, 0.95) > 1e-6


def test_cells_outside_are_listed_by_answer_level_and_data(tmp_path: Path) -> None:
    rows = coverage.run(job_of("mean", "by", "even", level=100.0, runs=2000))
    assert "Cells outside" not in write_coverage(rows, tmp_path / "page.md", "nothing").read_text()
    poor = [{**row, "inside": 1700 + 20 * place} for place, row in enumerate(rows)]
    assert outside_rows(poor)[0][:5] == ("mean", "100", "even", "2", "85.0 % to 86.0 %")
    page = write_coverage(poor, tmp_path / "page.md", "nothing").read_text()
    assert "2 cover significantly less than 94 %" in page
    assert "| mean | 100 | even | 2 | 85.0 % to 86.0 % |" in page
    assert "Why they cover more" not in page
    cautious = [{**row, "kind": "kaplan_meier", "inside": 2000, "narrow": 2000} for row in rows]
    page = write_coverage(cautious, tmp_path / "page.md", "nothing").read_text()
    assert f"- *kaplan_meier*: {CASES['kaplan_meier'].cautious}" in page


@pytest.mark.parametrize("level", [100.0, 4.7])
@pytest.mark.parametrize(
    "kind", ["mean", "variance", "correlation", "linear_regression", "logistic_regression", "poisson_regression"]
)
@pytest.mark.slow
def test_intervals_cover_as_the_table_says(kind: str, level: float) -> None:
    """300 of the 2,000 runs, of spread-out and constant data; the whole table is `tpmdp experiment coverage`."""
    rows = [
        row for data in ("even", "constant") for row in coverage.run(job_of(kind, "all", data, level=level, runs=300))
    ]
    assert [row for row in coverage.judged(rows) if row["verdict"]] == []


@pytest.mark.slow
def test_the_command_writes_table_cells_and_verdict(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With two kinds only, so that it is quick; a second run finds its results."""
    monkeypatch.setattr(coverage, "CASES", {kind: CASES[kind] for kind in ("count", "histogram")})
    monkeypatch.setattr(coverage, "QUICK_RUNS", 20)
    monkeypatch.chdir(tmp_path)
    command = ["experiment", "coverage", "--quick", "--out", "out", "--workers", "1"]
    done = CliRunner().invoke(cli, command)
    assert done.exit_code == 0, done.output
    assert "covers significantly less than 94 %" in " ".join(done.output.split())
    page = Path("out/coverage.md").read_text()
    assert "Written by `tpmdp experiment coverage --quick`" in page
    assert f"| histogram: {ALL_BINS} | 1000 | at least" in page
    cells = json.loads(CliRunner().invoke(cli, [*command, "--json"]).stdout)
    assert {each["kind"] for each in cells} == {"count", "histogram"}
    assert len(list(Path("out/parts").iterdir())) == 2 * 3 * len(DATA) * len(coverage.LEVELS)


def test_the_table_leaves_out_what_has_no_truth_and_no_range(tmp_path: Path) -> None:
    rows = coverage.run(job_of("linear_regression", "all", "constant", level=4.7, runs=20))
    assert all(row["inside"] is None for row in rows)
    table = coverage_rows(rows)
    assert {line[2] for line in table} == {"-"}
    assert {line[3] for line in table if "R squared" not in line[0]} == {"-"}
    assert verdict(rows).startswith("Of 0 cells none covers")
    assert "| - |" in write_coverage(rows, tmp_path / "page.md", "nothing").read_text()
