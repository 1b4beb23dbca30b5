"""A round of training as a session: what is asked of everybody, and the terms that all parties sign.

The server is the first party: infinite epsilon, no data, and the only receiver of the sum. But the model that it makes
of the sum goes to all clients, so noise is planned, checked and charged as if everybody received the sum (`published`).
The server plans with the budgets that clients have sent; a client checks the plan (`ClientSettings.check`).
"""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from tpmdp._util.arrays import FloatArray
from tpmdp._util.canonical import canonical_json
from tpmdp.errors import InputError
from tpmdp.flower.update import bound, diameter
from tpmdp.planning.grid_plan import GridPlan, plan_on_grid
from tpmdp.planning.losses import most_lost
from tpmdp.planning.plan import needs
from tpmdp.planning.weights import make_weights, shortened
from tpmdp.protocol.terms import Terms
from tpmdp.spec import Party, Spec

SERVER: Final = "server"
KIND: Final = "model update"
CLIP_MIN, CLIP_MAX = 1e-9, 1e9
EXAMPLES_MAX: Final = 1 << 40
_DRIVER_SHARE: Final = 0.1  # of the largest share of the noise: clients that less of it is for are not named
_DELTA: Final = 1e-6  # of the server, whose epsilon is infinite


@dataclass(frozen=True)
class Ask:
    """What is asked in a round, as all parties sign it. `examples` is the most examples that count; 0: not counted."""

    training: str
    number: int
    clip: float
    examples: int
    weights: tuple[float, ...]

    @property
    def counted(self) -> bool:
        """Whether the average is weighted by examples."""
        return self.examples > 0

    def text(self) -> str:
        """The canonical text: equal asks have the same.

        >>> ask = Ask("digits", 1, 1.0, 0, (0.0, 1.0))
        >>> Ask.parse(ask.text()) == ask
        True
        """
        fields = {
            "kind": KIND,
            "training": self.training,
            "round": self.number,
            "clip": self.clip.hex(),
            "examples": self.examples,
            "weights": [weight.hex() for weight in self.weights],
        }
        return canonical_json(fields)

    @classmethod
    def parse(cls, text: str) -> Ask:
        """Read a text from outside; only a canonical one is accepted."""
        wrong = InputError("query", text, "is not a round of training", "use a server with the same tpmdp")
        try:
            read = json.loads(text)
            weights = tuple(float.fromhex(weight) for weight in read["weights"])
            clip = float.fromhex(read["clip"])
            ask = cls(str(read["training"]), int(read["round"]), clip, examples=int(read["examples"]), weights=weights)
        except (KeyError, TypeError, AttributeError, ValueError, OverflowError, RecursionError):
            raise wrong from None
        if ask.text() != text:
            raise wrong
        good = CLIP_MIN <= ask.clip <= CLIP_MAX and 0 <= ask.examples <= EXAMPLES_MAX
        if not good or not all(0 <= weight <= 1 for weight in weights):
            raise InputError("query", text, "has a clip, count or weight out of range", "change the training")
        return ask


def published(terms: Terms) -> Terms:
    """The same terms as if everybody received the sum: that is what budgets are checked and charged for.

    >>> clients = [Party(name, 1.0, 1e-5, public_key=name.encode() * 32, threshold=1) for name in "ab"]
    >>> terms = Training("digits", 1.0, 10).terms("digits / round 1", 1, bytes(32), clients=clients)
    >>> terms.spec.receiver_count, published(terms).spec.receiver_count
    (1, 3)
    """
    return replace(terms, spec=terms.spec.replace(receivers="all"))


@dataclass(frozen=True)
class Outlook:
    """What a plan says of the noise in a round if all its clients are counted, each with the most examples that count.

    `noise` is the standard deviation in each entry of the average, `share` the largest weight of a client in it.
    `drivers` are the clients that the noise is mostly there for.
    """

    noise: float
    share: float
    drivers: tuple[str, ...]


