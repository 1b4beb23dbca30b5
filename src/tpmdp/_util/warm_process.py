"""Python processes that start in milliseconds, because they are forked from a warm parent. Linux only."""

from __future__ import annotations

import atexit
import json
import os
import select
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any, Final

from tpmdp._util.interpreter import module_path, python_command, python_environment
from tpmdp._util.warm_parent import PID, REQUEST_HEAD, STATUS

_UNKNOWN: Final = 255  # the exit code of a process whose parent was killed


@cache
def is_available() -> bool:
    """Whether processes can be forked safely here, and told apart for sure from later ones with the same number."""
    try:
        os.close(os.pidfd_open(os.getpid()))
    except (AttributeError, OSError):  # another system, an old one, or one that forbids it
        return False
    return sys.platform == "linux"


class WarmProcess:
    """A module that runs as `python -P -m` runs it, in a process of its own; used like `subprocess.Popen`.

    `imports` names the modules that the warm parent imports, once, before it forks. They must start no thread and open
    no file or socket when they are imported. What an interpreter reads only when it starts, such as the encodings of
    the standard streams, is that of the first such process.

    >>> process = WarmProcess("tpmdp", "--version", imports=("tpmdp.cli.main",))
    >>> process.stdout.read().split()[0], process.wait(60)
    (b'tpmdp', 0)
    >>> process.close()
    """

    def __init__(
        self,
        module: str,
        *arguments: str,
        imports: Sequence[str] = (),
        stdin: int = subprocess.DEVNULL,
        stdout: int = subprocess.PIPE,
        stderr: int = subprocess.DEVNULL,
        folder: Path | None = None,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        # An audit hook sees this process as it sees those of subprocess.
        sys.audit("subprocess.Popen", sys.executable, [sys.executable, "-m", module, *arguments], folder, environment)
        self.returncode: int | None = None
        self._lock = threading.Lock()
        ours, theirs = zip(
            *(_stream(number, given) for number, given in enumerate((stdin, stdout, stderr))), strict=True
        )
        self.stdin, self.stdout, self.stderr = ours
        self._status, status = os.pipe()
        request = {
            "module": module,
            "arguments": arguments,
            "imports": list(imports),
            "path": module_path(),
            "environment": dict(os.environ if environment is None else environment),
            "folder": os.getcwd() if folder is None else str(folder),
        }
        try:
            self.pid, self._process = _CONNECTION.ask(json.dumps(request).encode(), [*theirs, status])
        finally:
            for descriptor in (*theirs, status):
                os.close(descriptor)

    def poll(self) -> int | None:
        """The exit code, or None while it is running."""
        with suppress(subprocess.TimeoutExpired):
            return self.wait(0)
        return None

    def wait(self, timeout: float | None = None) -> int:
        """The exit code; below zero for a signal."""
        if self.returncode is None:
            poll = select.poll()
            poll.register(self._status, select.POLLIN)
            if not poll.poll(None if timeout is None else 1000 * timeout):
                assert timeout is not None
                raise subprocess.TimeoutExpired(f"process {self.pid}", timeout)
            with self._lock:
                if self.returncode is None:
                    status = os.read(self._status, STATUS.size)
                    self.returncode = STATUS.unpack(status)[0] if status else _UNKNOWN
        return self.returncode

    def send_signal(self, number: int) -> None:
        """Send it a signal, unless it has ended."""
        if self.returncode is None:
            with suppress(ProcessLookupError):
                signal.pidfd_send_signal(self._process, number)

    def terminate(self) -> None:
        """Ask it to end."""
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        """End it at once."""
        self.send_signal(signal.SIGKILL)

    def close(self) -> None:
        """Close its pipes, after `wait`."""
        for stream in (self.stdin, self.stdout, self.stderr):
            if stream is not None:
                with suppress(OSError):
                    stream.close()
        with self._lock:
            for descriptor in (self._status, self._process):
                if descriptor >= 0:
                    os.close(descriptor)
            self._status = self._process = -1


class _Connection:
    """The socket to the warm parent; a new parent is started for a process that was forked, or if it was killed."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._owner = 0
        self._parent: subprocess.Popen[bytes] | None = None
        self._socket: socket.socket | None = None

    def ask(self, request: bytes, descriptors: list[int]) -> tuple[int, int]:
        with self._lock:
            for attempt in range(2):
                try:
                    return self._ask(self._connected(), request, descriptors)
                except OSError:
                    self._drop()
                    if attempt:
                        raise
        raise AssertionError

    def _ask(self, connection: socket.socket, request: bytes, descriptors: list[int]) -> tuple[int, int]:
        socket.send_fds(connection, [REQUEST_HEAD.pack(len(request))], descriptors)
        connection.sendall(request)
        answer, received, _, _ = socket.recv_fds(connection, PID.size, 1)
        if not received:
            raise ConnectionError("the parent of all child processes was killed: look for a full memory")
        return PID.unpack(answer)[0], received[0]

    def _connected(self) -> socket.socket:
        if self._owner != os.getpid():
            self._owner, self._parent, self._socket = os.getpid(), None, None
        if self._socket is None:
            ours, theirs = socket.socketpair()
            with theirs:
                self._parent = subprocess.Popen(  # noqa: S603
                    python_command("-m", "tpmdp._util.warm_parent", str(theirs.fileno())),
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.DEVNULL,
                    stderr=subprocess.DEVNULL,
                    pass_fds=(theirs.fileno(),),
                    env=python_environment(),
                )
            self._socket = ours
            atexit.register(self._close, os.getpid())
        return self._socket

    def _close(self, owner: int) -> None:
        """Let the warm parent end, and with it this process leaves none behind."""
        if owner == os.getpid() and self._socket is not None and self._parent is not None:
            self._socket.close()
            self._parent.wait()

    def _drop(self) -> None:
        if self._socket is not None:
            self._socket.close()
        if self._parent is not None:
            self._parent.kill()
            self._parent.wait()
        self._socket = self._parent = None


_CONNECTION: Final = _Connection()


def _stream(number: int, given: int) -> tuple[Any, int]:
    """Our end of a standard stream, if it is a pipe, and a descriptor for the child."""
    if given == subprocess.DEVNULL:
        return None, os.open(os.devnull, os.O_RDWR)
    if given != subprocess.PIPE:
        return None, os.dup(given)
    reading, writing = os.pipe()
    return (os.fdopen(reading, "rb"), writing) if number else (os.fdopen(writing, "wb"), reading)
