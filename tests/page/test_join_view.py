"""Take part, without a browser: nothing is charged without a tick, once and never twice, and secrets stay here."""

from __future__ import annotations

import os
import re
import stat
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from html import unescape
from pathlib import Path
from typing import Any

import pytest

from tests.page.browsing import TestClient, fields, part
from tests.page.joining import AGES, RELAY, Gate, Sent, form_of, keyed, send, ticked
from tests.patience import HANG_S, wait_until
from tests.study.sessions import finish
from tests.study.sessions import study as small_study
from tpmdp import Study
from tpmdp.ledger import Ledger, rounded_up
from tpmdp.page.join_words import invitee_text
from tpmdp.report.html_report import read_page
from tpmdp.study.check import check_party
from tpmdp.study.fingerprint import phrase_of
from tpmdp.study.identity import public_text, read_key
from tpmdp.study.peers import peer_line

STUDY = small_study().toml().encode()


@pytest.fixture
def study(folder: Path) -> Study:
    return keyed(folder)


@pytest.fixture
def gate(monkeypatch: pytest.MonkeyPatch) -> Gate:
    made = Gate()
    monkeypatch.setattr("tpmdp.study.party_folder.take_part", made.take_part)
    return made


# What is shown --------------------------------------------------------------------------------------------------------


def test_an_empty_folder_asks_for_an_invitation(client: TestClient) -> None:
    html = client.get("/join").text
    assert "There is no invitation in your folder yet" in html
    assert "Take part</button>" not in html


def test_an_invitation_is_explained(client: TestClient, folder: Path, study: Study) -> None:
    html = client.get("/join").text
    check = check_party(study, "north", {"age": AGES})
    assert "How many records have age at least 65?" in html
    assert "(you)" in html
    assert f"agree to spend epsilon {rounded_up(check.cost or 0)}" in html
    assert " ".join(phrase_of(study.terms().plan_hash)) in html
    assert "could have invented them" in html
    assert "Nothing stands in the way" not in html  # nobody has compared the words
    assert "Your file and key fit. Still open: the ten words." in html
    assert "This invitation is for <strong><bdi>north</bdi></strong>." in html
    assert str(folder) in html
    assert fields(html)["relay"] == [RELAY]
    for coalition in check.coalitions:
        assert rounded_up(coalition.epsilon) in html
    assert sorted(path.name for path in folder.iterdir()) == ["north.csv", "north.key", "north.study.toml"]


def test_peers_are_compared(client: TestClient, folder: Path, study: Study) -> None:
    lines = [peer_line(party.name, party.public_key or b"") for party in study.parties]
    (folder / "peers.toml").write_text("\n".join(lines))
    assert "has the same names and keys as this study" in client.get("/join").text
    (folder / "peers.toml").write_text(lines[0] + "\n")
    html = client.get("/join").text
    assert "could have invented them" not in html
    assert 'name="words"' not in html
    assert "public_key of south" in html
    assert "Before you can take part" in html


def test_names_from_outside_stay_text(client: TestClient, folder: Path) -> None:
    query = {"name": "<b>", "kind": "count", "column": "<i>", "at_least": 65}
    keyed(folder, name="<script>alert(1)</script>", queries=[query])
    html = client.get("/join").text
    assert "&lt;script&gt;alert(1)&lt;/script&gt;" in html
    assert "<script>alert" not in html
    assert "<b>" not in html
    assert "<i>" not in html


def test_problems_are_those_of_the_check_in_its_order(client: TestClient, folder: Path, study: Study) -> None:
    (folder / "north.csv").write_text("age\n70\nold\n66\n")
    html = client.get("/join").text
    expected = check_party(study, "north", folder / "north.csv", identity=read_key(folder / "north.key")).problems
    shown = re.findall(r"<li>(.*?)</li>", html.split('id="problems"')[1].split("</ol>")[0])
    assert [unescape(each) for each in shown] == [invitee_text(problem) for problem in expected]
    assert len(expected) == 2
    assert "The study expects 4 records, your file has 3. Is it the right file?" in html
    assert "ask the author for an invitation with fewer records" in html
    assert "For your eyes only" in html
    assert "Take part</button>" not in html


