"""`tpmdp report`, and the check of what it wrote: results that people keep."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from tpmdp.cli.options import as_flags
from tpmdp.cli.query import queries_option
from tpmdp.cli.study import read_study, record_of
from tpmdp.errors import CertificateError, InputError

if TYPE_CHECKING:
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

    SESSION is a study file, with your ledger once the session has run; the .json that tpmdp join --out wrote; or the
    state folder of tpmdp run. The report is one file that needs no network: what is asked, who receives it, what is
    promised against whom, what it costs, and how to check all that. The answer is in it only with --with-answer.

    Example: tpmdp report study.toml --ledger north.ledger --out report.html
    """
    from tpmdp.report.answer_file import answer_remark, check_answer_file, write_answer_file

    check_answer_file(out, suffixes=(".html", ".json"))
    if source.suffix.lower() == ".json":
        for flag, value in (("--ledger", ledger_files), ("--session", session), ("--terms", terms_file)):
            if value not in ((), None):
                raise InputError(flag, "(given)", "is for study files", "leave it out: the .json has it all")
        record = _of_json(source, queries_file, with_answer)
    else:
        record = _of_study(source, ledger_files, with_answer, session=session, terms=terms_file, queries=queries_file)
    write_answer_file(record, out)
    click.echo(f"wrote {out}{answer_remark(record)}")


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


def _of_json(path: Path, queries_file: Path | None, with_answer: bool) -> SessionRecord:
    from tpmdp.queries.custom import load_queries
    from tpmdp.report.page import parse_record, read_text

    record = parse_record(path, read_text(path), load_queries(queries_file))
    record.check()
    if not with_answer:
        return dataclasses.replace(record, answers=None)
    if record.answers is None:
        raise InputError("--with-answer", str(path), "has no answer", "give the file of a receiver")
    return record


# tpmdp verify ---------------------------------------------------------------------------------------------------------


def is_record(path: Path) -> bool:
    """Whether a file is a report or a record, and not a plan."""
    if path.suffix.lower() in _PAGES:
        return True
    with suppress(OSError):
        if path.is_file():
            with path.open("rb") as stream:
                return b'"tpmdp.session"' in stream.read(200)
    return False


def verify_record(path: Path, ledger_files: Sequence[Path], queries_file: Path | None, as_json: bool) -> None:
    """Check a report or a record, alone and against ledgers, and print what was proved."""
    from tpmdp.ledger import Ledger
    from tpmdp.queries.custom import load_queries
    from tpmdp.report.page import parse_record, read_page, read_text

    kinds = load_queries(queries_file)
    is_page = path.suffix.lower() in _PAGES
    if is_page:
        record, same = read_page(path, kinds)
    else:
        record, same = parse_record(path, read_text(path), kinds), None
    statements = record.check()
    if same is False:
        raise CertificateError("page violated: the page says something else than the record inside it")
    if same:
        statements.append("the page says what the record says")
    compared = False
    with as_flags({"ledger": "--ledger"}):
        for file in ledger_files:
            with Ledger.open(file) as ledger:
                more = record.check_ledger(ledger)
            statements += more
            compared |= any(text.startswith("the answer is") for text in more)
    open_points = []
    if is_page and same is None:
        open_points.append(f"the page around the record: it was written by tpmdp {record.written_by}")
    if record.parties and not ledger_files:
        open_points.append("that the entries are in the parties' ledgers: give yours with --ledger")
    if not record.is_draft and not ledger_files:
        open_points.append("that this is the study you know: compare the hash with tpmdp fingerprint")
    if record.answers is not None and not compared:
        open_points.append("that this is the answer: give the ledger of a receiver with --ledger")
    if as_json:
        plan_hash = None if record.is_draft else record.terms.plan_hash.hex()
        outcome = {"valid": True, "session": record.study.label, "plan_hash": plan_hash}
        click.echo(json.dumps({**outcome, "proved": statements, "not_proved": open_points}))
        return
    lines = [f"VALID: {record.study.label}", *(f"  {text}" for text in statements)]
    lines += [f"  not checked: {text}" for text in open_points]
    if not record.is_draft:
        lines.append(f"hash of study and plan {record.terms.plan_hash.hex()}")
    click.echo("\n".join(lines))
