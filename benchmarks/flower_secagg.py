"""The same sum in Flower's SecAgg+, simulated on Ray, as a program of its own: prints one line of JSON.

python -m benchmarks.flower_secagg '{"clients": 100, "entries": 1000, "num_shares": 0.21}'

Also understood: "threshold" (0.6 of the shares), "clipping_range" (8), "max_weight" (1, the weight of every client;
Flower's own 1000 would cost three digits), "timeout" in seconds per stage (none), and
"fail": {"stage": "setup" | "share_keys" | "collect_masked_vectors" | "unmask", "count": 5}.
"""

from __future__ import annotations

import logging
import sys
import time
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, cast

import numpy as np
from flwr.app import ConfigRecord, Context, Message, MessageType, RecordDict
from flwr.client import Client, NumPyClient
from flwr.client.mod import secaggplus_mod
from flwr.clientapp import ClientApp
from flwr.clientapp.typing import ClientAppCallable
from flwr.common import FitRes, Parameters, Scalar, ndarrays_to_parameters, parameters_to_ndarrays
from flwr.common.secure_aggregation.secaggplus_constants import RECORD_KEY_CONFIGS, Key, Stage
from flwr.common.serde import message_to_proto
from flwr.server import LegacyContext, ServerConfig
from flwr.server.client_proxy import ClientProxy
from flwr.server.strategy import FedAvg
from flwr.server.workflow import DefaultWorkflow, SecAggPlusWorkflow
from flwr.serverapp import Grid, ServerApp
from numpy.typing import NDArray

from benchmarks.flower_child import Fail, Result, simulate, tell

WHO = "who"


@dataclass(frozen=True)
class Options:
    """What to run."""

    clients: int
    entries: int
    num_shares: int | float
    threshold: int | float = 0.6
    clipping_range: float = 8.0
    max_weight: float = 1.0
    timeout: float | None = None
    fail: Fail | None = None

    def __post_init__(self) -> None:
        if self.fail is not None and self.fail["stage"] not in Stage.all():
            raise ValueError(f"no such stage: {self.fail['stage']}")


def vector(client: int, entries: int) -> NDArray[np.float64]:
    """What a client contributes."""
    return np.random.default_rng(client).uniform(-1, 1, entries)


class Contributor(NumPyClient):
    """A client that trains nothing and returns its vector."""

    def __init__(self, client: int, entries: int) -> None:
        self.client, self.entries = client, entries

    def fit(
        self, parameters: list[NDArray[Any]], config: dict[str, Scalar]
    ) -> tuple[list[NDArray[Any]], int, dict[str, Scalar]]:
        """The vector, with weight 1."""
        del parameters, config
        return [vector(self.client, self.entries)], 1, {}


def client_app(options: Options) -> ClientApp:
    """The clients: SecAgg+ behind a gate that says who one is, and fails where it was told to."""
    entries, fail = options.entries, options.fail

    def client_fn(context: Context) -> Client:
        return Contributor(int(context.node_config["partition-id"]), entries).to_client()

    def gate(message: Message, context: Context, call_next: ClientAppCallable) -> Message:
        client = int(context.node_config["partition-id"])
        if message.metadata.message_type == MessageType.QUERY:
            return Message(RecordDict({WHO: ConfigRecord({WHO: client})}), reply_to=message)
        if fail is not None and client < fail["count"]:
            stage = message.content.config_records[RECORD_KEY_CONFIGS][Key.STAGE]
            if stage == fail["stage"]:
                raise RuntimeError(f"client {client} fails at {stage}, as told")
        return call_next(message, context)

    return ClientApp(client_fn, mods=[gate, secaggplus_mod])


def size(message: Message) -> int:
    """Bytes of a message as Flower serialises it."""
    return int(message_to_proto(message).ByteSize())


@dataclass
class Meter:
    """A grid that counts what it carries; the time that counting takes is kept apart."""

    grid: Grid
    up: int = 0
    down: int = 0
    overhead: float = 0.0
    refusals: list[str] = field(default_factory=list)

    def send_and_receive(self, messages: Iterable[Message], *, timeout: float | None = None) -> list[Message]:
        """Send, wait for the replies, count both."""
        sent = list(messages)
        stage = str(sent[0].content.config_records[RECORD_KEY_CONFIGS][Key.STAGE])
        start = time.perf_counter()
        replies = list(self.grid.send_and_receive(sent, timeout=timeout))
        middle = time.perf_counter()
        self.down += sum(map(size, sent))
        self.up += sum(map(size, replies))
        errors = [reply.error.reason for reply in replies if reply.has_error()]
        if errors:
            self.refusals.append(f"{stage}: {len(errors)} of {len(sent)} failed, the last with {last_line(errors[-1])}")
        self.overhead += time.perf_counter() - middle
        say(f"{stage}: {len(replies)} of {len(sent)} replies in {middle - start:.3f} s; {self.down=} {self.up=}")
        return replies


