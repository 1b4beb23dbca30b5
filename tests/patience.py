"""How long a test waits for what must come: long enough for a machine with much other work. No test waits that long."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final, TypeVar

HANG_S: Final = 1800.0
"""After this a process counts as hung."""
DEADLINE: Final = "30m"
"""For studies whose deadline is not what the test is about."""

Value = TypeVar("Value")


def wait_until(condition: Callable[[], Value], poll_s: float = 0.01) -> Value:
    """The first true value of the condition."""
    end = time.monotonic() + HANG_S
    while not (value := condition()):
        assert time.monotonic() < end, "this did not happen"
        time.sleep(poll_s)
    return value
