"""Whole trainings without a network: exact sums, right averages, lost messages at every step, budgets that run out."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from flwr.app import ArrayRecord, ConfigRecord, Message, MetricRecord, RecordDict
from flwr.serverapp.strategy import FedAdam, FedAvg, FedAvgM, FedMedian
from numpy.typing import NDArray

from tests.flower.hostile import sign_claim
from tests.flower.local_grid import fields
from tests.flower.world import (
    GROUP,
    KEYS,
    OPEN,
    RECEIPT,
    REVEAL,
    SAID,
    SUBMIT,
    World,
    arrays_of,
    inbox,
    make_world,
    outbox,
    problem,
    record_of_arrays,
    vector_name,
)
from tpmdp.errors import DeadlineError, InputError
from tpmdp.flower import PrivateStrategy, read_peers
from tpmdp.flower.wire import pack
from tpmdp.protocol.messages import Kind, encode
from tpmdp.protocol.messages import Message as Protocol

FREE = (math.inf, 1e-5)


class Spied(PrivateStrategy):
    """Compares each sum with the vectors in the clients' ledgers, which are still there before receipts arrive."""

    def watch(self, world: World) -> Spied:
        self.world = world
        self.sums: list[NDArray[np.float64]] = []
        self.sessions_seen: list[str] = []
        self.vectors: list[dict[int, NDArray[Any]]] = []
        self.terms: list[Any] = []
        return self

    def _apply(self, *given: Any, **named: Any) -> ArrayRecord:
        terms, lead, outcome = given[0].terms, given[0].lead, given[1]
        total = terms.grid.decode(outcome.sums[0])
        session, word = terms.session.hex(), terms.grid.word
        name = vector_name(terms, lead.attempt)
        found = {}
        for party in sorted(lead.members - {0}):
            number = int(terms.spec.name(party).split("-")[1])
            data = self.world.private(number)[session, name]
            found[number] = np.frombuffer(data, dtype="<u4" if word == 32 else "<u8")
        exact = [0] * terms.grid.dimension
        own = lead._vector(lead.attempt, lead.members)  # the server may have to add noise, too
        for vector in [*found.values(), own]:
            exact = [(one + int(other)) % (1 << word) for one, other in zip(exact, vector.tolist(), strict=True)]
        centred = [value - (1 << word) if value >= 1 << (word - 1) else value for value in exact]
        assert outcome.sums[0].tolist() == centred
        assert (total / terms.grid.step).tolist() == centred
        self.sums.append(total)
        self.sessions_seen.append(session)
        self.vectors.append(found)
        self.terms.append(terms)
        return super()._apply(*given, **named)


def spied(world: World, strategy: Any = None, **given: Any) -> Spied:
    settings: dict[str, Any] = {"name": "test", "clip": 1.0, "clients_least": 1, "patience_s": 0.01}
    return Spied(strategy, key=world.server, **{**settings, **given}).watch(world)


def model_of(result: Any) -> dict[str, NDArray[Any]]:
    return arrays_of(result.arrays)


def shortened(update: NDArray[np.float64], clip: float) -> NDArray[np.float64]:
    return update * min(1.0, clip / float(np.linalg.norm(update)))


# Averages ------------------------------------------------------------------------------------------------------------

MOVES = [[0.3, -0.4, 0.0], [30.0, 40.0, 0.0], [0.0, 0.0, -0.9], [1e-3, 0.0, 5e8]]


@pytest.mark.parametrize("count", [1, 2, 4])
@pytest.mark.parametrize("clip", [0.5, 1.0, 100.0])
def test_without_budgets_the_average_is_that_of_clipped_updates(tmp_path: Path, count: int, clip: float) -> None:
    world = make_world(tmp_path, count, FREE, updates=MOVES[:count])
    strategy = spied(world, clip=clip)
    start = np.array([1.0, -2.0, 0.5])
    found = model_of(world.start(strategy, {"w": start}, rounds=2))["w"]
    step = strategy.terms[0].grid.step
    mean = np.mean([shortened(update, clip) for update in world.updates], axis=0)
    np.testing.assert_allclose(found, start + 2 * mean, atol=2 * (step / 2 + 1e-6 * clip), rtol=0)
    assert step <= 1e-4 * clip
    assert all(math.isclose(report.noise, 0, abs_tol=step) for report in strategy.reports)


@pytest.mark.parametrize("tolerate", [0, 1])
def test_examples_weight_the_average(tmp_path: Path, tolerate: int) -> None:
    world = make_world(tmp_path, 4, FREE, updates=MOVES, examples=[10, 200, 100, 0])
    strategy = spied(world, examples_most=100, tolerate=tolerate)
    found = model_of(world.start(strategy))["w"]
    updates = [shortened(update, 1.0) for update in world.updates]
    np.testing.assert_allclose(found, np.average(updates, axis=0, weights=[10, 100, 100, 0]), atol=1e-4)


