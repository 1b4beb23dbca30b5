"""SPU's process as the process that starts it sees it; `pair_worker` lists what passes through the pipes."""

from __future__ import annotations

import json
import secrets
import shutil
import socket
import tempfile
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

import numpy as np

from tpmdp._util.arrays import IntArray
from tpmdp._util.process import START_S, ChildProcess, Report
from tpmdp.engines.direct.record import DirectError
from tpmdp.engines.spu.interpreter import spu_python
from tpmdp.engines.spu.pair_task import PairTask
from tpmdp.errors import DeadlineError, InputError

_WORKER: Final = Path(__file__).with_name("pair_worker.py")
_DAY_S: Final = 86400.0  # the session's deadline ends a computation
_BELOW: Final = len("/12345678/other")  # of a socket in a tunnel's folder


class PairProcess:
    """It stays alive for any number of pairs, one after the other.

    Sockets and whatever else it needs are in its private `folder`. Both processes remove it: whichever outlives the
    other.
    """

    def __init__(self) -> None:
        self.folder = socket_base() / _name()
        self._child = ChildProcess(str(_WORKER), str(self.folder), interpreter=spu_python())

    def ready(self) -> None:
        """Wait until SPU is loaded."""
        try:
            self._report(START_S)
        except BaseException:
            self.stop()
            raise

    def prepare(self, tasks: Sequence[PairTask]) -> None:
        """Compile what is to come; nothing depends on data."""
        self._tell({"do": "prepare", "tasks": [task.plain() for task in tasks]})
        self._report(_DAY_S)

    def share(
        self, task: PairTask, rank: int, sockets: Sequence[str], *, numbers: Sequence[IntArray], peer: str
    ) -> IntArray:
        """Our share of the pair's result, modulo 2^64; our own numbers in the order of the task's inputs.

        `peer` is the name of the other party.
        """
        words = {"do": "compute", "rank": rank, "sockets": list(sockets)}
        self._tell({**words, **task.plain()}, numbers)
        size = int(self._report(_DAY_S, peer)["share"])
        return self._numbers(size)

    def evaluate(self, file: Path, function: str, left: IntArray, right: IntArray) -> IntArray | None:
        """The function in the clear, for every row of made-up inputs; nothing if it gives no whole numbers."""
        words = {"do": "evaluate", "file": str(file), "function": function}
        self._tell({**words, "shapes": [list(left.shape), list(right.shape)]}, [left, right])
        report = self._report(START_S)
        if not report["whole"]:
            return None
        shape = report["result"]
        return self._numbers(8 * int(np.prod(shape))).reshape(shape)

    def stop(self) -> None:
        """Kill it, and leave nothing behind, even if we are killed meanwhile: as long as it lives, it cleans up."""
        shutil.rmtree(self.folder, ignore_errors=True)
        self._child.stop()
        shutil.rmtree(self.folder, ignore_errors=True)  # it was just about to make it

    def _tell(self, words: dict[str, Any], numbers: Sequence[IntArray] = ()) -> None:
        data = b"".join(np.ascontiguousarray(each).astype("<i8").tobytes() for each in numbers)
        self._child.write(json.dumps({**words, "bytes": len(data)}).encode() + b"\n", data)

    def _report(self, timeout_s: float, peer: str = "") -> Report:
        report = self._child.report(timeout_s)
        if self._child.timed_out:
            raise DeadlineError("SPU's process took too long: run again when the machine has less to do")
        if not report:
            raise _ended_error(peer)
        if "error" in report:
            where, hint = (f" with {peer}", f", and ask {peer}") if peer else ("", "")
            raise DirectError(
                f"SPU could not compute the function{where} ({report['error']}): check the function{hint}"
            )
        return report

    def _numbers(self, size: int) -> IntArray:
        data = self._child.read(size)
        if len(data) != size:
            raise _ended_error("")
        return np.frombuffer(data, dtype="<i8").astype(np.int64)


def socket_base() -> Path:
    """Where private folders with sockets can be made: the temporary folder, or `/tmp` if its path is too long.

    >>> socket_base().is_dir()
    True
    """
    bases = ["/tmp"]  # noqa: S108
    with suppress(OSError):  # there is none
        bases.insert(0, tempfile.gettempdir())
    for base in bases:
        with suppress(OSError), socket.socket(socket.AF_UNIX) as tried:
            path = Path(base) / (_name() + "-" * _BELOW)
            tried.bind(str(path))
            path.unlink()
            return Path(base)
    remedy = "set TMPDIR to a folder with a short path that you can write to"
    raise InputError("temporary folder", bases[0], "must take sockets, which SPU needs", remedy)


def _name() -> str:
    return f"tpmdp-{secrets.token_hex(8)}"


def _ended_error(peer: str) -> DirectError:
    where, hint = (f" while it computed with {peer}", f", and ask {peer}") if peer else ("", "")
    return DirectError(f"SPU's process ended{where}: look for a full memory{hint}")
