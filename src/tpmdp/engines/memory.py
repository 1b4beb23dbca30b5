"""All parties in one process, the true protocol: messages are handed over in memory."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Sequence

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from tpmdp.engines.contract import Outcome, guarantee_text
from tpmdp.errors import DeadlineError
from tpmdp.protocol.masks import Mask
from tpmdp.protocol.messages import EVERYONE, decode
from tpmdp.protocol.party import Early, FreshSecrets, Party
from tpmdp.protocol.terms import Terms


class MemoryEngine:
    """The protocol without a network."""

    name = "memory"

    def run(
        self, terms: Terms, identities: Sequence[Ed25519PrivateKey], vectors: Sequence[Mask], deadline_s: float = 60.0
    ) -> Outcome:
        """Hand messages over until everybody is done."""
        deadline = time.monotonic() + deadline_s
        parties = [Party(terms, i, identities[i], vectors[i], FreshSecrets()) for i in range(terms.count)]
        sent = [0] * terms.count
        queue: deque[tuple[int, bytes]] = deque()

        def post(sender: int, messages: list[bytes]) -> None:
            for data in messages:
                sent[sender] += len(data)
                to = decode(data).recipient
                everyone = [other for other in range(terms.count) if other != sender]
                queue.extend((other, data) for other in (everyone if to == EVERYONE else [to]))

        for party in parties:
            post(party.index, party.start())
        while queue:
            if time.monotonic() > deadline:
                late = ", ".join(terms.spec.name(party.index) for party in parties if not party.done)
                raise DeadlineError(f"the deadline passed before {late} had finished: allow more time")
            recipient, data = queue.popleft()
            try:
                post(recipient, parties[recipient].receive(data))
            except Early:
                queue.append((recipient, data))
        sums = {party.index: party.result for party in parties if party.result is not None}
        receipts = frozenset(party.index for party in parties if party.receipt)
        return Outcome(sums, receipts, tuple(sent), guarantee_text(terms))