def test_few_examples_count_as_one_client(tmp_path: Path) -> None:
    world = make_world(tmp_path, 2, FREE, updates=MOVES[:2], examples=[1, 1])
    found = model_of(world.start(spied(world, examples_most=10)))["w"]
    np.testing.assert_allclose(found, 0.1 * np.sum([shortened(u, 1.0) for u in world.updates], axis=0), atol=1e-4)


def test_balanced_weights_divide_by_what_counts(tmp_path: Path) -> None:
    budgets = [(0.5, 1e-5), (8.0, 1e-5), (8.0, 1e-5)]
    noise = {}
    for weighting in ("equal", "balanced"):
        world = make_world(tmp_path / weighting, 3, budgets, rounds=1, updates=MOVES[:3])
        strategy = spied(world, weighting=weighting)
        found = model_of(world.start(strategy))["w"]
        weights = [float.fromhex(text) for text in json.loads(strategy.terms[0].query)["weights"]]
        assert weights[0] == 0
        np.testing.assert_allclose(found, strategy.sums[0] / sum(weights), rtol=1e-12)
        noise[weighting] = strategy.reports[0].noise
        if weighting == "balanced":
            assert weights[1] < weights[2] == weights[3]
        else:
            assert weights[1:] == [1, 1, 1]
    assert noise["balanced"] < noise["equal"]


def test_noise_is_what_the_plan_says(tmp_path: Path) -> None:
    dimension = 20_000
    world = make_world(tmp_path, 3, updates=[[0.001] * dimension] * 3)
    strategy = spied(world)
    found = model_of(world.start(strategy))["w"]
    terms = strategy.terms[0]
    word = {32: np.int32, 64: np.int64}[terms.grid.word]
    plain = round(0.001 / terms.grid.step)
    for number, vector in strategy.vectors[0].items():
        noise = vector.view(word).astype(np.float64) - plain
        sigma = int(terms.sigma[number + 1])
        assert sigma > 0
        assert abs(noise.std() / sigma - 1) < 0.04  # 8 standard errors
        assert abs(noise.mean()) < 6 * sigma / math.sqrt(dimension)
    spread = float((found - 0.001).std())
    assert abs(spread / strategy.reports[0].noise - 1) < 0.04
    one, other = strategy.vectors[0][0].view(word), strategy.vectors[0][1].view(word)
    assert abs(np.corrcoef(one, other)[0, 1]) < 0.05


def test_each_round_has_its_own_noise_session_and_charge(tmp_path: Path) -> None:
    world = make_world(tmp_path, 2, rounds=3)
    strategy = spied(world)
    world.start(strategy, rounds=3)
    assert len(set(strategy.sessions_seen)) == 3
    for number in range(2):
        assert len({vectors[number].tobytes() for vectors in strategy.vectors}) == 3
        assert world.charged(number) == world.settled(number) == strategy.sessions_seen
    assert world.trained == [(0, 1), (1, 1), (0, 2), (1, 2), (0, 3), (1, 3)]
    keys = [message.body for _, _, reply in world.grid.made for message in outbox(reply) if message.kind == KEYS]
    assert len(set(keys)) == len(keys) == 6


def test_the_same_training_again_shares_no_session(tmp_path: Path) -> None:
    world = make_world(tmp_path, 2)
    one, other = spied(world), spied(world)
    world.start(one)
    world.start(other)
    assert not set(one.sessions_seen) & set(other.sessions_seen)
    assert all(len(world.charged(number)) == 2 for number in range(2))


# Models --------------------------------------------------------------------------------------------------------------


def test_types_and_shapes_stay_and_counters_are_left_alone(tmp_path: Path) -> None:
    world = make_world(tmp_path, 2, FREE, updates=[[0.25] * 7, [0.125] * 7])
    given: dict[str, NDArray[Any]] = {
        "a": np.ones((2, 2), dtype=np.float32),
        "n": np.array([5, 6], dtype=np.int64),
        "b": np.array([2.0]),
        "c": np.zeros((1, 2, 1), dtype=np.float16),
    }
    found = model_of(world.start(spied(world), given, rounds=2))
    assert list(found) == list(given)
    for name, array in given.items():
        assert (found[name].dtype, found[name].shape) == (array.dtype, array.shape)
    assert found["n"].tolist() == [5, 6]
    np.testing.assert_allclose(found["a"], 1.375, atol=1e-3)
    np.testing.assert_allclose(found["c"].ravel(), 0.375, atol=1e-3)


