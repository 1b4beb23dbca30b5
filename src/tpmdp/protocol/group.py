"""The group of an attempt as bytes."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from tpmdp.protocol.messages import MessageError


def to_bits(members: Iterable[int], count: int) -> bytes:
    """A set of parties, one bit per party.

    >>> to_bits({0, 9}, 10).hex()
    '8040'
    """
    mask = np.zeros(count, dtype=np.bool_)
    mask[sorted(members)] = True
    return np.packbits(mask).tobytes()


def from_bits(bits: bytes, count: int) -> frozenset[int]:
    """The set of parties of `to_bits`; bits beyond the last party are refused.

    >>> sorted(from_bits(bytes.fromhex("8040"), 10))
    [0, 9]
    """
    mask = np.unpackbits(np.frombuffer(bits, dtype=np.uint8))
    if len(bits) != (count + 7) // 8 or mask[count:].any():
        raise MessageError("a group that names nobody")
    return frozenset(np.flatnonzero(mask).tolist())
