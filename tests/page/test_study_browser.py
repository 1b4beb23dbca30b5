"""Study in a real browser: compose, save, open, invite, and take the keys that the parties return."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.page.conftest import RunningPage
from tests.patience import HANG_S
from tpmdp.study.fingerprint import phrase_of
from tpmdp.study.model import Study

if TYPE_CHECKING:
    from playwright.sync_api import Page

pytestmark = [pytest.mark.browser, pytest.mark.process]


def test_a_study_is_composed_saved_and_opened(page_process: RunningPage, open_page: Callable[..., Page]) -> None:
    window = open_page(page_process, "/study")
    window.fill("#study-name", "flu season")
    window.get_by_role("button", name="Remove query 2, stay").click()
    window.wait_for_selector("#query-1-name", state="detached")
    window.get_by_label("Kind of query").select_option("linear_regression")
    window.get_by_role("button", name="Add a query").click()
    window.wait_for_selector("#query-1-bounds")
    window.fill("#query-1-bounds", "days 0 30\nage 0 120")
    window.get_by_text("bounds: days from 0 to 30, age from 0 to 120").wait_for()
    window.fill("#query-1-bounds", "days 0 30\nage 0")
    message = "bounds of stay by age = age 0 must be a column and two numbers"
    window.locator("[id^=field-problem]", has_text=message).wait_for()
    assert window.inner_text(".outdated") == "Not up to date: correct bounds of stay by age."
    assert window.input_value("#query-1-bounds") == "days 0 30\nage 0"
    window.fill("#query-1-bounds", "days 0 30\nage 0 100")
    window.get_by_text("age from 0 to 100").wait_for()
    window.wait_for_selector("#problem .problem", state="detached")
    window.get_by_role("button", name="Save in the folder").click()
    window.locator("#saved .good").wait_for()
    saved = Study.read(page_process.folder / "study.toml")
    assert saved.name == "flu season"
    assert [query.settings()["kind"] for query in saved.queries] == ["count", "linear_regression"]

    again = open_page(page_process, "/study")
    again.get_by_role("button", name="Open it").click()
    again.get_by_text("Opened study.toml").wait_for()
    assert again.input_value("#study-name") == "flu season"
    assert again.input_value("#query-1-bounds") == "days 0 30\nage 0 100"
    with again.expect_download() as download:
        again.get_by_role("button", name="Download study.toml").click()
    assert Study.read(download.value.path()) == saved


def test_plan_study_invitations_and_keys(
    page_process: RunningPage, open_page: Callable[..., Page], tmp_path: Path
) -> None:
    window = open_page(page_process, "/plan")
    for _ in range(2):
        count = window.locator("input[name=party-name]").count()
        window.get_by_role("button", name=f"Remove party {count},").click()
        window.wait_for_selector(f"#name-{count - 1}", state="detached")
    window.get_by_role("button", name="Go on to the study").click()
    window.wait_for_selector("#study")
    names = [field.input_value() for field in window.locator("input[name=party-name]").all()]
    assert names == ["statistics_office", "hospital_north", "hospital_south"]
    window.get_by_role("button", name="Write invitations into the folder").click()
    window.get_by_text("Wrote 3 invitations").wait_for()
    for place, name in enumerate(names):
        command = [sys.executable, "-m", "tpmdp", "keygen", name]
        made = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True, timeout=HANG_S)
        window.fill(f"#key-line-{place}", made.stdout.strip())
    words = window.locator("#key-status .phrase")
    words.wait_for()
    assert window.inner_text("#invited") == ""  # what was written before is out of date
    window.get_by_role("button", name="Write invitations into the folder").click()
    window.get_by_text("Wrote 3 invitations").wait_for()
    assert "They ask for" not in window.inner_text("#invited")
    written = Study.read(page_process.folder / "study invitations" / "hospital_north.study.toml")
    assert words.inner_text() == " ".join(phrase_of(written.terms().plan_hash))
    assert written == Study.read(page_process.folder / "study.toml")


def test_hostile_names_stay_text_on_a_phone(page_process: RunningPage, open_page: Callable[..., Page]) -> None:
    window = open_page(page_process, "/study", viewport={"width": 390, "height": 800})
    evil = "<img src=x onerror=document.title='broken'>"
    window.fill("#query-0-name", evil)
    window.locator("#preview strong", has_text=evil).wait_for()
    window.fill("#name-0", evil)
    window.locator("#problem .problem", has_text="must be letters").wait_for()
    window.get_by_role("button", name="Add a party").click()
    window.wait_for_selector("#name-5")
    assert window.locator("main img").count() == 0
    assert window.title() == "Study · tpmdp"
    assert window.evaluate("document.documentElement.scrollWidth <= window.innerWidth")


def test_a_download_with_a_mistake_stays_and_a_file_comes_back(
    page_process: RunningPage, open_page: Callable[..., Page], tmp_path: Path
) -> None:
    window = open_page(page_process, "/study")
    window.fill("#study-name", "flu")
    window.fill("#query-1-high", "-3")
    window.get_by_role("button", name="Download study.toml").click()
    window.locator("[id^=field-problem]", has_text="high must be more than low").wait_for()
    assert window.evaluate("document.activeElement.id") == "query-1-high"
    assert window.url.endswith("/study")
    window.fill("#query-1-high", "40")
    with window.expect_download() as download:
        window.get_by_role("button", name="Download study.toml").click()
    window.locator("#study-saved", has_text="Saved as study.toml").wait_for()
    path = tmp_path / "mine.toml"
    download.value.save_as(path)
    window.fill("#study-name", "other")
    window.set_input_files("#study-file", path)
    window.get_by_text("Opened mine.toml. Nothing was written.").wait_for()
    assert window.input_value("#study-name") == "flu"
    assert window.input_value("#query-1-high") == "40"
    path.write_text("a = 1\n")
    window.set_input_files("#study-file", path)
    window.locator("#problem .problem", has_text="mine.toml").wait_for()
    assert window.input_value("#study-name") == "flu"


def test_what_was_saved_is_said_in_sight(page_process: RunningPage, open_page: Callable[..., Page]) -> None:
    window = open_page(page_process, "/study", viewport={"width": 1280, "height": 500})
    for button, place in (("Save in the folder", "#saved .good"), ("Write invitations into", "#invited .good")):
        window.get_by_role("button", name=button).click()
        line = window.locator(place)
        line.wait_for()
        box = line.bounding_box()
        assert box is not None
        assert 0 <= box["y"] <= 500 - box["height"] + 1
        assert str(page_process.folder) in line.inner_text()
