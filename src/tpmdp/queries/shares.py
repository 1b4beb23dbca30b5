"""Values of a column as shares of a public range, added up exactly."""

from __future__ import annotations

import numpy as np

from tpmdp.validate import FloatArray


def shares_of(values: FloatArray, low: float, high: float) -> FloatArray:
    """Where clipped values lie in the range, from its middle: each in [-1/2, 1/2].

    >>> shares_of(np.array([0.0, 5.0, 99.0]), 0.0, 10.0)
    array([-0.5,  0. ,  0.5])
    """
    return np.clip((np.clip(values, low, high) - low) / (high - low) - 0.5, -0.5, 0.5)


def exact_total(shares: FloatArray) -> float:
    """The sum of numbers in [-1/2, 1/2], such that replacing one of them moves it by at most 1, exactly.

    They become whole multiples of a power of two small enough that the sum is exact: a floating-point sum would let one
    record move it by a little more than its share. They are rounded up or down by a dither that depends on the place
    only, so that the errors of many records do not add up.

    >>> exact_total(np.array([-0.5, 0.5, 0.5]))
    0.5
    """
    scale = 2.0 ** (52 - len(shares).bit_length())
    dither = np.random.default_rng(0).random(len(shares))  # public
    whole = np.clip(np.floor(shares * scale + dither), -scale / 2, scale / 2).astype(np.int64)
    return float(whole.sum() / scale)
