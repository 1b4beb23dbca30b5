"""A server that follows no rules: it holds its own keys, makes terms as it likes and asks clients whatever it wants."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any

import numpy as np
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from flwr.app import ConfigRecord, Message, RecordDict
from numpy.typing import NDArray

from tests.flower.local_grid import fields
from tests.flower.world import GROUP, KEYS, OPEN, RECEIPT, REVEAL, SHARE, Peeled, World, outbox, peel, record_of_arrays
from tpmdp.flower.introduction import question, statement
from tpmdp.flower.round_terms import Training
from tpmdp.flower.wire import bytes_of, pack, pack_text, record_of
from tpmdp.protocol.channel import open_sealed, seal
from tpmdp.protocol.graph import MaskGraph
from tpmdp.protocol.group import to_bits
from tpmdp.protocol.hybrid import Capsule, HybridKey, exchange_hash
from tpmdp.protocol.keepers import draw_keepers
from tpmdp.protocol.masks import expand, mask_key, word_type
from tpmdp.protocol.messages import EVERYONE, HASH_BYTES, Kind, MessageError, decode, digest_of, encode, verify
from tpmdp.protocol.messages import Message as Signed
from tpmdp.protocol.rules import COUNTED_BYTES
from tpmdp.protocol.shares import SHARE_BYTES, check_value, combine, mask_seed
from tpmdp.protocol.terms import Terms
from tpmdp.spec import Party


def changed(terms: Terms, **fields: Any) -> str:
    """The canonical text of terms with some fields of their JSON replaced."""
    document = json.loads(terms.canonical())
    document.update(fields)
    return json.dumps(document, sort_keys=True, separators=(",", ":"), ensure_ascii=True)


class Hostile:
    """The server of a world. `keys` are its keys by attempt; the `colluding` clients give it theirs.

    It hands on the pads and shares that clients send each other, and sends those of the parties that it plays, with
    whatever it asks: without them nobody would submit, and nobody would open anything.
    """

    def __init__(self, world: World, colluding: Iterable[int] = (), **training: Any) -> None:
        self.world = world
        settings: dict[str, Any] = {"name": "test", "clip": 1.0, "entries": len(world.updates[0])}
        self.training = Training(**{**settings, **training})
        self.keys = [HybridKey.fresh() for _ in range(8)]
        self.colluding = {client + 1: [HybridKey.fresh() for _ in range(8)] for client in colluding}  # by party
        self.gives_shares = True  # whether colluding keepers send theirs
        self._told: dict[int, dict[tuple[bytes, int], dict[int, bytes]]] = {}  # digests of keys, by whom we told them
        self._digests: dict[tuple[bytes, int, int], bytes] = {}  # of the clients' own, as `_clients`
        self._listed: dict[tuple[int, bytes, int], bytes] = {}  # by client, plan hash and attempt
        self._views: dict[tuple[int, bytes, int], dict[int, bytes]] = {}  # the digests in it, by party
        self._groups: dict[tuple[bytes, int], list[int]] = {}  # by plan hash and attempt
        self._led: dict[tuple[bytes, int], Terms] = {}  # by plan hash and attempt
        self._capsules: dict[tuple[int, bytes], Capsule] = {}  # by the party that it plays, and a client's public key
        self._clients: dict[tuple[bytes, int, int], bytes] = {}  # their keys by plan hash, attempt and party
        self._mail: dict[int, dict[bytes, None]] = {}  # by the party that it is for

    @property
    def public(self) -> bytes:
        return self.world.server.public_key().public_bytes_raw()

    def clients(self) -> list[Party]:
        return [self.world.settings(number).round_party for number in range(self.world.count)]

    def terms(self, label: str = "session") -> Terms:
        return self.training.terms(label, 1, self.public, self.clients())

    # What it sends ---------------------------------------------------------------------------------------------------

    def sign(self, terms: Terms, kind: Kind, attempt: int, body: bytes, to: int = EVERYONE, sender: int = 0) -> bytes:
        envelope = Signed(kind, attempt, sender, to, terms.session, terms.plan_hash, body)
        return encode(envelope, self._identity(sender))

    def _identity(self, party: int) -> Ed25519PrivateKey:
        """Of the server, or of a client that colludes with it."""
        assert party == 0 or party in self.colluding
        return self.world.settings(party - 1).identity if party else self.world.server

    def _own(self, party: int, attempt: int) -> HybridKey:
        return self.colluding[party][attempt] if party else self.keys[attempt]

    def key_message(self, terms: Terms, attempt: int = 1, key: int | None = None, body: bytes = b"") -> bytes:
        own = self.keys[attempt if key is None else key]
        self._led[terms.plan_hash, attempt] = terms
        return self.sign(terms, Kind.KEYS, attempt, body or own.public)

    def colluder_key(self, terms: Terms, party: int, attempt: int = 1) -> bytes:
        """The key of a client that colludes with the server."""
        return self.sign(terms, Kind.KEYS, attempt, self._own(party, attempt).public, sender=party)

    def group_message(self, terms: Terms, attempt: int, members: Iterable[int]) -> bytes:
        self._groups[terms.plan_hash, attempt] = sorted(members)
        return self.sign(terms, Kind(GROUP), attempt, to_bits(sorted(members), terms.count))

    def open_message(self, terms: Terms, submission: Peeled) -> bytes:
        body = digest_of(submission.data)
        return self.sign(terms, Kind(OPEN), submission.attempt, body, submission.sender)

    def receipt_message(self, terms: Terms, submission: Peeled) -> bytes:
        halves = [bytes(COUNTED_BYTES)] * terms.count
        halves[submission.sender] = digest_of(submission.data)[:COUNTED_BYTES]
        return self.sign(terms, Kind(RECEIPT), submission.attempt, b"".join(halves))

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
        lists = self._lists(number + 1, inbox)
        self._make_pads()
        self._make_shares()
        mail = [data for data in self._mail.get(number + 1, {}) if self._is_of_use(peel(data))]
        inbox = [*inbox, *lists, *mail]
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
        self._note(reply)
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
                view = {member: each[member] for member in members}
                body = b"".join(view.get(place, bytes(HASH_BYTES)) for place in range(terms.count))
                self._views[party, plan_hash, attempt] = view
                self._listed[party, plan_hash, attempt] = self.sign(terms, Kind.LIST, attempt, body)
        return [data for (recipient, *_), data in self._listed.items() if recipient == party]

    def _note(self, reply: Message) -> None:
        """Keep keys, and what goes to other clients or opens an attempt."""
        for message in outbox(reply) if reply.has_content() else ():
            if message.kind in (Kind.PAD, SHARE, REVEAL):
                self._mail.setdefault(message.recipient, {})[message.data] = None
            if message.kind == KEYS:
                self._clients[message.plan, message.attempt, message.sender] = message.body
                self._digests[message.plan, message.attempt, message.sender] = digest_of(message.data)

    def _is_of_use(self, message: Peeled) -> bool:
        """Whether the recipient of a share sees the same keys as its sender, and would not stop."""
        place = message.plan, message.attempt
        sender, recipient = self._views.get((message.sender, *place)), self._views.get((message.recipient, *place))
        return message.kind != SHARE or message.sender in self.colluding or (sender is not None and sender == recipient)

    def _make_pads(self) -> None:
        """What the server, and clients that collude with it, owe the clients for keys that they have sent."""
        for (plan_hash, attempt, party), public in self._clients.items():
            terms = self._led.get((plan_hash, attempt))
            for own in (0, *self.colluding) if terms is not None else ():
                assert terms is not None
                if own not in self._members(terms, attempt) or party not in self._partners(terms, attempt, own)[0]:
                    continue
                if terms.guarantee == "statistical":
                    if (party, plan_hash, attempt) not in self._views:
                        continue
                    content = self.bound(terms, attempt, party) + bytes(terms.masked_bytes)
                    data = self._sealed(terms, Kind.PAD, attempt, sender=own, to=party, content=content)
                else:
                    ciphertext = self.capsule(public, own).ciphertext
                    data = self.sign(terms, Kind.PAD, attempt, ciphertext, to=party, sender=own)
                self._mail.setdefault(party, {})[data] = None

    def _make_shares(self) -> None:
        """Shares of zero from colluding keepers, for each client that sees them as such."""
        for party, plan_hash, attempt in self._views if self.gives_shares else ():
            terms = self._led[plan_hash, attempt]
            for keeper in self.colluding.keys() & set(self.keepers(terms, attempt, party)):
                nothing = bytes(SHARE_BYTES)
                content = self.bound(terms, attempt, party) + check_value(nothing) + nothing
                data = self._sealed(terms, Kind.SHARE, attempt, sender=keeper, to=party, content=content)
                self._mail.setdefault(party, {})[data] = None

    def _sealed(self, terms: Terms, kind: Kind, attempt: int, *, sender: int, to: int, content: bytes) -> bytes:
        public = self._clients[terms.plan_hash, attempt, to]
        envelope = Signed(kind, attempt, sender, to, terms.session, terms.plan_hash, b"")
        capsule = self.capsule(public, sender)
        sealed = seal(self._own(sender, attempt), public, envelope, capsule=capsule, content=content)
        return encode(sealed, self._identity(sender))

    def bound(self, terms: Terms, attempt: int, party: int) -> bytes:
        """What a client's masks are bound to, by the list of keys that it was told."""
        return self._bound(terms, self._views[party, terms.plan_hash, attempt])

    def _bound(self, terms: Terms, view: Mapping[int, bytes]) -> bytes:
        members, domain = sorted(view), b"tpmdp keys 2"
        if terms.tolerate:
            sigma = terms.among(members).sigma.astype(">i8").tobytes()
            domain = b"tpmdp group 3" + to_bits(members, terms.count) + terms.openings.to_bytes(8, "big") + sigma
        return hashlib.sha256(domain + b"".join(view[member] for member in members)).digest()

    def keepers(self, terms: Terms, attempt: int, party: int) -> tuple[int, ...]:
        """Who keeps the attempt closed, by the list of keys that a client was told."""
        return self._keepers(terms, self._views[party, terms.plan_hash, attempt])

    def _keepers(self, terms: Terms, view: Mapping[int, bytes]) -> tuple[int, ...]:
        if not terms.tolerate or terms.guarantee == "statistical":
            return ()
        return draw_keepers(self._bound(terms, view), sorted(view), 0, threshold=terms.colluders)

    def keepers_with(self, terms: Terms, keys: Iterable[bytes]) -> tuple[int, ...]:
        """Who would keep an attempt closed with these keys."""
        return self._keepers(terms, {peel(data).sender: digest_of(data) for data in keys})

    def _members(self, terms: Terms, attempt: int) -> list[int]:
        return self._groups.get((terms.plan_hash, attempt), list(range(terms.count)))

    def _partners(self, terms: Terms, attempt: int, party: int = 0) -> tuple[list[int], list[int]]:
        """Whom a party sends a pad, and who sends it one, in a circulant."""
        members = self._members(terms, attempt)
        ranks = MaskGraph.draw(len(members), terms.colluders, bytes(32)).partners(members.index(party))
        return [members[rank] for rank in ranks.outgoing], [members[rank] for rank in ranks.incoming]

    def capsule(self, public: bytes, party: int = 0) -> Capsule:
        """What a party that it plays has encapsulated to a client's key."""
        if (party, public) not in self._capsules:
            self._capsules[party, public] = Capsule.to(public)
        return self._capsules[party, public]

    def offer(self, number: int, terms: Terms | str) -> list[Peeled]:
        return outbox(self.ask(number, terms=terms))

    def offer_all(self, terms: Terms | str) -> list[bytes]:
        """The keys that all clients sign for terms."""
        keys = []
        for number in range(self.world.count):
            if number + 1 in self.colluding:
                keys.append(self.colluder_key(terms if isinstance(terms, Terms) else Terms.parse(terms), number + 1))
            else:
                keys += [message.data for message in self.offer(number, terms) if message.kind == KEYS]
        return keys

    # What it makes of what it gets -----------------------------------------------------------------------------------

    def content(self, message: Peeled, client_key: bytes) -> bytes:
        """What is sealed for the server, or for a client that colludes with it."""
        return open_sealed(self._own(message.recipient, message.attempt), client_key, decode(message.data))

    def words(self, terms: Terms, submission: Peeled, client_key: bytes) -> NDArray[Any]:
        """A submission without the masks that the client shares with the server, and with those who collude with it."""
        content, client = self.content(submission, client_key), submission.sender
        words = np.frombuffer(content[32:], dtype=word_type(terms.grid.word))[: terms.grid.dimension].copy()
        for party in {0, *self.colluding} & set(self._members(terms, submission.attempt)):
            own = self._own(party, submission.attempt)
            outgoing, incoming = self._partners(terms, submission.attempt, party)
            if client not in outgoing + incoming:
                continue
            ciphertext, inner = self.capsule(client_key, party)
            sides = own.public, client_key
            if client in incoming:
                ciphertext = self._sent_pad(submission, party).body
                inner, sides = own.opened(ciphertext), (client_key, own.public)
            context = content[:32] + exchange_hash(*sides, ciphertext)
            low, high = sorted((party, client))
            key = mask_key(own.agreed(client_key, inner), terms.session, low, high=high, context=context)
            mask = expand(key, len(words), terms.grid.word)
            words = words + mask if client > party else words - mask  # the client has done the opposite
        return words

    def _sent_pad(self, submission: Peeled, party: int) -> Peeled:
        """What the sender of a submission has encapsulated to a party for it."""
        slot = (Kind.PAD, submission.plan, submission.attempt, submission.sender)
        return next(
            pad for pad in map(peel, self._mail[party]) if (pad.kind, pad.plan, pad.attempt, pad.sender) == slot
        )

    def shares(self, terms: Terms, attempt: int, party: int) -> dict[int, dict[int, bytes]]:
        """All shares of honest keepers' seeds that it has, by keeper and holder, for the keys that a client saw."""
        view, bound = self._views[party, terms.plan_hash, attempt], self.bound(terms, attempt, party)
        shares: dict[int, dict[int, bytes]] = {
            keeper: {} for keeper in self._keepers(terms, view) if keeper not in self.colluding
        }
        mail = [peel(data) for holder in (0, *self.colluding) for data in self._mail.get(holder, {})]
        for message in mail:
            place = message.sender, terms.plan_hash, attempt
            if (message.plan, message.attempt) != place[1:] or self._views.get(place) != view:
                continue
            if message.kind == SHARE:
                content = self.content(message, self._clients[terms.plan_hash, attempt, message.sender])
                assert content[:32] == bound
                shares[message.sender][message.recipient] = content[-SHARE_BYTES:]
            if message.kind == REVEAL:
                content = self.content(message, self._clients[terms.plan_hash, attempt, message.sender])
                assert len(content) == terms.keepers_max * SHARE_BYTES
                for start, keeper in enumerate(self._keepers(terms, view)):
                    if keeper in shares:
                        share = content[start * SHARE_BYTES : (start + 1) * SHARE_BYTES]
                        shares[keeper][message.sender] = share
        return shares

    def keeper_masks(self, terms: Terms, attempt: int, party: int) -> dict[int, NDArray[Any]]:
        """The masks of honest keepers that it has shares enough for, by keeper."""
        bound, length = self.bound(terms, attempt, party), terms.masked_words
        return {
            keeper: expand(
                mask_seed(combine(dict(list(each.items())[: terms.openings])), bound), length, terms.grid.word
            )[: terms.grid.dimension]
            for keeper, each in self.shares(terms, attempt, party).items()
            if len(each) >= terms.openings
        }

    def unmasked(self, terms: Terms, submission: Peeled, client_key: bytes) -> NDArray[Any]:
        """A submission without all masks that it knows."""
        words = self.words(terms, submission, client_key)
        masks = self.keeper_masks(terms, submission.attempt, submission.sender)
        return words - masks[submission.sender] if submission.sender in masks else words


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
