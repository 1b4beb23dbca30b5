"""A connection to one party: sealed records, limits, and an end that is noticed.

Messages of a computation are labelled with a number, such as MPyC's program counter. A message that comes before it is
asked for is stored, within a limit.
"""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Callable
from contextlib import suppress
from enum import IntEnum
from typing import Final

from tpmdp.engines.direct.record import (
    LENGTH_BYTES,
    RECORD_MAX,
    TAG_BYTES,
    DirectError,
    LateError,
    Open,
    RecordError,
    Seal,
    record_length,
)
from tpmdp.errors import TpmdpError
from tpmdp.protocol.notes import NOTE_BYTES, NOTES_MAX, are_notes, encode_notes

_FRAME: Final = struct.Struct(">BqI")  # kind, program counter, length
_STORING: Final = 200  # bytes that storing a message costs beyond its content
_CLOSE_S: Final = 1.0
_NAMED: Final = 20  # parties in one message
_NOTES_BYTES: Final = len(encode_notes(bytes(NOTE_BYTES), {0: [bytes(NOTE_BYTES)] * NOTES_MAX}))


class LinkKind(IntEnum):
    """What a message on a link is."""

    DATA = 1  # of the computation
    DONE = 2  # I am a receiver and have the result
    BYE = 3  # I have sent all that I will ever send
    ABORT = 4  # I give up. Body: a reason, then the indices of the parties I lost or waited for
    READY = 5  # I hold a share of the result, and have shown it to nobody. Body: a note of my ledger, or nothing
    NOTES = 6  # I am connected to all. Body: `protocol.notes`, or nothing


class Reason(IntEnum):
    """Why a party gives up."""

    ERROR = 0  # its own
    LOSS = 1
    DEADLINE = 2
    REPORTED = 3  # an error that another party reported; its own message to others may come later than ours


