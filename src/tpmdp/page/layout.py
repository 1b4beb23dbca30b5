"""The frame of every view: head, navigation and the places where parts are put."""

from __future__ import annotations

from typing import Final

from tpmdp._version import __version__
from tpmdp.report.markup import Html, joined, tag

VIEWS: Final = {
    "/plan": ("Plan", "budgets, threshold and noise"),
    "/study": ("Study", "what is asked"),
    "/join": ("Take part", "with your data"),
    "/verify": ("Verify", "a plan or a report"),
    "/watch": ("Watch", "sessions at a relay"),
}
_STARTS: Final = {"/join": "I was invited", "/plan": "I plan a study", "/verify": "I check a report"}
_FIRST: Final = ("/plan", "/join")  # where / leads to
_ABOUT: Final = (
    "tpmdp lets organisations answer questions about the records of all of them without showing anybody a record: each "
    "adds noise, so that hardly anything is learned about one record even if some of the others pool what they see."
)
_WHERE: Final = "The window in which tpmdp page was started shows it."
_LOST: Final = (
    " tpmdp page has ended, or does not answer. What stands below is old. Nothing is lost: start tpmdp page again, and "
    "a session that was begun can go on there."
)
_NO_SCRIPT: Final = "This page needs JavaScript. The command line does the same: tpmdp --help."


def view_page(path: str, *contents: object) -> str:
    """A whole page with the navigation; `path` is the view it shows."""
    links = [
        tag("a", text, href=to, **({"aria_current": "page"} if to == path else {})) for to, (text, _) in VIEWS.items()
    ]
    bar = tag(
        "header",
        tag("a", "Skip to the content", href="#content", class_="skip"),
        tag("span", "tpmdp", class_="brand"),
        tag("nav", *links, aria_label="Views"),
        class_="bar",
    )
    start = [_start(path)] if path in VIEWS else []
    no_script = tag("noscript", tag("p", _NO_SCRIPT, class_="problem"))
    lost = tag("p", tag("strong", "This page has lost its program."), _LOST, role="alert", id="lost", hidden="hidden")
    main = tag("main", lost, *start, no_script, *contents, id="content", tabindex="-1")
    foot = tag(
        "footer",
        tag("p", f"tpmdp {__version__}. This page runs on this machine; it loads nothing from anywhere else."),
    )
    script = Html('<script src="/static/page.js" defer></script>')
    return _document(f"{VIEWS[path][0]} · tpmdp" if path in VIEWS else "tpmdp", joined([bar, main, foot]), script)


def _start(path: str) -> Html:
    """What this is and where to begin, for somebody who has just opened the page."""
    links = [tag("a", text, href=to) if to != path else tag("strong", text) for to, text in _STARTS.items()]
    about = [_ABOUT, " "] if path in _FIRST else []
    return tag("p", *about, "Start: ", joined(links, " · "), class_="note start")


def enter_page(asks_for: str, problem: str = "") -> str:
    """The page that asks for the token or the password."""
    where = _WHERE if asks_for == "token" else "The page's operator has it."
    label = tag("label", f"{asks_for.capitalize()} of this page", for_="secret")
    field = Html(
        '<input id="secret" name="secret" type="password" required autofocus autocomplete="off" '
        f'spellcheck="false" maxlength="200" aria-describedby="where"{" aria-invalid=true" if problem else ""}>'
    )
    contents = [
        tag("h1", "tpmdp"),
        tag("p", "Plan, take part in and check studies of several organisations."),
        *([tag("p", problem, class_="problem", role="alert")] if problem else []),
        tag(
            "form",
            label,
            field,
            tag("p", where, class_="hint", id="where"),
            tag("button", "Open", type="submit"),
            method="post",
            action="/enter",
            class_="enter",
        ),
    ]
    return _document("tpmdp", tag("main", *contents, id="content", class_="narrow"), Html(""))


def problem_page(status: int, text: str) -> str:
    """What a browser shows where a view cannot be."""
    return view_page("", tag("h1", f"{status}"), tag("p", text, class_="problem"), tag("p", tag("a", "Plan", href="/")))


def _document(title: str, body: Html, script: Html) -> str:
    head = joined(
        [
            Html('<meta charset="utf-8">'),
            Html('<meta name="viewport" content="width=device-width, initial-scale=1">'),
            Html('<meta name="color-scheme" content="light dark">'),
            tag("title", title),
            Html('<link rel="icon" href="/static/icon.svg">'),
            Html('<link rel="stylesheet" href="/static/page.css">'),
            script,
        ]
    )
    return f'<!DOCTYPE html>\n<html lang="en"><head>{head}</head><body>{body}</body></html>\n'
