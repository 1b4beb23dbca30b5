"""Keepers: as few as the definition allows, drawn evenly, and never all corrupt but for the chance that is stated."""

from __future__ import annotations

import math
from collections import Counter
from functools import partial
from itertools import combinations
from math import comb

import numpy as np
import pytest
from scipy.stats import binomtest, chi2

from tests.effort import tries
from tpmdp.planning.losses import most_lost, openings_of
from tpmdp.protocol import keepers
from tpmdp.protocol.keepers import draw_keepers, keeper_count

BITS = 128


def fewest(size: int, threshold: int, bits: int) -> int:
    """Step by step from 1; threshold + 1 can never be all corrupt. A group has no more than its other members."""
    count, others = 1, size - 1
    while count < min(threshold + 1, others) and comb(threshold, count) * 2**bits > comb(others, count):
        count += 1
    return count


def seed_of(number: int) -> bytes:
    return number.to_bytes(32, "big")


@pytest.mark.parametrize("bits", [0, 1, 3, 8, 40, BITS])
def test_so_few_that_fewer_are_too_likely_all_corrupt_in_small_groups(bits: int) -> None:
    for size in range(2, 40):
        for threshold in range(size):
            assert keeper_count(size, threshold, bits) == fewest(size, threshold, bits)


def test_so_few_that_fewer_are_too_likely_all_corrupt_in_large_groups() -> None:
    random = np.random.default_rng(1)
    sizes = np.exp(random.uniform(math.log(40), math.log(10_000), tries(60, 1000))).astype(int).tolist()
    for size in sizes:
        for threshold in random.integers(1, size, 2).tolist():
            assert keeper_count(size, threshold) == fewest(size, threshold, BITS)
    assert (keeper_count(950, 500), keeper_count(9500, 5000)) == (126, 137)


def test_one_keeper_less_than_all_colluders_and_one_would_not_do_in_any_small_session() -> None:
    """Where drawing cannot help, there are threshold + 1; and whoever may drop out, the group has so many others."""
    for count in range(2, 60):
        for threshold in range(1, count):
            for size in range(openings_of(count, threshold), count + 1):
                if most_lost(count, threshold):
                    assert keeper_count(size, threshold) == threshold + 1 <= size - 1


def test_more_parties_never_need_more_keepers() -> None:
    for threshold in (1, 5, 60, 130, 200, 500):
        sizes = range(threshold + 2, 8 * threshold + 10, max(1, threshold // 20))
        counts = [keeper_count(size, threshold) for size in sizes]
        assert counts == sorted(counts, reverse=True)
    assert keeper_count(1000, 500) > keeper_count(2000, 500) > keeper_count(10_000, 500)


def test_more_colluders_never_need_fewer_keepers() -> None:
    for size in (10, 100, 700):
        counts = [keeper_count(size, threshold) for threshold in range(1, size - 1)]
        assert counts == sorted(counts)


@pytest.mark.parametrize("bits", [1, 2, 3, 5])
def test_the_chance_of_corrupt_keepers_only_by_listing_all_draws(bits: int) -> None:
    for size in range(3, 10):
        for threshold in range(1, size - 1):
            others, corrupt = range(size - 1), set(range(threshold))
            count = keeper_count(size, threshold, bits)
            for number in range(1, count + 1):
                draws = [set(draw) for draw in combinations(others, number)]
                bad = sum(draw <= corrupt for draw in draws)
                assert bad == comb(threshold, number)
                assert (bad * 2**bits <= len(draws)) == (number == count)


MEMBERS = [0, 2, 3, 5, 6, 7, 8, 9, 11, 12]


@pytest.mark.parametrize("lead", [0, 6, 12])
@pytest.mark.parametrize("threshold", [1, 3, 8])
def test_keepers_are_members_but_never_the_lead(lead: int, threshold: int) -> None:
    drawn = [draw_keepers(seed_of(number), MEMBERS, lead, threshold=threshold) for number in range(200)]
    for draw in drawn:
        assert len(draw) == len(set(draw)) == keeper_count(len(MEMBERS), threshold) == threshold + 1
        assert list(draw) == sorted(draw)
        assert set(draw) <= set(MEMBERS) - {lead}
        assert all(type(party) is int for party in draw)
    again = [draw_keepers(seed_of(number), MEMBERS, lead, threshold=threshold) for number in range(200)]
    assert again == drawn
    if threshold < len(MEMBERS) - 2:  # else all of the others are keepers
        assert len(set(drawn)) > 30


def test_as_few_are_drawn_of_a_large_group_as_are_needed() -> None:
    members = range(950)
    draw = draw_keepers(seed_of(0), members, 0, threshold=500)
    assert len(set(draw)) == 126
    assert 0 not in draw
    assert draw != draw_keepers(seed_of(1), members, 0, threshold=500)


def test_every_bit_of_the_seed_counts() -> None:
    plain = draw_keepers(bytes(32), range(1, 300), 1, threshold=60)
    for place in range(256):
        assert draw_keepers(seed_of(1 << place), range(1, 300), 1, threshold=60) != plain


def test_all_parties_are_keepers_equally_often() -> None:
    """Draws without replacement vary less than a multinomial, by a known factor. Fixed seeds, so no chance of failure.

    Also for pairs: no two parties are keepers together more often than others.
    """
    total, others, count = 4000, 9, 4
    drawn = [draw_keepers(seed_of(number), MEMBERS, 5, threshold=count - 1) for number in range(total)]
    singles = Counter(party for draw in drawn for party in draw)
    assert set(singles) == set(MEMBERS) - {5}
    share = count / others
    spread = sum((times - total * share) ** 2 for times in singles.values()) / (total * share * (1 - share))
    assert chi2.ppf(0.001, others - 1) < spread * (others - 1) / others < chi2.ppf(0.999, others - 1)
    chance = comb(others - 2, count - 2) / comb(others, count)
    for pair, times in Counter(pair for draw in drawn for pair in combinations(draw, 2)).items():
        assert binomtest(times, total, chance).pvalue > 1e-4, pair


def test_corrupt_parties_only_are_drawn_as_rarely_as_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    """At a strength of two bits, where it happens: the drawing itself has the stated chance."""
    monkeypatch.setattr(keepers, "keeper_count", partial(keeper_count, bits=2))
    members, corrupt, total = range(9), {1, 3, 4, 6}, 4000
    draws = [draw_keepers(seed_of(number), members, 0, threshold=len(corrupt)) for number in range(total)]
    count = len(draws[0])
    assert count == 2
    chance = comb(len(corrupt), count) / comb(len(members) - 1, count)
    assert chance <= 0.25
    bad = sum(set(draw) <= corrupt for draw in draws)
    assert binomtest(bad, total, chance).pvalue > 0.001
