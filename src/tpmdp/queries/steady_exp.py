"""The exponential of arrays, by + - * / of single doubles only.

NumPy's may differ in the last place between machines, and between places of one array. Here each number depends on
its own input only, so that a record adds the same whatever stands beside it.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from tpmdp._util.arrays import FloatArray

_LOG2_E: Final = 1.4426950408889634
_LN2_HIGH: Final = 0.693147180369123816490  # 21 zero bits at its end, so that products with whole numbers are exact
_LN2_LOW: Final = 1.90821492927058770002e-10
_TERMS: Final = 14
_LOWEST: Final = -700.0


def exp_below_0(values: FloatArray) -> FloatArray:
    """e to the power of numbers up to 0, to a few units in the last place; those below -700 count as -700.

    >>> exp_below_0(np.array([0.0, -1.0, -1e9])).round(6)
    array([1.      , 0.367879, 0.      ])
    """
    values = np.clip(values, _LOWEST, 0.0)
    halvings = np.rint(values * _LOG2_E)
    rest = (values - halvings * _LN2_HIGH) - halvings * _LN2_LOW
    series = np.ones_like(rest)
    for term in range(_TERMS, 0, -1):
        series = 1.0 + rest * series / term
    return np.minimum(np.ldexp(series, halvings.astype(np.int64)), 1.0)


def logistic(values: FloatArray) -> FloatArray:
    """1 / (1 + e^-v).

    >>> logistic(np.array([0.0, 800.0, -800.0])).round(6)
    array([0.5, 1. , 0. ])
    """
    small = exp_below_0(-np.abs(values))
    return np.where(values >= 0, 1.0, small) / (1.0 + small)
