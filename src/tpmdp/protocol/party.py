"""One party of the masked-sum protocol, as a state machine without input or output.

`start` and `receive` return the messages to send; whoever moves the bytes decides how. Steps: *agree* (sign study and
plan), *keys* (a fresh key for this attempt), *submit* (the masked vector, sealed for the lead receiver) and *receive*
(the sum to the receivers, a receipt to everybody else). A retry is a new attempt with fresh keys for the same vector,
noise included; whoever hears of a higher attempt joins it. docs/theory.md, "The protocol".
"""

from __future__ import annotations

import hashlib
import os
from dataclasses import dataclass, field
from typing import Final, NamedTuple, Protocol

import numpy as np
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey

from tpmdp.errors import InputError, TpmdpError
from tpmdp.protocol.channel import SEAL_BYTES, open_sealed, seal
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
from tpmdp.protocol.terms import Terms
from tpmdp.validate import IntArray

KEY_BYTES: Final = 32


class ProtocolError(TpmdpError):
    """A party provably broke the protocol; the session must stop. Names the party."""


class Early(TpmdpError):
    """A good message that cannot be used yet: deliver it again later."""


class Submitted(NamedTuple):
    """What is needed to take the answer to a submission: the lead receiver's key and the submission's digest."""

    lead_key: bytes
    digest: bytes


class Secrets(Protocol):
    """Where a party keeps the secrets of its attempts: asked again, it must give the same answer."""

    def key(self, attempt: int) -> bytes:
        """32 random bytes, the private key of the attempt."""

    def pad(self, attempt: int, other: int, size: int) -> bytes:
        """Random bytes from the operating system, shared with one neighbour."""

    def forget_pads(self, attempt: int) -> None:
        """An attempt was given up."""

    def note_submission(self, attempt: int, submitted: Submitted) -> None:
        """About to submit: the answer may come after a restart, and after later attempts were begun."""

    def submissions(self) -> dict[int, Submitted]:
        """What was noted, by attempt."""


class FreshSecrets:
    """Secrets in memory, for a process that will not be resumed.

    >>> secrets = FreshSecrets()
    >>> secrets.key(1) == secrets.key(1), secrets.key(1) == secrets.key(2)
    (True, False)
    """

    def __init__(self) -> None:
        self._kept: dict[tuple[int, int], bytes] = {}
        self._submissions: dict[int, Submitted] = {}

    def key(self, attempt: int) -> bytes:
        """The private key of the attempt."""
        return self._kept.setdefault((attempt, -1), os.urandom(KEY_BYTES))

    def pad(self, attempt: int, other: int, size: int) -> bytes:
        """The pad shared with a neighbour."""
        return self._kept.setdefault((attempt, other), os.urandom(size))

    def forget_pads(self, attempt: int) -> None:
        """An attempt was given up."""
        for place in [place for place in self._kept if place[0] == attempt and place[1] >= 0]:
            del self._kept[place]

    def note_submission(self, attempt: int, submitted: Submitted) -> None:
        """About to submit."""
        self._submissions[attempt] = submitted

    def submissions(self) -> dict[int, Submitted]:
        """What was noted."""
        return dict(self._submissions)

    def __repr__(self) -> str:
        return "FreshSecrets()"


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
    keys: dict[int, bytes] = field(default_factory=dict)
    digests: dict[int, bytes] = field(default_factory=dict)  # of the messages that brought the keys
    padded: set[int] = field(default_factory=set)  # neighbours whose pad is in `total`
    pads_sent: bool = False
    submitted: bytes = b""  # digest of the own submission
    counted: dict[int, bytes] = field(default_factory=dict)  # at the lead receiver: digest of each submission

    def transcript(self, count: int) -> bytes:
        """Equal for all parties exactly if all saw the same keys."""
        return hashlib.sha256(b"tpmdp keys 1" + b"".join(self.digests[party] for party in range(count))).digest()