@dataclass(frozen=True)
class Training:
    """What is the same in all rounds of a training."""

    name: str
    clip: float
    entries: int
    examples: int = 0
    threshold: int | None = None
    tolerate: int = 0
    weighting: str | tuple[float, ...] = "equal"
    spread: float = 1.0

    @property
    def dimension(self) -> int:
        """The length of the sum: the entries of the model, and one for the number of examples if that counts."""
        return self.entries + (self.examples > 0)

    def colluders(self, clients: Sequence[Party]) -> int:
        """How many may collude, the server among them: what is set, or the most that any client asks for."""
        return max(client.threshold or 1 for client in clients) if self.threshold is None else self.threshold

    def check_count(self, colluders: int, clients: int) -> None:
        """Refuse a threshold that leaves no honest client, or with which fewer clients may drop out.

        >>> Training("digits", 1.0, 10, threshold=2, tolerate=2).check_count(2, clients=7)
        """
        asked = "" if self.threshold is not None else "; the threshold is the most that a client asks for"
        if colluders > clients:
            rule = f"must be at most the number of clients ({clients}{asked})"
            raise InputError("threshold", colluders, rule, "lower it, or have more clients")
        most = most_lost(clients + 1, colluders)
        if self.tolerate > most:
            rule = f"must be at most {most} with {clients} clients and threshold {colluders}{asked}"
            raise InputError("tolerate", self.tolerate, rule, "lower one of them, or have more clients")

    def spec(self, clients: Sequence[Party], weights: FloatArray) -> Spec:
        """Budgets and sensitivities, the server first."""
        self.check_count(self.colluders(clients), len(clients))
        return Spec(
            epsilon=[math.inf, *(client.epsilon for client in clients)],
            delta=[_DELTA, *(client.delta for client in clients)],
            sensitivity=[0.0, *(diameter(self.clip, weight) for weight in weights.tolist())],
            threshold=self.colluders(clients),
            receivers="all",  # through the model
            names=[SERVER, *(client.name for client in clients)],
        )

    def weights_of(self, clients: Sequence[Party]) -> FloatArray:
        """What each client's contribution is multiplied by."""
        count = len(clients)
        plain = self.spec(clients, np.ones(count))
        width = 2.0 * self.clip
        # Updates lie in a ball: the variances of their entries add up to at most clip^2; this is the average.
        typical = self.spread * self.clip / math.sqrt(self.entries)
        records = [0.0] + [1.0] * count
        given = self.weighting if isinstance(self.weighting, str) else [0.0, *self.weighting]
        weights = make_weights(plain, lambda: needs(plain), given, spread=typical, records=records, width=width)
        return np.asarray(shortened(weights.each))[1:]

    def _plan(self, clients: Sequence[Party], weights: FloatArray) -> tuple[GridPlan, FloatArray]:
        """The plan of a round, and the largest entry of each party's contribution."""
        bounds = np.array([0.0, *(bound(self.clip, weight, self.examples > 0) for weight in weights.tolist())])
        return plan_on_grid(self.spec(clients, weights), bounds, self.dimension, groups=self.tolerate > 0), bounds

    def outlook(self, clients: Sequence[Party]) -> Outlook:
        """The noise that a round among these clients will have.

        >>> clients = [Party(name, 1.0, 1e-5, threshold=1) for name in "abc"]
        >>> round(Training("digits", 1.0, 10).outlook(clients).noise, 2)
        2.87
        """
        weights = self.weights_of(clients)
        plan, _ = self._plan(clients, weights)
        total, shares, need = math.fsum(weights.tolist()), plan.plan.drivers(), plan.plan.need
        # Of clients with equal needs, only some have a share: all are named.
        driving = (shares > 0) & (shares >= _DRIVER_SHARE * shares.max())
        strict = need >= need[driving].min(initial=math.inf)
        names = tuple(plan.asked.name(party) for party in np.flatnonzero(strict).tolist())
        return Outlook(plan.standard_deviation / total, float(weights.max()) / total, drivers=names)

    def terms(self, label: str, number: int, server_key: bytes, clients: Sequence[Party]) -> Terms:
        """The terms of a round among these clients.

        >>> clients = [Party(name, 1.0, 1e-5, public_key=name.encode() * 32, threshold=1) for name in "ab"]
        >>> terms = Training("digits", 1.0, 10).terms("digits / round 1", 1, bytes(32), clients=clients)
        >>> terms.lead, terms.grid.dimension
        (0, 10)
        """
        weights = self.weights_of(clients)
        ask = Ask(self.name, number, self.clip, examples=self.examples, weights=(0.0, *weights.tolist()))
        plan, bounds = self._plan(clients, weights)
        roster = (server_key, *(client.public_key or b"" for client in clients))  # terms refuse an empty key
        public = Terms.of(label, plan, bounds, roster=roster, query=ask.text(), tolerate=self.tolerate, public=True)
        return replace(public, spec=plan.asked.replace(receivers=[0]))
