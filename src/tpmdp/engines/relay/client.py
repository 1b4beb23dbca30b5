"""A party's side of the relay: a mailbox over HTTP, and the loop that drives a party through it until its deadline.

Only outgoing connections. The relay may vanish and come back; it may hold back, repeat or invent messages: nothing it
sends is believed without a signature, every answer has a size limit and every wait ends at the deadline.
"""

from __future__ import annotations

import ssl
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final, NoReturn
from urllib.parse import urlsplit

import httpx
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from tpmdp.engines.relay.wire import (
    BATCH_MAX,
    FRAME_BYTES,
    NONCE_BYTES,
    NONCE_HEADER,
    WAIT_MAX_S,
    frames,
    is_loopback,
    join_frames,
    make_token,
)
from tpmdp.errors import DeadlineError, FileError, InputError, TpmdpError, shown
from tpmdp.protocol.messages import MESSAGE_MAX, OVERHEAD, Kind, MessageError, decode
from tpmdp.protocol.party import Early, Party
from tpmdp.protocol.terms import Terms

_PAUSE_S: Final = (0.05, 2.0)  # between tries when the relay does not answer: first, longest
_TIMEOUT_S: Final = 10.0
_ALL_WAIT_S: Final = 2.0
_ERROR_SHOWN: Final = 300

Watch = Callable[[Party, int], None]  # called with the party and the bytes it has sent


class RelayError(TpmdpError):
    """The relay refuses what we ask, and will go on refusing."""


def check_url(url: str, plain_http: bool) -> str:
    """The relay's address; plain HTTP only to this machine, unless explicitly waived.

    >>> check_url("http://relay.example.org", plain_http=False)
    Traceback (most recent call last):
        ...
    tpmdp.errors.InputError: --relay = http://relay.example.org must be https off this machine:
    use https, or --plain-http to do without TLS
    """
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname or parts.query or parts.fragment or parts.username:
        raise InputError("--relay", url, "is not an address", "write https://host:port")
    if parts.scheme == "http" and not is_loopback(parts.hostname) and not plain_http:
        remedy = "use https, or --plain-http to do without TLS"
        raise InputError("--relay", url, "must be https off this machine", remedy)
    return url.rstrip("/")


class Mailbox:
    """One party's mailbox in one session. Every call either succeeds, or raises at the deadline or on refusal."""

    def __init__(
        self,
        url: str,
        terms: Terms,
        index: int,
        identity: Ed25519PrivateKey,
        deadline: float,
        certificate_authority: Path | None = None,
    ) -> None:
        self._terms, self._index, self._identity = terms, index, identity
        self._deadline = deadline
        self._token = ""
        self.bytes_sent = 0
        self._path = f"/v1/sessions/{terms.session.hex()}"
        self._answer_max = max(BATCH_MAX, terms.words_bytes + OVERHEAD + 256) + 4096 * FRAME_BYTES
        self._client = httpx.Client(
            base_url=url,
            timeout=_TIMEOUT_S,
            verify=_tls(certificate_authority) if url.startswith("https") else False,
            trust_env=False,  # no proxy, no netrc: what is sent goes to the address that was given
            headers={"accept-encoding": "identity", "user-agent": "tpmdp"},
        )

    def __enter__(self) -> Mailbox:
        return self

    def __exit__(self, *_: object) -> None:
        self._client.close()

    def __repr__(self) -> str:
        return f"Mailbox({self._terms.spec.name(self._index)})"

    def connect(self) -> None:
        """Make the session known to the relay, if it answers now; every other call does so when needed."""
        self._introduce()

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

    def fetch(self, after: Mapping[Kind, int], wait_s: float, least: int = 1) -> list[tuple[int, bytes]]:
        """Messages of these kinds with higher numbers than seen; waits until there are so many, or for so long."""
        wait = max(0.0, min(wait_s, WAIT_MAX_S, self._deadline - time.monotonic()))
        cursor = ",".join(f"{int(kind)}:{number}" for kind, number in sorted(after.items()))
        body = self._request("GET", f"/messages?after={cursor}&wait={wait:.3f}&least={least}", wait_s=wait)
        try:
            return list(frames(body))
        except MessageError as error:
            raise RelayError(f"the relay sent nonsense ({error}): check its address") from None

    def _request(self, method: str, path: str, content: bytes = b"", wait_s: float = 0.0) -> bytes:
        """One request, tried again while the relay is away, until the deadline."""
        pause, problem = _PAUSE_S[0], "it did not answer"
        while True:
            if self._token:
                try:
                    status, headers, body = self._exchange(method, self._path + path, content, wait_s)
                except httpx.TransportError as error:
                    status, problem = 0, _describe(error)
                else:
                    problem = f"it answered {status}"
                    if status == 200:
                        return body
                    if status == 401:
                        self._log_in(headers)
                    if status == 404:
                        self._token = ""  # the relay forgot the session: introduce it again
                    if status not in (401, 404, 429, 500, 502, 503, 504):
                        _refuse(status, body)
            else:
                problem = self._introduce() or problem
                if self._token:
                    continue
            if time.monotonic() + pause > self._deadline:
                raise DeadlineError(f"the relay could not be used before the deadline ({problem}): check its address")
            time.sleep(pause)
            pause = min(2 * pause, _PAUSE_S[1])

    def _introduce(self) -> str:
        """Tell the relay who takes part; answers what went wrong, or nothing."""
        content = self._terms.label_hash + b"".join(self._terms.roster)
        try:
            status, headers, body = self._exchange("PUT", self._path, content)
        except httpx.TransportError as error:
            return _describe(error)
        if status in (200, 201):
            self._log_in(headers)
            return ""
        if status not in (429, 500, 502, 503, 504):
            _refuse(status, body)
        return f"it answered {status}"

    def _log_in(self, headers: httpx.Headers) -> None:
        try:
            nonce = bytes.fromhex(headers.get(NONCE_HEADER, ""))
        except ValueError:
            nonce = b""
        if len(nonce) != NONCE_BYTES:
            raise RelayError("this is no tpmdp relay: check its address")
        self._token = make_token(self._identity, nonce, self._terms.session, self._index)

    def _exchange(
        self, method: str, path: str, content: bytes, wait_s: float = 0.0
    ) -> tuple[int, httpx.Headers, bytes]:
        headers = {"authorization": self._token} if self._token else {}
        left = max(0.1, self._deadline - time.monotonic())
        timeout = httpx.Timeout(min(_TIMEOUT_S, left), read=min(wait_s + _TIMEOUT_S, left + 1.0))
        request = self._client.build_request(method, path, content=content, headers=headers, timeout=timeout)
        self.bytes_sent += len(content) + len(method) + len(path) + 12 + 2
        self.bytes_sent += sum(len(name) + len(value) + 4 for name, value in request.headers.raw)
        answer = self._client.send(request, stream=True)
        try:
            parts, size = [], 0
            for part in answer.iter_raw(1 << 16):
                size += len(part)
                if size > min(self._answer_max, MESSAGE_MAX + BATCH_MAX):
                    raise RelayError(f"the relay sent more than {self._answer_max} bytes: check its address")
                if time.monotonic() > self._deadline + 1.0:
                    raise httpx.ReadTimeout("the deadline passed")
                parts.append(part)
            return answer.status_code, answer.headers, b"".join(parts)
        finally:
            answer.close()


