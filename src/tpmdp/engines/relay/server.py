"""The relay: a mailbox over HTTP that need not be trusted. It holds no secret and sees only what the wire shows.

Every party reads what is addressed to it, and writes only what it signed. What is acknowledged is on the disk. Sizes,
rates, memory, connections and waiting are bounded, for strangers and for parties that misbehave alike.
"""

from __future__ import annotations

import asyncio
import errno
import json
import logging
import math
import os
import re
import signal
import socket
import ssl
import sys
import threading
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager, contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any, Final
from urllib.parse import parse_qsl

import uvicorn
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import Receive, Scope, Send
from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol

from tpmdp import __version__
from tpmdp.engines.relay import wire
from tpmdp.engines.relay.limits import Buckets, Budget, RelaySettings, address_key
from tpmdp.engines.relay.store import Item, Session, Store, StoreError, UnknownSession
from tpmdp.errors import FileError, InputError, TpmdpError, shown
from tpmdp.files import readable
from tpmdp.protocol.messages import EVERYONE, HASH_BYTES, OVERHEAD, PARTIES_MAX, Kind, MessageError, decode, verify
from tpmdp.protocol.terms import session_id

_HEAD_MAX: Final = 16 << 10  # bytes of one request head
_DISCARD_MAX: Final = 1 << 20  # bytes of a refused body that are still taken, so that the client reads the refusal
_PIPELINE_MAX: Final = 8  # requests sent ahead on one connection
_SLICE: Final = 256 << 10  # bytes of an answer handed to the connection at once
_INLINE: Final = 64 << 10  # bytes of a body that are checked without another thread
_INLINE_MESSAGES: Final = 4
_RATE_MIN: Final = 16 << 10  # bytes a second, below which a body takes too long
_STRANGERS_MAX: Final = 64 << 20  # bytes of rosters in memory at once
_TOKEN_MAX: Final = 200  # characters of an Authorization header
_TOKENS_CACHED: Final = 16_384
_KEEP_ALIVE_S: Final = 60
_SWEEP_S: Final = 86_400.0
_NUMBER_MAX: Final = (1 << 63) - 1
_CERTIFICATE_MAX: Final = 1 << 20
_ID: Final = re.compile("[0-9a-f]{64}")
_AFTER: Final = re.compile("[0-9]{1,3}:[0-9]{1,19}")
_WAIT: Final = re.compile(r"[0-9]{1,3}(\.[0-9]{1,6})?")


class Refusal(TpmdpError):
    """A request the relay does not serve; the text goes to the client."""

    def __init__(self, status: int, error: object, headers: Mapping[str, str] | None = None) -> None:
        self.status, self.headers = status, dict(headers or {})
        super().__init__(str(error))


class _Gone(TpmdpError):
    """The client went away."""


def create_app(store_path: Path, settings: RelaySettings) -> Starlette:
    """The relay as an ASGI application; the store is opened here, so that a bad file is reported at once.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     app = create_app(Path(folder) / "relay.sqlite", RelaySettings())
    ...     app.state.relay.close()
    """
    relay = Relay(Store(store_path, settings), settings)

    @asynccontextmanager
    async def lifespan(_: Starlette) -> AsyncIterator[None]:
        sweeper = asyncio.create_task(relay.sweep())
        yield
        sweeper.cancel()
        relay.close()

    routes = [
        Route("/v1/health", relay.health, methods=["GET"]),
        Route("/v1/sessions/{session}", relay.put_session, methods=["PUT"]),
        Route("/v1/sessions/{session}/messages", relay.messages, methods=["GET", "POST"]),
    ]
    handlers: dict[Any, Any] = dict.fromkeys((Refusal, StoreError, HTTPException, _Gone, Exception), relay.refuse)
    app = Starlette(routes=routes, exception_handlers=handlers, lifespan=lifespan)
    app.router.redirect_slashes = False
    app.state.relay = relay
    return app


