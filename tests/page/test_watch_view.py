"""Watch, without a browser and without a relay that runs; and with one, against real processes."""

from __future__ import annotations

import re
from dataclasses import replace
from html import unescape
from pathlib import Path

import pytest

from tests.faults.consortium import Consortium
from tests.page.browsing import TestClient, fields, part
from tests.patience import wait_until
from tpmdp.engines.relay.look import parse_metrics, stored_sessions
from tpmdp.errors import FileError
from tpmdp.study.invitation import invitation
from tpmdp.study.model import Study
from tpmdp.study.status import PartyStatus, StudyStatus

NOBODY = 1  # a port at which nothing listens
STUDY = {"action": "study", "study-file": "study.toml", "key-file": "lab.key"}


@pytest.fixture
def consortium(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Consortium:
    """Files of three parties in the page's folder; nothing runs."""
    monkeypatch.setattr("tests.faults.consortium.free_port", lambda: NOBODY)
    return Consortium(folder)


def own_id(panel: str) -> str:
    match = re.search(r'data-poll="/watch/look/([0-9a-f]{32})"', panel)
    assert match is not None, panel
    return match[1]


def test_an_empty_folder_says_what_is_missing(client: TestClient) -> None:
    html = client.get("/watch").text
    assert "There is no study file (.toml) in" in html
    assert "none in the page&#x27;s folder" in html
    assert html.count("Nothing is watched here.") == 2


def test_files_in_the_folder_can_be_chosen(client: TestClient, consortium: Consortium) -> None:
    sent = fields(client.get("/watch").text)
    assert sent["study-file"] == ["study.toml"]
    assert sent["key-file"] == ["lab.key"]


@pytest.mark.parametrize(
    ("change", "line"),
    [
        ({"relay": "relay"}, "is not an address"),
        ({"relay": "http://relay.example.org"}, "use https, or tick the box below the address"),
        ({"study-file": "../study.toml"}, "is not the name of a file in the folder"),
        ({"study-file": "none.toml"}, "does not exist"),
        ({"key-file": "/etc/passwd"}, "is not the name of a file in the folder"),
        ({"key-file": "stranger.key"}, "is of no party of this study"),
    ],
)
def test_a_wrong_field_is_named(
    client: TestClient, consortium: Consortium, folder: Path, change: dict[str, str], line: str
) -> None:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

    from tpmdp.study.identity import write_key

    write_key(folder / "stranger.key", Ed25519PrivateKey.generate())
    answer = client.post("/watch", data={**STUDY, "relay": consortium.url, **change})
    assert answer.status_code == 422
    assert line in unescape(part(answer.text, "problem"))


def test_an_invitation_names_its_relay(client: TestClient, consortium: Consortium, folder: Path) -> None:
    text = invitation(Study.read(folder / "study.toml"), "lab", relay=consortium.url)
    (folder / "study.toml").write_text(text)
    panel = part(client.post("/watch", data={**STUDY, "relay": ""}).text, "study-watch")
    assert f"127.0.0.1:{NOBODY}" in panel
    assert "cannot be reached" in panel


def test_a_relay_that_is_away_is_said_and_asked_again(client: TestClient, consortium: Consortium) -> None:
    panel = part(client.post("/watch", data={**STUDY, "relay": consortium.url}).text, "study-watch")
    assert "cannot be reached" in panel
    assert "each party waits 30 min 0 s from when it joins" in panel
    own = own_id(panel)
    again = client.get(f"/watch/look/{own}")
    assert "cannot be reached" in part(again.text, f"{own}-state")
    assert "Last look: 2" in part(again.text, f"{own}-time")
    ended = client.post("/watch", data={"action": f"stop-study={own}"})
    assert "Nothing is watched here" in part(ended.text, "study-watch")
    assert "is not watched any more" in client.get(f"/watch/look/{own}").text


def test_a_finished_session_is_not_looked_at_again(
    client: TestClient, consortium: Consortium, monkeypatch: pytest.MonkeyPatch
) -> None:
    parties = tuple(
        PartyStatus(name, agreed=True, key=True, submitted=True, answered=is_over, other_plan=False)
        for name, is_over in (("north", False), ("south", True), ("lab", False))
    )
    status = StudyStatus("faults / session 1", known=True, attempt=1, lead="north", parties=parties)
    open_ones = tuple(replace(each, answered=False) for each in parties)
    under_way = replace(status, parties=open_ones)
    answers = iter([under_way, under_way, status])
    monkeypatch.setattr("tpmdp.page.watch_view.StudyWatch.ask", lambda _: next(answers))
    panel = part(client.post("/watch", data={**STUDY, "relay": consortium.url}).text, "study-watch")
    own = own_id(panel)
    assert "All have submitted; waiting for north, which adds up." in panel
    assert 'class="waiting"' in panel
    assert 'class="good"' not in panel
    assert f'data-part="{own}-again"' not in client.get(f"/watch/look/{own}").text
    last = client.get(f"/watch/look/{own}").text
    assert "It is finished, so it is not looked at again." in part(last, f"{own}-again")
    assert "data-poll" not in last
    assert f'id="{own}-again"' in panel


def test_no_more_than_twenty_are_watched(client: TestClient) -> None:
    form = {"action": "relay", "own-relay": f"http://127.0.0.1:{NOBODY}", "store": ""}
    watched = [own_id(part(client.post("/watch", data=form).text, "relay-watch")) for _ in range(21)]
    assert "is not watched any more" in client.get(f"/watch/look/{watched[0]}").text
    assert "is not watched any more" not in client.get(f"/watch/look/{watched[1]}").text


@pytest.mark.parametrize("own", ["x", "0" * 31, "..%2f..%2fsecret", "0" * 31 + "G"])
def test_a_watch_has_no_other_names(client: TestClient, own: str) -> None:
    assert client.get(f"/watch/look/{own}").status_code == 404


def test_a_stranger_cannot_look(stranger: TestClient) -> None:
    assert stranger.get(f"/watch/look/{'0' * 32}").status_code == 401


@pytest.mark.parametrize("url", ["https://relay.example.org", "http://192.0.2.1:8400", "http://localhost.example.org"])
def test_an_operator_looks_at_the_own_machine_only(client: TestClient, url: str) -> None:
    answer = client.post("/watch", data={"action": "relay", "own-relay": url, "store": ""})
    assert "is on another machine" in part(answer.text, "problem")


def test_another_file_is_not_a_store(client: TestClient, folder: Path) -> None:
    (folder / "relay.sqlite").write_bytes(b"not a store")
    form = {"action": "relay", "own-relay": f"http://127.0.0.1:{NOBODY}", "store": "relay.sqlite"}
    panel = part(client.post("/watch", data=form).text, "relay-watch")
    assert "cannot be read now" in panel
    assert "cannot be reached" in panel


def test_the_store_of_a_ledger_is_refused(folder: Path) -> None:
    import tpmdp

    with tpmdp.Ledger.create(folder / "a.sqlite", "north", 1.0, 1e-6):
        pass
    with pytest.raises(FileError, match="is not the store of a relay"):
        stored_sessions(folder / "a.sqlite", 10)


def test_rates_come_from_two_looks() -> None:
    text = 'tpmdp_relay_info{{version="0.8.0"}} 1\ntpmdp_relay_messages_total{{kind="keys"}} {}\nother 3\n'
    text += 'tpmdp_relay_refusals_total{{status="401"}} 5\ntpmdp_relay_refusals_total{{status="429"}} 2\n'
    first, second = parse_metrics(text.format(10), 100.0), parse_metrics(text.format(40), 130.0)
    assert first.version == "0.8.0"
    assert (first.get("logins"), first.get("refused")) == (5.0, 2.0)
    assert second.per_minute("messages_total", first) == 60.0
    assert first.per_minute("messages_total", None) is None
    assert parse_metrics(text.format(3), 140.0).per_minute("messages_total", second) is None  # it was restarted


# Against a relay that runs


def part_of(html: str, text: str) -> str:
    """The row of a table that has this text."""
    rows: list[str] = re.findall(r"<tr>.*?</tr>", html, re.DOTALL)
    return next(row for row in rows if text in row)


@pytest.mark.process
def test_a_session_of_which_one_party_has_joined(client: TestClient, folder: Path) -> None:
    with Consortium(folder) as consortium:
        consortium.relay()
        panel = part(client.post("/watch", data={**STUDY, "relay": consortium.url}).text, "study-watch")
        assert "Nobody has joined at this relay yet." in panel
        assert "PRIVATE" not in panel
        own = own_id(panel)
        consortium.join("south")
        wait_until(lambda: consortium.senders() == {1})
        fresh = client.get(f"/watch/look/{own}").text
        assert "1 of 3 have joined; waiting for north, lab." in unescape(part(fresh, f"{own}-state"))
        rows = re.findall(r"<tr>(.*?)</tr>", part(fresh, f"{own}-table"))
        cells = {
            (texts := re.findall(r"<td[^>]*>(.*?)</td>", row))[0]: [re.sub("<.*?>", "", text) for text in texts[1:]]
            for row in rows[1:]
        }
        south = next(values for key, values in cells.items() if "south" in key)
        assert south[0] == "yes"
        form = {"action": "relay", "own-relay": consortium.url, "store": "relay.sqlite"}
        relay = unescape(part(client.post("/watch", data=form).text, "relay-watch"))
        assert "The relay is well" in relay
        assert "faults / session 1" in relay
        row = re.sub("<.*?>", "|", part_of(relay, "faults / session 1"))
        assert "south" in row
        assert "north|" in row
        assert "joining" in row
        assert "at the next look" in relay
        later = unescape(client.get(f"/watch/look/{own_id(relay)}").text)
        assert "at the next look" not in later
        assert re.search(r"sessions opened</td><td[^>]*>1<", later)
        consortium.study_file.rename(folder / "study.txt")  # then its name is not known
        nameless = unescape(client.get(f"/watch/look/{own_id(relay)}").text)
        assert "faults" not in part(nameless, f"{own_id(relay)}-sessions")
        assert consortium.study.session_id.hex()[:12] in nameless
        assert "1 of 3" in nameless


@pytest.mark.process
def test_a_store_is_read_while_and_after_its_relay_runs_and_stays_as_it_is(folder: Path) -> None:
    with Consortium(folder) as consortium:
        relay = consortium.relay()
        consortium.join("south")
        wait_until(lambda: consortium.senders() == {1})
        looks, count = stored_sessions(consortium.store, 10)
        assert (count, looks[0].parties, looks[0].status.agreed) == (1, 3, frozenset({1}))
        assert looks[0].name == consortium.study.session_id
        consortium.processes[-1].kill()
        relay.terminate()
        relay.wait()
        before = consortium.store.read_bytes(), sorted(each.name for each in folder.iterdir())
        again, _ = stored_sessions(consortium.store, 10)
        assert again == looks
        assert (consortium.store.read_bytes(), sorted(each.name for each in folder.iterdir())) == before
