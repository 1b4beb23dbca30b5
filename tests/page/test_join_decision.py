"""The decision in Take part: limits, the ten words, copies of records, and what an invited party is told."""

from __future__ import annotations

import re
from html import unescape
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from tests.page.browsing import TestClient, fields, part
from tests.page.joining import Gate, form_of, keyed, send, ticked
from tests.patience import wait_until
from tests.study.sessions import finish
from tests.study.sessions import study as small_study
from tpmdp import Ledger, Study
from tpmdp.errors import InputError
from tpmdp.ledger import promise, square_up
from tpmdp.page.folder import Folder
from tpmdp.page.join_files import delete_copy
from tpmdp.report.promise import best_guess, coalition_guess, percent_up
from tpmdp.study.check import check_party
from tpmdp.study.identity import read_key, write_key
from tpmdp.study.invitation import invitation
from tpmdp.study.peers import peer_line

GOOD = b"age\n1\n2\n3\n4\n"


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


# The limit ------------------------------------------------------------------------------------------------------------


def small_ledger(folder: Path, epsilon: float) -> None:
    with Ledger.create(folder / "north.ledger", "north", epsilon, 1e-6) as ledger:
        ledger.bind(read_key(folder / "north.key").public_key().public_bytes_raw())


def test_over_the_limit_the_page_says_decline_and_gives_no_command(
    client: TestClient, folder: Path, study: Study, gate: Gate
) -> None:
    del study
    sent = ticked(client)
    small_ledger(folder, 0.25)
    html = client.get("/join").text
    assert "This goes over your limit" in html
    assert "Decline; or ask whoever decided the limit to raise it" in html
    assert "that weakens the protection of every record" in html
    assert "ledger limit" not in html
    assert '<p class="big over">' in html
    assert "over your limit</strong>" in html  # in the summary, too
    assert "Take part</button>" not in html
    answer = client.post("/join", data=sent)
    assert answer.status_code == 422
    assert "This goes over your limit" in part(answer.text, "problem")
    assert "ledger limit" not in part(answer.text, "problem")
    assert gate.calls == []


def test_what_the_cost_means_stands_beside_it(client: TestClient, folder: Path, study: Study) -> None:
    html = text_of(client.get("/join").text)
    assert "You spend all of your limit: your ledger then refuses every further study" in html
    assert "The limit 1 comes from the study, so its author chose it." in html
    assert "Your ledger counts at delta 1e-06, where this session is 1. Afterwards: no room" in html
    terms = study.terms()
    assert f"right at most {percent_up(best_guess(*terms.charge(0)))} of the time" in html
    small_ledger(folder, 5.0)
    own = text_of(client.get("/join").text)
    assert "You spend all" not in own
    assert "comes from the study" not in own


def test_best_guesses_of_coalitions_belong_to_their_epsilons(study: Study) -> None:
    check, terms = check_party(study, "lab", None), study.terms()
    assert len(check.coalitions) == 2
    for coalition in check.coalitions:
        mu, closeness = terms.charge(2, len(coalition.members))
        assert promise(square_up(mu), closeness, check.offered[1]) == coalition.epsilon
        assert coalition_guess(terms, 2, coalition) == best_guess(mu, closeness)
    assert coalition_guess(terms, 2, check.coalitions[0]) < coalition_guess(terms, 2, check.coalitions[1])


# The ten words --------------------------------------------------------------------------------------------------------


def test_without_a_word_about_the_words_nothing_begins(
    client: TestClient, folder: Path, study: Study, gate: Gate
) -> None:
    del study
    sent = ticked(client)
    for words in ("", "compared", "compared " + "0" * 64):
        answer = client.post("/join", data=sent | {"words": [words]})
        assert answer.status_code == 422
        assert "Say whether you have compared the ten words." in part(answer.text, "agree")
        assert "Your agreement" not in part(answer.text, "agree")  # that box is ticked
    assert gate.calls == []
    assert not (folder / "north.ledger").exists()


@pytest.mark.parametrize(
    ("said", "line"), [("compared", "Nothing stands"), ("not compared", "without having compared")]
)
def test_what_was_said_about_the_words_is_shown_and_remembered(
    client: TestClient, study: Study, gate: Gate, said: str, line: str
) -> None:
    value = f"{said} {study.terms().plan_hash.hex()}"
    html = client.post("/join", data=form_of(client, words=value)).text
    assert line in part(html, "check")
    assert fields(part(html, "agree"))["words"] == [value]
    assert client.post("/join", data=ticked(client) | {"words": [value]}).status_code == 200
    wait_until(lambda: gate.calls)
    gate.open.set()
    wait_until(lambda: "Try again" in client.get("/join/runs").text)
    gate.open.clear()
    again = client.post("/join", data={"action": ["again"], "study": ["north.study.toml"], "party": ["north"]})
    assert again.status_code == 200, again.text
    wait_until(lambda: len(gate.calls) == 2)
    gate.open.set()


