"""The server's side: a training in which the server learns one noisy sum a round, and nothing else of a client.

Drives nodes that run `private_mod` through one session a round. Messages are precious in a deployment: terms and keys
of the next round travel with the last messages of this one, so a round takes one exchange with all nodes, or two where
clients may drop out. Whatever strategy is wrapped (FedAvg, FedAdam, ...) gets the average as if one client had sent it.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
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
from tpmdp._util.arrays import FloatArray
from tpmdp.engines.contract import guarantee_text
from tpmdp.errors import DeadlineError, InputError, TpmdpError, shown
from tpmdp.flower.enrolment import Enrolment
from tpmdp.flower.hub import exchange
from tpmdp.flower.mod import EXAMPLES
from tpmdp.flower.rounds import CLIP_MAX, CLIP_MIN, EXAMPLES_MAX, Ask, Client, Training
from tpmdp.flower.switch import Switch
from tpmdp.flower.update import average, is_trained, moved
from tpmdp.flower.wire import Value, bytes_of, fields_of, pack, pack_text, record_of, text_of, unpack
from tpmdp.protocol.messages import MessageError
from tpmdp.protocol.party import PartySession, ProtocolError
from tpmdp.protocol.secrets import FreshSecrets
from tpmdp.protocol.terms import Terms
from tpmdp.study.session import noise_source, noisy_vector

FAILURES_MAX: Final = 3  # sessions in a row without an answer
FLOWER_LOGGER: Final = getLogger("flwr")


@dataclass(eq=False, repr=False)
class _Round:
    """One session: its terms, the server's party, who sits where, and what is known of it."""

    number: int
    terms: Terms
    lead: PartySession
    switch: Switch
    nodes: dict[int, int]  # party by node
    offered: set[int] = field(default_factory=set)  # nodes that were sent the terms
    trained: set[int] = field(default_factory=set)  # nodes that were sent the model
    gone: dict[int, str] = field(default_factory=dict)  # nodes that are lost or refuse, and why

    @cached_property
    def text(self) -> bytes:
        """The terms as they travel."""
        return pack_text(self.terms.canonical())

    def failure(self) -> str:
        """Why there is no answer."""
        names = [self.terms.spec.name(party) for party in self.lead.waiting_for()]
        reasons = sorted(set(self.gone.values()))
        why = f" ({'; '.join(reasons)})" if reasons else ""
        return f"{shown(', '.join(names), 200)} lost in step {self.lead.step}{shown(why, 400) if why else ''}"


@dataclass(frozen=True)
class RoundReport:
    """What a round gave: which clients are counted, which dropped out, and the noise in each entry of the average.

    Also its session as clients' ledgers name it, how many sessions it took (void ones may be charged, too),
    and the grid of the sum.
    """

    number: int
    counted: tuple[str, ...]
    missing: tuple[str, ...]
    noise: float
    session: str
    tries: int
    step: float
    word: int

    @property
    def clients(self) -> int:
        """How many are counted."""
        return len(self.counted)


