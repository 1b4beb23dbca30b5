"""A Python process that an engine starts and talks to in lines."""

from __future__ import annotations

import subprocess
import threading
from contextlib import suppress
from typing import IO, Final

from tpmdp._util.process import python_command, python_environment

START_S: Final = 60.0  # for processes to come up on a busy machine


class Process:
    """A Python process that speaks lines; it never outlives us and never keeps us waiting longer than told."""

    def __init__(self, *arguments: str) -> None:
        self._process = subprocess.Popen(  # noqa: S603
            python_command(*arguments),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env=python_environment(),
        )
        self._writers: list[threading.Thread] = []

    def write(self, *parts: bytes) -> None:
        """Hand over bytes without waiting for the process to take them."""
        writer = threading.Thread(target=_write, args=(self._process.stdin, parts))
        writer.start()
        self._writers.append(writer)

    def line(self, seconds: float = START_S) -> bytes:
        """Its next line, or nothing if it ends or takes too long."""
        assert self._process.stdout is not None
        timer = threading.Timer(seconds, self._process.kill)
        timer.start()
        try:
            return self._process.stdout.readline()
        finally:
            timer.cancel()

    def read(self, size: int) -> bytes:
        """So many bytes after a line."""
        assert self._process.stdout is not None
        return self._process.stdout.read(size)

    def end(self, seconds: float = 10.0) -> None:
        """Let it end by itself, as its input ends; then end it."""
        with suppress(OSError, subprocess.TimeoutExpired):
            assert self._process.stdin is not None
            self._process.stdin.close()
            self._process.wait(seconds)
        self.stop()

    def stop(self) -> None:
        """End it."""
        self._process.kill()
        self._process.wait()
        for writer in self._writers:
            writer.join()
        for stream in (self._process.stdin, self._process.stdout):
            with suppress(OSError):
                assert stream is not None
                stream.close()


def _write(stream: IO[bytes], parts: tuple[bytes, ...]) -> None:
    with suppress(OSError):  # the process is gone; whoever reads from it finds out
        for part in parts:
            stream.write(part)
        stream.flush()
