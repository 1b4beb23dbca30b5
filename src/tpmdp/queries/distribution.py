"""The distribution function of a column at public edges: which share of the records has at most each value."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from statistics import NormalDist
from typing import ClassVar, Final, Self

import numpy as np

from tpmdp._util.arrays import FloatArray, IntArray
from tpmdp.data.table import ColumnKind, Table
from tpmdp.errors import InputError
from tpmdp.queries.answer import ALL_BINS, Z_95, Answer, FurtherInterval
from tpmdp.queries.bins import BINS_MAX, check_edges
from tpmdp.queries.categories import exact_name
from tpmdp.queries.cumulated import PrefixQuery, rising_of
from tpmdp.queries.ranges import Range, check_range, numbers

_BINS: Final = 20


@dataclass(frozen=True)
class Distribution(PrefixQuery):
    """The share of the records whose value is at most each edge: edges are listed, or equally spaced from low to high.

    >>> query = Distribution("stay", "days", (7.0, 30.0))
    >>> answers = query.answers(query.statistic({"days": np.array([3.0, 7.0, 8.0, 99.0])}), 4, 0.0)
    >>> [(answer.part, answer.value) for answer in answers]
    [('at most 7', 0.5), ('at most 30', 0.75)]
    """

    column: str
    edges: tuple[float, ...] = ()
    low: float = -math.inf
    high: float = math.inf
    bins: int = _BINS
    groups: int = field(default=1, kw_only=True, metadata={"hidden": True})  # whose bands hold at once

    kind: ClassVar[str] = "distribution"
    has_parts: ClassVar[bool] = True

    def __post_init__(self) -> None:
        if self.edges and (math.isfinite(self.low) or math.isfinite(self.high) or self.bins != _BINS):
            rule = "cannot be listed where low, high and bins say where they are"
            raise InputError(f"edges of {self.name}", f"{len(self.edges)} numbers", rule, "give one of the two")
        if self.edges:
            check_edges(self.name, self.edges)
            if not all(map(math.isfinite, self.edges)):
                rule = "must be finite: the share at most infinity is 1"
                raise InputError(f"edges of {self.name}", "infinity", rule, "leave it out")
            return
        if not (math.isfinite(self.low) and math.isfinite(self.high)):
            rule = "are missing"
            raise InputError(f"edges, or low and high of {self.name}", "(none)", rule, "give edges, or low and high")
        check_range(self.name, self.low, self.high)
        if not 1 <= self.bins <= BINS_MAX - 1:
            raise InputError(f"bins of {self.name}", self.bins, f"must be from 1 to {BINS_MAX - 1}", "change it")

    @property
    def columns(self) -> Mapping[str, ColumnKind]:
        return {self.column: "number"}

    @property
    def all_edges(self) -> FloatArray:
        """The edges, listed or equally spaced."""
        if self.edges:
            return np.array(self.edges, dtype=np.float64)
        step = (self.high - self.low) / self.bins
        return np.append(self.low + np.arange(self.bins) * step, self.high)

    @property
    def dimension(self) -> int:
        """Values up to the first edge, between each two, and above the last."""
        return len(self.all_edges) + 1

    @property
    def inner_edges(self) -> FloatArray:
        return self.all_edges

    @property
    def curve_at(self) -> Sequence[float]:
        return [float(edge) for edge in self.all_edges]

    @property
    def bounds(self) -> Range | None:
        low, high = float(self.all_edges[0]), float(self.all_edges[-1])
        try:
            return Range(self.column, low, high)
        except InputError:  # too close to each other to be a range
            return None

    def places(self, table: Table) -> IntArray:
        return np.searchsorted(self.all_edges, numbers(table, self.column), side="left").astype(np.int64)

    def of_group(self, place: int, groups: int) -> Self:
        del place
        return replace(self, groups=groups)

    def answers(self, total: FloatArray, records: int, standard_error: float) -> list[Answer]:
        """Shares that rise, with intervals for each edge and for all at once: Theory, "Distribution functions"."""
        cumulated = self.cumulated(total, records)
        lows, highs = cumulated.share_limits(Z_95, standard_error)
        limits_in_all = self.groups * len(self.all_edges)
        together = NormalDist().inv_cdf((1 + 0.95 ** (1 / limits_in_all)) / 2)  # Sidak
        bands = np.transpose(cumulated.share_limits(together, standard_error))
        whole = cumulated.total
        shares = np.clip(rising_of(cumulated.below) / whole, 0.0, 1.0) if whole > 0 else np.zeros(len(lows))
        errors = cumulated.share_errors(shares, standard_error)
        answers = []
        for place, edge in enumerate(self.all_edges.tolist(), start=1):
            part, share = f"at most {exact_name(edge)}", float(shares[place])
            limits = min(float(lows[place]), share), max(float(highs[place]), share)
            if limits == (0.0, 1.0):
                answers.append(Answer.drowned(self.name, part, limits, note="too few records for the noise"))
            else:
                low, high = (float(end) for end in bands[place])
                band = FurtherInterval(ALL_BINS, min(low, share), max(high, share))
                error = float(errors[place])
                answers.append(Answer(self.name, share, error, part=part, limits=limits, further=(band,)))
        return answers
