"""Plan, without a browser: the numbers are the library's, and every mistake is one line."""

from __future__ import annotations

import math
import re
import subprocess
import sys
import tomllib
from html import unescape
from pathlib import Path

import pytest

import tpmdp
from tests.page.browsing import TestClient, fields, part
from tpmdp.planning.inverse import budget_floor
from tpmdp.planning.plan_file import read_plan
from tpmdp.report.numbers import number, three_digits

SPEC = tpmdp.Spec(
    names=["statistics_office", "hospital_north", "hospital_south", "insurer", "university"],
    epsilon=[2, 0.5, 1, 1, 2],
    delta=1e-6,
    threshold=2,
    receivers=[0, 1],
)


@pytest.fixture
def sent(client: TestClient) -> dict[str, list[str]]:
    """The example, as it stands on the page."""
    return fields(client.get("/plan").text)


def test_the_first_view_is_planned(client: TestClient) -> None:
    html = client.get("/plan").text
    assert f"±\u00a0{three_digits(tpmdp.plan(SPEC).expected_error)}" in html
    assert html.count('name="party-name"') == 5


@pytest.mark.parametrize("threshold", [1, 2, 3, 4])
@pytest.mark.parametrize("weighting", ["equal", "balanced"])
def test_a_moved_slider_gives_the_plan_of_the_library(
    client: TestClient, sent: dict[str, list[str]], threshold: int, weighting: str
) -> None:
    sent |= {"threshold": [str(threshold)], "weighting": [weighting]}
    answer = client.post("/plan", data=sent)
    records = [900, 400, 650, 1200, 300]
    expected = tpmdp.plan(SPEC.replace(threshold=threshold), weighting=weighting, records=records, width=1.0)
    assert f"±\u00a0{three_digits(expected.expected_error)}" in part(answer.text, "answer")
    assert "parties" not in answer.text.split('data-part="sliders"')[0].replace("data-part", "")  # fields stay
    for baseline in ("equal weights", "weights with two levels", "strict parties left out"):
        assert (baseline in answer.text) is (weighting == "balanced")


def test_the_threshold_0_warns(client: TestClient, sent: dict[str, list[str]]) -> None:
    answer = client.post("/plan", data=sent | {"threshold": ["0"]})
    assert "No noise is added" in part(answer.text, "answer")
    assert "Nothing is promised" in part(answer.text, "words")


def test_losses_cost_no_noise_and_weaken_no_promise(client: TestClient, sent: dict[str, list[str]]) -> None:
    plain, tolerant = (client.post("/plan", data=sent | {"tolerate": [losses]}).text for losses in "01")
    for name in ("answer", "curve", "promises", "ring", "code"):
        assert part(tolerant, name) == part(plain, name)
    assert "It costs no noise." in part(tolerant, "sliders")
    said = "Up to 1 party may drop out; that weakens nothing and costs no noise."
    assert said in part(tolerant, "words")
    assert said not in part(plain, "words")


def test_parties_are_added_and_removed(client: TestClient, sent: dict[str, list[str]]) -> None:
    more = part(client.post("/plan", data=sent | {"action": ["add-party"]}).text, "parties")
    assert fields(more)["party-name"][-1] == "party_6"
    less = part(client.post("/plan", data=sent | {"action": ["remove-party-0"]}).text, "parties")
    assert fields(less)["party-name"][0] == "hospital_north"
    assert fields(less)["party-receives"] == ["0"]  # the same party as before


def test_a_threshold_that_no_longer_fits_follows(client: TestClient, sent: dict[str, list[str]]) -> None:
    for _ in range(3):
        sent["action"] = ["remove-party-0"]
        html = client.post("/plan", data=sent).text
        sent = fields(part(html, "parties")) | fields(part(html, "sliders"))
    assert len(sent["party-name"]) == 2
    assert int(sent["threshold"][0]) <= 1


@pytest.mark.parametrize(
    ("field", "value", "line"),
    [
        ("party-epsilon", "-1", "epsilon of hospital_north = -1.0 must be greater than 0"),
        ("party-epsilon", "a lot", "epsilon of hospital_north = a lot is not a number"),
        ("party-delta", "2", "delta of hospital_north = 2.0"),
        ("party-records", "9" * 23, "is too large: write at most 15 digits"),
        ("party-records", "1.5", "records of hospital_north = 1.5 must be a whole number"),
        ("party-name", "", "Name of a party is missing"),
        ("party-name", "insurer", "name of party 4 = insurer is used twice"),
    ],
)
def test_a_wrong_field_is_named(
    client: TestClient, sent: dict[str, list[str]], field: str, value: str, line: str
) -> None:
    sent[field][1] = value
    answer = client.post("/plan", data=sent)
    assert answer.status_code == 422
    assert line in part(answer.text, "problem")
    assert "Traceback" not in answer.text


