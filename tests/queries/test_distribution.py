"""Distribution functions: against counting, and intervals against simulated noise."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from tpmdp.errors import InputError
from tpmdp.queries.answer import ALL_BINS
from tpmdp.queries.catalogue import make_query
from tpmdp.queries.distribution import Distribution

VALUES = np.array([-1e308, -0.0, 0.0, 5e-324, 1.0, math.nextafter(1.0, 2.0), 2.0, 2.0, 3.0, 1e308])
SHAPES = {
    "skewed": np.random.default_rng(1).exponential(0.1, 900),
    "constant": np.full(900, 0.5),
    "outside": np.full(900, 7.0),
    "even": np.linspace(0, 1, 900),
}


def test_a_value_counts_at_every_edge_that_it_does_not_exceed() -> None:
    query = Distribution("q", "x", (0.0, 1.0, 2.0, 3.0))
    answers = query.answers(query.statistic({"x": VALUES}), len(VALUES), 0.0)
    assert [answer.value for answer in answers] == [(edge >= VALUES).mean() for edge in (0.0, 1.0, 2.0, 3.0)]
    assert [answer.part for answer in answers] == ["at most 0", "at most 1", "at most 2", "at most 3"]
    assert all(answer.interval == (answer.value, answer.value) for answer in answers)


def test_equal_steps_are_the_edges_from_low_to_high() -> None:
    spaced = Distribution("q", "x", low=0.1, high=0.7, bins=3)
    assert spaced.curve_at == pytest.approx([0.1, 0.3, 0.5, 0.7], abs=1e-15)
    assert (spaced.curve_at[0], spaced.curve_at[-1]) == (0.1, 0.7)
    listed = Distribution("q", "x", tuple(spaced.curve_at))
    column = {"x": np.linspace(0, 1, 1001)}
    assert (spaced.statistic(column) == listed.statistic(column)).all()
    assert len(Distribution("q", "x", low=0, high=1).curve_at) == 21


@pytest.mark.parametrize(("low", "high"), [(0.1, 1 / 3), (1e12, 1e12 * (1 + 2e-9)), (-1e100, 1e100)])
def test_as_many_steps_as_there_may_be_give_edges_that_differ(low: float, high: float) -> None:
    edges = Distribution("q", "x", low=low, high=high, bins=999_999).all_edges
    assert (np.diff(edges) > 0).all()


@pytest.mark.parametrize("count", [0, 1, 2])
@pytest.mark.parametrize("error", [0.0, 1e-9, 5.0, 1e6])
def test_few_records_and_any_noise_give_shares_that_rise_or_none(count: int, error: float) -> None:
    query = Distribution("q", "x", low=0, high=1, bins=7)
    vector, random = query.statistic({"x": np.full(count, 0.5)}), np.random.default_rng(count)
    for asked in (query, query.partial("some")):
        for _ in range(30):
            answers = asked.answers(vector + error * random.normal(size=9), count, error)
            values = [answer.value for answer in answers if not answer.is_drowned]
            assert values == sorted(values)
            for answer in answers:
                low, high = answer.interval
                assert 0 <= low <= high <= 1
                if answer.is_drowned:
                    assert (low, high) == (0.0, 1.0)
                    assert answer.note
                else:
                    assert low <= answer.value <= high
                    assert (low < high) == (error > 0)


@pytest.mark.slow
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("mode", ["all", "some"])
@pytest.mark.parametrize("error", [3.0, 60.0, 600.0])
def test_every_share_is_covered(mode: str, error: float, shape: str) -> None:
    """At least 95 % at each edge, up to sampling: 5.5 standard errors, for a false alarm below 1e-6 over all."""
    query = Distribution("q", "x", low=0, high=1, bins=12)
    asked = query if mode == "all" else query.partial("some")
    vector, random, runs = query.statistic({"x": SHAPES[shape]}), np.random.default_rng(2), 400
    truths = np.array([(SHAPES[shape] <= edge).mean() for edge in query.curve_at])
    missed, squares, raw = np.zeros(13), np.zeros(13), np.zeros(13)
    outside = 0  # runs in which the band that holds for all edges does not
    for noise in error * random.normal(size=(runs, 14)):
        answers = asked.answers(vector + noise, 900, error)
        limits = np.array([answer.interval for answer in answers])
        bands = np.array([answer.further_interval(ALL_BINS) or answer.interval for answer in answers])
        outside += bool(((truths < bands[:, 0]) | (truths > bands[:, 1])).any())
        assert ((bands[:, 0] <= limits[:, 0]) & (limits[:, 1] <= bands[:, 1])).all()
        missed += (truths < limits[:, 0]) | (truths > limits[:, 1])
        if error == 60.0 and mode == "all":  # values that rise err less than those that do not
            squares += (np.array([answer.value for answer in answers]) - truths) ** 2
            raw += (query.cumulated(vector + noise, 900).below[1:-1] / 900 - truths) ** 2
    assert outside <= 0.05 * runs + 5.5 * math.sqrt(0.05 * 0.95 * runs)
    assert (missed <= 0.05 * runs + 5.5 * math.sqrt(0.05 * 0.95 * runs)).all()
    assert np.nansum(squares) <= np.nansum(raw)


def test_groups_are_answered_on_their_own() -> None:
    entry = {"name": "q", "kind": "distribution", "column": "x", "edges": [0, 1], "by": {"g": [1, 2]}}
    query = make_query(entry)
    columns = {"x": np.array([0.0, 0.5, 9.0, 1.0]), "g": np.array([1.0, 1.0, 2.0, 3.0])}
    answers = query.answers(query.statistic(columns), 4, 0.0)  # type: ignore[attr-defined]
    assert [(answer.part, answer.value) for answer in answers] == [
        ("g 1, at most 0", 0.5),
        ("g 1, at most 1", 1.0),
        ("g 2, at most 0", 0.0),
        ("g 2, at most 1", 0.0),
    ]


@pytest.mark.parametrize(
    ("wrong", "line"),
    [
        ({}, "edges, or low and high of q = (none) are missing: give edges, or low and high"),
        ({"low": 0}, "edges, or low and high of q = (none) are missing"),
        ({"edges": [0, 1], "low": 0, "high": 1}, "edges of q = 2 numbers cannot be listed where low, high and bins"),
        ({"edges": [0, 1], "bins": 3}, "edges of q = 2 numbers cannot be listed"),
        ({"edges": [0, math.inf]}, "edges of q = infinity must be finite"),
        ({"edges": [0]}, "edges of q = 0 must be 2 to"),
        ({"edges": [1, 0]}, "edges of q = 1, 0 must rise"),
        ({"low": 1, "high": 0}, "must be a finite range"),
        ({"low": 0, "high": 1, "bins": 0}, "bins of q = 0 must be from 1 to 999999: change it"),
        ({"low": 0, "high": 1, "bins": 1_000_000}, "bins of q = 1000000 must be from 1 to 999999"),
    ],
)
def test_wrong_edges_are_refused_in_one_line(wrong: dict[str, Any], line: str) -> None:
    with pytest.raises(InputError) as caught:
        make_query({"name": "q", "kind": "distribution", "column": "x", **wrong})
    assert line in str(caught.value)
    assert "\n" not in str(caught.value)
