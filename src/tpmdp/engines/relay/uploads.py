"""Bodies on their way to the relay: a slow sender holds a connection and perhaps a file, but no memory others need.

The first bytes of a body are collected in memory, all others in a file without a name. Bytes count as they arrive, not
as they are announced, and they must arrive at a minimum rate. The number of bodies that are still arriving is capped
for each party and each address; a body that came at once with its head is not among them.
"""

from __future__ import annotations

import asyncio
import tempfile
from collections import Counter
from collections.abc import AsyncIterator, Callable, Hashable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import IO, Final

from starlette.requests import Request

from tpmdp.engines.relay.database import RelayFullError
from tpmdp.engines.relay.limits import RelaySettings
from tpmdp.engines.relay.requests import ClientGoneError, RefusedError, content_length
from tpmdp.errors import InputError

RATE_MIN: Final = 8 << 10  # bytes per second of a body, on average over each pause that is allowed
COLLECTED: Final = 64 << 10  # bytes of a body in memory while it is incomplete


class Body:
    """The bytes of one body, complete or not."""

    def __init__(self, folder: Path, threads: ThreadPoolExecutor) -> None:
        self._folder, self._threads = folder, threads
        self._parts: list[bytes] = []
        self._collected = 0
        self._file: IO[bytes] | None = None
        self.size = 0
        self.counted = 0  # bytes that count towards the limits

    async def add(self, part: bytes) -> None:
        """Take a part that has arrived; RelayFullError if the disk is full."""
        self._parts.append(part)
        self._collected += len(part)
        self.size += len(part)
        if self._collected > COLLECTED:
            joined, self._parts, self._collected = b"".join(self._parts), [], 0
            await asyncio.get_running_loop().run_in_executor(self._threads, self._write, joined)

    def _write(self, data: bytes) -> None:
        try:
            if self._file is None:
                self._file = tempfile.TemporaryFile(dir=self._folder, buffering=0)  # noqa: SIM115
            view = memoryview(data)
            while view:
                view = view[self._file.write(view) :]
        except OSError as error:
            problem = f"store = ({error.strerror or 'disk'}) has no room for a body"
            raise RelayFullError(f"{problem}: tell the relay's operator") from None

    @property
    def in_file(self) -> bool:
        """Whether reading it takes time."""
        return self._file is not None

    def read(self) -> bytes:
        """All bytes; the caller answers for the memory."""
        rest = b"".join(self._parts)
        if self._file is None:
            return rest
        self._file.seek(0)
        whole = bytearray(self.size)
        view, place = memoryview(whole), 0
        while place < self.size - len(rest):
            count = self._file.readinto(view[place : self.size - len(rest)])  # type: ignore[attr-defined]
            if not count:
                raise OSError("a body in a file was cut short")
            place += count
        whole[place:] = rest
        return bytes(whole)

    def close(self) -> None:
        """Give the file back."""
        if self._file is not None:
            self._file.close()


