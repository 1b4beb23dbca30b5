"""One party's side of a session: connect, share input and noise, compute, open to receivers only, say goodbye.

The starter of this process gives the numbers when all parties are connected: until then nothing depends on data.

Every wait ends at the deadline, or at once when a party is lost; the error names the party.

Where the parties keep their shares for a sum through a relay, only those with numbers take part, and nothing is opened.
The starter stores the share durably, and the others learn that this party needs them no longer.

A result is opened once. Noise is drawn once per session, so a party that could open two results of different inputs
would see their difference without noise. Therefore all parties tell each other that they are READY before any share of
the result leaves, and the starter notes the opening durably before it happens: until then a session can be run again,
afterwards never. All n parties take part in every run, so one party that has opened is enough to prevent
a second opening by others.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final, TypeVar

import numpy as np
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from tpmdp._util.arrays import IntArray
from tpmdp._util.clock import now_s
from tpmdp.engines.direct.job import DirectJob
from tpmdp.engines.direct.link import LinkKind
from tpmdp.engines.direct.network import Address, Network, check_addresses, listen
from tpmdp.engines.direct.record import DirectError, LateError, described
from tpmdp.engines.direct.sharing import ConnectedPeers, Sharing
from tpmdp.errors import TpmdpError
from tpmdp.protocol.party import check_identity

_LINGER_S: Final = 5.0  # for others to finish, once we have all we need
T = TypeVar("T")
Notes = Mapping[int, bytes]  # by party; see `protocol.notes`


@dataclass(frozen=True)
class Numbers:
    """What a party puts in. Without `noise` the values already contain it, as vectors of a sum do."""

    values: IntArray
    noise: IntArray | None
    note: bytes
    """Of its ledger, charged for this session; it travels with READY."""


@dataclass(frozen=True)
class Starter:
    """The process that started us; it decides at three moments. Notes of the other parties' ledgers are for it."""

    difference: Callable[[str], None]
    """Hears what a party with another study has different."""
    missing: Callable[[list[int]], None]
    """Hears which parties are not connected yet, whenever that changes."""
    connected: Callable[[Notes], Awaitable[Numbers]]
    """All are connected, and nothing that depends on data has left: returns when this party has paid."""
    opening: Callable[[Notes], Awaitable[None]]
    """All are ready, and no share of the result has left: returns when the opening is noted durably."""
    result: Callable[[IntArray | None, int], Awaitable[None]]
    """Result (None with a receipt) and bytes sent: returns when that is stored, and others may learn of it."""


async def run_party(
    job: DirectJob,
    sharing: Sharing,
    index: int,
    *,
    identity: Ed25519PrivateKey,
    addresses: Sequence[Address],
    deadline: float,
    starter: Starter,
    listener: socket.socket | None = None,
    parts: bytes = b"",
    notes: Notes | None = None,
) -> None:
    """Take part, and give the starter the result, or None with a receipt. Runs once per process.

    `sharing` is the job's, prepared. `deadline` is a time of `clock.now_s`. Without a `listener` we listen on our
    address. `parts` are the hashes of our study's parts, for a party with another study; `notes` are what each party is
    sent of our ledger.
    """
    check_addresses(addresses, job.terms.count, job.members)
    check_identity(job.terms, index, identity)
    if listener is None and index > min(job.members):
        listener = listen(*addresses[index])
    session = _Session(job, sharing, index, identity=identity, deadline=deadline, starter=starter, parts=parts)
    await session.run(addresses, listener, notes=notes or {})


