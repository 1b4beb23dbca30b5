"""Contributions against exact rationals: norms, distances and entries are what the plan counts on, for any floats."""

from __future__ import annotations

import itertools
import math
import warnings
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from tpmdp.errors import InputError
from tpmdp.flower import update as c
from tpmdp.flower.update import average, bound, clipped, contribution, diameter, flatten, moved, update_of

TINY, LEAST, HUGE = 2.2250738585072014e-308, 5e-324, 1.7976931348623157e308
AWKWARD = [
    [1.0],
    [-0.0, 0.0],
    [LEAST],
    [LEAST] * 7,
    [TINY, -TINY, LEAST],
    [HUGE],
    [HUGE, -HUGE],
    [HUGE] * 5,
    [1e308, 1e-308, 1.0],
    [1e154, 1e155],  # squares overflow
    [1e-162, 1e-170],  # squares underflow
    [3.0, 4.0],
    [0.1] * 10,
    [1 / 3] * 999,
    [1.0 - 2**-53],
    [1.0 + 2**-52],
    [float(np.float32(0.1))] * 100,
]
CLIPS = [1e-9, 1e-3, 1.0, math.pi, 1e9]


def exact(values: NDArray[Any]) -> list[Fraction]:
    return [Fraction(float(value)) for value in values.tolist()]


def square(values: NDArray[Any]) -> Fraction:
    return sum((value * value for value in exact(values)), Fraction(0))


@pytest.mark.parametrize("clip", CLIPS)
@pytest.mark.parametrize("update", AWKWARD, ids=range(len(AWKWARD)))
def test_no_norm_exceeds_the_clip(update: list[float], clip: float) -> None:
    given = np.array(update)
    short = clipped(given, clip)
    assert short.shape == given.shape
    assert np.isfinite(short).all()
    assert square(short) <= Fraction(clip) ** 2
    if square(given) <= Fraction(clip * (1 - 2**-20)) ** 2:
        assert short.tolist() == given.tolist()  # what is short enough stays as it is
    elif max(map(abs, update)) < 1e300:
        assert square(short) >= Fraction(clip * (1 - 2**-20)) ** 2  # and what is too long is not shortened too much
        scale = np.max(np.abs(given))
        np.testing.assert_allclose(short / np.max(np.abs(short)), given / scale, rtol=1e-12, atol=1e-300)


@given(
    st.lists(st.floats(width=64, allow_nan=False, allow_infinity=False), max_size=20),
    st.floats(1e-9, 1e9),
)
def test_no_norm_exceeds_the_clip_for_any_floats(update: list[float], clip: float) -> None:
    short = clipped(np.array(update, dtype=np.float64), clip)
    assert square(short) <= Fraction(clip) ** 2


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
def test_what_is_not_finite_counts_as_nothing(bad: float) -> None:
    assert clipped(np.array([0.5, bad]), 1.0).tolist() == [0.0, 0.0]
    assert contribution(np.array([0.5, bad]), 1.0, 1.0, 0.5).tolist()[:2] == [0.0, 0.0]


def test_an_empty_update() -> None:
    assert clipped(np.zeros(0), 1.0).size == 0


@pytest.mark.parametrize("value", [1.0, 1e-4, 0.001, 1e300, 1 / 3])
def test_a_million_entries(value: float) -> None:
    short = clipped(np.full(10**6, value), 1.0)
    assert Fraction(float(short[0])) ** 2 * 10**6 <= 1  # all entries are equal
    assert (short == short[0]).all()
    assert float(short[0]) >= min(value, 0.000999999)


def test_a_million_entries_of_all_sizes() -> None:
    random = np.random.default_rng(1)
    update = random.normal(size=10**6) * 10.0 ** random.integers(-200, 200, size=10**6)
    short = clipped(update, 1.0)
    assert math.fsum((short * short).tolist()) <= 1 - 2**-27


def test_too_many_entries_are_refused() -> None:
    update = np.broadcast_to(np.zeros(1), (c.ENTRIES_MAX + 1,))
    with pytest.raises(InputError, match="entries of the model"):
        clipped(update, 1.0)


@pytest.mark.parametrize("clip", CLIPS)
@pytest.mark.parametrize("weight", [0.0, 1e-12, 0.1, 1 / 3, 1.0])
def test_contributions_are_never_further_apart_than_the_diameter(clip: float, weight: float) -> None:
    most = Fraction(diameter(clip, weight)) ** 2
    reach = Fraction(bound(clip, weight, True))
    long = clip * 10
    updates = [[long, 0.0], [-long, 0.0], [0.0, long], [long, long], [-long, -long], [0.0, 0.0], [clip / 3, -clip / 7]]
    shares: list[float] = [0.0, LEAST, 1e-9, 1 / 3, 0.25, 1 - 2**-53, 1.0, 5.0, math.inf]
    made = [contribution(np.array(update), clip, weight, share) for update in updates for share in shares]
    squares = [[Fraction(x) for x in vector.tolist()] for vector in made]
    for one, other in itertools.combinations(squares, 2):
        assert sum((a - b) ** 2 for a, b in zip(one, other, strict=True)) <= most
    assert all(abs(entry) <= reach for vector in squares for entry in vector)


def test_the_diameter_is_reached() -> None:
    """Opposite updates, and all examples against none: a smaller diameter would be wrong."""
    one, other = (contribution(np.array([sign, 0.0]), 1.0, 1.0, 1.0) for sign in (1.0, -1.0))
    none = contribution(np.array([1.0, 0.0]), 1.0, 1.0, 0.0)
    for pair in ((one, other), (one, none)):
        assert math.sqrt(square(pair[0] - pair[1])) > 1.9999999
    assert not none.any()  # no examples, no trace
    assert 2.0 <= diameter(1.0, 1.0) < 2.000001
    assert Fraction(c.height(1.0)) ** 2 <= 3


