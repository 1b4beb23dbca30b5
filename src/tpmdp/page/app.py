"""The page as an ASGI application: routes of all views behind the gate."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from importlib.resources import files
from typing import Any, Final

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import HTMLResponse, PlainTextResponse, RedirectResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp

from tpmdp.errors import TpmdpError
from tpmdp.page import join_view, plan_view, study_view, verify_view, watch_view
from tpmdp.page.folder import Folder
from tpmdp.page.gate import Gate, Keeper
from tpmdp.page.layout import problem_page
from tpmdp.page.routes import is_navigation

_STATIC: Final[Mapping[str, str]] = {
    "page.js": "text/javascript; charset=utf-8",
    "page.css": "text/css; charset=utf-8",
    "icon.svg": "image/svg+xml",
}
_VIEWS: Final[Sequence[Callable[[Folder], list[Route]]]] = (
    plan_view.routes,
    study_view.routes,
    join_view.routes,
    verify_view.routes,
    watch_view.routes,
)
_LOGGER: Final = logging.getLogger("tpmdp.page")


def create_app(folder: Folder, keeper: Keeper, origins: frozenset[str]) -> ASGIApp:
    """The application; `origins` are the addresses under which a browser may use it."""
    routes = [
        Route("/", lambda _: RedirectResponse(_first_view(folder), 303), methods=["GET"]),
        Route("/static/{name}", _static, methods=["GET"]),
        *(route for routes in _VIEWS for route in routes(folder)),
    ]
    handlers: dict[Any, Any] = {HTTPException: _refused, TpmdpError: _refused, Exception: _refused}
    app = Starlette(routes=routes, exception_handlers=handlers)
    app.router.redirect_slashes = False
    return Gate(app, keeper, origins)


def _first_view(folder: Folder) -> str:
    """A party with an invitation comes to take part; everybody else begins with a plan."""
    return "/join" if folder.names(".study.toml") else "/plan"


async def _static(request: Request) -> Response:
    name = request.path_params["name"]
    if name not in _STATIC:
        raise HTTPException(404)
    data = files("tpmdp.page").joinpath("static", name).read_bytes()
    return Response(data, media_type=_STATIC[name])


async def _refused(request: Request, error: Exception) -> Response:
    """One line for people; never a traceback."""
    if isinstance(error, HTTPException):
        status, text = error.status_code, error.detail if error.status_code != 404 else "There is no such view here."
    elif isinstance(error, TpmdpError):
        status, text = 422, str(error)
    else:
        status, text = 500, "The page has failed here: that is a mistake in tpmdp. Nothing was charged by it."
        _LOGGER.error("%s", f"{request.method} {request.url.path}: {type(error).__name__}")
    if request.method == "GET" or is_navigation(request):
        return HTMLResponse(problem_page(status, text), status)
    return PlainTextResponse(text, status)
