"""What a histogram releases so that the ranges asked of it have little noise.

For counts x of bins and ranges W x (each a union of adjacent bins) it releases S x plus noise, and reads W x by least
squares. S is the one of a few matrices for which the exact expected error of all ranges is least: bins, the ranges
themselves, both together with some weights, prefix sums by their factor. Theory, "Ranges".
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from typing import Final

import numpy as np

from tpmdp._util.arrays import FloatArray, IntArray
from tpmdp._util.canonical import canonical_json
from tpmdp.errors import InputError
from tpmdp.queries.prefix_factor import STEP, prefix_factor, root_up

RANGES_MAX: Final = 256
Places = tuple[tuple[int, int], ...]  # of each range, the first bin and the one after the last
_SCALE: Final = int(1 / STEP)
_WEIGHTS: Final = ((1, 1), (1, 2), (1, 4), (2, 1), (4, 1))  # of bins and ranges: entries divided by these
_MARGIN: Final = 0.99  # a later matrix must have this many times the error, so that rounding decides nothing


@dataclass(frozen=True, eq=False)
class RangeStrategy:
    """S, chosen for some ranges. Get it from `range_strategy`, which remembers it.

    Bins that no range tells apart are one; `group` is the column of S that each bin belongs to, or -1.

    >>> strategy = range_strategy(4, ((0, 1), (1, 3), (0, 3)))
    >>> counts = np.array([5, 2, 1, 9])
    >>> strategy.name, strategy.read(strategy.applied(counts)).round(9)
    ('ranges', array([5., 3., 8.]))
    """

    name: str
    group: IntArray = field(repr=False)
    steps: IntArray = field(repr=False)  # S in multiples of STEP
    reading: FloatArray = field(repr=False)  # what turns S x into the ranges

    @cached_property
    def digest(self) -> str:
        """Of S and of which bins are one, exactly. Parties sign it: the choice compares rounded numbers."""
        exact = canonical_json([self.group.tolist(), self.steps.tolist()])
        return hashlib.sha256(b"tpmdp ranges 1" + exact.encode()).hexdigest()

    @property
    def matrix(self) -> FloatArray:
        """S, with a column for each group of bins."""
        return np.asarray(self.steps * STEP, dtype=np.float64)

    def applied(self, counts: IntArray) -> FloatArray:
        """S x, exactly, for whole counts of all bins of up to 2^40 records."""
        whole = np.asarray(counts, dtype=np.int64)
        inside = self.group >= 0
        grouped = np.zeros(self.steps.shape[1], dtype=np.int64)
        np.add.at(grouped, self.group[inside], whole[inside])
        return np.asarray((self.steps @ grouped) * STEP, dtype=np.float64)

    def features(self, places: IntArray) -> list[FloatArray]:
        """For each entry of S x, what a record adds that is in this bin; nothing where the bin is negative."""
        column = np.where(places >= 0, self.group[np.maximum(places, 0)], -1)
        return [np.where(column >= 0, row[np.maximum(column, 0)], 0.0) for row in self.matrix]

    def read(self, vector: FloatArray) -> FloatArray:
        """The ranges."""
        return np.asarray(self.reading @ vector, dtype=np.float64)

    @cached_property
    def errors(self) -> FloatArray:
        """The standard errors of the ranges if every entry of the vector has noise of variance 1."""
        return np.asarray(np.linalg.norm(self.reading, axis=1), dtype=np.float64)

    @cached_property
    def spread(self) -> float:
        """The largest distance of two columns, or length of one, rounded up: a record may be in no range."""
        return _widest(self.steps)

    @cached_property
    def size(self) -> float:
        """The largest length of a column, rounded up."""
        return root_up(int((self.steps**2).sum(axis=0).max()))


@lru_cache(maxsize=32)
def range_strategy(bins: int, ranges: Places) -> RangeStrategy:
    """The same on every machine: a party that chose another S would sign other terms, and no session would start."""
    if not 1 <= len(ranges) <= RANGES_MAX:
        raise InputError("ranges", f"{len(ranges)} of them", f"must be from 1 to {RANGES_MAX}", "ask for fewer")
    ends = sorted({end for pair in ranges for end in pair})
    asked = np.array([[low <= start < high for start in ends[:-1]] for low, high in ranges], dtype=np.int64)
    used = asked.any(axis=0)  # gaps between ranges are not released
    groups = np.full(bins, -1, dtype=np.int64)
    for column, start in enumerate(np.flatnonzero(used).tolist()):
        groups[ends[start] : ends[start + 1]] = column
    asked = asked[:, used]
    best: RangeStrategy | None = None
    least = math.inf
    for name, steps in _candidates(asked):
        reading = np.asarray(asked @ np.linalg.pinv(steps * STEP, rcond=1e-9), dtype=np.float64)
        error = _widest(steps) ** 2 * float((reading**2).sum())
        if best is None or error < _MARGIN * least:
            best, least = RangeStrategy(name, groups, steps=steps, reading=reading), error
    assert best is not None
    return best


def _candidates(asked: IntArray) -> Iterator[tuple[str, IntArray]]:
    """Matrices whose rows span the ranges, none with an entry above 1, in multiples of STEP."""
    groups = asked.shape[1]
    bins = np.eye(groups, dtype=np.int64)
    yield "bins", _SCALE * bins
    yield "ranges", _SCALE * asked
    for of_bins, of_ranges in _WEIGHTS:
        yield (
            f"bins / {of_bins} and ranges / {of_ranges}",
            np.concatenate([_SCALE // of_bins * bins, _SCALE // of_ranges * asked]),
        )
    lag = np.subtract.outer(np.arange(groups), np.arange(groups))
    yield "factor of prefix sums", np.where(lag >= 0, prefix_factor(groups).steps[np.maximum(lag, 0)], 0)


def _widest(steps: IntArray) -> float:
    """The largest distance of two columns, or of a column from nothing, rounded up."""
    whole = steps.astype(np.float64)  # sums of products are whole numbers below 2^53: exact in any order
    products = whole.T @ whole
    squares = np.diag(products)
    distances = squares[:, None] + squares[None, :] - 2 * products
    return root_up(int(max(distances.max(), squares.max())))
