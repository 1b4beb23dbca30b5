"""The supervisor of child processes: nothing blocks, nothing outlives its parent, errors come back as errors."""

from __future__ import annotations

import queue
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.patience import HANG_S
from tpmdp._util.child_side import error_report
from tpmdp._util.interpreter import python_environment
from tpmdp._util.process import ChildProcess, Report, end_all, reported_error
from tpmdp.errors import DeadlineError, InputError, TpmdpError

pytestmark = pytest.mark.process

WAITS = "import sys; print('{}', flush=True); sys.stdin.read()"
SLEEPS = "import time; print('{}', flush=True); time.sleep(999)"


def test_writing_does_not_wait_and_standard_error_does_not_block() -> None:
    program = (
        "import sys; sys.stderr.write('x' * 1_000_000 + chr(10) + 'the last line'); "
        "print(len(sys.stdin.buffer.read(3_000_000)), flush=True)"
    )
    with ChildProcess("-c", program, reads_stderr=True) as child:
        child.write(bytes(1_000_000), bytes(1_000_000))
        child.write(bytes(1_000_000))
        assert child.line(HANG_S) == b"3000000\n"
        assert child.wait(HANG_S) == 0
        assert child.last_error_line() == "the last line"


def test_a_process_that_says_nothing_is_killed_and_one_that_ends_is_not_late() -> None:
    with ChildProcess("-c", "import time; time.sleep(999)") as silent:
        assert silent.report(0.1) == {}
        assert silent.timed_out
        assert silent.wait(HANG_S) == -signal.SIGKILL
    with ChildProcess("-c", "pass") as short:
        assert short.report(HANG_S) == {}
        assert not short.timed_out


def test_processes_end_with_their_input_and_are_killed_otherwise() -> None:
    polite, deaf = (
        ChildProcess("-c", WAITS),
        ChildProcess("-c", "import time; print('{}', flush=True); time.sleep(999)"),
    )
    for child in (polite, deaf):
        child.line(HANG_S)
    polite.close_input()
    assert polite.wait(HANG_S) == 0
    end_all([polite, deaf], timeout_s=0.1)
    assert deaf.wait(0) == -signal.SIGKILL


def test_following_gives_every_report_and_then_the_end() -> None:
    reports: queue.SimpleQueue[Report | None] = queue.SimpleQueue()
    with ChildProcess("-c", "print('{\"step\": 1}'); print('prose'); print('[2]'); print('{\"step\": 3}')") as child:
        child.follow(reports.put)
        assert [reports.get(timeout=HANG_S) for _ in range(5)] == [{"step": 1}, {}, {}, {"step": 3}, None]


@pytest.mark.parametrize("order", ["end_with_stdin", "end_with_parent"])
def test_a_child_does_not_outlive_a_parent_that_is_killed(order: str) -> None:
    child = (
        f"import time; from tpmdp._util.child_side import {order} as f; f(); print('{{}}', flush=True); time.sleep(999)"
    )
    parent = (
        "import sys, time; from tpmdp._util.process import ChildProcess; "
        f"child = ChildProcess('-c', {child!r}); child.line(300); print(child.pid, flush=True); time.sleep(999)"
    )
    with subprocess.Popen([sys.executable, "-c", parent], stdout=subprocess.PIPE, env=python_environment()) as process:
        assert process.stdout is not None
        pid = int(process.stdout.readline())
        process.kill()
    end = time.monotonic() + HANG_S
    while _is_running(pid):
        assert time.monotonic() < end
        time.sleep(0.05)


def _is_running(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


class _LostError(TpmdpError):
    culprit = 2


class _LateError(DeadlineError):
    pass


def test_errors_come_back_as_they_were() -> None:
    error = InputError("threshold", 5, "must be less than 4", "lower it")
    assert str(reported_error(error_report(error), TpmdpError)) == str(error)
    assert isinstance(reported_error(error_report(error), TpmdpError), InputError)
    assert isinstance(reported_error(error_report(_LateError("too late")), TpmdpError), DeadlineError)
    lost = error_report(_LostError("lost\n  a party"))
    assert lost == {"error": "lost a party", "kind": "_LostError", "culprit": 2}
    assert type(reported_error(lost, TpmdpError)) is TpmdpError
