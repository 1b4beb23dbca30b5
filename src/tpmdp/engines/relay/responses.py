"""The relay's answers: JSON, errors, and frames that are sent in slices."""

from __future__ import annotations

import json
import math
from collections.abc import Awaitable, Callable, Mapping
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from typing import Any, Final

from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from tpmdp.engines.relay.requests import RefusedError
from tpmdp.errors import InputError

_SLICE: Final = 256 << 10  # bytes of an answer handed to the connection at once


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
    """An answer of frames, sent in slices: when the client is slow, at most one slice is buffered twice."""

    media_type = "application/octet-stream"

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        del scope, receive
        await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
        body = bytes(self.body)
        for start in range(0, max(1, len(body)), _SLICE):
            more = start + _SLICE < len(body)
            part = body if len(body) <= _SLICE else body[start : start + _SLICE]
            await send({"type": "http.response.body", "body": part, "more_body": more})


class _HeldFrames(FramesAnswer):
    """A large answer that gives its memory back when it is sent."""

    held: AsyncExitStack

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async with self.held:
            await super().__call__(scope, receive, send)


async def frames_within(hold: AbstractAsyncContextManager[None], load: Callable[[], Awaitable[bytes]]) -> Response:
    """Load an answer while memory is held for it, until it is sent."""
    async with AsyncExitStack() as stack:
        await stack.enter_async_context(hold)
        answer = _HeldFrames(await load())
        answer.held = stack.pop_all()
        return answer
