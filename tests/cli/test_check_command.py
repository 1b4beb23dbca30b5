"""`tpmdp check` as a party calls it: before it pays, with good and bad files, and nothing is left behind."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests import processes
from tests.cli.test_commands import ENVIRONMENT, refused, tpmdp
from tpmdp.ledger import Ledger
from tpmdp.study.identity import read_key, write_key
from tpmdp.study.model import Study
from tpmdp.study.session import open_or_create_ledger

pytestmark = pytest.mark.process

STUDY = """
name = "flu"
threshold = 1
receivers = "all"
delta = 1e-6
epsilon = 1.0

[[parties]]
name = "north"
records = 6

[[parties]]
name = "south"
records = 3

[[queries]]
name = "[red] old"
kind = "count"
column = "age"
at_least = 65

[[queries]]
name = "stay"
kind = "mean"
column = "stay"
low = 0
high = 30
by = { region = ["coast", "hills"] }
"""
ROWS = ["70,3,coast", "20,31,hills", "66,4,coast", "31,9,plain", "5,99,hills", "90,-1,hills"]


def write_rows(folder: Path, rows: list[str], header: str = "age,stay,region") -> Path:
    (folder / "mine.csv").write_text("\n".join([header, *rows]) + "\n")
    return folder / "mine.csv"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A study whose parties have keys, and the records of north."""
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

    (tmp_path / "draft.toml").write_text(STUDY)
    keys = {name: Ed25519PrivateKey.generate() for name in ("north", "south")}
    for name, key in keys.items():
        write_key(tmp_path / f"{name}.key", key)
    study = Study.read(tmp_path / "draft.toml")
    (tmp_path / "draft.toml").unlink()
    public = {name: key.public_key().public_bytes_raw() for name, key in keys.items()}
    (tmp_path / "study.toml").write_text(study.with_keys(public).toml())
    write_rows(tmp_path, ROWS)
    return tmp_path


MINE = ("check", "study.toml", "--as", "north", "--data", "mine.csv")


def contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir() if path.is_file()}


def test_a_party_that_may_go_on(folder: Path) -> None:
    before = contents(folder)
    done = tpmdp(*MINE, "--key", "north.key", folder=folder)
    assert done.stderr == ""
    assert contents(folder) == before  # no ledger either
    for text in (
        "Nothing was charged, sent or written",
        "Records: 6, as the study states.",
        "For your eyes only",
        "[red] old",
        "60.0 %",  # 3 of the 5 stays on the coast and in the hills
        "tpmdp join would go on.",
        "no ledger is there yet",
        "Who would have to collude against you",
    ):
        assert text in done.stdout
    found = json.loads(tpmdp(*MINE, "--json", folder=folder).stdout)
    assert found["ready"]
    assert found["private"]["clipped"][0]["below"] == 1
    assert found["private"]["clipped"][0]["above"] == 2
    assert found["private"]["counting"] == {"[red] old": 3, "stay": 5}
    assert found["coalitions"][0]["members"] == ["south"]
    assert found["cost"]["epsilon"] <= 1
    assert found["ledger"]["state"] == "not given"
    assert contents(folder) == before


def test_bad_rows_are_all_counted_and_the_report_is_still_shown(folder: Path) -> None:
    write_rows(folder, [*ROWS[:2], "old,3,coast", "20,,hills", "20,4", "8,NA,coast"])
    done = tpmdp(*MINE, folder=folder, code=2)
    (line,) = done.stderr.splitlines()
    assert line.startswith("tpmdp: mine.csv has bad values in 4 of 6 records (column age, line 4, ...)")
    assert "stay: missing in 2 rows: line 5, line 7" in done.stdout
    assert "another number of values in 1 row: line 6" in done.stdout
    assert "Cost: epsilon" in done.stdout
    assert "tpmdp join would stop" in done.stdout
    assert "old,3" not in done.stdout + done.stderr  # no value is shown