def test_names_from_outside_stay_text(client: TestClient, sent: dict[str, list[str]]) -> None:
    sent["party-name"][0] = "<img src=x onerror=alert(1)>"
    html = client.post("/plan", data=sent | {"action": ["add-party"]}).text
    assert "<img" not in html
    assert "&lt;img src=x onerror=alert(1)&gt;" in html


def test_an_error_gives_a_threshold_and_budgets(client: TestClient, sent: dict[str, list[str]]) -> None:
    text = part(client.post("/plan", data=sent | {"wanted": ["9"]}).text, "backwards")
    assert "Reached: this plan has an error of" in text
    assert 'class="quiet"' in text
    factor = float(text.split("use-factor=")[1].split('"')[0])
    assert tpmdp.plan(SPEC.replace(epsilon=SPEC.epsilon * factor)).expected_error <= 9
    used = client.post("/plan", data=sent | {"wanted": ["9"], "action": [f"use-factor={factor}"]}).text
    shown = [float(each) for each in fields(part(used, "parties"))["party-epsilon"]]
    assert tpmdp.plan(SPEC.replace(epsilon=shown)).expected_error <= 9 * (1 + 1e-3)


def test_the_party_that_drives_the_noise_can_change_alone_and_undo_it(
    client: TestClient, sent: dict[str, list[str]]
) -> None:
    sent |= {"wanted": ["7"]}
    text = part(client.post("/plan", data=sent).text, "backwards")
    assert "hospital_north" in text
    assert "each party whose epsilon grows has to agree" in text
    place, epsilon = text.split("use-epsilon=")[1].split('"')[0].split(":")
    used = client.post("/plan", data=sent | {"action": [f"use-epsilon={place}:{epsilon}"]}).text
    shown = [float(each) for each in fields(part(used, "parties"))["party-epsilon"]]
    assert shown == [2, float(epsilon), 1, 1, 2]
    assert tpmdp.plan(SPEC.replace(epsilon=shown)).expected_error <= 7 * (1 + 1e-3)
    assert "use-factor" not in part(used, "backwards")  # it is reached: nothing more to use
    undone = client.post("/plan", data=sent | {"action": ["undo"]}).text
    assert fields(part(undone, "parties"))["party-epsilon"] == ["2", "0.5", "1", "1", "2"]


@pytest.mark.parametrize(
    ("wanted", "line"), [("much", "is not a number"), ("0", "must be more than 0"), ("inf", "more")]
)
def test_a_wrong_error_is_said_where_it_is_typed(
    client: TestClient, sent: dict[str, list[str]], wanted: str, line: str
) -> None:
    answer = client.post("/plan", data=sent | {"wanted": [wanted]})
    assert answer.status_code == 200  # the plan does not need it
    assert line in part(answer.text, "backwards")
    assert "button" not in part(answer.text, "backwards")


def test_pointing_changes_the_ring_only(client: TestClient, sent: dict[str, list[str]]) -> None:
    html = client.post("/plan", data=sent | {"pointed": ["4"], "action": ["point"]}).text
    assert "Worst for" in part(html, "ring")
    assert "university" in part(html, "ring")
    assert 'data-part="answer"' not in html


def test_files_are_those_of_the_command_line(client: TestClient, sent: dict[str, list[str]], tmp_path: Path) -> None:
    path = tmp_path / "plan.json"
    path.write_bytes(client.post("/plan/plan.json", data=sent).content)
    spec, certificate = read_plan(path)
    assert spec == SPEC
    assert certificate.check(spec).parties == 5
    study = tomllib.loads(client.post("/plan/study.toml", data=sent).text)
    assert [party["epsilon"] for party in study["parties"]] == [2, 0.5, 1, 1, 2]
    assert tpmdp.Study.parse(study).threshold == 2
    picture = client.post("/plan/plan.svg", data=sent)
    assert picture.headers["content-disposition"] == 'attachment; filename="plan.svg"'
    assert picture.content.startswith(b"<?xml")


@pytest.mark.process
@pytest.mark.slow
def test_the_python_lines_give_the_same_error(client: TestClient, sent: dict[str, list[str]]) -> None:
    html = part(client.post("/plan", data=sent | {"weighting": ["balanced"], "tolerate": ["1"]}).text, "code")
    code = unescape(html.split("<code>")[1].split("</code>")[0])
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    expected = tpmdp.plan(SPEC, weighting="balanced", records=[900, 400, 650, 1200, 300], width=1.0)
    assert float(done.stdout) == expected.expected_error