def test_two_studies_are_chosen_from(client: TestClient, folder: Path, study: Study) -> None:
    (folder / "other.toml").write_text(study.toml())
    (folder / "source.toml").write_text('sql = "SELECT 1"')
    html = client.get("/join").text
    assert 'value="other.toml"' in html
    assert 'value="source.toml"' not in html
    answer = client.post("/join", data={"study": ["other.toml"]}).text
    assert fields(part(answer, "party-choice"))["party"] == ["north"]  # whose key is here
    assert "How many records" in part(answer, "offer")
    chosen = {"study": ["other.toml"], "party": ["lab"], "party-of": ["other.toml"]}
    assert "Make my key" in part(client.post("/join", data=chosen).text, "key")


# Key ------------------------------------------------------------------------------------------------------------------


def test_a_key_is_made_once_and_its_secret_stays(client: TestClient, folder: Path) -> None:
    (folder / "flu.toml").write_text(small_study().toml())
    chosen = {"study": ["flu.toml"], "party": ["south"], "party-of": ["flu.toml"]}
    html = client.post("/join", data=chosen | {"action": ["make-key"]}).text
    path = folder / "south.key"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    identity, before = read_key(path), path.read_bytes()
    assert peer_line("south", identity.public_key().public_bytes_raw()) in unescape(part(html, "key"))
    assert public_text(identity) in unescape(html)
    secret = before.decode().splitlines()[1]
    assert secret not in html
    again = client.post("/join", data=chosen | {"action": ["make-key"]})
    assert again.status_code == 422
    assert "exists already" in part(again.text, "problem")
    assert path.read_bytes() == before
    assert secret not in client.post("/join", data=chosen).text


# Files ----------------------------------------------------------------------------------------------------------------


def test_an_uploaded_study_is_chosen_and_never_replaces_another(client: TestClient, folder: Path) -> None:
    body = small_study().toml().encode()
    answer = send(client, "study", "flu.toml", body)
    assert fields(part(answer.text, "study-choice"))["study"] == ["flu.toml"]
    assert (folder / "flu.toml").read_bytes() == body
    assert send(client, "study", "flu.toml", body).status_code == 200
    another = body.replace(b'"test"', b'"other"')
    other = send(client, "study", "flu.toml", another)
    assert fields(part(other.text, "study-choice"))["study"] == ["flu-2.toml"]
    assert (folder / "flu.toml").read_bytes() == body
    assert (folder / "flu-2.toml").read_bytes() == another
    assert sorted(os.listdir(folder)) == ["flu-2.toml", "flu.toml"]


def test_a_second_invitation_with_all_keys_takes_the_place_of_the_first(client: TestClient, folder: Path) -> None:
    study = small_study()
    whole = study.with_keys({party.name: bytes([place] * 32) for place, party in enumerate(study.parties)})
    send(client, "study", "flu.toml", study.without_keys().toml().encode())
    answer = send(client, "study", "flu.toml", whole.toml().encode())
    assert fields(part(answer.text, "study-choice"))["study"] == ["flu.toml"]
    assert (folder / "flu.toml").read_text() == whole.toml()
    send(client, "study", "flu.toml", study.without_keys().toml().encode())  # keys are never lost again
    assert (folder / "flu.toml").read_text() == whole.toml()


@pytest.mark.parametrize(
    ("what", "name", "body", "line"),
    [
        ("study", "..%2Fflu.toml", STUDY, "is not the name of a file in the folder"),
        ("study", "..%2Fflu.toml", b"", "is not an invitation: choose the .study.toml file"),
        ("study", "flu.key", b"", "flu.key is not an invitation"),
        ("study", "letter.toml", b"Dear colleague", "letter.toml is not an invitation"),
        ("study", "d_01_start.png", b"\x89PNG", "d_01_start.png is not an invitation"),
        ("study", "flu.toml", b"files = ['/etc/passwd']", "flu.toml is not an invitation"),
        ("study", "flu.toml", b"\xff", "flu.toml is not an invitation"),
        ("study", "flu.toml", b"queries = 1", "flu.toml is an invitation that cannot be read: it has"),
        ("data", "north.toml", b"sql = 'SELECT 1'", "must end in .csv or .parquet"),
        ("data", ".north.csv", b"age", "is not the name of a file in the folder"),
        ("data", "a%00b.csv", b"age", "is not the name of a file in the folder"),
        ("data", "", b"age", "must end in .csv or .parquet"),
    ],
)
def test_other_uploads_are_refused_and_leave_nothing(
    client: TestClient, folder: Path, what: str, name: str, body: bytes, line: str
) -> None:
    answer = send(client, what, name, body)
    assert answer.status_code == 422
    assert line in unescape(answer.text)
    assert os.listdir(folder) == []


