"""Claims are judged by what was measured: made-up results that obey a claim, break it, or lack its points."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest

import tpmdp.experiments.consortium_experiment as consortium
import tpmdp.experiments.count_experiment as count
import tpmdp.experiments.efficiency_experiment as efficiency
import tpmdp.experiments.regression_experiment as regression
from tpmdp.experiments.claims.all_claims import CLAIMS
from tpmdp.experiments.claims.claim import Claim, ClaimStatus
from tpmdp.experiments.consortium_tables import enjoyed_table, price_table, relax_table
from tpmdp.experiments.experiment_run import EXPERIMENTS, SEED, ExperimentRun
from tpmdp.experiments.jobs import Row
from tpmdp.experiments.reproduction import Judged, judge
from tpmdp.experiments.results import Results, slope
from tpmdp.experiments.runner import Backend, run_jobs
from tpmdp.experiments.summary import (
    agreement_points,
    count_points,
    mean_interval,
    regression_points,
    root_mean_square,
)
from tpmdp.mechanisms.registry import MECHANISMS


def claim(group: str, words: str) -> Claim:
    found = [one for one in CLAIMS[group] if words in one.text]
    assert len(found) == 1, words
    return found[0]


def counted(panel: str, errors: dict[float, dict[str, float]], spread: float = 0.01) -> list[Row]:
    """Rows of a count whose errors are just these, with narrow intervals."""
    return [
        {
            "panel": panel,
            "x": x,
            "repetition": repetition,
            "mechanism": name,
            "error": value * (1 + spread * (-1) ** repetition),
            "expected": value,
            "seed": 0,
        }
        for x, by_name in errors.items()
        for name, value in by_name.items()
        for repetition in range(4)
    ]


def flat(**changes: float) -> dict[str, float]:
    return {**dict.fromkeys(count.NAMES, 100.0), "non-thre": 500.0, "PLDP": 300.0, **changes}


@pytest.mark.parametrize(
    ("words", "rows", "verdict"),
    [
        ("significantly worse than all others", counted("density", {0.1: flat(), 0.2: flat()}), ClaimStatus.HOLDS),
        ("significantly worse than all others", counted("density", {0.1: flat(PLDP=460.0)}), ClaimStatus.FAILS),
        (
            "significantly worse than all others",
            counted("density", {0.1: flat(), 0.2: flat(PLDP=600.0)}),
            ClaimStatus.DEPENDS,
        ),
        ("significantly worse than all others", counted("density", {0.1: flat(PLDP=600.0)}), ClaimStatus.FAILS),
        ("do not depend on the density", counted("density", {0.0: flat(), 1.0: flat(Sample=900.0)}), ClaimStatus.HOLDS),
        ("do not depend on the density", counted("density", {0.0: flat(), 1.0: flat(G=120.0)}), ClaimStatus.DEPENDS),
        (
            "Sample grows linearly",
            counted("density", {x / 10: flat(Sample=10.0 + 3 * x) for x in range(5)}),
            ClaimStatus.HOLDS,
        ),
        (
            "Sample grows linearly",
            counted("density", {x / 10: flat(Sample=10.0 + x**4) for x in range(5)}),
            ClaimStatus.FAILS,
        ),
        (
            "G is significantly better than TMDP for t > 900",
            counted("threshold", {950.0: flat(TMDP=150.0)}),
            ClaimStatus.HOLDS,
        ),
        ("G is significantly better than TMDP for t > 900", counted("threshold", {950.0: flat()}), ClaimStatus.FAILS),
        (
            "G is better than PLDP for t < 900",
            counted("threshold", {1.0: flat(), 899.0: flat(PLDP=50.0)}),
            ClaimStatus.DEPENDS,
        ),
        (
            "G is similar to MIN for t < 700",
            counted("threshold", {1.0: flat(), 699.0: flat(G=200.0)}),
            ClaimStatus.DEPENDS,
        ),
        (
            "G is similar to MIN for t < 700",
            counted("threshold", {1.0: flat(), 700.0: flat(G=900.0)}),
            ClaimStatus.HOLDS,
        ),
        (
            "Sample is best",
            counted("conservative", {0.1: flat(Sample=10.0), 0.2: flat(Sample=10.0)}),
            ClaimStatus.HOLDS,
        ),
        ("Sample is best", counted("conservative", {0.1: flat(Sample=10.0), 0.2: flat(MIN=9.0)}), ClaimStatus.DEPENDS),
        ("have the least loss for n >= 5000", counted("parties", {5000.0: flat(Sample=200.0)}), ClaimStatus.HOLDS),
        ("have the least loss for n >= 5000", counted("parties", {5000.0: flat(Sample=50.0)}), ClaimStatus.FAILS),
        ("one noise for all (MIN)", counted("threshold", {1.0: flat(), 499.0: flat(G=149.0)}), ClaimStatus.HOLDS),
        ("one noise for all (MIN)", counted("threshold", {1.0: flat(), 499.0: flat(G=151.0)}), ClaimStatus.FAILS),
        ("one noise for all (MIN)", counted("threshold", {1.0: flat(), 500.0: flat(G=900.0)}), ClaimStatus.HOLDS),
        ("one noise for all (MIN)", counted("threshold", {500.0: flat()}), ClaimStatus.UNKNOWN),
        ("to a personalized one", counted("threshold", {1.0: flat(), 9.0: flat(Sample=66.0)}), ClaimStatus.FAILS),
        ("to a personalized one", counted("threshold", {1.0: flat(), 9.0: flat(Sample=67.0)}), ClaimStatus.HOLDS),
    ],
)
def test_a_claim_about_the_count_is_judged_by_its_points(words: str, rows: list[Row], verdict: ClaimStatus) -> None:
    result = claim("count", words).result(Results(count_rows=rows))
    assert result.status is verdict, result
    assert bool(result.measured) is (verdict is not ClaimStatus.UNKNOWN)


def fitted(panel: str, errors: dict[float, dict[str, float]]) -> list[Row]:
    random = np.random.default_rng(0)
    return [
        {
            "panel": panel,
            "x": x,
            "run": run,
            "fold": fold,
            "mechanism": name,
            "error": value + 0.001 * shake,
            "seed": 0,
        }
        for x, by_name in errors.items()
        for run in range(8)
        for fold in range(5)
        for shake in [random.normal()]
        for name, value in by_name.items()
    ]


def losses(**changes: float) -> dict[str, float]:
    return {
        "G": 0.5,
        "TMDP": 0.51,
        "non-thre": 0.8,
        "MIN": 0.49,
        "Sample": 0.46,
        "PLDP": 0.9,
        "non-pri": 0.45,
        "mean": 0.55,
        **changes,
    }


@pytest.mark.parametrize(
    ("words", "rows", "verdict"),
    [
        ("have the largest loss", fitted("parties", {1e4: losses()}), ClaimStatus.HOLDS),
        ("have the largest loss", fitted("parties", {1e4: losses(TMDP=2.0)}), ClaimStatus.FAILS),
        ("Sample is closest", fitted("parties", {1e4: losses(), 2e4: losses(MIN=0.451)}), ClaimStatus.DEPENDS),
        ("slightly for f_C <= 0.01", fitted("conservative", {0.0: losses(), 0.01: losses()}), ClaimStatus.HOLDS),
        ("slightly for f_C <= 0.01", fitted("conservative", {0.0: losses(TMDP=0.5)}), ClaimStatus.FAILS),
        ("slightly for f_C <= 0.01", fitted("conservative", {0.5: losses()}), ClaimStatus.UNKNOWN),
        ("close to n", fitted("threshold", {1.0: losses(), 49_999.0: losses(TMDP=0.49)}), ClaimStatus.FAILS),
        ("close to n", fitted("threshold", {1.0: losses(), 49_999.0: losses(TMDP=0.6)}), ClaimStatus.HOLDS),
        ("close to MIN", fitted("threshold", {1.0: losses(TMDP=0.5)}), ClaimStatus.HOLDS),
        ("close to MIN", fitted("threshold", {1.0: losses(TMDP=0.52)}), ClaimStatus.FAILS),
        ("of use", fitted("threshold", {1.0: losses(), 9.0: losses(mean=0.49)}), ClaimStatus.DEPENDS),
        ("read as loss", fitted("threshold", {1.0: losses(), 9.0: losses(G=0.6, TMDP=0.6)}), ClaimStatus.HOLDS),
        ("roughly falls", fitted("parties", {1e4: losses(), 2e4: losses(G=0.4, TMDP=0.4, MIN=0.4)}), ClaimStatus.HOLDS),
        ("roughly falls", fitted("parties", {1e4: losses(), 2e4: losses(G=0.6, TMDP=0.6, MIN=0.6)}), ClaimStatus.FAILS),
        ("improves and reaches", fitted("threshold", {1.0: losses(), 9.0: losses(G=0.6, TMDP=0.6)}), ClaimStatus.FAILS),
        ("comparable to one noise", fitted("threshold", {1.0: losses(), 9.0: losses(G=0.9)}), ClaimStatus.HOLDS),
        ("comparable to one noise", fitted("threshold", {1.0: losses(G=0.52), 9.0: losses()}), ClaimStatus.FAILS),
        ("comparable to a personalized", fitted("threshold", {1.0: losses(), 9.0: losses()}), ClaimStatus.FAILS),
        (
            "grows with f_C",
            fitted(
                "conservative",
                {0.0: losses(), 0.01: losses(), 0.5: {name: 1.2 * value for name, value in losses().items()}},
            ),
            ClaimStatus.HOLDS,
        ),
        (
            "grows with f_C",
            fitted(
                "conservative",
                {x: {name: (1.2 if x else 1) * value for name, value in losses().items()} for x in (0.0, 0.01, 0.5)},
            ),
            ClaimStatus.DEPENDS,
        ),
    ],
)
def test_a_claim_about_regression_is_judged_by_its_points(words: str, rows: list[Row], verdict: ClaimStatus) -> None:
    result = claim("regression", words).result(Results(regression_rows=rows))
    assert result.status is verdict, result


def timed(**series: dict[int, tuple[float, float]]) -> list[Row]:
    """Rows of efficiency: method_rule = {n: (seconds, bytes)}; no time is a limit that was reached."""
    rows: list[Row] = []
    for name, points in series.items():
        method, rule = name.split("_")
        for n, (seconds, peak) in points.items():
            outcome = "ok" if seconds else "memory"
            row: Row = {"panel": rule, "rule": rule, "method": method, "n": n, "total": 1.0 if seconds else None}
            rows.append({**row, "seconds": seconds or None, "peak_bytes": peak or None, "outcome": outcome})
    return rows


def test_claims_about_efficiency() -> None:
    ours = {n: (1e-5 + 1e-8 * n, 1e5 + 8.0 * n) for n in (10, 14, 15, 16, 17, 18, 10**5, 10**6, 10**7)}
    solver = {n: (1e-3 * 2.0**n, 1e3 * 2.0**n) for n in (10, 14, 15, 16, 17, 18)}
    rows = timed(ours_half=ours, ours_t2=ours, highs_half={**solver, 19: (0.0, 0.0)})
    results = Results(efficiency_rows=rows)
    found = {one.text: one.result(results) for one in CLAIMS["efficiency"]}

    def verdict(words: str) -> ClaimStatus:
        return next(result.status for text, result in found.items() if words in text)

    assert verdict("does not depend on t") is ClaimStatus.HOLDS
    assert verdict("does not depend on n") is ClaimStatus.FAILS
    assert verdict("much smaller than the solver's") is ClaimStatus.HOLDS
    assert verdict("time grows exponentially") is ClaimStatus.HOLDS
    assert verdict("grows slowly with n") is ClaimStatus.HOLDS
    assert verdict("less than a millisecond") is ClaimStatus.DEPENDS
    assert verdict("outperforms the solver in space and time") is ClaimStatus.HOLDS
    assert verdict("the same for every t") is ClaimStatus.HOLDS
    memory = next(result for text, result in found.items() if "it grows exponentially" in text)
    assert "limit reached at n = 19: memory" in memory.measured


@pytest.mark.parametrize(("factor", "verdict"), [(1.0, ClaimStatus.HOLDS), (1.2, ClaimStatus.FAILS)])
def test_space_is_compared_where_it_is_more_than_pages(factor: float, verdict: ClaimStatus) -> None:
    """Twice the pages at n = 10 are no difference between thresholds; a fifth of 8 MB is one."""
    half = {10: (1e-5, 1e5), 10**6: (1e-2, 8e6)}
    other = {10: (1e-5, 2e5), 10**6: (1e-2, factor * 8e6)}
    results = Results(efficiency_rows=timed(ours_half=half, ours_t2=other))
    assert claim("efficiency", "does not depend on t").result(results).status is verdict
    small = Results(efficiency_rows=timed(ours_half={10: (1e-5, 1e5)}, ours_t2={10: (1e-5, 1e5)}))
    assert claim("efficiency", "does not depend on t").result(small).status is ClaimStatus.UNKNOWN


def test_a_quick_run_leaves_undecided_what_it_cannot_judge() -> None:
    rows = fitted("threshold", {1.0: losses(), 9.0: losses(G=0.6, TMDP=0.6)})
    one = claim("regression", "read as loss")
    quick = one.result(Results(regression_rows=rows), quick=True)
    assert quick.status is ClaimStatus.UNDECIDED
    assert quick.measured == one.result(Results(regression_rows=rows)).measured != ""
    assert "Two quick runs" in one.note(quick)
    missing = one.result(Results(), quick=True)
    assert missing.status is ClaimStatus.UNDECIDED
    assert one.result(Results()).status is ClaimStatus.UNKNOWN


def _verdicts_of_the_page() -> dict[str, str]:
    """The verdicts of the full run, as the documentation shows them."""
    page = (Path(__file__).parents[2] / "docs" / "reference" / "reproduction.md").read_text(encoding="utf-8")
    lines = re.findall(r"^\| \d+ \| [^|]* \| ([^|]*) \| .* \| \*\*([^*]*)\*\*", page, re.MULTILINE)
    return dict(lines)


def test_the_page_has_every_claim_with_a_verdict() -> None:
    verdicts = _verdicts_of_the_page()
    assert set(verdicts) == {one.text for claims in CLAIMS.values() for one in claims}
    assert set(verdicts.values()) <= {ClaimStatus.HOLDS, ClaimStatus.FAILS, ClaimStatus.DEPENDS}


@pytest.mark.slow
def test_a_quick_count_judges_no_claim_differently_from_the_full_run() -> None:
    rows = [row for job in count.jobs(True, SEED) for row in count.run(job)]
    _compare(judge(Results(count_rows=rows), quick=True), _verdicts_of_the_page())


@pytest.mark.slow
@pytest.mark.long
@pytest.mark.process
def test_a_quick_run_judges_no_claim_differently_from_the_full_run(tmp_path: Path) -> None:
    quick = ExperimentRun("all", quick=True, backend=Backend(workers=1))
    rows = {
        f"{name}_rows": run_jobs(quick.jobs(name), EXPERIMENTS[name].run, tmp_path, backend=quick.backend)
        for name in ("regression", "efficiency")
    }
    _compare(judge(Results(**rows), quick=True), _verdicts_of_the_page())


def _compare(judged: Judged, verdicts: dict[str, str]) -> None:
    """Every quick verdict is that of the page, or says that the quick run does not decide."""
    assert len(judged) > 10
    for one, result in judged:
        if one.where != "Fig. efficiency b":  # times, which other work on the machine changes
            assert result.status in (verdicts[one.text], ClaimStatus.UNDECIDED), (one.text, result)
        assert result.status is not ClaimStatus.UNDECIDED or one.note(result)
    assert sum(result.status is ClaimStatus.UNDECIDED for _, result in judged) < len(judged) / 2


@pytest.mark.parametrize("group", CLAIMS)
def test_without_results_every_claim_is_not_measured(group: str) -> None:
    for one in CLAIMS[group]:
        assert one.result(Results()).status is ClaimStatus.UNKNOWN, one.text


def test_claims_are_told_apart_and_say_where_they_stand() -> None:
    every = [one for claims in CLAIMS.values() for one in claims]
    assert len({one.text for one in every}) == len(every) > 35
    assert all(one.where for one in every)


# --- summaries -------------------------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.long
def test_the_simulated_error_covers_the_computed_one() -> None:
    jobs = [job for job in count.jobs(False, 11) if job.panel == "density" and job.x in (0.0, 0.5)]
    points = count_points([row for job in jobs for row in count.run(job)])
    assert len(points) == 2 * len(count.NAMES)
    for point in points:
        assert point["repetitions"] == count.REPETITIONS
        low, expected, high = (float(point[name] or 0) for name in ("low", "expected", "high"))
        width = high - low
        assert low - width < expected < high + width  # 95 % intervals, widened: seeds are fixed, this holds or not


def test_intervals_cover_as_often_as_they_say() -> None:
    random = np.random.default_rng(12)
    covered = 0
    for _ in range(1000):
        _, low, high = root_mean_square(random.normal(size=200))
        covered += low <= 1 <= high
    assert 920 <= covered <= 975
    means = sum(low <= 0 <= high for _, low, high in (mean_interval(random.normal(size=20)) for _ in range(1000)))
    assert 925 <= means <= 975


def test_folds_are_averaged_before_runs() -> None:
    rows = fitted("parties", {1e4: losses()})
    point = next(point for point in regression_points(rows) if point["mechanism"] == "G")
    assert point["repetitions"] == 8
    assert float(point["rmse"] or 0) == pytest.approx(0.5, abs=0.001)


def test_the_agreement_interval_is_exact() -> None:
    random = np.random.default_rng(13)
    covered = 0
    for _ in range(500):
        rows: list[Row] = [
            {
                "engine": "memory",
                "problem": "count",
                "parties": 3,
                "threshold": 1,
                "coordinates": 1,
                "squares": float(value),
            }
            for value in random.normal(size=10) ** 2
        ]
        (point,) = agreement_points(rows)
        covered += float(point["low"] or 0) <= 1 <= float(point["high"] or 0)
    assert 460 <= covered <= 490


def test_slopes() -> None:
    assert slope([1, 2, 4], [3, 12, 48]) == pytest.approx(2)


@pytest.fixture(scope="module")
def consortium_rows() -> list[Row]:
    return [row for job in consortium.jobs(True, 1) for row in consortium.run(job)]


@pytest.mark.slow
def test_tables_beyond_the_figures(consortium_rows: list[Row]) -> None:
    results = Results(consortium_rows=consortium_rows)
    price = {(row["n"], row["t"]): row for row in price_table(results)}
    assert {n for n, _ in price} == set(consortium.SIZES)
    for row in price.values():
        assert 1 <= float(str(row["G"])) <= float(str(row["TMDP"])) + 0.005
        assert float(str(row["G"])) <= float(str(row["non-thre"])) + 0.005
    assert price[5, 4]["G"] == price[5, 4]["non-thre"]
    relax = {(row["who relaxes"], row["mechanism"]): row for row in relax_table(results)}
    assert relax["strictest", "G"]["epsilon x 5"] != "100 %"
    assert relax["middle", "MIN"]["epsilon x 10"] == "100 %"
    enjoyed = {(row["n"], row["mechanism"]): row for row in enjoyed_table(results)}
    assert enjoyed[1000, "PLDP"]["get twice or more"] == "0 %"
    assert float(str(enjoyed[1000, "G"]["gain, most liberal tenth"])) > 10
    assert price_table(Results()) == relax_table(Results()) == enjoyed_table(Results()) == []


@pytest.mark.slow
def test_protection_is_never_less_than_asked(consortium_rows: list[Row]) -> None:
    rows = [row for row in consortium_rows if row["panel"] == "enjoyed"]
    assert {row["mechanism"] for row in rows} == set(consortium.COMPARED) <= set(MECHANISMS)
    assert all(float(row["enjoyed"] or 0) <= float(row["asked"] or 0) for row in rows)


def test_quick_grids_are_part_of_full_ones_where_they_share_their_setting() -> None:
    assert set(count.QUICK) == set(count.PANELS)
    assert set(regression.QUICK) == set(regression.PANELS)
    assert set(efficiency.QUICK_HIGHS) == set(efficiency.HIGHS)
