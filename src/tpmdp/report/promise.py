"""What a session promises, in plain words, and against which coalition."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from tpmdp.ledger import promises, square_up
from tpmdp.planning.coalition import worst_coalitions
from tpmdp.protocol.terms import Terms
from tpmdp.report.numbers import number, plus_minus, three_digits
from tpmdp.report.plan import epsilon_text
from tpmdp.study.party_check import Coalition

_FACTOR_MAX: Final = 20.0  # beyond, a factor says nothing
_WORK_MAX: Final = 60**3  # pairs of a person's parties, times the number of parties: about two seconds


@dataclass(frozen=True)
class PartyPromise:
    """What one party is promised. `epsilon` is what the session really costs it, at most what it offered."""

    party: str
    receives: bool
    offered: float
    delta: float
    epsilon: float
    guess: float
    coalition: tuple[str, ...]  # the worst one; empty: nobody can attack
    beyond: float | None  # epsilon against one colluder more than the threshold allows; None: there are no more


@dataclass(frozen=True)
class PersonPromise:
    """What a person is promised who has a record at a party and at each of `others`."""

    party: str
    others: tuple[str, ...]
    delta: float
    epsilon: float
    guess: float
    coalition: tuple[str, ...]  # the worst one; empty: nobody can attack


def promises_of(terms: Terms, on_shares: bool = False) -> list[PartyPromise]:
    """What each party is promised against its worst coalition, in the order of the terms.

    One party more than the threshold can put all shares together; in a masked sum some noise may be left.

    >>> from tpmdp.planning.grid_plan import plan_on_grid
    >>> from tpmdp.spec import Spec
    >>> spec = Spec(epsilon=[1.0, 2.0, 3.0], delta=1e-6, threshold=1, receivers=[0], names=["a", "b", "c"])
    >>> terms = Terms.of("demo", plan_on_grid(spec, bound=1.0), 1.0, (bytes(32), bytes(31) + b"1", bytes(31) + b"2"))
    >>> [(each.party, each.coalition, each.epsilon <= each.offered) for each in promises_of(terms)]
    [('a', (), True), ('b', ('a',), True), ('c', ('a',), True)]
    """
    spec = terms.spec
    squares = (terms.sigma * terms.sigma).astype(np.float64)
    threshold = np.maximum(spec.threshold, 1)  # as charges: a receiver sees the answer even at threshold 0
    worst = worst_coalitions(squares, threshold, spec.receivers)
    charges = [terms.charge(index) for index in range(terms.count)]
    delta = spec.delta.tolist()
    epsilons = _epsilons(charges, delta)
    more = int(np.max(threshold)) + 1
    beyond: list[float | None] = [None] * terms.count
    if on_shares:
        beyond = [math.inf if sensitivity else 0.0 for sensitivity in spec.sensitivity.tolist()]
    elif more < terms.count:
        beyond = [*_epsilons([terms.charge(index, more) for index in range(terms.count)], delta)]
    return [
        PartyPromise(
            spec.name(index),
            bool(spec.receivers[index]),
            float(spec.epsilon[index]),
            delta=delta[index],
            epsilon=epsilon,
            guess=best_guess(*charges[index]),
            coalition=tuple(spec.name(member) for member in worst.coalition(index).tolist())
            if charges[index][0]
            else (),
            beyond=beyond[index],
        )
        for index, epsilon in enumerate(epsilons)
    ]


def _epsilons(charges: Sequence[tuple[float, float]], delta: Sequence[float]) -> list[float]:
    return promises([square_up(mu) for mu, _ in charges], [each for _, each in charges], delta)


def person_promise(terms: Terms, parties: Sequence[int]) -> PersonPromise:
    """What a person with a record at each of these parties is promised, at the smallest of their deltas."""
    return _person_promises(terms, [parties])[0]


def pair_promises(terms: Terms, parties: Sequence[int]) -> list[PersonPromise]:
    """For each of these parties, what a person is promised who has a record there and one at the worst other party.

    Parties without records are left out. Empty if there are too many pairs to try.

    >>> from tpmdp.planning.grid_plan import plan_on_grid
    >>> from tpmdp.spec import Spec
    >>> spec = Spec(epsilon=[1.0, 2.0, 3.0], delta=1e-6, threshold=1, receivers=[0], names=["a", "b", "c"])
    >>> terms = Terms.of("demo", plan_on_grid(spec, bound=1.0), 1.0, (bytes(32), bytes(31) + b"1", bytes(31) + b"2"))
    >>> [(each.party, each.others, each.coalition) for each in pair_promises(terms, [1])]
    [('b', ('c',), ('a',))]
    """
    holders = np.flatnonzero(terms.spec.sensitivity).tolist()
    pairs = [(party, other) for party in parties if party in holders for other in holders if other != party]
    if len(pairs) * terms.count > _WORK_MAX:
        return []
    worst: dict[str, PersonPromise] = {}
    for each in _person_promises(terms, pairs):
        if each.party not in worst or each.epsilon > worst[each.party].epsilon:
            worst[each.party] = each
    return list(worst.values())


def _person_promises(terms: Terms, people: Sequence[Sequence[int]]) -> list[PersonPromise]:
    spec = terms.spec
    charges = {places: terms.person_charge(places) for places in {tuple(sorted(each)) for each in people}}
    costs = [charges[tuple(sorted(each))] for each in people]
    delta = [float(spec.delta[list(each)].min()) for each in people]
    epsilons = _epsilons([(mu, closeness) for mu, closeness, _ in costs], delta)
    return [
        PersonPromise(
            spec.name(places[0]),
            tuple(spec.name(other) for other in places[1:]),
            delta[place],
            epsilon=epsilons[place],
            guess=best_guess(mu, closeness),
            coalition=tuple(spec.name(member) for member in members),
        )
        for place, (places, (mu, closeness, members)) in enumerate(zip(people, costs, strict=True))
    ]


def best_guess(mu: float, closeness: float = 0.0) -> float:
    """How often, at most, the best guess about one unit is right where a blind guess is right half the time.

    The unit has one of two values that the attacker knows, each as likely. The likelihood ratio test between two
    normal distributions mu apart is right with probability Phi(mu / 2); rounding changes that by a factor e^closeness.

    >>> best_guess(0.0), round(best_guess(1.0), 3), best_guess(math.inf)
    (0.5, 0.691, 1.0)
    """
    right = 0.5 * math.erfc(-mu / 2 / math.sqrt(2)) * math.exp(closeness)
    return min(1.0, right * (1 + 1e-12)) if mu else 0.5


def coalition_guess(terms: Terms, party: int, coalition: Coalition) -> float:
    """How often, at most, the best guess of these parties about a record of this one is right."""
    return 1.0 if math.isinf(coalition.epsilon) else best_guess(*terms.charge(party, len(coalition.members)))


def coalition_text(share: float, *, left: float, need: float, members: int, possessive: str = "its") -> str:
    """Why a coalition is the worst one: the share of the noise that it knows, and what is left (variances).

    >>> print(coalition_text(0.69, left=65.6, need=4.84, members=2).replace("\\u00a0", " "))
    They add 69 % of the noise and can subtract it. Noise of ± 8.10 (variance 65.6) is left; its budget needs ± 2.20
    (variance 4.84).
    """
    known = known_text(share, members=members)
    sizes = [f"{plus_minus(three_digits(math.sqrt(each)))} (variance {number(each)})" for each in (left, need)]
    return f"{known} Noise of {sizes[0]} is left; {possessive} budget needs {sizes[1]}."


def known_text(share: float, *, members: int) -> str:
    """The share of the noise that a coalition knows.

    >>> known_text(0.69, members=1)
    'It adds 69 % of the noise and can subtract it.'
    """
    they = "It adds" if members == 1 else "They add"
    return f"{they} {100 * share:.0f} % of the noise and can subtract it."


def percent_up(share: float) -> str:
    """A share in percent, never shown smaller than it is.

    >>> percent_up(0.5), percent_up(0.69146), percent_up(1.0)
    ('50 %', '69.2 %', '100 %')
    """
    return f"{math.ceil(share * 1000 - 1e-9) / 10:g} %"


def factor_text(promise: PartyPromise) -> str:
    """What epsilon and delta mean, in numbers; empty if nothing is promised.

    >>> each = PartyPromise("a", True, 1.0, 1e-6, epsilon=0.5, guess=0.6, coalition=(), beyond=None)
    >>> factor_text(each).rpartition("odds")[2]
    ' of 1 to 1 turn into at most 1.65 to 1.'
    """
    if not promise.epsilon <= _FACTOR_MAX:
        return ""
    epsilon, factor = epsilon_text(promise.epsilon), _factor_up(promise.epsilon)
    return (
        f"Its real epsilon of {epsilon} means: one record changes the probability of anything they could see by a "
        f"factor of at most e^{epsilon} = {factor}. Its delta of {promise.delta:.3g} is a small probability by which "
        f"that may be exceeded. So, but for rare answers, odds of 1 to 1 turn into at most {factor} to 1."
    )


def _factor_up(epsilon: float) -> str:
    """e^epsilon in three digits, never smaller."""
    value = math.exp(epsilon) * (1 + 1e-12)
    unit = 10.0 ** (math.floor(math.log10(value)) - 2)
    return f"{math.ceil(value / unit - 1e-9) * unit:.3g}"


def several_text() -> str:
    """What a person with several records has less of."""
    return (
        "This is about one record. A person with several records at one party has less protection: with two, at most "
        "twice the epsilon, at 1 + e^epsilon times the delta. So has a person with records at several parties: tpmdp "
        "plan --person computes it."
    )
