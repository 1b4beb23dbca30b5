"""The relay engine on one machine: a relay and every party in their own processes, over loopback."""

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
from tpmdp._util.process import START_S, ChildProcess, Report, reported_error
from tpmdp.engines.contract import Outcome, guarantee_text
from tpmdp.engines.relay.mailbox import RelayError
from tpmdp.errors import shown
from tpmdp.protocol.masks import Mask
from tpmdp.protocol.terms import Terms

_RELAY_IMPORTS: Final = ("tpmdp.cli.main", "tpmdp.engines.relay.server", "tpmdp.study.model")  # of `tpmdp relay`


@contextmanager
def relay_process(store: Path, port: int = 0) -> Iterator[str]:
    """The command `tpmdp relay` on loopback in its own process; yields its address."""
    command = ("relay", "--port", str(port), "--store", str(store), "--end-with-stdin")
    with ChildProcess("-m", "tpmdp", *command, reads_stderr=True, warm=_RELAY_IMPORTS) as process:
        report = process.report()
        if "listening" not in report:
            process.stop()
            problem = report.get("error") or process.last_error_line() or "it ended without a report"
            remedy = "look for a full disk, a folder that cannot be written or a blocked loopback"
            raise RelayError(f"the relay did not start ({shown(problem, 300)}): {remedy}")
        yield report["listening"]


class _LostError(RelayError):
    """A party's process has ended."""


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
        self.seconds = 0.0  # from the start signal to the last party done, for benchmarks
        self.reports: list[Report] = []  # of the parties' processes, for benchmarks

    def run(
        self,
        terms: Terms,
        identities: Sequence[Ed25519PrivateKey],
        vectors: Sequence[Mask],
        deadline_s: float = 60.0,
        plain: Sequence[IntArray] | None = None,
    ) -> Outcome:
        with ExitStack() as stack:
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
            url = stack.enter_context(relay_process(folder / "relay.sqlite"))
            workers = []
            for index in range(terms.count):
                worker = ChildProcess("-m", self._module, warm=(self._module,))
                stack.callback(worker.stop)
                times = {"deadline_s": deadline_s, "patience_s": self._patience_s}
                task = _task(terms, index, identities[index], url=url, has_plain=plain is not None, **times)
                more = b"" if plain is None else plain[index].astype("<i8").tobytes()
                worker.write(task, vectors[index].tobytes() + more)
                workers.append(worker)
            for worker in workers:
                if "ready" not in worker.report():
                    raise RelayError("a party's process did not start: look for a full memory")
            if self._on_go is not None:
                self._on_go()
            began = time.monotonic()
            for worker in workers:
                worker.write(b"go\n")
            collected = {terms.lead: _collect(workers[terms.lead], terms, deadline_s + START_S)}
            members = frozenset(collected[terms.lead][0]["members"])
            for index in sorted(members - {terms.lead}):
                try:
                    collected[index] = _collect(workers[index], terms, deadline_s + START_S)
                except _LostError:
                    if not terms.tolerate:
                        raise
            self.seconds = time.monotonic() - began
        reports = {index: report for index, (report, _) in sorted(collected.items())}
        self.reports = list(reports.values())
        return Outcome(
            sums={index: total for index, (_, total) in sorted(collected.items()) if total is not None},
            receipts=frozenset(index for index, report in reports.items() if report["receipt"]),
            bytes_sent=tuple(int(reports[index]["sent"]) if index in reports else 0 for index in range(terms.count)),
            guarantee=guarantee_text(terms),
            missing=frozenset(range(terms.count)) - members,
        )


def _task(terms: Terms, index: int, identity: Ed25519PrivateKey, **more: Any) -> bytes:
    """A worker's task as a line: a secret, because it holds the party's key."""
    key = identity.private_bytes_raw().hex()
    return json.dumps({"terms": terms.canonical(), "index": index, "key": key, **more}).encode() + b"\n"


def _collect(worker: ChildProcess, terms: Terms, timeout_s: float) -> tuple[Report, IntArray | None]:
    """What a worker reports in the end, and the sum if its party is a receiver."""
    report = worker.report(timeout_s)
    if not report:
        raise _LostError("a party was lost: run again")
    if "error" in report:
        raise reported_error(report, RelayError)
    if not report["sum"]:
        return report, None
    return report, np.frombuffer(worker.read(8 * terms.grid.dimension), dtype="<i8").astype(np.int64)
