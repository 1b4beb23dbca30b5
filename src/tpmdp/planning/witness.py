"""The dual side of a plan: a compact proof that no plan can use less noise (Theory, "Certificate").

A witness is a set of groups. A group is fixed at one party, has a weight, and gives every other party a marginal in
[0, 1]. Groups that look alike are stored once, as a `Bundle`: marginals are given per class of parties, and one group
is fixed at each member. All numbers are fractions; the size is O(n).
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from tpmdp._util.arrays import BoolArray, FloatArray, IntArray
from tpmdp.planning.closed_form import Case, case_of, ranking, two_largest


@dataclass(frozen=True, eq=False)
class Bundle:
    """Groups that differ only in the party they are fixed at: one for each member."""

    members: IntArray
    weight: Fraction
    marginals: tuple[Fraction, ...]  # by class; a group's own fixed party is left out of its marginals


@dataclass(frozen=True, eq=False)
class Witness:
    """A class for every party, and the bundles."""

    classes: IntArray
    bundles: tuple[Bundle, ...]


def build_witness(need: FloatArray, threshold: int, receivers: BoolArray) -> Witness:
    """The witness for the closed form at these needs.

    >>> witness = build_witness(np.array([4.0, 1.0]), 1, np.array([True, True]))
    >>> [(bundle.members.tolist(), bundle.weight) for bundle in witness.bundles]
    [([0], Fraction(1, 1)), ([1], Fraction(1, 1))]
    """
    count = len(need)
    case = case_of(count, threshold, int(np.count_nonzero(receivers)))
    if case is Case.NO_ADVERSARY:
        return Witness(np.zeros(count, dtype=np.int64), ())
    if case is Case.FEW_RECEIVERS:
        return _few_receivers(need, threshold, receivers)
    if case is Case.ONE_RECEIVER:
        others = np.flatnonzero(~receivers)
        part = _all_receive(need[others], threshold - 1, np.ones(len(others), dtype=np.bool_))
        classes = np.full(count, 4, dtype=np.int64)  # class 4: the receiver, marginal 0 everywhere
        classes[others] = part.classes
        return Witness(
            classes, tuple(Bundle(others[b.members], b.weight, (*b.marginals, Fraction(0))) for b in part.bundles)
        )
    return _all_receive(need, threshold, receivers)


def _share(total: Fraction, count: int) -> Fraction:
    return total / count if count else Fraction(0)


def _all_receive(need: FloatArray, threshold: int, receivers: BoolArray) -> Witness:
    """Alg. 2 (and cases 1 and 3). Classes: 0 top, 1 the party at the rank, 2 lower receivers, 3 lower others."""
    count = len(need)
    rank, numerator = ranking(count, threshold)
    weight = Fraction(numerator, count - threshold)
    top, pivot = _top(need, rank)
    lower = np.ones(count, dtype=np.bool_)
    lower[top] = False
    lower[pivot] = False
    classes = np.where(receivers, 2, 3)
    classes[top], classes[pivot] = 0, 1
    inside = int(np.count_nonzero(lower & receivers))
    outside = int(np.count_nonzero(lower)) - inside
    total_receivers = int(np.count_nonzero(receivers))
    pivot_receives = int(receivers[pivot])
    quiet, loud = top[~receivers[top]], top[receivers[top]]
    size = count - threshold - 1
    even = _share(1 - weight, len(top))
    at_loud = even
    if len(loud) == 1 and len(quiet):  # its group may use the other receivers, all of them below, only up to a limit
        spare = Fraction(total_receivers - 2)
        at_loud = min(even, spare) if pivot_receives else max(even, size - outside - spare)
    at_quiet = _share(1 - weight - len(loud) * at_loud, len(quiet))
    # For each kind of group: members, weight, marginal at the pivot, and the most its receivers below may sum to.
    kinds = [
        (quiet, Fraction(1), at_quiet, total_receivers - 1 - pivot_receives * at_quiet),
        (loud, Fraction(1), at_loud, total_receivers - 2 - pivot_receives * at_loud),
        (np.array([pivot]), weight, Fraction(0), Fraction(total_receivers - 1 - pivot_receives)),
    ]
    kinds = [kind for kind in kinds if len(kind[0]) and kind[1]]
    lows = [max(Fraction(0), size - marginal - outside) for _, _, marginal, _ in kinds]
    highs = [min(Fraction(inside), size - marginal, cap) for _, _, marginal, cap in kinds]
    weights = [len(members) * each for members, each, _, _ in kinds]
    least = sum((w * low for w, low in zip(weights, lows, strict=True)), Fraction(0))
    most = sum((w * high for w, high in zip(weights, highs, strict=True)), Fraction(0))
    position = (inside - least) / (most - least) if most != least else Fraction(0)
    bundles = []
    for (members, each, marginal, _), low, high in zip(kinds, lows, highs, strict=True):
        received = low + position * (high - low)
        rest = size - marginal - received
        marginals = (Fraction(0), marginal, _share(received, inside), _share(rest, outside))
        bundles.append(Bundle(members.astype(np.int64), each, marginals))
    return Witness(classes.astype(np.int64), tuple(bundles))


def _top(need: FloatArray, rank: int) -> tuple[IntArray, int]:
    """The rank - 1 parties of largest need and the next one, ties by index."""
    quota = np.partition(need, len(need) - rank)[len(need) - rank]
    strict, ties = np.flatnonzero(need > quota), np.flatnonzero(need == quota)
    missing = rank - 1 - len(strict)
    return np.concatenate((strict, ties[:missing])), int(ties[missing])


def _few_receivers(need: FloatArray, threshold: int, receivers: BoolArray) -> Witness:
    """Case 4: two groups. Classes: 0 largest need, 1 second largest, 2 other receivers, 3 other parties."""
    count = len(need)
    k = int(np.count_nonzero(receivers))
    divisor = count - k - threshold + 1
    first = two_largest(need)[0]
    rest = need.copy()
    rest[first] = -1.0
    second = int(np.argmax(rest))
    c = Fraction(threshold - 1, divisor)
    in_first, in_second = bool(receivers[first]), bool(receivers[second])
    inside = k - in_first - in_second
    outside = count - k - (not in_first) - (not in_second)
    # Each group uses the receivers as far as its complement stays dangerous: their number (without its own) - 1.
    on_second = min(1 - c, Fraction(k - 2)) if in_first and in_second else 1 - c
    by_first = Fraction(k - 1 - in_first) - (on_second if in_second else 0)
    by_second = Fraction(k - 1 - in_second)
    if in_first:  # the first party takes none of the second group's marginals
        by_second = min(by_second, Fraction(inside))
    size = count - threshold - 1
    bundles = []
    groups = ((first, Fraction(1), on_second, by_first), (second, c, Fraction(0), by_second))
    for party, weight, marginal, share in groups:
        if weight:
            left = size - marginal - share
            marginals = (Fraction(0), marginal, _share(share, inside), _share(left, outside))
            bundles.append(Bundle(np.array([party], dtype=np.int64), weight, marginals))
    classes = np.where(receivers, 2, 3)
    classes[first], classes[second] = 0, 1
    return Witness(classes.astype(np.int64), tuple(bundles))
