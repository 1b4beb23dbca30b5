"""Shares against a tiny independent Shamir, which solves systems of linear equations over the field."""

from __future__ import annotations

from fractions import Fraction
from itertools import combinations
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import chisquare, kstest

from tests.effort import tries
from tests.protocol.sessions import World
from tpmdp import InputError
from tpmdp.protocol import shares as shares_module
from tpmdp.protocol.attempt import Attempt, KeptShare
from tpmdp.protocol.hybrid import HybridKey
from tpmdp.protocol.masks import Mask
from tpmdp.protocol.messages import ProtocolError
from tpmdp.protocol.shares import check_value, combine, mask_seed, secret_of, split, weights_at_zero

FIELD = 57896044618658097711785492504343953926634992332820282019728792003956564819949
RANDOM = st.binary(min_size=64, max_size=64)

Points = dict[int, int]


def coefficients(points: Points) -> list[int]:
    """The polynomial of least degree through these points, lowest coefficient first: by Gauss-Jordan elimination."""
    size = len(points)
    rows = [[*(pow(at, power, FIELD) for power in range(size)), value] for at, value in points.items()]
    for column in range(size):
        pivot = next(row for row in range(column, size) if rows[row][column])
        rows[column], rows[pivot] = rows[pivot], rows[column]
        inverse = pow(rows[column][column], FIELD - 2, FIELD)
        rows[column] = [entry * inverse % FIELD for entry in rows[column]]
        for row in range(size):
            factor = rows[row][column]
            if row != column and factor:
                pairs = zip(rows[row], rows[column], strict=True)
                rows[row] = [(mine - factor * other) % FIELD for mine, other in pairs]
    return [row[-1] for row in rows]


def value_at(polynomial: list[int], at: int) -> int:
    return sum(coefficient * pow(at, power, FIELD) for power, coefficient in enumerate(polynomial)) % FIELD


def points_of(shares: dict[int, bytes]) -> Points:
    """Party i holds the value at i + 1."""
    return {party + 1: int.from_bytes(share, "big") for party, share in shares.items()}


def number_of(secret: bytes) -> int:
    return int.from_bytes(secret, "big")


def random_bytes(number: int) -> bytes:
    return np.random.default_rng(number).bytes(64)


@st.composite
def sharings(draw: st.DrawFn) -> tuple[bytes, int, list[int]]:
    """Random bytes, a threshold, and at least so many parties."""
    parties = draw(st.lists(st.integers(0, 9_999), unique=True, min_size=1, max_size=9))
    return draw(RANDOM), draw(st.integers(1, len(parties))), parties


def test_the_field_is_that_of_2_to_255_less_19() -> None:
    assert FIELD == (1 << 255) - 19
    assert all(pow(base, FIELD - 1, FIELD) == 1 for base in (2, 3, 5, 7))


@settings(max_examples=tries(60, 1000))
@given(sharings())
def test_shares_lie_on_a_polynomial_of_the_threshold_whose_value_at_zero_is_the_secret(
    sharing: tuple[bytes, int, list[int]],
) -> None:
    random, threshold, parties = sharing
    points = points_of(split(random, threshold, parties))
    assert list(points) == [party + 1 for party in parties]
    polynomial = coefficients(dict(list(points.items())[:threshold]))
    assert polynomial[0] == number_of(secret_of(random))
    assert all(value_at(polynomial, at) == value for at, value in points.items())
    assert polynomial[-1]  # the highest coefficient is not forgotten
    assert all(0 <= value < FIELD for value in points.values())


@pytest.mark.parametrize(("count", "threshold"), [(1, 1), (3, 1), (4, 2), (5, 4), (6, 3), (7, 7), (7, 5)])
def test_any_so_many_shares_give_the_secret(count: int, threshold: int) -> None:
    random = random_bytes(count)
    secret, shares = secret_of(random), split(random, threshold, range(count))
    for members in combinations(range(count), threshold):
        some = {party: shares[party] for party in reversed(members)}
        assert combine(some) == secret
        assert coefficients(points_of(some))[0] == number_of(secret)
    for members in combinations(range(count), threshold + 1):  # more do not hurt
        assert combine({party: shares[party] for party in members}) == secret


