"""Masks that cancel in the sum: of each pair of neighbours one adds and the other subtracts the same random vector.

Computational masks are an AES-256 keystream under a key derived (HKDF) from what the pair has agreed on by X25519 and
ML-KEM-768, the session and the two parties. Statistical masks are random bytes from the operating system that one party
sends to the other.
"""

from __future__ import annotations

import os
from typing import Any, Final

import numpy as np
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from cryptography.hazmat.primitives.kdf.hkdf import HKDF
from numpy.typing import NDArray

from tpmdp.errors import InputError

SESSION_BYTES: Final = 32
KEY_BYTES: Final = 32
Mask = NDArray[Any]  # uint32 or uint64

_TYPES: Final[dict[int, Any]] = {32: np.dtype("<u4"), 64: np.dtype("<u8")}


def word_type(word: int) -> Any:
    """The unsigned type of a word of 32 or 64 bits.

    >>> word_type(32)
    dtype('uint32')
    """
    if word not in _TYPES:
        raise InputError("word", word, "must be 32 or 64", "use the word of the grid plan")
    return _TYPES[word]


def to_words(steps: NDArray[np.int64], word: int) -> Mask:
    """Signed whole numbers as residues modulo 2**word.

    >>> to_words(np.array([1, -1]), 32)
    array([         1, 4294967295], dtype=uint32)
    """
    return steps.astype(np.uint64).astype(word_type(word))


def from_words(words: Mask, word: int) -> NDArray[np.int64]:
    """The signed whole numbers of least absolute value with these residues modulo 2**word.

    >>> from_words(np.array([1, 2**32 - 1], dtype=np.uint32), 32)
    array([ 1, -1])
    """
    return words.astype(word_type(word)).view("<i4" if word == 32 else "<i8").astype(np.int64)


def mask_key(agreed: bytes, session: bytes, low: int, *, high: int, context: bytes = b"") -> bytes:
    """The key of the mask between parties low < high in this session, from what the two have agreed on.

    >>> len(mask_key(bytes(64), bytes(32), 0, high=1))
    32
    """
    if len(session) != SESSION_BYTES:
        raise InputError("session", f"{len(session)} bytes", f"must have {SESSION_BYTES} bytes", "start a new session")
    if not 0 <= low < high:
        raise InputError("pair", f"{low}, {high}", "must be two parties in index order", "check the study")
    info = b"tpmdp mask 2" + low.to_bytes(8, "big") + high.to_bytes(8, "big") + context
    return HKDF(algorithm=hashes.SHA256(), length=KEY_BYTES, salt=session, info=info).derive(agreed)


def expand(key: bytes, length: int, word: int) -> Mask:
    """A mask of this length: the AES-256 keystream of the key. A key must not be used for two masks.

    >>> len(expand(bytes(32), 5, 32))
    5
    """
    kind = word_type(word)
    if len(key) != KEY_BYTES:
        raise InputError("key", f"of {len(key)} bytes", f"must have {KEY_BYTES} bytes", "derive it with mask_key")
    stream = Cipher(algorithms.AES(key), modes.CTR(bytes(16))).encryptor()
    return np.frombuffer(stream.update(bytes(length * kind.itemsize)), dtype=kind)


def pad(length: int, word: int) -> Mask:
    """A mask of random bytes from the operating system, for the statistical guarantee.

    >>> len(pad(5, 64))
    5
    """
    kind = word_type(word)
    return np.frombuffer(os.urandom(length * kind.itemsize), dtype=kind)


def apply(total: Mask, mask: Mask, party: int, other: int) -> None:
    """Add the pair's mask to the party's vector, or subtract it if its index is the larger one; in place.

    >>> vector = np.zeros(2, dtype=np.uint32)
    >>> apply(vector, np.array([1, 2], dtype=np.uint32), party=1, other=0)
    >>> vector
    array([4294967295, 4294967294], dtype=uint32)
    """
    if total.shape != mask.shape or total.dtype != mask.dtype or party == other:
        value = f"{mask.dtype}{mask.shape} from {other} to {party}"
        raise InputError("mask", value, f"does not fit {total.dtype}{total.shape}", "use the session's word and length")
    if party < other:
        np.add(total, mask, out=total)
    else:
        np.subtract(total, mask, out=total)
