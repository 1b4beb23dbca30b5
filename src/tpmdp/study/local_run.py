"""A whole study on one machine: a relay and every party as a process of its own, over loopback.

Every process is the real command (`tpmdp relay`, `tpmdp join`); this module starts them, shows how far they are and
collects what they say.
"""

from __future__ import annotations

import json
import queue
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, nullcontext, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from tpmdp._util.files import replacing
from tpmdp._util.process import python_command, python_environment
from tpmdp.data.source import find_source, read_table
from tpmdp.errors import DeadlineError, FileError, InputError, TpmdpError, shown
from tpmdp.study.contribution import contribute
from tpmdp.study.identity import read_key, write_key
from tpmdp.study.model import Study
from tpmdp.study.release import PartyRelease
from tpmdp.study.session import check_room, open_or_create_ledger

_GRACE_S: Final = 30.0  # past the deadline, for processes to start and stop on a busy machine
_STOP_S: Final = 5.0
_HOST: Final = "127.0.0.1"
_DEADLINE_CODE: Final = 3


class ChildError(TpmdpError):
    """A party's process failed; the message is what it said."""


@dataclass(eq=False)
class _Child:
    """One party's process and what is known of it."""

    name: str
    process: subprocess.Popen[str]
    step: str = "starting"
    sent: int = 0
    waiting_for: list[str] = field(default_factory=list)
    outcome: PartyRelease | None = None
    complaint: str = ""
    code: int | None = None


def run_study(
    study: Study,
    data_folder: Path,
    state: Path,
    queries: Path | None = None,
    warn: Callable[[str, str], None] = lambda *_: None,
) -> list[PartyRelease]:
    """Run the study with data from `data_folder`/NAME.csv and keys and ledgers in `state`; in the study's order.

    `queries` is the file of queries of your own, if the study has any; `warn` hears of a party and a query for which
    none of its records counts.
    """
    files = {member.name: find_source(data_folder, member.name) for member in study.parties if member.records}
    _make_folder(state)
    keyed = _with_keys(study if study.computation.uses_relay else _on_loopback(study), state)
    _check_all(keyed, files, state, warn)
    study_file = state / "study.toml"
    with replacing(study_file) as temporary:
        temporary.write_text(keyed.toml(), encoding="utf-8")
    if study.seconds_left() <= 0:
        raise DeadlineError("the deadline of the study has passed: give a later one with --deadline")
    limit = time.monotonic() + study.seconds_left() + _GRACE_S
    with _processes() as started, _relay(state, started) if study.computation.uses_relay else nullcontext("") as url:
        children = []
        for member in study.parties:
            command = _join_command(study_file, member.name, state, files.get(member.name), url)
            command += ["--queries", str(queries)] if queries is not None else []
            children.append(_Child(member.name, _start(command, started)))
        _follow(children, limit, study)
    return [child.outcome for child in children if child.outcome is not None]


def _check_all(study: Study, files: dict[str, Path], state: Path, warn: Callable[[str, str], None]) -> None:
    """Everybody's data and ledger, before anybody is charged: a party that refuses later would cost the others."""
    study.check_custom()
    terms = study.terms()
    for index, member in enumerate(study.parties):
        columns = study.columns_of(member.name)
        table = read_table(files[member.name], columns) if member.records else {}
        for query in contribute(study, terms, member.name, table).uncounted:
            warn(member.name, query)
        path = state / f"{member.name}.ledger"
        if path.exists():
            with open_or_create_ledger(path, study, member.name) as ledger:
                check_room(study, terms, index, ledger)


def _on_loopback(study: Study) -> Study:
    """The same study with free addresses on this machine, where parties connect to each other."""
    with ExitStack() as held:  # all at once, so that none is given twice
        sockets = [held.enter_context(socket.socket()) for _ in study.parties]
        for one in sockets:
            one.bind((_HOST, 0))
        addresses = [f"{_HOST}:{one.getsockname()[1]}" for one in sockets]
    placed = zip(study.parties, addresses, strict=True)
    return replace(study, parties=tuple(replace(member, address=address) for member, address in placed))


def _make_folder(state: Path) -> None:
    try:
        state.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise FileError(state, f"cannot be made ({error.strerror})", "choose another --state folder") from None


def _with_keys(study: Study, state: Path) -> Study:
    """Keys from the state folder; those the study lacks are made."""
    keys = {}
    for member in study.parties:
        path = state / f"{member.name}.key"
        if not path.exists():
            if member.public_key is not None:
                remedy = f"put its key file at {path}, or leave public_key out to have one made"
                raise InputError(f"public_key of {member.name}", "(set)", "has no key file here", remedy)
            write_key(path, Ed25519PrivateKey.generate())
        public = read_key(path).public_key().public_bytes_raw()
        if member.public_key not in (None, public):
            remedy = f"put the right key file at {path}"
            raise InputError(f"public_key of {member.name}", "(set)", "does not fit its key file", remedy)
        keys[member.name] = public
    return study.with_keys(keys)


def _join_command(study_file: Path, name: str, state: Path, data: Path | None, url: str) -> list[str]:
    command = ["join", str(study_file), "--as", name, "--key", str(state / f"{name}.key"), "--json"]
    command += ["--relay", url] if url else []
    command += ["--ledger", str(state / f"{name}.ledger")]
    return command + (["--data", str(data)] if data is not None else [])


def _start(arguments: list[str], started: list[subprocess.Popen[str]]) -> subprocess.Popen[str]:
    process = subprocess.Popen(  # noqa: S603
        python_command("-m", "tpmdp", *arguments, "--end-with-stdin"),
        env=python_environment(),
        stdin=subprocess.PIPE,  # it ends when we do, even if we are killed
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        encoding="utf-8",
        errors="replace",
    )
    started.append(process)
    return process


