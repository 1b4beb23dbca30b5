"""One round of training as a session: the model goes out with the messages, terms of the next round with the last ones.

A Flower message takes seconds in a deployment, so a round takes two exchanges with all nodes, or three where clients
may drop out.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from logging import INFO, WARNING

from flwr.app import ArrayRecord, ConfigRecord, RecordDict
from flwr.common import log

from tpmdp.engines.contract import Outcome
from tpmdp.errors import shown
from tpmdp.flower.driver import SessionDriver
from tpmdp.flower.enrolment import NO_BUDGET, Enrolment
from tpmdp.flower.nodes import Nodes
from tpmdp.flower.wire import Value, pack, pack_text, record_of, text_of
from tpmdp.protocol.party import PartySession, ProtocolError
from tpmdp.protocol.terms import Terms


@dataclass(frozen=True, eq=False)
class Model:
    """What clients train with: the model and the configuration of a round, and the keys of both in a message."""

    arrays: ArrayRecord
    config: ConfigRecord
    arrays_key: str
    config_key: str
    timeout_s: float
    """How long to wait for the clients' training."""


@dataclass(eq=False)
class Post:
    """What rounds share: the nodes, the clients at them, and receipts that travel with the next message to a node."""

    nodes: Nodes
    clients: Enrolment
    patience_s: float
    receipts: dict[int, list[bytes]]

    def deliver_receipts(self) -> None:
        """Send the receipts that are left over when no further message follows."""
        receipts, self.receipts = self.receipts, {}
        contents = {node: record_of({"inbox": pack(data), **self.notes_for(node)}) for node, data in receipts.items()}
        self.nodes.exchange(contents, self.patience_s)

    def notes_for(self, node: int) -> dict[str, Value]:
        """The notes of ledgers that travel to a node."""
        keys = {each: client.public_key or b"" for each, client in self.clients.clients.items()}
        return self.clients.board.fields_for(keys[node], keys.values()) if node in keys else {}


