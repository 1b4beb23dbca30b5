"""Messages: one canonical encoding, signed. A fixed header, a body whose length the header states, a signature.

Every field has a fixed width and trailing bytes are refused, so a message has exactly one encoding. The signature is
Ed25519 over a domain separator and the BLAKE2b digest of header and body. Bodies that carry data are sealed by
`channel`: the relay, and anybody else on the way, sees headers, public keys, signatures and ciphertext only.
"""

from __future__ import annotations

import hashlib
import struct
from dataclasses import dataclass
from enum import IntEnum
from typing import Final

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

from tpmdp.errors import TpmdpError

MAGIC: Final = b"TPM1"
HASH_BYTES: Final = 32
SIGNATURE_BYTES: Final = 64
EVERYONE: Final = 0xFFFFFFFF  # the recipient of a broadcast
PARTIES_MAX: Final = 100_000
ATTEMPTS_MAX: Final = 100  # of a session; more is misconduct, or a reason to start a new session
MESSAGE_MAX: Final = 64 << 20  # bytes; what any reader accepts at most

_HEADER: Final = struct.Struct(">4sBIII32s32sQ")
_SESSION_AT: Final = struct.calcsize(">4sBIII")
OVERHEAD: Final = _HEADER.size + SIGNATURE_BYTES
_DOMAIN: Final = b"tpmdp message 1"


class Kind(IntEnum):
    """What a message is; steps are agree, keys, list, pads (and shares), submit, (open and reveal,) receive."""

    AGREE = 1  # I signed this study and plan. Body: empty
    KEYS = 2  # My key for this attempt. Body: an X25519 and an ML-KEM-768 public key
    PAD = 3  # What I share with one neighbour. Body: an ML-KEM ciphertext; in statistical mode, a sealed pad
    SUBMIT = 4  # My masked vector, for the lead receiver. Body: sealed digest of all keys, then words
    RESULT = 5  # The sum, from the lead receiver to another receiver. Body: sealed words
    RECEIPT = 6  # From the lead receiver: what was counted. Body: half the digest of each party's message, or zeros
    # Only where parties may drop out:
    GROUP = 7  # From the lead receiver: who is in this attempt. Body: one bit per party
    OPEN = 8  # From the lead receiver: all of the group have submitted. Body: digest of the message that was counted
    REVEAL = 9  # My shares of all seeds, for the lead receiver; in statistical mode my self-mask. Body: sealed
    SHARE = 14  # From a keeper: your share of my mask's seed. Body: sealed digest of all keys, check value, share
    # Between parties with different plans, before anybody is charged:
    PARTS = 10  # What my study consists of. Body: sealed hashes
    # Only where some parties compute together before the sum:
    PAIRED = 12  # My share of what we computed for this attempt is on my disk. Body: empty
    # From here on keys are known by the lead receiver's list:
    LIST = 13  # From the lead receiver: whose keys are in this attempt. Body: the digest of each party's KEYS, or zeros
    # Whatever the plans:
    NOTES = 11  # The head of my ledger, which only I can read, and those of the others that I keep. Body: notes


_KINDS: Final = frozenset(Kind)


class MessageError(TpmdpError):
    """Bytes that are not a message of this session, or not from the sender they name. Anybody can send those."""


class TooEarlyError(TpmdpError):
    """A valid message that cannot be used yet: deliver it again later."""


class ProtocolError(TpmdpError):
    """A party broke the protocol, or its state does not fit: the session must stop.

    `offender` is the party whose message broke a rule, None where it is not a message of another party.

    >>> ProtocolError("alpha sent two different KEYS messages: stop", offender=0).offender
    0
    """

    def __init__(self, problem: str, offender: int | None = None) -> None:
        self.offender = offender
        super().__init__(problem)


