"""What a plan promises each party, in plain words; `tpmdp.report.promise` does the same for a session."""

from __future__ import annotations

import math

import numpy as np

from tpmdp._util.arrays import FloatArray
from tpmdp.gaussian.calibration import epsilon_at
from tpmdp.planning.coalition import worst_coalitions
from tpmdp.planning.plan import Plan
from tpmdp.report.promise import PartyPromise, best_guess


def plan_promises(plan: Plan) -> list[PartyPromise]:
    """What each party is promised against its worst coalition, before the noise is rounded to a grid.

    >>> import tpmdp
    >>> spec = tpmdp.Spec(epsilon=[0.5, 1, 2], delta=1e-6, threshold=1, names=["a", "b", "c"])
    >>> first = plan_promises(tpmdp.plan(spec))[0]
    >>> first.party, first.coalition, round(first.guess, 3)
    ('a', ('b',), 0.525)
    """
    spec, protection = plan.spec, plan.protection()
    weighted = spec.weighted(plan.weights.each).sensitivity
    threshold = int(np.max(spec.threshold))
    beyond: list[float | None] = [None] * spec.count
    if threshold + 1 < spec.count:
        honest = worst_coalitions(plan.variance, threshold + 1, spec.receivers).honest_variance
        beyond = [*epsilon_at(np.sqrt(honest), spec.delta, weighted).tolist()]
    shifts = _shifts(weighted, protection.honest_variance)
    return [
        PartyPromise(
            spec.name(party),
            bool(spec.receivers[party]),
            float(spec.epsilon[party]),
            delta=float(spec.delta[party]),
            epsilon=float(protection.epsilon[party]),
            guess=best_guess(shifts[party]),
            coalition=tuple(spec.name(member) for member in protection.coalition(party).tolist()),
            beyond=beyond[party],
        )
        for party in range(spec.count)
    ]


def _shifts(sensitivity: FloatArray, honest: FloatArray) -> list[float]:
    """By how many standard deviations one record moves what a coalition sees."""
    with np.errstate(divide="ignore", invalid="ignore"):
        moved = np.where(sensitivity == 0, 0.0, sensitivity / np.sqrt(honest))
    return [math.inf if math.isnan(each) else each for each in moved.tolist()]
