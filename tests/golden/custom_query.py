"""A query of a user, whose hash is part of what parties sign. Do not change this file."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from tpmdp import Answer, Query


@dataclass(frozen=True)
class Halves(Query):
    column: str
    limit: float

    @property
    def columns(self) -> Mapping[str, Any]:
        return {self.column: "number"}

    @property
    def dimension(self) -> int:
        return 1

    @property
    def spread(self) -> float:
        return 1.0

    def features(self, table: Mapping[str, Any]) -> list[Any]:
        return [np.where(table[self.column] < self.limit, 0.5, -0.5)]

    def answers(self, total: Any, records: int, standard_error: float) -> list[Answer]:
        return [Answer(self.name, float(total[0]) / records, standard_error / records)]