class Relay:
    """What the relay does, request by request."""

    def __init__(self, store: Store, settings: RelaySettings) -> None:
        self.store, self.settings = store, settings
        self.nonce = os.urandom(wire.NONCE_BYTES)
        self.hub = Hub()
        self._nonce_header = {wire.NONCE_HEADER: self.nonce.hex()}
        self._tokens: dict[tuple[int, str], int] = {}  # proved tokens: checking one costs 100 us
        self._parties = Buckets(settings.party_rate, settings.party_burst)
        self._addresses = Buckets(settings.address_rate, settings.address_burst)
        self._incoming, self._outgoing = Budget(settings.memory_max), Budget(settings.memory_max)
        self._strangers = Budget(_STRANGERS_MAX)  # of their own: who has no token must not hinder who has
        self._workers = ThreadPoolExecutor(2, "relay-check")

    def close(self) -> None:
        """End threads and close the store."""
        self._workers.shutdown()
        self.store.close()

    async def sweep(self) -> None:
        """Delete old sessions now and daily."""
        while True:
            try:
                await self.store.sweep(self.settings.keep_days * 86_400)
            except StoreError as error:  # the next day may be better, and requests report it too
                _logger.error("deleting old sessions failed: %s", error)
            await asyncio.sleep(_SWEEP_S)

    # Endpoints -------------------------------------------------------------------------------------------------------

    async def health(self, request: Request) -> Response:
        """Who answers, and the nonce."""
        self._charge_address(request)
        return _json(200, {"service": "tpmdp relay", "version": __version__}, self._nonce_header)

    async def put_session(self, request: Request) -> Response:
        """Make a session known."""
        self._charge_address(request)
        name = self._name(request)
        limit = HASH_BYTES * (1 + PARTIES_MAX)
        try:
            async with self._strangers.hold(_size(request, limit), self._patience):
                body = await self._body(request, limit)
                if len(body) > _INLINE:
                    await asyncio.get_running_loop().run_in_executor(self._workers, _check_session, name, body)
                else:
                    _check_session(name, body)
                new = await self.store.open_session(name, body[HASH_BYTES:])
        except InputError as error:
            raise Refusal(400, error) from None
        except TimeoutError:
            raise _busy() from None
        return _json(201 if new else 200, {"new": new}, self._nonce_header)

    async def messages(self, request: Request) -> Response:
        """Write or read messages; who asks is proved before anything else."""
        session = await self._session(request)
        party = self._party(request, session)
        if request.method == "POST":
            return await self._post(request, session, party)
        return await self._get(request, session, party)

    async def _post(self, request: Request, session: Session, party: int) -> Response:
        limit = self.settings.body_max
        try:
            # Memory is granted before it is used, so that many large bodies wait for each other and not fill it.
            async with self._incoming.hold(_size(request, limit), self._patience):
                body = await self._body(request, limit)
                items = await self._checked(body, session, party)
                del body
                new = await self.store.add(session, items)
        except TimeoutError:
            raise _busy() from None
        self.hub.wake(session.id, new)
        return _json(200, {"stored": len(new), "known": len(items) - len(new)})

    async def _checked(self, body: bytes, session: Session, party: int) -> list[Item]:
        # Large bodies, and many small messages with a signature each, must not keep the event loop.
        if len(body) <= _INLINE and len(body) // OVERHEAD <= _INLINE_MESSAGES:
            return check_messages(body, session, party, self.settings.message_max)
        check = partial(check_messages, body, session, party, self.settings.message_max)
        return await asyncio.get_running_loop().run_in_executor(self._workers, check)

    async def _get(self, request: Request, session: Session, party: int) -> Response:
        try:
            cursors, wait = parse_query(request.scope["query_string"])
        except InputError as error:
            raise Refusal(400, error) from None
        loop = asyncio.get_running_loop()
        end = loop.time() + wait
        while True:
            # Registered before looking: what is stored after the look wakes us, what was stored before is seen.
            with self.hub.waiting(session.id, party, cursors) as woken:
                picked = await self.store.pick(session, party, cursors)
                left = end - loop.time()
                if picked.numbers or left <= 0 or self.hub.stopped:
                    break
                await _first(woken, request.receive, left)
        if picked.body is not None:
            return _Frames(picked.body)
        try:
            hold = self._outgoing.hold(min(picked.size, self.settings.memory_max), self._patience)
            return await _send_within(hold, lambda: self.store.load(picked.numbers))
        except TimeoutError:
            raise _busy() from None

    async def refuse(self, request: Request, error: Exception) -> Response:
        """The answer to whatever went wrong."""
        if isinstance(error, Refusal):
            return _error(error.status, str(error), error.headers)
        if isinstance(error, StoreError):
            return _error(error.status, str(error), {"retry-after": "1"} if error.status == 503 else None)
        if isinstance(error, HTTPException):
            try:
                self._charge_address(request)
            except Refusal as refusal:
                return _error(refusal.status, str(refusal), refusal.headers)
            rule = "is not served here" if error.status_code == 404 else "is refused"
            what = f"{request.method} {request.scope['path']}"
            return _error(error.status_code, InputError("request", what, rule, "see docs"), error.headers)
        if isinstance(error, _Gone):
            return Response(status_code=400)  # nobody reads it
        return _error(500, InputError("relay", "(a bug)", "failed to serve this", "tell the relay's operator"))

    # Who asks --------------------------------------------------------------------------------------------------------

    @property
    def _patience(self) -> float:
        return self.settings.body_timeout_s

    def _name(self, request: Request) -> bytes:
        text = request.path_params["session"]
        if not _ID.fullmatch(text):
            remedy = "use the identifier of the session"
            raise Refusal(404, InputError("session", text, "must be 64 digits of lower-case hexadecimal", remedy))
        name = bytes.fromhex(text)
        if self.settings.sessions is not None and name not in self.settings.sessions:
            remedy = "ask the relay's operator to add the study"
            raise Refusal(403, InputError("session", text[:12] + "...", "is not one this relay serves", remedy))
        return name

    async def _session(self, request: Request) -> Session:
        try:
            name = self._name(request)
            cached = self.store.cached(name)
            if cached is not None:
                return cached
            self._check_address(request)
            return await self.store.session(name)
        except (Refusal, UnknownSession):
            self._charge_address(request)
            raise

    def _party(self, request: Request, session: Session) -> int:
        header = request.headers.get("authorization", "")[: _TOKEN_MAX + 1]
        key = session.id, header
        party = self._tokens.get(key)
        if party is None:
            self._check_address(request)
            if len(header) <= _TOKEN_MAX:
                party = wire.token_party(header, self.nonce, session.name, session.roster)
            if party is None:
                self._charge_address(request)
                rule = "proves no party of this session to this relay"
                error = InputError("authorization", shown(header, 20), rule, f"sign the nonce in {wire.NONCE_HEADER}")
                raise Refusal(401, error, {"www-authenticate": wire.SCHEME, **self._nonce_header})
            while len(self._tokens) >= _TOKENS_CACHED:
                del self._tokens[next(iter(self._tokens))]
            self._tokens[key] = party
        wait = self._parties.take((session.id, party))
        if wait > 0:
            raise _too_many(f"of party {party}", wait)
        return party

    def _check_address(self, request: Request) -> None:
        """Refuse whoever used up the requests without a token, before they cost anything."""
        wait = self._addresses.peek(_address(request))
        if wait > 0:
            raise _too_many("without a valid token from your address", wait)

    def _charge_address(self, request: Request) -> None:
        wait = self._addresses.take(_address(request))
        if wait > 0:
            raise _too_many("without a valid token from your address", wait)

    # Bodies ----------------------------------------------------------------------------------------------------------

    async def _body(self, request: Request, limit: int) -> bytes:
        """The body, within its limit and in time."""
        announced = _content_length(request)
        too_long = InputError(
            "body", announced or f"over {limit}", f"is longer than {limit} bytes", "send less at once"
        )
        if announced is not None and announced > limit:
            raise Refusal(413, too_long)
        pause = self.settings.body_timeout_s
        parts: list[bytes] = []
        size = 0
        try:
            async with asyncio.timeout(pause + (announced or limit) / _RATE_MIN):
                more = True
                while more:
                    async with asyncio.timeout(pause):
                        event = await request.receive()
                    if event["type"] == "http.disconnect":
                        raise _Gone
                    parts.append(event.get("body", b""))
                    size += len(parts[-1])
                    if size > limit:
                        raise Refusal(413, too_long)
                    more = event.get("more_body", False)
        except TimeoutError:
            remedy = "check the network and send it again"
            raise Refusal(
                408, InputError("body", f"{size} bytes", f"paused for {pause:g} s or was slow", remedy)
            ) from None
        return parts[0] if len(parts) == 1 else b"".join(parts)


