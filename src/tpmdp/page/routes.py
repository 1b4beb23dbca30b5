"""How a view meets the browser: whole pages, parts that forms get back, files in both directions, and polls."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final
from urllib.parse import unquote

from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import HTMLResponse, RedirectResponse, Response
from starlette.routing import Route

from tpmdp.errors import InputError, TpmdpError
from tpmdp.page.forms import PageForm, Place, parts, placed_problem, problem
from tpmdp.page.layout import view_page

Parts = Mapping[str, object]
"""New contents of elements, by their id."""
_NAME_SHOWN: Final = 200


class RefusedFormError(TpmdpError):
    """A form that is refused, with new contents of elements; `focus` is the id of the control that needs attention."""

    def __init__(self, error: object, fresh: Parts, focus: str = "") -> None:
        self.error, self.fresh, self.focus = error, fresh, focus
        super().__init__(str(error))


def view(
    path: str,
    show: Callable[[], object],
    answer: Callable[[PageForm], Parts],
    *,
    moves: Mapping[str, Callable[[PageForm], None]] | None = None,
    downloads: Mapping[str, Callable[[PageForm], Response]] | None = None,
    places: Callable[[PageForm], Sequence[Place]] = lambda _: (),
) -> list[Route]:
    """The routes of a view. An error of any of these functions is shown in the element `problem`.

    GET path: `show`. POST path: `answer`, for a live form. POST path/NAME: a file from `downloads`; or what `moves`
    does before the browser goes to `path`. All run in threads: planning takes time. `places` says where the fields are
    that errors name: the script marks them. An answer may say where the focus goes: "x-focus", an id.
    """

    async def get(_: Request) -> Response:
        return HTMLResponse(view_page(path, await run_in_threadpool(show)))

    async def post(request: Request) -> Response:
        return await _answered(answer, await PageForm.of(request), places)

    async def named(request: Request) -> Response:
        name, form = request.path_params["name"], await PageForm.of(request)
        actions: dict[str, Callable[[PageForm], Response | None]] = {**(downloads or {}), **(moves or {})}
        if name not in actions:
            raise HTTPException(404)
        try:
            done = await run_in_threadpool(actions[name], form)
        except TpmdpError as error:
            if is_navigation(request):
                raise
            return _problem(error, places(form))
        if isinstance(done, Response):
            return done
        if is_navigation(request):
            return RedirectResponse(path, 303)
        return Response(status_code=204, headers={"x-to": path})  # the script goes there

    return [
        Route(path, get, methods=["GET"]),
        Route(path, post, methods=["POST"]),
        Route(path + "/{name}", named, methods=["POST"]),
    ]


def poll(path: str, answer: Callable[[Mapping[str, str]], Parts]) -> Route:
    """Parts that change by themselves: the element has data-poll=PATH and data-every=MILLISECONDS.

    `answer` gets the variable parts of the path. What a form has said about a problem stays.
    """

    async def get(request: Request) -> Response:
        return HTMLResponse(parts(await run_in_threadpool(answer, request.path_params)))

    return Route(path, get, methods=["GET"])


def upload(path: str, most: int, take: Callable[[str, Path], Parts], *, folder: Path | None = None) -> Route:
    """A file from the browser, of at most so many bytes; its field has data-upload=PATH.

    The last part of the path begins with "upload": the gate leaves the limit to this function.

    It is written to a new private file, in `folder` or a temporary one, which `take` gets together with the name that
    the file has for its owner, unchecked. What `take` does not move is deleted.
    """

    async def post(request: Request) -> Response:
        name = unquote(request.headers.get("x-file-name", ""))[:_NAME_SHOWN]
        handle, written = tempfile.mkstemp(prefix=".tpmdp-", dir=folder)
        try:
            size = 0
            with os.fdopen(handle, "wb") as stream:
                async for piece in request.stream():
                    size += len(piece)
                    if size > most:
                        rule = f"must have at most {most:,} bytes here"
                        error = InputError("file", name, rule, "put it into the page's folder, and choose it there")
                        return HTMLResponse(parts({"problem": problem(error)}), 413)
                    await run_in_threadpool(stream.write, piece)
            return await _answered(lambda _: take(name, Path(written)), PageForm({}), lambda _: ())
        finally:
            with suppress(FileNotFoundError):
                os.unlink(written)

    return Route(path, post, methods=["POST"])


def is_navigation(request: Request) -> bool:
    """Whether the browser shows the answer as a page, instead of handing it to the script."""
    return request.headers.get("sec-fetch-mode") == "navigate"


async def _answered(
    answer: Callable[[PageForm], Parts], form: PageForm, places: Callable[[PageForm], Sequence[Place]]
) -> Response:
    try:
        fresh = {"problem": "", **await run_in_threadpool(answer, form)}
    except RefusedFormError as refused:
        headers = {"x-focus": refused.focus} if refused.focus else {}
        return HTMLResponse(parts({"problem": problem(refused.error), **refused.fresh}), 422, headers)
    except TpmdpError as error:
        return _problem(error, places(form))
    focus = fresh.pop("x-focus", "")
    return HTMLResponse(parts(fresh), headers={"x-focus": str(focus)} if focus else None)


def _problem(error: TpmdpError, places: Sequence[Place]) -> Response:
    return HTMLResponse(parts({"problem": placed_problem(error, places)}), 422)
