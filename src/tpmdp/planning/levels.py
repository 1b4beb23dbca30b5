"""Weights with one or two levels: the baselines that balanced weights are compared with (Theory, "Weights", W7).

The m most liberal parties have weight 1. The others have weight 0 in one effective budget (T), and one weight from 0 to
1 in common with two levels. Both are the best of their kind: over all m, and over the weight of the others. Each error
follows from prefix sums of the sorted needs, without a plan.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np

from tpmdp._util.arrays import BoolArray, FloatArray, IntArray
from tpmdp.planning.balance import burden, concerned

SPLITS_MAX: Final = 4096
"""So many numbers of liberal parties are tried at once; with more parties, twice so many are tried in two rounds."""
_HALVINGS: Final = 26  # the error is flat about the best share, so half the digits are enough


@dataclass(frozen=True, eq=False)
class Levels:
    """The best weights of a kind, the largest of which is 1, and their expected squared error."""

    weights: FloatArray
    expected_square: float


def one_budget(
    need: FloatArray, threshold: int, receivers: BoolArray, spread: float, records: FloatArray | None = None
) -> Levels:
    """Weight 1 for the m most liberal parties and 0 for the others, at the m of least expected squared error.

    >>> one_budget(np.array([100.0, 4.0, 1.0, 1.0]), 1, np.full(4, True), 0.5).weights
    array([0., 0., 1., 1.])
    """
    split = _Split.of(need, threshold, receivers, spread=spread, records=records)
    every = np.arange(1, len(split.order) + 1)
    error = split.error(every, np.zeros(len(every)))[0]
    return split.levels(int(every[np.argmin(error)]), 0.0)


def two_levels(
    need: FloatArray, threshold: int, receivers: BoolArray, spread: float, records: FloatArray | None = None
) -> Levels:
    """Weight 1 for the m most liberal parties and one weight for the others, of least expected squared error.

    >>> two_levels(np.array([100.0, 4.0, 1.0, 1.0]), 1, np.full(4, True), 0.5).weights.round(3)
    array([0.1, 0.1, 1. , 1. ])
    """
    split = _Split.of(need, threshold, receivers, spread=spread, records=records)
    count = len(split.order)
    tried = np.unique(np.linspace(1, count, min(count, SPLITS_MAX)).astype(np.int64))
    best, share = split.best(tried)
    if count > SPLITS_MAX:  # the same again, between the neighbours of the best one
        place = int(np.searchsorted(tried, best))
        first, last = int(tried[max(place - 1, 0)]), int(tried[min(place + 1, len(tried) - 1)])
        best, share = split.best(np.unique(np.linspace(first, last, SPLITS_MAX).astype(np.int64)))
    return split.levels(best, share)


class _Split:
    """Parties with records, the most liberal first, and prefix sums of their needs, records and squares of records.

    A point is a number m of liberal parties and the share of the others: by which factor each of their records counts
    in the rescaled sum, from 0 to 1. The share of the liberal ones follows, as all together count as N records.
    """

    def __init__(self, need: FloatArray, room: float, sizes: FloatArray, *, square: float, order: IntArray) -> None:
        self.order, self.sizes, self.square = order, sizes, square
        there = sizes[order]
        self._need = need[order]
        self._needs = _sums(self._need)
        self._records, self._squares = _sums(there), _sums(there**2)
        self._room = min(room, float(len(order)))

    @classmethod
    def of(
        cls, need: FloatArray, threshold: int, receivers: BoolArray, spread: float, records: FloatArray | None
    ) -> _Split:
        """The needs that count, sorted."""
        count = len(need)
        sizes = np.ones(count) if records is None else records
        counted = np.where(concerned(threshold, receivers), need, 0.0)
        order = np.argsort(counted, kind="stable")
        order = order[sizes[order] > 0]
        room = float(burden(count, threshold, int(np.count_nonzero(receivers))))
        return cls(counted, room, sizes, square=spread * spread, order=order)

    def levels(self, liberal: int, share: float) -> Levels:
        """The weights and the error at a point; parties without records have weight 0."""
        weights = np.zeros(len(self.sizes))
        most = self._liberal_share(np.array([liberal]), np.array([share]))[0]
        weights[self.order[:liberal]] = 1.0
        weights[self.order[liberal:]] = share / most
        return Levels(weights, float(self.error(np.array([liberal]), np.array([share]))[0][0]))

    def best(self, liberal: IntArray) -> tuple[int, float]:
        """The best of these m, with the best share of the others for it.

        The error is convex in the share, so halving finds where its slope changes sign.
        """
        low, high = np.zeros(len(liberal)), np.ones(len(liberal))
        for _ in range(_HALVINGS):
            middle = 0.5 * (low + high)
            rises = self.error(liberal, middle)[1] > 0
            low, high = np.where(rises, low, middle), np.where(rises, middle, high)
        ends = np.stack([np.zeros_like(low), low, high])  # 0 is one effective budget
        errors = np.stack([self.error(liberal, share)[0] for share in ends])
        which, place = np.unravel_index(int(np.argmin(errors)), errors.shape)
        return int(liberal[place]), float(ends[which, place])

    def _liberal_share(self, liberal: IntArray, share: FloatArray) -> FloatArray:
        inside, whole = self._records[liberal], self._records[-1]
        return np.asarray((whole - share * (whole - inside)) / inside, dtype=np.float64)

    def error(self, liberal: IntArray, share: FloatArray) -> tuple[FloatArray, FloatArray]:
        """The expected squared error at each point, and its slope in the share."""
        most = self._liberal_share(liberal, share)
        falls = 1.0 - self._records[-1] / self._records[liberal]  # the slope of `most`
        ours, theirs = self._pressed(liberal, most**2, share**2)
        inside = self._squares[liberal]
        outside = self._squares[-1] - inside
        error = most**2 * ours + share**2 * theirs
        error += self.square * ((most - 1) ** 2 * inside + (share - 1) ** 2 * outside)
        slope = most * falls * ours + share * theirs
        slope += self.square * ((most - 1) * falls * inside + (share - 1) * outside)
        return error, 2 * slope

    def _pressed(self, liberal: IntArray, upper: FloatArray, lower: FloatArray) -> tuple[FloatArray, FloatArray]:
        """The needs of both levels that the least noise adds up: the largest ones, after these factors, `room` in all.

        The last of them counts in part. Both levels are sorted, so halving finds how many are liberal.
        """
        count, need = len(self._need), self._need
        whole = int(np.ceil(self._room))
        low, high = np.maximum(0, whole - (count - liberal)), np.minimum(whole, liberal)
        for _ in range(int(whole).bit_length() + 1):
            middle = (low + high + 1) // 2
            inner = np.clip(liberal - middle, 0, count - 1)
            outer = np.clip(count - whole + middle - 1, 0, count - 1)
            is_larger = upper * need[inner] >= lower * need[outer]
            searched = low < high
            low = np.where(searched & is_larger, middle, low)
            high = np.where(searched & ~is_larger, middle - 1, high)
        ours = self._needs[liberal] - self._needs[liberal - low]
        theirs = self._needs[-1] - self._needs[count - whole + low]
        least_ours = np.where(low > 0, need[np.clip(liberal - low, 0, count - 1)], np.inf)
        least_theirs = np.where(low < whole, need[np.clip(count - whole + low, 0, count - 1)], np.inf)
        left_out = whole - self._room
        with np.errstate(invalid="ignore"):  # 0 times infinity is no candidate for the least
            from_ours = ~(upper * least_ours > lower * least_theirs) & (low > 0)
        if left_out:
            ours = ours - left_out * np.where(from_ours, least_ours, 0.0)
            theirs = theirs - left_out * np.where(from_ours | (low == whole), 0.0, least_theirs)
        return ours, theirs


def _sums(values: FloatArray) -> FloatArray:
    return np.concatenate(([0.0], np.cumsum(values)))