def test_an_array_without_dimensions(tmp_path: Path) -> None:
    """Such as a temperature in PyTorch."""
    world = make_world(tmp_path, 2, FREE, updates=[[0.25] * 2, [0.125] * 2])
    found = model_of(world.start(spied(world), {"a": np.array(2.0), "b": np.zeros(1)}))
    assert found["a"].shape == ()


def test_a_model_without_floats_is_refused(tmp_path: Path) -> None:
    world = make_world(tmp_path, 2)
    with pytest.raises(InputError, match="no floats"):
        world.start(spied(world), {"n": np.array([1])})
    assert world.grid.log == []


def test_the_server_config_and_evaluation(tmp_path: Path) -> None:
    world = make_world(tmp_path, 2, FREE)
    heard: list[tuple[Any, Any]] = []

    def listen(number: int, message: Message, content: RecordDict) -> RecordDict:
        config = message.content.config_records["config"]
        heard.append((config["rate"], config["server-round"]))
        assert "tpmdp" not in message.content
        return content

    world.hook = listen
    strategy, grid, seen = spied(world), world.grid, []

    def evaluate(number: int, arrays: ArrayRecord) -> MetricRecord | None:
        seen.append((number, arrays["w"].numpy().copy()))
        return MetricRecord({"accuracy": number / 10}) if number else None

    any_grid: Any = grid
    result = strategy.start(
        any_grid,
        record_of_arrays({"w": np.zeros(3)}),
        2,
        train_config=ConfigRecord({"rate": 0.5}),
        evaluate_fn=evaluate,
    )
    assert heard == [(0.5, 1), (0.5, 1), (0.5, 2), (0.5, 2)]
    assert [number for number, _ in seen] == [0, 1, 2]
    assert seen[0][1].tolist() == [0, 0, 0]
    assert seen[2][1].tolist() == model_of(result)["w"].tolist()
    assert result.evaluate_metrics_serverapp[2]["accuracy"] == 0.2
    assert result.train_metrics_clientapp[1]["clients"] == 2


# Wrapped strategies --------------------------------------------------------------------------------------------------


def test_fedavg_and_median_see_one_reply(tmp_path: Path) -> None:
    for place, wrapped in enumerate((FedAvg(fraction_evaluate=0.0), FedAvgM(), FedMedian())):
        world = make_world(tmp_path / str(place), 2, FREE, updates=MOVES[:2])
        found = model_of(world.start(spied(world, wrapped), rounds=2))["w"]
        mean = np.mean([shortened(update, 1.0) for update in world.updates], axis=0)
        np.testing.assert_allclose(found, 2 * mean, atol=1e-4)


def test_fedavgm(tmp_path: Path) -> None:
    world = make_world(tmp_path, 2, FREE, updates=MOVES[:2])
    wrapped = FedAvgM(server_learning_rate=0.5, server_momentum=0.9)
    found = model_of(world.start(spied(world, wrapped), rounds=2))["w"]
    mean = np.mean([shortened(update, 1.0) for update in world.updates], axis=0)
    np.testing.assert_allclose(found, 0.5 * mean + 0.5 * (0.9 * mean + mean), atol=1e-4)


def test_fedadam(tmp_path: Path) -> None:
    world = make_world(tmp_path, 2, FREE, updates=MOVES[:2])
    wrapped = FedAdam(eta=0.1, beta_1=0.9, beta_2=0.99, tau=1e-3)
    found = model_of(world.start(spied(world, wrapped)))["w"]
    mean = np.mean([shortened(update, 1.0) for update in world.updates], axis=0)
    rate = 0.1 * math.sqrt(1 - 0.99**2) / (1 - 0.9**2)
    np.testing.assert_allclose(found, rate * 0.1 * mean / (np.sqrt(0.01 * mean**2) + 1e-3), atol=1e-4)


def test_a_strategy_with_a_key_of_its_own_for_weights(tmp_path: Path) -> None:
    world = make_world(tmp_path, 2, FREE, updates=MOVES[:2])
    found = model_of(world.start(spied(world, FedAvg(fraction_evaluate=0.0, weighted_by_key="size"))))["w"]
    mean = np.mean([shortened(update, 1.0) for update in world.updates], axis=0)
    np.testing.assert_allclose(found, mean, atol=1e-4)


def test_other_names_of_records(tmp_path: Path) -> None:
    world = make_world(tmp_path, 2, FREE, updates=MOVES[:2])
    wrapped = FedAvg(fraction_evaluate=0.0, arrayrecord_key="model", configrecord_key="set")
    found = model_of(world.start(spied(world, wrapped, arrays_key="model", config_key="set")))["w"]
    mean = np.mean([shortened(update, 1.0) for update in world.updates], axis=0)
    np.testing.assert_allclose(found, mean, atol=1e-4)


