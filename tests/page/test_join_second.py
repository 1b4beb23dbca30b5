"""Take part with a second invitation: what it changes, what is missing, and one that does not fit what was done."""

from __future__ import annotations

import math
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.page.browsing import TestClient, fields, part
from tests.page.joining import AGES, RELAY, Gate, Sent, form_of, keyed, send, ticked
from tests.page.test_join_decision import text_of
from tests.patience import wait_until
from tests.study.sessions import finish
from tests.study.sessions import study as small_study
from tpmdp import Study
from tpmdp.ledger import rounded_up
from tpmdp.page.join_resume import label_id
from tpmdp.study.check import check_party
from tpmdp.study.contribution import contribute
from tpmdp.study.expectation import expect
from tpmdp.study.identity import read_key
from tpmdp.study.invitation import invitation
from tpmdp.study.session import SessionAccount, open_or_create_ledger, party_release

FILE = "north.study.toml"


@pytest.fixture
def study(folder: Path) -> Study:
    return keyed(folder, contact="Ada, 555 17")


@pytest.fixture
def gate(monkeypatch: pytest.MonkeyPatch) -> Gate:
    waiting = Gate()
    monkeypatch.setattr("tpmdp.study.party_folder.take_part", waiting.take_part)
    return waiting


def bring(client: TestClient, text: str, form: Sent) -> tuple[str, str]:
    """Upload an invitation, and send the form as the page's script does: what is said, and the new parts."""
    answer = send(client, "study", FILE, text.encode())
    assert answer.status_code == 200, answer.text
    chosen = fields(part(answer.text, "study-choice"))["study"]
    html = client.post("/join", data=form | {"study": chosen, "action": ["brought"]}).text
    assert part(html, "study-changes") == part(answer.text, "study-changes")  # the next answer does not wipe it out
    return text_of(part(html, "study-changes")), html


def test_the_relay_of_a_second_invitation_is_taken_unless_one_was_typed(
    client: TestClient, folder: Path, study: Study
) -> None:
    first = invitation(study.without_keys(), "north")
    for typed, expected in (({}, RELAY), ({"relay": ["https://mine.example.org"]}, "https://mine.example.org")):
        (folder / FILE).write_text(first)
        form = fields(client.get("/join").text)
        assert form["relay"] == [""]
        said, html = bring(client, invitation(study, "north", relay=RELAY), form | typed)
        assert fields(part(html, "relay-fields"))["relay"] == [expected]
        assert said == "Replaces the invitation you had: keys and relay added, all else the same."


def test_what_another_study_changes_is_said_and_the_first_file_stays(
    client: TestClient, folder: Path, study: Study
) -> None:
    before = (folder / FILE).read_text()
    parties = [{"name": "north", "epsilon": 3.0, "records": 4}, {"name": "south", "epsilon": 2.0, "records": 3}]
    other = small_study(
        deadline="30m", contact="Ada, 555 17", parties=[*parties, {"name": "lab", "epsilon": 3.0, "records": 2}]
    )
    same_keys = other.with_keys({party.name: party.public_key or b"" for party in study.parties})
    said, html = bring(client, invitation(same_keys, "north", relay=RELAY), form_of(client))
    costs = [rounded_up(expect(each).charges["north"]) for each in (study, same_keys)]
    assert said.startswith("This is not the invitation you had. What differs: epsilon of north 1 -> 3, your cost")
    assert f"your cost {costs[0]} -> {costs[1]}. Ask its sender why." in said
    assert "The file that you had, north.study.toml , is still there." in said
    assert (folder / FILE).read_text() == before
    assert fields(part(html, "study-choice"))["study"] == ["north.study-2.toml"]


def test_a_changed_key_is_no_added_key(client: TestClient, folder: Path, study: Study) -> None:
    some: dict[str, Any] = {"north": None, **keys_of(study, "south", "lab")}
    (folder / FILE).write_text(invitation(study.with_keys(some), "north"))
    others = {**keys_of(study, "north", "lab"), "south": bytes(32)}
    said, _ = bring(client, invitation(study.with_keys(others), "north"), form_of(client))
    assert said == "Replaces the invitation you had: keys added, another public key of south."


def keys_of(study: Study, *names: str) -> dict[str, Any]:
    return {name: study.party(name).public_key for name in names}


