"""The mask graph: symmetric, connected after any coalition is removed, and as thin as the threshold allows."""

from __future__ import annotations

from itertools import combinations

import numpy as np
import pytest
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components
from scipy.stats import binomtest

from tpmdp import InputError
from tpmdp.protocol.cycles import cycles_needed, draw_cycles
from tpmdp.protocol.graph import MaskGraph, neighbours

SEED = bytes(range(32))
CIRCULANT = [(size, threshold, 128) for size in range(1, 12) for threshold in range(size)]
DRAWN = [(40, 20, 3), (41, 30, 5), (15, 12, 1), (100, 50, 10), (300, 150, 128)]  # with 4 or more cycles


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


def honest_parts(graph: MaskGraph, coalition: set[int]) -> int:
    """Into how many parts the parties outside the coalition fall."""
    inside = np.isin(np.arange(graph.size), list(coalition))
    tails, heads = (pairs := graph.pairs())[~inside[pairs].any(axis=1)].T
    edges = coo_array((np.ones(len(tails)), (tails, heads)), shape=(graph.size, graph.size))
    return int(connected_components(edges, directed=False)[0]) - len(coalition)


@pytest.mark.parametrize(("size", "threshold", "bits"), [*CIRCULANT, *DRAWN, (30, 29, 128)])
def test_of_each_pair_one_encapsulates(size: int, threshold: int, bits: int) -> None:
    graph = MaskGraph.draw(size, threshold, SEED, bits=bits)
    partners = [graph.partners(rank) for rank in range(size)]
    outgoing = {(rank, other) for rank, each in enumerate(partners) for other in each.outgoing.tolist()}
    incoming = {(other, rank) for rank, each in enumerate(partners) for other in each.incoming.tolist()}
    assert outgoing == incoming
    assert not outgoing & {(head, tail) for tail, head in outgoing}
    assert all(tail != head for tail, head in outgoing)
    assert sorted(map(tuple, graph.pairs().tolist())) == sorted(outgoing)
    for each in partners:
        for ranks in (each.outgoing, each.incoming, each.neighbours):
            assert ranks.tolist() == sorted(set(ranks.tolist()))
        assert set(each.neighbours.tolist()) == set(each.outgoing.tolist()) | set(each.incoming.tolist())


