"""`tpmdp report`, `tpmdp verify` of a report, and --out and --plot of `join` and `run`, as a user calls them."""

from __future__ import annotations

import json
import re
import stat
from pathlib import Path

import pytest

from tests.cli.test_commands import EXAMPLE, refused, tpmdp
from tpmdp._version import __version__
from tpmdp.study.fingerprint import phrase_of

pytestmark = pytest.mark.process


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The example study, run once, with all files that people keep."""
    folder = tmp_path_factory.mktemp("kept")
    words = ("--state", "state", "--out", "answer.html", "--plot", "answer.pdf")
    done = tpmdp("run", EXAMPLE, *words, folder=folder)
    assert "wrote answer.html with the answer: only hospital_north, statistics_office may see it" in done.stdout
    assert "wrote answer.pdf" in done.stdout
    return folder


def test_a_run_leaves_a_report_that_can_be_verified(folder: Path) -> None:
    for name in ("answer.html", "answer.pdf"):
        assert stat.S_IMODE((folder / name).stat().st_mode) == 0o600
    assert (folder / "answer.pdf").read_bytes()[:5] == b"%PDF-"
    alone = tpmdp("verify", "answer.html", folder=folder).stdout
    assert alone.startswith("VALID: length of stay / session 1")
    assert "the page says what the record says" in alone
    assert "not checked: that this is the answer" in alone
    words = ("--ledger", "state/hospital_north.ledger", "--ledger", "state/insurer.ledger")
    compared = json.loads(tpmdp("verify", "answer.html", *words, "--json", folder=folder).stdout)
    assert compared["valid"]
    others = "hospital_south, university, statistics_office"
    assert (
        compared["not_proved"][0]
        == f"that the ledgers of {others} really have these entries: give theirs with --ledger"
    )
    # what only their ledgers tell, the approval, who holds the keys, the purpose, and what nobody can see: noise and
    # data of others
    assert len(compared["not_proved"]) == 7
    approved = tpmdp("verify", "answer.html", "--approved", compared["keyless_hash"], folder=folder).stdout
    assert "this is the study that was approved" in approved
    line = refused("verify", "answer.html", "--approved", "abc", folder=folder)
    assert "--approved = abc must be 64 characters (0-9, a-f)" in line
    assert "the answer is the one in the ledger of hospital_north" in compared["proved"]
    phrase = " ".join(phrase_of(bytes.fromhex(compared["plan_hash"])))
    assert phrase in (folder / "answer.html").read_text()
    assert phrase in tpmdp("fingerprint", "state/study.toml", folder=folder).stdout


def test_a_report_from_study_and_ledger_has_no_answer(folder: Path) -> None:
    words = ("--ledger", "state/insurer.ledger", "--out", "report.html")
    done = tpmdp("report", "state/study.toml", *words, folder=folder)
    assert done.stdout == "wrote report.html, without the answer\n"
    text = (folder / "report.html").read_text()
    assert '"answers":null' in text.replace("&quot;", '"')
    assert "ended: receipt" in text
    tpmdp("verify", "report.html", "--ledger", "state/insurer.ledger", folder=folder)
    line = refused("report", "state/study.toml", *words, "--with-answer", folder=folder)
    assert "--ledger = state/insurer.ledger has no answer of this session" in line
    assert (folder / "report.html").read_text() == text


def test_a_record_becomes_a_report_with_or_without_the_answer(folder: Path) -> None:
    tpmdp("report", "state", "--with-answer", "--out", "record.json", folder=folder)
    tpmdp("verify", "record.json", folder=folder)
    tpmdp("report", "record.json", "--out", "without.html", folder=folder)
    assert "holds the answer" not in (folder / "without.html").read_text()
    tpmdp("report", "record.json", "--with-answer", "--out", "with.html", folder=folder)
    assert "This file holds the answer" in (folder / "with.html").read_text()
    document = json.loads((folder / "record.json").read_text())
    document["parties"][0]["entries"][1]["mu"] = (0.5).hex()
    (folder / "forged.json").write_text(json.dumps(document, indent=2))
    for words in (("verify", "forged.json"), ("report", "forged.json", "--out", "forged.html")):
        line = refused(*words, folder=folder, code=1)
        assert "not valid: ledger violated: entry 4 of hospital_north does not match its hash" in line
    assert not (folder / "forged.html").exists()


def test_an_exported_ledger_is_verified_and_a_ledger_is_not_taken(folder: Path) -> None:
    tpmdp("ledger", "export", "state/insurer.ledger", "--out", "export.jsonl", folder=folder)
    head = json.loads(tpmdp("ledger", "verify", "state/insurer.ledger", "--json", folder=folder).stdout)["head"]
    done = tpmdp("verify", "export.jsonl", folder=folder).stdout
    assert done.startswith("VALID: an exported ledger")
    assert "not checked: whose ledger this is" in done
    assert json.loads(tpmdp("verify", "export.jsonl", "--json", folder=folder).stdout)["head"] == head
    text = (folder / "export.jsonl").read_text()
    (folder / "changed.jsonl").write_text(text.replace('"kind": "charge"', '"kind": "hold"'))
    assert "does not match its hash" in refused("verify", "changed.jsonl", folder=folder, code=1)
    (folder / "cut.jsonl").write_text(text[:-20])
    assert "cut.jsonl is cut off" in refused("verify", "cut.jsonl", folder=folder)  # it cannot be checked: 2
    assert "check it with tpmdp ledger verify" in refused("verify", "state/insurer.ledger", folder=folder)


def test_a_changed_page_is_not_valid(folder: Path) -> None:
    text = (folder / "answer.html").read_text()
    (folder / "changed.html").write_text(text.replace("up to 2 parties", "up to 4 parties", 1))
    line = refused("verify", "changed.html", folder=folder, code=1)
    assert "the page says something else than the record inside it" in line


def test_a_hash_changed_in_the_record_is_not_valid(folder: Path) -> None:
    text = (folder / "answer.html").read_text()
    digits = re.search(r"plan_hash&quot;: ?&quot;([0-9a-f]{64})", text)
    assert digits is not None
    (folder / "changed.html").write_text(text.replace(digits[1], "0" * 64))
    assert "does not agree with itself: it was changed" in refused("verify", "changed.html", folder=folder, code=1)


def test_a_page_of_another_version_is_not_verified_and_can_be_written_anew(folder: Path) -> None:
    """Another version in the record must not switch off the check of the page."""
    text = (folder / "answer.html").read_text()
    other = text.replace(
        f"&quot;written_by&quot;:&quot;{__version__}&quot;", "&quot;written_by&quot;:&quot;9.9.9&quot;"
    )
    assert other != text
    (folder / "other version.html").write_text(other.replace("up to 2 parties", "up to 4 parties"))
    done = tpmdp("verify", "other version.html", folder=folder, code=1)
    assert done.stdout.startswith(
        "NOT VERIFIED: length of stay / session 1; the record inside holds, but the page was "
    )
    assert "tpmdp report 'other version.html' --out new.html" in done.stdout
    assert "VALID" not in done.stdout
    assert not json.loads(tpmdp("verify", "other version.html", "--json", folder=folder, code=1).stdout)["valid"]
    tpmdp("report", "other version.html", "--with-answer", "--out", "new.html", folder=folder)
    assert (folder / "new.html").read_text() == text
    assert tpmdp("verify", "new.html", folder=folder).stdout.startswith("VALID")
    blank = text.replace(f"&quot;written_by&quot;:&quot;{__version__}", f"&quot;written_by&quot;:&quot;{__version__} ")
    (folder / "blank.html").write_text(blank)
    assert "is not a version such as" in refused("verify", "blank.html", folder=folder)


def test_a_report_of_a_changed_page_says_what_the_record_says(folder: Path) -> None:
    text = (folder / "answer.html").read_text()
    (folder / "changed.html").write_text(text.replace("up to 2 parties", "up to 4 parties", 1))
    done = tpmdp("report", "changed.html", "--out", "again.html", folder=folder)
    assert "the page changed.html says something else than the record inside it" in done.stderr
    assert "up to 4 parties" not in (folder / "again.html").read_text()


def test_a_study_that_has_not_run_has_a_report_to_decide_by(folder: Path) -> None:
    done = tpmdp("report", EXAMPLE, "--out", "draft.html", folder=folder)
    assert done.stdout == "wrote draft.html, without the answer, a draft: not all parties have keys yet\n"
    assert "Draft: not all parties have keys yet" in (folder / "draft.html").read_text()
    text = tpmdp("verify", "draft.html", folder=folder).stdout
    assert "nothing was signed or charged" in text
    keyless = text.splitlines()[-1].partition(":")[0]
    assert keyless.startswith("hash of the study without keys ")
    assert keyless in tpmdp("verify", "answer.html", folder=folder).stdout
    assert keyless.split()[-1] in tpmdp("fingerprint", EXAMPLE, folder=folder).stdout
    tpmdp("report", "state/study.toml", "--out", "planned.html", folder=folder)
    assert "A plan: no ledger was given" in (folder / "planned.html").read_text()


def test_a_party_that_joined_keeps_its_outcome(folder: Path) -> None:
    """The session has ended: the same command again gives the same, and the files."""

    def join(name: str, *words: str) -> tuple[object, ...]:
        key, data = f"state/{name}.key", EXAMPLE.with_name(f"{name}.csv")
        return (
            "join",
            "state/study.toml",
            "--as",
            name,
            "--key",
            key,
            "--data",
            data,
            "--relay",
            "http://127.0.0.1:9",
            *words,
        )

    done = tpmdp(*join("statistics_office", "--out", "mine.csv", "--plot", "mine.svg"), folder=folder)
    assert "wrote mine.csv with the answer" in done.stdout
    lines = (folder / "mine.csv").read_text().splitlines()
    assert lines[0] == "query,part,value,standard_error,low,high,note"
    assert len(lines) == 3
    assert "<svg" in (folder / "mine.svg").read_text()
    done = tpmdp(*join("insurer", "--out", "receipt.html", "--json"), folder=folder)
    assert "outcome" in json.loads(done.stdout.splitlines()[-1])
    assert "wrote receipt.html, without the answer" in done.stderr
    tpmdp("verify", "receipt.html", "--ledger", "state/insurer.ledger", folder=folder)
    assert "this party does not receive the answer" in refused(*join("insurer", "--out", "a.csv"), folder=folder)
    assert "this party does not receive the answer" in refused(*join("insurer", "--plot", "a.png"), folder=folder)
    assert "must end in .png, .svg or .pdf" in refused(*join("insurer", "--plot", "a.gif"), folder=folder)


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (["report", "none.toml", "--out", "a.html"], "none.toml does not exist"),
        (["report", "none.json", "--out", "a.html"], "none.json does not exist"),
        (["report", ".", "--out", "a.html"], "SESSION = . is a folder without study.toml"),
        (["report", "state", "--out", "a.pdf"], "--out = a.pdf must end in .html or .json"),
        (["report", "state", "--out", "no/a.html"], "lies in a folder that does not exist: make no first"),
        (["report", "state", "--out", "state"], "--out = state must end in .html or .json"),
        (["report", "state", "--out", "other.html"], "--out = other.html exists and is something else"),
        (["report", "state", "--session", "2", "--out", "a.html"], "has no entry of length of stay / session 2"),
        (["report", EXAMPLE, "--ledger", "state/insurer.ledger", "--out", "a.html"], "has no public keys"),
        (["report", "state", "--ledger", "none.ledger", "--out", "a.html"], "none.ledger does not exist"),
        (["report", "state", "--ledger", "other.html", "--out", "a.html"], "other.html is not a ledger"),
        (["report", "other.json", "--ledger", "a", "--out", "a.html"], "--ledger = (given) is for study files"),
        (["report", "other.json", "--out", "a.html"], "other.json is not the record of a session"),
        (["report", "old.json", "--out", "a.html"], "is not tpmdp.session version 2"),
        (["verify", "old.json"], "is not tpmdp.session version 2"),
        (["verify", "other.html"], "other.html is not a report of tpmdp"),
        (["verify", "none.html"], "none.html does not exist"),
        (["verify", "answer.pdf"], "answer.pdf is neither a plan nor a report"),
        (["verify", "state/study.toml"], "study.toml is neither a plan nor a report"),
        (["verify", "answer.html", "--ledger", "answer.html"], "answer.html is not a ledger"),
        (["verify", "answer.html", "--ledger", "none.ledger"], "none.ledger does not exist: check the path\n"),
        (["report", "other.html", "--out", "a.html"], "other.html is not a report of tpmdp"),
        (["report", "answer.html", "--session", "2", "--out", "a.html"], "--session = (given) is for study files"),
        (["verify", "answer.html", "--party", "insurer"], "--party = insurer is for plans"),
        (["verify", "plan.json", "--ledger", "state/insurer.ledger"], "is for reports"),
        (["run", EXAMPLE, "--state", "state", "--out", "a.txt"], "--out = a.txt must end in .json, .csv or .html"),
        (
            ["run", EXAMPLE, "--state", "state", "--out", EXAMPLE.with_name("insurer.csv")],
            "exists and is something else",
        ),
    ],
)
def test_bad_input_is_one_line_and_writes_nothing(folder: Path, words: list[object], complaint: str) -> None:
    (folder / "other.html").write_text("<p>mine</p>")
    (folder / "other.json").write_text("[]")
    (folder / "old.json").write_text(json.dumps(old_version()))
    before = sorted(path.name for path in folder.iterdir())
    assert complaint in refused(*words, folder=folder)
    assert sorted(path.name for path in folder.iterdir()) == before


def old_version() -> dict[str, object]:
    keys = ("written_by", "session", "receivers", "answers", "draft", "study", "terms", "plan_hash", "parties")
    return {"format": "tpmdp.session", "version": 9, **dict.fromkeys(keys)}


def test_a_folder_that_cannot_be_written_is_named(folder: Path, tmp_path: Path) -> None:
    import os

    if os.geteuid() == 0:
        line = refused("report", folder / "state", "--out", "/proc/report.html", folder=tmp_path)
    else:
        tmp_path.chmod(0o500)
        line = refused("report", folder / "state", "--out", tmp_path / "report.html", folder=folder)
    assert "report.html cannot be written" in line
