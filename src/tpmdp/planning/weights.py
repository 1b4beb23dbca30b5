"""Public weights of the parties: their effect on sensitivities, and the assumption behind the rescaled sum.

Party j contributes w_j times the sum over its m_j records; the receiver multiplies by N/W, the sum of all m_j over that
of m_j w_j. Equal weights assume nothing. With other weights some parties count more than others: the sum is right on
average if weights, and so budgets and numbers of records, are unrelated to the data; otherwise it is off by at most
`bias_bound`. A party without records has weight 0.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from typing import Final, Literal

import numpy as np
from numpy.typing import ArrayLike

from tpmdp._util.arrays import FloatArray
from tpmdp._util.budget_rules import SENSITIVITY_MAX, SENSITIVITY_MIN, as_floats
from tpmdp.errors import InputError
from tpmdp.planning.balance import balance
from tpmdp.planning.levels import Levels, one_budget, two_levels
from tpmdp.spec import Spec

Kind = Literal["equal", "balanced", "own", "one budget", "two levels"]
KINDS: Final = ("equal", "balanced")
"""What a plan takes, beside one weight per party."""
Simpler = Literal["two levels", "one budget"]
BASELINES: Final[dict[Simpler, Callable[..., Levels]]] = {"two levels": two_levels, "one budget": one_budget}
"""Simpler weights that balanced ones are compared with."""
RECORDS_MAX: Final = 1 << 40
SPREAD_MIN: Final = 1e-9  # of the width
WEIGHT_MIN: Final = 1e-12
"""Smaller weights are refused; balanced weights below it become 0."""
_COMPUTED: Final = "weights, made of budgets and numbers of records, have nothing to do with the data"
_ASSUMED: Final[dict[Kind, str]] = {
    "balanced": _COMPUTED,
    "own": "the weights chosen have nothing to do with the data",
    "two levels": _COMPUTED,
    "one budget": _COMPUTED,
}


@dataclass(frozen=True, eq=False)
class Weights:
    """One weight per party, from 0 to 1, and what is publicly known of the parties' records."""

    each: FloatArray
    records: FloatArray
    width: float
    """All records' values lie within a range of this width (L2)."""
    spread: float
    """Bound on the standard deviation of the average of a party's records, if the assumption holds."""
    kind: Kind = "own"
    least: float | None = field(default=None)
    """Balanced: no weights have a smaller expected squared error."""
    pressure: FloatArray | None = field(default=None, repr=False)
    """Balanced: how much each party's need counts in that proof."""

    @cached_property
    def are_equal(self) -> bool:
        """Whether all parties count the same, so that nothing is assumed."""
        counted = self.each[self.records > 0]
        return bool((counted == counted[:1]).all())

    @property
    def assumes(self) -> str:
        """What must hold for the rescaled sum to be right on average; nothing with equal weights.

        >>> Weights(np.array([1.0, 0.5]), np.ones(2), 1.0, 0.5).assumes
        'the weights chosen have nothing to do with the data'
        """
        return "" if self.are_equal else _ASSUMED[self.kind]

    @cached_property
    def scale(self) -> float:
        """What the receiver multiplies the weighted sum by.

        >>> Weights(np.array([1.0, 0.5]), np.ones(2), 1.0, 0.5).scale
        1.3333333333333333
        """
        return math.fsum(self.records.tolist()) / math.fsum((self.records * self.each).tolist())

    @cached_property
    def excess(self) -> FloatArray:
        """By how many records each party counts too much or too little; these add up to 0.

        >>> Weights(np.array([1.0, 0.5]), np.ones(2), 1.0, 0.5).excess.round(3).tolist()
        [0.333, -0.333]
        """
        return np.zeros(len(self.each)) if self.are_equal else self.records * (self.scale * self.each - 1.0)

    @cached_property
    def imbalance(self) -> float:
        """Root of the sum of squares of the excess: the spread error of records of spread 1."""
        return float(np.sqrt(np.sum(self.excess**2)))

    @cached_property
    def misplaced(self) -> float:
        """How many records' worth of weight is with the wrong parties: the largest bias for records of width 1."""
        return float(np.abs(self.excess).sum()) / 2 * (1 + 1e-12)

    @property
    def dealt(self) -> float:
        """The imbalance if fixed data are dealt to parties at random, so that their averages depend on each other."""
        count = np.count_nonzero(self.records)
        return self.imbalance * math.sqrt(count / (count - 1)) if count > 1 else 0.0

    @property
    def spread_error(self) -> float:
        """Standard deviation of the error that the weights cause in the sum, if budgets are unrelated to the data.

        >>> round(Weights(np.array([1.0, 0.5]), np.ones(2), 1.0, 0.5).spread_error, 4)
        0.2357
        """
        return self.spread * self.imbalance

    @property
    def bias_bound(self) -> float:
        """The largest error that the weights can cause in the sum (L2), whatever the data.

        >>> round(Weights(np.array([1.0, 0.5]), np.ones(2), 1.0, 0.5).bias_bound, 4)
        0.3333
        """
        return self.width * self.misplaced


