"""The efficiency experiment: equal answers, limits that hold, and no process left behind."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tpmdp.experiments.efficiency_experiment as efficiency
from tests.patience import wait_until
from tpmdp._util.process import ChildProcess
from tpmdp.errors import SolverError
from tpmdp.experiments.efficiency_experiment import METHODS, disagreement, run, threshold_of
from tpmdp.experiments.efficiency_worker import constraint_matrix, draw_needs
from tpmdp.experiments.jobs import Job
from tpmdp.planning.lp import enumerate_constraints, solve_enumerated

pytestmark = pytest.mark.process

COLUMNS = ["panel", "rule", "method", "n", "threshold", "seconds", "build_s", "solve_s", "runs", "peak_bytes"]
COLUMNS += ["constraints", "nonzeros", "total", "outcome", "seed"]
MEASURED = ("seconds", "build_s", "solve_s", "runs", "peak_bytes", "total")


def job(method: str, rule: str, count: int, time_limit_s: float = 60.0, memory_limit_mb: int = 4096) -> Job:
    settings = (("method", method), ("time_limit_s", time_limit_s), ("memory_limit_mb", memory_limit_mb))
    return Job("efficiency", rule, float(count), 0, 3, 7, settings)


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> list[ChildProcess]:
    """The processes that the experiment starts."""
    children: list[ChildProcess] = []

    def start(*arguments: str, **options: Any) -> ChildProcess:
        children.append(ChildProcess(*arguments, **options))
        return children[-1]

    monkeypatch.setattr(efficiency, "ChildProcess", start)
    return children


@pytest.mark.parametrize(("count", "threshold"), [(2, 1), (5, 2), (7, 3), (9, 8), (10, 5), (40, 3)])
def test_the_matrix_is_that_of_the_reference(count: int, threshold: int) -> None:
    need = np.random.default_rng(count).lognormal(0, 1, count)
    matrix, bound = constraint_matrix(need, threshold)
    honest, expected = enumerate_constraints(need, threshold, np.ones(count, dtype=np.bool_))
    assert np.array_equal(matrix.toarray(), honest)
    assert np.array_equal(bound, expected)
    assert matrix.indices.dtype == np.int32
    assert matrix.nnz == efficiency._nonzeros(count, threshold)


@pytest.mark.parametrize(("rule", "count"), [("t2", 6), ("t3", 9), ("half", 10)])
def test_methods_agree_with_the_reference_and_each_other(rule: str, count: int) -> None:
    pytest.importorskip("gurobipy")
    rows = [row for method in METHODS for row in run(job(method, rule, count))]
    need = draw_needs(job("ours", rule, count))
    reference = solve_enumerated(need, threshold_of(rule, count), np.ones(count, dtype=np.bool_))
    for row in rows:
        assert list(row) == COLUMNS
        assert row["outcome"] == "ok"
        assert row["total"] == pytest.approx(reference.total, rel=1e-8)
        assert row["constraints"] == reference.constraints
        assert None not in (row[name] for name in MEASURED)
        assert row["seconds"] == float(row["build_s"] or 0) + float(row["solve_s"] or 0)
        assert (row["nonzeros"] is None) == (row["method"] == "ours")
        assert int(row["peak_bytes"] or 0) < 16 << 20  # the modules, which take more, are not counted
    assert disagreement(rows) < 1e-8


def test_a_job_gives_the_same_total_again() -> None:
    point = job("highs", "t2", 8)
    (one,), (again,) = run(point), run(point)
    assert one["total"] == again["total"]
    assert not np.array_equal(draw_needs(point), draw_needs(replace(point, seed=8)))


def assert_gone(started: list[ChildProcess]) -> None:
    (child,) = started
    assert child.wait(0) is not None  # reaped
    assert not Path(f"/proc/{child.pid}").exists()
    with pytest.raises(ValueError, match="closed file"):
        child.read()


@pytest.mark.parametrize(("outcome", "limits"), [("time", {"time_limit_s": 1.0}), ("memory", {"memory_limit_mb": 160})])
def test_a_point_beyond_a_limit_says_so_and_leaves_nothing(
    outcome: str, limits: dict[str, Any], started: list[ChildProcess]
) -> None:
    if outcome == "memory" and not Path("/proc/self/status").exists():
        pytest.skip("this system does not tell the memory of other processes")
    (row,) = run(job("highs", "half", 22, **limits))  # takes seconds, and 2 GB
    assert list(row) == COLUMNS
    assert row["outcome"] == outcome
    assert all(row[name] is None for name in MEASURED)
    assert (row["constraints"], row["nonzeros"]) == (705_432, 705_432 * 11)
    assert_gone(started)


def test_the_memory_of_a_solver_is_counted() -> None:
    (row,) = run(job("highs", "t3", 40))
    assert int(row["peak_bytes"] or 0) > 12 * int(row["nonzeros"] or 0)  # a double and an index each


def test_gurobi_beyond_its_licence() -> None:
    pytest.importorskip("gurobipy")
    (row,) = run(job("gurobi", "half", 14))
    if row["outcome"] == "ok":
        pytest.skip("there is a full licence here")
    assert (row["outcome"], row["constraints"], row["seconds"]) == ("licence", 3432, None)


def test_gurobi_that_is_not_installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "gurobipy.py").write_text("raise ImportError('not here')")
    monkeypatch.syspath_prepend(str(tmp_path))
    assert run(job("gurobi", "t2", 6))[0]["outcome"] == "missing"


def test_a_worker_that_fails_is_an_error_and_not_a_row(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, started: list[ChildProcess]
) -> None:
    (tmp_path / "failing_worker.py").write_text("import sys; print('noise', file=sys.stderr); sys.exit(3)")
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(efficiency, "WORKER", "failing_worker")
    with pytest.raises(SolverError, match="ours with n = 6, t = 2 failed: the process ended without an answer"):
        run(job("ours", "t2", 6))
    assert_gone(started)


def test_a_worker_whom_the_system_ends_had_no_memory(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "ended_worker.py").write_text("import os; os.kill(os.getpid(), 9)")
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(efficiency, "WORKER", "ended_worker")
    assert run(job("ours", "t2", 6))[0]["outcome"] == "memory"


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="processes are looked up in /proc")
def test_a_worker_ends_with_whoever_started_it() -> None:
    point = job("highs", "half", 24)  # would take longer than we wait
    program = (
        "from tpmdp.experiments.jobs import Job\n"
        "from tpmdp.experiments.efficiency_experiment import run\n"
        f"run(Job('efficiency', 'half', 24.0, 0, 1, 7, {point.settings!r}))\n"
    )
    starter = subprocess.Popen([sys.executable, "-c", program])
    children = Path(f"/proc/{starter.pid}/task/{starter.pid}/children")
    try:
        parent = int(wait_until(lambda: children.read_text().split())[0])  # a warm one
        children = Path(f"/proc/{parent}/task/{parent}/children")
        worker = int(wait_until(lambda: children.read_text().split())[0])
        wait_until(lambda: resident_mb(worker) > 200)  # it is at work
    finally:
        starter.kill()
        starter.wait()
    try:
        wait_until(lambda: resident_mb(worker) == 0)
    finally:
        with suppress(ProcessLookupError):
            os.kill(worker, signal.SIGKILL)


def resident_mb(pid: int) -> int:
    return efficiency._resident_bytes(pid) >> 20
