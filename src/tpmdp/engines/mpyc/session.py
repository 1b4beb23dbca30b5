"""One party's part of a session: connect, share input and noise, compute, open to receivers only, say goodbye.

Every wait ends at the deadline, which names who was waited for, and at once when a party is lost, which names it.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Awaitable, Callable, Iterable, Sequence
from contextlib import suppress
from typing import Any, Final, TypeVar

import numpy as np
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from tpmdp.clock import now_s
from tpmdp.engines.mpyc.functions import Parameters
from tpmdp.engines.mpyc.job import Job
from tpmdp.engines.mpyc.link import Kind
from tpmdp.engines.mpyc.network import Address, Network, check_addresses, listen
from tpmdp.engines.mpyc.record import LateError, MpycError
from tpmdp.engines.mpyc.runtime import described, set_up
from tpmdp.errors import InputError, TpmdpError
from tpmdp.protocol.terms import Terms
from tpmdp.validate import IntArray

_LINGER_S: Final = 5.0  # for others to finish, once we have all we wanted
_TICK_S: Final = 0.002
T = TypeVar("T")


async def run_party(
    terms: Terms,
    index: int,
    identity: Ed25519PrivateKey,
    addresses: Sequence[Address],
    function: str,
    parameters: Parameters | None,
    sizes: Sequence[int],
    values: IntArray,
    noise: IntArray | None,
    deadline: float,
    *,
    listener: socket.socket | None = None,
) -> tuple[IntArray | None, int]:
    """The result, or None for a party that gets a receipt; and how many bytes we sent. Once a process.

    `deadline` is a moment of `tpmdp.clock.now_s`. Without a `listener` we listen on our own address. Without `noise`
    the values have it inside, as vectors of a sum do.
    """
    job = Job.of(terms, function, parameters, sizes, noise is not None)
    job.check(index, values, noise)
    check_addresses(addresses, terms.count)
    if identity.public_key().public_bytes_raw() != terms.roster[index]:
        raise InputError("key", "(not shown)", f"is not that of {terms.spec.name(index)}", "use the key of the study")
    if listener is None and index > 0:
        listener = listen(*addresses[index])
    session = _Session(job, index, identity, deadline)
    return await session.run(addresses, listener, values, noise)


class _Session:
    """The state of `run_party`."""

    def __init__(self, job: Job, index: int, identity: Ed25519PrivateKey, deadline: float) -> None:
        self._job, self._index, self._deadline = job, index, deadline
        self._trouble: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._network = Network(job.terms, index, identity, job.digest(), job.kept_max, self._fail)
        self._receivers: list[int] = np.flatnonzero(job.terms.spec.receivers).tolist()

    def _fail(self, error: TpmdpError) -> None:
        """The first trouble is the one that is told."""
        if not self._trouble.done():
            self._trouble.set_exception(error)

    async def run(
        self, addresses: Sequence[Address], listener: socket.socket | None, values: IntArray, noise: IntArray | None
    ) -> tuple[IntArray | None, int]:
        """All steps; whatever happens, the links are closed in the end and others are told of an error."""
        network = self._network
        try:
            await self._until(network.connect(addresses, listener, self._deadline), lambda: network.missing)
            result = await self._until(self._compute(values, noise), self._waited_for)
            await self._until(self._agree_on_the_end(), lambda: [self._job.terms.lead])
            await self._linger()
        except TpmdpError as error:
            for link in network.links.values():
                link.abort(error)
            raise
        finally:
            if not self._trouble.cancel():
                self._trouble.exception()  # it was told, or came when nobody needed the party any more
            await asyncio.gather(*(link.close() for link in network.links.values()))
        return result, network.bytes_sent

    def _waited_for(self) -> list[int]:
        return [peer for peer, link in self._network.links.items() if link.waiting]

    async def _until(self, work: Awaitable[T], waited_for: Callable[[], Iterable[int]]) -> T:
        """The work's result, unless a party is lost or the deadline comes first."""
        task = asyncio.ensure_future(work)
        left = max(0.0, self._deadline - now_s())
        try:
            both: set[asyncio.Future[Any]] = {task, self._trouble}
            await asyncio.wait(both, timeout=left, return_when=asyncio.FIRST_COMPLETED)
            if self._trouble.done():
                self._trouble.result()
            if task.done():
                return task.result()
            missing = tuple(waited_for())
            who = ", ".join(self._network.name(peer) for peer in missing) or "our own computation"
            raise LateError(f"the deadline passed while waiting for {who}: allow more time, or ask them", missing)
        finally:
            if not task.done():
                task.cancel()
                with suppress(asyncio.CancelledError, TpmdpError):
                    await task

    async def _compute(self, values: IntArray, noise: IntArray | None) -> IntArray | None:
        job = self._job
        mpc = await set_up(self._index, job.terms.count, job.degree, job.sec_param, self._network.links, self._fail)
        try:
            inputs, noises = self._share(mpc, values, noise)
            result = job.load()(mpc, inputs, job.parameters)
            dimension = job.terms.grid.dimension
            if getattr(result, "shape", None) != (dimension,):
                raise InputError("result of the function", "(secret)", f"must have {dimension} entries", "correct it")
            for each in noises:
                result = result + each
            opened = await mpc.output(result, receivers=self._receivers)
        except TpmdpError:
            raise
        except Exception as error:
            raise described(error) from None
        while mpc._pc_level > mpc._program_counter[1]:  # others may still need what we are about to send
            await asyncio.sleep(_TICK_S)
        return None if opened is None else self._in_range(opened)

    def _share(self, mpc: Any, values: IntArray, noise: IntArray | None) -> tuple[list[Any], list[Any]]:
        """Every party's input and noise, shared at once."""
        kind = mpc.SecInt(self._job.bits).array
        field = kind.sectype.field
        own = values if noise is None else np.concatenate([values, noise])
        extra = 0 if noise is None else len(noise)
        inputs: list[Any] = []
        noises: list[Any] = []
        for party, size in enumerate(self._job.sizes):
            shared = None
            if size + extra:
                mine = party == self._index
                numbers = own.astype(object) if mine else np.zeros(size + extra, dtype=object)
                shared = mpc.input(kind(field.array(numbers)), senders=party)
            inputs.append(shared[:size] if size and shared is not None else None)
            noises += [shared[size:]] if extra and shared is not None else []
        return inputs, noises

    def _in_range(self, opened: Any) -> IntArray:
        limit = 1 << (self._job.terms.grid.word - 1)
        if any(not -limit <= value < limit for value in opened.tolist()):
            raise MpycError("the result left its range: a party gave larger numbers than the study allows")
        return np.array(opened.tolist(), dtype=np.int64)

    async def _agree_on_the_end(self) -> None:
        """Receivers tell everybody that they have the result; the first one's word is everybody else's receipt."""
        links = self._network.links
        if self._index in self._receivers:
            for link in links.values():
                link.tell(Kind.DONE)
        else:
            await links[self._job.terms.lead].done

    async def _linger(self) -> None:
        """Close when everybody has sent all: a connection that is closed early may take what others sent with it."""
        links = self._network.links.values()
        for link in links:
            link.tell(Kind.BYE)
        await asyncio.wait({link.bye for link in links}, timeout=_LINGER_S)
