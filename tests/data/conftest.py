"""A PostgreSQL server of its own for each test process."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.data.server import Server, running_server


@pytest.fixture(scope="session")
def server() -> Iterator[Server]:
    with running_server() as server:
        yield server
