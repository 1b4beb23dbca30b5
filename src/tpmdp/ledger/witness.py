"""Notes of a ledger's head that other parties keep, and theirs in this ledger. Theory, "Witnessed heads"."""

from __future__ import annotations

import os
import struct
from collections.abc import Iterable, Sequence
from typing import Final

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from tpmdp.errors import shown
from tpmdp.ledger import Ledger, LedgerError, SessionKey
from tpmdp.protocol.notes import NOTE_BYTES, NOTES_MAX

_NONCE_BYTES: Final = 12
_CONTENT: Final = struct.Struct(">Q32s")  # number and hash of an entry


class RestoredLedgerError(LedgerError):
    """The ledger lacks an entry that it once had."""


class LedgerNotes:
    """The notes of one party's ledger, sealed with a key of its identity. `key` is the session of `fixed`, if any."""

    def __init__(self, ledger: Ledger, key: SessionKey | None, identity: Ed25519PrivateKey) -> None:
        self._ledger, self._key = ledger, key
        secret = HKDF(hashes.SHA256(), 32, salt=None, info=b"tpmdp head 1").derive(identity.private_bytes_raw())
        self._cipher = AESGCM(secret)

    def own(self) -> bytes:
        newest = self._ledger.newest(1)[0]
        nonce = os.urandom(_NONCE_BYTES)
        content = _CONTENT.pack(newest.number, bytes.fromhex(newest.hash))
        return nonce + self._cipher.encrypt(nonce, content, None)

    def fixed(self, attempt: int, body: bytes) -> bytes:
        assert self._key is not None
        return self._ledger.keep(self._key, f"notes {attempt}", body)

    def keep(self, public_key: bytes, note: bytes) -> None:
        self.keep_all([(public_key, note)])

    def keep_all(self, notes: Iterable[tuple[bytes, bytes]]) -> None:
        """Keep a note each of several parties, by public key."""
        newest = dict(notes)
        before = self._ledger.witnessed(newest)
        stored: dict[bytes, bytes] = {}
        for public_key, note in newest.items():
            each = [note, *(old for old in _each(before.get(public_key, b"")) if old != note)]
            stored[public_key] = b"".join(each[:NOTES_MAX])
        self._ledger.keep_witnessed(stored)

    def of_others(self, public_keys: Iterable[bytes]) -> list[tuple[bytes, bytes]]:
        """Every note that is kept of these parties, with its public key."""
        stored = self._ledger.witnessed(public_keys)
        return [(public_key, note) for public_key, notes in stored.items() for note in _each(notes)]

    def of_other(self, public_key: bytes) -> Sequence[bytes]:
        return [note for _, note in self.of_others([public_key])]

    def check(self, note: bytes) -> None:
        try:
            content = self._cipher.decrypt(note[:_NONCE_BYTES], note[_NONCE_BYTES:], None)
        except InvalidTag:  # not a note of ours: anybody can invent one
            return
        number, head = _CONTENT.unpack(content)
        if not self._ledger.has_entry(number, head.hex()):
            raise RestoredLedgerError(
                f"the ledger {shown(str(self._ledger.path), 300)}",
                f"lacks entry {number}, of which other parties have a note: it was restored from an old copy",
                "restore the newest copy; if there is none, make a new key that the other parties accept",
            )


def _each(notes: bytes) -> list[bytes]:
    return [notes[at : at + NOTE_BYTES] for at in range(0, len(notes), NOTE_BYTES)]
