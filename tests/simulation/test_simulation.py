"""The simulation: no schedule breaks an invariant, and every planted fault is found."""

from __future__ import annotations

from itertools import chain

import pytest

from tests.effort import tries
from tests.simulation.__main__ import failures
from tests.simulation.faults import FAULTS, planted
from tests.simulation.reproductions import REPRODUCTIONS
from tests.simulation.schedule import Operation, Schedule, draw, play, shrink
from tests.simulation.world import Shape

pytestmark = pytest.mark.slow

BLOCKS = 10
FOUND_BY = {  # the first seed that shows a fault, tried first
    "noise_is_drawn_again_after_a_crash": 71,
    "a_party_opens_more_than_one_attempt": 158,
    "there_are_no_self_masks": 14,
    "there_are_too_few_keepers": 111,
    "noise_is_that_of_the_first_group": 14,
}


@pytest.mark.parametrize("block", range(BLOCKS))
def test_no_schedule_breaks_an_invariant(block: int) -> None:
    each = tries(200, 2000) // BLOCKS
    for seed in range(block * each, (block + 1) * each):
        assert play(draw(seed)) == [], seed


@pytest.mark.parametrize("name", FAULTS)
def test_a_planted_fault_is_found(name: str) -> None:
    with planted(name):
        known = [REPRODUCTIONS[name]] if name in REPRODUCTIONS else [draw(FOUND_BY.get(name, 0))]
        schedules = chain(known, map(draw, range(400)))
        assert any(failures(schedule) for schedule in schedules)


@pytest.mark.parametrize("name", REPRODUCTIONS)
def test_no_schedule_that_showed_a_fault_does_so_now(name: str) -> None:
    assert play(REPRODUCTIONS[name]) == []


def test_a_failure_is_shrunk_to_what_causes_it() -> None:
    with planted("noise_is_missing"):
        schedule = next(schedule for schedule in map(draw, range(50)) if failures(schedule))
        smallest = shrink(schedule, lambda fewer: bool(failures(fewer)))
        assert failures(smallest)
        assert len(smallest.operations) <= 6
    assert failures(smallest) == []


def test_a_session_without_trouble_ends_with_the_sum() -> None:
    shape = Shape(3, 1, 0, (0, 2), (), "computational")
    assert play(Schedule(shape, tuple(Operation("start", index) for index in range(3)))) == []
