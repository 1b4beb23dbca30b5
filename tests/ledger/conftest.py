"""A ledger for one test."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tpmdp.ledger import Ledger


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "north.ledger"


@pytest.fixture
def ledger(path: Path) -> Iterator[Ledger]:
    with Ledger.create(path, "north", 1.0, 1e-6) as created:
        yield created
