"""Inner products between columns of different parties in pairs (engine spu), against Shamir shares (engine mpyc).

Needs SPU's environment: `make install-spu`. Every party may collude with every other but one in the first; in the
second, fewer than half. Memory is the largest of any party: of its worker, and of SPU's process beside it.
"""

from __future__ import annotations

import argparse
import statistics
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks.__main__ import table
from benchmarks.memory_worker import STATUS
from benchmarks.timing import Row, times
from benchmarks.vertical import Vertical
from tpmdp.engines.direct.worker_process import WorkerProcess
from tpmdp.engines.spu.interpreter import requirements

_EVERY_S = 0.02
HEAD = """# Measures: pairs

One run of `make bench-pairs`, which rewrites this page. All parties share the machine, and absolute times say little,
since machines are shared. Columns are dealt out to the parties in turn; every product of columns of different parties
is computed. A pair has a fixed cost, for keys and for encrypting a first block of records, which Shamir shares do not
have: so the ratio falls with the number of records. Most of it is spent in SEAL, which looks for its primes anew in
every pair with random numbers from the processor's slow generator; SPU 0.9.5 has no setting for that.

"""


@dataclass(frozen=True)
class Size:
    parties: tuple[int, ...] = (2, 3, 5)
    records: tuple[int, ...] = (10_000, 100_000)
    columns: tuple[int, ...] = (5, 10)
    repeats: int = 3


FULL, TOY = Size(), Size(parties=(2, 3), records=(20,), columns=(5,), repeats=1)


class _Memory:
    """The most memory, in MB, that any worker and any process below one took."""

    def __init__(self) -> None:
        self.worker = self.below = 0.0
        self._ended = threading.Event()
        self._thread: threading.Thread | None = None

    def watch(self, workers: Sequence[WorkerProcess]) -> None:
        pids = [worker.child.pid for worker in workers]
        self._thread = threading.Thread(target=self._sample, args=(pids,))
        self._thread.start()

    def stop(self) -> None:
        self._ended.set()
        if self._thread is not None:
            self._thread.join()

    def _sample(self, pids: list[int]) -> None:
        while not self._ended.wait(_EVERY_S):
            for pid in pids:
                self.worker = max(self.worker, _peak_mb(pid))
                for below in _children(pid):
                    self.below = max(self.below, _peak_mb(below))


def _peak_mb(pid: int) -> float:
    try:
        lines = Path(f"/proc/{pid}/{STATUS.name}").read_text().splitlines()
    except OSError:
        return 0.0
    return max((int(line.split()[1]) / 1024 for line in lines if line.startswith("VmHWM")), default=0.0)


def _children(pid: int) -> list[int]:
    try:
        tasks = list(Path(f"/proc/{pid}/task").iterdir())
        return [int(word) for task in tasks for word in (task / "children").read_text().split()]
    except OSError:
        return []


def row(parties: int, records: int, columns: int, repeats: int) -> Row:
    """One piece of work, in pairs and, where that can be, on shares."""
    pairs = Vertical(parties, records, columns, threshold=parties - 1)
    memory = _Memory()
    seconds = [pairs.seconds("spu", memory.watch if place == 0 else None) for place in range(repeats)]
    memory.stop()
    ours = statistics.median(seconds)
    note = (
        f"{ours:.2f} s; a party sends at most {max(pairs.sent):,} bytes; memory {memory.worker:,.0f} MB, "
        f"and {memory.below:,.0f} MB of SPU"
    )
    what = f"inner products in pairs, {pairs.shape}"
    if parties < 3:
        return Row(what, "-", "", f"{note}; shares cannot do it")
    shares = Vertical(parties, records, columns)
    theirs = statistics.median(shares.seconds("mpyc") for _ in range(repeats))
    note += f"; on shares, t = {(parties - 1) // 2}: {theirs:.2f} s, {max(shares.sent):,} bytes"
    return Row(f"{what}, against shares", times(ours / theirs), "at most 3x", note)


def all_rows(size: Size = FULL) -> list[Row]:
    """The rows on pairs."""
    return [
        row(parties, records, columns, size.repeats)
        for parties in size.parties
        for records in size.records
        for columns in size.columns
    ]


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.pairs")
    parser.add_argument("--out", type=Path)
    parser.add_argument("--toy", action="store_true", help="sizes that show only that it runs")
    given = parser.parse_args()
    text = HEAD + table(all_rows(TOY if given.toy else FULL)) + f"\nMeasured with {', '.join(requirements())}.\n"
    print(text)
    if given.out is not None:
        given.out.write_text(text)


if __name__ == "__main__":
    main()
