"""Study, without a browser: queries by forms, errors and costs of the library, files and invitations."""

from __future__ import annotations

import io
import re
import threading
import tomllib
import zipfile
from html import unescape
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from tests.page.browsing import TestClient, fields, part
from tpmdp.errors import InputError
from tpmdp.ledger import rounded_up
from tpmdp.page import study_view
from tpmdp.page.query_form import OFFERED, QUERIES_MAX, TypedQuery, split_list
from tpmdp.queries.catalogue import EXAMPLES, make_query
from tpmdp.report.queries import error_text
from tpmdp.report.questions import question_text
from tpmdp.study.expectation import expect
from tpmdp.study.fingerprint import phrase_of
from tpmdp.study.model import Study
from tpmdp.study.peers import peer_line

Sent = dict[str, list[str]]
NAMES = ["statistics_office", "hospital_north", "hospital_south", "insurer", "university"]


@pytest.fixture
def sent(client: TestClient) -> Sent:
    """The example, as it stands on the page."""
    return fields(client.get("/study").text)


def ask(client: TestClient, sent: Sent, **more: str) -> str:
    """The answer to the form with some fields changed; underscores stand for hyphens."""
    changed = {key.replace("_", "-"): [value] for key, value in more.items()}
    return str(client.post("/study", data=sent | changed).text)


def after(client: TestClient, sent: Sent, action: str, **more: str) -> Sent:
    """The form after a button."""
    html = ask(client, sent, action=action, **more)
    names = [match[1] for match in re.finditer(r'data-part="([\w-]+)"', html)]
    held = {"form-id": sent["form-id"]}
    assert {"settings", "parties", "sliders", "queries", "files", "invite", "keys"} <= set(names), html[:500]
    return held | fields("".join(part(html, name) for name in names))


def downloaded(client: TestClient, sent: Sent) -> Study:
    answer = client.post("/study/study.toml", data=sent)
    assert answer.status_code == 200, answer.text
    return Study.parse(tomllib.loads(answer.text))


# What is asked, and what it costs -------------------------------------------------------------------------------------


def test_the_example_is_explained_as_the_library_does(client: TestClient, sent: Sent) -> None:
    study = downloaded(client, sent)
    assert [party.name for party in study.parties] == NAMES
    expected = expect(study)
    html = client.get("/study").text
    for query in expected.queries:
        assert question_text(query.query) in unescape(html)
        assert error_text(query.errors[0]) in unescape(html)
    for charge in expected.charges.values():
        assert f">{rounded_up(charge)}<" in html


def test_a_typed_change_changes_errors_and_costs_only(client: TestClient, sent: Sent) -> None:
    sent["party-epsilon"][1] = "0.25"
    sent["query-0-at-least"] = ["9"]  # not a field of the form: ignored
    html = ask(client, sent)
    assert 'data-part="queries"' not in html  # fields stay as they are typed
    assert 'data-part="parties"' not in html
    expected = expect(downloaded(client, sent))
    assert f">{rounded_up(expected.charges['hospital_north'])}<" in part(html, "preview")
    assert error_text(expected.queries[0].errors[0]) in part(html, "preview")


def test_the_threshold_0_warns(client: TestClient, sent: Sent) -> None:
    html = part(ask(client, sent, threshold="0"), "preview")
    assert "threshold = 0 adds no noise" in html
    assert html.count("no protection") == 5


def test_settings_reach_the_study(client: TestClient, sent: Sent) -> None:
    changed = {"unit": "party", "deadline": "2h", "weighting": "balanced", "tolerate": "1", "session": "3"}
    study = downloaded(client, sent | {key: [value] for key, value in changed.items()})
    assert (study.unit, study.deadline, study.weighting, study.tolerate, study.session) == (
        "party",
        7200.0,
        "balanced",
        1,
        3,
    )


