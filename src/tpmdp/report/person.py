"""What a plan promises to a person with records at several parties, in words and as JSON."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from tpmdp.planning.person import PersonProtection
from tpmdp.report.numbers import number, plain_number, short_name
from tpmdp.spec import Spec

_NAMES_SHOWN: Final = 12


def person_text(spec: Spec, person: PersonProtection) -> str:
    """One sentence about the person.

    >>> from tpmdp.planning.person import person_protection
    >>> from tpmdp.planning.plan import plan
    >>> spec = Spec(epsilon=[1, 1, 1], delta=1e-6, threshold=1, names=["a", "b", "c"])
    >>> print(person_text(spec, person_protection(plan(spec), [0, 1])))
    A person with a record at each of a, b has epsilon 2.123 at delta 1e-06 if these collude: c.
    With a record at one of them only: 1, 1.
    """
    places = _names(spec, person.parties)
    where = f"a record at each of {places}" if len(person.parties) > 1 else f"a record at {places}"
    if not person.coalition:
        return f"A person with {where} has nothing to fear: nobody within the thresholds can attack."
    text = f"A person with {where} has epsilon {number(person.epsilon)} at delta {number(person.delta)} "
    text += f"if these collude: {_names(spec, person.coalition)}."
    known = [party for party in person.parties if party in person.coalition]
    if known:
        text += f" This is for the record at {_names(spec, person.exposed)}; those at {_names(spec, known)} they know."
    if len(person.parties) > 1:
        text += f"\nWith a record at one of them only: {', '.join(number(value) for value in person.alone)}."
    return text


def person_json(spec: Spec, person: PersonProtection) -> dict[str, Any]:
    """The same as JSON values; infinity as "inf"."""
    return {
        "parties": [spec.name(party) for party in person.parties],
        "epsilon": plain_number(person.epsilon),
        "delta": person.delta,
        "coalition": [spec.name(party) for party in person.coalition],
        "exposed": [spec.name(party) for party in person.exposed],
        "alone": [plain_number(value) for value in person.alone],
        "honest_variance": plain_number(person.honest_variance),
    }


def _names(spec: Spec, parties: Sequence[int]) -> str:
    shown = ", ".join(short_name(spec, party) for party in parties[:_NAMES_SHOWN])
    return shown + (f" and {len(parties) - _NAMES_SHOWN} more" if len(parties) > _NAMES_SHOWN else "")
