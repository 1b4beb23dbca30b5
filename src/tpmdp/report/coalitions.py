"""Why a coalition is the worst one for a party of a study, and which others are as bad."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final, NamedTuple

import numpy as np

from tpmdp.engines.contract import lacks_noise
from tpmdp.planning.equally_bad import equally_bad
from tpmdp.planning.plan import needs
from tpmdp.protocol.terms import Terms
from tpmdp.report.numbers import plural, three_digits
from tpmdp.report.promise import coalition_text, known_text
from tpmdp.study.model import Study

_COUNTS: Final = ("count", "histogram")
_TRIED: Final = 200  # coalitions that are counted


class WorstCoalition(NamedTuple):
    """The members to name, and what stands for the rest: any other parties, or other coalitions."""

    members: tuple[str, ...]
    rest: str = ""


def worst_coalition(terms: Terms, party: str, members: Sequence[str]) -> WorstCoalition:
    """A worst coalition against a party, with the others that are as bad.

    >>> from tpmdp.planning.grid_plan import plan_on_grid
    >>> from tpmdp.spec import Spec
    >>> spec = Spec(epsilon=[0.3, 1.0, 1.0, 1.0], delta=1e-6, threshold=2, names=["a", "b", "c", "d"])
    >>> keys = tuple(bytes(31) + bytes([each]) for each in range(4))
    >>> terms = Terms.of("demo", plan_on_grid(spec, bound=1.0), 1.0, keys)
    >>> worst_coalition(terms, "a", ["b", "c"])
    WorstCoalition(members=(), rest='any 2 other parties')
    >>> worst_coalition(terms, "d", ["a", "b"])
    WorstCoalition(members=('a',), rest='any one other party')
    """
    spec = terms.spec
    places = {spec.name(place): place for place in range(spec.count)}
    first = tuple(sorted(places[each] for each in members))
    squares = (terms.sigma * terms.sigma).astype(np.float64)
    others = equally_bad(squares, spec.receivers, places[party], coalition=first, most=_TRIED)
    if not others:
        return WorstCoalition(tuple(members))
    core = set(first).intersection(*others)
    open_places, free = len(first) - len(core), spec.count - 1 - len(core)
    if len(others) + 1 == math.comb(free, open_places):
        any_of = "any one other party" if open_places == 1 else f"any {open_places} other parties"
        return WorstCoalition(tuple(spec.name(each) for each in sorted(core)), any_of)
    count = f"at least {_TRIED}" if len(others) >= _TRIED else plural(len(others), "other")
    return WorstCoalition(tuple(members), f"or {count}{' others' if len(others) >= _TRIED else ''} equally")


def reason_text(study: Study, terms: Terms, party: str, members: Sequence[str]) -> str:
    """What a coalition knows of the noise, and what is left; empty without noise.

    Sizes are those of the first answer that counts records; without one, only their ratio is told. Of a study by
    rounds, or one that is computed on shares, nothing is compared with the budget.
    """
    if lacks_noise(terms) or study.rounds > 1 or not study.computation.is_sum:
        return ""
    squares = (terms.sigma * terms.sigma).astype(np.float64) * terms.grid.step**2
    total, known = float(squares.sum()), float(squares[[study.index(each) for each in members]].sum())
    left, need = total - known, float(needs(terms.spec)[study.index(party)])
    counts = (place for place, query in enumerate(study.queries) if query.settings()["kind"] in _COUNTS)
    counted = next(counts, None)
    if counted is None or not need:
        times = f"{three_digits(math.sqrt(left / need))} times what your budget needs" if need else "more than it needs"
        return f"{known_text(known / total, members=len(members))} The noise that is left is {times}."
    unit = (study.weights.scale / study.computation.answer_scales[counted]) ** 2
    text = coalition_text(known / total, left=left * unit, need=need * unit, members=len(members), possessive="your")
    return f"{text} That is for {study.queries[counted].name}." if len(study.queries) > 1 else text
