"""One party's worker as seen by the process that starts it."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Final

import numpy as np
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from tpmdp._util.arrays import IntArray
from tpmdp._util.clock import now_s
from tpmdp._util.process import START_S, ChildProcess, Report, reported_error
from tpmdp.engines.direct.job import DirectJob
from tpmdp.engines.direct.network import Address, check_addresses
from tpmdp.engines.direct.record import DirectError
from tpmdp.engines.direct.session import Notes, Numbers
from tpmdp.engines.direct.worker import NUMBERS
from tpmdp.errors import DeadlineError, TpmdpError
from tpmdp.protocol.party import check_identity

WORKER: Final = "tpmdp.engines.direct.worker"
_ENDED: Final = "our own process ended: look for a full memory"
GRACE_S: Final = 15.0  # past the deadline, for a worker that is busy when it comes


class WorkerProcess:
    """One party's process; `worker` lists what passes through its pipes."""

    def __init__(
        self,
        module: str = WORKER,
        on_difference: Callable[[str], None] = lambda _: None,
        on_missing: Callable[[list[int]], None] = lambda _: None,
    ) -> None:
        self.child = ChildProcess("-m", module, warm=(module,))
        self._on_difference, self._on_missing = on_difference, on_missing

    def give(self, job: DirectJob, index: int, identity: Ed25519PrivateKey, *, bind: Address, deadline: float) -> None:
        """Send its task, without the numbers. `deadline` is a time of `clock.now_s`, which all processes share."""
        self._job, self._index, self.deadline = job, index, deadline
        task = {
            "terms": job.terms.canonical(),
            "index": index,
            "key": identity.private_bytes_raw().hex(),
            "engine": job.engine,
            "function": job.function,
            "parameters": dict(job.parameters),
            "sizes": list(job.sizes),
            "noise": job.noise_apart,
            "attempt": job.attempt,
            "bind": list(bind),
        }
        self.child.write(json.dumps(task).encode() + b"\n")

    def port(self) -> int:
        """Wait until it is ready; the port on which it listens."""
        return int(self._report(min(START_S, self._left_s))["port"])

    def go(self, addresses: Sequence[Address], *, parts: bytes = b"", notes: Notes | None = None) -> None:
        """Send all addresses, so that it connects; `session.run_party` says what parts and notes are."""
        start = {
            "addresses": [list(address) for address in addresses],
            "deadline": self.deadline,
            "parts": parts.decode(),
            "notes": {peer: note.hex() for peer, note in (notes or {}).items()},
        }
        self.child.write(json.dumps(start).encode() + b"\n")

    def connected(self) -> Notes:
        """Wait until it is connected to all parties; nothing that depends on data has left before `put_in`."""
        return self._notes()

    def put_in(self, values: IntArray, noise: IntArray | None, note: bytes = b"") -> None:
        """Send the numbers, so that it computes. Only here is a wrong number the caller's error."""
        self._job.check(self._index, values, noise)
        arrays = [values] if noise is None else [values, noise]
        line = NUMBERS + note.hex().encode() + b"\n"
        self.child.write(line, *(array.astype("<i8").tobytes() for array in arrays))

    def opening(self) -> Notes:
        """Wait until all parties are ready; no share of the result has left ours before `say("open")`."""
        return self._notes()

    def _notes(self) -> Notes:
        return {int(peer): bytes.fromhex(note) for peer, note in self._report(self._left_s)["notes"].items()}

    def say(self, *words: str) -> None:
        """`open`: it may open the result, once. `done`: it may tell the others that we have it."""
        self.child.write(*(word.encode() + b"\n" for word in words))

    def outcome(self) -> tuple[IntArray | None, int]:
        """The result (None for a party that gets a receipt) and the bytes sent so far. After `opening`."""
        report = self._report(self._left_s)
        if not report["result"]:
            return None, int(report["sent"])
        size = 8 * self._job.terms.grid.dimension
        data = self.child.read(size)
        if len(data) != size:
            raise DirectError(_ENDED)
        return np.frombuffer(data, dtype="<i8").astype(np.int64), int(report["sent"])

    def end(self) -> None:
        """Wait until it has said goodbye to the others."""
        self._report(GRACE_S)

    def stop(self) -> None:
        """Kill it."""
        self.child.stop()

    @property
    def _left_s(self) -> float:
        return max(0.0, self.deadline - now_s()) + GRACE_S

    def _report(self, timeout_s: float) -> Report:
        while True:
            report = self.child.report(timeout_s)
            if self.child.timed_out:
                raise DeadlineError("the deadline passed while waiting for our own computation: allow more time")
            if "difference" in report:
                self._on_difference(report["difference"])
            elif "missing" in report:
                self._on_missing(report["missing"])
            else:
                break
        if not report:
            raise DirectError(_ENDED)
        if "culprit" in report:
            raise DirectError(report["error"], report["culprit"])
        if "error" in report:
            raise reported_error(report, DirectError)
        return report


def run_in_process(
    job: DirectJob,
    index: int,
    identity: Ed25519PrivateKey,
    addresses: Sequence[Address],
    deadline: float,
    *,
    on_connected: Callable[[Notes], Numbers],
    on_opening: Callable[[Notes], None] = lambda _: None,
    on_result: Callable[[IntArray | None, int], None],
    bind: Address | None = None,
    parts: bytes = b"",
    notes: Notes | None = None,
    on_difference: Callable[[str], None] = lambda _: None,
    on_missing: Callable[[list[int]], None] = lambda _: None,
) -> None:
    """Run one party's side of a session in its own process; see `session.run_party`.

    The process listens only on the party's address, or on `bind`, such as behind a router. `on_connected` is asked for
    values and noise when all parties are connected, so errors in key, addresses or study show before, and a party that
    never comes; `on_difference` hears what a party with another study has different, and `on_missing` who is not
    connected yet, whenever that changes. `on_opening` must store durably, before it returns, that this session's result
    is opened; `on_result` the result (None: a receipt), or our share where shares are kept and nothing is opened.
    """
    job.digest()  # refuses parameters that do not travel
    check_identity(job.terms, index, identity)
    check_addresses(addresses, job.terms.count, job.members)
    worker = WorkerProcess(on_difference=on_difference, on_missing=on_missing)
    try:
        worker.give(job, index, identity, bind=bind or addresses[index], deadline=deadline)
        worker.port()
        if deadline <= now_s():
            raise DeadlineError("the deadline passed before our own process had started: allow more time")
        worker.go(addresses, parts=parts, notes=notes)
        numbers = on_connected(worker.connected())
        worker.put_in(numbers.values, numbers.noise, numbers.note)
        if not job.attempt:
            on_opening(worker.opening())
            worker.say("open")
        on_result(*worker.outcome())
        worker.say("done")
        with suppress(TpmdpError):  # we have what we wanted
            worker.end()
    finally:
        worker.stop()
