"""One attempt of a session, as one party sees it: its group, the keys of the group, and the masked vector."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field
from functools import cached_property
from typing import NamedTuple

import numpy as np

from tpmdp.errors import InputError
from tpmdp.protocol.graph import MaskGraph
from tpmdp.protocol.group import to_bits
from tpmdp.protocol.hybrid import Capsule, HybridKey, exchange_hash
from tpmdp.protocol.keepers import draw_keepers
from tpmdp.protocol.masks import Mask, apply, expand, mask_key, word_type
from tpmdp.protocol.messages import HASH_BYTES, ProtocolError
from tpmdp.protocol.shares import SHARE_BYTES, check_value, combine, mask_seed, weights_at_zero
from tpmdp.protocol.terms import Terms


class KeptShare(NamedTuple):
    """A share of a keeper's seed, and by what the seed can be checked."""

    check: bytes
    share: bytes

    def __repr__(self) -> str:
        return "KeptShare()"


@dataclass(eq=False, repr=False)
class Attempt:
    """What a party knows of one attempt. The fields about submissions are used by the lead receiver only."""

    terms: Terms
    index: int
    number: int
    own: HybridKey
    total: Mask  # own vector and zeros, pads and masks; at the lead receiver also the others' submissions
    members: frozenset[int] | None  # None until the lead receiver has named the group
    keys: dict[int, bytes] = field(default_factory=dict)
    digests: dict[int, bytes] = field(
        default_factory=dict
    )  # of the messages with the keys; of all, once they are listed
    unproved: dict[int, dict[bytes, bytes]] = field(
        default_factory=dict
    )  # such messages by digest; nobody has signed yet
    is_listed: bool = False  # the lead receiver has named the keys of all
    is_bound: bool = False  # to these keys, on the disk
    capsules: dict[int, Capsule] = field(default_factory=dict)  # that we have sent
    padded: dict[int, bytes] = field(default_factory=dict)  # neighbours that have sent a pad; its ciphertext, if any
    pads_sent: bool = False
    paired: set[int] = field(default_factory=set)  # holders whose share for this attempt is stored
    submitted: bytes = b""  # digest of the own submission
    counted: dict[int, bytes] = field(default_factory=dict)  # digest of each submission
    opened: bool = False  # all parties have submitted and are asked to reveal
    shares: dict[int, KeptShare] = field(default_factory=dict)  # by keeper, its own among them
    tried: set[tuple[int, ...]] = field(default_factory=set)  # whose shares do not fit together
    revealed: dict[int, list[bytes]] = field(default_factory=dict)  # what parties revealed: shares, in keepers' order

    @property
    def group(self) -> frozenset[int]:
        """The members; empty until they are known."""
        return self.members or frozenset()

    @property
    def transcript(self) -> bytes:
        """Equal for all parties exactly if all saw the same keys, of the same group."""
        members, count = sorted(self.group), self.terms.count
        domain = b"tpmdp keys 2" if len(members) == count else b"tpmdp group 2" + to_bits(members, count)
        if self.terms.tolerate:  # the plan that this group's noise is drawn for
            sigma = self.terms.among(members).sigma.astype(">i8").tobytes()
            domain = b"tpmdp group 3" + to_bits(members, count) + self.terms.openings.to_bytes(8, "big") + sigma
        return hashlib.sha256(domain + b"".join(self.digests[party] for party in members)).digest()

    @property
    def statistical(self) -> bool:
        """Whether masks are pads from the operating system instead of keystreams."""
        return self.terms.guarantee == "statistical"

    @cached_property
    def _graph(self) -> MaskGraph:
        """Who shares masks with whom; it follows from all keys of the group."""
        seed = hashlib.sha256(b"tpmdp graph 1" + self.transcript).digest()
        size, threshold = len(self.group), self.terms.colluders
        return MaskGraph.draw(size, threshold, seed, always_circulant=self.statistical)

    @cached_property
    def keepers(self) -> tuple[int, ...]:
        """The parties of the group whose masks keep the attempt closed, where there are such; they follow from it."""
        terms = self.terms
        if not terms.has_keepers:
            return ()
        return draw_keepers(self.transcript, sorted(self.group), terms.lead, threshold=terms.colluders)

    @property
    def is_keeper(self) -> bool:
        """Whether this party is one of them."""
        return self.index in self.keepers

    @property
    def has_all_shares(self) -> bool:
        """Whether all keepers have sent this party its share."""
        return set(self.keepers) <= set(self.shares)

    def partners(self, party: int) -> tuple[list[int], list[int]]:
        """The neighbours of a party of the group: those that it sends what they share, and those that send it."""
        members = sorted(self.group)
        ranks = self._graph.partners(members.index(party))
        return [members[rank] for rank in ranks.outgoing.tolist()], [members[rank] for rank in ranks.incoming.tolist()]

    @cached_property
    def _partners(self) -> tuple[list[int], list[int]]:
        return self.partners(self.index)

    @cached_property
    def _incoming(self) -> set[int]:
        return set(self._partners[1])

    def neighbours(self) -> list[int]:
        """The parties of the group that this party shares masks with, once all keys are known."""
        outgoing, incoming = self._partners
        return sorted(outgoing + incoming)

    @cached_property
    def needed(self) -> set[int]:
        """The parties whose keys this party uses, once all are listed.

        These are its neighbours, the lead receiver and those that it shares seeds with.
        """
        if self.index == self.terms.lead or self.is_keeper:
            return set(self.group)
        return {*self.neighbours(), *self.keepers, self.terms.lead, self.index}

    def check_keys(self) -> None:
        """Refuse keys that this party is to use and cannot."""
        sealed = {*self.pads_to(), self.terms.lead, *(self.group if self.is_keeper else ())}  # we encapsulate to these
        for other in {*self.neighbours(), *sealed} - {self.index}:
            try:
                self.own.check(self.keys[other], with_lattice=other in sealed)
            except InputError:
                raise unusable_key(self.terms.spec.name(other), other) from None

    def pads_from(self) -> set[int]:
        """The neighbours that send this party what they share."""
        return self._incoming

    def pads_to(self) -> list[int]:
        """The neighbours that this party sends what they share."""
        return self._partners[0]

    def add_vector(self, vector: Mask) -> None:
        """Add the party's own vector."""
        own = self.total[: self.terms.grid.dimension]
        if vector.shape != own.shape or vector.dtype != own.dtype:
            rule = f"must be {self.terms.grid.dimension} words of {self.terms.grid.word} bits"
            raise InputError("vector", f"{vector.dtype}{vector.shape}", rule, "encode it on the grid of the session")
        np.add(own, vector, out=own)

    def opened_sum(self) -> Mask:
        """At the lead receiver, in the end: the sum. Refused if masks are left in it."""
        dimension = self.terms.grid.dimension
        if self.total[dimension:].any():
            problem = "the masks do not cancel, so there is no answer: some party did not keep to the protocol"
            raise ProtocolError(f"{problem}, start a new session")
        return self.total[:dimension]

    def add_pad(self, other: int, pad: bytes) -> None:
        """Mask the vector with the pad shared with a neighbour."""
        apply(self.total, self._words(pad), party=self.index, other=other)

    def add_pairwise_masks(self) -> None:
        """Mask the vector with the keystreams shared with all neighbours."""
        terms, bound = self.terms, self.transcript
        for other in self.neighbours():
            low, high = sorted((self.index, other))
            context, agreed = self._exchanged(other)
            key = mask_key(agreed, terms.session, low, high=high, context=bound + context)
            mask = expand(key, terms.masked_words, terms.grid.word)
            apply(self.total, mask, party=self.index, other=other)

    def _exchanged(self, other: int) -> tuple[bytes, bytes]:
        """The hash of all that went between a neighbour and this party, and what both have agreed on."""
        ours, theirs, own = self.own.public, self.keys[other], self.own
        try:
            if other not in self.pads_from():
                sent = self.capsules[other]
                return exchange_hash(ours, theirs, sent.ciphertext), own.agreed(theirs, sent.inner)
            ciphertext = self.padded[other]
            return exchange_hash(theirs, ours, ciphertext), own.agreed(theirs, own.opened(ciphertext))
        except InputError:
            raise unusable_key(self.terms.spec.name(other), other) from None

    def add_self_mask(self, secret: bytes) -> None:
        """Mask the vector with this party's self-mask."""
        np.add(self.total, self._self_mask(secret), out=self.total)

    def remove_self_mask(self, secret: bytes) -> None:
        """At the lead receiver: the self-mask of another party is known."""
        np.subtract(self.total, self._self_mask(secret), out=self.total)

    def keep_share(self, keeper: int, content: bytes) -> None:
        """A keeper has sent this party its share."""
        self.shares[keeper] = KeptShare(content[:HASH_BYTES], content[HASH_BYTES:])

    def opening(self) -> bytes:
        """All shares that this party holds."""
        content = b"".join(self.shares[keeper].share for keeper in self.keepers)
        return content.ljust(self.terms.keepers_max * SHARE_BYTES, b"\0")

    def add_opening(self, other: int, content: bytes) -> None:
        """At the lead receiver: the shares that another party has revealed."""
        ends = range(0, len(self.keepers) * SHARE_BYTES, SHARE_BYTES)
        self.revealed[other] = [content[start : start + SHARE_BYTES] for start in ends]

    def secrets(self) -> list[bytes] | None:
        """At the lead receiver: what the keepers have shared, in their order; None while too few shares are right.

        One wrong share is found by leaving each party out, where more have revealed than must.
        """
        needed, openers = self.terms.openings, sorted(self.revealed)
        if len(openers) < needed:
            return None
        choices = [openers[:needed]]
        if len(openers) > needed:
            choices += [[*openers[:place], *openers[place + 1 :]][:needed] for place in range(needed)]
        checks = [self.shares[keeper].check for keeper in self.keepers]
        for chosen in choices:
            if tuple(chosen) in self.tried:
                continue
            self.tried.add(tuple(chosen))
            weights = weights_at_zero(chosen)
            secrets = [
                combine({party: self.revealed[party][place] for party in chosen}, weights)
                for place in range(len(self.keepers))
            ]
            if list(map(check_value, secrets)) == checks:
                return secrets
        if len(openers) == len(self.group):
            raise ProtocolError("the shares that open this session do not fit together: start a new session")
        return None

    def count_submission(self, other: int, words: bytes, digest: bytes) -> None:
        """At the lead receiver: add another party's masked vector."""
        np.add(self.total, self._words(words), out=self.total)
        self.counted[other] = digest

    def _self_mask(self, secret: bytes) -> Mask:
        """In statistical mode the secret is the mask itself, otherwise its key follows from it."""
        if self.statistical:
            return self._words(secret)
        return expand(mask_seed(secret, self.transcript), self.terms.masked_words, self.terms.grid.word)

    def _words(self, data: bytes) -> Mask:
        return np.frombuffer(data, dtype=word_type(self.terms.grid.word))


def unusable_key(name: str, party: int) -> ProtocolError:
    """For a party whose key or ciphertext nobody can use."""
    return ProtocolError(f"{name} sent an unusable key: stop", offender=party)
