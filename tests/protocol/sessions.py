"""Sessions for tests: terms, keys and vectors of any shape, and a network in memory that a test can disturb."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from tpmdp import Spec
from tpmdp.planning.grid_plan import plan_on_grid
from tpmdp.protocol.masks import Mask, to_words
from tpmdp.protocol.messages import EVERYONE, decode
from tpmdp.protocol.party import PartySession, TooEarlyError
from tpmdp.protocol.secrets import FreshSecrets, Secrets
from tpmdp.protocol.terms import Guarantee, Terms


class World:
    """n parties with identities, terms and vectors."""

    def __init__(
        self,
        count: int,
        threshold: int,
        receivers: Any = "all",
        guarantee: Guarantee = "computational",
        dimension: int = 3,
        label: str = "test",
        seed: int = 0,
        tolerate: int = 0,
        has_noise: bool = True,
    ) -> None:
        epsilon = np.linspace(0.5, 3.0, count) if has_noise else np.full(count, np.inf)
        spec = Spec(epsilon=epsilon, delta=1e-6, threshold=threshold, receivers=receivers)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            plan = plan_on_grid(spec, 1.0, dimension, groups=tolerate > 0)
        self.identities = [Ed25519PrivateKey.from_private_bytes(bytes([seed]) * 31 + bytes([i])) for i in range(count)]
        roster = tuple(key.public_key().public_bytes_raw() for key in self.identities)
        self.terms = Terms.of(label, plan, 1.0, roster, guarantee=guarantee, tolerate=tolerate)
        random = np.random.default_rng(seed)
        self.inputs = random.integers(-(10**6), 10**6, (count, dimension))
        self.vectors: list[Mask] = [to_words(row, plan.grid.word) for row in self.inputs]
        self.secrets: list[Secrets] = [FreshSecrets() for _ in range(count)]

    @property
    def total(self) -> list[int]:
        found: list[int] = self.inputs.sum(axis=0).tolist()
        return found

    def party(self, index: int, attempt: int = 1, terms: Terms | None = None) -> PartySession:
        return PartySession(
            terms or self.terms,
            index,
            self.identities[index],
            lambda _attempt, _members: self.vectors[index],
            self.secrets[index],
            attempt,
        )

    def parties(self) -> list[PartySession]:
        return [self.party(index) for index in range(self.terms.count)]


Change = Callable[[int, bytes], Sequence[bytes]]  # recipient and message in, messages out


def exchange(
    parties: Sequence[PartySession],
    change: Change | None = None,
    order: np.random.Generator | None = None,
    first: Callable[[PartySession], list[bytes]] = PartySession.start,
) -> list[tuple[int, bytes]]:
    """Deliver until nothing is left; in random order if asked. Returns all that was delivered."""
    by_index = {party.index: party for party in parties}
    queue: list[tuple[int, bytes]] = []
    delivered: list[tuple[int, bytes]] = []

    def post(sender: int, messages: list[bytes]) -> None:
        for data in messages:
            to = decode(data).recipient
            for recipient in by_index if to == EVERYONE else [to]:
                if recipient != sender and recipient in by_index:
                    queue.extend((recipient, one) for one in (change(recipient, data) if change else [data]))

    for party in parties:
        post(party.index, first(party))
    early = 0
    while queue and early <= len(queue):
        position = int(order.integers(len(queue))) if order is not None else 0
        recipient, data = queue.pop(position)
        try:
            post(recipient, by_index[recipient].receive(data))
            if by_index[recipient].is_to_pair:
                post(recipient, by_index[recipient].pair())
            delivered.append((recipient, data))
            early = 0
        except TooEarlyError:
            queue.append((recipient, data))
            early += order is None
    return delivered


def pads_of(secrets: FreshSecrets) -> set[str]:
    """The pads that are kept, by name: attempt and neighbour."""
    return {name for name in secrets._store.names() if name.startswith("pad ")}
