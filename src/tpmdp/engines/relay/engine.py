"""The relay engine on one machine: a relay and every party as processes of their own, over loopback."""

from __future__ import annotations

import json
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, Final

import numpy as np
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from tpmdp._util.arrays import IntArray
from tpmdp._util.line_process import START_S, Process
from tpmdp.engines.contract import Outcome, guarantee_text
from tpmdp.engines.relay.client import RelayError
from tpmdp.errors import DeadlineError
from tpmdp.protocol.masks import Mask
from tpmdp.protocol.terms import Terms

_SERVE: Final = (
    "import sys; from pathlib import Path; from tpmdp.engines.relay.server import RelaySettings, serve; "
    "serve('127.0.0.1', int(sys.argv[2]), Path(sys.argv[1]), RelaySettings(), None, None, "
    "lambda url: print(url, flush=True))"
)


@contextmanager
def relay_process(store: Path, port: int = 0) -> Iterator[str]:
    """A relay on loopback in its own process; yields its address."""
    process = Process("-c", _SERVE, str(store), str(port))
    try:
        line = process.line()
        if not line.startswith(b"http"):
            raise RelayError("the relay did not start: look for a full disk or a blocked loopback")
        yield line.decode().strip()
    finally:
        process.stop()


class RelayEngine:
    """The true protocol over HTTP."""

    name = "relay"

    def __init__(
        self,
        module: str = "tpmdp.engines.relay.worker",
        on_go: Callable[[], None] | None = None,
        patience_s: float = 5.0,
    ) -> None:
        self._module, self._on_go, self._patience_s = module, on_go, patience_s
        self.seconds = 0.0  # from the word go to the last party done, for benchmarks
        self.told: list[dict[str, Any]] = []  # what the processes said, for benchmarks

    def run(
        self, terms: Terms, identities: Sequence[Ed25519PrivateKey], vectors: Sequence[Mask], deadline_s: float = 60.0
    ) -> Outcome:
        """Start everybody, give the word, and collect what they got."""
        with ExitStack() as stack:
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
            url = stack.enter_context(relay_process(folder / "relay.sqlite"))
            workers = []
            for index in range(terms.count):
                worker = Process("-m", self._module)
                stack.callback(worker.stop)
                task = _task(terms, index, identities[index], url, deadline_s, self._patience_s)
                worker.write(task, vectors[index].tobytes())
                workers.append(worker)
            for worker in workers:
                if b"ready" not in worker.line():
                    raise RelayError("a party's process did not start: look for a full memory")
            if self._on_go is not None:
                self._on_go()
            began = time.monotonic()
            for worker in workers:
                worker.write(b"go\n")
            lead = _collect(workers[terms.lead], terms, deadline_s + START_S)
            members = frozenset(lead[0]["members"])
            told = {terms.lead: lead}
            for index in sorted(members - {terms.lead}):
                told[index] = _collect(workers[index], terms, deadline_s + START_S)
            self.seconds = time.monotonic() - began
            self.told = [told[index][0] for index in sorted(told)]
        sums = {index: sums for index, (_, sums) in sorted(told.items()) if sums is not None}
        receipts = frozenset(index for index, (line, _) in told.items() if line["receipt"])
        sent = tuple(int(told[index][0]["sent"]) if index in told else 0 for index in range(terms.count))
        return Outcome(sums, receipts, sent, guarantee_text(terms), frozenset(range(terms.count)) - members)


def _task(
    terms: Terms, index: int, identity: Ed25519PrivateKey, url: str, deadline_s: float, patience_s: float
) -> bytes:
    key = identity.private_bytes_raw().hex()
    task = {
        "terms": terms.canonical(),
        "index": index,
        "key": key,
        "url": url,
        "deadline_s": deadline_s,
        "patience_s": patience_s,
    }
    return json.dumps(task).encode() + b"\n"


def _collect(worker: Process, terms: Terms, seconds: float) -> tuple[dict[str, Any], IntArray | None]:
    line = json.loads(worker.line(seconds) or b'{"error": "a party was lost: run again", "kind": "RelayError"}')
    if "error" in line:
        raise (DeadlineError if line["kind"] == "DeadlineError" else RelayError)(line["error"])
    if not line["sum"]:
        return line, None
    return line, np.frombuffer(worker.read(8 * terms.grid.dimension), dtype="<i8").astype(np.int64)
