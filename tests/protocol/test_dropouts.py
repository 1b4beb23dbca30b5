"""Parties that drop out: the rules of each message, any order of them, crashes at every step, and the terms."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from itertools import combinations
from pathlib import Path
from typing import Any, Final

import numpy as np
import pytest

from tests.protocol.sessions import World, exchange, pads_of
from tpmdp import InputError
from tpmdp.engines.contract import guarantee_text
from tpmdp.ledger import Charge, Ledger
from tpmdp.ledger.session_store import LedgerSecrets
from tpmdp.planning.losses import most_lost
from tpmdp.protocol.channel import SEAL_BYTES, seal
from tpmdp.protocol.graph import MaskGraph
from tpmdp.protocol.group import to_bits
from tpmdp.protocol.hybrid import Capsule, HybridKey
from tpmdp.protocol.messages import EVERYONE, HASH_BYTES, Kind, Message, MessageError, decode, digest_of, encode
from tpmdp.protocol.party import PartySession, ProtocolError, TooEarlyError
from tpmdp.protocol.secrets import FreshSecrets, Secrets
from tpmdp.protocol.shares import KEEPER_BYTES
from tpmdp.protocol.terms import Guarantee, Terms
from tpmdp.study.session import key_of

GUARANTEES: Final[tuple[Guarantee, ...]] = ("computational", "statistical")
NEW_KINDS: Final = (Kind.GROUP, Kind.OPEN, Kind.REVEAL)


def tolerant(
    count: int = 5,
    colluders: int = 1,
    tolerate: int = 2,
    receivers: Any = (0, 3),
    guarantee: Guarantee = "statistical",
    **more: Any,
) -> World:
    """Of the parties that may drop out, at most as many as can where keepers share their seeds."""
    tolerate = min(tolerate, most_lost(count, colluders, guarantee))
    return World(count, colluders, list(receivers), guarantee, tolerate=tolerate, **more)


def forged(world: World, kind: Kind, attempt: int, sender: int, recipient: int, body: bytes) -> bytes:
    """A message that its sender really signs, maybe against the rules."""
    message = Message(kind, attempt, sender, recipient, world.terms.session, world.terms.plan_hash, body)
    return encode(message, world.identities[sender])


def group(world: World, attempt: int, members: Sequence[int], sender: int = 0) -> bytes:
    return forged(world, Kind.GROUP, attempt, sender, EVERYONE, to_bits(members, world.terms.count))


def without(*kinds: Kind) -> Callable[[int, bytes], list[bytes]]:
    return lambda _, data: [] if decode(data).kind in kinds else [data]


def sum_of(world: World, members: Sequence[int] | frozenset[int]) -> list[int]:
    found: list[int] = world.inputs[sorted(members)].sum(axis=0).tolist()
    return found


def check_outcome(world: World, parties: Sequence[PartySession], members: frozenset[int]) -> None:
    """Everybody in the group has what it should get: the sum over the group, or a receipt; nobody else has anything."""
    for party in parties:
        assert party.done == (party.index in members)
        if party.index in members:
            assert party.members == members
            receives = bool(world.terms.spec.receivers[party.index])
            assert (party.result is not None, party.receipt) == (receives, not receives)
            assert party.result is None or party.result.tolist() == sum_of(world, members)


# The rules of each message --------------------------------------------------------------------------------------------


def submitted(world: World) -> tuple[list[PartySession], list[bytes]]:
    """Everybody has submitted to attempt 1, and the lead receiver has asked all to reveal; OPEN is held back."""
    parties = world.parties()
    held: list[bytes] = []

    def hold(_: int, data: bytes) -> list[bytes]:
        if decode(data).kind != Kind.OPEN:
            return [data]
        held.append(data)
        return []

    exchange(parties, hold)
    assert {decode(data).recipient for data in held} == set(range(1, world.terms.count))
    return parties, held


def test_all_is_as_before_when_nobody_drops_out() -> None:
    for guarantee in GUARANTEES:
        world = tolerant(guarantee=guarantee)
        parties = world.parties()
        sent = exchange(parties)
        check_outcome(world, parties, frozenset(range(5)))
        assert {party.attempt for party in parties} == {1}
        assert not any(party.left_out for party in parties)
        assert Kind.GROUP not in {decode(data).kind for _, data in sent}
        for recipient, data in sent:
            assert recipient == 0 or decode(data).kind not in (Kind.SUBMIT, Kind.REVEAL)


@pytest.mark.parametrize(
    ("sender", "members", "problem"),
    [
        (2, [0, 1, 2, 3], "breaks the protocol"),  # not the lead receiver
        (0, [0, 2], "too few parties"),
        (0, [1, 2, 3, 4], "too few parties"),  # without the lead receiver
        (0, [], "too few parties"),
    ],
)
def test_a_group_that_must_not_be_is_refused(sender: int, members: list[int], problem: str) -> None:
    world = tolerant()
    party = world.party(1)
    with pytest.raises(ProtocolError, match=problem):
        party.receive(group(world, 2, members, sender))
    assert party.attempt == 1
    assert not party.left_out


def test_the_smallest_group_is_the_number_of_parties_less_those_that_may_drop_out() -> None:
    for tolerate in (1, 2, 3):
        world = tolerant(6, 1, tolerate)
        for size in range(1, 6):
            party = world.party(1)
            data = group(world, 2, range(size))
            if size >= 6 - tolerate:
                party.receive(data)
                assert (party.attempt, party.left_out) == (2, False)
            else:
                with pytest.raises(ProtocolError, match="too few"):
                    party.receive(data)


@pytest.mark.parametrize("body", [b"\xff", b"\xf9", b"\xf8\x00", b""])
def test_a_group_with_bits_of_nobody_or_of_another_length_is_refused(body: bytes) -> None:
    world = tolerant()
    with pytest.raises(ProtocolError, match=r"names nobody|breaks the protocol"):
        world.party(1).receive(forged(world, Kind.GROUP, 2, 0, EVERYONE, body))
    with pytest.raises(ProtocolError, match="breaks the protocol"):
        world.party(1).receive(forged(world, Kind.GROUP, 2, 0, 1, b"\xf8"))  # to one party only


def test_two_groups_for_one_attempt_stop_the_session() -> None:
    world = tolerant()
    for members in ([0, 1, 2], [0, 2, 3]):  # with us, and without us
        party = world.party(1)
        party.receive(group(world, 2, members))
        assert party.receive(group(world, 2, members)) == []
        with pytest.raises(ProtocolError, match="two different GROUP"):
            party.receive(group(world, 2, [0, 1, 2, 3]))


def test_a_group_for_the_first_attempt_is_refused() -> None:
    world = tolerant()
    party = world.party(1)
    with pytest.raises(ProtocolError):
        party.receive(group(world, 1, [0, 1, 2]))


def test_a_group_for_an_earlier_attempt_changes_nothing() -> None:
    world = tolerant()
    party = world.party(1)
    party.receive(group(world, 3, [0, 1, 2]))
    assert party.receive(group(world, 2, [0, 1, 3, 4])) == []
    assert (party.attempt, sorted(party.members)) == (3, [0, 1, 2])


@pytest.mark.parametrize("guarantee", GUARANTEES)
def test_a_group_after_the_reveal_stops_the_session(guarantee: Guarantee) -> None:
    world = tolerant(guarantee=guarantee)
    parties, held = submitted(world)
    (revealed,) = parties[1].receive(held[0])
    assert decode(revealed).kind == Kind.REVEAL
    for members in ([0, 1, 2, 3, 4], [0, 1, 2, 3], [0, 2, 3, 4]):
        with pytest.raises(ProtocolError, match="open a second time"):
            parties[1].receive(group(world, 2, members))
    assert parties[1].attempt == 1


def test_a_party_is_asked_to_reveal_only_what_it_submitted_and_in_the_newest_attempt() -> None:
    world = tolerant()
    early = world.party(1)
    early.start()
    with pytest.raises(TooEarlyError):
        early.receive(forged(world, Kind.OPEN, 1, 0, 1, bytes(HASH_BYTES)))

    parties, held = submitted(world)
    good = next(data for data in held if decode(data).recipient == 2)
    with pytest.raises(ProtocolError, match="did not submit"):
        parties[2].receive(forged(world, Kind.OPEN, 1, 0, 2, bytes(HASH_BYTES)))
    assert world.secrets[2].opening(0) == 0
    with pytest.raises(ProtocolError, match="breaks the protocol"):
        parties[2].receive(forged(world, Kind.OPEN, 1, 3, 2, decode(good).body))  # not from the lead receiver
    with pytest.raises(TooEarlyError):
        parties[2].receive(forged(world, Kind.OPEN, 2, 0, 2, decode(good).body))  # of an attempt to come
    (revealed,) = parties[2].receive(good)
    assert world.secrets[2].opening(0) == 1
    assert parties[2].receive(good) == []
    assert decode(revealed).recipient == 0

    for number in (1, 3):  # gone on, with and without us: too late for the first attempt
        parties[number].receive(group(world, 2, [0, 1, 4]))
        assert parties[number].left_out == (number == 3)
        asked = next(data for data in held if decode(data).recipient == number)
        assert parties[number].receive(asked) == []
        assert world.secrets[number].opening(0) == 0


@pytest.mark.parametrize("guarantee", GUARANTEES)
def test_a_self_mask_is_for_the_lead_receiver_when_all_have_submitted_and_once(guarantee: Guarantee) -> None:
    world = tolerant(guarantee=guarantee)
    parties, held = submitted(world)
    (revealed,) = parties[1].receive(held[0])
    message = decode(revealed)
    with pytest.raises(ProtocolError, match="breaks the protocol"):
        parties[2].receive(forged(world, Kind.REVEAL, 1, 1, 2, message.body))
    early = world.party(0)
    early.start()
    with pytest.raises(TooEarlyError):
        early.receive(revealed)
    with pytest.raises(ProtocolError, match="does not open"):
        parties[0].receive(forged(world, Kind.REVEAL, 1, 2, 0, message.body))  # the mask of somebody else
    with pytest.raises(ProtocolError, match="breaks the protocol"):
        parties[0].receive(forged(world, Kind.REVEAL, 1, 1, 0, message.body[:-1]))
    assert parties[0].receive(revealed) == []
    assert parties[0].receive(revealed) == []
    other = message.body[:-1] + bytes([message.body[-1] ^ 1])
    with pytest.raises(ProtocolError, match="two different REVEAL"):
        parties[0].receive(forged(world, Kind.REVEAL, 1, 1, 0, other))
    assert parties[0].waiting_for() == [2, 3, 4]
    assert parties[0].result is None


def gone_on(world: World, dropped: int = 4) -> tuple[list[PartySession], list[bytes]]:
    """Attempt 2 without one party, all others have submitted and are asked to reveal; OPEN is held back."""
    parties = world.parties()
    left = [party for party in parties if party.index != dropped]
    exchange(left)
    held: list[bytes] = []

    def hold(_: int, data: bytes) -> list[bytes]:
        held.extend([data] if decode(data).kind == Kind.OPEN else [])
        return [] if decode(data).kind == Kind.OPEN else [data]

    exchange(left, hold, first=lambda party: party.drop_missing() if party.is_lead else [])
    assert len(held) == world.terms.count - 2
    assert {party.attempt for party in left} == {2}
    return parties, held


def sealed(world: World, lead: PartySession, kind: Kind, sender: int, content: bytes) -> bytes:
    """A message that the sender seals for the attempt the lead receiver is in."""
    own = HybridKey(world.secrets[sender].key(lead.attempt))
    header = (kind, lead.attempt, sender, lead.index, world.terms.session, world.terms.plan_hash, b"")
    public = lead.current.own.public
    message = seal(own, public, Message(*header), capsule=Capsule.to(public), content=content)
    return encode(message, world.identities[sender])


@pytest.mark.parametrize("guarantee", GUARANTEES)
def test_a_submission_of_a_party_that_is_not_in_the_group_is_refused(guarantee: Guarantee) -> None:
    """Even one that opens, and of a party that knows all keys of the group."""
    world = tolerant(guarantee=guarantee)
    parties = world.parties()
    exchange(parties[:4])
    first = without(Kind.SUBMIT)
    exchange(parties[:4], first, first=lambda party: party.drop_missing() if party.is_lead else [])
    lead = parties[0]
    assert (lead.attempt, lead.step, lead.waiting_for()) == (2, "receive", [1, 2, 3])
    lead.receive(world.party(4, attempt=2).start()[-1])  # its key is of no use, and no harm
    content = lead.current.transcript + bytes(world.terms.masked_bytes)
    with pytest.raises(ProtocolError, match="party 5 submitted to an attempt it is not in"):
        lead.receive(sealed(world, lead, Kind.SUBMIT, 4, content))
    assert lead.waiting_for() == [1, 2, 3]


def test_a_self_mask_of_a_party_that_is_not_in_the_group_is_refused() -> None:
    world = tolerant()
    parties, held = gone_on(world)
    (revealed,) = parties[1].receive(held[0])
    body = decode(revealed).body
    with pytest.raises((ProtocolError, MessageError)):
        parties[0].receive(forged(world, Kind.REVEAL, 2, 4, 0, body))


def test_a_self_mask_of_a_party_that_sent_a_key_and_is_not_in_the_group_spoils_nothing() -> None:
    world = tolerant()
    parties, held = gone_on(world)
    parties[0].receive(world.party(4, attempt=2).start()[-1])
    stray = sealed(world, parties[0], Kind.REVEAL, 4, bytes(32))
    try:
        parties[0].receive(stray)
    except ProtocolError:
        return  # it is named, and the session stops
    exchange(parties[:4], first=lambda party: [data for one in held for data in opened(party, one)])
    check_outcome(world, parties[:4], frozenset(range(4)))


def opened(party: PartySession, data: bytes) -> list[bytes]:
    return party.receive(data) if decode(data).recipient == party.index else []


@pytest.mark.parametrize("guarantee", GUARANTEES)
def test_a_key_of_an_unknown_attempt_is_early_and_then_used(guarantee: Guarantee) -> None:
    world = tolerant(guarantee=guarantee)
    parties = world.parties()
    for party in parties:
        party.start()
    _, key_of_lead = parties[0].retry()
    key_of_two = parties[2].receive(group(world, 2, range(5)))[0]
    for data in (key_of_lead, key_of_two):
        with pytest.raises(TooEarlyError):
            parties[1].receive(data)
    parties[1].receive(group(world, 2, range(5)))
    for data in (key_of_lead, key_of_two):
        parties[1].receive(data)
    assert parties[1].waiting_for() == [3, 4]


@pytest.mark.parametrize("kind", NEW_KINDS)
def test_messages_of_drop_outs_are_refused_where_nobody_may_drop_out(kind: Kind) -> None:
    world = World(5, 3, [0, 3])
    bodies = {Kind.GROUP: to_bits(range(5), 5), Kind.OPEN: bytes(HASH_BYTES), Kind.REVEAL: bytes(SEAL_BYTES + 32)}
    sender, recipient = (1, 0) if kind == Kind.REVEAL else (0, 1)
    to = EVERYONE if kind == Kind.GROUP else recipient
    for attempt in (1, 2):
        with pytest.raises(ProtocolError, match="breaks the protocol"):
            world.party(recipient).receive(forged(world, kind, attempt, sender, to, bodies[kind]))
    sent = exchange(world.parties())
    assert not {decode(data).kind for _, data in sent} & set(NEW_KINDS)
    assert world.parties()[0].drop_missing() == []


@pytest.mark.parametrize("guarantee", GUARANTEES)
def test_a_party_that_is_left_out_sends_and_reveals_nothing_and_may_come_back(guarantee: Guarantee) -> None:
    world = tolerant(guarantee=guarantee)
    parties = world.parties()
    sent = exchange(parties, lambda _, data: [] if decode(data).sender == 4 and quiet(data) else [data])
    again = parties[0].drop_missing()
    assert {decode(data).kind for data in again} == {Kind.GROUP, Kind.KEYS}
    asked = digest_of(next(data for to, data in sent if decode(data).kind == Kind.KEYS))
    for data in again:
        assert parties[4].receive(data) == []
    assert parties[4].left_out
    assert parties[4].attempt == 1
    assert parties[4].receive(forged(world, Kind.OPEN, 1, 0, 4, asked)) == []
    assert world.secrets[4].opening(0) == 0
    assert parties[4].retry() == []
    assert parties[4].drop_missing() == []

    exchange(parties[:4], without(Kind.SUBMIT), first=lambda party: again if party.is_lead else [])
    final = exchange(parties, first=PartySession.retry)
    assert not parties[4].left_out
    assert 3 in {decode(data).attempt for _, data in final if decode(data).sender == 4}
    check_outcome(world, parties, frozenset(range(5)))


def quiet(data: bytes) -> bool:
    return decode(data).kind == Kind.SUBMIT


@pytest.mark.parametrize("guarantee", GUARANTEES)
def test_nobody_but_the_lead_receiver_begins_an_attempt_and_none_after_the_opening(guarantee: Guarantee) -> None:
    world = tolerant(guarantee=guarantee)
    parties, held = submitted(world)
    for party in parties:
        assert party.retry() == []
        assert party.drop_missing() == []
        assert party.attempt == 1
    assert parties[0].step == "reveal"
    assert parties[0].waiting_for() == [1, 2, 3, 4]
    rebuilt = world.party(0)
    rebuilt.start()
    assert rebuilt.retry() == []  # also before it knows again that all have submitted
    assert rebuilt.drop_missing() == []
    exchange(parties, first=lambda party: [data for one in held for data in opened(party, one)])
    check_outcome(world, parties, frozenset(range(5)))


def test_attempts_are_limited_where_parties_drop_out() -> None:
    world = tolerant()
    with pytest.raises(ProtocolError, match="the group of attempt 100 is lost: start a new session"):
        world.party(0, attempt=100)
    world.secrets[0].group(100, to_bits(range(world.terms.count), world.terms.count))
    lead = world.party(0, attempt=100)
    lead.start()
    with pytest.raises(ProtocolError, match="start a new session"):
        lead.retry()


# Any order ------------------------------------------------------------------------------------------------------------


SHAPES: Final[dict[Guarantee, list[tuple[int, int, int]]]] = {  # parties, colluders, drop-outs
    "computational": [(4, 1, 1), (5, 2, 1), (7, 1, 2), (8, 1, 3)],
    "statistical": [(4, 1, 2), (5, 2, 1), (5, 1, 3), (6, 3, 2)],
}


def repeated(random: np.random.Generator) -> Callable[[int, bytes], list[bytes]]:
    return lambda _, data: [data] * int(random.integers(1, 3))


@pytest.mark.parametrize("guarantee", GUARANTEES)
@pytest.mark.slow
def test_any_order_and_repetition_of_messages_gives_the_same_sum(guarantee: Guarantee) -> None:
    for seed in range(20):
        random = np.random.default_rng(seed)
        world = tolerant(*SHAPES[guarantee][seed % 4], [0, 2], guarantee)
        parties = world.parties()
        exchange(parties, repeated(random), order=random)
        check_outcome(world, parties, frozenset(range(world.terms.count)))


@pytest.mark.parametrize("guarantee", GUARANTEES)
@pytest.mark.slow
def test_a_lead_receiver_that_goes_on_at_any_moment_gives_the_sum_of_its_last_group(guarantee: Guarantee) -> None:
    """Nobody is lost, the lead receiver is only impatient: it goes on without parties that are merely slow."""
    sizes = set()
    for seed in range(28):
        random = np.random.default_rng(seed)
        world = tolerant(*SHAPES[guarantee][seed % 4], [0, 2], guarantee)
        parties = world.parties()
        net = Net(world, parties)
        for _ in range(4):
            net.run(random, int(random.integers(5, 60)))
            net.post(0, parties[0].drop_missing() if random.random() < 0.8 else parties[0].retry())
        net.run(random)
        while not parties[0].done:
            again = parties[0].drop_missing()
            assert again
            net.post(0, again)
            net.run(random)
        check_outcome(world, parties, parties[0].members)
        sizes.add(world.terms.count - len(parties[0].members))
    assert len(sizes) >= 3


class Net:
    """A relay in memory: it keeps all messages, and a party that is started again reads them again."""

    def __init__(self, world: World, parties: list[PartySession], lost: dict[int, Kind] | None = None) -> None:
        self.world, self.parties, self.lost = world, parties, lost or {}
        self.slots: dict[tuple[int, ...], bytes] = {}
        self.boxes: dict[int, list[bytes]] = {party.index: [] for party in parties}
        self.gone: set[int] = set()
        self.taken = dict.fromkeys(self.boxes, 0)
        for party in parties:
            self.post(party.index, party.start())

    def post(self, sender: int, messages: list[bytes]) -> None:
        for data in messages:
            message = decode(data)
            self.gone |= {sender} if self.lost.get(sender) == message.kind else set()
            if sender in self.gone:
                return
            assert self.slots.setdefault(message.slot, data) == data, f"{message} was sent twice, differently"
            for other in self.boxes if message.recipient == EVERYONE else [message.recipient]:
                if other != sender and data not in self.boxes[other]:
                    self.boxes[other].append(data)

    def rebuild(self, index: int, party: PartySession) -> None:
        self.parties[index] = party
        for data in self.slots.values():
            message = decode(data)
            if message.recipient in (index, EVERYONE) and message.sender != index and data not in self.boxes[index]:
                self.boxes[index].append(data)
        self.post(index, party.start())

    def run(self, random: np.random.Generator | None = None, most: int = 100_000) -> None:
        """Deliver, in random order if asked, until nothing moves or so many were taken."""
        early = 0
        while most and early <= 40 * sum(map(len, self.boxes.values())):  # drawn at random
            full = [index for index, box in self.boxes.items() if box and index not in self.gone]
            if not full:
                return
            index = full[int(random.integers(len(full))) if random is not None else 0]
            if random is None and early:
                index = full[early % len(full)]
            box = self.boxes[index]
            data = box.pop(int(random.integers(len(box))) if random is not None else 0)
            try:
                self.post(index, self.parties[index].receive(data))
                self.taken[index] += 1
                most, early = most - 1, 0
            except TooEarlyError:
                box.append(data)
                early += 1


# Crashes --------------------------------------------------------------------------------------------------------------


def settle(net: Net) -> None:
    """To the end, the lead receiver going on without who is lost."""
    for _ in range(5):
        net.run()
        lead = net.parties[net.world.terms.lead]
        again = lead.drop_missing()
        if lead.done or not again:
            return
        net.post(lead.index, again)


def last_of(secrets: Secrets) -> int:
    assert isinstance(secrets, FreshSecrets)
    return secrets.last_attempt()


def step_by_step(world: World, victim: int, crash: int, lost: dict[int, Kind]) -> Net | None:
    """A session in which one party is started again after it has taken so many messages; nothing if it took fewer."""
    net = Net(world, world.parties(), lost)
    crashed = False
    for _ in range(2000):
        before = net.taken[victim]
        if not crashed and before >= crash:
            net.rebuild(victim, world.party(victim, attempt=last_of(world.secrets[victim])))
            crashed = True
        total = sum(net.taken.values())
        net.run(most=1)
        if sum(net.taken.values()) == total:
            lead = net.parties[0]
            again = [] if lead.done else lead.drop_missing()
            if not again:
                break
            net.post(0, again)
    return net if crashed else None


@pytest.mark.parametrize("guarantee", GUARANTEES)
@pytest.mark.parametrize("victim", [0, 1, 2])
@pytest.mark.slow
def test_a_party_started_again_at_any_step_sends_the_same_bytes_and_the_sum_is_right(
    victim: int, guarantee: Guarantee
) -> None:
    """`Net` refuses a second message of a kind that differs from the first: key, pad, submission, self-mask, group."""
    steps = 0
    while True:
        world = tolerant(4, 1, 1, [0, 1], guarantee)
        net = step_by_step(world, victim, steps, {3: Kind.SUBMIT})
        if net is None:
            break
        done = [party for party in net.parties if party.index != 3]
        check_outcome(world, done, frozenset({0, 1, 2}))
        assert {party.attempt for party in done} == {2}
        steps += 1
    assert steps >= 8


@contextmanager
def with_ledgers(world: World, folder: Path, parties: Sequence[int]) -> Iterator[dict[int, Ledger]]:
    with ExitStack() as stack:
        ledgers = {}
        for index in parties:
            ledger = stack.enter_context(Ledger.create(folder / f"{index}.ledger", f"party {index}", 10.0, 1e-6))
            charge = Charge(0.1, 1e-50, 1.0, 1e-6)
            ledger.hold(key_of(world.terms), "study / session 1", charge, unit="record", private={})
            world.secrets[index] = LedgerSecrets(ledger, key_of(world.terms))
            ledgers[index] = ledger
        yield ledgers


def reopened(world: World, ledgers: dict[int, Ledger], folder: Path, index: int) -> PartySession:
    """The party as a new process would make it from its ledger file."""
    ledgers[index].close()
    ledgers[index] = Ledger.open(folder / f"{index}.ledger")
    secrets = LedgerSecrets(ledgers[index], key_of(world.terms))
    world.secrets[index] = secrets
    return world.party(index, attempt=secrets.last_attempt())


@pytest.mark.parametrize("guarantee", GUARANTEES)
@pytest.mark.parametrize("victim", [0, 2])
def test_a_party_made_from_its_ledger_file_goes_on_where_it_was(
    tmp_path: Path, victim: int, guarantee: Guarantee
) -> None:
    for crash in (3, 8, 10):
        world = tolerant(4, 1, 1, [0, 1], guarantee)
        folder = tmp_path / str(crash)
        folder.mkdir()
        with with_ledgers(world, folder, [victim]) as ledgers:
            net = Net(world, world.parties(), {3: Kind.SUBMIT})
            net.run(most=crash)
            net.rebuild(victim, reopened(world, ledgers, folder, victim))
            net.run()
            net.post(0, net.parties[0].drop_missing())
            net.run(most=crash)
            net.rebuild(victim, reopened(world, ledgers, folder, victim))
            settle(net)
            check_outcome(world, [party for party in net.parties if party.index != 3], frozenset({0, 1, 2}))
            ledgers[victim].close()


def files_of(folder: Path) -> bytes:
    return b"".join(path.read_bytes() for path in sorted(folder.iterdir()))


@pytest.mark.parametrize("guarantee", GUARANTEES)
def test_the_self_mask_of_an_attempt_that_was_given_up_is_gone_from_the_disk(
    tmp_path: Path, guarantee: Guarantee
) -> None:
    world = tolerant(4, 1, 1, [0, 1], guarantee, dimension=20)
    size = world.terms.masked_bytes if guarantee == "statistical" else KEEPER_BYTES
    with with_ledgers(world, tmp_path, [2]) as ledgers:
        net = Net(world, world.parties(), {3: Kind.SUBMIT})
        net.run()
        given_up = world.secrets[2].pad(1, 2, size)
        assert given_up in files_of(tmp_path)
        net.post(0, net.parties[0].drop_missing())
        net.run()
        used = ledgers[2].private_state(key_of(world.terms))
        assert f"pad 2 {2}" in used
        assert not [name for name in used if name.startswith("pad 1 ")]
        assert given_up not in files_of(tmp_path)
        assert used["pad 2 2"] in files_of(tmp_path)
        check_outcome(world, net.parties[:3], frozenset({0, 1, 2}))


def test_self_masks_in_memory_are_forgotten_too() -> None:
    """In a group of three, both that are not the lead receiver are keepers."""
    world = tolerant(4, 1, 1, [0, 1], "computational")
    net = Net(world, world.parties(), {3: Kind.SUBMIT})
    settle(net)
    check_outcome(world, net.parties[:3], frozenset({0, 1, 2}))
    for index in (1, 2):
        secrets = world.secrets[index]
        assert isinstance(secrets, FreshSecrets)
        assert pads_of(secrets) == {f"pad 2 {index}"}


@pytest.mark.parametrize("guarantee", GUARANTEES)
def test_a_party_that_noted_a_reveal_never_reveals_another_attempt(tmp_path: Path, guarantee: Guarantee) -> None:
    """Also if it was cut off before the self-mask left, and whatever process of the party is asked."""
    world = tolerant(4, 1, 1, [0, 1], guarantee)
    with with_ledgers(world, tmp_path, [0, 2]) as ledgers:
        parties, held = submitted(world)
        asked = next(data for data in held if decode(data).recipient == 2)
        parties[2].receive(asked)  # and what it sends is lost
        again = reopened(world, ledgers, tmp_path, 2)
        again.start()
        for members in ([0, 1, 2, 3], [0, 1, 3], [0, 1, 2]):
            with pytest.raises(ProtocolError, match="open a second time"):
                again.receive(group(world, 2, members))
        assert again.attempt == 1

        lead = reopened(world, ledgers, tmp_path, 0)
        assert lead.start() == [data for data in world.party(0).start() if decode(data).kind != Kind.GROUP]
        assert lead.retry() == lead.drop_missing() == []
        net = Net(world, [world.party(index, attempt=1) for index in range(4)])
        net.run()
        check_outcome(world, net.parties, frozenset(range(4)))
        assert asked in net.slots.values()
        ledgers[0].close()
        ledgers[2].close()


@pytest.mark.parametrize("guarantee", GUARANTEES)
def test_another_process_that_lags_behind_cannot_open_a_second_attempt(tmp_path: Path, guarantee: Guarantee) -> None:
    """The one process has gone on to attempt 2 and revealed there; the other is asked to reveal attempt 1."""
    world = tolerant(4, 1, 1, [0, 1], guarantee)
    with with_ledgers(world, tmp_path, [2]):
        parties, held = submitted(world)
        asked = next(data for data in held if decode(data).recipient == 2)
        assert world.secrets[2].opening(2) == 2  # as the other process would note
        with pytest.raises(ProtocolError, match="open a second time"):
            parties[2].receive(asked)
        rebuilt = world.party(2)
        rebuilt.start()
        assert world.secrets[2].opening(1) == 2


@pytest.mark.parametrize("guarantee", GUARANTEES)
def test_a_lead_receiver_made_again_says_the_same_group_and_asks_the_same(tmp_path: Path, guarantee: Guarantee) -> None:
    count = 5 if guarantee == "statistical" else 7
    world, members = tolerant(count, 1, 2, [1, 3], guarantee), list(range(1, count - 1))
    with with_ledgers(world, tmp_path, [1]) as ledgers:
        parties = world.parties()
        left = [parties[index] for index in members]
        exchange(left)
        first = parties[1].drop_missing()
        again = reopened(world, ledgers, tmp_path, 1)
        assert (again.attempt, sorted(again.members)) == (2, members)
        assert again.start()[1:] == first
        twice = reopened(world, ledgers, tmp_path, 1)
        left[0] = twice
        sent = exchange(left, without(Kind.REVEAL), first=lambda party: party.start()[1:] if party.is_lead else [])
        opens = {data for _, data in sent if decode(data).kind == Kind.OPEN}
        assert len(opens) == len(members) - 1
        third = reopened(world, ledgers, tmp_path, 1)
        third.start()
        more: list[bytes] = []
        for _, data in sorted(sent, key=lambda one: decode(one[1]).kind):
            message = decode(data)
            if message.sender != 1 and message.recipient in (1, EVERYONE):
                more += third.receive(data)
        assert opens == {data for data in more if decode(data).kind == Kind.OPEN}
        assert third.retry() == third.drop_missing() == []
        ledgers[1].close()


def test_a_receiver_started_again_knows_who_is_counted_in_the_answer_it_takes() -> None:
    """The relay hands over the answer first. `members` would be empty: nobody counted, and no noise in the answer."""
    world = tolerant(4, 1, 1, [0, 1])
    net = Net(world, world.parties(), {3: Kind.SUBMIT})
    settle(net)
    check_outcome(world, net.parties[:3], frozenset({0, 1, 2}))
    answer = next(data for data in net.slots.values() if decode(data).kind == Kind.RESULT)
    again = world.party(1, attempt=2)
    again.start()
    try:
        again.receive(answer)
    except TooEarlyError:
        return
    assert again.result is not None
    assert again.members == {0, 1, 2}


# Terms ----------------------------------------------------------------------------------------------------------------


def test_terms_without_drop_outs_are_what_they_were() -> None:
    for guarantee in GUARANTEES:
        terms = World(5, 3, [0, 3], guarantee).terms
        fields = {field.name: getattr(terms, field.name) for field in dataclasses.fields(terms)}
        del fields["tolerate"]
        old = Terms(**fields)
        assert old.tolerate == terms.tolerate == 0
        assert "tolerate" not in terms.canonical()
        assert old.canonical() == terms.canonical()
        assert old.plan_hash == terms.plan_hash
        assert dataclasses.replace(terms, tolerate=0).plan_hash == terms.plan_hash
        assert terms.colluders == 3


def test_the_plan_hash_of_a_session_without_drop_outs_is_the_one_of_older_versions() -> None:
    terms = World(3, 1, [0]).terms
    document = json.loads(terms.canonical())
    fields = {field.name for field in dataclasses.fields(terms)} - {"spec", "grid", "tolerate", "needs", "public"}
    parts = {"names", "epsilon", "delta", "sensitivity", "threshold", "receivers", "step", "dimension", "word"}
    assert set(document) == fields | parts
    text = json.dumps(document, sort_keys=True, separators=(",", ":"))
    assert terms.plan_hash == hashlib.sha256(b"tpmdp plan 1" + text.encode()).digest()


def test_terms_with_drop_outs_say_so_and_can_be_read_again() -> None:
    terms = World(7, 2, [0, 3]).terms
    hashes = {terms.plan_hash}
    for tolerate in (1, 2):
        changed = World(7, 2, [0, 3], tolerate=tolerate).terms
        assert f'"tolerate":{tolerate}' in changed.canonical()
        assert changed.session == terms.session
        hashes.add(changed.plan_hash)
        read = Terms.parse(changed.canonical())
        assert (read.tolerate, read.plan_hash, read.colluders) == (tolerate, changed.plan_hash, 2)
        assert read.among([0, 1, 3, 4, 5, 6]).sigma.tolist() == changed.among([0, 1, 3, 4, 5, 6]).sigma.tolist()
    assert len(hashes) == 3
    with pytest.raises(InputError, match="canonical form"):
        Terms.parse(terms.canonical().replace('"word"', '"tolerate":0,"word"'))
    text = World(7, 2, [0, 3], tolerate=2).terms.canonical()
    for odd in ('"2"', "true", "1.0", "null", "[1]"):
        with pytest.raises(InputError):
            Terms.parse(text.replace('"tolerate":2', f'"tolerate":{odd}'))
    for odd in ("null", "[]", '["0x1.0p+1"]', '"1"', "[1, 2]"):
        with pytest.raises(InputError):
            Terms.parse(re.sub(r'"needs":\[[^]]*\]', f'"needs":{odd}', text))


def test_noise_is_the_same_whether_parties_may_drop_out_or_not() -> None:
    for count, threshold, most in ((5, 1, 1), (7, 2, 2), (10, 2, 3), (20, 5, 7)):
        without = World(count, threshold, [0, 3]).terms
        for tolerate in (1, most):
            terms = World(count, threshold, [0, 3], tolerate=tolerate).terms
            assert terms.standard_deviation == pytest.approx(without.standard_deviation, rel=1e-3)  # of another grid


@pytest.mark.parametrize("tolerate", [-1, 2, 3, 100])
def test_a_number_of_drop_outs_that_the_others_could_not_open_without_is_refused(tolerate: int) -> None:
    with pytest.raises(InputError, match="tolerate"):
        dataclasses.replace(World(5, 2, [0, 3]).terms, tolerate=tolerate)


def test_needs_of_groups_belong_to_drop_outs() -> None:
    terms = World(5, 2, [0, 3], tolerate=1).terms
    assert terms.needs is not None
    for changes in ({"tolerate": 0}, {"needs": None}, {"needs": terms.needs[:4]}, {"needs": -terms.needs}):
        with pytest.raises(InputError, match="needs of groups"):
            dataclasses.replace(terms, **changes)


@pytest.mark.parametrize("tolerate", [True, 1.0])
def test_a_number_of_drop_outs_that_is_no_whole_number_is_refused(tolerate: Any) -> None:
    with pytest.raises(InputError, match="tolerate"):
        dataclasses.replace(World(5, 3, [0, 3]).terms, tolerate=tolerate)


def test_personal_thresholds_go_without_drop_outs() -> None:
    personal: Any = np.array([3, 3, 2, 3, 3])
    with pytest.raises(InputError, match="needs one threshold for all"):
        dataclasses.replace(World(5, personal, [0, 3]).terms, tolerate=1)


def test_the_guarantee_is_that_without_drop_outs() -> None:
    for guarantee in GUARANTEES:
        text = guarantee_text(World(7, 2, [0], guarantee, tolerate=2).terms)
        assert text == guarantee_text(World(7, 2, [0], guarantee).terms)
        assert "at most 2 parties" in text


def test_honest_parties_share_masks_whoever_colludes_and_drops_out() -> None:
    """In the graph of every group that may be left."""
    for count in range(4, 10):
        for threshold in range(1, count - 2):
            least = count - most_lost(count, threshold)
            for size in range(least, count + 1):
                graph = MaskGraph.draw(size, threshold, bytes(32))
                around = [set(graph.partners(rank).neighbours.tolist()) for rank in range(size)]
                for removed in combinations(range(size), threshold):
                    left = set(range(size)) - set(removed)
                    seen, todo = set(), [min(left)]
                    while todo:
                        party = todo.pop()
                        todo += [other for other in around[party] & left if other not in seen]
                        seen.add(party)
                    assert seen == left


def test_the_error_of_an_answer_without_some_parties_is_that_of_their_own_plan() -> None:
    terms = tolerant().terms
    assert terms.standard_deviation_of(range(5)) == terms.standard_deviation
    group = terms.among([0, 1, 2])
    assert terms.standard_deviation_of([0, 1, 2]) == group.standard_deviation
    assert (group.sigma[1:] > 0).all()
    assert group.sigma.tolist() != terms.sigma[:3].tolist()
