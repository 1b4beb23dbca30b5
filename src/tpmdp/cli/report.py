"""`tpmdp report`, and the check of what it wrote: results that people keep."""

from __future__ import annotations

import dataclasses
import json
import shlex
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from tpmdp.cli.options import as_flags
from tpmdp.cli.query import queries_option
from tpmdp.cli.study import check_ledger_files, read_study, record_of
from tpmdp.errors import CertificateError, FileError, InputError

if TYPE_CHECKING:
    from tpmdp.queries.catalogue import Kinds
    from tpmdp.study.record import SessionRecord

_FILE: Final = click.Path(path_type=Path, readable=False)  # our own reader words the errors
_FLAGS: Final = {"ledger": "--ledger", "out": "--out", "study": "SESSION", "session": "--session", "terms": "--terms"}
_PAGES: Final = (".html", ".htm")
_STUDY: Final = "study.toml"


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
    if source.suffix.lower() in (".json", *_PAGES):
        for flag, value in (("--ledger", ledger_files), ("--session", session), ("--terms", terms_file)):
            if value not in ((), None):
                raise InputError(flag, "(given)", "is for study files", f"leave it out: {source} has it all")
        record = _of_record(source, queries_file, with_answer)
    else:
        record = _of_study(source, ledger_files, with_answer, session=session, terms=terms_file, queries=queries_file)
    write_answer_file(record, out)
    draft = ", a draft: the parties have no keys yet" if record.is_draft else ""
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

    record, same = _read_record(path, load_queries(queries_file))
    record.check()
    if same is False:
        text = "says something else than the record inside it; the new page says what the record says"
        click.echo(f"tpmdp: the page {path} {text}", err=True)
    if with_answer and record.answers is None:
        raise InputError("--with-answer", str(path), "has no answer", "give the file of a receiver")
    answers = record.answers if with_answer else None
    return dataclasses.replace(record, answers=answers, written_by=__version__)


def _read_record(path: Path, kinds: Kinds) -> tuple[SessionRecord, bool | None]:
    """The record in a file, and whether the page around it says the same; None if there is no page to compare."""
    from tpmdp.report.page import parse_record, read_page, read_text

    return read_page(path, kinds) if _is_page(path) else (parse_record(path, read_text(path), kinds), None)


def _is_page(path: Path) -> bool:
    return path.suffix.lower() in _PAGES


# tpmdp verify ---------------------------------------------------------------------------------------------------------


def is_record(path: Path) -> bool:
    """Whether a file is a report or a record, and not a plan; refuses a file that can be neither."""
    if _is_page(path):
        return True
    start = b""
    with suppress(OSError):
        if path.is_file():
            with path.open("rb") as stream:
                start = stream.read(200)
    if start.strip() and not start.lstrip().startswith((b"{", b"[")):
        remedy = "name a plan.json, a report.html or the .json of a session"
        raise FileError(path, "is neither a plan nor a report", remedy)
    return b'"tpmdp.session"' in start


def verify_record(
    path: Path, ledger_files: Sequence[Path], queries_file: Path | None, *, approved: str | None, as_json: bool
) -> None:
    """Check a report or a record, alone and against ledgers, and print what was proved."""
    from tpmdp.ledger import Ledger
    from tpmdp.queries.custom import load_queries

    record, same = _read_record(path, load_queries(queries_file))
    statements = record.check()
    if same is False:
        raise CertificateError("page violated: the page says something else than the record inside it")
    if same:
        statements.append("the page says what the record says")
    if approved is not None:
        with as_flags({"approved": "--approved"}):
            statements.append(record.check_approved(approved))
    compared = []
    with as_flags({"ledger": "--ledger"}):
        check_ledger_files(ledger_files)
        for file in ledger_files:
            with Ledger.open(file) as ledger:
                compared.append(record.check_ledger(ledger))
    statements += [text for each in compared for text in each.proved]
    open_points = record.open_points(compared, is_approved=approved is not None)
    is_verified = not _is_page(path) or bool(same)
    headline = f"VALID: {record.study.label}"
    if not is_verified:
        why = f"the page was written by tpmdp {record.written_by} and cannot be compared"
        remedy = f"write it anew with tpmdp report {shlex.quote(str(path))} --out new.html"
        headline = f"NOT VERIFIED: {record.study.label}; the record inside holds, but {why}: {remedy}"
        open_points.insert(0, why)
    plan_hash = None if record.is_draft else record.terms.plan_hash.hex()
    keyless_hash = record.terms.keyless_hash.hex()
    if as_json:
        outcome = {"valid": is_verified, "session": record.study.label, "plan_hash": plan_hash}
        more = {"keyless_hash": keyless_hash, "proved": statements, "not_proved": open_points}
        click.echo(json.dumps({**outcome, **more}))
    else:
        lines = [headline, *(f"  {text}" for text in statements), *(f"  not checked: {text}" for text in open_points)]
        lines += [] if plan_hash is None else [f"hash of study and plan {plan_hash}"]
        lines += [f"hash of the study without keys {keyless_hash}: compare with the draft that you approved"]
        click.echo("\n".join(lines))
    if not is_verified:
        raise click.exceptions.Exit(1)
