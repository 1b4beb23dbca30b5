"""One party's computation in pairs: its share of the noisy result is uniform, whoever has the other shares.

What the pairs compute stays in additive shares modulo 2^64. Each party adds up its shares, what it computed alone, and
its noise. Then every two parties hide their sums from everybody else by a mask that one adds and the other subtracts,
as in a masked sum with all parties as neighbours. Theory, Section 15b.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Sequence
from typing import Final

import numpy as np

from tpmdp._util.arrays import IntArray
from tpmdp.engines.direct.link import Link
from tpmdp.engines.direct.record import DirectError
from tpmdp.engines.direct.sharing import ConnectedPeers, Sharing
from tpmdp.engines.spu.pair_process import PairProcess
from tpmdp.engines.spu.pair_task import PairTask
from tpmdp.engines.spu.tunnel import Tunnel
from tpmdp.protocol.masks import KEY_BYTES, Mask, apply, expand, from_words, to_words

# Messages outside the tunnel, which counts from 0.
SEED: Final = -1  # of the pair's mask, from the party with the smaller index
SUM: Final = -2  # a party's masked sum, to a receiver


class PairSharing(Sharing):
    """The tasks of a job, those of this party one after the other in the same order everywhere."""

    def __init__(
        self,
        party: int,
        tasks: Sequence[PairTask],
        local: Sequence[int],
        *,
        word: int,
        dimension: int,
        received_max: int,
        is_kept: bool = False,
    ) -> None:
        """`local`: how many numbers of the result each party computes alone; they come first, party by party.

        `received_max`: bytes that a pair exchanges at most. `is_kept`: the output is our own share, for a masked sum
        elsewhere; no party sees it.
        """
        self._mine, self._local = [task for task in tasks if party in (task.left, task.right)], local
        self._received_max, self._is_kept = received_max, is_kept
        self._word, self._dimension = word, dimension
        self._process: PairProcess | None = None
        self._tunnel: Tunnel | None = None
        self._peers: ConnectedPeers | None = None
        self._sum: Mask | None = None

    def prepare(self) -> None:
        self._process = PairProcess()
        self._process.ready()
        self._process.prepare(self._mine)

    async def compute(self, peers: ConnectedPeers, values: IntArray, noise: IntArray | None) -> None:
        own = peers.index
        total = np.zeros(self._dimension, dtype=np.uint64)
        start, count = sum(self._local[:own]), self._local[own]
        total[start : start + count] += values[:count].astype(np.uint64)
        drawn = np.zeros(self._dimension, dtype=np.int64) if noise is None else noise
        for task in self._mine:
            share = await self._share(peers, task, numbers=_numbers(task, own, values[count:], noise=drawn))
            total[task.start : task.start + task.size] += share.astype(np.uint64)
        if not any(task.noise for task in self._mine):
            total += drawn.astype(np.uint64)
        self._sum = to_words(total.view(np.int64), self._word)
        if not self._is_kept:
            await self._mask(peers, self._sum)
        self._peers = peers

    async def output(self) -> Sequence[int] | None:
        assert self._peers is not None
        assert self._sum is not None
        if self._is_kept:
            return [int(value) for value in from_words(self._sum, self._word)]
        links, receivers = self._peers.links, self._peers.receivers
        for peer in receivers:
            if peer in links:
                links[peer].send(SUM, self._sum.tobytes())
        if self._peers.index not in receivers:
            return None
        total = self._sum.copy()
        for link in links.values():
            data = await _message(link, SUM)
            if len(data) != self._sum.nbytes:
                raise _length_error(link, "a masked sum")
            total += np.frombuffer(data, dtype=self._sum.dtype)
        return [int(value) for value in from_words(total, self._word)]

    async def close(self) -> None:
        if self._tunnel is not None:
            self._tunnel.close()
        if self._process is not None:
            await asyncio.to_thread(self._process.stop)

    async def _share(self, peers: ConnectedPeers, task: PairTask, *, numbers: Sequence[IntArray]) -> IntArray:
        """Our share of one pair's result."""
        assert self._process is not None
        rank = 0 if peers.index == task.left else 1
        link = peers.links[task.right if rank == 0 else task.left]
        folder, most = self._process.folder, self._received_max
        self._tunnel = tunnel = Tunnel(link, rank, folder=folder, received_max=most)
        try:
            carrying = await tunnel.start()
            working = asyncio.ensure_future(
                asyncio.to_thread(
                    self._process.share, task, rank, sockets=tunnel.sockets, numbers=numbers, peer=link.name
                )
            )
            await asyncio.wait({carrying, working}, return_when=asyncio.FIRST_COMPLETED)
            if not working.done():
                carrying.result()  # raises: what it carried was not of this protocol
                text = f"{link.name} left the computation too early: run again when it is back"
                raise DirectError(text, link.peer)
            share = working.result()
            tunnel.done()
            await carrying
        finally:
            tunnel.close()
            self._tunnel = None
        if len(share) != task.size:
            raise DirectError("the function gives another number of results than its query says: correct it")
        return share

    async def _mask(self, peers: ConnectedPeers, total: Mask) -> None:
        """Add or subtract the mask of every pair that we are in."""
        for peer, link in peers.links.items():
            if peers.index < peer:
                seed = os.urandom(KEY_BYTES)
                link.send(SEED, seed)
            else:
                seed = await _message(link, SEED)
                if len(seed) != KEY_BYTES:
                    raise _length_error(link, "a seed")
            apply(total, expand(seed, len(total), self._word), peers.index, other=peer)


async def _message(link: Link, label: int) -> bytes:
    message = link.receive(label)
    return message if isinstance(message, bytes) else await message


def _length_error(link: Link, what: str) -> DirectError:
    return DirectError(f"{link.name} sent {what} of a wrong length: ask which version it has", link.peer)


def _numbers(task: PairTask, own: int, values: IntArray, noise: IntArray) -> list[IntArray]:
    """Our inputs of the task: columns as rows at the left party and as columns at the right one, or plain numbers."""
    if task.noise:
        return [values, noise]
    if own == task.left:
        return [values.reshape(task.shapes[0])]
    return [values.reshape(task.shapes[1][::-1]).T]