def make_weights(
    spec: Spec,
    needs: Callable[[], FloatArray],
    weighting: str | ArrayLike = "equal",
    spread: float | None = None,
    records: ArrayLike | None = None,
    width: float | None = None,
) -> Weights:
    """Weights as `plan` takes them, checked. Balanced ones for personal thresholds suit the largest.

    >>> spec = Spec(epsilon=[0.5, 1.0], delta=1e-6, threshold=1)
    >>> make_weights(spec, lambda: np.array([4.0, 1.0]), "balanced").each.round(3).tolist()
    [0.294, 1.0]
    """
    sizes, most, typical = _known(spec, spread, records, width=width)
    if isinstance(weighting, str):
        if weighting not in KINDS:
            rule = f"must be {' or '.join(KINDS)}, or one weight per party"
            raise InputError("weighting", weighting, rule, "choose one")
        if weighting == "equal" or typical == 0:
            return Weights(np.where(sizes > 0, 1.0, 0.0), sizes, most, spread=typical, kind="equal")
        threshold = int(np.max(spec.threshold))
        best = balance(needs(), threshold, spec.receivers, spread=typical, records=sizes)
        each = np.where((best.weights < WEIGHT_MIN) | (sizes == 0), 0.0, best.weights)
        if not spec.common_threshold:
            return Weights(each, sizes, most, spread=typical, kind="balanced")
        return Weights(each, sizes, most, spread=typical, kind="balanced", least=best.bound, pressure=best.pressure)
    own = check_weights(as_floats("weights", weighting), sizes, spec.name)
    return Weights(np.where(sizes > 0, own, 0.0), sizes, most, spread=typical, kind="own")


def baseline_weights(
    spec: Spec,
    need: FloatArray,
    kind: Simpler,
    *,
    spread: float | None = None,
    records: ArrayLike | None = None,
    width: float | None = None,
) -> Weights:
    """The best weights of a simpler kind, to compare balanced ones with.

    >>> spec = Spec(epsilon=[0.1, 1.0, 1.0], delta=1e-6, threshold=1)
    >>> baseline_weights(spec, np.array([1318.0, 17.8, 17.8]), "one budget").each.tolist()
    [0.0, 1.0, 1.0]
    """
    sizes, most, typical = _known(spec, spread, records, width=width)
    if typical == 0:
        each = np.where(sizes > 0, 1.0, 0.0)
    else:
        each = BASELINES[kind](need, int(np.max(spec.threshold)), spec.receivers, typical, sizes).weights
    return Weights(np.where(each < WEIGHT_MIN, 0.0, each), sizes, most, spread=typical, kind=kind)


def _known(
    spec: Spec, spread: float | None, records: ArrayLike | None, *, width: float | None
) -> tuple[FloatArray, float, float]:
    """What is publicly known of the records, checked: how many there are, the width of their range, the spread."""
    sizes = _check_records(records, spec)
    most = float(spec.sensitivity.max()) if width is None else _check_width(width)
    return sizes, most, most / 2 if spread is None else _check_spread(spread, most)


