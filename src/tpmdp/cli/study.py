"""`tpmdp terms`, `fingerprint`, `join` and `run`: studies on the command line."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Sequence
from contextlib import ExitStack
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from tpmdp.cli.events import events_option, showing
from tpmdp.cli.options import as_flags, is_supervised, supervised
from tpmdp.cli.outcome import check_outcome_files, outcome_options, write_outcome_files
from tpmdp.cli.query import queries_option
from tpmdp.errors import InputError

if TYPE_CHECKING:
    from tpmdp.protocol.terms import Terms
    from tpmdp.study.model import Study
    from tpmdp.study.record import SessionRecord
    from tpmdp.study.release import PartyRelease

_FILE: Final = click.Path(path_type=Path, readable=False)  # our own reader words the errors
_TERMS_MAX: Final = 64 << 20
_LEDGER_MAX: Final = 1 << 44
_UNFINISHED: Final = 3  # exit code, as of a deadline that passed
_SQLITE: Final = b"SQLite format 3\0"
_JOIN_FLAGS: Final = {"party": "--as", "relay": "--relay", "listen": "--listen", "ledger": "--ledger", "data": "--data"}


@click.command()
@click.argument("study_file", metavar="STUDY", type=_FILE)
@click.option("--as", "name", required=True, help="Which party of the study you are.")
@click.option("--key", "key_file", required=True, type=_FILE, help="Your key file, from tpmdp keygen.")
@click.option(
    "--data", "data_file", type=_FILE, help="Your records: a .csv or .parquet file, or a .toml that says where."
)
@click.option(
    "--relay",
    "url",
    help="Address of the relay, such as https://relay.example.org. Studies of sums, or with sum_through.",
)
@click.option("--listen", help="Wait for other parties here instead (host:port; not for studies of sums).")
@click.option("--ledger", "ledger_file", type=_FILE, help="Your ledger. Default: the key file's name with .ledger.")
@click.option("--session", type=int, help="Number of the session. Default: what the study says.")
@click.option("--deadline", help="Stop waiting then: 90s, 10m, 2h or a date and time. Default: what the study says.")
@click.option("--terms", "terms_file", type=_FILE, help="Sign this plan, from tpmdp terms, if it keeps your budget.")
@click.option(
    "--peers", "peers_file", type=_FILE, help="Names and public keys that you know. Default: peers.toml beside the key."
)
@queries_option
@click.option("--ca", "authority", type=_FILE, help="Certificate to trust for the relay, if it is not a public one.")
@click.option("--plain-http", is_flag=True, help="Do without TLS to a relay on another machine.")
@outcome_options
@click.option("--json", "as_json", is_flag=True, help="Print the outcome as JSON.")
@events_option
@supervised
@as_flags(_JOIN_FLAGS)
def join(
    study_file: Path,
    name: str,
    key_file: Path,
    data_file: Path | None,
    url: str | None,
    listen: str | None,
    ledger_file: Path | None,
    session: int | None,
    deadline: str | None,
    terms_file: Path | None,
    peers_file: Path | None,
    queries_file: Path | None,
    authority: Path | None,
    plain_http: bool,
    out: Path | None,
    plot: Path | None,
    as_json: bool,
    events: str | None,
) -> None:
    """Take part in a STUDY as one party.

    Room is set aside in your ledger when you agree. It is charged when all parties have agreed, before anything leaves
    that depends on your data. A session that was interrupted is resumed by the same command; one that is finished gives
    the same answer again, without a charge.

    Exit codes: 0 done; 2 refused or bad input; 3 the deadline passed or a party was lost, and which; also where a study
    by rounds has stopped before the last one: its result so far is printed, and the same command goes on.
    """
    from tpmdp.report.progress import PartyProgress
    from tpmdp.study.party_folder import PartyFiles

    study = read_study(study_file, session, deadline, queries_file=queries_file)
    study.index(name)  # refuses a party that is not in the study
    check_outcome_files(out, plot, name in study.receivers)
    files = PartyFiles(
        study,
        name,
        key_file,
        data=data_file,
        ledger=ledger_file,
        peers=peers_file,
        terms=None if terms_file is None else cache(lambda: read_terms(terms_file)),
    )

    def notice(text: str) -> None:
        click.echo(f"tpmdp: {text}", err=True)

    warns = not is_supervised()
    with (
        files.begin(study_file, url, plain_http=plain_http, warns_of_author=warns, notice=notice) as party,
        showing(events, as_json, PartyProgress()) as on_event,
    ):
        release = party.take_part(on_event, certificate_authority=authority, listen=listen)
    _print_outcome(study, release, as_json)
    write_outcome_files(study, [release], out, plot=plot, record=files.record, as_json=as_json)
    _exit_if_stopped([release])


def _exit_if_stopped(releases: Sequence[PartyRelease]) -> None:
    if any(release.is_stopped for release in releases):
        raise click.exceptions.Exit(_UNFINISHED)


def _print_outcome(study: Study, release: PartyRelease, as_json: bool) -> None:
    if as_json:
        click.echo(json.dumps({"outcome": release.plain()}, allow_nan=False))
        return
    from tpmdp.cli.output import print_with
    from tpmdp.report.release import print_releases

    print_with(lambda console: print_releases(study, [release], console))


@click.command()
@click.argument("study_file", metavar="STUDY", type=_FILE)
@click.option("--session", type=int, help="Number of the session. Default: what the study says.")
@click.option("--out", type=_FILE, required=True, help="Where to write the terms.")
@queries_option
def terms(study_file: Path, session: int | None, out: Path, queries_file: Path | None) -> None:
    """Write the terms that all parties of a STUDY sign, with the noise plan, to a file for tpmdp join --terms.

    Only needed where parties compute different plans, for instance with different versions of libraries.
    """
    from tpmdp._util.files import replacing

    text = read_study(study_file, session, None, queries_file=queries_file).terms().canonical()
    with replacing(out) as temporary:
        temporary.write_text(text, encoding="utf-8")
    click.echo(f"wrote {out}")


@click.command()
@click.argument("study_file", metavar="STUDY", type=_FILE)
@click.option("--session", type=int, help="Number of the session. Default: what the study says.")
@click.option("--terms", "terms_file", type=_FILE, help="For parties that join with this plan, from tpmdp terms.")
@queries_option
@click.option("--json", "as_json", is_flag=True, help="Print JSON instead of lines.")
def fingerprint(
    study_file: Path, session: int | None, terms_file: Path | None, queries_file: Path | None, as_json: bool
) -> None:
    """Print a phrase that stands for all that the parties of a STUDY sign, to compare by telephone.

    Parties with the same phrase have the same parties, keys, budgets, queries and noise plan; deadlines and addresses
    may differ. Below the phrase are the parties' names and public keys, as lines for a peers file.

    The hash without keys is the same before the parties have keys and afterwards: compare it with the draft that was
    approved. As long as a key is missing, it is all that is printed.
    """
    from tpmdp.study.expectation import trial_terms
    from tpmdp.study.fingerprint import phrase_of
    from tpmdp.study.identity import public_key_text
    from tpmdp.study.peers import peer_line

    study = read_study(study_file, session, None, queries_file=queries_file)
    keys = {party.name: party.public_key for party in study.parties if party.public_key is not None}
    lacking = [party.name for party in study.parties if party.public_key is None]
    given = trial_terms(study) if lacking else study.terms()
    if terms_file is not None:
        given = read_terms(terms_file)
        study.check_terms(given)
    phrase = None if lacking else phrase_of(given.plan_hash)
    plan_hash = None if lacking else given.plan_hash.hex()
    if as_json:
        texts = {name: public_key_text(key) for name, key in keys.items()}
        shown = {"study": study.label, "phrase": phrase, "plan_hash": plan_hash}
        click.echo(json.dumps({**shown, "keyless_hash": given.keyless_hash.hex(), "parties": texts}))
        return
    keyless = f"hash of the study without keys: {given.keyless_hash.hex()}"
    if phrase is None:
        lines = [keyless, f"The ten words need the keys of all parties; missing: {', '.join(lacking)}."]
    else:
        lines = [f"phrase: {' '.join(phrase)}", f"hash:   {plan_hash}", keyless]
    click.echo("\n".join([study.label, *lines, "", *(peer_line(name, key) for name, key in keys.items())]).rstrip())


def read_terms(path: Path) -> Terms:
    """Terms from a file that may come from anybody."""
    from tpmdp._util.files import readable
    from tpmdp.errors import FileError
    from tpmdp.protocol.terms import Terms

    with readable(path, _TERMS_MAX):
        data = path.read_bytes()
    try:
        return Terms.parse(data.decode("utf-8"))
    except (UnicodeDecodeError, InputError):
        raise FileError(
            path, "does not hold the terms of a session", "make it with tpmdp terms STUDY --out FILE"
        ) from None


def read_study(path: Path, session: int | None, deadline: str | None, queries_file: Path | None) -> Study:
    """The study in a file, with what options change."""
    from tpmdp.queries.custom import load_queries
    from tpmdp.study.file import parse_deadline
    from tpmdp.study.model import Study

    study = Study.read(path, load_queries(queries_file))
    if session is not None:
        study = study.with_session(session)
    if deadline is not None:
        study = dataclasses.replace(study, deadline=parse_deadline(deadline))
    return study


def check_ledger_files(paths: Sequence[Path]) -> None:
    """Refuse files other than ledgers; none of them may be open in this process."""
    from tpmdp._util.files import readable
    from tpmdp.errors import FileError

    for path in paths:
        with readable(path, _LEDGER_MAX), path.open("rb") as stream:
            if stream.read(len(_SQLITE)) != _SQLITE:
                raise FileError(path, "is not a ledger", "give the ledger of a party that took part")


def record_of(
    study_file: Path,
    ledgers: Sequence[Path],
    with_answer: bool,
    *,
    queries: Path | None,
    session: int | None = None,
    terms: Path | None = None,
) -> SessionRecord:
    """The record of a session from the study and the ledgers on disk."""
    from tpmdp.ledger import Ledger
    from tpmdp.study.record import SessionRecord

    study = read_study(study_file, session, None, queries_file=queries)
    given = None if terms is None else read_terms(terms)
    check_ledger_files(ledgers)
    with ExitStack() as stack:
        opened = [stack.enter_context(Ledger.open(path)) for path in ledgers]
        return SessionRecord.of(study, opened, given, with_answer=with_answer)


@click.command()
@click.argument("study_file", metavar="STUDY", type=_FILE)
@click.option(
    "--data",
    "data_folder",
    type=_FILE,
    help="Folder with NAME.csv, .parquet or .toml. Default: trial beside the study, or the study's.",
)
@click.option(
    "--state",
    "state_folder",
    type=_FILE,
    help="Folder for keys, ledgers and the relay. Default: trial beside the study, or tpmdp-state.",
)
@click.option("--session", type=int, help="Number of the session. Default: what the study says.")
@click.option("--deadline", help="Stop waiting then. Default: what the study says.")
@queries_option
@outcome_options
@click.option("--json", "as_json", is_flag=True, help="Print JSON instead of tables.")
@events_option
def run(
    study_file: Path,
    data_folder: Path | None,
    state_folder: Path | None,
    session: int | None,
    deadline: str | None,
    queries_file: Path | None,
    out: Path | None,
    plot: Path | None,
    as_json: bool,
    events: str | None,
) -> None:
    """Run a whole STUDY on this machine: a relay, and every party in its own process.

    Missing keys are created. Ledgers and keys stay in the state folder. The same session again costs nothing and
    gives the same answer; --session 2 is a new one, with a new charge, if the ledgers have room for it.
    """
    from tpmdp._util.party_files import TRIAL
    from tpmdp.data.columns import ColumnError
    from tpmdp.report.progress import RunProgress
    from tpmdp.study.local_run import run_study

    study = read_study(study_file, session, deadline, queries_file=queries_file)
    check_outcome_files(out, plot, receives=True)
    trial = study_file.parent / TRIAL  # from tpmdp init
    beside, at_hand = (trial, trial) if trial.is_dir() else (study_file.parent, Path("tpmdp-state"))
    folder = data_folder if data_folder is not None else beside
    state = state_folder if state_folder is not None else at_hand
    if state == trial:
        study = study.without_keys()  # a trial has keys of its own

    def notice(text: str) -> None:
        click.echo(f"tpmdp: {text}", err=True)

    with showing(events, as_json, RunProgress([party.name for party in study.parties])) as on_event:
        try:
            releases = run_study(study, folder, state, queries=queries_file, notice=notice, on_event=on_event)
        except ColumnError as error:
            if folder != trial:
                raise
            again = f"{error.remedy}; or make a new trial with tpmdp init {study_file.parent} --again"
            raise ColumnError(Path(str(error.path)), error.column, error.problem, remedy=again) from None
    _print_outcomes(study, releases, as_json)

    def record(with_answer: bool) -> SessionRecord:
        from tpmdp._util.party_files import party_file

        ledgers = [party_file(state, release.party, ".ledger") for release in releases]
        return record_of(state / "study.toml", ledgers, with_answer, queries=queries_file)

    write_outcome_files(study, releases, out, plot=plot, record=record, as_json=as_json)
    _exit_if_stopped(releases)


def _print_outcomes(study: Study, releases: list[PartyRelease], as_json: bool) -> None:
    if as_json:
        weights = dict(zip(study.party_records, study.weights.each.tolist(), strict=True))
        more = {} if study.weights.are_equal else {"weights": weights}
        click.echo(json.dumps({"parties": [release.plain() for release in releases], **more}, allow_nan=False))
        return
    from tpmdp.cli.output import print_with
    from tpmdp.report.release import print_releases

    print_with(lambda console: print_releases(study, releases, console))