class Hub:
    """Who waits for messages, so that a message wakes exactly those it is for.

    >>> async def use() -> bool:
    ...     hub = Hub()
    ...     with hub.waiting(7, 1, {4: 0}) as woken:
    ...         hub.wake(7, [Item(4, 1, 0, 1, b"", b"")])
    ...         return woken.done()
    >>> asyncio.run(use())
    True
    """

    def __init__(self) -> None:
        self.stopped = False
        self._waiting: dict[int, dict[int, dict[asyncio.Future[None], Mapping[int, int]]]] = {}

    @contextmanager
    def waiting(self, session: int, party: int, kinds: Mapping[int, int]) -> Iterator[asyncio.Future[None]]:
        """In the block, the future is done as soon as a message of these kinds is there for the party."""
        woken: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        parties = self._waiting.setdefault(session, {})
        parties.setdefault(party, {})[woken] = kinds
        try:
            yield woken
        finally:
            del parties[party][woken]
            if not parties[party]:
                del parties[party]
            if not parties and self._waiting.get(session) is parties:
                del self._waiting[session]

    def wake(self, session: int, items: Sequence[Item]) -> None:
        """Wake whom these messages are for."""
        parties = self._waiting.get(session)
        if not parties:
            return
        for item in items:
            for party in list(parties) if item.recipient == EVERYONE else (item.recipient,):
                if party != item.sender:
                    _finish(woken for woken, kinds in parties.get(party, {}).items() if item.kind in kinds)

    def stop(self) -> None:
        """Wake everybody for good: the relay ends."""
        self.stopped = True
        for parties in self._waiting.values():
            for futures in parties.values():
                _finish(futures)


