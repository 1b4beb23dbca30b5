"""A few clients with real files and a small client app, for the tests of this folder; and what lies in their ledgers.

What ledgers hold is read with SQLite itself, and messages are taken apart by `peel`: neither uses the package.
"""

from __future__ import annotations

import math
import sqlite3
import struct
import zlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import mpmath
import numpy as np
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from flwr.app import Array, ArrayRecord, ConfigRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp.strategy import Result
from numpy.typing import NDArray

from tests.flower.local_grid import LocalGrid, fields
from tpmdp.flower import ClientSettings, PrivateStrategy, private_mod, simulated_clients
from tpmdp.ledger import Ledger
from tpmdp.protocol.terms import Terms
from tpmdp.spec import Party
from tpmdp.study.session import FEWER

AGREE, KEYS, PAD, SUBMIT, RESULT, RECEIPT, GROUP, OPEN, REVEAL = range(1, 10)
SHARE = 14
SAID = "a patient of ward 7"  # an app may say this; nobody else may hear it
LOSS = 0.71828182845
CLAIM = {"ready", "name", "key", "epsilon", "delta", "threshold", "signature"}
KNOWN_FIELDS = {"note", "witnessed", "version", "outbox", "problem", "refused", *CLAIM}
FRAME = struct.Struct(">QI")
HEADER = struct.Struct(">4sBIII32s32sQ")
Arrays = dict[str, NDArray[Any]]
Budget = tuple[float, float]  # epsilon and delta
Hook = Callable[[int, Message, RecordDict], RecordDict]


class Peeled(NamedTuple):
    """A protocol message, taken apart."""

    kind: int
    attempt: int
    sender: int
    recipient: int
    session: bytes
    plan: bytes
    body: bytes
    data: bytes


def split_frames(packed: bytes) -> list[bytes]:
    """The messages in a field of ours."""
    body = zlib.decompress(packed[1:]) if packed[:1] == b"z" else packed[1:]
    found, place = [], 0
    while place < len(body):
        _, length = FRAME.unpack_from(body, place)
        found.append(body[place + FRAME.size : place + FRAME.size + length])
        place += FRAME.size + length
    return found


def peel(data: bytes) -> Peeled:
    """Header and body."""
    magic, kind, attempt, sender, recipient, session, plan, length = HEADER.unpack_from(data)
    assert magic == b"TPM1"
    assert len(data) == HEADER.size + length + 64
    return Peeled(kind, attempt, sender, recipient, session, plan, data[HEADER.size : -64], data)


def outbox(reply: Message | None) -> list[Peeled]:
    """The protocol messages in a reply."""
    if reply is None or reply.has_error():
        return []
    packed = fields(reply).get("outbox", b"")
    assert isinstance(packed, bytes)
    return [peel(data) for data in split_frames(packed)] if packed else []


def inbox(request: Message) -> list[Peeled]:
    """The protocol messages in a request."""
    packed = fields(request).get("inbox", b"")
    assert isinstance(packed, bytes)
    return [peel(data) for data in split_frames(packed)] if packed else []


def problem(reply: Message | None) -> str:
    """What a client complains of."""
    if reply is None or reply.has_error():
        return ""
    found = fields(reply)
    return "".join(str(found.get(name, "")) for name in ("problem", "refused"))


class Line(NamedTuple):
    """An entry of a ledger."""

    kind: str
    session: str
    mu: float
    epsilon_limit: float


