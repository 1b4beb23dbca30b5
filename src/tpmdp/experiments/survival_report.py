"""The page and the table of `tpmdp experiment survival`."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

from tpmdp._util.files import replacing
from tpmdp.experiments.jobs import Row
from tpmdp.experiments.survival_experiment import HOSPITALS, PATIENTS, THRESHOLD, noise_of_sum, survival_points
from tpmdp.report.tables import new_table

if TYPE_CHECKING:
    from rich.console import Console

_ERRORS: Final = ("factor", "histogram", "gain", "coverage", "told", "sampling", "lifelines")
_TESTS: Final = ("known counted", "known ignored", "noisy counted", "noisy ignored", "exact", "lifelines test")
_WORDS: Final = {
    "factor": "error of S",
    "histogram": "from a histogram",
    "gain": "times less",
    "coverage": "coverage",
    "told": "bins told",
    "sampling": "sampling error",
    "lifelines": "of lifelines",
    "known counted": "sizes public",
    "known ignored": "noise ignored",
    "noisy counted": "sizes noisy",
    "noisy ignored": "noise ignored",
    "exact": "no noise, binned",
    "lifelines test": "lifelines",
}


def tables(rows: Sequence[Row]) -> list[tuple[list[str], list[list[str]]]]:
    """Headings and cells of the two tables: curves, and tests.

    >>> tables([])[0][1]
    []
    """
    points = survival_points(list(rows))
    result = []
    for keys in (_ERRORS, _TESTS):
        headings = ["bins", "ratio of hazards", *(_WORDS[key] for key in keys)]
        cells = [[str(each["panel"]), f"{each['ratio']:g}", *(_cell(key, each) for key in keys)] for each in points]
        result.append((headings, cells))
    return result


def _cell(key: str, point: Row) -> str:
    value = point.get(key)
    if value is None:
        return "-"
    if key == "gain":
        return f"{value:.2f}"
    return f"{value:.4f}" if key in ("factor", "histogram", "sampling", "lifelines") else f"{100 * float(value):.1f} %"


def write_survival(rows: Sequence[Row], path: Path, command: str) -> Path:
    """The page, as Markdown."""
    runs = survival_points(list(rows))[0]["runs"] if rows else 0
    curves, tests = map(_markdown, tables(rows))
    lines = [
        "# Survival",
        "",
        f"Written by `{command}`. Do not edit: run it again.",
        "",
        f"{runs:,} made-up trials of {PATIENTS:,} patients in two arms at {HOSPITALS} hospitals, each with epsilon 1 "
        f"at delta 1e-6, threshold {THRESHOLD}: a sum of sensitivity 1 has a standard error of {noise_of_sum():.2f}.",
        "",
        "## Curves",
        "",
        "The root mean square error of the curve of all patients, over all bins, against the curve without noise; the "
        "same from a noisy histogram, read the same way; how often the 95 % intervals of noise hold it, and in how "
        "many bins it is told. The sampling error is that of the curve without noise against the law from which "
        "patients are drawn, in bins, and as lifelines has it from the times themselves.",
        "",
        *curves,
        "",
        "## Log-rank tests",
        "",
        "How often p is at most 5 %: with ratio 1 this is the size of the test, which should be 5 %, and else its "
        "power. *Noise ignored* is the usual test on the noisy counts.",
        "",
        *tests,
    ]
    with replacing(path) as file:
        file.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


def _markdown(table: tuple[list[str], list[list[str]]]) -> list[str]:
    headings, cells = table
    return [f"| {' | '.join(row)} |" for row in (headings, ["---"] * len(headings), *cells)]


def print_survival(rows: Sequence[Row], console: Console) -> None:
    """The tables on the terminal."""
    for title, (headings, cells) in zip(("Survival curves", "Log-rank tests"), tables(rows), strict=True):
        table = new_table(title)
        for heading in headings:
            table.add_column(heading)
        for row in cells:
            table.add_row(*row)
        console.print(table)
