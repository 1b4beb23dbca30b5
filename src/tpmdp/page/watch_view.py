"""Watch."""

from __future__ import annotations

from starlette.routing import Route

from tpmdp.page.folder import Folder
from tpmdp.page.forms import PageForm
from tpmdp.page.routes import Parts, view
from tpmdp.report.markup import Html, tag


def show() -> Html:
    """The view."""
    return tag("h1", "Watch")


def answer(form: PageForm) -> Parts:
    """New contents after a change."""
    del form
    return {}


def routes(folder: Folder) -> list[Route]:
    """The routes of this view."""
    del folder
    return view("/watch", show, answer)
