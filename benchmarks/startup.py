"""Start-up of the command line against importing NumPy."""

from __future__ import annotations

import statistics
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

from benchmarks.timing import Row, times


@dataclass(frozen=True)
class Size:
    rounds: int = 15


FULL, TOY = Size(), Size(rounds=1)


def rows(size: Size = FULL) -> list[Row]:
    """The rows on start-up: medians of alternating runs."""
    script = str(Path(sys.executable).with_name("tpmdp"))
    commands = ([script, "--help"], [sys.executable, "-c", "import numpy"], [sys.executable, "-c", "import tpmdp"])
    taken: list[list[float]] = [[], [], []]
    for _ in range(size.rounds):
        for seconds, command in zip(taken, commands, strict=True):
            start = time.perf_counter()
            subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
            seconds.append(time.perf_counter() - start)
    shown, numpy, bare = (statistics.median(seconds) for seconds in taken)
    return [
        Row("tpmdp --help against python -c 'import numpy'", times(shown / numpy), "at most 2x", "lower is better"),
        Row("import tpmdp against import numpy", times(bare / numpy), "", "lower is better"),
    ]
