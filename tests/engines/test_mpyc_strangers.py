"""The mpyc engine's links under a flood of strangers, at a distance, and over connections that break."""

from __future__ import annotations

import asyncio
import gc
import subprocess
import sys
import warnings
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any

import pytest

from tests.patience import HANG_S
from tests.protocol.sessions import World
from tpmdp._util.clock import now_s
from tpmdp.engines.direct.network import CLAIMS_MAX, SILENT_MAX, Address, Network, _Crowd, listen
from tpmdp.engines.direct.record import ANSWER_BYTES, DirectError, Exchange
from tpmdp.errors import TpmdpError

pytestmark = pytest.mark.process

HOST, WORK = "127.0.0.1", b"w" * 32
Pump = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]
FLOOD = """
import socket, sys, time
held = []
while True:
    one = socket.socket()
    one.setblocking(False)
    try:
        one.connect(("127.0.0.1", int(sys.argv[1])))
    except OSError:
        pass
    if len(sys.argv) > 2:
        time.sleep(0.0005)
        try:
            one.send(bytes.fromhex(sys.argv[2]))
        except OSError:
            pass
    held.append(one)
    if len(held) > 200:
        held.pop(0).close()
    time.sleep(0.001)
"""


class Meeting:
    """Three parties in one process that try to connect; the third's address is that of a proxy."""

    def __init__(self) -> None:
        self.world = World(3, 1, [0], dimension=1)
        self.losses: list[TpmdpError] = []
        self.server: asyncio.Server | None = None
        self.networks = [
            Network(self.world.terms, party, self.world.identities[party], WORK, 1 << 20, self.losses.append)
            for party in range(3)
        ]
        self.listeners = [None, listen(HOST, 0), listen(HOST, 0)]
        self.addresses: list[Address] = [(HOST, 1), *((one.getsockname()[:2]) for one in self.listeners if one)]

    async def connect(self, party: int, seconds: float) -> None:
        await self.networks[party].connect(self.addresses, self.listeners[party], now_s() + seconds)

    async def second_connects_late(self) -> None:
        while 2 not in self.networks[0].links:
            await asyncio.sleep(0.01)
        await self.connect(1, HANG_S)

    async def all_connect(self, second_is_late: bool = False) -> None:
        second = self.second_connects_late() if second_is_late else self.connect(1, HANG_S)
        async with asyncio.timeout(HANG_S):
            await asyncio.gather(self.connect(0, HANG_S), second, self.connect(2, HANG_S))

    async def proxy(self, there: Pump, back: Pump) -> None:
        """What comes for the third goes through `there`, and its answers through `back`."""
        port = self.addresses[2][1]
        self.server = await asyncio.start_server(_through(port, there, back), HOST, 0)
        self.addresses[2] = self.server.sockets[0].getsockname()[:2]

    async def close(self) -> None:
        for network in self.networks:
            for link in network.links.values():
                link.drop()
        for listener in self.listeners:
            if listener is not None:
                listener.close()
        if self.server is not None:
            self.server.close()
        for _ in range(100):
            await asyncio.sleep(0.1)
            if len(asyncio.all_tasks()) == 1:  # ours
                break


def _through(port: int, there: Pump, back: Pump) -> Pump:
    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        far_reader, far_writer = await asyncio.open_connection(HOST, port)
        with suppress(OSError, asyncio.IncompleteReadError):
            await asyncio.gather(there(reader, far_writer), back(far_reader, writer))
        for each in (writer, far_writer):
            each.transport.abort()

    return handle


