"""Which query of a study is asked in which round, with what share of its budget, and at which point.

The study has as many rounds as its longest query. A query with fewer takes the last ones; an ordinary query is asked in
the last round only.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Final

from tpmdp._util.arrays import FloatArray
from tpmdp.errors import InputError
from tpmdp.queries.answer import Answer
from tpmdp.queries.base import BaseQuery, Query
from tpmdp.queries.rounds import Point, RoundsQuery

ROUNDS_MAX: Final = 20
_ROUNDING: Final = 2.0**-40  # by which shares may add up to more than 1: budgets are rounded down by more


@dataclass(frozen=True)
class Schedule:
    """The rounds of all queries of a study."""

    queries: tuple[BaseQuery, ...]

    @cached_property
    def count(self) -> int:
        """How many rounds there are; 1 if no query has more."""
        return max((query.rounds for query in self._by_rounds.values()), default=1)

    @cached_property
    def _by_rounds(self) -> dict[str, RoundsQuery]:
        return {query.name: query for query in self.queries if isinstance(query, RoundsQuery) and query.rounds > 1}

    @property
    def guessed_points(self) -> dict[str, Point]:
        """Points at which any round may be asked, for previews."""
        return {name: query.guessed_point for name, query in self._by_rounds.items()}

    def check(self) -> None:
        """Refuse queries that cannot be asked by rounds."""
        for query in self._by_rounds.values():
            if query.rounds > ROUNDS_MAX:
                raise InputError(f"rounds of {query.name}", query.rounds, f"must be at most {ROUNDS_MAX}", "lower it")
            shares = query.shares
            good = len(shares) == query.rounds and all(share > 0 for share in shares)
            if not good or math.fsum(shares) > 1 + _ROUNDING:
                rule = f"must be {query.rounds} numbers above 0 that add up to 1 at most"
                raise InputError(f"shares of {query.name}", shares, rule, "correct the query")

    def own_number(self, query: BaseQuery, number: int) -> int:
        """Which round of this query round `number` of the study is; below 1 if it is not asked yet."""
        inner = self._by_rounds.get(query.name)
        return number - self.count + (1 if inner is None else inner.rounds)

    def share_of(self, query: BaseQuery, number: int) -> float:
        """What share of the query's budget round `number` of the study has."""
        own, inner = self.own_number(query, number), self._by_rounds.get(query.name)
        if own < 1:
            return 0.0
        return 1.0 if inner is None else inner.shares[own - 1]

    def share(self, number: int) -> float:
        """What share of every party's budget round `number` has, by the weights of the queries.

        >>> from tpmdp.queries.count import Count
        >>> Schedule((Count("old", "age", at_least=65.0),)).share(1)
        1.0
        """
        weights = [(_weight(query), self.share_of(query, number)) for query in self.queries]
        total = math.fsum(weight for weight, _ in weights)
        return min(1.0, math.fsum(weight / total * share for weight, share in weights))

    def asked(self, number: int, points: Mapping[str, Point]) -> tuple[BaseQuery, ...]:
        """The queries of round `number`; each weight is what the round has of the query's budget."""
        result: list[BaseQuery] = []
        for query in self.queries:
            inner, share = self._by_rounds.get(query.name), self.share_of(query, number)
            if share == 0:
                continue
            if inner is None:
                result.append(query)
                continue
            asked = inner.asked(self.own_number(query, number), self._point(query, points))
            result.append(replace(asked, weight=_weight(query) * share))
        return tuple(result)

    def next_points(
        self, number: int, points: Mapping[str, Point], totals: Mapping[str, tuple[FloatArray, float]], *, records: int
    ) -> dict[str, Point]:
        """The points that round `number` leads to, from each query's total and its standard error."""
        result = {}
        for query in self.queries:
            inner, own = self._by_rounds.get(query.name), self.own_number(query, number)
            if inner is not None and own >= 1:
                total, error = totals[query.name]
                point = inner.next_point(
                    own, self._point(query, points), total=total, records=records, standard_error=error
                )
                result[query.name] = tuple(float(each) if math.isfinite(each) else 0.0 for each in point)
        return result

    def stopped(self, number: int, points: Mapping[str, Point]) -> list[Answer]:
        """The answers if the study ends after round `number`, which led to these points."""
        answers = []
        for query in self.queries:
            inner, own = self._by_rounds.get(query.name), self.own_number(query, number)
            if inner is not None and own >= 1:
                answers += inner.stopped(own, points[query.name])
        return answers

    def waiting(self, number: int) -> list[str]:
        """The queries that were not asked up to round `number`."""
        return [query.name for query in self.queries if self.own_number(query, number) < 1]

    def _point(self, query: BaseQuery, points: Mapping[str, Point]) -> Point:
        return points.get(query.name, ())


def _weight(query: BaseQuery) -> float:
    return query.weight if isinstance(query, Query) else 1.0
