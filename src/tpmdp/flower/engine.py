"""The flower engine on one machine: a Flower simulation in a process of its own, in which every party is a node.

One party may live in the server app instead (`server`). The simulation stays up for the next session, as starting it
takes most of the time; it ends with `close`, or with this process.
"""

from __future__ import annotations

import atexit
import json
import os
import secrets
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final

import numpy as np
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from tpmdp._util.process import ChildProcess
from tpmdp.engines.contract import Outcome, guarantee_text
from tpmdp.errors import DeadlineError, TpmdpError
from tpmdp.flower.simulation import TERMS, task_name
from tpmdp.protocol.masks import Mask
from tpmdp.protocol.messages import Kind
from tpmdp.protocol.terms import Terms

_START_S: Final = 180.0  # Ray on a busy machine
_NODES_LEAST: Final = 6


class FlowerError(TpmdpError):
    """The simulation does not start, or a node refuses."""


class _Simulation:
    """A process with a number of nodes."""

    def __init__(self, nodes: int) -> None:
        self.nodes = nodes
        self._folder = tempfile.TemporaryDirectory(prefix="tpmdp-flower-")
        self.folder = Path(self._folder.name)
        atexit.register(self.close)
        self.process = ChildProcess("-m", "tpmdp.flower.simulation", str(self.folder), str(nodes))
        if b"ready" not in self.process.line(_START_S):
            self.close()
            raise FlowerError("the Flower simulation did not start: pip install 'tpmdp[flower-simulation]'")

    def close(self) -> None:
        """End it with all its nodes."""
        atexit.unregister(self.close)
        self.process.end()
        with suppress(OSError):
            self._folder.cleanup()


class FlowerEngine:
    """The true protocol over Flower messages.

    `server` is the party that the server app plays; without one the server only carries messages. `lost` are parties
    that fail before they send a message of this kind.
    """

    name = "flower"

    def __init__(
        self, server: int | None = None, lost: Mapping[int, Kind] | None = None, patience_s: float = 30.0
    ) -> None:
        self.server, self.lost, self._patience_s = server, dict(lost or {}), patience_s
        self._simulation: _Simulation | None = None
        self.seconds = 0.0  # of the last session, for benchmarks

    def __enter__(self) -> FlowerEngine:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """End the simulation."""
        if self._simulation is not None:
            self._simulation.close()
            self._simulation = None

    def run(
        self, terms: Terms, identities: Sequence[Ed25519PrivateKey], vectors: Sequence[Mask], deadline_s: float = 60.0
    ) -> Outcome:
        """Give every node its files, say go, and collect what they wrote."""
        for party in range(terms.count):
            terms.check(party)
        if self._simulation is None or self._simulation.nodes < terms.count:
            self.close()
            self._simulation = _Simulation(max(terms.count, _NODES_LEAST))
        simulation = self._simulation
        place = secrets.token_hex(8)  # the same session again begins anew
        folder = simulation.folder / place
        _write_tasks(folder, terms, identities, vectors, self.lost, self.server)
        task = {
            "place": place,
            "server": self.server,
            "patience_s": self._patience_s,
            "deadline_s": deadline_s,
        }
        simulation.process.write(json.dumps(task).encode() + b"\n")
        told = json.loads(simulation.process.line(deadline_s + _START_S) or b'{"kind": "", "error": ""}')
        if "error" in told:
            if not told["error"]:
                self.close()
            wrong = told["error"] or "the Flower simulation ended: look for a full memory"
            raise (DeadlineError if told["kind"] == "DeadlineError" else FlowerError)(wrong)
        self.seconds = told["seconds"]
        everyone = range(terms.count)
        paths = {index: folder / f"{index}.sum" for index in everyone}
        sums = {
            index: np.fromfile(path, dtype="<i8").astype(np.int64) for index, path in paths.items() if path.exists()
        }
        receipts = frozenset(index for index in everyone if (folder / f"{index}.receipt").exists())
        missing = frozenset(everyone) - set(sums) - receipts
        return Outcome(sums, receipts, tuple(told["sent"]), guarantee_text(terms), missing)


def _write_tasks(
    folder: Path,
    terms: Terms,
    identities: Sequence[Ed25519PrivateKey],
    vectors: Sequence[Mask],
    lost: Mapping[int, Kind],
    server: int | None,
) -> None:
    """Everything in a folder that only we can read."""
    folder.mkdir(mode=0o700)
    (folder / TERMS).write_text(terms.canonical())
    for index, (identity, vector) in enumerate(zip(identities, vectors, strict=True)):
        vector.tofile(folder / f"{index}.vector")
        task = {"key": identity.private_bytes_raw().hex(), "lost": lost.get(index)}
        name = task_name(index, index == server)
        descriptor = os.open(folder / name, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(descriptor, "w") as file:
            json.dump(task, file)
