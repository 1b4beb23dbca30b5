"""Take part in a real browser: five parties, one of them the page, the others on the command line."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Barrier
from typing import TYPE_CHECKING

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from tests.faults.consortium import free_port
from tests.page.conftest import RunningPage, running_page
from tests.page.five import NAMES, OURS, RECORDS, Five, Visitor, outcome
from tests.page.joining import keyed
from tests.page.test_looks import violations
from tests.patience import DEADLINE, HANG_S, wait_until
from tests.processes import Process
from tpmdp import Study
from tpmdp.ledger import Ledger, rounded_up
from tpmdp.report.html_report import read_page
from tpmdp.study.identity import public_text, write_key
from tpmdp.study.invitation import invitation, write_invitations

if TYPE_CHECKING:
    from playwright.sync_api import Page

pytestmark = [pytest.mark.browser, pytest.mark.process]


def begin(window: Page) -> None:
    """Tick, and take part in the same moment: the change must not cancel the button."""
    window.check("#words-1")
    window.wait_for_selector("#ready:has-text('Nothing stands in the way')")
    window.evaluate("document.querySelectorAll('#agreed, [data-action=take-part]').forEach((each) => each.click())")
    window.wait_for_selector(f"li:has-text('{OURS}: you')")


def test_the_page_is_one_of_five_parties(
    five: Five, page_process: RunningPage, open_page: Callable[..., Page], tmp_path: Path
) -> None:
    window = open_page(page_process, "/join")
    window.wait_for_selector("#ready")
    window.click("button:text-is('Take part')")
    window.wait_for_selector("#agreed-problem")
    assert "Your agreement is missing: read what it costs you, and tick the box." in window.inner_text("#agree")
    assert window.evaluate("document.activeElement.id") == "words-1"
    assert window.inner_text("#problem") == ""
    assert five.status() == "unknown"
    begin(window)
    second = window.context.new_page()  # another tab attaches to the same session
    second.goto(page_process.url + "/join")
    second.wait_for_selector(f"li:has-text('{OURS}: you')")
    others = {name: five.join(name) for name in NAMES if name not in (OURS, "university")}
    for name in others:
        window.wait_for_selector(f"li:has-text('{name}: has joined')")
    assert "waiting for university" in window.inner_text(".news")
    assert window.locator("li:has-text('university: has not joined yet')").count() == 1
    others["university"] = five.join("university")
    for tab in (window, second):
        tab.wait_for_selector("h2:text-is('The answer')")
        assert tab.locator("figure svg").count() == 2
    five.check_charged_once()
    released = outcome(others["statistics_office"])
    answers = released["answers"]
    assert isinstance(answers, list)
    with window.expect_download() as download:
        window.click("button:text-is('Report with the answer')")
    download.value.save_as(tmp_path / "report.html")
    record, is_same = read_page(tmp_path / "report.html")
    assert is_same
    assert [answer.plain()["value"] for answer in record.answers or ()] == [each["value"] for each in answers]
    assert f"epsilon {rounded_up(record.charge_of(OURS))}" in window.inner_text("dl")
    assert [outcome(process)["answers"] for name, process in others.items() if name != "statistics_office"] == [
        None
    ] * 3
    window.reload()  # the outcome is shown again, without a charge
    window.wait_for_selector("h2:text-is('The answer')")
    five.check_charged_once()


def test_a_session_of_a_killed_page_is_finished_on_the_command_line(
    five: Five, page_process: RunningPage, open_page: Callable[..., Page]
) -> None:
    window = open_page(page_process, "/join")
    begin(window)
    first = five.join("insurer")
    window.wait_for_selector("li:has-text('insurer: has joined')")
    wait_until(lambda: five.status() == "held")
    page_process.kill()
    resumed = five.join(OURS)
    rest = [five.join(name) for name in NAMES if name not in (OURS, "insurer")]
    assert outcome(resumed)["answers"] is not None
    for process in (first, *rest):
        outcome(process)
    five.check_charged_once()


def test_a_session_of_a_killed_page_is_finished_by_a_new_page(
    five: Five, page_process: RunningPage, open_page: Callable[..., Page]
) -> None:
    window = open_page(page_process, "/join")
    begin(window)
    wait_until(lambda: five.status() == "held")
    window.wait_for_selector(".news:has-text('1 of 5 have joined')")  # what was said is in the ledger by then
    page_process.kill()
    with running_page(five.folder) as again:
        window = open_page(again, "/join")
        assert "this session was begun" in window.inner_text("#offer").lower()
        assert "You agreed to ages / session 1 as hospital_north on" in window.inner_text("#interrupted")
        assert "You had compared the ten words" in window.inner_text("#agree")
        assert window.locator("#agreed").count() == 0  # it was said before
        assert violations(window) == []
        others = [five.join(name) for name in NAMES if name not in (OURS, "university")]
        wait_until(lambda: five.agreed() == len(NAMES) - 1)
        window.click("button:text-is('Go on')")
        window.wait_for_selector(f"li:has-text('{OURS}: you')")
        news = window.inner_text(".news")
        assert "1 of 5" not in news, news  # as long as that is not known
        window.wait_for_selector(".news:has-text('4 of 5 have joined; waiting for university')")
        assert window.inner_text("#interrupted") == ""
        others.append(five.join("university"))
        window.wait_for_selector("h2:text-is('The answer')")
        for process in others:
            outcome(process)
    five.check_charged_once()


def test_a_page_without_its_program_says_so_and_asks_for_the_new_token(
    five: Five, open_page: Callable[..., Page]
) -> None:
    port = str(free_port())
    with running_page(five.folder, "--port", port) as first:
        window = open_page(first, "/join")
        begin(window)
        watching = window.context.new_page()
        watching.goto(first.url + "/watch")
        watching.click("text=Watch the session")
        watching.wait_for_selector("#study-watch .waiting")
        window.wait_for_selector("p.note:has-text('Time left: ')")
        first.kill()
        for tab in (window, watching):
            tab.wait_for_selector("#lost:visible >> text=This page has lost its program")
            assert "Nothing is lost" in tab.inner_text("#lost")
        assert "How the session stands is not known." in window.inner_text(".news")
        assert "Time left: not known." in window.inner_text("#run")
        assert "How it stands is not known." in watching.inner_text("#study-watch")
        assert violations(window) == []
    with running_page(five.folder, "--port", port) as again:
        assert again.token != first.token
        for tab in (window, watching):
            tab.wait_for_selector("#secret")


def test_an_officer_withdraws_without_a_terminal(
    five: Five, page_process: RunningPage, open_page: Callable[..., Page]
) -> None:
    window = open_page(page_process, "/join", viewport={"width": 390, "height": 800})
    begin(window)
    window.click("button:text-is('Withdraw ...')")
    window.wait_for_selector("#withdraw-now")
    assert "Once all have agreed, the others are charged" in window.inner_text("#run")
    assert violations(window) == []
    window.click("button:text-is('Stay in')")
    window.wait_for_selector("#withdraw")
    assert five.status() == "held"
    window.click("#withdraw")
    window.click("#withdraw-now")
    window.wait_for_selector("text=You have withdrawn from ages / session 1. Nothing was charged.")
    assert five.status() == "cancelled"
    window.reload()
    assert "Go on" not in window.inner_text("#interrupted")
    window.context.new_page().goto(page_process.url + "/watch")
    assert window.evaluate("document.documentElement.scrollWidth <= window.innerWidth")


def test_two_tabs_at_the_same_moment_are_charged_once(five: Five, page_process: RunningPage) -> None:
    visitor = Visitor(page_process)
    sent, others, barrier = visitor.decided(), five.join_others(), Barrier(4)

    def press(_: int) -> str:
        barrier.wait(HANG_S)
        return visitor.post("/join", sent)

    with ThreadPoolExecutor(4) as pool:
        assert all('id="run-1-body"' in html for html in pool.map(press, range(4)))
    for process in others:
        outcome(process)
    wait_until(lambda: "The answer is here." in visitor.get("/join/runs"))
    five.check_charged_once()


def test_a_maximum_runs_on_shares_without_a_relay(tmp_path: Path, folder: Path, page_process: RunningPage) -> None:
    names, state, parties = ("north", "south", "lab"), tmp_path / "others", []
    state.mkdir()
    places = {name: folder if name == "north" else state for name in names}
    for name, place in places.items():
        identity = Ed25519PrivateKey.generate()
        write_key(place / f"{name}.key", identity)
        (place / f"{name}.csv").write_text("age\n70\n20\n66\n41\n")
        party = {"name": name, "records": 4, "public_key": public_text(identity)}
        parties.append(party | {"address": f"127.0.0.1:{free_port()}"})
    query = {"name": "most", "kind": "maximum", "of": {"kind": "count", "column": "age", "at_least": 65}}
    document = {"name": "largest", "threshold": 1, "receivers": ["north"], "delta": 1e-6, "epsilon": 8.0}
    study = Study.parse(document | {"deadline": DEADLINE, "parties": parties, "queries": [query]})
    write_invitations(study, state)
    (state / "north.study.toml").rename(folder / "north.study.toml")
    visitor = Visitor(page_process)
    assert 'name="relay"' not in visitor.get("/join")
    visitor.post("/join", visitor.decided())
    others = []
    try:
        for name in ("south", "lab"):
            words = ["join", state / f"{name}.study.toml", "--as", name, "--key", state / f"{name}.key"]
            others.append(Process("tpmdp", *words, "--data", state / f"{name}.csv", "--json"))
        for process in others:
            assert outcome(process)["answers"] is None
    finally:
        for process in others:
            process.kill()
            process.wait()
            process.close()
    wait_until(lambda: "The answer is here." in visitor.get("/join/runs"))
    with Ledger.open(folder / "north.ledger") as ledger:
        assert sum(entry.is_charge for entry in ledger.entries()) == 1


def test_a_party_begins_with_nothing_but_its_invitation(
    five: Five, page_process: RunningPage, open_page: Callable[..., Page]
) -> None:
    key = five.folder / f"{OURS}.key"
    draft, data = five.study.without_keys().toml(), (five.folder / f"{OURS}.csv").read_bytes()
    for name in (f"{OURS}.study.toml", f"{OURS}.csv", f"{OURS}.key"):
        (five.folder / name).unlink()
    window = open_page(page_process, "/join", viewport={"width": 390, "height": 800})
    assert "There is no invitation" in window.inner_text("#study-choice")
    window.set_input_files("#study-file", {"name": "flu.toml", "mimeType": "", "buffer": draft.encode()})
    window.wait_for_selector("#party")
    window.select_option("#party", OURS)
    window.click("button:text-is('Make my key')")
    window.wait_for_selector("#public-line")
    line = window.inner_text("#public-line")
    assert line.startswith(f'{OURS} = "ed25519:')
    assert key.stat().st_mode & 0o777 == 0o600
    window.set_input_files("#data-file", {"name": "mine.csv", "mimeType": "", "buffer": data})
    window.wait_for_selector(f"text=Records: {RECORDS}, as the study states")
    assert "open the new invitation here when it comes" in window.inner_text("#problems")
    assert window.evaluate("document.documentElement.scrollWidth <= window.innerWidth")


def test_copies_of_records_are_refused_and_deleted_and_missing_words_are_framed(
    five: Five, page_process: RunningPage, open_page: Callable[..., Page]
) -> None:
    before = sorted(five.folder.iterdir())
    window = open_page(page_process, "/join", viewport={"width": 390, "height": 800})
    window.wait_for_selector("#ready:has-text('Still open: the ten words')")
    data = (five.folder / f"{OURS}.csv").read_bytes()
    window.set_input_files("#data-file", {"name": "short.csv", "mimeType": "", "buffer": data[:60]})
    window.wait_for_selector("#check:has-text('no copy of it was kept')")
    assert sorted(five.folder.iterdir()) == before
    window.set_input_files("#data-file", {"name": "mine.csv", "mimeType": "", "buffer": data + b"\n"})
    window.wait_for_selector("#ready")
    assert window.input_value("#data") == "mine.csv"
    window.click("button:text-is('Delete this copy')")
    window.click("button:text-is('Keep it')")
    window.click("button:text-is('Delete this copy')")
    window.click("button:text-is('Yes, delete it')")
    window.wait_for_selector("#problems:has-text('No file of records is chosen')")
    assert sorted(five.folder.iterdir()) == before
    window.select_option("#data", f"{OURS}.csv")
    window.click("button:text-is('Take part')")
    window.wait_for_selector("#agreed-problem")
    assert window.locator("[aria-invalid=true]").count() == 3
    assert violations(window) == []
    assert window.evaluate("document.documentElement.scrollWidth <= window.innerWidth")
    window.check("#words-2")
    window.wait_for_selector("#ready:has-text('without having compared')")
    assert five.status() == "unknown"


def test_a_missing_relay_marks_its_field_until_it_is_given(
    page_process: RunningPage, open_page: Callable[..., Page], folder: Path
) -> None:
    from playwright.sync_api import expect

    study = keyed(folder)
    (folder / "north.study.toml").write_text(invitation(study, "north"))
    window = open_page(page_process, "/join")
    field = window.locator("#relay")
    expect(field).to_have_attribute("aria-invalid", "true")
    expect(field).to_have_attribute("aria-describedby", "relay-hint relay-missing")
    assert "The address of the relay is missing" in window.inner_text("#problems")
    field.press_sequentially("https://relay.example.org")
    expect(window.locator("#relay-missing")).to_have_count(0)
    expect(field).to_have_attribute("aria-describedby", "relay-hint")
    assert field.get_attribute("aria-invalid") is None
    assert field.input_value() == "https://relay.example.org"
    window.locator("#ready").wait_for()
    field.fill("")
    expect(field).to_have_attribute("aria-invalid", "true")
