"""Who takes part in a training: nodes say who they are and what they allow; new ones may join, lost ones come back."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping
from logging import INFO, WARNING
from typing import Any, Final

from flwr.app import Message, RecordDict
from flwr.common import log
from flwr.serverapp import Grid

from tpmdp._util import fields as read
from tpmdp._util.budget_rules import DELTA_MIN, EPSILON_MIN
from tpmdp.errors import TpmdpError, shown
from tpmdp.flower.hub import exchange
from tpmdp.flower.rounds import SERVER, Client
from tpmdp.flower.wire import bytes_of, fields_of, record_of, text_of
from tpmdp.protocol.messages import MessageError
from tpmdp.protocol.terms import PUBLIC_KEY_BYTES
from tpmdp.study.identity import check_name

_WAIT_S: Final = 0.2
_COLLUDERS_MAX: Final = 100_000
_EPSILONS: Final = (2 * EPSILON_MIN, 1e6)
_DELTA_LEAST: Final = 2 * DELTA_MIN


class Enrolment:
    """The clients of a training by node. With `peers`, only those are let in."""

    def __init__(
        self, server_key: bytes, peers: Mapping[str, bytes] | None, least: int, wanted: int, patience_s: float
    ) -> None:
        self._server_key, self._peers, self._patience_s = server_key, peers, patience_s
        self._least, self._wanted = least, max(least, wanted)
        self.clients: dict[int, Client] = {}
        self._out: set[int] = set()  # nodes that have no budget left, do not want to, or may not
        self._invited: dict[str, int] = {}  # nodes by the message that asks them who they are
        self.reason = ""  # why the last one does not take part

    def enrol(self, grid: Grid) -> None:
        """Ask every node who it is, and for its budget."""
        until = time.monotonic() + self._patience_s
        while len(nodes := list(grid.get_node_ids())) < self._wanted and time.monotonic() < until:
            time.sleep(_WAIT_S)
        asked = {node: record_of({"enrol": True}) for node in nodes if node not in self._out}
        self._wanted = self._least  # who is lost later is not waited for
        self.clients = {}
        found, _ = exchange(grid, asked, "train", self._patience_s)
        for node in sorted(found):
            self._add(node, found[node])
        log(INFO, "tpmdp: %s clients enrolled", len(self.clients))

    def invite(self, grid: Grid) -> None:
        """Ask nodes that are new, or were lost, who they are; nobody waits for their answer."""
        known = {*self.clients, *self._out, *self._invited.values()}
        nodes = [node for node in grid.get_node_ids() if node not in known]
        messages = [Message(record_of({"enrol": True}), dst_node_id=node, message_type="train") for node in nodes]
        if messages:
            self._invited.update(zip(grid.push_messages(messages), nodes, strict=False))

    def welcome(self, grid: Grid) -> None:
        """Those that have answered an invitation take part from the next round that is planned."""
        for reply in grid.pull_messages(list(self._invited)) if self._invited else ():
            node = self._invited.pop(reply.metadata.reply_to_message_id, None)
            if node is not None and not reply.has_error() and node not in self.clients:
                self._add(node, reply.content)

    def leave_out_demanding(self, threshold: int | None, tolerate: int) -> None:
        """Those that ask for more protection than is planned for, or than can be if most clients are to be in it."""
        most = threshold
        if most is None:
            asked = sorted(client.threshold for client in self.clients.values())
            fitting = [
                one for count, one in enumerate(asked, start=1) if self._least <= count and one + tolerate <= count
            ]
            most = max(fitting, default=_COLLUDERS_MAX)  # where nobody fits the planner says why
        for node, client in list(self.clients.items()):
            if client.threshold > most:
                reason = f"asks for a threshold of {client.threshold}, and at most {most} is planned for"
                self._refuse(node, client.name, reason)

    def lose(self, node: int) -> None:
        """A node that did not answer; it may come back."""
        self.clients.pop(node, None)

    def leave_out(self, node: int, reason: str, name: str = "") -> None:
        """A node that is not asked again."""
        self._out.add(node)
        client = self.clients.pop(node, None)
        self.reason = f"{client.name if client else name or f'node {node}'}: {shown(reason, 300)}"

    def _add(self, node: int, content: RecordDict) -> None:
        try:
            client, ready = read_client(fields_of(content))
        except TpmdpError as error:
            self._refuse(node, f"node {node}", str(error))
            return
        if not ready:
            self._refuse(node, client.name, "has no budget left")
        elif self._peers is not None and self._peers.get(client.name) != client.key:
            self._refuse(node, client.name, "is not in the server's peers with this public key")
        elif client.name == SERVER or any(client.name == one.name for one in self.clients.values()):
            self._refuse(node, client.name, "has the name of another one")
        elif client.key == self._server_key or any(client.key == one.key for one in self.clients.values()):
            self._refuse(node, client.name, "has the key of another one")
        else:
            self.clients[node] = client

    def _refuse(self, node: int, name: str, reason: str) -> None:
        self.leave_out(node, reason, name)
        log(WARNING, "tpmdp: %s does not take part: %s", name, shown(reason, 300))


def read_client(fields: dict[str, Any]) -> tuple[Client, bool]:
    """What a node says of itself, checked, and whether it has budget left.

    >>> said = {"name": "lab", "key": bytes(32), "epsilon": 1.0, "delta": 1e-5, "threshold": 2, "ready": True}
    >>> read_client(said)[0].name
    'lab'
    """
    problem = text_of(fields, "problem")
    if problem:
        raise MessageError(problem)
    name, key = check_name("name", text_of(fields, "name")), bytes_of(fields, "key")
    if len(key) != PUBLIC_KEY_BYTES:
        raise MessageError("a public key must have 32 bytes")
    epsilon, delta = fields.get("epsilon"), fields.get("delta")
    if not isinstance(epsilon, float) or not isinstance(delta, float):
        raise MessageError("a budget must be two numbers")
    if not (_EPSILONS[0] <= epsilon <= _EPSILONS[1] or epsilon == math.inf) or not _DELTA_LEAST <= delta < 1:
        raise MessageError("a budget for a round is out of the range that plans can have")
    threshold = read.whole("threshold", fields.get("threshold"), 1, _COLLUDERS_MAX)
    return Client(name, key, epsilon, delta, threshold), fields.get("ready") is True
