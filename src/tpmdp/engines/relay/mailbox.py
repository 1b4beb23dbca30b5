"""A party's side of the relay: a mailbox over HTTP.

A party only dials out. The relay may vanish and come back, with or without its messages; it may hold back, repeat or
invent messages. So nothing it sends is believed without a signature, every answer has a size limit, and every read and
write on the network ends at the deadline. HTTP is httpcore, the transport of httpx, used directly: it keeps no cookies,
follows no redirects, asks no proxy, and lets us put the deadline into its sockets.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from types import MappingProxyType
from typing import Final, NoReturn
from urllib.parse import urlsplit

import httpcore
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from tpmdp._util.clock import now_s
from tpmdp.engines.relay.status import ANY_PLAN, SessionStatus
from tpmdp.engines.relay.transport import TIMEOUT_S, DeadlineNetwork, client_tls
from tpmdp.engines.relay.wire import (
    BATCH_MAX,
    FRAME_BYTES,
    NONCE_BYTES,
    NONCE_HEADER,
    NOT_SERVED,
    WAIT_MAX_S,
    frames,
    is_loopback,
    join_frames,
    make_token,
)
from tpmdp.errors import DeadlineError, InputError, TpmdpError, shown
from tpmdp.protocol.messages import MESSAGE_MAX, OVERHEAD, Kind, MessageError
from tpmdp.protocol.terms import Terms

PAUSE_S: Final = (0.05, 2.0)  # between tries when the relay does not answer: first, longest
_GRACE_S: Final = 2.0  # past the deadline, for an answer that is due at the deadline
_ERROR_SHOWN: Final = 300
_AGAIN: Final = (401, 404, 408, 429, 500, 502, 503, 504, 507)  # may be better next time
_FAILURES: Final = (httpcore.NetworkError, httpcore.TimeoutException, httpcore.ProtocolError)


class RelayError(TpmdpError):
    """The relay refuses a request, and will go on refusing it."""


class RelayChangedError(TpmdpError):
    """The relay was restarted and may have lost messages: send everything again, which is the same bytes."""


def check_url(url: str, plain_http: bool) -> str:
    """The relay's address, without a final slash. Plain HTTP is refused off this machine, unless `plain_http`.

    >>> check_url("http://relay.example.org", plain_http=False)
    Traceback (most recent call last):
        ...
    tpmdp.errors.InputError: relay = http://relay.example.org must be https off this machine:
    use https, or allow plain HTTP (--plain-http)
    """
    try:
        parts = urlsplit(url)
        good = parts.scheme in ("http", "https") and parts.hostname and parts.port != 0
        good = good and url.isascii() and url.isprintable() and " " not in url
    except ValueError:
        good = False
    if not good or parts.query or parts.fragment or parts.username or parts.path not in ("", "/"):
        remedy = "write https://host:port, or http://127.0.0.1:port for a relay on this machine"
        raise InputError("relay", url, "is not an address", remedy)
    if parts.scheme == "http" and not is_loopback(parts.hostname or "") and not plain_http:
        remedy = "use https, or allow plain HTTP (--plain-http)"
        raise InputError("relay", url, "must be https off this machine", remedy)
    return url.rstrip("/")


class Mailbox:
    """One party's mailbox in one session. Every call succeeds, or raises at the deadline or when it is refused."""

    def __init__(
        self,
        url: str,
        terms: Terms,
        index: int,
        identity: Ed25519PrivateKey,
        deadline: float,
        certificate_authority: Path | None = None,
        on_trouble: Callable[[str], None] = lambda _: None,
    ) -> None:
        self._on_trouble = on_trouble  # called once with what is wrong with the relay, while we go on trying
        self._url, self._terms, self._index, self._identity = url, terms, index, identity
        self._deadline = deadline
        self._token = ""
        self._nonce = b""
        self._forgotten = False
        self._changes = 0
        self.bytes_sent = 0
        self._path = f"/v1/sessions/{terms.session.hex()}"
        self._answer_max = max(BATCH_MAX, terms.masked_bytes + OVERHEAD + 2048) + 4096 * FRAME_BYTES
        context = client_tls(certificate_authority) if url.startswith("https") else None
        self._pool = httpcore.ConnectionPool(
            ssl_context=context,
            max_connections=1,
            network_backend=DeadlineNetwork(deadline + _GRACE_S),
            http1=True,
            http2=False,
        )

    def __enter__(self) -> Mailbox:
        return self

    def __exit__(self, *_: object) -> None:
        self._pool.close()

    def __repr__(self) -> str:
        return f"Mailbox({self._terms.spec.name(self._index)})"

    def connect(self) -> None:
        """Register the session and prove who we are; sends only public keys."""
        while True:
            try:
                self._request("GET", "/messages?after=1:0&wait=0")
                return
            except RelayChangedError:
                continue  # nothing was sent that could be lost

    def post(self, messages: list[bytes]) -> None:
        """Send messages; returns when the relay has stored them durably."""
        batch: list[bytes] = []
        size = 0
        for data in messages:
            if batch and size + len(data) > BATCH_MAX:
                self._request("POST", "/messages", content=join_frames(batch))
                batch, size = [], 0
            batch.append(data)
            size += len(data)
        if batch:
            self._request("POST", "/messages", content=join_frames(batch))

    def fetch(
        self,
        after: Mapping[Kind, int],
        wait_s: float,
        least: int = 1,
        senders: Mapping[Kind, Collection[int]] = MappingProxyType({}),
    ) -> list[tuple[int, bytes]]:
        """Messages of these kinds with higher numbers than seen; waits for at least `least`, up to `wait_s`.

        Of the kinds in `senders`, those of these parties only.
        """
        wait = max(0.0, min(wait_s, WAIT_MAX_S, self._deadline - now_s()))
        cursor = ",".join(f"{int(kind)}:{number}" for kind, number in sorted(after.items()))
        query = f"after={cursor}&wait={wait:.3f}&least={least}"
        some = [f"{int(kind)}:{'.'.join(map(str, sorted(each)))}" for kind, each in sorted(senders.items())]
        query += f"&from={','.join(some)}" if some else ""
        body = self._request("GET", f"/messages?{query}", wait_s=wait)
        try:
            return list(frames(body))
        except MessageError as error:
            raise RelayError(f"the relay sent nonsense ({error}): check its address") from None

    def look(self, *, any_plan: bool = False) -> SessionStatus | None:
        """Which parties have sent what, as the relay says; None if it does not know the session.

        Asks at once and registers nothing; RelayError if the relay cannot be used now. With `any_plan`, under whatever
        plan.
        """
        path = f"{self._path}/status?plan={(ANY_PLAN if any_plan else self._terms.plan_hash).hex()}"
        try:
            status, nonce, body = self._exchange("GET", path, b"")
            if status == 401:
                self._log_in(nonce)
                status, nonce, body = self._exchange("GET", path, b"")
        except _FAILURES as error:
            problem = f"the relay at {self._url} cannot be reached ({_describe(error, self._url)})"
            raise RelayError(f"{problem}: check its address, and that it runs") from None
        if status == 404 and _error_of(body).startswith("session = "):
            return None
        if status == 404:
            raise RelayError(f"{self._url} is no tpmdp relay, or too old to tell the status: check its address")
        if status != 200:
            _refuse(status, body)
        try:
            return SessionStatus.of_plain(json.loads(body), self._terms.count)
        except (ValueError, MessageError) as error:
            raise RelayError(f"the relay sent nonsense ({shown(str(error), 100)}): check its address") from None

    def _request(self, method: str, path: str, content: bytes = b"", wait_s: float = 0.0) -> bytes:
        """One request, tried again while the relay is away, until the deadline."""
        pause, problem = PAUSE_S[0], "it did not answer"
        while True:
            if self._token:
                try:
                    status, nonce, body = self._exchange(method, self._path + path, content, wait_s=wait_s)
                except _FAILURES as error:
                    problem = _describe(error, self._url)
                else:
                    problem = f"it answered {status}"
                    if status == 200:
                        return body
                    if status == 404:
                        self._token, self._forgotten = "", True  # introduce the session again
                    elif status == 401:
                        self._log_in(nonce)
                    elif status not in _AGAIN:
                        _refuse(status, body)
            else:
                problem = self._introduce() or problem
                if self._token:
                    continue
            if pause == PAUSE_S[0]:
                self._on_trouble(problem)
            self._sleep(pause, problem)
            pause = min(2 * pause, PAUSE_S[1])

    def _sleep(self, pause: float, problem: str) -> None:
        """Wait before the next try, unless the deadline comes first."""
        if now_s() + pause > self._deadline:
            raise DeadlineError(
                f"the relay could not be used before the deadline ({problem}): check its address, and that it runs"
            )
        time.sleep(pause)

    def _introduce(self) -> str:
        """Register the session; returns what went wrong, or nothing."""
        content = self._terms.label_hash + b"".join(self._terms.roster)
        try:
            status, nonce, body = self._exchange("PUT", self._path, content)
        except _FAILURES as error:
            return _describe(error, self._url)
        if status in (200, 201):
            self._log_in(nonce)
            return ""
        if status not in _AGAIN:
            _refuse(status, body)
        return f"it answered {status}"

    def _log_in(self, nonce: bytes) -> None:
        if len(nonce) != NONCE_BYTES:
            raise RelayError("this is not a tpmdp relay: check its address")
        self._token = make_token(self._identity, nonce, self._terms.session, party=self._index)
        changed = self._forgotten or (self._nonce != b"" and self._nonce != nonce)
        self._nonce, self._forgotten = nonce, False
        if changed:
            self._changes += 1  # a relay that changes all the time must not keep us busy
            self._sleep(min(PAUSE_S[0] * 2**self._changes, PAUSE_S[1]), "it is restarted again and again")
            raise RelayChangedError("the relay was restarted")

    def _exchange(self, method: str, path: str, content: bytes, wait_s: float = 0.0) -> tuple[int, bytes, bytes]:
        """Status, nonce and body of one answer."""
        headers = [(b"host", urlsplit(self._url).netloc.encode()), (b"user-agent", b"tpmdp")]
        headers += [(b"authorization", self._token.encode())] if self._token else []
        headers += [(b"content-length", str(len(content)).encode())] if method != "GET" else []
        limits = {"connect": TIMEOUT_S, "write": TIMEOUT_S, "pool": TIMEOUT_S, "read": wait_s + TIMEOUT_S}
        self.bytes_sent += len(content) + len(method) + len(path) + 12
        self.bytes_sent += sum(len(name) + len(value) + 4 for name, value in headers) + 2
        with self._pool.stream(
            method, self._url + path, headers=headers, content=content, extensions={"timeout": limits}
        ) as answer:
            parts, size = [], 0
            for part in answer.iter_stream():
                size += len(part)
                if size > min(self._answer_max, MESSAGE_MAX + BATCH_MAX):
                    raise RelayError(f"the relay sent more than {self._answer_max} bytes: check its address")
                parts.append(part)
            fields = {name.lower(): value for name, value in answer.headers}
            return answer.status, _nonce(fields.get(NONCE_HEADER.encode(), b"")), b"".join(parts)


