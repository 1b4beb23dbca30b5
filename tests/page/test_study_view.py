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
from tests.queries.cases import VERTICAL_KINDS
from tpmdp.errors import InputError
from tpmdp.ledger import rounded_up
from tpmdp.page import study_view
from tpmdp.page.query_form import OFFERED, QUERIES_MAX, TypedQuery, split_list
from tpmdp.queries.catalogue import EXAMPLES, make_query
from tpmdp.report.queries import error_text
from tpmdp.report.questions import question_text
from tpmdp.study.expectation import expect
from tpmdp.study.fingerprint import phrase_of
from tpmdp.study.invitation import invited_relay
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
        assert error_text(query.errors[0]).replace("+- ", "±\u00a0") in unescape(html)
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
    assert error_text(expected.queries[0].errors[0]).replace("+- ", "±\u00a0") in part(html, "preview")


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


@pytest.mark.parametrize(
    "text", ["bank", "bank: pay", "bank: pay\nbins: 1, 2", "bank: pay\nedges: 1, x", ": pay\nedges: 1"]
)
def test_a_side_of_a_table_that_cannot_be_read_is_named(text: str) -> None:
    typed = TypedQuery.example("joint_table", [])
    with pytest.raises(InputError, match="rows of pay by degree"):
        TypedQuery("joint_table", {**typed.texts, "rows": text}).entry(1)
    rows = TypedQuery("joint_table", {**typed.texts, "rows": "bank: pay\r\nedges: 1, 2"}).entry(1)["rows"]
    assert rows == {"party": "bank", "column": "pay", "edges": [1.0, 2.0]}  # as a browser ends lines


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
        ("query-1-low", "", "Low of stay is missing"),
        ("query-1-low", "31", "of stay"),
        ("query-0-name", "", "Name of query 1 is missing"),
        ("query-1-name", "long stays", "name of a query = long stays is given twice"),
        ("query-0-where", "age >>> 4", "where of long stays"),
        ("query-1-by-column", "", "Column of groups of stay is missing"),
        ("query-1-by-categories", 'a, "b', "groups of stay = a, &quot;b has a double quote without its partner"),
        ("query-1-by-categories", "a,,b", "groups of stay = a,,b has an empty entry"),
        ("deadline", "soon", "deadline = soon must be a duration"),
        ("session", "x", "session = x must be a whole number"),
        ("study-name", "", "Name must be text"),
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
    assert "Queries are missing: add a query." in part(html, "problem")


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
    planned |= {"threshold": ["1"], "tolerate": ["1"], "weighting": ["balanced"], "sensitivity": ["not used"]}
    moved = client.post("/study/from-plan", data=planned)
    assert (moved.status_code, moved.headers["x-to"]) == (204, "/study")
    page = client.get("/study")
    study = downloaded(client, fields(page.text))
    assert study.parties[0].name == "office"
    assert (study.threshold, study.tolerate, study.weighting) == (1, 1, "balanced")
    assert study.receivers == ("office", "hospital_north")


def test_a_study_from_plan_does_not_take_the_name_of_a_file(client: TestClient, folder: Path) -> None:
    (folder / "study.toml").write_text("")
    planned = fields(client.get("/plan").text)
    client.post("/study/from-plan", data=planned)
    assert fields(client.get("/study").text)["file"] == ["study-2.toml"]


def test_a_plan_that_no_study_can_have_is_still_shown(client: TestClient) -> None:
    planned = fields(client.get("/plan").text)
    planned["party-name"][0] = "the <b>office</b>"
    client.post("/study/from-plan", data=planned)
    page = client.get("/study").text
    assert "name of a party = the &lt;b&gt;office&lt;/b&gt; must be letters" in page
    assert fields(page)["party-name"][0] == "the <b>office</b>"


def test_going_on_twice_changes_only_what_plan_has(client: TestClient, sent: Sent) -> None:
    """The second time, what was typed in Study is still there, and the keys of parties that kept their names."""
    typed = {"study-name": "flu", "session": "4", "deadline": "3d", "relay": "https://relay.example.org"}
    typed |= {"file": "flu.toml", "unit": "party", "query-0-name": "long"}
    sent |= {key: [value] for key, value in typed.items()} | {"key-line": lines_of(NAMES)}
    ask(client, sent)
    planned = fields(client.get("/plan").text)
    planned["party-name"][0] = "office"
    planned["party-epsilon"][3] = "0.3"
    for column in ("name", "epsilon", "delta", "records"):
        planned[f"party-{column}"].insert(1, {"name": "new", "epsilon": "1", "delta": "1e-6", "records": "5"}[column])
    planned["party-row"] = [str(row) for row in range(6)]
    for _ in range(2):
        client.post("/study/from-plan", data=planned | {"threshold": ["3"], "weighting": ["balanced"]})
        after_ = fields(client.get("/study").text)
        assert {key: after_[key][0] for key in typed} == typed
        assert after_["party-name"] == ["office", "new", *NAMES[1:]]
        assert after_["key-line"] == ["", "", *sent["key-line"][1:]]
        assert (after_["threshold"], after_["weighting"]) == (["3"], ["balanced"])
        assert after_["party-epsilon"][4] == "0.3"


