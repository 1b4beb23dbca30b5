"""Running jobs: in parallel, on a cluster, interrupted, killed, and taken up again."""

from __future__ import annotations

import csv
import json
import os
import signal
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

import tpmdp.experiments.consortium_experiment as consortium
import tpmdp.experiments.count_experiment as count
from tests import processes
from tests.experiments.paused_run import JOBS as STORED
from tests.patience import HANG_S, wait_until
from tpmdp._util.interpreter import python_command, python_environment
from tpmdp.errors import FileError, InputError
from tpmdp.experiments.jobs import Job, Row
from tpmdp.experiments.runner import Backend, read_part, run_jobs

JOBS = [Job("count", "threshold", float(x), first, 2, 7) for x in (1, 500, 999) for first in (0, 2)]
ONE = Backend(workers=1)


@pytest.fixture(scope="module")
def wanted() -> list[Row]:
    return [row for job in JOBS for row in count.run(job)]


class Noting:
    """Runs jobs and notes which; fails at one."""

    def __init__(self, fail_at: Job | None = None) -> None:
        self.ran: list[Job] = []
        self.fail_at = fail_at

    def __call__(self, job: Job) -> list[Row]:
        if job == self.fail_at:
            raise RuntimeError("out of luck")
        self.ran.append(job)
        return count.run(job)


@pytest.mark.process
def test_workers_and_one_after_another_give_the_same_rows(tmp_path: Path, wanted: list[Row]) -> None:
    assert run_jobs(JOBS, count.run, tmp_path / "one", backend=ONE) == wanted
    assert run_jobs(JOBS, count.run, tmp_path / "two", backend=Backend(workers=2)) == wanted


def test_what_was_done_before_an_error_is_not_done_again(tmp_path: Path, wanted: list[Row]) -> None:
    first = Noting(fail_at=JOBS[3])
    with pytest.raises(RuntimeError, match="luck"):
        run_jobs(JOBS, first, tmp_path, backend=ONE)
    assert 0 < len(first.ran) < len(JOBS)
    second = Noting()
    assert run_jobs(JOBS, second, tmp_path, backend=ONE) == wanted
    assert {job.key for job in first.ran}.isdisjoint(job.key for job in second.ran)
    assert len(first.ran) + len(second.ran) == len(JOBS)
    third = Noting(fail_at=JOBS[0])
    assert run_jobs(JOBS, third, tmp_path, backend=ONE) == wanted
    assert not third.ran


@pytest.mark.parametrize(
    "spoilt", [b"", b"{", b"[]", b'{"rows": 3}', b'{"rows": [1]}', b"\xff\xfe", b"[" * 100_000, b"less"]
)
def test_a_spoilt_part_is_computed_again(tmp_path: Path, wanted: list[Row], spoilt: bytes) -> None:
    run_jobs(JOBS, count.run, tmp_path, backend=ONE)
    path = tmp_path / f"{JOBS[1].key}.json"
    if spoilt == b"less":  # rows that somebody took out
        kept = json.loads(path.read_text())
        spoilt = json.dumps({**kept, "rows": kept["rows"][1:]}).encode()
    path.write_bytes(spoilt)
    again = Noting()
    assert run_jobs(JOBS, again, tmp_path, backend=ONE) == wanted
    assert again.ran == [JOBS[1]]
    assert read_part(tmp_path, JOBS[1]) is not None


def test_other_seeds_and_settings_do_not_reuse_parts(tmp_path: Path) -> None:
    run_jobs(JOBS[:1], count.run, tmp_path, backend=ONE)
    other = Noting()
    run_jobs([Job("count", "threshold", 1.0, 0, 2, 8)], other, tmp_path, backend=ONE)
    assert len(other.ran) == 1


def test_progress_ends_at_its_total_and_counts_what_was_kept(tmp_path: Path) -> None:
    run_jobs(JOBS[:3], count.run, tmp_path, backend=ONE)
    told: list[tuple[int, int]] = []
    run_jobs(JOBS, count.run, tmp_path, backend=ONE, progress=lambda done, total: told.append((done, total)))
    assert told[0][0] > 0
    assert [done for done, _ in told] == sorted(done for done, _ in told)
    assert told[-1][0] == told[-1][1]


def test_a_folder_that_cannot_be_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(FileError, match="cannot be made"):
        run_jobs(JOBS, count.run, tmp_path / "file" / "parts", backend=ONE)


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (("moon",), "backend = moon must be one of local, dask: choose one"),
        (("local", "tcp://a:1"), "scheduler = tcp://a:1 is the address of a cluster, but the work is done here"),
        (("dask",), r"scheduler = \(none\) is missing: give its address, such as"),
        (("local", None, 0), "workers = 0 must be from 1 to 1024"),
    ],
)
def test_a_bad_backend_is_refused(arguments: tuple[object, ...], text: str) -> None:
    with pytest.raises(InputError, match=text):
        Backend(*arguments)  # type: ignore[arg-type]


