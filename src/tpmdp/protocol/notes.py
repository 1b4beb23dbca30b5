"""Witnessed heads: each party's sealed note of its ledger's head, which the others keep and return.

A ledger that was restored from an old copy lacks the newest charges. Its owner cannot see that; the others can remind
it. A note can be read by its owner only: heads in clear would count a party's activity elsewhere. The owner looks for
each head that comes back in its ledger. Old heads are there, so a message sent again, a parallel session or a second
study causes no alarm; a head that is not there was cut off.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Final, Protocol

from tpmdp.protocol.messages import MessageError

NOTE_BYTES: Final = 68
NOTES_MAX: Final = 4  # of one party that another one keeps: parallel sessions may bring them in any order
_HEAD: Final = struct.Struct(">IB")  # party, number of its notes


class HeadNotes(Protocol):
    """A party's own notes, and those of others that it keeps."""

    def own(self) -> bytes:
        """A note of the ledger as it is now."""

    def fixed(self, attempt: int, body: bytes) -> bytes:
        """The body that was to be sent first in this attempt: a message that is sent again has the same bytes."""

    def keep(self, public_key: bytes, note: bytes) -> None:
        """Keep another party's note."""

    def of_other(self, public_key: bytes) -> Sequence[bytes]:
        """The notes of another party, newest first."""

    def check(self, note: bytes) -> None:
        """Refuse to go on if the ledger lacks the head that this party noted earlier."""


def notes_for(notes: HeadNotes, roster: Sequence[bytes], parties: Iterable[int]) -> bytes:
    """What these parties are sent: a note of our ledger as it is now, and their own that we keep."""
    theirs = {party: notes.of_other(roster[party]) for party in parties}
    return encode_notes(notes.own(), {party: stored for party, stored in theirs.items() if stored})


def take_notes(notes: HeadNotes, index: int, public_key: bytes, *, body: bytes) -> None:
    """Look for our own heads among what another party sent, and keep its note."""
    own, others = decode_notes(body)
    for note in others.get(index, []):
        notes.check(note)
    notes.keep(public_key, own)


def encode_notes(own: bytes, others: Mapping[int, Sequence[bytes]]) -> bytes:
    """The body of a message: the sender's own note, then those of others that it keeps.

    >>> body = encode_notes(bytes(68), {2: [b"a" * 68]})
    >>> decode_notes(body) == (bytes(68), {2: [b"a" * 68]})
    True
    """
    parts = [own]
    for party, notes in others.items():
        parts += [_HEAD.pack(party, len(notes)), *notes]
    return b"".join(parts)


def decode_notes(body: bytes) -> tuple[bytes, dict[int, list[bytes]]]:
    """The sender's own note, and the others by party."""
    if len(body) < NOTE_BYTES:
        raise MessageError("not a list of notes")
    return body[:NOTE_BYTES], dict(_others(body))


def are_notes(body: bytes) -> bool:
    """Whether a body can be decoded; an empty one says that its sender has no ledger.

    >>> are_notes(b""), are_notes(bytes(68)), are_notes(b"x")
    (True, True, False)
    """
    with suppress(MessageError):
        return not body or bool(decode_notes(body))
    return False


def _others(body: bytes) -> Iterator[tuple[int, list[bytes]]]:
    at = NOTE_BYTES
    while at < len(body):
        if len(body) - at < _HEAD.size:
            raise MessageError("not a list of notes")
        party, count = _HEAD.unpack_from(body, at)
        at += _HEAD.size
        end = at + count * NOTE_BYTES
        if count > NOTES_MAX or end > len(body):
            raise MessageError("not a list of notes")
        yield party, [body[place : place + NOTE_BYTES] for place in range(at, end, NOTE_BYTES)]
        at = end
