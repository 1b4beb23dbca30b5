"""What a training says before it starts, and what it says of mistakes that newcomers make."""

from __future__ import annotations

import logging
import os
import re
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import flwr.simulation
import numpy as np
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from flwr.app import Context, Message, RecordDict
from flwr.clientapp import ClientApp
from flwr.clientapp.typing import ClientAppCallable
from flwr.serverapp import Grid, ServerApp
from flwr.serverapp.strategy import FedAvg

from tests.flower.local_grid import LocalGrid, _context
from tests.flower.world import Budget, World, make_world, record_of_arrays
from tpmdp import Party, read_key
from tpmdp.errors import FileError, InputError
from tpmdp.flower import (
    PrivateStrategy,
    Training,
    enrolment,
    private_mod,
    read_peers,
    run_private_simulation,
    simulated_clients,
    simulation,
)
from tpmdp.flower.simulation import FOLLOWER
from tpmdp.flower.wire import fields_of, record_of

WEIGHTINGS = ("equal", "balanced")


@pytest.fixture
def lines(caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch) -> pytest.LogCaptureFixture:
    """Flower's log."""
    monkeypatch.setattr(logging.getLogger("flwr"), "propagate", True)
    caplog.set_level(logging.INFO, "flwr")
    return caplog


def place_of(lines: pytest.LogCaptureFixture, text: str) -> int:
    """Where a text is first logged."""
    return next(place for place, record in enumerate(lines.records) if text in record.message)


# Noise --------------------------------------------------------------------------------------------------------------

UNEQUAL: list[Budget] = [(0.5, 1e-5), (8.0, 1e-5), (8.0, 1e-5), (8.0, 1e-5)]


@pytest.mark.parametrize("weighting", WEIGHTINGS)
def test_noise_is_stated_before_anything_is_charged(
    tmp_path: Path, weighting: str, lines: pytest.LogCaptureFixture
) -> None:
    world = make_world(tmp_path, 4, budget=UNEQUAL, rounds=4, dimension=4)
    strategy = world.strategy(weighting=weighting)
    world.start(strategy, rounds=2)
    clients = [world.settings(number).round_party for number in range(4)]
    expected = Training("test", clip=1.0, entries=4, weighting=weighting).outlook(clients)
    assert [report.noise for report in strategy.reports] == pytest.approx([expected.noise] * 2)
    stated = next(record.message for record in lines.records if record.message.startswith("tpmdp: noise "))
    assert float(stated.split()[2]) == pytest.approx(expected.noise, rel=0.01)
    assert float(stated.split()[-4]) == pytest.approx(2 * expected.noise, rel=0.01)  # of 4 entries, at clip 1
    assert place_of(lines, "in each entry of the average") < place_of(lines, "takes part in")
    assert sum("standard deviation" in record.message for record in lines.records) == 1
    assert ('weighting="balanced" would need' in lines.text) == (weighting == "equal")
    if weighting == "equal":
        assert "the budgets of 1 client (client-0) determine it now" in lines.text
        assert "one client moves it by at most 0.25" in lines.text


def test_equal_budgets_get_no_hint_at_weights(tmp_path: Path, lines: pytest.LogCaptureFixture) -> None:
    world = make_world(tmp_path, 3)
    world.start(world.strategy(examples_most=50))
    assert "balanced" not in lines.text
    assert "and more where clients have fewer than 50 examples" in lines.text
    assert "tpmdp: 1 round asked for" in lines.text


DROWNS = "so much noise drowns the updates"


@pytest.mark.parametrize(
    ("epsilon", "entries", "is_drowned"),
    [(1.0, 1, True), (500.0, 1, False), (500.0, 10_000, True)],  # in one entry; in none; in all together
)
def test_noise_that_leaves_nothing_of_the_updates_is_a_warning(
    tmp_path: Path, epsilon: float, entries: int, is_drowned: bool, lines: pytest.LogCaptureFixture
) -> None:
    world = make_world(tmp_path, 3, budget=(epsilon, 1e-5), dimension=entries)
    world.start(world.strategy())
    found = [record for record in lines.records if DROWNS in record.message]
    assert [record.levelname for record in found] == ["WARNING"] * is_drowned
    if is_drowned:
        assert "have more clients, larger budgets or fewer rounds in their settings" in found[0].message
        assert place_of(lines, DROWNS) < place_of(lines, "takes part in")


def test_too_much_noise_is_refused_before_anything_is_charged(tmp_path: Path) -> None:
    world = make_world(tmp_path, 3)
    noise = Training("test", 1.0, 3).outlook([world.settings(number).round_party for number in range(3)]).noise
    with pytest.raises(InputError, match=r"^noise_max = 0.5 is less than the noise in each entry of the average among"):
        world.start(world.strategy(noise_max=0.5))
    assert [world.charged(number) for number in range(3)] == [[], [], []]
    assert not world.trained
    world.start(world.strategy(noise_max=noise * 1.01))
    assert [len(world.charged(number)) for number in range(3)] == [1, 1, 1]
    for wrong in (0.0, -1.0, float("nan"), True, "0.5"):
        with pytest.raises(InputError, match=r"^noise_max = .* must be positive"):
            world.strategy(noise_max=wrong)