# --- a real Dask cluster -----------------------------------------------------------------------------------------


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[str]:
    """A scheduler and two workers, each a process."""
    file = tmp_path / "scheduler.json"
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL, "env": python_environment()}
    with ExitStack() as stack:

        def start(*arguments: str) -> None:
            process = stack.enter_context(subprocess.Popen([*python_command("-m"), *arguments], **quiet))  # type: ignore[call-overload]
            stack.callback(process.terminate)

        where = ("--host", "127.0.0.1", "--port", "0", "--no-dashboard", "--scheduler-file", str(file))
        start("distributed.cli.dask_scheduler", *where)
        wait_until(lambda: file.exists() and file.read_text().endswith("}"))
        address = json.loads(file.read_text())["address"]
        for _ in range(2):
            more = ("--nthreads", "1", "--no-nanny", "--no-dashboard", "--local-directory", str(tmp_path / "worker"))
            start("distributed.cli.dask_worker", address, *more)
        yield address


@pytest.mark.process
@pytest.mark.long
def test_a_dask_cluster_gives_the_same_files(tmp_path: Path, cluster: str) -> None:
    def files(folder: str, *more: str) -> dict[str, bytes]:
        out = tmp_path / folder
        done = processes.run("experiment", "consortium", "--quick", "--out", out, *more)
        assert (done.returncode, "Traceback" in done.stderr) == (0, False), done.stderr
        return {path.name: path.read_bytes() for path in out.glob("*.csv")}

    here = files("here", "--workers", "1")
    there = files("there", "--backend", "dask", "--scheduler", cluster)
    assert set(here) == {"consortium.csv", "consortium_points.csv"}
    assert there == here
    assert json.loads((tmp_path / "there" / "consortium.json").read_text())["backend"] == "dask"


# --- interrupted ---------------------------------------------------------------------------------------------------


def _start(out: Path, *more: str, wrapper: tuple[str, ...] = ()) -> subprocess.Popen[str]:
    words = ("experiment", "consortium", "--quick", "--out", str(out), *more)
    command = python_command("-m", "tests.experiments.paused_run", *words)
    return subprocess.Popen(
        [*wrapper, *command],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        env=python_environment(),
        start_new_session=True,
    )


def _wait_for_parts(out: Path, process: subprocess.Popen[str]) -> None:
    def enough() -> bool:
        assert process.poll() is None
        return len(list((out / "parts").glob("consortium-*.json"))) >= STORED

    wait_until(enough)


@pytest.mark.process
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL])
@pytest.mark.long
def test_an_interrupted_run_goes_on_where_it_stopped(tmp_path: Path, number: signal.Signals) -> None:
    out = tmp_path / "out"
    process = _start(out)
    _wait_for_parts(out, process)
    os.killpg(process.pid, number)  # as Ctrl-C in a terminal does: workers get it too
    error = process.communicate(timeout=HANG_S)[1]
    kept = {path.name: path.stat().st_mtime_ns for path in (out / "parts").glob("*.json")}
    assert kept
    assert not (out / "consortium.csv").exists()
    if number == signal.SIGINT:
        assert process.returncode == 130
        assert "Traceback" not in error, error
        assert f"finished jobs are stored in {out}: run the same command again to resume" in error
    again = processes.run("experiment", "consortium", "--quick", "--out", out)
    assert (again.returncode, "Traceback" in again.stderr) == (0, False), again.stderr
    for name, modified in kept.items():
        assert (out / "parts" / name).stat().st_mtime_ns == modified
    jobs = consortium.jobs(True, 2024)
    with (out / "consortium.csv").open(newline="") as stream:
        rows = list(csv.DictReader(stream))
    parts = [json.loads(path.read_text()) for path in (out / "parts").glob("*.json")]
    assert len(parts) == len(jobs)
    assert len(rows) == sum(len(part["rows"]) for part in parts)
    for written, computed in ((rows[0], consortium.run(jobs[0])[0]), (rows[-1], consortium.run(jobs[-1])[-1])):
        assert {name: value for name, value in written.items() if value} == {k: str(v) for k, v in computed.items()}


@pytest.mark.process
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
@pytest.mark.long
def test_nothing_stays_behind(tmp_path: Path, number: signal.Signals) -> None:
    """Neither workers nor, unless it was killed, half-written files."""
    out = tmp_path / "out"
    process = _start(out, "--workers", "2")
    _wait_for_parts(out, process)
    os.kill(process.pid, number)  # the command alone, not its workers
    assert process.wait(HANG_S) == (143 if number == signal.SIGTERM else -signal.SIGKILL)
    assert process.stderr is not None
    process.stderr.close()

    def all_ended() -> bool:
        listed = subprocess.run(["ps", "-o", "pid=", "--sid", str(process.pid)], capture_output=True, check=False)
        return not listed.stdout.strip()

    wait_until(all_ended, poll_s=0.1)
    if number == signal.SIGTERM:
        assert not [path for path in out.rglob("*") if path.name.startswith(".tpmdp-")]


@pytest.mark.process
def test_a_command_in_the_background_obeys_sigterm(tmp_path: Path) -> None:
    """A shell without job control starts such a command with SIGINT ignored."""
    out = tmp_path / "out"
    process = _start(out, "--workers", "1", wrapper=("bash", "-c", 'trap \'\' INT; exec "$0" "$@"'))
    _wait_for_parts(out, process)
    os.kill(process.pid, signal.SIGINT)  # ignored
    os.kill(process.pid, signal.SIGTERM)
    assert process.wait(HANG_S) == 143
    assert process.stderr is not None
    process.stderr.close()
    assert not [path for path in out.rglob("*") if path.name.startswith(".tpmdp-")]
