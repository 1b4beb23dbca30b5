"""Clients that follow no rules: they are left out and nobody else, take no name, keep nobody out and fill no memory."""

from __future__ import annotations

import math
import os
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from flwr.app import Message, RecordDict
from flwr.serverapp.strategy import Result

from tests.flower.hostile import Hostile, sign_claim
from tests.flower.local_grid import fields
from tests.flower.world import (
    KEYS,
    REVEAL,
    SHARE,
    SUBMIT,
    Peeled,
    World,
    arrays_of,
    inbox,
    make_world,
    outbox,
    record_of_arrays,
)
from tests.protocol.sessions import World as Session
from tpmdp.flower import PrivateStrategy
from tpmdp.flower.carrier import Carrier
from tpmdp.flower.enrolment import Enrolment
from tpmdp.flower.message_replay import bounded
from tpmdp.flower.nodes import Nodes
from tpmdp.flower.wire import bytes_of, pack, unpack_text
from tpmdp.protocol.channel import seal
from tpmdp.protocol.hybrid import PUBLIC_BYTES, Capsule, HybridKey
from tpmdp.protocol.messages import EVERYONE, HASH_BYTES, Kind, ProtocolError, decode, encode
from tpmdp.protocol.messages import Message as Protocol
from tpmdp.protocol.party import PartySession
from tpmdp.protocol.rules import FORMS, opening_bytes
from tpmdp.protocol.secrets import FreshSecrets
from tpmdp.protocol.shares import SHARE_BYTES
from tpmdp.protocol.terms import Terms

HONEST = {"client-1", "client-2", "client-3"}


def train(world: World, strategy: PrivateStrategy, rounds: int) -> Result:
    """A training; what honest clients do is not checked against the hostile client's replies."""
    grid: Any = world.grid
    return strategy.start(grid, record_of_arrays({"w": np.zeros(3)}), rounds, timeout=0.01)


def between(world: World, change: Callable[[int, Message, Message], None]) -> None:
    """Let something change the replies of nodes on their way."""
    once = world.grid.deliver

    def deliver(number: int, message: Message) -> Message:
        reply = once(number, message)
        if not reply.has_error():
            change(number, message, reply)
        return reply

    world.grid.deliver = deliver  # type: ignore[method-assign]


# Who breaks the protocol is left out, and nobody else ----------------------------------------------------------------


def signed(said: Peeled, kind: int, body: bytes, identity: Ed25519PrivateKey, attempt: int = 1) -> bytes:
    recipient = EVERYONE if kind == KEYS else 0
    return encode(Protocol(Kind(kind), attempt, said.sender, recipient, said.session, said.plan, body), identity)


def unusable_key(said: Peeled, identity: Ed25519PrivateKey, terms: Terms) -> list[bytes]:
    """The server's own mask with it fails only when the last honest key arrives."""
    return [signed(said, KEYS, bytes(32) + other_key()[32:], identity)]


def early_submission(said: Peeled, identity: Ed25519PrivateKey, terms: Terms) -> list[bytes]:
    """Too early to be looked at; it does not open when the last honest key arrives."""
    return [said.data, signed(said, SUBMIT, os.urandom(FORMS[Kind.SUBMIT].length(terms)), identity)]


def two_keys(said: Peeled, identity: Ed25519PrivateKey, terms: Terms) -> list[bytes]:
    return [said.data, signed(said, KEYS, other_key(), identity)]


def next_attempt(said: Peeled, identity: Ed25519PrivateKey, terms: Terms) -> list[bytes]:
    """Only the server begins one."""
    return [said.data, signed(said, KEYS, other_key(), identity, attempt=2)]


def short_key(said: Peeled, identity: Ed25519PrivateKey, terms: Terms) -> list[bytes]:
    return [signed(said, KEYS, bytes(31), identity)]


def notes(said: Peeled, identity: Ed25519PrivateKey, terms: Terms) -> list[bytes]:
    """A kind of message that a training has no use for."""
    return [said.data, signed(said, Kind.NOTES, b"", identity)]


def parts_unsigned(said: Peeled, identity: Ed25519PrivateKey, terms: Terms) -> list[bytes]:
    return [said.data, signed(said, Kind.PARTS, b"", Ed25519PrivateKey.generate())]


