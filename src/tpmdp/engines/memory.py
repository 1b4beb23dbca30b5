"""All parties in one process: the real protocol, with messages passed in memory."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Mapping, Sequence

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from tpmdp._util.arrays import IntArray
from tpmdp.engines.contract import Outcome, guarantee_text, stuck
from tpmdp.errors import DeadlineError
from tpmdp.protocol.masks import Mask
from tpmdp.protocol.messages import EVERYONE, Kind, decode
from tpmdp.protocol.party import PartySession, TooEarlyError
from tpmdp.protocol.secrets import FreshSecrets
from tpmdp.protocol.terms import Terms
from tpmdp.protocol.vectors import attempt_vectors


class MemoryEngine:
    """The protocol without a network. `lost` are parties that vanish before they send a message of the given kind."""

    name = "memory"

    def __init__(self, lost: Mapping[int, Kind] | None = None) -> None:
        self._lost = dict(lost or {})

    def run(
        self,
        terms: Terms,
        identities: Sequence[Ed25519PrivateKey],
        vectors: Sequence[Mask],
        deadline_s: float = 60.0,
        plain: Sequence[IntArray] | None = None,
    ) -> Outcome:
        deadline = time.monotonic() + deadline_s
        bare = [None] * terms.count if plain is None else list(plain)
        sources = [attempt_vectors(terms, i, vectors[i], plain=bare[i]) for i in range(terms.count)]
        parties = [
            PartySession(terms, i, identities[i], vector=sources[i], secrets=FreshSecrets()) for i in range(terms.count)
        ]
        sent = [0] * terms.count
        queue: deque[tuple[int, bytes]] = deque()
        gone: set[int] = set()
        held: dict[int, list[tuple[int, bytes]]] = {}  # by sender, with the kind: what somebody may ask for later
        asked: dict[int, dict[Kind, frozenset[int]]] = {party.index: {} for party in parties}

        def look(party: PartySession) -> None:
            """Give a party the messages of those that it hears of since its last look."""
            wanted, before = party.senders, asked[party.index]
            for kind, senders in wanted.items():
                for sender in senders - before.get(kind, frozenset()):
                    queue.extend((party.index, data) for known, data in held.get(sender, ()) if known == kind)
            asked[party.index] = dict(wanted)

        def post(sender: int, messages: list[bytes]) -> None:
            for data in messages:
                message = decode(data)
                gone.update({sender} if self._lost.get(sender) == message.kind else ())
                if sender in gone:
                    return
                sent[sender] += len(data)
                if message.recipient != EVERYONE:
                    queue.append((message.recipient, data))
                    continue
                held.setdefault(sender, []).append((message.kind, data))
                for other in range(terms.count):
                    if other != sender and sender in asked[other].get(message.kind, {sender}):
                        queue.append((other, data))

        for party in parties:
            asked[party.index] = dict(party.senders)
        for party in parties:
            post(party.index, party.start())
        lead, early = parties[terms.lead], 0
        while not all(party.done for party in parties if party.index in lead.members - gone):
            if time.monotonic() > deadline:
                late = ", ".join(terms.spec.name(party.index) for party in parties if not party.done)
                raise DeadlineError(f"the deadline passed before {late} had finished: allow more time")
            if early >= len(queue):  # nothing moves any more
                again = lead.drop_missing()
                if not again:
                    raise DeadlineError(stuck(lead))
                post(lead.index, again)
                early = 0
            recipient, data = queue.popleft()
            if recipient in gone:
                continue
            try:
                post(recipient, parties[recipient].receive(data))
                look(parties[recipient])
                early = 0
            except TooEarlyError:
                queue.append((recipient, data))
                early += 1
        sums = {party.index: party.result for party in parties if party.result is not None}
        receipts = frozenset(party.index for party in parties if party.receipt)
        return Outcome(
            sums,
            receipts=receipts,
            bytes_sent=tuple(sent),
            guarantee=guarantee_text(terms),
            missing=frozenset(range(terms.count)) - lead.members,
        )
