"""How many parties may drop out, against the definition: two openings of a session always share an honest party."""

from __future__ import annotations

from itertools import combinations
from typing import Any

import numpy as np
import pytest

from tpmdp import InputError, Spec
from tpmdp.planning.losses import check_losses, check_tolerate, most_lost, openings_of

LARGEST = 40
EVERY = [(count, threshold) for count in range(2, LARGEST + 1) for threshold in range(count)]


def spec_of(count: int, threshold: Any) -> Spec:
    return Spec(epsilon=[1.0] * count, delta=1e-6, threshold=threshold)


def always_overlap(size: int, population: int) -> bool:
    """Whether no two sets of this size fit into the population side by side."""
    return size > population - size


def test_openings_are_the_fewest_whose_honest_parts_overlap() -> None:
    for count, threshold in EVERY:
        honest = count - threshold
        fewest = next(total for total in range(threshold, count + 2) if always_overlap(total - threshold, honest))
        assert openings_of(count, threshold) == fewest


@pytest.mark.parametrize("count", range(2, 8))
def test_two_openings_share_more_parties_than_may_collude(count: int) -> None:
    """By trying all pairs of sets: whichever parties collude, an honest one is in both, and it opens once."""
    for threshold in range(count):
        shared = {}
        for total in (openings_of(count, threshold) - 1, openings_of(count, threshold)):
            sets = [set(members) for members in combinations(range(count), total)]
            shared[total] = min(len(first & second) for first in sets for second in sets)
        fewer, enough = shared.values()
        assert fewer <= threshold < enough


def test_so_many_may_be_lost_that_the_others_can_still_open() -> None:
    for count, threshold in EVERY:
        lost = most_lost(count, threshold)
        if threshold == 0:
            assert lost == 0
            continue
        assert lost == -((threshold - count) // 2) - 1  # half of the honest parties, rounded up, less this
        assert count - lost >= openings_of(count, threshold) > count - lost - 1
        assert count - lost >= threshold + 1


def test_the_examples_of_the_protocol() -> None:
    assert [most_lost(*each) for each in ((5, 2), (10, 2), (20, 5), (100, 11))] == [1, 3, 7, 44]


def test_statistical_sessions_leave_a_party_more_than_may_collude() -> None:
    for count, threshold in EVERY:
        assert most_lost(count, threshold, "statistical") == (count - threshold - 1 if threshold else 0)


@pytest.mark.parametrize(
    ("guarantee", "lost", "rule"),
    [
        (
            "computational",
            2,
            "must be at most 1 with 5 parties and threshold 2: with fewer left, colluders could open two answers",
        ),
        (
            "statistical",
            3,
            "must be at most 2 with 5 parties and threshold 2: more parties must be left than may collude",
        ),
    ],
)
def test_a_refusal_says_how_many_and_why(guarantee: str, lost: int, rule: str) -> None:
    with pytest.raises(InputError) as caught:
        check_tolerate(spec_of(5, 2), lost, guarantee)
    error = caught.value
    assert (error.field, error.value, error.rule, error.remedy) == ("tolerate", lost, rule, "lower one of them")
    with pytest.raises(InputError) as again:
        check_losses(5, 2, lost, guarantee=guarantee)
    assert str(again.value) == str(error) == f"tolerate = {lost} {rule}: lower one of them"
    check_tolerate(spec_of(5, [2] * 5), lost - 1, guarantee)  # a threshold for each party, but the same


@pytest.mark.parametrize("value", [-1, True, False, 1.0, 0.0, 1.5, "1", None, float("nan"), np.float64(1.0)])
def test_only_whole_numbers_from_zero_on_are_numbers_of_parties(value: Any) -> None:
    with pytest.raises(InputError) as caught:
        check_tolerate(spec_of(5, 2), value)
    error = caught.value
    assert error.field == "tolerate"
    assert error.value is value
    assert error.rule == "must be a whole number, 0 or more"
    assert error.remedy == "say how many may drop out"


@pytest.mark.parametrize("threshold", [0, [1, 1, 2, 2, 1], [0, 0, 0, 0, 1]])
@pytest.mark.parametrize("guarantee", ["computational", "statistical"])
def test_drop_outs_need_a_threshold_that_all_share(threshold: Any, guarantee: str) -> None:
    spec = spec_of(5, threshold)
    check_tolerate(spec, 0, guarantee)
    with pytest.raises(InputError) as caught:
        check_tolerate(spec, 1, guarantee)
    error = caught.value
    assert (error.field, error.value) == ("tolerate", 1)
    assert error.rule == "needs one threshold for all, of at least 1"
    assert error.remedy == "set one, or leave tolerate out"


@pytest.mark.parametrize(("count", "threshold"), [(2, 1), (3, 1), (3, 2), (5, 4), (5, 3)])
def test_where_all_must_open_nobody_may_drop_out(count: int, threshold: int) -> None:
    """With so few parties, or so many colluders."""
    assert openings_of(count, threshold) == count
    with pytest.raises(InputError, match=f"must be at most 0 with {count} parties and threshold {threshold}"):
        check_tolerate(spec_of(count, threshold), 1)
