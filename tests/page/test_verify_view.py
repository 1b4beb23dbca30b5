"""Verify, without a browser: what holds is VALID, what was changed is not, and everything else is one line."""

from __future__ import annotations

import csv
import io
import json
from html import unescape
from pathlib import Path

import pytest

import tpmdp
from tests.page.browsing import TestClient, fields, part
from tests.study.sessions import Finished, finish, study
from tpmdp.planning.plan_file import plan_document, write_plan
from tpmdp.report.answer_file import write_answer_file
from tpmdp.report.html_report import page
from tpmdp.study.fingerprint import phrase_of
from tpmdp.study.record import SessionRecord

SPEC = tpmdp.Spec(
    names=["office", "north", "south", "insurer"],
    epsilon=[2, 0.5, 1, 1.25],
    delta=1e-6,
    threshold=2,
    receivers=[0, 1],
)


@pytest.fixture
def finished(folder: Path) -> Finished:
    """A session that has ended, with its ledgers in the page's folder."""
    return finish(study(), folder)


def record_of(finished: Finished, *names: str, with_answer: bool = False) -> SessionRecord:
    ledgers = [finished.ledger(each) for each in names]
    try:
        return SessionRecord.of(finished.study, ledgers, with_answer=with_answer)
    finally:
        for ledger in ledgers:
            ledger.close()


def sent(client: TestClient, data: bytes | str, name: str) -> tuple[str, str]:
    """The problem and the verdict after an upload."""
    content = data.encode() if isinstance(data, str) else data
    answer = client.post("/verify/upload", content=content, headers={"x-file-name": name})
    assert "Traceback" not in answer.text
    assert ".tpmdp-" not in answer.text  # where it lies for the moment is nobody's business
    verdict = part(answer.text, "verdict") if 'data-part="verdict"' in answer.text else ""
    return unescape(part(answer.text, "problem")), unescape(verdict)


def plan_json() -> dict[str, object]:
    return plan_document(tpmdp.plan(SPEC))


def test_the_view_says_what_can_be_given(client: TestClient, folder: Path) -> None:
    html = client.get("/verify").text
    assert 'data-upload="/verify/upload"' in html
    assert "There is no ledger in the folder" in html
    with tpmdp.Ledger.create(folder / "north.ledger", "north", 1.0, 1e-6):
        pass
    assert '<option value="north.ledger"' in client.get("/verify").text


def test_a_plan_is_proved_step_by_step(client: TestClient) -> None:
    problem, verdict = sent(client, json.dumps(plan_json()), "plan.json")
    assert problem == ""
    assert "<strong>VALID plan as far as a file can show</strong>. <bdi>plan.json</bdi>" in verdict
    assert "Private against every coalition of up to 2 parties" in verdict
    assert "no plan for these needs has less" in verdict
    assert verdict.count('class="proved"') == 5
    assert "1.25" in verdict
    assert "1e-06" in verdict


def test_a_weighted_plan_says_what_it_assumes(client: TestClient, tmp_path: Path) -> None:
    plan = tpmdp.plan(SPEC, weighting="balanced", records=[900, 40, 650, 1200], width=1.0)
    write_plan(plan, tmp_path / "plan.json")
    _, verdict = sent(client, (tmp_path / "plan.json").read_bytes(), "plan.json")
    assert "the receiver then multiplies the sum by" in verdict


def test_all_digits_of_a_budget_are_shown(client: TestClient) -> None:
    document = plan_document(tpmdp.plan(SPEC.replace(epsilon=[2, 0.5, 1, 1.0000000000000002])))
    _, verdict = sent(client, json.dumps(document), "plan.json")
    assert "1.0000000000000002" in verdict