def test_a_browser_without_the_script_sees_a_page(client: TestClient) -> None:
    """Native navigation never ends on a bare line."""
    planned = fields(client.get("/plan").text)
    navigates = {"sec-fetch-mode": "navigate"}
    moved = client.post("/study/from-plan", data=planned, headers=navigates)
    assert (moved.status_code, moved.headers["location"]) == (303, "/study")
    planned["party-epsilon"][2] = "-1"
    for path in ("/plan/plan.json", "/plan/study.toml", "/plan/plan.svg"):
        refused = client.post(path, data=planned, headers=navigates)
        assert refused.status_code == 422
        assert "<nav" in refused.text
        assert "epsilon of hospital_south = -1.0 must be greater than 0" in refused.text
        shown = client.post(path, data=planned)
        assert 'data-field="epsilon-2"' in part(shown.text, "problem")


# Files ----------------------------------------------------------------------------------------------------------------


def test_a_saved_study_comes_back(client: TestClient, sent: Sent, folder: Path) -> None:
    for kind in OFFERED:
        if not hasattr(OFFERED[kind], "rounds") and kind not in VERTICAL_KINDS:  # which must be asked alone
            sent = after(client, sent, "add-query", new_kind=kind)
    sent |= {"party-receives": [str(place) for place in range(5)]}  # as models by rounds need
    sent |= {"study-name": ["flu"], "unit": ["party"], "deadline": ["90s"], "file": ["flu.toml"]}
    html = ask(client, sent, action="save")
    assert "Saved" in part(html, "saved")
    study = Study.read(folder / "flu.toml")
    assert study == downloaded(client, sent)
    assert str(folder / "flu.toml") in part(html, "saved")
    assert fields(part(html, "opening"))["open-file"] == ["flu.toml"]
    fresh = fields(client.get("/study").text)
    opened = after(client, fresh, "open", open_file="flu.toml")
    assert downloaded(client, opened) == study
    assert opened["file"] == ["flu.toml"]
    assert opened["deadline"] == ["90s"]


def test_purpose_and_contact_are_kept_and_come_back(client: TestClient, sent: Sent, folder: Path) -> None:
    said = {"purpose": ["beds <b>next</b> winter"], "contact": ["a@example.org"]}
    client.post("/study", data=sent | said | {"action": ["save"], "file": ["winter.toml"]})
    study = Study.read(folder / "winter.toml")
    assert (study.purpose, study.contact) == ("beds <b>next</b> winter", "a@example.org")
    html = client.post("/study", data=sent | {"action": ["open"], "open-file": ["winter.toml"]}).text
    assert fields(html)["purpose"] == ["beds <b>next</b> winter"]
    assert "<b>next" not in html
    assert "500" in ask(client, sent, purpose="x" * 501)


def test_another_study_is_replaced_only_if_that_is_ticked(client: TestClient, sent: Sent, folder: Path) -> None:
    path = folder / "study.toml"
    assert "Saved" in ask(client, sent, action="save")
    assert "Saved" in ask(client, sent, action="save", study_name="second")  # this page wrote it
    path.write_text("# by hand\n" + path.read_text())
    text = part(ask(client, sent, action="save", study_name="third"), "problem")
    assert "study.toml is there already (the study second / session 1)" in text
    assert 'data-field="file"' in text
    assert path.read_text().startswith("# by hand")
    assert "another study of the same name" not in ask(client, sent, action="save", file="x.toml", study_name="second")
    twin = part(ask(client, sent, action="save", file="y.toml", study_name="second", threshold="1"), "saved")
    assert "is another study of the same name and session" in twin
    assert "Saved" in ask(client, sent, action="save", study_name="third", may_replace="yes")
    assert Study.read(path).name == "third"


