"""The benchmark of the page, at toy size, so that it cannot rot."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

playwright = pytest.importorskip("playwright.sync_api")
pytestmark = [pytest.mark.browser, pytest.mark.process]


def test_the_benchmark_writes_its_page(tmp_path: Path) -> None:
    out = tmp_path / "page_measures.md"
    command = [sys.executable, "-m", "benchmarks.page_speed", "--counts", "5", "--repeats", "3", "--out", str(out)]
    run = subprocess.run(command, cwd=Path(__file__).parents[2], capture_output=True, text=True, timeout=240)
    assert run.returncode == 0, run.stderr
    rows = [line for line in out.read_text().splitlines() if line.startswith("| 5 |")]
    assert len(rows) == 1
    assert " ms |" in rows[0]
