"""All worst coalitions, against every coalition tried one by one in exact arithmetic."""

from __future__ import annotations

from fractions import Fraction
from itertools import combinations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tpmdp import worst_coalitions
from tpmdp.planning.equally_bad import equally_bad

VALUES = st.sampled_from([0.0, 1.0, 2.0, 0.1, 0.3, 1e-300, 1e280])


@st.composite
def instances(draw: st.DrawFn) -> tuple[list[float], int, list[bool]]:
    count = draw(st.integers(2, 7))
    variance = draw(st.lists(VALUES, min_size=count, max_size=count))
    receivers = draw(st.lists(st.booleans(), min_size=count, max_size=count))
    return variance, draw(st.integers(0, count - 1)), receivers


def all_worst(variance: list[float], threshold: int, receivers: list[bool], party: int) -> set[tuple[int, ...]]:
    others = [each for each in range(len(variance)) if each != party]
    left = {
        members: sum((Fraction(variance[each]) for each in range(len(variance)) if each not in members), Fraction(0))
        for members in combinations(others, threshold)
        if any(receivers[each] for each in members)
    }
    return {members for members, honest in left.items() if honest == min(left.values())}


@settings(max_examples=300, deadline=None)
@given(instances())
@pytest.mark.slow
def test_exchanges_reach_every_worst_coalition(instance: tuple[list[float], int, list[bool]]) -> None:
    variance, threshold, receivers = instance
    values, mask = np.array(variance), np.array(receivers)
    worst = worst_coalitions(values, threshold, mask)
    for party in range(len(variance)):
        members = tuple(worst.coalition(party).tolist())
        truth = all_worst(variance, threshold, receivers, party)
        if not members:
            assert truth == set()
            continue
        others = equally_bad(values, mask, party, coalition=members, most=100)
        assert {members, *others} == truth
        few = equally_bad(values, mask, party, coalition=members, most=1)
        assert len(few) == min(1, len(truth) - 1)
        assert set(few) <= truth


def test_of_many_only_the_first_are_sought() -> None:
    variance, receivers = np.ones(2000), np.ones(2000, dtype=bool)
    others = equally_bad(variance, receivers, 0, coalition=range(1, 1001), most=3)
    assert len(others) == 3
    assert all(len(each) == 1000 and 0 not in each for each in others)


def test_no_coalition_has_no_others() -> None:
    assert equally_bad(np.zeros(3), np.zeros(3, dtype=bool), 0, coalition=[], most=3) == []
