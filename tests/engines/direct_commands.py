"""Parties of a non-additive study that take part by the real command, in a place where all that they leave shows."""

from __future__ import annotations

import json
import os
import shutil
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from tests.engines.direct_studies import Parties, identity_of
from tests.patience import wait_until
from tests.processes import Process, working_in
from tpmdp.study.identity import write_key


@dataclass
class Place:
    """A current folder and a temporary folder, for the processes of one test only."""

    folder: Path

    @property
    def work(self) -> Path:
        return self.folder / "work"

    @property
    def temporary(self) -> Path:
        return self.folder / "tmp"

    def start(self, module: str, *words: object) -> Process:
        environment = {**os.environ, "TMPDIR": str(self.temporary)}
        return Process(module, *words, folder=self.work, environment=environment)

    def processes(self) -> dict[int, str]:
        return working_in(self.work)

    def check_clean(self) -> None:
        """No process of ours lives on, and nothing lies in either folder."""
        wait_until(lambda: not self.processes())
        left = [str(path) for folder in (self.work, self.temporary) for path in folder.rglob("*")]
        assert not left, left


@contextmanager
def new_place() -> Iterator[Place]:
    """A place that must be clean in the end; its path is short, since sockets are made in it."""
    place = Place(Path(tempfile.mkdtemp(prefix="t", dir="/tmp")))
    for folder in (place.work, place.temporary):
        folder.mkdir()
    try:
        yield place
        place.check_clean()
    finally:
        shutil.rmtree(place.folder)


@dataclass
class Commands:
    """The commands of the parties of a study."""

    parties: Parties
    place: Place
    relay: str = ""

    @classmethod
    def of(cls, parties: Parties, place: Place, relay: str = "") -> Commands:
        for name in names_of(parties):
            write_key(parties.folder / f"{name}.key", identity_of(name))
            table = parties.table(name)
            if table:
                header, rows = ",".join(table), np.column_stack([np.asarray(values) for values in table.values()])
                np.savetxt(parties.folder / f"{name}.csv", rows, delimiter=",", header=header, comments="")
        return cls(parties, place, relay)

    def join(self, name: str, moment: str = "", victim: str = "") -> Process:
        """The command; with a moment, one of its processes is killed then: the command, worker or spu."""
        folder = self.parties.folder
        words: list[object] = ["join", folder / "study.toml", "--as", name, "--key", folder / f"{name}.key", "--json"]
        words += ["--ledger", folder / f"{name}.ledger"]
        words += ["--data", folder / f"{name}.csv"] if self.parties.study.party_records[name] else []
        words += ["--relay", self.relay] if self.relay else []
        if moment:
            return self.place.start("tests.engines.dies_at", moment, victim, *words)
        return self.place.start("tpmdp", *words)

    def all_join(self, **killed: tuple[str, str]) -> dict[str, Ending]:
        """How the commands of all parties end; in those of `killed` a process is killed at a moment."""
        started = {name: self.join(name, *killed.get(name, ())) for name in names_of(self.parties)}
        return {name: Ending.of(process) for name, process in started.items()}


@dataclass
class Ending:
    """How a command ended: its outcome, or its error."""

    code: int
    outcome: dict[str, Any] | None
    error: str

    @classmethod
    def of(cls, process: Process) -> Ending:
        out, log = process.communicate()
        reports = [json.loads(line) for line in log.splitlines() if line.startswith("{")]
        errors = [line for line in log.splitlines() if not line.startswith("{")]
        errors += [report["error"] for report in reports if "error" in report]
        assert "Traceback" not in log, log
        return cls(process.wait(), json.loads(out) if out.strip() else None, "\n".join(errors))

    @property
    def answers(self) -> list[float] | None:
        assert self.outcome is not None, self.error
        given = self.outcome["outcome"]["answers"] if "outcome" in self.outcome else self.outcome["answers"]
        return None if given is None else [answer["value"] for answer in given]


def names_of(parties: Parties) -> Sequence[str]:
    return [party.name for party in parties.study.parties]
