"""Plans of rounds: among the clients that are there, made anew only where those have changed."""

from __future__ import annotations

import math
import secrets
from collections.abc import Sequence
from dataclasses import replace
from typing import Final

import numpy as np
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from tpmdp._util.numbers import plural
from tpmdp.engines.contract import guarantee_text
from tpmdp.errors import InputError, shown
from tpmdp.flower.nodes import ADD_MOD
from tpmdp.flower.round_terms import Ask, Training
from tpmdp.flower.training_round import Post, TrainingRound
from tpmdp.ledger import rounded_up
from tpmdp.protocol.party import PartySession
from tpmdp.protocol.secrets import FreshSecrets
from tpmdp.protocol.terms import Terms
from tpmdp.spec import Party
from tpmdp.study.session import noise_source, noisy_vector

_MUCH_LESS: Final = 0.8
_NAMES_SHOWN: Final = 100


class RoundPlanner:
    """Makes the sessions of a training, each with a name of its own."""

    def __init__(self, training: Training, identity: Ed25519PrivateKey, clients_least: int) -> None:
        self.training = training
        self.guarantee = ""
        self._identity, self._clients_least = identity, clients_least
        self._token = secrets.token_hex(8)  # no two runs share a session
        self._sessions = 0
        self._planned: tuple[tuple[Training, tuple[Party, ...]], Terms] | None = None

    def is_possible(self, clients: Sequence[Party]) -> bool:
        """Whether there is a plan among these clients."""
        if len(clients) < self._clients_least:
            return False
        try:
            self.training.terms("trial", 1, self._identity.public_key().public_bytes_raw(), clients=clients)
        except InputError:
            return False
        return True

    def outlook(self) -> list[str]:
        """What the current plan says of the noise, one fact per line, before anything is charged."""
        assert self._planned is not None
        training, clients = self._planned[0]
        plan, entries, clip = training.outlook(clients), training.entries, training.clip
        more = f", and more where clients have fewer than {training.examples} examples" if training.examples else ""
        together = rounded_up(plan.noise * math.sqrt(entries) / clip, 3)
        lines = [
            f"noise {rounded_up(plan.noise, 3)} in each entry of the average (standard deviation){more}; of "
            f"{plural(entries, 'entry', 'entries')} together about {together} times the clip",
            f"for comparison: the average of the updates is at most {clip:g} long (the clip), "
            f"and one client moves it by at most {plan.share * clip:.3g}",
        ]
        if training.weighting == "equal" and plan.noise:
            balanced = replace(training, weighting="balanced").outlook(clients)
            if balanced.noise < _MUCH_LESS * plan.noise:
                names = shown(", ".join(plan.drivers), _NAMES_SHOWN)
                lines.append(
                    f'weighting="balanced" would need noise {rounded_up(balanced.noise, 3)} only: the budgets of '
                    f"{plural(len(plan.drivers), 'client')} ({names}) determine it now, and would count less"
                )
        return lines

    def round(self, post: Post, number: int) -> TrainingRound:
        """A round among the clients that are there. InputError: they are too few, or have no plan."""
        enrolment, training = post.clients, self.training
        enrolment.leave_out_demanding(training.threshold, training.tolerate)
        clients = tuple(enrolment.clients.values())
        if len(clients) < self._clients_least:
            reason = enrolment.reason.removesuffix(f": {ADD_MOD}")
            why = f" (last: {reason})" if reason else ""
            rule = f"are there that can take part, and {self._clients_least} are needed{why}"
            remedy = ADD_MOD if ADD_MOD in enrolment.reason else "start more nodes, or set clients_least"
            raise InputError("clients", len(clients), rule, remedy)
        self._sessions += 1
        label = f"{training.name} / {self._token} / round {number} / session {self._sessions}"
        if self._planned is None or self._planned[0] != (training, clients):
            server_key = self._identity.public_key().public_bytes_raw()
            self._planned = (training, clients), training.terms(label, number, server_key, clients=clients)
            self.guarantee = guarantee_text(self._planned[1])
        planned = self._planned[1]
        terms = replace(planned, label=label, query=replace(Ask.parse(planned.query), number=number).text())
        # The server has no data; the plan may still ask it for noise, against clients that see the model.
        nothing = np.zeros(terms.grid.dimension, dtype=np.int64)
        vector = noisy_vector(terms, 0, nothing, source=noise_source(terms))
        lead = PartySession(terms, 0, self._identity, vector=lambda: vector, secrets=FreshSecrets())
        return TrainingRound(post, number, terms, lead=lead)
