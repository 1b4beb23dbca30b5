"""The server's side of a session over Flower: hands messages to nodes, and their answers on, until all have theirs."""

from __future__ import annotations

import time
from collections.abc import Mapping
from logging import INFO
from typing import Final

from flwr.app import Message, RecordDict
from flwr.common import log
from flwr.serverapp import Grid

from tpmdp.engines.contract import stuck
from tpmdp.errors import DeadlineError, TpmdpError, shown
from tpmdp.flower.switch import Switch
from tpmdp.flower.wire import Value, bytes_of, fields_of, pack, record_of, text_of, unpack
from tpmdp.protocol.messages import MessageError, decode
from tpmdp.protocol.party import PartySession
from tpmdp.protocol.terms import Terms

_PAUSE_S: Final = (0.02, 0.5)  # between looks: shortest, longest
_PAUSE_SHARE: Final = 0.02  # of the time waited so far
_GRACE_S: Final = 30.0


class NodeError(TpmdpError):
    """A node refuses what it was asked; says why."""


def exchange(
    grid: Grid, contents: Mapping[int, RecordDict], kind: str, timeout_s: float
) -> tuple[dict[int, RecordDict], dict[int, str]]:
    """Send each node its content and wait: the answers, and why nodes failed; those that are late are in neither.

    What `Grid.send_and_receive` does, but it looks more often, and says why nodes failed.
    """
    if not contents:
        return {}, {}
    began = time.monotonic()
    ttl = max(1.0, timeout_s) + _GRACE_S  # nobody should work for a message that is given up
    messages = [Message(content, dst_node_id=node, message_type=kind, ttl=ttl) for node, content in contents.items()]
    names = list(grid.push_messages(messages))
    if len(names) != len(messages):
        return {}, dict.fromkeys(contents, "could not be sent: look for a limit on the size of messages")
    waiting = dict(zip(names, contents, strict=True))
    found, failed = {}, {}
    while True:
        for reply in grid.pull_messages(list(waiting)):
            node = waiting.pop(reply.metadata.reply_to_message_id, None)  # an error may come from the SuperLink
            if node is not None and reply.has_error():
                failed[node] = shown(reply.error.reason or "failed without a reason", 200)
            elif node is not None:
                found[node] = reply.content
        passed = time.monotonic() - began
        if not waiting or passed >= timeout_s:
            return found, failed
        time.sleep(min(max(_PAUSE_S[0], _PAUSE_SHARE * passed), _PAUSE_S[1]))


class Session:
    """One session among nodes of a grid, and parties in this process. The lead receiver may be either."""

    def __init__(
        self,
        grid: Grid,
        nodes: list[int],
        terms: Terms,
        here: Mapping[int, PartySession],
        place: str,
        patience_s: float,
        deadline: float,
    ) -> None:
        self._grid, self._nodes, self._terms, self._here, self._place = grid, nodes, terms, here, place
        self._patience_s, self._deadline = patience_s, deadline
        self._switch = Switch(terms, here)
        self._party_at: dict[int, int] = {}  # by node
        self._node_of: dict[int, int] = {}  # by party; those that answer
        self._lead_done = False
        self._problem = ""

    @property
    def bytes_sent(self) -> list[int]:
        """What each party has sent."""
        return self._switch.bytes_sent

    def run(self) -> None:
        """Until all that are left have an answer or a receipt; raises where that cannot be."""
        self._switch.start()
        self._ask({node: {} for node in self._nodes})
        while not (self._is_done and not self._ready()):
            if time.monotonic() > self._deadline:
                raise DeadlineError("the deadline passed before all nodes had finished: allow more time")
            ready = self._ready()
            if ready:
                self._ask({node: {"inbox": pack(self._switch.take(party))} for node, party in ready.items()})
            else:
                self._go_on()

    @property
    def _is_done(self) -> bool:
        lead = self._here.get(self._terms.lead)
        return self._lead_done if lead is None else lead.done

    def _ready(self) -> dict[int, int]:
        """The nodes that are there and have messages waiting, with their parties."""
        return {self._node_of[party]: party for party in self._switch.waiting() if party in self._node_of}

    def _go_on(self) -> None:
        """Nothing moves: without those that are silent, if the lead receiver may."""
        lead = self._here.get(self._terms.lead)
        if lead is not None:
            again = lead.drop_missing()
            self._switch.post(again)
            self._problem = "" if again else stuck(lead)
        elif self._terms.lead in self._node_of:
            self._ask({self._node_of[self._terms.lead]: {"late": True}})
        else:
            self._problem = (
                f"{self._terms.spec.name(self._terms.lead)}, the lead receiver, is lost: start a new session"
            )
        if not self._ready():
            raise DeadlineError(self._problem or "nothing moves any more: start a new session")

    def _ask(self, fields: Mapping[int, dict[str, Value]]) -> None:
        contents = {node: record_of({"place": self._place, **asked}) for node, asked in fields.items()}
        wait_s = min(self._patience_s, self._deadline - time.monotonic())
        replies, failed = exchange(self._grid, contents, "query", wait_s)
        for node in fields:
            if node not in replies:
                self._lose(node, failed.get(node, "does not answer in time"))
                continue
            try:
                self._take(node, fields_of(replies[node]))
            except MessageError as error:
                self._lose(node, f"answers nonsense ({error})")

    def _take(self, node: int, fields: dict[str, Value]) -> None:
        problem = text_of(fields, "problem")
        if problem:
            raise NodeError(f"node {node}: {shown(problem)}")
        messages = unpack(bytes_of(fields, "outbox"))
        if node not in self._party_at and messages:
            party = decode(messages[0]).sender
            self._party_at[node] = party
            self._node_of.setdefault(party, node)
        self._switch.post(messages, self._party_at.get(node))
        if self._party_at.get(node) == self._terms.lead:
            self._lead_done = fields.get("done") is True
            self._problem = text_of(fields, "stuck")

    def _lose(self, node: int, why: str) -> None:
        log(INFO, "tpmdp: node %s: %s", node, why)
        self._node_of.pop(self._party_at.get(node, -1), None)