class PrivateStrategy:
    """A training with personal budgets and a collusion threshold, used like a strategy of Flower.

    `clip` bounds the L2 norm of a client's update. `threshold` is how many may collude, the server among them (None:
    the most that any client asks for), `tolerate` how many may drop out of a round. `weighting` is "equal", or
    "balanced" where clients with stricter budgets count less, so that much less noise is needed. `examples_most`
    weights the average by numbers of examples (up to so many a client) without showing them to anybody. `peers` are
    public keys by name (`read_peers`): nodes of others are not let in. Training waits up to `patience_s` for
    `clients_wanted` clients, and ends when fewer than `clients_least` are left.

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
        clients_least: int = 2,
        clients_wanted: int = 0,
        patience_s: float = 60.0,
        peers: Mapping[str, bytes] | None = None,
        key: Ed25519PrivateKey | None = None,
        arrays_key: str = "",
        config_key: str = "",
    ) -> None:
        read.title("name", name)
        if isinstance(clip, bool) or not isinstance(clip, int | float) or not CLIP_MIN <= clip <= CLIP_MAX:
            raise InputError("clip", clip, f"must lie in [{CLIP_MIN:g}, {CLIP_MAX:g}]", "give a norm such as 1.0")
        if threshold is not None:
            read.whole("threshold", threshold, 1, 100_000)
        read.whole("tolerate", tolerate, 0, 100_000)
        read.whole("examples_most", examples_most, 0, EXAMPLES_MAX)
        read.whole("clients_least", clients_least, 1, 100_000)
        read.whole("clients_wanted", clients_wanted, 0, 100_000)
        if weighting not in ("equal", "balanced"):
            raise InputError("weighting", weighting, "must be equal or balanced", "choose one")
        if isinstance(spread, bool) or not isinstance(spread, int | float) or not 0 < spread <= 1:
            raise InputError("spread", spread, "must lie in (0, 1]", "leave it out for 1")
        if not patience_s > 0:
            raise InputError("patience_s", patience_s, "must be positive", "give seconds to wait for an answer")
        self._strategy = strategy or FedAvg()
        self._set = Training(name, float(clip), 1, examples_most, threshold, tolerate, weighting, float(spread))
        self._clients_least, self._patience_s = clients_least, patience_s
        self._identity = key or Ed25519PrivateKey.generate()
        self._keys = (
            arrays_key or getattr(self._strategy, "arrayrecord_key", "arrays"),
            config_key or getattr(self._strategy, "configrecord_key", "config"),
        )
        self._weight_key = getattr(self._strategy, "weighted_by_key", EXAMPLES)
        self._token = secrets.token_hex(8)  # no two runs share a session
        self._sessions = 0
        self._members = Enrolment(self._public_key, peers, clients_least, clients_wanted, patience_s)
        self._proven: set[int] = set()  # nodes of the last round that gave an answer
        self._left: dict[int, list[bytes]] = {}  # receipts that travel with the next message, by node
        self._planned: tuple[tuple[Client, ...], Terms] | None = None
        self.reports: list[RoundReport] = []
        self.guarantee = ""

    # The training ----------------------------------------------------------------------------------------------------

    def start(
        self,
        grid: Grid,
        initial_arrays: ArrayRecord,
        num_rounds: int = 3,
        timeout: float = 3600,
        train_config: ConfigRecord | None = None,
        evaluate_fn: Callable[[int, ArrayRecord], MetricRecord | None] | None = None,
    ) -> Result:
        """Train; ends early where too few clients have budget left. `timeout` is for the training of clients."""
        read.whole("num_rounds", num_rounds, 1, 1_000_000)
        entries = sum(array.size for array in initial_arrays.to_numpy_ndarrays() if is_trained(array))
        if not entries:
            raise InputError("initial_arrays", "(none)", "has no floats to train", "give the model")
        self._set = Training(**{**vars(self._set), "entries": entries})
        result, arrays = Result(), initial_arrays
        result.arrays = arrays
        self._evaluate(evaluate_fn, 0, arrays, result)
        self._members.enrol(grid)
        announced: _Round | None = None
        failures = 0
        for number in range(1, num_rounds + 1):
            config = self._configured(number, arrays, train_config)
            while True:
                current = announced or self._next_round(grid, number)
                if current is None:
                    self._say_goodbye(grid)
                    return result
                try:
                    total, announced = self._run(grid, current, arrays, timeout, config, with_next=number < num_rounds)
                    break
                except (DeadlineError, ProtocolError) as error:
                    failures += 1
                    log(WARNING, "tpmdp: round %s gave no answer: %s", number, error)
                    announced = None
                    if failures >= FAILURES_MAX:
                        if not self.reports:
                            raise
                        log(WARNING, "tpmdp: training ends after round %s", self.reports[-1].number)
                        self._say_goodbye(grid)
                        return result
            arrays = self._apply(current, arrays, total, failures + 1)
            failures = 0
            result.arrays = arrays
            report = self.reports[-1]
            result.train_metrics_clientapp[number] = MetricRecord(
                {"clients": report.clients, "dropped": len(report.missing), "noise": report.noise}
            )
            dropped = f", {len(report.missing)} dropped out" if report.missing else ""
            log(INFO, "tpmdp: round %s/%s: %s clients%s", number, num_rounds, report.clients, dropped)
            self._evaluate(evaluate_fn, number, arrays, result)
        self._say_goodbye(grid)
        return result

    def _evaluate(
        self,
        evaluate_fn: Callable[[int, ArrayRecord], MetricRecord | None] | None,
        number: int,
        arrays: ArrayRecord,
        result: Result,
    ) -> None:
        found = evaluate_fn(number, arrays) if evaluate_fn is not None else None
        if found is not None:
            log(INFO, "tpmdp: evaluation after round %s: %s", number, found)
            result.evaluate_metrics_serverapp[number] = found

    def _configured(self, number: int, arrays: ArrayRecord, config: ConfigRecord | None) -> ConfigRecord:
        """What the wrapped strategy tells clients besides the model; it may keep the model for its own use."""
        given = ConfigRecord(dict(config or {}))
        with _quiet():
            asked = self._strategy.configure_train(number, arrays, given, cast(Grid, _Anybody(self._strategy)))
            found = [message.content.config_records.get(self._keys[1]) for message in asked]
        return next((record for record in found if record is not None), given)

    def _apply(self, current: _Round, arrays: ArrayRecord, total: FloatArray, tries: int) -> ArrayRecord:
        """The next model: what the wrapped strategy makes of the average."""
        ask, terms = Ask.parse(current.terms.query), current.terms
        members = sorted(current.lead.members - {terms.lead})
        weights = np.array([ask.weights[party] for party in members])
        update, divisor = average(total, ask.clip, weights, ask.counted)
        names = list(arrays)
        new = moved([arrays[name].numpy() for name in names], update)
        record = ArrayRecord({name: Array(array) for name, array in zip(names, new, strict=True)})
        content = RecordDict({self._keys[0]: record, "metrics": MetricRecord({self._weight_key: 1})})
        reply = Message(content, dst_node_id=1, message_type="train")
        with _quiet():
            made, _ = self._strategy.aggregate_train(current.number, [reply])
        if made is None:
            raise TpmdpError("the wrapped strategy made no model of the average: use one that takes one reply")
        counted = tuple(terms.spec.name(party) for party in members)
        missing = tuple(terms.spec.name(party) for party in sorted(set(range(terms.count)) - current.lead.members))
        noise = terms.standard_deviation_of(current.lead.members) / divisor
        grid, label = terms.grid, terms.label
        self.reports.append(RoundReport(current.number, counted, missing, noise, label, tries, grid.step, grid.word))
        # Averaging makes floats of counters.
        kept = {name: _like(arrays[name].numpy(), made[name].numpy()) for name in names}
        return ArrayRecord({name: Array(array) for name, array in kept.items()})

    # Who takes part --------------------------------------------------------------------------------------------------

    @property
    def _public_key(self) -> bytes:
        return self._identity.public_key().public_bytes_raw()

    def _next_round(self, grid: Grid, number: int) -> _Round | None:
        """A round among those that are there; None where too few are, once there is a model to return."""
        try:
            return self._new_round(number)
        except InputError as error:
            newcomers = set(self._members.clients) - self._proven if self._proven else set()
            for node in newcomers:  # there was a plan without them
                self._members.leave_out(node, str(error))
            if not newcomers:
                self._members.enrol(grid)  # perhaps some are back
        try:
            return self._new_round(number)
        except InputError as error:
            if not self.reports:
                raise
            log(WARNING, "tpmdp: training ends after round %s: %s", self.reports[-1].number, error)
            return None

    def _new_round(self, number: int) -> _Round:
        """Terms for those that are there; the plan is made anew only where that has changed."""
        self._members.leave_out_demanding(self._set.threshold, self._set.tolerate)
        count = len(self._members.clients)
        if count < self._clients_least:
            why = f" (last: {self._members.reason})" if self._members.reason else ""
            rule = f"are there that can take part, and {self._clients_least} are needed{why}"
            raise InputError("clients", count, rule, "start more nodes, or set clients_least")
        chosen = tuple(self._members.clients.values())
        self._sessions += 1
        label = f"{self._set.name} / {self._token} / round {number} / session {self._sessions}"
        if self._planned is None or self._planned[0] != chosen:
            self._planned = chosen, self._set.terms(label, number, self._public_key, chosen)
            self.guarantee = guarantee_text(self._planned[1])
        terms = _renamed(self._planned[1], label, number)
        # The server has no data; the plan may still ask it for noise, against clients that see the model.
        vector = noisy_vector(terms, 0, np.zeros(terms.grid.dimension, dtype=np.int64), noise_source(terms))
        lead = PartySession(terms, 0, self._identity, vector, FreshSecrets())
        nodes = {node: place for place, node in enumerate(self._members.clients, start=1)}
        made = _Round(number, terms, lead, Switch(terms, {0: lead}), nodes)
        made.switch.start()
        return made

    # One round -------------------------------------------------------------------------------------------------------

    def _run(
        self,
        grid: Grid,
        current: _Round,
        arrays: ArrayRecord,
        timeout_s: float,
        config: ConfigRecord | None,
        with_next: bool,
    ) -> tuple[FloatArray, _Round | None]:
        """Carry a session through; also announces the next one where that costs no message."""
        following: _Round | None = None
        self._members.invite(grid)
        unasked: dict[int, list[bytes]] = {node: [] for node in current.nodes if node not in current.offered}
        if unasked:
            self._ask(grid, current, unasked, None, self._patience_s)
        keys_asked = 1  # the last attempt for which all have been asked for their keys
        while not current.lead.done:
            ready = self._ready(current)
            keys_missing = current.lead.step in ("agree", "keys") and current.lead.attempt <= keys_asked
            if keys_missing or not ready:  # nobody trains for a session that cannot succeed
                again = current.lead.drop_missing()
                if not again:
                    raise DeadlineError(current.failure())
                current.switch.post(again)
                continue
            keys_asked = current.lead.attempt
            model = None if current.trained >= set(ready) else (arrays, config, current.number)
            last = current.lead.step == "reveal" or (self._set.tolerate == 0 and current.lead.step == "receive")
            if last and with_next and following is None:
                self._members.welcome(grid)
                following = self._following(current)
            asked = {node: current.switch.take(party) for node, party in ready.items()}
            self._ask(grid, current, asked, model, timeout_s if model else self._patience_s, following)
            if current.gone:
                self._members.invite(grid)  # who was lost may be back for the next round
        for node, party in current.nodes.items():
            waiting = current.switch.take(party)
            if waiting and node not in current.gone:
                self._left.setdefault(node, []).extend(waiting)
        self._proven = set(current.nodes)
        assert current.lead.result is not None
        usable = following is not None and self._is_accepted(following, current)
        return current.terms.grid.decode(current.lead.result), following if usable else None

    def _is_accepted(self, following: _Round, current: _Round) -> bool:
        """Whether all have agreed to the next round; where some do not, it is planned anew, at no cost."""
        refused = following.gone
        before = [why for node, why in refused.items() if node in current.nodes]
        newcomers = set(following.nodes) - set(current.nodes)
        for node in following.nodes:
            if node in newcomers and before:  # terms were good without it: others do not want to train with it
                log(WARNING, "tpmdp: goes on without %s", following.terms.spec.name(following.nodes[node]))
                self._members.leave_out(node, before[0])
            elif node in refused and not (newcomers and before):
                self._members.leave_out(node, refused[node])
        return not refused and set(following.nodes) <= set(self._members.clients)

    def _following(self, current: _Round) -> _Round | None:
        """The next round among those that are still there, if there can be one."""
        try:
            return self._new_round(current.number + 1)
        except InputError:
            return None  # this one comes first

    def _ready(self, current: _Round) -> dict[int, int]:
        waiting = current.switch.waiting()
        return {node: party for node, party in current.nodes.items() if party in waiting and node not in current.gone}

    def _ask(
        self,
        grid: Grid,
        current: _Round,
        asked: Mapping[int, list[bytes]],
        model: tuple[ArrayRecord, ConfigRecord | None, int] | None,
        timeout_s: float,
        following: _Round | None = None,
    ) -> None:
        """One exchange: messages of this session, the model for those that have not had it, terms of the next one."""
        contents, offers = {}, {}
        for node, messages in asked.items():
            fields: dict[str, Value] = {"inbox": pack(self._left.pop(node, []) + messages)}
            offer = current if node not in current.offered else following
            if offer is not None and node in offer.nodes and node not in offer.offered:
                fields["terms"] = offer.text
                offer.offered.add(node)
                offers[node] = offer
            send_model = model is not None and node not in current.trained
            if send_model:
                fields["train"] = current.terms.session
            contents[node] = record_of(fields)
            if send_model and model is not None:
                _add_model(contents[node], *model, self._keys)
                current.trained.add(node)
        replies, failed = exchange(grid, contents, "train", timeout_s)
        for node in contents:
            if node not in replies:
                self._lose(node, current, failed.get(node, "does not answer in time"))
                continue
            try:
                self._take(node, current, offers.get(node), fields_of(replies[node]))
            except MessageError as error:
                self._lose(node, current, str(error))
                self._members.leave_out(node, str(error))
            except ProtocolError as error:
                self._lose(node, current, str(error))
                self._members.leave_out(node, str(error))
                raise

    def _take(self, node: int, current: _Round, offer: _Round | None, fields: dict[str, Value]) -> None:
        messages = unpack(bytes_of(fields, "outbox") or b"-")
        current.switch.post(messages, current.nodes[node])
        if offer is not None and offer is not current:
            offer.switch.post(messages, offer.nodes[node])
        problem, refused = text_of(fields, "problem"), text_of(fields, "refused")
        if refused and offer is not None:  # the terms that were offered
            offer.gone[node] = refused
            log(WARNING, "tpmdp: %s refuses: %s", offer.terms.spec.name(offer.nodes[node]), shown(refused, 300))
            if offer is current:
                self._members.lose(node)
        if problem:
            self._lose(node, current, problem)
        elif fields.get("ready") is False and node in self._members.clients:
            log(INFO, "tpmdp: %s has no budget for a further round", self._members.clients[node].name)
            self._members.leave_out(node, "has no budget left")

    def _lose(self, node: int, current: _Round, problem: str) -> None:
        log(WARNING, "tpmdp: %s: %s", current.terms.spec.name(current.nodes[node]), shown(problem, 300))
        current.gone[node] = problem
        self._members.lose(node)

    def _say_goodbye(self, grid: Grid) -> None:
        """Receipts that are left over; nobody waits for the answers of those that are gone."""
        left, self._left = self._left, {}
        exchange(
            grid, {node: record_of({"inbox": pack(some)}) for node, some in left.items()}, "train", self._patience_s
        )


class _Anybody:
    """A grid for a strategy that wants to choose among nodes: as many as it needs, and none of them real."""

    def __init__(self, strategy: Strategy) -> None:
        needs = [getattr(strategy, name, 1) for name in ("min_available_nodes", "min_train_nodes")]
        self._count = max(1, *needs)

    def get_node_ids(self) -> list[int]:
        """Numbers."""
        return list(range(1, self._count + 1))


@contextmanager
def _quiet() -> Iterator[None]:
    """Without what Flower logs about the one reply it is given."""
    level = FLOWER_LOGGER.level
    FLOWER_LOGGER.setLevel(WARNING)
    try:
        yield
    finally:
        FLOWER_LOGGER.setLevel(level)


def _renamed(terms: Terms, label: str, number: int) -> Terms:
    """The same plan as another round."""
    ask = Ask.parse(terms.query)
    query = Ask(ask.training, number, ask.clip, ask.examples, ask.weights).text()
    return Terms(
        label, terms.spec, query, terms.bounds, terms.grid, terms.sigma, terms.guarantee, terms.roster, terms.tolerate
    )


def _like(before: NDArray[Any], after: NDArray[Any]) -> NDArray[Any]:
    return after.astype(before.dtype) if is_trained(before) else before


def _add_model(
    content: RecordDict, arrays: ArrayRecord, config: ConfigRecord | None, number: int, keys: tuple[str, str]
) -> None:
    content[keys[0]] = arrays
    content[keys[1]] = ConfigRecord({**(config or {}), "server-round": number})
