"""A relay that attacks: it stands before an honest one and changes what parties get to read."""

from __future__ import annotations

import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import httpx

from tpmdp.engines.relay.wire import frame, frames

Attack = Callable[[list[tuple[int, bytes]]], bytes]  # what would be delivered, to what is sent instead


class EvilRelay:
    """Use as a context manager; `attack` gets every batch of messages on its way to a party."""

    def __init__(self, honest: str, attack: Attack) -> None:
        client = httpx.Client(base_url=honest, timeout=60.0)

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
