"""A clock for deadlines: it never jumps, and it continues while the machine sleeps."""

from __future__ import annotations

import time
from typing import Final

_BOOT: Final = getattr(time, "CLOCK_BOOTTIME", None)  # Linux; elsewhere time.monotonic may stop in sleep


def now_s() -> float:
    """Seconds since some moment in the past.

    >>> now_s() <= now_s()
    True
    """
    return time.monotonic() if _BOOT is None else time.clock_gettime(_BOOT)