def test_the_same_invitation_again_is_nothing_new(client: TestClient, folder: Path, study: Study) -> None:
    (folder / FILE).write_text(invitation(study, "north"))
    form = form_of(client)
    said, html = bring(client, invitation(study, "north", relay=RELAY), form)
    assert said == "Replaces the invitation you had: relay added, all else the same."
    assert fields(part(html, "relay-fields"))["relay"] == [RELAY]
    said, _ = bring(client, invitation(study, "north", relay=RELAY), form)
    assert said == "This is the invitation that you had: nothing has changed."


def test_a_missing_relay_stands_in_the_way_and_at_its_field(
    client: TestClient, folder: Path, study: Study, gate: Gate
) -> None:
    sent = ticked(client)
    line = "The address of the relay is missing. Ask the author (Ada, 555 17), or whoever runs it."
    (folder / FILE).write_text(invitation(study, "north"))
    html = client.get("/join").text
    assert f"<li>{line}</li>" in html.split('id="problems"')[1]
    assert "Nothing stands in the way" not in html
    assert f'data-marks="relay">{line}' in html
    assert "Take part</button>" not in html
    refused = client.post("/join", data=sent | {"relay": [""]})
    assert refused.status_code == 422
    assert part(refused.text, "problem") == ""  # it stands at the field
    assert refused.headers["x-focus"] == "relay"
    assert line in part(refused.text, "relay-problem")
    assert 'data-part="relay-fields"' not in refused.text
    assert gate.calls == []
    typed = client.post("/join", data=sent | {"relay": ["https://a"], "action": [""]})
    assert part(typed.text, "relay-problem") == ""
    assert "Take part</button>" in part(typed.text, "agree")


def test_a_wrong_relay_is_said_at_its_field(client: TestClient, study: Study, gate: Gate) -> None:
    del study
    answer = client.post("/join", data=ticked(client) | {"relay": ["nowhere"]})
    assert 'data-field="relay"' in part(answer.text, "problem")
    assert gate.calls == []


# A file that was changed after the session ----------------------------------------------------------------------------


def test_a_changed_file_of_a_finished_session_is_no_finished_session(client: TestClient, folder: Path) -> None:
    done = finish(small_study(), folder)
    (folder / FILE).write_text(invitation(done.study, "north", relay=RELAY))
    html = client.get("/join").text
    assert f": finished ({FILE})</option>" in html
    assert "This is not the study you took part in" not in html
    (folder / FILE).write_text(invitation(done.study.varied(budget=0.5), "north", relay=RELAY))
    html = client.get("/join").text
    assert f": differs from the session you finished ({FILE})</option>" in html
    line = "This is not the study you took part in. Ask the author for a new session number, or ignore this file."
    assert line in part(client.post("/join", data=fields(html)).text, "study-changes")
    assert "set another number" not in html  # which a party that is invited cannot do
    assert "Take part</button>" not in html


def test_the_list_of_invitations_follows_the_session(
    client: TestClient, folder: Path, study: Study, gate: Gate
) -> None:
    sent = ticked(client)
    gate.open.set()
    client.post("/join", data=sent)
    wait_until(lambda: "Try again" in client.get("/join/runs").text)
    place = f'id="{label_id(FILE)}"'
    assert place in client.get("/join").text
    before = part(client.get("/join/runs").text, label_id(FILE))
    assert "finished" not in before
    finish_here(folder, study)
    assert ": finished" in part(client.get("/join/runs").text, label_id(FILE))


def finish_here(folder: Path, study: Study) -> None:
    """North's session ends elsewhere, with the same ledger."""
    identity = read_key(folder / "north.key")
    with open_or_create_ledger(folder / "north.ledger", study, "north", identity) as ledger:
        contribution = contribute(study, study.terms(), "north", {"age": np.array(AGES, dtype=float)})
        account = SessionAccount(study, study.terms(), "north", identity=identity, ledger=ledger)
        account.charge(account.hold(contribution))
        account.settle(party_release(contribution, np.zeros(1, dtype=np.int64), sent=1))


# The worst coalition --------------------------------------------------------------------------------------------------