def other_key() -> bytes:
    return HybridKey.fresh().public


DEEDS = [unusable_key, early_submission, two_keys, next_attempt, short_key, notes, parts_unsigned]


@pytest.mark.parametrize("tolerate", [0, 1])
@pytest.mark.parametrize("since", [1, 2])
@pytest.mark.parametrize("deed", DEEDS, ids=lambda deed: deed.__name__)
def test_the_offender_is_left_out_and_nobody_else(tmp_path: Path, deed: Any, since: int, tolerate: int) -> None:
    """From the first session on, or in the terms of the next round, which travel with the messages of the first."""
    world = make_world(tmp_path, 4, rounds=12)
    identity = world.settings(0).identity
    offers = 0

    def misbehave(number: int, request: Message, reply: Message) -> None:
        nonlocal offers
        if number != 0 or "terms" not in fields(request):
            return
        offers += 1
        terms = Terms.parse(unpack_text(bytes_of(fields(request), "terms")))  # type: ignore[arg-type]
        if offers >= since:
            messages: list[bytes] = []
            for said in outbox(reply):
                is_key = said.kind == KEYS and said.session == terms.session
                messages += deed(said, identity, terms) if is_key else [said.data]
            fields(reply)["outbox"] = pack(messages)

    between(world, misbehave)
    strategy = world.strategy(tolerate=tolerate, clients_least=3)
    train(world, strategy, 4)
    assert offers >= since
    assert strategy._clients._out == {100}
    assert {client.name for client in strategy._clients.clients.values()} == HONEST
    assert [report.number for report in strategy.reports] == [1, 2, 3, 4]
    assert set(strategy.reports[-1].counted) == HONEST
    assert all(len(world.charged(number)) <= 5 for number in (1, 2, 3))


# Shares that are wrong -----------------------------------------------------------------------------------------------


class WrongShares:
    """Some clients reveal, or deal as keepers, other shares than they should. `content` makes bytes of a length."""

    def __init__(
        self,
        world: World,
        hostile: set[int],
        content: Callable[[int], bytes],
        kind: int = REVEAL,
        sealed: bool = True,
    ) -> None:
        self.sessions: list[bytes] = []  # in which they did so
        self._world, self._hostile, self._content, self._kind, self._sealed = world, hostile, content, kind, sealed
        self._keys: dict[tuple[int, bytes, int, int], bytes] = {}  # by client, session, attempt and party
        self._terms: dict[bytes, Terms] = {}
        between(world, self._change)

    def _change(self, number: int, request: Message, reply: Message) -> None:
        if number not in self._hostile:
            return
        for message in inbox(request):
            if message.kind == KEYS:
                self._keys[number, message.session, message.attempt, message.sender] = message.body
        if "terms" in fields(request):
            terms = Terms.parse(unpack_text(bytes_of(fields(request), "terms")))  # type: ignore[arg-type]
            self._terms[terms.session] = terms
        changed = [self._wrong(number, said) if said.kind == self._kind else said.data for said in outbox(reply)]
        if "outbox" in fields(reply):
            fields(reply)["outbox"] = pack(changed)

    def _wrong(self, number: int, said: Peeled) -> bytes:
        if said.session not in self.sessions:
            self.sessions.append(said.session)
        identity, private = self._world.settings(number).identity, self._world.private(number)
        if not self._sealed:
            return signed(said, said.kind, os.urandom(len(said.body)), identity, attempt=said.attempt)
        if said.kind == REVEAL:
            content = self._content(opening_bytes(self._terms[said.session]))
        else:
            content = private[said.session.hex(), f"bound {said.attempt}"] + self._content(HASH_BYTES + SHARE_BYTES)
        header = (said.attempt, said.sender, said.recipient, said.session, said.plan)
        public = self._keys[number, said.session, said.attempt, said.recipient]
        own = HybridKey(private[said.session.hex(), f"key {said.attempt}"])
        envelope = Protocol(Kind(said.kind), *header, body=b"")
        return encode(seal(own, public, envelope, capsule=Capsule.to(public), content=content), identity)


