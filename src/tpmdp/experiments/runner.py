"""Jobs in parallel, on this machine or a cluster, each kept as soon as it is done: an interrupted run goes on there."""

from __future__ import annotations

import hashlib
import json
import multiprocessing
import os
import signal
import socket
import threading
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path
from typing import Any, Final, Literal

from tpmdp._util.child import end_with_parent
from tpmdp._util.files import replacing
from tpmdp._util.progress import Progress, was_interrupted
from tpmdp.errors import FileError, InputError, MissingDependencyError
from tpmdp.experiments.jobs import Job, Row

Run = Callable[[Job], list[Row]]
Name = Literal["local", "dask", "ray"]
BACKENDS: Final[tuple[Name, ...]] = ("local", "dask", "ray")
_PART_MAX: Final = 1 << 28
_BATCHES: Final = 4  # jobs a worker, where a backend hands over nothing before all of a batch is done
_CONNECT_S: Final = 20
_WORKERS_MAX: Final = 1024


@dataclass(frozen=True)
class Backend:
    """Where jobs run: worker processes here, or a cluster of Dask or Ray by joblib's own backends."""

    name: Name = "local"
    scheduler: str | None = None
    workers: int | None = None
    """How many at once; None is all that there are."""

    def __post_init__(self) -> None:
        if self.name not in BACKENDS:
            raise InputError("--backend", self.name, f"must be one of {', '.join(BACKENDS)}", "choose one")
        if self.scheduler is not None and self.name == "local":
            rule = "is the address of a cluster, but the work is done here"
            raise InputError("--scheduler", self.scheduler, rule, "add --backend dask or --backend ray")
        if self.scheduler is None and self.name == "dask":
            raise InputError("--scheduler", "(none)", "is missing", "give its address, such as tcp://host:8786")
        if self.workers is not None and not 1 <= self.workers <= _WORKERS_MAX:
            rule = f"must be from 1 to {_WORKERS_MAX}"
            raise InputError("--workers", self.workers, rule, "leave it out to use all cores")

    @contextmanager
    def ready(self) -> Iterator[dict[str, Any]]:
        """Connect to the cluster; yields what joblib has to know."""
        with ExitStack() as stack:
            if self.name == "dask":
                stack.enter_context(_dask(str(self.scheduler)))
            elif self.name == "ray":
                stack.enter_context(_ray(self.scheduler))
            known = {"local": "loky"}.get(self.name, self.name)
            yield {"backend": known, "n_jobs": -1 if self.workers is None else self.workers}


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
        raise InputError("--scheduler", scheduler, f"does not answer ({_reason(error)})", remedy) from None
    with client:
        try:
            client.wait_for_workers(1, timeout=_CONNECT_S)
        except TimeoutError:
            remedy = "start some with: dask worker ADDRESS"
            raise InputError("--scheduler", scheduler, "has no workers", remedy) from None
        yield


@contextmanager
def _ray(address: str | None) -> Iterator[None]:
    try:
        import ray
        from ray.util.joblib import register_ray
    except ImportError:
        raise MissingDependencyError("ray", "ray", "to use a Ray cluster") from None
    if address is not None and address != "auto":
        _check_answers(address)  # Ray itself tries for minutes
    try:
        ray.init(address=address, logging_level="ERROR", log_to_driver=False, include_dashboard=False)
    except (OSError, RuntimeError, ValueError, ConnectionError) as error:
        remedy = "check the address, and that the cluster runs"
        raise InputError("--scheduler", address, f"does not answer ({_reason(error)})", remedy) from None
    try:
        register_ray()
        yield
    finally:
        ray.shutdown()


def _check_answers(address: str) -> None:
    """Refuse an address where nothing listens."""
    host, _, port = address.removeprefix("ray://").rpartition(":")
    try:
        with socket.create_connection((host.strip("[]"), int(port)), _CONNECT_S):
            pass
    except (OSError, ValueError, OverflowError) as error:
        remedy = "check the address, such as head:6379, and that the cluster runs"
        raise InputError("--scheduler", address, f"does not answer ({_reason(error)})", remedy) from None


