"""What a study costs a party: the charge of its session, or of all its rounds together."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, fields, replace
from fractions import Fraction

from tpmdp.errors import InputError
from tpmdp.ledger import Charge, add_up, promise, square_up
from tpmdp.protocol.terms import Terms
from tpmdp.study.model import Study


def charge_of(terms: Terms, index: int, colluders: int | None = None) -> Charge:
    """What the session costs the party: the protection it really has, not the budget it offered."""
    mu, closeness = terms.charge(index, colluders)
    return Charge(mu, closeness, float(terms.spec.epsilon[index]), delta=float(terms.spec.delta[index]))


def charge_among(terms: Terms, index: int, members: Collection[int]) -> Charge:
    """What an attempt among these parties costs; see `Terms.charge_among`."""
    mu, closeness = terms.charge_among(index, members)
    return Charge(mu, closeness, float(terms.spec.epsilon[index]), delta=float(terms.spec.delta[index]))


def top_up(before: Sequence[float], wanted: Charge) -> Charge | None:
    """What is still to be charged, after these mu, for one that costs more; None if nothing is.

    >>> round(top_up([3.0], Charge(5.0, 0.0, 1.0, 1e-6)).mu, 6), top_up([3.0, 4.0], Charge(5.0, 0.0, 1.0, 1e-6))
    (4.0, None)
    """
    if math.isinf(wanted.mu) and not any(map(math.isinf, before)):
        return wanted
    if any(map(math.isinf, before)):
        return None
    lacking = Fraction(wanted.mu) ** 2 - sum(Fraction(mu) ** 2 for mu in before)
    if lacking <= 0:
        return None
    mu = math.nextafter(math.sqrt(math.nextafter(float(lacking), math.inf)), math.inf)
    return replace(wanted, mu=mu, closeness=0.0)


def all_terms(study: Study, terms: Terms) -> tuple[Terms, ...]:
    """The terms of all sessions of a study, whose first has these; later rounds at guessed points.

    Noise, and so the cost, does not depend on points. Theory, "Studies by rounds".
    """
    whole = study if study.part is None else study.part.whole
    if whole.rounds == 1 or (study.part is not None and study.part.number > 1):
        return (terms,)
    keyed = whole if all(party.public_key for party in whole.parties) else trial_study(whole)
    return (terms, *keyed.preview_terms[1:])


def trial_study(study: Study) -> Study:
    """The study with keys that nobody has, to compute its terms before the parties have keys."""
    return study.with_keys({party.name: hashlib.sha256(party.name.encode()).digest() for party in study.parties})


def joint_charge(study: Study, index: int, every: Iterable[Terms]) -> Charge:
    """What these sessions of a study cost the party together, by exact composition; rounded up."""
    whole = study if study.part is None else study.part.whole
    charges = [charge_of(terms, index) for terms in every]
    if len(charges) == 1:
        return charges[0]
    mu, closeness = _joint([(charge.mu, charge.closeness) for charge in charges])
    return Charge(mu, closeness, whole.parties[index].epsilon, delta=whole.parties[index].delta)


def totals(charges: Sequence[Charge]) -> tuple[float, float]:
    """The sums of mu squared and of closeness, rounded up."""
    mu_squared = closeness = 0.0
    for charge in charges:
        mu_squared, closeness = add_up(mu_squared, square_up(charge.mu)), add_up(closeness, charge.closeness)
    return mu_squared, closeness


def joint_epsilon(study: Study, index: int, every: Iterable[Terms], colluders: int | None = None) -> float:
    """What these sessions of a study cost the party together: epsilon at the delta it offered, rounded up.

    With `colluders`, against so many parties, within the threshold or not.
    """
    whole = study if study.part is None else study.part.whole
    return promise(*totals([charge_of(terms, index, colluders) for terms in every]), whole.parties[index].delta)


def check_joint(study: Study, index: int, every: Sequence[Terms]) -> None:
    """Refuse rounds that cost a party more, all together, than it offers; without noise there is nothing to keep."""
    whole = study if study.part is None else study.part.whole
    party = whole.parties[index]
    if len(every) == 1 or math.isinf(party.epsilon) or any(terms.charge(index)[0] == math.inf for terms in every):
        return
    epsilon = joint_epsilon(whole, index, every)
    if not epsilon <= party.epsilon:
        rule = f"is less than all rounds together cost {party.name} ({epsilon!r})"
        raise InputError(f"epsilon of {party.name}", party.epsilon, rule, "do not take part; report this")


@dataclass(frozen=True, eq=False)
class JointTerms(Terms):
    """The terms of the last round, with the budgets that the parties offer and the costs of all rounds together."""

    every: tuple[Terms, ...] = ()

    @classmethod
    def of_rounds(cls, study: Study, every: Sequence[Terms]) -> JointTerms:
        """Of a study by rounds."""
        last = every[-1]
        budgets = {"epsilon": [each.epsilon for each in study.parties], "delta": [each.delta for each in study.parties]}
        values = {field.name: getattr(last, field.name) for field in fields(Terms)}
        return cls(**{**values, "label": study.label, "spec": last.spec.replace(**budgets), "every": tuple(every)})

    def charge(self, party: int, colluders: int | None = None) -> tuple[float, float]:
        return _joint([each.charge(party, colluders) for each in self.every])

    def person_charge(self, parties: Sequence[int]) -> tuple[float, float, tuple[int, ...]]:
        """At most: the worst coalition of every round; the one that is named is that of the last."""
        every = [each.person_charge(parties) for each in self.every]
        return (*_joint([(mu, closeness) for mu, closeness, _ in every]), every[-1][2])


def _joint(charges: Sequence[tuple[float, float]]) -> tuple[float, float]:
    mu_squared, closeness = totals([Charge(mu, tau, 0.0, delta=0.0) for mu, tau in charges])
    return (math.nextafter(math.sqrt(mu_squared), math.inf) if mu_squared else 0.0), closeness
