"""SPU's process as the process that starts it sees it; `pair_worker` lists what passes through the pipes."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np

from tpmdp._util.arrays import IntArray
from tpmdp._util.process import START_S, ChildProcess, Report
from tpmdp.engines.direct.record import DirectError
from tpmdp.engines.spu.interpreter import spu_python
from tpmdp.engines.spu.pair_task import PairTask

_WORKER: Final = Path(__file__).with_name("pair_worker.py")
_DAY_S: Final = 86400.0  # the session's deadline ends a computation


class PairProcess:
    """It stays alive for any number of pairs, one after the other."""

    def __init__(self) -> None:
        self._child = ChildProcess(str(_WORKER), interpreter=spu_python())

    def ready(self) -> None:
        """Wait until SPU is loaded."""
        self._report(START_S)

    def prepare(self, tasks: Sequence[PairTask]) -> None:
        """Compile what is to come; nothing depends on data."""
        self._tell({"do": "prepare", "tasks": [task.plain() for task in tasks]})
        self._report(_DAY_S)

    def share(self, task: PairTask, rank: int, sockets: Sequence[str], numbers: Sequence[IntArray]) -> IntArray:
        """Our share of the pair's result, modulo 2^64; our own numbers in the order of the task's inputs."""
        words = {"do": "compute", "rank": rank, "sockets": list(sockets)}
        self._tell({**words, **task.plain()}, numbers)
        size = int(self._report(_DAY_S)["share"])
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
        """Kill it."""
        self._child.stop()

    def _tell(self, words: dict[str, Any], numbers: Sequence[IntArray] = ()) -> None:
        data = b"".join(np.ascontiguousarray(each).astype("<i8").tobytes() for each in numbers)
        self._child.write(json.dumps({**words, "bytes": len(data)}).encode() + b"\n", data)

    def _report(self, timeout_s: float) -> Report:
        report = self._child.report(timeout_s)
        if not report:
            raise DirectError("SPU's process ended: look for a full memory")
        if "error" in report:
            raise DirectError(f"SPU could not compute the function ({report['error']}): check the function")
        return report

    def _numbers(self, size: int) -> IntArray:
        data = self._child.read(size)
        if len(data) != size:
            raise DirectError("SPU's process ended: look for a full memory")
        return np.frombuffer(data, dtype="<i8").astype(np.int64)