@dataclass
class World:
    """Clients in a folder; `updates` is by how much the app of each moves a model, `examples` what it counts."""

    folder: Path
    updates: list[NDArray[np.float64]]
    examples: list[int]
    server: Ed25519PrivateKey
    settings_of: Callable[[Context], ClientSettings]
    hook: Hook | None = None
    trained: list[tuple[int, int]] = field(default_factory=list)  # client, and the round its app was told
    evaluate: bool = False

    def __post_init__(self) -> None:
        self.grid = LocalGrid(self._app(), len(self.updates))

    @property
    def count(self) -> int:
        return len(self.updates)

    def _app(self) -> ClientApp:
        app = ClientApp(mods=[private_mod(self.settings_of, evaluate=self.evaluate)])

        @app.train()
        def train(message: Message, context: Context) -> Message:
            return self._train(message, context)

        @app.train("special")
        def special(message: Message, context: Context) -> Message:
            return self._train(message, context)

        @app.evaluate()
        def evaluate(message: Message, context: Context) -> Message:
            content = RecordDict({"metrics": MetricRecord({"loss": LOSS, "num-examples": 1})})
            return Message(content, reply_to=message)

        @app.query()
        def query(message: Message, context: Context) -> Message:
            return Message(RecordDict({"config": ConfigRecord({"said": SAID})}), reply_to=message)

        @app.query("special")
        def special_query(message: Message, context: Context) -> Message:
            return query(message, context)

        return app

    def _train(self, message: Message, context: Context) -> Message:
        number = int(context.node_config["partition-id"])
        config = next(iter(message.content.config_records.values()), ConfigRecord())
        self.trained.append((number, int(str(config.get("server-round", 0)))))
        record = next(iter(message.content.array_records.values()))
        new, start = {}, 0
        for name, array in record.items():
            values = array.numpy()
            if values.dtype.kind == "f":
                part = self.updates[number][start : start + values.size].reshape(values.shape)
                new[name] = (values.astype(np.float64) + part).astype(values.dtype)
                start += values.size
            else:
                new[name] = values + 1
        metrics = MetricRecord({"num-examples": self.examples[number], "loss": LOSS})
        content = RecordDict({"arrays": record_of_arrays(new), "metrics": metrics})
        if self.hook is not None:
            content = self.hook(number, message, content)
        return Message(content, reply_to=message)

    def settings(self, number: int) -> ClientSettings:
        return self.settings_of(self.grid.contexts[100 + number])

    def strategy(self, strategy: Any = None, **given: Any) -> PrivateStrategy:
        settings: dict[str, Any] = {"name": "test", "clip": 1.0, "clients_least": 1, "patience_s": 0.01}
        return PrivateStrategy(strategy, key=self.server, **{**settings, **given})

    def start(
        self, strategy: PrivateStrategy, arrays: Arrays | None = None, rounds: int = 1, config: Any = None
    ) -> Result:
        """A whole training; checks what must hold of ledgers and replies after any training."""
        given = {"w": np.zeros(len(self.updates[0]))} if arrays is None else arrays
        grid: Any = self.grid
        try:
            return strategy.start(grid, record_of_arrays(given), rounds, timeout=0.01, train_config=config)
        finally:
            self.check()

    # Ledgers, by SQLite ----------------------------------------------------------------------------------------------

    def rows(self, number: int, query: str) -> list[tuple[Any, ...]]:
        connection = sqlite3.connect(f"file:{self.folder}/client-{number}.ledger?mode=ro", uri=True)
        try:
            return connection.execute(query).fetchall()
        finally:
            connection.close()

    def lines(self, number: int) -> list[Line]:
        rows = self.rows(number, "SELECT kind, session, mu, limit_epsilon FROM entries ORDER BY number")
        return [Line(*row) for row in rows]

    def charged(self, number: int) -> list[str]:
        """Sessions that a client was charged for, oldest first."""
        return self._entered(number, "charge")

    def settled(self, number: int) -> list[str]:
        return self._entered(number, "settle")

    def _entered(self, number: int, kind: str) -> list[str]:
        """Without what was charged later, for an attempt with fewer parties."""
        rows = self.rows(number, f"SELECT session, study FROM entries WHERE kind = '{kind}' ORDER BY number")  # noqa: S608
        return [session for session, study in rows if not study.endswith(FEWER)]

    def private(self, number: int) -> dict[tuple[str, str], bytes]:
        """What a ledger keeps, by session and name; it lies under session and plan, 64 digits each."""
        rows = self.rows(number, "SELECT session, name, value FROM private WHERE session <> 'witnessed'")
        assert all(len(row[0]) == 128 for row in rows)
        return {(row[0][:64], row[1]): row[2] for row in rows}

    def check(self) -> None:
        """What holds after anything: charges once a session, before anything left, within the limit; replies clean."""
        submitted: dict[int, set[str]] = {number: set() for number in range(self.count)}
        bodies: dict[tuple[int, bytes, int], set[bytes]] = {}
        opened: dict[tuple[int, bytes], set[int]] = {}
        for number, _, reply in self.grid.made:
            for message in outbox(reply):
                if message.kind in (SUBMIT, PAD, RESULT, REVEAL, SHARE):
                    submitted[number].add(message.session.hex())
                if message.kind == SUBMIT:
                    bodies.setdefault((number, message.session, message.attempt), set()).add(message.body)
                if message.kind == REVEAL:
                    opened.setdefault((number, message.session), set()).add(message.attempt)
        assert all(len(found) == 1 for found in bodies.values())
        assert all(len(found) == 1 for found in opened.values())
        for number in range(self.count):
            charged = self.charged(number)
            assert len(charged) == len(set(charged))
            assert submitted[number] <= set(charged)
            assert set(self.settled(number)) <= set(charged)
            kept = {session for session, _ in self.private(number)}
            assert not kept & set(self.settled(number))  # noise is erased when it is of no use any more
            with Ledger.open(self.folder / f"client-{number}.ledger") as ledger:
                ledger.verify()
            party = self.settings(number).party
            assert kept_within([line.mu for line in self.lines(number)], party.epsilon, party.delta)
        check_replies(self)


