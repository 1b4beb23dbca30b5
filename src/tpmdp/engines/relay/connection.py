"""A connection to the relay, with limits that uvicorn lacks: time, size, refused bodies, stalled readers.

It uses private parts of uvicorn's protocol class, so the version of uvicorn is pinned.
"""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from dataclasses import dataclass, field
from typing import Any, Final

import uvicorn
from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol

from tpmdp.engines.relay.journal import Journal
from tpmdp.engines.relay.limits import RelaySettings, address_key, is_proxy
from tpmdp.errors import InputError

_HEAD_MAX: Final = 16 << 10  # bytes of one request head
_DISCARD_MAX: Final = 1 << 20  # bytes of a refused body that are still taken, so that the client reads the refusal
_PIPELINE_MAX: Final = 8  # requests sent ahead on one connection


@dataclass
class Peers:
    """What all connections share."""

    journal: Journal
    counts: Counter[str] = field(default_factory=Counter)  # connections by address


class Connection(HttpToolsProtocol):
    """uvicorn's connection, which keeps to the relay's settings."""

    def __init__(
        self,
        settings: RelaySettings,
        config: uvicorn.Config,
        server_state: Any,
        app_state: dict[str, Any],
        peers: Peers,
    ) -> None:
        super().__init__(config, server_state, app_state)
        self._settings, self._peers = settings, peers
        self._address: str | None = None  # the peer's, once it counts
        self._in_head = True
        self._head_bytes = 0  # of the fields parsed
        self._bytes = 0  # received since the request began
        self._discard: int | None = None  # bytes still taken of a body that nobody reads
        self._deadline: asyncio.TimerHandle | None = None
        self._stall: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        peer = "" if self.client is None else self.client[0]
        if len(self.connections) > self._settings.connections_max and not self._make_room(peer):
            self._refuse(503, InputError("connections", len(self.connections), "are too many", "try again soon"))
            return
        if not is_proxy(peer, self._settings.forwarded_by):
            self._address = address_key(peer)
            self._peers.counts[self._address] += 1
            if self._peers.counts[self._address] > self._settings.address_connections_max:
                count = self._peers.counts[self._address]
                self._refuse(503, InputError("connections", count, "from your address are too many", "close some"))
                return
        self._arm(self._settings.head_timeout_s)

    def _make_room(self, peer: str) -> bool:
        """Close an idle connection of the address that has the most, unless that is the newcomer's own."""
        most = max(self._peers.counts, key=self._peers.counts.__getitem__, default="")
        if not most or self._peers.counts[most] <= self._peers.counts[address_key(peer)] + 1:
            return False
        for other in self.connections:
            if isinstance(other, Connection) and other._address == most and other._is_idle:
                other._close()
                return True
        return False

    @property
    def _is_idle(self) -> bool:
        """Whether no request is being answered; a head may be on its way."""
        return (self.cycle is None or self.cycle.response_complete) and not self.transport.is_closing()

    def connection_lost(self, exc: Exception | None) -> None:
        self._disarm()
        self.resume_writing()
        super().connection_lost(exc)
        if self._address is not None:
            self._peers.counts[self._address] -= 1
            if not self._peers.counts[self._address]:
                del self._peers.counts[self._address]
            self._address = None

    def data_received(self, data: bytes) -> None:
        # No endless head, no endless trailer and no endless body that was refused.
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
        if self._is_idle and self._deadline is None:
            self._arm(self._settings.head_timeout_s)  # uvicorn's own timer ended with the first byte

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self._in_head, self._head_bytes, self._bytes = True, 0, 0

    def on_url(self, url: bytes) -> None:
        self._count(len(url))
        super().on_url(url)

    def on_header(self, name: bytes, value: bytes) -> None:
        self._count(len(name) + len(value) + 4)
        super().on_header(name, value)

    def on_headers_complete(self) -> None:
        # The head is complete: from here on the application limits the time.
        if len(self.pipeline) >= _PIPELINE_MAX:
            raise ValueError("too many requests ahead")
        super().on_headers_complete()
        self._in_head = False
        self._disarm()

    def on_message_complete(self) -> None:
        super().on_message_complete()
        self._in_head, self._bytes = True, 0
        if self._discard is not None:
            self._discard = None
            self._arm(self.timeout_keep_alive)

    def on_response_complete(self) -> None:
        # Close slowly, or read the rest of a body so that the client gets to read the answer.
        super().on_response_complete()
        if self.transport.is_closing():
            self._close()
        elif self.cycle.response_complete and self.cycle.more_body:
            self._discard = _DISCARD_MAX
            self._arm(self._settings.head_timeout_s)

    def pause_writing(self) -> None:
        # The client reads slowly; it gets time for the little that is buffered.
        super().pause_writing()
        if self._stall is None:
            self._stall = self.loop.call_later(self._settings.body_timeout_s, self.transport.abort)

    def resume_writing(self) -> None:
        super().resume_writing()
        if self._stall is not None:
            self._stall.cancel()
            self._stall = None

    def timeout_keep_alive_handler(self) -> None:
        self._close()

    def send_400_response(self, msg: str) -> None:
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
        self._peers.journal.refusal(status, error, address_key("" if self.client is None else self.client[0]))
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
