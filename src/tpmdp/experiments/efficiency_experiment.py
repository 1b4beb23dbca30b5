"""The paper's efficiency experiment: time and memory of a generic solver and of our closed form, against n.

All parties receive, and needs are lognormal: hard enough for a solver, and the paper names none. The generic solver
gets Eq. (4) with a row for each coalition of exactly t parties: the variances of the honest sum to at least their
largest need. The paper counts a row for each coalition and honest party; the others of a coalition follow from that
one, so what is measured here is about n times smaller than the paper's table says. It is the paper's program, not
the best one can do with a solver: a further variable for the sum of all variances leaves t + 1 nonzeros per row instead
of n - t, which helps much where t is constant and not at all where it is half.

t is constant or half of the parties. Two constants, to see the exponent move with t: 2, the least with more rows than
parties, and 3; from 4 on memory is full near n = 60, too early for a slope.
"""

from __future__ import annotations

import json
import signal
from collections.abc import Sequence
from dataclasses import asdict
from math import ceil, comb, exp, lgamma, log
from pathlib import Path
from typing import Any, Final

import numpy as np

from tpmdp._util.clock import now_s
from tpmdp._util.process import ChildProcess
from tpmdp.errors import SolverError
from tpmdp.experiments.jobs import Job, Row, Value

WORKER: Final = "tpmdp.experiments.efficiency_worker"
METHODS: Final = {"highs": "HiGHS", "gurobi": "Gurobi", "ours": "ours"}
CONSTANTS: Final = {"t2": 2, "t3": 3}
RULES: Final = {"t2": "t = 2", "t3": "t = 3", "half": "t = n/2"}

Grid = dict[str, tuple[int, ...]]
# The last of HiGHS is more than the memory holds (the one before takes 6 to 8 GB), the last of Gurobi more than its
# licence for 2000 rows.
HIGHS: Final[Grid] = {
    "t2": (10, 20, 40, 63, 100, 140, 200, 280, 400, 500),
    "t3": (10, 16, 20, 23, 32, 40, 64, 90, 120, 140),
    "half": (6, 8, 10, 12, 13, 14, 16, 18, 20, 21, 22, 23, 24, 25),
}
GUROBI: Final[Grid] = {
    "t2": (10, 20, 30, 40, 50, 63, 64),
    "t3": (8, 12, 16, 18, 20, 22, 23, 24),
    "half": (6, 8, 10, 11, 12, 13, 14),
}
OURS: Final = (1_000, 3_000, 10_000, 30_000, 100_000, 300_000, 1_000_000, 3_000_000, 10_000_000)
QUICK_HIGHS: Final[Grid] = {"t2": (10, 40, 64, 100), "t3": (10, 20, 24, 40), "half": (6, 12, 14, 16)}
QUICK_GUROBI: Final[Grid] = {"t2": (40, 64), "t3": (20, 24), "half": (12, 14)}
QUICK_OURS: Final = (1_000, 100_000, 300_000)

MEMORY_LIMIT_MB: Final = 8192
TIME_LIMIT_S: Final = 90.0
QUICK_TIME_LIMIT_S: Final = 30.0
# What a worker imports anyway. Its peak of memory is counted from after that, so a fork measures the same.
_WARM: Final = ("tpmdp.planning.lp", "tpmdp.experiments.jobs")
_POLL_S: Final = 0.02  # a process may exceed the memory limit by what it fills in that time
_OVERHEAD: Final = 4.0  # a point below so many times the least of its series is mostly overhead
OVERHEAD_BYTES: Final = 1 << 20  # pages that come with any work, and how exactly Linux counts them
_POINTS_MIN: Final = 3


