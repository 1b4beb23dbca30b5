"""The mask graph: symmetric, connected after any coalition is removed, and as thin as the threshold allows."""

from __future__ import annotations

from itertools import combinations

import pytest

from tpmdp import InputError
from tpmdp.protocol.graph import neighbours


def connected(members: set[int], count: int, threshold: int) -> bool:
    """Whether the parties that are left reach each other."""
    seen, todo = set(), [min(members)]
    while todo:
        party = todo.pop()
        if party not in seen:
            seen.add(party)
            todo += [other for other in neighbours(party, count, threshold) if other in members]
    return seen == members


@pytest.mark.parametrize("count", range(1, 11))
def test_every_coalition_leaves_the_others_connected(count: int) -> None:
    for threshold in range(count):
        for coalition in combinations(range(count), threshold):
            assert connected(set(range(count)) - set(coalition), count, threshold)


def test_large_rings_survive_the_worst_cut() -> None:
    """Removing neighbours on both sides is the cheapest way to cut a circulant: it takes threshold + 1 parties."""
    for count, threshold in ((1000, 5), (1000, 6), (501, 100)):
        around = neighbours(0, count, threshold)
        assert len(around) > threshold
        left = set(range(count)) - set(around[:threshold])
        assert connected(left, count, threshold)


def test_sharing_is_mutual_and_follows_the_threshold() -> None:
    for count, threshold in ((7, 2), (8, 7), (30, 3), (2, 1), (1, 0)):
        for party in range(count):
            for other in neighbours(party, count, threshold):
                assert party in neighbours(other, count, threshold)
                assert party != other
    assert len(neighbours(17, 1000, 5)) == 6
    assert len(neighbours(17, 10**7, 5)) == 6
    assert neighbours(0, 1, 0) == []


@pytest.mark.parametrize(("party", "count", "threshold"), [(5, 5, 1), (-1, 5, 1), (0, 5, 5), (0, 5, -1)])
def test_bad_numbers_are_refused(party: int, count: int, threshold: int) -> None:
    with pytest.raises(InputError):
        neighbours(party, count, threshold)
