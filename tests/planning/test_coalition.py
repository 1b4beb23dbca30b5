"""Worst coalitions of any variance vector, against every coalition tried one by one in exact arithmetic."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.oracles import least_honest
from tpmdp import InputError, worst_coalitions

VALUES = st.one_of(
    st.sampled_from([0.0, 1.0, 1.0, 2.0, 0.1, 0.3, 1e-12, 1e12, 1e-300, 1e280]), st.floats(0, 1e6, allow_nan=False)
)


@st.composite
def instances(draw: st.DrawFn, personal: bool) -> tuple[list[float], Any, list[bool]]:
    count = draw(st.integers(1, 7))
    variance = draw(st.lists(VALUES, min_size=count, max_size=count))
    one = st.integers(0, count - 1)
    threshold = np.array(draw(st.lists(one, min_size=count, max_size=count))) if personal else draw(one)
    return variance, threshold, draw(st.lists(st.booleans(), min_size=count, max_size=count))


def check(variance: list[float], threshold: Any, receivers: list[bool]) -> None:
    worst = worst_coalitions(variance, threshold, receivers)
    truth = least_honest(variance, threshold, receivers)
    thresholds = np.broadcast_to(threshold, (len(variance),))
    for party, (least, exact) in enumerate(zip(truth, worst.exact_honest(), strict=True)):
        members = worst.coalition(party).tolist()
        if least is None:
            assert exact is None
            assert np.isinf(worst.honest_variance[party])
            assert members == []
            continue
        assert exact is not None
        assert Fraction(exact, 2**1074) == least
        assert abs(Fraction(float(worst.honest_variance[party])) - least) <= least * Fraction(1, 2**52)
        assert len(members) == len(set(members)) == thresholds[party]
        assert party not in members
        assert any(receivers[member] for member in members)
        honest = sum((Fraction(variance[i]) for i in range(len(variance)) if i not in members), Fraction(0))
        assert honest == least


@settings(max_examples=600, deadline=None)
@given(instances(personal=False))
@pytest.mark.slow
def test_common_threshold(instance: tuple[list[float], Any, list[bool]]) -> None:
    check(*instance)


@settings(max_examples=400, deadline=None)
@given(instances(personal=True))
@pytest.mark.slow
def test_personal_thresholds(instance: tuple[list[float], Any, list[bool]]) -> None:
    check(*instance)


def test_a_sum_that_equals_the_need_is_never_reported_short() -> None:
    variance = np.full(3000, 0.1)
    worst = worst_coalitions(variance, 1000, np.ones(3000, dtype=bool))
    assert (worst.honest_variance == float(2000 * Fraction(0.1))).all()


def test_large_inputs_agree_with_a_plain_sum() -> None:
    rng = np.random.default_rng(1)
    variance = rng.lognormal(0, 3, 200_000)
    receivers = np.zeros(200_000, dtype=bool)
    receivers[np.argsort(variance)[:3]] = True
    worst = worst_coalitions(variance, 1000, receivers)
    party = int(np.argmax(variance))
    members = worst.coalition(party)
    assert len(members) == 1000
    assert receivers[members].sum() == 1
    assert worst.honest_variance[party] == pytest.approx(variance.sum() - variance[members].sum(), rel=1e-9)


@pytest.mark.parametrize("bad", [[-1.0, 1.0], [float("nan"), 1.0], [float("inf"), 1.0]])
def test_variances_must_be_finite_and_not_negative(bad: list[float]) -> None:
    with pytest.raises(InputError, match=r"variance = .* must lie in"):
        worst_coalitions(bad, 1, [True, True])


def test_threshold_must_fit() -> None:
    with pytest.raises(InputError, match="threshold = 2 must be less than the number of parties"):
        worst_coalitions([1.0, 1.0], 2, [True, True])
    with pytest.raises(InputError, match=r"threshold = 0\.9 must be a whole number"):
        worst_coalitions([1.0, 1.0], 0.9, [True, True])
    with pytest.raises(InputError, match="receivers = 2 must be an index"):
        worst_coalitions([1.0, 1.0], 1, [2])
