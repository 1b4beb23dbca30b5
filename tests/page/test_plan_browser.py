"""Plan in a real browser: typed, moved, pointed at, saved; by mouse and by keyboard."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import pytest

import tpmdp
from tests.page.conftest import RunningPage
from tpmdp.planning.plan_file import read_plan
from tpmdp.report.numbers import three_digits

if TYPE_CHECKING:
    from pathlib import Path

    from playwright.sync_api import Page

playwright = pytest.importorskip("playwright.sync_api")
expect = playwright.expect
pytestmark = [pytest.mark.browser, pytest.mark.process]

Open = Callable[..., "Page"]


def error(threshold: int, epsilon: list[float]) -> str:
    spec = tpmdp.Spec(epsilon=epsilon, delta=1e-6, threshold=threshold, receivers=[0, 1])
    return f"± {three_digits(tpmdp.plan(spec).expected_error)}"


def test_what_is_changed_is_planned(page_process: RunningPage, open_page: Open) -> None:
    window = open_page(page_process)
    budgets = [2, 0.5, 1, 1, 2.0]
    big = window.locator("#answer .big")
    assert big.inner_text() == error(2, budgets)
    window.focus("#threshold")
    window.keyboard.press("ArrowRight")
    expect(big).to_have_text(error(3, budgets))
    assert window.evaluate("document.activeElement.id") == "threshold"  # the slider that is moved stays
    window.fill("#epsilon-1", "1.5")
    budgets[1] = 1.5
    expect(big).to_have_text(error(3, budgets))
    window.fill("#epsilon-1", "-3")
    window.wait_for_selector("#problem .problem")
    assert "epsilon of hospital_north = -3.0" in window.inner_text("#problem")
    assert window.input_value("#epsilon-1") == "-3"
    window.fill("#epsilon-1", "1.5")
    window.wait_for_selector("#problem .problem", state="detached")


def test_parties_come_and_go_by_keyboard(page_process: RunningPage, open_page: Open) -> None:
    window = open_page(page_process)
    window.focus("text=Add a party")
    window.keyboard.press("Enter")
    window.wait_for_selector("#name-5")
    assert window.input_value("#name-5") == "party_6"
    assert window.evaluate("document.getElementById('threshold').max") == "5"
    window.focus("[data-action=remove-party-5]")
    window.keyboard.press("Enter")
    window.wait_for_selector("#name-5", state="detached")


def test_the_worst_coalition_follows_the_pointer(page_process: RunningPage, open_page: Open) -> None:
    window = open_page(page_process)
    window.hover("#point-3")
    expect(window.locator("#ring strong")).to_have_text("insurer")
    window.focus("#point-4")
    expect(window.locator("#ring strong")).to_have_text("university")


def test_enter_in_a_field_saves_nothing(page_process: RunningPage, open_page: Open) -> None:
    window = open_page(page_process)
    downloads: list[object] = []
    window.on("download", lambda download: downloads.append(download))
    window.focus("#wanted")
    window.keyboard.type("9")
    window.keyboard.press("Enter")
    window.wait_for_selector("text=Use these budgets")
    assert window.url.endswith("/plan")
    assert downloads == []


def test_a_wanted_error_gives_a_threshold(page_process: RunningPage, open_page: Open) -> None:
    window = open_page(page_process)
    window.fill("#wanted", "10")
    window.click("text=Use threshold 3")
    expect(window.locator("#threshold")).to_have_value("3")
    assert window.inner_text("#answer .big") == error(3, [2, 0.5, 1, 1, 2])


def test_a_saved_plan_verifies(page_process: RunningPage, open_page: Open, tmp_path: Path) -> None:
    window = open_page(page_process)
    with window.expect_download() as download:
        window.click("text=plan.json, with its proof")
    path = tmp_path / "plan.json"
    download.value.save_as(path)
    spec, certificate = read_plan(path)
    assert certificate.check(spec).parties == 5


def test_markup_in_a_name_stays_text(page_process: RunningPage, open_page: Open) -> None:
    window = open_page(page_process)
    window.fill("#name-0", "<img src=x onerror=document.title='owned'>")
    window.wait_for_selector("#promises >> text=<img src=x")
    window.click("text=Add a party")
    window.wait_for_selector("#name-5")
    assert window.title() == "Plan · tpmdp"
    assert window.locator("img").count() == 0


def test_a_page_that_has_ended_says_so(page_process: RunningPage, open_page: Open) -> None:
    window = open_page(page_process)
    page_process.kill()
    window.fill("#epsilon-1", "1.5")
    window.wait_for_selector("text=Is tpmdp page still running?")


def test_nothing_secret_is_stored(page_process: RunningPage, open_page: Open) -> None:
    window = open_page(page_process)
    assert (
        window.evaluate("JSON.stringify([localStorage.length, sessionStorage.length, document.cookie])") == '[0,0,""]'
    )
    assert page_process.token not in window.content()
    assert page_process.token not in window.url
