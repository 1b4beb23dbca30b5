"""Schedules that once showed a fault, or that random ones hardly ever reach; all are played again by the tests."""

from __future__ import annotations

from typing import Final

from tests.simulation.schedule import Operation, Schedule
from tests.simulation.world import Shape

_HALVES: Final = (1_057_857, 1_067_017)  # campaigns in attempt 2: 1 and 4 without 5, then 2 and 5 without 4

REPRODUCTIONS: Final = {
    # Two neighbours are told different groups of one attempt; were masks not bound to the group, their sum is known.
    "masks_are_not_bound_to_the_group": Schedule(
        Shape(6, 2, 1, (0,), (0, 3), "computational"),
        (
            *(Operation("start", number) for number in range(4)),
            *(Operation("campaign", number) for number in (*_HALVES, _HALVES[0])),
            Operation("open", 5),
        ),
    ),
    # One party goes back from a mended study file to the one before, and is charged for that, the others for the new
    # one: the session has no answer (theory, L2), and nobody is charged twice or learns anything.
    "a_party_goes_back_to_a_study_that_the_others_left": Schedule(
        Shape(5, 4, 0, (2, 3), (), "computational"),
        (
            *(Operation("start", number) for number in range(1, 5)),
            Operation("mend all", 1),
            Operation("crash in", 5 * 4),
            Operation("start", 0),
            Operation("run", 0),
        ),
    ),
}