async def slowly(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while data := await reader.read(65536):
        await asyncio.sleep(0.05)
        writer.write(data)
    writer.transport.abort()


@pytest.mark.parametrize("claim", [False, True])
def test_a_flood_keeps_no_party_out_that_is_100_ms_away(claim: bool) -> None:
    """Of connections that say nothing, and of hellos that claim the party, by strangers who know the study."""

    async def meet() -> None:
        meeting = Meeting()
        port = meeting.addresses[2][1]
        terms = meeting.world.terms
        stranger = Exchange.fresh(meeting.world.identities[0], terms.session, terms.plan_hash, WORK, (0, 2), True)
        words = [sys.executable, "-c", FLOOD, str(port), *([stranger.hello.encode().hex()] if claim else [])]
        await meeting.proxy(slowly, slowly)
        floods = [subprocess.Popen(words) for _ in range(1 if claim else 2)]
        try:
            await asyncio.sleep(0.5)
            await meeting.all_connect()
            assert not meeting.losses
        finally:
            for flood in floods:
                flood.kill()
                flood.wait()
            await meeting.close()

    asyncio.run(meet())
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        gc.collect()  # connections of the flood that nobody has seen yet


def test_a_dialler_whose_confirmation_is_lost_dials_again() -> None:
    async def meet() -> int:
        meeting = Meeting()
        cuts = 0

        async def on(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            while data := await reader.read(65536):
                writer.write(data)

        async def cut_first(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            nonlocal cuts
            if cuts < 2:
                writer.write(await reader.readexactly(ANSWER_BYTES + 84))  # with the proof
                await reader.readexactly(1)  # the answerer has made the link; its confirmation goes nowhere
                cuts += 1
                raise ConnectionResetError
            await on(reader, writer)

        await meeting.proxy(on, cut_first)
        await meeting.all_connect(second_is_late=True)
        assert not meeting.losses
        await meeting.close()
        return cuts

    assert asyncio.run(meet()) == 2


def test_a_name_that_is_none_is_a_failed_dial_and_not_silence() -> None:
    async def meet() -> None:
        meeting = Meeting()
        meeting.addresses[2] = ("a..b", 7000)
        with pytest.raises(TpmdpError, match=r"waiting for party 2, party 3: a program that came for party 3 did not"):
            await meeting.connect(0, 3.0)
        await meeting.close()

    asyncio.run(meet())


def test_an_error_that_a_third_party_passes_on_is_still_that_of_its_party() -> None:
    async def meet() -> None:
        meeting = Meeting()
        await meeting.all_connect()
        first, second, _ = meeting.networks

        async def heard(count: int) -> TpmdpError:
            async with asyncio.timeout(HANG_S):
                while len(meeting.losses) < count:
                    await asyncio.sleep(0.01)
            return meeting.losses[count - 1]

        second.links[0].abort(DirectError("failed"))
        one = await heard(1)
        first.links[2].abort(one)  # the third hears it from the first only
        other = await heard(2)
        for error in (one, other):
            assert str(error) == "party 2 ended the session because of an error on its side: ask it"
            assert isinstance(error, DirectError)
            assert error.culprit == 1
        await meeting.close()

    asyncio.run(meet())


class Writer:
    """As much of a connection as the crowd looks at."""

    def __init__(self, source: str) -> None:
        self.source, self.gone, self.transport = source, False, self

    def get_extra_info(self, _: str) -> Any:
        return (self.source, 1)

    def abort(self) -> None:
        self.gone = True


def test_strangers_crowd_out_strangers() -> None:
    crowd: Any = _Crowd()
    honest, claims = [Writer(f"192.0.2.{place}") for place in range(20)], [Writer("192.0.2.99") for _ in range(3)]
    for one in honest:
        crowd.put(one, None, SILENT_MAX)
    for party, one in enumerate(claims):
        crowd.put(one, None, SILENT_MAX)
        crowd.put(one, party, CLAIMS_MAX)
    flood = [Writer("203.0.113.1") for _ in range(2000)]
    for one in flood:
        crowd.put(one, None, SILENT_MAX)
    assert not any(one.gone for one in (*honest, *claims))
    assert sum(not one.gone for one in flood) == SILENT_MAX - len(honest)
    for _ in flood:
        crowd.put(Writer("203.0.113.1"), 0, CLAIMS_MAX)
    assert not any(one.gone for one in claims)
