"""A consortium for fault tests: real files, a real relay and real party processes that a test can harm."""

from __future__ import annotations

import json
import socket
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx

from tests.patience import HANG_S
from tests.processes import Process
from tpmdp.ledger import Ledger
from tpmdp.protocol.messages import Kind
from tpmdp.protocol.terms import Terms
from tpmdp.queries.custom import load_queries
from tpmdp.study.identity import public_text, read_key, write_key
from tpmdp.study.model import Study

NAMES = ("north", "south", "lab")  # north leads, lab receives too, south gets a receipt
RECORDS = {"north": [70, 20, 66, 41], "south": [65, 10, 99], "lab": [80, 64]}
TRUTH = 5  # ages of at least 65
SABOTEUR = "tests.faults.saboteur"
DATA_KINDS = (Kind.SUBMIT, Kind.RESULT, Kind.RECEIPT, Kind.REVEAL)  # what leaves only after a charge


@dataclass
class Ended:
    code: int
    lines: list[dict[str, Any]]
    errors: str
    events: list[dict[str, Any]]

    @property
    def outcome(self) -> dict[str, Any]:
        outcome: dict[str, Any] = self.lines[-1]["outcome"]
        return outcome


class Consortium:
    """Three parties in a folder."""

    def __init__(
        self, folder: Path, guarantee: str = "computational", *, queries_file: Path | None = None, **changes: Any
    ) -> None:
        self.folder = folder
        self.queries_file = queries_file
        self.processes: list[Process] = []
        self.port = free_port()
        self.study_file = folder / "study.toml"
        from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

        for name, ages in RECORDS.items():
            self.data(name).write_text("age\n" + "\n".join(map(str, ages)) + "\n")
            write_key(self.key(name), Ed25519PrivateKey.generate())
        document: dict[str, Any] = {
            "name": "faults",
            "threshold": 1,
            "receivers": ["north", "lab"],
            "delta": 1e-6,
            "guarantee": guarantee,
            "deadline": "30m",
            "parties": [
                {
                    "name": name,
                    "epsilon": 1.0 + place,
                    "records": len(RECORDS[name]),
                    "public_key": public_text(read_key(self.key(name))),
                }
                for place, name in enumerate(NAMES)
            ],
            "queries": [{"name": "old", "kind": "count", "column": "age", "at_least": 65}],
            **changes,
        }
        self.study = Study.parse(document, load_queries(queries_file))
        self.study_file.write_text(self.study.toml())

    def __enter__(self) -> Consortium:
        return self

    def __exit__(self, *_: object) -> None:
        for process in self.processes:
            process.kill()
            process.wait()
            process.close()

    # Files

    def key(self, name: str) -> Path:
        return self.folder / f"{name}.key"

    def data(self, name: str) -> Path:
        return self.folder / f"{name}.csv"

    def ledger_file(self, name: str) -> Path:
        return self.folder / f"{name}.ledger"

    @property
    def store(self) -> Path:
        return self.folder / "relay.sqlite"

    @property
    def terms(self) -> Terms:
        return self.study.terms()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    # Processes

    def start(self, *arguments: str, harm: tuple[str, ...] = ()) -> Process:
        program = [SABOTEUR, *harm, "--"] if harm else ["tpmdp"]
        process = Process(*program, *arguments)
        self.processes.append(process)
        return process

    def relay(self, *harm: str) -> Process:
        arguments = ["relay", "--port", str(self.port), "--store", str(self.store)]
        process = self.start(*arguments, harm=harm)
        assert "listening" in process.line()
        return process

    def join(self, name: str, *more: str, harm: tuple[str, ...] = (), study: Path | None = None) -> Any:
        arguments = ["join", str(study or self.study_file), "--as", name, "--key", str(self.key(name))]
        arguments += ["--data", str(self.data(name)), "--relay", self.url, "--json", *more]
        arguments += [] if self.queries_file is None else ["--queries", str(self.queries_file)]
        return self.start(*arguments, harm=harm)

    def join_until(self, event: Path, name: str) -> Any:
        """A party whose deadline passes when `event` exists and it has read all that was sent to it."""
        return self.join(name, harm=(f"late:{event}",))

    def join_all(self, *more: str) -> list[Process]:
        return [self.join(name, *more) for name in NAMES]

    # What must hold whatever happened

    def check_ledgers(self) -> None:
        """A party that sent what depends on data was charged, once; one that sent anything has a hold."""
        senders = self.senders()
        submitted = {sender for sender, kind, _ in self._messages() if kind in DATA_KINDS}
        for place, name in enumerate(NAMES):
            if not self.ledger_file(name).exists():
                assert place not in senders
                continue
            with Ledger.open(self.ledger_file(name)) as ledger:
                ledger.verify()
                session = self.terms.session.hex()
                entries = [entry for entry in ledger.entries() if entry.session == session]
                if place in senders:
                    assert entries
                count = sum(entry.is_charge for entry in entries)
                assert count == 1 if place in submitted else count <= 1
                if count:
                    assert ledger.spent().mu >= self.terms.charge(place)[0]

    def senders(self) -> set[int]:
        """The parties whose messages the relay holds."""
        return {sender for sender, _, _ in self._messages()}

    def kinds_of(self, party: int) -> set[int]:
        """The kinds of a party's messages that the relay holds."""
        return {kind for sender, kind, _ in self._messages() if sender == party}

    def attempts_of(self, party: int) -> set[int]:
        """The attempts for which the relay holds a key of a party."""
        return {attempt for sender, kind, attempt in self._messages() if (sender, kind) == (party, Kind.KEYS)}

    def _messages(self) -> list[tuple[int, int, int]]:
        """Sender, kind and attempt of the relay's messages, read straight from its file."""
        import sqlite3

        if not self.store.exists():
            return []
        connection = sqlite3.connect(self.store)
        try:
            return connection.execute("SELECT DISTINCT sender, kind, attempt FROM messages").fetchall()
        finally:
            connection.close()