def test_a_form_that_is_not_ours_is_refused(client: TestClient) -> None:
    assert client.post("/plan", data={"party-row": ["0", "1"], "party-name": ["a"]}).status_code == 422
    assert client.post("/plan", data={}).status_code == 422
    assert client.post("/plan/nothing", data={}).status_code == 404


def test_a_pasted_list_replaces_the_parties(client: TestClient, sent: dict[str, list[str]]) -> None:
    lines = "north, 0.5, 1e-5, 40, receives\n\nsouth\t2\t1e-6\neast;1;1e-6;7;no"
    html = client.post("/plan", data=sent | {"action": ["paste-parties"], "pasted": ["Party\tEpsilon\n" + lines]}).text
    shown = fields(part(html, "parties"))
    assert shown["party-name"] == ["north", "south", "east"]
    assert shown["party-delta"] == ["1e-5", "1e-6", "1e-6"]
    assert shown["party-receives"] == ["0"]
    assert "3 parties were read, 1 receiver. 1 line had no number of records: 1000" in part(html, "changed")
    undone = client.post("/plan", data=sent | shown | {"action": ["undo"]}).text
    assert fields(part(undone, "parties"))["party-name"] == list(SPEC.names or ())
    assert part(undone, "changed") == ""


@pytest.mark.parametrize(
    ("lines", "line"),
    [
        ("a, 1, 2, 3, 4, 5, 6\nb, 1, 1e-6", "line 1 = a, 1, 2, 3, 4, 5, 6 must be name"),
        ("A,0.3,1e-6\nB", "line 2 = B must be name, epsilon and delta"),
        ("A,0.3,1e-6\nB,,1e-6", "line 2 = B, , 1e-6 must be name, epsilon and delta"),
        ("north hospital 0.3 1e-6\nB 1 1e-6", "epsilon in line 1 = hospital is not a number"),
        ("A 0,3 1e-6\nB 1 1e-6", "line 1 = A 0, 3 1e-6 must be name"),
        ("A;0.3;1e-6;2000", "pasted list = 1 party must have at least 2 parties: write a line for each party"),
        ("A 0.3 1e-6 1,500\nB 1 1e-6", "line 1 = "),
        ("A;0.3;1e-6;1.500\nB;1;1e-6", "records in line 1 = 1.500 may mean 1 or 1500: write 1500"),
        ("A;0,3;1e-6;1500\nB;1;1e-6", "epsilon in line 1 = 0,3 has a comma: write 0.3, with a point"),
        ("", "pasted list = 0 parties must have at least 2"),
    ],
)
def test_a_pasted_list_invents_no_budget(client: TestClient, sent: dict[str, list[str]], lines: str, line: str) -> None:
    bad = client.post("/plan", data=sent | {"action": ["paste-parties"], "pasted": [lines]})
    assert bad.status_code == 422
    assert line in unescape(part(bad.text, "problem"))
    assert 'data-field="pasted"' in part(bad.text, "problem")


@pytest.mark.parametrize("between", [" ", "   ", ";", ", ", "\t", " ; "])
def test_a_pasted_list_may_have_any_separator(client: TestClient, sent: dict[str, list[str]], between: str) -> None:
    lines = "\n".join(between.join(row) for row in [["A", "0.3", "1e-6", "2000"], ["B", "0.5", "1e-6", "300"]])
    html = client.post("/plan", data=sent | {"action": ["paste-parties"], "pasted": [lines]}).text
    shown = fields(part(html, "parties"))
    assert (shown["party-name"], shown["party-epsilon"], shown["party-records"]) == (
        ["A", "B"],
        ["0.3", "0.5"],
        ["2000", "300"],
    )
    assert "party-receives" not in shown  # nobody said who
    assert "2 parties were read, 0 receivers. Tick who receives the answer." in part(html, "changed")


def test_two_thousand_parties_are_planned_and_more_refused(client: TestClient, sent: dict[str, list[str]]) -> None:
    lines = "\n".join(f"p{number}, {1 + number % 7}, 1e-6, 10, receives" for number in range(2000))
    answer = client.post("/plan", data=sent | {"action": ["paste-parties"], "pasted": [lines]})
    assert answer.status_code == 200
    assert "1940 more parties are not shown" in answer.text
    more = client.post("/plan", data=sent | {"action": ["paste-parties"], "pasted": [lines + "\nlast, 1, 1e-6"]})
    assert "must be at most 2,000 on this page" in part(more.text, "problem")


def test_what_was_planned_is_there_after_another_view(client: TestClient, sent: dict[str, list[str]]) -> None:
    sent["party-epsilon"][1] = "0.7"
    client.post("/plan", data=sent | {"threshold": ["3"], "wanted": ["9"]})
    client.get("/study")
    again = fields(client.get("/plan").text)
    assert (again["party-epsilon"][1], again["threshold"], again["wanted"]) == ("0.7", ["3"], ["9"])


