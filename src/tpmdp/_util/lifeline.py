"""The child's side of a process we start: it must not outlive its parent, and its output is for the answer alone."""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from typing import IO


def end_with_stdin() -> None:
    """Ask this process to stop (SIGTERM) when whoever holds the other end of its standard input is gone."""

    def wait() -> None:
        while os.read(sys.stdin.fileno(), 4096):
            pass
        os.kill(os.getpid(), signal.SIGTERM)

    threading.Thread(target=wait, name="lifeline", daemon=True).start()


def end_with_parent(every_s: float = 1.0) -> None:
    """The same for a process whose standard input is not ours to read: leave soon after the parent has gone."""
    parent = os.getppid()

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(every_s)
        os._exit(1)

    threading.Thread(target=watch, name="lifeline", daemon=True).start()


def private_output() -> IO[bytes]:
    """Standard output for us alone: what a library, a solver or a function prints must not mix with the answer."""
    out = os.fdopen(os.dup(sys.stdout.fileno()), "wb")
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, sys.stdout.fileno())
    os.close(nowhere)
    return out
