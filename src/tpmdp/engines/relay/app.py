"""The relay as an application: a mailbox that need not be trusted. It holds no secret, and sees what the wire shows.

Every party reads what is addressed to it, and writes only what it signed. What is acknowledged is on the disk. Sizes,
rates, memory, connections and waiting are bounded, for strangers and for parties that misbehave alike.
"""

from __future__ import annotations

import asyncio
import json
import logging
import math
import os
import re
from collections.abc import AsyncIterator, Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any, Final

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from tpmdp._version import __version__
from tpmdp.engines.relay import wire
from tpmdp.engines.relay.hub import Hub
from tpmdp.engines.relay.limits import Buckets, Budget, RelaySettings, address_key
from tpmdp.engines.relay.requests import (
    ClientGoneError,
    RefusedError,
    check_messages,
    check_session,
    parse_query,
)
from tpmdp.engines.relay.store import Item, Session, SessionGoneError, Store, StoreError
from tpmdp.errors import InputError, shown
from tpmdp.protocol.messages import HASH_BYTES, OVERHEAD, PARTIES_MAX

_SLICE: Final = 256 << 10  # bytes of an answer handed to the connection at once
_INLINE: Final = 64 << 10  # bytes of a body that are checked without another thread
_INLINE_MESSAGES: Final = 4
_RATE_MIN: Final = 16 << 10  # bytes a second, below which a body takes too long
_STRANGERS_MAX: Final = 64 << 20  # bytes of rosters in memory at once
_TOKEN_MAX: Final = 200  # characters of an Authorization header
_TOKENS_CACHED: Final = 16_384
_SWEEP_S: Final = 3_600.0
_ID: Final = re.compile("[0-9a-f]{64}")

_LOGGER: Final = logging.getLogger("uvicorn.error")


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
    handlers: dict[Any, Any] = dict.fromkeys(
        (RefusedError, StoreError, HTTPException, ClientGoneError, Exception), relay.refuse
    )
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
        """Delete old sessions now and hourly."""
        while True:
            try:
                await self.store.sweep(self.settings.keep_days * 86_400)
            except StoreError as error:  # the next day may be better, and requests report it too
                _LOGGER.error("deleting old sessions failed: %s", error)
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
                    await asyncio.get_running_loop().run_in_executor(self._workers, check_session, name, body)
                else:
                    check_session(name, body)
                new = await self.store.open_session(name, body[HASH_BYTES:])
        except InputError as error:
            raise RefusedError(400, error) from None
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
            cursors, wait, least = parse_query(request.scope["query_string"])
        except InputError as error:
            raise RefusedError(400, error) from None
        loop = asyncio.get_running_loop()
        end = loop.time() + wait
        while True:
            # Registered before looking: what is stored after the look wakes us, what was stored before is seen.
            with self.hub.waiting(session.id, party, cursors) as waiter:
                picked = await self.store.pick(session, party, cursors)
                left, found = end - loop.time(), len(picked.numbers)
                if found >= least or picked.size > wire.BATCH_MAX // 2 or left <= 0 or self.hub.stopped:
                    break
                await _first(waiter.need(least - found), request.receive, left)
        if picked.body is not None:
            return _Frames(picked.body)
        try:
            hold = self._outgoing.hold(min(picked.size, self.settings.memory_max), self._patience)
            return await _send_within(hold, lambda: self.store.load(picked.numbers))
        except TimeoutError:
            raise _busy() from None

    async def refuse(self, request: Request, error: Exception) -> Response:
        """The answer to whatever went wrong."""
        if isinstance(error, RefusedError):
            return _error(error.status, str(error), error.headers)
        if isinstance(error, StoreError):
            return _error(error.status, str(error), {"retry-after": "1"} if error.status == 503 else None)
        if isinstance(error, HTTPException):
            try:
                self._charge_address(request)
            except RefusedError as refusal:
                return _error(refusal.status, str(refusal), refusal.headers)
            rule = "is not served here" if error.status_code == 404 else "is refused"
            what = f"{request.method} {request.scope['path']}"
            return _error(error.status_code, InputError("request", what, rule, "see docs"), error.headers)
        if isinstance(error, ClientGoneError):
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
            raise RefusedError(404, InputError("session", text, "must be 64 digits of lower-case hexadecimal", remedy))
        name = bytes.fromhex(text)
        if self.settings.sessions is not None and name not in self.settings.sessions:
            remedy = "ask the relay's operator to add the study"
            raise RefusedError(403, InputError("session", text[:12] + "...", "is not one this relay serves", remedy))
        return name

    async def _session(self, request: Request) -> Session:
        try:
            name = self._name(request)
            cached = self.store.cached(name)
            if cached is not None:
                return cached
            self._check_address(request)
            return await self.store.session(name)
        except (RefusedError, SessionGoneError):
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
                raise RefusedError(401, error, {"www-authenticate": wire.SCHEME, **self._nonce_header})
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
            raise RefusedError(413, too_long)
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
                        raise ClientGoneError
                    parts.append(event.get("body", b""))
                    size += len(parts[-1])
                    if size > limit:
                        raise RefusedError(413, too_long)
                    more = event.get("more_body", False)
        except TimeoutError:
            remedy = "check the network and send it again"
            raise RefusedError(
                408, InputError("body", f"{size} bytes", f"paused for {pause:g} s or was slow", remedy)
            ) from None
        return parts[0] if len(parts) == 1 else b"".join(parts)


# Answers -------------------------------------------------------------------------------------------------------------


def _json(status: int, content: Mapping[str, Any], headers: Mapping[str, str] | None = None) -> Response:
    return Response(json.dumps(content), status, headers, media_type="application/json")


def _error(status: int, error: object, headers: Mapping[str, str] | None = None) -> Response:
    return _json(status, {"error": " ".join(str(error).split())}, headers)


def _too_many(what: str, wait: float) -> RefusedError:
    error = InputError("requests", what, "are too many", f"wait {wait:.1f} s")
    return RefusedError(429, error, {"retry-after": str(math.ceil(wait))})


def _busy() -> RefusedError:
    return RefusedError(
        503, InputError("relay", "(busy)", "has no memory free now", "try again soon"), {"retry-after": "2"}
    )


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


async def _first(woken: asyncio.Future[None], receive: Receive, timeout_s: float) -> None:
    """Wait for a message or the end of time; a client that goes away must not be waited for."""

    async def gone() -> None:
        while (await receive())["type"] != "http.disconnect":
            pass

    watch = asyncio.ensure_future(gone())
    try:
        await asyncio.wait({woken, watch}, timeout=timeout_s, return_when=asyncio.FIRST_COMPLETED)
        if watch.done() and not woken.done():
            raise ClientGoneError
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
