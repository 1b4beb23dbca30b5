"""What a training says when it ends, and when an app lacks the mod."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from flwr.app import ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp

from tests.flower.local_grid import LocalGrid
from tests.flower.world import make_world, record_of_arrays
from tpmdp.errors import InputError


@pytest.fixture
def lines(caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch) -> pytest.LogCaptureFixture:
    """Flower's log."""
    monkeypatch.setattr(logging.getLogger("flwr"), "propagate", True)
    caplog.set_level(logging.INFO, "flwr")
    return caplog


def test_it_says_that_all_budgets_are_spent(tmp_path: Path, lines: pytest.LogCaptureFixture) -> None:
    world = make_world(tmp_path, 3, rounds=5)
    strategy = world.strategy()
    world.start(strategy, rounds=7)
    first, remedy, clients, noise, charged, unseen, spent, promise = strategy.summary.splitlines()
    assert first == "stopped after 5 of 7 rounds: all budgets spent"
    assert "spread their budgets over more from the beginning (rounds in their settings)" in remedy
    assert charged.startswith("epsilon charged at most: client-0 1, client-1 1, client-2 1; ")
    assert "cannot see whether a client's app failed" in unseen
    assert clients == "clients in a round: 3; drop-outs: 0; sessions without an answer: 0"
    assert noise.startswith("noise in each entry of the average: ")
    assert spent == "no budget left: client-0, client-1, client-2"
    assert promise == strategy.guarantee
    assert [record.levelname for record in lines.records if "stopped after 5 of 7" in record.message] == ["WARNING"]
    assert "tpmdp: no budget left: client-0" in lines.text
    assert "tpmdp: client-0 will have no budget after this round" in lines.text


def test_a_second_training_says_that_all_budgets_are_spent(tmp_path: Path, lines: pytest.LogCaptureFixture) -> None:
    world = make_world(tmp_path, 3, rounds=2)
    world.start(world.strategy(), rounds=3)
    text = [record.message for record in lines.records]
    assert text.index("tpmdp: client-1 will have no budget after this round") < text.index(
        "tpmdp: round 2/3: 3 clients"
    )
    with pytest.raises(InputError) as error:
        world.start(world.strategy())
    assert str(error.value) == (
        "clients = 0 are there that can take part, and 1 are needed (all budgets are spent): "
        "plan more rounds for a new training, or in a simulation use a new folder"
    )


def test_other_reasons_than_spent_budgets_are_still_named(tmp_path: Path) -> None:
    world = make_world(tmp_path, 3, rounds=1)
    world.start(world.strategy())
    (world.folder / "client-2.toml").write_text("")
    grid: Any = world.grid
    with pytest.raises(InputError, match=r"\(last: .*\); 2 without budget: start more nodes, or set clients_least$"):
        world.strategy().start(grid, record_of_arrays({"w": np.zeros(3)}), 1)


def test_it_says_that_too_few_have_budget_left(tmp_path: Path) -> None:
    world = make_world(tmp_path, 3, rounds=4)
    for number in (0, 1):
        settings = world.folder / f"client-{number}.toml"
        settings.write_text(settings.read_text().replace("rounds = 4", "rounds = 1"))
    strategy = world.strategy(clients_least=2)
    world.start(strategy, rounds=4)
    first = strategy.summary.splitlines()[0]
    assert first.startswith("stopped after 1 of 4 rounds: the budgets of 2 of 3 clients are spent")


def test_a_whole_training_ends_with_a_summary(tmp_path: Path, lines: pytest.LogCaptureFixture) -> None:
    world = make_world(tmp_path, 2, rounds=4)
    strategy = world.strategy()
    world.start(strategy, rounds=2)
    assert strategy.summary.startswith("2 rounds done\nclients in a round: 2;")
    assert "tpmdp: 2 rounds done" in lines.text
    assert "stopped" not in lines.text


def test_a_training_of_planned_length_does_not_alarm(tmp_path: Path, lines: pytest.LogCaptureFixture) -> None:
    world = make_world(tmp_path, 1, rounds=1)
    strategy = world.strategy(threshold=1)
    world.start(strategy, rounds=1)
    assert strategy.summary.startswith("1 round done\n")
    assert "will have no budget after" not in lines.text
    assert "tpmdp: 1 client enrolled" in lines.text
    assert "tpmdp: round 1/1: 1 client" in [record.message for record in lines.records]


def test_charges_are_those_of_the_ledgers(tmp_path: Path) -> None:
    world = make_world(tmp_path, 3, budget=[(1.0, 1e-5), (2.0, 1e-6), (4.0, 1e-5)], rounds=4)
    strategy = world.strategy()
    world.start(strategy, rounds=2)
    for number in range(3):
        with world.settings(number).open_ledger() as ledger:
            assert strategy.charges[f"client-{number}"] == pytest.approx(ledger.spent().epsilon, rel=1e-6)


def plain_app(answers: bool) -> ClientApp:
    app = ClientApp()

    @app.train()
    def train(message: Message, context: Context) -> Message:
        weights = np.zeros(3) if answers else message.content.array_records["arrays"].to_numpy_ndarrays()[0]
        content = RecordDict({"arrays": ArrayRecord([weights]), "metrics": MetricRecord({"num-examples": 1})})
        return Message(content, reply_to=message)

    return app


@pytest.mark.parametrize("answers", [False, True])
def test_a_missing_mod_is_named(tmp_path: Path, answers: bool, lines: pytest.LogCaptureFixture) -> None:
    """An ordinary app fails at a message without a model, or answers as if there were one."""
    world = make_world(tmp_path, 3)
    grid: Any = LocalGrid(plain_app(answers), 3)
    with pytest.raises(InputError, match=r"ClientApp\(mods=\[private_mod\(\)\]\)$"):
        world.strategy().start(grid, record_of_arrays({"w": np.zeros(3)}), 1)
    assert "give its app the mod, first in the list: ClientApp(mods=[private_mod()])" in lines.text