CONTENTS: dict[str, Callable[[int], bytes]] = {
    "garbage": os.urandom,
    "zeros": bytes,
    "out of the field": lambda size: b"\xff" * size,
}


@pytest.mark.parametrize("count", [3, 5])
@pytest.mark.parametrize("content", CONTENTS)
def test_wrong_shares_of_one_client_do_not_stop_a_round(tmp_path: Path, content: str, count: int) -> None:
    """The server leaves each opener out until the rest fits; the model is the right one, and nobody pays twice."""
    for hostile in (0, 1):  # their openings are among the first
        moves = [[0.1 * number, -0.25, 0.5] for number in range(count)]
        world = make_world(tmp_path / str(hostile), count, (math.inf, 1e-5), rounds=8, updates=moves)
        wrong = WrongShares(world, {hostile}, CONTENTS[content])
        strategy = world.strategy(tolerate=1)
        result = train(world, strategy, 2)
        assert len(wrong.sessions) == 2
        assert [(report.clients, report.sessions) for report in strategy.reports] == [(count, 1), (count, 1)]
        np.testing.assert_allclose(arrays_of(result.arrays)["w"], 2 * np.mean(moves, axis=0), atol=1e-3)
        assert all(len(world.charged(number)) == 2 for number in range(count))


def test_more_wrong_shares_than_can_be_left_out_give_no_answer_rather_than_a_wrong_one(tmp_path: Path) -> None:
    world = make_world(tmp_path, 4, rounds=8)
    WrongShares(world, {0, 1}, os.urandom)
    strategy = world.strategy(tolerate=1)
    with pytest.raises(ProtocolError, match="do not fit together"):
        train(world, strategy, 1)
    assert strategy.reports == []


def test_a_keeper_that_deals_wrong_shares_costs_its_session_and_nobody_gets_a_wrong_answer(tmp_path: Path) -> None:
    """Two of three clients are keepers: in the other sessions there is an answer, and it is right."""
    moves = [[0.1, -0.25, 0.5], [0.3, 0.0, 0.25], [-0.5, 0.25, 0.125]]
    world = make_world(tmp_path, 3, (math.inf, 1e-5), rounds=30, updates=moves)
    wrong = WrongShares(world, {0}, os.urandom, kind=SHARE)
    strategy = world.strategy(tolerate=1)
    for _ in range(30):
        with suppress(ProtocolError):
            result = train(world, strategy, 1)
            break
    sessions = world.charged(1)
    assert [session.hex() for session in wrong.sessions] == sessions[:-1]
    assert len(strategy.reports) == 1
    np.testing.assert_allclose(arrays_of(result.arrays)["w"], np.mean(moves, axis=0), atol=1e-3)


def test_who_reveals_something_that_does_not_open_is_left_out_and_nobody_else(tmp_path: Path) -> None:
    world = make_world(tmp_path, 4, rounds=8)
    wrong = WrongShares(world, {0}, os.urandom, sealed=False)
    strategy = world.strategy(tolerate=1)
    train(world, strategy, 2)
    assert len(wrong.sessions) == 1
    assert strategy._clients._out == {100}
    assert [(report.number, set(report.counted)) for report in strategy.reports] == [(1, HONEST), (2, HONEST)]
    assert all(len(world.charged(number)) <= 3 for number in (1, 2, 3))


def test_the_error_names_the_offender_whoever_brings_it_to_light() -> None:
    session = Session(4, 1, [0])
    terms, parties = session.terms, session.parties()
    lead = PartySession(terms, 0, session.identities[0], vector=lambda *_: session.vectors[0], secrets=FreshSecrets())
    carrier = Carrier(terms, {0: lead})
    carrier.start()
    carrier.post(parties[1].start(), 1)
    body = bytes(FORMS[Kind.SUBMIT].length(terms))
    bad = Protocol(Kind.SUBMIT, 1, 1, 0, terms.session, terms.plan_hash, body)
    carrier.post([encode(bad, session.identities[1])], 1)  # too early
    carrier.post(parties[2].start(), 2)
    carrier.post(parties[3].start(), 3)
    last = [pad for data in carrier.take(3) for pad in parties[3].receive(data)]
    with pytest.raises(ProtocolError) as caught:
        carrier.post(last, 3)
    assert caught.value.offender == 1
    assert terms.spec.name(1) in str(caught.value)


