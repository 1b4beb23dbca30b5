"""The clients of a training: nodes say who they are and what they allow; new nodes may join, lost ones come back."""

from __future__ import annotations

import math
import time
from collections.abc import Iterable, Mapping
from logging import INFO, WARNING
from typing import Any, Final

from flwr.app import RecordDict
from flwr.common import log

from tpmdp._util import fields as read
from tpmdp._util.budget_rules import DELTA_MIN, EPSILON_MIN
from tpmdp.errors import TpmdpError, shown
from tpmdp.flower.nodes import Nodes
from tpmdp.flower.round_terms import SERVER
from tpmdp.flower.wire import bytes_of, fields_of, record_of, text_of
from tpmdp.protocol.messages import MessageError
from tpmdp.protocol.terms import PUBLIC_KEY_BYTES
from tpmdp.spec import Party
from tpmdp.study.identity import check_name

CLIENTS_MAX: Final = 100_000
_WAIT_S: Final = 0.2
_EPSILONS: Final = (2 * EPSILON_MIN, 1e6)
_DELTA_LEAST: Final = 2 * DELTA_MIN


class Enrolment:
    """The clients of a training by node. With `peers`, only those are let in."""

    def __init__(
        self,
        server_key: bytes,
        peers: Mapping[str, bytes] | None,
        clients_least: int,
        clients_wanted: int,
        patience_s: float,
    ) -> None:
        self._server_key, self._peers, self._patience_s = server_key, peers, patience_s
        self._least, self._wanted = clients_least, max(clients_least, clients_wanted)
        self.clients: dict[int, Party] = {}
        self._out: set[int] = set()  # nodes that have no budget left, refuse, or may not take part
        self.reason = ""  # why the last of them does not take part

    def enrol(self, nodes: Nodes) -> None:
        """Ask every node for its name, key and budget, and wait for the answers."""
        until = time.monotonic() + self._patience_s
        while len(online := nodes.ids()) < self._wanted and time.monotonic() < until:
            time.sleep(_WAIT_S)
        self._wanted = self._least  # nobody waits for clients that are lost later
        self.clients = {}
        replies, _ = nodes.exchange(_questions(node for node in online if node not in self._out), self._patience_s)
        for node in sorted(replies):
            self._add(node, replies[node])
        log(INFO, "tpmdp: %s clients enrolled", len(self.clients))

    def invite(self, nodes: Nodes) -> None:
        """Ask nodes that are new, or were lost, for the same; nobody waits for their answers."""
        nodes.post(_questions(node for node in nodes.ids() if node not in self.clients and node not in self._out))

    def welcome(self, nodes: Nodes) -> None:
        """Nodes that have answered an invitation take part from the next round that is planned."""
        for node, content in nodes.posted().items():
            if node not in self.clients:
                self._add(node, content)

    def leave_out_demanding(self, threshold: int | None, tolerate: int) -> None:
        """Leave out clients that ask for more protection than is planned for.

        Without a `threshold`, the plan has the largest one that fits most clients.
        """
        most = threshold
        if most is None:
            asked = sorted(_threshold(client) for client in self.clients.values())
            fitting = [
                asks for count, asks in enumerate(asked, start=1) if self._least <= count and asks + tolerate <= count
            ]
            most = max(fitting, default=CLIENTS_MAX)  # where nobody fits the planner says why
        for node, client in list(self.clients.items()):
            if _threshold(client) > most:
                reason = f"asks for a threshold of {client.threshold}, and at most {most} is planned for"
                self._refuse(node, client.name, reason)

    def lose(self, node: int) -> None:
        """Go on without a node that did not answer; it may come back."""
        self.clients.pop(node, None)

    def leave_out(self, node: int, reason: str, name: str = "") -> None:
        """Go on without a node, and do not ask it again."""
        self._out.add(node)
        client = self.clients.pop(node, None)
        self.reason = f"{client.name if client else name or f'node {node}'}: {shown(reason, 300)}"

    def _add(self, node: int, content: RecordDict) -> None:
        try:
            client, ready = read_client(fields_of(content))
        except TpmdpError as error:
            self._refuse(node, f"node {node}", str(error))
            return
        others = self.clients.values()
        if not ready:
            self._refuse(node, client.name, "has no budget left")
        elif self._peers is not None and self._peers.get(client.name) != client.public_key:
            self._refuse(node, client.name, "is not in the server's peers with this public key")
        elif client.name in {SERVER, *(other.name for other in others)}:
            self._refuse(node, client.name, "has the name of another one")
        elif client.public_key in {self._server_key, *(other.public_key for other in others)}:
            self._refuse(node, client.name, "has the key of another one")
        else:
            self.clients[node] = client

    def _refuse(self, node: int, name: str, reason: str) -> None:
        self.leave_out(node, reason, name)
        log(WARNING, "tpmdp: %s does not take part: %s", name, shown(reason, 300))


def _questions(nodes: Iterable[int]) -> dict[int, RecordDict]:
    return {node: record_of({"enrol": True}) for node in nodes}


def _threshold(client: Party) -> int:
    return client.threshold or 1


def read_client(fields: dict[str, Any]) -> tuple[Party, bool]:
    """Check what a node says of itself: the client with its budget for a round, and whether it has budget left.

    >>> fields = {"name": "lab", "key": bytes(32), "epsilon": 1.0, "delta": 1e-5, "threshold": 2, "ready": True}
    >>> read_client(fields)[0].name
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
    threshold = read.whole("threshold", fields.get("threshold"), 1, high=CLIENTS_MAX)
    return Party(name, epsilon, delta, public_key=key, threshold=threshold), fields.get("ready") is True
