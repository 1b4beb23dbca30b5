"""A server that breaks the rules learns no more than the protocol allows; what it gets is taken apart here by hand."""

from __future__ import annotations

import itertools
from collections.abc import Iterable
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from flwr.app import Message, RecordDict
from numpy.typing import NDArray

from tests.flower.hostile import Hostile, changed, quiet
from tests.flower.local_grid import fields
from tests.flower.world import (
    AGREE,
    GROUP,
    KEYS,
    OPEN,
    RECEIPT,
    RESULT,
    REVEAL,
    SHARE,
    SUBMIT,
    Peeled,
    World,
    make_world,
    outbox,
    peel,
    problem,
    vector_name,
)
from tpmdp.protocol.hybrid import HybridKey
from tpmdp.protocol.messages import EVERYONE, Kind, encode
from tpmdp.protocol.messages import Message as Signed
from tpmdp.protocol.notes import NOTE_BYTES
from tpmdp.protocol.terms import Terms
from tpmdp.spec import Party

UPDATES = [[0.5, 0.25, -0.5], [-0.25, 0.125, 0.5], [0.125, 0.5, 0.25]]
DATA = (SUBMIT, REVEAL, RESULT, Kind.PAD, SHARE)  # kinds that depend on data, or on what hides it


def kinds(reply: Message | Iterable[Peeled]) -> list[int]:
    return [message.kind for message in (outbox(reply) if isinstance(reply, Message) else reply)]


def of_kind(reply: Message, kind: int) -> Peeled:
    (found,) = (message for message in outbox(reply) if message.kind == kind)
    return found


def vector(world: World, number: int, terms: Terms, attempt: int = 1) -> NDArray[Any]:
    """What a client contributes, noise included, out of its ledger."""
    data = world.private(number)[terms.session.hex(), vector_name(terms, attempt)]
    return np.frombuffer(data, dtype=np.uint32 if terms.grid.word == 32 else np.uint64)


def plain_steps(world: World, number: int, terms: Terms) -> NDArray[Any]:
    """What a client would contribute without noise."""
    return (
        np.rint(world.updates[number] / terms.grid.step)
        .astype(np.int64)
        .astype(np.uint64)
        .astype(np.uint32 if terms.grid.word == 32 else np.uint64)
    )


def restart(world: World, number: int) -> None:
    """A node that is started again has forgotten all but its files."""
    world.grid.contexts[100 + number].state = RecordDict()


@pytest.fixture
def world(tmp_path: Path) -> World:
    return make_world(tmp_path, 3, updates=UPDATES)


@pytest.fixture
def server(world: World) -> Hostile:
    return Hostile(world)


@pytest.fixture
def dropping(world: World) -> Hostile:
    """A server of sessions in which a client may drop out."""
    return Hostile(world, tolerate=1)


# One plan for a session ----------------------------------------------------------------------------------------------


def signed(server: Hostile, plans: list[Terms]) -> dict[tuple[int, bytes], Peeled]:
    """Client i is offered plan i first and then the others; the keys that it signs for each."""
    keys = {}
    for number, plan in enumerate(plans):
        for offered in [plan, *(other for other in plans if other is not plan)]:
            for message in server.offer(number, offered):
                if message.kind == KEYS:
                    keys[number, offered.plan_hash] = message
    return keys


def trained_by_plans(server: Hostile, plans: list[Terms]) -> tuple[NDArray[Any], int]:
    """Client i trains by plan i, with keys that the others signed for that one; the sum, and how many submitted."""
    keys = signed(server, plans)
    total, count = np.zeros(plans[0].grid.dimension, dtype=np.uint32), 0
    for number, plan in enumerate(plans):
        others = [keys[other, plan.plan_hash].data for other in range(len(plans)) if (other, plan.plan_hash) in keys]
        for message in outbox(server.ask(number, train=plan, inbox=[server.key_message(plan), *others])):
            if message.kind == SUBMIT:
                key = keys[number, plan.plan_hash].body
                if plan.tolerate:
                    server.ask(number, inbox=[server.open_message(plan, message)])
                total += server.unmasked(plan, message, key)
                count += 1
    return total, count


def test_a_client_signs_one_plan_for_a_session(server: Hostile) -> None:
    terms = server.terms()
    plans = [quiet(terms, 1), quiet(terms, 2)]
    assert plans[0].session == plans[1].session
    assert kinds(server.offer(0, plans[0])) == [AGREE, KEYS]
    assert kinds(server.offer(0, plans[0])) == [AGREE, KEYS]  # the same again is no harm
    assert kinds(server.offer(0, plans[1])) == []