@pytest.mark.parametrize(("size", "threshold", "bits"), CIRCULANT)
def test_small_groups_have_the_circulant_with_the_work_spread_evenly(size: int, threshold: int, bits: int) -> None:
    graph = MaskGraph.draw(size, threshold, SEED, bits=bits)
    assert graph.cycles is None
    for rank in range(size):
        partners = graph.partners(rank)
        assert partners.neighbours.tolist() == neighbours(rank, size, threshold)
        assert abs(len(partners.outgoing) - len(partners.incoming)) <= 1
        near = range(1, (threshold + 2) // 2 + 1)
        assert set(partners.outgoing.tolist()) <= {(rank + offset) % size for offset in near}


def test_two_parties_opposite_each_other_on_an_even_ring() -> None:
    """Either is at the positive offset from the other: the lower rank encapsulates."""
    assert MaskGraph.draw(2, 1, SEED).pairs().tolist() == [[0, 1]]
    assert MaskGraph.draw(4, 2, SEED).partners(1).outgoing.tolist() == [2, 3]
    assert MaskGraph.draw(4, 2, SEED).partners(2).outgoing.tolist() == [3]
    assert MaskGraph.draw(4, 2, SEED).partners(3).incoming.tolist() == [1, 2]


@pytest.mark.parametrize(("size", "threshold", "bits"), DRAWN)
def test_large_groups_have_the_cycles_of_the_seed(size: int, threshold: int, bits: int) -> None:
    graph = MaskGraph.draw(size, threshold, SEED, bits=bits)
    count = cycles_needed(size, threshold, bits)
    assert graph.cycles is not None
    assert graph.cycles.tolist() == draw_cycles(SEED, count, size).tolist()
    first: dict[frozenset[int], tuple[int, int]] = {}
    for cycle in graph.cycles.tolist():
        for tail, head in zip(cycle, cycle[1:] + cycle[:1], strict=True):
            first.setdefault(frozenset((tail, head)), (tail, head))
    assert len(first) < count * size  # some pairs are adjacent twice
    assert [tuple(pair) for pair in graph.pairs().tolist()] == list(first.values())
    for rank in range(size):
        partners = graph.partners(rank)
        assert len(partners.outgoing) <= count
        assert len(partners.incoming) <= count
        assert {(rank, other) for other in partners.outgoing.tolist()} == {p for p in first.values() if p[0] == rank}


def test_the_graph_is_a_function_of_the_seed() -> None:
    graph = MaskGraph.draw(950, 500, SEED)
    assert graph.partners(17).outgoing[:5].tolist() == [3, 15, 16, 25, 26]
    assert graph.partners(17).incoming[:5].tolist() == [39, 48, 64, 69, 137]
    assert graph.pairs().tolist() == MaskGraph.draw(950, 500, SEED).pairs().tolist()
    assert graph.pairs().tolist() != MaskGraph.draw(950, 500, bytes(32)).pairs().tolist()


def test_the_circulant_is_taken_where_it_has_as_few_neighbours_and_on_demand() -> None:
    taken = [MaskGraph.draw(1000, threshold, SEED).cycles is None for threshold in range(20, 60)]
    degrees = [2 * ((threshold + 2) // 2) for threshold in range(20, 60)]
    counts = [cycles_needed(1000, threshold) for threshold in range(20, 60)]
    assert taken == [degree <= 2 * count for degree, count in zip(degrees, counts, strict=True)]
    assert any(degree == 2 * count for degree, count in zip(degrees, counts, strict=True))
    assert not all(taken)
    assert MaskGraph.draw(30, 29, SEED).cycles is None  # all but one collude: nobody can be cut off, but ...
    assert honest_parts(MaskGraph.draw(300, 299, SEED), set(range(1, 299))) == 1  # ... two must still be connected
    always = MaskGraph.draw(1000, 500, SEED, always_circulant=True)
    assert always.cycles is None
    assert always.partners(17).neighbours.tolist() == neighbours(17, 1000, 500)


@pytest.mark.parametrize("coalition", [range(20), range(0, 40, 2), range(5, 25), range(18)])
def test_a_drawn_graph_falls_apart_as_seldom_as_promised(coalition: range) -> None:
    """And coalitions of 20 manage it hardly less often than the bound says, which is 0.095 for four cycles."""
    times = 1000
    graphs = (MaskGraph.draw(40, 20, seed.to_bytes(32, "big"), bits=3) for seed in range(times))
    apart = sum(honest_parts(graph, set(coalition)) > 1 for graph in graphs)
    assert binomtest(apart, times, 0.095, alternative="greater").pvalue > 1e-4
    if len(coalition) == 20:
        assert binomtest(apart, times, 0.08, alternative="less").pvalue > 1e-4


@pytest.mark.parametrize(("size", "threshold"), [(0, 0), (5, 5), (5, -1)])
def test_a_group_that_is_too_small_is_refused(size: int, threshold: int) -> None:
    with pytest.raises(InputError):
        MaskGraph.draw(size, threshold, SEED)


@pytest.mark.parametrize("seed", [b"", bytes(31), bytes(33)])
def test_a_seed_of_another_length_is_refused_even_if_nothing_is_drawn(seed: bytes) -> None:
    with pytest.raises(InputError):
        MaskGraph.draw(5, 2, seed)


@pytest.mark.parametrize("threshold", [2, 500])
@pytest.mark.parametrize("rank", [-1, 950])
def test_a_rank_outside_the_group_is_refused(threshold: int, rank: int) -> None:
    with pytest.raises(InputError):
        MaskGraph.draw(950, threshold, SEED).partners(rank)
