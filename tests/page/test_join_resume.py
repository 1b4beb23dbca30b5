"""Sessions that were begun before: the way back to them, and the way out of them."""

from __future__ import annotations

import re
from html import unescape
from pathlib import Path

import pytest

from tests.page.browsing import TestClient, fields, part
from tests.page.joining import AGES, RELAY, Gate, form_of, keyed, ticked
from tests.patience import wait_until
from tpmdp import Ledger, Study
from tpmdp.page.join_resume import keep_said
from tpmdp.study.begun import withdrawal_text
from tpmdp.study.contribution import contribute
from tpmdp.study.identity import read_key
from tpmdp.study.invitation import invitation
from tpmdp.study.session import SessionAccount, key_of, open_or_create_ledger


@pytest.fixture
def study(folder: Path) -> Study:
    return keyed(folder)


@pytest.fixture
def gate(monkeypatch: pytest.MonkeyPatch) -> Gate:
    waiting = Gate()
    monkeypatch.setattr("tpmdp.study.party_folder.take_part", waiting.take_part)
    return waiting


def text_of(html: str) -> str:
    """What people read: without tags."""
    return " ".join(unescape(re.sub("<[^>]+>", " ", html)).split())


def begin(folder: Path, study: Study, *, agrees: bool = True, is_charged: bool = False, said: bool = False) -> Ledger:
    """North holds the session, and has perhaps agreed and paid, before its page died."""
    import numpy as np

    identity = read_key(folder / "north.key")
    ledger = open_or_create_ledger(folder / "north.ledger", study, "north", identity)
    terms = study.terms()
    account = SessionAccount(study, terms, "north", identity=identity, ledger=ledger)
    contribution = contribute(study, terms, "north", {"age": np.array(AGES, dtype=float)})
    account.hold(contribution)
    if agrees:
        account.agree()
    if is_charged:
        account.charge(contribution)
    if said:
        words = f"compared {terms.plan_hash.hex()}"
        assert keep_said(ledger, key_of(terms), {"words": words, "relay": "http://127.0.0.1:7", "plain_http": True})
    return ledger


@pytest.mark.parametrize("is_charged", [False, True])
def test_a_session_that_was_interrupted_stands_on_top_and_needs_no_second_agreement(
    client: TestClient, folder: Path, study: Study, gate: Gate, is_charged: bool
) -> None:
    (folder / "other.toml").write_text(study.without_keys().toml().replace('"test"', '"another"', 1))
    begin(folder, study, is_charged=is_charged, said=True).close()
    html = client.get("/join").text
    banner = text_of(html.split('id="interrupted"')[1].split("</button>")[0])
    assert re.search(r"You agreed to test / session 1 as north on 20\d\d-.* UTC, and it was interrupted", banner)
    assert "The others may be waiting" in banner
    assert ("It was charged, so going on costs nothing more" in banner) is is_charged
    decide = text_of(html.split('id="agree"')[1])
    assert "You agreed to this session on 20" in decide
    assert "You had compared the ten words" in decide
    assert "If you decline, you need do nothing more" not in decide
    assert 'name="agreed"' not in html
    assert ("Withdraw ..." in decide) is not is_charged
    answer = client.post("/join", data=form_of(client, action="go-on=north.study.toml|north"))
    assert answer.status_code == 200, answer.text
    assert "How the session stands" in part(answer.text, "run") or "The session" in part(answer.text, "run")
    assert part(answer.text, "interrupted") == ""
    wait_until(lambda: len(gate.calls) == 1)
    assert gate.calls[0]["relay"] == "http://127.0.0.1:7"  # as it was said then
    gate.open.set()


def test_a_session_without_its_invitation_says_what_is_missing(client: TestClient, folder: Path, study: Study) -> None:
    begin(folder, study).close()
    (folder / "north.study.toml").unlink()
    html = text_of(client.get("/join").text)
    assert "You agreed to test / session 1 as north on" in html
    assert "Its invitation is not in this folder: bring it below" in html
    (folder / "north.study.toml").write_text(invitation(study, "lab", relay=RELAY))
    assert "Look at it first" in client.get("/join").text


