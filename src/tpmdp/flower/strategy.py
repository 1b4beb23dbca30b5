"""The server's side: a training in which the server learns one noisy sum per round, and nothing else of a client.

Drives nodes that run `private_mod` through one session per round. The wrapped strategy (FedAvg, FedAdam, ...) gets the
average as if one client had sent it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from logging import INFO, WARNING, getLogger
from typing import Any, Final, cast

import numpy as np
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from flwr.app import Array, ArrayRecord, ConfigRecord, Message, MetricRecord, RecordDict
from flwr.common import log
from flwr.serverapp import Grid
from flwr.serverapp.strategy import FedAvg, Result, Strategy
from numpy.typing import NDArray

from tpmdp._util import fields as read
from tpmdp._util.numbers import plural
from tpmdp.engines.contract import Outcome
from tpmdp.errors import DeadlineError, InputError, TpmdpError, shown
from tpmdp.flower.enrolment import Enrolment
from tpmdp.flower.introduction import CLIENTS_MAX
from tpmdp.flower.mod import EXAMPLES
from tpmdp.flower.nodes import Nodes
from tpmdp.flower.planner import RoundPlanner, TooNoisyError
from tpmdp.flower.round_terms import CLIP_MAX, CLIP_MIN, EXAMPLES_MAX, SERVER, Ask, Training, published
from tpmdp.flower.training_round import Model, Post, TrainingRound
from tpmdp.flower.update import average, is_trained, moved
from tpmdp.gaussian.composition import epsilon_of
from tpmdp.ledger import rounded_up
from tpmdp.planning.losses import most_lost
from tpmdp.protocol.party import ProtocolError
from tpmdp.protocol.terms import Terms

FAILURES_MAX: Final = 3  # sessions in a row without an answer
_NAMES_SHOWN: Final = 300
_CLIENTS_LEAST: Final = 2
_MORE_ROUNDS: Final = (
    "for more rounds, clients must spread their budgets over more from the beginning (rounds in their settings); each "
    "round then has more noise"
)
FLOWER_LOGGER: Final = getLogger("flwr")
Evaluate = Callable[[int, ArrayRecord], MetricRecord | None]


@dataclass(frozen=True, eq=False)
class RoundReport:
    """A round that gave a model: its terms, and its outcome without the sum, which is not stored.

    `sessions` is how many sessions it took (those without an answer may be charged, too). `noise` is the standard
    deviation in each entry of the average.
    """

    number: int
    terms: Terms
    outcome: Outcome
    sessions: int
    noise: float

    @property
    def counted(self) -> tuple[str, ...]:
        """The clients in the average."""
        return tuple(self.terms.spec.name(party) for party in sorted(self.outcome.receipts))

    @property
    def missing(self) -> tuple[str, ...]:
        """The clients that dropped out."""
        return tuple(self.terms.spec.name(party) for party in sorted(self.outcome.missing))

    @property
    def clients(self) -> int:
        """How many clients are in the average."""
        return len(self.outcome.receipts)

    @property
    def session(self) -> str:
        """The name of the session in the clients' ledgers."""
        return self.terms.label