def test_a_lowered_variance_is_found_and_explained(client: TestClient) -> None:
    document = plan_json()
    variance = document["variance"]
    assert isinstance(variance, list)
    variance[2] *= 0.9
    problem, verdict = sent(client, json.dumps(document), "plan.json")
    assert problem == ""
    assert "<strong>NOT VALID</strong>: <bdi>plan.json</bdi>" in verdict
    assert "<strong>Not private against some coalition of up to 2 parties</strong>" in verdict
    assert "<strong>Private against" not in verdict
    assert "privacy violated: honest noise" in verdict
    assert "could learn more about a record than its budget allows" in verdict
    assert verdict.count('class="proved"') == 2
    assert verdict.count('class="failed"') == 1
    assert verdict.count('class="open"') == 2


def test_a_lowered_need_is_found(client: TestClient) -> None:
    document = plan_json()
    need = document["need"]
    assert isinstance(need, list)
    need[1] *= 0.9
    _, verdict = sent(client, json.dumps(document), "plan.json")
    assert "need violated: delta at variance" in verdict
    assert "Do not agree to this plan" in verdict


def test_a_plan_with_more_noise_is_private_but_not_the_best(client: TestClient) -> None:
    document = plan_json()
    document["variance"] = [value * 1.5 for value in document["variance"]]  # type: ignore[attr-defined]
    _, verdict = sent(client, json.dumps(document), "plan.json")
    assert "optimality violated" in verdict
    assert "The budgets hold, but the plan adds more noise" in verdict


def test_a_plan_is_not_optimal_because_its_author_says_so(client: TestClient) -> None:
    document = plan_json()
    document["variance"] = [value * 1.9 for value in document["variance"]]  # type: ignore[attr-defined]
    document["gap"] = 0.95
    problem, verdict = sent(client, json.dumps(document), "plan.json")
    assert problem == ""
    assert "<strong>VALID plan as far as it can be checked here: 1 point open</strong>" in verdict
    assert "Not shown to be optimal: the total is 1.9 times the proven lower bound" in verdict
    assert "The budgets hold. Ask its author for the plan again." in verdict
    assert "Optimal:" not in verdict
    assert verdict.count('class="proved"') == 4


def test_a_report_is_proved_and_says_what_is_open(client: TestClient, finished: Finished) -> None:
    record = record_of(finished, "north", with_answer=True)
    problem, verdict = sent(client, page(record), "report.html")
    assert problem == ""
    assert "points open</strong>. <bdi>report.html</bdi>, the report of <bdi>test / session 1</bdi>" in verdict
    assert "the page says what the record says" in verdict
    for statement in record.check():
        assert statement in verdict
    assert "that this is the answer: give the ledger of a receiver below" in verdict
    assert "--ledger" not in verdict
    assert record.terms.plan_hash.hex() in verdict
    assert record.terms.keyless_hash.hex() in verdict


def test_a_plan_is_not_taken_for_a_session(client: TestClient, finished: Finished) -> None:
    planned, draft = record_of(finished), SessionRecord.of(study())
    for record in (planned, draft):
        _, verdict = sent(client, page(record), "report.html")
        assert "<strong>VALID plan as far as it can be checked here:" in verdict
        assert "no session and no charge is shown by this file" in verdict
        assert verdict.count('<li class="open">') == len(record.open_points().every)
        assert f": {len(record.open_points().to_give)} point open</strong>" in verdict
    assert "ten words" not in verdict  # nobody can sign a draft


def test_what_nobody_can_see_is_always_open_and_the_ten_words_are_shown(client: TestClient, finished: Finished) -> None:
    record = record_of(finished, "north", "south", "lab", with_answer=True)
    _, verdict = sent(client, page(record), "report.html")
    assert "whether every party adds its noise" in verdict
    assert "whether the data of the other parties are true" in verdict
    assert "the entries of north in this file fit together: charged epsilon" in verdict
    assert "compare the ten words below by telephone" in verdict
    assert " ".join(phrase_of(record.terms.plan_hash)) in verdict
    assert "Nobody need be trusted" not in client.get("/verify").text


