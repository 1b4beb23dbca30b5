"""The mask graph: the honest parties stay connected if any `threshold` parties collude.

The circulant does this with certainty, and a party's work grows with the threshold, not with the number of parties.
Where the threshold is a share of a large group, a few random cycles do it with all but negligible probability, and the
work of a party hardly grows at all. Theory, "The graph of a group".
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tpmdp._util.arrays import IntArray
from tpmdp.errors import InputError
from tpmdp.protocol.cycles import SAFETY_BITS, SEED_BYTES, cycles_needed, draw_cycles


def neighbours(party: int, count: int, threshold: int) -> list[int]:
    """The parties this one shares a mask with, in index order: at ring distance up to ceil((threshold + 1) / 2).

    >>> neighbours(0, 10, 2)
    [1, 2, 8, 9]
    >>> neighbours(1, 4, 3)
    [0, 2, 3]
    """
    if not 0 <= party < count:
        raise InputError("party", party, f"must be an index from 0 to {count - 1}", "check the study")
    reach = _reach(count, threshold)
    ring = {(party + offset) % count for offset in range(1, reach + 1)}
    ring |= {(party - offset) % count for offset in range(1, reach + 1)}
    return sorted(ring - {party})


def _reach(count: int, threshold: int) -> int:
    """How far apart on the ring neighbours of the circulant can be."""
    if not 0 <= threshold < count:
        rule = f"must be less than the number of parties ({count})"
        raise InputError("threshold", threshold, rule, "add parties or lower it")
    return min((threshold + 2) // 2, count // 2)


def is_circulant(size: int, threshold: int, bits: int = SAFETY_BITS) -> bool:
    """Whether the circulant gives a party no more neighbours than cycles would; so with up to three parties.

    >>> is_circulant(100, 10), is_circulant(1000, 500)
    (True, False)
    """
    return _reach(size, threshold) <= _cycles(size, threshold, bits)


def _cycles(size: int, threshold: int, bits: int) -> int:
    # Colluders who leave one party cannot cut the rest; with one colluder fewer, they can.
    return cycles_needed(size, max(min(threshold, size - 2), 0), bits)


@dataclass(frozen=True, eq=False)
class Partners:
    """The neighbours of a party in the mask graph, sorted. Of each pair, one encapsulates a key to the other."""

    outgoing: IntArray  # this party encapsulates to them
    incoming: IntArray  # they encapsulate to this party

    @property
    def neighbours(self) -> IntArray:
        """All of them, sorted."""
        return np.sort(np.concatenate((self.outgoing, self.incoming)))


@dataclass(frozen=True, eq=False)
class MaskGraph:
    """Who shares masks with whom in a group. Parties are ranks 0 to size - 1: their places within the sorted group.

    >>> partners = MaskGraph.draw(10, 2, bytes(32)).partners(0)
    >>> partners.outgoing, partners.incoming
    (array([1, 2]), array([8, 9]))
    """

    size: int
    reach: int  # in a circulant, the distance on the ring up to which parties are neighbours
    cycles: IntArray | None = None  # in a union of cycles, one per row: the ranks in the order of the cycle

    @classmethod
    def draw(
        cls, size: int, threshold: int, seed: bytes, *, always_circulant: bool = False, bits: int = SAFETY_BITS
    ) -> MaskGraph:
        """The circulant, or cycles drawn from the seed where they give a party fewer neighbours.

        Cycles fall apart without a coalition that is fixed before the seed with probability at most 2**-bits.

        >>> graph = MaskGraph.draw(950, 500, bytes(32))
        >>> len(graph.cycles), len(graph.partners(0).neighbours)
        (74, 134)
        >>> len(MaskGraph.draw(950, 500, bytes(32), always_circulant=True).partners(0).neighbours)
        502
        """
        if len(seed) != SEED_BYTES:
            raise InputError("seed", f"{len(seed)} bytes", f"must have {SEED_BYTES} bytes", "use a hash")
        if always_circulant or is_circulant(size, threshold, bits):
            return cls(size, _reach(size, threshold))
        return cls(size, 0, draw_cycles(seed, _cycles(size, threshold, bits), size))

    def partners(self, rank: int) -> Partners:
        """The neighbours of one party."""
        if not 0 <= rank < self.size:
            raise InputError("rank", rank, f"must be from 0 to {self.size - 1}", "count within the group")
        if self.cycles is None:
            offsets = np.arange(1, self.reach + 1)
            after, before = (rank + offsets) % self.size, (rank - offsets) % self.size
            if self._meets_opposite:  # the last offset leads to one party both ways: the lower rank encapsulates
                after, before = (after, before[:-1]) if 2 * rank < self.size else (after[:-1], before)
            return Partners(np.sort(after), np.sort(before))
        cycle, place = np.nonzero(self.cycles == rank)
        after, before = self.cycles[cycle, (place + 1) % self.size], self.cycles[cycle, place - 1]
        others, first = np.unique(np.column_stack((after, before)), return_index=True)
        outgoing = first % 2 == 0
        return Partners(others[outgoing], others[~outgoing])

    def pairs(self) -> IntArray:
        """All pairs of neighbours, one per row: the party that encapsulates, and the one it encapsulates to.

        >>> MaskGraph.draw(4, 3, bytes(32)).pairs().tolist()
        [[0, 1], [1, 2], [2, 3], [3, 0], [0, 2], [1, 3]]
        """
        if self.cycles is None:
            tails = np.tile(np.arange(self.size), self.reach)
            heads = (tails + np.repeat(np.arange(1, self.reach + 1), self.size)) % self.size
            twice = self.size // 2 if self._meets_opposite else 0
            return np.column_stack((tails, heads))[: len(tails) - twice]
        tails, heads = self.cycles.ravel(), np.roll(self.cycles, -1, axis=1).ravel()
        pair = np.minimum(tails, heads) * self.size + np.maximum(tails, heads)
        first = np.sort(np.unique(pair, return_index=True)[1])  # the first cycle decides who encapsulates
        return np.column_stack((tails, heads))[first]

    @property
    def _meets_opposite(self) -> bool:
        return 2 * self.reach == self.size
