"""Queries that are answered by rounds: each round releases a sum at a public point, which the round before gave.

All parties learn every point and must compute the same bits: only + - * / and square roots of single doubles, in a
fixed order, do that on every machine (no BLAS, no exp or log without rounding afterwards).
"""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass, field

import numpy as np

from tpmdp._util.arrays import FloatArray
from tpmdp.queries.answer import Answer
from tpmdp.queries.base import Query

Point = tuple[float, ...]


@dataclass(frozen=True)
class RoundsQuery(Query):
    """A sum that is asked `rounds` times, each time at the point that the last time led to.

    As an ordinary `Query` it behaves like the sum of its last round at a guessed point. Dimension, spread and size are
    the same for every point, and so is, about, the error for which previews need it. With `rounds` = 1 there is one
    sum only, and it is that.
    """

    rounds: int = field(default=4, kw_only=True)

    @property
    @abstractmethod
    def shares(self) -> tuple[float, ...]:
        """What share of the query's budget (of mu squared) each round gets; they add up to 1 at most."""

    @abstractmethod
    def asked(self, number: int, point: Point) -> Query:
        """The sum that round `number` (from 1) releases; the point is empty in round 1.

        It binds the point: two of them with different points have different settings. The answers of the last one are
        the answers of this query.
        """

    @abstractmethod
    def next_point(self, number: int, point: Point, *, total: FloatArray, records: int, standard_error: float) -> Point:
        """The point that round `number` leads to, from its noisy sum."""

    @abstractmethod
    def stopped(self, number: int, point: Point) -> list[Answer]:
        """The answers if it ends after round `number`, which led to this point: without intervals, with a note."""

    @property
    def guessed_point(self) -> Point:
        """A point at which the last round may be asked, for previews."""
        return ()

    def trial_point(self, random: np.random.Generator) -> Point:
        """A point at which two records may be far apart, for searches."""
        return tuple(random.normal(size=len(self.guessed_point)).tolist())