def test_a_record_is_compared_with_ledgers_and_the_approved_hash(
    client: TestClient, finished: Finished, tmp_path: Path
) -> None:
    record = record_of(finished, "north", with_answer=True)
    write_answer_file(record, tmp_path / "answer.json")
    _, verdict = sent(client, (tmp_path / "answer.json").read_bytes(), "answer.json")
    form = fields(verdict) | {"action": ["compare"], "with-ledger": ["north.ledger"]}
    form["approved"] = [record.terms.keyless_hash.hex().upper()]
    compared = unescape(part(client.post("/verify", data=form).text, "verdict"))
    assert "the answer is the one in the ledger of north" in compared
    assert "this is the study that was approved" in compared
    assert "that this is the answer" not in compared
    assert "<strong>VALID as far as a file can show</strong>" in compared  # all was given
    assert "You can still check (4)" in verdict
    assert "You can still check" not in compared
    other = client.post("/verify", data=form | {"approved": ["0" * 64]})
    assert "This is another study than the one that was approved" in part(other.text, "verdict")
    assert 'name="approved"' in part(other.text, "verdict")  # to try again
    wrong = client.post("/verify", data=form | {"approved": ["abc"]})
    assert "the hash of the draft = abc must be 64 characters (0-9, a-f): copy it whole" in part(wrong.text, "problem")
    assert "VALID" not in part(wrong.text, "verdict")
    assert 'name="approved"' in part(wrong.text, "verdict")  # to try again
    lab = client.post("/verify", data=form | {"approved": [""], "with-ledger": ["lab.ledger"]})
    assert "is of lab, who is not in the record" in part(lab.text, "problem")
    outside = client.post("/verify", data=form | {"with-ledger": ["../folder/north.ledger"]})
    assert "is not the name of a file in the folder" in part(outside.text, "problem")


def test_a_report_that_is_not_in_memory_is_asked_for_again(client: TestClient) -> None:
    answer = client.post("/verify", data={"action": "compare", "report": "0" * 32})
    assert "is not in memory any more: choose its file again" in part(answer.text, "problem")


def test_a_changed_page_is_not_valid(client: TestClient, finished: Finished) -> None:
    text = page(record_of(finished, "north", with_answer=True))
    changed = text.replace("up to 1 party", "up to 2 parties", 1)
    assert changed != text
    _, verdict = sent(client, changed, "report.html")
    assert "NOT VALID" in verdict
    assert "the page says something else than the record inside it" in verdict
    assert "Believe nothing on the page" in verdict


def test_an_answer_changed_in_the_record_of_a_page_is_not_valid(client: TestClient, finished: Finished) -> None:
    record = record_of(finished, "north", with_answer=True)
    assert record.answers is not None
    text = page(record)
    before = f"&quot;value&quot;:{record.answers[0].value!r}"
    assert before in text
    _, verdict = sent(client, text.replace(before, "&quot;value&quot;:12345.0"), "report.html")
    assert "NOT VALID" in verdict


def test_a_number_changed_in_the_record_of_a_page_is_not_valid(client: TestClient, finished: Finished) -> None:
    record = record_of(finished, "north")
    html = page(record)
    digits = record.terms.plan_hash.hex()
    for changed in (
        html.replace(digits, "0" * len(digits)),
        html.replace("&quot;session&quot;:&quot;", "&quot;session&quot;:&quot;x"),
    ):
        assert changed != html
        problem, verdict = sent(client, changed, "report.html")
        assert problem == ""
        assert "NOT VALID" in verdict
        assert "Believe nothing in it; ask for the report again." in verdict
        assert "Nothing was checked" not in verdict


def test_a_charge_changed_in_a_record_is_not_valid(client: TestClient, finished: Finished) -> None:
    document = record_of(finished, "north").document()
    document["parties"][0]["entries"][1]["mu"] = (0.5).hex()
    _, verdict = sent(client, json.dumps(document), "answer.json")
    assert "ledger violated: entry" in verdict
    assert "Somebody changed them" in verdict


# A ledger


def export_of(finished: Finished, name: str = "north", *, as_csv: bool = False) -> str:
    with finished.ledger(name) as ledger:
        rows = list(ledger.export())
    if not as_csv:
        return "".join(json.dumps(row) + "\n" for row in rows)
    stream = io.StringIO(newline="")
    writer = csv.writer(stream)
    writer.writerow(rows[0])
    writer.writerows(row.values() for row in rows)
    return stream.getvalue()


