"""Key agreement by X25519 and by ML-KEM-768: an attacker must break both.

So traffic that is stored today cannot be opened by a quantum computer later, nor by a weakness in the newer of
the two. One side *encapsulates* to the other's public key, which gives a secret, and a ciphertext to send.
Keys are derived from this secret and that of both X25519 keys, joined. A damaged ciphertext gives another secret
without an error.
"""

from __future__ import annotations

import hashlib
import os
from functools import cached_property, lru_cache
from typing import Final, NamedTuple

from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric.mlkem import MLKEM768PrivateKey, MLKEM768PublicKey
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey

from tpmdp.errors import InputError, TpmdpError

SUITE: Final = "x25519+ml-kem-768"
CURVE_BYTES: Final = 32
_SEED_BYTES: Final = 64
SECRET_BYTES: Final = CURVE_BYTES + _SEED_BYTES
PUBLIC_BYTES: Final = CURVE_BYTES + 1184
CIPHERTEXT_BYTES: Final = 1088
INNER_BYTES: Final = 32


class Capsule(NamedTuple):
    """What encapsulating to a public key gives: the ciphertext for its owner, and the secret that both then have."""

    ciphertext: bytes
    inner: bytes

    def __repr__(self) -> str:
        return "Capsule()"

    @classmethod
    def to(cls, public: bytes) -> Capsule:
        """A fresh one for the owner of this public key.

        >>> own = HybridKey.fresh()
        >>> capsule = Capsule.to(own.public)
        >>> own.opened(capsule.ciphertext) == capsule.inner
        True
        """
        inner, ciphertext = _lattice_key(public).encapsulate()
        return cls(ciphertext, inner)

    @classmethod
    def parse(cls, stored: bytes) -> Capsule:
        """The two as `joined` stored them."""
        if len(stored) != CIPHERTEXT_BYTES + INNER_BYTES:
            raise TpmdpError("another process of this party has given this attempt up: run the same command again")
        return cls(stored[:CIPHERTEXT_BYTES], stored[CIPHERTEXT_BYTES:])

    def joined(self) -> bytes:
        """For the party's own disk."""
        return self.ciphertext + self.inner


class HybridKey:
    """A private key, from `SECRET_BYTES` random bytes."""

    def __init__(self, secret: bytes) -> None:
        if len(secret) != SECRET_BYTES:
            raise InputError("key", f"of {len(secret)} bytes", f"must have {SECRET_BYTES} bytes", "draw a new one")
        self._secret = secret
        self._curve = X25519PrivateKey.from_private_bytes(secret[:CURVE_BYTES])
        self._shared: dict[bytes, bytes] = {}  # by the other curve key

    @classmethod
    def fresh(cls) -> HybridKey:
        """A key from the operating system's random bytes."""
        return cls(os.urandom(SECRET_BYTES))

    def __repr__(self) -> str:
        return "HybridKey()"

    @cached_property
    def _lattice(self) -> MLKEM768PrivateKey:
        try:
            return MLKEM768PrivateKey.from_seed_bytes(self._secret[CURVE_BYTES:])
        except UnsupportedAlgorithm:
            raise _unsupported() from None

    @cached_property
    def curve_public(self) -> bytes:
        """The X25519 half of the public key."""
        return self._curve.public_key().public_bytes_raw()

    @cached_property
    def public(self) -> bytes:
        """The public key."""
        return self.curve_public + self._lattice.public_key().public_bytes_raw()

    def opened(self, ciphertext: bytes) -> bytes:
        """The secret of a ciphertext that somebody encapsulated to this key."""
        try:
            return self._lattice.decapsulate(ciphertext)
        except ValueError:  # of another length
            raise unusable_error() from None

    def agreed(self, other: bytes, inner: bytes) -> bytes:
        """What keys are derived from: the encapsulated secret, and that of both X25519 keys, which lead a public key.

        >>> one, two = HybridKey.fresh(), HybridKey.fresh()
        >>> capsule = Capsule.to(two.public)
        >>> one.agreed(two.public, capsule.inner) == two.agreed(one.public, two.opened(capsule.ciphertext))
        True
        """
        if len(inner) != INNER_BYTES:
            raise unusable_error()
        return inner + self._curve_secret(other[:CURVE_BYTES])

    def check(self, other: bytes, with_lattice: bool = True) -> None:
        """Refuse a public key with whose owner nothing can be agreed on.

        Without its ML-KEM half, which one needs to encapsulate to its owner and not to hear from it.
        """
        if with_lattice:
            _lattice_key(other)
        self._curve_secret(other[:CURVE_BYTES])

    def _curve_secret(self, other: bytes) -> bytes:
        if other not in self._shared:
            try:
                self._shared[other] = self._curve.exchange(X25519PublicKey.from_public_bytes(other))
            except ValueError:  # a key of low order
                raise unusable_error() from None
        return self._shared[other]


def is_usable(public: bytes) -> bool:
    """Whether somebody can agree on a secret with the owner of this public key.

    >>> is_usable(HybridKey.fresh().public), is_usable(bytes(PUBLIC_BYTES)), is_usable(bytes(32))
    (True, False, False)
    """
    try:
        HybridKey.fresh().check(public)
    except InputError:
        return False
    return True


@lru_cache(maxsize=256)  # checked, and soon afterwards used
def _lattice_key(public: bytes) -> MLKEM768PublicKey:
    try:
        return MLKEM768PublicKey.from_public_bytes(public[CURVE_BYTES:])
    except UnsupportedAlgorithm:
        raise _unsupported() from None
    except (ValueError, TypeError):
        raise unusable_error() from None


def exchange_hash(sender: bytes, recipient: bytes, ciphertext: bytes) -> bytes:
    """Hash of both public keys, that of the side that encapsulated first, and the ciphertext."""
    return hashlib.sha256(b"tpmdp exchange 1" + sender + recipient + ciphertext).digest()


def unusable_error() -> InputError:
    """For a key or ciphertext from outside."""
    return InputError("public key", "(of this attempt)", "is not usable", "ask the party for a new one")


def _unsupported() -> TpmdpError:
    return TpmdpError("this build of cryptography has no ML-KEM-768: install cryptography 48 or later from its wheels")
