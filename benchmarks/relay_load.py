"""Many sessions at once through one relay, with and without hostile connections that do their worst.

Relay, parties and attackers are three processes on one machine, so part of what attackers cost is their own computing.
"""

from __future__ import annotations

import asyncio
import os
import re
import resource
import secrets
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

import httpx
import numpy as np
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from benchmarks.timing import Row, times
from tpmdp._util.clock import now_s
from tpmdp.engines.relay import wire
from tpmdp.engines.relay.drive import drive
from tpmdp.engines.relay.engine import relay_process
from tpmdp.engines.relay.mailbox import Mailbox
from tpmdp.planning.grid_plan import plan_on_grid
from tpmdp.protocol.masks import to_words
from tpmdp.protocol.messages import Kind, Message, encode
from tpmdp.protocol.party import PartySession
from tpmdp.protocol.secrets import FreshSecrets
from tpmdp.protocol.terms import Terms, session_id
from tpmdp.spec import Spec

DEADLINE_S = 900.0
PARTIES = 12  # of the attackers' own session
REGISTRATION = 3_195_660  # bytes of a slow registration; 21 of them are 64 MiB
STACK = 512 << 10  # bytes of a party's thread


@dataclass(frozen=True)
class Size:
    sessions: int = 200
    parties: int = 5
    entries: int = 100
    attackers: int = 50


FULL, TOY = Size(), Size(sessions=2, parties=3, entries=5, attackers=8)


# Honest parties ------------------------------------------------------------------------------------------------------


class Load:
    """Sessions whose parties all begin at once, each party in a thread."""

    def __init__(self, size: Size) -> None:
        self.size = size
        spec = Spec(epsilon=1.0, delta=1e-6, threshold=1, receivers=[0], names=[f"p{i}" for i in range(size.parties)])
        self._plan = plan_on_grid(spec, 1.0, size.entries)
        self._identities = [Ed25519PrivateKey.generate() for _ in range(size.parties)]
        rows = np.random.default_rng(1).integers(-1000, 1000, (size.parties, size.entries))
        self._vectors = [to_words(row, self._plan.grid.word) for row in rows]
        self._total = rows.sum(axis=0)
        self.completed = 0
        self.problems: list[str] = []

    def seconds(self, url: str) -> float:
        """From the start to the last party that is done."""
        roster = tuple(identity.public_key().public_bytes_raw() for identity in self._identities)
        self.completed, self.problems = 0, []
        terms = [Terms.of(f"load {number}", self._plan, 1.0, roster) for number in range(self.size.sessions)]
        start = threading.Barrier(self.size.sessions * self.size.parties + 1)
        threads = [
            threading.Thread(target=self._take_part, args=(url, each, index, start), daemon=True)
            for each in terms
            for index in range(self.size.parties)
        ]
        for thread in threads:
            thread.start()
        start.wait()
        began = time.perf_counter()
        for thread in threads:
            thread.join()
        return time.perf_counter() - began

    def _take_part(self, url: str, terms: Terms, index: int, start: threading.Barrier) -> None:
        identity, store = self._identities[index], FreshSecrets()

        def make() -> PartySession:
            return PartySession(terms, index, identity, vector=lambda *_: self._vectors[index], secrets=store)

        deadline = now_s() + DEADLINE_S
        start.wait()
        try:
            with Mailbox(url, terms, index, identity=identity, deadline=deadline) as mailbox:
                party, left = drive(make, mailbox, deadline)
                if left:
                    mailbox.post(left)
                if party.result is not None and (party.result == self._total).all():
                    self.completed += 1  # only the lead receiver of each session is a receiver
        except Exception as error:
            self.problems.append(f"{type(error).__name__}: {error}")


@contextmanager
def many_files(wanted: int) -> Iterator[None]:
    """Every party has a connection of its own, in this process and in the relay's."""
    before, stack = resource.getrlimit(resource.RLIMIT_NOFILE), threading.stack_size(STACK)
    soft, hard = before
    aim = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, aim), hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)
        threading.stack_size(stack)


# Attackers, in a process of their own --------------------------------------------------------------------------------