def test_a_folder_with_an_invitation_begins_with_it(client: TestClient, folder: Path) -> None:
    assert client.get("/").headers["location"] == "/plan"
    (folder / "north.study.toml").write_text("")
    assert client.get("/").headers["location"] == "/join"


# What follows from others is said -------------------------------------------------------------------------------------


def after(client: TestClient, sent: dict[str, list[str]], action: str) -> dict[str, list[str]]:
    """The form after a button that changes parties."""
    html = client.post("/plan", data=sent | {"action": [action]}).text
    others = {name: values for name, values in sent.items() if not name.startswith(("party-", "threshold", "tolerate"))}
    return others | fields(part(html, "parties") + part(html, "sliders"))


def test_a_lowered_threshold_is_said_until_the_slider_is_moved(client: TestClient, sent: dict[str, list[str]]) -> None:
    sent |= {"threshold": ["4"]}
    for place in (4, 3):
        sent = after(client, sent, f"remove-party-{place}")
    assert sent["threshold"] == ["2"]
    note = part(client.post("/plan", data=sent).text, "sliders")
    assert "Threshold lowered from 4 to 2: it must be below the number of parties." in note
    assert "There is room again" not in note
    for _ in range(2):
        sent = after(client, sent, "add-party")
    html = part(client.post("/plan", data=sent).text, "sliders")
    assert 'data-action="use-threshold=4"' in html
    moved = part(client.post("/plan", data=sent | {"threshold": ["1"]}).text, "sliders")
    assert "lowered" not in moved
    back = after(client, sent, "use-threshold=4")
    assert (back["threshold"], "threshold-lowered" in back) == (["4"], False)


@pytest.mark.parametrize(
    ("threshold", "tolerate", "line"),
    [
        ("2", "0", "At most 1 here: with fewer parties left, colluders could open two answers."),
        ("1", "3", "Lowered from 3 to 1. </strong>At most 1 here"),
        ("0", "0", "None at threshold 0: losses need a threshold of at least 1."),
        ("3", "2", "Lowered from 2 to 0. </strong>None here: with this threshold, everybody is needed."),
    ],
)
def test_how_many_losses_are_possible_is_said(
    client: TestClient, sent: dict[str, list[str]], threshold: str, tolerate: str, line: str
) -> None:
    html = client.post("/plan", data=sent | {"threshold": [threshold], "tolerate": [tolerate]}).text
    assert line in part(html, "sliders")


def test_a_broken_note_is_ignored(client: TestClient, sent: dict[str, list[str]]) -> None:
    for text in ("x", "9:x", "9", "<b>:2", "9" * 9 + ":2", "1:2", ":"):
        html = client.post("/plan", data=sent | {"threshold-lowered": [text]}).text
        assert "lowered" not in part(html, "sliders")


def test_parties_with_equal_needs_share_what_is_due_to_them(client: TestClient, sent: dict[str, list[str]]) -> None:
    html = part(client.post("/plan", data=sent).text, "promises")
    assert "jointly with <bdi>insurer</bdi>" in html
    assert "jointly with <bdi>hospital_south</bdi>" in html
    group = tpmdp.plan(SPEC).drivers_together()
    assert group.groups == ((2, 3),)
    assert html.count(f'>{100 * group.share(2):.0f} %<span class="with">') == 2


def test_the_worst_coalition_is_explained(client: TestClient, sent: dict[str, list[str]]) -> None:
    html = part(client.post("/plan", data=sent | {"pointed": ["2"]}).text, "ring")
    assert "A coalition needs a receiver" in html
    assert "<bdi>hospital_north</bdi> brings it" in html
    assert "Equally bad: <bdi>hospital_north</bdi> and <bdi>university</bdi>." in html


def test_epsilon_and_several_records_are_explained(client: TestClient, sent: dict[str, list[str]]) -> None:
    words = part(client.post("/plan", data=sent | {"pointed": ["1"]}).text, "words")
    assert "at most e^0.5 = 1.65" in words
    assert "A person with several records at one party has less protection" in words