def _reason(error: Exception) -> str:
    """The first line of what a library says."""
    return (str(error).strip().splitlines() or [type(error).__name__])[0][:200]


def run_jobs(
    jobs: Sequence[Job], run: Run, parts: Path, backend: Backend | None = None, progress: Progress | None = None
) -> list[Row]:
    """The rows of all jobs in their order. What `parts` holds of them already is not computed again.

    >>> import tempfile
    >>> from tpmdp.experiments import count
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     jobs = [Job("count", "parties", 20.0, first, 1, 1) for first in range(2)]
    ...     found = run_jobs(jobs, count.run, Path(folder), Backend(workers=1))
    ...     len(found), len(list(Path(folder).iterdir()))
    (14, 2)
    """
    backend = backend or Backend()
    make_folder(parts)
    found = {job.key: rows for job in jobs if (rows := read_part(parts, job)) is not None}
    total = sum(job.weight for job in jobs)
    done = sum(job.weight for job in jobs if job.key in found)
    missing = sorted((job for job in jobs if job.key not in found), key=lambda job: -job.weight)
    if progress is not None:
        progress(round(1000 * done), round(1000 * total))
    for job, rows in _computed(missing, run, backend):
        write_part(parts, job, rows)
        if was_interrupted():
            raise KeyboardInterrupt
        found[job.key] = rows
        done += job.weight
        if progress is not None:
            progress(round(1000 * done), round(1000 * total))
    return [row for job in jobs for row in found[job.key]]


def _computed(jobs: list[Job], run: Run, backend: Backend) -> Iterator[tuple[Job, list[Row]]]:
    """Every job with its rows, as they come."""
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
        warnings.simplefilter("ignore")  # of joblib about tasks that we cancel when we end early
        tasks = [joblib.delayed(_run_one)(run, job) for job in jobs]
        if backend.name != "ray":
            with _interrupts_for_us_alone():
                found = joblib.Parallel(return_as="generator_unordered", batch_size=1)(tasks)
            yield from found
            return
        size = _BATCHES * joblib.effective_n_jobs()
        for first in range(0, len(tasks), size):
            yield from joblib.Parallel(batch_size=1)(tasks[first : first + size])


@contextmanager
def _interrupts_for_us_alone() -> Iterator[None]:
    """Processes started in the block do not mind Ctrl-C, which a terminal sends to all: we end them.

    Ignoring is inherited, as blocking is not: Python's resource tracker, which starts with them, unblocks it.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def _run_one(run: Run, job: Job) -> tuple[Job, list[Row]]:
    """In a worker; one that was started later than the others learns here to leave Ctrl-C to us."""
    if threading.current_thread() is threading.main_thread() and multiprocessing.parent_process() is not None:
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        _watch_parent()
    return job, run(job)


@cache
def _watch_parent() -> None:
    """Once a worker."""
    end_with_parent()


def write_part(parts: Path, job: Job, rows: list[Row]) -> None:
    """Keep a job's rows, all or nothing."""
    with replacing(parts / f"{job.key}.json") as file:
        kept = {"job": asdict(job), "sha256": _digest(rows), "rows": rows}
        file.write_text(json.dumps(kept), encoding="utf-8")


def read_part(parts: Path, job: Job) -> list[Row] | None:
    """The rows that were kept of a job; None where there are none, or they are not as they were written.

    >>> read_part(Path("nowhere"), Job("count", "parties", 20.0, 0, 1, 1)) is None
    True
    """
    try:
        path = parts / f"{job.key}.json"
        if path.stat().st_size > _PART_MAX:
            return None
        kept = json.loads(path.read_text(encoding="utf-8"))
        rows: list[Row] = kept["rows"]
        return rows if kept["sha256"] == _digest(rows) else None
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return None


def _digest(rows: object) -> str:
    return hashlib.sha256(json.dumps(rows).encode()).hexdigest()


def make_folder(folder: Path) -> None:
    """Make a folder for results, or say why not.

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
