"""Messages as they leave a party: signed, and sealed if they carry data. Only the recipient can open a sealed one.

The sender encapsulates to the recipient's key (`hybrid`), and the ciphertext leads the body. The key is derived (HKDF)
from what the two have agreed on, the session, both parties, the direction and the attempt. The nonce is a keyed hash of
header and content, so sealing with the same capsule is deterministic: a message sent again after a crash has the same
bytes, and two different contents never share a nonce.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, replace
from typing import Final

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from tpmdp.errors import InputError
from tpmdp.protocol.hybrid import CIPHERTEXT_BYTES, Capsule, HybridKey, exchange_hash
from tpmdp.protocol.messages import Kind, Message, MessageError, encode

NONCE_BYTES: Final = 12
SEAL_BYTES: Final = CIPHERTEXT_BYTES + NONCE_BYTES + 16


def _keys(agreed: bytes, message: Message, exchanged: bytes) -> tuple[AESGCM, bytes]:
    """The cipher and the nonce key of one slot: sender, recipient, attempt and kind."""
    slot = b"".join(value.to_bytes(8, "big") for value in message.slot)
    info = b"tpmdp channel 2" + slot + exchanged
    derived = HKDF(algorithm=hashes.SHA256(), length=64, salt=message.session, info=info).derive(agreed)
    return AESGCM(derived[:32]), derived[32:]


def seal(own: HybridKey, other: bytes, envelope: Message, *, capsule: Capsule, content: bytes) -> Message:
    """The envelope with the content sealed for the holder of the other key, to whom the capsule is.

    >>> a, b = HybridKey.fresh(), HybridKey.fresh()
    >>> envelope = Message(Kind.SUBMIT, 1, 0, 1, bytes(32), bytes(32), b"")
    >>> sealed = seal(a, b.public, envelope, capsule=Capsule.to(b.public), content=b"words")
    >>> open_sealed(b, a.public, sealed)
    b'words'
    """
    try:
        agreed = own.agreed(other, capsule.inner)
    except InputError:
        raise MessageError("a session key is not usable") from None
    cipher, nonce_key = _keys(agreed, envelope, exchange_hash(own.public, other, capsule.ciphertext))
    bound = envelope.header  # its length field is that of an empty body, on both sides
    hasher = hashlib.blake2b(bound, digest_size=NONCE_BYTES, key=nonce_key)
    hasher.update(content)
    nonce = hasher.digest()
    return replace(envelope, body=capsule.ciphertext + nonce + cipher.encrypt(nonce, content, bound))


def open_sealed(own: HybridKey, other: bytes, message: Message) -> bytes:
    """The content of a sealed message; see `seal`."""
    ciphertext, rest = message.body[:CIPHERTEXT_BYTES], message.body[CIPHERTEXT_BYTES:]
    nonce, sealed = rest[:NONCE_BYTES], rest[NONCE_BYTES:]
    try:
        agreed = own.agreed(other, own.opened(ciphertext))
    except InputError:
        raise MessageError("a session key is not usable") from None
    cipher, _ = _keys(agreed, message, exchange_hash(other, own.public, ciphertext))
    try:
        return cipher.decrypt(nonce, sealed, replace(message, body=b"").header)
    except (InvalidTag, ValueError):
        raise MessageError("a sealed message does not open") from None


@dataclass(frozen=True, repr=False)
class Sender:
    """Writes the messages of one party in one session."""

    index: int
    identity: Ed25519PrivateKey
    session: bytes
    plan_hash: bytes

    def envelope(self, kind: Kind, attempt: int, recipient: int) -> Message:
        """The message without its body."""
        return Message(
            kind, attempt, self.index, recipient=recipient, session=self.session, plan_hash=self.plan_hash, body=b""
        )

    def signed(self, envelope: Message, body: bytes) -> bytes:
        """The bytes of a message with an open body."""
        return encode(replace(envelope, body=body), self.identity)

    def sealed(self, envelope: Message, own: HybridKey, other: bytes, *, capsule: Capsule, content: bytes) -> bytes:
        """The bytes of a message whose body only the holder of the other key can open."""
        return encode(seal(own, other, envelope, capsule=capsule, content=content), self.identity)
