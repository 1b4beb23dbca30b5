"""Messages: one encoding, every bit signed, nothing malformed gets through."""

from __future__ import annotations

import dataclasses

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from hypothesis import given
from hypothesis import strategies as st

from tpmdp.protocol.channel import NONCE_BYTES, SEAL_BYTES, open_sealed, seal
from tpmdp.protocol.hybrid import CIPHERTEXT_BYTES, Capsule, HybridKey
from tpmdp.protocol.messages import (
    ATTEMPTS_MAX,
    EVERYONE,
    MESSAGE_MAX,
    OVERHEAD,
    PARTIES_MAX,
    Kind,
    Message,
    MessageError,
    decode,
    encode,
    verify,
)

IDENTITY = Ed25519PrivateKey.from_private_bytes(bytes(32))
PUBLIC = IDENTITY.public_key().public_bytes_raw()

messages = st.builds(
    Message,
    kind=st.sampled_from(Kind),
    attempt=st.integers(0, ATTEMPTS_MAX),
    sender=st.integers(0, PARTIES_MAX - 1),
    recipient=st.one_of(st.just(EVERYONE), st.integers(0, PARTIES_MAX - 1)),
    session=st.binary(min_size=32, max_size=32),
    plan_hash=st.binary(min_size=32, max_size=32),
    body=st.binary(max_size=300),
)


@given(messages)
def test_a_message_survives_the_wire_and_has_one_encoding(message: Message) -> None:
    data = encode(message, IDENTITY)
    assert decode(data) == message
    assert len(data) == OVERHEAD + len(message.body)
    assert encode(decode(data), IDENTITY) == data
    assert len(verify(data, PUBLIC)) == 32


@given(messages, st.data())
def test_every_bit_is_signed(message: Message, data: st.DataObject) -> None:
    encoded = bytearray(encode(message, IDENTITY))
    bit = data.draw(st.integers(0, 8 * len(encoded) - 1))
    encoded[bit // 8] ^= 1 << bit % 8
    with pytest.raises(MessageError):
        verify(bytes(encoded), PUBLIC)


@given(st.binary(max_size=400))
def test_random_bytes_are_refused_or_decoded_never_worse(data: bytes) -> None:
    with pytest.raises(MessageError):
        decode(data)


@given(messages, st.integers(0, 500))
def test_cut_or_lengthened_messages_are_refused(message: Message, size: int) -> None:
    data = encode(message, IDENTITY)
    changed = data[:size] if size < len(data) else data + bytes(size - len(data) + 1)
    with pytest.raises(MessageError):
        decode(changed)


def test_a_message_of_100_megabytes_is_refused() -> None:
    with pytest.raises(MessageError, match="longer than"):
        decode(bytes(100_000_000))
    assert MESSAGE_MAX < 100_000_000


def test_another_signer_is_refused() -> None:
    data = encode(Message(Kind.AGREE, 0, 0, EVERYONE, bytes(32), bytes(32), b""), Ed25519PrivateKey.generate())
    with pytest.raises(MessageError, match="signature"):
        verify(data, PUBLIC)


def test_a_repr_shows_no_body() -> None:
    message = Message(Kind.SUBMIT, 1, 0, 1, bytes(32), bytes(32), b"secret words")
    assert "secret" not in repr(message)


ENVELOPE = Message(Kind.SUBMIT, 1, 0, 1, bytes(32), bytes(32), b"")


def test_only_the_addressee_opens_a_sealed_message() -> None:
    a, b, eve = (HybridKey.fresh() for _ in range(3))
    public = {key: key.public for key in (a, b, eve)}
    sealed = seal(a, public[b], ENVELOPE, capsule=Capsule.to(public[b]), content=b"words")
    assert b"words" not in sealed.body
    assert len(sealed.body) == SEAL_BYTES + 5
    assert open_sealed(b, public[a], sealed) == b"words"
    for own, other in ((eve, public[a]), (eve, public[b]), (b, public[eve])):
        with pytest.raises(MessageError):
            open_sealed(own, other, sealed)


@pytest.mark.parametrize("change", [{"attempt": 2}, {"sender": 2}, {"recipient": 2}, {"session": bytes(31) + b"1"}])
def test_a_seal_is_bound_to_its_header(change: dict[str, object]) -> None:
    a, b = HybridKey.fresh(), HybridKey.fresh()
    sealed = seal(a, b.public, ENVELOPE, capsule=Capsule.to(b.public), content=b"words")
    moved = dataclasses.replace(sealed, **change)  # type: ignore[arg-type]
    with pytest.raises(MessageError):
        open_sealed(b, a.public, moved)
    other_plan = dataclasses.replace(sealed, plan_hash=bytes(31) + b"1")
    with pytest.raises(MessageError):
        open_sealed(b, a.public, other_plan)


def test_sealing_again_gives_the_same_bytes_and_other_content_another_nonce() -> None:
    a, b = HybridKey.fresh(), HybridKey.fresh().public
    capsule = Capsule.to(b)
    one, again, two = (seal(a, b, ENVELOPE, capsule=capsule, content=words) for words in (b"one", b"one", b"two"))
    assert one == again
    assert one.body[:CIPHERTEXT_BYTES] == two.body[:CIPHERTEXT_BYTES] == capsule.ciphertext
    assert one.body[CIPHERTEXT_BYTES:][:NONCE_BYTES] != two.body[CIPHERTEXT_BYTES:][:NONCE_BYTES]


def test_a_seal_with_a_damaged_or_another_capsule_does_not_open() -> None:
    a, b = HybridKey.fresh(), HybridKey.fresh()
    sealed = seal(a, b.public, ENVELOPE, capsule=Capsule.to(b.public), content=b"words")
    damaged = bytes([sealed.body[0] ^ 1]) + sealed.body[1:]
    other = Capsule.to(b.public).ciphertext + sealed.body[CIPHERTEXT_BYTES:]
    for body in (damaged, other, sealed.body[:100], b""):
        with pytest.raises(MessageError):
            open_sealed(b, a.public, dataclasses.replace(sealed, body=body))


def test_a_key_of_low_order_is_refused() -> None:
    low_order = bytes(32) + HybridKey.fresh().public[32:]
    with pytest.raises(MessageError, match="not usable"):
        seal(HybridKey.fresh(), low_order, ENVELOPE, capsule=Capsule.to(low_order), content=b"words")