# Names ---------------------------------------------------------------------------------------------------------------


def enrolment_of(world: World, **more: Any) -> tuple[Enrolment, Nodes]:
    settings: dict[str, Any] = {"peers": None, "clients_least": 1, "clients_wanted": 0, "patience_s": 0.01, **more}
    grid: Any = world.grid
    return Enrolment(world.server.public_key().public_bytes_raw(), **settings), Nodes(grid, "train")


def names(enrolment: Enrolment) -> dict[int, str]:
    return {node: client.name for node, client in enrolment.clients.items()}


@pytest.mark.parametrize("signature", ["none", "own", "of another node", "of another nonce", "of another server"])
def test_nobody_enrols_with_the_key_of_another(tmp_path: Path, signature: str) -> None:
    """The first node to answer has the name and key of the second client; it does not have its private key."""
    world = make_world(tmp_path, 3)
    true = dict(fields(Hostile(world).ask(1, enrol=True)))  # a true answer to another question

    def steal(number: int, request: Message, reply: Message) -> None:
        if number != 0 or "enrol" not in fields(request):
            return
        claim = fields(reply)
        claim.update({**true, "name": "client-1"})
        if signature == "none":
            del claim["signature"]
        elif signature == "own":
            sign_claim(world.settings(0).identity, request, reply)
        elif signature == "of another node":
            asked: dict[str, Any] = dict(fields(request))
            del asked["version"]
            claim.update(fields(Hostile(world).ask(1, **asked)))
        elif signature == "of another server":
            world_key = Ed25519PrivateKey.generate().public_key().public_bytes_raw()
            answer = fields(Hostile(world).ask(1, enrol=True, server=world_key, nonce=bytes(32)))
            claim.update({name: value for name, value in answer.items() if name != "problem"})

    between(world, steal)
    enrolment, nodes = enrolment_of(world)
    enrolment.enrol(nodes)
    assert names(enrolment) == {101: "client-1", 102: "client-2"}
    assert "not signed" in enrolment.reason


def test_a_client_answers_only_the_server_that_it_knows_and_only_with_a_nonce(tmp_path: Path) -> None:
    server = Hostile(make_world(tmp_path, 1))
    other = Ed25519PrivateKey.generate().public_key().public_bytes_raw()
    cases: list[tuple[dict[str, Any], str]] = [
        ({"server": other}, "is not the server that client-0 knows"),
        ({"nonce": b""}, "without its key or a nonce"),
        ({"nonce": bytes(31)}, "without its key or a nonce"),
        ({"server": b""}, "without its key or a nonce"),
    ]
    for asked, answer in cases:
        reply = fields(server.ask(0, enrol=True, **asked))
        assert answer in str(reply["problem"])
        assert "signature" not in reply


def test_a_name_stays_with_its_first_key_even_while_its_client_is_lost(tmp_path: Path) -> None:
    world = make_world(tmp_path, 3)

    def rename(number: int, request: Message, reply: Message) -> None:
        if number == 0 and "enrol" in fields(request):
            fields(reply)["name"] = "client-1"
            sign_claim(world.settings(0).identity, request, reply)

    between(world, rename)
    enrolment, nodes = enrolment_of(world)
    world.grid.down = {0}
    enrolment.enrol(nodes)
    assert names(enrolment) == {101: "client-1", 102: "client-2"}
    enrolment.lose(101)
    world.grid.down = {1}
    enrolment.invite(nodes)
    enrolment.welcome(nodes)
    assert names(enrolment) == {102: "client-2"}
    world.grid.down = set()
    enrolment.invite(nodes)
    enrolment.welcome(nodes)
    assert names(enrolment) == {101: "client-1", 102: "client-2"}