def shortened(each: FloatArray) -> FloatArray:
    """Weights with 24 significant bits, so that parties get the same ones on different machines.

    >>> shortened(np.array([1.0, 1 / 3, 0.0])).tolist()
    [1.0, 0.3333333432674408, 0.0]
    """
    part, power = np.frexp(each)
    return np.asarray(np.ldexp(np.rint(part * 2.0**24), power - 24), dtype=np.float64)


def check_weights(each: FloatArray, records: FloatArray, label: Callable[[int], str]) -> FloatArray:
    """Own weights: one per party, from 0 to 1, and not 0 for all that have records.

    >>> check_weights(np.array([1.0, 2.0]), np.ones(2), "party {}".format)
    Traceback (most recent call last):
        ...
    tpmdp.errors.InputError: weight of party 1 = 2.0 must be 0 or lie in [1e-12, 1]: divide all weights by the largest
    """
    if each.ndim != 1 or len(each) != len(records):
        rule = f"must be one per party ({len(records)})"
        raise InputError("weights", f"{each.size} values", rule, 'list them, or use "equal" or "balanced"')
    with np.errstate(invalid="ignore"):
        bad = ~((each == 0) | ((each >= WEIGHT_MIN) & (each <= 1)))
    if bad.any():
        party = int(np.argmax(bad))
        rule = f"must be 0 or lie in [{WEIGHT_MIN:g}, 1]"
        value = float(each[party])
        remedy = "divide all weights by the largest" if 1 < value < np.inf else "give each party a number such as 0.5"
        raise InputError(f"weight of {label(party)}", value, rule, remedy)
    if not (each * records).any():
        raise InputError("weights", 0.0, "are 0 for all parties with records", "give at least one a weight of 1")
    each = each.copy()
    each.flags.writeable = False
    return each


def _check_records(records: ArrayLike | None, spec: Spec) -> FloatArray:
    sizes = np.ones(1) if records is None else as_floats("records", records)
    if sizes.size not in (1, spec.count):
        raise InputError("records", f"{sizes.size} values", f"must be one number or {spec.count}", "give one per party")
    return np.broadcast_to(check_records(sizes, spec.name), (spec.count,)).astype(np.float64)


def check_records(sizes: FloatArray, label: Callable[[int], str]) -> FloatArray:
    """How many records parties have: whole numbers, not 0 for all.

    >>> check_records(np.array([3.0, 0.0]), "party {}".format).tolist()
    [3.0, 0.0]
    """
    with np.errstate(invalid="ignore"):
        bad = ~((sizes >= 0) & (sizes <= RECORDS_MAX) & (sizes == np.floor(sizes)))
    if bad.any():
        party = int(np.argmax(np.atleast_1d(bad)))
        value = float(sizes.flat[party])
        rule = f"must be at most {RECORDS_MAX}" if RECORDS_MAX < value < np.inf else "must be a whole number, 0 or more"
        raise InputError(f"records of {label(party)}", value, rule, "correct it")
    if not sizes.any():
        raise InputError("records", 0, "must not be 0 for all parties", "say how many records each party has")
    return sizes


def _check_width(width: float) -> float:
    number = as_floats("width", width)
    if number.ndim or not SENSITIVITY_MIN <= number <= SENSITIVITY_MAX:
        raise InputError("width", width, "must be a positive number", "give the range of a record")
    return float(number)


def _check_spread(spread: float, width: float) -> float:
    """Values in a range have a standard deviation of at most half of it."""
    number = as_floats("spread", spread)
    if number.ndim or not (np.isfinite(number) and number > 0):
        raise InputError("spread", spread, "must be a positive number", "give half the range of a record, or less")
    if not SPREAD_MIN * width <= number <= width / 2 * (1 + 1e-9):
        rule = f"must be at most half the width of the range ({width:g}), and at least {SPREAD_MIN:g} of it"
        raise InputError("spread", spread, rule, "leave it out for half the width")
    return float(number)
