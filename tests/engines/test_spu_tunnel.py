"""The tunnel between two SPUs, without SPU: who connects late, again, or after the end, blocks nobody."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from tests.pairs import MemoryLink, links_of
from tests.patience import HANG_S
from tpmdp.engines.direct.record import DirectError
from tpmdp.engines.spu.tunnel import Tunnel

pytestmark = pytest.mark.process


def tunnels(folder: Path) -> list[Tunnel]:
    first, second = links_of(2)
    links: list[Any] = [first[1], second[0]]
    return [Tunnel(link, rank, folder=folder, received_max=1 << 20) for rank, link in enumerate(links)]


async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """An SPU that says everything back."""
    while data := await reader.read(100):
        writer.write(data)
    writer.close()


def test_bytes_travel_both_ways_and_a_connection_after_the_result_does_not_block_the_end(tmp_path: Path) -> None:
    """SPU connects again when the other SPU has left; in one of about a hundred sessions that came before the end."""

    async def run() -> None:
        left, right = tunnels(tmp_path)
        carrying = [await left.start(), await right.start()]
        server = await asyncio.start_unix_server(echo, right.sockets[1])
        reader, writer = await asyncio.open_unix_connection(left.sockets[1])
        writer.write(b"hello")
        assert await reader.readexactly(5) == b"hello"
        server.close()  # right's SPU has its result and leaves
        right.done()
        again, late = await asyncio.open_unix_connection(left.sockets[1])
        late.write(b"are you there?")
        assert await again.read(100) == b""  # closed: nobody is there
        left.done()
        await asyncio.gather(*carrying)
        beyond, latest = await asyncio.open_unix_connection(left.sockets[1])
        assert await beyond.read(100) == b""
        for each in (writer, late, latest):
            each.close()
        for tunnel in (left, right):
            tunnel.close()
        await asyncio.sleep(0)

    asyncio.run(asyncio.wait_for(run(), HANG_S))
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "message",
    [b"", b"\x07\0\0\0\0", b"\x01\0\0\0\0", b"\x02\0\0\0\1xyz", b"\x03\0\0\0\1", bytes(1 << 21)],
)
def test_what_is_not_of_the_protocol_ends_the_session_and_names_the_party(tmp_path: Path, message: bytes) -> None:
    """Too short, of no kind, a connection with our numbers, bytes and an end for none, too many bytes."""

    async def run() -> None:
        link = MemoryLink(1)
        tunnel = Tunnel(link, 0, folder=tmp_path, received_max=1 << 20)  # type: ignore[arg-type]
        carrying = await tunnel.start()
        link.take(0, message)
        with pytest.raises(DirectError, match="party 1 sent") as caught:
            await carrying
        assert caught.value.culprit == 1
        tunnel.close()

    asyncio.run(asyncio.wait_for(run(), HANG_S))
    assert list(tmp_path.iterdir()) == []
