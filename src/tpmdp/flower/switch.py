"""Where protocol messages wait for their recipients; parties in this process get theirs at once.

Whoever runs it sees headers, public keys, signatures and ciphertext. It knows nothing of Flower.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping

from tpmdp.flower.desk import mark
from tpmdp.protocol.messages import EVERYONE, Kind, Message, MessageError, decode, session_of, verify
from tpmdp.protocol.party import PartySession, TooEarlyError
from tpmdp.protocol.terms import Terms


class Switch:
    """The messages of one session on their way. `here` are parties in this process."""

    def __init__(self, terms: Terms, here: Mapping[int, PartySession]) -> None:
        self._terms, self._here = terms, dict(here)
        self._waiting: dict[int, list[bytes]] = {}
        self._early: list[tuple[int, bytes]] = []
        self._known: set[bytes] = set()
        self.bytes_sent = [0] * terms.count

    def start(self) -> None:
        """The first messages of the parties in this process."""
        for party in self._here.values():
            self.post(party.start())

    def post(self, messages: Iterable[bytes], sender: int | None = None) -> None:
        """Take messages in; `sender` is who brought them from outside, if known. A second copy is dropped.

        MessageError: the sender breaks the protocol.
        """
        queue = deque((data, sender) for data in messages if session_of(data) == self._terms.session)
        while queue:
            data, claimed = queue.popleft()
            if mark(data) in self._known:
                continue
            message = decode(data)
            if claimed is not None or message.sender not in self._here:
                self._check(message, data, claimed)
            self._known.add(mark(data))
            self.bytes_sent[message.sender] += len(data)
            for other in self._recipients(message.kind, message.sender, message.recipient):
                if other in self._here:
                    queue += [(answer, None) for answer in self._hand_over(other, data)]
                else:
                    self._waiting.setdefault(other, []).append(data)

    def _check(self, message: Message, data: bytes, claimed: int | None) -> None:
        """Refuse what the recipient would stop at: whoever sent it is to be blamed, and not who would get it."""
        terms = self._terms
        if message.sender >= terms.count or claimed not in (None, message.sender):
            raise MessageError("a message in somebody else's name")
        if message.plan_hash != terms.plan_hash:
            raise MessageError("a message about another plan")
        lead = message.sender == terms.lead
        to_lead = message.kind in (Kind.SUBMIT, Kind.REVEAL) and message.recipient == terms.lead and not lead
        everybody = message.kind in (Kind.AGREE, Kind.KEYS) and message.recipient == EVERYONE
        pad = message.kind == Kind.PAD and message.recipient in terms.neighbours(message.sender)
        if not (lead or to_lead or everybody or (pad and terms.guarantee == "statistical")):
            raise MessageError("a message that breaks the protocol")
        verify(data, terms.roster[message.sender])

    def _recipients(self, kind: Kind, sender: int, recipient: int) -> list[int]:
        if kind == Kind.AGREE:  # the others have it from the signed key
            return [self._terms.lead] if sender != self._terms.lead else []
        if recipient == EVERYONE:
            return [other for other in range(self._terms.count) if other != sender]
        return [recipient] if recipient < self._terms.count else []

    def _hand_over(self, index: int, data: bytes) -> list[bytes]:
        party = self._here[index]
        try:
            sent = party.receive(data)
        except MessageError:
            return []
        except TooEarlyError:
            self._early.append((index, data))
            return []
        return sent + self._again()

    def _again(self) -> list[bytes]:
        """What came too early may be of use now."""
        early, self._early = self._early, []
        sent: list[bytes] = []
        for index, data in early:
            sent += self._hand_over(index, data)
        return sent

    def take(self, index: int) -> list[bytes]:
        """The messages that wait for a party."""
        return self._waiting.pop(index, [])

    def waiting(self) -> set[int]:
        """For whom messages wait."""
        return set(self._waiting)
