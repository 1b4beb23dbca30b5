"""One person with records at several parties: what a plan really promises to that person.

A budget protects the records of one party. A person whose records lie at several parties is moved at all of them at
once, and may be attacked with the help of one of them. Theory, "One person at several parties".
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Final

import numpy as np

from tpmdp._util.arrays import FloatArray, IntArray
from tpmdp._util.exact import exact_sum, to_float, to_integer
from tpmdp.errors import InputError
from tpmdp.gaussian.calibration import epsilon_at
from tpmdp.planning.plan import Plan
from tpmdp.spec import Spec

PLACES_MAX: Final = 12  # every subset of the person's parties is tried


@dataclass(frozen=True)
class PersonProtection:
    """What a plan promises to a person with one record at each of `parties`, against the worst coalition.

    `exposed` are the parties at which the worst coalition does not know the record; both are empty if nobody can
    attack. `alone` is the real epsilon of each party: what the person would have with a record there only.
    """

    parties: tuple[int, ...]
    epsilon: float
    delta: float
    coalition: tuple[int, ...]
    exposed: tuple[int, ...]
    alone: tuple[float, ...]
    honest_variance: float


@dataclass(frozen=True)
class Attack:
    """The worst coalition with some of the person's parties as members. Exact, in units of 2**-1074.

    `exposed` are the person's parties outside the coalition.
    """

    change: int
    honest: int
    members: tuple[int, ...]
    exposed: tuple[int, ...]

    def is_worse_than(self, other: Attack) -> bool:
        """Whether change / sqrt(honest) is larger; it is infinite without honest noise."""
        return self.change**2 * other.honest > other.change**2 * self.honest


def person_protection(plan: Plan, parties: Sequence[int]) -> PersonProtection:
    """The real epsilon of a person with one record at each of these parties, at the smallest of their deltas.

    >>> spec = Spec(epsilon=[0.5, 0.8, 1, 2, 3], delta=1e-6, threshold=2, receivers=[0, 4])
    >>> from tpmdp.planning.plan import plan
    >>> person = person_protection(plan(spec), [1, 2])
    >>> round(person.epsilon, 2), person.coalition
    (1.69, (0, 3))
    """
    spec, places = plan.spec, _check_places(plan.spec, parties)
    sensitivity = spec.weighted(plan.weights.each).sensitivity
    delta = float(spec.delta[list(places)].min())
    alone = tuple(plan.protection().epsilon[list(places)].tolist())
    worst: Attack | None = None
    for attack in attacks(spec, plan.variance, sensitivity, places=places):
        if attack.change and (worst is None or attack.is_worse_than(worst)):
            worst = attack
    if worst is None:
        return PersonProtection(places, 0.0, delta, coalition=(), exposed=(), alone=alone, honest_variance=math.inf)
    honest = _down(worst.honest)
    epsilon = epsilon_at(_root_down(honest), delta, _up(worst.change))
    if len(worst.exposed) == 1:
        party = worst.exposed[0]
        if honest >= plan.need[party] and delta >= spec.delta[party]:  # the need is proven enough for the budget
            epsilon = min(epsilon, float(spec.epsilon[party]))
    return PersonProtection(
        places,
        float(epsilon),
        delta,
        coalition=worst.members,
        exposed=worst.exposed,
        alone=alone,
        honest_variance=honest,
    )


def _check_places(spec: Spec, parties: Sequence[int]) -> tuple[int, ...]:
    places = tuple(sorted(parties))
    if not 1 <= len(places) <= PLACES_MAX:
        rule = f"must have from 1 to {PLACES_MAX} parties"
        raise InputError("person", len(places), rule, "name the parties with the largest sensitivities")
    for place, party in enumerate(places):
        if not 0 <= party < spec.count:
            raise InputError("person", party, f"is not a party from 0 to {spec.count - 1}", "give indices of parties")
        if place and party == places[place - 1]:
            raise InputError("person", spec.name(party), "is named twice", "name each party once")
    return places


def attacks(spec: Spec, variance: FloatArray, sensitivity: FloatArray, *, places: tuple[int, ...]) -> Iterator[Attack]:
    """For each set of colluders among the person's parties, the worst coalition that has no others of them."""
    thresholds = np.broadcast_to(np.asarray(spec.threshold, dtype=np.int64), (spec.count,))
    others = np.delete(np.arange(spec.count), places)
    order = others[np.argsort(-variance[others], kind="stable")]  # by falling variance
    receiving = np.flatnonzero(spec.receivers[order])
    sums: dict[tuple[int, int], int] = {}

    def fill(size: int, needs_receiver: bool) -> tuple[IntArray, int] | None:
        """The other colluders, and the noise of the others that stay honest; None if no receiver can be among them."""
        forced = -1
        if needs_receiver:
            if size == 0 or not len(receiving):
                return None
            forced = int(receiving[0]) if receiving[0] >= size else -1
        members = order[:size] if forced < 0 else np.append(order[: size - 1], order[forced])
        key = (size, forced)
        if key not in sums:
            honest = order[size:] if forced < 0 else np.delete(order[size - 1 :], forced - size + 1)
            sums[key] = exact_sum(variance[honest]) if len(honest) else 0
        return members, sums[key]

    for count in range(len(places)):
        for colluding in combinations(places, count):
            exposed = tuple(party for party in places if party not in colluding)
            size = min(int(thresholds[list(exposed)].min()) - count, len(order))
            if size < 0 or size + count == 0:
                continue
            filled = fill(size, not spec.receivers[list(colluding)].any())
            if filled is None:
                continue
            members, honest = filled
            yield Attack(
                change=sum(to_integer(float(sensitivity[party])) for party in exposed),
                honest=honest + sum(to_integer(float(variance[party])) for party in exposed),
                members=tuple(sorted([*colluding, *members.tolist()])),
                exposed=exposed,
            )


def _up(exact: int) -> float:
    """The least double that is not below."""
    value = to_float(exact)
    return value if to_integer(value) >= exact else math.nextafter(value, math.inf)


def _down(exact: int) -> float:
    """The largest double that is not above."""
    value = to_float(exact)
    return value if to_integer(value) <= exact else math.nextafter(value, 0.0)


def _root_down(value: float) -> float:
    """A double not above the square root, and at most one below it."""
    root = math.sqrt(value)
    return root if to_integer(root) ** 2 <= to_integer(value) << 1074 else math.nextafter(root, 0.0)
