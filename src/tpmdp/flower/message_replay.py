"""The client's side of a session: a party that is started anew for every Flower message from what it remembers.

A node may answer each message in another process. The party's secrets lie in a store. Messages of the other parties are
remembered as they came and replayed, which leads the party to where it was: a message that it sends again is the same
bytes, and is left out.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterable
from typing import Final, cast

from flwr.app import ConfigRecord, Context

from tpmdp.protocol.messages import Kind, MessageError, decode, verify
from tpmdp.protocol.party import PartySession, TooEarlyError
from tpmdp.protocol.rules import FORMS
from tpmdp.protocol.terms import Terms

INBOX_MAX: Final = 64 << 20  # bytes of messages that are remembered in a session
_PER_SLOT: Final = 2  # a second, different message in a slot is misconduct, and a third adds nothing


def replay(party: PartySession, inbox: Iterable[bytes], late: bool = False) -> tuple[list[bytes], list[bytes]]:
    """Start a party and hand it all messages so far: everything it sends, and the messages to remember.

    `late` tells a lead receiver that no other party will answer now.
    """
    sent, useful = party.start(), []
    waiting = list(dict.fromkeys(inbox))
    moved = True
    while waiting and moved:
        moved, early = False, []
        for data in waiting:
            try:
                sent += party.receive(data)
            except TooEarlyError:
                early.append(data)
            except MessageError:
                continue  # of another session, or not signed by the party that it names
            else:
                useful.append(data)
                moved = True
        waiting = early
    if late:
        sent += party.drop_missing()
    return sent, useful + waiting


def signed_setup(terms: Terms, arrived: Iterable[bytes]) -> list[bytes]:
    """The keys, groups and lists among messages that are signed by the party they name and have their form.

    Only these are worth remembering before the party takes part; whatever else comes is dropped unread.
    """
    good = []
    for data in arrived:
        try:
            message = decode(data)
            if (
                message.kind in (Kind.KEYS, Kind.GROUP, Kind.LIST)
                and (message.session, message.plan_hash) == (terms.session, terms.plan_hash)
                and message.sender < terms.count
                and len(message.body) == FORMS[message.kind].length(terms)
                and message.attempt in FORMS[message.kind].attempts
            ):
                verify(data, terms.roster[message.sender])
                good.append(data)
        except MessageError:
            continue
    return good


def bounded(messages: Iterable[bytes], most: int = INBOX_MAX) -> list[bytes]:
    """The messages without copies, few in each slot of their senders, and not more bytes than `most`."""
    stored, slots, size = [], Counter[tuple[int, int, int, int]](), 0
    for data in dict.fromkeys(messages):
        slot = decode(data).slot
        if slots[slot] < _PER_SLOT and size + len(data) <= most:
            slots[slot] += 1
            size += len(data)
            stored.append(data)
    return stored


def digest(data: bytes) -> bytes:
    """What a message is recognised by.

    >>> len(digest(b"message"))
    16
    """
    return hashlib.blake2b(data, digest_size=16).digest()


class Memory:
    """What a client remembers of its sessions in its Flower context, by name and session."""

    def __init__(self, context: Context, name: str) -> None:
        self._record = cast(ConfigRecord, context.state.setdefault(name, ConfigRecord()))

    def read(self, name: str, session: bytes) -> bytes:
        """One value; empty where there is none."""
        return cast(bytes, self._record.get(f"{name} {session.hex()}", b""))

    def write(self, name: str, session: bytes, value: bytes | list[bytes]) -> None:
        """Remember a value."""
        self._record[f"{name} {session.hex()}"] = value

    def write_inbox(self, session: bytes, messages: Iterable[bytes]) -> None:
        """Remember messages whose signatures were checked, up to a limit."""
        self.write("inbox", session, bounded(messages))

    def inbox(self, session: bytes) -> list[bytes]:
        """The messages that came and were remembered."""
        return list(cast(list[bytes], self._record.get(f"inbox {session.hex()}", [])))

    def unsent(self, session: bytes, messages: Iterable[bytes]) -> list[bytes]:
        """Those of the messages that were not sent before; from now on they count as sent."""
        sent = list(cast(list[bytes], self._record.get(f"sent {session.hex()}", [])))
        known = set(sent)
        new = [data for data in dict.fromkeys(messages) if digest(data) not in known]
        self.write("sent", session, sent + [digest(data) for data in new])
        return new

    def sessions(self) -> list[bytes]:
        """The sessions with terms, oldest first."""
        names = [name.split() for name in self._record]
        return [bytes.fromhex(parts[1]) for parts in names if parts[0] == "terms"]

    def forget(self, session: bytes) -> None:
        """Drop everything about a session."""
        for name in [name for name in self._record if name.endswith(f" {session.hex()}")]:
            del self._record[name]