def free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port: int = listener.getsockname()[1]
        return port


def ended(process: Process, seconds: float = HANG_S) -> Ended:
    """How a process ended; one that hangs fails the test. No process may ever show a traceback."""
    out, errors = process.communicate(timeout=seconds)
    assert "Traceback" not in errors, errors
    notes = ("tpmdp: made a new ledger", "tpmdp: the author of the study chose", "{")
    events = [json.loads(line) for line in errors.splitlines() if line.startswith("{")]
    errors = "".join(line for line in errors.splitlines(keepends=True) if not line.startswith(notes))
    lines = [json.loads(line) for line in out.splitlines() if line.startswith("{")]
    return Ended(process.wait(), lines, errors, events)


def check_answers(told: dict[str, Ended], study: Study) -> float:
    """Receivers agree on a noisy answer, everybody else has a receipt; returns the answer."""
    for name, one in told.items():
        assert one.code == 0, (name, one.errors)
    answers = [told[name].outcome["answers"] for name in ("north", "lab")]
    assert answers[0] == answers[1]
    assert told["south"].outcome["answers"] is None
    value: float = answers[0][0]["value"]
    error = answers[0][0]["standard_error"]
    assert value != TRUTH, "noise is missing"
    assert abs(value - TRUTH) < 8 * error
    assert error > 4.0  # epsilon 1 at delta 1e-6 needs 4.2
    del study
    return value


def wait_until(holds: Callable[[], bool]) -> None:
    end = time.monotonic() + HANG_S
    while not holds():
        assert time.monotonic() < end
        time.sleep(0.1)


def wait_for(url: str) -> None:
    end = time.monotonic() + HANG_S
    while True:
        try:
            httpx.get(url + "/v1/health")
            return
        except httpx.TransportError:
            assert time.monotonic() < end
            time.sleep(0.05)
