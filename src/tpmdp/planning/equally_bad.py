"""Coalitions that are as bad as the worst one.

All worst coalitions of one size can be reached from any of them by exchanging members for parties with the same
variance, one at a time (Theory, "Worst coalitions").
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence

from tpmdp._util.arrays import BoolArray, FloatArray


def equally_bad(
    variance: FloatArray, receivers: BoolArray, party: int, *, coalition: Sequence[int], most: int
) -> list[tuple[int, ...]]:
    """Other coalitions of this size that leave the party as little noise as this worst one: the first few.

    >>> import numpy as np
    >>> receivers = np.array([True, False, False, False])
    >>> equally_bad(np.array([0.0, 2.0, 2.0, 5.0]), receivers, 3, coalition=[0, 1], most=4)
    [(0, 2)]
    """
    first = tuple(sorted(coalition))
    seen, waiting = {first}, deque([first])
    while waiting and len(seen) <= most:
        for other in _neighbours(variance, receivers, party, members=waiting.popleft()):
            if other not in seen:
                seen.add(other)
                waiting.append(other)
            if len(seen) > most:
                break
    return sorted(seen - {first})


def _neighbours(
    variance: FloatArray, receivers: BoolArray, party: int, *, members: tuple[int, ...]
) -> Iterator[tuple[int, ...]]:
    """Coalitions with a receiver that differ in one member, of the same variance."""
    inside = set(members)
    outside: dict[float, list[int]] = {}
    for other, value in enumerate(variance.tolist()):
        if other not in inside and other != party:
            outside.setdefault(value, []).append(other)
    receiving = {member for member in members if receivers[member]}
    for member in members:
        for other in outside.get(float(variance[member]), []):
            if receivers[other] or receiving - {member}:
                yield tuple(sorted((inside - {member}) | {other}))
