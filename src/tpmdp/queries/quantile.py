"""Quantiles of a column, read off its noisy distribution function at equally spaced edges between public bounds."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass
from typing import ClassVar, Final

import numpy as np

from tpmdp._util.arrays import FloatArray, IntArray
from tpmdp.data.table import Table
from tpmdp.errors import InputError
from tpmdp.queries.answer import Z_95, Answer
from tpmdp.queries.bins import BINS_MAX
from tpmdp.queries.bounded import BoundedQuery
from tpmdp.queries.categories import exact_name
from tpmdp.queries.cumulated import PrefixQuery, rising_of
from tpmdp.queries.ranges import Range

_BINS: Final = 64
_MEDIAN: Final = (0.5,)


@dataclass(frozen=True)
class Quantiles(PrefixQuery, BoundedQuery):
    """Values below which these shares of the records lie; values are clipped to [low, high] and put into equal bins.

    >>> query = Quantiles("stay", "days", 0, 10, probabilities=(0.25, 0.75), bins=10)
    >>> answers = query.answers(query.statistic({"days": np.arange(10) + 0.5}), 10, 0.0)
    >>> [answer.value for answer in answers]
    [2.5, 7.5]
    """

    probabilities: tuple[float, ...] = _MEDIAN
    bins: int = _BINS

    kind: ClassVar[str] = "quantiles"

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 2 <= self.bins <= BINS_MAX:
            raise InputError(f"bins of {self.name}", self.bins, f"must be from 2 to {BINS_MAX}", "change it")
        if not self.probabilities or not all(0 < share < 1 for share in self.probabilities):
            text = ", ".join(f"{share:g}" for share in self.probabilities)
            raise InputError(f"probabilities of {self.name}", text, "must lie between 0 and 1", "0.5 is the median")

    @property
    def dimension(self) -> int:
        return self.bins

    @property
    def vector(self) -> Hashable:
        return self.bounds, self.bins

    @property
    def resolution(self) -> float:
        """Where a quantile lies within its bin is not known."""
        return self.width / self.bins

    @property
    def inner_edges(self) -> FloatArray:
        return np.linspace(self.low, self.high, self.bins + 1)[1:-1]

    @property
    def bounds(self) -> Range:
        return Range(self.column, self.low, self.high)

    def places(self, table: Table) -> IntArray:
        shares = self.shares(table) + 0.5
        return np.minimum((shares * self.bins).astype(np.int64), self.bins - 1)

    def answers(self, total: FloatArray, records: int, standard_error: float) -> list[Answer]:
        """Where the noisy cumulated counts cross each share, and where they might: Theory, "Quantiles"."""
        edges = np.linspace(self.low, self.high, self.bins + 1)
        cumulated = self.cumulated(total, records)
        answers = []
        for share in self.probabilities:
            gap, errors = cumulated.less_share(share)
            error = standard_error * errors
            first = int(np.argmax(gap >= -Z_95 * error))  # the last gap is not negative, but for rounding
            last = self.bins - int(np.argmax(gap[::-1] <= Z_95 * error[::-1]))
            limits = float(edges[max(first - 1, 0)]), float(edges[min(last + 1, self.bins)])
            value = min(max(_crossing(edges, rising_of(gap)), limits[0]), limits[1])
            width = (limits[1] - limits[0]) / (2 * Z_95)
            part = f"{exact_name(round(100 * share, 12))} %"
            answers.append(Answer(self.name, value, width, part=part, limits=limits))
        return answers


def _crossing(edges: FloatArray, rising: FloatArray) -> float:
    """Where a rising curve crosses 0.

    >>> _crossing(np.array([0.0, 1.0, 2.0]), np.array([-1.0, 0.0, 1.0]))
    1.0
    """
    after = int(np.searchsorted(rising, 0.0, side="left"))
    if after == 0 or after == len(rising):
        return float(edges[min(after, len(edges) - 1)])
    low, high = rising[after - 1], rising[after]
    share = -low / (high - low)
    return float(edges[after - 1] + share * (edges[after] - edges[after - 1]))
