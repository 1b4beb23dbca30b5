"""Releases with normal noise of a known standard error, by one round or several, and what they would be without."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Final

import numpy as np

from tpmdp._util.arrays import FloatArray
from tpmdp.data.table import Table
from tpmdp.experiments.coverage_data import RECORDS
from tpmdp.queries.answer import Answer
from tpmdp.queries.base import Query
from tpmdp.queries.newton import COEFFICIENT_MAX
from tpmdp.queries.rounds import Point, RoundsQuery

_STEPS: Final = 60
_SETTLED: Final = 1e-9


@dataclass(frozen=True)
class Releases:
    """A query, asked of the same records again and again."""

    query: Query
    table: Table

    @cached_property
    def exact(self) -> FloatArray:
        """The sums that the first round releases, without noise."""
        return self._sums(self._first)

    @property
    def _first(self) -> Query:
        return self.query.asked(1, ()) if isinstance(self.query, RoundsQuery) else self.query

    def _sums(self, query: Query) -> FloatArray:
        return query.statistic({name: self.table[name] for name in query.columns})

    def runs(self, count: int, error: float, random: np.random.Generator) -> Iterator[list[Answer]]:
        """The answers of so many releases; `error` is what a sum would have if one round had the whole budget."""
        if isinstance(self.query, RoundsQuery):
            for _ in range(count):
                yield self._by_rounds(self.query, error, random)
            return
        for noise in random.normal(0, error, (count, len(self.exact))):
            yield self.query.answers(self.exact + noise, RECORDS, error)

    def _by_rounds(self, query: RoundsQuery, whole: float, random: np.random.Generator) -> list[Answer]:
        """Each round has its share of mu squared, so its noise is larger by one over the root of the share."""
        point: Point = ()
        errors = [whole / math.sqrt(share) for share in query.shares]
        for number, error in enumerate(errors, start=1):
            asked = query.asked(number, point)
            sums = self.exact if number == 1 else self._sums(asked)
            total = sums + random.normal(0, error, asked.dimension)
            if number < query.rounds:
                point = query.next_point(number, point, total=total, records=RECORDS, standard_error=error)
        return asked.answers(total, RECORDS, errors[-1])

    def noiseless(self) -> list[float]:
        """What the query answers without noise; NaN where there is no such number.

        For models by rounds that is where rounds without end lead to: the largest likelihood, if there is one.
        """
        if isinstance(self.query, RoundsQuery):
            return self._likeliest(self.query)
        answers = self.query.answers(self.exact, RECORDS, 0.0)
        return [answer.value if math.isfinite(answer.interval[0]) else math.nan for answer in answers]

    def _likeliest(self, query: RoundsQuery) -> list[float]:
        point, before, total = query.guessed_point, query.guessed_point, self.exact
        for _ in range(_STEPS):
            asked = query.asked(query.rounds, point)
            total, before = self._sums(asked), point
            point = query.next_point(query.rounds, point, total=total, records=RECORDS, standard_error=0.0)
        answers = query.asked(query.rounds, before).answers(total, RECORDS, 0.0)
        return [
            answer.value if abs(end - start) < _SETTLED and abs(end) < COEFFICIENT_MAX else math.nan
            for answer, start, end in zip(answers, before, point, strict=True)
        ]
