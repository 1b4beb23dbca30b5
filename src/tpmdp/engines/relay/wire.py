"""What a relay and its clients agree on: frames, tokens and limits.

    PUT  /v1/sessions/ID            label hash and public keys; the ID is their hash, so nobody can claim another's
    POST /v1/sessions/ID/messages   frames; each message is signed by the party the token names
    GET  /v1/sessions/ID/messages   ?after=KIND:SEQ,...&wait=S&least=N  frames addressed to the party, oldest first,
                                    as soon as there are N of them or S seconds have passed
    GET  /v1/sessions/ID/status     ?plan=HASH  which parties have sent what; see `status`

A token is a party's signature over a nonce the relay drew when it started, so it dies with the relay's process; a 401
answer carries the nonce to sign.
"""

from __future__ import annotations

import ipaddress
import struct
from collections.abc import Iterable, Iterator
from typing import Final

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

from tpmdp.protocol.messages import MessageError

NONCE_BYTES: Final = 32
NONCE_HEADER: Final = "tpmdp-nonce"
SCHEME: Final = "tpmdp"
NOT_SERVED: Final = "is not one this relay serves"
BATCH_MAX: Final = 1 << 20  # bytes of messages in one answer, unless a single message is longer
WAIT_MAX_S: Final = 25.0
_FRAME: Final = struct.Struct(">QI")  # number at the relay (0 when sent by a party), length
FRAME_BYTES: Final = _FRAME.size


def frame(data: bytes, number: int = 0) -> bytes:
    """One message with its number and length in front.

    >>> list(frames(frame(b"abc", 7) + frame(b"", 8)))
    [(7, b'abc'), (8, b'')]
    """
    return frame_head(number, len(data)) + data


def frame_head(number: int, size: int) -> bytes:
    """What stands in front of a message of this size.

    >>> frame_head(7, 3) + b"abc" == frame(b"abc", 7)
    True
    """
    return _FRAME.pack(number, size)


def join_frames(messages: Iterable[bytes]) -> bytes:
    """Several messages in one body.

    >>> len(join_frames([b"ab", b"c"])) == 2 * FRAME_BYTES + 3
    True
    """
    return b"".join(frame(data) for data in messages)


def frames(body: bytes) -> Iterator[tuple[int, bytes]]:
    """Split a body into numbered messages; refuses a body that is cut short."""
    position = 0
    while position < len(body):
        if len(body) - position < FRAME_BYTES:
            raise MessageError("a frame is cut short")
        number, length = _FRAME.unpack_from(body, position)
        position += FRAME_BYTES
        if len(body) - position < length:
            raise MessageError("a frame is cut short")
        yield number, body[position : position + length]
        position += length


def token_text(nonce: bytes, session: bytes, party: int) -> bytes:
    """What a party signs to read and write its mailbox.

    >>> len(token_text(bytes(32), bytes(32), 1))
    81
    """
    return b"tpmdp relay 1" + nonce + session + party.to_bytes(4, "big")


def make_token(identity: Ed25519PrivateKey, nonce: bytes, session: bytes, party: int) -> str:
    """The Authorization header of a party.

    >>> make_token(Ed25519PrivateKey.generate(), bytes(32), bytes(32), party=3)[:8]
    'tpmdp 3:'
    """
    return f"{SCHEME} {party}:{identity.sign(token_text(nonce, session, party)).hex()}"


def token_party(header: str, nonce: bytes, session: bytes, *, roster: tuple[bytes, ...]) -> int | None:
    """The party an Authorization header proves, or None.

    >>> identity = Ed25519PrivateKey.generate()
    >>> token = make_token(identity, bytes(32), bytes(32), party=0)
    >>> token_party(token, bytes(32), bytes(32), roster=(identity.public_key().public_bytes_raw(),))
    0
    """
    scheme, _, rest = header.partition(" ")
    name, _, signature = rest.partition(":")
    if scheme != SCHEME or not (name.isascii() and name.isdigit() and len(name) <= 6) or int(name) >= len(roster):
        return None
    try:
        key = Ed25519PublicKey.from_public_bytes(roster[int(name)])
        key.verify(bytes.fromhex(signature), token_text(nonce, session, int(name)))
    except (InvalidSignature, ValueError):
        return None
    return int(name)


def is_loopback(host: str) -> bool:
    """Whether a host is this machine.

    >>> is_loopback("127.0.0.1"), is_loopback("::1"), is_loopback("example.org")
    (True, True, False)
    """
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
