"""A whole study on one machine: a relay and every party in their own processes, over loopback.

Every process is the real command (`tpmdp relay`, `tpmdp join`). This module starts them and collects
what they report.
"""

from __future__ import annotations

import os
import queue
import shlex
import socket
import stat
import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Final

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from tpmdp._util.files import replacing
from tpmdp._util.party_files import party_file
from tpmdp._util.process import ChildProcess, Report, end_all
from tpmdp.data.source import find_source, read_table
from tpmdp.engines.relay.engine import relay_process
from tpmdp.errors import DeadlineError, FileError, InputError, TpmdpError, shown
from tpmdp.study.contribution import contribute
from tpmdp.study.events import SessionEvent
from tpmdp.study.identity import read_key, write_key
from tpmdp.study.model import Study
from tpmdp.study.release import PartyRelease
from tpmdp.study.session import check_room, open_or_create_ledger
from tpmdp.study.shared_job import check_installed

_GRACE_S: Final = 30.0  # past the deadline, for processes to start and stop on a busy machine
_HOST: Final = "127.0.0.1"
_JOIN_IMPORTS: Final = ("tpmdp.cli.main", "tpmdp.study.join", "tpmdp.data.source", "tpmdp.report.release")


class ChildError(TpmdpError):
    """A party's process failed; the message is what it reported."""


@dataclass(eq=False)
class _PartyProcess:
    """One party's process, and what it has reported so far."""

    name: str
    child: ChildProcess
    event: SessionEvent | None = None
    outcome: PartyRelease | None = None
    error: Report | None = None
    code: int | None = None

    def note(self, report: Report | None) -> None:
        """Take in a report of `tpmdp join --json`; None is the end of the process."""
        self.event = None
        if report is None:
            self.code = self.child.wait(0)
        elif "outcome" in report:
            self.outcome = PartyRelease.of_plain(report["outcome"])
        elif "event" in report:
            self.event = SessionEvent.of_plain(report)
        elif "error" in report:
            self.error = report

    @property
    def failed(self) -> bool:
        """Whether the process has ended with an error and without an outcome."""
        return self.code not in (None, 0) and self.outcome is None

    def failure(self) -> TpmdpError:
        """Why it failed. A passed deadline and a lost party are the deadline's errors: the session can be resumed."""
        if self.error is not None:
            resumable = self.error["kind"] == "DeadlineError" or "culprit" in self.error
            return (DeadlineError if resumable else ChildError)(f"{self.name}: {self.error['error']}")
        if self.code is not None and self.code < 0:
            return ChildError(f"{self.name}: its process was killed (signal {-self.code}): run again to resume")
        problem = shown(self.child.last_error_line() or "no outcome", 300)
        return ChildError(f"{self.name}: its process ended with code {self.code} ({problem}): run again to resume")


def run_study(
    study: Study,
    data_folder: Path,
    state: Path,
    queries: Path | None = None,
    notice: Callable[[str], None] = lambda _: None,
    on_event: Callable[[SessionEvent], None] = lambda _: None,
) -> list[PartyRelease]:
    """Run the study with data from `data_folder`/NAME.csv and keys and ledgers in `state`; in the study's order.

    `queries` is the file of custom queries, if the study has any. `notice` is called with what people should know: new
    ledgers, which bring a new budget, and queries for which none of a party's records counts. `on_event` is called with
    what the parties see happen.
    """
    check_installed(study)
    files = {member.name: find_source(data_folder, member.name) for member in study.parties if member.records}
    _make_folder(state)
    keyed = _with_keys(study if study.computation.is_sum else _on_loopback(study), state)
    _check_all(keyed, files, state, notice=notice)
    study_file = state / "study.toml"
    with replacing(study_file) as temporary:
        temporary.write_text(keyed.toml(), encoding="utf-8")
    if study.seconds_left() <= 0:
        raise DeadlineError("the deadline of the study has passed: give a later one with --deadline")
    limit = time.monotonic() + study.seconds_left() + _GRACE_S
    with ExitStack() as stack:
        url = stack.enter_context(relay_process(state / "relay.sqlite")) if study.uses_relay else ""
        children: list[ChildProcess] = []
        stack.callback(end_all, children)
        parties = []
        for member in study.parties:
            command = _join_command(study_file, member.name, state, data=files.get(member.name), url=url)
            command += ["--queries", str(queries)] if queries is not None else []
            command = ["-m", "tpmdp", *command, "--end-with-stdin"]
            children.append(ChildProcess(*command, reads_stderr=True, warm=_JOIN_IMPORTS))
            parties.append(_PartyProcess(member.name, children[-1]))
        _follow(parties, limit, study, on_event=on_event)
    return [party.outcome for party in parties if party.outcome is not None]


