"""The page in tests: in this process for quick tests, and as a real process with a real browser for `browser` ones."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.page.browsing import ORIGIN, TOKEN, TestClient
from tests.page.five import Five
from tests.patience import HANG_S
from tpmdp.page.app import create_app
from tpmdp.page.folder import Folder
from tpmdp.page.gate import Keeper

if TYPE_CHECKING:
    from playwright.sync_api import Browser, BrowserContext, Page

CHROMIUM = next((path for path in ("/usr/bin/chromium", "/usr/bin/chromium-browser") if Path(path).exists()), None)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """The page's folder."""
    path = tmp_path / "folder"
    path.mkdir()
    return path


@pytest.fixture
def stranger(folder: Path) -> TestClient:
    """The page, without a cookie."""
    app = create_app(Folder.of(folder), Keeper(TOKEN), frozenset({ORIGIN}))
    return TestClient(app, ORIGIN, follow_redirects=False)


@pytest.fixture
def client(stranger: TestClient) -> TestClient:
    """The page after the token was given; requests come from the page itself."""
    stranger.headers["origin"] = ORIGIN
    assert stranger.post("/enter", data={"secret": TOKEN}).status_code == 303
    return stranger


# A real process and a real browser ------------------------------------------------------------------------------------


@dataclass
class RunningPage:
    """`tpmdp page` in its own process."""

    process: subprocess.Popen[str]
    url: str
    token: str
    folder: Path

    def kill(self) -> None:
        """As a machine that loses power does."""
        self.process.kill()
        self.process.wait(HANG_S)


@contextmanager
def running_page(folder: Path, *more: str, harm: str = "") -> Iterator[RunningPage]:
    """Start the page, and end it. `harm` is what goes wrong in it, as tests.faults.saboteur reads it."""
    program = ["tests.faults.saboteur", harm, "--"] if harm else ["tpmdp"]
    command = [sys.executable, "-m", *program, "page", "--folder", str(folder), "--port", "0", "--no-browser", *more]
    environment = {**os.environ, "PYTHONUNBUFFERED": "1"}
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment) as process:
        try:
            assert process.stdout is not None
            url = process.stdout.readline().removeprefix("page on ").strip()
            is_local = "--host" not in more  # otherwise there is a password
            token = process.stdout.readline().removeprefix("token: ").strip() if is_local else ""
            assert url.startswith("http"), url
            yield RunningPage(process, url, token, folder)
        finally:
            process.terminate()
            process.wait(HANG_S)


@pytest.fixture
def page_process(folder: Path) -> Iterator[RunningPage]:
    """A page in its own process."""
    with running_page(folder) as running:
        yield running


@pytest.fixture
def five(tmp_path: Path, folder: Path) -> Iterator[Five]:
    """Five parties; the files of one lie in the page's folder."""
    made = Five(tmp_path / "others", folder)
    yield made
    made.end()


@pytest.fixture(scope="session")
def chromium() -> Iterator[Browser]:
    """One browser for all tests of a worker."""
    from playwright.sync_api import expect, sync_playwright

    expect.set_options(timeout=HANG_S * 1000)
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield browser
        browser.close()


@pytest.fixture
def open_page(chromium: Browser) -> Iterator[Callable[..., Page]]:
    """Opens a page in a new window, with the token given; a script error or a blocked resource fails the test."""
    contexts: list[BrowserContext] = []
    complaints: list[str] = []

    def begin(running: RunningPage, path: str = "/plan", **options: Any) -> Page:
        options.setdefault("viewport", {"width": 1280, "height": 900})
        context = chromium.new_context(accept_downloads=True, **options)
        context.set_default_timeout(HANG_S * 1000)
        contexts.append(context)
        window = context.new_page()
        window.goto(running.url + path)
        window.fill("#secret", running.token)
        window.click("button[type=submit]")
        window.wait_for_selector("nav")
        window.on("pageerror", lambda error: complaints.append(str(error)))
        window.on("console", lambda message: complaints.append(message.text) if _is_bad(message.text) else None)
        window.goto(running.url + path)
        return window

    yield begin
    for context in contexts:
        context.close()
    assert complaints == []


def _is_bad(text: str) -> bool:
    """Whether a line of the browser's console is more than a form that was refused, or a page that was ended."""
    expected = (
        "status of 401",
        "status of 422",
        "status of 413",
        "ERR_CONNECTION_REFUSED",
        "ERR_CONNECTION_RESET",
        "ERR_EMPTY_RESPONSE",
        "ERR_CONTENT_LENGTH_MISMATCH",
    )
    return not any(each in text for each in expected)