@given(
    st.lists(st.floats(-1e6, 1e6), min_size=1, max_size=4),
    st.lists(st.floats(-1e6, 1e6), min_size=4, max_size=4),
    st.floats(1e-9, 1e9),
    st.floats(0, 1),
    st.floats(0, 2),
    st.floats(0, 2),
)
def test_distances_of_any_pair(
    one: list[float], other: list[float], clip: float, weight: float, share: float, second: float
) -> None:
    if 0 < weight < 1e-40:
        weight = 0.0  # a plan cannot have such sensitivities
    for shares in ((share, second), (None, None)):
        first = contribution(np.array(one), clip, weight, shares[0])
        last = contribution(np.array(other[: len(one)]), clip, weight, shares[1])
        gap = sum((a - b) ** 2 for a, b in zip(exact(first), exact(last), strict=True))
        assert gap <= Fraction(diameter(clip, weight)) ** 2
        largest = Fraction(bound(clip, weight, shares[0] is not None))
        assert all(abs(entry) <= largest for entry in exact(first))


def test_shares_are_bounded_and_weights_multiply() -> None:
    update = np.array([0.25, -0.5])
    assert contribution(update, 1.0, 0.5).tolist() == [0.125, -0.25]
    half = contribution(update, 1.0, 0.5, 0.5)
    assert half[:2].tolist() == [0.0625, -0.125]
    assert half[2] / c.height(1.0) == pytest.approx(0.25)
    assert contribution(update, 1.0, 1.0, 7.0).tolist() == contribution(update, 1.0, 1.0, 1.0).tolist()
    assert contribution(update, 1.0, 1.0, -3.0).tolist() == [0.0, 0.0, 0.0]


def test_average_with_and_without_counts() -> None:
    updates, shares, weights = np.array([[0.1, 0.2], [-0.4, 0.3], [0.0, 0.5]]), [0.5, 1.0, 0.25], [1.0, 0.5, 1.0]
    plain = sum(contribution(u, 1.0, w) for u, w in zip(updates, weights, strict=True))
    found, divisor = average(np.asarray(plain), 1.0, np.array(weights), False)
    np.testing.assert_allclose(found, np.average(updates, axis=0, weights=weights), rtol=1e-14)
    assert divisor == 2.5
    total = sum(contribution(u, 1.0, w, s) for u, w, s in zip(updates, weights, shares, strict=True))
    found, divisor = average(np.asarray(total), 1.0, np.array(weights), True)
    parts = np.array(weights) * shares
    np.testing.assert_allclose(found, np.average(updates, axis=0, weights=parts), rtol=1e-12)
    assert divisor == pytest.approx(parts.sum())


@pytest.mark.parametrize("count", [-50.0, 0.0, 0.3])
def test_a_noisy_number_of_examples_is_at_least_one_full_client(count: float) -> None:
    found, divisor = average(np.array([4.0, count]), 1.0, np.array([0.25, 0.5]), True)
    assert divisor == 0.5
    assert found.tolist() == [8.0]


# Models --------------------------------------------------------------------------------------------------------------

MODEL: list[NDArray[Any]] = [
    np.arange(6, dtype=np.float32).reshape(2, 3),
    np.array([7, 8], dtype=np.int64),
    np.array(0.5),  # no dimension
    np.zeros((0, 4), dtype=np.float64),
    np.array([True, False]),
    np.array([[1.5]], dtype=np.float16),
    np.asfortranarray(np.arange(4.0).reshape(2, 2)),
]


def test_flatten_and_moved_are_inverse() -> None:
    flat = flatten(MODEL)
    assert flat.dtype == np.float64
    assert flat.tolist() == [0, 1, 2, 3, 4, 5, 0.5, 1.5, 0, 1, 2, 3]
    step = np.arange(12) / 4
    after = moved(MODEL, step)
    assert [array.dtype for array in after] == [array.dtype for array in MODEL]
    assert [array.shape for array in after] == [array.shape for array in MODEL]
    assert after[1].tolist() == [7, 8]
    assert after[4].tolist() == [True, False]
    assert flatten(after).tolist() == (flat + step).tolist()
    assert update_of(MODEL, after).tolist() == step.tolist()
    assert not flatten(moved(MODEL, -flat)).any()
    assert MODEL[0][0, 1] == 1  # what was given is not changed


def test_models_without_floats_or_arrays() -> None:
    assert flatten([np.array([1])]).size == flatten([]).size == update_of([np.array([1])], [np.array([5])]).size == 0


@pytest.mark.parametrize("after", [[], [np.zeros(3)], [np.zeros((2, 1))], [np.zeros(2), np.zeros(1)]])
def test_other_shapes_are_refused(after: list[NDArray[Any]]) -> None:
    with pytest.raises(InputError, match="shapes"):
        update_of([np.zeros(2)], after)


def test_float32_updates_are_differences_of_what_was_given() -> None:
    before, after = np.array([0.1], dtype=np.float32), np.array([0.3], dtype=np.float32)
    assert Fraction(float(update_of([before], [after])[0])) == Fraction(float(after[0])) - Fraction(float(before[0]))


def test_an_update_that_overflows_counts_as_nothing() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        update = update_of([np.array([-HUGE, 0.0])], [np.array([HUGE, 1.0])])
    assert clipped(update, 1.0).tolist() == [0.0, 0.0]
