"""What sessions cost together: every sum rounded up, what is left rounded down. Theory, "The ledger"."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from decimal import ROUND_CEILING, ROUND_FLOOR, Context
from pathlib import Path
from typing import Final

import numpy as np

from tpmdp._util.budget_rules import DELTA_MIN, as_floats, check_delta, check_epsilon
from tpmdp.errors import InputError, TpmdpError, shown
from tpmdp.gaussian.composition import epsilon_of

NEXT_CLOSENESS: Final = 1e-30  # `Spent.left` leaves room for this much in the next release; real ones have about 1e-50
NONE_LEFT: Final = "none"
_U: Final = 2.0**-53
_USEFUL: Final = 1e-3  # of a budget; a release with less has more noise than anybody could use


class LedgerError(TpmdpError):
    """A request that the ledger refuses, or an entry that was altered.

    >>> str(LedgerError("session ab12", "is finished", "start a new session"))
    'session ab12 is finished: start a new session'
    """

    def __init__(self, subject: str, problem: str, remedy: str) -> None:
        self.subject, self.problem, self.remedy = subject, problem, remedy
        super().__init__(f"{subject} {problem}: {remedy}")


class OverspendError(TpmdpError):
    """A charge that would exceed the limit: gives its cost, the new total, the limit and what is left.

    `unit` is given where the limit is not that of the ledger's own unit.
    """

    def __init__(
        self, path: Path, party: str, study: str, *, cost: float, after: float, spent: Spent, unit: str = ""
    ) -> None:
        self.party, self.study, self.cost, self.after, self.spent = party, study, cost, after, spent
        total, left = rounded_up(after), spent.left_text
        option = f" --unit {unit}" if unit else ""
        less = f", or plan a study with epsilon at most {left}" if left != NONE_LEFT else ""
        super().__init__(
            f"study {shown(study)} would cost {shown(party)} epsilon {rounded_up(cost)} and make {total} in all, over "
            f"the limit epsilon {spent.limit_epsilon!r} at delta {spent.limit_delta!r}, of which {left} is left: "
            f"raise the limit (tpmdp ledger limit {shown(str(path), 300)} --epsilon {total}{option}){less}"
        )


@dataclass(frozen=True)
class Charge:
    """The cost of a session: its Gaussian mu and its closeness tau. Epsilon and delta of the study are for people only.

    >>> Charge(mu=0.25, closeness=1e-50, epsilon=1, delta=1e-6).epsilon
    1.0
    """

    mu: float
    closeness: float
    epsilon: float
    delta: float

    def __post_init__(self) -> None:
        rules = {"mu": math.inf, "closeness": math.nextafter(math.inf, 0), "epsilon": math.inf, "delta": 1.0}
        for name, most in rules.items():
            value = float(as_floats(name, [getattr(self, name)])[0])
            if not 0 <= value <= most:
                rule = "must not be negative or NaN" if most > 1 else "must lie in [0, 1]"
                rule = "must be finite and not negative" if name == "closeness" else rule
                raise InputError(name, value, rule, "give what the session costs")
            object.__setattr__(self, name, value + 0.0)  # SQLite has no negative zero


NOTHING: Final = Charge(mu=0.0, closeness=0.0, epsilon=0.0, delta=0.0)


@dataclass(frozen=True)
class Totals:
    """Totals and limit of one unit, as the entries of a ledger state them.

    >>> Totals(0.0, 0.0, 1.0, 1e-6).with_charge(0.5, 0.0).mu_squared_total > 0.25
    True
    """

    mu_squared_total: float
    closeness_total: float
    limit_epsilon: float
    limit_delta: float

    def with_charge(self, mu: float, closeness: float) -> Totals:
        """The totals with one more session, rounded up."""
        totals = add_up(self.mu_squared_total, square_up(mu)), add_up(self.closeness_total, closeness)
        return replace(self, mu_squared_total=totals[0], closeness_total=totals[1])

    @property
    def epsilon(self) -> float:
        """What is promised at the limit's delta."""
        return promise(self.mu_squared_total, self.closeness_total, self.limit_delta)

    @property
    def is_within(self) -> bool:
        """Whether that is within the limit."""
        return self.epsilon <= self.limit_epsilon


@dataclass(frozen=True)
class Spent:
    """What is spent and what is left, at the limit's delta; spent is rounded up, left is rounded down.

    >>> Spent(0.1, 0.0, 1, 0.4, 1.0, 1e-6, 0.2, 0.9).left
    0.9
    """

    mu: float
    closeness: float
    sessions: int
    epsilon: float
    limit_epsilon: float
    limit_delta: float
    mu_left: float  # a release with this mu is accepted
    left: float  # and so is one calibrated to this epsilon at the limit's delta
    held: int = 0  # sessions for which room is set aside; `left` is what they leave

    @property
    def left_text(self) -> str:
        """What is left, for people; all of the limit as long as nothing is spent or held.

        `left` is then below the limit by rounding. A study has room for that: its plan is a little stricter than its
        budget.

        >>> Spent(0.0, 0.0, 0, 0.0, 0.8, 1e-6, 0.19, 0.79999999999999).left_text
        '0.8'
        """
        is_unused = not (self.mu or self.closeness or self.held)
        return left_text(self.limit_epsilon if is_unused else self.left, self.limit_epsilon)