@pytest.mark.parametrize("as_csv", [False, True])
def test_an_exported_ledger_is_computed_again(client: TestClient, finished: Finished, as_csv: bool) -> None:
    text = export_of(finished, as_csv=as_csv)
    problem, verdict = sent(client, text, "export.csv" if as_csv else "export.jsonl")
    assert problem == ""
    assert "VALID" in verdict
    assert "All totals add up" in verdict
    assert "whose ledger this is" in verdict
    with finished.ledger("north") as ledger:
        assert ledger.verify() in verdict
        assert tpmdp.ledger.rounded_up(ledger.spent().epsilon) in verdict


@pytest.mark.parametrize(
    ("before", "after", "line"),
    [
        ('"mu": 0', '"mu": 9', "does not match its hash"),
        ('"number": 3', '"number": 4', "is missing"),
        ('"epsilon": ', '"epsilon": 1', "does not match its hash"),
    ],
)
def test_a_changed_export_is_not_valid(
    client: TestClient, finished: Finished, before: str, after: str, line: str
) -> None:
    text = export_of(finished)
    place = text.rindex(before)
    _, verdict = sent(client, text[:place] + text[place:].replace(before, after, 1), "export.jsonl")
    assert "NOT VALID" in verdict
    assert line in verdict


def test_an_export_without_its_first_entries_is_not_valid(client: TestClient, finished: Finished) -> None:
    _, verdict = sent(client, export_of(finished).split("\n", 1)[1], "export.jsonl")
    assert "entry 1 of export.jsonl is missing" in verdict


def test_a_ledger_in_the_folder_is_checked_where_it_is(client: TestClient, finished: Finished, folder: Path) -> None:
    before = (folder / "north.ledger").read_bytes()
    with finished.ledger("north") as ledger:
        head = ledger.verify()
    form = {"action": "ledger", "ledger": "north.ledger", "head": ""}
    verdict = unescape(part(client.post("/verify", data=form).text, "verdict"))
    assert "1 point open</strong>. <bdi>north.ledger</bdi>, the ledger of <bdi>north</bdi>" in verdict
    assert head in verdict
    assert "only a hash noted earlier shows that" in verdict
    noted = unescape(part(client.post("/verify", data=form | {"head": head}).text, "verdict"))
    assert "<strong>VALID as far as a file can show</strong>" in noted
    assert "You can still check" not in noted
    assert "No file can show (2)" in noted
    assert "whether entries after the newest one here were cut off" in noted
    assert "whether the party has other ledgers" in noted
    wrong = client.post("/verify", data=form | {"head": "abc"})
    assert "the hash noted earlier = abc must be 64 characters (0-9, a-f)" in part(wrong.text, "problem")
    assert "Nothing was checked" in part(wrong.text, "verdict")  # the verdict before it does not stay
    assert "The hash that you noted earlier is among them" in noted
    lost = unescape(part(client.post("/verify", data=form | {"head": "0" * 64}).text, "verdict"))
    assert "NOT VALID" in lost
    assert "is not among the" in lost
    assert (folder / "north.ledger").read_bytes() == before


def test_a_changed_ledger_in_the_folder_is_not_valid(client: TestClient, finished: Finished, folder: Path) -> None:
    import sqlite3
    from contextlib import closing

    with closing(sqlite3.connect(folder / "north.ledger")) as connection:
        connection.execute("DROP TRIGGER no_change")
        connection.execute("UPDATE entries SET mu = 0.01 WHERE kind = 'charge'")
        connection.commit()
    form = {"action": "ledger", "ledger": "north.ledger", "head": ""}
    verdict = part(client.post("/verify", data=form).text, "verdict")
    assert "does not match its hash" in verdict


@pytest.mark.parametrize("name", ["../secret", "/etc/passwd", "", "none.ledger"])
def test_a_ledger_elsewhere_is_refused(client: TestClient, name: str) -> None:
    answer = client.post("/verify", data={"action": "ledger", "ledger": name, "head": ""})
    assert answer.status_code == 422
    assert "problem" in part(answer.text, "problem")


