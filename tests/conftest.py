"""Settings for all tests: Hypothesis profiles, and the guard that keeps `make check` free of processes."""

from __future__ import annotations

import _posixsubprocess
import os
import signal
import sys
from collections.abc import Callable, Generator
from typing import Any, Final

import pytest
from hypothesis import settings

settings.register_profile("repeatable", derandomize=True, deadline=None)  # the same examples on every machine, untimed
settings.register_profile("explore", derandomize=False, print_blob=True, deadline=None)  # --hypothesis-profile=explore
settings.load_profile("repeatable")

PROCESS_EVENTS: Final = frozenset({"subprocess.Popen", "os.fork", "os.forkpty", "os.posix_spawn", "os.system"})
SERVER_EVENT: Final = "socket.bind"
MARKED_DOCTESTS: Final = {  # a doctest cannot carry a marker in its file
    "tpmdp._util.process.ChildProcess": "process",
    "tpmdp._util.warm_process.WarmProcess": "process",
    "tpmdp.experiments.efficiency_experiment.run": "process",
    "tpmdp.experiments.experiment_run.run_experiments": "slow",
}
LONGEST: Final = frozenset({"test_deployment.py", "test_smoke.py", "test_example.py", "test_experiment_command.py"})

# Children inherit an ignored SIGINT, as of a test run in the background; then none of them could be interrupted.
signal.signal(signal.SIGINT, signal.default_int_handler)


class Guard:
    """Fails a test that starts a process or a server without the marker `process`.

    Audit events cover subprocess, os.fork and sockets. They do not cover `_posixsubprocess.fork_exec`, which
    multiprocessing and joblib call directly, so that function is wrapped. The guard watches from the set-up of the
    first fixture to the tear-down of the last one.
    """

    def __init__(self) -> None:
        self.forbidden: frozenset[str] = frozenset()

    def audit(self, event: str, _: tuple[Any, ...]) -> None:
        if event in self.forbidden:
            pytest.fail(f"this test caused {event}: mark it with @pytest.mark.process, as `make check` leaves it out")

    def watched(self, fork_exec: Callable[..., int]) -> Callable[..., int]:
        def guarded(*arguments: Any) -> int:
            self.audit("subprocess.Popen", ())
            return fork_exec(*arguments)

        return guarded


GUARD: Final = Guard()
sys.addaudithook(GUARD.audit)
_posixsubprocess.fork_exec = GUARD.watched(_posixsubprocess.fork_exec)


@pytest.hookimpl(tryfirst=True)  # before tests are chosen by their markers
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if isinstance(item, pytest.DoctestItem) and item.name in MARKED_DOCTESTS:
            item.add_marker(MARKED_DOCTESTS[item.name])
    items.sort(key=lambda item: item.path.name not in LONGEST)  # first, so that no worker ends long after the others


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    if item.get_closest_marker("process") is None:
        # A doctest may bind a socket, which costs nothing, but not start a process.
        server = frozenset() if isinstance(item, pytest.DoctestItem) else frozenset({SERVER_EVENT})
        GUARD.forbidden = PROCESS_EVENTS | server
    try:
        return (yield)
    finally:
        GUARD.forbidden = frozenset()


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers() -> int:
    """One more than the cores that this process may use: many tests wait for other processes or for a deadline."""
    return len(os.sched_getaffinity(0)) + 1
