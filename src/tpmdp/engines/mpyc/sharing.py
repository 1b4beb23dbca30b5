"""One party's computation on Shamir shares, by MPyC."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from tpmdp._util.arrays import IntArray
from tpmdp.engines.direct.job import Parameters
from tpmdp.engines.direct.sharing import ConnectedPeers, Sharing
from tpmdp.engines.mpyc.functions import Function
from tpmdp.engines.mpyc.runtime import load, set_up
from tpmdp.errors import InputError

_TICK_S: Final = 0.002


@dataclass(frozen=True)
class ShareShape:
    """How many numbers each party puts in and the result has, and the shares of them; see `mpyc.job`."""

    sizes: Sequence[int]
    dimension: int
    degree: int
    bits: int
    leak: int  # MPyC's security parameter


class MpycSharing(Sharing):
    """A function of shared arrays."""

    def __init__(self, function: Function, parameters: Parameters, shape: ShareShape) -> None:
        self._function, self._parameters, self._shape = function, parameters, shape
        self._peers: ConnectedPeers | None = None
        self._mpc: Any = None
        self._shared: Any = None  # our share of the result

    def prepare(self) -> None:
        asyncio.run(load())

    async def compute(self, peers: ConnectedPeers, values: IntArray, noise: IntArray | None) -> None:
        shape = self._shape
        mpc = await set_up(
            peers.index,
            len(shape.sizes),
            shape.degree,
            sec_param=shape.leak,
            links=peers.links,
            fail=peers.fail,
        )
        inputs, noises = self._share(mpc, peers.index, values=values, noise=noise)
        result = self._function(mpc, inputs, self._parameters)
        if getattr(result, "shape", None) != (shape.dimension,):
            raise InputError("result of the function", "(secret)", f"must have {shape.dimension} entries", "correct it")
        for each in noises:
            result = result + each
        await mpc.gather(result)
        self._peers, self._mpc, self._shared = peers, mpc, result

    async def output(self) -> Sequence[int] | None:
        assert self._peers is not None
        mpc, receivers = self._mpc, self._peers.receivers
        opened = await mpc.output(self._shared, receivers=receivers)
        while mpc._pc_level > mpc._program_counter[1]:  # others may still need what we are about to send
            await asyncio.sleep(_TICK_S)
        return opened.tolist() if self._peers.index in receivers else None

    def _share(self, mpc: Any, index: int, *, values: IntArray, noise: IntArray | None) -> tuple[list[Any], list[Any]]:
        """Share every party's input and noise at once."""
        kind = mpc.SecInt(self._shape.bits).array
        field = kind.sectype.field
        own = values if noise is None else np.concatenate([values, noise])
        extra = 0 if noise is None else len(noise)
        inputs: list[Any] = []
        noises: list[Any] = []
        for party, size in enumerate(self._shape.sizes):
            shared = None
            if size + extra:
                mine = party == index
                numbers = own.astype(object) if mine else np.zeros(size + extra, dtype=object)
                shared = mpc.input(kind(field.array(numbers)), senders=party)
            inputs.append(shared[:size] if size and shared is not None else None)
            noises += [shared[size:]] if extra and shared is not None else []
        return inputs, noises
