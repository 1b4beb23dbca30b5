"""Sums of features without floating-point errors.

In a floating-point sum, rounding depends on all records, so one record could move it by more than its own change.
Here features become whole multiples of a power of two that depends on the public number of records only, and whole
numbers are added. One replaced record then moves the sum by its own change plus at most one multiple; the final cut to
what a double holds adds at most 2**9 multiples once. `Query.sensitivity` counts both.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np

from tpmdp._util.arrays import FloatArray, IntArray
from tpmdp.errors import InputError

_BITS: Final = 61  # of a sum
_CUT: Final = 9  # bits that a double does not hold: 61 - 52


def _scale(records: int, largest: float) -> float:
    return 2.0 ** (_BITS - records.bit_length()) / largest


def exact_total(features: Sequence[FloatArray], rows: int, records: int, largest: float = 1.0) -> IntArray:
    """The sums of features of some of a party's records, as whole numbers for `rounding_of`.

    >>> rounding_of(exact_total([np.array([0.5, 0.25]), np.ones(2)], 2, 2), 2)
    array([0.75, 2.  ])
    """
    scale = _scale(records, largest)
    totals = np.zeros(len(features), dtype=np.int64)
    for place, feature in enumerate(features):
        if feature.shape != (rows,):
            rule = f"must be one number per record ({rows})"
            raise InputError("shape of a feature", feature.shape, rule, "correct the query")
        if not np.isfinite(feature).all():
            raise InputError("feature", place + 1, "is not finite for some record", "clip in the query")
        whole = np.rint(np.clip(feature, -largest, largest) * scale)
        totals[place] = whole.astype(np.int64).sum()
    return totals


def rounding_of(total: IntArray, records: int, largest: float = 1.0) -> FloatArray:
    """The nearest sums that doubles hold exactly."""
    return ((total >> _CUT) << _CUT).astype(np.float64) / _scale(records, largest)
