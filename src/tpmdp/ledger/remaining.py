"""What one further release may cost: the search tries what the ledger would accept."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Final

from tpmdp._util.budget_rules import EPSILON_MIN
from tpmdp.gaussian.calibration import calibrate, mu_at
from tpmdp.ledger.entry import Entry
from tpmdp.ledger.spending import NEXT_CLOSENESS, add_up, promise, promises, square_up

_U: Final = 2.0**-53
_ROOM_WIDTH: Final = 1e-14  # relative, of the search for what is left
_ROOM_STEPS: Final = 32
_ROOM_LEAST: Final = 1e-10  # of the whole: below it rounding hides what is left


def totals_with(last: Entry, mu: float, closeness: float) -> tuple[float, float]:
    """The running totals with one more session, rounded up."""
    return add_up(last.mu_squared_total, square_up(mu)), add_up(last.closeness_total, closeness)


def room_left(last: Entry) -> tuple[float, float]:
    """The mu and the epsilon one further release may have: the largest that `reserve` would accept."""
    if last.limit_epsilon == math.inf:
        return math.inf, math.inf

    def count_fitting(values: Sequence[float]) -> int:
        """How many of the first values would be accepted, with closeness and without."""
        totals = [totals_with(last, mu, tau) for mu in values for tau in (0.0, NEXT_CLOSENESS)]
        after = promises([t[0] for t in totals], [t[1] for t in totals], [last.limit_delta] * len(totals))
        worst = zip(after[::2], after[1::2], strict=True)
        return next((place for place, both in enumerate(worst) if not max(both) <= last.limit_epsilon), len(values))

    def accepted(mu: float) -> bool:
        return all(
            promise(*totals_with(last, mu, tau), last.limit_delta) <= last.limit_epsilon
            for tau in (0.0, NEXT_CLOSENESS)
        )

    low, high = 0.0, mu_at(calibrate(last.limit_epsilon, last.limit_delta))
    if not accepted(low):
        return 0.0, 0.0
    while count_fitting([high]):
        low, high = high, 2.0 * high
    least = _ROOM_LEAST * high
    while high - low > _ROOM_WIDTH * high and high > least:
        steps = [low + (high - low) * part / _ROOM_STEPS for part in range(1, _ROOM_STEPS)]
        fitting = count_fitting(steps)
        low, high = [low, *steps][fitting], [*steps, high][fitting]
    mu_left = _shrunk(low, accepted)
    left = min(promise(square_up(mu_left), 0.0, last.limit_delta), last.limit_epsilon)
    left = _shrunk(left, lambda eps: eps < EPSILON_MIN or accepted(mu_at(calibrate(eps, last.limit_delta))))
    return mu_left, left if left >= EPSILON_MIN else 0.0


def _shrunk(value: float, accepted: Callable[[float], bool]) -> float:
    """The value, or a slightly smaller one that is accepted, in growing steps; 0 always is."""
    step = 2.0 * _U
    while value > 0 and not accepted(value):
        value *= 1.0 - step
        step = min(2.0 * step, 0.5)
    return value
