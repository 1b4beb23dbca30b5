"""Verify in a real browser: files that are chosen and dropped, large ones, hostile ones, and a comparison."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import tpmdp
from tests.page.conftest import RunningPage
from tests.study.sessions import Finished, finish, study
from tpmdp.planning.plan_file import plan_document
from tpmdp.report.html_report import page as report_page
from tpmdp.study.record import SessionRecord

if TYPE_CHECKING:
    from playwright.sync_api import Page

pytestmark = [pytest.mark.browser, pytest.mark.process]

SPEC = tpmdp.Spec(
    names=["office", "north", "south", "insurer"], epsilon=[2, 0.5, 1, 1.25], delta=1e-6, threshold=2, receivers=[0, 1]
)
DROP = """([name, text]) => {
  const data = new DataTransfer();
  data.items.add(new File([text], name));
  document.querySelector("[data-drop]").dispatchEvent(new DragEvent("drop", {dataTransfer: data, bubbles: true}));
}"""


@pytest.fixture
def finished(folder: Path) -> Finished:
    """A session that has ended, with its ledgers in the page's folder."""
    return finish(study(), folder)


def verdict_of(window: Page, path: Path) -> str:
    window.set_input_files("#file", path)
    window.wait_for_selector("#verdict h2")
    return str(window.inner_text("#verdict"))


def test_a_plan_that_is_dropped_is_proved_and_a_changed_one_is_not(
    page_process: RunningPage, open_page: Callable[..., Page]
) -> None:
    window = open_page(page_process, "/verify")
    document = plan_document(tpmdp.plan(SPEC))
    window.evaluate(DROP, ["plan.json", json.dumps(document)])
    window.wait_for_selector("#verdict .good")
    assert window.locator("#verdict .steps li.proved").count() == 5
    document["variance"][2] *= 0.9
    window.evaluate(DROP, ["changed.json", json.dumps(document)])
    window.wait_for_selector("#verdict .problem")
    assert "privacy violated: honest noise" in window.inner_text("#verdict .steps li.failed")
    assert window.locator("#verdict .good").count() == 0


def test_a_report_is_compared_with_the_ledger_of_its_party(
    page_process: RunningPage, open_page: Callable[..., Page], finished: Finished, tmp_path: Path
) -> None:
    with finished.ledger("north") as ledger:
        record = SessionRecord.of(finished.study, [ledger], with_answer=True)
    (tmp_path / "report.html").write_text(report_page(record))
    window = open_page(page_process, "/verify")
    assert "points open. report.html" in verdict_of(window, tmp_path / "report.html")
    window.fill("#approved", record.terms.keyless_hash.hex())
    window.check("[name=with-ledger][value='north.ledger']")
    window.click("text=Compare >> nth=-1")
    window.wait_for_selector("text=the answer is the one in the ledger of north")
    assert "this is the study that was approved" in window.inner_text("#verdict")
    assert "that this is the answer" not in window.inner_text("#verdict")
    window.select_option("#ledger", "lab.ledger")
    window.click("text=Check the ledger")
    window.wait_for_selector("text=the ledger of lab")


def test_nothing_of_a_hostile_file_is_run_or_shown_as_markup(
    page_process: RunningPage, open_page: Callable[..., Page], tmp_path: Path
) -> None:
    window = open_page(page_process, "/verify")
    asked: list[str] = []
    window.on("request", lambda request: asked.append(request.url))
    window.on("dialog", lambda dialog: pytest.fail(dialog.message))
    script = "<html><script>alert(1)</script><img src=http://192.0.2.1/x onerror=alert(1)></html>"
    (tmp_path / "report.html").write_text(script)
    window.set_input_files("#file", tmp_path / "report.html")
    window.wait_for_selector("#problem .problem")
    assert "report.html is not a report of tpmdp" in window.inner_text("#problem")
    bad = "<img src=x onerror=alert(1)>"
    document = plan_document(tpmdp.plan(SPEC.replace(names=[bad, "b", "c", "d"])))
    (tmp_path / "plan.json").write_text(json.dumps(document))
    assert bad in verdict_of(window, tmp_path / "plan.json")
    assert window.locator("#content img").count() == 0
    assert window.inner_text("#problem") == ""
    assert asked
    assert all(url.startswith(page_process.url) for url in asked)


def test_a_file_that_is_too_large_is_not_sent(
    page_process: RunningPage, open_page: Callable[..., Page], tmp_path: Path
) -> None:
    with (tmp_path / "plan.json").open("wb") as stream:
        stream.truncate(65 << 20)
    window = open_page(page_process, "/verify")
    window.set_input_files("#file", tmp_path / "plan.json")
    window.wait_for_selector("#problem .problem")
    assert "at most 67,108,864 can be sent" in window.inner_text("#problem")


@pytest.mark.parametrize("width", [390, 768, 1280])
def test_no_view_is_wider_than_its_window(
    page_process: RunningPage, open_page: Callable[..., Page], finished: Finished, tmp_path: Path, width: int
) -> None:
    with finished.ledger("north") as ledger:
        text = report_page(SessionRecord.of(finished.study, [ledger], with_answer=True))
    (tmp_path / "report.html").write_text(text)
    window = open_page(page_process, "/verify", viewport={"width": width, "height": 900})
    verdict_of(window, tmp_path / "report.html")
    assert window.evaluate("document.documentElement.scrollWidth <= innerWidth")
