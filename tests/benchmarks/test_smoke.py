"""Every benchmark runs to its end at toy size, so that none of them rots. What it measures there means nothing."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest
from benchmarks.__main__ import BENCHMARKS

from benchmarks import flower
from tests.patience import HANG_S

pytestmark = pytest.mark.process

ROOT = Path(__file__).parents[2]
FLOWER_TOY = {flower.OURS: {"tolerate": 1, "threshold": 1}, flower.PEER: {"num_shares": 3, "threshold": 2}}


def test_every_benchmark_runs_at_toy_size(tmp_path: Path) -> None:
    """As `make bench` runs them, all in one process."""
    out = tmp_path / "page.md"
    command = [sys.executable, "-m", "benchmarks", "--toy", "--out", str(out)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=HANG_S, check=False)
    assert done.returncode == 0, done.stderr
    measured = {name: int(rows) for name, rows in re.findall(r"^(\w+): (\d+) rows$", done.stderr, re.MULTILINE)}
    assert list(measured) == list(BENCHMARKS)
    assert all(measured.values())
    rows = [line.split(" | ") for line in out.read_text().splitlines() if line.startswith("| ")][2:]
    assert len(rows) == sum(measured.values())
    assert all(what.strip("| ") and measured and "nan" not in measured for what, measured, *_ in rows)


def test_every_module_with_rows_is_a_benchmark() -> None:
    with_rows = {path.stem for path in (ROOT / "benchmarks").glob("*.py") if "\ndef rows(" in path.read_text()}
    assert with_rows == set(BENCHMARKS)


@pytest.mark.flower
def test_both_flower_peers_train_and_the_page_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One training of each peer, since Ray starts in each, in place of the many that the page is made of."""
    trainings = {name: flower.run(name, {"clients": 3, "entries": 5, **more}) for name, more in FLOWER_TOY.items()}
    for name, result in trainings.items():
        assert (result["completed"], result["counted"], result["problem"]) == (True, 3, None), name
    assert trainings[flower.OURS]["exact"]
    out = tmp_path / "page.md"
    monkeypatch.setattr(flower, "run", lambda module, _: trainings[module])
    monkeypatch.setattr(sys, "argv", ["benchmarks.flower", "--out", str(out), "--repeats", "1"])
    flower.main()
    text = out.read_text()
    assert "times as fast as SecAgg+" in text
    assert "NOT EXACT" not in text
    assert "nan" not in text
