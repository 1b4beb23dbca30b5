"""The mpyc engine among strangers and cheats: real workers, and parties played by the test byte by byte."""

from __future__ import annotations

import asyncio
import os
import socket
from typing import Any

import pytest

from tests.engines.direct_stage import HOST, Puppet, Stage, frame
from tests.patience import HANG_S
from tests.protocol.sessions import World
from tpmdp._util.clock import now_s
from tpmdp.engines.direct.link import LinkKind
from tpmdp.engines.direct.network import SILENT_MAX, Network, listen
from tpmdp.engines.direct.record import HELLO_BYTES, LENGTH_BYTES, RECORD_MAX, TAG_BYTES, DirectError, decode_hello
from tpmdp.protocol.parts import encode_parts

pytestmark = pytest.mark.process

# --- strangers ---------------------------------------------------------------------------------------------------


def everybody_still_agrees(stage: Stage, *late: int) -> None:
    """The parties that were not there come, and the session is as if nothing had happened."""
    stage.start(*late)
    stage.go(*late)
    assert stage.outcome(0) is not None
    assert stage.outcome(2) is None


def test_impostors_are_refused_and_the_true_party_still_connects() -> None:
    other = World(3, 1, [0], label="other", seed=9)
    with Stage(World(3, 1, [0])) as stage:
        stage.start(1, 2)
        stage.go(1, 2)
        stranger = other.identities[0]
        cases: list[tuple[int, int, dict[str, Any]]] = [
            (0, 1, {"identity": stranger}),
            (0, 1, {"identity": stage.world.identities[2]}),  # a true party under another's number
            (0, 1, {"session": other.terms.session}),
            (0, 1, {"plan_hash": other.terms.plan_hash, "identity": stranger}),
            (0, 1, {"work": bytes(32), "identity": stranger}),
            (0, 2, {}),  # a hello for somebody else
            (1, 1, {}),
            (2, 1, {}),  # who does not dial us
            (3, 1, {"identity": stranger}),
            (2**32 - 1, 1, {"identity": stranger}),
        ]
        for sender, recipient, changes in cases:
            with Puppet(stage.addresses[1]) as puppet:
                puppet.handshake(stage.exchange(sender, recipient, **changes))
                assert puppet.refused()
        everybody_still_agrees(stage, 0)


@pytest.mark.parametrize("change", ["plan_hash", "work"])
def test_a_party_with_another_study_learns_what_differs_and_gets_no_link(change: str) -> None:
    with Stage(World(3, 1, [0])) as stage:
        stage.start(1, 2)
        stage.go(1, 2)
        with Puppet(stage.addresses[1]) as puppet:
            changes: dict[str, Any] = {change: bytes(32)}
            puppet.handshake(stage.exchange(0, 1, **changes))
            parts = puppet.read(LENGTH_BYTES + TAG_BYTES)[LENGTH_BYTES:]
            assert puppet.opened.content(parts) == b""  # a worker without a study has no parts
            puppet.send(puppet.seal.record(b"{"))  # not a list of parts, which does not matter
            assert puppet.refused()
        everybody_still_agrees(stage, 0)


def test_both_sides_learn_what_differs() -> None:
    world = World(3, 1, [0])
    heard: list[str] = []

    async def compare() -> list[str]:
        with listen(HOST, 0) as listener:
            addresses = [(HOST, 0), listener.getsockname(), (HOST, 1)]
            all_heard = asyncio.Event()

            def on_difference(text: str) -> None:
                heard.append(text)
                if len(heard) == 2:
                    all_heard.set()

            networks = [
                Network(
                    world.terms,
                    party,
                    world.identities[party],
                    work=bytes([party]) * 32,
                    stored_max=1000,
                    on_loss=lambda _: None,
                    parts=encode_parts({'query "m"': str(party)}),
                    on_difference=on_difference,
                )
                for party in (0, 1)
            ]
            deadline = now_s() + HANG_S
            tasks = [
                asyncio.create_task(network.connect(addresses, listener if party else None, deadline))
                for party, network in enumerate(networks)
            ]
            async with asyncio.timeout(HANG_S):
                await all_heard.wait()
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            return [network._late() for network in networks]

    texts = asyncio.run(compare())
    assert sorted(heard) == ['party 1 has another query "m"', 'party 2 has another query "m"']
    assert texts == [
        f'the deadline passed; party {other} has another query "m": compare the study files, correct one and join again'
        for other in (2, 1)
    ]


def received(connection: socket.socket, size: int) -> bytes:
    data = b""
    while len(data) < size and (part := connection.recv(size - len(data))):
        data += part
    return data


def test_a_stranger_at_a_partys_address_is_refused_and_the_true_one_may_come() -> None:
    with Stage(World(3, 1, [0])) as stage, listen(HOST, 0) as trap:
        port = trap.getsockname()[1]
        stage.start(0, 1)
        stage.addresses[2] = (HOST, port)
        stage.go()
        answered: set[int] = set()
        while len(answered) < 2:
            connection = trap.accept()[0]
            with connection:
                hello = decode_hello(received(connection, HELLO_BYTES))
                exchange = stage.exchange(2, hello.sender, dials=False, identity=stage.world.identities[0])
                seal, _ = exchange.keys(hello)
                connection.sendall(exchange.hello.encode() + seal.record(exchange.proof()))
                assert not connection.recv(1)  # no proof from them
            answered.add(hello.sender)
        trap.close()
        stage.start(2, ports=[port])
        stage.go(2)
        assert stage.outcome(0) is not None


