"""Witnessed heads in a training: the server passes sealed notes of the clients' ledgers on (`protocol.notes`).

A client sends a note of its ledger when it enrols and when it has trained. When it is offered terms, it sends those
that it keeps of the parties in them, and of no others: whom it meets elsewhere is nobody's business. The server hands
each client its own notes back, before it is charged, and those of the others to keep. Only its owner can read a note,
and ignores what is none of its own. Each note goes once, to a few clients: the next ones in the order of enrolment.
Clients take turns with what they return: one that returns rubbish takes nobody else's place. A server that holds notes
back keeps a restored ledger unnoticed.
"""

from __future__ import annotations

import random
from collections.abc import Collection, Iterable, Mapping
from itertools import zip_longest
from typing import Final

from tpmdp.flower.wire import Value, bytes_of
from tpmdp.ledger.witness import LedgerNotes
from tpmdp.protocol.messages import MessageError
from tpmdp.protocol.notes import NOTE_BYTES, NOTES_MAX
from tpmdp.protocol.terms import PUBLIC_KEY_BYTES

_HEADS_MAX: Final = 64  # notes of other clients in one message
_RETURNED_MAX: Final = 16  # notes that a client gets back
_WITNESSES: Final = 16  # clients that get a client's note to keep
_HEAD_BYTES: Final = PUBLIC_KEY_BYTES + NOTE_BYTES

Heads = Collection[tuple[bytes, bytes]]  # public keys of clients, each with a note


def pack_heads(heads: Heads) -> bytes:
    """Notes of several clients as one field; some of them if there are many.

    >>> unpack_heads(pack_heads([(bytes(32), b"n" * 68)])) == [(bytes(32), b"n" * 68)]
    True
    """
    chosen = random.sample(list(heads), min(len(heads), _HEADS_MAX))
    return b"".join(key + note for key, note in chosen)


def unpack_heads(field: bytes) -> list[tuple[bytes, bytes]]:
    """The notes in a field from outside."""
    parts = _split(field, _HEAD_BYTES, _HEADS_MAX)
    return [(part[:PUBLIC_KEY_BYTES], part[PUBLIC_KEY_BYTES:]) for part in parts]


def _split(field: bytes, size: int, most: int) -> list[bytes]:
    if len(field) % size or len(field) > most * size:
        raise MessageError("not a list of notes")
    return [field[at : at + size] for at in range(0, len(field), size)]


def check_returned(notes: LedgerNotes, fields: Mapping[str, Value]) -> None:
    """At a client: refuse to go on if its ledger lacks an entry of which others have a note."""
    for note in _split(bytes_of(fields, "notes"), NOTE_BYTES, _RETURNED_MAX):
        notes.check(note)


def keep_heads(notes: LedgerNotes, fields: Mapping[str, Value], known: Collection[bytes]) -> None:
    """At a client: keep the notes of the other clients that it knows."""
    heads = [(key, note) for key, note in unpack_heads(bytes_of(fields, "heads")) if key in known]
    if heads:
        notes.keep_all(heads)


class NoteBoard:
    """At the server: the newest note of each client, and the notes that others returned for it."""

    def __init__(self) -> None:
        self._newest: dict[bytes, bytes] = {}
        self._sent: dict[bytes, dict[bytes, bytes]] = {}  # by client, the notes of others that it was sent last
        self._returned: dict[bytes, list[tuple[bytes, bytes]]] = {}  # what each client returned last

    def take(self, public_key: bytes, fields: Mapping[str, Value]) -> None:
        """Take in what a client sent; a damaged field counts as none."""
        try:
            (note,) = _split(bytes_of(fields, "note"), NOTE_BYTES, 1) or [b""]
            heads = unpack_heads(bytes_of(fields, "witnessed"))
        except MessageError:
            return
        if note:
            self._newest[public_key] = note
        if heads:
            self._returned[public_key] = heads

    def fields_for(self, public_key: bytes, clients: Iterable[bytes]) -> dict[str, Value]:
        """What a client is sent among these clients: its own notes, and those of the others."""
        sent = self._sent.get(public_key, {})
        newest = {key: self._newest[key] for key in _next_ones(public_key, clients) if key in self._newest}
        heads = [(key, note) for key, note in newest.items() if sent.get(key) != note]
        self._sent[public_key] = newest
        lists = self._returned.values()
        witnesses = [[note for key, note in each if key == public_key][:NOTES_MAX] for each in lists]
        random.shuffle(witnesses)  # if there are too many for one message, others come with the next
        notes = dict.fromkeys(note for turn in zip_longest(*witnesses) for note in turn if note is not None)
        return {"notes": b"".join(list(notes)[:_RETURNED_MAX]), "heads": pack_heads(heads)}


def _next_ones(public_key: bytes, clients: Iterable[bytes]) -> list[bytes]:
    """The clients whose notes this one keeps.

    >>> _next_ones(b"c", [b"a", b"b", b"c"])
    [b'a', b'b']
    """
    ring = list(clients)
    place = ring.index(public_key) + 1 if public_key in ring else 0
    return [key for key in (ring[place:] + ring[:place])[:_WITNESSES] if key != public_key]
