"""The clients of a training: nodes say who they are and what they allow; new nodes may join, lost ones come back."""

from __future__ import annotations

import secrets
import time
from collections import Counter
from collections.abc import Iterable, Mapping
from logging import INFO, WARNING
from typing import Final

from flwr.app import RecordDict
from flwr.common import log

from tpmdp._util.numbers import plural
from tpmdp.errors import TpmdpError, shown
from tpmdp.flower.head_notes import NoteBoard
from tpmdp.flower.introduction import CLIENTS_MAX, NONCE_BYTES, question, read_introduction
from tpmdp.flower.nodes import ADD_MOD, Nodes
from tpmdp.flower.round_terms import SERVER
from tpmdp.flower.wire import RECORD, fields_of, record_of
from tpmdp.planning.losses import most_lost
from tpmdp.spec import Party

NO_BUDGET: Final = "has no budget left"
ALL_SPENT: Final = "all budgets spent"
_WAIT_S: Final = 0.2
_REMIND_S: Final = 30.0  # between two lines that say what is waited for


class Enrolment:
    """The clients of a training by node. With `peers`, only those are let in.

    A name belongs to the first key that enrols with it, for the whole training, and a key to its first name.
    """

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
        self._nonces: dict[int, bytes] = {}  # one per node in this training: an old question may be answered late
        self._keys: dict[str, bytes] = {}  # of all clients that have ever enrolled
        self._put_off: dict[int, Party] = {}  # newcomers that others refuse to train with, until there are more
        self._out: set[int] = set()  # nodes that have no budget left, refuse, or may not take part
        self._reported = -1  # how many were enrolled when that was last logged
        self.reason = ""  # why the last of them does not take part
        self.spent: set[str] = set()  # names of clients that have no budget left
        self._barred: set[int] = set()  # nodes that do not take part for another reason
        self.board = NoteBoard()

    def enrol(self, nodes: Nodes) -> None:
        """Ask every node for its name, key and budget, and wait for the answers."""
        online = self._wait(nodes)
        self._wanted = self._least  # nobody waits for clients that are lost later
        self.clients, self._put_off = {}, {}
        questions = self._questions(node for node in online if node not in self._out)
        replies, failed = nodes.exchange(questions, self._patience_s)
        for node in sorted(replies):
            self._add(node, replies[node])
        for why, count in Counter(failed.values()).items():
            first = next(node for node, reason in failed.items() if reason == why)
            others = f" and {count - 1} more" if count > 1 else ""
            self.reason = f"node {first}{others}: {why}"
            self._barred |= {node for node, reason in failed.items() if reason == why}
            log(WARNING, "tpmdp: without node %s%s: %s", first, others, why)
        if len(self.clients) != self._reported:
            log(INFO, "tpmdp: %s enrolled", plural(len(self.clients), "client"))
            self._reported = len(self.clients)

    def _wait(self, nodes: Nodes) -> list[int]:
        """Wait until enough nodes are online, and say so now and then: the nodes that are."""
        began = time.monotonic()
        until, remind = began + self._patience_s, began
        end = time.strftime("%H:%M:%S", time.localtime(time.time() + self._patience_s))
        while len(online := nodes.ids()) < self._wanted and (now := time.monotonic()) < until:
            if now >= remind:
                missing = plural(self._wanted - len(online), "more client", "more clients")
                log(INFO, "tpmdp: waiting for %s (%s wanted), until %s", missing, self._wanted, end)
                remind = now + _REMIND_S
            time.sleep(min(_WAIT_S, until - now))
        return online

    def invite(self, nodes: Nodes) -> None:
        """Ask nodes that are new, or were lost, for the same; nobody waits for their answers."""
        known = {*self.clients, *self._put_off, *self._out}
        nodes.post(self._questions(node for node in nodes.ids() if node not in known), self._patience_s)

    def welcome(self, nodes: Nodes) -> None:
        """Nodes that have answered an invitation take part from the next round that is planned."""
        for node, content in nodes.posted().items():
            if node not in self.clients and self._add(node, content):
                self.clients |= self._put_off  # together they are more
                self._put_off = {}

    def leave_out_demanding(self, threshold: int | None, tolerate: int) -> None:
        """Leave out clients that ask for more protection than is planned for.

        Without a `threshold`, the plan has the largest one that fits most clients.
        """
        most = threshold
        if most is None:
            asked = sorted(_threshold(client) for client in self.clients.values())
            fitting = [
                asks
                for count, asks in enumerate(asked, start=1)
                if self._least <= count and asks <= count and tolerate <= most_lost(count + 1, asks)
            ]
            most = max(fitting, default=CLIENTS_MAX)  # where nobody fits the planner says why
        for node, client in list(self.clients.items()):
            if _threshold(client) > most:
                reason = f"asks for a threshold of {client.threshold}, and at most {most} is planned for"
                self._refuse(node, client.name, reason)

    def shortage(self) -> str:
        """Why there are too few clients, if their budgets are the reason."""
        if not self.spent:
            return ""
        known, strangers = self._keys.keys() | self.spent, self._barred - self.clients.keys()
        if self.spent >= known and not strangers:
            return ALL_SPENT
        total = len(known) if known - self.spent else len(known) + len(strangers)
        return f"the budgets of {len(self.spent)} of {total} clients are spent, and too few others are left"

    def lose(self, node: int) -> None:
        """Go on without a node that did not answer; it may come back."""
        self.clients.pop(node, None)

    def put_off(self, node: int, reason: str) -> None:
        """Go on without a newcomer for now: it is offered the terms again together with the next one."""
        client = self.clients.pop(node)
        self._put_off[node] = client
        self.reason = f"{client.name}: {shown(reason, 300)}"
        log(WARNING, "tpmdp: goes on without %s for now: %s", client.name, shown(reason, 300))

    def leave_out(self, node: int, reason: str, name: str = "") -> None:
        """Go on without a node, and do not ask it again."""
        self._out.add(node)
        client = self.clients.pop(node, None)
        if reason == NO_BUDGET:
            self.spent.add(client.name if client else name)
        else:
            self._barred.add(node)
        self.reason = f"{client.name if client else name or f'node {node}'}: {shown(reason, 300)}"

    def _add(self, node: int, content: RecordDict) -> bool:
        """Let a node in if its answer is in order; whether it is."""
        nonce = self._nonces.get(node, b"")
        if RECORD not in content.config_records:
            self._refuse(node, f"node {node}", f"answers without tpmdp's mod: {ADD_MOD}")
            return False
        try:
            fields = fields_of(content)
            client, ready = read_introduction(fields, self._server_key, nonce, node=node)
        except TpmdpError as error:
            self._refuse(node, f"node {node}", str(error))
            return False
        name, key = client.name, client.public_key or b""
        if not ready:
            self._refuse(node, name, NO_BUDGET)
        elif self._peers is not None and self._peers.get(name) != key:
            self._refuse(node, name, "is not in the server's peers with this public key")
        elif name == SERVER or self._keys.get(name, key) != key:
            self._refuse(node, name, "has the name of another one")
        elif key == self._server_key or any(own == key and other != name for other, own in self._keys.items()):
            self._refuse(node, name, "has the key of another one")
        elif any(other.public_key == key for other in (self.clients | self._put_off).values()):
            # Its node may have been started anew, and the old one is not known to be lost yet: it is asked again.
            log(WARNING, "tpmdp: %s is at another node already", name)
        else:
            self.clients[node] = client
            self._keys[name] = key
            self.board.take(key, fields)
            return True
        return False

    def _questions(self, nodes: Iterable[int]) -> dict[int, RecordDict]:
        asked = {node: self._nonces.setdefault(node, secrets.token_bytes(NONCE_BYTES)) for node in nodes}
        return {node: record_of(question(self._server_key, nonce)) for node, nonce in asked.items()}

    def _refuse(self, node: int, name: str, reason: str) -> None:
        self.leave_out(node, reason, name)
        log(WARNING, "tpmdp: %s does not take part: %s", name, shown(reason, 300))


def _threshold(client: Party) -> int:
    return client.threshold or 1