def test_a_replayed_handshake_is_worthless() -> None:
    with Stage(World(3, 1, [0])) as first:
        first.start(1)
        first.go(1)
        old = first.puppet(0)[1].sent  # a true handshake of party 1 with party 2
    with Stage(first.world) as stage:
        stage.start(1, 2)
        stage.go(1, 2)
        with Puppet(stage.addresses[1]) as puppet:
            puppet.send(old)
            while puppet.read(1):  # its hello and proof, then the end
                pass
        everybody_still_agrees(stage, 0)


def test_a_second_connection_of_a_party_is_refused() -> None:
    with Stage(World(3, 1, [0])) as stage:
        stage.start(1)
        stage.go(1)
        stage.puppet(0)
        with Puppet(stage.addresses[1]) as again:
            assert not again.handshake(stage.exchange(0, 1)) or again.refused()


def test_garbage_and_idle_connections_keep_nobody_out() -> None:
    with Stage(World(3, 1, [0])) as stage:
        stage.start(1, 2)
        stage.go(1, 2)
        for data in (b"GET / HTTP/1.1\r\n\r\n" * 20, os.urandom(5000), b"\x80\x04" + bytes(500)):
            with Puppet(stage.addresses[1]) as puppet:
                puppet.send(data)
                assert puppet.refused()
        for number in range(SILENT_MAX + 20):
            idle = stage.enter_context(Puppet(stage.addresses[1]))
            idle.send(b"TPMM\x00\x01"[: number % 7])  # starts, and never ends
        everybody_still_agrees(stage, 0)


# --- cheats ------------------------------------------------------------------------------------------------------


def flipped(puppet: Puppet) -> bytes:
    record = bytearray(puppet.seal.record(frame(LinkKind.DATA, b"share")))
    record[10] ^= 1
    return bytes(record)


CHEATS: dict[str, Any] = {
    "forged, repeated or damaged": flipped,
    "forged, repeated or damaged ": lambda puppet: puppet.seal.record(frame(LinkKind.DATA, b"share")) * 2,
    "length that is not allowed": lambda _: b"\xff\xff\xff\xff" + bytes(100),
    "length that is not allowed ": lambda _: bytes(4),
    "length that is not allowed  ": lambda _: (RECORD_MAX + 17).to_bytes(4, "big"),
    "longer than the function needs": lambda puppet: puppet.seal.record(frame(LinkKind.DATA, b"", 0xFFFFFFFF)),
    "not of this protocol": lambda puppet: puppet.seal.record(frame(77, b"x")),
    "sent a message twice": lambda puppet: puppet.seal.record(frame(LinkKind.DATA, b"a") + frame(LinkKind.DATA, b"b")),
    "went on after its goodbye|left too early": lambda puppet: puppet.seal.record(
        frame(LinkKind.BYE, b"") + frame(LinkKind.DONE, b"")
    ),
    "left too early|was lost": lambda puppet: puppet.seal.record(frame(LinkKind.BYE, b"")),
    "sent more than the function needs": lambda puppet: b"".join(
        puppet.seal.record(frame(LinkKind.DATA, bytes(1 << 19), label=number)) for number in range(40)
    ),
}


@pytest.mark.parametrize("how", CHEATS)
def test_records_that_no_party_sends_end_the_session_and_name_their_sender(how: str) -> None:
    with Stage(World(3, 1, [0]), deadline_s=HANG_S) as stage:
        stage.start(1, 2)
        stage.go()
        puppets = stage.puppet(0)
        assert puppets[1].read(1)  # shares: all are connected
        try:
            puppets[1].send(CHEATS[how](puppets[1]))
        except ConnectionError:
            assert how.startswith("sent more")  # it hangs up while we talk
        with pytest.raises(
            DirectError, match=f"party 1 .*({how.strip()})|connection to party 1 ({how.strip()})"
        ) as caught:
            stage.outcome(1)
        assert caught.value.culprit == 0
        with pytest.raises(DirectError, match="party 2 ended the session because it lost party 1") as caught:
            stage.outcome(2)
        assert caught.value.culprit == 0


@pytest.mark.parametrize("size", [3, 50])
def test_a_record_that_breaks_off_is_a_lost_party(size: int) -> None:
    with Stage(World(3, 1, [0]), deadline_s=HANG_S) as stage:
        stage.start(1, 2)
        stage.go()
        puppets = stage.puppet(0)
        assert puppets[1].read(1)  # shares: all are connected
        puppets[1].send(puppets[1].seal.record(frame(LinkKind.DATA, bytes(100)))[:size])
        puppets[1].socket.close()
        with pytest.raises(DirectError, match="the connection to party 1 was lost"):
            stage.outcome(1)
