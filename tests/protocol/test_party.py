"""The state machine: the right sum to the right parties in any order; misconduct is named; views hold no more."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.protocol.sessions import World, exchange, pads_of
from tpmdp import InputError
from tpmdp.protocol.hybrid import CIPHERTEXT_BYTES, PUBLIC_BYTES, Capsule, HybridKey
from tpmdp.protocol.masks import Mask, from_words, to_words
from tpmdp.protocol.messages import (
    ATTEMPTS_MAX,
    EVERYONE,
    OVERHEAD,
    SIGNATURE_BYTES,
    Kind,
    Message,
    MessageError,
    decode,
    digest_of,
    encode,
)
from tpmdp.protocol.parts import encode_parts
from tpmdp.protocol.party import PartySession, ProtocolError, TooEarlyError
from tpmdp.protocol.rules import COUNTED_BYTES, FORMS
from tpmdp.protocol.secrets import FreshSecrets
from tpmdp.protocol.terms import Guarantee, Terms

GUARANTEES: tuple[Guarantee, ...] = ("computational", "statistical")
SHAPES = [
    (2, 1, "all"),
    (2, 1, [1]),
    (2, 0, [0]),
    (3, 2, [1]),
    (5, 2, [0, 4]),
    (5, 4, [2, 3]),
    (7, 3, "all"),
    (9, 1, [5]),
]


def check_outcome(world: World, parties: Sequence[PartySession]) -> None:
    for party in parties:
        assert party.done
        assert party.waiting_for() == []
        if world.terms.spec.receivers[party.index]:
            assert party.result is not None
            assert party.result.tolist() == world.total
            assert not party.receipt
        else:
            assert party.result is None
            assert party.receipt


@pytest.mark.parametrize("guarantee", GUARANTEES)
@pytest.mark.parametrize(("count", "threshold", "receivers"), SHAPES)
def test_receivers_get_the_sum_and_others_a_receipt(
    count: int, threshold: int, receivers: object, guarantee: Guarantee
) -> None:
    world = World(count, threshold, receivers, guarantee)
    parties = world.parties()
    exchange(parties)
    check_outcome(world, parties)


@settings(max_examples=60)
@given(st.integers(0, 10**6), st.sampled_from(SHAPES), st.sampled_from(GUARANTEES))
@pytest.mark.slow
def test_any_order_and_repetition_of_messages_gives_the_same(
    seed: int, shape: tuple[int, int, object], guarantee: Guarantee
) -> None:
    random = np.random.default_rng(seed)
    world = World(*shape, guarantee)
    parties = world.parties()
    exchange(parties, lambda _, data: [data] * int(random.integers(1, 3)), order=random)
    check_outcome(world, parties)


def test_nothing_that_depends_on_the_data_leaves_before_all_have_agreed() -> None:
    for guarantee in GUARANTEES:
        world = World(5, 2, [0], guarantee)
        parties = world.parties()[:4]  # the fifth never comes
        sent = exchange(parties)
        assert {decode(data).kind for _, data in sent} == {Kind.AGREE, Kind.KEYS}
        assert all(party.step == "agree" and party.waiting_for() == [4] for party in parties)


def test_only_the_lead_receiver_is_sent_vectors_and_only_receivers_the_sum() -> None:
    world = World(6, 2, [1, 4])
    for recipient, data in exchange(world.parties()):
        kind = decode(data).kind
        assert recipient == 1 or kind != Kind.SUBMIT
        assert recipient == 4 or kind != Kind.RESULT


def test_bytes_sent_are_the_vector_the_keys_and_a_few_hundred_more() -> None:
    world = World(6, 3, [0], dimension=1000)
    sent = dict.fromkeys(range(6), 0)
    for _, data in exchange(world.parties(), lambda _, data: [data]):
        message = decode(data)
        sent[message.sender] += len(data) if message.recipient != EVERYONE else len(data) // 5
    for party in range(1, 6):
        others = len(world.terms.neighbours(party)) // 2
        keys = PUBLIC_BYTES + (1 + others) * (CIPHERTEXT_BYTES + OVERHEAD + 32)
        assert sent[party] <= world.terms.words_bytes + keys + 3 * OVERHEAD + 200


# What goes wrong ------------------------------------------------------------------------------------------------------


@settings(max_examples=40)
@given(st.integers(0, 10**6))
@pytest.mark.slow
def test_flipped_bits_change_nothing(seed: int) -> None:
    """A relay that damages copies of messages can only delay: a bad copy is dropped, the good one counts."""
    random = np.random.default_rng(seed)
    world = World(4, 2, [0, 2])
    parties = world.parties()

    def damage(recipient: int, data: bytes) -> list[bytes]:
        bad = bytearray(data)
        bad[int(random.integers(len(bad)))] ^= 1 << int(random.integers(8))
        is_looked_at = recipient == 0 or decode(data).kind not in (Kind.AGREE, Kind.KEYS)
        with pytest.raises(MessageError) if is_looked_at else suppress(MessageError):
            assert parties[recipient].receive(bytes(bad)) == []
        with pytest.raises(MessageError):
            parties[recipient].receive(data[: int(random.integers(len(data)))])
        return [data]

    exchange(parties, damage)
    check_outcome(world, parties)


def test_messages_of_another_session_are_dropped() -> None:
    world, other = World(3, 1, [0]), World(3, 1, [0], label="other")
    old = exchange(other.parties())
    parties = world.parties()
    for recipient, data in old:
        with pytest.raises(MessageError, match="another session"):
            parties[recipient].receive(data)
    exchange(parties)
    check_outcome(world, parties)


def forge(world: World, sender: int, message: Message) -> bytes:
    """A message that its sender really signs, against the rules."""
    return encode(message, world.identities[sender])


def test_a_message_in_anothers_name_is_dropped() -> None:
    world = World(3, 1, [0])
    genuine = decode(world.party(1).start()[0])
    claims = dataclasses.replace(genuine, sender=2)
    with pytest.raises(MessageError, match="signature"):
        world.party(0).receive(forge(world, 1, claims))
    for sender in (0, 3, 99_999):
        with pytest.raises(MessageError):
            world.party(0).receive(forge(world, 1, dataclasses.replace(genuine, sender=sender)))
    with pytest.raises(MessageError, match="somebody else"):
        world.party(0).receive(forge(world, 1, dataclasses.replace(genuine, recipient=2)))


def other_terms(world: World) -> Terms:
    return dataclasses.replace(world.terms, sigma=world.terms.sigma + 4)


def test_parties_with_different_plans_tell_each_other_what_differs_and_go_no_further() -> None:
    world = World(4, 2, [0])
    parts = {"threshold": "2", 'query "stay"': "mean", "epsilon of party 1": "1"}
    changed = {**parts, 'query "stay"': "sum", "epsilon of party 1": "2"}
    asked: list[int] = []

    def party(index: int, terms: Terms, parts: dict[str, str]) -> PartySession:
        def vector(_attempt: int, _members: frozenset[int]) -> Mask:
            asked.append(index)
            return world.vectors[index]

        return PartySession(
            terms, index, world.identities[index], vector, world.secrets[index], parts=encode_parts(parts)
        )

    parties = [party(index, world.terms, parts) for index in range(3)] + [party(3, other_terms(world), changed)]
    sent = exchange(parties)
    assert not any(party.done for party in parties)
    assert asked == []  # nobody was charged
    for index in range(3):
        assert parties[index].difference_texts() == ['party 4 has another query "stay", another epsilon of party 1']
        assert parties[index].waiting_for() == [3]
    assert len(parties[3].differences) == 3
    assert {decode(data).kind for _, data in sent} == {Kind.AGREE, Kind.KEYS, Kind.PARTS}
    hashes = encode_parts(changed)
    assert not any(hashes in data or b"stay" in data for _, data in sent)  # the relay sees ciphertext


def test_what_differs_is_told_in_a_later_attempt_too() -> None:
    world = World(3, 1, [0])
    parties = []
    for index, terms in enumerate((world.terms, world.terms, other_terms(world))):
        vector, secrets = partial(world.vectors.__getitem__, index), world.secrets[index]
        parts = {"threshold": "2" if index == 2 else "1"}
        parties.append(PartySession(terms, index, world.identities[index], vector, secrets, parts=encode_parts(parts)))
    exchange(parties)
    assert parties[0].difference_texts() == ["party 3 has another threshold"]
    for party in parties:
        party.differences.clear()
    exchange(parties, first=PartySession.retry)
    assert {party.attempt for party in parties} == {2}
    assert parties[0].difference_texts() == ["party 3 has another threshold"]
    assert parties[2].difference_texts() == ["party 1 has another threshold", "party 2 has another threshold"]


def test_a_party_that_mends_its_study_is_welcome() -> None:
    world = World(4, 2, [0])
    parties = [*world.parties()[:3], world.party(3, terms=other_terms(world))]
    before = exchange(parties)
    world.secrets[3] = FreshSecrets()  # another entry in its ledger, with other keys
    parties[3] = world.party(3)
    mended = parties[3].start()
    for data in [data for to, data in before if to == 3 and decode(data).kind != Kind.PARTS]:  # what the relay has
        mended += parties[3].receive(data)
    exchange(parties, first=lambda party: mended if party.index == 3 else [])
    check_outcome(world, parties)
    assert not any(party.differences for party in parties)


def test_other_plans_cannot_fill_the_memory_or_stop_anybody() -> None:
    world = World(3, 1, [0])
    party = world.party(0)
    party.start()
    keys = decode(world.party(1).start()[1])
    for number in range(50):
        other = dataclasses.replace(keys, plan_hash=number.to_bytes(32, "big"))
        party.receive(forge(world, 1, other))
    assert len(party.other_plans[1]) == 8
    rubbish = dataclasses.replace(keys, kind=Kind.PARTS, plan_hash=bytes(32), recipient=0, body=bytes(100))
    assert party.receive(forge(world, 1, rubbish)) == []


@pytest.mark.parametrize("kind", [Kind.KEYS, Kind.SUBMIT, Kind.PAD, Kind.RESULT])
def test_a_slot_filled_twice_with_different_contents_stops_the_session(kind: Kind) -> None:
    world = World(4, 2, [0, 3], "statistical" if kind == Kind.PAD else "computational")
    sender = 0 if kind == Kind.RESULT else 1
    parties = world.parties()

    def twice(recipient: int, data: bytes) -> list[bytes]:
        message = decode(data)
        if message.kind != kind or message.sender != sender:
            return [data]
        body = bytes([message.body[0] ^ 1]) + message.body[1:]
        return [data, forge(world, sender, dataclasses.replace(message, body=body))]

    with pytest.raises(ProtocolError, match=f"party {sender + 1} sent two different {kind.name}"):
        exchange(parties, twice)


def test_different_keys_to_different_parties_never_give_an_answer() -> None:
    """Masks would not cancel: the lead receiver sees that the others saw other keys, and stops."""
    world = World(4, 2, [0])
    double = FreshSecrets()
    liar = PartySession(world.terms, 2, world.identities[2], lambda *_: world.vectors[2], double)
    other_key = decode(liar.start()[1]).body
    parties = world.parties()

    def equivocate(recipient: int, data: bytes) -> list[bytes]:
        message = decode(data)
        if message.kind == Kind.KEYS and message.sender == 2 and recipient == 1:
            return [forge(world, 2, dataclasses.replace(message, body=other_key))]
        return [data]

    exchange(parties, equivocate)
    assert not any(party.done for party in parties)
    assert parties[1].awaited == "key"  # the one that the lead receiver lists
    assert parties[1].waiting_for() == [2]
    assert parties[0].result is None


@pytest.mark.parametrize("kind", list(FORMS))
def test_wrong_lengths_addressees_and_attempts_stop_the_session(kind: Kind) -> None:
    world = World(3, 1, [0, 1], "statistical")
    base = decode(world.party(2).start()[0])
    changes: list[dict[str, Any]] = [
        {"body": b"x" * 7},
        {"recipient": 0 if kind in (Kind.AGREE, Kind.KEYS) else EVERYONE},
        {"attempt": 0 if kind != Kind.AGREE else 1},
    ]
    for change in changes:
        fields: dict[str, Any] = {"kind": kind, "attempt": 0 if kind == Kind.AGREE else 1, **change}
        message = dataclasses.replace(base, **fields)
        with pytest.raises((ProtocolError, MessageError)):
            world.party(0).receive(forge(world, 2, message))


def test_a_result_or_receipt_from_anybody_but_the_lead_receiver_is_refused() -> None:
    world = World(4, 2, [0, 3])
    parties = world.parties()
    sealed = next(decode(data) for _, data in exchange(parties) if decode(data).kind == Kind.RESULT)
    receipt = dataclasses.replace(sealed, kind=Kind.RECEIPT, recipient=EVERYONE, sender=3)
    receipt = dataclasses.replace(receipt, body=bytes(4 * COUNTED_BYTES))
    for recipient, message in ((3, dataclasses.replace(sealed, sender=1)), (1, receipt)):
        with pytest.raises(ProtocolError, match="breaks the protocol"):
            world.party(recipient).receive(forge(world, message.sender, message))


def test_a_receipt_for_something_else_is_refused() -> None:
    world = World(3, 1, [0])
    parties = world.parties()

    def swap(_: int, data: bytes) -> list[bytes]:
        message = decode(data)
        changed = dataclasses.replace(message, body=bytes(3 * COUNTED_BYTES))
        return [forge(world, 0, changed)] if message.kind == Kind.RECEIPT else [data]

    with pytest.raises(ProtocolError, match="did not submit"):
        exchange(parties, swap)


def test_an_unusable_key_is_named() -> None:
    world = World(3, 1, [0])

    def low_order(_: int, data: bytes) -> list[bytes]:
        message = decode(data)
        if message.kind == Kind.KEYS and message.sender == 2:
            return [forge(world, 2, dataclasses.replace(message, body=bytes(32)))]
        return [data]

    with pytest.raises(ProtocolError, match="party 3"):
        exchange(world.parties(), low_order)


def test_a_vector_or_key_that_does_not_fit_is_refused() -> None:
    world = World(3, 1, [0])
    with pytest.raises(InputError, match="does not fit its public key"):
        PartySession(world.terms, 0, world.identities[1], lambda *_: world.vectors[0], FreshSecrets())
    parties = world.parties()
    parties[1] = PartySession(world.terms, 1, world.identities[1], lambda *_: world.vectors[1][:2], world.secrets[1])
    with pytest.raises(InputError, match="must be 3 words of 32 bits"):
        exchange(parties)


@pytest.mark.parametrize("listed", [True, False])
def test_a_key_that_its_owner_has_not_signed_is_not_used_even_if_it_is_listed(listed: bool) -> None:
    """A lead receiver that knew all masks of a party would see its vector."""
    world = World(4, 1, [0])
    forged = {
        party: encode(message_of(world, Kind.KEYS, party, HybridKey.fresh().public), world.identities[0])
        for party in (2, 3)
    }
    victim = world.party(1)
    own = next(data for data in victim.start() if decode(data).kind == Kind.KEYS)
    keys = {0: next(data for data in world.party(0).start() if decode(data).kind == Kind.KEYS), 1: own, **forged}
    true = {party: next(d for d in world.party(party).start() if decode(d).kind == Kind.KEYS) for party in (2, 3)}
    named = keys if listed else keys | true
    body = b"".join(digest_of(named[party]) for party in range(4))
    sent = [victim.receive(keys[0]), victim.receive(encode(message_of(world, Kind.LIST, 0, body), world.identities[0]))]
    sent += [victim.receive(data) for data in forged.values()]
    assert sent == [[]] * 4
    assert victim.step == "keys"
    assert victim.waiting_for() == [2]
    later = [out for data in true.values() for out in victim.receive(data)]  # a copy in its place changes nothing
    assert bool(later) == (not listed)


def message_of(world: World, kind: Kind, sender: int, body: bytes) -> Message:
    terms = world.terms
    return Message(kind, 1, sender, EVERYONE, session=terms.session, plan_hash=terms.plan_hash, body=body)


@pytest.mark.parametrize("sender", [0, 1, 3])
def test_masks_that_do_not_cancel_give_no_answer(sender: int) -> None:
    """A ciphertext that is damaged, or not for its recipient's key, opens to another secret without an error."""
    world = World(4, 2, [0, 2])
    parties = world.parties()

    def damage(_: int, data: bytes) -> list[bytes]:
        message = decode(data)
        if message.kind != Kind.PAD or message.sender != sender:
            return [data]
        body = bytes([message.body[0] ^ 1]) + message.body[1:]
        return [forge(world, sender, dataclasses.replace(message, body=body))]

    with pytest.raises(ProtocolError, match="the masks do not cancel, so there is no answer"):
        exchange(parties, damage)
    assert not any(party.done for party in parties)
    assert all(party.result is None for party in parties)