class Attackers:
    """Connections that do their worst, from other addresses of the loopback network than the parties'."""

    def __init__(self, url: str) -> None:
        self._port = urlsplit(url).port or 80
        self._identities = [Ed25519PrivateKey.generate() for _ in range(PARTIES)]
        self._roster = tuple(key.public_key().public_bytes_raw() for key in self._identities)
        self._label = secrets.token_bytes(32)
        self._session = session_id(self._label, self._roster)
        self._path = f"/v1/sessions/{self._session.hex()}"
        self._tokens: list[str] = []

    async def run(self, number: int) -> None:
        """Attack until this process is ended."""
        await self._enter()
        kinds = (
            self.slow_head,
            self.slow_registration,
            self.slow_upload,
            self.stalled_reader,
            self.flood,
            self.nonsense,
            self.forged_tokens,
            self.large_uploads,
        )
        # Then enough slow senders to announce more than all the memory that a relay has for bodies.
        order = [*kinds, *[self.slow_registration] * 21, *[self.slow_upload] * 9]
        order += kinds * (1 + number // len(kinds))
        tasks = [asyncio.create_task(self._repeat(attack, index)) for index, attack in enumerate(order[:number])]
        print("attacking", flush=True)
        await asyncio.gather(*tasks)

    async def _repeat(self, attack: Callable[[int], Awaitable[None]], index: int) -> None:
        while True:
            with suppress(OSError, EOFError, asyncio.IncompleteReadError):
                await attack(index)
            await asyncio.sleep(0.02)

    async def _connect(self, index: int) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        try:
            local = (f"127.0.0.{2 + index % 250}", 0)
            return await asyncio.open_connection("127.0.0.1", self._port, local_addr=local)
        except OSError:  # this system has only one address
            return await asyncio.open_connection("127.0.0.1", self._port)

    async def _ask(
        self, streams: tuple[asyncio.StreamReader, asyncio.StreamWriter], head: str, body: bytes = b"", token: str = ""
    ) -> bytes:
        """One request and the head of its answer, whose body is read and dropped."""
        reader, writer = streams
        proof = f"authorization: {token}\r\n" if token else ""
        fields = f"host: x\r\n{proof}content-length: {len(body)}\r\n"
        writer.write(f"{head} HTTP/1.1\r\n{fields}\r\n".encode() + body)
        await writer.drain()
        answer = await reader.readuntil(b"\r\n\r\n")
        size = re.search(rb"content-length: (\d+)", answer.lower())
        await reader.readexactly(int(size[1]) if size else 0)
        return answer

    async def _enter(self) -> None:
        """Register a session of our own, with a large message to read."""
        streams = await self._connect(0)
        answer = await self._ask(streams, f"PUT {self._path}", self._label + b"".join(self._roster))
        nonce = re.search(rb"tpmdp-nonce: ([0-9a-f]+)", answer.lower())
        assert nonce is not None, answer
        self._tokens = [
            wire.make_token(key, bytes.fromhex(nonce[1].decode()), self._session, party=party)
            for party, key in enumerate(self._identities)
        ]
        await self._ask(streams, f"POST {self._path}/messages", self._large(0, 16 << 20), self._tokens[0])
        streams[1].close()

    def _large(self, attempt: int, size: int) -> bytes:
        message = Message(
            Kind.SUBMIT,
            attempt,
            0,
            recipient=1,
            session=self._session,
            plan_hash=bytes(32),
            body=bytes(size),
        )
        return wire.frame(encode(message, self._identities[0]))

    async def _trickle(self, streams: tuple[asyncio.StreamReader, asyncio.StreamWriter], begin: bytes) -> None:
        """Send a byte now and then, until the relay hangs up."""
        reader, writer = streams
        writer.write(begin)
        while not reader.at_eof():
            writer.write(b"x")
            await writer.drain()
            with suppress(TimeoutError):
                async with asyncio.timeout(0.5):
                    await reader.read(1 << 16)
        writer.close()

    async def slow_head(self, index: int) -> None:
        await self._trickle(await self._connect(index), b"GET /health HTTP/1.1\r\nx: ")

    async def slow_registration(self, index: int) -> None:
        head = f"PUT {self._path} HTTP/1.1\r\nhost: x\r\ncontent-length: {REGISTRATION}\r\n\r\n"
        await self._trickle(await self._connect(index), head.encode())

    async def slow_upload(self, index: int) -> None:
        token = self._tokens[index % PARTIES]
        head = f"POST {self._path}/messages HTTP/1.1\r\nhost: x\r\nauthorization: {token}\r\n"
        await self._trickle(
            await self._connect(index), (head + "content-length: 67108864\r\n\r\n").encode() + bytes(1 << 20)
        )

    async def stalled_reader(self, index: int) -> None:
        reader, writer = await self._connect(index)
        head = f"GET {self._path}/messages?after=4:0 HTTP/1.1\r\nhost: x\r\nauthorization: {self._tokens[1]}\r\n\r\n"
        writer.write(head.encode())
        await reader.readexactly(1)
        await asyncio.sleep(60.0)
        writer.close()

    async def flood(self, index: int) -> None:
        streams = await self._connect(index)
        while True:
            await self._ask(streams, "GET /health")

    async def nonsense(self, index: int) -> None:
        reader, writer = await self._connect(index)
        writer.write(secrets.token_bytes(4096) + b"\r\n\r\n")
        await writer.drain()
        await reader.read()
        writer.close()

    async def forged_tokens(self, index: int) -> None:
        streams = await self._connect(index)
        while True:
            token = f"tpmdp 1:{secrets.token_hex(64)}"
            await self._ask(streams, f"GET {self._path}/messages?after=1:0", token=token)

    async def large_uploads(self, index: int) -> None:
        """The same message again and again: it is stored once, and read and checked each time."""
        streams, body = await self._connect(index), self._large(1, 1 << 20)
        while True:
            await self._ask(streams, f"POST {self._path}/messages", body, self._tokens[0])


@contextmanager
def attackers(url: str, number: int) -> Iterator[None]:
    """Hostile connections in a process of their own, as long as the block lasts."""
    command = [sys.executable, "-m", "benchmarks.relay_load", url, str(number)]
    root = Path(__file__).parents[1]
    with subprocess.Popen(command, stdout=subprocess.PIPE, cwd=root, env=os.environ, text=True) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == "attacking\n", "the attackers did not start"
            yield
            assert process.poll() is None, "the attackers ended before the sessions"
        finally:
            process.kill()


# The rows ------------------------------------------------------------------------------------------------------------


def refusals(url: str) -> int:
    text = httpx.get(url + "/metrics", timeout=60).text
    return sum(int(number) for number in re.findall(r"refusals_total\{[^}]*\} (\d+)", text))


def measured(load: Load, hostile: int) -> tuple[float, str]:
    """Sessions per second, and what happened."""
    with tempfile.TemporaryDirectory() as folder, relay_process(Path(folder) / "relay.sqlite") as url:
        if hostile:
            with attackers(url, hostile):
                seconds = load.seconds(url)
                note = f"{refusals(url):,} requests refused"
        else:
            seconds = load.seconds(url)
            note = f"{load.size.entries} entries each"
    assert load.completed == load.size.sessions, (load.completed, load.problems[:3])
    return load.size.sessions / seconds, f"all completed in {seconds:.1f} s; {note}"


def rows(size: Size = FULL) -> list[Row]:
    """The rows on the relay's load."""
    with many_files(2 * size.sessions * size.parties + 256):
        load = Load(size)
        calm, calm_note = measured(load, 0)
        attacked, attacked_note = measured(load, size.attackers)
    what = f"{size.sessions} sessions of {size.parties} parties at once through one relay"
    hostile = f"{size.attackers} hostile connections"
    return [
        Row(f"{what}: sessions per second", f"{calm:.3g}", "", calm_note),
        Row(f"the same with {hostile}", f"{attacked:.3g}", "", attacked_note),
        Row(f"slower with {hostile}", times(calm / attacked), "at most 5x", "attackers compute on the same cores"),
    ]


if __name__ == "__main__":
    asyncio.run(Attackers(sys.argv[1]).run(int(sys.argv[2])))