# Numbers of clients --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("count", "threshold", "tolerate"),
    [(1, 1, 0), (2, 1, 0), (2, 2, 0), (3, 1, 1), (3, 3, 0), (5, 1, 2), (6, 2, 2), (5, 2, 0)],
)
def test_few_clients_and_large_thresholds(tmp_path: Path, count: int, threshold: int, tolerate: int) -> None:
    world = make_world(tmp_path, count, threshold=threshold, rounds=2)
    strategy = spied(world, tolerate=tolerate)
    world.start(strategy, rounds=2)
    assert [(report.clients, report.missing) for report in strategy.reports] == [(count, ())] * 2
    for number in range(count):
        assert world.charged(number) == world.settled(number) == strategy.sessions_seen
        terms = strategy.terms[0]
        # Whoever colludes, the others' noise is enough: at t colluders the largest sigmas are known.
        sigma = sorted(value for place, value in enumerate(terms.sigma.tolist()) if place != number + 1)
        own = int(terms.sigma[number + 1])
        honest = own**2 + sum(value**2 for value in sigma[: count - threshold])
        charge = 2.0 / (math.sqrt(honest) * terms.grid.step)
        assert (
            0.97 * charge
            < next(line for line in world.lines(number) if line.kind == "charge").mu / (1 + terms.grid.step)
            < 1.06 * charge
        )


@pytest.mark.parametrize(("count", "threshold", "tolerate"), [(1, 2, 0), (2, 1, 1), (2, 2, 1), (3, 4, 0), (4, 2, 2)])
def test_thresholds_that_leave_nobody_honest_or_too_few_to_open(
    tmp_path: Path, count: int, threshold: int, tolerate: int
) -> None:
    world = make_world(tmp_path, count, threshold=threshold)
    with pytest.raises(InputError, match="threshold"):
        world.start(spied(world, tolerate=tolerate))
    assert all(not world.charged(number) for number in range(count))


def test_too_few_clients(tmp_path: Path) -> None:
    world = make_world(tmp_path, 2)
    with pytest.raises(InputError, match="3 are needed"):
        world.start(spied(world, clients_least=3))
    assert world.trained == []


@pytest.mark.parametrize(
    "bad",
    [
        {"clip": 0},
        {"clip": math.nan},
        {"clip": math.inf},
        {"clip": True},
        {"clip": "1"},
        {"threshold": 0},
        {"tolerate": -1},
        {"weighting": "best"},
        {"spread": 0},
        {"examples_most": 0.5},
        {"patience_s": 0},
        {"name": ""},
        {"clients_least": 0},
    ],
)
def test_settings_of_the_server(tmp_path: Path, bad: dict[str, Any]) -> None:
    with pytest.raises(InputError):
        PrivateStrategy(**{"name": "test", "clip": 1.0, **bad})


# Losses --------------------------------------------------------------------------------------------------------------


def phase_of(request: Message) -> str:
    """What a request is about."""
    asked = fields(request)
    kinds = {message.kind for message in inbox(request)}
    if "enrol" in asked:
        return "enrol"
    if "train" in asked:
        return "train"
    if OPEN in kinds:
        return "open"
    return "offer" if "terms" in asked else "goodbye" if kinds == {RECEIPT} else "keys"


class Losses:
    """Loses the first message of a phase for some clients: the request, or the reply to it."""

    def __init__(self, world: World, phase: str, clients: set[int], way: str) -> None:
        self.left, self.phase, self.lost = set(clients), phase, 0
        self._current: dict[int, str] = {}
        world.grid.lose_request = self._request if way == "request" else self._note
        world.grid.lose_reply = self._reply if way == "reply" else (lambda *_: False)

    def _hit(self, number: int, phase: str) -> bool:
        hit = phase == self.phase and number in self.left
        self.left -= {number} if hit else set()
        self.lost += hit
        return hit

    def _request(self, number: int, message: Message) -> bool:
        return self._hit(number, phase_of(message))

    def _note(self, number: int, message: Message) -> bool:
        self._current[number] = phase_of(message)
        return False

    def _reply(self, number: int, message: Message) -> bool:
        del message
        return self._hit(number, self._current[number])