def test_a_sum_of_any_words_is_an_answer_if_the_masks_cancel() -> None:
    """What parties put in does not reach the zeros behind it: not even the largest words carry over."""
    world = World(3, 1, [0])
    for index, vector in enumerate(world.vectors):
        world.vectors[index] = np.full_like(vector, np.iinfo(vector.dtype).max)
    parties = world.parties()
    exchange(parties)
    assert parties[0].result is not None
    assert parties[0].result.tolist() == [-3, -3, -3]


def test_a_party_does_not_sign_a_plan_that_breaks_its_budget() -> None:
    world = World(3, 1, [0])
    weak = dataclasses.replace(world.terms, sigma=world.terms.sigma // 2)
    with pytest.raises(InputError, match="breaks the budget"):
        world.party(1, terms=weak)
    world.party(0, terms=weak)  # the only receiver: nobody dangerous is left to protect it from


# Crashes and retries --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("guarantee", GUARANTEES)
def test_a_party_that_starts_again_sends_the_same_bytes(guarantee: Guarantee) -> None:
    world = World(4, 2, [0, 2], guarantee)
    first, second = world.parties(), world.parties()  # the same secrets: a restart of everybody
    assert sorted(exchange(first)) == sorted(exchange(second))
    check_outcome(world, second)


@pytest.mark.parametrize("guarantee", GUARANTEES)
def test_a_retry_has_fresh_keys_and_the_same_answer(guarantee: Guarantee) -> None:
    world = World(5, 2, [1, 3], guarantee)
    parties = world.parties()
    lost = exchange(parties, lambda _, data: [] if decode(data).kind == Kind.RECEIPT else [data])
    waiting = [party for party in parties if not party.done]
    assert len(waiting) == 3
    again = [world.party(index) for index in range(5)]
    exchange(again, lambda _, data: [] if decode(data).kind == Kind.SUBMIT else [data])
    assert not any(party.done for party in again)

    second = exchange(again, first=lambda party: party.retry() if party.index == 4 else [])
    check_outcome(world, again)
    assert {party.attempt for party in again} == {2}
    bodies = {decode(data).body for _, data in lost} - {b""}
    fresh = {decode(data).body for _, data in second if decode(data).kind in (Kind.KEYS, Kind.SUBMIT, Kind.PAD)}
    assert not bodies & fresh


def test_late_messages_of_a_given_up_attempt_are_worthless() -> None:
    """Submissions of different attempts do not add up to anything: masks cancel only within one attempt."""
    world = World(4, 2, [0])
    parties = world.parties()
    late: list[tuple[int, bytes]] = []

    def hold(recipient: int, data: bytes) -> list[bytes]:
        if decode(data).kind == Kind.SUBMIT and decode(data).sender == 3:
            late.append((recipient, data))
            return []
        return [data]

    exchange(parties, hold)
    assert parties[0].waiting_for() == [3]
    exchange(parties, first=lambda party: party.retry() if party.index == 2 else [])
    check_outcome(world, parties)
    for recipient, data in late:
        assert parties[recipient].receive(data) == []
    check_outcome(world, parties)


def test_an_answer_to_an_earlier_attempt_still_counts() -> None:
    """One party gave up just before the lead receiver finished: it takes the answer it finds."""
    world = World(4, 2, [0, 3])
    parties = world.parties()
    held: list[bytes] = []

    def hold(recipient: int, data: bytes) -> list[bytes]:
        if decode(data).kind == Kind.RESULT:
            held.append(data)
            return []
        return [data]

    exchange(parties, hold)
    parties[3].retry()
    parties[3].receive(held[0])
    check_outcome(world, parties)


@pytest.mark.parametrize("guarantee", GUARANTEES)
def test_an_answer_to_an_earlier_attempt_is_taken_after_a_restart(guarantee: Guarantee) -> None:
    """Killed right after it began a second attempt, while the lead receiver finished the first."""
    world = World(4, 2, [0, 3], guarantee)
    parties = world.parties()
    held: dict[int, bytes] = {}

    def hold(recipient: int, data: bytes) -> list[bytes]:
        if decode(data).kind in (Kind.RESULT, Kind.RECEIPT):
            if decode(data).recipient == recipient or not world.terms.spec.receivers[recipient]:
                held[recipient] = data
            return []
        return [data]

    exchange(parties, hold)
    again = []
    for index in (1, 2, 3):
        parties[index].retry()
        restarted = world.party(index, attempt=2)
        wanted = Kind.RESULT if index == 3 else Kind.RECEIPT
        assert wanted in restarted.expects
        restarted.start()
        assert restarted.receive(held[index]) == []
        again.append(restarted)
    check_outcome(world, [parties[0], *again])


def test_a_finished_party_does_not_follow_others_into_a_new_attempt() -> None:
    world = World(3, 1, [0])
    parties = world.parties()
    exchange(parties)
    late = world.party(1, attempt=2)
    for data in late.start():
        assert parties[0].receive(data) == []
    assert parties[0].attempt == 1
    assert parties[0].retry() == []


def test_a_receiver_does_not_take_a_receipt_for_an_answer() -> None:
    world = World(3, 1, [0, 1])
    parties = world.parties()
    sent = exchange(parties, lambda _, data: [] if decode(data).kind == Kind.RESULT else [data])
    submit = next(decode(data) for _, data in sent if decode(data).kind == Kind.SUBMIT and decode(data).sender == 1)
    body = b"".join(party.current.submitted[:COUNTED_BYTES] for party in parties)
    receipt = dataclasses.replace(submit, kind=Kind.RECEIPT, sender=0, recipient=EVERYONE, body=body)
    assert parties[1].receive(forge(world, 0, receipt)) == []
    assert not parties[1].done


def test_pads_of_a_given_up_attempt_are_forgotten() -> None:
    world = World(3, 2, [0], "statistical")
    parties = world.parties()
    exchange(parties, lambda _, data: [] if decode(data).kind == Kind.SUBMIT else [data])
    secrets = world.secrets[0]
    assert isinstance(secrets, FreshSecrets)
    before = pads_of(secrets)
    exchange(parties, first=lambda party: party.retry() if party.index == 1 else [])
    check_outcome(world, parties)
    assert {name.split()[1] for name in before} == {"1"}
    assert {name.split()[1] for name in pads_of(secrets)} == {"2"}


def test_attempts_are_limited() -> None:
    world = World(2, 1)
    with pytest.raises(ProtocolError, match="start a new session"):
        world.party(0, attempt=ATTEMPTS_MAX + 1)


def test_an_early_message_can_be_delivered_later() -> None:
    world = World(3, 1, [0])
    submit = next(data for _, data in exchange(world.parties()) if decode(data).kind == Kind.SUBMIT)
    with pytest.raises(TooEarlyError):
        world.party(0).receive(submit)


# What is seen ---------------------------------------------------------------------------------------------------------


class FixedSecrets(FreshSecrets):
    """Keys from a seed, the capsules of any run before, and pads as the test wants them."""

    def __init__(self, seed: int, pads: dict[int, bytes], capsules: dict[tuple[int, int], Capsule]) -> None:
        super().__init__()
        self._seed, self._pads, self._capsules_of = seed, pads, capsules

    def key(self, attempt: int) -> bytes:
        return bytes([self._seed, attempt]) * 48

    def capsules(self, attempt: int, publics: Mapping[int, bytes]) -> dict[int, Capsule]:
        fresh = super().capsules(attempt, publics)
        return {other: self._capsules_of.setdefault((self._seed, other), fresh[other]) for other in publics}

    def pad(self, attempt: int, other: int, size: int) -> bytes:
        del attempt, size
        return self._pads[other]


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 10**6))
@pytest.mark.slow
def test_colluders_with_a_receiver_see_exactly_the_honest_sum_and_noise(seed: int) -> None:
    """Two worlds whose honest vectors (noise included) have the same sum: for every choice of pads in the first there
    is one in the second with the very same messages to the coalition. The map is a bijection, so the views have the
    same distribution: statistical mode hides all but the sum."""
    random = np.random.default_rng(seed)
    count, threshold = [(4, 1), (5, 2), (6, 2), (6, 4), (7, 3)][seed % 5]
    one = World(count, threshold, [0, 1], "statistical", dimension=4)
    coalition = {0, *random.choice(np.arange(1, count), threshold - 1, replace=False).tolist()}
    honest = [party for party in range(count) if party not in coalition]
    kind = one.vectors[0].dtype
    shift = {party: random.integers(0, 2**31, 4).astype(kind) for party in honest[1:]}
    shift[honest[0]] = -np.sum(list(shift.values()), axis=0, dtype=kind) if shift else np.zeros(4, dtype=kind)
    two = World(count, threshold, [0, 1], "statistical", dimension=4)
    for party in honest:
        two.vectors[party] = one.vectors[party] + shift[party]
    pads = {
        (low, high): random.integers(0, 2**32, one.terms.masked_words).astype(kind)
        for low in range(count)
        for high in one.terms.neighbours(low)
        if low < high
    }
    zeros = np.zeros(one.terms.masked_words - 4, dtype=kind)
    moved = moved_pads(one, pads, honest, {party: np.append(each, zeros) for party, each in shift.items()})
    assert (len(honest) < 2) or any(not np.array_equal(pads[pair], moved[pair]) for pair in pads)
    views, capsules = [], dict[tuple[int, int], Capsule]()
    for world, used in ((one, pads), (two, moved)):
        for party in range(count):
            own = {other: pad.tobytes() for pair, pad in used.items() if party in pair for other in {*pair} - {party}}
            world.secrets[party] = FixedSecrets(party, own, capsules)
        parties = world.parties()
        sent = exchange(parties)
        views.append([(to, data) for to, data in sent if to in coalition])
        assert all(party.done for party in parties)
        total = np.sum(world.vectors, axis=0, dtype=kind)
        assert parties[0].result is not None
        assert parties[0].result.tolist() == from_words(total, world.terms.grid.word).tolist()
    assert views[0] == views[1]
    assert len(honest) < 2 or any(not np.array_equal(one.vectors[p], two.vectors[p]) for p in honest)