def test_why_a_coalition_is_the_worst_is_said(client: TestClient, study: Study) -> None:
    html = text_of(client.get("/join").text).replace("\u00a0", " ")
    terms = study.terms()
    squares = terms.sigma.astype(float) ** 2
    (worst,) = [each for each in check_party(study, "north", None).coalitions if each.is_within]
    share = 100 * squares[study.index(worst.members[0])] / squares.sum()
    assert f"It adds {share:.0f} % of the noise and can subtract it. Noise of ±" in html
    assert "is left; your budget needs ±" in html


def test_sizes_of_noise_are_those_of_an_answer_that_counts(client: TestClient, folder: Path) -> None:
    mean = {"name": "mean age", "kind": "mean", "column": "age", "low": 0, "high": 120}
    count = {"name": "many", "kind": "count", "column": "age", "at_least": 65}
    study = keyed(folder, queries=[mean, count])
    html = text_of(client.get("/join").text).replace("\u00a0", " ")
    noise = next(each.noise for each in expect(study).queries if each.query.name == "many")
    terms = study.terms()
    squares = terms.sigma.astype(float) ** 2
    (worst,) = [each for each in check_party(study, "north", None).coalitions if each.is_within]
    left = noise * math.sqrt(1 - squares[study.index(worst.members[0])] / squares.sum())
    shown = re.search(r"Noise of ± ([0-9.]+) .*? is left; your budget needs .*? That is for many\.", html)
    assert shown is not None
    assert float(shown[1]) == pytest.approx(left, rel=0.02)
    (folder / "north.key").unlink()
    keyed(folder, queries=[mean])
    assert "The noise that is left is 1.00 times what your budget needs." in text_of(client.get("/join").text)


def test_other_coalitions_that_are_as_bad_are_not_passed_over(client: TestClient, folder: Path) -> None:
    parties = [{"name": name, "epsilon": 1.0, "records": 4} for name in ("north", "south", "lab", "east", "west")]
    keyed(folder, parties=parties, threshold=2, receivers=["south"])
    html = text_of(client.get("/join").text)
    assert "south with any one other party at worst" in html
    (folder / "north.key").unlink()
    keyed(folder, parties=parties, threshold=2, receivers="all")
    assert "any 2 other parties at worst" in text_of(client.get("/join").text)


# Plain words ----------------------------------------------------------------------------------------------------------


def test_the_summary_says_what_is_asked_and_who_gets_it(client: TestClient, folder: Path) -> None:
    stay = {"name": "mean stay", "kind": "mean", "column": "age", "low": 0, "high": 120}
    ages = {"name": "ages", "kind": "histogram", "column": "age", "edges": [0, 18, 65]}
    keyed(folder, queries=[stay, ages], receivers="all")
    html = client.get("/join").text
    summary = text_of(html.split('id="in-short"')[1].split("</dl>")[0])
    assert "mean of age ; number of records by age" in summary
    assert "all 3 parties, you included, get the answer" in summary
    assert "It needs the column age." in html
    (folder / "north.key").unlink()
    keyed(folder, receivers=["south"])
    summary = text_of(client.get("/join").text.split('id="in-short"')[1].split("</dl>")[0])
    assert "3 parties, you included; south gets the answer; you get a receipt" in summary


def test_a_file_with_semicolons_is_told_the_columns(client: TestClient, study: Study) -> None:
    del study
    form = form_of(client)
    stored = fields(part(send(client, "data", "x.csv", b"age;days\n1;2\n").text, "data-list"))["data"]
    html = client.post("/join", data=form | {"data": stored, "action": ["brought-data"]}).text
    assert "separate with commas" in part(html, "check")
    assert "It needs the column age. A CSV file names it in its first line, with commas" in part(html, "check")


def test_no_heading_stands_twice(client: TestClient, study: Study) -> None:
    del study
    html = client.get("/join").text
    headings = re.findall(r"<(?:h2|summary)[^>]*>(.*?)</", html)
    assert len(headings) == len(set(headings))
    assert "Each party and its worst coalition" not in headings


@pytest.mark.parametrize("path", ["/plan", "/study", "/join", "/verify", "/watch"])
def test_every_view_says_where_to_begin(client: TestClient, path: str) -> None:
    html = client.get(path).text
    assert "I was invited" in html
    assert "I check a report" in html
    assert ("without showing anybody a record" in html) is (path in ("/plan", "/join"))
