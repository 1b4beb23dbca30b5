"""A grid without a network: node messages are answered at once, in this process, by a real client app.

A stand-in for Flower's transport only, so that tests can lose any message at any step quickly; the same apps run on the
real simulation and deployment elsewhere in this folder.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any
from uuid import uuid4

from flwr.app import ConfigRecord, Context, Error, Message, RecordDict
from flwr.clientapp import ClientApp
from flwr.common.serde import message_from_proto, message_to_proto
from flwr.supercore.task_identity import TaskIdentity

Lose = Callable[[int, Message], bool]


class LocalGrid:
    """`lose_request` and `lose_reply` say for a node's number and a message whether it gets lost.

    `log` has what the server sees, `made` also the replies that got lost on the way.
    """

    def __init__(
        self, app: ClientApp, nodes: int, lose_request: Lose | None = None, lose_reply: Lose | None = None
    ) -> None:
        self._app = app
        TaskIdentity.run_id, TaskIdentity.node_id, TaskIdentity.task_id = 1, 1, 1  # as Flower does in a server app
        self.contexts = {100 + i: _context(100 + i, i, nodes) for i in range(nodes)}
        self.lose_request: Lose = lose_request or (lambda *_: False)
        self.lose_reply: Lose = lose_reply or (lambda *_: False)
        self.log: list[tuple[int, Message, Message | None]] = []  # number of the node, request, reply
        self.made: list[tuple[int, Message, Message]] = []
        self._answers: dict[str, Message] = {}
        self.down: set[int] = set()  # numbers of nodes that are not there

    def get_node_ids(self) -> Iterable[int]:
        return [node for node in self.contexts if node - 100 not in self.down]

    def push_messages(self, messages: Iterable[Message]) -> Iterable[str]:
        ids = []
        for message in messages:
            name = str(uuid4())
            message.metadata.__dict__["_message_id"] = name
            self._answers[name] = self._answer(message) or Message(Error(5, "node unavailable"), reply_to=message)
            ids.append(name)
        return ids

    def pull_messages(self, message_ids: Iterable[str]) -> Iterable[Message]:
        return [self._answers.pop(name) for name in list(message_ids) if name in self._answers]

    def _answer(self, message: Message) -> Message | None:
        node = message.metadata.dst_node_id
        number = node - 100
        reply: Message | None = None
        if number not in self.down and not self.lose_request(number, message):
            made = self.deliver(number, message)
            reply = None if self.lose_reply(number, made) else made
        self.log.append((number, message, reply))
        return reply

    def deliver(self, number: int, message: Message) -> Message:
        """What a node answers; nothing is shared with it but bytes, as on a network."""
        request = _copy(message)
        try:
            reply = _copy(self._app(request, self.contexts[100 + number]))
        except Exception as error:  # as Flower does, which also tells the text
            reply = Message(Error(2, f"{type(error).__name__}: {error}"), reply_to=message)
        self.made.append((number, message, reply))
        return reply


def _copy(message: Message) -> Message:
    return message_from_proto(message_to_proto(message))


def _context(node: int, partition: int, nodes: int) -> Context:
    config: Any = {"partition-id": partition, "num-partitions": nodes}
    return Context(run_id=1, node_id=node, node_config=config, state=RecordDict(), run_config={})


def fields(message: Message) -> ConfigRecord:
    """Our record in a message."""
    return message.content.config_records["tpmdp"]