def moved_pads(
    world: World, pads: dict[tuple[int, int], np.ndarray], honest: list[int], shift: dict[int, np.ndarray]
) -> dict[tuple[int, int], np.ndarray]:
    """Route each party's change along a spanning tree of the honest parties, which the graph keeps connected."""
    moved = {pair: pad.copy() for pair, pad in pads.items()}
    parent: dict[int, int] = {}
    order = [honest[0]]
    for party in order:
        for other in world.terms.neighbours(party):
            if other in honest and other not in order:
                parent[other] = party
                order.append(other)
    assert sorted(order) == honest, "the honest parties must stay connected"
    flow = {party: shift[party].copy() for party in honest}
    for party in reversed(order[1:]):
        up = parent[party]
        if party < up:  # this party adds the pad, the other subtracts it
            moved[party, up] = moved[party, up] - flow[party]
        else:
            moved[up, party] = moved[up, party] + flow[party]
        flow[up] = flow[up] + flow[party]
    assert not flow[honest[0]].any()
    return moved


def test_masked_vectors_look_uniform_even_to_the_lead_receiver() -> None:
    """Zero vectors in, uniform words out: chi-square over the top bytes of what the lead receiver opens."""
    from scipy import stats

    from tpmdp.protocol.channel import open_sealed

    for guarantee in GUARANTEES:
        world = World(4, 1, [0], guarantee, dimension=5000)
        world.vectors = [to_words(np.zeros(5000, dtype=np.int64), world.terms.grid.word) for _ in range(4)]
        parties = world.parties()
        sent = exchange(parties)
        lead = parties[0].current
        for _, data in sent:
            message = decode(data)
            if message.kind == Kind.SUBMIT:
                words = open_sealed(lead.own, lead.keys[message.sender], message)[32:]
                counts = np.bincount(np.frombuffer(words, dtype=np.uint8), minlength=256)
                assert stats.chisquare(counts).pvalue > 1e-6
        assert parties[0].result is not None
        assert not parties[0].result.any()


def test_reprs_and_errors_show_no_secret() -> None:
    world = World(3, 1, [0])
    secrets = FreshSecrets()
    party = PartySession(world.terms, 0, world.identities[0], lambda *_: world.vectors[0], secrets)
    shown = repr(party) + repr(secrets) + repr(party.start()) + str(party.waiting_for())
    assert secrets.key(1).hex() not in shown
    assert repr(secrets.key(1)) not in shown
    assert str(world.inputs[0][0]) not in shown
    assert SIGNATURE_BYTES == 64