def check_messages(body: bytes, session: Session, party: int, message_max: int) -> list[Item]:
    """The messages of a body, if every one is whole, of this session, from this party and signed by it.

    >>> check_messages(b"nonsense", Session(1, bytes(32), (bytes(32), bytes(32))), 0, 1 << 20)
    Traceback (most recent call last):
        ...
    tpmdp.engines.relay.server.Refusal: body = 8 bytes cannot be read (a frame is cut short): send whole frames
    """
    items: list[Item] = []
    try:
        for number, data in wire.frames(body):
            if number != 0:
                raise Refusal(400, InputError("frame number", number, "must be 0 from a party", "leave it at 0"))
            if len(items) >= session.slots_max:
                rule = f"holds more than {session.slots_max} messages"
                raise Refusal(413, InputError("body", f"{len(body)} bytes", rule, "send fewer at once"))
            items.append(_check_message(data, session, party, message_max))
    except MessageError as error:
        rule = f"cannot be read ({error})"
        raise Refusal(400, InputError("body", f"{len(body)} bytes", rule, "send whole frames")) from None
    if not items:
        raise Refusal(400, InputError("body", "(blank)", "holds no message", "send at least one frame"))
    return items


def _check_message(data: bytes, session: Session, party: int, message_max: int) -> Item:
    if len(data) > message_max:
        rule = f"is longer than this relay takes ({message_max})"
        raise Refusal(413, InputError("message", f"{len(data)} bytes", rule, "ask the relay's operator for more"))
    message = decode(data)
    if message.session != session.name:
        rule = "is of another session than the address says"
        raise Refusal(400, InputError("message", message.session.hex()[:12] + "...", rule, "send it there"))
    if message.sender != party:
        rule = f"is not the party that the token proves ({party})"
        raise Refusal(403, InputError("sender", message.sender, rule, "send your own messages"))
    if message.recipient != EVERYONE and message.recipient >= len(session.roster):
        rule = f"must be one of the {len(session.roster)} parties or everyone"
        raise Refusal(400, InputError("recipient", message.recipient, rule, "name a party of the session"))
    try:
        digest = verify(data, session.roster[party])
    except MessageError:
        rule = "does not fit the sender's public key"
        raise Refusal(403, InputError("signature", data[-64:].hex()[:12] + "...", rule, "sign with that key")) from None
    return Item(int(message.kind), message.attempt, party, message.recipient, digest, data)


