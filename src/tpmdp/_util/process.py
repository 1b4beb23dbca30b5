"""The one supervisor of child processes: it starts a Python process, exchanges lines with it and makes sure it ends.

A child finds the modules that this process finds, and no others: `python -m` alone would look into the current folder
first, and a study that was unpacked there could bring a json.py. The child's side is `tpmdp._util.child_side`.
"""

from __future__ import annotations

import json
import os
import queue
import subprocess
import threading
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any, Final

from tpmdp._util.interpreter import python_command, python_environment
from tpmdp._util.warm_process import WarmProcess, is_available
from tpmdp.errors import DeadlineError, InputError, TpmdpError

START_S: Final = 60.0  # for a process to start on a busy machine
STOP_S: Final = 10.0  # for a process to end by itself
_LINES_STORED: Final = 20  # of standard error

Report = dict[str, Any]  # one line of JSON from a child


class ChildProcess:
    """A Python process that exchanges lines and bytes with this one through its standard streams.

    Its standard input ends when this process ends, even if this process is killed. Writing never blocks. Standard error
    is discarded, or read by a thread (`reads_stderr`), so that a full pipe cannot block the child.

    A module (`-m`) can be forked from a warm parent that has imported `warm`: see `warm_process`, whose rules hold for
    these imports. Without `warm`, or where processes cannot be forked safely, it is a new interpreter. Another
    `interpreter` finds its own modules only, and nothing of our environment.

    >>> with ChildProcess("-c", "print(input().upper())") as child:
    ...     child.write(b"hello\\n")
    ...     child.line(), child.wait(60)
    (b'HELLO\\n', 0)
    """

    def __init__(
        self, *arguments: str, reads_stderr: bool = False, warm: Sequence[str] = (), interpreter: str = ""
    ) -> None:
        self._process: subprocess.Popen[bytes] | WarmProcess
        stderr = subprocess.PIPE if reads_stderr else subprocess.DEVNULL
        if warm and is_available():
            self._process = WarmProcess(*arguments[1:], imports=warm, stdin=subprocess.PIPE, stderr=stderr)
        else:
            self._process = subprocess.Popen(  # noqa: S603
                [interpreter, "-I", *arguments] if interpreter else python_command(*arguments),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=stderr,
                env={"PATH": os.defpath} if interpreter else python_environment(),
            )
        self.timed_out = False  # the last `line` took too long, so the process was killed
        self._outgoing: queue.SimpleQueue[bytes | None] = queue.SimpleQueue()
        self._stderr: deque[bytes] = deque(maxlen=_LINES_STORED)
        self._threads = [threading.Thread(target=self._write_outgoing, daemon=True)]
        if reads_stderr:
            self._threads.append(threading.Thread(target=self._drain_stderr, daemon=True))
        for thread in self._threads:
            thread.start()

    def __enter__(self) -> ChildProcess:
        return self

    def __exit__(self, *_: object) -> None:
        self.end()

    @property
    def pid(self) -> int:
        """The process number."""
        return self._process.pid

    def write(self, *parts: bytes) -> None:
        """Hand over bytes, in the order of the calls, without waiting for the process to read them."""
        for part in parts:
            self._outgoing.put(part)

    def line(self, timeout_s: float = START_S) -> bytes:
        """The next line of standard output, or nothing if the process ends first. Kills it after `timeout_s`."""
        assert self._process.stdout is not None

        def give_up() -> None:
            self.timed_out = True
            self._process.kill()

        timer = threading.Timer(timeout_s, give_up)
        timer.start()
        try:
            return self._process.stdout.readline()
        finally:
            timer.cancel()

    def report(self, timeout_s: float = START_S) -> Report:
        """The next line as JSON, or nothing as with `line`."""
        return _parse(self.line(timeout_s))

    def read(self, size: int = -1) -> bytes:
        """So many bytes after a line; by default all that the process ever writes."""
        assert self._process.stdout is not None
        return self._process.stdout.read(size)

    def follow(self, on_report: Callable[[Report | None], None]) -> None:
        """Call `on_report`, from another thread, with every report, and with None once the process has ended."""

        def read() -> None:
            assert self._process.stdout is not None
            with suppress(ValueError, OSError):  # closed by `stop`
                for line in self._process.stdout:
                    on_report(_parse(line))
            self._process.wait()
            on_report(None)

        self._threads.append(threading.Thread(target=read, daemon=True))
        self._threads[-1].start()

    def wait(self, timeout_s: float) -> int | None:
        """The exit code, or None if the process is still running after `timeout_s`."""
        with suppress(subprocess.TimeoutExpired):
            return self._process.wait(timeout_s)
        return None

    def last_error_line(self) -> str:
        """The last line of standard error; call it after the process has ended."""
        for thread in self._threads[1:]:
            thread.join(STOP_S)
        return next((line.decode(errors="replace").strip() for line in reversed(self._stderr) if line.strip()), "")

    def close_input(self) -> None:
        """End its standard input once everything is written, which asks it to end."""
        self._outgoing.put(None)

    def end(self, timeout_s: float = STOP_S) -> None:
        """Let it end by itself, then kill it."""
        self.close_input()
        self.wait(timeout_s)
        self.stop()

    def stop(self) -> None:
        """Kill it, and free what it held."""
        self._process.kill()
        self._process.wait()
        self.close_input()
        for thread in self._threads:
            thread.join(STOP_S)
        if isinstance(self._process, WarmProcess):
            self._process.close()
        for stream in (self._process.stdout, self._process.stderr):
            if stream is not None:
                with suppress(OSError):
                    stream.close()

    def _write_outgoing(self) -> None:
        assert self._process.stdin is not None
        while (part := self._outgoing.get()) is not None:
            with suppress(OSError):  # the process has ended; the reading side notices
                self._process.stdin.write(part)
                self._process.stdin.flush()
        with suppress(OSError):
            self._process.stdin.close()

    def _drain_stderr(self) -> None:
        assert self._process.stderr is not None
        with suppress(ValueError, OSError):
            self._stderr.extend(self._process.stderr)


def end_all(children: Sequence[ChildProcess], timeout_s: float = STOP_S) -> None:
    """End several processes at once."""
    for child in children:
        child.close_input()
    for child in children:
        child.end(timeout_s)


def reported_error(report: Report, otherwise: type[TpmdpError]) -> TpmdpError:
    """The error that a child reported with `child.error_report`.

    >>> reported_error({"error": "the relay is full", "kind": "RelayFullError"}, TpmdpError)
    TpmdpError('the relay is full')
    """
    if report["kind"] == "InputError":
        return InputError(*report["parts"])
    return (DeadlineError if report["kind"] == "DeadlineError" else otherwise)(report["error"])


def _parse(line: bytes) -> Report:
    try:
        report = json.loads(line)
    except ValueError:  # blank, cut short or not for us
        return {}
    return report if isinstance(report, dict) else {}
