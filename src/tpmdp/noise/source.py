"""Streams of random bits. A release draws from the operating system; a seeded stream is for tests and experiments."""

from __future__ import annotations

import hashlib
import os
from typing import NoReturn

import numpy as np
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from numpy.typing import NDArray

Words = NDArray[np.uint64]


class NoiseSource:
    """A keystream of AES-256 in counter mode, or, without a key, the operating system's own bits.

    Its repr shows neither key nor state, and it cannot be copied or stored.
    """

    __slots__ = ("_process", "_secure", "_stream")

    def __init__(self, key: bytes | None, secure: bool) -> None:
        self._stream = None if key is None else Cipher(algorithms.AES(key), modes.CTR(bytes(16))).encryptor()
        self._secure = secure
        self._process = os.getpid()

    @property
    def secure(self) -> bool:
        """Whether a release may use it."""
        return self._secure

    def words(self, count: int) -> Words:
        """The next random 64-bit words.

        >>> len(system_source().words(3))
        3
        """
        if os.getpid() != self._process:
            raise RuntimeError("a noise source does not survive a fork: both processes would draw the same noise")
        drawn = os.urandom(8 * count) if self._stream is None else self._stream.update(bytes(8 * count))
        return np.frombuffer(drawn, dtype="<u8").astype(np.uint64)

    def __repr__(self) -> str:
        return f"NoiseSource({'secure' if self.secure else 'for tests only'})"

    def __reduce__(self) -> NoReturn:
        raise TypeError("a noise source cannot be copied or stored: two copies would draw the same noise")


def system_source() -> NoiseSource:
    """A stream keyed with 256 bits from the operating system.

    >>> system_source()
    NoiseSource(secure)
    """
    return NoiseSource(os.urandom(32), secure=True)


def unexpanded_source() -> NoiseSource:
    """The operating system's bits, not expanded, for the statistical guarantee; slower than `system_source`.

    >>> unexpanded_source()
    NoiseSource(secure)
    """
    return NoiseSource(None, secure=True)


def seeded_source(seed: int) -> NoiseSource:
    """A repeatable stream for tests and experiments; releases refuse it.

    >>> bool((seeded_source(7).words(4) == seeded_source(7).words(4)).all())
    True
    """
    return NoiseSource(hashlib.sha256(f"tpmdp seeded noise {int(seed)}".encode()).digest(), secure=False)
