"""Who keeps an attempt closed: parties that add a mask of their own, and share its seed among the whole group.

One unknown mask hides the sum, so one honest keeper is enough: all of threshold + 1, or, of a large group, as few drawn
ones as leave an honest one in it but for a chance of 2**-128. Theory, "Keepers".
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from functools import cache
from math import comb
from typing import Final

import numpy as np

DRAW_BITS: Final = 128
_LABEL: Final = b"tpmdp keepers 1"


@cache
def keeper_count(size: int, threshold: int, bits: int = DRAW_BITS) -> int:
    """How many keepers a group of this size has besides its lead receiver.

    >>> keeper_count(5, 1), keeper_count(950, 500), keeper_count(9500, 5000)
    (2, 126, 137)
    """
    others = size - 1
    low, high = 1, min(threshold + 1, others)
    while low < high:  # the fewest that are all corrupt with a chance of at most 2**-bits
        middle = (low + high) // 2
        if comb(threshold, middle) << bits <= comb(others, middle):
            high = middle
        else:
            low = middle + 1
    return low


def draw_keepers(seed: bytes, members: Sequence[int], lead: int, *, threshold: int) -> tuple[int, ...]:
    """The keepers of a group, drawn by a seed that follows from the group and all its keys.

    >>> draw_keepers(bytes(32), [0, 1, 2, 4, 5], 0, threshold=1)
    (1, 2)
    """
    others = np.array([member for member in members if member != lead], dtype=np.int64)
    stream = hashlib.shake_256(_LABEL + seed).digest(8 * len(others))
    order = np.argsort(np.frombuffer(stream, dtype="<u8"), kind="stable")
    chosen = others[order[: keeper_count(len(members), threshold)]]
    return tuple(sorted(chosen.tolist()))