def test_a_training_stops_where_fewer_clients_would_have_too_much_noise(tmp_path: Path) -> None:
    world = make_world(tmp_path, 3, rounds=4)
    settings = world.folder / "client-0.toml"
    settings.write_text(settings.read_text().replace("rounds = 4", "rounds = 1"))  # it leaves after one round
    clients = [world.settings(number).round_party for number in range(3)]
    limit = Training("test", 1.0, 3).outlook(clients).noise * 1.01
    strategy = world.strategy(noise_max=limit)
    world.start(strategy, rounds=3)
    first, second = strategy.summary.splitlines()[:2]
    assert first.startswith(f"stopped after 1 of 3 rounds: noise_max = {limit:g} is less than the noise")
    assert second.startswith("clients in a round: 3")
    assert [len(world.charged(number)) for number in range(3)] == [1, 1, 1]


# Waiting for clients ------------------------------------------------------------------------------------------------


def test_it_says_now_and_then_whom_it_waits_for(
    tmp_path: Path, lines: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = [1000.0]
    slow = SimpleNamespace(**vars(time))  # of this module only
    slow.monotonic = lambda: clock[0]
    slow.sleep = lambda seconds: clock.__setitem__(0, clock[0] + max(seconds, 0.1))
    monkeypatch.setattr(enrolment, "time", slow)
    world = make_world(tmp_path, 2)
    world.start(world.strategy(clients_wanted=3, patience_s=70.0))
    waits = [record.message for record in lines.records if "waiting for" in record.message]
    assert len(waits) == 3  # at 0, 30 and 60 seconds
    assert re.fullmatch(r"tpmdp: waiting for 1 more client \(3 wanted\), until \d\d:\d\d:\d\d", waits[0])
    lines.clear()
    world.start(world.strategy(clients_wanted=2, patience_s=70.0))
    assert "waiting for" not in lines.text


# Settings of the strategy -------------------------------------------------------------------------------------------


def test_the_wrapped_strategy_says_how_many_clients_are_needed(tmp_path: Path) -> None:
    world = make_world(tmp_path, 3)
    strategy = world.strategy(FedAvg(min_train_nodes=4, min_available_nodes=3), clients_least=None)
    with pytest.raises(InputError, match="clients = 3 are there that can take part, and 4 are needed"):
        world.start(strategy)


def test_settings_of_the_wrapped_strategy_that_do_not_count_are_named_once(
    tmp_path: Path, lines: pytest.LogCaptureFixture
) -> None:
    world = make_world(tmp_path, 3)
    strategy = world.strategy(FedAvg(min_train_nodes=4, fraction_train=0.5), clients_least=3)
    world.start(strategy)
    world.start(strategy)
    assert lines.text.count("min_train_nodes = 4 of the wrapped strategy does not count, clients_least = 3 does") == 1
    assert lines.text.count("fraction_train = 0.5 of the wrapped strategy does not count") == 1
    assert "min_available_nodes" not in lines.text


def test_too_much_tolerance_is_named_as_it_was_set(tmp_path: Path, lines: pytest.LogCaptureFixture) -> None:
    world = make_world(tmp_path, 6)
    rule = "tolerate = 5 must be at most 2 with 6 clients and threshold 2: lower one of them, or have more clients"
    with pytest.raises(InputError, match=rule):
        world.start(world.strategy(threshold=2, tolerate=5))
    assert lines.text.count("6 clients enrolled") == 1
    peers = read_peers(world.folder / "peers.toml")
    with pytest.raises(InputError, match=rule):  # with peers, at once
        PrivateStrategy(name="test", clip=1.0, threshold=2, tolerate=5, peers=peers)
    with pytest.raises(InputError, match="clients_least = 7 is more than the 6 in peers"):
        PrivateStrategy(name="test", clip=1.0, clients_least=7, peers=peers)


# Apps that fail -----------------------------------------------------------------------------------------------------


def failing_outside(world: World, fails: Callable[[int, Message], bool]) -> ClientApp:
    """The app of a world behind a mod that stands before tpmdp's, and raises."""

    def mod(message: Message, context: Context, call_next: ClientAppCallable) -> Message:
        if fails(int(context.node_config["partition-id"]), message):
            raise RuntimeError("Traceback of many lines\n" * 20 + "RuntimeError: the disk is full")
        return call_next(message, context)

    app = ClientApp(mods=[mod, private_mod(world.settings_of)])

    @app.train()
    def train(message: Message, context: Context) -> Message:
        return world._train(message, context)

    return app


def test_a_mod_that_fails_before_ours_in_a_later_round_is_told_from_a_missing_mod(
    tmp_path: Path, lines: pytest.LogCaptureFixture
) -> None:
    world = make_world(tmp_path, 3, rounds=5)

    def fails(number: int, message: Message) -> bool:
        config = message.content.config_records.get("config")
        return number == 2 and config is not None and config["server-round"] == 2

    world.grid = LocalGrid(failing_outside(world, fails), 3)
    strategy = world.strategy()
    grid: Any = world.grid
    strategy.start(grid, record_of_arrays({"w": np.zeros(3)}), 2, timeout=0.01)
    void = next(record.message for record in lines.records if "round 2 gave no answer" in record.message)
    assert "its app failed outside tpmdp's mod, perhaps in a mod before it" in void
    assert "the disk is full" in void
    assert "the session is charged to 3 clients at most" in void
    assert void.endswith("with tolerate=1 it would go on")
    assert "give its app the mod" not in lines.text
    assert "drop-outs: 1; sessions without an answer: 1" in strategy.summary
    assert [len(world.charged(number)) for number in range(3)] == [3, 3, 1]


@pytest.mark.parametrize("count", [2, 3])
def test_tolerance_is_advised_only_where_the_training_could_have_it(
    tmp_path: Path, count: int, lines: pytest.LogCaptureFixture
) -> None:
    """The server and three clients can do without one of them; the server and two cannot."""
    world = make_world(tmp_path, count, rounds=5)
    lost = iter([True])
    world.grid.lose_request = lambda number, message: (
        number == 1 and "train" in fields_of(message.content) and next(lost, False)
    )
    world.start(world.strategy())
    assert "round 1 gave no answer" in lines.text
    assert ("with tolerate=1 it would go on" in lines.text) == (count == 3)


def broken(number: int, message: Message, content: RecordDict) -> RecordDict:
    if number == 1:
        raise ValueError("a patient of ward 7")
    return content


def test_a_simulation_shows_that_an_app_failed_and_its_server_does_not_learn_it(
    tmp_path: Path, lines: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Clients of a simulation run in processes whose logs nobody sees; here, in this one."""
    world = make_world(tmp_path, 2)
    world.hook = broken
    strategy = world.strategy()

    def run_simulation(server: ServerApp, client: ClientApp, nodes: int, backend_config: Any) -> None:
        world.grid = LocalGrid(client, nodes)
        grid: Any = world.grid
        server(grid, _context(0, 0, nodes))

    server = ServerApp()

    @server.main()
    def main(grid: Grid, context: Context) -> None:
        world.start(strategy)

    monkeypatch.setattr(flwr.simulation, "run_simulation", run_simulation)
    monkeypatch.setattr(simulation, "secure_ray", lambda: None)
    run_private_simulation(server, world.grid._app, 2, folder=tmp_path)
    shown = [record for record in lines.records if record.threadName == FOLLOWER]
    assert [(record.levelname, record.message) for record in shown] == [
        (
            "WARNING",
            "tpmdp: client-1, round 1: the client app failed, and counts as no update in this round: "
            "ValueError('a patient of ward 7')",
        )
    ]
    assert lines.records[-1].message == "tpmdp: client apps that failed: 1 (seen in simulation only)"
    assert "apps that failed" not in strategy.summary
    assert os.listdir(tmp_path) == ["clients"]


def test_a_node_without_settings_sees_what_it_has_and_the_server_does_not(lines: pytest.LogCaptureFixture) -> None:
    app = ClientApp(mods=[private_mod()])
    app.train()(lambda message, _: Message(RecordDict(), reply_to=message))
    grid = LocalGrid(app, 1)
    reply = grid.deliver(0, Message(record_of({"enrol": True}), 100, "train"))
    problem = str(fields_of(reply.content)["problem"])
    assert problem.startswith("its node configuration has no tpmdp-party: start the SuperNode with --node-config")
    assert "partition" not in problem
    assert "node configuration = partition-id=0, num-partitions=1 has no tpmdp-party" in lines.text
    assert "in a simulation use private_mod(simulated_clients(...))" in lines.text


# Folders of simulations ---------------------------------------------------------------------------------------------


def test_a_folder_of_another_simulation_is_refused_at_once(tmp_path: Path) -> None:
    key, parties = Ed25519PrivateKey.generate(), [Party(f"client-{i}", 4.0, 1e-5, threshold=1) for i in range(2)]
    simulated_clients(tmp_path, parties, rounds=3, server=key)
    simulated_clients(tmp_path, parties, rounds=3, server=key)
    simulated_clients(tmp_path, parties[:1], rounds=3, server=key)
    with pytest.raises(FileError, match="holds settings for another server key: use the same as before, or another"):
        simulated_clients(tmp_path, parties, rounds=3, server=Ed25519PrivateKey.generate())
    with pytest.raises(FileError, match="none of client-2"):
        simulated_clients(tmp_path, [*parties, Party("client-2", 4.0, 1e-5, threshold=1)], rounds=3, server=key)
    with pytest.raises(FileError, match=r"client-0.toml has epsilon 4, delta 1e-05, threshold 1 and 3 rounds, and"):
        simulated_clients(tmp_path, parties, rounds=4, server=key)


def test_a_missing_key_says_where_it_was_looked_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for read in (read_key, read_peers):
        with pytest.raises(FileError, match=f"^server.key does not exist in {tmp_path}: "):
            read("server.key")
