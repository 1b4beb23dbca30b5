"""A party that lives from one Flower message to the next: started anew each time from what it has kept.

A node may answer each message in another process. What it must not forget lies in its secrets; messages of the others
are kept as they came and handed over again, which leads a party to where it was: what it sends twice is the same bytes.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence

from tpmdp.protocol.messages import MessageError
from tpmdp.protocol.party import PartySession, TooEarlyError


def replay(party: PartySession, inbox: Iterable[bytes], late: bool = False) -> tuple[list[bytes], list[bytes]]:
    """Start a party and hand over all that ever came for it: everything it says, and what to keep.

    `late` tells a lead receiver that nobody else will answer now.
    """
    out, kept = party.start(), []
    waiting = list(dict.fromkeys(inbox))
    moved = True
    while waiting and moved:
        moved, early = False, []
        for data in waiting:
            try:
                out += party.receive(data)
            except TooEarlyError:
                early.append(data)
            except MessageError:
                continue  # not of this session, or not signed by whom it names
            else:
                kept.append(data)
                moved = True
        waiting = early
    if late:
        out += party.drop_missing()
    return out, kept + waiting


def mark(data: bytes) -> bytes:
    """What a message that was sent is remembered by.

    >>> len(mark(b"message"))
    16
    """
    return hashlib.blake2b(data, digest_size=16).digest()


def unsent(out: Iterable[bytes], sent: Sequence[bytes]) -> list[bytes]:
    """Those messages that were not sent before.

    >>> unsent([b"a", b"b", b"b"], [mark(b"a")])
    [b'b']
    """
    known = set(sent)
    return [data for data in dict.fromkeys(out) if mark(data) not in known]