def test_pinned_keys_need_no_words(client: TestClient, folder: Path, study: Study, gate: Gate) -> None:
    lines = [peer_line(party.name, party.public_key or b"") for party in study.parties]
    sent = ticked(client)
    del sent["words"]
    (folder / "peers.toml").write_text("\n".join(lines))
    assert "Nothing stands in the way" in client.get("/join").text
    assert client.post("/join", data=sent).status_code == 200
    wait_until(lambda: gate.calls)
    gate.open.set()


# Copies of records ----------------------------------------------------------------------------------------------------


def bring(client: TestClient, name: str, body: bytes) -> Any:
    """Upload a file, and send the form as the page's script does."""
    sent = form_of(client)
    answer = send(client, "data", name, body)
    stored = fields(part(answer.text, "data-list"))["data"]
    return client.post("/join", data=sent | {"data": stored, "action": ["brought-data"]})


@pytest.mark.parametrize("body", [b"age\n1\n2\n", b"age\n1\n2\n3\nold\n", b"days\n1\n2\n3\n4\n", b"\xff\xfe\0", b""])
def test_a_file_that_does_not_fit_is_not_kept(client: TestClient, folder: Path, study: Study, body: bytes) -> None:
    del study
    before = sorted(folder.iterdir())
    answer = bring(client, "wrong.csv", body)
    assert answer.status_code == 200
    shown = part(answer.text, "check")
    assert "does not fit, and no copy of it was kept" in shown
    assert str(folder) not in shown
    assert sorted(folder.iterdir()) == before


def test_a_file_that_fits_is_kept_and_deleted_after_a_question(client: TestClient, folder: Path, study: Study) -> None:
    del study
    html = bring(client, "mine.csv", GOOD).text
    assert 'data-action="delete-data=mine.csv"' in html
    sent = form_of(client, data="mine.csv")
    asked = client.post("/join", data=sent | {"action": ["delete-data=mine.csv"]}).text
    assert "This cannot be undone" in part(asked, "data-choice")
    assert (folder / "mine.csv").exists()
    stays = client.post("/join", data=sent | {"action": ["keep-data"]}).text
    assert "This cannot be undone" not in stays
    gone = client.post("/join", data=sent | {"action": ["delete-data-now=mine.csv"]}).text
    assert not (folder / "mine.csv").exists()
    assert "mine.csv" not in part(gone, "data-choice")


def test_the_owners_own_file_is_never_taken_for_a_copy(client: TestClient, folder: Path, study: Study) -> None:
    del study
    body = b"age\n1\n"
    (folder / "old.csv").write_bytes(body)
    answer = bring(client, "old.csv", body)
    assert (folder / "old.csv").read_bytes() == body  # it was there before
    assert "no copy of it was kept" not in answer.text


@pytest.mark.parametrize("name", ["north.key", "north.study.toml", "../north.csv", "/etc/passwd", "", "none.csv"])
def test_nothing_but_records_of_the_folder_is_deleted(
    client: TestClient, folder: Path, study: Study, name: str
) -> None:
    del study
    before = sorted(folder.iterdir())
    answer = client.post("/join", data=form_of(client) | {"action": [f"delete-data-now={name}"]})
    assert answer.status_code == 422
    assert sorted(folder.iterdir()) == before
    with pytest.raises(InputError, match="is not a file of records in the folder"):
        delete_copy(Folder(folder), name)


def test_records_in_use_stay(client: TestClient, folder: Path, study: Study, gate: Gate) -> None:
    del study
    client.post("/join", data=ticked(client))
    wait_until(lambda: gate.calls)
    answer = client.post("/join", data=form_of(client) | {"action": ["delete-data-now=north.csv"]})
    assert "is in use by a session" in part(answer.text, "problem")
    assert (folder / "north.csv").exists()
    gate.open.set()


# Whom the invitation is for, and what it says -------------------------------------------------------------------------


def test_the_invitation_of_another_party_makes_no_key(client: TestClient, folder: Path, study: Study) -> None:
    (folder / "letter.toml").write_text(invitation(study, "south"))
    html = client.post("/join", data={"study": ["letter.toml"]}).text
    assert fields(part(html, "party-choice"))["party"] == ["south"]  # though the key of north is here
    assert "This invitation is for <strong><bdi>south</bdi></strong>." in html
    other = {"study": ["letter.toml"], "party": ["lab"], "party-of": ["letter.toml"]}
    html = client.post("/join", data=other).text
    assert "This invitation is for south. If you are lab, ask its sender for your own." in part(html, "party-choice")
    assert "Make my key" not in html
    refused = client.post("/join", data=other | {"action": ["make-key"]})
    assert refused.status_code == 422
    assert not (folder / "lab.key").exists()