def threshold_of(rule: str, count: int) -> int:
    """The threshold for this number of parties.

    >>> threshold_of("t3", 10), threshold_of("half", 11)
    (3, 5)
    """
    return CONSTANTS.get(rule, count // 2)


def jobs(quick: bool, seed: int) -> list[Job]:
    """A job for each rule, method and n; our method also takes every n of the solvers, to compare the answers.

    >>> len(jobs(quick=True, seed=1)) < len(jobs(quick=False, seed=1))
    True
    """
    highs, gurobi, far = (QUICK_HIGHS, QUICK_GUROBI, QUICK_OURS) if quick else (HIGHS, GUROBI, OURS)
    result = []
    for rule in RULES:
        sizes = {"highs": highs[rule], "gurobi": gurobi[rule]}
        sizes["ours"] = tuple(sorted({*highs[rule], *gurobi[rule], *far}))
        for method in METHODS:
            result += [_job(rule, method, count, quick=quick, seed=seed) for count in sizes[method]]
    return result


def _job(rule: str, method: str, count: int, quick: bool, seed: int) -> Job:
    limit_s, runs = (QUICK_TIME_LIMIT_S, 5) if quick else (TIME_LIMIT_S, 21)
    settings = (("method", method), ("time_limit_s", limit_s), ("memory_limit_mb", MEMORY_LIMIT_MB))
    if method == "ours":
        seconds = 0.2 + 1e-7 * count
    else:  # about a microsecond per nonzero, plus the start of the process
        seconds = min(limit_s, 0.6 + 1.2e-6 * _nonzeros(count, threshold_of(rule, count)))
    return Job("efficiency", rule, float(count), first=0, count=runs, seed=seed, settings=settings, weight=seconds)


def run(job: Job) -> list[Row]:
    """The job's point, measured in a process of its own. A point beyond a limit is a row that says so.

    >>> settings = (("method", "ours"), ("time_limit_s", 30.0), ("memory_limit_mb", 1000))
    >>> row, = run(Job("efficiency", "half", 6.0, 0, 3, seed=1, settings=settings))
    >>> row["outcome"], row["threshold"], row["constraints"]
    ('ok', 3, 20)
    """
    count = int(job.x)
    threshold = threshold_of(job.panel, count)
    method = str(job.setting["method"])
    answer = _measured(job, threshold)
    if "error" in answer:
        raise SolverError(f"{METHODS[method]} with n = {count}, t = {threshold} failed: {answer['error']}")
    seconds = answer["build_s"] + answer["solve_s"] if "solve_s" in answer else None
    return [
        {
            "panel": job.panel,
            "rule": RULES[job.panel],
            "method": method,
            "n": count,
            "threshold": threshold,
            "seconds": seconds,
            **{name: answer.get(name) for name in ("build_s", "solve_s", "runs", "peak_bytes")},
            "constraints": _coalitions(count, threshold),
            "nonzeros": None if method == "ours" else _nonzeros(count, threshold),
            "total": answer.get("total"),
            "outcome": answer["outcome"],
            "seed": job.seed,
        }
    ]


def _measured(job: Job, threshold: int) -> dict[str, Any]:
    """What the worker answers, or which limit it exceeded; it is gone afterwards."""
    deadline = now_s() + float(job.setting["time_limit_s"] or 0)
    most_bytes = int(job.setting["memory_limit_mb"] or 0) << 20
    line = json.dumps({"job": asdict(job), "threshold": threshold}).encode() + b"\n"
    child = ChildProcess("-m", WORKER, warm=_WARM)
    try:
        child.write(line)
        while (code := child.wait(_POLL_S)) is None:
            if now_s() > deadline:
                return {"outcome": "time"}
            if _resident_bytes(child.pid) > most_bytes:
                return {"outcome": "memory"}
        if code == -signal.SIGKILL:
            return {"outcome": "memory"}  # not our doing: the system ends processes when memory runs out
        return child.report() or {"error": "the process ended without an answer"}
    finally:
        child.stop()


def _resident_bytes(pid: int) -> int:
    """Memory that a process really uses; 0 where the system does not say, so there is no limit there.

    It is watched from outside: the system's own limit counts address space, of which HiGHS reserves twice what it uses.
    """
    try:
        status = Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return 0
    return next((1024 * int(line.split()[1]) for line in status.splitlines() if line.startswith("VmRSS:")), 0)


def _coalitions(count: int, threshold: int) -> int | float | None:
    """How many there are: None beyond all doubles."""
    if lgamma(count + 1) - lgamma(threshold + 1) - lgamma(count - threshold + 1) > 700:
        return None
    exact = comb(count, threshold)
    return exact if exact < 2**53 else float(exact)


def _nonzeros(count: int, threshold: int) -> int:
    return comb(count, threshold) * (count - threshold)


def complexity(rows: Sequence[Row]) -> list[Row]:
    """The paper's complexity table beside what was measured: exponents of n, or growth for each added party.

    The paper's H(p) = p log p + (1 - p) log(1 - p) lacks its minus sign; meant is the entropy, and H(1/2) = 1.

    >>> made_up = {"panel": "t2", "method": "ours", "outcome": "ok"}
    >>> rows = [{**made_up, "n": 10**k, "seconds": 1e-9 * 10**k, "peak_bytes": 8 * 10**k} for k in range(2, 9)]
    >>> table, = complexity(rows)
    >>> table["what"], table["paper_time"], table["measured_time"], table["over"]
    ('ours, t = 2', 'O(n)', 'n^1.00', 'n = 1e+06 to 1e+08')
    """
    result: list[Row] = []
    for method, name in METHODS.items():
        for rule, label in RULES.items():
            series = [row for row in rows if (row["method"], row["panel"], row["outcome"]) == (method, rule, "ok")]
            if not series:
                continue
            exponential = rule == "half" and method != "ours"
            space, space_over = _growth(series, "peak_bytes", exponential)
            time, time_over = _growth(series, "seconds", exponential)
            paper_space, paper_time = _paper(method, rule)
            result.append(
                {
                    "what": f"{name}, {label}",
                    "paper_space": paper_space,
                    "measured_space": space,
                    "paper_time": paper_time,
                    "measured_time": time,
                    "over": time_over if time_over == space_over else f"{time_over} (time), {space_over} (space)",
                }
            )
    return result


def _paper(method: str, rule: str) -> tuple[str, str]:
    """Table "Complexity for generic LP solver and Alg. 2": space and time."""
    if method == "ours":
        return "O(n)", "O(n)"
    if rule == "half":
        return "O(n^1.5 2^(H(p) n)) = O(n^1.5 2^n)", "~O(n^2 2^(H(p) n)) = ~O(n^2 2^n)"
    constant = CONSTANTS[rule]
    return f"O(n^(C+2)) = O(n^{constant + 2})", f"~O(n^(C+2.5)) = ~O(n^{constant + 2.5})"


def _growth(series: Sequence[Row], column: str, exponential: bool) -> tuple[str, str]:
    """How a column grows with n, and over which n: by least squares on the larger half of what is not overhead."""
    points = sorted((float(row["n"] or 0), float(row[column] or 0)) for row in series)
    least = max(_OVERHEAD * min(value for _, value in points), OVERHEAD_BYTES if column == "peak_bytes" else 0.0)
    points = [(n, value) for n, value in points if value >= least]
    points = points[-max(_POINTS_MIN, ceil(len(points) / 2)) :]
    if len(points) < _POINTS_MIN or (not exponential and points[-1][0] < 2 * points[0][0]):
        return "too few points", "-"
    across = [n if exponential else log(n) for n, _ in points]
    slope = float(np.polyfit(across, [log(value) for _, value in points], 1)[0])
    return f"{exp(slope):.2f}^n" if exponential else f"n^{slope:.2f}", f"n = {points[0][0]:g} to {points[-1][0]:g}"


def disagreement(rows: Sequence[Row]) -> float:
    """The largest relative difference between the totals that methods found for the same problem.

    >>> same = {"rule": "t = 2", "n": 9}
    >>> disagreement([{**same, "total": 4.0}, {**same, "total": 5.0}, {**same, "total": None}])
    0.2
    """
    totals: dict[tuple[Value, Value], list[float]] = {}
    for row in rows:
        if row["total"] is not None:
            totals.setdefault((row["rule"], row["n"]), []).append(float(row["total"]))
    return max(((max(same) - min(same)) / max(same) for same in totals.values()), default=0.0)