class TrainingRound(SessionDriver):
    """The session of a round: the server is the lead receiver, clients are at nodes."""

    def __init__(self, post: Post, number: int, terms: Terms, lead: PartySession) -> None:
        places = {node: place for place, node in enumerate(post.clients.clients, start=1)}
        super().__init__(post.nodes, terms, places, local={terms.lead: lead})
        self.number, self.lead = number, lead
        self._post = post
        self._model: Model | None = None
        self._plan_next: Callable[[], TrainingRound | None] | None = None
        self._next: TrainingRound | None = None
        self._offered: set[int] = set()  # nodes that were sent the terms
        self._trained: set[int] = set()  # nodes that were sent the model
        self._refusals: dict[int, str] = {}  # nodes that refuse the terms of this round, and why
        self._offers: dict[int, TrainingRound] = {}  # rounds whose terms the last message offered, by node

    def train(self, model: Model, plan_next: Callable[[], TrainingRound | None] | None) -> Outcome:
        """Carry the session through. `plan_next` plans the round after it, which is offered without extra messages."""
        self._model, self._plan_next = model, plan_next
        self.run()
        for node, party in self.party_at.items():
            waiting = self.carrier.take(party)
            if waiting and node not in self.gone:
                self._post.receipts.setdefault(node, []).extend(waiting)
        return self.outcome()

    def accepted_next(self) -> TrainingRound | None:
        """The next round if all its clients have agreed; where some have not, it is planned anew, at no cost."""
        following, clients = self._next, self._post.clients
        if following is None:
            return None
        refusals = {node: why for node, why in following._refusals.items() if node in clients.clients}
        newcomers = [node for node in following.party_at if node not in self.party_at and node in clients.clients]
        for node in newcomers:
            if node in refusals:
                clients.leave_out(node, refusals[node])
        newcomers = [node for node in newcomers if node not in refusals]
        before = {node: why for node, why in refusals.items() if node in self.party_at}
        # They refuse to train with a newcomer, or say so to keep it out: the larger side stays, and newcomers add up.
        if len(before) > len(newcomers) > 0:
            for node in newcomers:
                clients.put_off(node, next(iter(before.values())))
        else:
            for node, why in before.items():
                clients.leave_out(node, why)
        return following if not following.gone and following.party_at.keys() <= clients.clients.keys() else None

    @property
    def charged(self) -> list[int]:
        """The parties that were sent the model: this session may be charged to them, and to nobody else."""
        return sorted(self.party_at[node] for node in self._trained)

    @property
    def lost(self) -> int:
        """How many clients failed or were late; those that refused the terms are not among them."""
        return len(self.gone.keys() - self._refusals.keys())

    # The driver asks -------------------------------------------------------------------------------------------------

    @property
    def finished(self) -> bool:
        return self.lead.done

    def has_terms(self, node: int) -> bool:
        return node in self._offered

    def failure(self) -> str:
        names = [self.terms.spec.name(party) for party in self.lead.waiting_for()]
        reasons = sorted(set(self.gone.values()))
        why = f" ({'; '.join(reasons)})" if reasons else ""
        return f"{shown(', '.join(names), 200)} lost in step {self.lead.step}{shown(why, 400) if why else ''}"

    def requests(self, messages: Mapping[int, list[bytes]]) -> tuple[dict[int, RecordDict], float]:
        assert self._model is not None
        if self.gone:
            self._post.clients.invite(self._nodes)  # a lost node may be back for the next round
        has_keys = all(self.has_terms(node) for node in messages)
        train = has_keys and not self._trained >= messages.keys()
        last = self.lead.step == "reveal" or (not self.lead.may_drop and self.lead.step == "receive")
        if has_keys and last and self._plan_next is not None and self._next is None:
            self._post.clients.welcome(self._nodes)
            self._next = self._plan_next()
        contents = {node: self._request(node, data, train) for node, data in messages.items()}
        return contents, self._model.timeout_s if train else self._post.patience_s

    def _request(self, node: int, messages: list[bytes], train: bool) -> RecordDict:
        """Messages of this session, the model if the node has not had it, and terms of this round or the next."""
        fields: dict[str, Value] = {"inbox": pack(self._post.receipts.pop(node, []) + messages)}
        fields |= self._post.notes_for(node)
        self._offers.pop(node, None)
        offer = self._next if self.has_terms(node) else self
        if offer is not None and node in offer.party_at and not offer.has_terms(node):
            fields["terms"] = offer._packed_terms
            offer._offered.add(node)
            self._offers[node] = offer
        if not train or node in self._trained:
            return record_of(fields)
        self._trained.add(node)
        content, model = record_of({**fields, "train": self.terms.session}), self._model
        assert model is not None
        content[model.arrays_key] = model.arrays
        content[model.config_key] = ConfigRecord({**model.config, "server-round": self.number})
        return content

    @cached_property
    def _packed_terms(self) -> bytes:
        return pack_text(self.terms.canonical())

    def take_in(self, node: int, messages: list[bytes]) -> None:
        super().take_in(node, messages)
        offer = self._offers.get(node)
        if offer is not None and offer is not self:
            try:
                offer.take_in(node, messages)
            except ProtocolError as error:  # in the next round, which is planned anew; this one goes on
                offer.blame(error)

    def accept(self, node: int, fields: dict[str, Value]) -> None:
        offer, clients = self._offers.get(node), self._post.clients
        clients.board.take(self.terms.roster[self.party_at[node]], fields)
        problem, refused = text_of(fields, "problem"), text_of(fields, "refused")
        if refused and offer is not None:  # the terms that were offered
            offer.gone[node] = offer._refusals[node] = refused
            log(WARNING, "tpmdp: %s refuses: %s", offer.terms.spec.name(offer.party_at[node]), shown(refused, 300))
            if offer is self:
                clients.lose(node)
        if problem:
            self.lose(node, problem)
        elif fields.get("ready") is False and node in clients.clients:
            if self._plan_next is not None:  # after the last round nobody needs one
                log(INFO, "tpmdp: %s will have no budget after this round", clients.clients[node].name)
            clients.leave_out(node, NO_BUDGET)

    def lose(self, node: int, reason: str, broken: bool = False) -> None:
        super().lose(node, reason)
        clients = self._post.clients
        clients.lose(node)
        if broken:
            clients.leave_out(node, reason)