def test_without_noise_nothing_looks_protected(client: TestClient, sent: dict[str, list[str]]) -> None:
    html = client.post("/plan", data=sent | {"threshold": ["0"]}).text
    assert "Nothing protects <strong><bdi>statistics_office</bdi></strong>: the threshold is 0" in part(html, "ring")
    assert "nobody can attack" not in html
    assert "no noise, no protection" in part(html, "baselines")
    assert "At threshold 0 there is no noise, and no protection." in part(html, "curve")
    assert part(html, "curve").count("<circle") == 4  # thresholds 1 to 4
    assert "no noise" in part(html, "glance")
    none = {name: values for name, values in sent.items() if name != "party-receives"}
    html = client.post("/plan", data=none | {"wanted": ["9"]}).text
    for place in ("baselines", "curve", "ring", "words", "backwards", "glance"):
        assert "Nobody receives an answer yet." in part(html, place)
    assert "100 %" not in html  # nobody sees anything
    assert "no protection" not in html
    assert part(html, "promises").count('data-label="real epsilon"></td>') == 5


def test_two_parties_are_enough(client: TestClient, sent: dict[str, list[str]]) -> None:
    for name in ("name", "epsilon", "delta", "records"):
        sent[f"party-{name}"] = sent[f"party-{name}"][:2]
    sent["party-row"] = ["0", "1"]
    for threshold in ("0", "1", "7"):
        answer = client.post("/plan", data=sent | {"threshold": [threshold], "wanted": ["3"], "pointed": ["9"]})
        assert answer.status_code == 200


def test_a_reached_error_offers_stronger_promises_quietly(client: TestClient, sent: dict[str, list[str]]) -> None:
    plan = tpmdp.plan(SPEC)
    html = part(client.post("/plan", data=sent | {"wanted": ["20"]}).text, "backwards")
    assert f"Reached: this plan has an error of {three_digits(plan.expected_error)}." in html
    assert "You could even tighten all budgets" in html
    assert html.count("<button") == html.count('class="quiet"') == 3
    assert "of the noise is there because of <strong><bdi>hospital_north</bdi></strong>." in html
    factor = html.split("use-factor=")[1].split('"')[0]
    used = client.post("/plan", data=sent | {"wanted": ["20"], "action": [f"use-factor={factor}"]}).text
    assert "All epsilons were changed: they are now" in part(used, "backwards")
    assert "use-factor" not in part(used, "backwards")  # nothing that anybody would notice is left
    assert "Not reached" not in part(used, "backwards")


def test_a_party_that_was_removed_comes_back(client: TestClient, sent: dict[str, list[str]]) -> None:
    html = client.post("/plan", data=sent | {"action": ["remove-party-1"]}).text
    assert "hospital_north was removed." in part(html, "changed")
    shown = fields(part(html, "parties"))
    undone = client.post("/plan", data=sent | shown | {"action": ["undo"]}).text
    assert fields(part(undone, "parties"))["party-name"] == list(SPEC.names or ())
    assert "was removed" not in part(undone, "changed")


def test_names_that_a_study_refuses_are_said_at_once_and_mended(client: TestClient, sent: dict[str, list[str]]) -> None:
    sent["party-name"][1:3] = ["St Anna", "Spital Süd"]
    html = client.post("/plan", data=sent).text
    assert "Write St_Anna for St Anna; Spital_Sud for Spital Süd." in part(html, "changed")
    assert part(html, "problem") == ""  # a plan may have them
    refused = client.post("/plan/study.toml", data=sent)
    assert refused.status_code == 422
    assert (
        "St Anna must be letters, digits, _ . - without blanks: write St_Anna, and Spital_Sud for Spital"
        in refused.text
    )
    assert 'data-field="name-1"' in refused.text
    mended = client.post("/plan", data=sent | {"action": ["use-names"]}).text
    assert fields(part(mended, "parties"))["party-name"][1:3] == ["St_Anna", "Spital_Sud"]
    assert "Names were changed" in part(mended, "changed")


def test_the_smallest_request_raises_only_those_below_a_floor(client: TestClient, sent: dict[str, list[str]]) -> None:
    wanted = 0.4 * tpmdp.plan(SPEC).expected_error
    html = part(client.post("/plan", data=sent | {"wanted": [f"{wanted:.3f}"]}).text, "backwards")
    floor = budget_floor(SPEC, float(f"{wanted:.3f}"))
    assert floor is not None
    assert f"Raise every epsilon below {number(floor)} to {number(floor)}: the error is reached. This asks" in html
    assert "keep their epsilon." in html
    assert html.index("Raise every epsilon") < html.index("reach it and ask everybody")
    action = "use-epsilon=" + html.split("use-epsilon=")[1].split('"')[0]
    used = client.post("/plan", data=sent | {"wanted": [f"{wanted:.3f}"], "action": [action]}).text
    before = [float(each) for each in sent["party-epsilon"]]
    after = [float(each) for each in fields(part(used, "parties"))["party-epsilon"]]
    assert after == pytest.approx([max(each, floor) for each in before])
    assert "Reached: this plan has an error of" in part(used, "backwards")


