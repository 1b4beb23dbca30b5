"""A worker as seen by whoever starts it: it never outlives us, and never keeps us waiting longer than told."""

from __future__ import annotations

import json
import subprocess
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any, Final

import numpy as np
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from tpmdp._util.arrays import IntArray
from tpmdp._util.clock import now_s
from tpmdp._util.process import python_command, python_environment
from tpmdp.engines.mpyc.job import Job
from tpmdp.engines.mpyc.network import Address, check_addresses
from tpmdp.engines.mpyc.record import MpycError
from tpmdp.errors import DeadlineError, InputError, TpmdpError
from tpmdp.protocol.party import check_identity

WORKER: Final = "tpmdp.engines.mpyc.worker"
START_S: Final = 60.0  # for a process to come up on a busy machine
_ENDED: Final = "our own process ended: look for a full memory"
GRACE_S: Final = 15.0  # past the deadline, for a worker that is busy when it comes


class WorkerProcess:
    """One party's process."""

    def __init__(self, module: str = WORKER) -> None:
        self._process = subprocess.Popen(  # noqa: S603
            python_command("-m", module),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env=python_environment(),
        )
        self._threads: list[threading.Thread] = []

    @property
    def pid(self) -> int:
        """Its number at the operating system."""
        return self._process.pid

    def give(self, job: Job, index: int, identity: Ed25519PrivateKey, bind: Address, deadline: float) -> None:
        """Its task, without the numbers. `deadline` is a time of `clock.now_s`, which all processes share."""
        self._job, self._index, self._deadline = job, index, deadline
        task = {
            "terms": job.terms.canonical(),
            "index": index,
            "key": identity.private_bytes_raw().hex(),
            "function": job.function,
            "parameters": dict(job.parameters),
            "sizes": list(job.sizes),
            "noise": job.noise_apart,
            "bind": list(bind),
            "deadline": deadline,
        }
        self._write(json.dumps(task).encode() + b"\n")

    def port(self) -> int:
        """Where it listens, once it is ready."""
        return int(self._line(min(START_S, self._left))["port"])

    def go(self, values: IntArray, noise: IntArray | None, addresses: Sequence[Address]) -> None:
        """The numbers, and where everybody is: the word to begin. Checked here: only here an error is the caller's."""
        self._job.check(self._index, values, noise)
        arrays = [values] if noise is None else [values, noise]
        line = json.dumps([list(address) for address in addresses]).encode() + b"\n"
        self._write(line, *(array.astype("<i8").tobytes() for array in arrays))

    def opening(self) -> None:
        """Returns when all parties are ready, and no share of the result has left ours; `say("open")` lets it."""
        self._line(self._left)

    def say(self, *words: str) -> None:
        """`open`: it may open the result, once. `done`: it may tell others that we have it."""
        self._write(*(word.encode() + b"\n" for word in words))

    def outcome(self) -> tuple[IntArray | None, int]:
        """Result, if it is a receiver, and bytes sent until then; or its error. After `opening`."""
        line = self._line(self._left)
        if not line["result"]:
            return None, int(line["sent"])
        assert self._process.stdout is not None
        data = self._process.stdout.read(8 * self._job.terms.grid.dimension)
        if len(data) != 8 * self._job.terms.grid.dimension:
            raise MpycError(_ENDED)
        return np.frombuffer(data, dtype="<i8").astype(np.int64), int(line["sent"])

    def end(self) -> None:
        """Returns when it has said goodbye to the others."""
        self._line(GRACE_S)

    @property
    def _left(self) -> float:
        return max(0.0, self._deadline - now_s()) + GRACE_S

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
            raise MpycError(_ENDED)
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
    job: Job,
    index: int,
    identity: Ed25519PrivateKey,
    addresses: Sequence[Address],
    give: Callable[[], tuple[IntArray, IntArray | None]],
    deadline: float,
    *,
    on_opening: Callable[[], None],
    on_result: Callable[[IntArray | None, int], None],
    bind: Address | None = None,
) -> None:
    """One party's part of a session, in a process of its own: see `session.run_party`.

    Listens on the party's own address only; `bind` names another, as behind a router. When the process is ready `give`
    is asked for values and noise: what is wrong with key, addresses or port shows before. `on_opening` must make
    durable that this session's result is opened, before it returns, and `on_result` the result: None is a receipt.
    """
    job.digest()  # refuses parameters that do not travel
    check_identity(job.terms, index, identity)
    check_addresses(addresses, job.terms.count)
    worker = WorkerProcess()
    try:
        worker.give(job, index, identity, bind or addresses[index], deadline)
        worker.port()
        if deadline <= now_s():
            raise DeadlineError("the deadline passed before our own process had started: allow more time")
        worker.go(*give(), addresses)
        worker.opening()
        on_opening()
        worker.say("open")
        on_result(*worker.outcome())
        worker.say("done")
        with suppress(TpmdpError):  # we have what we wanted
            worker.end()
    finally:
        worker.stop()