@contextmanager
def _processes() -> Iterator[list[subprocess.Popen[str]]]:
    """Whatever happens, no process outlives us."""
    started: list[subprocess.Popen[str]] = []
    try:
        yield started
    finally:
        for process in started:
            with suppress(OSError):
                process.terminate()
        for process in started:
            try:
                process.wait(_STOP_S)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
            for stream in (process.stdin, process.stdout, process.stderr):
                if stream is not None:
                    with suppress(OSError):
                        stream.close()


@contextmanager
def _relay(state: Path, started: list[subprocess.Popen[str]]) -> Iterator[str]:
    process = _start(["relay", "--port", "0", "--store", str(state / "relay.sqlite")], started)
    assert process.stdout is not None
    assert process.stderr is not None
    timer = threading.Timer(_GRACE_S, process.kill)
    timer.start()
    line = process.stdout.readline()
    timer.cancel()
    if "http" not in line:
        problem = " ".join(process.stderr.read().split()) or "it ended without a word"
        raise ChildError(f"the relay did not start ({shown(problem, 300)}): check the --state folder")
    drain = [threading.Thread(target=stream.read, daemon=True) for stream in (process.stdout, process.stderr)]
    for thread in drain:
        thread.start()
    yield line.split()[-1]


# Following ------------------------------------------------------------------------------------------------------------


def _follow(children: list[_Child], limit: float, study: Study) -> None:
    """Read what the processes say until all are done; the first failure stops the others, if it may not drop out."""
    said: queue.Queue[tuple[_Child, str, str]] = queue.Queue()
    readers = [
        threading.Thread(target=_read, args=(child, source, said), daemon=True)
        for child in children
        for source in ("stdout", "stderr")
    ]
    for reader in readers:
        reader.start()
    open_streams = len(readers)
    with _table(children) as refresh:
        while open_streams and not _answered(children):
            try:
                child, source, line = said.get(timeout=0.2)
            except queue.Empty:
                if time.monotonic() > limit:
                    slow = ", ".join(one.name for one in children if one.outcome is None)
                    raise DeadlineError(
                        f"the deadline passed with no outcome from {slow}: run again to resume"
                    ) from None
                continue
            if line:
                _note(child, source, line)
            else:
                open_streams -= 1
                if source == "stdout":
                    child.code = child.process.wait()
            refresh()
            _check(children, study)
    if not _answered(children):
        for reader in readers:
            reader.join(_STOP_S)
    for child in children:
        if child.outcome is None and not _answered(children):
            raise ChildError(f"{child.name}: its process ended without a word (code {child.code}): run again to resume")


def _read(child: _Child, source: str, said: queue.Queue[tuple[_Child, str, str]]) -> None:
    stream = getattr(child.process, source)
    with suppress(ValueError, OSError):  # closed under us when all is stopped
        for line in stream:
            said.put((child, source, line))
    said.put((child, source, ""))


def _note(child: _Child, source: str, line: str) -> None:
    if source == "stderr":
        if not line.startswith(("tpmdp: made a new ledger", "tpmdp: none of the ")):
            child.complaint = line.strip().removeprefix("tpmdp: ")
        return
    try:
        told: dict[str, Any] = json.loads(line)
    except ValueError:
        return
    if "outcome" in told:
        child.outcome = PartyRelease.of_plain(told["outcome"])
        child.step, child.sent, child.waiting_for = "done", child.outcome.bytes_sent, []
    else:
        child.step, child.sent, child.waiting_for = told["step"], told["sent"], told["waiting_for"]


def _answered(children: list[_Child]) -> bool:
    """Whether all who are counted are done; the others dropped out."""
    told = next((child.outcome for child in children if child.outcome is not None), None)
    return told is not None and all(child.outcome is not None or child.name in told.missing for child in children)


def _check(children: list[_Child], study: Study) -> None:
    """A party that refused will not come: there is no point in waiting. One that was late speaks for all."""
    lead = next(member.name for member in study.parties if member.name in study.receivers)
    gone = [child for child in children if child.code not in (None, 0) and child.name != lead]
    dropped = gone if len(gone) <= study.tolerate else []
    for child in children:
        if child.code in (None, 0) or child in dropped:
            continue
        if child.code is not None and child.code < 0:
            raise ChildError(f"{child.name}: its process was killed (signal {-child.code}): run again to resume")
        if child.complaint:
            kind = DeadlineError if child.code == _DEADLINE_CODE else ChildError
            raise kind(f"{child.name}: {child.complaint}")


@contextmanager
def _table(children: list[_Child]) -> Iterator[Any]:
    """A live table on a terminal; silence in a pipe."""
    if not sys.stderr.isatty():
        yield lambda: None
        return
    from rich.console import Console
    from rich.live import Live
    from rich.table import Table

    def draw() -> Table:
        table = Table(title="Parties at work", title_justify="left")
        for heading in ("party", "step", "waiting for", "bytes sent"):
            table.add_column(heading, overflow="fold", justify="right" if "bytes" in heading else "left")
        for child in children:
            waiting = ", ".join(child.waiting_for[:3]) + (" ..." if len(child.waiting_for) > 3 else "")
            table.add_row(child.name, child.step, waiting, f"{child.sent:,}" if child.sent else "")
        return table

    with Live(draw(), console=Console(stderr=True), transient=True, auto_refresh=False) as live:
        yield lambda: live.update(draw(), refresh=True)
