"""`tpmdp rehearse` and `tpmdp audit`, as a person or a program sees them."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from tests import processes
from tests.test_docs import blocks, masked

pytestmark = pytest.mark.process

ROOT = Path(__file__).parents[2]
STAY = ROOT / "examples" / "stay"


WIDE = {**os.environ, "NO_COLOR": "1", "COLUMNS": "140"}


def tpmdp(*words: str | Path, code: int = 0, cwd: Path = ROOT) -> str:
    """Run the tool; on success what it printed, otherwise its one line of complaint."""
    done = processes.run(*words, folder=cwd, environment=WIDE)
    assert done.returncode == code, done.stderr + done.stdout
    if code == 2:
        assert done.stdout == ""
        (line,) = done.stderr.strip().splitlines()
        return line
    return done.stdout


def test_a_rehearsal_prints_a_table_or_json_and_writes_nothing(tmp_path: Path) -> None:
    text = tpmdp("rehearse", STAY / "study.toml", "--runs", "5", cwd=tmp_path)
    assert "Rehearsal of length of stay / session 1: 5 runs on made-up tables" in text
    assert "patients over 65" in text
    shown = json.loads(tpmdp("rehearse", STAY / "study.toml", "--runs", "5", "--seed", "3", "--json", cwd=tmp_path))
    assert (shown["runs"], shown["seed"], shown["data"]) == (5, 3, "made up")
    assert [answer["query"] for answer in shown["answers"]] == ["patients over 65", "mean stay in days"]
    assert not list(tmp_path.iterdir())


def test_a_rehearsal_on_tables_of_your_own(tmp_path: Path) -> None:
    text = tpmdp("rehearse", STAY / "study.toml", "--runs", "2", "--data", STAY, cwd=tmp_path)
    assert "on synthetic tables that were given" in text


def test_the_page_shows_what_the_commands_print() -> None:
    """Up to the first row of the audit: what follows is what chance makes of it."""
    rehearsal, audit = blocks(ROOT / "docs" / "how-to" / "audit.md", "text")
    printed = tpmdp("rehearse", "examples/stay/study.toml", "--runs", "20")
    expected = masked(rehearsal.replace("200 runs", "20 runs"))
    assert masked(printed)[: len(expected)] == expected
    for truth in ("184", "11.97"):
        assert truth in rehearsal
        assert truth[:2] in printed
    done = processes.run("audit", "examples/stay/study.toml", "--excess", "0.3", folder=ROOT, environment=WIDE)
    heading = masked("\n".join(audit.splitlines()[:5]))
    assert masked(done.stdout)[: len(heading)] == heading


TOO_NARROW = """
from dataclasses import dataclass

from tpmdp.queries.count import Count


@dataclass(frozen=True)
class TooNarrow(Count):
    spread = 0.5
"""
STUDY = """
name = "demo"
threshold = 1
receivers = "all"
delta = 1e-6
epsilon = 1.0
parties = [{ name = "a", records = 50 }, { name = "b", records = 50 }]

[[queries]]
name = "old"
kind = "too_narrow"
column = "age"
at_least = 65
"""


def test_an_audit_of_a_study_without_fault(tmp_path: Path) -> None:
    done = processes.run("audit", STAY / "study.toml", "--releases", "2", "--excess", "0.1", "--json", folder=tmp_path)
    shown = json.loads(done.stdout)
    assert shown["releases"] == 2
    assert done.returncode == int(shown["exceeds"])  # 1 in 1,000 times
    assert shown["parties"][0]["party"] == "hospital_north"
    assert not list(tmp_path.iterdir())


def test_an_audit_that_finds_a_fault_exits_with_1(tmp_path: Path) -> None:
    (tmp_path / "study.toml").write_text(STUDY)
    (tmp_path / "own.py").write_text(TOO_NARROW)
    text = tpmdp("audit", "study.toml", "--queries", "own.py", "--excess", "0.2", code=1, cwd=tmp_path)
    assert "EXCEEDED: a loses at least epsilon" in text
    assert "The study breaks its promise." in text


def test_bad_calls_get_one_line(tmp_path: Path) -> None:
    assert "--runs = 1 must be from 2" in tpmdp("rehearse", STAY / "study.toml", "--runs", "1", code=2)
    assert "--seed = -1" in tpmdp("rehearse", STAY / "study.toml", "--seed", "-1", code=2)
    assert "--releases = 0 must be from 1" in tpmdp("audit", STAY / "study.toml", "--releases", "0", code=2)
    assert "--excess = 2" in tpmdp("audit", STAY / "study.toml", "--excess", "2", code=2)
    assert "nowhere.toml" in tpmdp("rehearse", tmp_path / "nowhere.toml", code=2)
