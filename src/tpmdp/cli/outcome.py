"""The options --out and --plot of `tpmdp join` and `run`: checked before anybody pays, written after the outcome."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from tpmdp.cli.options import as_flags
from tpmdp.errors import InputError, MissingDependencyError

if TYPE_CHECKING:
    from tpmdp.study.model import Study
    from tpmdp.study.record import SessionRecord
    from tpmdp.study.release import PartyRelease

_FILE: Final = click.Path(path_type=Path, readable=False)  # our own reader words the errors
_PICTURES: Final = (".png", ".svg", ".pdf")


def outcome_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add --out and --plot."""
    out = "Write the outcome here: .json (the record), .csv (the answers) or .html (a report)."
    command = click.option("--plot", type=_FILE, help="Draw the answers with error bars here (.png, .svg or .pdf).")(
        command
    )
    return click.option("--out", type=_FILE, help=out)(command)


def check_outcome_files(out: Path | None, plot: Path | None, receives: bool) -> None:
    """Refuse, before anything is charged, files that could not be written."""
    from tpmdp._util.files import check_output

    if out is not None:
        from tpmdp.report.answer_file import check_answer_file

        with as_flags({"out": "--out"}):
            check_answer_file(out, receives)
    if plot is None:
        return
    if plot.suffix.lower() not in _PICTURES:
        raise InputError("--plot", str(plot), "must end in .png, .svg or .pdf", "rename the picture")
    if not receives:
        rule = "has nothing to draw: this party does not receive the answer"
        raise InputError("--plot", str(plot), rule, "leave it out")
    check_output(plot)
    if find_spec("matplotlib") is None:
        raise MissingDependencyError("matplotlib", "plot", "to draw pictures")


def write_outcome_files(
    study: Study,
    releases: Sequence[PartyRelease],
    out: Path | None,
    *,
    plot: Path | None,
    record: Callable[[bool], SessionRecord],
    as_json: bool,
) -> None:
    """Write what was asked for. `record` gives the record, with the answer or without."""
    answers = next((release.answers for release in releases if release.answers is not None), None)
    remarks = []
    if out is not None:
        from tpmdp.report.answer_file import answer_remark, write_answer_file

        written = record(answers is not None)
        write_answer_file(written, out)
        remarks.append(f"wrote {out}{answer_remark(written)}")
    if plot is not None and answers is not None:
        from tpmdp.report.plot_release import draw_answers

        draw_answers(study, answers, plot)
        remarks.append(f"wrote {plot}")
    for remark in remarks:
        click.echo(f"tpmdp: {remark}" if as_json else remark, err=as_json)
