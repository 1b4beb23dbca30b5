"""The best weights: party j contributes w_j x_j, which scales its need by w_j^2, and the sum is scaled back.

The optimal total variance of needs u is v(u) = max sum a_j u_j over 0 <= a_j <= 1, sum a_j = burden (Theory,
"Weights"). So the best weights and the worst a are a saddle point. It is the root of an increasing function; if parties
have different numbers of records, a second root is nested in the first.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import Final

import numpy as np

from tpmdp._util.arrays import BoolArray, FloatArray
from tpmdp.errors import InputError
from tpmdp.planning.closed_form import Case, case_of

_STEPS_MAX: Final = 200
_CLOSE: Final = 1e-15


@dataclass(frozen=True, eq=False)
class Balance:
    """Weights, the largest of which is 1, and the pressure a that proves them optimal."""

    weights: FloatArray
    pressure: FloatArray
    bound: float
    """No weights have a smaller expected squared error of the rescaled sum."""


def burden(count: int, threshold: int, receiver_count: int) -> Fraction:
    """How many of the largest needs the optimal plan adds up, the last one in part; n/(n - t) if all receive.

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
    """The parties whose needs count: all except a sole receiver, which cannot be attacked without itself.

    >>> concerned(1, np.array([True, False])).tolist()
    [False, True]
    """
    alone = case_of(len(receivers), threshold, int(np.count_nonzero(receivers))) is Case.ONE_RECEIVER
    return ~receivers if alone else np.ones(len(receivers), dtype=np.bool_)


def balance(
    need: FloatArray, threshold: int, receivers: BoolArray, spread: float, records: FloatArray | None = None
) -> Balance:
    """The weights of least expected squared error (N/W)^2 v(w^2 need) + spread^2 sum (m_j (N w_j/W - 1))^2.

    m_j are the `records` of a party (1 if not given), N their sum, W that of m_j w_j; `spread` bounds the standard
    deviation of the average of a party's records.

    >>> balanced = balance(np.array([100.0, 4.0, 1.0, 1.0]), 1, np.full(4, True), 0.5)
    >>> balanced.weights.round(3), round(balanced.bound, 3)
    (array([0.1, 0.5, 1. , 1. ]), 3.493)
    """
    if not (np.isfinite(spread) and spread > 0):
        raise InputError("spread", spread, "must be a positive number", "give half the range of a contribution")
    count, square = len(need), spread * spread
    sizes = np.ones(count) if records is None else records
    there = sizes > 0
    pressed = (need > 0) & there & concerned(threshold, receivers)
    room = min(float(burden(count, threshold, int(np.count_nonzero(receivers)))), float(np.count_nonzero(pressed)))
    each = need[there] / sizes[there] ** 2  # the need of the average of a party's records
    inner = np.zeros(len(each))
    if room:
        inner[pressed[there]] = _pressure(each, sizes[there], pressed[there], room=room, square=square)
    shares, bound = _shares(inner * each, sizes[there], square)
    weights, pressure = np.ones(count), np.zeros(count)
    relative = shares / sizes[there]
    weights[there] = relative / relative.max()
    pressure[there] = inner
    weights[~there & (need > 0)] = 0.0
    return Balance(weights, pressure, bound)


def _shares(pressed: FloatArray, sizes: FloatArray, square: float) -> tuple[FloatArray, float]:
    """The shares z_j = m_j N w_j/W, which add up to N, of least sum of a_j u_j z_j^2 + s^2 (z_j - m_j)^2; and that."""
    cost = pressed + square
    whole = float(sizes.sum())
    lift = (whole - float((square * sizes / cost).sum())) / float((1 / cost).sum())
    shares = (square * sizes + lift) / cost
    return shares, float((pressed * shares**2).sum() + square * ((shares - sizes) ** 2).sum())


def _pressure(each: FloatArray, sizes: FloatArray, pressed: BoolArray, room: float, square: float) -> FloatArray:
    """The worst pressure: u_j z_j^2 is the same for all a_j between 0 and 1, at the best z."""
    sigma = np.sqrt(each[pressed])
    if (sizes == sizes[0]).all():  # the lift is then a common factor, which the level absorbs
        return _level(1.0 / sigma, square / sigma**2, room)

    def at(lift: float) -> tuple[FloatArray, float]:
        pressure = _level((square * sizes[pressed] + lift) / sigma, square / sigma**2, room)
        shares = (square * sizes[pressed] + lift) / (pressure * sigma**2 + square)
        idle = sizes[~pressed] + lift / square
        return pressure, float(shares.sum()) + float(idle.sum()) - float(sizes.sum())

    low, high = 0.0, float((sizes[pressed] * each[pressed]).max())
    pressure, above = at(high)
    below = at(low)[1]
    for step in range(_STEPS_MAX):  # secant steps, every third one halves
        middle = low + (high - low) * (0.5 if step % 3 == 2 or above == below else min(-below / (above - below), 1.0))
        if not low < middle < high:
            middle = 0.5 * (low + high)
        if high - low <= _CLOSE * high or not low < middle < high:
            break
        pressure, value = at(middle)
        if abs(value) <= _CLOSE * float(sizes.sum()):
            break
        if value > 0:
            high, above = middle, value
        else:
            low, below = middle, value
    return pressure


def _level(slopes: FloatArray, offsets: FloatArray, room: float) -> FloatArray:
    """a_j = level * slope_j - offset_j, clipped to [0, 1], at the level where they add up to `room`.

    The sum increases with the level and is linear between the points where some a_j reaches 0 or 1. Newton's steps,
    kept between bounds, end in the linear piece that holds the root.
    """
    start, end = offsets / slopes, (1.0 + offsets) / slopes
    low, high = float(start.min()), float(end.max())
    level = low
    pressure = np.zeros_like(slopes)
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
        if step == level or abs(missing) <= _CLOSE * room:
            break
        level = step
    return pressure