WAYS = ["request", "reply"]


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("client", range(4))
@pytest.mark.parametrize("phase", ["enrol", "offer", "train"])
def test_one_client_may_fail_before_it_has_submitted(tmp_path: Path, phase: str, client: int, way: str) -> None:
    world = make_world(tmp_path, 4, rounds=8)
    losses = Losses(world, phase, {client}, way)
    strategy = spied(world, tolerate=1)
    world.start(strategy)
    assert losses.lost == 1
    (report,) = strategy.reports
    assert report.clients == 3
    assert report.missing == (() if phase == "enrol" else (f"client-{client}",))
    assert set(strategy.vectors[0]) == set(range(4)) - {client}
    session = strategy.sessions_seen[0]
    for number in set(range(4)) - {client}:
        assert world.charged(number) == world.settled(number) == [session]
    paid = phase == "train" and way == "reply"  # its shares or its submission were on the way
    assert world.charged(client) == ([session] if paid else [])
    assert world.settled(client) == []


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("client", range(4))
def test_a_client_lost_after_its_training_is_counted_if_it_has_submitted(tmp_path: Path, client: int, way: str) -> None:
    """Client 0 waits for the mask of the server only, which came with the model. The noise is that of the group."""
    world = make_world(tmp_path, 4, rounds=8)
    losses = Losses(world, "keys", {client}, way)
    strategy = spied(world, tolerate=1)
    world.start(strategy)
    assert losses.lost == 1
    (report,) = strategy.reports
    assert report.missing == (() if client == 0 else (f"client-{client}",))
    assert set(strategy.vectors[0]) == set(range(4)) - ({client} if client else set())
    for number in range(4):
        assert world.charged(number) == strategy.sessions_seen
        assert world.settled(number) == ([] if number == client else strategy.sessions_seen)


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("count", [3, 4])
@pytest.mark.parametrize("client", range(3))
def test_a_round_goes_on_when_a_client_fails_at_the_reveal(tmp_path: Path, client: int, count: int, way: str) -> None:
    """It is in the sum, which is exact, and nobody is charged twice; in the next round it is back."""
    world = make_world(tmp_path, count, rounds=8)
    losses = Losses(world, "open", {client}, way)
    strategy = spied(world, tolerate=1)
    world.start(strategy, rounds=2)
    assert losses.lost == 1
    assert [(report.number, report.sessions) for report in strategy.reports] == [(1, 1), (2, 1)]
    assert strategy.reports[0].clients == count
    assert strategy.reports[0].missing == ()
    assert set(strategy.vectors[0]) == set(range(count))
    assert openings(world, strategy.sessions_seen[0]) == count - (way == "request")
    for number in range(count):
        assert world.charged(number) == [
            session
            for session, vectors in zip(strategy.sessions_seen, strategy.vectors, strict=True)
            if number in vectors
        ]
        assert number == client or world.settled(number) == strategy.sessions_seen
    assert strategy.sessions_seen[0] in world.charged(client)


def openings(world: World, session: str) -> int:
    """How many clients have sent their shares in a session."""
    return len(
        {
            number
            for number, _, reply in world.grid.made
            for message in outbox(reply)
            if message.kind == REVEAL and message.session.hex() == session
        }
    )


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("client", range(3))
def test_losses_before_the_submission_and_at_the_reveal_add_up(tmp_path: Path, client: int, way: str) -> None:
    """Of five clients two may be lost, whenever: here one in its training and another at the reveal."""
    world = make_world(tmp_path, 5, rounds=8)
    early, late = Losses(world, "train", {4}, "request"), world.grid.lose_request
    losses = Losses(world, "open", {client}, way)
    at_reveal = world.grid.lose_request
    world.grid.lose_request = lambda number, message: late(number, message) or at_reveal(number, message)
    strategy = spied(world, tolerate=2)
    world.start(strategy)
    assert (early.lost, losses.lost) == (1, 1)
    (report,) = strategy.reports
    assert (report.sessions, report.clients, report.missing) == (1, 4, ("client-4",))
    assert all(world.charged(number) == strategy.sessions_seen for number in range(4))
    assert world.charged(4) == []


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("client", range(3))
def test_more_losses_at_the_reveal_than_tolerated_cost_a_session_and_training_goes_on(
    tmp_path: Path, client: int, way: str
) -> None:
    world = make_world(tmp_path, 3, rounds=8)
    lost = {0, 1, 2} - {client}
    losses = Losses(world, "open", lost, way)
    strategy = spied(world, tolerate=1)
    world.start(strategy)
    assert losses.lost == 2
    (report,) = strategy.reports
    assert (report.number, report.sessions) == (1, 2)
    assert client in strategy.vectors[0]
    for number in range(3):
        again = number in strategy.vectors[0]  # who was lost may be back
        charged = world.charged(number)
        assert len(charged) == 1 + again
        assert charged[0] == world.charged(client)[0]
        assert charged[1:] == world.settled(number) == (strategy.sessions_seen if again else [])


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("phase", ["offer", "train"])
def test_as_many_as_tolerated_may_fail_and_one_more_costs_a_session(tmp_path: Path, phase: str, way: str) -> None:
    for lost in (2, 3):
        world = make_world(tmp_path / str(lost), 5, rounds=8)
        losses = Losses(world, phase, set(range(lost)), way)
        strategy = spied(world, tolerate=2, clients_least=2)
        world.start(strategy)
        assert losses.lost == lost
        (report,) = strategy.reports
        assert report.clients == (3 if lost == 2 else 5)
        assert all(world.settled(number) == strategy.sessions_seen for number in range(lost, 5))
        if lost == 3:
            assert all(strategy.sessions_seen[0] in world.charged(number) for number in range(5))
        else:
            assert {session for number in range(5) for session in world.charged(number)} == set(strategy.sessions_seen)


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("phase", ["enrol", "offer", "train", "goodbye"])
def test_without_tolerance_a_loss_costs_a_session(tmp_path: Path, phase: str, way: str) -> None:
    world = make_world(tmp_path, 2, rounds=8)
    losses = Losses(world, phase, {1}, way)
    strategy = spied(world)
    world.start(strategy, rounds=2)
    assert losses.lost == 1
    assert [report.number for report in strategy.reports] == [1, 2]
    assert len(world.charged(0)) <= 3
    if phase in ("enrol", "goodbye"):
        assert world.charged(0) == strategy.sessions_seen
    if phase == "goodbye":
        assert world.charged(1) == strategy.sessions_seen
        assert world.settled(1) == (strategy.sessions_seen[:1] if way == "request" else strategy.sessions_seen)
    if phase == "train":
        assert len(world.charged(0)) == 3
        assert (world.charged(0)[0] in world.charged(1)) == (way == "reply")
    assert set(strategy.sessions_seen) <= set(world.charged(0))


