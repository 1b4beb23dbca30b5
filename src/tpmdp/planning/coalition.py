"""The worst dangerous coalition against each party, for any variance vector, in O(n log n).

Against party j the worst coalition takes the largest variances among the others, forced to include a receiver
(Theory, "Worst coalitions"). Sums are exact, so a party that gets exactly its need is never reported short.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np
from numpy.typing import ArrayLike

from tpmdp._util.arrays import BoolArray, FloatArray, IntArray
from tpmdp._util.budget_rules import as_floats
from tpmdp._util.exact import exact_sum, prefix_sums, to_float, to_integer, to_integers
from tpmdp.errors import InputError
from tpmdp.spec import check_receivers, check_threshold

VARIANCE_MAX: Final = 1e290  # far above every need; sums of variances stay doubles


@dataclass(frozen=True, eq=False)
class WorstCoalitions:
    """For each party the least honest noise over all dangerous coalitions, and a coalition that attains it.

    `honest_variance` is infinite for a party no dangerous coalition can attack.
    """

    variance: FloatArray
    honest_variance: FloatArray
    _order: IntArray  # parties by falling variance
    _start: IntArray  # position in _order from which everybody is honest, by party; 0: no dangerous coalition
    _own: BoolArray  # whether the party itself stands before _start
    _forced: IntArray  # position of the receiver forced into the coalition, or -1

    def coalition(self, party: int) -> IntArray:
        """The members of one worst coalition against the party, in index order; empty if there is none.

        >>> worst_coalitions([3.0, 2.0, 1.0], threshold=1, receivers=[2]).coalition(0)
        array([2])
        """
        start = int(self._start[party])
        members = self._order[:start]
        if self._own[party]:
            members = members[members != party]
        forced = int(self._forced[party])
        if forced >= 0:
            members = np.append(members[:-1], self._order[forced])
        return np.sort(members)

    def exact_honest(self) -> list[int | None]:
        """The least honest noise of each party as a whole number of 2**-1074, exactly; None if it is infinite."""
        ordered = to_integers(self.variance[self._order])
        below = prefix_sums(reversed(ordered))
        count = len(ordered)
        own = to_integers(self.variance)
        result: list[int | None] = []
        rows = zip(self._start.tolist(), self._own.tolist(), self._forced.tolist(), own, strict=True)
        for start, is_own, forced, mine in rows:
            if start == 0:
                result.append(None)
                continue
            honest = below[count - start] + (mine if is_own else 0)
            if forced >= 0:
                honest += ordered[start - 1] - ordered[forced]
            result.append(honest)
        return result


def worst_coalitions(variance: ArrayLike, threshold: ArrayLike, receivers: Any) -> WorstCoalitions:
    """The worst dangerous coalition against every party under these variances, however they were computed.

    `receivers` is a mask, a list of indices or "all"; `threshold` may be an array with one entry per party.

    >>> worst_coalitions([3.0, 2.0, 1.0], threshold=1, receivers=[True, True, True]).honest_variance
    array([4., 3., 3.])
    """
    values = np.atleast_1d(as_floats("variance", variance))
    bad = ~((values >= 0) & (values <= VARIANCE_MAX))
    if bad.any():
        value = float(values[int(np.argmax(bad))])
        raise InputError("variance", value, f"must lie in [0, {VARIANCE_MAX:g}]", "give one variance per party")
    count = len(values)
    checked = check_threshold(as_floats("threshold", threshold), count)
    mask = check_receivers(receivers, count)
    thresholds = np.broadcast_to(np.asarray(checked, dtype=np.int64), (count,))
    return _worst(values, thresholds, mask, personal=not isinstance(checked, int))


def _worst(variance: FloatArray, thresholds: IntArray, receivers: BoolArray, personal: bool) -> WorstCoalitions:
    order = np.argsort(-variance, kind="stable").astype(np.int64)
    rank = np.empty_like(order)
    rank[order] = np.arange(len(order))
    own = rank < thresholds
    start = thresholds + own
    positions = np.flatnonzero(receivers[order])[:2]
    first, second = (int(positions[i]) if len(positions) > i else -1 for i in (0, 1))
    receiver = np.where(rank == first, second, first)  # the best placed receiver other than the party itself
    safe = (thresholds == 0) | (receiver < 0)
    forced = np.where(receiver >= start, receiver, -1)
    start, own = np.where(safe, 0, start), own & ~safe
    forced = np.where(safe, -1, forced)
    result = WorstCoalitions(variance, np.full(len(order), np.inf), order, _start=start, _own=own, _forced=forced)
    if personal:
        exact = result.exact_honest()
        honest = np.array([np.inf if value is None else to_float(value) for value in exact])
    else:
        honest = _common_threshold_honest(result)
    honest.flags.writeable = False
    return replace(result, honest_variance=honest)


def _common_threshold_honest(worst: WorstCoalitions) -> FloatArray:
    """Honest noise when all parties share a threshold: a handful of exact sums, plus each party's own variance."""
    variance, order, start, own, forced = worst.variance, worst._order, worst._start, worst._own, worst._forced
    honest = np.full(len(order), np.inf)
    attacked = start > 0
    if not attacked.any():
        return honest
    sums: dict[int, int] = {}
    groups = [attacked & (own == flag) for flag in (False, True)]
    for group in groups:
        for receiver in np.unique(forced[group]).tolist():  # at most: none, the first, the second receiver
            members = np.flatnonzero(group & (forced == receiver))
            at = int(start[members[0]])
            if at not in sums:
                sums[at] = exact_sum(variance[order[at:]]) if at < len(order) else 0
            constant = sums[at]
            if receiver >= 0:
                constant += to_integer(float(variance[order[at - 1]])) - to_integer(float(variance[order[receiver]]))
            added = variance[members] if own[members[0]] else np.zeros(len(members))
            honest[members] = _add_exact(added, constant)
    return honest


def _add_exact(values: FloatArray, constant: int) -> FloatArray:
    """values + constant to within one unit in the last place, and never below a double that the exact sum reaches.

    The constant is carried as a double and its remainder (Knuth's two-sum).
    """
    high = to_float(constant)
    low = to_float(constant - to_integer(high))
    total = values + high
    virtual = total - values
    error = (values - (total - virtual)) + (high - virtual)
    return total + (error + low)
