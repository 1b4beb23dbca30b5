"""Messages as they leave a party: signed, and sealed if they carry data. Only the recipient can open a sealed one.

The key is derived (HKDF) from the pair's X25519 secret, the session, both parties, the direction and the attempt. The
nonce is a keyed hash of header and content, so sealing is deterministic: a message sent again after a crash has the
same bytes, and two different contents never share a nonce.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, replace
from typing import Final

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from tpmdp.protocol.messages import Kind, Message, MessageError, encode

NONCE_BYTES: Final = 12
SEAL_BYTES: Final = NONCE_BYTES + 16


def _keys(own: X25519PrivateKey, other: bytes, message: Message) -> tuple[AESGCM, bytes]:
    """The cipher and the nonce key of one slot: sender, recipient, attempt and kind."""
    try:
        secret = own.exchange(X25519PublicKey.from_public_bytes(other))
    except ValueError:  # a key of low order
        raise MessageError("a session key is not usable") from None
    slot = b"".join(value.to_bytes(8, "big") for value in message.slot)
    info = b"tpmdp channel 1" + slot
    derived = HKDF(algorithm=hashes.SHA256(), length=64, salt=message.session, info=info).derive(secret)
    return AESGCM(derived[:32]), derived[32:]


def seal(own: X25519PrivateKey, other: bytes, envelope: Message, content: bytes) -> Message:
    """The envelope with the content sealed for the holder of the other key.

    >>> a, b = X25519PrivateKey.generate(), X25519PrivateKey.generate()
    >>> envelope = Message(Kind.SUBMIT, 1, 0, 1, bytes(32), bytes(32), b"")
    >>> sealed = seal(a, b.public_key().public_bytes_raw(), envelope, content=b"words")
    >>> open_sealed(b, a.public_key().public_bytes_raw(), sealed)
    b'words'
    """
    cipher, nonce_key = _keys(own, other, envelope)
    bound = envelope.header  # its length field is that of an empty body, on both sides
    hasher = hashlib.blake2b(bound, digest_size=NONCE_BYTES, key=nonce_key)
    hasher.update(content)
    nonce = hasher.digest()
    return replace(envelope, body=nonce + cipher.encrypt(nonce, content, bound))


def open_sealed(own: X25519PrivateKey, other: bytes, message: Message) -> bytes:
    """The content of a sealed message; see `seal`."""
    cipher, _ = _keys(own, other, message)
    nonce, sealed = message.body[:NONCE_BYTES], message.body[NONCE_BYTES:]
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

    def sealed(self, envelope: Message, own: X25519PrivateKey, other: bytes, *, content: bytes) -> bytes:
        """The bytes of a message whose body only the holder of the other key can open."""
        return encode(seal(own, other, envelope, content=content), self.identity)
