"""The reference: a trusted party adds up. Every other engine must give the same result."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from tpmdp._util.arrays import IntArray
from tpmdp.engines.contract import Outcome
from tpmdp.protocol.masks import Mask, from_words
from tpmdp.protocol.terms import Terms


class IdealEngine:
    """A trusted adder; for tests and simulations."""

    name = "ideal"

    def run(
        self,
        terms: Terms,
        identities: Sequence[Ed25519PrivateKey],
        vectors: Sequence[Mask],
        deadline_s: float = 60.0,
        plain: Sequence[IntArray] | None = None,
    ) -> Outcome:
        del identities, deadline_s, plain
        for party in range(terms.count):
            terms.check(party)
        total = np.sum(np.stack(vectors), axis=0, dtype=vectors[0].dtype)
        receivers = np.flatnonzero(terms.spec.receivers).tolist()
        sums = {party: from_words(total, terms.grid.word) for party in receivers}
        others = frozenset(range(terms.count)) - set(receivers)
        guarantee = "none: a trusted adder sees every vector"
        return Outcome(sums, receipts=others, bytes_sent=(0,) * terms.count, guarantee=guarantee)
