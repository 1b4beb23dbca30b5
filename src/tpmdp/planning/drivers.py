"""For whose sake the noise is there: shares of the least total variance, and parties that share such a share.

The least total is a weighted sum of the largest needs. Where parties with the same need stand on both sides of a
change of weight, which of them stands first is arbitrary: only together they are what the noise is due to. Among
parties that a coalition can attack, and that have the same threshold, the least total does not depend on who has
which need. So the average over all orders of parties with equal needs is as good a witness (Theory, "Due to whom").
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass

import numpy as np

from tpmdp._util.arrays import FloatArray

_SAME = 1e-9  # shares of the noise that nobody would tell apart


@dataclass(frozen=True)
class Drivers:
    """`shares` add up to 1, or to 0. `groups` are parties that share what is due to them; each has two or more."""

    shares: FloatArray
    groups: tuple[tuple[int, ...], ...]

    def group(self, party: int) -> tuple[int, ...]:
        """The party and those that share with it.

        >>> Drivers(np.array([0.5, 0.5, 0.0]), groups=((0, 1),)).group(1)
        (0, 1)
        """
        return next((group for group in self.groups if party in group), (party,))

    def share(self, party: int) -> float:
        """What is due to the party, together with those that share with it."""
        return float(self.shares[list(self.group(party))].sum())

    def largest(self) -> tuple[int, ...]:
        """The party, or the group, that most noise is due to."""
        first = {self.group(party)[0] for party in np.flatnonzero(self.shares).tolist()} or {0}
        return self.group(max(sorted(first), key=self.share))


def shared(shares: FloatArray, kinds: Sequence[Hashable]) -> Drivers:
    """Shares where parties of the same kind share alike.

    >>> result = shared(np.array([0.5, 0.4, 0.1, 0.0]), ["a", "b", "b", "c"])
    >>> result.shares.tolist(), result.groups
    ([0.5, 0.25, 0.25, 0.0], ((1, 2),))
    """
    alike: dict[Hashable, list[int]] = {}
    for party, kind in enumerate(kinds):
        alike.setdefault(kind, []).append(party)
    averaged, groups = shares.copy(), []
    for members in alike.values():
        own = shares[members]
        if len(members) > 1 and own.max() - own.min() > _SAME:
            averaged[members] = own.sum() / len(members)
            groups.append(tuple(members))
    return Drivers(averaged, tuple(groups))