def test_a_group_that_matters_most_can_change_together(client: TestClient, sent: dict[str, list[str]]) -> None:
    sent["party-epsilon"] = ["2", "0.5", "0.5", "0.5", "2"]
    wanted = tpmdp.plan(SPEC.replace(epsilon=[2, 0.7, 0.7, 0.7, 2])).expected_error
    html = part(client.post("/plan", data=sent | {"wanted": [f"{wanted:.3f}"]}).text, "backwards")
    assert "<bdi>hospital_north</bdi>, <bdi>hospital_south</bdi> and <bdi>insurer</bdi></strong> together." in html
    action = "use-epsilon=" + html.split("use-epsilon=")[-1].split('"')[0]
    used = client.post("/plan", data=sent | {"wanted": [f"{wanted:.3f}"], "action": [action]}).text
    shown = [float(each) for each in fields(part(used, "parties"))["party-epsilon"]]
    assert shown[0] == shown[4] == 2
    assert shown[1] == shown[2] == shown[3] == pytest.approx(0.7, rel=0.01)
    assert "Epsilon of hospital_south was changed from 0.5 to" in part(used, "backwards")


def test_the_offer_to_undo_goes_with_the_next_edit_and_steps_are_undone_in_turn(
    client: TestClient, sent: dict[str, list[str]]
) -> None:
    for threshold in ("3", "4"):
        html = client.post("/plan", data=sent | {"action": [f"use-threshold={threshold}"]}).text
        assert f"The threshold was changed from {int(threshold) - 1} to {threshold}." in part(html, "backwards")
        sent |= {"threshold": [threshold]}
    sent["party-epsilon"][0] = "3"
    later = part(client.post("/plan", data=sent | {"wanted": ["8"]}).text, "backwards")
    assert "Undo" not in later  # it would lose what was typed since
    for threshold in ("3", "2"):
        undone = client.post("/plan", data=sent | {"action": ["undo"]}).text
        assert fields(part(undone, "sliders"))["threshold"] == [threshold]
        sent |= fields(part(undone, "sliders") + part(undone, "parties"))
    assert sent["party-epsilon"][0] == "2"
    assert "Undo" not in part(client.post("/plan", data=sent | {"action": ["undo"]}).text, "backwards")


@pytest.mark.parametrize(
    ("field", "value", "place", "line"),
    [
        ("sensitivity", "-1", "sensitivity", "largest change by one record = -1.0 must be finite and not negative"),
        ("sensitivity", "1e99", "sensitivity", "largest change by one record = 1e+99 must be"),
        ("sensitivity", "1,500", "sensitivity", "largest change by one record = 1,500 has a comma: write 1500"),
        ("threshold", "x", "threshold", "threshold = x must be a whole number"),
    ],
)
def test_messages_use_the_words_of_the_page(
    client: TestClient, sent: dict[str, list[str]], field: str, value: str, place: str, line: str
) -> None:
    for weighting in ("equal", "balanced"):
        html = client.post("/plan", data=sent | {field: [value], "weighting": [weighting]}).text
        assert line in part(html, "problem")
        assert f'data-field="{place}"' in part(html, "problem")


@pytest.mark.parametrize(
    ("column", "row", "value", "place"),
    [
        ("epsilon", 2, "-1", "epsilon-2"),
        ("epsilon", 2, "nonsense", "epsilon-2"),
        ("delta", 4, "7", "delta-4"),
        ("records", 0, "1.500", "records-0"),
        ("name", 3, "", "name-3"),
        ("name", 3, "hospital_north", "name-3"),
        ("name", 1, "all", "name-1"),
    ],
)
def test_a_problem_names_its_field(
    client: TestClient, sent: dict[str, list[str]], column: str, row: int, value: str, place: str
) -> None:
    sent[f"party-{column}"][row] = value
    assert f'data-field="{place}"' in part(client.post("/plan", data=sent).text, "problem")


def test_of_two_parties_with_one_name_the_wrong_one_is_marked(client: TestClient, sent: dict[str, list[str]]) -> None:
    sent["party-name"][0] = sent["party-name"][4] = ""
    sent["party-epsilon"][4] = "x"
    html = part(client.post("/plan", data=sent).text, "problem")
    assert 'data-field="name-0"' in html or 'data-field="epsilon-4"' in html


def test_the_wanted_error_is_called_as_its_label(client: TestClient, sent: dict[str, list[str]]) -> None:
    html = part(client.post("/plan", data=sent | {"wanted": ["-3"]}).text, "backwards")
    assert "error that you can accept = -3 must be more than 0" in html


