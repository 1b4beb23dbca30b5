"""Shamir's secret sharing: a secret of 32 bytes in shares, of which `threshold` give it back and fewer say nothing.

A polynomial over the field of 2**255 - 19 elements has the secret as its constant term; the other coefficients are
uniform. The share of party i is its value at i + 1. Theory, "Keepers".
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from tpmdp.errors import InputError
from tpmdp.protocol.masks import KEY_BYTES

PRIME: Final = 2**255 - 19
SHARE_BYTES: Final = 32
KEEPER_BYTES: Final = 64  # random bytes that a keeper's secret and polynomial follow from
_WIDE_BYTES: Final = 48  # a number of so many bytes is uniform modulo PRIME, up to 2**-128
_LABEL: Final = b"tpmdp shares 1"


def secret_of(random: bytes) -> bytes:
    """A uniform element of the field from random bytes: the secret to share.

    >>> len(secret_of(bytes(KEEPER_BYTES)))
    32
    """
    wide = hashlib.shake_256(_LABEL + b" secret" + random).digest(_WIDE_BYTES)
    return _to_bytes(int.from_bytes(wide, "big") % PRIME)


def split(random: bytes, threshold: int, parties: Iterable[int]) -> dict[int, bytes]:
    """The shares of these parties of the secret of some random bytes; the same whenever it is asked for.

    >>> shares = split(bytes(KEEPER_BYTES), 2, [0, 1, 4])
    >>> combine({party: shares[party] for party in (0, 4)}) == secret_of(bytes(KEEPER_BYTES))
    True
    """
    stream = hashlib.shake_256(_LABEL + b" polynomial" + random).digest(_WIDE_BYTES * (threshold - 1))
    highest = [
        int.from_bytes(stream[start : start + _WIDE_BYTES], "big") % PRIME
        for start in range(0, len(stream), _WIDE_BYTES)
    ]
    coefficients = [*highest, int.from_bytes(secret_of(random), "big")]
    return {party: _to_bytes(_value(coefficients, party + 1)) for party in parties}


def _value(coefficients: Sequence[int], point: int) -> int:
    """The value of a polynomial, highest coefficient first. Points are small, so few numbers need to be reduced."""
    value = 0
    for number, coefficient in enumerate(coefficients):
        value = value * point + coefficient
        if number % 16 == 15:
            value %= PRIME
    return value % PRIME


def weights_at_zero(parties: Sequence[int]) -> list[int]:
    """What the shares of these parties are multiplied by, to give the secret as a sum.

    >>> [weight - PRIME if weight > PRIME // 2 else weight for weight in weights_at_zero([0, 1])]
    [2, -1]
    """
    points = [party + 1 for party in parties]
    weights = []
    for point in points:
        above = below = 1
        for number, other in enumerate(points):
            if other != point:
                above, below = above * other, below * (other - point)
            if number % 16 == 15:
                above, below = above % PRIME, below % PRIME
        weights.append(above * pow(below, -1, PRIME) % PRIME)
    return weights


def combine(shares: Mapping[int, bytes], weights: Sequence[int] | None = None) -> bytes:
    """The secret from the shares of as many parties as its threshold; `weights` saves computing theirs anew."""
    if any(len(share) != SHARE_BYTES for share in shares.values()):
        raise InputError("share", "(not shown)", f"must have {SHARE_BYTES} bytes", "ask for it again")
    each = weights_at_zero(list(shares)) if weights is None else weights
    pairs = zip(shares.values(), each, strict=True)
    return _to_bytes(sum(int.from_bytes(share, "big") * weight for share, weight in pairs) % PRIME)


def check_value(secret: bytes) -> bytes:
    """By what a secret is recognised, before it is known.

    >>> len(check_value(bytes(32)))
    32
    """
    return hashlib.sha256(_LABEL + b" check" + secret).digest()


def mask_seed(secret: bytes, context: bytes) -> bytes:
    """The key of the mask that a shared secret stands for, bound to its attempt.

    >>> len(mask_seed(bytes(32), b"group"))
    32
    """
    info = _LABEL + b" mask" + context
    return HKDF(algorithm=hashes.SHA256(), length=KEY_BYTES, salt=None, info=info).derive(secret)


def _to_bytes(value: int) -> bytes:
    return value.to_bytes(SHARE_BYTES, "big")
