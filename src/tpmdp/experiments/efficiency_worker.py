"""One point of the efficiency experiment in a process of its own: a job comes in as a line of JSON, an answer leaves.

A process of its own, because only so can its peak of memory be told from that of others, and because a solver that
takes too much of memory or time can be ended from outside. It ends when its standard input does.
"""

from __future__ import annotations

import json
import resource
import sys
import time
from contextlib import suppress
from dataclasses import replace
from itertools import chain, combinations, islice
from math import comb
from pathlib import Path
from statistics import median
from typing import Any, Final

import numpy as np

from tpmdp._util.arrays import BoolArray, FloatArray
from tpmdp._util.child_side import end_with_stdin, private_output, write_report
from tpmdp.errors import MissingDependencyError, SolverError
from tpmdp.experiments.jobs import Job
from tpmdp.planning.closed_form import optimal_variance

_REPEATING_S: Final = 1.0  # as many runs as fit into this, so that a single one is not all chance
_ROWS_AT_ONCE: Final = 8192  # of the constraint matrix: what is needed beside it stays small
_PROCESS: Final = Path("/proc/self")


def main() -> None:
    """Read a task, do it, answer, end."""
    out = private_output()
    with suppress(OSError):  # where memory runs out, the system shall end this process and no other
        (_PROCESS / "oom_score_adj").write_text("1000")
    task = json.loads(sys.stdin.readline())
    end_with_stdin()
    fields = task["job"]
    job = Job(**{**fields, "settings": tuple((name, value) for name, value in fields["settings"])})
    try:
        answer = measure(draw_needs(job), task["threshold"], str(job.setting["method"]), count=job.count)
    except MemoryError:
        answer = {"outcome": "memory"}
    except MissingDependencyError:
        answer = {"outcome": "missing"}
    except SolverError as error:
        # Gurobi writes "license", we write "licence": the word is Gurobi's own.
        answer = {"outcome": "licence"} if "license" in str(error) else {"error": str(error)}
    except Exception as error:
        answer = {"error": f"{type(error).__name__}: {error}"}
    write_report(out, answer)


def draw_needs(job: Job) -> FloatArray:
    """What each party requires: lognormal, so all differ, and the same for every method and threshold.

    >>> len(draw_needs(Job("efficiency", "t2", 5.0, 0, 1, 1)))
    5
    """
    same = replace(job, panel="needs")  # for every threshold
    return same.random(0).lognormal(0.0, 1.0, int(job.x))


def measure(need: FloatArray, threshold: int, method: str, count: int) -> dict[str, Any]:
    """Seconds (medians of at most `count` runs), bytes at the peak of the first run, and the total variance found.

    >>> answer = measure(np.array([4.0, 1.0, 1.0]), 1, "ours", count=3)
    >>> answer["outcome"], answer["total"]
    ('ok', 4.5)
    """
    _once(np.ones(3), 1, np.ones(3, dtype=np.bool_), method=method)  # modules and libraries are loaded now
    everyone = np.ones(len(need), dtype=np.bool_)  # receives: an input like the needs, so not counted
    before, since = _memory_now()
    runs = [_once(need, threshold, everyone, method=method)]
    peak = max(0, _memory_peak(since) - before)  # of the first run: the next ones find memory that it left
    more = min(count, int(_REPEATING_S / (runs[0][0] + runs[0][1]))) - 1
    runs += [_once(need, threshold, everyone, method=method) for _ in range(more)]
    build_s, solve_s = (median(run[part] for run in runs) for part in (0, 1))
    measured = {"build_s": build_s, "solve_s": solve_s, "runs": len(runs), "peak_bytes": peak}
    return {"outcome": "ok", **measured, "total": runs[0][2]}


def _once(need: FloatArray, threshold: int, everyone: BoolArray, method: str) -> tuple[float, float, float]:
    """Seconds to write the program down, seconds to solve it, and the total variance."""
    if method == "ours":
        start = time.perf_counter()
        variance, _ = optimal_variance(need, threshold, everyone)
        return 0.0, time.perf_counter() - start, float(variance.sum())
    from tpmdp.planning import lp  # loads SciPy, for which our own method has no use

    start = time.perf_counter()
    matrix, bound = constraint_matrix(need, threshold)
    built = time.perf_counter()
    scale = float(bound.max())
    solve = lp.solve_with_gurobi if method == "gurobi" else lp.solve_with_highs
    variance = solve(matrix, bound / scale) * scale
    return built - start, time.perf_counter() - built, float(variance.sum())


def constraint_matrix(need: FloatArray, threshold: int) -> tuple[Any, FloatArray]:
    """Who is honest (a sparse row of ones a coalition) and the largest need among them, when all parties receive.

    >>> matrix, bound = constraint_matrix(np.array([4.0, 1.0]), 1)
    >>> matrix.toarray().tolist(), bound.tolist()
    ([[0, 1], [1, 0]], [1.0, 4.0])
    """
    from scipy import sparse

    count, honest, rows = len(need), len(need) - threshold, comb(len(need), threshold)
    columns, bound = np.empty((rows, honest), dtype=np.int32), np.empty(rows)
    coalitions = combinations(range(count), threshold)
    for first in range(0, rows, _ROWS_AT_ONCE):
        some = min(_ROWS_AT_ONCE, rows - first)
        members = np.fromiter(chain.from_iterable(islice(coalitions, some)), np.int64, some * threshold)
        outside = np.ones((some, count), dtype=np.bool_)
        np.put_along_axis(outside, members.reshape(some, threshold), False, axis=1)
        parties = np.nonzero(outside)[1].reshape(some, honest)
        columns[first : first + some] = parties
        bound[first : first + some] = need[parties].max(axis=1)
    # Bytes as values: solvers turn them into doubles of their own, and those here would only take room.
    ones, starts = np.ones(rows * honest, dtype=np.int8), np.arange(rows + 1, dtype=np.int64) * honest
    return sparse.csr_matrix((ones, columns.ravel(), starts), shape=(rows, count), copy=False), bound


def _memory_now() -> tuple[int, bool]:
    """Bytes in use, and whether the peak is counted from now on; where it cannot be, the peak so far."""
    try:
        (_PROCESS / "clear_refs").write_text("5")
        return _status_bytes("VmRSS:"), True
    except OSError:
        return _memory_peak(False), False


def _memory_peak(counted_anew: bool) -> int:
    if counted_anew:
        return _status_bytes("VmHWM:")
    most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return most if sys.platform == "darwin" else 1024 * most


def _status_bytes(field: str) -> int:
    lines = (_PROCESS / "status").read_text().splitlines()
    return 1024 * int(next(line for line in lines if line.startswith(field)).split()[1])


if __name__ == "__main__":
    main()
