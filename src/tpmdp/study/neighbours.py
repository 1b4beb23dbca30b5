"""Neighbouring tables that move the answer of a study as far as a search finds: made up, for audits."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from tpmdp.data.table import Column, Table, Text
from tpmdp.noise.grid import sum_of_squares
from tpmdp.queries.base import Query
from tpmdp.queries.computation import MaskedSum
from tpmdp.queries.search import Record, farthest_records
from tpmdp.study.model import Study
from tpmdp.study.rehearsal import made_up_tables


@dataclass(frozen=True, eq=False)
class Neighbours:
    """Tables of one party: a first one, a neighbour of it, and one that is `apart` steps away in the same direction."""

    first: Table
    neighbour: Table
    group: Table
    apart: int


def neighbours_of(study: Study, groups: Mapping[str, int], seed: int) -> dict[str, Neighbours]:
    """Tables for every party with records; `groups` says how many records differ in the third table.

    The study has keys.

    Where all records of a party are protected at once, all of them differ, and third and second table are the same.

    >>> from tpmdp.study.cost import trial_study
    >>> study = (Study.new("flu", threshold=1, receivers="all", delta=1e-6).count("age", at_least=65)
    ...          .party("north", epsilon=1, records=100).party("south", epsilon=2, records=80).build())
    >>> tables = neighbours_of(trial_study(study), {"north": 7, "south": 1}, 0)["north"]
    >>> [int(np.count_nonzero(tables.first["age"] != other["age"])) for other in (tables.neighbour, tables.group)]
    [1, 7]
    """
    low, high = _farthest(study, seed)
    result = {}
    for name, table in made_up_tables(study, seed).items():
        all_records = study.unit == "party"
        rows = study.party(name).records if all_records else groups[name]
        first = _with_record(table, low, rows)
        neighbour = _with_record(first, high, rows if all_records else 1)
        apart = 1 if all_records else groups[name]
        result[name] = Neighbours(first, neighbour, _with_record(table, high, rows), apart=apart)
    return result


def _farthest(study: Study, seed: int) -> tuple[Record, Record]:
    """The records that move the joint vector of all rounds most, each round measured by its noise."""
    queries: list[Query] = []
    scales: list[float] = []
    for each, terms in zip(study.preview_rounds, study.preview_terms, strict=True):
        computation = each.computation
        assert isinstance(computation, MaskedSum)
        noise = math.sqrt(sum_of_squares(terms.sigma)) * terms.grid.step
        factor = 1.0 / noise if noise and study.rounds > 1 else 1.0
        queries += computation.sums
        scales += [scale * factor for scale in computation.scales]
    return farthest_records(queries, scales, study.unit, seed=seed)


def _with_record(table: Table, record: Record, rows: int) -> Table:
    """The table with this record in place of its first ones."""
    return {column: _with_value(values, record[column], rows) for column, values in table.items()}


def _with_value(values: Column, value: float | str, rows: int) -> Column:
    if isinstance(values, Text):
        entries = [values.values[code] for code in values.codes[rows:].tolist()]
        return Text.of([str(value)] * rows + entries)
    changed = np.array(values, dtype=np.float64)
    changed[:rows] = float(value)
    return changed
