"""A share of a budget: what one of several Gaussian releases may cost, if all of them together keep the budget.

A budget is worth mu, that of the noise calibrated to it. Releases with mu_k promise together what one with
sqrt(sum mu_k^2) does, so a share s of the budget is any budget worth sqrt(s) mu. Theory, "Studies by
rounds".
"""

from __future__ import annotations

from typing import Final

import numpy as np
from numpy.typing import ArrayLike

from tpmdp._util.arrays import FloatArray
from tpmdp._util.budget_rules import DELTA_MIN, EPSILON_MIN, as_floats
from tpmdp.errors import InputError
from tpmdp.gaussian.calibration import calibrate, delta_at, epsilon_at

_BITS: Final = 24  # of a budget, so that parties compute the same one on different machines
_SLACK: Final = 2.0**-22  # above what all roundings and the closeness of discrete noise cost; relative, in mu
_CURVED: Final = 4.0  # how far below the delta at epsilon 0 the delta of a share stays: its epsilon is then about mu


def share_of_budget(epsilon: ArrayLike, delta: ArrayLike, share: float) -> tuple[FloatArray, FloatArray]:
    """Budgets, one per party, that are worth this share of these (in mu squared), rounded down.

    Delta stays as it is, unless it alone would cover so small a share. An infinite epsilon stays infinite.

    >>> epsilon, delta = share_of_budget([1.0, np.inf], [1e-6, 0.5], 0.25)
    >>> epsilon.round(4).tolist(), delta.tolist()
    ([0.4752, inf], [1e-06, 0.5])
    """
    if not 0 < share <= 1:
        raise InputError("share of a budget", share, "must be more than 0 and at most 1", "give a share")
    eps, dlt = np.broadcast_arrays(as_floats("epsilon", epsilon), as_floats("delta", delta))
    eps, dlt = np.atleast_1d(eps).copy(), np.atleast_1d(dlt).copy()
    finite = np.isfinite(eps)
    if share == 1 or not finite.any():
        return eps, dlt
    sigma = np.asarray(calibrate(eps[finite], dlt[finite])) * (1.0 + _SLACK) / np.sqrt(share)
    covered = np.asarray(delta_at(sigma, 0.0))  # by delta alone
    small = dlt[finite] > covered / _CURVED
    lowered = np.where(small, _shortened(covered / _CURVED), dlt[finite])
    if lowered.min() < DELTA_MIN:
        raise InputError("share of a budget", share, "leaves too little of a budget", "give parties larger budgets")
    least = _shortened(np.asarray(epsilon_at(sigma, lowered)))
    if least.min() < EPSILON_MIN:
        raise InputError("share of a budget", share, "leaves too little of a budget", "give parties larger budgets")
    eps[finite], dlt[finite] = least, lowered
    return eps, dlt


def _shortened(values: FloatArray) -> FloatArray:
    """The values with few significant bits, rounded down."""
    part, power = np.frexp(values)
    return np.asarray(np.ldexp(np.floor(part * 2.0**_BITS), power - _BITS), dtype=np.float64)
