"""The mask graph: circulant, and still connected if any `threshold` parties are removed.

The work of a party grows with the threshold, not with the number of parties. Theory, "Masks".
"""

from __future__ import annotations

from tpmdp.errors import InputError


def neighbours(party: int, count: int, threshold: int) -> list[int]:
    """The parties this one shares a mask with, in index order: at ring distance up to ceil((threshold + 1) / 2).

    >>> neighbours(0, 10, 2)
    [1, 2, 8, 9]
    >>> neighbours(1, 4, 3)
    [0, 2, 3]
    """
    if not 0 <= party < count:
        raise InputError("party", party, f"must be an index from 0 to {count - 1}", "check the study")
    if not 0 <= threshold < count:
        rule = f"must be less than the number of parties ({count})"
        raise InputError("threshold", threshold, rule, "add parties or lower it")
    reach = (threshold + 2) // 2
    ring = {(party + offset) % count for offset in range(1, min(reach, count - 1) + 1)}
    ring |= {(party - offset) % count for offset in range(1, min(reach, count - 1) + 1)}
    return sorted(ring - {party})
