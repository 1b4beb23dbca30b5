"""Questions about how many records lie below public edges: what they release, and what is read from it.

Released is not the histogram x of the bins between the edges but C x, from which prefix sums are read with far less
noise: see `prefix_factor`.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from dataclasses import dataclass
from typing import ClassVar, Final

import numpy as np

from tpmdp._util.arrays import FloatArray, IntArray
from tpmdp.data.table import Table
from tpmdp.queries.base import Query
from tpmdp.queries.guesses import TypicalData
from tpmdp.queries.prefix_factor import STEP, PrefixFactor, prefix_factor
from tpmdp.queries.ranges import Range

_TINY: Final = 1e-9  # of the noise of an entry; a sum without noise stays between 0 and the total


@dataclass(frozen=True, eq=False)
class Cumulated:
    """Noisy numbers of records in the first 0, 1, ... and all bins; their errors are normal, of mean 0.

    `variances` are theirs, and `with_total` their covariances with the last one, if every entry of the released vector
    has noise of variance 1. A total that is public has none.
    """

    below: FloatArray
    variances: FloatArray
    with_total: FloatArray

    @classmethod
    def read(cls, vector: FloatArray, total: int | None) -> Cumulated:
        """From C x plus noise; a public total makes all sums more precise: Theory, "Factor of prefix sums".

        >>> cumulated = Cumulated.read(prefix_factor(3).applied(np.array([2, 0, 5])), total=7)
        >>> cumulated.below, cumulated.variances.round(2)
        (array([0., 2., 2., 7.]), array([0.  , 0.9 , 0.91, 0.  ]))
        """
        factor = prefix_factor(len(vector))
        below, variances = factor.prefix_sums(vector), factor.variances
        with_total = factor.covariances_with_total
        if total is not None:
            share = with_total / variances[-1]
            below = below - share * (below[-1] - total)
            variances = np.maximum(variances - share * with_total, 0.0)
            below[-1], variances[-1], with_total = total, 0.0, np.zeros(len(vector))
        return cls(*(np.concatenate(([0.0], each)) for each in (below, variances, with_total)))

    @property
    def total(self) -> float:
        """The number of all records that count, which noise may have made negative."""
        return float(self.below[-1])

    def less_share(self, share: float) -> tuple[FloatArray, FloatArray]:
        """The sums less this share of the total, and their standard errors if every entry has noise of variance 1."""
        return self.below - share * self.total, self._errors(np.full(len(self.below), share))

    def _errors(self, shares: FloatArray) -> FloatArray:
        variances = self.variances + shares * shares * self.variances[-1] - 2 * shares * self.with_total
        return np.asarray(np.sqrt(np.maximum(variances, 0.0)), dtype=np.float64)

    def share_errors(self, shares: FloatArray, standard_error: float) -> FloatArray:
        """To first order, the standard errors of these shares of the total."""
        errors = standard_error * self._errors(shares)
        return errors / self.total if self.total > 0 else np.full(len(shares), np.inf)

    def share_limits(self, quantile: float, standard_error: float) -> tuple[FloatArray, FloatArray]:
        """For each sum, the shares of the total that it cannot exclude: Theory, "Distribution functions".

        `quantile` is that of the normal distribution, 1.96 for 95 %. All shares where they are not an interval.
        """
        sums, total, variance = self.below, self.total, float(self.variances[-1])
        above = np.maximum(sums - total, 0.0) / np.maximum(self._errors(np.ones(len(sums))), _TINY)
        under = np.maximum(-sums, 0.0) / np.maximum(np.sqrt(self.variances), _TINY)
        reach = (quantile * standard_error) ** 2 + above**2 + under**2  # a share below 0 or above 1 excludes less
        bottom = total * total - reach * variance
        middle = sums * total - reach * self.with_total
        cross = total * total * self.variances + sums * sums * variance - 2 * total * sums * self.with_total
        inside = reach * cross - reach * reach * (self.variances * variance - self.with_total**2)
        is_interval = (bottom > 0) & (inside >= 0)
        root, safe = np.sqrt(np.maximum(inside, 0.0)), np.where(is_interval, bottom, 1.0)
        low, high = (np.where(is_interval, (middle + side * root) / safe, max(side, 0.0)) for side in (-1.0, 1.0))
        return np.clip(low, 0.0, 1.0), np.clip(high, 0.0, 1.0)


@dataclass(frozen=True)
class PrefixQuery(Query):
    """A sum C x, x the histogram of a record's bin."""

    leaves: ClassVar[str] = "weighted sums of the numbers of records in the bins up to each edge"
    step: ClassVar[float] = STEP

    @abstractmethod
    def places(self, table: Table) -> IntArray:
        """The bin of every record."""

    @property
    @abstractmethod
    def inner_edges(self) -> FloatArray:
        """The edges between the bins: one fewer than there are bins."""

    @property
    @abstractmethod
    def bounds(self) -> Range | None:
        """Where most values may lie, for made-up data."""

    @property
    def factor(self) -> PrefixFactor:
        """C."""
        return prefix_factor(self.dimension)

    @property
    def spread(self) -> float:
        """A record leaves one bin and enters another."""
        return self.factor.distance

    @property
    def size(self) -> float:
        return self.factor.norm

    def features(self, table: Table) -> list[FloatArray]:
        return self.factor.features(self.places(table))

    def statistic(self, table: Table, records: int | None = None) -> FloatArray:
        """C times the party's counts, without a column for each bin."""
        del records
        return self.factor.applied(np.bincount(self.places(table), minlength=self.dimension))

    def cumulated(self, total: FloatArray, records: int) -> Cumulated:
        """What is read from the noisy vector; the number of all records is public, but not of those of a part."""
        return Cumulated.read(total, records if self.mode == "all" else None)

    def typical(self, records: float) -> FloatArray:
        """As many records in each bin."""
        return self.factor.product(np.full(self.dimension, records / self.dimension))

    def guess(self, records: float, scenario: TypicalData) -> FloatArray:
        """Values like a bell, those outside the bounds in the outer bins."""
        bounds = self.bounds
        if bounds is None or scenario.spreads_evenly(bounds.column):
            return self.typical(records)
        mean, deviation = scenario.shape(bounds)
        places = ((self.inner_edges - bounds.low) / bounds.width * 2 - 1 - mean) / deviation
        below = [(1 + math.erf(place / math.sqrt(2))) / 2 for place in places.tolist()]
        return self.factor.product(records * np.diff(np.array([0.0, *below, 1.0])))


def rising_of(sums: FloatArray) -> FloatArray:
    """Noisy sums made to rise: the average of their least rising majorant and their greatest rising minorant.

    >>> rising_of(np.array([0.0, 3.0, 1.0, 4.0]))
    array([0., 2., 2., 4.])
    """
    return (np.maximum.accumulate(sums) + np.minimum.accumulate(sums[::-1])[::-1]) / 2