def _tls(authority: Path | None) -> ssl.SSLContext:
    context = ssl.create_default_context()
    if authority is not None:
        try:
            context.load_verify_locations(cafile=authority)
        except (OSError, ssl.SSLError):
            raise FileError(authority, "holds no certificates", "give the relay's certificate as PEM") from None
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    return context


def _describe(error: httpx.TransportError) -> str:
    text = str(error) or type(error).__name__
    if "CERTIFICATE_VERIFY_FAILED" in text:  # it will not become better
        raise RelayError(f"the relay's certificate is not trusted ({shown(text, 150)}): give its certificate with --ca")
    return shown(text, _ERROR_SHOWN)


def _refuse(status: int, body: bytes) -> NoReturn:
    text = body[: 4 * _ERROR_SHOWN].decode("utf-8", "replace")
    raise RelayError(f"the relay refused ({status}: {shown(text, _ERROR_SHOWN)}): ask its operator")


def drive(party: Party, mailbox: Mailbox, deadline: float, failed_before: bool, watch: Watch) -> None:
    """Take the party through its session. `deadline` is a moment of time.monotonic()."""
    seen = dict.fromkeys(Kind, 0)
    mailbox.post(party.start())
    watch(party, mailbox.bytes_sent)
    first, fresh = party.attempt, failed_before
    while not party.done:
        if time.monotonic() >= deadline:
            raise DeadlineError(_late(party))
        wait_s = 0.0 if fresh else deadline - time.monotonic()
        least = max(1, party.missing)
        if least > 1:  # all of them at once costs one request; a new attempt must not wait for that long
            wait_s = min(wait_s, _ALL_WAIT_S)
        batch = mailbox.fetch({kind: seen[kind] for kind in party.expects}, wait_s, least)
        if fresh and not batch:  # all that was left of the failed attempt is seen, and it did not finish
            fresh = False
            mailbox.post(party.retry() if party.attempt == first else [])
        _deliver(party, batch, mailbox, seen)
        watch(party, mailbox.bytes_sent)


def _deliver(party: Party, batch: list[tuple[int, bytes]], mailbox: Mailbox, seen: dict[Kind, int]) -> None:
    out: list[bytes] = []
    for number, data in batch:
        try:
            kind = decode(data).kind
        except MessageError:
            time.sleep(_PAUSE_S[0])  # no honest relay stores this; a bad one must not make us spin
            continue
        try:
            out += party.receive(data)
        except MessageError:
            time.sleep(_PAUSE_S[0])  # not signed by the party it names, or of another session: drop it
        except Early:
            time.sleep(_PAUSE_S[0])  # an honest relay keeps the order
            break
        seen[kind] = max(seen[kind], number)
    mailbox.post(out)


def _late(party: Party) -> str:
    names = [party.terms.spec.name(other) for other in party.waiting_for()]
    what = {"agree": "agreement", "keys": "key", "pads": "pad", "receive": "submission"}.get(party.step, "message")
    if party.step == "receive" and not party.is_lead:
        what = "answer"
    listed = shown(", ".join(names), 400)
    return f"the deadline passed with no {what} from {listed}: join again with a later deadline to resume the session"