def test_a_new_party_gets_the_focus(client: TestClient, sent: dict[str, list[str]]) -> None:
    answer = client.post("/plan", data=sent | {"action": ["add-party"]})
    assert answer.headers["x-focus"] == "name-5"
    assert "x-focus" not in client.post("/plan", data=sent).headers


def test_the_downloaded_study_waits_as_long_as_one_of_study(client: TestClient, sent: dict[str, list[str]]) -> None:
    study = tpmdp.Study.parse(tomllib.loads(client.post("/plan/study.toml", data=sent).text))
    composed = fields(client.get("/study").text)
    assert (study.deadline, composed["deadline"]) == (86400.0, ["1d"])


# Backwards ------------------------------------------------------------------------------------------------------------


def backwards(client: TestClient, sent: dict[str, list[str]], wanted: str, **changes: list[str]) -> str:
    """What Backwards says, as people read it."""
    html = part(client.post("/plan", data=sent | {"wanted": [wanted]} | changes).text, "backwards")
    return " ".join(unescape(re.sub("<[^>]+>", "", html)).split())


def test_what_is_offered_in_vain_is_named_and_can_be_used(client: TestClient, sent: dict[str, list[str]]) -> None:
    plan = tpmdp.plan(SPEC)
    sent |= {"wanted": [f"{plan.expected_error + 0.01:.3f}"]}
    html = part(client.post("/plan", data=sent).text, "backwards")
    assert "No room for a higher threshold, or for smaller epsilons of all at once." in html
    assert "Some offer more than is used: " in html
    real = plan.protection().epsilon
    pairs = [pair.split(":") for pair in html.split("use-epsilon=")[1].split('"')[0].split(",")]
    assert [int(place) for place, _ in pairs] == [each for each in range(5) if real[each] < 0.98 * SPEC.epsilon[each]]
    for place, epsilon in pairs:
        assert real[int(place)] <= float(epsilon) * (1 + 1e-12) < SPEC.epsilon[int(place)]
    action = "use-epsilon=" + ",".join(":".join(pair) for pair in pairs)
    used = client.post("/plan", data=sent | {"action": [action]}).text
    shown = [float(each) for each in fields(part(used, "parties"))["party-epsilon"]]
    assert tpmdp.plan(SPEC.replace(epsilon=shown)).expected_error <= plan.expected_error * (1 + 1e-12)
    assert "Some offer more" not in part(used, "backwards")
    assert "Reached" in part(used, "backwards")


@pytest.mark.parametrize("wanted", [8.5, 8.0, 7.123, 6.0])
def test_a_single_party_is_asked_once_and_never_for_too_little(
    client: TestClient, sent: dict[str, list[str]], wanted: float
) -> None:
    html = part(client.post("/plan", data=sent | {"wanted": [str(wanted)]}).text, "backwards")
    assert html.count("use-epsilon=") == 1
    assert "Raise every epsilon" not in html
    epsilon = html.split("use-epsilon=1:")[1].split('"')[0]
    assert float(epsilon) == budget_floor(SPEC, wanted)
    assert f"alone at {epsilon}, instead of 0.5, reaches the error." in html
    assert tpmdp.plan(SPEC.replace(epsilon=[2, float(epsilon), 1, 1, 2])).expected_error <= wanted


def test_a_threshold_is_offered_with_the_error_that_it_has(client: TestClient, sent: dict[str, list[str]]) -> None:
    at = {each: tpmdp.plan(SPEC.replace(threshold=each)).expected_error for each in (1, 2, 3, 4)}
    text = backwards(client, sent, "14")
    assert f"Up to 4 may collude: the error is then {three_digits(at[4])}, within your 14." in text
    between = f"{(at[2] + at[3]) / 2:.3f}"
    beyond = three_digits(at[3])
    assert f"2 is the largest threshold within {float(between):.4g} (3 would give {beyond})." in backwards(
        client, sent, between
    )
    assert "4 is the largest threshold that is possible here." in backwards(client, sent, "99", threshold=["4"])
    less = backwards(client, sent, f"{(at[1] + at[2]) / 2:.3f}")
    assert f"Up to 1 may collude: the error is then {three_digits(at[1])}, within your" in less


def test_one_receiver_is_suggested_and_explained(client: TestClient, sent: dict[str, list[str]]) -> None:
    page = client.get("/plan").text
    assert "Receives: who gets the answer." in page
    assert "Receives: who gets the answer." in client.get("/study").text
    alone = tpmdp.plan(SPEC.replace(receivers=[1])).expected_error
    text = backwards(client, sent, "5")
    assert f"If only hospital_north received it: {three_digits(alone)}, within your 5. All budgets still hold." in text
    used = client.post("/plan", data=sent | {"wanted": ["5"], "action": ["use-receiver=1"]}).text
    assert fields(part(used, "parties"))["party-receives"] == ["1"]
    assert "Only hospital_north receives the answer now." in part(used, "backwards")
    assert "If only" not in part(used, "backwards")
    undone = client.post("/plan", data=sent | fields(part(used, "parties")) | {"action": ["undo"]}).text
    assert fields(part(undone, "parties"))["party-receives"] == ["0", "1"]


