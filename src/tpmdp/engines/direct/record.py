"""The bytes between two parties: a signed key exchange, then sealed records that nobody can forge, replay or drop.

Each side says hello with a fresh X25519 key. The side that dials adds an ML-KEM-768 key, and the side that answers what
it encapsulates to that (`protocol.hybrid`). Then each proves its identity: its first record, under the new keys, is its
Ed25519 signature of both hellos. So an old hello or proof is worthless, and no party can pass for another.
Last, the side that answers confirms: only then does the side that dials count the link as made. Where the hellos show
two different studies, each side sends the hashes of its study's parts instead, so that both learn what differs.
"""

from __future__ import annotations

import hashlib
import os
import struct
from dataclasses import dataclass, replace
from typing import Final

from cryptography.exceptions import InvalidSignature, InvalidTag
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from tpmdp.errors import DeadlineError, InputError, TpmdpError
from tpmdp.protocol.hybrid import CIPHERTEXT_BYTES, CURVE_BYTES, PUBLIC_BYTES, Capsule, HybridKey

RECORD_MAX: Final = 1 << 20  # bytes of content; longer messages take several records
LENGTH_BYTES: Final = 4
TAG_BYTES: Final = 16
PROOF_BYTES: Final = 64
CONFIRMATION: Final = b"here"  # of the side that answers, sealed
_MAGIC: Final = b"TPMM\x00\x02"
_DOMAIN: Final = b"tpmdp direct link 2 "
_HELLO: Final = struct.Struct(">6s32s32s32sII")
HELLO_BYTES: Final = _HELLO.size + PUBLIC_BYTES  # of the side that dials
ANSWER_BYTES: Final = _HELLO.size + CURVE_BYTES + CIPHERTEXT_BYTES


class DirectError(TpmdpError):
    """A session ended: a party was lost, misbehaved or failed.

    `culprit` is its index, if known; `reported` says that it ended the session itself, because of its own error.
    """

    def __init__(self, message: str, culprit: int | None = None, *, reported: bool = False) -> None:
        super().__init__(message)
        self.culprit, self.reported = culprit, reported


class LateError(DeadlineError):
    """The deadline passed; `missing` are the indices of the parties we waited for."""

    def __init__(self, message: str, missing: tuple[int, ...] = ()) -> None:
        super().__init__(message)
        self.missing = missing


class RecordError(TpmdpError):
    """Bytes that a party of this session would not send next."""


@dataclass(frozen=True)
class Hello:
    """The first message of each side: who speaks to whom in which session, and a fresh key.

    `work` is the digest of the job.
    """

    session: bytes
    plan_hash: bytes
    work: bytes
    sender: int
    recipient: int
    key: bytes

    def encode(self) -> bytes:
        """The only encoding.

        >>> hello = Hello(bytes(32), bytes(32), bytes(32), sender=0, recipient=1, key=bytes(PUBLIC_BYTES))
        >>> decode_hello(hello.encode()) == hello
        True
        """
        head = _HELLO.pack(_MAGIC, self.session, self.plan_hash, self.work, self.sender, self.recipient)
        return head + self.key


def decode_hello(data: bytes) -> Hello:
    """A hello from anybody; see `Hello.encode`."""
    if len(data) not in (HELLO_BYTES, ANSWER_BYTES) or data[: len(_MAGIC)] != _MAGIC:
        raise RecordError("does not speak this protocol, or another version of it")
    return Hello(*(*_HELLO.unpack_from(data)[1:], data[_HELLO.size :]))


class Seal:
    """Seals the records of one direction; the counter is the nonce, so records cannot be reordered."""

    def __init__(self, key: bytes) -> None:
        self._cipher, self._count = AESGCM(key), 0

    def record(self, content: bytes) -> bytes:
        """The next record: its length, then the sealed content.

        >>> Open(bytes(32)).content(Seal(bytes(32)).record(b"shares")[LENGTH_BYTES:])
        b'shares'
        """
        length = (len(content) + TAG_BYTES).to_bytes(LENGTH_BYTES, "big")
        sealed = self._cipher.encrypt(self._count.to_bytes(12, "big"), content, length)
        self._count += 1
        return length + sealed


