"""What a request may contain: messages, sessions and queries. All is checked, and refused with an error here."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final
from urllib.parse import parse_qsl

from starlette.requests import Request

from tpmdp.engines.relay import wire
from tpmdp.engines.relay.session_rows import CheckedMessage, StoredSession
from tpmdp.errors import InputError, TpmdpError
from tpmdp.protocol.messages import EVERYONE, HASH_BYTES, PARTIES_MAX, Kind, MessageError, decode, verify
from tpmdp.protocol.terms import session_id

_NUMBER_MAX: Final = (1 << 63) - 1
_AFTER: Final = re.compile("[0-9]{1,3}:[0-9]{1,19}")
_WAIT: Final = re.compile(r"[0-9]{1,3}(\.[0-9]{1,6})?")
_LEAST: Final = re.compile("[1-9][0-9]{0,5}")
_FROM: Final = re.compile(r"[0-9]{1,3}:[0-9]{1,6}(\.[0-9]{1,6}){0,1999}")


class RefusedError(TpmdpError):
    """A request the relay does not serve; the text goes to the client."""

    def __init__(self, status: int, error: object, headers: Mapping[str, str] | None = None) -> None:
        self.status, self.headers = status, dict(headers or {})
        super().__init__(str(error))


class ClientGoneError(TpmdpError):
    """The client has closed the connection."""


def check_messages(body: bytes, session: StoredSession, party: int, message_max: int) -> list[CheckedMessage]:
    """The messages of a body, if every one is whole, of this session, from this party and signed by it.

    >>> check_messages(b"nonsense", StoredSession(1, bytes(32), (bytes(32), bytes(32))), 0, message_max=1 << 20)
    Traceback (most recent call last):
        ...
    tpmdp.engines.relay.requests.RefusedError: body = 8 bytes cannot be read (a frame is cut short): send whole frames
    """
    items: list[CheckedMessage] = []
    try:
        for number, data in wire.frames(body):
            if number != 0:
                raise RefusedError(400, InputError("frame number", number, "must be 0 from a party", "leave it at 0"))
            if len(items) >= session.slots_max:
                rule = f"holds more than {session.slots_max} messages"
                raise RefusedError(413, InputError("body", f"{len(body)} bytes", rule, "send fewer at once"))
            items.append(_check_message(data, session, party, message_max=message_max))
    except MessageError as error:
        rule = f"cannot be read ({error})"
        raise RefusedError(400, InputError("body", f"{len(body)} bytes", rule, "send whole frames")) from None
    if not items:
        raise RefusedError(400, InputError("body", "(blank)", "holds no message", "send at least one frame"))
    return items


def _check_message(data: bytes, session: StoredSession, party: int, message_max: int) -> CheckedMessage:
    if len(data) > message_max:
        rule = f"is longer than this relay takes ({message_max})"
        raise RefusedError(413, InputError("message", f"{len(data)} bytes", rule, "ask the relay's operator for more"))
    message = decode(data)
    if message.session != session.name:
        rule = "is of another session than the address says"
        raise RefusedError(400, InputError("message", message.session.hex()[:12] + "...", rule, "send it there"))
    if message.sender != party:
        rule = f"is not the party that the token proves ({party})"
        raise RefusedError(403, InputError("sender", message.sender, rule, "send your own messages"))
    if message.recipient != EVERYONE and message.recipient >= len(session.roster):
        rule = f"must be one of the {len(session.roster)} parties or everyone"
        raise RefusedError(400, InputError("recipient", message.recipient, rule, "name a party of the session"))
    try:
        digest = verify(data, session.roster[party])
    except MessageError:
        rule = "does not fit the sender's public key"
        raise RefusedError(
            403, InputError("signature", data[-64:].hex()[:12] + "...", rule, "sign with that key")
        ) from None
    return CheckedMessage(
        int(message.kind),
        message.attempt,
        party,
        recipient=message.recipient,
        plan=message.plan_hash,
        digest=digest,
        data=data,
    )


def check_session(name: bytes, body: bytes) -> None:
    """Refuse a session whose name is not the hash of its content."""
    count, rest = divmod(len(body), HASH_BYTES)
    count -= 1
    if rest or not 2 <= count <= PARTIES_MAX:
        rule = f"must be a label hash and 2 to {PARTIES_MAX} public keys of {HASH_BYTES} bytes each"
        raise InputError("body", f"{len(body)} bytes", rule, "send exactly these")
    roster = tuple(body[start : start + HASH_BYTES] for start in range(HASH_BYTES, len(body), HASH_BYTES))
    if len(set(roster)) != count:
        raise InputError("public keys", count, "must all be different", "give every party its own key")
    expected = session_id(body[:HASH_BYTES], roster)
    if expected != name:
        raise InputError("session", name.hex()[:12] + "...", "is not the hash of the body", f"PUT {expected.hex()}")


@dataclass(frozen=True)
class Wanted:
    """Which messages a party asks for: of which kinds, after which number, and from whom."""

    cursors: Mapping[int, int]  # by kind
    wait_s: float = 0.0
    least: int = 1  # messages to wait for
    senders: Mapping[int, frozenset[int]] = field(default_factory=dict)  # of some kinds; of the others, all parties

    def is_for(self, kind: int, sender: int) -> bool:
        """Whether a message for this party is one of those."""
        return kind in self.cursors and (kind not in self.senders or sender in self.senders[kind])


def parse_query(query: bytes) -> Wanted:
    """What a party asks for.

    >>> wanted = parse_query(b"after=1:12,2:0&wait=2.5&from=2:5.7")
    >>> wanted.cursors, wanted.wait_s, wanted.least, sorted(wanted.senders[2])
    ({1: 12, 2: 0}, 2.5, 1, [5, 7])
    >>> parse_query(b"after=99:0")
    Traceback (most recent call last):
        ...
    tpmdp.errors.InputError: after = 99:0 names an unknown kind: use 1 to 14
    """
    text = query.decode("latin-1")
    try:
        pairs = parse_qsl(text, keep_blank_values=True, strict_parsing=True, max_num_fields=4, errors="strict")
    except ValueError:
        pairs = []
    values = dict(pairs)
    if len(values) != len(pairs) or "after" not in values or not values.keys() <= {"after", "wait", "least", "from"}:
        remedy = "ask such as ?after=1:0,2:0&wait=20"
        raise InputError("query", text, "must be after and perhaps wait, least and from, each once", remedy)
    cursors: dict[int, int] = {}
    for part in values["after"].split(",", len(Kind) + 1):
        if not _AFTER.fullmatch(part):
            raise InputError("after", part, "must be KIND:NUMBER", "ask such as 1:0,2:0")
        kind, number = (int(word) for word in part.split(":"))
        if kind not in set(Kind):
            raise InputError("after", part, "names an unknown kind", f"use {min(Kind)} to {max(Kind)}")
        if kind in cursors or number > _NUMBER_MAX:
            raise InputError("after", part, "repeats a kind or has a number too great", "give each kind once")
        cursors[kind] = number
    wait = values.get("wait", "0")
    if not _WAIT.fullmatch(wait) or float(wait) > wire.WAIT_MAX_S:
        raise InputError("wait", wait, f"must be seconds from 0 to {wire.WAIT_MAX_S:g}", "wait less, ask again")
    least = values.get("least", "1")
    if not _LEAST.fullmatch(least):
        raise InputError("least", least, "must be a number of messages, up to 999999", "wait for fewer")
    senders = dict(map(_senders, values["from"].split(",", len(Kind)))) if values.get("from") else {}
    return Wanted(cursors, float(wait), int(least), senders=senders)


def _senders(part: str) -> tuple[int, frozenset[int]]:
    if not _FROM.fullmatch(part):
        raise InputError("from", part[:100], "must be KIND:PARTY.PARTY", "ask such as 2:0.5.9")
    kind, _, parties = part.partition(":")
    return int(kind), frozenset(map(int, parties.split(".")))


def content_length(request: Request) -> int | None:
    """The size that a request announces for its body, if any."""
    value = request.headers.get("content-length", "")
    return int(value) if value.isascii() and value.isdigit() and len(value) <= 19 else None
