"""What tests of several engines share."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.engines.direct_commands import Place, new_place


@pytest.fixture
def place() -> Iterator[Place]:
    """A folder for the processes of a test, which must be clean in the end."""
    with new_place() as each:
        yield each