def test_files_that_are_not_studies_are_never_replaced(client: TestClient, sent: Sent, folder: Path) -> None:
    (folder / "notes.toml").write_text("a = 1\n")
    refused = ask(client, sent, action="save", file="notes.toml", may_replace="yes")
    assert "is not a study" in part(refused, "problem")
    assert (folder / "notes.toml").read_text() == "a = 1\n"
    for name in ("../out.toml", "peers.toml", "data.csv", "", ".hidden.toml", "a/b.toml"):
        answer = client.post("/study", data=sent | {"action": ["save"], "file": [name], "may-replace": ["yes"]})
        assert (answer.status_code, "ile in the folder" in answer.text) == (422, True), name
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
    assert "The invitations ask these parties for their public keys" in part(html, "invited")
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
    assert "ask these parties" not in part(
        ask(client, sent, action="invite", relay="https://relay.example.org"), "invited"
    )
    text = (folder / "study invitations" / "insurer.study.toml").read_text()
    assert phrase not in text  # who changes the file could write other words
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


# What people asked ----------------------------------------------------------------------------------------------------


def test_every_invitation_names_the_relay_and_both_ways(client: TestClient, sent: Sent, folder: Path) -> None:
    relay = "https://relay.example.org:8443"
    ask(client, sent, action="invite", relay=relay)
    for name in NAMES:
        text = (folder / "study invitations" / f"{name}.study.toml").read_text()
        assert invited_relay(text) == relay
        assert f"# Relay:    {relay}\n" in text
        assert "run tpmdp page --folder FOLDER, and choose Take part." in text
        assert f"tpmdp keygen {name}" in text
        assert "A relay is a server" in text
        assert "# Start:\n" in text
        assert all(line.startswith("#") for line in text.splitlines() if "relay" in line.lower())
    ask(client, sent, action="invite")
    text = (folder / "study invitations" / "insurer.study.toml").read_text()
    assert invited_relay(text) == ""
    assert "# Relay:    the address on which the parties agree" in text


def test_a_wrong_key_says_where_the_right_one_comes_from(client: TestClient, sent: Sent) -> None:
    sent["key-line"] = ["", "", "", "nonsense", ""]
    status = part(ask(client, sent), "key-status")
    assert "paste the line that Make my key on the page has shown, or tpmdp keygen has printed" in status


def test_where_files_are_is_said_in_full(client: TestClient, sent: Sent, folder: Path) -> None:
    assert f"Saved as <bdi>{folder / 'study.toml'}</bdi>." in part(ask(client, sent, action="save"), "saved")
    assert str(folder / "study invitations") in part(ask(client, sent, action="invite"), "invited")


def test_bins_and_costs_are_explained(client: TestClient, sent: Sent) -> None:
    assert "each bin of a histogram" not in part(ask(client, sent), "preview")
    more = after(client, sent, "add-query", new_kind="histogram")
    html = part(ask(client, more), "preview")
    assert "each bin of a histogram has the square root of 2 times the noise of a count" in html
    assert "It is the same for any number of queries; more queries mean more noise each." in html
    assert "+-" not in html
    counted = after(client, more, "add-query", new_kind="count", query_0_where="")
    noise = {each.query.name: each.noise for each in expect(downloaded(client, counted)).queries}
    assert noise["ages"] == pytest.approx(2**0.5 * noise["long stays"], rel=1e-9)


def test_no_word_of_a_study_file_is_shown_to_people(client: TestClient, sent: Sent) -> None:
    more = sent
    for kind in ("histogram", "quantiles", "distribution", "linear_regression"):
        more = after(client, more, "add-query", new_kind=kind)
    html = ask(client, more, action="add-query", new_kind="variance")
    text = re.sub(r"<[^>]*>", " ", part(html, "queries") + part(html, "preview"))
    for word in ("at_least", "edges[i]", "`", "+-", "[low, high]"):
        assert word not in text


