"""Key agreement: both halves are needed, both sides agree, and whatever cannot be used is refused."""

from __future__ import annotations

import os

import pytest
from cryptography.exceptions import UnsupportedAlgorithm

from tpmdp import InputError, TpmdpError
from tpmdp.protocol import hybrid
from tpmdp.protocol.hybrid import (
    CIPHERTEXT_BYTES,
    PUBLIC_BYTES,
    SECRET_BYTES,
    Capsule,
    HybridKey,
    exchange_hash,
    is_usable,
)


def pair() -> tuple[HybridKey, HybridKey]:
    return HybridKey.fresh(), HybridKey.fresh()


def test_both_sides_agree_and_nobody_else_does() -> None:
    one, two = pair()
    capsule = Capsule.to(two.public)
    ours = one.agreed(two.public, capsule.inner)
    assert ours == two.agreed(one.public, two.opened(capsule.ciphertext))
    eve = HybridKey.fresh()
    assert ours != eve.agreed(one.public, eve.opened(capsule.ciphertext))
    assert ours != eve.agreed(two.public, capsule.inner)


def test_the_secret_is_that_of_both_halves() -> None:
    """An attacker that has broken one still lacks the other: keys are derived from both, side by side."""
    one, two = pair()
    capsule = Capsule.to(two.public)
    ours = one.agreed(two.public, capsule.inner)
    assert ours[:32] == capsule.inner
    assert len(ours) == 64
    curve = HybridKey(one._secret[:32] + os.urandom(64))  # another lattice half, the same curve half
    assert curve.agreed(two.public, capsule.inner) == ours
    lattice = HybridKey(os.urandom(32) + two._secret[32:])
    assert lattice.opened(capsule.ciphertext) == capsule.inner
    assert lattice.agreed(one.public, capsule.inner)[32:] != ours[32:]


def test_a_key_is_the_same_again_from_its_secret_and_needs_all_of_it() -> None:
    secret = os.urandom(SECRET_BYTES)
    assert HybridKey(secret).public == HybridKey(secret).public
    assert len(HybridKey(secret).public) == PUBLIC_BYTES
    for wrong in (secret[:-1], secret[:32], b"", secret + b"1"):
        with pytest.raises(InputError, match="must have 96 bytes"):
            HybridKey(wrong)


def test_every_capsule_is_fresh_and_a_damaged_one_gives_another_secret() -> None:
    key = HybridKey.fresh()
    one, two = Capsule.to(key.public), Capsule.to(key.public)
    assert one.ciphertext != two.ciphertext
    assert one.inner != two.inner
    damaged = bytes([one.ciphertext[0] ^ 1]) + one.ciphertext[1:]
    assert key.opened(damaged) not in (one.inner, two.inner)


def test_unusable_keys_and_ciphertexts_are_refused() -> None:
    key, good = HybridKey.fresh(), HybridKey.fresh().public
    low_order, no_lattice = bytes(32) + good[32:], good[:32] + b"\xff" * 1184
    for public in (b"", good[:-1], good + b"1", low_order, no_lattice):
        assert not is_usable(public)
    for public in (b"", good[:-1], no_lattice):
        with pytest.raises(InputError, match="not usable"):
            Capsule.to(public)
    with pytest.raises(InputError, match="not usable"):
        key.agreed(low_order, bytes(32))
    for ciphertext in (b"", bytes(CIPHERTEXT_BYTES - 1), bytes(CIPHERTEXT_BYTES + 1)):
        with pytest.raises(InputError, match="not usable"):
            key.opened(ciphertext)
    assert is_usable(good)


def test_what_is_stored_comes_back_and_half_of_it_is_refused() -> None:
    capsule = Capsule.to(HybridKey.fresh().public)
    assert Capsule.parse(capsule.joined()) == capsule
    for stored in (b"", capsule.ciphertext, capsule.joined() + b"1"):
        with pytest.raises(TpmdpError, match="run the same command again"):
            Capsule.parse(stored)


def test_the_hash_tells_sides_and_ciphertexts_apart() -> None:
    one, two = (key.public for key in pair())
    hashes = {exchange_hash(*sides, text) for sides in ((one, two), (two, one)) for text in (b"1", b"2")}
    assert len(hashes) == 4


def test_reprs_show_no_secret() -> None:
    key = HybridKey.fresh()
    capsule = Capsule.to(key.public)
    for shown in (repr(key), repr(capsule), str(capsule)):
        assert shown in ("HybridKey()", "Capsule()")


def test_a_library_without_the_lattice_half_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """A mock: every wheel that pip may choose has it; a build against an old OpenSSL has not."""

    class Without:
        @staticmethod
        def from_public_bytes(_: bytes) -> None:
            raise UnsupportedAlgorithm("no")

        from_seed_bytes = from_public_bytes

    key, public = HybridKey.fresh(), HybridKey.fresh().public
    monkeypatch.setattr(hybrid, "MLKEM768PublicKey", Without)
    monkeypatch.setattr(hybrid, "MLKEM768PrivateKey", Without)
    with pytest.raises(TpmdpError, match="install cryptography 48 or later"):
        Capsule.to(public)
    with pytest.raises(TpmdpError, match="install cryptography 48 or later"):
        _ = key.public