@settings(max_examples=tries(60, 1000))
@given(sharings(), st.integers(0, FIELD - 1))
def test_fewer_shares_fit_every_secret(sharing: tuple[bytes, int, list[int]], candidate: int) -> None:
    """With any candidate there is a polynomial through the shares, and every further share would then be another."""
    random, threshold, parties = sharing
    points = points_of(split(random, threshold, parties))
    few = dict(list(points.items())[: threshold - 1])
    rest = {at: value for at, value in points.items() if at not in few}
    polynomial = coefficients({0: candidate, **few})
    assert polynomial[0] == candidate
    assert all(value_at(polynomial, at) == value for at, value in few.items())
    is_true = candidate == number_of(secret_of(random))
    assert all((value_at(polynomial, at) == value) == is_true for at, value in rest.items())


def test_the_true_secret_is_the_only_candidate_that_fits_all_shares() -> None:
    random = random_bytes(0)
    points = points_of(split(random, 4, range(6)))
    polynomial = coefficients({0: number_of(secret_of(random)), **dict(list(points.items())[:3])})
    assert all(value_at(polynomial, at) == value for at, value in points.items())


@given(st.lists(st.integers(0, 9_999), unique=True, min_size=1, max_size=40))
@settings(max_examples=tries(60, 1000))
def test_weights_are_those_of_lagrange_as_fractions(parties: list[int]) -> None:
    for party, weight in zip(parties, weights_at_zero(parties), strict=True):
        exact = Fraction(1)
        for other in set(parties) - {party}:
            exact *= Fraction(-(other + 1), party - other)
        assert 0 <= weight < FIELD
        assert (weight * exact.denominator - exact.numerator) % FIELD == 0


def test_many_shares_at_large_points() -> None:
    """Products of hundreds of factors are reduced on the way: nothing may be lost."""
    random, threshold, parties = random_bytes(3), 300, list(range(0, 9_990, 9))
    shares = split(random, threshold, parties)
    for start in (0, 7, len(parties) - threshold):
        some = {party: shares[party] for party in parties[start : start + threshold]}
        assert combine(some) == combine(some, weights_at_zero(list(some))) == secret_of(random)
    points = points_of(split(random, 40, parties))
    polynomial = coefficients(dict(list(points.items())[:40]))
    assert all(value_at(polynomial, at) == points[at] for at in list(points)[::50])


def test_sharing_the_same_bytes_again_gives_the_same_shares() -> None:
    """A party that crashed sends what it has sent; and a party's share does not depend on who else is asked for."""
    random = random_bytes(4)
    shares = split(random, 3, range(8))
    assert split(random, 3, range(8)) == shares
    assert secret_of(random) == secret_of(random)
    for party in range(8):
        assert split(random, 3, [party]) == {party: shares[party]}
    assert split(random, 3, iter([5, 2])) == {5: shares[5], 2: shares[2]}


def test_another_threshold_gives_other_shares_of_the_same_secret() -> None:
    random = random_bytes(5)
    first, second = split(random, 3, range(6)), split(random, 4, range(6))
    assert combine(first) == combine(second) == secret_of(random)
    assert not set(first.values()) & set(second.values())


def test_different_bytes_give_different_secrets_and_shares() -> None:
    total = 500
    secrets = {secret_of(random_bytes(number)) for number in range(total)}
    shares = [split(random_bytes(number), 2, [0, 1, 2]) for number in range(total)]
    assert len(secrets) == total
    assert len({share for each in shares for share in each.values()} | secrets) == 4 * total
    flipped = {secret_of((1 << place).to_bytes(64, "big")) for place in range(512)}
    assert len(flipped) == 512


def test_secrets_and_shares_are_spread_evenly_over_the_field() -> None:
    """Fixed seeds, so no chance of failure. The share and the secret of the same bytes are independent."""
    total = tries(2000, 20_000)
    randoms = [random_bytes(number) for number in range(total)]
    secrets = np.array([number_of(secret_of(random)) / FIELD for random in randoms])
    for threshold in (2, 5):
        shares = np.array([number_of(split(random, threshold, [3])[3]) / FIELD for random in randoms])
        for values in (secrets, shares):
            assert 0 <= values.min() <= values.max() < 1
            assert kstest(values, "uniform").pvalue > 0.001
        table = np.histogram2d(secrets, shares, bins=4, range=[[0, 1], [0, 1]])[0]
        assert chisquare(table.ravel()).pvalue > 0.001
    lowest = [secret_of(random)[-1] for random in randoms]
    assert chisquare(np.bincount(lowest, minlength=256)).pvalue > 0.001


