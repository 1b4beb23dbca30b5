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
from tpmdp.flower.enrolment import ALL_SPENT, Enrolment
from tpmdp.flower.nodes import ADD_MOD
from tpmdp.flower.round_terms import Ask, Training
from tpmdp.flower.training_round import Post, TrainingRound
from tpmdp.ledger import rounded_up
from tpmdp.protocol.party import PartySession
from tpmdp.protocol.secrets import FreshSecrets
from tpmdp.protocol.terms import Terms
from tpmdp.protocol.vectors import attempt_vectors, noise_source, noisy_vector
from tpmdp.spec import Party

_MUCH_LESS: Final = 0.8
_NAMES_SHOWN: Final = 100
_DROWNED: Final = 0.8, 5.0  # noise in each entry, and of all together, in proportion to the clip: little else is left
_LESS_NOISE: Final = (
    "have more clients, larger budgets or fewer rounds in their settings, a smaller model, or a smaller threshold or "
    "tolerate"
)
_SPENT_REMEDY: Final = "plan more rounds for a new training, or in a simulation use a new folder"


class TooNoisyError(InputError):
    """The plan of a round has more noise than is allowed."""


class RoundPlanner:
    """Makes the sessions of a training, each with a name of its own."""

    def __init__(
        self, training: Training, identity: Ed25519PrivateKey, clients_least: int, noise_max: float = math.inf
    ) -> None:
        self.training = training
        self._noise_max = noise_max
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
            self._check_noise(clients)
        except InputError:
            return False
        return True

    def _check_noise(self, clients: Sequence[Party]) -> None:
        """Refuse a plan with more noise than is allowed."""
        if math.isinf(self._noise_max):
            return
        noise = self.training.outlook(clients).noise
        if noise > self._noise_max:
            rule = f"is less than the noise in each entry of the average among {plural(len(clients), 'client')}, "
            rule += rounded_up(noise, 3)
            remedy = f"{_LESS_NOISE}; or raise noise_max"
            raise TooNoisyError("noise_max", f"{self._noise_max:g}", rule, remedy=remedy)

    def outlook(self) -> tuple[list[str], str]:
        """What the current plan says of the noise, one fact per line, and a warning if little else will be left."""
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
        proportion = plan.noise / clip
        is_drowned = proportion >= _DROWNED[0] or proportion * math.sqrt(entries) >= _DROWNED[1]
        warning = (
            f"so much noise drowns the updates, and the model may be noise alone: {_LESS_NOISE}; with noise_max the "
            "training stops before anything is charged"
        )
        return lines, warning if is_drowned else ""

    def round(self, post: Post, number: int) -> TrainingRound:
        """A round among the clients that are there. InputError: they are too few, or have no plan."""
        enrolment, training = post.clients, self.training
        enrolment.leave_out_demanding(training.threshold, training.tolerate)
        clients = tuple(enrolment.clients.values())
        if len(clients) < self._clients_least:
            raise self._too_few(enrolment)
        self._sessions += 1
        label = f"{training.name} / {self._token} / round {number} / session {self._sessions}"
        if self._planned is None or self._planned[0] != (training, clients):
            server_key = self._identity.public_key().public_bytes_raw()
            self._check_noise(clients)
            self._planned = (training, clients), training.terms(label, number, server_key, clients=clients)
            self.guarantee = guarantee_text(self._planned[1])
        planned = self._planned[1]
        terms = replace(planned, label=label, query=replace(Ask.parse(planned.query), number=number).text())
        # The server has no data; the plan may still ask it for noise, against clients that see the model.
        nothing = np.zeros(terms.grid.dimension, dtype=np.int64)
        vector = noisy_vector(terms, 0, nothing, source=noise_source(terms))
        source = attempt_vectors(terms, 0, vector, plain=nothing)
        lead = PartySession(terms, 0, self._identity, vector=source, secrets=FreshSecrets())
        return TrainingRound(post, number, terms, lead=lead)

    def _too_few(self, enrolment: Enrolment) -> InputError:
        """Why there are too few clients, and what helps."""
        rule = f"are there that can take part, and {self._clients_least} are needed"
        shortage, reason = enrolment.shortage(), enrolment.reason.removesuffix(f": {ADD_MOD}")
        if shortage == ALL_SPENT:
            return InputError("clients", len(enrolment.clients), f"{rule} (all budgets are spent)", _SPENT_REMEDY)
        why = f" (last: {reason})" if reason else ""
        spent = f"; {len(enrolment.spent)} without budget" if enrolment.spent else ""
        remedy = ADD_MOD if ADD_MOD in enrolment.reason else "start more nodes, or set clients_least"
        return InputError("clients", len(enrolment.clients), f"{rule}{why}{spent}", remedy)