def _nonce(value: bytes) -> bytes:
    try:
        return bytes.fromhex(value.decode("ascii"))
    except ValueError:
        return b""


def _describe(error: Exception, url: str) -> str:
    """What is wrong with the connection; RelayError where trying again does not help."""
    text = str(error) or type(error).__name__
    if "CERTIFICATE_VERIFY_FAILED" in text:
        raise RelayError(f"the relay's certificate is not trusted: {_certificate_problem(text, url)}")
    if "WRONG_VERSION_NUMBER" in text or "RECORD_LAYER_FAILURE" in text:
        raise RelayError(f"{url} does not answer with TLS: write http:// for a relay without, or check the port")
    return shown(text, _ERROR_SHOWN)


def _certificate_problem(text: str, url: str) -> str:
    """Why a certificate is refused, and what to do.

    >>> text = "[SSL: CERTIFICATE_VERIFY_FAILED] certificate verify failed: IP address mismatch, certificate is not ..."
    >>> _certificate_problem(text, "https://192.0.2.1:8000")
    "it is not for the host 192.0.2.1: use the host name that it names, or ask the relay's operator for one that fits"
    """
    host = urlsplit(url).hostname
    if "mismatch" in text:
        remedy = "use the host name that it names, or ask the relay's operator for one that fits"
        return f"it is not for the host {host}: {remedy}"
    clock = f"by the clock of this machine ({datetime.now(UTC):%Y-%m-%d %H:%M} UTC)"
    if "has expired" in text:
        return f"it has expired {clock}: check the clock, or ask the relay's operator for a new one"
    if "not yet valid" in text:
        return f"it is not yet valid {clock}: check the clock, or ask the relay's operator"
    reason = shown(text.partition("verify failed: ")[2] or text, 150)
    return f"no authority that this machine trusts has signed it ({reason}): give its certificate (--ca)"


def _error_of(body: bytes) -> str:
    """What a relay says is wrong."""
    text = body[: 4 * _ERROR_SHOWN].decode("utf-8", "replace")
    with suppress(ValueError, KeyError, TypeError):
        text = str(json.loads(text)["error"])
    return text


def _refuse(status: int, body: bytes) -> NoReturn:
    if status == 409:
        raise RelayError(
            "the relay already holds other messages of this party in this session (was its ledger replaced?): "
            "use the ledger the session was begun with, or a new session"
        )
    error = _error_of(body)
    if status == 403 and NOT_SERVED in error:
        raise RelayError("the relay does not serve this session: ask its operator to add the study with this number")
    raise RelayError(f"the relay refused ({status}: {shown(error, _ERROR_SHOWN)}): ask its operator")
