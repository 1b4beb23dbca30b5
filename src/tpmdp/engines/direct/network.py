"""Links between all parties: each dials the parties with a higher index, until the deadline.

A connection that does not prove within seconds to be a missing party of this session is dropped, so the true party can
come. A link counts when both sides know of it: the side that dials waits for a sealed confirmation, or dials again.
Parties with different studies learn what differs, once each has proved who it is.
"""

from __future__ import annotations

import asyncio
import secrets
import socket
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from typing import Final

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from tpmdp._util.clock import now_s
from tpmdp.engines.direct.link import Link, read_record
from tpmdp.engines.direct.record import (
    ANSWER_BYTES,
    CONFIRMATION,
    HELLO_BYTES,
    PROOF_BYTES,
    Exchange,
    LateError,
    Open,
    RecordError,
    Seal,
    decode_hello,
)
from tpmdp.errors import InputError, TpmdpError
from tpmdp.protocol.messages import MessageError
from tpmdp.protocol.parts import compare_text, difference_text, differences
from tpmdp.protocol.terms import Terms

Address = tuple[str, int]
HANDSHAKE_S: Final = 5.0
SILENT_MAX: Final = 256  # connections that have not yet claimed to be a party
CLAIMS_MAX: Final = 256  # connections with an unproved claim: an equal part for every missing party
_CLAIMS_MIN: Final = 8
_BATCH: Final = 32  # accepted at once: few, so that each is heard before many others come
_BACKLOG: Final = 256
_PAUSE_S: Final = (0.05, 1.0)  # between tries: first, longest
_TELL_S: Final = 1.0  # between reports of who is missing
_EVERYWHERE: Final = ("", "0.0.0.0", "::")  # noqa: S104
_FAILURES: Final = (OSError, TimeoutError, UnicodeError, asyncio.IncompleteReadError, RecordError)


def listen(host: str, port: int) -> socket.socket:
    """A listening socket on this address only.

    >>> with listen("127.0.0.1", 0) as listener:
    ...     listener.getsockname()[0]
    '127.0.0.1'
    """
    try:
        family = socket.getaddrinfo(host or None, port, type=socket.SOCK_STREAM)[0][0]
        return socket.create_server((host, port), family=family)
    except (OSError, OverflowError, UnicodeError) as error:  # the last: not a name that a host can have
        reason = getattr(error, "strerror", None) or "not an address"
        raise InputError("address", f"{host}:{port}", f"cannot be listened on ({reason})", "choose another") from None


def check_addresses(addresses: Sequence[Address], count: int, members: Iterable[int] | None = None) -> None:
    """Refuse addresses that cannot be dialled; of `members` only, if given.

    >>> check_addresses([("127.0.0.1", 7001)] * 3, 3)
    """
    if len(addresses) != count:
        raise InputError("addresses", len(addresses), f"must be {count}, one per party", "give every party's address")
    for host, port in addresses if members is None else [addresses[member] for member in members]:
        if host in _EVERYWHERE or not 0 <= port <= 65535:
            raise InputError("address", f"{host}:{port}", "must be a host and a port", "give one that others can dial")


class _Crowd:
    """Connections that have not proved who they are, by the party they claim to be (None: no claim yet).

    Strangers crowd out strangers: each claim has its own slots, and when there are too many connections, a random one
    from the address with the most is dropped. So a flood, however fast, only makes a true party try again.
    """

    def __init__(self) -> None:
        self._claims: dict[asyncio.StreamWriter, int | None] = {}

    def put(self, writer: asyncio.StreamWriter, claim: int | None, most: int) -> None:
        """Hold a connection under this claim, with at most `most` of them."""
        self._claims[writer] = claim
        rivals = [each for each, other in self._claims.items() if other == claim]
        if len(rivals) > most:
            counts = Counter(map(_source, rivals))
            crowded = max(counts.values())
            victim = secrets.choice([each for each in rivals if counts[_source(each)] == crowded])
            self.forget(victim)
            victim.transport.abort()

    def forget(self, writer: asyncio.StreamWriter) -> None:
        """Forget a connection that proved who it is, or is gone."""
        self._claims.pop(writer, None)

    def close(self) -> None:
        """Drop all connections."""
        for writer in list(self._claims):
            writer.transport.abort()


