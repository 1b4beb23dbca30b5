"""How often a random test tries: usually often enough to catch a fault, and with TPMDP_THOROUGH=1 many times more."""

from __future__ import annotations

import os
from typing import Final

THOROUGH: Final = os.environ.get("TPMDP_THOROUGH") == "1"


def tries(usual: int, thorough: int) -> int:
    return thorough if THOROUGH else usual
