"""The same trainings without Flower, many times: plans of the noise, and the noisy rounds in numpy. For error bands."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
from digits.client_app import failing_clients
from digits.task import CLASSES, FEATURES, STEPS, Floats, deal, digits, initial_model, right, train

import tpmdp
from tpmdp.flower import Training
from tpmdp.planning.plan import needs
from tpmdp.planning.weights import Simpler, baseline_weights
from tpmdp.spec import Party

ENTRIES = FEATURES * CLASSES


@dataclass(frozen=True)
class Settings:
    """Who takes part in a training, and what they agree on."""

    clients: int = 100
    rounds: int = 20
    epsilons: tuple[float, ...] = (1.0, 4.0, 16.0)  # of strict, medium and liberal clients, for the whole training
    shares: tuple[float, ...] = (0.54, 0.37, 0.09)
    delta: float = 1e-5
    clip: float = 2.0
    colluding: float = 0.1  # of the clients may collude with the server
    tolerated: float = 0.1  # of the clients may drop out of a round
    sorted_by_digit: bool = False  # strict clients have small digits; else budgets have nothing to do with data

    @property
    def threshold(self) -> int:
        """How many may collude: the server and some clients."""
        return 1 + min(round(self.colluding * self.clients), self.clients - 1)

    @property
    def tolerate(self) -> int:
        """How many clients may drop out of a round."""
        return round(self.tolerated * self.clients)

    @property
    def failing(self) -> int:
        """How many clients really fail in every fourth round."""
        return min(self.tolerate, max(1, round(0.03 * self.clients)))

    @property
    def kinds(self) -> list[int]:
        """How many clients are of each kind; the medium ones absorb what is rounded."""
        strict, liberal = (round(self.clients * share) for share in (self.shares[0], self.shares[-1]))
        return [strict, self.clients - strict - liberal, liberal]

    @property
    def budgets(self) -> Floats:
        """Epsilon of each client for the whole training; images are dealt at random, so the order does not matter."""
        return np.repeat(self.epsilons, self.kinds)

    @property
    def round_budgets(self) -> Floats:
        """Epsilon of each client for a round: all rounds together cost its whole budget, exactly composed."""
        mu = np.asarray(tpmdp.calibrate(self.budgets, self.delta)) * math.sqrt(self.rounds)
        return np.asarray(tpmdp.epsilon_at(mu, self.delta)) * (1 - 1e-9)


@dataclass(frozen=True, eq=False)
class Noise:
    """Each client's weight in the average, and the variance of the noise that it and the server add to each entry."""

    weights: Floats
    variance: Floats
    server: float = 0.0

    @property
    def of_average(self) -> float:
        """Its standard deviation in each entry of the average of all clients."""
        return float(math.sqrt(self.variance.sum() + self.server) / self.weights.sum())


def parties(settings: Settings, epsilon: Floats) -> list[Party]:
    """The clients of a round, with these budgets for it."""
    keys = [bytes(28) + (index + 1).to_bytes(4, "big") for index in range(settings.clients)]
    return [
        Party(f"client-{index}", float(share), settings.delta, public_key=keys[index], threshold=settings.threshold)
        for index, share in enumerate(epsilon)
    ]


def planned(settings: Settings, epsilon: Floats, weighting: str | tuple[float, ...]) -> Noise:
    """TPMDP's plan of a round, on the grid, as `PrivateStrategy` makes it."""
    clients = parties(settings, epsilon)
    training = Training(
        "digits",
        settings.clip,
        ENTRIES,
        threshold=settings.threshold,
        tolerate=settings.tolerate,
        weighting=weighting,
    )
    terms = training.terms("a round", 1, bytes(32), clients=clients)
    variance = np.asarray(terms.sigma * terms.grid.step, dtype=np.float64) ** 2
    return Noise(training.weights_of(clients), variance[1:], float(variance[0]))


def balanced(settings: Settings) -> Noise:
    """TPMDP where clients with strict budgets count less."""
    return planned(settings, settings.round_budgets, "balanced")


