"""The sum of `flower_secagg` in tpmdp on Flower, simulated on Ray, as a program of its own: prints one line of JSON.

python -m benchmarks.flower_tpmdp '{"clients": 100, "entries": 1000}'

Real noise, real ledgers. Also understood: "tolerate" (5), "threshold" (11: the server and ten clients), "epsilon" (8 at
delta 1e-5 for three rounds), and "fail": {"stage": "announce" | "submit" | "reveal", "count": 5}.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import numpy as np
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from flwr.app import ArrayRecord, ConfigRecord, Context, Message, MessageType, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.clientapp.typing import ClientAppCallable
from flwr.serverapp import Grid, ServerApp

import tpmdp.flower.planner
import tpmdp.protocol.vectors
from benchmarks.flower_child import Fail, Result, simulate, tell
from benchmarks.flower_secagg import WHO, say, size, vector, warm_up
from tpmdp._util.arrays import IntArray
from tpmdp.flower import PrivateStrategy, private_mod, simulated_clients
from tpmdp.flower.wire import bytes_of, fields_of, unpack
from tpmdp.ledger import Ledger, SessionKey
from tpmdp.noise.source import NoiseSource
from tpmdp.protocol.masks import Mask, from_words, word_type
from tpmdp.protocol.messages import Kind, decode
from tpmdp.protocol.terms import Terms
from tpmdp.protocol.vectors import noisy_vector
from tpmdp.spec import Party

ROUNDS = 2
STAGES = ("announce", "submit", "reveal")


@dataclass(frozen=True)
class Options:
    """What to run."""

    clients: int
    entries: int
    tolerate: int = 5
    threshold: int = 11
    epsilon: float = 8.0
    fail: Fail | None = None

    def __post_init__(self) -> None:
        if self.fail is not None and self.fail["stage"] not in STAGES:
            raise ValueError(f"no such stage: {self.fail['stage']}")


@dataclass
class Outcome(Result):
    """Also: the second round, whose keys travelled with the first one's last messages; and whether the sum is exact."""

    second_round: float | None = None
    exact: bool | None = None  # equal to the sum of the clients' noisy vectors, every entry
    noise: float | None = None  # standard deviation in each entry of the average
    tries: int = 1  # sessions that the first answer took


def stage_of(message: Message) -> str:
    """What a client is asked for."""
    fields = fields_of(message.content)
    kinds = {decode(data).kind for data in unpack(bytes_of(fields, "inbox") or b"-")}
    if Kind.OPEN in kinds:
        return "reveal"
    return "submit" if "train" in fields else "announce" if "terms" in fields else ""


def client_app(options: Options, folder: Path, key: Ed25519PrivateKey) -> ClientApp:
    """The clients: an ordinary app behind the mod, and a gate that fails where it was told to."""
    entries, fail = options.entries, options.fail
    parties = [
        Party(f"client-{client}", options.epsilon, 1e-5, threshold=options.threshold)
        for client in range(options.clients)
    ]
    settings = simulated_clients(folder / "clients", parties, rounds=ROUNDS + 1, server=key)  # one round may fail

    def gate(message: Message, context: Context, call_next: ClientAppCallable) -> Message:
        client = int(context.node_config["partition-id"])
        if message.metadata.message_type == MessageType.QUERY:
            return Message(RecordDict({WHO: ConfigRecord({WHO: client})}), reply_to=message)
        told = folder / f"failed-{client}"
        if fail is not None and client < fail["count"] and stage_of(message) == fail["stage"]:
            told.touch()
            raise RuntimeError(f"client {client} fails at {fail['stage']}, as told")
        return call_next(message, context)

    app = ClientApp(mods=[gate, private_mod(settings)])

    @app.train()
    def train(message: Message, context: Context) -> Message:
        model = message.content.array_records["arrays"].to_numpy_ndarrays()[0]
        moved = model + vector(int(context.node_config["partition-id"]), entries)
        return Message(
            RecordDict({"arrays": ArrayRecord([moved]), "metrics": MetricRecord({"num-examples": 1})}), reply_to=message
        )

    @app.query()
    def who(message: Message, context: Context) -> Message:
        del context
        return message  # the gate answers

    return app


class Meter:
    """A grid that counts what it carries, the model left out; the time that counting takes is kept apart."""

    def __init__(self, grid: Grid) -> None:
        self._grid, self.up, self.down, self.overhead = grid, 0, 0, 0.0

    def get_node_ids(self) -> Iterable[int]:
        """As they are."""
        return self._grid.get_node_ids()

    def push_messages(self, messages: Iterable[Message]) -> Iterable[str]:
        """Send and count."""
        sent = list(messages)
        names = list(self._grid.push_messages(sent))
        start = time.perf_counter()
        for message in sent:
            model = message.content.array_records.get("arrays")
            self.down += size(message) - (0 if model is None else sum(len(array.data) for array in model.values()))
        self.overhead += time.perf_counter() - start
        return names

    def pull_messages(self, message_ids: Iterable[str]) -> Iterable[Message]:
        """Receive and count."""
        replies = list(self._grid.pull_messages(message_ids))
        start = time.perf_counter()
        self.up += sum(map(size, replies))
        self.overhead += time.perf_counter() - start
        return replies


