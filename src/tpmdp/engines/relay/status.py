"""What the relay holds of a session: which parties have sent what. Asking changes nothing.

Answer of GET /v1/sessions/ID/status?plan=HASH: the newest attempt under this plan hash, and sets of parties as bits. A
party may ask; that shows it who has sent which kind of message, and no content. A hash of
ones only asks for any plan.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from tpmdp.errors import InputError
from tpmdp.protocol.group import from_bits, to_bits
from tpmdp.protocol.messages import EVERYONE, HASH_BYTES, Kind, MessageError

_SENT: Final = {"agreed": (Kind.AGREE, Kind.KEYS), "keys": (Kind.KEYS,), "submitted": (Kind.SUBMIT,)}
_ANSWERS: Final = (Kind.RESULT, Kind.RECEIPT)
ANY_PLAN: Final = b"\xff" * HASH_BYTES
_SETS: Final = (*_SENT, "answered", "other_plan")
_ATTEMPT_MAX: Final = 1_000_000


@dataclass(frozen=True)
class SessionStatus:
    """Which parties, by index, have sent what to the relay, as the relay says.

    >>> status = SessionStatus(2, attempt=1, agreed=frozenset({0, 1}), keys=frozenset({0, 1}), submitted=frozenset({1}),
    ...                        answered=frozenset(), other_plan=frozenset())
    >>> SessionStatus.of_plain(status.plain(), 2) == status
    True
    """

    count: int
    """Of parties."""
    attempt: int
    """The newest; 0 if nobody has sent a key."""
    agreed: frozenset[int]
    """Signed this study and plan."""
    keys: frozenset[int]
    """Sent a key for the newest attempt."""
    submitted: frozenset[int]
    """Sent a masked vector in the newest attempt."""
    answered: frozenset[int]
    """An answer or a receipt lies here for these parties, from the lead receiver; it then counts itself, too."""
    other_plan: frozenset[int]
    """Have sent something under another study or plan only."""

    def plain(self) -> dict[str, Any]:
        """As values for JSON."""
        sets = {name: to_bits(getattr(self, name), self.count).hex() for name in _SETS}
        return {"parties": self.count, "attempt": self.attempt, **sets}

    @classmethod
    def of_plain(cls, values: Mapping[str, Any], count: int) -> SessionStatus:
        """The inverse of `plain`, of a relay that is not trusted; MessageError if it makes no sense."""
        try:
            attempt = values["attempt"]
            sets = {name: from_bits(bytes.fromhex(values[name]), count) for name in _SETS}
        except (KeyError, TypeError, ValueError):
            raise MessageError("a status that cannot be read") from None
        if type(attempt) is not int or not 0 <= attempt <= _ATTEMPT_MAX:
            raise MessageError("a status that cannot be read")
        return cls(count, attempt, **sets)


def query_status(connection: sqlite3.Connection, session: int, plan: bytes, *, count: int) -> SessionStatus:
    """Read the status from the relay's database."""

    of_plan, plans = ("", ()) if plan == ANY_PLAN else ("AND plan = ?", (plan,))

    def rows(columns: str, kinds: tuple[Kind, ...]) -> list[tuple[int, ...]]:
        marks = ", ".join("?" * len(kinds))
        statement = (
            f"SELECT DISTINCT {columns} FROM messages INDEXED BY mail "  # noqa: S608
            f"WHERE session = ? AND kind IN ({marks}) {of_plan}"
        )
        return connection.execute(statement, (session, *map(int, kinds), *plans)).fetchall()

    sent = {name: rows("sender, attempt", kinds) for name, kinds in _SENT.items()}
    attempt = max((number for _, number in sent["keys"]), default=0)
    answered = rows("recipient, sender, attempt", _ANSWERS)
    receipts = {number for to, _, number in answered if to == EVERYONE}  # of all that have submitted
    known = {party for party, _ in sent["agreed"]}
    usage = connection.execute("SELECT DISTINCT party FROM usage WHERE session = ?", (session,))
    return SessionStatus(
        count,
        attempt,
        agreed=frozenset(known),
        keys=frozenset(party for party, number in sent["keys"] if number == attempt),
        submitted=frozenset(party for party, number in sent["submitted"] if number == attempt),
        answered=frozenset(party for pair in answered for party in pair[:2] if party < count)
        | {party for party, number in sent["submitted"] if number in receipts},
        other_plan=frozenset(party for (party,) in usage) - known,
    )


def parse_plan(query: bytes) -> bytes:
    """The plan hash of a request.

    >>> parse_plan(b"plan=" + b"0" * 64) == bytes(32)
    True
    >>> parse_plan(b"plan=zz")
    Traceback (most recent call last):
        ...
    tpmdp.errors.InputError: query = plan=zz must be plan and 64 digits of hexadecimal: ask such as ?plan=HASH
    """
    text = query.decode("latin-1")
    name, _, digits = text.partition("=")
    try:
        if name == "plan" and len(digits) == 2 * HASH_BYTES and digits.isascii() and digits.isalnum():
            return bytes.fromhex(digits)
    except ValueError:
        pass
    raise InputError("query", text, "must be plan and 64 digits of hexadecimal", "ask such as ?plan=HASH")
