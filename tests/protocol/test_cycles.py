"""Random cycles: the bound on a disconnected graph against enumeration, and the law of what is drawn."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterator
from fractions import Fraction
from itertools import permutations, product
from math import comb, factorial

import numpy as np
import pytest
from scipy import stats
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components

from tpmdp import InputError
from tpmdp._util.arrays import IntArray
from tpmdp.protocol.cycles import cycles_needed, draw_cycles, isolation, product_up

SEED = bytes(range(32))


def all_cycles(size: int) -> IntArray:
    """Every cyclic order of 0 to size - 1, each once in either direction."""
    return np.array([(0, *order) for order in permutations(range(1, size))])


def components(cycles: IntArray, colluders: int) -> tuple[int, ...]:
    """The component of each party that is not among the first `colluders`, in the union of cycles, in normal form."""
    size = cycles.shape[1]
    tails, heads = cycles.ravel(), np.roll(cycles, -1, axis=1).ravel()
    honest = np.minimum(tails, heads) >= colluders
    edges = coo_array((np.ones(honest.sum()), (tails[honest], heads[honest])), shape=(size, size))
    labels = connected_components(edges, directed=False)[1][colluders:].tolist()
    return tuple(labels.index(label) for label in labels)


def union_bound(size: int, colluders: int, count: int) -> Fraction:
    """The bound as the theory states it."""
    honest = size - colluders
    return sum(
        (comb(honest, m) * isolation(colluders, m, honest - m) ** count for m in range(1, honest // 2 + 1)), Fraction(0)
    )


def cases(most: int) -> Iterator[tuple[int, int]]:
    return ((size, colluders) for size in range(1, most + 1) for colluders in range(size))


@pytest.mark.parametrize("size", range(2, 9))
def test_isolation_is_what_enumeration_counts(size: int) -> None:
    cycles = all_cycles(size)
    for colluders in range(size):
        for inside in range(1, size - colluders):
            role = np.repeat([0, 1, 2], [colluders, inside, size - colluders - inside])[cycles]
            apart = np.all(role + np.roll(role, -1, axis=1) != 3, axis=1)
            chance = isolation(colluders, inside, size - colluders - inside)
            assert chance == Fraction(int(apart.sum()), len(cycles))


def test_isolation_is_the_sum_of_the_theory() -> None:
    for colluders, inside, outside in [*product(range(1, 9), repeat=3), (50, 20, 25), (12, 60, 70), (90, 3, 4)]:
        honest = inside + outside
        ways = sum(
            comb(colluders, runs) * comb(inside - 1, runs - 1) * comb(outside + colluders - runs - 1, outside)
            for runs in range(1, min(inside, colluders - 1) + 1)
        )
        orders = factorial(colluders - 1) * factorial(inside) * factorial(outside)
        assert isolation(colluders, inside, outside) == Fraction(ways * orders, factorial(colluders + honest - 1))


def test_more_parties_on_either_side_or_fewer_colluders_make_isolation_less_likely() -> None:
    """The rest of the sum is bounded by this."""
    for colluders, inside, outside in product(range(2, 12), range(1, 12), range(1, 12)):
        chance = isolation(colluders, inside, outside)
        assert chance == isolation(colluders, outside, inside)
        assert 0 < isolation(colluders, inside + 1, outside) < chance
        assert isolation(colluders + 1, inside, outside) > chance


@pytest.mark.parametrize("size", range(3, 7))
def test_the_bound_holds_for_all_graphs_of_one_and_two_cycles(size: int) -> None:
    for colluders in range(size):
        honest = size - colluders
        kinds = Counter(components(cycle[None], colluders) for cycle in all_cycles(size))
        together = Fraction(kinds[(0,) * honest], kinds.total())
        assert together == (Fraction(size, comb(size, colluders)) if colluders else 1)
        assert 1 - together <= union_bound(size, colluders, 1)
        if colluders == 2 and honest % 2:  # one cycle leaves two runs, of which one is the smaller
            assert 1 - together == union_bound(size, colluders, 1)
        apart = 0
        for (first, times), (second, again) in product(kinds.items(), repeat=2):
            edges = np.array([*enumerate(first), *enumerate(second)])
            graph = coo_array((np.ones(len(edges)), edges.T), shape=(honest, honest))
            apart += times * again * (connected_components(graph, directed=False)[0] > 1)
        assert Fraction(apart, kinds.total() ** 2) <= union_bound(size, colluders, 2)


@pytest.mark.parametrize("bits", [1, 2, 5, 30])
def test_the_number_of_cycles_is_the_least_that_the_bound_allows(bits: int) -> None:
    for size, colluders in cases(14):
        count = cycles_needed(size, colluders, bits)
        assert union_bound(size, colluders, count) <= Fraction(1, 2**bits)
        # A bound of exactly 2**-bits may be rounded up and refused.
        assert count == 1 or union_bound(size, colluders, count - 1) >= Fraction(1, 2**bits)


@pytest.mark.parametrize(("size", "colluders"), [(300, 150), (250, 20), (150, 140), (200, 2), (120, 118)])
def test_so_it_is_for_more_parties(size: int, colluders: int) -> None:
    """The sum over all m, each term rounded down and up to 2**-400."""
    honest, unit = size - colluders, 2**400
    chances = {m: isolation(colluders, m, honest - m) for m in range(1, honest // 2 + 1)}
    for bits in (3, 128):
        count = cycles_needed(size, colluders, bits)
        for cycles in (count, count - 1):
            low = sum(
                comb(honest, m) * unit * chance.numerator**cycles // chance.denominator**cycles
                for m, chance in chances.items()
            )
            if cycles == count:
                assert (low + len(chances)) << bits <= unit
            else:
                assert low << bits > unit


@pytest.mark.parametrize(
    ("size", "colluders", "bits", "degree"),
    [(950, 500, 80, 96), (9500, 5000, 80, 100), (950, 500, 128, 148), (9500, 5000, 128, 152)],
)
def test_the_degree_hardly_grows_with_the_number_of_parties(size: int, colluders: int, bits: int, degree: int) -> None:
    assert 2 * cycles_needed(size, colluders, bits) == degree


def test_corners() -> None:
    assert [cycles_needed(size, 0) for size in (1, 2, 3, 1000)] == [1] * 4
    assert [cycles_needed(size, 1) for size in (2, 3, 1000)] == [1] * 3
    assert [cycles_needed(size, size - 1) for size in (1, 2, 3, 1000)] == [1] * 4  # one honest party
    assert [cycles_needed(size, size - 2, 1) for size in (3, 4, 5)] == [1, 2, 2]  # 2 q**count, q = 0, 1/3, 1/2


def test_fewer_colluders_need_no_more_cycles() -> None:
    """As long as two honest parties are left, so a graph for the threshold suits smaller coalitions, too."""
    for size in [*range(2, 40), 950]:
        counts = [cycles_needed(size, colluders) for colluders in range(0, size - 1, 1 + size // 40)]
        assert counts == sorted(counts)


def test_products_are_rounded_up_and_hardly() -> None:
    bases = [Fraction(1, 1000), Fraction(77, 1000), Fraction(3, 4), Fraction(2**60 - 1, 2**60), Fraction(996, 997)]
    for base, exponent, places in product(bases, (1, 2, 3, 76, 500), (0, 100, 5000)):
        factor = 3**50 << places
        exact = factor * base**exponent
        assert exact <= product_up(factor, base, exponent) <= exact * (1 + Fraction(1, 2**240)) + 1


@pytest.mark.parametrize(
    ("size", "colluders", "bits", "field"),
    [(0, 0, 128, "size"), (5, 5, 128, "colluders"), (5, -1, 128, "colluders"), (5, 2, 0, "bits")],
)
def test_bad_numbers_are_refused(size: int, colluders: int, bits: int, field: str) -> None:
    with pytest.raises(InputError, match=field):
        cycles_needed(size, colluders, bits)


def test_cycles_are_sorted_by_the_keys_of_the_stream() -> None:
    """Written out without NumPy: any program can draw the same cycles."""
    for number, cycle in enumerate(draw_cycles(SEED, 3, 20)):
        stream = hashlib.shake_256(b"tpmdp mask graph 1" + SEED + number.to_bytes(8, "big")).digest(160)
        keys = [int.from_bytes(stream[8 * rank : 8 * rank + 8], "little") for rank in range(20)]
        assert cycle.tolist() == sorted(range(20), key=lambda rank: (keys[rank], rank))
    assert draw_cycles(SEED, 2, 8).tolist() == [[1, 5, 3, 6, 0, 4, 7, 2], [5, 2, 7, 4, 6, 3, 1, 0]]
    digest = hashlib.sha256(draw_cycles(SEED, 5, 10_000).astype("<i8").tobytes()).hexdigest()
    assert digest == "1dcbc68fad82f59b4e65408a538ed3bbc83e8af69adbbce94d8219633df4ea6c"


def test_equal_keys_are_in_the_order_of_ranks(monkeypatch: pytest.MonkeyPatch) -> None:
    class ThreeKeys:
        def __init__(self, data: bytes) -> None:
            pass

        def digest(self, length: int) -> bytes:
            return b"".join((rank % 3).to_bytes(8, "little") for rank in range(length // 8))

    monkeypatch.setattr(hashlib, "shake_256", ThreeKeys)
    assert draw_cycles(SEED, 1, 300).tolist() == [[*range(0, 300, 3), *range(1, 300, 3), *range(2, 300, 3)]]


@pytest.mark.parametrize("size", [4, 5])
def test_every_order_is_as_likely(size: int) -> None:
    orders = {order: place for place, order in enumerate(permutations(range(size)))}
    drawn = [orders[tuple(cycle)] for cycle in draw_cycles(SEED, 50 * len(orders), size).tolist()]
    assert stats.chisquare(np.bincount(drawn, minlength=len(orders))).pvalue > 1e-4


def test_cycles_of_one_seed_and_of_several_are_independent() -> None:
    orders = {order: place for place, order in enumerate(permutations(range(3)))}
    drawn = np.array(
        [
            [orders[tuple(cycle)] for cycle in draw_cycles(seed.to_bytes(32, "big"), 2, 3).tolist()]
            for seed in range(2000)
        ]
    )
    for first, second in (drawn.T, (drawn[:-1, 0], drawn[1:, 0])):
        assert stats.chisquare(np.bincount(6 * first + second, minlength=36)).pvalue > 1e-4


@pytest.mark.parametrize(("size", "colluders"), [(9, 2), (9, 4), (12, 3)])
def test_one_drawn_cycle_falls_apart_as_often_as_it_should(size: int, colluders: int) -> None:
    times = 1500
    apart = sum(any(components(cycle[None], colluders)) for cycle in draw_cycles(SEED, times, size))
    chance = 1 - size / comb(size, colluders)
    assert stats.binomtest(apart, times, chance).pvalue > 1e-4
    assert chance <= union_bound(size, colluders, 1)


@pytest.mark.parametrize("seed", [b"", bytes(31), bytes(33)])
def test_a_seed_of_another_length_is_refused(seed: bytes) -> None:
    with pytest.raises(InputError):
        draw_cycles(seed, 1, 5)