class Link:
    """One party as a computation sees it: `send`, `receive` and `nbytes_sent`, as MPyC's runtime wants them."""

    def __init__(
        self,
        peer: int,
        name: Callable[[int], str],
        streams: tuple[asyncio.StreamReader, asyncio.StreamWriter],
        keys: tuple[Seal, Open],
        stored_max: int,
        on_loss: Callable[[Link, TpmdpError], None],
    ) -> None:
        self.peer, self._name, self._on_loss, self._stored_max = peer, name, on_loss, stored_max
        self._reader, self._writer = streams
        self._seal, self._open = keys
        self.nbytes_sent = 0
        loop = asyncio.get_running_loop()
        self.notes: asyncio.Future[bytes] = loop.create_future()
        self.ready: asyncio.Future[bytes] = loop.create_future()
        self.done: asyncio.Future[None] = loop.create_future()
        self.bye: asyncio.Future[None] = loop.create_future()
        self._stored: dict[int, bytes] = {}
        self._stored_bytes = 0
        self._awaited: dict[int, asyncio.Future[bytes]] = {}
        self._stream = bytearray()
        self.silent = True  # nothing has come yet, not even a part of a record
        self._task = loop.create_task(self._read())

    def __repr__(self) -> str:
        return f"Link({self.peer})"

    @property
    def name(self) -> str:
        """The party's."""
        return self._name(self.peer)

    @property
    def waiting(self) -> bool:
        """Whether the computation waits for a message of this party."""
        return any(not future.done() for future in self._awaited.values())

    def send(self, pc: int, payload: bytes) -> None:
        """Send a message of the computation."""
        self._put(LinkKind.DATA, pc, payload)

    def receive(self, pc: int) -> bytes | asyncio.Future[bytes]:
        """The message of this program counter, or a promise of it."""
        payload = self._stored.pop(pc, None)
        if payload is not None:
            self._stored_bytes -= len(payload) + _STORING
            return payload
        self._awaited[pc] = asyncio.get_running_loop().create_future()
        if self.bye.done():
            self._lose(RecordError("left too early"))
        return self._awaited[pc]

    async def drain(self) -> None:
        """Wait until not too much is waiting to be sent."""
        await self._writer.drain()

    def tell(self, kind: LinkKind, body: bytes = b"") -> None:
        """Send a message of the session."""
        self._put(kind, 0, body)

    def abort(self, error: TpmdpError) -> None:
        """Tell the party that we give up, and because of which party; it may be gone."""
        reason = Reason.ERROR
        who: tuple[int, ...] = ()
        if isinstance(error, LateError):
            reason, who = Reason.DEADLINE, error.missing
        elif isinstance(error, DirectError) and error.culprit is not None:
            reason, who = Reason.REPORTED if error.reported else Reason.LOSS, (error.culprit,)
        body = bytes([reason]) + b"".join(index.to_bytes(4, "big") for index in who)
        with suppress(OSError, RuntimeError):
            self.tell(LinkKind.ABORT, body)

    async def close(self) -> None:
        """Close when all is sent, within a few seconds.

        Closing with something unread resets the connection, and our last messages would be lost: read to the end first.
        """
        with suppress(OSError, TimeoutError):
            async with asyncio.timeout(_CLOSE_S):
                if not self.bye.done():
                    self._writer.write_eof()
                    await asyncio.wait({self._task})
                self._writer.close()
                await self._writer.wait_closed()
        self.drop()

    def drop(self) -> None:
        """Close at once, without a message."""
        self._task.cancel()
        self._writer.transport.abort()

    def _put(self, kind: LinkKind, pc: int, payload: bytes) -> None:
        if len(payload) > min(self._stored_max, 0xFFFFFFFF):
            raise DirectError("the function sends longer messages than the engine allows: use shorter vectors")
        content = _FRAME.pack(kind, pc, len(payload)) + payload
        for start in range(0, len(content), RECORD_MAX):
            record = self._seal.record(content[start : start + RECORD_MAX])
            self.nbytes_sent += len(record)
            self._writer.write(record)

    async def _read(self) -> None:
        """Read until the party says goodbye, disconnects, or misbehaves."""
        try:
            while True:
                sealed = await read_record(self._reader)
                self.silent = False
                self._stream += self._open.content(sealed)
                self._take()
        except (RecordError, asyncio.IncompleteReadError, OSError) as error:
            if isinstance(error, RecordError) or (isinstance(error, asyncio.IncompleteReadError) and error.partial):
                self.silent = False
            if not self.bye.done():
                self._lose(error)
                self.bye.set_result(None)

    def _take(self) -> None:
        """Handle the messages that are complete."""
        start = 0
        while len(self._stream) - start >= _FRAME.size:
            kind, pc, length = _FRAME.unpack_from(self._stream, start)
            if length > self._stored_max:
                raise RecordError("sent a message longer than the function needs")
            end = start + _FRAME.size + length
            if len(self._stream) < end:
                break
            self._message(kind, pc, bytes(self._stream[start + _FRAME.size : end]))
            start = end
        del self._stream[:start]

    def _message(self, kind: int, pc: int, payload: bytes) -> None:
        if self.bye.done():
            raise RecordError("went on after its goodbye")
        if kind == LinkKind.DATA:
            self._data(pc, payload)
        elif kind == LinkKind.NOTES and len(payload) <= _NOTES_BYTES and not self.notes.done() and are_notes(payload):
            self.notes.set_result(payload)
        elif kind == LinkKind.READY and len(payload) in (0, NOTE_BYTES) and not self.ready.done():
            self.ready.set_result(payload)
        elif kind == LinkKind.DONE and not payload and not self.done.done():
            self.done.set_result(None)
        elif kind == LinkKind.BYE and not payload:
            self.bye.set_result(None)
            if self.waiting or not self.ready.done():
                self._lose(RecordError("left too early"))
        elif kind == LinkKind.ABORT and len(payload) % 4 == 1 and payload[0] in list(Reason):
            self._aborted(Reason(payload[0]), struct.unpack(f">{len(payload) // 4}I", payload[1:]))
        else:
            raise RecordError("sent a message that is not of this protocol")

    def _data(self, pc: int, payload: bytes) -> None:
        future = self._awaited.pop(pc, None)
        if future is not None:
            if not future.done():
                future.set_result(payload)
            return
        if pc in self._stored:
            raise RecordError("sent a message twice")
        self._stored[pc] = payload
        self._stored_bytes += len(payload) + _STORING
        if self._stored_bytes > self._stored_max:
            raise RecordError("sent more than the function needs")

    def _aborted(self, reason: Reason, who: tuple[int, ...]) -> None:
        self.bye.set_result(None)
        name, names = self._name(self.peer), ", ".join(self._name(index) for index in who[:_NAMED])
        if reason == Reason.DEADLINE:
            names = names or name  # it was busy with itself
            self._on_loss(
                self,
                LateError(f"the deadline passed while waiting for {names}: {name} gave up first", who or (self.peer,)),
            )
        elif reason == Reason.LOSS and who:
            self._on_loss(self, DirectError(f"{name} ended the session because it lost {names}: run again", who[0]))
        else:
            culprit = who[0] if reason == Reason.REPORTED and who else self.peer
            text = f"{self._name(culprit)} ended the session because of an error on its side: ask it"
            self._on_loss(self, DirectError(text, culprit, reported=True))

    def _lose(self, error: Exception) -> None:
        name = self.name
        text = f"{name} {error}" if isinstance(error, RecordError) else f"the connection to {name} was lost"
        self._on_loss(self, DirectError(f"{text}: run again when it is back", self.peer))


async def read_record(reader: asyncio.StreamReader, length: int | None = None) -> bytes:
    """The next record, still sealed; with exactly `length` bytes of content if given."""
    size = record_length(await reader.readexactly(LENGTH_BYTES))
    if length is not None and size != length + TAG_BYTES:
        raise RecordError("sent a record of a length that is not allowed")
    return await reader.readexactly(size)