def test_columns_that_are_missing_are_all_named(folder: Path) -> None:
    write_rows(folder, ["70,coast"] * 6, header="age,region")
    done = tpmdp(*MINE, folder=folder, code=2)
    assert "mine.csv has no column stay (it has age, region): rename or add it" in done.stderr
    assert "Records: 6, as the study states." in done.stdout
    write_rows(folder, ["1"] * 6, header="x")
    done = tpmdp(*MINE, "--json", folder=folder, code=2)
    assert len(json.loads(done.stdout)["problems"]) == 3


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--data", "no.csv"], "no.csv does not exist"),
        (["--data", "."], "is of no known kind"),
        (["--key", "no.key"], "no.key does not exist"),
        (["--key", "south.key"], "does not fit its public key in the study"),
        (["--key", "mine.csv"], "mine.csv"),
        (["--ledger", "mine.csv"], "mine.csv"),
        (["--ledger", "no/a.ledger"], "lies in a folder that does not exist"),
        (["--key", "north.key", "--peers", "no.toml"], "no.toml"),
    ],
)
def test_problems_that_leave_a_report(folder: Path, words: list[str], message: str) -> None:
    before = contents(folder)
    done = tpmdp(*MINE, *words, folder=folder, code=2)
    (line,) = done.stderr.splitlines()
    assert message in line
    assert "Cost: epsilon" in done.stdout
    assert contents(folder) == before


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["check", "no.toml", "--as", "north"], "no.toml does not exist"),
        (["check", "mine.csv", "--as", "north"], "mine.csv"),
        (["check", "study.toml", "--as", "no rth"], "--as = no rth is not a party of the study"),
        (["check", "study.toml", "--as", '[bold]"\u05e9'], "is not a party of the study"),
        ([*MINE, "--session", "0"], "session = 0"),
        ([*MINE, "--terms", "mine.csv"], "does not hold the terms of a session"),
        (["check", "study.toml"], "--as"),
    ],
)
def test_problems_that_leave_nothing_to_report(folder: Path, words: list[str], message: str) -> None:
    assert message in refused(*words, folder=folder)


def test_a_study_without_keys_and_without_data(folder: Path) -> None:
    (folder / "study.toml").write_text(STUDY)
    done = tpmdp("check", "study.toml", "--as", "north", folder=folder, code=2)
    assert "data = (none) is missing for a party with 6 records" in done.stderr
    assert "public_key of north, south = (none) is missing" in done.stdout
    done = tpmdp("check", "study.toml", "--as", "north", "--data", "mine.csv", folder=folder)
    assert "Nothing on your side stands in the way" in done.stdout


def test_a_ledger_that_has_spent_its_budget(folder: Path) -> None:
    study, key = Study.read(folder / "study.toml"), read_key(folder / "north.key")
    with open_or_create_ledger(folder / "north.ledger", study, "north", identity=key) as ledger:
        ledger.set_limit(0.25, 1e-6)
    before = contents(folder)
    done = tpmdp(*MINE, "--key", "north.key", folder=folder, code=2)
    assert "over the limit epsilon 0.25" in done.stderr
    assert contents(folder) == before
    with Ledger.open(folder / "north.ledger") as ledger:
        assert ledger.spent().sessions == 0


def test_threshold_0_is_warned_about(folder: Path) -> None:
    text = (folder / "study.toml").read_text().replace("threshold = 1", "threshold = 0")
    (folder / "study.toml").write_text(text)
    done = tpmdp(*MINE, folder=folder, code=2)
    assert "threshold = 0 lets receivers learn the exact answer" in done.stderr
    warning = "WARNING: threshold = 0 adds no noise"
    assert warning in done.stdout
    assert warning in tpmdp("query", "explain", "--study", "study.toml", folder=folder).stdout


def test_a_narrow_terminal_shows_every_number(folder: Path) -> None:
    environment = {**ENVIRONMENT, "COLUMNS": "40"}
    done = processes.run(*MINE, folder=folder, environment=environment)
    assert done.returncode == 0, done.stderr
    assert "60.0 %" in done.stdout


def test_join_goes_on_where_check_says_so_and_stops_where_it_does_not(folder: Path) -> None:
    """It goes on to the relay, which is not there."""
    join = ("join", *MINE[1:], "--key", "north.key", "--relay", "http://127.0.0.1:1", "--deadline", "1s")
    tpmdp(*MINE, "--key", "north.key", folder=folder)
    assert "the relay could not be used" in tpmdp(*join, folder=folder, code=3).stderr
    write_rows(folder, ROWS[:5])
    line = tpmdp(*MINE, "--key", "north.key", folder=folder, code=2).stderr
    assert line == tpmdp(*join, folder=folder, code=2).stderr
