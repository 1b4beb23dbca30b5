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
    return f"±\u00a0{three_digits(tpmdp.plan(spec).expected_error)}"


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


# Mistakes stay where they are made ------------------------------------------------------------------------------------


def test_a_mistake_is_shown_at_its_field(page_process: RunningPage, open_page: Open) -> None:
    window = open_page(page_process)
    window.fill("#epsilon-2", "-1")
    message = window.locator("[id^=field-problem]")
    expect(message).to_contain_text("epsilon of hospital_south = -1.0 must be greater than 0")
    field = window.locator("#epsilon-2")
    expect(field).to_have_attribute("aria-invalid", "true")
    assert "field-problem" in (field.get_attribute("aria-describedby") or "")
    expect(window.locator(".outdated").first).to_have_text("Not up to date: correct epsilon of hospital_south.")
    assert window.evaluate("document.activeElement.id") == "epsilon-2"
    above, below = (window.locator(each).bounding_box() for each in ("#epsilon-2", "#epsilon-3"))
    here = message.bounding_box()
    assert above
    assert below
    assert here
    assert above["y"] < here["y"] < below["y"]
    window.fill("#epsilon-2", "1")
    expect(message).to_have_count(0)
    assert field.get_attribute("aria-invalid") is None
    assert field.get_attribute("aria-describedby") is None
    expect(window.locator(".outdated").first).to_have_text("")
    window.fill("#sensitivity", "-1")
    expect(window.locator("#sensitivity")).to_have_attribute(
        "aria-describedby", "sensitivity-hint field-problem-sensitivity"
    )
    window.fill("#sensitivity", "2")
    expect(window.locator("#sensitivity")).to_have_attribute("aria-describedby", "sensitivity-hint")


def test_half_a_number_moves_nothing(page_process: RunningPage, open_page: Open) -> None:
    """While somebody types 0.5, the 0 is no budget: the message waits, and nothing shifts."""
    window = open_page(page_process)
    window.evaluate(
        "() => { window.seen = 0; new MutationObserver(() => { if (document.querySelector('[id^=field-problem]'))"
        " window.seen++; }).observe(document.body, {childList: true, subtree: true}); }"
    )
    window.evaluate(  # in one go, as no test can promise to type within half a second
        "() => { const field = document.getElementById('epsilon-1'); for (const text of ['0', '0.', '0.7']) {"
        " field.value = text; field.dispatchEvent(new Event('input', {bubbles: true})); } }"
    )
    expect(window.locator("#answer .big")).to_have_text(error(2, [2, 0.7, 1, 1, 2.0]))
    assert window.evaluate("window.seen") == 0


@pytest.mark.parametrize("text", ["plan.json, with its proof", "study.toml, with an example", "picture"])
def test_a_download_with_a_mistake_stays_on_the_page(page_process: RunningPage, open_page: Open, text: str) -> None:
    window = open_page(page_process)
    window.fill("#epsilon-2", "-1")
    window.get_by_role("button", name=text).click()
    expect(window.locator("[id^=field-problem]")).to_contain_text("epsilon of hospital_south = -1.0")
    expect(window.locator("#epsilon-2")).to_be_focused()
    assert window.url.endswith("/plan")
    assert window.locator("nav").is_visible()
    assert window.input_value("#epsilon-2") == "-1"
    window.fill("#epsilon-2", "1")
    with window.expect_download() as download:
        window.get_by_role("button", name=text).click()
    name = download.value.suggested_filename
    expect(window.locator("#plan-saved")).to_have_text(f"Saved as {name}: your browser put it where it puts downloads.")
    assert download.value.path().stat().st_size > 100


def test_going_on_with_a_mistake_and_back(page_process: RunningPage, open_page: Open) -> None:
    """Study shows what is wrong there; Back and Reload ask nothing."""
    window = open_page(page_process)
    window.fill("#epsilon-2", "-1")
    window.get_by_role("button", name="Go on to the study").click()
    window.wait_for_url("**/study")
    expect(window.locator("[id^=field-problem]")).to_contain_text("epsilon of hospital_south")
    window.fill("#study-name", "flu")
    window.fill("#epsilon-2", "1")
    window.locator("#preview", has_text="What it costs").wait_for()
    window.reload()
    assert window.input_value("#study-name") == "flu"
    window.go_back()
    window.wait_for_url("**/plan")
    window.get_by_role("button", name="Go on to the study").click()
    window.wait_for_url("**/study")
    assert window.input_value("#study-name") == "flu"


def test_a_new_party_is_ready_to_be_named(page_process: RunningPage, open_page: Open) -> None:
    window = open_page(page_process)
    window.focus("#add-party")
    window.keyboard.press("Enter")
    expect(window.locator("#name-5")).to_be_focused()
    window.keyboard.type("sixth")  # what stood there was selected
    expect(window.locator("#point-5")).to_have_text("sixth")