@pytest.mark.parametrize("after", ["training", "submission"])
def test_a_client_signs_no_second_plan_after(server: Hostile, after: str) -> None:
    terms = server.terms()
    keys = server.offer_all(terms)
    got = [server.key_message(terms), *keys[1:]] if after == "submission" else []
    assert (SUBMIT in kinds(server.ask(0, train=terms, inbox=got))) == (after == "submission")
    assert kinds(server.offer(0, quiet(terms, 1))) == []


def test_several_plans_for_one_session_do_not_take_the_noise_away(world: World, server: Hostile) -> None:
    """In plan i all but client i make noise; client i is told plan i."""
    terms = server.terms()
    total, _ = trained_by_plans(server, [quiet(terms, party) for party in (1, 2, 3)])
    exact = np.sum([plain_steps(world, number, terms) for number in range(3)], axis=0, dtype=np.uint32)
    assert total.tolist() != exact.tolist()


def test_several_plans_for_one_session_do_not_show_one_client(world: World, server: Hostile) -> None:
    """The same with weights: the others are told that they count for nothing, so what is left is client 0 alone."""
    terms = server.terms()
    plans = [quiet(terms, 1)]
    for party in (2, 3):
        weights = ", ".join(f'"{(0.0 if place in (0, party) else 1.0).hex()}"' for place in range(4)).replace(" ", "")
        start, end = terms.query.index("[") + 1, terms.query.index("]")
        plans.append(Terms.parse(changed(quiet(terms, party), query=terms.query[:start] + weights + terms.query[end:])))
    total, _ = trained_by_plans(server, plans)
    assert total.tolist() != plain_steps(world, 0, terms).tolist()


def test_several_plans_do_not_cancel_where_clients_may_drop_out(world: World, dropping: Hostile) -> None:
    terms = dropping.terms()
    total, count = trained_by_plans(dropping, [quiet(terms, party) for party in (1, 2, 3)])
    assert count in (0, 3)
    exact = np.sum([plain_steps(world, number, terms) for number in range(3)], axis=0, dtype=np.uint32)
    assert total.tolist() != exact.tolist()
    world.check()


@pytest.mark.parametrize("tolerate", [0, 1])
def test_a_vector_made_for_one_plan_goes_into_no_other(world: World, tolerate: int) -> None:
    """The noise in it is that of the first plan; a node that was started again is told another one."""
    server = Hostile(world, tolerate=tolerate)
    terms = server.terms()
    server.offer_all(terms)
    server.ask(0, train=terms)
    assert world.charged(0) == [terms.session.hex()]
    for number in range(3):
        restart(world, number)
    other = quiet(terms, 3)
    keys = server.offer_all(other)
    reply = server.ask(0, train=other, inbox=[server.key_message(other), *keys])
    assert not set(kinds(reply)) & set(DATA)
    world.check()


# Terms that are not good enough --------------------------------------------------------------------------------------