def _source(writer: asyncio.StreamWriter) -> str:
    """The address a connection comes from."""
    peer = writer.get_extra_info("peername")
    return str(peer[0]) if peer else ""


class Network:
    """The links of one party."""

    def __init__(
        self,
        terms: Terms,
        index: int,
        identity: Ed25519PrivateKey,
        work: bytes,
        stored_max: int,
        on_loss: Callable[[TpmdpError], None],
        parts: bytes = b"",
        on_difference: Callable[[str], None] = lambda _: None,
        on_missing: Callable[[list[int]], None] = lambda _: None,
        members: Iterable[int] | None = None,
    ) -> None:
        """`members` are the parties to be linked with each other; all, if not given."""
        self._terms, self._index, self._identity = terms, index, identity
        self._others = [each for each in (range(terms.count) if members is None else members) if each != index]
        self._work, self._stored_max, self._on_loss = work, stored_max, on_loss
        self._parts, self._on_difference, self._on_missing = parts, on_difference, on_missing
        self.links: dict[int, Link] = {}
        self._refusals: dict[int, str] = {}  # why the last connection for a party was dropped
        self._differences: dict[int, str] = {}  # what a party that proved who it is has different
        self._crowd = _Crowd()
        self._closed = False
        self._all_here = asyncio.Event()
        self._handshake_bytes = 0

    def name(self, party: int) -> str:
        """A party's name; other parties may send any number."""
        return self._terms.spec.name(party) if party < self._terms.count else "somebody"

    @property
    def missing(self) -> list[int]:
        """Parties that are not connected."""
        return [party for party in self._others if party not in self.links]

    @property
    def bytes_sent(self) -> int:
        """All bytes we sent, also on refused connections."""
        return self._handshake_bytes + sum(link.nbytes_sent for link in self.links.values())

    async def connect(self, addresses: Sequence[Address], listener: socket.socket | None, deadline: float) -> None:
        """Connect to all parties; at the deadline, the error names those that are missing."""
        server = None if listener is None else await self._serve(listener)
        above = [peer for peer in self._others if peer > self._index]
        dials = [asyncio.create_task(self._dial(peer, addresses[peer])) for peer in above]
        dials.append(asyncio.create_task(self._say_missing()))
        try:
            async with asyncio.timeout(max(0.0, deadline - now_s())):
                await self._all_here.wait()
        except TimeoutError:
            raise LateError(self._late(), tuple(self.missing)) from None
        finally:
            for dial in dials:
                dial.cancel()
            if server is not None:
                server.close()
            self._closed = True
            self._crowd.close()

    async def _say_missing(self) -> None:
        """Also while nothing changes: who hears it may have a reason to give up."""
        while True:
            await asyncio.sleep(_TELL_S)
            self._on_missing(self.missing)

    async def _serve(self, listener: socket.socket) -> asyncio.Server:
        server = await asyncio.start_server(self._answer, sock=listener, backlog=_BATCH)
        listener.listen(_BACKLOG)
        return server

    def _late(self) -> str:
        differ = [self._differences[peer] for peer in self.missing if peer in self._differences]
        if differ:
            return compare_text(differ)
        who = ", ".join(self.name(peer) for peer in self.missing)
        refusals = [
            f"a program that came for {self.name(peer)} {self._refusals[peer]}"
            for peer in self.missing
            if peer in self._refusals
        ]
        hint = "; ".join(refusals) or "not connected"
        return f"the deadline passed while waiting for {who}: {hint}; check addresses and that all have started"

    async def _dial(self, peer: int, address: Address) -> None:
        """Try until the true party answers, and again if it is lost before all are connected."""
        pause = _PAUSE_S[0]
        while True:
            if peer in self.missing:
                try:
                    async with asyncio.timeout(HANDSHAKE_S):
                        reader, writer = await asyncio.open_connection(*address)
                    await self._prove(reader, writer, peer)
                except _FAILURES as error:
                    self._refuse(peer, error)
            await asyncio.sleep(pause)
            pause = min(2 * pause, _PAUSE_S[1])

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Handle an incoming connection; before its proof nothing is believed."""
        if self._closed:
            writer.transport.abort()
            return
        self._crowd.put(writer, None, SILENT_MAX)
        try:
            with suppress(*_FAILURES):
                await self._prove(reader, writer, None)
        finally:
            self._crowd.forget(writer)

    async def _prove(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, peer: int | None) -> None:
        """Run the exchange, which ends in a link or a closed connection."""
        try:
            async with asyncio.timeout(HANDSHAKE_S):
                peer, keys = await (
                    self._first(reader, writer, peer) if peer is not None else self._second(reader, writer)
                )
            self._refuse_twice(peer)
        except BaseException:
            writer.transport.abort()
            raise
        self._crowd.forget(writer)
        self.links[peer] = Link(
            peer, self.name, (reader, writer), keys=keys, stored_max=self._stored_max, on_loss=self._lost
        )
        self._on_missing(self.missing)
        if not self.missing:
            self._all_here.set()

    def _lost(self, link: Link, error: TpmdpError) -> None:
        """A link that broke before anything came, while others are missing too, counts as never made."""
        if link.silent and not self._all_here.is_set():
            self.links.pop(link.peer, None)
            link.drop()
            self._on_missing(self.missing)
        else:
            self._on_loss(error)

    async def _first(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, peer: int
    ) -> tuple[int, tuple[Seal, Open]]:
        """The side that dials."""
        exchange = self._exchange(peer, dials=True)
        self._write(writer, exchange.hello.encode())
        seal, opened = exchange.keys(decode_hello(await reader.readexactly(ANSWER_BYTES)))
        exchange.verify(opened.content(await read_record(reader, PROOF_BYTES)), self._terms.roster[peer])
        self._write(writer, seal.record(exchange.proof()))
        if exchange.differs:
            await self._compare(reader, writer, peer, keys=(seal, opened), differs=exchange.differs)
        if opened.content(await read_record(reader, len(CONFIRMATION))) != CONFIRMATION:
            raise RecordError("does not confirm")
        return peer, (seal, opened)

    async def _second(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> tuple[int, tuple[Seal, Open]]:
        """The side that answers."""
        hello = decode_hello(await reader.readexactly(HELLO_BYTES))
        peer = hello.sender
        if peer >= self._index or peer not in self._others:
            raise RecordError("claims a number that does not dial us")
        try:
            exchange = self._exchange(peer, dials=False)
            seal, opened = exchange.keys(hello)
            self._refuse_twice(peer)
            self._crowd.put(writer, peer, max(_CLAIMS_MIN, CLAIMS_MAX // len(self.missing)))
            self._write(writer, exchange.hello.encode() + seal.record(exchange.proof()))
            exchange.verify(opened.content(await read_record(reader, PROOF_BYTES)), self._terms.roster[peer])
            if exchange.differs:
                await self._compare(reader, writer, peer, keys=(seal, opened), differs=exchange.differs)
            self._refuse_twice(peer)
            if writer.is_closing():
                raise RecordError("was crowded out")
            self._write(
                writer, seal.record(CONFIRMATION)
            )  # the link is made without another wait, so nothing can undo it
        except RecordError as error:
            self._refuse(peer, error)
            raise
        return peer, (seal, opened)

    async def _compare(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        peer: int,
        keys: tuple[Seal, Open],
        differs: str,
    ) -> None:
        """Exchange the hashes of our studies' parts with a party that has another study; there is no link to it."""
        seal, opened = keys
        self._write(writer, seal.record(self._parts))
        theirs = opened.content(await read_record(reader))
        text = f"{self.name(peer)} {differs}"
        if self._parts and theirs:
            with suppress(MessageError):
                text = difference_text(self.name(peer), differences(self._parts, theirs))
        if self._differences.get(peer) != text:
            self._differences[peer] = text
            self._on_difference(text)
        raise RecordError(differs)

    def _refuse_twice(self, peer: int) -> None:
        if peer in self.links:
            raise RecordError("is connected already")

    def _exchange(self, peer: int, dials: bool) -> Exchange:
        terms = self._terms
        pair = (self._index, peer)
        return Exchange.fresh(self._identity, terms.session, terms.plan_hash, work=self._work, pair=pair, dials=dials)

    def _write(self, writer: asyncio.StreamWriter, data: bytes) -> None:
        self._handshake_bytes += len(data)
        writer.write(data)

    def _refuse(self, peer: int, error: BaseException) -> None:
        self._refusals[peer] = str(error) if isinstance(error, RecordError) else "did not answer as a party does"
        if isinstance(error, ConnectionRefusedError):
            self._refusals.pop(peer)
