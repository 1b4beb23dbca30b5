"""A worker as seen by whoever starts it: it never outlives us, and never keeps us waiting longer than told."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from collections.abc import Sequence
from contextlib import suppress
from typing import Any, Final

import numpy as np
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from tpmdp.engines.mpyc.functions import Parameters
from tpmdp.engines.mpyc.job import Job
from tpmdp.engines.mpyc.network import Address, check_addresses
from tpmdp.engines.mpyc.record import MpycError
from tpmdp.errors import DeadlineError, InputError, TpmdpError
from tpmdp.protocol.terms import Terms
from tpmdp.validate import IntArray

WORKER: Final = "tpmdp.engines.mpyc.worker"
START_S: Final = 60.0  # for a process to come up on a busy machine
GRACE_S: Final = 15.0  # past the deadline, for a worker that is busy when it comes


class WorkerProcess:
    """One party's process."""

    def __init__(self, module: str = WORKER) -> None:
        command = [sys.executable, "-m", module]
        self._process = subprocess.Popen(  # noqa: S603
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
        )
        self._dimension = 0
        self._threads: list[threading.Thread] = []

    @property
    def pid(self) -> int:
        """Its number at the operating system."""
        return self._process.pid

    def give(
        self,
        job: Job,
        index: int,
        identity: Ed25519PrivateKey,
        values: IntArray,
        noise: IntArray | None,
        bind: Address,
        deadline_s: float,
    ) -> None:
        """Its task; checked here too, because only here an error is the caller's."""
        job.check(index, values, noise)
        self._dimension = job.terms.grid.dimension
        task = {
            "terms": job.terms.canonical(),
            "index": index,
            "key": identity.private_bytes_raw().hex(),
            "function": job.function,
            "parameters": dict(job.parameters),
            "sizes": list(job.sizes),
            "noise": noise is not None,
            "bind": list(bind),
            "deadline_s": deadline_s,
        }
        arrays = [values] if noise is None else [values, noise]
        self._write(json.dumps(task).encode() + b"\n", *(array.astype("<i8").tobytes() for array in arrays))

    def port(self) -> int:
        """Where it listens, once it is ready."""
        return int(self._line(START_S)["port"])

    def go(self, addresses: Sequence[Address]) -> None:
        """Where everybody is: the word to begin."""
        self._write(json.dumps([list(address) for address in addresses]).encode() + b"\n")

    def outcome(self, seconds: float) -> tuple[IntArray | None, int]:
        """Result, if it is a receiver, and bytes sent; or its error."""
        line = self._line(seconds + GRACE_S)
        if not line["result"]:
            return None, int(line["sent"])
        assert self._process.stdout is not None
        data = self._process.stdout.read(8 * self._dimension)
        return np.frombuffer(data, dtype="<i8").astype(np.int64), int(line["sent"])

    def stop(self) -> None:
        """End it."""
        self._process.kill()
        self._process.wait()
        for thread in self._threads:
            thread.join()
        for stream in (self._process.stdin, self._process.stdout):
            with suppress(OSError):
                assert stream is not None
                stream.close()

    def _write(self, *parts: bytes) -> None:
        """Hand over bytes without waiting for the process to take them, in order."""
        before = self._threads[-1] if self._threads else None

        def write() -> None:
            assert self._process.stdin is not None
            if before is not None:
                before.join()
            with suppress(OSError):  # the process is gone; whoever reads from it finds out
                for part in parts:
                    self._process.stdin.write(part)
                self._process.stdin.flush()

        thread = threading.Thread(target=write)
        thread.start()
        self._threads.append(thread)

    def _line(self, seconds: float) -> dict[str, Any]:
        assert self._process.stdout is not None
        late = threading.Event()

        def end() -> None:
            late.set()
            self._process.kill()

        timer = threading.Timer(seconds, end)
        timer.start()
        try:
            text = self._process.stdout.readline()
        finally:
            timer.cancel()
        if late.is_set():
            raise DeadlineError("the deadline passed while waiting for our own computation: allow more time")
        if not text.endswith(b"\n"):
            raise MpycError("our own process ended: look for a full memory")
        line: dict[str, Any] = json.loads(text)
        if "error" in line:
            raise _error(line)
        return line


def _error(line: dict[str, Any]) -> TpmdpError:
    if line["kind"] == "InputError":
        return InputError(*line["parts"])
    if line["kind"] == "DeadlineError":
        return DeadlineError(line["error"])
    return MpycError(line["error"], line.get("culprit"))


def run_in_process(
    terms: Terms,
    index: int,
    identity: Ed25519PrivateKey,
    addresses: Sequence[Address],
    function: str,
    parameters: Parameters | None,
    sizes: Sequence[int],
    values: IntArray,
    noise: IntArray | None,
    deadline_s: float,
    *,
    bind: Address | None = None,
) -> tuple[IntArray | None, int]:
    """One party's part of a session, in a process of its own: see `session.run_party`.

    Listens on the party's own address only; `bind` names another, as behind a router.
    """
    job = Job.of(terms, function, parameters, sizes, noise is not None)
    job.digest()  # refuses parameters that do not travel
    job.check(index, values, noise)
    check_addresses(addresses, terms.count)
    worker = WorkerProcess()
    try:
        worker.give(job, index, identity, values, noise, bind or addresses[index], deadline_s)
        worker.port()
        worker.go(addresses)
        return worker.outcome(deadline_s)
    finally:
        worker.stop()