def test_weak_terms_get_no_signature_and_no_training(world: World, server: Hostile) -> None:
    good = server.terms()
    weak = [
        changed(good, sigma=[int(value) // 2 for value in good.sigma]),
        changed(good, sigma=[0] * 4),
        changed(good, epsilon=[value.hex() for value in [float("inf"), *(2 * good.spec.epsilon[1:]).tolist()]]),
        changed(good, threshold=0),
        changed(good, sensitivity=[(0.0).hex()] * 4),
        changed(good, query=good.query.replace('"clip":"0x1.0', '"clip":"0x1.8')),
        good.canonical() + " ",
        "nothing",
    ]
    for text in weak:
        reply = server.ask(0, terms=text)
        assert kinds(reply) == []
        assert problem(reply)
        session = Terms.parse(text).session if text.startswith("{") and text.endswith("}") else bytes(32)
        reply = server.ask(0, train=session, inbox=[server.key_message(good)])
        assert kinds(reply) == []
    assert world.charged(0) == []
    assert world.trained == []
    assert server.offer(0, good)  # as it should be
    world.check()


def test_clients_that_are_invented(world: World, server: Hostile) -> None:
    ghost = Ed25519PrivateKey.generate().public_key().public_bytes_raw()
    clients = server.clients()
    for name in ("client-2", "ghost"):
        invented = Party(name, 50.0, 1e-5, public_key=ghost, threshold=1)
        terms = server.training.terms("session", 1, server.public, [*clients[:2], invented])
        reply = server.ask(0, terms=terms)
        assert kinds(reply) == []
        assert "not a peer" in problem(reply)
    assert world.charged(0) == []


def test_a_server_that_is_not_the_one_of_the_file(world: World) -> None:
    world.server = Ed25519PrivateKey.generate()
    server = Hostile(world)
    assert kinds(server.ask(0, terms=server.terms())) == []


# Data only after keys of all, and charged first ----------------------------------------------------------------------


def test_nothing_leaves_before_all_keys_are_there(world: World, server: Hostile) -> None:
    terms = server.terms()
    keys = server.offer_all(terms)
    forged = encode(
        Signed(Kind.KEYS, 1, 2, EVERYONE, terms.session, terms.plan_hash, server.keys[5].public),
        world.server,
    )
    everything = [server.key_message(terms), keys[1], keys[2]]
    seen: list[bytes] = []
    for data in [b"", server.key_message(terms), forged, keys[1], keys[0]]:
        seen.append(data)
        reply = server.ask(0, train=terms, inbox=[data] if data else [])
        assert not set(kinds(reply)) & set(DATA)
        assert world.charged(0) == [terms.session.hex()]  # from the first training on
    reply = server.ask(0, inbox=[keys[2]])
    assert kinds(reply) == [Kind.PAD, SUBMIT]
    assert world.trained == [(0, 1)]
    assert kinds(server.ask(0, inbox=everything)) == []
    world.check()


@pytest.mark.parametrize("tolerate", [0, 1])
def test_keys_that_the_server_signs_for_clients_are_none(world: World, tolerate: int) -> None:
    """Else it would know all masks of the client."""
    server = Hostile(world, tolerate=tolerate)
    terms = server.terms()
    keys = server.offer_all(terms)
    own = server.keys[5].public
    forged = {
        party: encode(Signed(Kind.KEYS, 1, party, EVERYONE, terms.session, terms.plan_hash, own), world.server)
        for party in (2, 3)
    }
    damaged = keys[2][:-1] + bytes([keys[2][-1] ^ 1])
    for others in ([forged[2], forged[3]], [keys[1], forged[3]], [keys[1], damaged]):
        reply = server.ask(0, train=terms, inbox=[server.key_message(terms), *others])
        assert not set(kinds(reply)) & set(DATA)
    assert SUBMIT in kinds(server.ask(0, inbox=[keys[2]]))  # what is not signed was not kept


def test_what_one_client_alone_shows_is_its_noisy_vector(tmp_path: Path) -> None:
    """With one client the server shares its only mask: it sees the vector with all of its noise."""
    world = make_world(tmp_path, 1, updates=UPDATES[:1])
    server = Hostile(world)
    terms = server.terms()
    (key,) = (message for message in server.offer(0, terms) if message.kind == KEYS)
    reply = server.ask(0, train=terms, inbox=[server.key_message(terms)])
    found = server.words(terms, of_kind(reply, SUBMIT), key.body)
    assert found.tolist() == vector(world, 0, terms).tolist()
    noise = (found - plain_steps(world, 0, terms)).view(np.int32)
    sigma = int(terms.sigma[1])
    assert (np.abs(noise) > sigma / 1000).any()  # all three as near to 0: less than 1e-9
    assert (np.abs(noise) < 12 * sigma).all()


def test_another_model_for_the_same_session_changes_nothing(world: World, server: Hostile) -> None:
    """The app answers to the model it gets; the server gets the same bytes or none."""
    moves = iter(itertools.count())

    def answer(number: int, request: Message, content: RecordDict) -> RecordDict:
        world.updates[number] = np.full(3, next(moves) / 100)
        return content

    world.hook = answer
    terms = server.terms()
    keys = server.offer_all(terms)
    others = [server.key_message(terms), *keys[1:]]
    first = of_kind(server.ask(0, train=terms, inbox=others), SUBMIT)
    before = vector(world, 0, terms).tolist()
    for model in (np.ones(3), np.full(3, -1e9), np.full(3, np.nan)):
        assert kinds(server.ask(0, train=terms, model=model, inbox=others)) == []
        restart(world, 0)
        server.offer(0, terms)
        reply = server.ask(0, train=terms, model=model, inbox=others)
        assert [message.data for message in outbox(reply) if message.kind == SUBMIT] in ([], [first.data])
        server.offer(0, terms)
        server.ask(0, train=terms, model=model, inbox=others)
    assert vector(world, 0, terms).tolist() == before
    assert len(world.trained) == 1
    world.check()


def test_attempts_of_one_session_have_the_same_vectors_under_other_masks(world: World, server: Hostile) -> None:
    terms = server.terms()
    keys = {1: server.offer_all(terms)}
    words: dict[int, Any] = {}
    submitted: dict[int, list[Peeled]] = {}
    bodies: dict[int, list[bytes]] = {}
    for attempt in (1, 2):
        if attempt == 2:
            replies = [server.ask(number, inbox=[server.key_message(terms, 2)]) for number in range(3)]
            keys[2] = [of_kind(reply, KEYS).data for reply in replies]
        submitted[attempt] = []
        for number in range(3):
            others = [server.key_message(terms, attempt)]
            others += [data for place, data in enumerate(keys[attempt]) if place != number]
            submitted[attempt].append(of_kind(server.ask(number, train=terms, inbox=others), SUBMIT))
        bodies[attempt] = [peel(data).body for data in keys[attempt]]
        parts = [
            server.words(terms, message, bodies[attempt][number]) for number, message in enumerate(submitted[attempt])
        ]
        words[attempt] = np.sum(parts, axis=0, dtype=np.uint32)
        for number, part in enumerate(parts):
            assert part.tolist() != vector(world, number, terms).tolist()  # the others' masks are still on it
    expected = np.sum([vector(world, number, terms) for number in range(3)], axis=0, dtype=np.uint32)
    assert words[1].tolist() == words[2].tolist() == expected.tolist()
    assert len(world.trained) == 3
    world.check()


def test_unusable_keys_of_the_server(world: World, server: Hostile) -> None:
    terms = server.terms()
    keys = server.offer_all(terms)
    good = HybridKey.fresh().public
    for bad in (bytes(32) + good[32:], b"\1" + bytes(31) + good[32:], good[:32] + b"\xff" * (len(good) - 32)):
        data = server.key_message(terms, body=bad)
        reply = server.ask(0, train=terms, inbox=[data, *keys[1:]])
        assert not set(kinds(reply)) & set(DATA)
        assert problem(reply)
    world.check()


# Sessions that are not there, or over --------------------------------------------------------------------------------


def test_training_without_terms(world: World, server: Hostile) -> None:
    terms = server.terms()
    for session in (terms.session, bytes(32), b"short", b"x" * 33):
        reply = server.ask(0, train=session, inbox=[server.key_message(terms)])
        assert kinds(reply) == []
        assert problem(reply)
    assert world.trained == []
    assert world.charged(0) == []


def test_messages_out_of_order_and_of_other_sessions(world: World, server: Hostile) -> None:
    terms, other = server.terms("one"), server.terms("another")
    keys, others = server.offer_all(terms), server.offer_all(other)
    fake = Peeled(SUBMIT, 1, 1, 0, terms.session, terms.plan_hash, b"", bytes(200))
    strange = [
        server.receipt_message(terms, fake),
        server.open_message(terms, fake),
        server.group_message(terms, 2, [0, 1, 2]),
        server.sign(terms, Kind.SUBMIT, 1, bytes(100), 1),
        server.sign(terms, Kind.RESULT, 1, bytes(28), 1),
        server.sign(terms, Kind.REVEAL, 1, bytes(60), 1),
        server.sign(terms, Kind.AGREE, 1, b""),
        b"noise",
        b"TPM1" + bytes(300),
        *others,
    ]
    for data in strange:
        assert kinds(server.ask(0, inbox=[data])) == []
    assert world.charged(0) == []
    for data in strange:  # and once it has trained
        assert kinds(server.ask(0, train=terms, inbox=[data])) == []
    assert world.charged(0) == [terms.session.hex()]  # somebody broke the protocol: nothing was said
    assert len(world.trained) == 1
    restart(world, 0)
    server.offer(0, terms)
    good = [server.key_message(terms), *keys[1:]]
    assert kinds(server.ask(0, train=terms, inbox=[*reversed(good), *others])).count(SUBMIT) == 1
    assert world.charged(0) == [terms.session.hex()]
    assert world.settled(0) == []
    assert len(world.trained) == 1  # noise alone: it was cut off in its training
    world.check()


def test_a_session_that_is_over_stays_over(world: World, server: Hostile) -> None:
    terms = server.terms()
    keys = server.offer_all(terms)
    others = [server.key_message(terms), *keys[1:]]
    submission = of_kind(server.ask(0, train=terms, inbox=others), SUBMIT)
    server.ask(0, inbox=[server.receipt_message(terms, submission)])
    assert world.settled(0) == [terms.session.hex()]
    assert not world.private(0)
    world.updates[0] = np.zeros(3)
    for again in range(2):
        if again:
            restart(world, 0)
        server.offer(0, terms)
        reply = server.ask(0, train=terms, inbox=[*others, server.key_message(terms, 2)])
        assert not set(kinds(reply)) & set(DATA)
    assert world.charged(0) == [terms.session.hex()]
    assert len(world.trained) == 1
    world.check()


def test_a_session_pushed_out_of_memory_gives_the_same_bytes_or_none(world: World, server: Hostile) -> None:
    """A client remembers four sessions; the server makes it forget one and starts it again."""
    terms = server.terms("first")
    keys = server.offer_all(terms)
    others = [server.key_message(terms), *keys[1:]]
    first = of_kind(server.ask(0, train=terms, inbox=others), SUBMIT)
    for number in range(6):
        server.offer(0, server.terms(f"more {number}"))
    assert kinds(server.ask(0, train=terms, inbox=others)) == []
    server.offer(0, terms)
    other_keys = [server.key_message(terms, key=6), *keys[1:]]
    assert not set(kinds(server.ask(0, train=terms, inbox=other_keys))) & set(DATA)
    restart(world, 0)
    server.offer(0, terms)
    reply = server.ask(0, train=terms, inbox=others)
    assert [message.data for message in outbox(reply) if message.kind == SUBMIT] == [first.data]
    assert len(world.trained) == 1
    world.check()


# Clients that may drop out -------------------------------------------------------------------------------------------


def submit(server: Hostile, terms: Terms, members: Iterable[int] = (1, 2, 3)) -> tuple[list[Peeled], list[bytes]]:
    """All clients of the first attempt submit; their submissions and keys."""
    keys = server.offer_all(terms)
    found = []
    for number in (member - 1 for member in members):
        others = [server.key_message(terms), *(data for place, data in enumerate(keys) if place != number)]
        found.append(of_kind(server.ask(number, train=terms, inbox=others), SUBMIT))
    return found, [peel(data).body for data in keys]


def subsets(parts: list[NDArray[Any]]) -> dict[tuple[int, ...], bytes]:
    """All sums of some of the parts."""
    return {
        places: np.sum([parts[place] for place in places], axis=0, dtype=parts[0].dtype).tobytes()
        for size in range(1, len(parts) + 1)
        for places in itertools.combinations(range(len(parts)), size)
    }


def test_an_attempt_is_opened_once_and_shows_the_sum_alone(world: World, dropping: Hostile) -> None:
    terms = dropping.terms()
    submissions, keys = submit(dropping, terms)
    assert terms.openings == 3
    keepers = dropping.keepers(terms, 1, 1)
    assert len(keepers) == 2
    vectors = [vector(world, number, terms) for number in range(3)]
    for number, message in enumerate(submissions):
        reply = dropping.ask(number, inbox=[dropping.open_message(terms, message)])
        assert kinds(reply) == [REVEAL]
        shares = dropping.shares(terms, 1, 1)
        assert {keeper: len(each) for keeper, each in shares.items()} == dict.fromkeys(keepers, number + 2)
        is_open = number + 2 >= terms.openings  # with the share of the server
        assert sorted(dropping.keeper_masks(terms, 1, 1)) == (list(keepers) if is_open else [])
        parts = [dropping.unmasked(terms, message, key) for message, key in zip(submissions, keys, strict=True)]
        sums = set(subsets(vectors).values())
        assert [places for places, total in subsets(parts).items() if total in sums] == ([(0, 1, 2)] if is_open else [])
    assert subsets(parts)[0, 1, 2] == subsets(vectors)[0, 1, 2]
    for number in range(3):
        if number == 1:
            restart(world, number)
            dropping.offer(number, terms)
        reply = dropping.ask(
            number, inbox=[dropping.group_message(terms, 2, [0, 1, 2]), dropping.key_message(terms, 2)]
        )
        assert not set(kinds(reply)) & set(DATA)
    world.check()


def test_a_client_opens_only_with_the_shares_of_all_keepers(world: World, dropping: Hostile) -> None:
    """It gives all of its shares at once, or none."""
    terms = dropping.terms()
    keys = dropping.offer_all(terms)
    messages = [dropping.key_message(terms), *keys]
    keepers = dropping.keepers_with(terms, messages)
    late = next(party for party in keepers if party != 1)
    first = of_kind(dropping.ask(0, train=terms, inbox=[messages[0], *keys[1:]]), SUBMIT)
    opening = dropping.open_message(terms, first)
    for number in (1, 2):
        assert REVEAL not in kinds(dropping.ask(0, inbox=[opening]))
        if number + 1 != late:
            dropping.ask(number, train=terms, inbox=[data for data in messages if data != keys[number]])
    assert REVEAL not in kinds(dropping.ask(0, inbox=[opening]))
    dropping.ask(late - 1, train=terms, inbox=[data for data in messages if data != keys[late - 1]])
    assert kinds(dropping.ask(0, inbox=[opening])) == [REVEAL]
    world.check()


def test_no_opening_without_a_submission_or_of_something_else(world: World, dropping: Hostile) -> None:
    terms = dropping.terms()
    dropping.offer_all(terms)
    fake = Peeled(SUBMIT, 1, 1, 0, terms.session, terms.plan_hash, b"", bytes(200))
    assert kinds(dropping.ask(0, train=terms, inbox=[dropping.open_message(terms, fake)])) == []
    restart(world, 0)  # else it does not go on with a server that lies
    submissions, _ = submit(dropping, terms)
    reply = dropping.ask(0, inbox=[dropping.open_message(terms, fake)])
    assert kinds(reply) == []
    swapped = dropping.sign(terms, Kind(OPEN), 1, dropping.open_message(terms, submissions[1])[109:141], 1)
    assert REVEAL not in kinds(dropping.ask(0, inbox=[swapped]))
    world.check()


def next_attempt(server: Hostile, terms: Terms, attempt: int, members: list[int], number: int) -> Message:
    group = server.group_message(terms, attempt, members)
    return server.ask(number, inbox=[group, server.key_message(terms, attempt)])


def test_attempts_with_other_groups_are_not_both_opened(world: World, dropping: Hostile) -> None:
    """The difference of two sums would be one client's vector."""
    terms = dropping.terms()
    submissions, _ = submit(dropping, terms)
    bodies = {number: vector(world, number, terms) for number in (1, 2)}
    assert REVEAL in kinds(dropping.ask(0, inbox=[dropping.open_message(terms, submissions[0])]))
    # Client 0 has revealed for all three; the others go on without client 0, or with it.
    refused = next_attempt(dropping, terms, 2, [0, 1, 2], 0)
    assert not outbox(refused)
    assert problem(refused)
    second = {number: next_attempt(dropping, terms, 2, [0, 2, 3], number) for number in (1, 2)}
    keys = {number: of_kind(reply, KEYS).data for number, reply in second.items()}
    later = {number: of_kind(dropping.ask(number, inbox=[keys[3 - number]]), SUBMIT) for number in (1, 2)}
    for number in (1, 2):
        assert kinds(dropping.ask(number, inbox=[dropping.open_message(terms, submissions[number])])) == []  # given up
        assert kinds(dropping.ask(number, inbox=[dropping.open_message(terms, later[number])])) == [REVEAL]
        restart(world, number)
        dropping.offer(number, terms)
        again = [dropping.open_message(terms, submissions[number])]
        assert REVEAL not in kinds(dropping.ask(number, inbox=again))
    world.check()  # no client has revealed for two attempts
    assert not dropping.keeper_masks(terms, 1, 1)  # two shares of each keeper: its own and that of client 0
    masks = dropping.keeper_masks(terms, 2, 2)
    assert sorted(masks) == [2, 3]
    words = [dropping.unmasked(terms, later[number], peel(keys[number]).body) for number in (1, 2)]
    second_vectors = [vector(world, number, terms, attempt=2) for number in (1, 2)]
    assert subsets(words)[0, 1] == subsets(second_vectors)[0, 1]
    for number, drawn in zip((1, 2), second_vectors, strict=True):
        steps = plain_steps(world, number, terms)
        assert (drawn - steps).tolist() != (bodies[number] - steps).tolist()  # other noise than in the first attempt


@pytest.mark.parametrize("forget", [False, True])
def test_two_groups_for_one_attempt(world: World, dropping: Hostile, forget: bool) -> None:
    terms = dropping.terms()
    submit(dropping, terms)
    first = {number: next_attempt(dropping, terms, 2, [0, 1, 2], number) for number in (0, 1)}
    keys = {number: of_kind(reply, KEYS).data for number, reply in first.items()}
    assert kinds(dropping.ask(0, inbox=[keys[1]])) == [Kind.PAD, SHARE, SHARE, SUBMIT]  # both are keepers
    if forget:
        restart(world, 0)
        dropping.offer(0, terms)
    third = of_kind(next_attempt(dropping, terms, 2, [0, 1, 3], 2), KEYS).data
    group = dropping.group_message(terms, 2, [0, 1, 3])
    reply = dropping.ask(0, inbox=[group, dropping.key_message(terms, 2), third])
    assert not set(kinds(reply)) & set(DATA)
    if not forget:
        assert problem(reply)
    world.check()


@pytest.mark.parametrize("members", [[0, 1], [1, 2, 3], []], ids=["too few", "no server", "nobody"])
def test_groups_that_must_not_be(world: World, dropping: Hostile, members: list[int]) -> None:
    terms = dropping.terms()
    submit(dropping, terms)
    reply = next_attempt(dropping, terms, 2, members, 0)
    assert outbox(reply) == []
    assert problem(reply)
    world.check()


def test_attempts_that_are_not_opened_tell_nothing_however_they_are_added(world: World, dropping: Hostile) -> None:
    """Of two attempts with other groups and other noise, no sum of what is there is a sum of vectors."""
    terms = dropping.terms()
    submissions, keys = submit(dropping, terms)
    parts = [dropping.words(terms, message, key) for message, key in zip(submissions, keys, strict=True)]
    vectors = [vector(world, number, terms) for number in range(3)]
    dropping.ask(2, inbox=[dropping.open_message(terms, submissions[2])])
    replies = {number: next_attempt(dropping, terms, 2, [0, 1, 2], number) for number in (0, 1)}
    fresh = {number: of_kind(reply, KEYS).data for number, reply in replies.items()}
    for number in (0, 1):
        submission = of_kind(dropping.ask(number, inbox=[fresh[1 - number]]), SUBMIT)
        parts.append(dropping.words(terms, submission, peel(fresh[number]).body))
        vectors.append(vector(world, number, terms, attempt=2))
    assert not dropping.keeper_masks(terms, 1, 3)
    assert not dropping.keeper_masks(terms, 2, 1)
    assert not set(subsets(parts).values()) & set(subsets(vectors).values())


# Clients that collude with the server --------------------------------------------------------------------------------


def colluded(world: World, is_keeper: bool) -> tuple[Hostile, Terms, list[bytes]]:
    """The server and client 3 collude, against a threshold of two; it tries sessions until client 3 is a keeper."""
    server = Hostile(world, [3], tolerate=1)
    for number in itertools.count():
        terms = server.terms(f"session {number}")
        keys = server.offer_all(terms)
        if (4 in server.keepers_with(terms, [server.key_message(terms), *keys])) == is_keeper:
            return server, terms, keys
    raise AssertionError


@pytest.mark.parametrize("is_keeper", [False, True])
def test_a_colluding_client_does_not_open_an_attempt_with_too_few_others(tmp_path: Path, is_keeper: bool) -> None:
    """All shares of both are not enough for two attempts with other groups: each honest client opens one."""
    world = make_world(tmp_path, 4, threshold=2, rounds=8)
    server, terms, keys = colluded(world, is_keeper)
    assert (terms.openings, terms.colluders) == (4, 2)
    submissions = []
    for number in range(3):
        others = [server.key_message(terms), *(data for place, data in enumerate(keys) if place != number)]
        submissions.append(of_kind(server.ask(number, train=terms, inbox=others), SUBMIT))
    assert (4 in server.keepers(terms, 1, 1)) == is_keeper
    first = [server.words(terms, message, peel(key).body) for message, key in zip(submissions, keys[:3], strict=True)]
    vectors = [vector(world, number, terms) for number in range(3)]
    assert kinds(server.ask(0, inbox=[server.open_message(terms, submissions[0])])) == [REVEAL]
    # Clients 1 and 2 go on without client 0.
    members, later = [0, 2, 3, 4], {}
    replies = {number: next_attempt(server, terms, 2, members, number) for number in (1, 2)}
    fresh = {number: of_kind(reply, KEYS).data for number, reply in replies.items()}
    for number in (1, 2):
        others = [fresh[3 - number], server.colluder_key(terms, 4, attempt=2)]
        later[number] = of_kind(server.ask(number, inbox=others), SUBMIT)
    for number in (1, 2):
        assert kinds(server.ask(number, inbox=[server.open_message(terms, submissions[number])])) == []
        assert not server.keeper_masks(terms, 2, 2)
        assert kinds(server.ask(number, inbox=[server.open_message(terms, later[number])])) == [REVEAL]
    second = [server.unmasked(terms, later[number], peel(fresh[number]).body) for number in (1, 2)]
    drawn = [vector(world, number, terms, attempt=2) for number in (1, 2)]
    assert subsets(second)[0, 1] == subsets(drawn)[0, 1]  # the server and three others have opened this one
    assert not server.keeper_masks(terms, 1, 1)
    learned = set(subsets([*first, *second]).values())
    assert learned & set(subsets([*vectors, *drawn]).values()) == {subsets(drawn)[0, 1]}
    world.check()


def test_a_colluding_keeper_that_gives_no_shares_keeps_the_attempt_closed(tmp_path: Path) -> None:
    world = make_world(tmp_path, 4, threshold=2, rounds=8)
    server, terms, keys = colluded(world, is_keeper=True)
    server.gives_shares = False
    submissions = []
    for number in range(3):
        others = [server.key_message(terms), *(data for place, data in enumerate(keys) if place != number)]
        submissions.append(of_kind(server.ask(number, train=terms, inbox=others), SUBMIT))
    for number in range(3):
        assert kinds(server.ask(number, inbox=[server.open_message(terms, submissions[number])])) == []
    server.gives_shares = True
    for number in range(3):
        assert kinds(server.ask(number, inbox=[server.open_message(terms, submissions[number])])) == [REVEAL]
    parts = [server.unmasked(terms, message, peel(key).body) for message, key in zip(submissions, keys, strict=False)]
    vectors = [vector(world, number, terms) for number in range(3)]
    sums = set(subsets(vectors).values())
    assert [places for places, total in subsets(parts).items() if total in sums] == [(0, 1, 2)]
    world.check()


# The client in other roles -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("receivers", [[1], [1, 2], [2]])
def test_clients_as_receivers(world: World, server: Hostile, receivers: list[int]) -> None:
    """Whoever the terms name as receivers: the server gets nothing that is not sealed for somebody else, or noisy."""
    terms = server.terms()
    text = changed(terms, receivers=receivers)
    keys = server.offer_all(text)
    if not keys:
        return
    changed_terms = Terms.parse(text)
    for number in range(3):
        others = [server.key_message(changed_terms), *(data for place, data in enumerate(keys) if place != number)]
        for message in outbox(server.ask(number, train=changed_terms, inbox=others)):
            if message.kind in DATA and message.kind != Kind.PAD:
                assert message.recipient != 0
                assert message.recipient in receivers
    world.check()


def test_pads_straight_from_the_system(world: World, server: Hostile) -> None:
    """A session of the statistical kind: pads are sealed for clients, and no submission is a bare vector."""
    terms = server.terms()
    text = changed(terms, guarantee="statistical")
    statistical = Terms.parse(text)
    keys = server.offer_all(text)
    if not keys:
        return
    messages = [server.key_message(statistical), *keys]
    said: list[Peeled] = []
    for _ in range(3):
        for number in range(3):
            others = [data for data in messages if data != keys[number]]
            said += outbox(server.ask(number, train=statistical, inbox=others))
    assert {message.kind for message in said} == {Kind.PAD, SUBMIT}
    assert sorted(message.sender for message in said if message.kind == SUBMIT) == [1, 2, 3]
    for number in range(3):
        drawn = vector(world, number, statistical).tobytes()
        assert not any(drawn in message.data for message in said)
    world.check()


def test_a_query_for_budgets_shows_no_spending(world: World, server: Hostile) -> None:
    before = dict(fields(server.ask(0, enrol=True)))
    terms = server.terms()
    keys = server.offer_all(terms)
    server.ask(0, train=terms, inbox=[server.key_message(terms), *keys[1:]])
    assert world.charged(0)
    after = dict(fields(server.ask(0, enrol=True)))
    notes = [cast(bytes, answer.pop("note")) for answer in (before, after)]
    assert after == before
    assert len(notes[0]) == len(notes[1]) == NOTE_BYTES  # sealed: the number of entries does not show


assert GROUP == Kind.GROUP
assert RECEIPT == Kind.RECEIPT
