"""A server that follows no rules: it holds its own keys, makes terms as it likes and asks clients whatever it wants."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any

import numpy as np
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from flwr.app import ConfigRecord, Message, RecordDict
from numpy.typing import NDArray

from tests.flower.local_grid import fields
from tests.flower.world import GROUP, KEYS, OPEN, RECEIPT, Peeled, World, outbox, peel, record_of_arrays
from tpmdp.flower.introduction import question, statement
from tpmdp.flower.round_terms import Training
from tpmdp.flower.wire import bytes_of, pack, pack_text, record_of
from tpmdp.protocol.channel import open_sealed
from tpmdp.protocol.graph import MaskGraph
from tpmdp.protocol.group import to_bits
from tpmdp.protocol.hybrid import Capsule, HybridKey, exchange_hash
from tpmdp.protocol.masks import expand, mask_key, word_type
from tpmdp.protocol.messages import EVERYONE, HASH_BYTES, Kind, MessageError, decode, digest_of, encode, verify
from tpmdp.protocol.messages import Message as Signed
from tpmdp.protocol.terms import Terms
from tpmdp.spec import Party


def changed(terms: Terms, **fields: Any) -> str:
    """The canonical text of terms with some fields of their JSON replaced."""
    document = json.loads(terms.canonical())
    document.update(fields)
    return json.dumps(document, sort_keys=True, separators=(",", ":"), ensure_ascii=True)


class Hostile:
    """The server of a world. `keys` are its keys by attempt.

    It hands on the pads that clients send each other, and sends its own, with whatever it asks: without them nobody
    would submit.
    """

    def __init__(self, world: World, **training: Any) -> None:
        self.world = world
        settings: dict[str, Any] = {"name": "test", "clip": 1.0, "entries": len(world.updates[0])}
        self.training = Training(**{**settings, **training})
        self.keys = [HybridKey.fresh() for _ in range(8)]
        self._told: dict[int, dict[tuple[bytes, int], dict[int, bytes]]] = {}  # digests of keys, by whom we told them
        self._digests: dict[tuple[bytes, int, int], bytes] = {}  # of the clients' own, as `_clients`
        self._listed: dict[tuple[int, bytes, int], bytes] = {}  # by client, plan hash and attempt
        self._groups: dict[tuple[bytes, int], list[int]] = {}  # by plan hash and attempt
        self._led: dict[tuple[bytes, int], Terms] = {}  # by plan hash and attempt
        self._capsules: dict[bytes, Capsule] = {}  # by the public key of a client
        self._clients: dict[tuple[bytes, int, int], bytes] = {}  # their keys by plan hash, attempt and party
        self._pads: dict[int, dict[bytes, None]] = {}  # by the party that they are for

    @property
    def public(self) -> bytes:
        return self.world.server.public_key().public_bytes_raw()

    def clients(self) -> list[Party]:
        return [self.world.settings(number).round_party for number in range(self.world.count)]

    def terms(self, label: str = "session") -> Terms:
        return self.training.terms(label, 1, self.public, self.clients())

    # What it sends ---------------------------------------------------------------------------------------------------

    def sign(self, terms: Terms, kind: Kind, attempt: int, body: bytes, to: int = EVERYONE) -> bytes:
        return encode(Signed(kind, attempt, 0, to, terms.session, terms.plan_hash, body), self.world.server)

    def key_message(self, terms: Terms, attempt: int = 1, key: int | None = None, body: bytes = b"") -> bytes:
        own = self.keys[attempt if key is None else key]
        self._led[terms.plan_hash, attempt] = terms
        return self.sign(terms, Kind.KEYS, attempt, body or own.public)

    def group_message(self, terms: Terms, attempt: int, members: Iterable[int]) -> bytes:
        self._groups[terms.plan_hash, attempt] = sorted(members)
        return self.sign(terms, Kind(GROUP), attempt, to_bits(sorted(members), terms.count))

    def open_message(self, terms: Terms, submission: Peeled) -> bytes:
        body = digest_of(submission.data)
        return self.sign(terms, Kind(OPEN), submission.attempt, body, submission.sender)

    def receipt_message(self, terms: Terms, submission: Peeled) -> bytes:
        body = digest_of(submission.data)
        return self.sign(terms, Kind(RECEIPT), submission.attempt, body, submission.sender)

    def ask(
        self,
        number: int,
        terms: str | Terms | None = None,
        train: Terms | bytes | None = None,
        inbox: Sequence[bytes] = (),
        model: NDArray[Any] | None = None,
        kind: str = "train",
        **more: Any,
    ) -> Message:
        """Any request; `train` comes with a model."""
        asks = question(self.public, bytes(32)) if more.get("enrol") is True else {}
        self._make_pads()
        inbox = [*inbox, *self._lists(number + 1, inbox), *self._pads.get(number + 1, {})]
        fields: dict[str, Any] = {"inbox": pack(inbox), **asks, **more}
        if terms is not None:
            fields["terms"] = pack_text(terms if isinstance(terms, str) else terms.canonical())
        if train is not None:
            fields["train"] = train if isinstance(train, bytes) else train.session
        content: RecordDict = record_of(fields)
        if train is not None:
            zero = np.zeros(len(self.world.updates[0])) if model is None else model
            content["arrays"] = record_of_arrays({"w": zero})
            content["config"] = ConfigRecord({"server-round": 1})
        message = Message(content, dst_node_id=100 + number, message_type=kind)
        reply = self.world.grid.deliver(number, message)
        self._note_pads(reply)
        return reply

    def _lists(self, party: int, inbox: Sequence[bytes]) -> list[bytes]:
        """The lists of the keys that a client has been told, as soon as it has been told all; the first ones hold."""
        told = self._told.setdefault(party, {})
        for data in inbox:
            with suppress(MessageError):
                message = decode(data)
                terms = self._led.get((message.plan_hash, message.attempt))
                if message.kind == Kind.KEYS and terms is not None:
                    verify(data, terms.roster[message.sender])  # one of its own making would not be used
                    told.setdefault((message.plan_hash, message.attempt), {})[message.sender] = digest_of(data)
        for (plan_hash, attempt), digests in told.items():
            terms, own = self._led.get((plan_hash, attempt)), self._digests.get((plan_hash, attempt, party))
            if terms is None or own is None:
                continue
            members = self._groups.get((plan_hash, attempt), list(range(terms.count)))
            each = {**digests, party: own}
            if set(members) <= set(each) and (party, plan_hash, attempt) not in self._listed:
                body = b"".join(each[one] if one in members else bytes(HASH_BYTES) for one in range(terms.count))
                self._listed[party, plan_hash, attempt] = self.sign(terms, Kind.LIST, attempt, body)
        return [data for (one, *_), data in self._listed.items() if one == party]

    def _note_pads(self, reply: Message) -> None:
        """Keep what goes to other clients."""
        for message in outbox(reply) if reply.has_content() else ():
            if message.kind == Kind.PAD:
                self._pads.setdefault(message.recipient, {})[message.data] = None
            if message.kind == KEYS:
                self._clients[message.plan, message.attempt, message.sender] = message.body
                self._digests[message.plan, message.attempt, message.sender] = digest_of(message.data)

    def _make_pads(self) -> None:
        """What the server owes the clients for keys that they have sent."""
        for (plan_hash, attempt, party), public in self._clients.items():
            terms = self._led.get((plan_hash, attempt))
            if terms is not None and party in self._partners(terms, attempt)[0]:
                body = self.capsule(public).ciphertext
                self._pads.setdefault(party, {})[self.sign(terms, Kind.PAD, attempt, body, party)] = None

    def _partners(self, terms: Terms, attempt: int) -> tuple[list[int], list[int]]:
        """The clients that the server sends a pad, and those that send it one, in a circulant."""
        members = self._groups.get((terms.plan_hash, attempt), list(range(terms.count)))
        ranks = MaskGraph.draw(len(members), terms.colluders, bytes(32)).partners(members.index(0))
        return [members[rank] for rank in ranks.outgoing], [members[rank] for rank in ranks.incoming]

    def capsule(self, public: bytes) -> Capsule:
        """What the server has encapsulated to a client's key."""
        if public not in self._capsules:
            self._capsules[public] = Capsule.to(public)
        return self._capsules[public]

    def offer(self, number: int, terms: Terms | str) -> list[Peeled]:
        return outbox(self.ask(number, terms=terms))

    def offer_all(self, terms: Terms | str) -> list[bytes]:
        """The keys that all clients sign for terms."""
        replies = [self.offer(number, terms) for number in range(self.world.count)]
        return [message.data for reply in replies for message in reply if message.kind == KEYS]

    # What it makes of what it gets -----------------------------------------------------------------------------------

    def content(self, message: Peeled, client_key: bytes) -> bytes:
        """What is sealed for the server."""
        return open_sealed(self.keys[message.attempt], client_key, decode(message.data))

    def words(self, terms: Terms, submission: Peeled, client_key: bytes) -> NDArray[Any]:
        """A submission without the mask that the server shares with the client."""
        content = self.content(submission, client_key)
        words = np.frombuffer(content[32:], dtype=word_type(terms.grid.word))[: terms.grid.dimension].copy()
        own, (outgoing, incoming) = self.keys[submission.attempt], self._partners(terms, submission.attempt)
        if submission.sender in outgoing + incoming:
            ciphertext, inner = self.capsule(client_key)
            sides = own.public, client_key
            if submission.sender in incoming:
                ciphertext = self._sent_pad(submission).body
                inner, sides = own.opened(ciphertext), (client_key, own.public)
            context = content[:32] + exchange_hash(*sides, ciphertext)
            agreed = own.agreed(client_key, inner)
            key = mask_key(agreed, terms.session, 0, high=submission.sender, context=context)
            words += expand(key, len(words), terms.grid.word)  # the client, whose number is higher, has subtracted it
        return words

    def _sent_pad(self, submission: Peeled) -> Peeled:
        """What the sender of a submission has encapsulated to the server for it."""
        slot = (submission.plan, submission.attempt, submission.sender)
        return next(pad for pad in map(peel, self._pads[0]) if (pad.plan, pad.attempt, pad.sender) == slot)

    def self_mask(self, terms: Terms, reveal: Peeled, client_key: bytes) -> NDArray[Any]:
        return expand(self.content(reveal, client_key), terms.masked_words, terms.grid.word)[: terms.grid.dimension]


def sign_claim(identity: Ed25519PrivateKey, request: Message, reply: Message) -> None:
    """Sign what a reply to an enrolment claims now, even in the name of another client."""
    asked: Any = fields(request)
    claim, node = fields(reply), request.metadata.dst_node_id
    signed = statement(claim, bytes_of(asked, "server"), bytes_of(asked, "nonce"), node=node)
    claim["signature"] = identity.sign(signed)


def quiet(terms: Terms, party: int) -> Terms:
    """The same terms where one client makes no noise and all others make more: good for all, if all keep to it."""
    sigma = np.full(terms.count, math.isqrt(int(np.sum(terms.sigma.astype(object) ** 2))) + 1, dtype=np.int64)
    sigma[party] = 0
    return replace(terms, sigma=sigma)
