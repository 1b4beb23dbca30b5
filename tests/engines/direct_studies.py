"""Parties of a non-additive study, each with key, data and ledger: honest ones join, others are played by a test."""

from __future__ import annotations

import os
import signal
import socket
import sys
import threading
import tomllib
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from tests.processes import Process
from tpmdp._util.arrays import IntArray
from tpmdp._util.clock import now_s
from tpmdp.data.table import Table
from tpmdp.engines.direct.worker_process import WorkerProcess
from tpmdp.errors import TpmdpError
from tpmdp.ledger import Ledger
from tpmdp.study.file import parse_address
from tpmdp.study.identity import public_text
from tpmdp.study.join import join
from tpmdp.study.model import Study
from tpmdp.study.release import PartyRelease
from tpmdp.study.session import SessionAccount, key_of
from tpmdp.study.shared_job import shared_job

NAMES = ("bank", "school", "registry")
RECORDS = 50
COLUMNS = dict(zip(NAMES, "abc", strict=True))


def query_of(kind: str, names: Sequence[str]) -> dict[str, Any]:
    if kind == "maximum":
        return {"name": "m", "kind": "maximum", "of": {"kind": "count", "column": "a", "at_least": 1}}
    return {
        "name": "v",
        "kind": "vertical_regression",
        "target": "a",
        "bounds": {COLUMNS[name]: [-1, 1] for name in names},
        "held_by": {name: [COLUMNS[name]] for name in names},
    }


def free_ports(count: int) -> list[int]:
    with ExitStack() as held:
        sockets = [held.enter_context(socket.socket()) for _ in range(count)]
        for one in sockets:
            one.bind(("127.0.0.1", 0))
        return [one.getsockname()[1] for one in sockets]


class Parties:
    """A study, and what its parties have. Keys and data follow from names, so that other processes have them too."""

    def __init__(self, folder: Path, study: Study) -> None:
        self.folder, self.study, self.terms = folder, study, study.terms()

    @classmethod
    def of(
        cls,
        folder: Path,
        kind: str,
        receivers: list[str],
        *,
        deadline: str = "60s",
        engine: str = "mpyc",
        names: Sequence[str] = NAMES,
        idle: Sequence[str] = (),
        sum_through: str = "",
        **addresses: str,
    ) -> Parties:
        """`idle` are parties without records; with a relay for the sum, they have no address."""
        parties = [
            {
                "name": name,
                "records": 0 if name in idle else RECORDS,
                "epsilon": 0.5,
                "public_key": public_text(identity_of(name)),
                **({} if sum_through and name in idle else {"address": addresses.get(name, f"127.0.0.1:{port}")}),
            }
            for name, port in zip(names, free_ports(len(names)), strict=True)
        ]
        top = {"name": "x", "threshold": 1, "receivers": receivers, "delta": 1e-6, "deadline": deadline}
        top |= {"engine": engine, **({"sum_through": sum_through} if sum_through else {})}
        holders = [name for name in names if name not in idle] if kind == "vertical" else names
        study = Study.parse({**top, "parties": parties, "queries": [query_of(kind, holders)]})
        (folder / "study.toml").write_text(study.toml())
        for name in names:
            Ledger.create(folder / f"{name}.ledger", name, 1.0, 1e-6).close()
        return cls(folder, study)

    @classmethod
    def load(cls, folder: Path, at_least: int | None = None, **changes: Any) -> Parties:
        """The study of another process, or one that was changed."""
        document = {**tomllib.loads((folder / "study.toml").read_text()), **changes}
        if at_least is not None:
            document["queries"][0]["of"]["at_least"] = at_least
        return cls(folder, Study.parse(document))

    def ledger(self, name: str) -> Ledger:
        return Ledger.open(self.folder / f"{name}.ledger")

    def table(self, name: str) -> Table:
        if not self.study.party_records[name]:
            return {}
        random = np.random.default_rng(NAMES.index(name))
        (column,) = self.study.columns_of(name)
        return {column: random.choice([-1.0, 1.0], RECORDS)}

    def join(self, name: str, **options: Any) -> PartyRelease:
        with self.ledger(name) as ledger:
            return join(self.study, name, identity_of(name), self.table(name), ledger, None, **options)

    def begin(self, *names: str, **options: Any) -> Joining:
        return Joining(self, names, options)

    def charges(self, name: str) -> int:
        with self.ledger(name) as ledger:
            ledger.verify()
            return sum(entry.is_charge for entry in ledger.entries())

    def private_state(self, name: str) -> dict[str, bytes]:
        with self.ledger(name) as ledger:
            return ledger.private_state(key_of(self.terms))

    def corrupt(self, values: IntArray) -> WorkerProcess:
        """The bank's own worker, with any values and no noise; see `direct_vanishes`."""
        job, terms = shared_job(self.study, self.terms), self.terms
        worker = WorkerProcess("tests.engines.direct_vanishes")
        worker.give(job, 0, identity_of("bank"), bind=("127.0.0.1", 0), deadline=now_s() + 300.0)
        worker.port()
        addresses = [parse_address("address", member.address) for member in self.study.parties]
        worker.go(addresses)
        worker.put_in(values, np.zeros(terms.grid.dimension, dtype=np.int64))
        worker.say("open", "done")
        return worker

    def killed(self, name: str, where: str) -> Process:
        """The party in a process that is killed at a certain point."""
        return Process("tests.engines.direct_studies", self.folder, name, where)


class Joining:
    """Honest parties at work, each in a thread; what each got, or its error."""

    def __init__(self, parties: Parties, names: tuple[str, ...], options: Mapping[str, Any]) -> None:
        self.said: dict[str, PartyRelease | TpmdpError] = {}

        def one(name: str) -> None:
            try:
                self.said[name] = parties.join(name, **options)
            except TpmdpError as error:
                self.said[name] = error

        self._threads = [threading.Thread(target=one, args=(name,)) for name in names]
        for thread in self._threads:
            thread.start()

    def end(self) -> dict[str, PartyRelease | TpmdpError]:
        for thread in self._threads:
            thread.join()
        return self.said


def identity_of(name: str) -> Ed25519PrivateKey:
    return Ed25519PrivateKey.from_private_bytes(name.encode().ljust(32))


def main() -> None:
    """Take part, and be killed: before the result is settled, or as soon as it is opened."""
    folder, name, where = sys.argv[1:]

    def die(*_: Any, **__: Any) -> Any:
        os.kill(os.getpid(), signal.SIGKILL)

    if where == "settle":
        SessionAccount.settle = die  # type: ignore[method-assign]
    else:
        WorkerProcess.outcome = die  # type: ignore[method-assign]
    Parties.load(Path(folder)).join(name)


if __name__ == "__main__":
    main()