def simpler(settings: Settings, kind: Simpler) -> Noise:
    """TPMDP with the best weights of a simpler kind, for the spread that balanced weights assume."""
    plain = Training("digits", settings.clip, ENTRIES, threshold=settings.threshold, tolerate=settings.tolerate)
    spec = plain.spec(parties(settings, settings.round_budgets), np.ones(settings.clients))
    records = [0.0] + [1.0] * settings.clients  # the server has none
    spread, width = settings.clip / math.sqrt(ENTRIES), 2 * settings.clip
    weights = baseline_weights(spec, needs(spec), kind, spread=spread, records=records, width=width)
    return planned(settings, settings.round_budgets, tuple(weights.each[1:].tolist()))


def equal(settings: Settings) -> Noise:
    """TPMDP where all clients count the same."""
    return planned(settings, settings.round_budgets, "equal")


def tmdp(settings: Settings) -> Noise:
    """The strictest budget for all."""
    return planned(settings, np.full(settings.clients, settings.round_budgets.min()), "equal")


def local(settings: Settings) -> Noise:
    """What Flower's LocalDpMod adds."""
    scale = 2 * settings.clip * math.sqrt(2 * math.log(1.25 / settings.delta))
    return Noise(np.ones(settings.clients), (scale / settings.round_budgets) ** 2)


def nothing(settings: Settings) -> Noise:
    """No privacy."""
    return Noise(np.ones(settings.clients), np.zeros(settings.clients))


NOISE: dict[str, Callable[[Settings], Noise]] = {
    "balanced": balanced,
    "equal": equal,
    "tmdp": tmdp,
    "local": local,
    "none": nothing,
}


def train_once(settings: Settings, noise: Noise, seed: int) -> Floats:
    """The model after every round."""
    own = deal(settings.clients, seed, settings.sorted_by_digit)
    x, y, generator = digits().x[own], digits().y[own], np.random.default_rng([seed, 11])
    model, models = initial_model(), []
    for number in range(1, settings.rounds + 1):
        here = np.ones(settings.clients, dtype=bool)
        here[failing_clients(settings.clients, settings.failing, number)] = False
        update = train(model, x, y) - model
        length = np.linalg.norm(update, axis=(1, 2), keepdims=True)
        update *= np.minimum(1, settings.clip / np.maximum(length, 1e-12))
        scale = math.sqrt(noise.variance[here].sum() + noise.server)
        total = np.tensordot(noise.weights * here, update, 1) + generator.normal(0, scale, model.shape)
        model = model + total / noise.weights[here].sum()
        models.append(model)
    return np.array(models)


def accuracies(settings: Settings, noise: Noise, seeds: int) -> Floats:
    """The accuracy after every round, one row a seed."""
    return np.array([right(train_once(settings, noise, seed)).mean(axis=1) for seed in range(seeds)])


def alone(settings: Settings, seeds: int) -> float:
    """The accuracy of a client that trains with its own images only, on average: as many steps, and no noise."""
    found = []
    for seed in range(seeds):
        own = deal(settings.clients, seed)
        found.append(right(train(initial_model(), digits().x[own], digits().y[own], STEPS * settings.rounds)).mean())
    return float(np.mean(found))


@dataclass(frozen=True)
class Variant:
    """TPMDP with balanced and simpler weights, and TMDP, where something is otherwise; means over seeds."""

    what: str
    balanced: float
    two_levels: float
    one_budget: float  # strict clients are left out
    tmdp: float
    none: float
    small_digits: float  # balanced, on digits 0 to 4
    large_digits: float


def variants(settings: Settings, seeds: int) -> list[Variant]:
    """What the result rests on."""
    cases = {
        "as above": settings,
        "40 % of the clients may collude with the server": replace(settings, colluding=0.4),
        "all other clients may collude, none may drop out": replace(settings, colluding=1.0, tolerated=0.0),
        "budgets are 1, 2, 3": replace(settings, epsilons=(1.0, 2.0, 3.0)),
        "strict clients hold the small digits": replace(settings, sorted_by_digit=True),
    }
    small = digits().test_y < CLASSES // 2
    found = []
    for what, now in cases.items():
        others = (simpler(now, "two levels"), simpler(now, "one budget"), tmdp(now), nothing(now))
        means = [accuracies(now, other, seeds)[:, -1].mean() for other in others]
        noise = balanced(now)
        good = np.array([right(train_once(now, noise, seed)[-1]) for seed in range(seeds)])
        parts = good.mean(), *means, good[:, small].mean(), good[:, ~small].mean()
        found.append(Variant(what, *(float(part) for part in parts)))
    return found
