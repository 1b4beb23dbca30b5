"""Connections to the relay that end at the deadline: backends for httpcore, and TLS."""

from __future__ import annotations

import ssl
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Final

import httpcore

from tpmdp._util.clock import now_s
from tpmdp._util.files import readable
from tpmdp.errors import FileError

TIMEOUT_S: Final = 10.0  # of one step on the network
_WRITE_MAX: Final = 1 << 18  # bytes written at once
_AUTHORITY_MAX: Final = 16 << 20


class _Stream(httpcore.NetworkStream):
    """A connection on which no single read or write outlives the deadline."""

    def __init__(self, stream: httpcore.NetworkStream, deadline: float) -> None:
        self._stream, self._deadline = stream, deadline

    def _left(self, timeout: float | None, error: type[Exception]) -> float:
        left = self._deadline - now_s()
        if left <= 0:
            raise error("the deadline passed")
        return left if timeout is None else min(timeout, left)

    def read(self, max_bytes: int, timeout: float | None = None) -> bytes:
        return self._stream.read(max_bytes, self._left(timeout, httpcore.ReadTimeout))

    def write(self, buffer: bytes, timeout: float | None = None) -> None:
        view = memoryview(buffer)
        for start in range(0, len(view), _WRITE_MAX):
            part = bytes(view[start : start + _WRITE_MAX])
            self._stream.write(part, self._left(timeout, httpcore.WriteTimeout))

    def close(self) -> None:
        self._stream.close()

    def start_tls(
        self, ssl_context: ssl.SSLContext, server_hostname: str | None = None, timeout: float | None = None
    ) -> httpcore.NetworkStream:
        left = self._left(timeout, httpcore.ConnectTimeout)
        return _Stream(self._stream.start_tls(ssl_context, server_hostname, left), self._deadline)

    def get_extra_info(self, info: str) -> Any:
        return self._stream.get_extra_info(info)


class DeadlineNetwork(httpcore.NetworkBackend):
    """Makes connections on which no single read or write outlives the deadline."""

    def __init__(self, deadline: float) -> None:
        self._backend, self._deadline = httpcore.SyncBackend(), deadline

    def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,
        local_address: str | None = None,
        socket_options: Iterable[Any] | None = None,
    ) -> httpcore.NetworkStream:
        left = max(0.01, min(timeout or TIMEOUT_S, self._deadline - now_s()))
        stream = self._backend.connect_tcp(host, port, left, local_address=local_address, socket_options=socket_options)
        return _Stream(stream, self._deadline)


def client_tls(authority: Path | None) -> ssl.SSLContext:
    """TLS that trusts the public authorities, and the one in a file of PEM certificates."""
    context = ssl.create_default_context()
    if authority is not None:
        try:
            with readable(authority, _AUTHORITY_MAX):
                context.load_verify_locations(cafile=authority)
        except (OSError, ssl.SSLError):
            raise FileError(authority, "holds no certificates", "give the relay's certificate as PEM") from None
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    return context
