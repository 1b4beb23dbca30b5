"""One party of a session in its own process: it reads a task from standard input and writes its outcome.

A task is one line of JSON. The line is a secret, because it holds the party's key: it travels through a pipe and not
through arguments, environment or files. The process ends when its input does. What passes through the pipes:

    in: task                      out: {"ready", "port"}    it listens, and what can be checked is right
    in: addresses, deadline,
        parts, notes              out: {"difference"}       a party has another study; any number of these
                                  out: {"missing"}          who is not connected yet; any number of these
                                  out: {"connected"}        to all; nothing that depends on data has left
    in: values, noise             out: {"opening"}          all are ready; no share of the result has left
    in: open                      out: {"result", "sent"}   and the raw result
    in: done                      out: {"end"}              the others know, and have what they need from us
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
import threading
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import IO, Final

import numpy as np
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from tpmdp._util.arrays import IntArray
from tpmdp._util.child_side import error_report, private_output, write_report
from tpmdp.engines.direct.job import job_class
from tpmdp.engines.direct.network import listen
from tpmdp.engines.direct.record import described
from tpmdp.engines.direct.session import Notes, Numbers, Starter, run_party
from tpmdp.protocol.terms import Terms

NUMBERS: Final = b"numbers "  # then a note, a new line, and the raw numbers
_NUMBER: Final = np.dtype("<i8")


def main() -> None:
    """Report ready and the port, wait for the numbers, run, and report the outcome."""
    out = private_output()
    source = os.fdopen(os.dup(sys.stdin.fileno()), "rb")  # not sys.stdin: a thread may be reading when we end
    try:
        task = json.loads(source.readline())
        terms = Terms.parse(task["terms"])
        job = job_class(task["engine"]).of(
            terms,
            task["function"],
            task["parameters"],
            sizes=task["sizes"],
            noise_apart=task["noise"],
            attempt=task["attempt"],
        )
        listener = listen(*task["bind"]) if task["index"] > min(job.members) else None
        port = 0 if listener is None else listener.getsockname()[1]
        sharing = job.sharing(task["index"])
        sharing.prepare()
        write_report(out, {"ready": task["index"], "port": port})
        line = source.readline()
        if not line:
            return  # the parent is gone
        start = json.loads(line)
        size, noise = task["sizes"][task["index"]], terms.grid.dimension if task["noise"] else None

        def party(starter: Starter) -> Awaitable[None]:
            return run_party(
                job,
                sharing,
                task["index"],
                identity=Ed25519PrivateKey.from_private_bytes(bytes.fromhex(task["key"])),
                addresses=[(host, port) for host, port in start["addresses"]],
                deadline=start["deadline"],
                starter=starter,
                listener=listener,
                parts=start["parts"].encode(),
                notes={int(peer): bytes.fromhex(note) for peer, note in start["notes"].items()},
            )

        asyncio.run(_guided(party, source, out, sizes=(size, noise)))
    except Exception as error:
        write_report(out, error_report(described(error)))
        return
    write_report(out, {"end": True})


async def _guided(
    party: Callable[[Starter], Awaitable[None]], source: IO[bytes], out: IO[bytes], sizes: tuple[int, int | None]
) -> None:
    """Run the party, with a thread that listens to the parent and ends the process when the parent is gone."""
    loop = asyncio.get_running_loop()
    numbers: asyncio.Future[Numbers] = loop.create_future()
    words = {b"open\n": asyncio.Event(), b"done\n": asyncio.Event()}

    def listen_to_parent() -> None:
        while line := source.readline():
            with suppress(RuntimeError):  # the loop has ended, and nothing waits for the parent any more
                if line in words:
                    loop.call_soon_threadsafe(words[line].set)
                elif line.startswith(NUMBERS):
                    given = _read_numbers(source, *sizes, note=bytes.fromhex(line[len(NUMBERS) :].decode()))
                    loop.call_soon_threadsafe(numbers.set_result, given)
        os._exit(1)

    async def connected(notes: Notes) -> Numbers:
        write_report(out, {"connected": True, "notes": _plain(notes)})
        return await numbers

    async def opening(notes: Notes) -> None:
        write_report(out, {"opening": True, "notes": _plain(notes)})
        await words[b"open\n"].wait()

    async def result(numbers: IntArray | None, sent: int) -> None:
        data = b"" if numbers is None else numbers.astype(_NUMBER).tobytes()
        write_report(out, {"sent": sent, "result": numbers is not None}, data)
        await words[b"done\n"].wait()

    def difference(text: str) -> None:
        write_report(out, {"difference": text})

    def missing(peers: list[int]) -> None:
        write_report(out, {"missing": peers})

    threading.Thread(target=listen_to_parent, name="listen-to-parent", daemon=True).start()
    await party(Starter(difference=difference, missing=missing, connected=connected, opening=opening, result=result))


def _plain(notes: Notes) -> dict[int, str]:
    return {peer: note.hex() for peer, note in notes.items()}


def _read_numbers(source: IO[bytes], size: int, noise: int | None, note: bytes) -> Numbers:
    read = [_read_array(source, count) for count in (size, noise) if count is not None]
    return Numbers(read[0], None if noise is None else read[1], note=note)


def _read_array(source: IO[bytes], count: int) -> IntArray:
    data = source.read(8 * count)
    if len(data) != 8 * count:
        os._exit(1)  # the parent is gone
    return np.frombuffer(data, dtype=_NUMBER).astype(np.int64)


if __name__ == "__main__":
    main()