def test_a_large_study_is_computed_when_asked(client: TestClient, sent: Sent, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(study_view, "_LIVE_PARTIES", 3)
    sent["session"] = ["7"]  # not yet computed
    html = part(ask(client, sent), "preview")
    assert "This study is large" in html
    assert "What is asked" in html
    assert "What it costs" not in html
    assert "What it costs" in part(ask(client, sent, action="expect"), "preview")


def test_only_the_newest_question_is_computed(client: TestClient, sent: Sent, monkeypatch: pytest.MonkeyPatch) -> None:
    """While one change is computed, others come: all but the last of them give way."""
    began, go_on, computed = threading.Event(), threading.Event(), []

    def slow(study: Study) -> Any:
        computed.append(study.session)
        began.set()
        assert go_on.wait(60)
        return expect(study)

    monkeypatch.setattr(study_view, "expect", slow)
    taken: list[int] = []
    take = study_view.Turns.take

    def counting(self: study_view.Turns, form: str) -> int:
        turn = take(self, form)
        taken.append(turn)
        if len(taken) == 4:
            go_on.set()
        return turn

    monkeypatch.setattr(study_view.Turns, "take", counting)
    threads = [threading.Thread(target=ask, args=(client, sent), kwargs={"session": str(n)}) for n in (11, 12, 13, 14)]
    threads[0].start()
    assert began.wait(60)
    for number, thread in enumerate(threads[1:], 2):
        thread.start()
        while len(taken) < number:
            threading.Event().wait(0.01)
    for thread in threads:
        thread.join()
    assert computed == [11, 14]


# Queries --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", OFFERED)
def test_every_kind_can_be_added_and_comes_back_from_the_file(kind: str) -> None:
    query = make_query({**tomllib.loads(EXAMPLES[kind])})
    typed = TypedQuery.of_entry(query.settings())
    assert make_query(typed.entry(1)) == query
    shown = fields(typed.html(0))
    assert shown["query-0-kind"] == [kind]
    again = TypedQuery(kind, {key: shown.get(f"query-0-{key}", [""])[0] for key in (*typed.texts, "name")})
    assert make_query(again.entry(1)) == query


def test_a_query_is_added_and_removed(client: TestClient, sent: Sent) -> None:
    more = after(client, sent, "add-query", new_kind="linear_regression")
    assert more["query-row"] == ["0", "1", "2"]
    assert more["query-2-bounds"] == ["days 0 30\nage 0 120\nseverity 0 10"]
    study = downloaded(client, more)
    assert [query.settings()["kind"] for query in study.queries] == ["count", "mean", "linear_regression"]
    less = after(client, more, "remove-query-0")
    assert [less["query-0-name"], less["query-1-name"]] == [["stay"], ["stay by age"]]
    assert [query.name for query in downloaded(client, less).queries] == ["stay", "stay by age"]


def test_names_of_added_queries_differ(client: TestClient, sent: Sent) -> None:
    twice = after(client, after(client, sent, "add-query"), "add-query")
    assert [twice[f"query-{n}-name"][0] for n in (0, 2, 3)] == ["long stays", "long stays 2", "long stays 3"]


@pytest.mark.parametrize(
    ("text", "values"),
    [
        ("north, south", ("north", "south")),
        ("0, 1", (0.0, 1.0)),
        ('"0", "1"', ("0", "1")),
        ('0, "a, b"', ("0", "a, b")),
        ('"say ""yes""", no', ('say "yes"', "no")),
    ],
)
def test_groups_are_texts_or_numbers(client: TestClient, sent: Sent, text: str, values: tuple[Any, ...]) -> None:
    query = downloaded(client, sent | {"query-1-by-categories": [text]}).queries[1]
    assert query.settings()["by"] == {"ward": values}
    again = TypedQuery.of_entry(query.settings())
    assert make_query(again.entry(2)) == query


@pytest.mark.parametrize(
    ("field", "value", "line"),
    [
        ("query-1-low", "a lot", "low of stay = a lot is not a number"),
        ("query-1-low", "", "low of stay = (blank) is missing"),
        ("query-1-low", "31", "of stay"),
        ("query-0-name", "", "name of query 1 = (blank) is missing"),
        ("query-1-name", "long stays", "name of a query = long stays is given twice"),
        ("query-0-where", "age >>> 4", "where of long stays"),
        ("query-1-by-column", "", "column of groups of stay = (blank) is missing"),
        ("query-1-by-categories", 'a, "b', "groups of stay = a, &quot;b has a double quote without its partner"),
        ("query-1-by-categories", "a,,b", "groups of stay = a,,b has an empty entry"),
        ("deadline", "soon", "deadline = soon must be a duration"),
        ("session", "x", "session = x must be a whole number"),
        ("study-name", "", "name = (blank) must be text"),
        ("unit", "person", "unit = &quot;person&quot; must be one of record, party"),
        ("weighting", "own", "weights = own must be one of equal, balanced"),
    ],
)
def test_a_wrong_field_is_named(client: TestClient, sent: Sent, field: str, value: str, line: str) -> None:
    answer = client.post("/study", data=sent | {field: [value]})
    assert answer.status_code == 422
    assert line in part(answer.text, "problem")
    assert "\n" not in part(answer.text, "problem")


@pytest.mark.parametrize(
    ("value", "line"),
    [
        ("days 0", "bounds of stay by age = days 0 must be a column and two numbers"),
        ("days 0 x", "bounds of stay by age, days = x is not a number"),
        ("days 0 30\ndays 0 9", "bounds of stay by age = days is there twice"),
        ("days 9 0\nage 0 1", "of stay by age"),
        ("age 0 1", "of stay by age"),
    ],
)
def test_wrong_bounds_are_named(client: TestClient, sent: Sent, value: str, line: str) -> None:
    more = after(client, sent, "add-query", new_kind="linear_regression")
    assert line in part(client.post("/study", data=more | {"query-2-bounds": [value]}).text, "problem")


def test_a_button_works_beside_a_wrong_field_and_typed_texts_stay(client: TestClient, sent: Sent) -> None:
    wrong = sent | {"query-1-low": ["a lot"], "party-epsilon": ["x", *sent["party-epsilon"][1:]]}
    html = client.post("/study", data=wrong | {"action": ["add-query"]}).text
    assert "epsilon of statistics_office = x is not a number" in part(html, "problem")
    assert fields(part(html, "queries"))["query-1-low"] == ["a lot"]
    assert fields(part(html, "parties"))["party-epsilon"][0] == "x"
    assert fields(part(html, "queries"))["query-row"] == ["0", "1", "2"]


def test_no_query_is_a_designed_state(client: TestClient, sent: Sent) -> None:
    html = ask(client, after(client, sent, "remove-query-0"), action="remove-query-0")
    assert "Nothing is asked yet" in part(html, "queries")
    assert "queries = 0 must be at least 1" in part(html, "problem")


def test_lists_without_quotes_are_cut_at_commas() -> None:
    assert split_list("x", " a b ,c") == [("a b", False), ("c", False)]
    assert split_list("x", '"", """"') == [("", True), ('"', True)]


@pytest.mark.parametrize("text", [" " * 300_000 + '"', '"' * 300_001, '"a' * 100_001, "," * 300_000])
def test_long_hostile_lists_are_refused_at_once(text: str) -> None:
    with pytest.raises(InputError):
        split_list("groups", text)


# Hostile forms --------------------------------------------------------------------------------------------------------


def test_names_from_outside_stay_text(client: TestClient, sent: Sent) -> None:
    evil = "<img src=x onerror=alert(1)>"
    changed = sent | {"query-0-name": [evil], "query-0-where": [evil], "study-name": [evil], "file": [evil]}
    changed |= {"relay": [evil], "key-line": [evil] * 5, "party-name": [evil, *NAMES[1:]]}
    for action in ("", "add-party", "add-query", "save", "invite", "open", evil):
        html = client.post("/study", data=changed | {"action": [action], "open-file": [evil]}).text
        assert "<img" not in html
    named = client.post("/study", data=sent | {"query-0-name": [evil], "study-name": [evil]}).text
    assert "&lt;img src=x onerror=alert(1)&gt;" in part(named, "preview")


def test_forms_that_are_not_ours_are_refused(client: TestClient, sent: Sent) -> None:
    for changed in (
        {"query-row": [str(place) for place in range(QUERIES_MAX + 1)]},
        {"query-row": ["0", "0"]},
        {"query-0-kind": ["maximum"]},
        {"query-0-kind": ["__class__"]},
        {"action": ["add-query"], "new-kind": ["custom"]},
        {"action": ["remove-query-x"]},
        {"party-row": ["0"]},
    ):
        answer = client.post("/study", data=sent | changed)
        assert answer.status_code == 422
        assert "<p " in part(answer.text, "problem")
    many: Sent = sent | {"query-row": [str(place) for place in range(QUERIES_MAX)]}
    for place in range(QUERIES_MAX):
        many |= {f"query-{place}-kind": ["count"], f"query-{place}-name": [f"q{place}"]}
    refused = client.post("/study", data=many | {"action": ["add-query"], "new-kind": ["count"]})
    assert f"queries = {QUERIES_MAX + 1} must be at most {QUERIES_MAX}" in part(refused.text, "problem")


# From Plan ------------------------------------------------------------------------------------------------------------


def test_plan_goes_on_to_a_study(client: TestClient) -> None:
    planned = fields(client.get("/plan").text)
    planned["party-name"][0] = "office"
    planned |= {"threshold": ["1"], "tolerate": ["2"], "weighting": ["balanced"], "sensitivity": ["not used"]}
    page = client.post("/study/from-plan", data=planned)
    assert page.status_code == 200
    assert page.text.startswith("<!DOCTYPE html>")
    study = downloaded(client, fields(page.text))
    assert study.parties[0].name == "office"
    assert (study.threshold, study.tolerate, study.weighting) == (1, 2, "balanced")
    assert study.receivers == ("office", "hospital_north")


def test_a_study_from_plan_does_not_take_the_name_of_a_file(client: TestClient, folder: Path) -> None:
    (folder / "study.toml").write_text("")
    planned = fields(client.get("/plan").text)
    assert fields(client.post("/study/from-plan", data=planned).text)["file"] == ["study-2.toml"]


def test_a_plan_that_no_study_can_have_is_still_shown(client: TestClient) -> None:
    planned = fields(client.get("/plan").text)
    planned["party-name"][0] = "the <b>office</b>"
    page = client.post("/study/from-plan", data=planned).text
    assert "name of a party = the &lt;b&gt;office&lt;/b&gt; must be letters" in page
    assert fields(page)["party-name"][0] == "the <b>office</b>"


# Files ----------------------------------------------------------------------------------------------------------------


def test_a_saved_study_comes_back(client: TestClient, sent: Sent, folder: Path) -> None:
    for kind in OFFERED:
        if kind != "vertical_regression":  # which must be asked alone
            sent = after(client, sent, "add-query", new_kind=kind)
    sent |= {"study-name": ["flu"], "unit": ["party"], "deadline": ["90s"], "tolerate": ["1"], "file": ["flu.toml"]}
    html = ask(client, sent, action="save")
    assert "Saved" in part(html, "saved")
    study = Study.read(folder / "flu.toml")
    assert study == downloaded(client, sent)
    assert fields(part(html, "files"))["open-file"] == ["flu.toml"]
    fresh = fields(client.get("/study").text)
    opened = after(client, fresh, "open", open_file="flu.toml")
    assert downloaded(client, opened) == study
    assert opened["file"] == ["flu.toml"]
    assert opened["deadline"] == ["90s"]


def test_another_study_is_replaced_only_if_that_is_ticked(client: TestClient, sent: Sent, folder: Path) -> None:
    path = folder / "study.toml"
    assert "Saved" in ask(client, sent, action="save")
    assert "Saved" in ask(client, sent, action="save", study_name="second")  # this page wrote it
    path.write_text("# by hand\n" + path.read_text())
    text = part(ask(client, sent, action="save", study_name="third"), "problem")
    assert "study.toml is there already (the study second / session 1)" in text
    assert path.read_text().startswith("# by hand")
    assert "Saved" in ask(client, sent, action="save", study_name="third", may_replace="yes")
    assert Study.read(path).name == "third"


def test_files_that_are_not_studies_are_never_replaced(client: TestClient, sent: Sent, folder: Path) -> None:
    (folder / "notes.toml").write_text("a = 1\n")
    refused = ask(client, sent, action="save", file="notes.toml", may_replace="yes")
    assert "is not a study" in part(refused, "problem")
    assert (folder / "notes.toml").read_text() == "a = 1\n"
    for name in ("../out.toml", "peers.toml", "data.csv", "", ".hidden.toml", "a/b.toml"):
        answer = client.post("/study", data=sent | {"action": ["save"], "file": [name], "may-replace": ["yes"]})
        assert (answer.status_code, "file in the folder" in answer.text) == (422, True), name
    assert sorted(path.name for path in folder.iterdir()) == ["notes.toml"]


@pytest.mark.parametrize(
    ("old", "new", "named"),
    [
        ('guarantee = "computational"', 'guarantee = "statistical"', "guarantee"),
        ("[[parties]]", "spread = 0.5\n[[parties]]", "spread"),
        ('name = "insurer"', 'name = "insurer"\naddress = "node.example.org:7000"', "address of insurer"),
        ("[[parties]]", "typical = { share = 0.2 }\n[[parties]]", "typical"),
        ('name = "insurer"', 'name = "insurer"\nweight = 0.5', "weighting = own"),
        ('"days"', '" days "', "the query long stays"),
    ],
)
def test_what_the_form_cannot_show_is_named(
    client: TestClient, sent: Sent, folder: Path, old: str, new: str, named: str
) -> None:
    text = client.post("/study/study.toml", data=sent).text
    (folder / "other.toml").write_text(text.replace(old, new, 1))
    answer = client.post("/study", data=sent | {"action": ["open"], "open-file": ["other.toml"]})
    assert answer.status_code == 422
    assert f"other.toml has something that this form cannot show: {named}" in part(answer.text, "problem")
    assert "data-part" not in answer.text.replace('data-part="problem"', "")  # nothing is changed


def test_a_kind_that_the_form_lacks_is_named(client: TestClient, sent: Sent, folder: Path) -> None:
    text = client.post("/study/study.toml", data=sent).text
    (folder / "other.toml").write_text(text.split("[[queries]]")[0] + f"[[queries]]\n{EXAMPLES['maximum']}\n")
    problem = part(ask(client, sent, action="open", open_file="other.toml"), "problem")
    assert "cannot show: the maximum query busiest" in problem


def test_only_files_of_the_list_are_opened(client: TestClient, sent: Sent, folder: Path) -> None:
    (folder.parent / "outside.toml").write_text("secret = 1\n")
    for name in ("../outside.toml", "/etc/passwd", "missing.toml"):
        text = part(ask(client, sent, action="open", open_file=name), "problem")
        assert "is not in the folder" in text
        assert "secret" not in text


# Invitations ----------------------------------------------------------------------------------------------------------


def lines_of(names: list[str]) -> list[str]:
    """What tpmdp keygen prints for each."""
    return [peer_line(name, Ed25519PrivateKey.generate().public_key().public_bytes_raw()) for name in names]


def test_invitations_are_written_for_every_party(client: TestClient, sent: Sent, folder: Path) -> None:
    html = ask(client, sent, action="invite", relay="https://relay.example.org")
    assert "Wrote 5 invitations" in part(html, "invited")
    assert "They ask for the public keys of" in part(html, "invited")
    written = folder / "study invitations"
    assert sorted(path.name for path in written.iterdir()) == sorted(f"{name}.study.toml" for name in NAMES)
    assert "tpmdp keygen insurer" in (written / "insurer.study.toml").read_text()
    assert Study.read(written / "insurer.study.toml") == Study.read(folder / "study.toml")


def test_with_all_keys_the_words_are_shown_and_kept(client: TestClient, sent: Sent, folder: Path) -> None:
    sent["key-line"] = lines_of(NAMES)
    sent["key-line"][2] = sent["key-line"][2].split('"')[1]  # the key alone
    html = ask(client, sent)
    study = downloaded(client, sent)
    phrase = " ".join(phrase_of(study.terms().plan_hash))
    assert phrase in part(html, "key-status")
    assert "They ask" not in part(ask(client, sent, action="invite", relay="https://relay.example.org"), "invited")
    text = (folder / "study invitations" / "insurer.study.toml").read_text()
    assert phrase in text
    assert "--relay https://relay.example.org" in text
    opened = after(client, fields(client.get("/study").text), "open", open_file="study.toml")
    assert downloaded(client, opened) == study
    assert phrase in part(ask(client, opened), "key-status")


def test_lines_must_be_of_their_party(client: TestClient, sent: Sent, folder: Path) -> None:
    north, south = lines_of(["hospital_north", "hospital_south"])
    sent["key-line"] = ["", south, south, "nonsense", ""]
    html = ask(client, sent)
    status = part(html, "key-status")
    assert "is the line of hospital_south, not of hospital_north" in status
    assert "public key of insurer = nonsense is not a public key" in status
    assert "What it costs" in part(html, "preview")  # the rest goes on
    assert "Line of hospital_north" in part(ask(client, sent, action="save"), "problem")
    assert list(folder.iterdir()) == []
    twin = peer_line("insurer", bytes(32))
    sent["key-line"] = ["", north, south, twin, peer_line("university", bytes(32))]
    assert "is that of insurer" in part(ask(client, sent), "key-status")


def test_a_key_stays_with_its_party(client: TestClient, sent: Sent) -> None:
    sent["key-line"] = lines_of(NAMES)
    less = after(client, sent, "remove-party-0")
    assert less["key-line"] == sent["key-line"][1:]
    more = after(client, less, "add-party")
    assert more["key-line"] == [*sent["key-line"][1:], ""]
    more["party-name"][0] = "renamed"
    html = ask(client, more)
    assert "is the line of hospital_north, not of renamed" in part(html, "key-status")
    assert fields(part(html, "keys"))["key-party"][0] == "renamed"  # the labels follow


@pytest.mark.parametrize("relay", ["relay", "http://relay.example.org", "javascript:alert(1)", "https://a b"])
def test_the_relay_is_checked(client: TestClient, sent: Sent, folder: Path, relay: str) -> None:
    text = part(ask(client, sent, action="invite", relay=relay), "problem")
    assert "relay = " in text
    assert "--" not in text
    assert list(folder.iterdir()) == []


def test_invitations_can_be_downloaded(client: TestClient, sent: Sent) -> None:
    answer = client.post("/study/invitations.zip", data=sent)
    assert answer.headers["content-disposition"] == 'attachment; filename="invitations.zip"'
    with zipfile.ZipFile(io.BytesIO(answer.content)) as archive:
        assert archive.namelist() == [f"{name}.study.toml" for name in NAMES]
        assert Study.parse(tomllib.loads(archive.read(archive.namelist()[0]).decode())) == downloaded(client, sent)