def test_a_client_whose_node_was_started_anew_comes_back_at_another(tmp_path: Path) -> None:
    """It may answer before the old node is known to be lost, and is not kept out for that."""
    world = make_world(tmp_path, 2)
    world.grid.contexts[101].node_config["partition-id"] = 0  # two nodes with the files of one client
    enrolment, nodes = enrolment_of(world)
    enrolment.enrol(nodes)
    assert names(enrolment) == {100: "client-0"}
    world.grid.down = {0}
    enrolment.lose(100)
    enrolment.invite(nodes)
    enrolment.welcome(nodes)
    assert names(enrolment) == {101: "client-0"}


# Newcomers -----------------------------------------------------------------------------------------------------------


def refuses_with(world: World, refusers: set[int], strangers: set[str]) -> None:
    """Some clients refuse all terms that name certain others."""

    def refuse(number: int, request: Message, reply: Message) -> None:
        packed = bytes_of(fields(request), "terms") if number in refusers else b""  # type: ignore[arg-type]
        if packed:
            terms = Terms.parse(unpack_text(packed))
            if strangers & {terms.spec.name(party) for party in range(terms.count)}:
                fields(reply)["refused"] = "I do not like them"

    between(world, refuse)


def arrive(world: World, rounds: dict[int, int]) -> Callable[[int, Message, RecordDict], RecordDict]:
    """Clients that are down until the round in which they arrive."""
    world.grid.down = set(rounds)

    def move(number: int, message: Message, content: RecordDict) -> RecordDict:
        now = int(str(message.content.config_records["config"]["server-round"]))
        world.grid.down = {client for client, since in rounds.items() if now < since}
        return content

    return move


def test_one_client_cannot_keep_newcomers_out(tmp_path: Path) -> None:
    world = make_world(tmp_path, 4, rounds=20)
    refuses_with(world, {0}, {"client-3"})
    world.hook = arrive(world, {3: 2})
    strategy = world.strategy(tolerate=1, clients_least=2)
    train(world, strategy, 6)
    assert [report.number for report in strategy.reports] == [1, 2, 3, 4, 5, 6]
    assert set(strategy.reports[-1].counted) == HONEST
    assert strategy._clients._out == {100}


def test_a_stranger_does_not_push_out_those_who_refuse_to_train_with_it(tmp_path: Path) -> None:
    world = make_world(tmp_path, 4, rounds=20)
    refuses_with(world, {0, 1, 2}, {"client-3"})
    world.hook = arrive(world, {3: 2})
    strategy = world.strategy(tolerate=1, clients_least=2)
    train(world, strategy, 6)
    assert set(strategy.reports[-1].counted) == {"client-0", "client-1", "client-2"}
    assert strategy._clients._out == set()
    assert list(strategy._clients._put_off) == [103]


def test_newcomers_that_are_put_off_come_in_when_they_are_as_many_as_those_who_refuse(tmp_path: Path) -> None:
    world = make_world(tmp_path, 6, rounds=20)
    refuses_with(world, {0, 1}, {"client-4", "client-5"})
    world.hook = arrive(world, {4: 2, 5: 5})
    strategy = world.strategy(tolerate=1, clients_least=2)
    train(world, strategy, 9)
    assert all("client-4" not in report.counted for report in strategy.reports[:5])
    assert set(strategy.reports[-1].counted) == {"client-2", "client-3", "client-4", "client-5"}
    assert len(strategy.reports) == 9


def test_a_newcomer_without_a_plan_does_not_keep_another_out(tmp_path: Path) -> None:
    """Also where too few of the others are left: that is no newcomer's fault."""
    world = make_world(tmp_path, 4, rounds=20)
    strategy = world.strategy(clients_least=2)
    strategy._clients.enrol(enrolment_of(world)[1])
    enrolled = strategy._clients
    assert len(enrolled.clients) == 4
    strategy._proven = {100, 101}
    possible = strategy._planner.is_possible
    strategy._planner.is_possible = lambda clients: (  # type: ignore[method-assign]
        "client-2" not in [client.name for client in clients] and possible(clients)
    )
    assert strategy._leave_out_newcomers("no plan")
    assert set(enrolled.clients) == {100, 101, 103}
    assert enrolled._out == {102}
    enrolled.lose(100)  # one of the others is too few
    assert not strategy._leave_out_newcomers("too few")
    assert set(enrolled.clients) == {101, 103}


