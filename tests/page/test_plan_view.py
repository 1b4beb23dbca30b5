"""Plan, without a browser: the numbers are the library's, and every mistake is one line."""

from __future__ import annotations

import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

import tpmdp
from tests.page.browsing import TestClient, fields, part
from tpmdp.planning.plan_file import read_plan
from tpmdp.report.numbers import three_digits

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
    assert f"± {three_digits(tpmdp.plan(SPEC).expected_error)}" in html
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
    assert f"± {three_digits(expected.expected_error)}" in part(answer.text, "answer")
    assert "parties" not in answer.text.split('data-part="sliders"')[0].replace("data-part", "")  # fields stay


def test_the_threshold_0_warns(client: TestClient, sent: dict[str, list[str]]) -> None:
    answer = client.post("/plan", data=sent | {"threshold": ["0"]})
    assert "No noise is added" in part(answer.text, "answer")
    assert "Nothing is promised" in part(answer.text, "words")


def test_losses_are_planned_for(client: TestClient, sent: dict[str, list[str]]) -> None:
    answer = client.post("/plan", data=sent | {"threshold": ["1"], "tolerate": ["2"]})
    expected = tpmdp.plan(SPEC.replace(threshold=3)).expected_error
    assert f"± {three_digits(expected)}" in part(answer.text, "answer")


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
        ("party-records", "1.5", "records of hospital_north = 1.5 must be a whole number"),
        ("party-name", "", "name of a party = (blank) is missing"),
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
    assert "up to 2 parties may collude" in text
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
    from html import unescape

    html = part(client.post("/plan", data=sent | {"weighting": ["balanced"], "tolerate": ["1"]}).text, "code")
    code = unescape(html.split("<code>")[1].split("</code>")[0])
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    expected = tpmdp.plan(
        SPEC.replace(threshold=3), weighting="balanced", records=[900, 400, 650, 1200, 300], width=1.0
    )
    assert float(done.stdout) == expected.expected_error


def test_a_form_that_is_not_ours_is_refused(client: TestClient) -> None:
    assert client.post("/plan", data={"party-row": ["0", "1"], "party-name": ["a"]}).status_code == 422
    assert client.post("/plan", data={}).status_code == 422
    assert client.post("/plan/nothing", data={}).status_code == 404


def test_a_pasted_list_replaces_the_parties(client: TestClient, sent: dict[str, list[str]]) -> None:
    lines = "north, 0.5, 1e-5, 40, receives\n\nsouth\t2\neast;1;;7;no"
    html = client.post("/plan", data=sent | {"action": ["paste-parties"], "pasted": ["Party\tEpsilon\n" + lines]}).text
    shown = fields(part(html, "parties"))
    assert shown["party-name"] == ["north", "south", "east"]
    assert shown["party-delta"] == ["1e-5", "1e-6", "1e-6"]
    assert shown["party-receives"] == ["0"]
    bad = client.post("/plan", data=sent | {"action": ["paste-parties"], "pasted": ["a, 1, 2, 3, 4, 5, 6"]})
    assert "line 1 = a, 1, 2, 3, 4, 5, 6 must be name" in part(bad.text, "problem")


def test_two_thousand_parties_are_planned_and_more_refused(client: TestClient, sent: dict[str, list[str]]) -> None:
    lines = "\n".join(f"p{number}, {1 + number % 7}" for number in range(2000))
    answer = client.post("/plan", data=sent | {"action": ["paste-parties"], "pasted": [lines]})
    assert answer.status_code == 200
    assert "1940 more parties are not shown" in answer.text
    more = client.post("/plan", data=sent | {"action": ["paste-parties"], "pasted": [lines + "\nlast, 1"]})
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