@dataclass(frozen=True)
class Message:
    """One message. `plan_hash` is the hash of study and plan that the sender agreed to."""

    kind: Kind
    attempt: int  # AGREE holds for all attempts and says 0
    sender: int
    recipient: int
    session: bytes
    plan_hash: bytes
    body: bytes

    @property
    def slot(self) -> tuple[int, int, int, int]:
        """A sender may fill each slot of a session once for a plan; two different contents are misconduct."""
        return self.kind, self.attempt, self.sender, self.recipient

    @property
    def header(self) -> bytes:
        """The encoded header, which sealed bodies are bound to."""
        return _HEADER.pack(
            MAGIC,
            self.kind,
            self.attempt,
            self.sender,
            self.recipient,
            self.session,
            self.plan_hash,
            len(self.body),
        )

    def __repr__(self) -> str:
        return f"Message({self.kind.name}, attempt {self.attempt}, {self.sender} to {self.recipient})"


def digest(unsigned: bytes | memoryview, body: bytes | memoryview = b"") -> bytes:
    """The digest that is signed, and by which a message is known.

    >>> len(digest(b"header", b"body"))
    32
    """
    hasher = hashlib.blake2b(unsigned, digest_size=HASH_BYTES, person=_DOMAIN)
    hasher.update(body)
    return hasher.digest()


def encode(message: Message, identity: Ed25519PrivateKey) -> bytes:
    """The signed bytes of a message.

    >>> message = Message(Kind.AGREE, 0, 1, EVERYONE, bytes(32), bytes(32), b"")
    >>> len(encode(message, Ed25519PrivateKey.generate())) == OVERHEAD
    True
    """
    header = message.header
    return b"".join((header, message.body, identity.sign(_DOMAIN + digest(header, message.body))))


def decode(data: bytes) -> Message:
    """Parse bytes from outside; the signature is not checked here.

    >>> decode(b"nonsense")
    Traceback (most recent call last):
        ...
    tpmdp.protocol.messages.MessageError: a message of 8 bytes is too short
    """
    if len(data) < OVERHEAD:
        raise MessageError(f"a message of {len(data)} bytes is too short")
    if len(data) > MESSAGE_MAX:
        raise MessageError(f"a message of {len(data)} bytes is longer than {MESSAGE_MAX}")
    magic, kind, attempt, sender, recipient, session, plan_hash, length = _HEADER.unpack_from(data)
    if magic != MAGIC:
        raise MessageError("not a tpmdp message of version 1")
    if length != len(data) - OVERHEAD:
        raise MessageError(f"a message of {len(data)} bytes says its body has {length}")
    if kind not in _KINDS:
        raise MessageError(f"message kind {kind} is unknown")
    if sender >= PARTIES_MAX or (recipient >= PARTIES_MAX and recipient != EVERYONE) or attempt > ATTEMPTS_MAX:
        raise MessageError("sender, recipient or attempt is out of range")
    body = data[_HEADER.size : -SIGNATURE_BYTES]
    return Message(Kind(kind), attempt, sender, recipient=recipient, session=session, plan_hash=plan_hash, body=body)


def session_of(data: bytes) -> bytes:
    """The session that bytes from outside name; nothing else in them is checked.

    >>> message = Message(Kind.AGREE, 0, 1, 2, bytes(32), bytes(32), b"")
    >>> session_of(encode(message, Ed25519PrivateKey.generate())).hex()[:4]
    '0000'
    """
    return data[_SESSION_AT : _SESSION_AT + HASH_BYTES]


def digest_of(data: bytes) -> bytes:
    """The digest of encoded bytes, without a check of the signature.

    >>> len(digest_of(bytes(200)))
    32
    """
    return digest(memoryview(data)[:-SIGNATURE_BYTES])


def verify(data: bytes, public_key: bytes) -> bytes:
    """Check the signature of encoded bytes and return their digest.

    >>> identity = Ed25519PrivateKey.generate()
    >>> data = encode(Message(Kind.AGREE, 0, 1, EVERYONE, bytes(32), bytes(32), b""), identity)
    >>> len(verify(data, identity.public_key().public_bytes_raw()))
    32
    """
    signed = digest_of(data)
    try:
        Ed25519PublicKey.from_public_bytes(public_key).verify(data[-SIGNATURE_BYTES:], _DOMAIN + signed)
    except (InvalidSignature, ValueError):
        raise MessageError("the signature does not fit the sender's public key") from None
    return signed