class Open:
    """Opens the records of one direction."""

    def __init__(self, key: bytes) -> None:
        self._cipher, self._count = AESGCM(key), 0

    def content(self, sealed: bytes) -> bytes:
        """The content of the next record, which must be the one that was sealed next; see `Seal.record`."""
        length = len(sealed).to_bytes(LENGTH_BYTES, "big")
        try:
            content = self._cipher.decrypt(self._count.to_bytes(12, "big"), sealed, length)
        except (InvalidTag, ValueError):
            raise RecordError("sent a record that was forged, repeated or damaged") from None
        self._count += 1
        return content


def record_length(header: bytes) -> int:
    """How many bytes follow, within the limit.

    >>> record_length(bytes([0, 0, 1, 0]))
    256
    """
    length = int.from_bytes(header, "big")
    if not TAG_BYTES <= length <= RECORD_MAX + TAG_BYTES:
        raise RecordError("sent a record of a length that is not allowed")
    return length


class Exchange:
    """One side of the exchange. The dialling side speaks first; both proofs cover both hellos and the side."""

    def __init__(self, identity: Ed25519PrivateKey, hello: Hello, ephemeral: HybridKey, dials: bool) -> None:
        self._identity, self.hello, self._ephemeral, self._dials = identity, hello, ephemeral, dials
        self._transcript = b""
        self.differs = ""  # what the other side's hello shows to be different

    @classmethod
    def fresh(
        cls,
        identity: Ed25519PrivateKey,
        session: bytes,
        plan_hash: bytes,
        work: bytes,
        pair: tuple[int, int],
        dials: bool,
    ) -> Exchange:
        """An exchange with a new key, for one connection between the pair: our index first."""
        ephemeral = HybridKey.fresh()
        key = ephemeral.public if dials else ephemeral.curve_public
        hello = Hello(session, plan_hash, work, sender=pair[0], recipient=pair[1], key=key)
        return cls(identity, hello, ephemeral, dials=dials)

    def keys(self, other: Hello) -> tuple[Seal, Open]:
        """The keys of both directions, once the other side has said hello; only then is ours complete."""
        self._check(other)
        try:
            secret = self._agreed(other)
        except InputError:
            raise RecordError("sent a key that is not usable") from None
        pair = (self.hello, other) if self._dials else (other, self.hello)
        self._transcript = hashlib.sha256(_DOMAIN + b"".join(hello.encode() for hello in pair)).digest()
        derived = HKDF(hashes.SHA256(), 64, salt=self._transcript, info=_DOMAIN + b"keys").derive(secret)
        ours, theirs = (derived[:32], derived[32:]) if self._dials else (derived[32:], derived[:32])
        return Seal(ours), Open(theirs)

    def _agreed(self, other: Hello) -> bytes:
        own, theirs = self._ephemeral, other.key
        if self._dials:
            return own.agreed(theirs, own.opened(theirs[CURVE_BYTES:]))
        capsule = Capsule.to(theirs)
        self.hello = replace(self.hello, key=own.curve_public + capsule.ciphertext)
        return own.agreed(theirs, capsule.inner)

    def _check(self, other: Hello) -> None:
        own = self.hello
        if other.session != own.session:
            raise RecordError("is in another session")
        if (other.sender, other.recipient) != (own.recipient, own.sender):
            raise RecordError("claims another number")
        if other.plan_hash != own.plan_hash:
            self.differs = "has another study or plan"
        elif other.work != own.work:
            self.differs = "has another function, parameters, lengths or version of tpmdp or of its engine"

    def proof(self) -> bytes:
        """Our signature of the exchange; after `keys`."""
        return self._identity.sign(self._signed(self._dials))

    def verify(self, proof: bytes, public_key: bytes) -> None:
        """Refuse a side that does not hold the private key of its party."""
        try:
            Ed25519PublicKey.from_public_bytes(public_key).verify(proof, self._signed(not self._dials))
        except (InvalidSignature, ValueError):
            raise RecordError("does not hold the key of its number") from None

    def _signed(self, by_dialler: bool) -> bytes:
        return _DOMAIN + (b"dials" if by_dialler else b"answers") + self._transcript


def described(error: BaseException) -> TpmdpError:
    """An error of a computation for people: where it happened, and nothing of the data.

    >>> print(described(ZeroDivisionError("1234 / 0")))
    the computation failed (ZeroDivisionError): check the function and its parameters
    """
    if isinstance(error, TpmdpError):
        return error
    where, trace = "", error.__traceback__
    while trace is not None:
        where = f" at line {trace.tb_lineno} of {os.path.basename(trace.tb_frame.f_code.co_filename)}"
        trace = trace.tb_next
    return DirectError(f"the computation failed ({type(error).__name__}{where}): check the function and its parameters")
