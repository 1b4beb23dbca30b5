"""How many parties may drop out of a session: a question of the protocol, which costs no noise.

Theory, "Parties that drop out".
"""

from __future__ import annotations

import numpy as np

from tpmdp._util.arrays import BoolArray, FloatArray
from tpmdp.errors import InputError
from tpmdp.planning.closed_form import optimal_variance, ranking
from tpmdp.spec import Spec


def openings_of(count: int, threshold: int) -> int:
    """How many of all parties open an attempt together, against coalitions of this size.

    Each of two attempts needs so many, less the coalition, of the honest parties, and each of those opens one.

    >>> openings_of(5, 2), openings_of(20, 5), openings_of(100, 11)
    (4, 13, 56)
    """
    return (count + threshold) // 2 + 1


def most_lost(count: int, threshold: int, guarantee: str = "computational") -> int:
    """How many parties may drop out at most.

    >>> most_lost(5, 2), most_lost(10, 2), most_lost(20, 5), most_lost(100, 11), most_lost(3, 2)
    (1, 3, 7, 44, 0)
    >>> most_lost(5, 2, "statistical")
    2
    """
    left = threshold + 1 if guarantee == "statistical" else openings_of(count, threshold)
    return max(count - left, 0) if threshold else 0


def promised(
    need: FloatArray, threshold: int, receivers: BoolArray, *, tolerate: int, has_data: BoolArray
) -> FloatArray:
    """The honest noise that every group gives each party: its need, or what others' needs bring it in any case.

    The plan for a group has a quota, one of its largest needs, and leaves each party at least that. Raised to the least
    quota of any group, smaller needs change no plan, and say what parties really get. Theory, "The noise of a group is
    enough".

    >>> needs = np.array([9.0, 9.0, 9.0, 1.0, 1.0, 1.0])
    >>> everybody = np.ones(6, dtype=np.bool_)
    >>> promised(needs, 1, everybody, tolerate=1, has_data=everybody)
    array([9., 9., 9., 9., 9., 9.])
    >>> promised(needs, 1, everybody, tolerate=2, has_data=everybody)
    array([9., 9., 9., 1., 1., 1.])
    """
    count = len(need)
    others = need if receivers.all() else np.delete(need, np.flatnonzero(receivers)[0])  # the lead may be left alone
    ordered = -np.sort(-others)
    places = []
    for lost in range(tolerate + 1):
        size = count - lost
        alone = ranking(size - 1, threshold - 1).rank if threshold > 1 else 2
        places.append(max(ranking(size, threshold).rank, alone) + lost)  # the largest needs may be lost
    if max(places) > len(ordered):
        return need
    raised = np.where(has_data, np.maximum(need, ordered[max(places) - 1]), need)
    before, after = (optimal_variance(each, threshold, receivers)[0] for each in (need, raised))
    return raised if np.array_equal(before, after) else need


def check_tolerate(spec: Spec, tolerate: int, guarantee: str = "computational") -> None:
    """Refuse a number of drop-outs that the protocol cannot bear.

    >>> check_tolerate(Spec(epsilon=[1, 1, 1, 1, 1], delta=1e-6, threshold=2), 1)
    """
    if isinstance(tolerate, bool) or not isinstance(tolerate, int) or tolerate < 0:
        raise InputError("tolerate", tolerate, "must be a whole number, 0 or more", "say how many may drop out")
    if not tolerate:
        return
    if not isinstance(spec.threshold, int) or not spec.threshold:
        rule = "needs one threshold for all, of at least 1"
        raise InputError("tolerate", tolerate, rule, "set one, or leave tolerate out")
    check_losses(spec.count, spec.threshold, tolerate, guarantee=guarantee)


def check_losses(count: int, threshold: int, tolerate: int, *, guarantee: str = "computational") -> None:
    """The same for a threshold that all parties have.

    >>> check_losses(5, 2, 1)
    """
    most = most_lost(count, threshold, guarantee)
    if tolerate > most:
        why = "with fewer left, colluders could open two answers"
        if guarantee == "statistical":
            why = "more parties must be left than may collude"
        rule = f"must be at most {most} with {count} parties and threshold {threshold}: {why}"
        raise InputError("tolerate", tolerate, rule, "lower one of them")