# What is nothing of the kind


def test_a_ledger_in_use_is_never_taken(client: TestClient, finished: Finished) -> None:
    problem, verdict = sent(client, finished.paths["north"].read_bytes(), "north.ledger")
    assert "is a ledger in use, which holds noise and must not be passed on" in problem
    assert "choose it from the list of ledgers in the page's folder" in problem
    assert "Nothing was checked" in verdict


SCRIPT = "<!DOCTYPE html><html><script>alert('x')</script><img src=x onerror=alert(1)></html>"


@pytest.mark.parametrize(
    ("data", "name", "line"),
    [
        (b"", "plan.json", "plan.json is empty"),
        (b"-----BEGIN PRIVATE KEY-----\nMC4=\n", "north.key", "north.key is a secret key: keep it on this machine"),
        (b"PK\3\4" + bytes(100), "files.zip", "files.zip is neither a plan nor a report nor an exported ledger"),
        (b"PK\3\4" + bytes(100), "report.html", "report.html is not a report of tpmdp"),
        (SCRIPT, "report.html", "report.html is not a report of tpmdp"),
        (SCRIPT, "report.txt", "report.txt is not a report of tpmdp"),
        (b"\xff\xfe\0", "plan.json", "plan.json is neither"),
        (b"{", "plan.json", "plan.json is not valid JSON"),
        (b"[" * 100_000, "plan.json", "plan.json is not valid JSON"),
        (b"{}", "plan.json", "plan.json has format in plan"),
        (b'{"format": "tpmdp.session"}', "a.json", "a.json"),
        (b'{"number": 1', "a.jsonl", "a.jsonl is cut off or damaged: line 1 is not JSON"),
        (b'{"number": 1}', "a.jsonl", "a.jsonl is not an exported ledger: line 1 lacks"),
        (b"number,kind,time\n1", "a.csv", "a.csv is cut off or damaged: line 2 has 1 cells in 3 columns"),
        (b"number,kind,\n", "a.csv", "a.csv has no entries"),
    ],
)
def test_other_files_get_one_line(client: TestClient, data: bytes | str, name: str, line: str) -> None:
    problem, verdict = sent(client, data, name)
    assert line in problem
    assert problem.count("<p") == 1
    assert "VALID" not in verdict
    assert "<script" not in problem + verdict
    assert "<img" not in problem + verdict


@pytest.mark.parametrize("share", [0.1, 0.5, 0.99])
def test_a_file_that_was_cut_off_gets_one_line(client: TestClient, finished: Finished, share: float) -> None:
    report = page(record_of(finished, "north"))
    for text, name in ((json.dumps(plan_json()), "plan.json"), (report, "a.html"), (export_of(finished), "a.jsonl")):
        problem, verdict = sent(client, text[: int(share * len(text))], name)
        assert "VALID" not in verdict.replace("NOT VALID", "")
        assert name in problem + verdict


def test_names_from_outside_stay_text(client: TestClient) -> None:
    document = plan_document(tpmdp.plan(SPEC.replace(names=["<img src=x onerror=alert(1)>", "b", "c", "d"])))
    answer = client.post(
        "/verify/upload", content=json.dumps(document), headers={"x-file-name": "%3Cscript%3Ealert(1)%3C%2Fscript%3E"}
    )
    assert "<img" not in answer.text
    assert "<script" not in answer.text
    assert "&lt;img src=x onerror=alert(1)&gt;" in answer.text


def test_half_a_character_is_no_failure(client: TestClient) -> None:
    document = json.dumps(plan_json()).replace('"north"', '"nor\\ud800th"')
    problem, verdict = sent(client, document, "plan.json")
    assert problem or verdict


def test_a_file_that_is_too_large_is_refused(client: TestClient) -> None:
    answer = client.post("/verify/upload", content=bytes(65 << 20), headers={"x-file-name": "plan.json"})
    assert answer.status_code == 413
    assert "plan.json must have at most 67,108,864 bytes here" in part(answer.text, "problem")
