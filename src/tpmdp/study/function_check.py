"""A search for inputs of which a function of two parties moves further than declared, before anybody pays.

The function is computed in the clear, by SPU's interpreter, on made-up inputs within the bounds. The search tries their
ends and random values, changes one record of one party, and climbs from the pairs that moved furthest. It finds
mistakes; it proves nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np

from tpmdp._util.arrays import FloatArray, IntArray
from tpmdp._util.function_file import function_file
from tpmdp.engines.spu.pair_process import PairProcess
from tpmdp.errors import InputError
from tpmdp.queries.pair_function import PairFunction
from tpmdp.queries.ranges import Range
from tpmdp.queries.share_query import Parties

RECORDS: Final = 6  # at most, of each party
TRIES: Final = 1024  # at once
_CLIMBS: Final = 12
_BEST: Final = 64
_UP: Final = 1 + 2.0**-40


def check_function(query: PairFunction, parties: Parties) -> None:
    """Refuse a function that gives something else than declared, or moves further."""
    process = PairProcess()
    try:
        process.ready()
        _Search(query, parties, process).run()
    finally:
        process.stop()


class _Search:
    """Pairs of tables that differ in one record of one party."""

    def __init__(self, query: PairFunction, parties: Parties, process: PairProcess) -> None:
        self._query, self._process = query, process
        self._random = np.random.default_rng()  # nobody can write a function that hides from a known seed
        ranges = {each.column: each for each in query.bounds}
        self._ranges = [[ranges[column] for column in columns] for _, columns in query.held_by]
        counts = [min(RECORDS, parties[name]) for name, _ in query.held_by]
        self._shapes = [(len(own), count) for own, count in zip(self._ranges, counts, strict=True)]

    def run(self) -> None:
        """Try, then climb."""
        tables = [self._values(side, TRIES) for side in (0, 1)]
        others = self._changed(tables)
        for _ in range(_CLIMBS):
            moved = self._moved(tables, others)
            best = np.argsort(moved)[-_BEST:]
            chosen = self._random.choice(best, TRIES)
            tables, others = [each[chosen] for each in tables], [each[chosen] for each in others]
            tables, others = self._mutated(tables, others)
        self._moved(tables, others)

    def _values(self, side: int, count: int) -> IntArray:
        """Random tables: ends of the bounds, values near them, and any value, in different shares."""
        rows = [self._column(bounds, count, self._shapes[side][1]) for bounds in self._ranges[side]]
        return np.stack(rows, axis=1)

    def _column(self, bounds: Range, count: int, records: int) -> IntArray:
        low, high = int(bounds.low), int(bounds.high)
        anywhere = self._random.integers(low, high, size=(count, records), endpoint=True)
        ends = self._random.choice([low, high], size=(count, records))
        near = np.clip(np.round(low + np.abs(self._random.normal(0, 3, size=(count, records)))), low, high)
        kinds = self._random.random((count, 1))  # one mixture for each table
        picked = np.where(self._random.random((count, records)) < kinds, ends, anywhere)
        result: IntArray = np.where(self._random.random((count, records)) < 0.2, near, picked).astype(np.int64)
        return result

    def _changed(self, tables: Sequence[IntArray]) -> list[IntArray]:
        """The same tables with one record of one side drawn anew."""
        others = [each.copy() for each in tables]
        side = self._random.integers(0, 2, size=TRIES)
        for which in (0, 1):
            rows = np.flatnonzero(side == which)
            place = self._random.integers(0, self._shapes[which][1], size=len(rows))
            fresh = self._values(which, TRIES)
            others[which][rows, :, place] = fresh[rows, :, place]
        return others

    def _mutated(self, tables: Sequence[IntArray], others: Sequence[IntArray]) -> tuple[list[IntArray], list[IntArray]]:
        """A value drawn anew in half of the pairs: in both tables, unless its record is the one that differs."""
        first, second = [each.copy() for each in tables], [each.copy() for each in others]
        for which in (0, 1):
            rows = np.flatnonzero(self._random.random(TRIES) < 0.5)
            columns, records = self._shapes[which]
            column = self._random.integers(0, columns, size=len(rows))
            place = self._random.integers(0, records, size=len(rows))
            fresh = self._values(which, TRIES)[rows, column, place]
            same = (first[which][rows, :, place] == second[which][rows, :, place]).all(axis=1)
            second[which][rows, column, place] = fresh
            first[which][rows[same], column[same], place[same]] = fresh[same]
        return first, second

    def _moved(self, tables: Sequence[IntArray], others: Sequence[IntArray]) -> FloatArray:
        """How far each pair moves the results; refuses what goes beyond what is declared."""
        query = self._query
        before, after = self._results(tables), self._results(others)
        distance: FloatArray = np.sqrt(((after - before) ** 2).sum(axis=1))
        largest, entry = float(distance.max()), float(max(np.abs(before).max(), np.abs(after).max()))
        if largest > query.sensitivity * _UP:
            rule = f"is wrong: one record was found to move the results by {largest:.6g}"
            raise InputError(f"sensitivity of {query.name}", query.sensitivity, rule, "correct it, or the function")
        if entry > query.largest * _UP:
            rule = f"is wrong: a result of {entry:.6g} was found"
            raise InputError(f"largest of {query.name}", query.largest, rule, "correct it, or the function")
        return distance

    def _results(self, tables: Sequence[IntArray]) -> FloatArray:
        query = self._query
        name = query.function.partition(":")[2]
        results = self._process.evaluate(function_file(query.function), name, left=tables[0], right=tables[1])
        if results is None or results.shape != (TRIES, query.dimension):
            rule = f"must give {query.dimension} whole numbers of 64 bits, in one dimension"
            raise InputError(f"function of {query.name}", query.function, rule, "correct it, or the query's results")
        return results.astype(np.float64)
