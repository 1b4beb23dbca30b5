"""Nodes that are slow: one message per node at a time, and no session undoes what a node remembers of another."""

from __future__ import annotations

from collections.abc import Iterable
from copy import deepcopy
from pathlib import Path
from typing import Any
from uuid import uuid4

import numpy as np
import pytest
from flwr.app import Context, Message, RecordDict
from flwr.clientapp import ClientApp

from tests.flower.local_grid import LocalGrid
from tests.protocol.sessions import World
from tpmdp.flower.engine import FlowerEngine
from tpmdp.flower.engine_simulation import _client_app, _run_session
from tpmdp.flower.nodes import LATE, Nodes
from tpmdp.flower.wire import fields_of, record_of


class SlowGrid:
    """Treats state as Flower's simulation does: a message gets a copy of it, and all of it is written back at the end.

    A message starts when it is pushed and ends when it is pulled, the newest first, unless its node is `slow`; after
    `slow_pulls` no node is.
    """

    def __init__(self, app: ClientApp, count: int) -> None:
        self._app = app
        self._contexts = LocalGrid(app, count).contexts
        self.ids = list(self._contexts)
        self.slow: set[int] = set()
        self.slow_pulls = 1_000_000
        self.under_way: dict[str, tuple[Message, Message, Context]] = {}  # request, reply, state after it
        self.pushed: list[int] = []

    def get_node_ids(self) -> list[int]:
        return self.ids

    def push_messages(self, messages: Iterable[Message]) -> list[str]:
        names = []
        for message in messages:
            node, name = message.metadata.dst_node_id, str(uuid4())
            message.metadata.__dict__["_message_id"] = name
            state = deepcopy(self._contexts[node])
            self.under_way[name] = message, self._app(deepcopy(message), state), state
            self.pushed.append(node)
            names.append(name)
        return names

    def pull_messages(self, message_ids: Iterable[str]) -> list[Message]:
        replies = []
        self.slow_pulls -= 1
        if self.slow_pulls < 0:
            self.slow = set()
        for name in reversed(list(message_ids)):
            request, reply, state = self.under_way[name]
            if request.metadata.dst_node_id not in self.slow:
                self._contexts[request.metadata.dst_node_id] = state
                replies.append(reply)
                del self.under_way[name]
        return replies


def echo_app() -> ClientApp:
    app = ClientApp()

    @app.query()
    def answer(message: Message, context: Context) -> Message:
        return Message(message.content, reply_to=message)

    return app


def numbered(number: int) -> RecordDict:
    return record_of({"number": number})


def test_a_node_that_has_not_answered_is_not_asked_again() -> None:
    grid: Any = SlowGrid(echo_app(), 2)
    nodes, (first, second) = Nodes(grid, "query"), grid.ids
    grid.slow = {first}
    replies, failed = nodes.exchange({node: numbered(1) for node in grid.ids}, 0.01)
    assert (set(replies), failed) == ({second}, {first: LATE})
    replies, failed = nodes.exchange({node: numbered(2) for node in grid.ids}, 0.01)
    assert (set(replies), failed) == ({second}, {first: LATE})
    nodes.post({first: numbered(3)}, 60.0)
    assert nodes.busy == {first}
    assert grid.pushed.count(first) == 1
    grid.slow = set()
    replies, failed = nodes.exchange({first: numbered(4)}, 60.0)
    assert fields_of(replies[first])["number"] == 4  # and the late reply to the first message is dropped
    assert not failed
    assert nodes.posted() == {}
    assert grid.pushed.count(first) == 2


def test_an_exchange_waits_for_a_node_that_is_busy_with_an_earlier_message() -> None:
    grid: Any = SlowGrid(echo_app(), 1)
    nodes, (node,) = Nodes(grid, "query"), grid.ids
    nodes.post({node: numbered(1)}, 60.0)
    replies, _ = nodes.exchange({node: numbered(2)}, 60.0)
    assert fields_of(replies[node])["number"] == 2
    assert fields_of(nodes.posted()[node])["number"] == 1


@pytest.mark.parametrize("slow", [0, 1, 2])
def test_a_node_that_is_late_in_a_session_is_in_order_in_the_next(tmp_path: Path, slow: int) -> None:
    """Two messages of a node at a time would lose its key, and it would send two different ones."""
    grid: Any = SlowGrid(_client_app(tmp_path), 3)
    nodes = Nodes(grid, "query", expire=False)
    node_of = dict(enumerate(grid.ids))
    for number in range(4):
        world, name, hangs = World(3, 1, [2], label=f"session {number}"), f"{number:016x}", number % 2 == 0
        vectors = world.vectors
        FlowerEngine()._write_session(tmp_path / name, world.terms, world.identities, vectors=vectors, plain=None)
        grid.slow, grid.slow_pulls = {grid.ids[slow]}, 1_000_000 if hangs else 3
        task = {"name": name, "server": None, "deadline_s": 0.2 if hangs else 600.0}
        report = _run_session(tmp_path, nodes, node_of, task=task)
        assert report.get("kind") == ("DeadlineError" if hangs else None), report
        if not hangs:
            assert np.fromfile(tmp_path / name / "2.sum", dtype="<i8").tolist() == world.total
