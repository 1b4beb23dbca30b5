"""Mechanisms to compare a plan with that need no data: each is a total variance (the paper's Section 6).

`tpmdp.mechanisms` has these, and those that need data (Sample, PLDP), for experiments; tests compare the two.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from tpmdp._util.arrays import BoolArray, FloatArray
from tpmdp._util.exact import exact_sum, to_float
from tpmdp.planning.closed_form import Case, case_of, optimal_variance, ranking


class Baseline(NamedTuple):
    """A mechanism's name and the variance of the noise in its answer, per coordinate."""

    name: str
    meaning: str
    total_variance: float

    @property
    def standard_deviation(self) -> float:
        """Expected error (RMSE) of each coordinate."""
        return math.sqrt(self.total_variance)


def total(need: FloatArray, threshold: int, receivers: BoolArray) -> float:
    """Total variance of the optimal plan for these needs.

    >>> total(np.array([4.0, 1.0]), 1, np.array([True, True]))
    5.0
    """
    return to_float(exact_sum(optimal_variance(need, threshold, receivers)[0]))


def tmdp(need: FloatArray, threshold: int, receivers: BoolArray) -> Baseline:
    """TMDP: all parties get the protection of the strictest party.

    >>> tmdp(np.array([4.0, 1.0]), 1, np.array([True, True])).total_variance
    8.0
    """
    strictest = np.full(len(need), need.max())
    return Baseline("TMDP", "one budget for all: the strictest", total(strictest, threshold, receivers))


def non_threshold(need: FloatArray, receivers: BoolArray) -> Baseline:
    """non-thre: the plan against any number of colluders, t = n - 1.

    >>> non_threshold(np.array([4.0, 1.0, 1.0]), np.full(3, True)).total_variance
    6.0
    """
    return Baseline("non-threshold", "all others may collude", total(need, len(need) - 1, receivers))


def trusted_curator(need: FloatArray) -> Baseline:
    """MIN: a trusted curator adds the noise the strictest party needs, once.

    >>> trusted_curator(np.array([4.0, 1.0])).total_variance
    4.0
    """
    return Baseline("trusted curator", "a third party sees all the data", float(need.max()))


def planning_baselines(need: FloatArray, threshold: int, receivers: BoolArray) -> list[Baseline]:
    """The baselines that need no data, in the order they are shown.

    >>> [baseline.name for baseline in planning_baselines(np.ones(3), 1, np.full(3, True))]
    ['TMDP', 'non-threshold', 'trusted curator']
    """
    return [tmdp(need, threshold, receivers), non_threshold(need, receivers), trusted_curator(need)]


def totals_by_threshold(need: FloatArray, thresholds: list[int], receivers: BoolArray) -> FloatArray:
    """Total variance of the optimal plan at each of these thresholds: one sort, then O(1) per threshold.

    >>> totals_by_threshold(np.array([4.0, 1.0]), [0, 1], np.array([True, True]))
    array([0., 5.])
    """
    count, k = len(need), int(np.count_nonzero(receivers))
    ordered = np.sort(need)[::-1]
    outside = np.sort(need[~receivers])[::-1]
    sums, outside_sums = np.cumsum(ordered), np.cumsum(outside)

    def by_rank(values: FloatArray, running: FloatArray, *, parties: int, threshold: int) -> float:
        rank, numerator = ranking(parties, threshold)
        above = float(running[rank - 2]) if rank > 1 else 0.0
        return above + numerator / (parties - threshold) * float(values[rank - 1])

    result = np.zeros(len(thresholds))
    for position, threshold in enumerate(thresholds):
        case = case_of(count, threshold, k)
        if case is Case.FEW_RECEIVERS:
            weight = (threshold - 1) / (count - k - threshold + 1)
            result[position] = ordered[0] + weight * ordered[1]
        elif case is Case.ONE_RECEIVER:
            result[position] = by_rank(outside, outside_sums, parties=count - 1, threshold=threshold - 1)
        elif case is not Case.NO_ADVERSARY:
            result[position] = by_rank(ordered, sums, parties=count, threshold=threshold)
    return result
