"""Protocol messages of one session on their way between parties. Parties in this process get theirs at once.

The carrier sees headers, public keys, signatures and ciphertext. It knows nothing of Flower.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping

from tpmdp.flower.message_replay import digest
from tpmdp.protocol.hybrid import is_usable
from tpmdp.protocol.messages import EVERYONE, Kind, Message, MessageError, decode, session_of, verify
from tpmdp.protocol.party import PartySession, TooEarlyError
from tpmdp.protocol.rules import FORMS
from tpmdp.protocol.terms import Terms


class Carrier:
    """Keeps the messages of one session until they are taken for their recipients. `local` parties are here."""

    def __init__(self, terms: Terms, local: Mapping[int, PartySession]) -> None:
        self._terms, self._local = terms, dict(local)
        self._waiting: dict[int, list[bytes]] = {}
        self._early: list[tuple[int, bytes]] = []
        self._known: set[bytes] = set()
        self._slots: dict[tuple[int, int, int, int], bytes] = {}  # what a node's party has said, by slot
        self.bytes_sent = [0] * terms.count

    def start(self) -> None:
        """Take the first messages of the local parties."""
        for party in self._local.values():
            self.post(party.start())

    def post(self, messages: Iterable[bytes], sender: int | None = None) -> None:
        """Take messages in and drop copies. `sender` is the party whose node brought them, if any did.

        What would make an honest recipient stop is refused here, so that no recipient looks as if it had failed.
        MessageError: the node breaks the protocol. ProtocolError: its offender does, which may be another party whose
        message came too early before.
        """
        queue = deque((data, sender) for data in messages if session_of(data) == self._terms.session)
        while queue:
            data, claimed = queue.popleft()
            if digest(data) in self._known:
                continue
            message = decode(data)
            if claimed is not None or message.sender not in self._local:
                self._check(message, data, claimed)
            self._known.add(digest(data))
            self.bytes_sent[message.sender] += len(data)
            for recipient in self._recipients(message):
                if recipient in self._local:
                    queue += [(answer, None) for answer in self._deliver(recipient, data)]
                else:
                    self._waiting.setdefault(recipient, []).append(data)

    def take(self, index: int) -> list[bytes]:
        """Remove and return the messages that wait for a party."""
        return self._waiting.pop(index, [])

    def waiting(self) -> set[int]:
        """The parties for which messages wait."""
        return set(self._waiting)

    def _check(self, message: Message, data: bytes, claimed: int | None) -> None:
        """Refuse what would stop the recipient: the sender is to blame, and not the recipient."""
        terms, form = self._terms, FORMS.get(message.kind)
        if form is None:
            raise MessageError(f"a message of kind {message.kind.name}, which has no place here")
        if message.sender >= terms.count or claimed not in (None, message.sender):
            raise MessageError("a message in somebody else's name")
        if message.plan_hash != terms.plan_hash:
            raise MessageError("a message about another plan")
        is_lead = message.sender == terms.lead
        to_lead = message.kind in (Kind.SUBMIT, Kind.REVEAL) and message.recipient == terms.lead and not is_lead
        everybody = message.kind in (Kind.AGREE, Kind.KEYS) and message.recipient == EVERYONE
        is_other = message.recipient < terms.count and message.recipient != message.sender
        between_two = message.kind in (Kind.PAD, Kind.SHARE) and is_other
        has_form = (
            len(message.body) == form.length(terms)
            and message.attempt in form.attempts
            and (message.recipient == EVERYONE) == form.broadcast
            and (terms.tolerate > 0 or not form.only_with_dropouts)
        )
        if not has_form or not (is_lead or to_lead or everybody or between_two):
            raise MessageError("a message that breaks the protocol")
        verify(data, terms.roster[message.sender])
        lead = self._local.get(terms.lead)
        if lead is not None and message.attempt > lead.attempt:
            raise MessageError("a message of an attempt that was not begun")
        if message.kind == Kind.KEYS and not is_usable(message.body):
            raise MessageError("a session key is not usable")
        if self._slots.setdefault(message.slot, digest(data)) != digest(data):
            raise MessageError(f"two different {message.kind.name} messages")

    def _recipients(self, message: Message) -> list[int]:
        terms, sender, recipient = self._terms, message.sender, message.recipient
        if message.kind == Kind.AGREE:  # the others learn it from the signed key
            return [terms.lead] if sender != terms.lead else []
        if recipient == EVERYONE:
            return [other for other in range(terms.count) if other != sender]
        return [recipient] if recipient < terms.count else []

    def _deliver(self, index: int, data: bytes) -> list[bytes]:
        try:
            sent = self._local[index].receive(data)
        except MessageError:
            return []
        except TooEarlyError:
            self._early.append((index, data))
            return []
        early, self._early = self._early, []  # may be of use now
        for recipient, message in early:
            sent += self._deliver(recipient, message)
        return sent