def _check_all(study: Study, files: dict[str, Path], state: Path, notice: Callable[[str], None]) -> None:
    """Check every party's data and ledger before any is charged: a party that refuses later would cost the others."""
    study.check_custom()
    terms = study.terms()
    for index, member in enumerate(study.parties):
        columns = study.columns_of(member.name)
        table = read_table(files[member.name], columns) if member.records else {}
        for query in contribute(study, terms, member.name, table=table).uncounted:
            text = "check the spelling of categories and conditions"
            notice(f"none of the records of {member.name} counts for {query}: {text}")
        path = party_file(state, member.name, ".ledger")
        if path.exists():
            identity = read_key(party_file(state, member.name, ".key"))
            with open_or_create_ledger(path, study, member.name, identity=identity) as ledger:
                check_room(study, terms, index, ledger=ledger)
    new = [member.name for member in study.parties if not party_file(state, member.name, ".ledger").exists()]
    if new:
        notice(f"{state} has no ledger of {shown(', '.join(new), 300)}: new ones are made, with a new budget each")


def _on_loopback(study: Study) -> Study:
    """The study with free addresses on this machine, for parties that connect to each other."""
    with ExitStack() as held:  # all open at once, so that no port is given twice
        sockets = [held.enter_context(socket.socket()) for _ in study.parties]
        for bound in sockets:
            bound.bind((_HOST, 0))
        addresses = [f"{_HOST}:{bound.getsockname()[1]}" for bound in sockets]
    placed = zip(study.parties, addresses, strict=True)
    return replace(study, parties=tuple(replace(member, address=address) for member, address in placed))


def _make_folder(state: Path) -> None:
    try:
        state.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise FileError(state, f"cannot be created ({error.strerror})", "choose another folder for the state") from None
    if os.name == "posix":
        _check_private(state)


def _check_private(state: Path) -> None:
    """Refuse a folder in which others could replace keys and ledgers."""
    folder = state.stat()
    if {folder.st_uid, state.lstat().st_uid} != {os.geteuid()}:  # of the folder, and of a link to it
        raise FileError(state, "belongs to somebody else", "choose another folder for the state")
    if folder.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        remedy = f"run chmod go-w {shlex.quote(str(state))} if nobody has changed it, or choose another folder"
        raise FileError(state, "can be written to by others", remedy)


def _with_keys(study: Study, state: Path) -> Study:
    """The study with the keys in the state folder; missing keys are created."""
    keys = {}
    for member in study.parties:
        path = party_file(state, member.name, ".key")
        if not path.exists():
            if member.public_key is not None:
                remedy = f"put its key file at {path}, or leave public_key out to have one created"
                raise InputError(f"public_key of {member.name}", "(set)", "has no key file here", remedy)
            write_key(path, Ed25519PrivateKey.generate())
        public = read_key(path).public_key().public_bytes_raw()
        if member.public_key not in (None, public):
            remedy = f"put the right key file at {path}"
            raise InputError(f"public_key of {member.name}", "(set)", "does not fit its key file", remedy)
        keys[member.name] = public
    return study.with_keys(keys)


def _join_command(study_file: Path, name: str, state: Path, data: Path | None, url: str) -> list[str]:
    command = ["join", str(study_file), "--as", name, "--key", str(party_file(state, name, ".key")), "--json"]
    command += ["--relay", url] if url else []
    command += ["--ledger", str(party_file(state, name, ".ledger"))]
    return command + (["--data", str(data)] if data is not None else [])


# Following ------------------------------------------------------------------------------------------------------------


def _follow(
    parties: list[_PartyProcess], limit: float, study: Study, *, on_event: Callable[[SessionEvent], None]
) -> None:
    """Take in reports until all parties are done. The first failure ends the run, unless that party may drop out."""
    reports: queue.SimpleQueue[tuple[_PartyProcess, Report | None]] = queue.SimpleQueue()

    def put(party: _PartyProcess, report: Report | None) -> None:
        reports.put((party, report))

    for party in parties:
        party.child.follow(partial(put, party))
    running = len(parties)
    while running and not _answered(parties):
        try:
            party, report = reports.get(timeout=max(0.0, limit - time.monotonic()))
        except queue.Empty:
            slow = ", ".join(party.name for party in parties if party.outcome is None)
            raise DeadlineError(f"the deadline passed with no outcome from {slow}: run again to resume") from None
        party.note(report)
        running -= report is None
        if party.event is not None:
            on_event(party.event)
        _check(parties, study)
    if not _answered(parties):
        raise next(party for party in parties if party.outcome is None).failure()


def _answered(parties: list[_PartyProcess]) -> bool:
    """Whether every party has its outcome, except those that dropped out."""
    outcome = next((party.outcome for party in parties if party.outcome is not None), None)
    return outcome is not None and all(party.outcome is not None or party.name in outcome.missing for party in parties)


def _check(parties: list[_PartyProcess], study: Study) -> None:
    """Raise the error of a party that failed and may not drop out: waiting for it has no point."""
    lead = next(member.name for member in study.parties if member.name in study.receivers)
    failed = [party for party in parties if party.failed]
    may_drop = [party for party in failed if party.name != lead]
    dropped = may_drop if len(may_drop) <= study.tolerate else []
    for party in failed:
        if party not in dropped:
            raise party.failure()
