"""What one further release may cost: the search tries what the ledger would accept."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Final

from tpmdp._util.budget_rules import EPSILON_MIN
from tpmdp.gaussian.calibration import calibrate, mu_at
from tpmdp.ledger.spending import NEXT_CLOSENESS, Totals, promise, promises, square_up

_U: Final = 2.0**-53
_ROOM_WIDTH: Final = 1e-14  # relative, of the search for what is left
_ROOM_STEPS: Final = 32
_NEAR: Final = (1e-13, 1e-11, 1e-9, 1e-7, 1e-5, 1e-3, 1e-1)  # how far from what is left the first guess may be
_ROOM_LEAST: Final = 1e-10  # of the whole: below it rounding hides what is left


def room_left(balance: Totals) -> tuple[float, float]:
    """The mu and the epsilon one further release may have: the largest that the ledger would accept."""
    limit, delta = balance.limit_epsilon, balance.limit_delta
    if limit == math.inf:
        return math.inf, math.inf

    def count_fitting(values: Sequence[float]) -> int:
        """How many of the first values would be accepted, with closeness and without."""
        totals = [balance.with_charge(mu, tau) for mu in values for tau in (0.0, NEXT_CLOSENESS)]
        squares, closeness = [t.mu_squared_total for t in totals], [t.closeness_total for t in totals]
        after = promises(squares, closeness, [delta] * len(totals))
        worst = zip(after[::2], after[1::2], strict=True)
        return next((place for place, both in enumerate(worst) if not max(both) <= limit), len(values))

    def accepted(mu: float) -> bool:
        return all(balance.with_charge(mu, tau).is_within for tau in (0.0, NEXT_CLOSENESS))

    low, high = 0.0, mu_at(calibrate(limit, delta))
    if not accepted(low):
        return 0.0, 0.0
    guess = math.sqrt(max(0.0, high * high - balance.mu_squared_total))
    near = sorted(guess * (1.0 + sign * part) for part in (0.0, *_NEAR) for sign in (-1.0, 1.0))
    fitting = count_fitting(near) if guess else 0
    if 0 < fitting < len(near):
        low, high = near[fitting - 1], near[fitting]
    while count_fitting([high]):
        low, high = high, 2.0 * high
    least = _ROOM_LEAST * high
    while high - low > _ROOM_WIDTH * high and high > least:
        steps = [low + (high - low) * part / _ROOM_STEPS for part in range(1, _ROOM_STEPS)]
        fitting = count_fitting(steps)
        low, high = [low, *steps][fitting], [*steps, high][fitting]
    mu_left = _shrunk(low, accepted)
    left = min(promise(square_up(mu_left), 0.0, delta), limit)
    left = _shrunk(left, lambda eps: eps < EPSILON_MIN or accepted(mu_at(calibrate(eps, delta))))
    return mu_left, left if left >= EPSILON_MIN else 0.0


def _shrunk(value: float, accepted: Callable[[float], bool]) -> float:
    """The value, or a slightly smaller one that is accepted, in growing steps; 0 always is."""
    step = 2.0 * _U
    while value > 0 and not accepted(value):
        value *= 1.0 - step
        step = min(2.0 * step, 0.5)
    return value
