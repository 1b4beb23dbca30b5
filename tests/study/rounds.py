"""A query by rounds for tests: the mean of a column, first roughly, then at the point that the round before gave."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np

from tpmdp import Study
from tpmdp._util.arrays import FloatArray
from tpmdp.data.table import ColumnKind, Table
from tpmdp.queries.answer import Answer
from tpmdp.queries.base import Query
from tpmdp.queries.catalogue import KINDS, Kinds
from tpmdp.queries.ranges import numbers
from tpmdp.queries.rounds import Point, RoundsQuery


@dataclass(frozen=True)
class Zoom(RoundsQuery):
    """The mean of a column in [0, 1]: each round sums the distances from the point, clipped to [-1, 1], as it is."""

    column: str
    center: float = 0.0

    leaves: ClassVar[str] = "the sum of the clipped distances from the point"
    has_parts: ClassVar[bool] = True
    largest: ClassVar[float] = 1.0

    @property
    def spread(self) -> float:
        return 1.0

    @property
    def dimension(self) -> int:
        return 1

    @property
    def columns(self) -> Mapping[str, ColumnKind]:
        return {self.column: "number"}

    @property
    def guessed_point(self) -> Point:
        return (0.5,)

    @property
    def shares(self) -> tuple[float, ...]:
        rest = self.rounds - 1
        return (*([0.3 / rest] * rest), 0.7) if rest else (1.0,)

    def features(self, table: Table) -> list[FloatArray]:
        return [np.clip(numbers(table, self.column), 0.0, 1.0) - self.center]

    def asked(self, number: int, point: Point) -> Query:
        del number
        return replace(self, rounds=1, center=point[0] if point else 0.0)

    def next_point(self, number: int, point: Point, *, total: FloatArray, records: int, standard_error: float) -> Point:
        del number, standard_error
        center = point[0] if point else 0.0
        return (min(max(center + float(total[0]) / records, 0.0), 1.0),)

    def stopped(self, number: int, point: Point) -> list[Answer]:
        return [Answer(self.name, point[0], float("inf"), note=f"round {number} only")]

    def answers(self, total: FloatArray, records: int, standard_error: float) -> list[Answer]:
        return [Answer(self.name, self.center + float(total[0]) / records, standard_error / records)]


ZOOM_KINDS: Kinds = {**KINDS, "zoom": Zoom}
QUERIES = """
from tests.study.rounds import Zoom as Base
from dataclasses import dataclass

@dataclass(frozen=True)
class Zoom(Base):
    pass
"""


def study_by_rounds(names: str = "ab", rounds: int = 3, **changes: Any) -> Study:
    """A study with one query by rounds, and whatever else is given."""
    parties = [{"name": name, "epsilon": 1.0 + place / 2, "records": 50} for place, name in enumerate(names)]
    query = {"name": "mean", "kind": "zoom", "column": "x", "rounds": rounds}
    document = {"name": "rounds", "delta": 1e-6, "threshold": 1, "receivers": "all"}
    return Study.parse({**document, "parties": parties, "queries": [query], **changes}, ZOOM_KINDS)


def tables_for(study: Study, seed: int = 1) -> dict[str, dict[str, FloatArray]]:
    """Records of all parties."""
    random = np.random.default_rng(seed)
    return {party.name: {"x": random.random(party.records)} for party in study.parties if party.records}
