"""The server's side of a session over Flower: hands messages to nodes and carries their replies on until it is over.

The engine and the training share it; a subclass says what else travels with the protocol messages.
"""

from __future__ import annotations

import math
import time
from abc import ABC, abstractmethod
from collections.abc import Mapping
from logging import WARNING

from flwr.app import RecordDict
from flwr.common import log

from tpmdp.engines.contract import Outcome, guarantee_text
from tpmdp.errors import DeadlineError, shown
from tpmdp.flower.carrier import Carrier
from tpmdp.flower.nodes import Nodes
from tpmdp.flower.wire import Value, bytes_of, fields_of, unpack
from tpmdp.protocol.messages import MessageError
from tpmdp.protocol.party import PartySession, ProtocolError
from tpmdp.protocol.terms import Terms


class SessionDriver(ABC):
    """One session between nodes of a grid and parties in this process.

    `party_at` maps nodes to parties. The lead receiver may be in this process or at a node.
    """

    def __init__(
        self, nodes: Nodes, terms: Terms, party_at: Mapping[int, int], local: Mapping[int, PartySession]
    ) -> None:
        self.terms, self.party_at = terms, dict(party_at)
        self.carrier = Carrier(terms, local)
        self.gone: dict[int, str] = {}  # nodes that are lost or refuse, and why
        self.deadline = math.inf  # in time.monotonic
        self._nodes, self._local_lead = nodes, local.get(terms.lead)
        self.carrier.start()

    # What a subclass says --------------------------------------------------------------------------------------------

    @abstractmethod
    def requests(self, messages: Mapping[int, list[bytes]]) -> tuple[dict[int, RecordDict], float]:
        """The contents that carry these protocol messages to their nodes, and the seconds to wait for replies."""

    @abstractmethod
    def accept(self, node: int, fields: dict[str, Value]) -> None:
        """Handle what a reply carries besides protocol messages, which have been taken in."""

    @abstractmethod
    def failure(self) -> str:
        """Why the session cannot go on."""

    @property
    @abstractmethod
    def finished(self) -> bool:
        """Whether nothing is left to do."""

    def has_terms(self, node: int) -> bool:
        """Whether a node has been told the terms already."""
        del node
        return False

    def lose(self, node: int, reason: str, broken: bool = False) -> None:
        """Go on without a node that failed, is late, or has `broken` the protocol."""
        del broken
        log(WARNING, "tpmdp: %s: %s", self.terms.spec.name(self.party_at[node]), shown(reason, 300))
        self.gone[node] = reason

    def drop_missing(self) -> bool:
        """Begin a new attempt without the parties that are silent; whether that is possible."""
        assert self._local_lead is not None
        messages = self._local_lead.drop_missing()
        self.carrier.post(messages)
        return bool(messages)

    # The session -----------------------------------------------------------------------------------------------------

    def run(self) -> None:
        """Exchange messages until the session is over. DeadlineError: it cannot go on, or takes too long."""
        self.exchange({node: [] for node in self.party_at if not self.has_terms(node)})
        keys_asked = 1  # the last attempt in which all parties were asked for their keys
        while not self.finished:
            if time.monotonic() > self.deadline:
                raise DeadlineError("the deadline passed before all nodes had finished: allow more time")
            ready, lead = self.ready(), self._local_lead
            keys_missing = lead is not None and lead.step in ("agree", "keys") and lead.attempt <= keys_asked
            if keys_missing or not ready:  # nobody works for an attempt that cannot succeed
                if not self.drop_missing():
                    raise DeadlineError(self.failure())
                continue
            keys_asked = lead.attempt if lead is not None else keys_asked
            self.exchange({node: self.carrier.take(party) for node, party in ready.items()})

    def ready(self) -> dict[int, int]:
        """The nodes for which messages wait, with their parties."""
        waiting = self.carrier.waiting()
        return {node: party for node, party in self.party_at.items() if party in waiting and node not in self.gone}

    def exchange(self, messages: Mapping[int, list[bytes]]) -> None:
        """Send each node its messages and take in the replies."""
        if not messages:
            return
        contents, timeout_s = self.requests(messages)
        replies, failed = self._nodes.exchange(contents, min(timeout_s, self.deadline - time.monotonic()))
        for node in contents:
            if node in failed:
                self.lose(node, failed[node])
                continue
            try:
                fields = fields_of(replies[node])
                self.take_in(node, unpack(bytes_of(fields, "outbox") or b"-"))
                self.accept(node, fields)
            except MessageError as error:
                self.lose(node, str(error), broken=True)
            except ProtocolError as error:
                self.blame(error)
                raise

    def blame(self, error: ProtocolError) -> None:
        """Go on without the party that broke the protocol, even if another's message showed it; the session is over."""
        for node, party in self.party_at.items():
            if party == error.offender:
                self.lose(node, str(error), broken=True)

    def take_in(self, node: int, messages: list[bytes]) -> None:
        """Take in the protocol messages of a reply."""
        self.carrier.post(messages, self.party_at[node])

    def outcome(self) -> Outcome:
        """What the session gave, where the lead receiver is in this process and done."""
        lead, terms = self._local_lead, self.terms
        assert lead is not None
        assert lead.result is not None
        return Outcome(
            sums={terms.lead: lead.result},
            receipts=lead.members - {terms.lead},
            bytes_sent=tuple(self.carrier.bytes_sent),
            guarantee=guarantee_text(terms),
            missing=frozenset(range(terms.count)) - lead.members,
        )
