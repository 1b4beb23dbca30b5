"""Weights that make the most of many budgets: party j contributes w_j x_j, which scales its need by w_j^2.

The optimal total variance of needs u is v(u) = max sum a_j u_j over 0 <= a_j <= 1, sum a_j = burden (docs/theory.md,
"Weights"). So the best weights and the worst a are a saddle point, found by one root of an increasing function.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import Final

import numpy as np

from tpmdp.errors import InputError
from tpmdp.planning.closed_form import Case, case_of
from tpmdp.validate import BoolArray, FloatArray

_STEPS_MAX: Final = 200


@dataclass(frozen=True, eq=False)
class Balance:
    """Weights, the largest of them 1; and the pressure a that proves them best."""

    weights: FloatArray
    pressure: FloatArray
    bound: float
    """No weights have a smaller expected squared error of the rescaled sum."""


def burden(count: int, threshold: int, receiver_count: int) -> Fraction:
    """How many largest needs the optimal plan adds up, the last one in part; n/(n - t) where all receive.

    >>> burden(1000, 500, 1000), burden(5, 4, 5), burden(9, 2, 3), burden(9, 2, 1)
    (Fraction(2, 1), Fraction(5, 1), Fraction(6, 5), Fraction(8, 7))
    """
    case = case_of(count, threshold, receiver_count)
    if case is Case.NO_ADVERSARY:
        return Fraction(0)
    if case is Case.ONE_RECEIVER:
        return Fraction(count - 1, count - threshold)
    if case is Case.FEW_RECEIVERS:
        return Fraction(count - receiver_count, count - receiver_count - threshold + 1)
    return Fraction(count, count - threshold)


def concerned(threshold: int, receivers: BoolArray) -> BoolArray:
    """Whose needs count: all, but for a sole receiver, which cannot be attacked without itself.

    >>> concerned(1, np.array([True, False])).tolist()
    [False, True]
    """
    alone = case_of(len(receivers), threshold, int(np.count_nonzero(receivers))) is Case.ONE_RECEIVER
    return ~receivers if alone else np.ones(len(receivers), dtype=np.bool_)


def balance(need: FloatArray, threshold: int, receivers: BoolArray, spread: float) -> Balance:
    """The weights of least expected squared error (n / sum w)^2 v(w) + spread^2 sum (n w_j / sum w - 1)^2.

    `spread` bounds the standard deviation of a party's contribution. With pressure a, the weights are
    1/(a_j need_j + spread^2): equal where a = 0, as 1/sqrt(need) in between, and as for independent errors where a = 1.

    >>> found = balance(np.array([100.0, 4.0, 1.0, 1.0]), 1, np.full(4, True), 0.5)
    >>> found.weights.round(3), round(found.bound, 3)
    (array([0.1, 0.5, 1. , 1. ]), 3.493)
    """
    if not (np.isfinite(spread) and spread > 0):
        raise InputError("spread", spread, "must be a positive number", "give half the range of a contribution")
    count, square = len(need), spread * spread
    pressed = (need > 0) & concerned(threshold, receivers)
    whole = burden(count, threshold, int(np.count_nonzero(receivers)))
    room = min(float(whole), float(np.count_nonzero(pressed)))
    pressure = np.zeros(count)
    if room:
        pressure[pressed] = _pressure(np.sqrt(need[pressed]), room, square)
    inverse = 1.0 / (pressure * need + square)
    bound = count**2 / float(inverse.sum()) - count * square
    return Balance(inverse / inverse.max(), pressure, max(bound, 0.0))


def _pressure(sigma: FloatArray, room: float, square: float) -> FloatArray:
    """a_j = level/sigma_j - spread^2/sigma_j^2, kept from 0 to 1, at the level where they add up to `room`.

    The sum rises with the level, straight between points where somebody reaches 0 or 1. Newton's steps, kept between
    bounds, end in the straight piece that holds the root.
    """
    start, end = square / sigma, sigma + square / sigma
    low, high = float(start.min()), float(end.max())
    slopes, offsets = 1.0 / sigma, square / sigma**2
    level = low
    pressure = np.zeros_like(sigma)
    for _ in range(_STEPS_MAX):
        pressure = np.clip(level * slopes - offsets, 0.0, 1.0)
        missing = room - float(pressure.sum())
        if missing > 0:
            low = level
        else:
            high = level
        slope = float(slopes[(start <= level) & (level < end)].sum())
        step = level + missing / slope if slope else high
        if not low < step < high:
            step = 0.5 * (low + high)
        if step == level or abs(missing) <= 1e-15 * room:
            break
        level = step
    return pressure
