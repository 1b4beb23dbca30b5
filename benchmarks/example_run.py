"""The shipped example, a relay and five parties in processes of their own, against a bare start with its imports."""

from __future__ import annotations

import os
import statistics
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

from benchmarks.timing import Row, times

STUDY = Path(__file__).parents[1] / "examples" / "stay" / "study.toml"
WANTED = 6


@dataclass(frozen=True)
class Size:
    rounds: int = 7


FULL, TOY = Size(), Size(rounds=1)


def processor_seconds(*arguments: str) -> float:
    """Processor time of a Python process, and of all processes that it started and waited for."""
    silent = [(os.POSIX_SPAWN_OPEN, number, os.devnull, os.O_WRONLY, 0) for number in (1, 2)]
    child = os.posix_spawn(sys.executable, [sys.executable, *arguments], os.environ, file_actions=silent)
    _, status, usage = os.wait4(child, 0)
    code = os.waitstatus_to_exitcode(status)
    if code:
        raise RuntimeError(f"python {' '.join(arguments)} ended with code {code}")
    return usage.ru_utime + usage.ru_stime


def ratio() -> float:
    """How many bare starts one run of the example costs."""
    bare = processor_seconds("-c", "import tpmdp.study.join")
    with tempfile.TemporaryDirectory() as folder:
        run = processor_seconds("-m", "tpmdp", "run", str(STUDY), "--state", str(Path(folder) / "state"))
    return run / bare


def rows(size: Size = FULL) -> list[Row]:
    """The row on the example: the median of alternating runs."""
    measured = statistics.median(ratio() for _ in range(size.rounds))
    what = "tpmdp run examples/stay/study.toml against python -c 'import tpmdp.study.join'"
    return [Row(what, times(measured), f"at most {WANTED}x", "processor time, of all processes; lower is better")]
