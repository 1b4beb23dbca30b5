"""Schedules that once showed a fault, or that random ones hardly ever reach; all are played again by the tests."""

from __future__ import annotations

from typing import Final

from tests.simulation.schedule import Operation, Schedule
from tests.simulation.world import Shape

_HALVES: Final = (945_468_649, 354_241_417)  # campaigns in attempt 2: 1, 3 and 4 without 5, then 2 and 5 without 4
_ALL, _WITHOUT_TWO = 93_388_224, 756_325_537  # campaigns: 1 to 5 in attempt 1; 1, 2 and 3 in attempt 2 without 4 and 5

REPRODUCTIONS: Final = {
    # Parties are told different groups of one attempt. Were masks not bound to the group, the sum of all five is known,
    # of which some have noise for the one group and some for the other.
    "masks_are_not_bound_to_the_group": Schedule(
        Shape(6, 1, 2, (0,), (0,), "computational"),
        (
            *(Operation("start", number) for number in range(5)),
            *(Operation("campaign", number) for number in (*_HALVES, *_HALVES)),
            Operation("open", 5),
        ),
    ),
    # All submit to attempt 1, and three of them to attempt 2 without 4 and 5. Then the three open attempt 2 and the two
    # attempt 1. With the lead receiver's share they would be enough for both, if an opening less were.
    "too_few_openings_open_an_attempt": Schedule(
        Shape(6, 1, 2, (0,), (0,), "computational"),
        (
            *(Operation("start", number) for number in range(5)),
            *(Operation("campaign", number) for number in (_ALL, _WITHOUT_TWO)),
            *(Operation("open", number) for number in (5, 0)),
        ),
    ),
    # Each party has a process with the study as it was, and one with a mended study.
    "two_plans_of_a_session_are_charged": Schedule(
        Shape(2, 1, 0, (0,), (), "computational"),
        (
            *(Operation("start", number) for number in range(2)),
            *(Operation("mend", number) for number in (8, 7)),
            Operation("run", 0),
        ),
    ),
    # Party 1 has the list of keys and waits for the mask of party 0 when its session is cancelled.
    "a_cancelled_hold_is_used_again": Schedule(
        Shape(2, 1, 0, (0,), (), "computational"),
        (
            *(Operation("start", number) for number in range(2)),
            *(Operation("next", party) for party in (1, 1, 1, 0, 0, 0, 0, 0, 0, 1, 1, 1, 1)),
            Operation("cancel", 1),
            Operation("run", 0),
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
