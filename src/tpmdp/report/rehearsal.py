"""Tables: how the answers of a study came out in a rehearsal."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tpmdp.report.numbers import number, plain_number, plural, rounded
from tpmdp.report.tables import add_numbers, new_table

if TYPE_CHECKING:
    from rich.console import Console

    from tpmdp.study.rehearsal import Rehearsal, RehearsedAnswer

_NONE = "-"


def print_rehearsal(rehearsal: Rehearsal, console: Console) -> None:
    """One line per answer: its true value, its errors, and how often its interval held the truth."""
    from rich.markup import escape

    study, runs = rehearsal.study, rehearsal.runs
    data = "synthetic tables that were given" if rehearsal.seed is None else "made-up tables"
    table = new_table(escape(f"Rehearsal of {study.label}: {runs:,} runs on {data}"), "answer")
    add_numbers(table, "true\nvalue", "root mean\nsquare error", "stated\nin runs", "expected\nbefore")
    add_numbers(table, "95 % interval\nholds the truth", "cannot\nbe told")
    for answer in rehearsal.answers:
        error = answer.error or 0.0
        cells = [answer.label, rounded(answer.truth, error), *map(_number, (answer.error, answer.stated))]
        cells += [_number(answer.expected), coverage_text(answer), _share(answer.hidden, answer.runs)]
        table.add_row(*map(escape, cells))
    table.caption = escape(
        f"Errors are standard errors; {plural(runs, 'run')} measure one to about {100 / (2 * runs) ** 0.5:.2g} %. In "
        "brackets: an exact 95 % interval for the share. Expected: by tpmdp query explain, for likely data."
    )
    console.print(table)
    for answer in rehearsal.answers:
        if answer.covers_less:
            text = f"{answer.label}: its interval holds the truth clearly less often than 95 % for these tables."
            console.print(escape(text))
    assumes = f" With weights, answers assume: {study.assumes}." if study.assumes else ""
    console.print(escape(f"The protocol and the noise were real, the data were not; nobody was charged.{assumes}"))


def coverage_text(answer: RehearsedAnswer) -> str:
    """How often intervals held the truth."""
    if answer.coverage is None:
        return "no interval"
    share, low, high = (100 * each for each in answer.coverage)
    return f"{share:.1f} % ({low:.1f} to {high:.1f})"


def _number(value: float | None) -> str:
    return _NONE if value is None else number(value)


def _share(count: int, runs: int) -> str:
    return f"{100 * count / runs:.3g} %" if count else _NONE


def rehearsal_json(rehearsal: Rehearsal) -> dict[str, Any]:
    """The same as plain JSON values."""
    return {
        "study": rehearsal.study.label,
        "runs": rehearsal.runs,
        "seed": rehearsal.seed,
        "data": "given" if rehearsal.seed is None else "made up",
        "answers": [
            {
                "query": answer.query,
                "part": answer.part,
                "truth": plain_number(answer.truth) if answer.truth == answer.truth else None,
                "root_mean_square_error": answer.error,
                "mean_error": answer.bias,
                "stated": answer.stated,
                "expected": answer.expected,
                "intervals": answer.intervals,
                "covered": answer.covered,
                "coverage": None if answer.coverage is None else list(answer.coverage),
                "covers_less": answer.covers_less,
                "cannot_be_told": answer.hidden,
            }
            for answer in rehearsal.answers
        ],
    }