class PrivateStrategy:
    """A training with personal budgets and a collusion threshold, used like a strategy of Flower.

    `clip` bounds the L2 norm of a client's update. `threshold` is how many parties may collude, the server among them
    (None: the most that any client asks for), `tolerate` how many may drop out of a round. `weighting` is "equal", or
    "balanced": then clients with stricter budgets count less, and much less noise is needed. `examples_most` weights
    the average by numbers of examples (up to so many per client) without showing them to anybody. `peers` are public
    keys by name (`read_peers`): other nodes are not let in. Training waits up to `patience_s` for `clients_wanted`
    clients and for replies without training, and ends when fewer than `clients_least` clients are left (None: as many
    as the wrapped strategy's `min_train_nodes` and `min_available_nodes` ask for, or 2). No round is started whose plan
    has more noise in each entry of the average than `noise_max`. `reports` has a `RoundReport` for every round that is
    done.

    >>> strategy = PrivateStrategy(name="digits", clip=1.0, tolerate=2)
    """

    def __init__(
        self,
        strategy: Strategy | None = None,
        *,
        name: str,
        clip: float,
        threshold: int | None = None,
        tolerate: int = 0,
        weighting: str = "equal",
        spread: float = 1.0,
        examples_most: int = 0,
        clients_least: int | None = None,
        clients_wanted: int = 0,
        patience_s: float = 60.0,
        noise_max: float = math.inf,
        peers: Mapping[str, bytes] | None = None,
        key: Ed25519PrivateKey | None = None,
        arrays_key: str = "",
        config_key: str = "",
    ) -> None:
        read.title("name", name)
        if isinstance(clip, bool) or not isinstance(clip, int | float) or not CLIP_MIN <= clip <= CLIP_MAX:
            raise InputError("clip", clip, f"must lie in [{CLIP_MIN:g}, {CLIP_MAX:g}]", "give a norm such as 1.0")
        if threshold is not None:
            read.whole("threshold", threshold, 1, high=CLIENTS_MAX)
        read.whole("tolerate", tolerate, 0, high=CLIENTS_MAX)
        read.whole("examples_most", examples_most, 0, high=EXAMPLES_MAX)
        self._strategy = strategy or FedAvg()
        self._unused = _unused_settings(self._strategy, clients_least)
        if clients_least is None:
            clients_least = max(_CLIENTS_LEAST, *_asked_nodes(self._strategy).values())
        read.whole("clients_least", clients_least, 1, high=CLIENTS_MAX)
        read.whole("clients_wanted", clients_wanted, 0, high=CLIENTS_MAX)
        if weighting not in ("equal", "balanced"):
            raise InputError("weighting", weighting, "must be equal or balanced", "choose one")
        if isinstance(spread, bool) or not isinstance(spread, int | float) or not 0 < spread <= 1:
            raise InputError("spread", spread, "must lie in (0, 1]", "leave it out for 1")
        if not patience_s > 0:
            raise InputError("patience_s", patience_s, "must be positive", "give seconds to wait for an answer")
        if isinstance(noise_max, bool) or not isinstance(noise_max, int | float) or not noise_max > 0:
            raise InputError("noise_max", noise_max, "must be positive", "give a standard deviation, such as 0.5")
        self._patience_s = patience_s
        identity = key or Ed25519PrivateKey.generate()
        self._arrays_key = arrays_key or getattr(self._strategy, "arrayrecord_key", "arrays")
        self._config_key = config_key or getattr(self._strategy, "configrecord_key", "config")
        training = Training(
            name=name,
            clip=float(clip),
            entries=1,  # not known before the start
            examples=examples_most,
            threshold=threshold,
            tolerate=tolerate,
            weighting=weighting,
            spread=float(spread),
        )
        if peers is not None:
            most = len(peers.keys() - {SERVER})
            training.check_count(threshold or 1, most)
            if clients_least > most:
                raise InputError("clients_least", clients_least, f"is more than the {most} in peers", "lower it")
        self._planner = RoundPlanner(training, identity, clients_least, noise_max=float(noise_max))
        server_key = identity.public_key().public_bytes_raw()
        self._clients = Enrolment(
            server_key, peers, clients_least=clients_least, clients_wanted=clients_wanted, patience_s=patience_s
        )
        self._proven: set[int] = set()  # nodes of the last round that gave an answer
        self._announced: TrainingRound | None = None  # the next round, if all its clients have agreed to it already
        self.reports: list[RoundReport] = []
        self._rounds_asked, self._reports_before = 0, 0
        self._stopped = ""  # why it ended before all rounds were done
        self._sessions: list[tuple[Terms, list[int]]] = []  # of the last start, with the parties they may be charged to
        self._lost = 0  # clients lost in sessions without an answer

    @property
    def summary(self) -> str:
        """How the training went, one fact per line; also logged at its end."""
        reports = self.reports[self._reports_before :]
        done, asked = len(reports), self._rounds_asked
        rounds = plural(done, "round")
        lines = [f"stopped after {done} of {asked} rounds: {self._stopped}" if self._stopped else f"{rounds} done"]
        if self._stopped and self._stopped == self._clients.shortage():
            lines.append(_MORE_ROUNDS)
        if reports:
            counts = [report.clients for report in reports]
            void = len(self._sessions) - done
            span = str(counts[0]) if min(counts) == max(counts) else f"{min(counts)} to {max(counts)}"
            lines.append(
                f"clients in a round: {span}; "
                f"drop-outs: {self._lost + sum(len(report.missing) for report in reports)}; "
                f"sessions without an answer: {void}"
            )
            lines.append(f"noise in each entry of the average: {reports[-1].noise:.3g} in the last round")
        if charges := self.charges:
            each = ", ".join(f"{name} {rounded_up(epsilon, 3)}" for name, epsilon in charges.items())
            lines.append(
                f"epsilon charged at most: {shown(each, _NAMES_SHOWN)}; the clients' ledgers have what really was"
            )
            lines.append(
                "the server cannot see whether a client's app failed, which counts as no update: its own log does"
            )
        if self._clients.spent:
            lines.append(f"no budget left: {shown(', '.join(sorted(self._clients.spent)), _NAMES_SHOWN)}")
        return "\n".join([*lines, self.guarantee] if self.guarantee else lines)

    @property
    def charges(self) -> dict[str, float]:
        """The most epsilon that each client is charged for the sessions of this training, as their terms say."""
        squares: dict[tuple[str, float], float] = {}
        for terms, parties in self._sessions:
            public = published(terms)
            for party in parties:
                client = terms.spec.name(party), float(terms.spec.delta[party])
                squares[client] = squares.get(client, 0.0) + public.charge(party)[0] ** 2
        each = sorted(squares.items())
        return {name: float(epsilon_of(math.sqrt(square), delta)) for (name, delta), square in each}

    @property
    def guarantee(self) -> str:
        """What the last plan promises, in words."""
        return self._planner.guarantee

    # The training ----------------------------------------------------------------------------------------------------

    def start(
        self,
        grid: Grid,
        initial_arrays: ArrayRecord,
        num_rounds: int = 3,
        timeout: float = 3600,
        train_config: ConfigRecord | None = None,
        evaluate_fn: Evaluate | None = None,
    ) -> Result:
        """Train; ends early where too few clients have budget left. `timeout` is for the training of clients."""
        self._rounds_asked, self._stopped = read.whole("num_rounds", num_rounds, 1, high=1_000_000), ""
        self._reports_before = len(self.reports)
        self._sessions, self._lost = [], 0
        for text in self._unused:
            log(WARNING, "tpmdp: %s", text)
        self._unused = []
        entries = sum(array.size for array in initial_arrays.to_numpy_ndarrays() if is_trained(array))
        if not entries:
            raise InputError("initial_arrays", "(none)", "has no floats to train", "give the model")
        self._planner.training = replace(self._planner.training, entries=entries)
        result, arrays = Result(), initial_arrays
        result.arrays = arrays
        self._evaluate(evaluate_fn, 0, arrays, result=result)
        post = Post(Nodes(grid, "train"), self._clients, self._patience_s, receipts={})
        self._clients.enrol(post.nodes)
        for number in range(1, num_rounds + 1):
            config = self._configured(number, arrays, train_config)
            model = Model(arrays, config, self._arrays_key, config_key=self._config_key, timeout_s=timeout)
            arrays_after = self._round(post, number, model, is_last=number == num_rounds)
            if arrays_after is None:
                break
            result.arrays = arrays = arrays_after
            report = self.reports[-1]
            result.train_metrics_clientapp[number] = MetricRecord(
                {"clients": report.clients, "dropped": len(report.missing), "noise": report.noise}
            )
            dropped = f", {len(report.missing)} dropped out" if report.missing else ""
            count = plural(report.clients, "client")
            log(INFO, "tpmdp: round %s/%s: %s%s", number, num_rounds, count, dropped)
            self._evaluate(evaluate_fn, number, arrays, result=result)
        post.deliver_receipts()
        for line in self.summary.splitlines():
            log(WARNING if self._stopped and line.startswith("stopped") else INFO, "tpmdp: %s", line)
        return result

    def _round(self, post: Post, number: int, model: Model, is_last: bool) -> ArrayRecord | None:
        """The model after a round, which takes as many sessions as it needs; None where training ends."""
        for attempt in range(1, FAILURES_MAX + 1):
            current = self._announced or self._next_round(post, number)
            self._announced = None
            if current is None:
                return None
            if not self._sessions:
                self._say_before()
            self._clients.invite(post.nodes)
            try:
                outcome = current.train(model, None if is_last else lambda: self._following(post, number + 1))
            except (DeadlineError, ProtocolError) as error:
                self._sessions.append((current.terms, current.charged))
                self._lost += current.lost
                hint = _tolerate_hint(current) if isinstance(error, DeadlineError) else ""
                log(WARNING, "tpmdp: round %s gave no answer: %s%s%s", number, error, _cost(current), hint)
                if attempt == FAILURES_MAX and not self.reports:
                    raise
                continue
            self._sessions.append((current.terms, current.charged))
            self._proven = set(current.party_at)
            self._announced = current.accepted_next()
            return self._apply(current, outcome, model.arrays, sessions=attempt)
        self._stopped = f"{FAILURES_MAX} sessions in a row gave no answer"
        return None

    def _say_before(self) -> None:
        """Log what to expect of the training, before anything is charged."""
        lines, warning = self._planner.outlook()
        for line in lines:
            log(INFO, "tpmdp: %s", line)
        if warning:
            log(WARNING, "tpmdp: %s", warning)
        asked = plural(self._rounds_asked, "round")
        log(INFO, "tpmdp: %s asked for; how many a client has budget for is in its own settings only", asked)

    def _next_round(self, post: Post, number: int) -> TrainingRound | None:
        """A round among the clients that are there; None where they are too few and there is a model to return."""
        try:
            return self._planner.round(post, number)
        except InputError as error:
            if not self._leave_out_newcomers(str(error)):
                self._clients.enrol(post.nodes)  # perhaps some are back
        try:
            return self._planner.round(post, number)
        except InputError as error:
            if not self.reports:
                raise
            shortage = "" if isinstance(error, TooNoisyError) else self._clients.shortage()
            self._stopped = shortage or str(error)
            return None

    def _leave_out_newcomers(self, reason: str) -> bool:
        """Leave out the newcomers with whom there is no plan, where there is one without; whether there are such."""
        clients = self._clients.clients
        accepted = [client for node, client in clients.items() if node in self._proven]
        newcomers = {node: client for node, client in clients.items() if node not in self._proven}
        if not newcomers or not self._planner.is_possible(accepted):
            return False
        for node, client in newcomers.items():
            if self._planner.is_possible([*accepted, client]):
                accepted.append(client)
            else:
                self._clients.leave_out(node, reason)
        return True

    def _following(self, post: Post, number: int) -> TrainingRound | None:
        """The next round among the clients that are still there, if there can be one."""
        try:
            return self._planner.round(post, number)
        except InputError:
            return None  # the current round comes first

    # The wrapped strategy --------------------------------------------------------------------------------------------

    def _evaluate(self, evaluate_fn: Evaluate | None, number: int, arrays: ArrayRecord, result: Result) -> None:
        metrics = evaluate_fn(number, arrays) if evaluate_fn is not None else None
        if metrics is not None:
            log(INFO, "tpmdp: evaluation after round %s: %s", number, metrics)
            result.evaluate_metrics_serverapp[number] = metrics

    def _configured(self, number: int, arrays: ArrayRecord, config: ConfigRecord | None) -> ConfigRecord:
        """What the wrapped strategy sends clients besides the model; it may store the model for its own use."""
        given = ConfigRecord(dict(config or {}))
        with _quiet():
            messages = self._strategy.configure_train(number, arrays, given, grid=cast(Grid, _AnyNodes(self._strategy)))
            records = [message.content.config_records.get(self._config_key) for message in messages]
        return next((record for record in records if record is not None), given)

    def _apply(self, current: TrainingRound, outcome: Outcome, arrays: ArrayRecord, sessions: int) -> ArrayRecord:
        """The next model: what the wrapped strategy makes of the average."""
        terms, ask = current.terms, Ask.parse(current.terms.query)
        weights = np.array([ask.weights[party] for party in sorted(outcome.receipts)])
        total = terms.grid.decode(outcome.sums[terms.lead])
        update, divisor = average(total, ask.clip, weights, counted=ask.counted)
        names = list(arrays)
        new = moved([arrays[name].numpy() for name in names], update)
        record = ArrayRecord({name: Array(array) for name, array in zip(names, new, strict=True)})
        weight_key = getattr(self._strategy, "weighted_by_key", EXAMPLES)
        content = RecordDict({self._arrays_key: record, "metrics": MetricRecord({weight_key: 1})})
        reply = Message(content, dst_node_id=1, message_type="train")
        with _quiet():
            aggregated, _ = self._strategy.aggregate_train(current.number, [reply])
        if aggregated is None:
            raise TpmdpError("the wrapped strategy made no model of the average: use one that takes one reply")
        noise = terms.standard_deviation_of(outcome.receipts | {terms.lead}) / divisor
        self.reports.append(
            RoundReport(current.number, terms, replace(outcome, sums={}), sessions=sessions, noise=noise)
        )
        # Averaging makes floats of counters.
        after = {name: _like(arrays[name].numpy(), aggregated[name].numpy()) for name in names}
        return ArrayRecord({name: Array(array) for name, array in after.items()})