def last_line(text: str | None) -> str:
    """The line of a traceback that names the exception."""
    lines = [line.strip() for line in (text or "").strip("\"'<> \n").splitlines() if line.strip()]
    return lines[-1] if lines else "no reason"


def say(text: str) -> None:
    """Tell the reader, not the caller."""
    print(text, file=sys.stderr, flush=True)


class Keeper(FedAvg):
    """Flower's own averaging, which keeps what it was given and what it returned."""

    def __init__(self, clients: int) -> None:
        super().__init__(
            fraction_evaluate=0.0,
            min_fit_clients=clients,
            min_available_clients=clients,
            initial_parameters=ndarrays_to_parameters([]),  # no model is sent to the clients: only the sum is compared
        )
        self.counted: list[int] = []
        self.average: NDArray[np.float64] | None = None

    def aggregate_fit(
        self,
        server_round: int,
        results: list[tuple[ClientProxy, FitRes]],
        failures: list[tuple[ClientProxy, FitRes] | BaseException],
    ) -> tuple[Parameters | None, dict[str, Scalar]]:
        """Called once, after the masks are off."""
        parameters, metrics = super().aggregate_fit(server_round, results, failures)
        if parameters is not None:
            self.counted = [proxy.node_id for proxy, _ in results]
            self.average = parameters_to_ndarrays(parameters)[0]
        return parameters, metrics


class Complaints(logging.Handler):
    """What SecAgg+ says before it gives up."""

    def __init__(self) -> None:
        super().__init__(logging.ERROR)
        self.texts: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        """Only the workflow's own words: failing clients log too."""
        if record.module == "secaggplus_workflow":
            self.texts.append(record.getMessage())


def warm_up(grid: Grid, clients: int) -> dict[int, int]:
    """Wait until all are registered and have answered once; node id to client."""
    while len(nodes := list(grid.get_node_ids())) < clients:
        time.sleep(0.1)
    queries = [Message(RecordDict(), dst_node_id=node, message_type=MessageType.QUERY) for node in nodes]
    replies = list(grid.send_and_receive(queries))
    return {reply.metadata.src_node_id: int(cast(int, reply.content[WHO][WHO])) for reply in replies}


def server_app(options: Options, result: Result) -> ServerApp:
    """The server: one round, measured."""
    app = ServerApp()

    @app.main()
    def main(grid: Grid, context: Context) -> None:
        who = warm_up(grid, options.clients)
        assert sorted(who.values()) == list(range(options.clients))
        strategy, meter, complaints = Keeper(options.clients), Meter(grid), Complaints()
        logging.getLogger("flwr").addHandler(complaints)
        secagg = SecAggPlusWorkflow(
            options.num_shares,
            options.threshold,
            max_weight=options.max_weight,
            clipping_range=options.clipping_range,
            timeout=options.timeout,
        )

        def measured(_: Grid, legacy: Context) -> None:
            start = time.perf_counter()
            try:
                secagg(cast(Grid, meter), legacy)
            except Exception as problem:
                complaints.texts.append(repr(problem))
            result.seconds = time.perf_counter() - start - meter.overhead

        legacy = LegacyContext(context, config=ServerConfig(num_rounds=1), strategy=strategy)
        DefaultWorkflow(fit_workflow=measured)(grid, legacy)
        result.bytes_up, result.bytes_down = meter.up / options.clients, meter.down / options.clients
        result.counted = len(strategy.counted)
        result.completed = strategy.average is not None
        if strategy.average is not None:
            truth = np.mean([vector(who[node], options.entries) for node in strategy.counted], axis=0)
            off = np.abs(strategy.average - truth)
            result.error, result.rms_error = float(off.max()), float(np.sqrt(np.mean(off**2)))
        else:
            result.problem = "; ".join([*complaints.texts, *meter.refusals]) or "halted without a word"

    return app


def run(given: dict[str, Any]) -> Result:
    """One simulation."""
    options, result = Options(**given), Result()
    simulate(server_app(options, result), client_app(options), options.clients, result)
    return result


if __name__ == "__main__":
    tell(run)
