"""Answers that are files."""

from __future__ import annotations

from starlette.responses import Response


def file_answer(data: bytes | str, name: str, media_type: str) -> Response:
    """A file for the browser to save, never to show; `name` is ours, not from outside."""
    return Response(data, media_type=media_type, headers={"content-disposition": f'attachment; filename="{name}"'})
