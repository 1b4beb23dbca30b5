"""The report of the experiments: claims, figures and their numbers, as a Markdown page and as tables."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final
from urllib.parse import quote

import tpmdp.experiments.count_experiment as count
import tpmdp.experiments.regression_experiment as regression
from tpmdp._util.files import replacing
from tpmdp.experiments.claims.all_claims import CLAIMS
from tpmdp.experiments.claims.claim import OURS, WORDS, Claim, ClaimResult, ClaimStatus
from tpmdp.experiments.consortium_experiment import DRAWS
from tpmdp.experiments.consortium_tables import enjoyed_table, price_table, relax_table
from tpmdp.experiments.efficiency_experiment import complexity, disagreement
from tpmdp.experiments.experiment_run import ExperimentRun
from tpmdp.experiments.figures.paper_figures import (
    draw_consortium,
    draw_count,
    draw_efficiency,
    draw_regression,
    draw_telling,
)
from tpmdp.experiments.figures.weights_figures import draw_adversary, draw_weights
from tpmdp.experiments.jobs import Row
from tpmdp.experiments.results import Results
from tpmdp.experiments.rounds_experiment import rounds_table
from tpmdp.experiments.summary import column
from tpmdp.experiments.weights_checks import Measure, adversary_table, measures, records_table
from tpmdp.experiments.weights_records import PARTIES as SAMPLE_PARTIES
from tpmdp.report.tables import new_table

if TYPE_CHECKING:
    from rich.console import Console

Judged = Sequence[tuple[Claim, ClaimResult]]
_STYLES: Final = {
    ClaimStatus.HOLDS: "green",
    ClaimStatus.FAILS: "red",
    ClaimStatus.DEPENDS: "yellow",
    ClaimStatus.UNKNOWN: "dim",
    ClaimStatus.UNDECIDED: "dim",
}
QUICK: Final = (
    "A quick run: few points and repetitions. It does not decide claims for which these are too few. The others it "
    "judges by its own points."
)


def judge(results: Results, *, quick: bool) -> Judged:
    """Every claim with its result; those of experiments that were not run are left out.

    A quick run leaves those undecided that the full one may judge differently.

    >>> judge(Results(), quick=False)
    []
    """
    run = {
        "count": results.count_rows,
        "regression": results.regression_rows,
        "efficiency": results.efficiency_rows,
    }
    return [
        (claim, claim.result(results, quick=quick)) for name, claims in CLAIMS.items() if run[name] for claim in claims
    ]


def draw_all(results: Results, folder: Path) -> list[Path]:
    """Every figure for which there are results."""
    consortium = results.consortium_rows
    figures: list[tuple[str, object, Callable[[Path], None]]] = [
        ("count", results.count_rows, partial(draw_count, results.count.points)),
        ("regression", results.regression_rows, partial(draw_regression, results.regression.points)),
        ("efficiency", results.efficiency_rows, partial(draw_efficiency, results.efficiency_rows)),
        ("consortium", consortium, partial(draw_consortium, results.consortium, consortium)),
        ("weights", results.weights_rows, partial(draw_weights, results.weights)),
        ("weights_adversary", results.weights_rows, partial(draw_adversary, results.weights)),
        ("telling", results.count_rows and consortium, partial(draw_telling, results.count.points, consortium)),
    ]
    folder.mkdir(parents=True, exist_ok=True)
    pictures = []
    for name, rows, draw in figures:
        if rows:
            pictures.append(folder / f"{name}.svg")
            draw(pictures[-1])
    return pictures


def write_report(run: ExperimentRun, results: Results, path: Path) -> list[Path]:
    """The page, and its pictures in a folder of the same name beside it; all files that were written."""
    pictures = draw_all(results, path.with_suffix(""))
    with replacing(path) as file:
        file.write_text("\n".join(_page(run, results, path, pictures=pictures)) + "\n", encoding="utf-8")
    return [path, *pictures]


def _page(run: ExperimentRun, results: Results, path: Path, pictures: Sequence[Path]) -> list[str]:
    if run.what == "rounds":
        title = "# Logistic regression by rounds"
        return [title, "", *_about(run), "", _ROUNDS, "", *_table(rounds_table(results.rounds_rows))]
    lines = ["# The paper's evaluation, reproduced", "", *_about(run), "", *_settings(run), ""]
    judged = judge(results, quick=run.quick)
    if judged:
        lines += ["## Claims", "", f"What words mean here: {WORDS}.", "", *_claims(judged), ""]
    captions = {
        "count": ("## Count", "Error of a count (RMSE) with 95 % bands; defaults n = 1000, t = 500, density 0.15."),
        "regression": ("## Linear regression", "Error of a prediction, the target scaled to [-1, 1], with 95 % bands."),
        "efficiency": ("## Efficiency", "Time and peak memory of a plan; crosses mark a limit that was reached."),
        "consortium": ("## Beyond the figures", "Consortia of 5 to 50 parties; protection in the paper's setting."),
        "weights": (
            "## Weights",
            "Error of a count (RMSE over draws) with 95 % bands. Up to 50 parties: budgets of a consortium, fair coins "
            "for bits; 1000: the paper's. Dashed: the answer n/2.",
        ),
        "weights_adversary": (
            "### Budgets related to the data",
            "n = 1000, t = 500, the paper's budgets; half of the parties hold a 1.",
        ),
    }
    tables = {
        "efficiency": _complexity(results) if results.efficiency_rows else [],
        "consortium": _beyond(results) if results.consortium_rows else [],
        "weights": _weights(results) if results.weights_rows else [],
        "weights_adversary": [[_ADVERSARY], _table(adversary_table(results))],
    }
    for picture in pictures:
        if picture.stem in captions:
            title, caption = captions[picture.stem]
            link = quote(f"{path.with_suffix('').name}/{picture.name}")
            lines += [title, "", f"![{caption}]({link})", "", caption, ""]
            for table in tables.get(picture.stem, []):
                lines += [*table, ""]
    if results.agreement:
        lines += ["## Simulation and the real protocol", "", *_agreement(results), ""]
    return lines[:-1]


def _about(run: ExperimentRun) -> list[str]:
    """How the page was generated."""
    manifest = run.manifest()
    versions = ", ".join(f"{name} {version}" for name, version in manifest["versions"].items())
    cores, memory = manifest["machine"]["cores"], manifest["machine"]["memory_gb"]
    source = "a synthetic population"
    if manifest["data"]:
        source = f"`{manifest['data']}` ({manifest['records']:,} records, SHA-256 {manifest['data_sha256'][:12]})"
    bounds = ", ".join(f"{name} [{low:g}, {high:g}]" for name, (low, high) in manifest["bounds"].items())
    lines = [
        f"Written by `tpmdp experiment {run.what}{' --quick' if run.quick else ''}` "
        f"with seed {manifest['seed']}; {versions}; {cores} cores, {memory} GB. Do not edit: run it again.",
    ]
    if run.quick:
        lines += ["", f"**{QUICK}**"]
    if {"regression", "weights", "rounds"} & set(manifest["experiments"]):
        lines += ["", f"Regression data: {source}. Public bounds, values outside clipped: {bounds}."]
        if run.left_out:
            lines += [f"Left out, as the file has too few records: n = {', '.join(map(str, run.left_out))}."]
    return lines


def _settings(run: ExperimentRun) -> list[str]:
    """What the paper fixes, and what it leaves open."""
    repetitions = count.QUICK_REPETITIONS if run.quick else count.REPETITIONS
    runs = regression.QUICK_RUNS if run.quick else regression.RUNS
    parties = regression.QUICK_PARTIES if run.quick else regression.PARTIES
    return [
        "## Settings",
        "",
        "As in the paper, unless a panel varies it: a share f_C = 0.54 of conservative parties with epsilon uniform in "
        "[0.01, 0.2], 0.37 moderate ones in [0.2, 1], the rest liberal with 1; delta = 1/(10 n); t = n/2; every "
        "non-empty set of receivers equally likely. Where f_C varies, the moderate share stays. Each party holds one "
        "record.",
        "",
        f"- Count: n = 1000, density 0.15, {repetitions} repetitions, each with its own data, budgets, receivers and "
        "noise. Errors are simulated in the figures; claims use the errors computed for the same draws.",
        f"- Regression: n = {parties:,} parties in training, {runs} runs of five-fold cross-validation. A run draws "
        "1.25 n people without replacement; each fold is predicted from the n others. The error is the RMSE of a fold, "
        "averaged over folds, then over runs. All mechanisms get the same random numbers in a fold, so differences "
        "are sharp. Runs of the largest n share people: their intervals are for this file. *mean* predicts the mean.",
        "- Functional Mechanism: all products of two of (record, 1) are released, with sensitivity 6 sqrt(2); four "
        "standard deviations are added to the diagonal, for the constant too, and what is not positive then is cut.",
        "- W: public weights of least expected error for the largest spread that a party's vector can have (root mean "
        "square of the standard deviations of its coordinates): 0.5 for a bit, sqrt(10/7) for products of a record.",
    ]


def _claims(judged: Judged) -> list[str]:
    counts = Counter(result.status for claim, result in judged if claim.where != OURS)
    words = {ClaimStatus.HOLDS: "hold", ClaimStatus.FAILS: "do not hold", ClaimStatus.DEPENDS: "depend on the setting"}
    parts = [f"{counts[status]} {words.get(status, status.value)}" for status in ClaimStatus if counts[status]]
    whole = (
        f"Of {counts.total()} sentences of the paper " + ", ".join(parts) + ". Some say the same of several figures."
    )
    lines = [whole, ""]
    rows: list[Row] = []
    notes = []
    for number, (claim, result) in enumerate(judged, 1):
        note = claim.note(result)
        mark = f" (note {number})" if note else ""
        notes += [f"- **Note {number}.** {note}"] if note else []
        row: Row = {"": number, "where": claim.where, "claim": claim.text, "measured": result.measured}
        rows.append({**row, "verdict": f"**{result.status.value}**{mark}"})
    return [*lines, *_table(rows), *([""] if notes else []), *notes]


def _complexity(results: Results) -> list[list[str]]:
    names = {
        "what": "program",
        "paper_space": "space, paper",
        "measured_space": "space, measured",
        "paper_time": "time, paper",
        "measured_time": "time, measured",
        "over": "measured over",
    }
    rows: list[Row] = [{names[key]: row[key] for key in names} for row in complexity(results.efficiency_rows)]
    text = (
        "The paper writes a row for each coalition and honest party. One row per coalition, with the largest need, is "
        "equivalent and was measured here: a power of n less. A solver may use up to 8 GiB and 90 seconds per point. "
        f"All methods find the same optimum: totals differ by {disagreement(results.efficiency_rows):.0e} at most."
    )
    return [[text], _table(rows)]


def _beyond(results: Results) -> list[list[str]]:
    return [
        [
            "Budgets of a consortium: epsilon spread evenly on a logarithmic scale from 0.1 to 2, delta = 1e-6, all "
            f"receive unless it says otherwise; medians over {DRAWS} draws."
        ],
        ["**The price of a threshold**: error over that of a trusted curator with one noise for all (MIN)."],
        _table(price_table(results)),
        ["**One of ten parties relaxes**: error left, of a count at t = 5."],
        _table(relax_table(results)),
        [
            "**Protection enjoyed**: epsilon asked over epsilon enjoyed at the same delta, t = n/2. n = 20: a "
            "consortium; n = 1000: the paper's budgets and random receivers."
        ],
        _table(enjoyed_table(results)),
    ]


_ROUNDS: Final = (
    "Who has an income of at least half its upper bound, by age, education and gender: 50,000 people at five parties "
    "of equal size, epsilon 1, delta 1e-6, threshold 2, all receive. The error of the education slope (root mean "
    "square) and its bias are relative to maximum likelihood without noise; in brackets the standard error of each "
    "number. The people are the same in every run; the noise is drawn anew, with the variance that is planned for each "
    "round. The trusted curator is diffprivlib's logistic regression with epsilon 1 (delta 0), which needs all records "
    "in one place."
)
_ADVERSARY: Final = (
    "Some of the ones are with the strictest parties (left) or the most liberal ones (right), the rest anywhere. "
    "The error of W is then larger than its noise: W is unbiased only if budgets are unrelated to the data. Its plain "
    "95 % interval assumes that and soon fails; the interval widened by the stated bound does not. Data chosen against "
    "the weights attain the bound."
)


def _weights(results: Results) -> list[list[str]]:
    draws, runs = (
        len({row["draw"] for row in results.weights_rows if row["panel"] == panel})
        for panel in ("threshold", "regression")
    )
    return [
        [
            "In W party j counts with a public weight w_j, and needs w_j^2 times its noise. Up to 50 parties hold a "
            "bit each, a fair coin, and have the budgets of a consortium (epsilon from 0.1 to 2, delta = 1e-6); all "
            "receive. Above the dashed line the answer n/2, without any data, is better: for fair coins its error is "
            "sqrt(n)/2, for the paper's density 0.35 n. Sample, as published, is not scaled back for the parties "
            "it drops; most of its error is that, as the measures show. In T (one effective budget) the most liberal "
            "parties have weight 1 and the others 0; with two levels the others have one weight in common. Both are "
            "the best of their kind, for each draw. Errors and "
            f"coverage are computed, over {draws} draws of budgets and bits; the regression is simulated, {runs} runs."
        ],
        ["**Measures**, with 95 % intervals over draws or runs; times are of this machine."],
        _table(measure_rows(measures(results))),
        [
            f"**Where weights gain**: the expected error of a sum over {SAMPLE_PARTIES} parties of a consortium, "
            f"t = {SAMPLE_PARTIES // 2}, values in a range of width 1. *Spread* bounds the standard deviation of a "
            "party's average: 0.5 assumes nothing, 0.05 that parties are alike. Weights help where noise matters "
            "beside what a party contributes: with few records per party, or if parties are known to be alike. With "
            "many records per party all weights become nearly equal."
        ],
        _table(records_table(results)),
    ]


def print_rounds(rows: Sequence[Row], console: Console) -> None:
    """The table of models by rounds, on the terminal."""
    lines = rounds_table(rows)
    table = new_table("Logistic regression by rounds", *lines[0])
    for line in lines:
        table.add_row(*map(str, line.values()))
    console.print(table)


def measure_rows(measured: Sequence[Measure]) -> list[Row]:
    """The table of measures.

    >>> measure_rows([Measure("error", "at most 1", "0.5", ClaimStatus.HOLDS)])
    [{'measure': 'error', 'wanted': 'at most 1', 'measured': '0.5', 'met': 'yes'}]
    """
    return [{"measure": row.what, "wanted": row.wanted, "measured": row.measured, "met": row.met} for row in measured]


def print_measures(measured: Sequence[Measure], console: Console) -> None:
    """What is wanted of weights, and what was measured, on the terminal."""
    from rich.text import Text

    table = new_table("Measures of weights (W)")
    for name, ratio in (("measure", 5), ("wanted", 2), ("measured", 5)):
        table.add_column(name, ratio=ratio)
    table.add_column("met", no_wrap=True)
    for row in measured:
        table.add_row(row.what, row.wanted, row.measured, Text(row.met, style=_STYLES[row.status]))
    console.print(table)


def _agreement(results: Results) -> list[str]:
    rows: list[Row] = [
        {
            "engine": row["engine"],
            "sum": row["problem"],
            "n": row["parties"],
            "t": row["threshold"],
            "sessions": row["sessions"],
            "error over the simulated mechanism's": f"{float(row['ratio'] or 0):.3f}",
            "95 % interval": f"{float(row['low'] or 0):.3f} to {float(row['high'] or 0):.3f}",
        }
        for row in results.agreement
    ]
    grid = column(results.agreement_rows, "grid")
    text = (
        "Sessions with keys, masks and exact noise on a grid; `relay` runs every party in its own process over "
        "HTTP. Noise comes from the system, so these numbers change from run to run. A ratio of 1 is agreement; the "
        f"grid itself adds at most {100 * (grid.max() - 1):.3f} %."
    )
    return [text, "", *_table(rows)]


def _table(rows: Sequence[Row]) -> list[str]:
    """Rows as Markdown."""
    if not rows:
        return []
    names = list(rows[0])
    lines = ["| " + " | ".join(names) + " |", "|" + " --- |" * len(names)]
    for row in rows:
        cells = [str(row[name]).replace("|", "\\|") for name in names]
        lines.append("| " + " | ".join(cells) + " |")
    return lines


def print_claims(judged: Judged, console: Console, *, quick: bool) -> None:
    """The claims as a table on the terminal."""
    from rich.text import Text

    table = new_table("Claims of the paper")
    for name, ratio in (("where", 2), ("claim", 4), ("measured", 5)):
        table.add_column(name, ratio=ratio)
    table.add_column("verdict", no_wrap=True)
    for claim, result in judged:
        verdict = Text(result.status.value, style=_STYLES[result.status])
        table.add_row(claim.where, claim.text, result.measured, verdict)
    table.caption = QUICK if quick else None
    console.print(table)