def test_a_node_that_does_not_answer_an_invitation_is_asked_again_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = make_world(tmp_path, 1)
    enrolment, nodes = enrolment_of(world)
    monkeypatch.setattr(world.grid, "pull_messages", lambda _: [])
    enrolment.invite(nodes)
    enrolment.invite(nodes)
    assert (nodes.busy, len(world.grid.log)) == ({100}, 1)
    now = time.monotonic()
    monkeypatch.setattr(time, "monotonic", lambda: now + 3600)
    assert nodes.posted() == {}
    assert nodes.busy == set()
    enrolment.invite(nodes)
    assert len(world.grid.log) == 2


# Memory --------------------------------------------------------------------------------------------------------------


def remembered(world: World, number: int) -> int:
    """Bytes in a client's Flower context."""
    size = 0
    for record in world.grid.contexts[100 + number].state.config_records.values():
        for value in record.values():
            size += sum(map(len, value)) if isinstance(value, list) else len(value)  # type: ignore[arg-type]
    return size


@pytest.fixture
def offered(tmp_path: Path) -> tuple[World, Hostile, Terms]:
    """Two clients that have agreed to terms and have not trained yet."""
    world = make_world(tmp_path, 2)
    server = Hostile(world)
    terms = server.terms()
    server.offer_all(terms)
    return world, server, terms


def test_messages_without_a_good_signature_are_not_remembered(offered: tuple[World, Hostile, Terms]) -> None:
    world, server, terms = offered
    before = remembered(world, 0)
    stranger = Ed25519PrivateKey.generate()
    for attempt in (1, 2, 3):
        forged = [
            encode(
                Protocol(
                    Kind.KEYS, attempt, sender, EVERYONE, terms.session, terms.plan_hash, os.urandom(PUBLIC_BYTES)
                ),
                key,
            )
            for key in (stranger, world.settings(0).identity)
            for sender in (0, 2)
            for _ in range(50)
        ]
        server.ask(0, inbox=forged)
    assert remembered(world, 0) == before


def test_a_party_cannot_fill_memory_with_messages_that_it_signs(offered: tuple[World, Hostile, Terms]) -> None:
    world, server, terms = offered
    before = remembered(world, 0)
    identity = world.settings(1).identity

    def sign(kind: Kind, body: bytes, plan: bytes = terms.plan_hash) -> bytes:
        return encode(Protocol(kind, 1, 2, EVERYONE, terms.session, plan, body), identity)

    many = [sign(Kind.KEYS, os.urandom(PUBLIC_BYTES)) for _ in range(300)]
    other = [
        sign(Kind.KEYS, os.urandom(5000)),
        sign(Kind.GROUP, bytes(1)),
        sign(Kind.KEYS, bytes(PUBLIC_BYTES), bytes(32)),
    ]
    server.ask(0, inbox=many + other)
    server.ask(0, inbox=many)
    assert before < remembered(world, 0) <= before + 2 * len(many[0])


def test_what_is_remembered_is_what_the_client_needs(offered: tuple[World, Hostile, Terms]) -> None:
    """Among forged messages the good key is stored, and the client trains with it."""
    _, server, terms = offered
    (key,) = [message.data for message in server.offer(1, terms) if message.kind == KEYS]
    forged, own = key[:-1] + bytes([key[-1] ^ 1]), server.key_message(terms)
    server.ask(0, inbox=[forged, key, b"\0" * 250])
    reply = server.ask(0, train=terms, inbox=[own])
    assert [message.kind for message in outbox(reply)] == [Kind.PAD, SUBMIT]


def test_the_memory_of_a_session_is_bounded() -> None:
    session = Session(4, 1, [0])
    terms = session.terms
    keys = [
        encode(
            Protocol(Kind.KEYS, attempt, 1, EVERYONE, terms.session, terms.plan_hash, bytes(PUBLIC_BYTES)),
            session.identities[1],
        )
        for attempt in range(1, 20)
    ]
    assert bounded([*keys, *keys]) == keys
    assert bounded(keys, most=5 * len(keys[0])) == keys[:5]
    assert all(decode(data).sender == 1 for data in keys)