def test_one_office_with_more_noise_than_the_plan_is_no_riddle(client: TestClient, sent: dict[str, list[str]]) -> None:
    note = "it publishes the answer to everybody, with one noise for all"
    assert note not in part(client.post("/plan", data=sent).text, "baselines")
    html = part(client.post("/plan", data=sent | {"party-receives": ["1"]}).text, "baselines")
    assert note in html
    assert "here only hospital_north receives it, and needs no protection from itself" in html
    balanced = client.post("/plan", data=sent | {"weighting": ["balanced"], "party-receives": ["1"]}).text
    assert "its records all count the same" in part(balanced, "baselines")


def test_why_a_coalition_is_the_worst_is_said_in_sizes(client: TestClient, sent: dict[str, list[str]]) -> None:
    plan = tpmdp.plan(SPEC)
    ring = unescape(part(client.post("/plan", data=sent | {"pointed": ["2"]}).text, "ring")).replace("\u00a0", " ")
    members = plan.protection().coalition(2)
    share = 100 * plan.variance[members].sum() / plan.total_variance
    left, need = (three_digits(math.sqrt(each)) for each in (plan.protection().honest_variance[2], plan.need[2]))
    assert f"They add {share:.0f} % of the noise and can subtract it. Noise of ± {left} (" in ring
    assert f"is left; its budget needs ± {need} (" in ring
    assert "Orange, with lines: who colludes." in ring


def test_the_footnote_explains_the_words_of_the_table_only_where_they_stand(
    client: TestClient, sent: dict[str, list[str]]
) -> None:
    note = "jointly with: the budgets are equally strict"
    assert note in part(client.post("/plan", data=sent).text, "promises")
    sent["party-epsilon"] = ["2", "0.5", "1", "1.2", "3"]
    assert "jointly with" not in part(client.post("/plan", data=sent).text, "promises")


# What is typed --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("text", ["3000", "3 000", "3,000", "3\u00a0000", "3\u202f000"])
def test_records_may_have_thousands_separators(client: TestClient, sent: dict[str, list[str]], text: str) -> None:
    sent["party-records"][0] = text
    answer = client.post("/plan", data=sent)
    assert answer.status_code == 200
    assert "records=[3000, 400," in unescape(part(answer.text, "code"))


@pytest.mark.parametrize(
    ("column", "text", "line"),
    [
        ("records", "3.000", "records of hospital_north = 3.000 may mean 3 or 3000: write 3000"),
        ("records", "3,00", "must be a whole number"),
        ("records", "3  000", "must be a whole number"),
        ("records", "0,300", "must be a whole number"),
        ("epsilon", "0,3", "epsilon of hospital_north = 0,3 has a comma: write 0.3, with a point"),
        ("epsilon", "1,500", "write 1500, or 1.500, with a point"),
        ("delta", "0,00001", "write 0.00001, with a point"),
    ],
)
def test_what_a_comma_means_is_asked(
    client: TestClient, sent: dict[str, list[str]], column: str, text: str, line: str
) -> None:
    sent[f"party-{column}"][1] = text
    assert line in unescape(part(client.post("/plan", data=sent).text, "problem"))


def test_all_wrong_fields_are_said_at_once(client: TestClient, sent: dict[str, list[str]]) -> None:
    sent["party-epsilon"][1], sent["party-epsilon"][2] = "0,3", "-1"
    sent["party-delta"][4], sent["party-records"][0], sent["party-name"][3] = "7", "many", ""
    sent["sensitivity"] = ["wide"]
    wrong = part(client.post("/plan", data=sent).text, "problem")
    places = re.findall(r'data-field="([^"]+)"', wrong)
    assert sorted(places) == ["delta-4", "epsilon-1", "epsilon-2", "name-3", "records-0", "sensitivity"]
    assert "epsilon of hospital_south = -1.0 must be greater than 0" in wrong
    study = fields(client.get("/study").text) | {name: sent[name] for name in sent if name.startswith("party-")}
    study |= {"session": ["x"], "deadline": ["soon"], "query-1-low": [""]}
    answer = client.post("/study", data=study)
    places = re.findall(r'data-field="([^"]+)"', part(answer.text, "problem"))
    assert {"delta-4", "epsilon-1", "session", "deadline", "query-1-low"} <= set(places)