@pytest.mark.parametrize("tolerate", [0, 1])
def test_too_many_losses_at_the_announcement_cost_nobody_anything(tmp_path: Path, tolerate: int) -> None:
    world = make_world(tmp_path, 3, rounds=8)
    Losses(world, "offer", set(range(tolerate + 1)), "request")
    strategy = spied(world, tolerate=tolerate, clients_least=2)
    world.start(strategy)
    assert all(world.charged(number) in ([], strategy.sessions_seen) for number in range(3))


def test_lost_clients_are_asked_again_where_the_plan_needs_them(tmp_path: Path) -> None:
    world = make_world(tmp_path, 5, rounds=8)
    Losses(world, "train", {0, 1, 2}, "request")
    strategy = spied(world, tolerate=2, clients_least=1)  # 5 clients are enough, 2 are not
    world.start(strategy)
    assert len(strategy.reports) == 1


def test_a_client_that_is_lost_comes_back(tmp_path: Path) -> None:
    world = make_world(tmp_path, 3, rounds=8)
    Losses(world, "train", {2}, "reply")
    strategy = spied(world, tolerate=1)
    world.start(strategy, rounds=4)
    assert [report.number for report in strategy.reports] == [1, 2, 3, 4]
    assert strategy.reports[0].clients == 2
    assert strategy.reports[-1].clients == 3
    assert strategy.sessions_seen[-1] in world.settled(2)


def test_a_client_that_joins_late_and_one_that_leaves(tmp_path: Path) -> None:
    world = make_world(tmp_path, 4, rounds=8)
    world.grid.down = {3}

    def move(number: int, message: Message, content: RecordDict) -> RecordDict:
        done = int(str(message.content.config_records["config"]["server-round"]))
        world.grid.down = {3} if done < 2 else set() if done < 6 else {0}
        return content

    world.hook = move
    strategy = spied(world, tolerate=1)
    world.start(strategy, rounds=7)
    clients = [report.clients for report in strategy.reports]
    assert len(clients) == 7
    assert clients[:2] == [3, 3]
    assert 4 in clients
    assert clients[-1] == 3
    assert set(strategy.vectors[-1]) == {1, 2, 3}


def test_a_round_is_not_lost_because_the_next_one_cannot_be(tmp_path: Path) -> None:
    world = make_world(tmp_path, 4, threshold=2, rounds=8)
    Losses(world, "train", {3}, "reply")
    strategy = spied(world, tolerate=1)
    world.start(strategy, rounds=2)
    assert len(strategy.reports) >= 1
    assert strategy.reports[0].clients == 3  # too few for another round with this threshold


def test_nobody_answers_any_more(tmp_path: Path) -> None:
    world = make_world(tmp_path, 2, rounds=8)
    world.grid.lose_request = lambda _, message: phase_of(message) == "train"
    with pytest.raises((DeadlineError, InputError)):
        world.start(spied(world))
    assert world.trained == []
    assert all(world.charged(number) == [] for number in range(2))


