"""A relay that attacks: it stands before an honest one and changes what parties get to read."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import httpx

from tpmdp.engines.relay.wire import frame, frames

Attack = Callable[[list[tuple[int, bytes]]], bytes]  # what would be delivered, to what is sent instead


class EvilRelay:
    """Use as a context manager; `attack` gets every batch of messages on its way to a party."""

    def __init__(self, honest: str, attack: Attack) -> None:
        client = httpx.Client(base_url=honest, timeout=300.0)

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do(self) -> None:
                body = self.rfile.read(int(self.headers.get("content-length", 0)))
                headers = {key: value for key, value in self.headers.items() if key.lower() == "authorization"}
                answer = client.request(self.command, self.path, content=body, headers=headers)
                content = answer.content
                if self.command == "GET" and answer.status_code == 200 and content:
                    content = attack(list(frames(content)))
                try:
                    self.send_response(answer.status_code)
                    if "tpmdp-nonce" in answer.headers:
                        self.send_header("tpmdp-nonce", answer.headers["tpmdp-nonce"])
                    self.send_header("content-length", str(len(content)))
                    self.end_headers()
                    self.wfile.write(content)
                except OSError:
                    self.close_connection = True

            do_GET = do_PUT = do_POST = do  # noqa: N815

            def log_message(self, format: str, *args: object) -> None:  # noqa: A002
                del format, args

        self._client = client
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}"

    def __enter__(self) -> EvilRelay:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()
        self._client.close()


class TarPit:
    """A relay that answers just enough to keep a party waiting, or busy."""

    def __init__(self, mode: str) -> None:
        self.mode, self.requests = mode, 0
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._listener.getsockname()[1]}"
        self._ended = False

    def __enter__(self) -> TarPit:
        threading.Thread(target=self._accept, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended = True
        self._listener.close()

    def _accept(self) -> None:
        while not self._ended:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            threading.Thread(target=self._serve, args=(connection,), daemon=True).start()

    def _serve(self, connection: socket.socket) -> None:
        connection.settimeout(300)
        with suppress(OSError), connection:
            while not self._ended:
                head = b""
                while b"\r\n\r\n" not in head:
                    part = connection.recv(1)
                    if not part:
                        return
                    head += part
                lengths = [line for line in head.lower().split(b"\r\n") if line.startswith(b"content-length")]
                left = int(lengths[0].split(b":")[1]) if lengths else 0
                while left:
                    left -= len(connection.recv(min(left, 65536)))
                self.requests += 1
                self._answer(connection, head.startswith(b"GET"))

    def _answer(self, connection: socket.socket, is_get: bool) -> None:
        nonce = b"tpmdp-nonce: " + b"00" * 32 + b"\r\n"
        if not is_get or self.requests < 3:  # let the party in, so that it waits for messages
            connection.sendall(b"HTTP/1.1 200 OK\r\n" + nonce + b"content-length: 0\r\n\r\n")
            return
        if self.mode == "a new nonce each time":
            nonce = b"tpmdp-nonce: %064x\r\n" % self.requests
            connection.sendall(b"HTTP/1.1 401 Unauthorized\r\n" + nonce + b"content-length: 0\r\n\r\n")
        elif self.mode == "nothing at once":
            connection.sendall(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n")
        elif self.mode == "80,000 frames":
            body = bytes(12) * 80_000
            connection.sendall(b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n" % len(body) + body)
        elif self.mode == "silence":
            while not self._ended:
                time.sleep(0.2)
        else:
            start = {"drip": b"HTTP/1.1 200 OK\r\ncontent-length: 1000\r\n\r\n", "slow head": b"HTTP/1.1 200 OK\r\nx: "}
            connection.sendall(start.get(self.mode, b""))
            while not self._ended:
                connection.sendall(b"HTTP/1.1 100 Continue\r\n\r\n" if self.mode == "100 continue" else b"x")
                time.sleep(0.2)


def join(batch: list[tuple[int, bytes]]) -> bytes:
    return b"".join(frame(data, number) for number, data in batch)


class FlipOnce:
    """Damage the first copy of every message; deliver it under a later number as well, unharmed."""

    def __init__(self) -> None:
        self._bit = 0

    def __call__(self, batch: list[tuple[int, bytes]]) -> bytes:
        out = b""
        for number, data in batch:
            bad = bytearray(data)
            self._bit = (self._bit * 31 + 17) % (8 * len(bad))
            bad[self._bit // 8] ^= 1 << self._bit % 8
            out += frame(bytes(bad), 0) + frame(data, number)
        return out
