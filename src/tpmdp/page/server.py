"""Run the page: its socket, TLS and the browser."""

from __future__ import annotations

import asyncio
import ssl
import webbrowser
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Final

import uvicorn

from tpmdp._util.listening import listen, one_line_log, tls_context
from tpmdp.page.app import create_app
from tpmdp.page.folder import Folder
from tpmdp.page.gate import Keeper

_CONNECTIONS_MAX: Final = 100
_NAMES: Final = ("127.0.0.1", "localhost", "[::1]")


def serve_page(
    folder: Folder,
    keeper: Keeper,
    *,
    host: str = "127.0.0.1",
    port: int = 0,
    names: tuple[str, ...] = (),
    certificate: Path | None = None,
    private_key: Path | None = None,
    ready: Callable[[str], None] = lambda _: None,
) -> None:
    """Serve the page until SIGTERM or SIGINT. Port 0: any free one; `ready` is called with the address.

    `names` are the host names under which browsers reach it, if not on this machine.
    """
    tls = tls_context(certificate, private_key)
    with listen(host, port) as listener, one_line_log("page"):
        number = listener.getsockname()[1]
        origins = page_origins(names or _NAMES, number, is_tls=tls is not None)
        url = f"{'http' if tls is None else 'https'}://{(names or _NAMES)[0]}:{number}"
        server = _Server(_config(create_app(folder, keeper, origins), tls), lambda: ready(url))
        with suppress(KeyboardInterrupt):
            asyncio.run(server.serve(sockets=[listener]))


def page_origins(names: tuple[str, ...], port: int, *, is_tls: bool) -> frozenset[str]:
    """The origins of the page; browsers leave out the usual port.

    >>> sorted(page_origins(("example.org",), 443, is_tls=True))
    ['https://example.org', 'https://example.org:443']
    """
    scheme, usual = ("https", 443) if is_tls else ("http", 80)
    plain = {f"{scheme}://{name}" for name in names} if port == usual else set()
    return frozenset(plain | {f"{scheme}://{name}:{port}" for name in names})


def open_browser(url: str) -> None:
    """Open the page, if this machine has a browser; the address has no secret."""
    with suppress(Exception):
        webbrowser.open(url)


class _Server(uvicorn.Server):
    def __init__(self, config: uvicorn.Config, ready: Callable[[], None]) -> None:
        super().__init__(config)
        self._ready = ready

    async def startup(self, sockets: list[object] | None = None) -> None:  # type: ignore[override]
        await super().startup(sockets)  # type: ignore[arg-type]
        if self.started:
            self._ready()


def _config(app: object, tls: ssl.SSLContext | None) -> uvicorn.Config:
    config = uvicorn.Config(
        app,  # type: ignore[arg-type]
        ws="none",
        loop="asyncio",
        lifespan="off",
        interface="asgi3",
        log_config=None,
        log_level="error",
        access_log=False,
        proxy_headers=False,
        server_header=False,
        limit_concurrency=_CONNECTIONS_MAX,
        timeout_keep_alive=30,
        timeout_graceful_shutdown=2,
    )
    config.load()
    if tls is not None:
        config.ssl = tls
    return config
