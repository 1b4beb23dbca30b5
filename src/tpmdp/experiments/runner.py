"""Run jobs in parallel, on this machine or a Dask cluster. Each result is stored at once, so a run can be resumed."""

from __future__ import annotations

import hashlib
import json
import multiprocessing
import os
import signal
import threading
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path
from typing import Any, Final, Literal

from tpmdp._util.child_side import end_with_parent
from tpmdp._util.files import replacing
from tpmdp._util.progress import Progress, was_interrupted
from tpmdp.errors import FileError, InputError, MissingDependencyError
from tpmdp.experiments.jobs import Job, Row

Run = Callable[[Job], list[Row]]
BackendName = Literal["local", "dask"]
BACKENDS: Final[tuple[BackendName, ...]] = ("local", "dask")
_PART_MAX: Final = 1 << 28
_CONNECT_S: Final = 20
_WORKERS_MAX: Final = 1024


@dataclass(frozen=True)
class Backend:
    """Where jobs run: worker processes on this machine, or a Dask cluster through joblib."""

    name: BackendName = "local"
    scheduler: str | None = None
    workers: int | None = None
    """How many jobs at once; None is all cores."""

    def __post_init__(self) -> None:
        if self.name not in BACKENDS:
            raise InputError("backend", self.name, f"must be one of {', '.join(BACKENDS)}", "choose one")
        if self.scheduler is not None and self.name == "local":
            rule = "is the address of a cluster, but the work is done here"
            raise InputError("scheduler", self.scheduler, rule, "add --backend dask")
        if self.scheduler is None and self.name == "dask":
            raise InputError("scheduler", "(none)", "is missing", "give its address, such as tcp://host:8786")
        if self.workers is not None and not 1 <= self.workers <= _WORKERS_MAX:
            rule = f"must be from 1 to {_WORKERS_MAX}"
            raise InputError("workers", self.workers, rule, "leave it out to use all cores")

    @contextmanager
    def ready(self) -> Iterator[dict[str, Any]]:
        """Connect to the cluster; yields the settings of joblib."""
        count = -1 if self.workers is None else self.workers
        with _dask(str(self.scheduler)) if self.name == "dask" else nullcontext():
            yield {"backend": "dask" if self.name == "dask" else "loky", "n_jobs": count}


@contextmanager
def _dask(scheduler: str) -> Iterator[None]:
    try:
        from distributed import Client
    except ImportError:
        raise MissingDependencyError("distributed", "dask", "to use a Dask cluster") from None
    try:
        client = Client(scheduler, timeout=_CONNECT_S, set_as_default=True)
    except (OSError, TimeoutError, ValueError) as error:
        remedy = "check the address, and that the scheduler runs"
        raise InputError("scheduler", scheduler, f"does not answer ({_reason(error)})", remedy) from None
    with client:
        try:
            client.wait_for_workers(1, timeout=_CONNECT_S)
        except TimeoutError:
            remedy = "start some with: dask worker ADDRESS"
            raise InputError("scheduler", scheduler, "has no workers", remedy) from None
        yield


def _reason(error: Exception) -> str:
    """The first line of a library's message."""
    return (str(error).strip().splitlines() or [type(error).__name__])[0][:200]


def run_jobs(
    jobs: Sequence[Job], run: Run, parts: Path, *, backend: Backend | None = None, progress: Progress | None = None
) -> list[Row]:
    """The rows of all jobs, in order. Rows already stored in `parts` are not computed again.

    >>> import tempfile
    >>> from tpmdp.experiments import count_experiment
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     jobs = [Job("count", "parties", 20.0, first, 1, 1) for first in range(2)]
    ...     rows = run_jobs(jobs, count_experiment.run, Path(folder), backend=Backend(workers=1))
    ...     len(rows), len(list(Path(folder).iterdir()))
    (20, 2)
    """
    backend = backend or Backend()
    make_folder(parts)
    stored = {job.key: rows for job in jobs if (rows := read_part(parts, job)) is not None}
    total = sum(job.weight for job in jobs)
    done = sum(job.weight for job in jobs if job.key in stored)
    missing = sorted((job for job in jobs if job.key not in stored), key=lambda job: -job.weight)
    if progress is not None:
        progress(round(1000 * done), round(1000 * total))
    for job, rows in _computed(missing, run, backend):
        write_part(parts, job, rows)
        if was_interrupted():
            raise KeyboardInterrupt
        stored[job.key] = rows
        done += job.weight
        if progress is not None:
            progress(round(1000 * done), round(1000 * total))
    return [row for job in jobs for row in stored[job.key]]


def _computed(jobs: list[Job], run: Run, backend: Backend) -> Iterator[tuple[Job, list[Row]]]:
    """Every job with its rows, in the order in which jobs finish."""
    if not jobs:
        return
    if backend.name == "local" and backend.workers == 1:
        for job in jobs:
            yield job, run(job)
        return
    try:
        import joblib
    except ImportError:
        raise MissingDependencyError("joblib", "experiments", "to run experiments in parallel") from None
    with backend.ready() as where, joblib.parallel_config(**where), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # joblib warns about tasks that we cancel when we end early
        tasks = [joblib.delayed(_run_in_worker)(run, job) for job in jobs]
        with _workers_ignore_interrupts():
            results = joblib.Parallel(return_as="generator_unordered", batch_size=1)(tasks)
        yield from results


@contextmanager
def _workers_ignore_interrupts() -> Iterator[None]:
    """Processes started in the block ignore Ctrl-C, which a terminal sends to all of them; this process ends them.

    The signal is ignored, not blocked, because Python's resource tracker, which starts with them, unblocks it.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def _run_in_worker(run: Run, job: Job) -> tuple[Job, list[Row]]:
    """A worker that was started later than the others learns here to ignore Ctrl-C."""
    if threading.current_thread() is threading.main_thread() and multiprocessing.parent_process() is not None:
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        _watch_parent()
    return job, run(job)


@cache
def _watch_parent() -> None:
    """Once per worker."""
    end_with_parent()


def write_part(parts: Path, job: Job, rows: list[Row]) -> None:
    """Store a job's rows, all or nothing."""
    with replacing(parts / f"{job.key}.json") as file:
        content = {"job": asdict(job), "sha256": _digest(rows), "rows": rows}
        file.write_text(json.dumps(content), encoding="utf-8")


def read_part(parts: Path, job: Job) -> list[Row] | None:
    """The stored rows of a job; None if there are none, or if the file was changed.

    >>> read_part(Path("nowhere"), Job("count", "parties", 20.0, 0, 1, 1)) is None
    True
    """
    try:
        path = parts / f"{job.key}.json"
        if path.stat().st_size > _PART_MAX:
            return None
        content = json.loads(path.read_text(encoding="utf-8"))
        rows: list[Row] = content["rows"]
        return rows if content["sha256"] == _digest(rows) else None
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return None


def _digest(rows: object) -> str:
    return hashlib.sha256(json.dumps(rows).encode()).hexdigest()


def make_folder(folder: Path) -> None:
    """Make a folder for results, or raise an error that says why not.

    >>> make_folder(Path("/dev/null/x"))
    Traceback (most recent call last):
        ...
    tpmdp.errors.FileError: /dev/null/x cannot be made (Not a directory): choose another folder
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise FileError(folder, f"cannot be made ({error.strerror or error})", "choose another folder") from None
    if not os.access(folder, os.W_OK):
        raise FileError(folder, "cannot be written", "choose another folder, or change its rights")
