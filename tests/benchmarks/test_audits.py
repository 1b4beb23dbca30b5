"""The page of audits: its studies are ten, and it is written. That faults are found is tested in `test_audit.py`."""

from __future__ import annotations

import sys
from itertools import islice
from pathlib import Path

import pytest

from benchmarks import audits


def test_ten_studies_differ_in_what_noise_depends_on() -> None:
    studies = audits.ten_studies()
    assert len(studies) == 10
    every = studies.values()
    assert {2, 5, 20} <= {len(study.parties) for study in every}
    assert {study.unit for study in every} == {"record", "party"}
    assert {study.guarantee for study in every} == {"computational", "statistical"}
    assert any(study.rounds > 1 for study in every)
    assert any(study.tolerate for study in every)
    assert any(not study.weights.are_equal for study in every)
    assert any(len(study.receivers) == 1 for study in every)


def test_the_page_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    two, planted = dict(islice(audits.ten_studies().items(), 2)), list(islice(audits.faults(), 1, 2))
    monkeypatch.setattr(audits, "ten_studies", lambda: two)
    monkeypatch.setattr(audits, "faults", lambda: planted)
    monkeypatch.setattr(sys, "argv", ["benchmarks.audits", "--out", str(tmp_path / "page.md"), "--draws", "200"])
    audits.main()
    text = (tmp_path / "page.md").read_text()
    assert text.startswith("# Audits")
    rows = [line for line in text.splitlines() if line.startswith("| ") and "---" not in line]
    assert [row.split(" | ")[:2] for row in rows if "two parties" in row] == [
        ["| two parties, a count", "1"],
        ["| two parties, a count", "2"],
    ]
    assert len(rows) == 2 + 2 * 2 + 1
    assert "noise of one party missing" in rows[-1]