def test_what_was_held_and_not_agreed_to_is_agreed_to_first(client: TestClient, folder: Path, study: Study) -> None:
    begin(folder, study, agrees=False).close()
    html = client.get("/join").text
    assert "You began test / session 1" in text_of(html)
    assert 'data-action="go-on=' not in html
    assert 'name="agreed"' in html
    assert "Withdraw ..." in html
    refused = client.post("/join", data=form_of(client, action="go-on=north.study.toml|north"))
    assert refused.status_code == 422
    assert "Say whether you have compared the ten words" in refused.text


def test_a_party_withdraws_and_is_told_what_it_means(client: TestClient, folder: Path, study: Study) -> None:
    begin(folder, study).close()
    place = "north.study.toml|north"
    asked = client.post("/join", data=form_of(client, action=f"withdraw={place}"))
    assert asked.headers["x-focus"] == "withdraw-now"
    assert withdrawal_text(study) in unescape(part(asked.text, "agree"))
    with Ledger.open(folder / "north.ledger") as ledger:
        assert ledger.status(key_of(study.terms())) == "held"
    done = client.post("/join", data=form_of(client, action=f"withdraw-now={place}"))
    assert "You have withdrawn from" in part(done.text, "run")
    assert "Once all have agreed, the others are charged, and without you they get no answer." in done.text
    with Ledger.open(folder / "north.ledger") as ledger:
        assert ledger.status(key_of(study.terms())) == "cancelled"
        assert ledger.spent().sessions == ledger.spent().held == 0
    html = text_of(client.get("/join").text)
    assert "was interrupted" not in html
    assert "You have withdrawn from this session. To take part after all" in html
    assert "(north.study.toml)" in html
    assert "withdrawn" in html


def test_a_session_that_was_charged_cannot_be_withdrawn(client: TestClient, folder: Path, study: Study) -> None:
    begin(folder, study, is_charged=True).close()
    answer = client.post("/join", data=form_of(client, action="withdraw-now=north.study.toml|north"))
    assert answer.status_code == 422
    assert "was charged in the meantime, so it cannot be withdrawn" in answer.text
    with Ledger.open(folder / "north.ledger") as ledger:
        assert ledger.status(key_of(study.terms())) == "charged"


@pytest.mark.parametrize("place", ["../x|north", "north.study.toml|nobody", "", "|", "north.study.toml|../north"])
def test_other_places_are_refused(client: TestClient, folder: Path, study: Study, place: str) -> None:
    begin(folder, study).close()
    for word in ("go-on", "look-at", "withdraw", "withdraw-now"):
        answer = client.post("/join", data=form_of(client, action=f"{word}={place}"))
        assert answer.status_code == 422
        assert "Traceback" not in answer.text


def test_withdrawing_ends_a_session_that_runs_here(client: TestClient, folder: Path, study: Study, gate: Gate) -> None:
    client.post("/join", data=ticked(client))
    wait_until(lambda: len(gate.calls) == 1)
    begin(folder, study).close()  # what the session does
    assert "Withdraw ..." in client.get("/join/runs").text
    answer = client.post("/join", data=form_of(client, action="withdraw-now=north.study.toml|north"))
    assert "You have withdrawn" in part(answer.text, "run")
    assert part(client.get("/join/runs").text, "run-1-news") == "You have withdrawn."
    gate.open.set()
    assert "has stopped" not in client.get("/join/runs").text


def test_the_list_names_study_party_and_standing(client: TestClient, folder: Path, study: Study) -> None:
    (folder / "z.toml").write_text(study.without_keys().toml())
    labels = re.findall(r"<option [^>]*>([^<]*)</option>", client.get("/join").text)
    assert "test / session 1, for north (north.study.toml)" in labels
    assert "test / session 1, for north: keys are missing (z.toml)" in labels
    begin(folder, study).close()
    labels = re.findall(r"<option [^>]*>([^<]*)</option>", client.get("/join").text)
    assert "test / session 1, for north: begun, not finished (north.study.toml)" in labels
    assert fields(client.get("/join").text)["study"] == ["north.study.toml"]