def test_the_chosen_party_is_marked(page_process: RunningPage, open_page: Open) -> None:
    window = open_page(page_process)
    expect(window.locator("[aria-pressed=true]")).to_have_attribute("id", "point-0")
    window.locator("#point-2").click()
    expect(window.locator("[aria-pressed=true]")).to_have_attribute("id", "point-2")
    expect(window.locator("#ring strong").first).to_have_text("hospital_south")
    window.reload()
    expect(window.locator("#pointed")).to_have_value("0")  # choosing is no change of the plan


def test_a_phone_shows_the_answer_to_a_tap(page_process: RunningPage, open_page: Open) -> None:
    window = open_page(page_process, viewport={"width": 390, "height": 800}, has_touch=True)
    button = window.locator("#point-1")
    box = button.bounding_box()
    assert box
    assert min(box["width"], box["height"]) >= 24
    button.tap()
    expect(window.locator("tr:has(#point-1) .against")).to_be_in_viewport()
    expect(window.locator(".against:visible")).to_have_count(1)
    window.locator("#epsilon-0").scroll_into_view_if_needed()
    expect(window.locator("#glance")).to_be_in_viewport()
    expect(window.locator("#glance")).to_contain_text(error(2, [2, 0.5, 1, 1, 2]))


def test_the_legend_fits(page_process: RunningPage, open_page: Open) -> None:
    for width in (1280, 390):
        window = open_page(page_process, viewport={"width": width, "height": 800})
        window.fill("#wanted", "10")
        window.locator("#curve text", has_text="wanted").wait_for()
        ends = window.evaluate(
            "() => { const all = document.querySelector('#curve svg').getBoundingClientRect();"
            " return [...document.querySelectorAll('#curve svg text')].every(each => {"
            " const own = each.getBoundingClientRect();"
            " return own.right <= all.right + 1 && own.bottom <= all.bottom + 1; }); }"
        )
        assert ends


def test_what_is_lowered_is_said_while_the_slider_has_the_focus(page_process: RunningPage, open_page: Open) -> None:
    window = open_page(page_process)
    for place in (5, 6):  # each is there before the next is asked for
        window.click("text=Add a party")
        window.locator(f"#epsilon-{place}").wait_for()
    expect(window.locator("#tolerate-note")).to_contain_text("At most 2 here")
    window.focus("#tolerate")
    window.keyboard.press("ArrowRight")
    window.keyboard.press("ArrowRight")
    expect(window.locator("#tolerate-value")).to_have_text("2")
    window.focus("#threshold")
    window.keyboard.press("ArrowRight")
    expect(window.locator("#tolerate-note")).to_contain_text("Lowered from 2 to 1. At most 1 here")
    window.locator("#point-0").wait_for()
    window.get_by_role("button", name="Remove party 7").click()
    expect(window.locator("#epsilon-6")).to_have_count(0)
    window.get_by_role("button", name="Remove party 6").click()
    expect(window.locator("#tolerate-note")).to_contain_text("Lowered from 2 to 0.")


def test_all_wrong_fields_are_marked_at_once(page_process: RunningPage, open_page: Open) -> None:
    window = open_page(page_process)
    window.fill("#epsilon-1", "0,3")
    window.fill("#records-3", "3.000")
    expect(window.locator("#field-problem-epsilon-1")).to_contain_text("write 0.3, with a point")
    expect(window.locator("#field-problem-records-3")).to_contain_text("write 3000")
    assert window.locator("[aria-invalid=true]").count() == 2
    expect(window.locator(".outdated").first).to_have_text(
        "Not up to date: correct epsilon of hospital_north; records of insurer."
    )
    window.fill("#epsilon-1", "0.3")
    expect(window.locator("[id^=field-problem]")).to_have_count(1)
    assert window.locator("#epsilon-1").get_attribute("aria-invalid") is None
    window.fill("#records-3", "3 000")
    expect(window.locator("[aria-invalid=true]")).to_have_count(0)


def test_bars_can_be_told_from_dark_paper(page_process: RunningPage, open_page: Open) -> None:
    window = open_page(page_process, color_scheme="dark")
    script = "() => [...document.querySelectorAll('svg rect')].map(each => getComputedStyle(each).fill)"
    assert "rgb(86, 180, 233)" in window.evaluate(script)
    assert "rgb(0, 114, 178)" not in window.evaluate(script)


def test_a_sign_is_not_parted_from_its_number(page_process: RunningPage, open_page: Open) -> None:
    window = open_page(page_process)
    text = window.evaluate("() => document.getElementById('answer').textContent")
    assert "±\u00a0" in text
    assert "± " not in text
