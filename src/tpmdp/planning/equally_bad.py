"""Coalitions that are as bad as the worst one, and who in it colludes if the others have dropped out.

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


def without_lost(
    variance: FloatArray, receivers: BoolArray, coalition: Sequence[int], *, lost: int
) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Those of a worst coalition who collude, and those who have dropped out: so many, and their noise is missing.

    Any choice is equally bad as long as a receiver colludes. Those with least noise drop out here.

    >>> import numpy as np
    >>> without_lost(np.array([3.0, 1.0, 2.0]), np.array([False, True, False]), [0, 1, 2], lost=1)
    ((0, 1), (2,))
    """
    order = sorted(coalition, key=lambda each: (-float(variance[each]), each))
    brings = next((each for each in order if receivers[each]), None)
    stay = order[: len(order) - lost]
    if brings is not None and stay and brings not in stay:
        stay[-1] = brings
    return tuple(sorted(stay)), tuple(sorted(set(coalition) - set(stay)))