def _check_session(name: bytes, body: bytes) -> None:
    """A session must be the hash of its own content."""
    count, rest = divmod(len(body), HASH_BYTES)
    count -= 1
    if rest or not 2 <= count <= PARTIES_MAX:
        rule = f"must be a label hash and 2 to {PARTIES_MAX} public keys of {HASH_BYTES} bytes each"
        raise InputError("body", f"{len(body)} bytes", rule, "send exactly these")
    roster = tuple(body[start : start + HASH_BYTES] for start in range(HASH_BYTES, len(body), HASH_BYTES))
    if len(set(roster)) != count:
        raise InputError("public keys", count, "must all be different", "give every party its own key")
    found = session_id(body[:HASH_BYTES], roster)
    if found != name:
        raise InputError("session", name.hex()[:12] + "...", "is not the hash of the body", f"PUT {found.hex()}")


def parse_query(query: bytes) -> tuple[dict[int, int], float]:
    """The cursor of every kind asked for, and how long to wait.

    >>> parse_query(b"after=1:12,2:0&wait=2.5")
    ({1: 12, 2: 0}, 2.5)
    >>> parse_query(b"after=9:0")
    Traceback (most recent call last):
        ...
    tpmdp.errors.InputError: after = 9:0 names an unknown kind: use 1 to 6
    """
    text = query.decode("latin-1")
    try:
        pairs = parse_qsl(text, keep_blank_values=True, strict_parsing=True, max_num_fields=2, errors="strict")
    except ValueError:
        pairs = []
    found = dict(pairs)
    if len(found) != len(pairs) or "after" not in found or not found.keys() <= {"after", "wait"}:
        remedy = "ask such as ?after=1:0,2:0&wait=20"
        raise InputError("query", text, "must be after and perhaps wait, each once", remedy)
    cursors: dict[int, int] = {}
    for part in found["after"].split(",", len(Kind) + 1):
        if not _AFTER.fullmatch(part):
            raise InputError("after", part, "must be KIND:NUMBER", "ask such as 1:0,2:0")
        kind, number = (int(word) for word in part.split(":"))
        if kind not in set(Kind):
            raise InputError("after", part, "names an unknown kind", f"use {min(Kind)} to {max(Kind)}")
        if kind in cursors or number > _NUMBER_MAX:
            raise InputError("after", part, "repeats a kind or has a number too great", "give each kind once")
        cursors[kind] = number
    wait = found.get("wait", "0")
    if not _WAIT.fullmatch(wait) or float(wait) > wire.WAIT_MAX_S:
        raise InputError("wait", wait, f"must be seconds from 0 to {wire.WAIT_MAX_S:g}", "wait less, ask again")
    return cursors, float(wait)


# Answers -------------------------------------------------------------------------------------------------------------


def _json(status: int, content: Mapping[str, Any], headers: Mapping[str, str] | None = None) -> Response:
    return Response(json.dumps(content), status, headers, media_type="application/json")


def _error(status: int, error: object, headers: Mapping[str, str] | None = None) -> Response:
    return _json(status, {"error": " ".join(str(error).split())}, headers)


def _too_many(what: str, wait: float) -> Refusal:
    error = InputError("requests", what, "are too many", f"wait {wait:.1f} s")
    return Refusal(429, error, {"retry-after": str(math.ceil(wait))})


def _busy() -> Refusal:
    return Refusal(503, InputError("relay", "(busy)", "has no memory free now", "try again soon"), {"retry-after": "2"})


class _Frames(Response):
    """An answer of frames, sent in slices: while the client is slow, no more than one is buffered twice."""

    media_type = "application/octet-stream"

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        del scope, receive
        await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
        body = bytes(self.body)
        for start in range(0, max(1, len(body)), _SLICE):
            more = start + _SLICE < len(body)
            part = body if len(body) <= _SLICE else body[start : start + _SLICE]
            await send({"type": "http.response.body", "body": part, "more_body": more})


class _HeldFrames(_Frames):
    """A large answer that gives its memory back when it is sent."""

    release: Callable[[], Any]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await super().__call__(scope, receive, send)
        finally:
            await self.release()


async def _send_within(hold: Any, load: Callable[[], Any]) -> Response:
    await hold.__aenter__()
    try:
        answer = _HeldFrames(await load())
    except BaseException:
        await hold.__aexit__(None, None, None)
        raise
    answer.release = lambda: hold.__aexit__(None, None, None)
    return answer


