"""Watch in a real browser, beside a real relay: what changes is shown without a click."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.faults.consortium import Consortium
from tests.page.conftest import RunningPage, running_page

if TYPE_CHECKING:
    from playwright.sync_api import Page

pytestmark = [pytest.mark.browser, pytest.mark.process]


def test_a_party_and_the_operator_see_who_joins_and_that_the_relay_goes(
    folder: Path, open_page: Callable[..., Page]
) -> None:
    with Consortium(folder) as consortium:
        relay = consortium.relay()
        with running_page(folder) as running:
            window = open_page(running, "/watch")
            window.select_option("#key-file", "lab.key")
            window.fill("#relay", consortium.url)
            window.click("text=Watch the session")
            window.wait_for_selector("#study-watch >> text=Nobody has joined at this relay yet.")
            window.fill("#own-relay", consortium.url)
            window.press("#own-relay", "Enter")
            window.wait_for_selector("#relay-watch >> text=The relay keeps no session.")
            consortium.join("south")
            window.wait_for_selector("#study-watch >> text=1 of 3 have joined; waiting for north, lab.")
            window.wait_for_selector("#relay-watch >> text=faults / session 1")
            window.wait_for_selector("#relay-watch >> text=joining")
            assert running.token not in window.url
            assert window.evaluate("document.cookie + JSON.stringify(localStorage)") == "{}"
            relay.terminate()
            relay.wait()
            window.wait_for_selector("#study-watch .warning >> text=cannot be reached")
            window.wait_for_selector("#relay-watch .warning >> text=cannot be reached")
            assert "1 of 3" not in window.inner_text("#study-watch")
            assert "south" in window.inner_text("#study-watch table")  # as it was last seen
            window.click("#study-watch >> text=Stop watching")
            window.wait_for_selector("#study-watch >> text=Nothing is watched here.")


@pytest.mark.parametrize("width", [390, 1280])
def test_an_empty_folder_has_its_own_words(
    page_process: RunningPage, open_page: Callable[..., Page], width: int
) -> None:
    window = open_page(page_process, "/watch", viewport={"width": width, "height": 900})
    assert "There is no study file (.toml) in" in window.inner_text("#study")
    assert window.evaluate("document.documentElement.scrollWidth <= innerWidth")
