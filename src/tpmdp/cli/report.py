"""`tpmdp report`, and the check of what it wrote: results that people keep."""

from __future__ import annotations

import dataclasses
import json
import shlex
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from tpmdp.cli.options import as_flags
from tpmdp.cli.query import queries_option
from tpmdp.cli.study import check_ledger_files, read_study, record_of
from tpmdp.errors import CertificateError, InputError

if TYPE_CHECKING:
    from tpmdp.study.record import SessionRecord

_FILE: Final = click.Path(path_type=Path, readable=False)  # our own reader words the errors
_FLAGS: Final = {"ledger": "--ledger", "out": "--out", "study": "SESSION", "session": "--session", "terms": "--terms"}
_STUDY: Final = "study.toml"
_EXPORT_MAX: Final = 2 << 30


@click.command()
@click.argument("source", metavar="SESSION", type=_FILE)
@click.option("--out", required=True, type=_FILE, help="Where to write the report (.html, or .json for the record).")
@click.option(
    "--ledger",
    "ledger_files",
    multiple=True,
    type=_FILE,
    help="Ledger of a party that took part; may be given more than once. Default: a report on the plan.",
)
@click.option("--with-answer", is_flag=True, help="Put the answer in; needs the ledger of a receiver.")
@click.option("--session", type=int, help="Number of the session. Default: what the study says.")
@click.option("--terms", "terms_file", type=_FILE, help="For parties that joined with this plan, from tpmdp terms.")
@queries_option
@as_flags(_FLAGS)
def report(
    source: Path,
    out: Path,
    ledger_files: tuple[Path, ...],
    with_answer: bool,
    session: int | None,
    terms_file: Path | None,
    queries_file: Path | None,
) -> None:
    """Write a report on a SESSION for the people who must answer for it.

    SESSION is a study file, with your ledger once the session has run; the .json that tpmdp join --out wrote; a report,
    to write it anew; or the state folder of tpmdp run. The report is one file that needs no network: what is asked, who
    receives it, what is promised against whom, what it costs, and how to check all that. The answer is in it only with
    --with-answer.

    Example: tpmdp report study.toml --ledger north.ledger --out report.html
    """
    from tpmdp.report.answer_file import answer_remark, check_answer_file, write_answer_file

    check_answer_file(out, suffixes=(".html", ".json"))
    if source.suffix.lower() in (".json", ".html", ".htm"):
        for flag, value in (("--ledger", ledger_files), ("--session", session), ("--terms", terms_file)):
            if value not in ((), None):
                raise InputError(flag, "(given)", "is for study files", f"leave it out: {source} has it all")
        record = _of_record(source, queries_file, with_answer)
    else:
        record = _of_study(source, ledger_files, with_answer, session=session, terms=terms_file, queries=queries_file)
    write_answer_file(record, out)
    draft = ", a draft: not all parties have keys yet" if record.is_draft else ""
    click.echo(f"wrote {out}{answer_remark(record)}{draft}")


def _of_study(source: Path, ledgers: Sequence[Path], with_answer: bool, **options: Any) -> SessionRecord:
    if not source.is_dir():
        return record_of(source, ledgers, with_answer, **options)
    study_file = source / _STUDY
    if not study_file.exists():
        remedy = "name a study file, or the state folder of tpmdp run"
        raise InputError("SESSION", str(source), f"is a folder without {_STUDY}", remedy)
    at_hand = ledgers or tuple(_ledgers_in(source, study_file, options["queries"]))
    return record_of(study_file, at_hand, with_answer, **options)


def _ledgers_in(folder: Path, study_file: Path, queries_file: Path | None) -> Iterator[Path]:
    from tpmdp._util.party_files import party_file

    for party in read_study(study_file, None, None, queries_file=queries_file).parties:
        path = party_file(folder, party.name, ".ledger")
        if path.exists():
            yield path


def _of_record(path: Path, queries_file: Path | None, with_answer: bool) -> SessionRecord:
    """The record in a file that some tpmdp wrote, to be written anew by this one."""
    from tpmdp._version import __version__
    from tpmdp.queries.custom import load_queries
    from tpmdp.report.verify import PAGES, read_record

    read = read_record(path, load_queries(queries_file), is_page=path.suffix.lower() in PAGES)
    record = read.record
    record.check()
    if read.agrees is False:
        text = "says something else than the record inside it; the new page says what the record says"
        click.echo(f"tpmdp: the page {path} {text}", err=True)
    if with_answer and record.answers is None:
        raise InputError("--with-answer", str(path), "has no answer", "give the file of a receiver")
    answers = record.answers if with_answer else None
    return dataclasses.replace(record, answers=answers, written_by=__version__)


# tpmdp verify ---------------------------------------------------------------------------------------------------------


def print_record(
    path: Path, ledger_files: Sequence[Path], queries_file: Path | None, *, approved: str | None, as_json: bool
) -> None:
    """Check a report or a record, alone and against ledgers, and print what was proved."""
    from tpmdp.queries.custom import load_queries
    from tpmdp.report.verify import kind_of, read_record, verify_record

    read = read_record(path, load_queries(queries_file), is_page=kind_of(path) == "page")
    with as_flags({"approved": "--approved", "ledger": "--ledger"}):
        check_ledger_files(ledger_files)
        verdict = verify_record(read, ledger_files, approved)
    label, open_points = verdict.record.study.label, verdict.open_points().every
    headline = f"VALID: {label}"
    if not verdict.is_verified:
        remedy = f"write it anew with tpmdp report {shlex.quote(str(path))} --out new.html"
        headline = f"NOT VERIFIED: {label}; the record inside holds, but {verdict.why_not}: {remedy}"
    if as_json:
        outcome = {"valid": verdict.is_verified, "session": label, "plan_hash": verdict.plan_hash}
        more = {"keyless_hash": verdict.keyless_hash, "proved": list(verdict.proved), "not_proved": open_points}
        click.echo(json.dumps({**outcome, **more}))
    else:
        lines = [headline, *(f"  {text}" for text in verdict.proved)]
        lines += [f"  not checked: {text}" for text in open_points]
        lines += [] if verdict.plan_hash is None else [f"hash of study and plan {verdict.plan_hash}"]
        lines += [f"hash of the study without keys {verdict.keyless_hash}: compare with the draft that you approved"]
        click.echo("\n".join(lines))
    if not verdict.is_verified:
        raise click.exceptions.Exit(1)


def print_export(path: Path, *, as_json: bool) -> None:
    """Check an exported ledger, and print what was proved."""
    from tpmdp.ledger import LedgerError
    from tpmdp.ledger.exported import check_export
    from tpmdp.report.verify import balance_text, export_open_points, ledger_steps

    try:
        check = check_export(path, _EXPORT_MAX)
    except LedgerError as error:  # it was checked, and does not hold
        raise CertificateError(str(error)) from None
    proved = [step.text for step in ledger_steps(check.entries, check.has_noted)]
    open_points = export_open_points(check).every
    if as_json:
        outcome = {"valid": True, "entries": check.entries, "head": check.head}
        click.echo(json.dumps({**outcome, "proved": proved, "not_proved": open_points}))
        return
    lines = ["VALID: an exported ledger", *(f"  {text}" for text in proved)]
    lines += [f"  spent: {balance_text(unit, balance)}" for unit, balance in check.balances.items()]
    lines += [f"  not checked: {text}" for text in open_points]
    click.echo("\n".join([*lines, f"head {check.head}"]))