class Party:
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
        self._attempt = self._new_attempt(attempt)
        self.result: IntArray | None = None  # receivers: the sum, in grid steps
        self.receipt = False  # others: the lead receiver counted our submission

    def __repr__(self) -> str:
        return f"Party({self.terms.spec.name(self.index)}, attempt {self.attempt})"

    # What the outside asks -------------------------------------------------------------------------------------------

    @property
    def attempt(self) -> int:
        """The attempt this party is in."""
        return self._attempt.number

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
        """Where this party stands: agree, keys, pads, submit, receive or done."""
        if self.done:
            return "done"
        if len(self._agreed) < self.terms.count:
            return "agree"
        if len(self._attempt.keys) < self.terms.count:
            return "keys"
        return "receive" if self._attempt.submitted else "pads"

    @property
    def expects(self) -> frozenset[Kind]:
        """Kinds of message that can be used now. Asking for no others keeps a receiver's memory at one vector."""
        kinds = {Kind.KEYS}
        if self.is_lead and self.step == "agree":
            kinds.add(Kind.AGREE)
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
        if self.step in ("agree", "keys"):
            agreements = self.terms.count - len(self._agreed) if self.is_lead else 0
            return agreements + self.terms.count - len(self._attempt.keys)
        return len(self.waiting_for()) if self.step == "pads" else 1

    def waiting_for(self) -> list[int]:
        """The parties whose message is missing now."""
        everyone = set(range(self.terms.count))
        missing = {
            "agree": everyone - self._agreed,
            "keys": everyone - set(self._attempt.keys),
            "pads": self._pads_from() - self._attempt.padded,
            "receive": everyone - set(self._attempt.counted) if self.is_lead else {self.terms.lead},
            "done": set(),
        }
        return sorted(missing[self.step])

    # What moves it ---------------------------------------------------------------------------------------------------

    def start(self) -> list[bytes]:
        """The first messages: agreement and key. Sending them again after a crash is harmless: they are the same."""
        self._agreed.add(self.index)
        return [self._message(Kind.AGREE, EVERYONE, b"", attempt=0), *self._announce()]

    def retry(self) -> list[bytes]:
        """Begin a new attempt with fresh keys; the vector, and so the noise in it, stays the same."""
        return [] if self.done else self._advance(self.attempt + 1)

    def receive(self, data: bytes) -> list[bytes]:
        """Take in a message from outside and return what to send.

        MessageError: not a message of this session, drop it. Early: deliver it again later. ProtocolError: stop.
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
        if message.attempt < self.attempt and message.kind in (Kind.KEYS, Kind.PAD, Kind.SUBMIT):
            return []  # of an attempt that was given up
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
            Kind.PAD: (SEAL_BYTES + words, False, False),
            Kind.SUBMIT: (SEAL_BYTES + HASH_BYTES + words, False, False),
            Kind.RESULT: (SEAL_BYTES + words, False, True),
            Kind.RECEIPT: (HASH_BYTES, False, True),
        }[message.kind]
        good = len(message.body) == length and (message.recipient == EVERYONE) == broadcast
        good &= (message.attempt == 0) == (message.kind == Kind.AGREE)
        good &= not from_lead or message.sender == self.terms.lead
        good &= message.kind != Kind.SUBMIT or self.is_lead
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
        sent = self._advance(message.attempt) if message.attempt > self.attempt else []
        if not self.is_lead:  # a key is signed with the plan hash, too; the lead receiver collects the agreements
            self._agreed.add(message.sender)
        self._attempt.keys[message.sender] = message.body
        self._attempt.digests[message.sender] = digest
        return sent

    def _on_pad(self, message: Message, digest: bytes) -> list[bytes]:
        del digest
        if message.attempt > self.attempt or not self._ready:
            raise Early("a pad before the keys")
        if message.sender not in self._pads_from():
            raise ProtocolError(f"{self._name(message)} sent a pad and is no neighbour of ours: stop")
        self._mask(message.sender, self._opened(message))
        self._attempt.padded.add(message.sender)
        return []

    def _on_submit(self, message: Message, digest: bytes) -> list[bytes]:
        attempt = self._attempt
        if message.attempt > self.attempt or not attempt.submitted:
            raise Early("a submission before the keys")
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
        return []

    def _on_receipt(self, message: Message, digest: bytes) -> list[bytes]:
        del digest
        if message.body != self._submitted_in(message).digest:
            raise ProtocolError(f"{self._name(message)} counted something that we did not submit: stop")
        self.receipt = True
        return []

    _handlers = {  # noqa: RUF012
        Kind.AGREE: _on_agree,
        Kind.KEYS: _on_keys,
        Kind.PAD: _on_pad,
        Kind.SUBMIT: _on_submit,
        Kind.RESULT: _on_result,
        Kind.RECEIPT: _on_receipt,
    }

    # Steps -----------------------------------------------------------------------------------------------------------

    @property
    def _ready(self) -> bool:
        """Nothing that depends on the data leaves before all have signed the same plan and sent their keys."""
        return len(self._agreed) == self.terms.count == len(self._attempt.keys)

    def _proceed(self) -> list[bytes]:
        if self.done or not self._ready:
            return []
        sent = self._send_pads()
        attempt = self._attempt
        if not attempt.submitted and attempt.padded == self._pads_from():
            sent += self._submit()
        if self.is_lead and len(attempt.counted) == self.terms.count:
            sent += self._finish()
        return sent

    def _new_attempt(self, number: int) -> _Attempt:
        if not 1 <= number <= ATTEMPTS_MAX:
            raise ProtocolError(f"attempt {number} is more than a session allows ({ATTEMPTS_MAX}): start a new session")
        own = X25519PrivateKey.from_private_bytes(self._secrets.key(number))
        return _Attempt(number, own, self._vector.copy())

    def _advance(self, number: int) -> list[bytes]:
        given_up = self.attempt
        self._attempt = self._new_attempt(number)
        self._secrets.forget_pads(given_up)  # not before the new key is kept: a crash must not bring the old one back
        return self._announce()

    def _announce(self) -> list[bytes]:
        attempt = self._attempt
        public = attempt.own.public_key().public_bytes_raw()
        data = self._message(Kind.KEYS, EVERYONE, public)
        attempt.keys[self.index] = public
        attempt.digests[self.index] = digest_of(data)
        return [data]

    def _pads_from(self) -> set[int]:
        """The neighbours that send us a pad: in statistical mode, those before us."""
        if self.terms.guarantee != "statistical":
            return set()
        return {other for other in self.terms.neighbours(self.index) if other < self.index}

    def _send_pads(self) -> list[bytes]:
        attempt, sent = self._attempt, []
        if self.terms.guarantee == "statistical" and not attempt.pads_sent:
            for other in self.terms.neighbours(self.index):
                if other > self.index:
                    pad = self._secrets.pad(attempt.number, other, self.terms.words_bytes)
                    self._mask(other, pad)
                    sent.append(self._sealed(Kind.PAD, other, pad))
            attempt.pads_sent = True
        return sent

    def _submit(self) -> list[bytes]:
        attempt, terms = self._attempt, self.terms
        if terms.guarantee == "computational":
            for other in terms.neighbours(self.index):
                low, high = sorted((self.index, other))
                public = X25519PublicKey.from_public_bytes(attempt.keys[other])
                try:
                    key = mask_key(attempt.own, public, terms.session, low, high)
                except InputError:
                    raise ProtocolError(f"{terms.spec.name(other)} sent an unusable key: stop") from None
                apply(attempt.total, expand(key, terms.grid.dimension, terms.grid.word), self.index, other)
        if self.is_lead:
            attempt.submitted = attempt.counted[self.index] = attempt.digests[self.index]
            return []
        content = attempt.transcript(terms.count) + attempt.total.tobytes()
        attempt.total = self._vector[:0]
        data = self._sealed(Kind.SUBMIT, terms.lead, content)
        attempt.submitted = digest_of(data)
        submitted = Submitted(attempt.keys[terms.lead], attempt.submitted)
        if self._submitted.setdefault(attempt.number, submitted) != submitted:
            raise ProtocolError("somebody sent two kinds of keys in this attempt: stop, and start a new session")
        self._secrets.note_submission(attempt.number, self._submitted[attempt.number])
        return [data]

    def _finish(self) -> list[bytes]:
        """At the lead receiver: all masks have cancelled."""
        attempt, terms = self._attempt, self.terms
        self.result = from_words(attempt.total, terms.grid.word)
        words, sent = attempt.total.tobytes(), []
        for other in range(terms.count):
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
        if message.attempt not in self._submitted:
            raise Early("an answer before our submission")
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

    def _sealed(self, kind: Kind, recipient: int, content: bytes) -> bytes:
        envelope = self._envelope(kind, recipient, b"", None)
        try:
            sealed = seal(self._attempt.own, self._attempt.keys[recipient], envelope, content)
        except MessageError as error:
            raise ProtocolError(f"{self.terms.spec.name(recipient)}: {error}, stop") from None
        return encode(sealed, self._identity)

    def _envelope(self, kind: Kind, recipient: int, body: bytes, attempt: int | None) -> Message:
        number = self.attempt if attempt is None else attempt
        return Message(kind, number, self.index, recipient, self.terms.session, self.terms.plan_hash, body)

    def _name(self, message: Message) -> str:
        return self.terms.spec.name(message.sender)
