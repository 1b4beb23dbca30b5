"""The sum of a column over all records, with public bounds."""

from __future__ import annotations

from dataclasses import dataclass

from tpmdp.queries.base import Answer
from tpmdp.queries.mean import Mean
from tpmdp.validate import FloatArray


@dataclass(frozen=True)
class Sum(Mean):
    """The sum of a column whose values are clipped to [low, high]: the mean times the public number of records.

    >>> import numpy as np
    >>> query = Sum("days in all", "days", 0, 10)
    >>> query.answers(query.statistic({"days": np.array([0.0, 10.0, 99.0])}), 3, 0.0)[0].value
    20.0
    """

    def answers(self, total: FloatArray, records: int, standard_error: float) -> list[Answer]:
        """Back to the scale of the column."""
        (mean,) = super().answers(total, records, standard_error)
        return [Answer(self.name, mean.value * records, mean.standard_error * records)]