def rounded_up(value: float, digits: int = 6) -> str:
    """A cost in a few digits, never shown smaller than it is.

    >>> rounded_up(1.0000000000000002), rounded_up(0.1), rounded_up(float("inf")), rounded_up(0.80001, 4)
    ('1.00001', '0.1', 'inf', '0.8001')
    """
    return _in_digits(value, digits, ROUND_CEILING)


def rounded_down(value: float, digits: int = 6) -> str:
    """A remainder in a few digits, never shown larger than it is.

    >>> rounded_down(0.9999999), rounded_down(0.0), rounded_down(3.95838, 3)
    ('0.999999', '0', '3.95')
    """
    return _in_digits(value, digits, ROUND_FLOOR)


def left_text(left: float, budget: float, digits: int = 6) -> str:
    """What is left of a budget, rounded down; less than a thousandth is of no use to a release, and none.

    >>> left_text(0.559778, 1.0), left_text(0.000279, 0.5), left_text(0.0, 0.0), left_text(1.0, float("inf"))
    ('0.559778', 'none', 'none', '1')
    """
    return NONE_LEFT if left <= _USEFUL * budget < math.inf else rounded_down(left, digits)


def _in_digits(value: float, digits: int, rounding: str) -> str:
    if not math.isfinite(value):
        return "inf"
    # The shortest text of the number: reading it gives the number back, so 0.1 is 0.1.
    short = Context(prec=digits, rounding=rounding).create_decimal(repr(float(value))).normalize()
    return f"{short:f}" if short == 0 or -5 < short.adjusted() < 7 else f"{short:e}"


def add_up(total: float, cost: float) -> float:
    """The sum of two costs, rounded up; adding 0 changes nothing.

    >>> add_up(1.0, 1e-50) > 1.0, add_up(1.0, 0.0)
    (True, 1.0)
    """
    if total == 0 or cost == 0:
        return total + cost
    return math.nextafter(total + cost, math.inf)


def square_up(mu: float) -> float:
    """mu^2, rounded up.

    >>> square_up(0.1) > 0.1 * 0.1, square_up(1e-200) > 0, square_up(1e200), square_up(0.0)
    (True, True, inf, 0.0)
    """
    return math.nextafter(mu * mu, math.inf) if mu else 0.0


def promise(mu_squared: float, closeness: float, delta: float) -> float:
    """The epsilon at this delta of sessions with this sum of mu^2 and of closeness; never too small.

    >>> print(f"{promise(0.25, 1e-50, 1e-6):.6f}")
    2.254085
    """
    return promises([mu_squared], [closeness], [delta])[0]


def promises(mu_squared: Sequence[float], closeness: Sequence[float], delta: Sequence[float]) -> list[float]:
    """`promise` for several totals.

    >>> promises([0.0, float("inf")], [0.0, 0.0], [1e-6, 1e-6])
    [0.0, inf]
    """
    if not mu_squared:
        return []
    mu = [math.nextafter(math.sqrt(total), math.inf) if total else 0.0 for total in mu_squared]
    scaled = [_delta_down(d, tau) for d, tau in zip(delta, closeness, strict=True)]
    epsilons: list[float] = np.atleast_1d(np.asarray(epsilon_of(np.array(mu), np.array(scaled)))).tolist()
    return [add_up(epsilon, 2.0 * tau) for epsilon, tau in zip(epsilons, closeness, strict=True)]


def _delta_down(delta: float, closeness: float) -> float:
    """delta e^(-closeness), rounded down; what calibration cannot handle becomes 0, whose epsilon is infinite."""
    if closeness == 0:
        return delta
    scaled = delta * math.exp(-closeness) * (1.0 - 8 * _U)
    return scaled if scaled >= DELTA_MIN else 0.0


def check_limit(epsilon: float, delta: float) -> tuple[float, float]:
    """A limit on spending, checked like a budget.

    >>> check_limit(1, 1e-6)
    (1.0, 1e-06)
    """
    eps, dlt = as_floats("epsilon", [epsilon]), as_floats("delta", [delta])
    check_epsilon(eps.reshape(()))
    check_delta(dlt.reshape(()), eps.reshape(()))
    return float(eps[0]), float(dlt[0]) + 0.0