def test_a_study_of_more_than_a_mebibyte_is_refused(client: TestClient, folder: Path) -> None:
    assert send(client, "study", "flu.toml", b"#" * ((1 << 20) + 1)).status_code == 413
    assert os.listdir(folder) == []


def test_uploaded_records_are_private(client: TestClient, folder: Path, study: Study) -> None:
    del study
    answer = send(client, "data", "mine.csv", b"age\n1\n2\n3\n4\n")
    assert fields(part(answer.text, "data-list"))["data"] == ["mine.csv"]
    assert stat.S_IMODE((folder / "mine.csv").stat().st_mode) == 0o600
    html = client.post("/join", data=form_of(client, data="mine.csv")).text
    assert "Records: 4, as the study states" in part(html, "check")
    again = send(client, "data", "north.csv", b"age\n0\n")
    assert fields(part(again.text, "data-list"))["data"] == ["north-2.csv"]
    assert (folder / "north.csv").read_text().startswith("age\n70")


# Taking part ----------------------------------------------------------------------------------------------------------


def test_nothing_begins_without_a_tick(client: TestClient, folder: Path, study: Study, gate: Gate) -> None:
    del study
    answer = client.post("/join", data=form_of(client, action="take-part"))
    assert answer.status_code == 422
    assert answer.headers["x-focus"] == "words-1"
    assert part(answer.text, "problem") == ""
    boxes = part(answer.text, "agree")
    assert "Your agreement is missing" in boxes
    assert "Say whether you have compared the ten words." in boxes
    assert boxes.count('aria-invalid="true"') == 3
    assert gate.calls == []
    assert not (folder / "north.ledger").exists()


def test_a_tick_is_for_one_plan(client: TestClient, folder: Path, study: Study, gate: Gate) -> None:
    sent = ticked(client)
    cheaper = study.varied(budget=0.5)
    (folder / "north.study.toml").write_text(cheaper.toml())
    answer = client.post("/join", data=sent)
    assert answer.status_code == 422
    assert "the study or its cost has changed" in answer.text
    assert gate.calls == []


def test_what_is_not_ready_is_refused_by_the_server(client: TestClient, folder: Path, study: Study, gate: Gate) -> None:
    del study
    sent = ticked(client)
    (folder / "north.csv").write_text("age\n70\n")
    answer = client.post("/join", data=sent)
    assert answer.status_code == 422
    assert "The study expects 4 records, your file has 1." in answer.text
    assert gate.calls == []
    assert not (folder / "north.ledger").exists()


@pytest.mark.parametrize(
    ("relay", "line"),
    [
        ("", "The address of the relay is missing. Ask the author of the study"),
        ("http://192.0.2.1", "must be https off this machine"),
        ("file:///etc/passwd", "is not an address"),
        ("https://user@host", "is not an address"),
    ],
)
def test_the_relay_is_checked(
    client: TestClient, folder: Path, study: Study, gate: Gate, relay: str, line: str
) -> None:
    del study
    answer = client.post("/join", data=ticked(client) | {"relay": [relay]})
    assert answer.status_code == 422
    assert line in unescape(answer.text)
    assert gate.calls == []
    assert not (folder / "north.ledger").exists()


def test_plain_http_needs_its_own_tick(client: TestClient, study: Study, gate: Gate) -> None:
    del study
    sent = ticked(client) | {"relay": ["http://192.0.2.1"], "plain-http": ["yes"]}
    assert client.post("/join", data=sent).status_code == 200
    wait_until(lambda: gate.calls)
    assert gate.calls[0]["relay"] == "http://192.0.2.1"
    gate.open.set()


def test_many_tabs_at_once_begin_one_session(client: TestClient, study: Study, gate: Gate) -> None:
    del study
    sent, barrier = ticked(client), threading.Barrier(6)

    def press(_: int) -> Any:
        barrier.wait(HANG_S)
        return client.post("/join", data=sent)

    with ThreadPoolExecutor(6) as pool:
        answers = list(pool.map(press, range(6)))
    assert {answer.status_code for answer in answers} == {200}
    assert all('id="run-1-body"' in part(answer.text, "run") for answer in answers)
    wait_until(lambda: gate.calls)
    assert client.post("/join", data=sent).status_code == 200
    assert len(gate.calls) == 1
    assert 'id="run-1-body"' in client.get("/join").text  # a new tab sees it
    gate.open.set()


def until_it_stops(client: TestClient) -> str:
    return wait_until(lambda: text if "Try again" in (text := client.get("/join/runs").text) else "")


