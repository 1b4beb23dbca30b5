"""Timing, and the rows of the table."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass


@dataclass(frozen=True)
class Row:
    """A line of the table: what was compared, the ratio measured, and the ratio wanted."""

    what: str
    ratio: str
    wanted: str
    note: str = ""


def best_seconds(work: Callable[[], object], repeats: int = 5, at_least_s: float = 0.02) -> float:
    """The best time of a call over several rounds, each long enough to measure."""
    work()
    calls = 1
    while True:
        start = time.perf_counter()
        for _ in range(calls):
            work()
        elapsed = time.perf_counter() - start
        if elapsed >= at_least_s:
            break
        calls *= 2
    best = elapsed / calls
    for _ in range(repeats - 1):
        start = time.perf_counter()
        for _ in range(calls):
            work()
        best = min(best, (time.perf_counter() - start) / calls)
    return best


@contextmanager
def single_core() -> Iterator[None]:
    """Keep this process on one core."""
    cores = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {min(cores)})
    try:
        yield
    finally:
        os.sched_setaffinity(0, cores)


def times(ratio: float) -> str:
    """A ratio for the table."""
    return f"{ratio:,.0f}x" if ratio >= 100 else f"{ratio:.3g}x"
