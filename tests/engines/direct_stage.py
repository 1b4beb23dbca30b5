"""Real workers of connected parties, and a puppet: a party played by the test, byte by byte."""

from __future__ import annotations

import socket
from collections.abc import Sequence
from contextlib import ExitStack
from typing import Any

import numpy as np
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from tests.patience import HANG_S
from tests.protocol.sessions import World
from tpmdp._util.arrays import IntArray
from tpmdp._util.clock import now_s
from tpmdp.engines.direct.job import job_class
from tpmdp.engines.direct.link import _FRAME
from tpmdp.engines.direct.network import Address
from tpmdp.engines.direct.record import (
    ANSWER_BYTES,
    CONFIRMATION,
    LENGTH_BYTES,
    PROOF_BYTES,
    TAG_BYTES,
    Exchange,
    Open,
    Seal,
    decode_hello,
)
from tpmdp.engines.direct.worker_process import WorkerProcess

TOTAL = "tpmdp.engines.mpyc.functions:total"
HOST = "127.0.0.1"


class Stage(ExitStack):
    """Parties of a world, started one by one. What each puts in is the world's, or `values`."""

    def __init__(
        self,
        world: World,
        function: str = TOTAL,
        parameters: Any = None,
        *,
        deadline_s: float = 60.0,
        engine: str = "mpyc",
        values: Sequence[IntArray] = (),
    ) -> None:
        super().__init__()
        self.world, self.deadline_s = world, deadline_s
        self.values = list(values) or [row.astype(np.int64) for row in world.inputs]
        sizes = [len(row) for row in self.values]
        self.job = job_class(engine).of(world.terms, function, parameters, sizes=sizes, noise_apart=False)
        self.deadline: float | None = None
        self.workers: dict[int, WorkerProcess] = {}
        self.addresses: list[Address] = [(HOST, 0)] * world.terms.count

    def start(self, *parties: int, ports: Sequence[int] = ()) -> None:
        """Start workers, which then listen."""
        for place, party in enumerate(parties):
            worker = WorkerProcess()
            self.callback(worker.stop)
            bind = (HOST, ports[place] if ports else 0)
            identity = self.world.identities[party]
            worker.give(self.job, party, identity, bind=bind, deadline=now_s() + HANG_S)
            self.workers[party] = worker
        for party in parties:
            self.addresses[party] = (HOST, self.workers[party].port())

    def go(self, *parties: int) -> None:
        for party in parties or self.workers:
            self.set_deadline(party)
            self.workers[party].go(self.addresses)
            self.workers[party].put_in(self.values[party], None)
            self.workers[party].say("open", "done")

    def set_deadline(self, party: int) -> None:
        """From now, when the workers have started, so that a busy machine cannot use it up."""
        if self.deadline is None:
            self.deadline = now_s() + self.deadline_s
        self.workers[party].deadline = self.deadline

    def outcome(self, party: int) -> IntArray | None:
        self.workers[party].connected()
        self.workers[party].opening()
        return self.workers[party].outcome()[0]

    def exchange(self, sender: int, recipient: int, dials: bool = True, **changes: Any) -> Exchange:
        """The exchange of a puppet that is what it says, but for the changes."""
        terms = self.world.terms
        identity: Ed25519PrivateKey = changes.get("identity") or self.world.identities[sender]
        session, plan_hash = changes.get("session", terms.session), changes.get("plan_hash", terms.plan_hash)
        work = changes.get("work", self.job.digest())
        return Exchange.fresh(identity, session, plan_hash, work, (sender, recipient), dials)

    def puppet(self, party: int) -> dict[int, Puppet]:
        """A party with its true key, connected to all workers above it."""
        puppets = {}
        for peer in self.workers:
            puppets[peer] = self.enter_context(Puppet(self.addresses[peer]))
            assert puppets[peer].handshake(self.exchange(party, peer))
            assert puppets[peer].confirmed()
        return puppets


class Puppet:
    """One connection of a party played by the test."""

    def __init__(self, address: Address) -> None:
        self.socket = socket.create_connection(address, timeout=HANG_S)
        self.sent = b""
        self.seal = Seal(bytes(32))
        self.opened = Open(bytes(32))

    def __enter__(self) -> Puppet:
        return self

    def __exit__(self, *_: object) -> None:
        self.socket.close()

    def send(self, data: bytes) -> None:
        self.sent += data
        self.socket.sendall(data)

    def read(self, size: int) -> bytes:
        data = b""
        while len(data) < size:
            try:
                part = self.socket.recv(size - len(data))
            except ConnectionError:
                part = b""
            if not part:
                return b""
            data += part
        return data

    def refused(self) -> bool:
        """Whether the other side closes without a further word."""
        return not self.read(1)

    def handshake(self, exchange: Exchange) -> bool:
        """As the side that dials; false if it is cut short before our proof."""
        self.send(exchange.hello.encode())
        hello = self.read(ANSWER_BYTES)
        if not hello:
            return False
        self.seal, self.opened = exchange.keys(decode_hello(hello))
        self.opened.content(self.read(LENGTH_BYTES + PROOF_BYTES + TAG_BYTES)[LENGTH_BYTES:])
        self.send(self.seal.record(exchange.proof()))
        return True

    def confirmed(self) -> bool:
        """Whether the other side then says that the link is made."""
        sealed = self.read(LENGTH_BYTES + len(CONFIRMATION) + TAG_BYTES)[LENGTH_BYTES:]
        return bool(sealed) and self.opened.content(sealed) == CONFIRMATION


def frame(kind: int, body: bytes, length: int | None = None, label: int = 0) -> bytes:
    """A message of a link, to be sealed."""
    return _FRAME.pack(kind, label, len(body) if length is None else length) + body