def _finish(futures: Any) -> None:
    for future in futures:
        if not future.done():
            future.set_result(None)


async def _first(woken: asyncio.Future[None], receive: Receive, timeout_s: float) -> None:
    """Wait for a message or the end of time; a client that goes away must not be waited for."""

    async def gone() -> None:
        while (await receive())["type"] != "http.disconnect":
            pass

    watch = asyncio.ensure_future(gone())
    try:
        await asyncio.wait({woken, watch}, timeout=timeout_s, return_when=asyncio.FIRST_COMPLETED)
        if watch.done() and not woken.done():
            raise _Gone
    finally:
        watch.cancel()


def _address(request: Request) -> str:
    return "" if request.client is None else address_key(request.client.host)


def _content_length(request: Request) -> int | None:
    value = request.headers.get("content-length", "")
    return int(value) if value.isascii() and value.isdigit() and len(value) <= 19 else None


def _size(request: Request, limit: int) -> int:
    """Bytes a body may need: what it announces, or else the most it may have."""
    announced = _content_length(request)
    return limit if announced is None else min(announced, limit)


# Connections ---------------------------------------------------------------------------------------------------------

_logger: Final = logging.getLogger("uvicorn.error")


class Connection(HttpToolsProtocol):
    """uvicorn's connection with limits it lacks: time and size of a head, refused bodies, readers that stall."""

    def __init__(
        self, settings: RelaySettings, config: uvicorn.Config, server_state: Any, app_state: dict[str, Any]
    ) -> None:
        super().__init__(config, server_state, app_state)
        self._settings = settings
        self._in_head = True
        self._head_bytes = 0  # of the fields parsed
        self._bytes = 0  # received since the request began
        self._discard: int | None = None  # bytes still taken of a body that nobody reads
        self._deadline: asyncio.TimerHandle | None = None
        self._stall: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Refuse connections over the limit; the others must say something soon."""
        super().connection_made(transport)
        if len(self.connections) > self._settings.connections_max:
            self._refuse(503, InputError("connections", len(self.connections), "are too many", "try again soon"))
            return
        self._arm(self._settings.head_timeout_s)

    def connection_lost(self, exc: Exception | None) -> None:
        """Forget the timers."""
        self._disarm()
        self.resume_writing()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Parse; but no endless head, no endless trailer and no endless body that was refused."""
        if self.transport.is_closing():
            return
        self._bytes += len(data)
        if self._discard is not None:
            self._discard -= len(data)
            if self._discard < 0:
                self._close()
                return
        # A chunked body may be longer on the wire than it is, but not by much.
        limit = _HEAD_MAX if self._in_head else 2 * self._settings.body_max + _DISCARD_MAX
        if self._bytes > limit + (1 << 18):  # what one read brings
            self._refuse(431, InputError("request", f"{self._bytes} bytes", "is too long", "send less"))
            return
        super().data_received(data)
        idle = self.cycle is None or self.cycle.response_complete
        if idle and self._deadline is None and not self.transport.is_closing():
            self._arm(self._settings.head_timeout_s)  # uvicorn's own timer ended with the first byte

    def on_message_begin(self) -> None:
        """A request begins."""
        super().on_message_begin()
        self._in_head, self._head_bytes, self._bytes = True, 0, 0

    def on_url(self, url: bytes) -> None:
        """A part of the address."""
        self._count(len(url))
        super().on_url(url)

    def on_header(self, name: bytes, value: bytes) -> None:
        """A field of the head, or of a trailer."""
        self._count(len(name) + len(value) + 4)
        super().on_header(name, value)

    def on_headers_complete(self) -> None:
        """The head is whole: from here the application keeps the time."""
        if len(self.pipeline) >= _PIPELINE_MAX:
            raise ValueError("too many requests ahead")
        super().on_headers_complete()
        self._in_head = False
        self._disarm()

    def on_message_complete(self) -> None:
        """The request is whole."""
        super().on_message_complete()
        self._in_head, self._bytes = True, 0
        if self._discard is not None:
            self._discard = None
            self._arm(self.timeout_keep_alive)

    def on_response_complete(self) -> None:
        """Close slowly, or take what is left of a body so that the client gets to read the answer."""
        super().on_response_complete()
        if self.transport.is_closing():
            self._close()
        elif self.cycle.response_complete and self.cycle.more_body:
            self._discard = _DISCARD_MAX
            self._arm(self._settings.head_timeout_s)

    def pause_writing(self) -> None:
        """The client reads slowly; it gets time for what is buffered, which is little."""
        super().pause_writing()
        if self._stall is None:
            self._stall = self.loop.call_later(self._settings.body_timeout_s, self.transport.abort)

    def resume_writing(self) -> None:
        """The client reads again."""
        super().resume_writing()
        if self._stall is not None:
            self._stall.cancel()
            self._stall = None

    def timeout_keep_alive_handler(self) -> None:
        """Nothing came in time."""
        self._close()

    def send_400_response(self, msg: str) -> None:
        """What the parser refuses."""
        del msg
        self._refuse(400, InputError("request", "(malformed)", "is not HTTP/1.1 within the limits", "check the client"))

    def _count(self, size: int) -> None:
        self._head_bytes += size
        if self._head_bytes > _HEAD_MAX:
            raise ValueError("head too long")  # the parser stops and calls send_400_response

    def _refuse(self, status: int, error: InputError) -> None:
        body = json.dumps({"error": str(error)}).encode()
        head = b"content-type: application/json\r\nconnection: close\r\ncontent-length: %d\r\n\r\n" % len(body)
        self.transport.write(STATUS_LINE[status] + head + body)
        self._close()

    def _close(self) -> None:
        """Close when everything is sent, or soon."""
        self._disarm()
        if self.transport.get_write_buffer_size():
            self.loop.call_later(self._settings.head_timeout_s, self.transport.abort)
        self.transport.close()

    def _arm(self, seconds: float) -> None:
        self._disarm()
        self._deadline = self.loop.call_later(seconds, self._close)

    def _disarm(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None


class _Server(uvicorn.Server):
    """uvicorn's server on our socket, with our connections, that ends long polls when it stops."""

    def __init__(
        self, app: Starlette, settings: RelaySettings, listener: socket.socket, tls: ssl.SSLContext | None
    ) -> None:
        config = uvicorn.Config(
            app,
            http=Connection,
            ws="none",
            loop="asyncio",
            lifespan="on",
            interface="asgi3",
            log_config=None,
            log_level="error",
            access_log=False,
            proxy_headers=False,
            server_header=False,
            headers=[("cache-control", "no-store")],
            timeout_keep_alive=_KEEP_ALIVE_S,
            timeout_graceful_shutdown=1,
        )
        super().__init__(config)
        self._relay: Relay = app.state.relay
        self._settings, self._listener, self._tls = settings, listener, tls
        self.ready: Callable[[], None] = lambda: None

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """uvicorn's start-up, with time limits for TLS."""
        del sockets
        await self.lifespan.startup()
        limits: dict[str, Any] = {}
        if self._tls is not None:
            limits = {"ssl_handshake_timeout": self._settings.head_timeout_s, "ssl_shutdown_timeout": 1.0}
        server = await asyncio.get_running_loop().create_server(
            lambda: Connection(self._settings, self.config, self.server_state, self.lifespan.state),
            sock=self._listener,
            ssl=self._tls,
            backlog=self.config.backlog,
            **limits,
        )
        self.servers = [server]
        self.started = True
        self.ready()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """End the long polls, then everything."""
        self._relay.hub.stop()
        await super().shutdown(sockets)

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Stop on the usual signals, and do not raise them again: a relay that was told to stop has succeeded."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        numbers = (signal.SIGINT, signal.SIGTERM)
        before = {number: signal.signal(number, self.handle_exit) for number in numbers}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)