def _asked_nodes(strategy: Strategy) -> dict[str, int]:
    """How many nodes the wrapped strategy wants."""
    return {name: getattr(strategy, name, 1) for name in ("min_available_nodes", "min_train_nodes")}


def _unused_settings(strategy: Strategy, clients_least: int | None) -> list[str]:
    """What the wrapped strategy asks for and does not get."""
    unused = [
        f"{name} = {count} of the wrapped strategy does not count, clients_least = {clients_least} does"
        for name, count in _asked_nodes(strategy).items()
        if clients_least is not None and count > max(clients_least, _CLIENTS_LEAST)
    ]
    if (share := getattr(strategy, "fraction_train", 1.0)) < 1:
        unused.append(f"fraction_train = {share:g} of the wrapped strategy does not count: all clients take part")
    return unused


def _cost(session: TrainingRound) -> str:
    """What a session without an answer cost."""
    count = len(session.charged)
    return f"; the session is charged to {plural(count, 'client')} at most, those that had the model" if count else ""


def _tolerate_hint(session: TrainingRound) -> str:
    """How a session could have gone on without the clients that were lost."""
    terms = session.terms
    could = terms.tolerate < session.lost <= most_lost(terms.count, terms.colluders)
    return f"; with tolerate={session.lost} it would go on" if could else ""


class _AnyNodes:
    """A grid for a strategy that wants to choose among nodes: as many as it needs, and none of them real."""

    def __init__(self, strategy: Strategy) -> None:
        self._count = max(1, *_asked_nodes(strategy).values())

    def get_node_ids(self) -> list[int]:
        """Numbers from 1."""
        return list(range(1, self._count + 1))


@contextmanager
def _quiet() -> Iterator[None]:
    """Without what Flower logs about the single reply it is given."""
    level = FLOWER_LOGGER.level
    FLOWER_LOGGER.setLevel(WARNING)
    try:
        yield
    finally:
        FLOWER_LOGGER.setLevel(level)


def _like(before: NDArray[Any], after: NDArray[Any]) -> NDArray[Any]:
    return after.astype(before.dtype) if is_trained(before) else before
