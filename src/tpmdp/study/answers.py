"""From the sum that a session gave to answers with error bars."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace

import numpy as np

from tpmdp._util.arrays import FloatArray, IntArray
from tpmdp.data.frame import Records, as_table
from tpmdp.protocol.terms import Terms
from tpmdp.queries.answer import Answer
from tpmdp.queries.computation import MaskedSum
from tpmdp.queries.rounds import Point
from tpmdp.study.model import Study


def answers(study: Study, terms: Terms, steps: IntArray, missing: Collection[str] = ()) -> list[Answer]:
    """The answers from a sum in grid steps; `missing` are parties that dropped out, whose records are not counted.

    A round that is not the last gives what the study gives if it ends there.
    """
    if study.part is not None and not study.part.is_last:
        return study.part.whole.schedule.stopped(study.part.number, points_after(study, terms, steps))
    counted = without(study, missing) if missing else study
    totals = _totals(counted, terms, steps, present=set(range(terms.count)) - set(map(study.index, missing)))
    return [answer for query in counted.queries for answer in counted.answers_of(query, *totals[query.name])]


def points_after(study: Study, terms: Terms, steps: IntArray) -> dict[str, Point]:
    """The points that a round leads to, which all parties compute from its sum in grid steps."""
    assert study.part is not None
    schedule, number, points = study.part.whole.schedule, study.part.number, dict(study.part.points)
    totals = _totals(study, terms, steps, present=set(range(terms.count)))
    return schedule.next_points(number, points, totals, records=study.records)


def _totals(
    study: Study, terms: Terms, steps: IntArray, present: Collection[int]
) -> dict[str, tuple[FloatArray, float]]:
    """Each query's total, scaled back, and its standard error."""
    noise, back = terms.standard_deviation_of(present), study.weights.scale
    computation = study.computation
    parts = computation.split(terms.grid.decode(steps), list(study.party_records))
    return {
        query.name: (part * back, noise / scale * back)
        for query, part, scale in zip(study.queries, parts, computation.answer_scales, strict=True)
    }


def without(study: Study, names: Collection[str]) -> Study:
    """The study as it was answered: parties that dropped out have no records in it."""
    parties = tuple(replace(party, records=0) if party.name in names else party for party in study.parties)
    if study.weighting == "equal":
        return replace(study, parties=parties)
    pairs = zip(parties, study.weights.each.tolist(), strict=True)  # the weights that were signed
    return replace(study, parties=tuple(replace(party, weight=each) for party, each in pairs), weighting="own")


def without_noise(study: Study, tables: Mapping[str, Records]) -> list[Answer]:
    """The exact answers of a study of sums, all records counted alike: of made-up tables, as nothing hides them.

    >>> import numpy as np
    >>> study = (Study.new("flu", threshold=1, receivers="all", delta=1e-6).count("age", at_least=65)
    ...          .party("north", epsilon=1, records=2).party("south", epsilon=2, records=1).build())
    >>> tables = {"north": {"age": np.array([70.0, 20.0])}, "south": {"age": np.array([66.0])}}
    >>> [answer.value for answer in without_noise(study, tables)]
    [2.0]
    """
    alike = replace(study, weighting="equal")
    now, points = alike.first, dict[str, Point]()
    for number in range(1, alike.rounds):
        exact = {name: (total, 0.0) for name, total in _exact_totals(now, tables).items()}
        points = alike.schedule.next_points(number, points, exact, records=alike.records)
        now = alike.round(number + 1, points)
    totals = _exact_totals(now, tables)
    return [answer for query in now.queries for answer in now.answers_of(query, totals[query.name], 0.0)]


def _exact_totals(study: Study, tables: Mapping[str, Records]) -> dict[str, FloatArray]:
    """Each query's total over the records of all parties."""
    computation = study.computation
    assert isinstance(computation, MaskedSum)
    total = np.zeros(study.dimension)
    for name in (party.name for party in study.parties if party.records):
        total += computation.statistic(as_table(tables[name], study.columns_of(name), name), 1.0)
    parts = computation.split(total, list(study.party_records))
    return {query.name: part for query, part in zip(study.queries, parts, strict=True)}