SERVER_NOISE: dict[str, Mask] = {}  # by session: the server adds some, too


def remembered(terms: Terms, index: int, encoded: IntArray, source: NoiseSource, **group: Any) -> Mask:
    """What the server adds, kept for the check of the sum."""
    SERVER_NOISE[terms.label] = noisy_vector(terms, index, encoded, source=source, **group)
    return SERVER_NOISE[terms.label]


def noisy_sum(folder: Path, strategy: PrivateStrategy, word: int) -> IntArray:
    """What the server and the clients that are counted have added, in machine words; clients' from their ledgers."""
    label = strategy.reports[-1].session
    total = SERVER_NOISE[label].copy()
    for path in sorted((folder / "clients").glob("*.ledger")):
        with Ledger.open(path) as ledger:
            if ledger.party in strategy.reports[-1].missing:
                continue
            for entry in ledger.entries():
                if entry.is_charge and entry.study == label:
                    key = SessionKey(bytes.fromhex(entry.session), bytes.fromhex(entry.plan))
                    stored = ledger.private_state(key)
                    last = max(name for name in stored if name.startswith("vector"))  # of fewer than ten attempts
                    total += np.frombuffer(stored[last], dtype=word_type(word))
    return from_words(total, word)


def server_app(options: Options, folder: Path, key: Ed25519PrivateKey, result: Outcome) -> ServerApp:
    """The server: two rounds, the first one measured from nothing."""
    app = ServerApp()

    @app.main()
    def main(grid: Grid, context: Context) -> None:
        del context
        who = warm_up(grid, options.clients)
        assert sorted(who.values()) == list(range(options.clients))
        meter = Meter(grid)
        for module in (tpmdp.flower.planner, tpmdp.protocol.vectors):  # for all together, and for groups
            setattr(module, "noisy_vector", remembered)  # noqa: B010
        clip = 1.01 * float(np.sqrt(options.entries / 3)) + 1.0  # none of the vectors is clipped
        least = options.clients - options.tolerate
        strategy = PrivateStrategy(
            name="sum", clip=clip, tolerate=options.tolerate, clients_least=least, key=key, patience_s=600.0
        )
        began, first = time.perf_counter(), ArrayRecord([np.zeros(options.entries)])
        seconds: list[float] = []

        def look(number: int, arrays: ArrayRecord) -> None:
            seconds.append(time.perf_counter() - began - meter.overhead)
            say(f"round {number}: {seconds[-1]:.3f} s, {meter.up=} {meter.down=}")
            if number != 1:
                return
            report = strategy.reports[-1]
            result.bytes_up, result.bytes_down = meter.up / options.clients, meter.down / options.clients
            result.counted, result.noise, result.tries = report.clients, report.noise, report.sessions
            counted = [client for client in range(options.clients) if f"client-{client}" not in report.missing]
            if len(counted) != report.clients:  # those that failed are not even in the session that was answered
                counted = [client for client in counted if not (folder / f"failed-{client}").exists()]
            average = arrays.to_numpy_ndarrays()[0]
            off = np.abs(average - np.mean([vector(client, options.entries) for client in counted], axis=0))
            result.error, result.rms_error = float(off.max()), float(np.sqrt(np.mean(off**2)))
            grid = report.terms.grid
            steps = np.rint(average * report.clients / grid.step).astype(np.int64)
            result.exact = bool((steps == noisy_sum(folder, strategy, grid.word)).all())
            meter.overhead = time.perf_counter() - began - seconds[-1]  # looking costs nothing

        try:
            strategy.start(cast(Grid, meter), first, num_rounds=ROUNDS, timeout=600.0, evaluate_fn=look)
        except Exception as problem:
            result.problem = repr(problem)
        result.completed = len(seconds) > 1
        if len(seconds) > 1:
            result.seconds = seconds[1] - seconds[0]
        if len(seconds) > 2:
            result.second_round = seconds[2] - seconds[1]

    return app


def run(given: dict[str, Any]) -> Outcome:
    """One simulation."""
    options, result, key = Options(**given), Outcome(), Ed25519PrivateKey.generate()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        clients = client_app(options, folder, key)
        simulate(server_app(options, folder, key, result), clients, options.clients, result)
    return result


if __name__ == "__main__":
    tell(run)
