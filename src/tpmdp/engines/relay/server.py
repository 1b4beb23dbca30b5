"""Run a relay: the socket, TLS, signals and the log around the application."""

from __future__ import annotations

import asyncio
import signal
import socket
import ssl
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import uvicorn
from starlette.applications import Starlette

from tpmdp._util.listening import listen, one_line_log, tls_context
from tpmdp.engines.relay.app import Relay, create_app
from tpmdp.engines.relay.connection import Connection, Peers
from tpmdp.engines.relay.limits import RelaySettings

_KEEP_ALIVE_S: Final = 60


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
        self._relay.connections = lambda: len(self.server_state.connections)
        self.ready: Callable[[], None] = lambda: None

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        # As uvicorn's own, but with time limits for TLS.
        del sockets
        await self.lifespan.startup()
        limits: dict[str, Any] = {}
        if self._tls is not None:
            limits = {"ssl_handshake_timeout": self._settings.head_timeout_s, "ssl_shutdown_timeout": 1.0}
        peers = Peers(self._relay.journal)
        server = await asyncio.get_running_loop().create_server(
            lambda: Connection(
                self._settings, self.config, self.server_state, app_state=self.lifespan.state, peers=peers
            ),
            sock=self._listener,
            ssl=self._tls,
            backlog=self.config.backlog,
            **limits,
        )
        self.servers = [server]
        self.started = True
        self.ready()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        self._relay.waiters.stop()
        await super().shutdown(sockets)

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        # Unlike uvicorn's own, it does not raise the signals again: a relay that was asked to stop has succeeded.
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
    tls = tls_context(certificate, private_key)
    settings = _within_file_limit(settings)
    with listen(host, port) as listener, one_line_log("relay"):
        app = create_app(store_path, settings)
        try:
            server = _Server(app, settings, listener, tls=tls)
            if ready is not None:
                name = f"[{host}]" if ":" in host else host
                url = f"{'http' if tls is None else 'https'}://{name}:{listener.getsockname()[1]}"
                server.ready = lambda: ready(url)
            asyncio.run(server.serve())
        finally:
            app.state.relay.close()


def _within_file_limit(settings: RelaySettings) -> RelaySettings:
    """Every connection is an open file: raise the system's limit if allowed, and accept no more than fit."""
    try:
        import resource
    except ImportError:  # Windows has no such limit
        return settings
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = settings.connections_max + 64
    if soft != resource.RLIM_INFINITY and soft < wanted:
        aim = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
        with suppress(OSError, ValueError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (aim, hard))
            soft = aim
        most = max(1, min(settings.connections_max, soft - 64))
        each = max(1, min(settings.address_connections_max, most // 2))
        return replace(settings, connections_max=most, address_connections_max=each)
    return settings
