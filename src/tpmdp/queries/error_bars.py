"""Error bars of ratios of two noisy sums, which hold however noisy they are."""

from __future__ import annotations

import math

from tpmdp.queries.answer import Z_95


def ratio_interval(
    top: float, bottom: float, top_error: float, bottom_error: float, low: float, high: float
) -> tuple[float, float]:
    """The 95 % interval of a ratio known to lie in [low, high], from two independent normal estimates (Fieller 1954).

    It covers the truth in 95 % of all cases, however noisy the bottom is; if that is all noise, it is the whole range.
    Beyond the range by d standard errors it is that of sqrt(1.96^2 + d^2), as in `Answer.within`.

    >>> low, high = ratio_interval(50.0, 100.0, 1.0, 1.0, 0.0, 1.0)
    >>> round(low, 4), round(high, 4)
    (0.4783, 0.5221)
    >>> ratio_interval(50.0, 1.0, 10.0, 10.0, 0.0, 1.0)
    (0.0, 1.0)
    """
    if bottom <= 0:
        return low, high
    nearest = min(max(top, low * bottom), high * bottom)
    edge = high if top > nearest else low
    beyond = (top - nearest) ** 2 / (top_error**2 + (edge * bottom_error) ** 2) if top != nearest and top_error else 0.0
    square = Z_95 * Z_95 + beyond
    a = bottom * bottom - square * bottom_error * bottom_error
    b = top * bottom
    # b^2 - a c for c = top^2 - z^2 top_error^2, written such that it is 0 where there are no errors
    cross = (bottom * top_error) ** 2 + (top * bottom_error) ** 2
    inside = square * (cross - square * (top_error * bottom_error) ** 2)
    if a <= 0 or inside < 0:
        return low, high
    root = math.sqrt(inside)
    return min(max((b - root) / a, low), high), max(min((b + root) / a, high), low)
