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
}
