"""Every view as it looks: accessible by axe-core's rules, at three widths, in light and dark, without a shift."""

from __future__ import annotations

import os
from collections.abc import Callable
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.page.conftest import RunningPage
from tpmdp.page.layout import VIEWS

if TYPE_CHECKING:
    from playwright.sync_api import Page

pytest.importorskip("playwright.sync_api")
pytestmark = [pytest.mark.browser, pytest.mark.process]

WIDTHS = {"wide": 1280, "tablet": 768, "phone": 390}
ROOT = Path(__file__).parents[2]
PICTURES = os.environ.get("TPMDP_SCREENSHOTS")  # a folder, where they are wanted
Open = Callable[..., "Page"]


def violations(window: Page) -> list[str]:
    """What axe-core complains about, one line each."""
    window.evaluate(files("axe_playwright_python").joinpath("axe.min.js").read_text(encoding="utf-8"))
    result: dict[str, Any] = window.evaluate("axe.run(document, {resultTypes: ['violations']})")
    return [
        f"{each['id']}: {each['help']}: {node['html'][:150]}" for each in result["violations"] for node in each["nodes"]
    ]


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", WIDTHS)
def test_every_view_is_accessible_and_fits(page_process: RunningPage, open_page: Open, width: str, scheme: str) -> None:
    window = open_page(page_process, viewport={"width": WIDTHS[width], "height": 900}, color_scheme=scheme)
    for path in VIEWS:
        window.goto(page_process.url + path)
        assert violations(window) == [], path
        assert window.evaluate("document.documentElement.scrollWidth") <= WIDTHS[width], path
        if PICTURES:
            window.screenshot(path=Path(PICTURES) / f"{path[1:]}-{width}-{scheme}.png", full_page=True)


def test_the_page_that_asks_for_the_token_is_accessible(page_process: RunningPage, chromium: Any) -> None:
    context = chromium.new_context()
    window = context.new_page()
    window.goto(page_process.url)
    assert violations(window) == []
    assert window.evaluate("document.activeElement.id") == "secret"
    context.close()


def test_nothing_moves_while_a_slider_does(page_process: RunningPage, open_page: Open) -> None:
    window = open_page(page_process)
    window.evaluate(
        "() => { window.shift = 0; new PerformanceObserver(list => { for (const each of list.getEntries())"
        " window.shift += each.value; }).observe({type: 'layout-shift', buffered: true}); }"
    )
    window.focus("#threshold")
    for key in ("ArrowRight", "ArrowRight", "ArrowLeft", "ArrowLeft", "ArrowLeft"):
        before = window.inner_text("#answer")
        window.keyboard.press(key)
        window.wait_for_function("before => document.querySelector('#answer').innerText !== before", arg=before)
    assert window.evaluate("window.shift") < 0.1  # what web.dev calls good