@pytest.mark.parametrize("tolerate", [0, 1])
def test_replies_that_never_arrive_cost_each_session_once(tmp_path: Path, tolerate: int) -> None:
    """All training replies of client 0 get lost: it pays for every session, and at most its budget."""
    world = make_world(tmp_path, 3, rounds=2)
    current = {}

    def note(number: int, message: Message) -> bool:
        current[number] = phase_of(message)
        return False

    world.grid.lose_request = note
    world.grid.lose_reply = lambda number, _: number == 0 and current[number] == "train"
    strategy = spied(world, tolerate=tolerate)
    try:
        world.start(strategy, rounds=4)
    except (DeadlineError, InputError):
        assert tolerate == 0
    assert len(world.charged(0)) <= 2
    assert world.settled(0) == []
    if tolerate:
        assert [report.clients for report in strategy.reports] == [2, 2]


# Apps and nodes that fail --------------------------------------------------------------------------------------------


def bad_content(kind: str) -> Callable[[int, Message, RecordDict], RecordDict]:
    def hook(number: int, message: Message, content: RecordDict) -> RecordDict:
        if number != 1:
            return content
        if kind == "raises":
            raise RuntimeError(SAID)
        if kind == "shape":
            content["arrays"] = record_of_arrays({"w": np.zeros((3, 3))})
        elif kind == "no metrics":
            del content["metrics"]
        elif kind == "other keys":
            content["arrays"] = record_of_arrays({"v": np.zeros(3)})
        elif kind == "nothing":
            return RecordDict()
        return content

    return hook


@pytest.mark.parametrize("kind", ["raises", "shape", "no metrics", "other keys", "nothing"])
def test_an_app_that_fails_counts_as_no_update_and_nobody_is_told(tmp_path: Path, kind: str) -> None:
    world = make_world(tmp_path, 3)
    world.hook = bad_content(kind)
    strategy = spied(world, tolerate=1, examples_most=100)
    world.start(strategy, rounds=2)
    assert [report.clients for report in strategy.reports] == [3, 3]
    assert world.charged(1) == world.charged(0)
    assert SAID not in "".join(problem(reply) for _, _, reply in world.grid.made)


def test_a_model_that_is_not_finite_stays_in_the_sum_as_nothing(tmp_path: Path) -> None:
    world = make_world(tmp_path, 2, FREE, updates=[[math.nan, 0.0, 0.0], [0.5, 0.0, 0.0]])
    found = model_of(world.start(spied(world)))["w"]
    np.testing.assert_allclose(found, [0.25, 0, 0], atol=1e-4)


def test_nodes_that_are_no_private_clients_do_not_take_part(tmp_path: Path) -> None:
    world = make_world(tmp_path, 3)
    (world.folder / "client-1.ledger").unlink()
    once = world.grid.deliver
    world.grid.deliver = lambda number, message: (  # type: ignore[method-assign]
        once(number, message)
        if number != 1
        else Message(RecordDict({"metrics": MetricRecord({"loss": 1.0})}), reply_to=message)
    )
    strategy = spied(world)
    any_grid: Any = world.grid
    strategy.start(any_grid, record_of_arrays({"w": np.zeros(3)}), 1)
    assert [report.clients for report in strategy.reports] == [2]


def test_a_client_that_says_nonsense_does_not_end_the_training(tmp_path: Path) -> None:
    world = make_world(tmp_path, 4, rounds=8)
    once = world.grid.deliver

    def nonsense(number: int, message: Message) -> Message:
        reply = once(number, message)
        if number == 0 and phase_of(message) == "train":
            fields(reply)["ready"] = False
        if number == 0 and phase_of(message) == "open":
            fields(reply)["refused"] = "what I was not asked"
        return reply

    world.grid.deliver = nonsense  # type: ignore[method-assign]
    strategy = spied(world, tolerate=1)
    world.start(strategy, rounds=2)
    assert len(strategy.reports) == 2


@pytest.mark.parametrize(
    "lie",
    [
        {"epsilon": -1.0},
        {"epsilon": 0.0},
        {"delta": 2.0},
        {"delta": 0.0},
        {"threshold": 99},
        {"epsilon": 1e300},
    ],
)
def test_a_client_that_lies_of_its_budget_does_not_end_the_training(tmp_path: Path, lie: dict[str, Any]) -> None:
    world = make_world(tmp_path, 3, rounds=8)
    once = world.grid.deliver

    def lying(number: int, message: Message) -> Message:
        reply = once(number, message)
        if number == 0 and phase_of(message) == "enrol":
            fields(reply).update(lie)
            sign_claim(world.settings(0).identity, message, reply)
        return reply

    world.grid.deliver = lying  # type: ignore[method-assign]
    strategy = spied(world)
    world.start(strategy)
    assert [report.clients for report in strategy.reports] == [2]


