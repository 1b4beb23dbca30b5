"""The relay's answers: JSON, errors, and frames that are sent in slices."""

from __future__ import annotations

import json
import math
from collections.abc import AsyncIterator, Mapping
from typing import Any

from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from tpmdp.engines.relay.requests import RefusedError
from tpmdp.errors import InputError


def json_answer(status: int, content: Mapping[str, Any], headers: Mapping[str, str] | None = None) -> Response:
    """An answer in JSON."""
    return Response(json.dumps(content), status, headers, media_type="application/json")


def error_answer(status: int, error: object, headers: Mapping[str, str] | None = None) -> Response:
    """An error on one line."""
    return json_answer(status, {"error": " ".join(str(error).split())}, headers)


def too_many_error(requests: str, wait_s: float) -> RefusedError:
    """The refusal of requests beyond a rate."""
    error = InputError("requests", requests, "are too many", f"wait {wait_s:.1f} s")
    return RefusedError(429, error, {"retry-after": str(math.ceil(wait_s))})


def busy_error() -> RefusedError:
    """The refusal of a request for which no memory became free in time."""
    error = InputError("relay", "(busy)", "has no memory free now", "try again soon")
    return RefusedError(503, error, {"retry-after": "2"})


class FramesAnswer(Response):
    """An answer of frames, sent in slices: when the client is slow, at most two slices are in memory."""

    media_type = "application/octet-stream"

    def __init__(self, size: int, slices: AsyncIterator[bytes]) -> None:
        super().__init__(headers={"content-length": str(size)})
        self._slices = slices

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        del scope, receive
        await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
        async for part in self._slices:
            await send({"type": "http.response.body", "body": part, "more_body": True})
        await send({"type": "http.response.body", "body": b"", "more_body": False})