class _Session:
    """The state of `run_party`."""

    def __init__(
        self,
        job: DirectJob,
        sharing: Sharing,
        index: int,
        *,
        identity: Ed25519PrivateKey,
        deadline: float,
        starter: Starter,
        parts: bytes,
    ) -> None:
        self._job, self._sharing, self._index = job, sharing, index
        self._deadline, self._starter = deadline, starter
        self._trouble: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._network = Network(
            job.terms,
            index,
            identity,
            work=job.digest(),
            stored_max=job.stored_max,
            on_loss=self._fail,
            parts=parts,
            on_difference=starter.difference,
            on_missing=starter.missing,
            members=job.members,
        )
        self._receivers: list[int] = np.flatnonzero(job.terms.spec.receivers).tolist()

    def _fail(self, error: TpmdpError) -> None:
        """Note an error; only the first counts."""
        if not self._trouble.done():
            self._trouble.set_exception(error)

    async def run(self, addresses: Sequence[Address], listener: socket.socket | None, notes: Notes) -> None:
        """All steps. In any case the links are closed at the end, and the others learn of an error."""
        network = self._network
        try:
            await self._until(network.connect(addresses, listener, self._deadline), lambda: network.missing)
            theirs = await self._until(self._swap(LinkKind.NOTES, notes), lambda: self._silent("notes"))
            numbers = await self._until(self._starter.connected(theirs), lambda: ())
            self._job.check(self._index, numbers.values, numbers.noise)
            await self._until(self._compute(numbers), self._waited_for)
            if self._job.attempt:
                await self._keep()
                return
            notes = dict.fromkeys(network.links, numbers.note)
            theirs = await self._until(self._swap(LinkKind.READY, notes), lambda: self._silent("ready"))
            result = await self._open_once(theirs)
            await self._starter.result(
                result, network.bytes_sent
            )  # we have what we need, even if a party is lost by now
            await self._say_goodbye(self._index in self._receivers)
        except TpmdpError as error:
            for link in network.links.values():
                link.abort(error)
            raise
        finally:
            if not self._trouble.cancel():
                self._trouble.exception()  # it was raised, or came when the party was no longer needed
            await self._sharing.close()
            await asyncio.gather(*(link.close() for link in network.links.values()))

    def _waited_for(self) -> list[int]:
        return [peer for peer, link in self._network.links.items() if link.waiting]

    def _silent(self, word: str, among: Iterable[int] | None = None) -> list[int]:
        """The parties that have not sent this message."""
        links = self._network.links
        peers = links if among is None else [peer for peer in among if peer in links]
        return [peer for peer in peers if not getattr(links[peer], word).done()]

    async def _until(self, work: Awaitable[T], waited_for: Callable[[], Iterable[int]], patience_s: float = 0.0) -> T:
        """The work's result, unless a party is lost or the deadline comes first.

        With patience, a loss does not end the wait at once: what we wait for may be on its way from others.
        """
        task = asyncio.ensure_future(work)
        left = max(0.0, self._deadline - now_s())
        try:
            both: set[asyncio.Future[Any]] = {task, self._trouble}
            await asyncio.wait(both, timeout=left, return_when=asyncio.FIRST_COMPLETED)
            if patience_s and self._trouble.done() and not task.done():
                await asyncio.wait({task}, timeout=max(0.0, min(patience_s, self._deadline - now_s())))
            if self._trouble.done() and not (patience_s and task.done()):
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

    async def _compute(self, numbers: Numbers) -> None:
        peers = ConnectedPeers(self._index, self._network.links, self._receivers, fail=self._fail)
        try:
            await self._sharing.compute(peers, numbers.values, numbers.noise)
        except TpmdpError:
            raise
        except Exception as error:
            raise described(error) from None

    async def _swap(self, kind: LinkKind, ours: Notes) -> Notes:
        """Send every party a message of this kind with our note, and wait for theirs."""
        links = self._network.links
        for peer, link in links.items():
            link.tell(kind, ours.get(peer, b""))
        waited = {peer: link.notes if kind == LinkKind.NOTES else link.ready for peer, link in links.items()}
        await asyncio.wait(waited.values())
        return {peer: future.result() for peer, future in waited.items() if future.result()}

    async def _keep(self) -> None:
        """Have our share stored, whatever happens to the others now, and say goodbye."""
        share = await self._output()
        await self._starter.result(np.array(share, dtype=np.int64), self._network.bytes_sent)
        for link in self._network.links.values():
            link.tell(LinkKind.READY)
        await self._say_goodbye(receives=False)

    async def _open_once(self, notes: Notes) -> IntArray | None:
        """Open the result; once the starter has noted it, running again cannot repair an error."""
        receives = self._index in self._receivers
        try:
            await self._until(self._starter.opening(notes), lambda: (), _LINGER_S)
            work = self._receive() if receives else self._send_ours()
            return await self._until(work, self._waited_for if receives else self._unconfirmed, _LINGER_S)
        except TpmdpError as error:
            what = str(error).rpartition(": ")[0] or str(error)
            remedy = (
                "it must not be opened again with the same noise; use a new session number, which is charged anew"
                if receives
                else "run again to settle this session without a confirmation"
            )
            text = f"{what}, after the result was opened: {remedy}"
            if isinstance(error, LateError):
                raise LateError(text, error.missing) from None
            raise DirectError(
                text, getattr(error, "culprit", None), reported=getattr(error, "reported", False)
            ) from None

    async def _output(self) -> Sequence[int] | None:
        try:
            return await self._sharing.output()
        except TpmdpError:
            raise
        except Exception as error:
            raise described(error) from None

    async def _receive(self) -> IntArray:
        return self._in_range(await self._output() or ())

    async def _send_ours(self) -> None:
        """Send our share, and wait for the confirmation of any receiver, which is our receipt."""
        await self._output()
        links = self._network.links
        confirmations = {links[peer].done for peer in self._receivers if peer in links}
        await asyncio.wait(confirmations, return_when=asyncio.FIRST_COMPLETED)

    def _unconfirmed(self) -> list[int]:
        return self._silent("done", self._receivers)

    def _in_range(self, opened: Sequence[int]) -> IntArray:
        limit = 1 << (self._job.terms.grid.word - 1)
        if any(not -limit <= value < limit for value in opened):
            raise DirectError("the result left its range: a party gave larger numbers than the study allows")
        return np.array(opened, dtype=np.int64)

    async def _say_goodbye(self, receives: bool) -> None:
        """Tell all parties that we have the result, if we are a receiver, and wait until all have sent everything.

        A connection that is closed too early may lose what others sent.
        """
        links = self._network.links.values()
        for link in links:
            if receives:
                link.tell(LinkKind.DONE)
            link.tell(LinkKind.BYE)
        await asyncio.wait({link.bye for link in links}, timeout=_LINGER_S)
