"""What the server carries between nodes: only messages that their recipients would not stop at."""

from __future__ import annotations

import pytest

from tests.protocol.sessions import World
from tpmdp.flower.carrier import Carrier
from tpmdp.protocol.hybrid import PUBLIC_BYTES
from tpmdp.protocol.messages import EVERYONE, Kind, Message, MessageError, encode


def test_messages_in_the_name_of_others_are_refused_whoever_that_is() -> None:
    """Also in the name of the party that is in the server: nothing unsigned is passed on."""
    world = World(4, 1, [0])
    server, bad = world.parties()[0], world.identities[1]
    for sender in (0, 2):
        carrier = Carrier(world.terms, {0: server})
        key = Message(Kind.KEYS, 1, sender, EVERYONE, world.terms.session, world.terms.plan_hash, bytes(PUBLIC_BYTES))
        with pytest.raises(MessageError, match="somebody else's name"):
            carrier.post([encode(key, bad)], 1)
        assert carrier.waiting() == set()


def test_an_own_message_with_a_wrong_signature_or_plan_is_refused() -> None:
    world = World(4, 1, [0])
    for plan, identity, match in (
        (world.terms.plan_hash, world.identities[2], "signature"),
        (bytes(32), world.identities[1], "another plan"),
    ):
        carrier = Carrier(world.terms, {0: world.parties()[0]})
        key = Message(Kind.KEYS, 1, 1, EVERYONE, world.terms.session, plan, bytes(PUBLIC_BYTES))
        with pytest.raises(MessageError, match=match):
            carrier.post([encode(key, identity)], 1)
        assert carrier.waiting() == set()


@pytest.mark.parametrize("kind", Kind)
def test_every_kind_of_rubbish_is_refused_in_order(kind: Kind) -> None:
    world = World(4, 1, [0])
    carrier = Carrier(world.terms, {0: world.parties()[0]})
    odd = Message(kind, 0, 1, 2, world.terms.session, world.terms.plan_hash, b"odd")
    with pytest.raises(MessageError):
        carrier.post([encode(odd, world.identities[1])], 1)
    assert carrier.waiting() == set()


def test_a_good_key_reaches_everybody_once() -> None:
    world = World(4, 1, [0])
    parties = world.parties()
    carrier = Carrier(world.terms, {0: parties[0]})
    carrier.start()
    for data in carrier.take(2):
        del data
    sent = parties[1].start()
    carrier.post([*sent, *sent], 1)
    assert [len(carrier.take(party)) for party in (2, 3)] == [1, 2]  # 3 has the server's key as well
