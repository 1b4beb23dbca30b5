"""The page and the table of `tpmdp experiment coverage`."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from tpmdp._util.files import replacing
from tpmdp.experiments.coverage_cases import CASES
from tpmdp.experiments.coverage_data import DATA, RECORDS
from tpmdp.experiments.coverage_experiment import DOUBT, LEAST, LEVELS, MOST, answer_name, coverage_points, judged
from tpmdp.experiments.jobs import Row
from tpmdp.experiments.summary import grouped
from tpmdp.report.tables import new_table

if TYPE_CHECKING:
    from rich.console import Console

_HEADINGS = ("answer", "records per standard error", "coverage", "mean width", "cannot be told")
_OUTSIDE_HEADINGS = ("answer", "records per standard error", "data", "cells", "coverage", "mean width")


def verdict(rows: Sequence[Row]) -> str:
    """What the cells show, in one sentence.

    >>> verdict([{"runs": 2000, "inside": 1900, "narrow": 1900, "share": 0.1}])[:61]
    'Of 1 cells none covers significantly less than 94 %, and none'
    """
    cells = judged(rows)
    low, high = (sum(row["verdict"] == word for row in cells) for word in ("too low", "too high"))
    counts = [str(count) if count else "none" for count in (low, high)]
    verbs = ["cover" if count > 1 else "covers" for count in (low, high)]
    return (
        f"Of {len(cells):,} cells {counts[0]} {verbs[0]} significantly less than {100 * LEAST:g} %, and {counts[1]} "
        f"with an interval shorter than half the possible range {verbs[1]} significantly more than {100 * MOST:g} %."
    )


def coverage_rows(rows: Sequence[Row]) -> list[tuple[str, ...]]:
    """The cells of the table, one row for each kind of answer and level of noise."""
    return [
        (
            str(point["name"]),
            f"{point['records_per_error']:g}",
            _range(float(point["least"] or 0), float(point["most"] or 0)),
            _percent(float(point["share"] or 0), digits=0),
            _percent(float(point["untold"] or 0), digits=0),
        )
        for point in coverage_points(rows)
    ]


def outside_rows(rows: Sequence[Row]) -> list[tuple[str, ...]]:
    """Cells with a verdict, those of one answer, level and data set together.

    >>> outside_rows([{"runs": 2000, "inside": 1900, "narrow": 1900, "share": 0.1}])
    []
    """
    cells = [{**row, "name": answer_name(row)} for row in judged(rows) if row["verdict"]]
    lines: list[tuple[str, ...]] = []
    for (name, level, data, word), some in grouped(cells, "name", "records_per_error", "data", "verdict").items():
        counted = "inside" if word == "too low" else "narrow"
        shares = [float(row[counted] or 0) / float(row["runs"] or 1) for row in some]
        widths = [float(row["share"]) for row in some if row["share"] is not None]
        width = sum(widths) / len(widths) if widths else math.nan
        ends = dict.fromkeys(_percent(share) for share in (min(shares), max(shares)))
        lines.append((str(name), f"{level:g}", str(data), str(len(some)), " to ".join(ends), _percent(width, digits=0)))
    return lines


def coverage_json(rows: Sequence[Row]) -> list[Row]:
    """Cells with their verdicts, without what JSON cannot hold.

    >>> coverage_json([{"runs": 2000, "inside": 1900, "narrow": 1900, "share": math.inf}])[0]["share"]
    """
    return [
        {key: None if isinstance(value, float) and not math.isfinite(value) else value for key, value in row.items()}
        for row in judged(rows)
    ]


def _percent(share: float, digits: int = 1) -> str:
    return "-" if math.isnan(share) else f"{100 * share:.{digits}f} %"


def _range(least: float, most: float) -> str:
    """The least coverage of all cells, and the largest of those with short intervals."""
    if math.isnan(least):
        return "-"
    return f"at least {_percent(least)}" + ("" if math.isnan(most) else f", at most {_percent(most)}")


def write_coverage(rows: Sequence[Row], path: Path, command: str) -> Path:
    """The page, as Markdown."""
    runs, outside = int(rows[0]["runs"] or 0) if rows else 0, outside_rows(rows)
    lines = [
        "# Coverage",
        "",
        f"Written by `{command}`. Do not edit: run it again.",
        "",
        f"How often 95 % intervals hold the true answer, in {runs:,} releases for each cell: a query on all records, "
        f"on those of a condition or by group, on {len(DATA)} data sets ({', '.join(DATA)}) of {RECORDS:,} records, "
        f"at {len(LEVELS)} levels of noise. A level is the number of records over the standard error of a sum. "
        "*Empty* means that no record counts, or that all values are beyond the bounds. Models by rounds take all "
        "their rounds, each with the noise of its share of the budget.",
        "",
        "Intervals cover the noise, so the truth is the answer without noise: of models by rounds the largest "
        "likelihood, of a log-rank test the same over the time that its note names. Cells without a truth, such as "
        "the slope of a constant column, do not count.",
        "",
        f"**{verdict(rows)}** Significant means: exact binomial tests that err once in {1 / DOUBT:,.0f} tables."
        + (" They are listed at the end." if outside else ""),
        "",
        "In the table, *at least* is the least coverage of any cell of the row, and *at most* the largest of those "
        "whose interval is on average shorter than half the possible range. Quantiles and medians are known to a bin "
        "only: *at most* counts the interval without the bins at its ends. Where all is possible that can be, the "
        "width is 100 %. Coefficients, chi-squares and hazard ratios have no possible range: where they cannot be told "
        "they have no interval, and *at most* is of cells in which most can be told. At the edge of what is possible "
        "(a variance of 0) an interval has one side only: 97.5 % there is by construction.",
        "",
        *_table(_HEADINGS, coverage_rows(rows)),
    ]
    if outside:
        ends = f"{100 * LEAST:g} to {100 * MOST:g} %"
        lines += ["", f"## Cells outside {ends}", "", *_table(_OUTSIDE_HEADINGS, outside)]
        kinds = dict.fromkeys(str(row["kind"]) for row in judged(rows) if row["verdict"] == "too high")
        reasons = [f"- *{kind}*: {CASES[kind].cautious}" for kind in kinds if CASES[kind].cautious]
        lines += ["", "Why they cover more:", "", *reasons] if reasons else []
    with replacing(path) as file:
        file.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


def _table(headings: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    """As Markdown."""
    return ["| " + " | ".join(row) + " |" for row in (headings, ["---"] * len(headings), *rows)]


def print_coverage(rows: Sequence[Row], console: Console) -> None:
    """The table on the terminal, and what it shows."""
    table = new_table("Coverage of 95 % intervals")
    for name in _HEADINGS:
        table.add_column(name)
    for row in coverage_rows(rows):
        table.add_row(*row)
    console.print(table)
    console.print(verdict(rows))