def vector_name(terms: Terms, attempt: int = 1) -> str:
    """By what name a ledger keeps what a client contributes to an attempt."""
    return f"vector {attempt}" if terms.tolerate else "vector"


def kept_within(mus: Sequence[float], epsilon: float, delta: float) -> bool:
    """Whether Gaussian mechanisms of these mu are together (epsilon, delta)-DP, by the formula of Dong et al."""
    mu = math.sqrt(math.fsum(value * value for value in mus))
    if mu == 0 or math.isinf(epsilon):
        return True
    if math.isinf(mu):
        return False
    with mpmath.workdps(60):
        low, high = (mpmath.ncdf(-mpmath.mpf(epsilon) / mu + sign * mpmath.mpf(mu) / 2) for sign in (1, -1))
        return bool(low - mpmath.exp(epsilon) * high <= delta * (1 + mpmath.mpf(2) ** -40))


def record_of_arrays(arrays: Arrays) -> ArrayRecord:
    return ArrayRecord({name: Array(np.array(array, order="C")) for name, array in arrays.items()})


def arrays_of(record: ArrayRecord) -> Arrays:
    return {name: array.numpy() for name, array in record.items()}


def make_world(
    folder: Path,
    count: int,
    budget: Budget | Sequence[Budget] = (1.0, 1e-5),
    rounds: int = 4,
    threshold: int = 1,
    dimension: int = 3,
    updates: Sequence[Sequence[float]] | None = None,
    examples: Sequence[int] | None = None,
    evaluate: bool = False,
) -> World:
    """Clients with one budget for all, or one per client."""
    server = Ed25519PrivateKey.generate()
    budgets = np.broadcast_to(np.array(budget), (count, 2)).tolist()
    parties = [
        Party(f"client-{number}", epsilon, delta, threshold=threshold)
        for number, (epsilon, delta) in enumerate(budgets)
    ]
    settings_of = simulated_clients(folder / "clients", parties, rounds, server=server)
    random = np.random.default_rng(7)
    moves = [random.normal(size=dimension) for _ in range(count)] if updates is None else updates
    return World(
        folder / "clients",
        [np.array(move, dtype=np.float64) for move in moves],
        [10 + number for number in range(count)] if examples is None else list(examples),
        server,
        settings_of,
        evaluate=evaluate,
    )


def values_in(message: Message) -> Iterator[tuple[str, Any]]:
    """All names and values in a message's content."""
    for name, record in message.content.items():
        for key, value in record.items():
            yield f"{name}.{key}", value


def check_replies(world: World) -> None:
    """A reply is our one record with known fields, or an error of ours; nothing in it says what must not be said."""
    words = [SAID, str(world.folder), ".ledger", ".toml", ".key", "Traceback", repr(LOSS)]
    for _, _, reply in world.grid.made:
        if reply.has_error():
            assert reply.error.code == 403, reply.error
            texts = [reply.error.reason or ""]
        else:
            assert list(reply.content) == ["tpmdp"]
            record = reply.content.config_records["tpmdp"]
            assert set(record) <= KNOWN_FIELDS
            texts = [value for value in record.values() if isinstance(value, str)]
        for text in texts:
            assert not any(word in text for word in words), text
