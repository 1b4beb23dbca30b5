"""The relay as an ASGI application: a mailbox that need not be trusted. It holds no secret and sees only the wire.

Every party reads what is addressed to it, and writes only what it signed. What is acknowledged is on the disk. Sizes,
rates, memory, connections and waiting times are bounded, for strangers and for parties alike.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable
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
from tpmdp.engines.relay.journal import Journal, write_stderr
from tpmdp.engines.relay.limits import MemoryQuota, RelaySettings
from tpmdp.engines.relay.requests import (
    ClientGoneError,
    RefusedError,
    check_messages,
    check_session,
    parse_query,
)
from tpmdp.engines.relay.responses import FramesAnswer, busy_error, error_answer, json_answer
from tpmdp.engines.relay.session_rows import CheckedMessage, StoredSession
from tpmdp.engines.relay.status import parse_plan
from tpmdp.engines.relay.store import RelayStore
from tpmdp.engines.relay.uploads import Body, Uploads
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
        Route("/health", relay.health, methods=["GET"]),
        Route("/v1/health", relay.health, methods=["GET"]),
        Route("/metrics", relay.metrics, methods=["GET"]),
        Route("/v1/sessions/{session}", relay.put_session, methods=["PUT"]),
        Route("/v1/sessions/{session}/status", relay.status, methods=["GET"]),
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
        self.journal = Journal(write_stderr if settings.log else None)
        self.connections: Callable[[], int] = lambda: 0  # set by the server
        self._uploads = Uploads(settings, store.path.parent)
        self._incoming = MemoryQuota(settings.memory_max)
        self._strangers = MemoryQuota(_STRANGERS_MAX)  # their own: a stranger without a token must not hinder a party
        self._workers = ThreadPoolExecutor(2, "relay-check")

    def close(self) -> None:
        """End threads and close the store. May be called twice."""
        self._workers.shutdown()
        self._uploads.close()
        self.store.close()
        self.journal.close()

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
        """Say what this server is, that its store can be read, and the nonce. A store that fails is a StoreError."""
        self._admission.charge_address(request)
        await self.store.check()
        content = {"service": "tpmdp relay", "version": __version__, "status": "ok"}
        return json_answer(200, content, self._admission.nonce_header)

    async def metrics(self, request: Request) -> Response:
        """Numbers for Prometheus, for programs on this machine unless the operator gives them to all."""
        self._admission.charge_address(request)
        if not self.settings.public_metrics and not self._admission.is_local(request):
            raise RefusedError(403, InputError("metrics", "(asked)", "are for the relay's own machine", "ask there"))
        gauges = {
            "connections": self.connections(),
            "uploads": self._uploads.incomplete,
            "upload_bytes": self._uploads.bytes,
            "waiting": self.waiters.count,
            "stored_bytes": self.store.stored_bytes,
        }
        return Response(self.journal.metrics(gauges), media_type="text/plain; version=0.0.4")

    async def put_session(self, request: Request) -> Response:
        """Register a session."""
        self._admission.charge_address(request)
        name = self._admission.session_name(request)
        limit = HASH_BYTES * (1 + PARTIES_MAX)
        address = self._admission.address(request)
        try:
            # Memory is granted to whole bodies: a slow sender has none, and those that have it need no client.
            async with (
                self._uploads.body(request, limit, address) as upload,
                self._strangers.hold(upload.size, self._patience_s),
            ):
                body = await self._read(upload)
                if len(body) > _INLINE:
                    await asyncio.get_running_loop().run_in_executor(self._workers, partial(check_session, name, body))
                else:
                    check_session(name, body)
                new = await self.store.open_session(name, body[HASH_BYTES:])
        except InputError as error:
            raise RefusedError(400, error) from None
        except TimeoutError:
            raise busy_error() from None
        if new:
            self.journal.opened()
        return json_answer(201 if new else 200, {"new": new}, self._admission.nonce_header)

    async def status(self, request: Request) -> Response:
        """Which parties have sent what, for a party of the session. Nothing changes."""
        session = await self._admission.session(request)
        self._admission.charge_look(session, self._admission.party(request, session))
        try:
            plan = parse_plan(request.scope["query_string"])
        except InputError as error:
            raise RefusedError(400, error) from None
        return json_answer(200, (await self.store.status(session, plan)).plain())

    async def messages(self, request: Request) -> Response:
        """Write or read messages, after the token proved which party asks."""
        session = await self._admission.session(request)
        party = self._admission.party(request, session)
        if request.method == "POST":
            return await self._post(request, session, party)
        return await self._get(request, session, party)

    async def _post(self, request: Request, session: StoredSession, party: int) -> Response:
        limit, address = self.settings.body_max, self._admission.address(request)
        try:
            # Many large bodies wait for each other instead of filling the memory.
            async with (
                self._uploads.body(request, limit, address, party=(session.id, party)) as upload,
                self._incoming.hold(upload.size, self._patience_s),
            ):
                body = await self._read(upload)
                items = await self._checked(body, session, party)
                del body
                new = await self.store.add(session, items)
        except TimeoutError:
            raise busy_error() from None
        self.waiters.wake(session.id, new)
        self.journal.arrivals(session, new)
        return json_answer(200, {"stored": len(new), "known": len(items) - len(new)})

    async def _read(self, upload: Body) -> bytes:
        if not upload.in_file:
            return upload.read()
        return await asyncio.get_running_loop().run_in_executor(self._workers, upload.read)

    async def _checked(self, body: bytes, session: StoredSession, party: int) -> list[CheckedMessage]:
        check = partial(check_messages, body, session, party=party, message_max=self.settings.message_max)
        # Large bodies, and many small messages with a signature each, must not block the event loop.
        if len(body) <= _INLINE and len(body) // OVERHEAD <= _INLINE_MESSAGES:
            return check()
        return await asyncio.get_running_loop().run_in_executor(self._workers, check)

    async def _get(self, request: Request, session: StoredSession, party: int) -> Response:
        try:
            wanted = parse_query(request.scope["query_string"])
        except InputError as error:
            raise RefusedError(400, error) from None
        loop = asyncio.get_running_loop()
        end = loop.time() + wanted.wait_s
        while True:
            # Registered before reading: what is stored later wakes us, what was stored before is read.
            with self.waiters.waiting(session.id, party, wanted) as waiter:
                batch = await self.store.pick(session, party, wanted)
                left, count = end - loop.time(), len(batch.numbers)
                if count >= wanted.least or batch.size > wire.BATCH_MAX // 2 or left <= 0 or self.waiters.stopped:
                    break
                await _first(waiter.need(wanted.least - count), request.receive, left)
        if batch.body is not None:
            return Response(batch.body, media_type=FramesAnswer.media_type)
        return FramesAnswer(batch.size + wire.FRAME_BYTES * len(batch.numbers), self.store.slices(batch))

    async def refuse(self, request: Request, error: Exception) -> Response:
        """The answer to a request that failed, which is counted."""
        answer = self._refused(request, error)
        if not isinstance(error, ClientGoneError):
            text = error if isinstance(error, (RefusedError, StoreError)) else "request = "
            self.journal.refusal(answer.status_code, text, self._admission.address(request))
        return answer

    def _refused(self, request: Request, error: Exception) -> Response:
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
