"""The relay as an ASGI application: a mailbox that need not be trusted. It holds no secret and sees only the wire.

Every party reads what is addressed to it, and writes only what it signed. What is acknowledged is on the disk. Sizes,
rates, memory, connections and waiting times are bounded, for strangers and for parties alike.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
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
from starlette.types import Receive

from tpmdp._version import __version__
from tpmdp.engines.relay import wire
from tpmdp.engines.relay.admission import Admission
from tpmdp.engines.relay.database import StoreError
from tpmdp.engines.relay.limits import MemoryQuota, RelaySettings
from tpmdp.engines.relay.requests import (
    ClientGoneError,
    RefusedError,
    body_size,
    check_messages,
    check_session,
    parse_query,
    read_body,
)
from tpmdp.engines.relay.responses import FramesAnswer, busy_error, error_answer, frames_within, json_answer
from tpmdp.engines.relay.session_rows import CheckedMessage, StoredSession
from tpmdp.engines.relay.store import RelayStore
from tpmdp.engines.relay.waiters import Waiters
from tpmdp.errors import InputError
from tpmdp.protocol.messages import HASH_BYTES, OVERHEAD, PARTIES_MAX

_INLINE: Final = 64 << 10  # bytes of a body that are checked without another thread
_INLINE_MESSAGES: Final = 4
_STRANGERS_MAX: Final = 64 << 20  # bytes of rosters in memory at once
_SWEEP_S: Final = 3_600.0

_LOGGER: Final = logging.getLogger("uvicorn.error")


def create_app(store_path: Path, settings: RelaySettings) -> Starlette:
    """The relay as an ASGI application; the store is opened here, so that a bad file is reported at once.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     app = create_app(Path(folder) / "relay.sqlite", RelaySettings())
    ...     app.state.relay.close()
    """
    relay = Relay(RelayStore(store_path, settings), settings)

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

    def __init__(self, store: RelayStore, settings: RelaySettings) -> None:
        self.store, self.settings = store, settings
        self.waiters = Waiters()
        self._admission = Admission(store, settings)
        self._patience_s = settings.body_timeout_s
        self._incoming, self._outgoing = MemoryQuota(settings.memory_max), MemoryQuota(settings.memory_max)
        self._strangers = MemoryQuota(_STRANGERS_MAX)  # their own: a stranger without a token must not hinder a party
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
            except StoreError as error:  # the next hour may be better, and requests report it too
                _LOGGER.error("deleting old sessions failed: %s", error)
            await asyncio.sleep(_SWEEP_S)

    # Endpoints -------------------------------------------------------------------------------------------------------

    async def health(self, request: Request) -> Response:
        """Say what this server is, and give the nonce."""
        self._admission.charge_address(request)
        return json_answer(200, {"service": "tpmdp relay", "version": __version__}, self._admission.nonce_header)

    async def put_session(self, request: Request) -> Response:
        """Register a session."""
        self._admission.charge_address(request)
        name = self._admission.session_name(request)
        limit = HASH_BYTES * (1 + PARTIES_MAX)
        try:
            async with self._strangers.hold(body_size(request, limit), self._patience_s):
                body = await read_body(request, limit, self._patience_s)
                if len(body) > _INLINE:
                    await asyncio.get_running_loop().run_in_executor(self._workers, partial(check_session, name, body))
                else:
                    check_session(name, body)
                new = await self.store.open_session(name, body[HASH_BYTES:])
        except InputError as error:
            raise RefusedError(400, error) from None
        except TimeoutError:
            raise busy_error() from None
        return json_answer(201 if new else 200, {"new": new}, self._admission.nonce_header)

    async def messages(self, request: Request) -> Response:
        """Write or read messages, after the token proved which party asks."""
        session = await self._admission.session(request)
        party = self._admission.party(request, session)
        if request.method == "POST":
            return await self._post(request, session, party)
        return await self._get(request, session, party)

    async def _post(self, request: Request, session: StoredSession, party: int) -> Response:
        limit = self.settings.body_max
        try:
            # Memory is granted before it is used: many large bodies wait for each other instead of filling it.
            async with self._incoming.hold(body_size(request, limit), self._patience_s):
                body = await read_body(request, limit, self._patience_s)
                items = await self._checked(body, session, party)
                del body
                new = await self.store.add(session, items)
        except TimeoutError:
            raise busy_error() from None
        self.waiters.wake(session.id, new)
        return json_answer(200, {"stored": len(new), "known": len(items) - len(new)})

    async def _checked(self, body: bytes, session: StoredSession, party: int) -> list[CheckedMessage]:
        check = partial(check_messages, body, session, party=party, message_max=self.settings.message_max)
        # Large bodies, and many small messages with a signature each, must not block the event loop.
        if len(body) <= _INLINE and len(body) // OVERHEAD <= _INLINE_MESSAGES:
            return check()
        return await asyncio.get_running_loop().run_in_executor(self._workers, check)

    async def _get(self, request: Request, session: StoredSession, party: int) -> Response:
        try:
            cursors, wait, least = parse_query(request.scope["query_string"])
        except InputError as error:
            raise RefusedError(400, error) from None
        loop = asyncio.get_running_loop()
        end = loop.time() + wait
        while True:
            # Registered before reading: what is stored later wakes us, what was stored before is read.
            with self.waiters.waiting(session.id, party, cursors) as waiter:
                batch = await self.store.pick(session, party, cursors)
                left, count = end - loop.time(), len(batch.numbers)
                if count >= least or batch.size > wire.BATCH_MAX // 2 or left <= 0 or self.waiters.stopped:
                    break
                await _first(waiter.need(least - count), request.receive, left)
        if batch.body is not None:
            return FramesAnswer(batch.body)
        try:
            hold = self._outgoing.hold(min(batch.size, self.settings.memory_max), self._patience_s)
            return await frames_within(hold, lambda: self.store.load(batch.numbers))
        except TimeoutError:
            raise busy_error() from None

    async def refuse(self, request: Request, error: Exception) -> Response:
        """The answer to a request that failed."""
        if isinstance(error, RefusedError):
            return error_answer(error.status, str(error), error.headers)
        if isinstance(error, StoreError):
            return error_answer(error.status, str(error), {"retry-after": "1"} if error.status == 503 else None)
        if isinstance(error, HTTPException):
            try:
                self._admission.charge_address(request)
            except RefusedError as refusal:
                return error_answer(refusal.status, str(refusal), refusal.headers)
            rule = "is not served here" if error.status_code == 404 else "is refused"
            what = f"{request.method} {request.scope['path']}"
            return error_answer(error.status_code, InputError("request", what, rule, "see docs"), error.headers)
        if isinstance(error, ClientGoneError):
            return Response(status_code=400)  # nobody reads it
        return error_answer(500, InputError("relay", "(a bug)", "failed to serve this", "tell the relay's operator"))


async def _first(woken: asyncio.Future[None], receive: Receive, timeout_s: float) -> None:
    """Wait for a message or the timeout, but not for a client that has gone."""

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
