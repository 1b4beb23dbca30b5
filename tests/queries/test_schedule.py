"""Which query is asked in which round, and with what share of the budget."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import pytest

from tests.study.rounds import Zoom
from tpmdp.errors import InputError
from tpmdp.queries.condition import parse_condition
from tpmdp.queries.count import Count
from tpmdp.queries.mean import Mean
from tpmdp.queries.schedule import Schedule
from tpmdp.queries.subset import GroupBy, Where

OLD = Count("old", "age", at_least=65.0, weight=3.0)


def test_an_ordinary_study_has_one_round_with_the_whole_budget() -> None:
    schedule = Schedule((OLD, Mean("stay", "days", 0.0, 30.0), Zoom("once", "x", rounds=1)))
    assert schedule.count == 1
    assert schedule.share(1) == 1.0
    assert schedule.asked(1, {}) == schedule.queries


def test_shorter_queries_take_the_last_rounds() -> None:
    schedule = Schedule((Zoom("long", "x", rounds=4), OLD, Zoom("short", "x", rounds=2)))
    names = [[query.name for query in schedule.asked(number, {})] for number in range(1, 5)]
    assert names == [["long"], ["long"], ["long", "short"], ["long", "old", "short"]]
    assert schedule.waiting(2) == ["old", "short"]
    assert schedule.waiting(4) == []


def test_shares_follow_weights_and_add_up_to_the_whole() -> None:
    long, short = Zoom("long", "x", rounds=4, weight=2.0), Zoom("short", "x", rounds=2)
    schedule = Schedule((long, OLD, short))
    shares = [schedule.share(number) for number in range(1, 5)]
    assert math.isclose(math.fsum(shares), 1.0)
    assert math.isclose(shares[0], 2 / 6 * 0.1)
    assert math.isclose(shares[3], (2 * 0.7 + 3 + 0.7) / 6)
    for number in range(1, 5):
        weights = [query.weight for query in schedule.asked(number, {})]  # type: ignore[attr-defined]
        assert math.isclose(math.fsum(weights) / 6, shares[number - 1])


def test_a_condition_stays_with_the_query_in_every_round() -> None:
    query = Where.of(Zoom("mean", "x", rounds=2), parse_condition("where", "age >= 18"))
    schedule = Schedule((query,))
    assert schedule.count == 2
    (asked,) = schedule.asked(2, {"mean": (0.25,)})
    assert isinstance(asked, Where)
    assert asked.settings()["where"] == "age >= 18"
    assert asked.settings()["center"] == 0.25
    assert schedule.asked(2, {"mean": (0.5,)}) != (asked,)


def test_every_group_has_its_own_point() -> None:
    schedule = Schedule((GroupBy.of(Zoom("mean", "x", rounds=2), "sex", (0.0, 1.0)),))
    points = schedule.next_points(1, {}, {"mean": (np.array([5.0, 8.0]), 0.5)}, records=10)
    assert points == {"mean": (0.5, 0.8)}
    assert [answer.value for answer in schedule.stopped(1, points)] == [0.5, 0.8]
    assert schedule.asked(2, points) != schedule.asked(2, {"mean": (0.8, 0.5)})


@dataclass(frozen=True)
class Greedy(Zoom):
    """Shares that add up to more than there is."""

    @property
    def shares(self) -> tuple[float, ...]:
        return (0.5, 0.5000001)


def test_groups_have_rounds_too_and_what_is_refused() -> None:
    grouped = GroupBy.of(Zoom("mean", "x", rounds=2), "sex", (0.0, 1.0))
    for query in (grouped, Where.of(grouped, parse_condition("where", "age >= 18"))):
        Schedule((query,)).check()
        assert Schedule((query,)).count == 2
    with pytest.raises(InputError, match="rounds of mean = 21 must be at most 20"):
        Schedule((Zoom("mean", "x", rounds=21),)).check()
    with pytest.raises(InputError, match=r"shares of mean = .* add up to 1 at most"):
        Schedule((Greedy("mean", "x", rounds=2),)).check()
