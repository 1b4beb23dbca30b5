"""The flower engine on one machine: a Flower simulation in a child process, in which every party is a node.

One party may be in the server app instead (`server`). The simulation stays up for the next session, as starting it
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

from tpmdp._util.arrays import IntArray
from tpmdp._util.process import ChildProcess
from tpmdp.engines.contract import Outcome, guarantee_text
from tpmdp.errors import DeadlineError, TpmdpError
from tpmdp.flower.engine_simulation import TERMS, task_name
from tpmdp.flower.simulation import QUIET
from tpmdp.protocol.masks import Mask
from tpmdp.protocol.messages import Kind
from tpmdp.protocol.terms import Terms

_START_S: Final = 600.0  # only ends a hang: Ray and its workers may take minutes on a busy machine
_NODES_LEAST: Final = 6
_CHILD: Final = (  # Flower and Ray read their settings when they are imported
    f"import os; os.environ.update({QUIET!r}); from tpmdp.flower.engine_simulation import main; main()"
)


class FlowerError(TpmdpError):
    """The simulation does not start, or a node refuses."""


class _Simulation:
    """A child process with a number of nodes."""

    def __init__(self, nodes: int) -> None:
        self.nodes = nodes
        self._folder = tempfile.TemporaryDirectory(prefix="tpmdp-flower-")
        self.folder = Path(self._folder.name)
        atexit.register(self.close)
        self.process = ChildProcess("-c", _CHILD, *(str(self.folder), str(nodes)))
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

    `server` is the party in the server app; without one the server only carries messages. `lost` maps parties to the
    kind of message before which they fail, for tests. A node is lost when it fails; a slow one is waited for until the
    deadline.
    """

    name = "flower"

    def __init__(self, server: int | None = None, lost: Mapping[int, Kind] | None = None) -> None:
        self.server, self.lost = server, dict(lost or {})
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
        self,
        terms: Terms,
        identities: Sequence[Ed25519PrivateKey],
        vectors: Sequence[Mask],
        deadline_s: float = 60.0,
        plain: Sequence[IntArray] | None = None,
    ) -> Outcome:
        for party in range(terms.count):
            terms.check(party)
        if self._simulation is None or self._simulation.nodes < terms.count:
            self.close()
            self._simulation = _Simulation(max(terms.count, _NODES_LEAST))
        simulation = self._simulation
        name = secrets.token_hex(8)  # the same session again begins anew
        folder = simulation.folder / name
        self._write_session(folder, terms, identities, vectors=vectors, plain=plain)
        task = {"name": name, "server": self.server, "deadline_s": deadline_s}
        simulation.process.write(json.dumps(task).encode() + b"\n")
        report = json.loads(simulation.process.line(deadline_s + _START_S) or b'{"kind": "", "error": ""}')
        if "error" in report:
            if not report["error"]:
                self.close()
            problem = report["error"] or "the Flower simulation ended: look for a full memory"
            raise (DeadlineError if report["kind"] == "DeadlineError" else FlowerError)(problem)
        self.seconds = report["seconds"]
        everyone = range(terms.count)
        paths = {index: folder / f"{index}.sum" for index in everyone}
        sums = {
            index: np.fromfile(path, dtype="<i8").astype(np.int64) for index, path in paths.items() if path.exists()
        }
        receipts = frozenset(index for index in everyone if (folder / f"{index}.receipt").exists())
        return Outcome(
            sums=sums,
            receipts=receipts,
            bytes_sent=tuple(report["sent"]),
            guarantee=guarantee_text(terms),
            missing=frozenset(everyone) - set(sums) - receipts,
        )

    def _write_session(
        self,
        folder: Path,
        terms: Terms,
        identities: Sequence[Ed25519PrivateKey],
        *,
        vectors: Sequence[Mask],
        plain: Sequence[IntArray] | None,
    ) -> None:
        """Write the terms, and each party's key and vectors, to a folder that only this user can read."""
        folder.mkdir(mode=0o700)
        (folder / TERMS).write_text(terms.canonical())
        for index, (identity, vector) in enumerate(zip(identities, vectors, strict=True)):
            vector.tofile(folder / f"{index}.vector")
            if plain is not None:
                plain[index].astype("<i8").tofile(folder / f"{index}.plain")
            task = {"key": identity.private_bytes_raw().hex(), "lost": self.lost.get(index)}
            path = folder / task_name(index, index == self.server)
            with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
                json.dump(task, file)
