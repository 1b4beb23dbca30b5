"""The child's side of a process that `tpmdp._util.process` starts: it ends with its parent and reports in JSON."""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
import time
from typing import IO, Any

from tpmdp.errors import DeadlineError, InputError, TpmdpError


def end_with_stdin() -> None:
    """Stop this process (SIGTERM) when its standard input ends, which happens when the parent ends."""

    def wait() -> None:
        while os.read(sys.stdin.fileno(), 4096):
            pass
        os.kill(os.getpid(), signal.SIGTERM)

    threading.Thread(target=wait, name="end-with-stdin", daemon=True).start()


def end_with_parent(every_s: float = 1.0) -> None:
    """Exit soon after the parent has ended; for a process that cannot read its standard input."""
    parent = os.getppid()

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(every_s)
        os._exit(1)

    threading.Thread(target=watch, name="end-with-parent", daemon=True).start()


def private_output() -> IO[bytes]:
    """Standard output for reports only: what a library, a solver or a function prints is discarded."""
    out = os.fdopen(os.dup(sys.stdout.fileno()), "wb")
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, sys.stdout.fileno())
    os.close(nowhere)
    return out


def write_report(out: IO[bytes], report: dict[str, Any], data: bytes = b"") -> None:
    """Write one line of JSON, and raw bytes after it."""
    out.write(json.dumps(report).encode() + b"\n" + data)
    out.flush()


def error_report(error: TpmdpError) -> dict[str, Any]:
    """An error as a report; `process.reported_error` turns it back into an error. No traceback leaves the process.

    >>> error_report(DeadlineError("the deadline passed"))
    {'error': 'the deadline passed', 'kind': 'DeadlineError'}
    """
    kind = "DeadlineError" if isinstance(error, DeadlineError) else type(error).__name__
    report: dict[str, Any] = {"error": " ".join(str(error).split()), "kind": kind}
    if isinstance(error, InputError):
        report["parts"] = [error.field, str(error.value), error.rule, error.remedy]
    culprit = getattr(error, "culprit", None)  # the index of the party that was lost
    return report if culprit is None else {**report, "culprit": culprit}
