"""Who may use the page: everything a request passes before a view sees it.

A page on this machine can be reached by every program and every web site that runs here. So a request needs the right
Host (a foreign name that resolves to this machine is refused), a cookie that only the printed token or the password
gives, and, if it changes anything, the page's own Origin. Bodies are limited in size and time.
"""

from __future__ import annotations

import asyncio
import hmac
import secrets
import time
from dataclasses import dataclass, field
from http import cookies
from typing import Final
from urllib.parse import parse_qs

from starlette.datastructures import Headers, MutableHeaders
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import HTMLResponse, PlainTextResponse, RedirectResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from tpmdp.page.layout import enter_page

BODY_MAX: Final = 2 << 20  # of a form
_BODY_S: Final = 120.0
_TRIES: Final = 10  # wrong tokens, in one minute
_TRIES_S: Final = 60.0
_TOKEN_GROUPS: Final = 5
_LETTERS: Final = "abcdefghjkmnpqrstuvwxyz23456789"  # none that look alike
_OPEN: Final = ("/static/page.css", "/static/icon.svg")  # what the page that asks for the token needs
HEADERS: Final = {
    "content-security-policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
        "form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
    ),
    "x-frame-options": "DENY",
    "x-content-type-options": "nosniff",
    "referrer-policy": "same-origin",  # `no-referrer` would make browsers send `Origin: null`
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "permissions-policy": "camera=(), geolocation=(), microphone=()",
    "cache-control": "no-store",
}


def new_token() -> str:
    """A token that is easy to type: about 98 bits.

    >>> len(new_token())
    24
    """
    groups = ["".join(secrets.choice(_LETTERS) for _ in range(4)) for _ in range(_TOKEN_GROUPS)]
    return "-".join(groups)


@dataclass(repr=False)
class Keeper:
    """The secret that opens the page, and the cookie that remembers it. Both live in memory only."""

    secret: str
    asks_for: str = "token"  # or password
    cookie: str = field(default_factory=lambda: secrets.token_urlsafe(32))
    _wrong: list[float] = field(default_factory=list)

    def is_right(self, given: str) -> bool:
        """Whether this is the secret; after ten wrong ones it is refused for a minute."""
        now = time.monotonic()
        self._wrong = [each for each in self._wrong if each > now - _TRIES_S]
        if self.is_blocked:
            return False
        right = hmac.compare_digest(given.strip().encode(), self.secret.encode())
        if not right:
            self._wrong.append(now)
        return right

    @property
    def is_blocked(self) -> bool:
        """Whether too many wrong secrets were given."""
        return len(self._wrong) >= _TRIES

    def knows(self, cookie: str) -> bool:
        """Whether this cookie was given by `is_right`."""
        return hmac.compare_digest(cookie.encode(), self.cookie.encode())


class Gate:
    """An ASGI application around another one."""

    def __init__(self, app: ASGIApp, keeper: Keeper, origins: frozenset[str]) -> None:
        self._app, self._keeper, self._origins = app, keeper, origins
        self._hosts = frozenset(origin.split("//", 1)[1] for origin in origins)
        self._is_tls = all(origin.startswith("https:") for origin in origins)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request, or refuse it."""
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
            return
        if scope["type"] != "http":
            return

        async def send_guarded(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in HEADERS.items():
                    headers[name] = value
            await send(message)

        refusal = await self._refusal(scope, receive)
        if refusal is not None:
            await refusal(scope, receive, send_guarded)
            return
        is_upload = scope["path"].rpartition("/")[2].startswith("upload")  # these limit their size themselves
        most = None if is_upload else BODY_MAX
        await self._app(scope, _limited(receive, most), send_guarded)

    async def _refusal(self, scope: Scope, receive: Receive) -> Response | None:
        headers = Headers(scope=scope)
        if headers.get("host", "") not in self._hosts:
            return _plain(421, f"This page has another address: {min(self._origins)}")
        changes = scope["method"] not in ("GET", "HEAD")
        if changes and headers.get("origin") not in self._origins:
            return _plain(403, "The request comes from another page.")
        if headers.get("sec-fetch-site", "none") == "cross-site" and headers.get("sec-fetch-dest") != "document":
            return _plain(403, "The request comes from another page.")
        if self._keeper.knows(self._cookie(headers)) or scope["path"] in _OPEN:
            return None
        if scope["path"] == "/enter" and scope["method"] == "POST":
            return await self._enter(Request(scope, _limited(receive, 4096)))
        if changes or scope["path"].startswith("/static/"):
            return _plain(401, f"This page needs its {self._keeper.asks_for}: load it again.")
        return HTMLResponse(enter_page(self._keeper.asks_for), 401)

    async def _enter(self, request: Request) -> Response:
        try:
            given = parse_qs((await request.body()).decode("utf-8", "replace"), max_num_fields=4)
        except (ValueError, HTTPException):
            given = {}
        if self._keeper.is_right(given.get("secret", [""])[0]):
            answer = RedirectResponse("/", 303)
            answer.set_cookie(
                self._cookie_name(request.headers),
                self._keeper.cookie,
                httponly=True,
                samesite="strict",
                secure=self._is_tls,
            )
            return answer
        problem = (
            "Too many wrong tries: wait a minute."
            if self._keeper.is_blocked
            else f"That is not the {self._keeper.asks_for}."
        )
        return HTMLResponse(enter_page(self._keeper.asks_for, problem), 403)

    def _cookie_name(self, headers: Headers) -> str:
        """Browsers share cookies between ports of one host, so the name has the port."""
        return f"tpmdp-{headers.get('host', '').rpartition(':')[2]}"

    def _cookie(self, headers: Headers) -> str:
        jar: cookies.SimpleCookie = cookies.SimpleCookie()
        try:
            jar.load(headers.get("cookie", ""))
        except cookies.CookieError:
            return ""
        value = jar.get(self._cookie_name(headers))
        return "" if value is None else value.value


def _limited(receive: Receive, most: int | None) -> Receive:
    """The same messages, until there are too many bytes or they take too long: then an HTTPException."""
    end, size = time.monotonic() + _BODY_S, 0
    has_ended = False

    async def limited() -> Message:
        nonlocal size, has_ended
        if has_ended:  # what follows is the wait for the client to go
            return await receive()
        try:
            message = await asyncio.wait_for(receive(), max(0.0, end - time.monotonic()))
        except TimeoutError:
            raise HTTPException(408, "The request took too long.") from None
        if message["type"] == "http.request":
            size += len(message.get("body", b""))
            has_ended = not message.get("more_body", False)
            if most is not None and size > most:
                raise HTTPException(413, f"The form has more than {most:,} bytes.")
        return message

    return limited


def _plain(status: int, text: str) -> Response:
    return PlainTextResponse(text, status)
