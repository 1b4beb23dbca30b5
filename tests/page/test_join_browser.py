"""Take part in a real browser: five parties, one of them the page, the others on the command line."""

from __future__ import annotations

import json
import random
import re
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from http.cookiejar import CookieJar
from pathlib import Path
from threading import Barrier
from typing import TYPE_CHECKING

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from tests.faults.consortium import free_port
from tests.page.browsing import fields
from tests.page.conftest import RunningPage, running_page
from tests.patience import DEADLINE, HANG_S, wait_until
from tests.processes import Process
from tpmdp import Study
from tpmdp.ledger import Ledger, Status, rounded_up
from tpmdp.report.html_report import read_page
from tpmdp.study.identity import public_text, write_key
from tpmdp.study.invitation import write_invitations
from tpmdp.study.session import key_of

if TYPE_CHECKING:
    from playwright.sync_api import Page

pytestmark = [pytest.mark.browser, pytest.mark.process]

NAMES = ("statistics_office", "hospital_north", "hospital_south", "insurer", "university")
OURS = "hospital_north"  # the page
RECORDS = 60


class Five:
    """Five parties with their files, a relay, and the command line of four of them."""

    def __init__(self, state: Path, folder: Path) -> None:
        self.state, self.folder, self.processes = state, folder, list[Process]()
        state.mkdir()
        draw, parties = random.Random(7), []
        for name in NAMES:
            place = folder if name == OURS else state
            identity = Ed25519PrivateKey.generate()
            write_key(place / f"{name}.key", identity)
            ages = [draw.randint(18, 99) for _ in range(RECORDS)]
            (place / f"{name}.csv").write_text("age\n" + "\n".join(map(str, ages)) + "\n")
            parties.append({"name": name, "epsilon": 1.0, "records": RECORDS, "public_key": public_text(identity)})
        document = {
            "name": "ages",
            "delta": 1e-6,
            "threshold": 2,
            "receivers": ["statistics_office", OURS],
            "deadline": DEADLINE,
            "parties": parties,
            "queries": [
                {"name": "over 64", "kind": "count", "column": "age", "at_least": 65},
                {"name": "ages", "kind": "histogram", "column": "age", "edges": [0, 40, 65, 120]},
            ],
        }
        self.study = Study.parse(document)
        port = free_port()
        self.url = f"http://127.0.0.1:{port}"
        write_invitations(self.study, state, relay=self.url)
        (state / f"{OURS}.study.toml").rename(folder / f"{OURS}.study.toml")
        relay = self.start("relay", "--port", port, "--store", state / "relay.sqlite")
        assert "listening" in relay.line()

    def start(self, *words: object) -> Process:
        self.processes.append(Process("tpmdp", *words))
        return self.processes[-1]

    def join(self, name: str) -> Process:
        place = self.folder if name == OURS else self.state
        words = ["join", place / f"{name}.study.toml", "--as", name, "--key", place / f"{name}.key"]
        return self.start(*words, "--data", place / f"{name}.csv", "--relay", self.url, "--json")

    def join_others(self) -> list[Process]:
        return [self.join(name) for name in NAMES if name != OURS]

    def end(self) -> None:
        for process in self.processes:
            process.kill()
            process.wait()
            process.close()

    @property
    def ledger(self) -> Path:
        return self.folder / f"{OURS}.ledger"

    def status(self) -> Status:
        """What our ledger says about the session."""
        if not self.ledger.exists():
            return "unknown"
        with Ledger.open(self.ledger) as ledger:
            return ledger.status(key_of(self.study.terms()))

    def check_charged_once(self) -> None:
        """The ledger has one charge, as the plan says, and nothing is wrong in it."""
        with Ledger.open(self.ledger) as ledger:
            ledger.verify()
            assert sum(entry.is_charge for entry in ledger.entries()) == 1
            assert ledger.status(key_of(self.study.terms())) == "settled"


@pytest.fixture
def five(tmp_path: Path, folder: Path) -> Iterator[Five]:
    made = Five(tmp_path / "others", folder)
    yield made
    made.end()


def outcome(process: Process) -> dict[str, object]:
    """What `tpmdp join --json` printed at its end."""
    out, errors = process.communicate(HANG_S)
    assert process.wait() == 0, errors
    value: dict[str, object] = json.loads(out.splitlines()[-1])["outcome"]
    return value


def begin(window: Page) -> None:
    """Tick, and take part in the same moment: the change must not cancel the button."""
    window.wait_for_selector("#agreed")
    window.evaluate("document.querySelectorAll('#agreed, [data-action=take-part]').forEach((each) => each.click())")
    window.wait_for_selector(f"li:has-text('{OURS}: you')")


def test_the_page_is_one_of_five_parties(
    five: Five, page_process: RunningPage, open_page: Callable[..., Page], tmp_path: Path
) -> None:
    window = open_page(page_process, "/join")
    window.wait_for_selector("#ready")
    window.click("button:text-is('Take part')")
    window.wait_for_selector("#problem .problem")
    assert "Your agreement is missing: read what it costs you, and tick the box." in window.inner_text("#problem")
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
    begin(open_page(page_process, "/join"))
    wait_until(lambda: five.status() == "held")
    page_process.kill()
    with running_page(five.folder) as again:
        window = open_page(again, "/join")
        assert "this session was begun" in window.inner_text("#offer").lower()
        window.check("#agreed")
        window.click("button:text-is('Go on with the session')")
        window.wait_for_selector(f"li:has-text('{OURS}: you')")
        others = five.join_others()
        window.wait_for_selector("h2:text-is('The answer')")
        for process in others:
            outcome(process)
    five.check_charged_once()


class Visitor:
    """A browser without its window: the token, a cookie and forms."""

    def __init__(self, page: RunningPage) -> None:
        self._url = page.url
        self._opener = urllib.request.build_opener(urllib.request.HTTPCookieProcessor(CookieJar()))
        self._opener.addheaders = [("Origin", page.url)]
        self.post("/enter", {"secret": page.token})

    def post(self, path: str, values: dict[str, str]) -> str:
        body = urllib.parse.urlencode(values).encode()
        with self._opener.open(self._url + path, body, timeout=HANG_S) as answer:
            return str(answer.read(), "utf-8")

    def get(self, path: str) -> str:
        with self._opener.open(self._url + path, timeout=HANG_S) as answer:
            return str(answer.read(), "utf-8")

    def decided(self) -> dict[str, str]:
        """The form as it stands, with the box ticked and the button pressed."""
        html = self.get("/join")
        agreed = re.search(r'name="agreed" value="([^"]+)"', html)
        assert agreed is not None, html
        form = {name: values[0] for name, values in fields(html).items()}
        return form | {"agreed": agreed[1], "action": "take-part"}


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