def serve(
    host: str,
    port: int,
    store_path: Path,
    settings: RelaySettings,
    certificate: Path | None = None,
    private_key: Path | None = None,
    ready: Callable[[str], None] | None = None,
) -> None:
    """Run a relay until SIGTERM or SIGINT. Port 0 lets the system choose; `ready` is called with the address.

    >>> serve("127.0.0.1", 0, Path("no/such/folder/relay.sqlite"), RelaySettings())
    Traceback (most recent call last):
        ...
    tpmdp.errors.FileError: no/such/folder/relay.sqlite lies in a folder that does not exist: make no/such/folder first
    """
    tls = _tls(certificate, private_key)
    settings = _within_file_limit(settings)
    with _listen(host, port) as listener, _one_line_log():
        app = create_app(store_path, settings)
        try:
            server = _Server(app, settings, listener, tls)
            if ready is not None:
                name = f"[{host}]" if ":" in host else host
                url = f"{'http' if tls is None else 'https'}://{name}:{listener.getsockname()[1]}"
                server.ready = lambda: ready(url)
            asyncio.run(server.serve())
        finally:
            app.state.relay.close()


def _listen(host: str, port: int) -> socket.socket:
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        family, kind, protocol, _, address = found[0]
        # Not socket.create_server: it leaves the protocol open, and asyncio then leaves Nagle's algorithm on, which
        # holds every answer back for 40 ms.
        listener = socket.socket(family, kind, protocol)
        try:
            if os.name == "posix":
                listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listener.bind(address)
            listener.listen(2048)
        except BaseException:
            listener.close()
            raise
        return listener
    except (socket.gaierror, UnicodeError):
        raise InputError("host", host, "cannot be resolved", "name an address of this machine") from None
    except OverflowError:
        raise InputError("port", port, "must be from 0 to 65535", "choose another port") from None
    except OSError as error:
        if error.errno == errno.EADDRINUSE:
            raise InputError("port", port, "is in use", "stop the other program or choose another port") from None
        if error.errno in (errno.EACCES, errno.EPERM):
            raise InputError("port", port, "needs the rights of an administrator", "use one from 1024") from None
        reason = f"cannot be listened on ({error.strerror or error})"
        raise InputError("host", host, reason, "name an address of this machine") from None