def test_numbers_beyond_the_field_are_reduced_into_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """So rare that no random bytes show it: here the hash gives 7 more than a multiple of the field's size."""
    block = (FIELD * (2**384 // FIELD - 1) + 7).to_bytes(48, "big")
    stream = SimpleNamespace(digest=lambda length: (block * length)[:length])
    monkeypatch.setattr(shares_module, "hashlib", SimpleNamespace(shake_256=lambda _: stream))
    assert number_of(secret_of(b"any")) == 7
    assert points_of(split(b"any", 3, [0, 1, 9])) == {1: 21, 2: 49, 10: 777}
    top = (FIELD - 1).to_bytes(48, "big")
    monkeypatch.setattr(stream, "digest", lambda length: (top * length)[:length])
    assert points_of(split(b"any", 2, [0, 4])) == {1: FIELD - 2, 5: FIELD - 6}


@pytest.mark.parametrize("length", [0, 1, 31, 33, 64])
@pytest.mark.parametrize("place", [0, 2])
def test_shares_of_a_wrong_length_are_refused_and_not_shown(length: int, place: int) -> None:
    shares = split(random_bytes(6), 3, range(3))
    shares[place] = b"\x5a" * length
    for weights in (None, weights_at_zero([0, 1, 2])):
        with pytest.raises(InputError, match="must have 32 bytes") as caught:
            combine(shares, weights)
        assert "Z" not in str(caught.value)


def test_a_wrong_share_gives_another_secret() -> None:
    """For each party and every bit: and its check value shows it."""
    random = random_bytes(7)
    shares, secret = split(random, 3, range(3)), secret_of(random)
    for party in range(3):
        for place in range(0, 256, 5):
            wrong = (number_of(shares[party]) ^ 1 << place).to_bytes(32, "big")
            other = combine({**shares, party: wrong})
            assert other != secret
            assert check_value(other) != check_value(secret)


def test_what_is_derived_from_a_secret_differs_from_it_and_by_its_purpose() -> None:
    secrets = [secret_of(random_bytes(number)) for number in range(3)]
    derived = [check_value(secret) for secret in secrets]
    derived += [mask_seed(secret, context) for secret in secrets for context in (b"", b"group", b"other")]
    assert len({*derived, *secrets}) == 15
    assert {len(each) for each in derived} == {32}


# What the lead receiver makes of the shares that are revealed ---------------------------------------------------------

WORLD = World(7, 2, [0, 4], tolerate=2)
NEEDED = WORLD.terms.openings
OWN = HybridKey.fresh()


def opened(members: list[int], liars: dict[int, int], revealed: list[int]) -> tuple[Attempt, list[bytes]]:
    """The lead's attempt with what some have revealed, and the secrets. Liars spoil their share of so many keepers."""
    total: Mask = np.zeros(WORLD.terms.masked_words, dtype=np.uint32)
    attempt = Attempt(WORLD.terms, 0, 1, own=OWN, total=total, members=frozenset(members))
    attempt.digests = {party: bytes([party]) * 32 for party in members}
    randoms = [random_bytes(keeper) for keeper in attempt.keepers]
    every = [split(random, NEEDED, members) for random in randoms]
    for keeper, random, shares in zip(attempt.keepers, randoms, every, strict=True):
        attempt.shares[keeper] = KeptShare(check_value(secret_of(random)), shares[0])
    for party in revealed:
        content = [shares[party] for shares in every]
        for number in range(liars.get(party, 0)):
            content[number] = bytes(32)
        attempt.add_opening(party, b"".join(content))
    return attempt, [secret_of(random) for random in randoms]


GROUPS = [list(range(7)), [0, 1, 2, 4, 5, 6], [0, 2, 3, 4, 6]]


@pytest.mark.parametrize("members", GROUPS)
def test_any_openings_of_the_threshold_give_the_secrets(members: list[int]) -> None:
    for size in range(1, len(members) + 1):
        for revealed in combinations(members, size):
            attempt, secrets = opened(members, {}, list(revealed))
            assert attempt.secrets() == (secrets if size >= NEEDED else None)


@pytest.mark.parametrize("members", GROUPS[:2])
@pytest.mark.parametrize("spoilt", [1, 3])
def test_one_wrong_opening_is_left_out_where_there_are_more_than_needed(members: list[int], spoilt: int) -> None:
    for liar in members:
        for size in range(NEEDED, len(members) + 1):
            for revealed in combinations(members, size):
                attempt, secrets = opened(members, {liar: spoilt}, list(revealed))
                enough = size > NEEDED or liar not in revealed
                assert attempt.secrets() == (secrets if enough else None)


def test_shares_that_cannot_fit_end_the_session_once_all_are_there() -> None:
    members = GROUPS[2]
    assert len(members) == NEEDED
    attempt, _ = opened(members, {3: 1}, members)
    with pytest.raises(ProtocolError, match="do not fit together: start a new session"):
        attempt.secrets()