class Uploads:
    """All bodies that are incomplete, with caps for each party and each address."""

    def __init__(self, settings: RelaySettings, folder: Path) -> None:
        self._settings, self._folder = settings, folder
        self._threads = ThreadPoolExecutor(2, "relay-body")
        self._counts: Counter[Hashable] = Counter()
        self._bytes: Counter[Hashable] = Counter()
        self.incomplete = 0

    @property
    def bytes(self) -> int:
        """Bytes of bodies that are incomplete or not yet stored."""
        return self._bytes[None]

    def close(self) -> None:
        """End the threads."""
        self._threads.shutdown()

    @asynccontextmanager
    async def body(
        self, request: Request, limit: int, address: Hashable, party: Hashable = None
    ) -> AsyncIterator[Body]:
        """The whole body of a request, as long as the block lasts; RefusedError if it is too long, slow or much."""
        body = Body(self._folder, self._threads)
        try:
            await self._receive(request, limit, body, address=address, party=party)
            yield body
        finally:
            body.close()
            for key in (None, ("address", address)):
                self._bytes[key] -= body.counted
                if not self._bytes[key]:
                    del self._bytes[key]

    async def _receive(self, request: Request, limit: int, body: Body, address: Hashable, party: Hashable) -> None:
        announced = content_length(request)
        too_long = InputError(
            "body", announced or f"over {limit}", f"is longer than {limit} bytes", "send less at once"
        )
        if announced is not None and announced > limit:
            raise RefusedError(413, too_long)
        part, more = await _next_part(request, self._settings.body_timeout_s, 0)
        with self._counted(address, party, more):
            pace = Pace(self._settings.body_timeout_s, asyncio.get_running_loop().time)
            while True:
                self._count_bytes(len(part), body, address)
                if body.size + len(part) > limit:
                    raise RefusedError(413, too_long)
                began = pace.now()
                await body.add(part)
                pace.arrived(len(part), own_s=pace.now() - began)
                if not more:
                    return
                part, more = await _next_part(request, pace.left_s(), body.size)

    def _count_bytes(self, size: int, body: Body, address: Hashable) -> None:
        """Refuse what would fill the disk: all uploads together, and half of that for one address."""
        most = self._settings.uploads_bytes_max
        for key, limit in ((None, most), (("address", address), max(self._settings.body_max, most // 2))):
            if self._bytes[key] + size > limit:
                error = InputError("uploads", f"{self._bytes[key]} bytes", "are too many at once", "try again soon")
                raise RefusedError(503, error, {"retry-after": "2"})
        for key in (None, ("address", address)):
            self._bytes[key] += size
        body.counted += size

    @contextmanager
    def _counted(self, address: Hashable, party: Hashable, incomplete: bool) -> Iterator[None]:
        """Count an upload whose body did not come at once, within the caps."""
        if not incomplete:
            yield
            return
        caps = [(("address", address), self._settings.address_uploads_max, "from your address")]
        if party is not None:
            caps.append((("party", party), self._settings.party_uploads_max, "of this party"))
        for key, most, whose in caps:
            if self._counts[key] >= most:
                error = InputError("uploads", whose, f"are more than {most} at once", "finish one first")
                raise RefusedError(429, error, {"retry-after": "1"})
        for key, _, _ in caps:
            self._counts[key] += 1
        self.incomplete += 1
        try:
            yield
        finally:
            self.incomplete -= 1
            for key, _, _ in caps:
                self._counts[key] -= 1
                if not self._counts[key]:
                    del self._counts[key]


class Pace:
    """The time that is left for the next bytes: each `window_s` must bring `RATE_MIN` bytes per second.

    >>> now = [0.0]
    >>> pace = Pace(10.0, lambda: now[0])
    >>> now[0] = 8.0
    >>> pace.arrived(RATE_MIN, own_s=0.0)  # a tenth of what is needed
    >>> pace.left_s()
    2.0
    >>> pace.arrived(9 * RATE_MIN, own_s=0.0)
    >>> pace.left_s()
    10.0
    """

    def __init__(self, window_s: float, now: Callable[[], float]) -> None:
        self._window_s, self.now = window_s, now
        self._end = now() + window_s
        self._came = 0

    def arrived(self, size: int, own_s: float) -> None:
        """Count bytes; `own_s` is time that the relay, and not the sender, took for them."""
        self._came += size
        self._end += own_s
        if self._came >= RATE_MIN * self._window_s:
            self._end, self._came = self.now() + self._window_s, 0

    def left_s(self) -> float:
        """Seconds until more bytes must have come."""
        return max(0.0, self._end - self.now())


async def _next_part(request: Request, patience_s: float, size: int) -> tuple[bytes, bool]:
    """The bytes that came next, and whether more will."""
    try:
        async with asyncio.timeout(patience_s):
            event = await request.receive()
    except TimeoutError:
        rule = f"paused, or came slower than {RATE_MIN} bytes per second"
        error = InputError("body", f"{size} bytes", rule, "check the network and send it again")
        raise RefusedError(408, error) from None
    if event["type"] == "http.disconnect":
        raise ClientGoneError
    return event.get("body", b""), event.get("more_body", False)
