"""The benchmark of the page runs; what it measures is in docs/reference/page_measures.md."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.patience import HANG_S

pytest.importorskip("playwright.sync_api")
pytestmark = [pytest.mark.browser, pytest.mark.process]


def test_the_page_can_be_measured() -> None:
    """In its own process: Playwright runs once in each, and other tests use it here."""
    command = [sys.executable, "-m", "benchmarks.page_speed", "--counts", "3,4", "--repeats", "1"]
    root = Path(__file__).parents[2]
    done = subprocess.run(command, cwd=root, capture_output=True, text=True, timeout=HANG_S, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count(" ms |") == 2
    assert "The first view loads" in done.stdout
