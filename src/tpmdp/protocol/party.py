"""One party of the masked-sum protocol, as a state machine without input or output.

`start` and `receive` return the messages to send; whoever moves the bytes decides how. Steps: *agree* (sign study and
plan), *keys* (a fresh key for this attempt), *submit* (the masked vector, sealed for the lead receiver) and *receive*
(the sum to the receivers, a receipt to everybody else). A retry is a new attempt with fresh keys for the same vector,
noise included; whoever hears of a higher attempt joins it. docs/theory.md, "The protocol".

Where parties may drop out (`Terms.tolerate`) the lead receiver says who is in an attempt; each submission also carries
a mask of its owner's own, which the owner reveals once in a session: when all of the group have submitted. What was
submitted to any other attempt stays hidden for ever. docs/theory.md, "Parties that drop out".
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field

import numpy as np
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey

from tpmdp._util.arrays import IntArray
from tpmdp.errors import InputError, TpmdpError
from tpmdp.protocol.channel import SEAL_BYTES, open_sealed, seal
from tpmdp.protocol.group import from_bits, to_bits
from tpmdp.protocol.masks import Mask, apply, expand, from_words, mask_key, word_type
from tpmdp.protocol.messages import (
    ATTEMPTS_MAX,
    EVERYONE,
    HASH_BYTES,
    Kind,
    Message,
    MessageError,
    decode,
    digest_of,
    encode,
)
from tpmdp.protocol.messages import verify as verify_signature
from tpmdp.protocol.secrets import KEY_BYTES, Secrets, Submitted
from tpmdp.protocol.terms import Terms


class ProtocolError(TpmdpError):
    """A party provably broke the protocol; the session must stop. Names the party."""


class TooEarlyError(TpmdpError):
    """A good message that cannot be used yet: deliver it again later."""


def check_identity(terms: Terms, index: int, identity: Ed25519PrivateKey) -> None:
    """Refuse a key that is not the one the terms list for the party."""
    if terms.roster[index] != identity.public_key().public_bytes_raw():
        remedy = "use the key file whose public key the study lists"
        field = f"key of {terms.spec.name(index)}"
        raise InputError(field, "(not shown)", "does not fit its public key in the study", remedy)


@dataclass(eq=False, repr=False)
class _Attempt:
    """What a party knows of one attempt."""

    number: int
    own: X25519PrivateKey
    total: Mask  # own vector, then pads and masks; at the lead receiver also what the others sent
    members: frozenset[int] | None  # who is in it; None while the lead receiver has not said
    keys: dict[int, bytes] = field(default_factory=dict)
    digests: dict[int, bytes] = field(default_factory=dict)  # of the messages that brought the keys
    padded: set[int] = field(default_factory=set)  # neighbours whose pad is in `total`
    pads_sent: bool = False
    submitted: bytes = b""  # digest of the own submission
    counted: dict[int, bytes] = field(default_factory=dict)  # at the lead receiver: digest of each submission
    opened: bool = False  # at the lead receiver: all have submitted and are asked to reveal
    revealed: set[int] = field(default_factory=set)  # at the lead receiver: whose self-mask is out of `total`

    def transcript(self, count: int) -> bytes:
        """Equal for all parties exactly if all saw the same keys, of the same group."""
        members = sorted(self.members or ())
        domain = b"tpmdp keys 1" if len(members) == count else b"tpmdp group 1" + to_bits(members, count)
        return hashlib.sha256(domain + b"".join(self.digests[party] for party in members)).digest()


class PartySession:
    """One party in one session. `vector` is what it contributes, noise included, as residues of the grid's word."""

    def __init__(
        self, terms: Terms, index: int, identity: Ed25519PrivateKey, vector: Mask, secrets: Secrets, attempt: int = 1
    ) -> None:
        check_identity(terms, index, identity)
        if vector.shape != (terms.grid.dimension,) or vector.dtype != word_type(terms.grid.word):
            rule = f"must be {terms.grid.dimension} words of {terms.grid.word} bits"
            raise InputError("vector", f"{vector.dtype}{vector.shape}", rule, "encode it on the grid of the session")
        terms.check(index)
        self.terms, self.index = terms, index
        self._identity, self._vector, self._secrets = identity, vector, secrets
        self._agreed: set[int] = set()
        self._seen: dict[tuple[int, int, int, int], bytes] = {}
        self._submitted = secrets.submissions()  # in this life or an earlier one
        self._groups: dict[int, frozenset[int]] = {1: frozenset(range(terms.count))}
        self._attempt = self._new_attempt(attempt)
        self._answered = 0  # the attempt whose answer this party has
        self.result: IntArray | None = None  # receivers: the sum, in grid steps
        self.receipt = False  # others: the lead receiver counted our submission

    def __repr__(self) -> str:
        return f"PartySession({self.terms.spec.name(self.index)}, attempt {self.attempt})"

    # What the outside asks -------------------------------------------------------------------------------------------

    @property
    def attempt(self) -> int:
        """The attempt this party is in."""
        return self._attempt.number

    @property
    def members(self) -> frozenset[int]:
        """Who is counted in the answer this party has, or in the attempt under way."""
        return self._groups.get(self._answered or self.attempt, frozenset())

    @property
    def _newest(self) -> int:
        """The highest attempt that we are in or have heard of."""
        return max(self.attempt, *self._groups)

    @property
    def left_out(self) -> bool:
        """Whether the lead receiver went on without us."""
        return self._newest > self.attempt and self.index not in self._groups.get(self._newest, frozenset())

    @property
    def may_drop(self) -> bool:
        """Whether parties may drop out of this session."""
        return self.terms.tolerate > 0

    @property
    def is_lead(self) -> bool:
        """Whether this party adds up."""
        return self.index == self.terms.lead

    @property
    def done(self) -> bool:
        """Whether this party has all it will get."""
        return self.result is not None or self.receipt

    @property
    def step(self) -> str:
        """Where this party stands: agree, group, keys, pads, submit, reveal, receive or done."""
        if self.done:
            return "done"
        members = self._attempt.members
        if members is None:
            return "group"
        if not members <= self._agreed:
            return "agree"
        if not members <= set(self._attempt.keys):
            return "keys"
        if self._attempt.opened:
            return "reveal"
        return "receive" if self._attempt.submitted else "pads"

    @property
    def expects(self) -> frozenset[Kind]:
        """Kinds of message that can be used now. Asking for no others keeps a receiver's memory at one vector."""
        kinds = {Kind.KEYS}
        if self.is_lead and self.step == "agree":
            kinds.add(Kind.AGREE)
        if self.may_drop and not self.is_lead:
            kinds |= {Kind.GROUP, Kind.OPEN}
        if self.step == "reveal":
            kinds.add(Kind.REVEAL)
        if self.step == "pads":
            kinds.add(Kind.PAD)
        if self.step == "receive" and self.is_lead:
            kinds.add(Kind.SUBMIT)
        if self._submitted and not self.is_lead:  # the answer may be to an earlier attempt
            kinds.add(Kind.RESULT if self.terms.spec.receivers[self.index] else Kind.RECEIPT)
        return frozenset(kinds)

    @property
    def missing(self) -> int:
        """How many messages are missing before this party can do more than take them in."""
        members = self._attempt.members
        if self.step in ("agree", "keys") and members is not None:
            agreements = len(members - self._agreed) if self.is_lead else 0
            return agreements + len(members - set(self._attempt.keys))
        return len(self.waiting_for()) if self.step in ("pads", "reveal") else 1

    def waiting_for(self) -> list[int]:
        """The parties whose message is missing now."""
        everyone = set(self._attempt.members or ())
        missing = {
            "agree": everyone - self._agreed,
            "group": {self.terms.lead},
            "keys": everyone - set(self._attempt.keys),
            "pads": self._pads_from() - self._attempt.padded,
            "receive": everyone - set(self._attempt.counted) if self.is_lead else {self.terms.lead},
            "reveal": everyone - self._attempt.revealed - {self.index},
            "done": set(),
        }
        return sorted(missing[self.step])

    # What moves it ---------------------------------------------------------------------------------------------------

    def start(self) -> list[bytes]:
        """The first messages: agreement and key. Sending them again after a crash is harmless: they are the same."""
        self._agreed.add(self.index)
        return [self._message(Kind.AGREE, EVERYONE, b"", attempt=0), *self._announce()]

    def retry(self) -> list[bytes]:
        """Begin a new attempt with fresh keys; the vector, and so the noise in it, stays the same.

        Where parties may drop out only the lead receiver begins one, and none once one is to be opened.
        """
        if self.done or (self.may_drop and not self.is_lead):
            return []
        return self._again(frozenset(range(self.terms.count)))

    def drop_missing(self) -> list[bytes]:
        """At the lead receiver: begin a new attempt without those whose message is missing, if they may drop out.

        Nothing where too many are missing, or where all have submitted: who is lost then ends the session. Who waits
        for a pad of somebody who is lost (statistical mode) has not submitted either, and is not left out.
        """
        members, missing = self._attempt.members, frozenset(self.waiting_for())
        if self.done or not self.may_drop or not self.is_lead or members is None or not missing:
            return []
        lost = missing if self.step in ("agree", "keys", "receive") else frozenset[int]()  # keys will tell who
        if self.terms.guarantee == "statistical" and self.step == "receive":
            lost = frozenset(party for party in missing if not self._waits(party, missing))
        if self.terms.count - len(members - lost) > self.terms.tolerate:
            return []
        if not lost and self._groups.get(self.attempt - 1) == members:
            return []  # all had keys twice, and somebody sends no pad
        return self._again(members - lost)

    def _waits(self, party: int, missing: frozenset[int]) -> bool:
        """Whether a party may be waiting for the pad of another whose submission is missing."""
        return any(other < party for other in self.terms.neighbours(party) if other in missing)

    def _again(self, members: frozenset[int]) -> list[bytes]:
        if self.may_drop and self._secrets.opening(0):
            return []
        return self._advance(self.attempt + 1, members)

    def receive(self, data: bytes) -> list[bytes]:
        """Take in a message from outside and return what to send.

        MessageError: not a message of this session; drop it. TooEarlyError: deliver it again. ProtocolError: stop.
        """
        message = decode(data)
        digest = self._authenticate(message, data)
        if message.slot in self._seen:
            if self._seen[message.slot] != digest:
                raise ProtocolError(f"{self._name(message)} sent two different {message.kind.name} messages: stop")
            return []
        self._check(message)
        if self.done:
            return []
        if message.attempt < self.attempt and message.kind not in (Kind.AGREE, Kind.RESULT, Kind.RECEIPT):
            return []  # of an attempt that was given up
        if message.kind == Kind.KEYS and self.index not in self._groups.get(message.attempt, {self.index}):
            return []  # of an attempt that we are not in
        sent = self._handlers[message.kind](self, message, digest)
        self._seen[message.slot] = digest
        return sent + self._proceed()

    def _authenticate(self, message: Message, data: bytes) -> bytes:
        if message.session != self.terms.session:
            raise MessageError("a message of another session")
        if message.sender >= self.terms.count or message.sender == self.index:
            raise MessageError("a message from nobody else in this session")
        if message.recipient not in (self.index, EVERYONE):
            raise MessageError("a message to somebody else")
        return verify_signature(data, self.terms.roster[message.sender])

    def _check(self, message: Message) -> None:
        """Rules that only a sender who breaks the protocol can violate."""
        if message.plan_hash != self.terms.plan_hash:
            raise ProtocolError(
                f"{self._name(message)} signed another study or plan ({message.plan_hash.hex()[:12]}) than this one "
                f"({self.terms.plan_hash.hex()[:12]}): compare the study files and versions of tpmdp"
            )
        words = self.terms.words_bytes
        length, broadcast, from_lead = {
            Kind.AGREE: (0, True, False),
            Kind.KEYS: (KEY_BYTES, True, False),
            Kind.PAD: (SEAL_BYTES + words + HASH_BYTES * self.may_drop, False, False),
            Kind.SUBMIT: (SEAL_BYTES + HASH_BYTES + words, False, False),
            Kind.RESULT: (SEAL_BYTES + words, False, True),
            Kind.RECEIPT: (HASH_BYTES, False, True),
            Kind.GROUP: ((self.terms.count + 7) // 8, True, True),
            Kind.OPEN: (HASH_BYTES, False, True),
            Kind.REVEAL: (SEAL_BYTES + self._own_mask_bytes, False, False),
        }[message.kind]
        good = len(message.body) == length and (message.recipient == EVERYONE) == broadcast
        good &= (message.attempt == 0) == (message.kind == Kind.AGREE)
        good &= not from_lead or message.sender == self.terms.lead
        good &= message.kind not in (Kind.SUBMIT, Kind.REVEAL) or self.is_lead
        good &= self.may_drop or message.kind not in (Kind.GROUP, Kind.OPEN, Kind.REVEAL)
        good &= message.attempt > 1 or message.kind != Kind.GROUP  # all are in the first attempt
        receives = bool(self.terms.spec.receivers[self.index])
        good &= receives if message.kind == Kind.RESULT else not receives if message.kind == Kind.RECEIPT else True
        if not good:
            raise ProtocolError(
                f"{self._name(message)} sent a {message.kind.name} message that breaks the protocol: stop"
            )

    # Handlers, one a kind --------------------------------------------------------------------------------------------

    def _on_agree(self, message: Message, digest: bytes) -> list[bytes]:
        del digest
        self._agreed.add(message.sender)
        return []

    def _on_keys(self, message: Message, digest: bytes) -> list[bytes]:
        if message.attempt > self.attempt and self.may_drop:
            raise TooEarlyError("a key before we know who is in the attempt")
        everyone = frozenset(range(self.terms.count))
        sent = self._advance(message.attempt, everyone) if message.attempt > self.attempt else []
        if not self.is_lead or self.may_drop:  # a key is signed with the plan hash, too
            self._agreed.add(message.sender)
        self._attempt.keys[message.sender] = message.body
        self._attempt.digests[message.sender] = digest
        return sent

    def _on_pad(self, message: Message, digest: bytes) -> list[bytes]:
        del digest
        if message.attempt > self.attempt or not self._ready:
            raise TooEarlyError("a pad before the keys")
        if message.sender not in self._pads_from():
            raise ProtocolError(f"{self._name(message)} sent a pad and is no neighbour of ours: stop")
        content, words = self._opened(message), self.terms.words_bytes
        if content[: len(content) - words] != self._bound:
            raise ProtocolError(f"{self._name(message)} saw another group or other keys than we did: stop")
        self._mask(message.sender, content[len(content) - words :])
        self._attempt.padded.add(message.sender)
        return []

    def _on_submit(self, message: Message, digest: bytes) -> list[bytes]:
        attempt = self._attempt
        if message.attempt > self.attempt or not attempt.submitted:
            raise TooEarlyError("a submission before the keys")
        if message.sender not in (attempt.members or ()):
            raise ProtocolError(f"{self._name(message)} submitted to an attempt it is not in: stop")
        content = self._opened(message)
        if content[:HASH_BYTES] != attempt.transcript(self.terms.count):
            raise ProtocolError(f"{self._name(message)} saw other keys than we did: somebody sent two kinds, stop")
        words = np.frombuffer(content, dtype=word_type(self.terms.grid.word), offset=HASH_BYTES)
        np.add(attempt.total, words, out=attempt.total)
        attempt.counted[message.sender] = digest
        return []

    def _on_result(self, message: Message, digest: bytes) -> list[bytes]:
        del digest
        submitted = self._submitted_in(message)
        own = X25519PrivateKey.from_private_bytes(self._secrets.key(message.attempt))
        words = self._open(own, submitted.lead_key, message)
        self.result = from_words(np.frombuffer(words, dtype=word_type(self.terms.grid.word)), self.terms.grid.word)
        self._answered = message.attempt
        return []

    def _on_group(self, message: Message, digest: bytes) -> list[bytes]:
        """A new attempt; or, after a restart, who is in the one we are in."""
        del digest
        try:
            members = from_bits(message.body, self.terms.count)
        except MessageError as error:
            raise ProtocolError(f"{self._name(message)}: {error}, stop") from None
        if self.terms.lead not in members or self.terms.count - len(members) > self.terms.tolerate:
            raise ProtocolError(f"{self._name(message)} went on with too few parties: stop")
        opening = self._secrets.opening(0)
        if opening and message.attempt > opening:
            raise ProtocolError(f"{self._name(message)} wants to open a second time: stop")
        self._groups[message.attempt] = members
        if self.index not in members:
            return []  # it went on without us; a later attempt may have us again
        if message.attempt > self.attempt:
            return self._advance(message.attempt, members)
        if self._attempt.members not in (None, members):
            raise ProtocolError(f"{self._name(message)} named two groups for one attempt: stop")
        self._attempt.members = members
        return []

    def _on_open(self, message: Message, digest: bytes) -> list[bytes]:
        """All of the group have submitted: reveal our own mask, once in a session and for this attempt only."""
        del digest
        attempt = self._attempt
        if message.attempt > attempt.number or message.attempt not in self._submitted:
            raise TooEarlyError("to be opened before our submission")
        if message.attempt < self._newest:
            return []
        submitted = self._submitted_in(message)  # perhaps in an earlier life: we may not have the others' keys again
        if message.body != submitted.digest:
            raise ProtocolError(f"{self._name(message)} counted something that we did not submit: stop")
        if self._secrets.opening(attempt.number) != attempt.number:
            raise ProtocolError(f"{self._name(message)} wants to open a second time: stop")
        return [self._sealed(Kind.REVEAL, self.terms.lead, self._own_mask(), submitted.lead_key)]

    def _on_reveal(self, message: Message, digest: bytes) -> list[bytes]:
        del digest
        attempt = self._attempt
        if message.attempt > attempt.number or not attempt.opened:
            raise TooEarlyError("a self-mask before all have submitted")
        if message.sender not in (attempt.members or ()):
            raise ProtocolError(f"{self._name(message)} revealed in an attempt it is not in: stop")
        np.subtract(attempt.total, self._expanded(self._opened(message)), out=attempt.total)
        attempt.revealed.add(message.sender)
        return []

    def _on_receipt(self, message: Message, digest: bytes) -> list[bytes]:
        del digest
        if message.body != self._submitted_in(message).digest:
            raise ProtocolError(f"{self._name(message)} counted something that we did not submit: stop")
        self.receipt = True
        self._answered = message.attempt
        return []

    _handlers = {  # noqa: RUF012
        Kind.AGREE: _on_agree,
        Kind.KEYS: _on_keys,
        Kind.PAD: _on_pad,
        Kind.SUBMIT: _on_submit,
        Kind.RESULT: _on_result,
        Kind.RECEIPT: _on_receipt,
        Kind.GROUP: _on_group,
        Kind.OPEN: _on_open,
        Kind.REVEAL: _on_reveal,
    }

    # Steps -----------------------------------------------------------------------------------------------------------

    @property
    def _ready(self) -> bool:
        """Nothing that depends on the data leaves before all of the group have signed the plan and sent their keys."""
        members = self._attempt.members
        return members is not None and members <= self._agreed and members <= set(self._attempt.keys)

    def _proceed(self) -> list[bytes]:
        if self.done or len(self._attempt.keys) < len(self._attempt.members or ()) or not self._ready:
            return []
        early = self.is_lead or self.terms.guarantee == "statistical"  # others bind as they submit
        if self.may_drop and early and self._secrets.bind(self.attempt, self._bound) != self._bound:
            raise self._other_life()
        sent = self._send_pads()
        attempt = self._attempt
        if not attempt.submitted and attempt.padded == self._pads_from():
            sent += self._submit()
        if self.is_lead and attempt.counted and attempt.members == frozenset(attempt.counted):
            if not self.may_drop:
                sent += self._finish()
            elif not attempt.opened:
                sent += self._ask_to_reveal()
            if attempt.opened and attempt.revealed | {self.index} == attempt.members:
                sent += self._finish()
        return sent

    def _ask_to_reveal(self) -> list[bytes]:
        """At the lead receiver: this attempt will be opened, and no other of the session ever."""
        attempt = self._attempt
        if self._secrets.opening(attempt.number) != attempt.number:
            raise ProtocolError("another attempt of this session was to be opened: start a new session")
        attempt.opened = True
        others = sorted((attempt.members or frozenset()) - {self.index})
        return [self._message(Kind.OPEN, other, attempt.counted[other]) for other in others]

    def _new_attempt(self, number: int, members: frozenset[int] | None = None) -> _Attempt:
        if not 1 <= number <= ATTEMPTS_MAX:
            raise ProtocolError(f"attempt {number} is more than a session allows ({ATTEMPTS_MAX}): start a new session")
        if number == 1 or not self.may_drop:
            members = frozenset(range(self.terms.count))
        elif self.is_lead:  # what was said first holds, also after a crash; kept before the key, so never without
            bits = self._secrets.group(number, to_bits(members, self.terms.count) if members else b"")
            if not bits:
                raise ProtocolError(f"the group of attempt {number} is lost: start a new session")
            members = from_bits(bits, self.terms.count)
        own = X25519PrivateKey.from_private_bytes(self._secrets.key(number))
        if members is not None:
            self._groups[number] = members
        return _Attempt(number, own, self._vector.copy(), members)

    def _advance(self, number: int, members: frozenset[int]) -> list[bytes]:
        given_up = self.attempt
        self._attempt = self._new_attempt(number, members)
        self._secrets.forget_pads(given_up)  # not before the new key is kept: a crash must not bring the old one back
        return self._announce()

    def _announce(self) -> list[bytes]:
        attempt = self._attempt
        public = attempt.own.public_key().public_bytes_raw()
        data = self._message(Kind.KEYS, EVERYONE, public)
        attempt.keys[self.index] = public
        attempt.digests[self.index] = digest_of(data)
        if self.is_lead and self.may_drop and attempt.number > 1:
            bits = to_bits(self._groups[attempt.number], self.terms.count)
            return [self._message(Kind.GROUP, EVERYONE, bits), data]
        return [data]

    def _pads_from(self) -> set[int]:
        """The neighbours that send us a pad: in statistical mode, those before us."""
        if self.terms.guarantee != "statistical":
            return set()
        return {other for other in self._neighbours() if other < self.index}

    def _neighbours(self) -> list[int]:
        """With whom we share masks: those of our neighbours that are in the attempt."""
        members = self._attempt.members or frozenset()
        return [other for other in self.terms.neighbours(self.index) if other in members]

    @property
    def _bound(self) -> bytes:
        """What masks are bound to where parties may drop out: parties that know different groups share no mask."""
        return self._attempt.transcript(self.terms.count) if self.may_drop else b""

    @property
    def _own_mask_bytes(self) -> int:
        return self.terms.words_bytes if self.terms.guarantee == "statistical" else KEY_BYTES

    def _own_mask(self) -> bytes:
        """The secret of our self-mask in this attempt: the mask itself in statistical mode, else its seed."""
        return self._secrets.pad(self.attempt, self.index, self._own_mask_bytes)

    def _expanded(self, secret: bytes) -> Mask:
        if self.terms.guarantee == "statistical":
            return np.frombuffer(secret, dtype=word_type(self.terms.grid.word))
        return expand(secret, self.terms.grid.dimension, self.terms.grid.word)

    def _send_pads(self) -> list[bytes]:
        attempt, sent = self._attempt, []
        if self.terms.guarantee == "statistical" and not attempt.pads_sent:
            for other in self._neighbours():
                if other > self.index:
                    pad = self._secrets.pad(attempt.number, other, self.terms.words_bytes)
                    self._mask(other, pad)
                    sent.append(self._sealed(Kind.PAD, other, self._bound + pad))
            attempt.pads_sent = True
        return sent

    def _submit(self) -> list[bytes]:
        attempt, terms = self._attempt, self.terms
        if terms.guarantee == "computational":
            bound = self._bound or terms.plan_hash
            for other in self._neighbours():
                low, high = sorted((self.index, other))
                public = X25519PublicKey.from_public_bytes(attempt.keys[other])
                try:
                    key = mask_key(attempt.own, public, terms.session, low, high, bound)
                except InputError:
                    raise ProtocolError(f"{terms.spec.name(other)} sent an unusable key: stop") from None
                apply(attempt.total, expand(key, terms.grid.dimension, terms.grid.word), self.index, other)
        if self.is_lead:
            attempt.submitted = attempt.counted[self.index] = attempt.digests[self.index]
            return []
        if self.may_drop:
            np.add(attempt.total, self._expanded(self._own_mask()), out=attempt.total)
        content = attempt.transcript(terms.count) + attempt.total.tobytes()
        attempt.total = self._vector[:0]
        data = self._sealed(Kind.SUBMIT, terms.lead, content)
        attempt.submitted = digest_of(data)
        submitted = Submitted(attempt.keys[terms.lead], attempt.submitted)
        if self._submitted.setdefault(attempt.number, submitted) != submitted:
            raise ProtocolError("somebody sent two kinds of keys in this attempt: stop, and start a new session")
        if not self._secrets.note_submission(attempt.number, submitted, self._bound):
            raise self._other_life()
        return [data]

    def _other_life(self) -> ProtocolError:
        """In an earlier life, or in another process of this party: masks of one attempt serve one group only."""
        return ProtocolError("another group or other keys were named in this attempt before: stop")

    def _finish(self) -> list[bytes]:
        """At the lead receiver: all masks have cancelled."""
        attempt, terms = self._attempt, self.terms
        self.result = from_words(attempt.total, terms.grid.word)
        self._answered = attempt.number
        words, sent = attempt.total.tobytes(), []
        for other in sorted(attempt.members or ()):
            if other != self.index and terms.spec.receivers[other]:
                sent.append(self._sealed(Kind.RESULT, other, words))
            elif other != self.index:
                sent.append(self._message(Kind.RECEIPT, other, attempt.counted[other]))
        return sent

    # Small tools -----------------------------------------------------------------------------------------------------

    def _mask(self, other: int, pad: bytes) -> None:
        mask = np.frombuffer(pad, dtype=word_type(self.terms.grid.word))
        apply(self._attempt.total, mask, self.index, other)

    def _submitted_in(self, message: Message) -> Submitted:
        if message.attempt not in self._submitted or message.attempt not in self._groups:
            raise TooEarlyError("an answer before our submission, or before we know whose it is")
        return self._submitted[message.attempt]

    def _opened(self, message: Message) -> bytes:
        """The content of a message of the attempt under way."""
        return self._open(self._attempt.own, self._attempt.keys[message.sender], message)

    def _open(self, own: X25519PrivateKey, other: bytes, message: Message) -> bytes:
        try:
            return open_sealed(own, other, message)
        except MessageError as error:
            raise ProtocolError(f"{self._name(message)}: {error}, stop") from None

    def _message(self, kind: Kind, recipient: int, body: bytes, attempt: int | None = None) -> bytes:
        return encode(self._envelope(kind, recipient, body, attempt), self._identity)

    def _sealed(self, kind: Kind, recipient: int, content: bytes, key: bytes = b"") -> bytes:
        envelope = self._envelope(kind, recipient, b"", None)
        try:
            sealed = seal(self._attempt.own, key or self._attempt.keys[recipient], envelope, content)
        except MessageError as error:
            raise ProtocolError(f"{self.terms.spec.name(recipient)}: {error}, stop") from None
        return encode(sealed, self._identity)

    def _envelope(self, kind: Kind, recipient: int, body: bytes, attempt: int | None) -> Message:
        number = self.attempt if attempt is None else attempt
        return Message(kind, number, self.index, recipient, self.terms.session, self.terms.plan_hash, body)

    def _name(self, message: Message) -> str:
        return self.terms.spec.name(message.sender)