def test_a_failed_session_says_why_and_is_tried_again(client: TestClient, study: Study, gate: Gate) -> None:
    del study
    gate.open.set()
    client.post("/join", data=ticked(client))
    html = until_it_stops(client)
    assert "the deadline passed; south is missing" in part(html, "run-1-body")
    assert "Nothing was charged" in part(html, "run-1-body")
    gate.open.clear()
    again = client.post(
        "/join", data=form_of(client, action="again")
    )  # the tick is remembered, as its plan is the same
    assert again.status_code == 200
    assert 'id="run-2-body"' in part(again.text, "run")
    wait_until(lambda: len(gate.calls) == 2)
    gate.open.set()
    wait_until(lambda: "run-2-body" in until_it_stops(client))
    change = client.post("/join", data=form_of(client, action="change")).text
    assert fields(part(change, "relay-fields"))["relay"] == [RELAY]
    parts = ("study-choice", "party-choice", "data-choice", "relay-fields", "agree")
    typed = {key: value for each in parts for key, value in fields(part(change, each)).items()}
    typed["relay"] = ["http://127.0.0.1:9"]
    later = client.post("/join", data=typed).text  # what is typed does not close the form
    assert "Take part" in part(later, "agree")
    third = client.post("/join", data=typed | {"action": ["take-part"]})
    assert third.status_code == 200, third.text
    wait_until(lambda: len(gate.calls) == 3)
    assert gate.calls[-1]["relay"] == "http://127.0.0.1:9"


def test_a_mistake_of_ours_is_one_line_without_a_traceback(client: TestClient, study: Study, gate: Gate) -> None:
    del study
    gate.error = RuntimeError("secret detail")
    gate.open.set()
    client.post("/join", data=ticked(client))
    html = until_it_stops(client)
    assert "that is a mistake in tpmdp" in html
    assert "secret detail" not in html


# A session that is finished -------------------------------------------------------------------------------------------


@pytest.fixture
def finished(folder: Path) -> Callable[[str], Sent]:
    """A finished session of all three parties in the folder; gives the form of one of them."""
    done = finish(small_study(), folder)
    (folder / "flu.toml").write_text(done.study.toml())
    return lambda name: {"study": ["flu.toml"], "party": [name], "party-of": ["flu.toml"]}


def charges(path: Path) -> int:
    with Ledger.open(path) as ledger:
        return sum(entry.is_charge for entry in ledger.entries())


def test_a_finished_session_shows_its_outcome_again(
    client: TestClient, folder: Path, finished: Callable[[str], Sent]
) -> None:
    html = part(client.post("/join", data=finished("north")).text, "run")
    assert "nothing new was sent or charged" in html
    assert "The answer" in html
    assert "<svg" in html
    receipt = part(client.post("/join", data=finished("south")).text, "run")
    assert "You are not a receiver" in receipt
    assert "<svg" not in receipt
    assert charges(folder / "north.ledger") == 1


def test_reports_come_with_and_without_the_answer(
    client: TestClient, tmp_path: Path, finished: Callable[[str], Sent]
) -> None:
    for name, has_answer in (("report.html", False), ("report-with-answer.html", True)):
        more = "-with-answer" if has_answer else ""
        answer = client.post(f"/join/{name}", data=finished("north"))
        assert answer.headers["content-disposition"] == f'attachment; filename="report-test-session-1{more}.html"'
        (tmp_path / name).write_bytes(answer.content)
        record, is_same = read_page(tmp_path / name)
        assert is_same
        assert (record.answers is not None) is has_answer
    refused = client.post("/join/report-with-answer.html", data=finished("south"))
    assert refused.status_code == 422
    assert "has no answer of this session" in refused.text


def test_a_ledger_that_cannot_be_read_is_a_problem_in_words(
    client: TestClient, folder: Path, finished: Callable[[str], Sent]
) -> None:
    (folder / "north.ledger").write_bytes(b"not a ledger" * 100)
    html = client.post("/join", data=finished("north")).text
    assert "north.ledger" in part(html, "check")
    assert "Before you can take part" in part(html, "check")


@pytest.mark.parametrize("name", ["../flu.toml", "/etc/passwd", "absent.toml", ".hidden"])
def test_files_elsewhere_are_not_opened(client: TestClient, study: Study, name: str) -> None:
    del study
    answer = client.post("/join", data={"study": [name]})
    assert answer.status_code == 422
    assert "Traceback" not in answer.text
    data = client.post("/join", data=form_of(client, data=name))
    assert data.status_code == 422 or "does not exist" in part(data.text, "check")