def test_an_invitation_for_nobody_in_the_study_is_no_hint(client: TestClient, folder: Path) -> None:
    (folder / "flu.toml").write_text("# Invitation for stranger to the study: x\n" + small_study().toml())
    html = client.get("/join").text
    assert "This invitation is for" not in html


def test_purpose_and_contact_are_shown_as_text_or_not_stated(client: TestClient, folder: Path) -> None:
    keyed(folder)
    html = text_of(client.get("/join").text)
    assert "Purpose not stated Contact not stated Deadline each party waits 30 min 0 s" in html
    keyed(folder / "..", purpose="to plan <b>beds</b>", contact="a@example.org")
    (folder / "north.key").unlink()
    (folder / "north.study.toml").unlink()
    (folder / ".." / "north.key").rename(folder / "north.key")
    (folder / ".." / "north.study.toml").rename(folder / "north.study.toml")
    page = client.get("/join").text
    assert "to plan &lt;b&gt;beds&lt;/b&gt;" in page
    assert "<b>" not in page
    assert "not part of what is signed" in page
    assert "computational: holds against" in page


def test_the_summary_links_to_places_that_are_there(client: TestClient, study: Study) -> None:
    del study
    html = client.get("/join").text
    targets = set(re.findall(r'href="#([a-z-]+)"', html)) - {"content"}
    assert {"asked", "whom", "cost", "collude", "leaves", "words"} <= targets
    for target in targets:
        assert html.count(f' id="{target}"') == 1
    ids = re.findall(r' id="([^"]+)"', html)
    assert len(ids) == len(set(ids))


def test_one_list_says_all_that_leaves_the_house(client: TestClient, study: Study) -> None:
    del study
    leaves = text_of(client.get("/join").text.split('id="leaves"')[1].split("<h2")[0])
    for line in ("the number of records in the range", "exact number of records", "sealed proof", "network address"):
        assert line in leaves


def test_the_answer_stays_with_its_receivers_is_said_first_and_agreed_to(client: TestClient, study: Study) -> None:
    del study
    html = client.get("/join").text
    first = html.split("What it does not promise")[1].split("<li>")[1]
    assert first.startswith("The answer must stay with its receivers")
    label = html.split('for="agreed"')[1].split("</label>")[0]
    assert "The answer must stay with its receivers" in label
    assert "I do not pass it on" in label


def test_north_reads_that_it_adds_up_itself(client: TestClient, study: Study) -> None:
    del study
    assert "You add up what the others submit" in text_of(client.get("/join").text)


# The result -----------------------------------------------------------------------------------------------------------


def test_the_result_says_what_it_is_of_and_that_a_copy_is_left(client: TestClient, folder: Path) -> None:
    done = finish(small_study(), folder)
    (folder / "flu.toml").write_text(done.study.toml())
    (folder / "north.csv").write_text("age\n70\n20\n66\n41\n")
    form = {"study": ["flu.toml"], "party": ["north"], "party-of": ["flu.toml"]}
    html = client.post("/join", data=form).text
    run, offer = part(html, "run"), text_of(part(html, "offer"))
    assert re.search(r"You took part in test / session 1 on \d{4}-\d\d-\d\d \d\d:\d\d:\d\d UTC\.", text_of(run))
    assert "It was charged once; it cannot be charged again." in run
    assert "How many records have age at least 65?" in run
    assert "To publish it breaks the promise to north , south and lab" in text_of(run)
    assert "No ledger is there yet" not in offer
    assert "In short" not in offer
    assert str(folder) in run
    assert "north.csv" in run
    asked = part(client.post("/join", data=form | {"action": ["delete-data=north.csv"]}).text, "run")
    assert "This cannot be undone" in asked
    gone = part(client.post("/join", data=form | {"action": ["delete-data-now=north.csv"]}).text, "run")
    assert "north.csv" not in gone
    assert "You took part in" in gone
    assert not (folder / "north.csv").exists()


def test_a_new_party_without_anything_gets_no_stack_of_problems(client: TestClient, folder: Path) -> None:
    (folder / "flu.toml").write_text(invitation(small_study(), "south"))
    shown = text_of(part(client.post("/join", data={"study": ["flu.toml"]}).text, "check"))
    assert "You have no key: make it above." in shown
    assert "No file of records is chosen: choose yours above." in shown
    assert "(none)" not in shown
    write_key(folder / "south.key", Ed25519PrivateKey.generate())
    assert "Send the line above" in text_of(part(client.post("/join", data={"study": ["flu.toml"]}).text, "check"))