@pytest.mark.parametrize(
    ("field", "value", "place", "line"),
    [
        (
            "query-1-high",
            "-5",
            "query-1-high",
            "bounds of stay = 0.0 to -5.0 must be a finite range: high must be more",
        ),
        ("query-0-at_least", "x", "query-0-at_least", "at least of long stays = x is not a number"),
        ("query-0-below", "1", "query-0-at_least", "give at least less than below"),
        ("query-0-where", "age >>> 4", "query-0-where", "where of long stays"),
        ("query-1-by-column", "", "query-1-by-column", "Column of groups of stay is missing"),
        ("query-1-by-categories", "a,,b", "query-1-by-categories", "groups of stay"),
        ("query-0-name", "", "query-0-name", "Name of query 1 is missing"),
        ("query-1-name", "long stays", "query-1-name", "name of a query = long stays is given twice"),
        ("query-1-low", "1,500", "query-1-low", "low of stay = 1,500 has a comma: write 1500"),
        ("deadline", "soon", "deadline", "deadline = soon"),
        ("session", "x", "session", "session = x"),
        ("study-name", "", "study-name", "Name must be text"),
    ],
)
def test_a_problem_names_its_field(
    client: TestClient, sent: Sent, field: str, value: str, place: str, line: str
) -> None:
    assert field in sent
    html = part(ask(client, sent | {field: [value]}), "problem")
    assert line in html
    assert f'data-field="{place}"' in html
    after_button = part(ask(client, sent | {field: [value]}, action="add-party"), "problem")
    assert f'data-field="{place}"' in after_button


def test_a_wrong_bound_of_a_column_names_its_field(client: TestClient, sent: Sent) -> None:
    more = after(client, sent, "add-query", new_kind="linear_regression")
    html = part(ask(client, more | {"query-2-bounds": ["days 9 0\nage 0 1\nseverity 0 1"]}), "problem")
    assert "bounds of stay by age, days = 9.0 to 0.0 must be a finite range: high must be more than low" in html
    assert 'data-field="query-2-bounds"' in html
    relay = part(ask(client, sent, action="invite", relay="nowhere"), "problem")
    assert 'data-field="relay"' in relay
    key = part(ask(client, sent | {"key-line": ["", "x", "", "", ""]}, action="save"), "problem")
    assert 'data-field="key-line-1"' in key


# A study file from the browser ----------------------------------------------------------------------------------------


def sent_file(client: TestClient, text: bytes, name: str = "mine.toml") -> Any:
    return client.post("/study/upload", content=text, headers={"x-file-name": name})


def test_a_downloaded_study_can_be_opened_again(client: TestClient, sent: Sent, folder: Path) -> None:
    (folder / "study.toml").write_text("")  # the name is taken
    text = client.post("/study/study.toml", data=sent | {"study-name": ["flu"], "session": ["3"]}).content
    html = sent_file(client, text).text
    assert "Opened <bdi>mine.toml</bdi>. Nothing was written." in part(html, "saved")
    shown = fields(part(html, "settings") + part(html, "files"))
    assert (shown["study-name"], shown["session"], shown["file"]) == (["flu"], ["3"], ["study-2.toml"])
    assert fields(client.get("/study").text)["study-name"] == ["flu"]
    planned = client.post("/plan/study.toml", data=fields(client.get("/plan").text)).content
    assert "example: change it" in part(sent_file(client, planned).text, "preview")
    assert [path.name for path in folder.iterdir()] == ["study.toml"]


@pytest.mark.parametrize("text", [b"", b"\xff\xfe", b"a = 1\n", b"[[parties]]\nname = '<img src=x>'\n"])
def test_other_files_are_refused_and_nothing_changes(client: TestClient, sent: Sent, text: bytes) -> None:
    before = fields(client.get("/study").text)
    answer = sent_file(client, text, "<b>evil</b>.toml")
    assert answer.status_code == 422
    assert "<b>" not in answer.text
    assert "<img" not in answer.text
    assert "/tmp" not in answer.text  # noqa: S108
    assert fields(client.get("/study").text) | {"form-id": []} == before | {"form-id": []}


def test_pasted_parties_keep_their_keys_by_name_and_can_be_undone(client: TestClient, sent: Sent) -> None:
    sent["key-line"] = lines_of(NAMES)
    pasted = f"new 1 1e-6 5 receives\n{NAMES[3]} 1 1e-6 5\n{NAMES[1]} 1 1e-6 5"
    more = after(client, sent, "paste-parties", pasted=pasted)
    assert more["party-name"] == ["new", NAMES[3], NAMES[1]]
    assert more["key-line"] == ["", sent["key-line"][3], sent["key-line"][1]]
    undone = after(client, more, "undo")
    assert undone["party-name"] == NAMES
    assert [bool(line) for line in undone["key-line"]] == [False, True, False, True, False]


def test_a_wrong_line_of_a_party_marks_its_field(client: TestClient, sent: Sent) -> None:
    sent["key-line"] = lines_of(NAMES)
    sent["key-line"][2] = "nonsense"
    assert 'id="key-problem-2" data-marks="key-line-2"' in part(ask(client, sent), "key-status")


def test_the_relay_may_be_added_later(client: TestClient) -> None:
    html = client.get("/study").text
    assert "May be added later; needed before anybody joins." in html