@pytest.mark.parametrize("kind", [Kind.PAD, Kind.REVEAL, Kind.GROUP, Kind.RESULT])
def test_who_sends_others_what_breaks_the_protocol_is_left_out_and_nobody_else(tmp_path: Path, kind: Kind) -> None:
    """Its recipients would stop, after their training, and look as if they had failed."""
    world = make_world(tmp_path, 4, rounds=8)
    once = world.grid.deliver

    def bad(number: int, message: Message) -> Message:
        reply = once(number, message)
        for said in [one for one in outbox(reply) if one.kind == Kind.KEYS] if number == 0 else []:
            more = [
                encode(Protocol(kind, 1, said.sender, other, said.session, said.plan, bytes(60)), identity)
                for other in range(1, 5)
                if other != said.sender
            ]
            fields(reply)["outbox"] = pack([*(one.data for one in outbox(reply)), *more])
        return reply

    identity = world.settings(0).identity
    world.grid.deliver = bad  # type: ignore[method-assign]
    strategy = spied(world, tolerate=1)
    any_grid: Any = world.grid
    strategy.start(any_grid, record_of_arrays({"w": np.zeros(3)}), 2)
    assert [set(report.counted) for report in strategy.reports] == [{"client-1", "client-2", "client-3"}] * 2
    assert all(len(world.charged(number)) == 2 for number in (1, 2, 3))


def test_only_peers_of_the_server_are_let_in(tmp_path: Path) -> None:
    world = make_world(tmp_path, 3)
    peers = read_peers(world.folder / "peers.toml")
    other_key = {**peers, "client-1": bytes(32)}
    strategy = spied(world, peers={name: key for name, key in other_key.items() if name != "client-2"})
    world.start(strategy)
    assert [report.counted for report in strategy.reports] == [("client-0",)]


# Budgets that run out ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("tolerate", [0, 1])
@pytest.mark.parametrize("rounds", [1, 3])
def test_a_training_ends_with_its_model_when_all_budgets_are_spent(tmp_path: Path, rounds: int, tolerate: int) -> None:
    """As many rounds as the files say fit, and not one more."""
    world = make_world(tmp_path, 3, rounds=rounds)
    strategy = spied(world, tolerate=tolerate)
    result = world.start(strategy, rounds=rounds + 3)
    assert [report.number for report in strategy.reports] == list(range(1, rounds + 1))
    assert model_of(result)["w"].any()
    for number in range(3):
        assert len(world.charged(number)) == rounds
        assert world.settled(number) == world.charged(number)


def test_one_client_without_budget_stops_and_the_others_go_on(tmp_path: Path) -> None:
    world = make_world(tmp_path, 3, rounds=4)
    settings = world.folder / "client-0.toml"
    settings.write_text(settings.read_text().replace("rounds = 4", "rounds = 1"))
    strategy = spied(world)
    world.start(strategy, rounds=4)
    assert [report.clients for report in strategy.reports] == [3, 2, 2, 2]
    assert [len(world.charged(number)) for number in range(3)] == [1, 4, 4]


def test_clients_without_budget_from_the_start(tmp_path: Path) -> None:
    world = make_world(tmp_path, 2, rounds=1)
    world.start(spied(world))
    with pytest.raises(InputError, match="all budgets are spent"):
        world.start(spied(world))
    assert all(len(world.charged(number)) == 1 for number in range(2))


@pytest.mark.parametrize("budget", [(1e-3, 1e-9), (500.0, 1e-5), (1.0, 1e-2)])
def test_small_and_large_budgets(tmp_path: Path, budget: tuple[float, float]) -> None:
    world = make_world(tmp_path, 2, budget, rounds=2)
    strategy = spied(world)
    world.start(strategy, rounds=3)
    assert len(strategy.reports) == 2


def test_submissions_come_from_those_in_the_group_only(tmp_path: Path) -> None:
    """A look at one whole training with a loss: kinds of messages, and who sends what when."""
    world = make_world(tmp_path, 3, rounds=8)
    Losses(world, "offer", {1}, "request")
    strategy = spied(world, tolerate=1)
    world.start(strategy)
    submitted = {
        (number, message.attempt)
        for number, _, reply in world.grid.made
        for message in outbox(reply)
        if message.kind == SUBMIT
    }
    assert submitted == {(0, 2), (2, 2)}
    groups = {message.body for _, request, _ in world.grid.log for message in inbox(request) if message.kind == GROUP}
    assert len(groups) == 1
