"""One party of the mpyc engine as a process of its own: reads its task from standard input, writes what it got.

A task is one line of JSON, then the raw values and noise. The line is a secret: it holds the party's key, which is why
it travels through a pipe and not through arguments, environment or files. The process ends when its input does.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
import threading
from typing import IO, Any, Final

import numpy as np
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from tpmdp.clock import now_s
from tpmdp.engines.mpyc.network import listen
from tpmdp.engines.mpyc.record import MpycError
from tpmdp.engines.mpyc.runtime import described, load
from tpmdp.engines.mpyc.session import run_party
from tpmdp.errors import DeadlineError, InputError, TpmdpError
from tpmdp.protocol.terms import Terms
from tpmdp.validate import IntArray

_NUMBER: Final = np.dtype("<i8")


def main() -> None:
    """Say ready and on which port, wait for the addresses of all, run, and report on standard output."""
    out = _private_output()
    source = sys.stdin.buffer
    try:
        task = json.loads(source.readline())
        terms = Terms.parse(task["terms"])
        values = _numbers(source, task["sizes"][task["index"]])
        noise = _numbers(source, terms.grid.dimension) if task["noise"] else None
        listener = listen(*task["bind"]) if task["index"] > 0 else None
        port = 0 if listener is None else listener.getsockname()[1]
        asyncio.run(load())
        _write(out, {"ready": task["index"], "port": port})
        addresses = source.readline()
        if not addresses:
            return  # whoever started us is gone
        threading.Thread(target=_end_with_input, name="lifeline", daemon=True).start()
        party = run_party(
            terms,
            task["index"],
            Ed25519PrivateKey.from_private_bytes(bytes.fromhex(task["key"])),
            [(host, port) for host, port in json.loads(addresses)],
            task["function"],
            task["parameters"],
            task["sizes"],
            values,
            noise,
            now_s() + task["deadline_s"],
            listener=listener,
        )
        result, sent = asyncio.run(party)
    except Exception as error:
        _write(out, _told(described(error)))
        return
    _write(out, {"sent": sent, "result": result is not None})
    if result is not None:
        out.write(result.astype(_NUMBER).tobytes())
        out.flush()


def _numbers(source: IO[bytes], count: int) -> IntArray:
    data = source.read(8 * count)
    if len(data) != 8 * count:
        raise MpycError("a task is incomplete")
    return np.frombuffer(data, dtype=_NUMBER).astype(np.int64)


def _private_output() -> IO[bytes]:
    """Standard output for us alone: what a library or a function prints must not mix with the answer."""
    out = os.fdopen(os.dup(sys.stdout.fileno()), "wb")
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, sys.stdout.fileno())
    os.close(nowhere)
    return out


def _end_with_input() -> None:
    while os.read(sys.stdin.fileno(), 4096):
        pass
    os._exit(1)


def _told(error: TpmdpError) -> dict[str, Any]:
    """An error as a line; no traceback ever leaves."""
    line: dict[str, Any] = {"error": str(error), "kind": type(error).__name__}
    if isinstance(error, DeadlineError):
        line["kind"] = "DeadlineError"
    if isinstance(error, InputError):
        line["parts"] = [error.field, str(error.value), error.rule, error.remedy]
    if isinstance(error, MpycError):
        line["culprit"] = error.culprit
    return line


def _write(out: IO[bytes], line: dict[str, Any]) -> None:
    out.write(json.dumps(line).encode() + b"\n")
    out.flush()


if __name__ == "__main__":
    main()
