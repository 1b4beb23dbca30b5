"""SPU's connection to the other party, carried by our sealed link: SPU itself talks to sockets in a private folder.

Each side's SPU listens on a socket of its own, and takes a second one, ours, for the other party. What it writes there
travels over the link, which has proved the party, the session and the plan. So nothing listens on the network, and no
other user of the machine can connect.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import struct
import tempfile
from contextlib import suppress
from enum import IntEnum
from pathlib import Path
from typing import Final

from tpmdp.engines.direct.link import Link
from tpmdp.engines.direct.record import DirectError

CHUNK: Final = 1 << 18
_STREAMS_MAX: Final = 64  # SPU opens two
_HEAD: Final = struct.Struct(">BI")  # kind, stream
_RETRY_S: Final = 0.02


class TunnelKind(IntEnum):
    """What a message through the tunnel is."""

    OPEN = 1  # SPU on this side connects to SPU on the other
    BYTES = 2
    CLOSE = 3
    DONE = 4  # SPU on this side has its result, but may still have to answer
    LAST = 5  # both have, and nothing comes after this


class Tunnel:
    """One session of two; `rank` is ours in it.

    Sockets are made in a new folder below `folder`. SPU stores all that the other side sends, so `received_max` bytes
    are the most that it may send.
    """

    def __init__(self, link: Link, rank: int, *, folder: Path, received_max: int) -> None:
        self._link, self._rank = link, rank
        self._left = received_max
        self._folder = Path(tempfile.mkdtemp(prefix="", dir=folder))
        self._own, self._other = self._folder / "own", self._folder / "other"
        self._streams: dict[int, asyncio.StreamWriter | None] = {}  # None: our SPU listens no longer
        self._tasks: set[asyncio.Task[None]] = set()
        self._sent = self._opened = 0
        self._done = [False, False]  # ours, theirs
        self._ended = False  # we have sent our last message
        self._server: asyncio.Server | None = None

    @property
    def sockets(self) -> list[str]:
        """Where SPU finds each party, by rank."""
        paths = [str(self._own), str(self._other)]
        return paths if self._rank == 0 else paths[::-1]

    async def start(self) -> asyncio.Task[None]:
        """Listen for our SPU, and carry what the other side sends. The task ends when both sides are done."""
        self._server = await asyncio.start_unix_server(self._dialled, path=str(self._other), limit=CHUNK)
        return self._task(self._carry())

    def done(self) -> None:
        """Our SPU has its result."""
        self._say_done(0, TunnelKind.DONE)

    def close(self) -> None:
        """Leave nothing behind."""
        self._ended = True
        for task in self._tasks:
            task.cancel()
        for writer in self._streams.values():
            if writer is not None:
                writer.transport.abort()
        if self._server is not None:
            self._server.close()
        shutil.rmtree(self._folder, ignore_errors=True)

    def _task(self, work: asyncio._CoroutineLike[None]) -> asyncio.Task[None]:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    def _send(self, kind: TunnelKind, stream: int = 0, data: bytes = b"") -> None:
        if self._ended:
            return
        self._link.send(self._sent, _HEAD.pack(kind, stream) + data)
        self._sent += 1
        self._ended = kind == TunnelKind.LAST

    def _say_done(self, side: int, kind: TunnelKind | None = None) -> None:
        self._done[side] = True
        if kind is not None:
            self._send(kind)
        if all(self._done):
            self._send(TunnelKind.LAST)

    async def _dialled(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Our SPU connects to the other party's."""
        if self._ended:  # SPU connects again when the other side has left
            writer.transport.abort()
            return
        stream = 2 * self._opened + self._rank
        self._opened += 1
        self._streams[stream] = writer
        self._send(TunnelKind.OPEN, stream)
        await self._forward(stream, reader)

    async def _forward(self, stream: int, reader: asyncio.StreamReader) -> None:
        with suppress(OSError):
            while data := await reader.read(CHUNK):
                self._send(TunnelKind.BYTES, stream, data)
                await self._link.drain()
        self._send(TunnelKind.CLOSE, stream)

    async def _carry(self) -> None:
        """What the other side sends, in order."""
        place = 0
        while True:
            message = self._link.receive(place)
            data = message if isinstance(message, bytes) else await message
            place += 1
            self._left -= len(data)
            if self._left < 0:
                raise self._refused("more than the function needs")
            if len(data) < _HEAD.size:
                raise self._refused()
            kind, stream = _HEAD.unpack_from(data)
            if kind == TunnelKind.LAST:
                return
            await self._take(kind, stream, data[_HEAD.size :])

    def _refused(self, what: str = "a message that is not of this protocol") -> DirectError:
        return DirectError(f"{self._link.name} sent {what}: run again when it is back", self._link.peer)

    async def _take(self, kind: int, stream: int, data: bytes) -> None:
        if kind == TunnelKind.OPEN:
            if stream % 2 == self._rank or stream in self._streams or len(self._streams) >= _STREAMS_MAX:
                raise self._refused()
            self._streams[stream] = await self._reach(stream)
        elif kind == TunnelKind.BYTES and stream in self._streams:
            await self._pass(self._streams[stream], data)
        elif kind == TunnelKind.CLOSE and stream in self._streams:
            writer = self._streams[stream]
            if writer is not None:
                writer.close()
        elif kind == TunnelKind.DONE and not self._done[1]:
            self._say_done(1)
        else:
            raise self._refused()

    async def _pass(self, writer: asyncio.StreamWriter | None, data: bytes) -> None:
        """Hand bytes to our SPU, as long as it listens."""
        if writer is not None:
            with suppress(OSError):
                writer.write(data)
                await writer.drain()

    async def _reach(self, stream: int) -> asyncio.StreamWriter | None:
        """Connect to our SPU, which may not be listening yet; the session's deadline ends the wait.

        Nothing if it has its result and has left: the other SPU then tries to connect again, to nobody.
        """
        while not self._done[0]:
            with suppress(OSError):
                if os.path.exists(self._own):
                    reader, writer = await asyncio.open_unix_connection(str(self._own), limit=CHUNK)
                    self._task(self._forward(stream, reader))
                    return writer
            await asyncio.sleep(_RETRY_S)
        self._send(TunnelKind.CLOSE, stream)
        return None
