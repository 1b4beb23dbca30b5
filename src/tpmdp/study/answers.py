"""From the sum that a session gave to answers with error bars."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

from tpmdp._util.arrays import IntArray
from tpmdp.protocol.terms import Terms
from tpmdp.queries.answer import Answer
from tpmdp.study.model import Study


def answers(study: Study, terms: Terms, steps: IntArray, missing: Collection[str] = ()) -> list[Answer]:
    """The answers from a sum in grid steps; `missing` are parties that dropped out, whose records are not counted."""
    counted = without(study, missing) if missing else study
    present = set(range(terms.count)) - set(map(study.index, missing))
    noise, back = terms.standard_deviation_of(present), counted.weights.scale
    computation = counted.computation
    parts = computation.split(terms.grid.decode(steps), list(counted.party_records))
    return [
        answer
        for query, part, scale in zip(counted.queries, parts, computation.scales, strict=True)
        for answer in counted.answers_of(query, part * back, noise / scale * back)
    ]


def without(study: Study, names: Collection[str]) -> Study:
    """The study as it was answered: parties that dropped out have no records in it."""
    parties = tuple(replace(party, records=0) if party.name in names else party for party in study.parties)
    if study.weighting == "equal":
        return replace(study, parties=parties)
    pairs = zip(parties, study.weights.each.tolist(), strict=True)  # the weights that were signed
    return replace(study, parties=tuple(replace(party, weight=each) for party, each in pairs), weighting="own")