def _tls(certificate: Path | None, private_key: Path | None) -> ssl.SSLContext | None:
    if certificate is None and private_key is None:
        return None
    if certificate is None or private_key is None:
        given = "private key" if certificate is None else "certificate"
        raise InputError("TLS", f"{given} only", "needs certificate and private key", "give both")
    for path in (certificate, private_key):
        with readable(path, _CERTIFICATE_MAX), path.open("rb"):
            pass
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    try:
        context.load_cert_chain(certificate, private_key, password="")  # else it asks at the terminal
    except (ssl.SSLError, ValueError) as error:
        if "mismatch" in str(error).lower():
            raise FileError(
                private_key, f"does not belong to {certificate}", "give the key of this certificate"
            ) from None
        problem = f"and {private_key} are not a certificate and its unencrypted private key in PEM"
        raise FileError(certificate, problem, "check both files") from None
    except OSError as error:
        problem = f"cannot be read ({error.strerror or error})"
        raise FileError(certificate, problem, "check the file and its rights") from None
    return context


def _within_file_limit(settings: RelaySettings) -> RelaySettings:
    """Every connection is an open file: raise the limit as far as allowed, and accept no more than fit."""
    try:
        import resource
    except ImportError:  # Windows has no such limit
        return settings
    from dataclasses import replace

    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = settings.connections_max + 64
    if soft != resource.RLIM_INFINITY and soft < wanted:
        aim = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
        with suppress(OSError, ValueError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (aim, hard))
            soft = aim
        return replace(settings, connections_max=max(1, min(settings.connections_max, soft - 64)))
    return settings


class _OneLine(logging.Handler):
    """Errors of the libraries as one line each on standard error, without a traceback."""

    def emit(self, record: logging.LogRecord) -> None:
        error = record.exc_info[1] if record.exc_info else None
        if isinstance(error, asyncio.CancelledError) or record.getMessage().startswith("Cancel "):
            return  # requests that were cut off because the relay stops
        reason = "" if error is None else f" ({type(error).__name__}: {error})"
        with suppress(OSError, ValueError):
            sys.stderr.write("tpmdp: relay: " + shown(" ".join((record.getMessage() + reason).split()), 500) + "\n")
            sys.stderr.flush()


@contextmanager
def _one_line_log() -> Iterator[None]:
    handler = _OneLine(logging.ERROR)
    loggers = [_logger, logging.getLogger("asyncio")]
    before = [logger.propagate for logger in loggers]
    for logger in loggers:
        logger.addHandler(handler)
        logger.propagate = False
    try:
        yield
    finally:
        for logger, propagate in zip(loggers, before, strict=True):
            logger.removeHandler(handler)
            logger.propagate = propagate
