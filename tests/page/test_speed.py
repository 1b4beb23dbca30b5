"""The benchmark of the page runs; what it measures is in docs/reference/page_measures.md."""

from __future__ import annotations

import pytest
from benchmarks.page_speed import measure

pytest.importorskip("playwright.sync_api")
pytestmark = [pytest.mark.browser, pytest.mark.process]


def test_the_page_can_be_measured() -> None:
    text = measure([3, 4], 1)
    assert text.count(" ms |") == 2
    assert "The first view loads" in text
