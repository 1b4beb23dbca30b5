"""Bounds on a probability, against SciPy's and against the definition."""

from __future__ import annotations

import pytest
from scipy.stats import binom, binomtest

from tpmdp._util.binomial import binomial_bounds, lower_bound, upper_bound
from tpmdp.errors import InputError


@pytest.mark.parametrize(("count", "trials"), [(0, 1), (1, 1), (0, 50), (3, 50), (50, 50), (950, 1000)])
@pytest.mark.parametrize("confidence", [0.5, 0.95, 1 - 1e-9])
def test_bounds_are_those_of_clopper_and_pearson(count: int, trials: int, confidence: float) -> None:
    other = binomtest(count, trials).proportion_ci(confidence, method="exact")
    assert binomial_bounds(count, trials, confidence) == pytest.approx((other.low, other.high), rel=1e-9, abs=1e-15)


@pytest.mark.parametrize("chance", [0.001, 0.3, 0.95])
def test_a_bound_errs_as_often_as_it_says_at_most(chance: float) -> None:
    trials, doubt = 40, 0.01
    above = sum(binom.pmf(k, trials, chance) for k in range(trials + 1) if lower_bound(k, trials, doubt) > chance)
    below = sum(binom.pmf(k, trials, chance) for k in range(trials + 1) if upper_bound(k, trials, doubt) < chance)
    assert max(above, below) <= doubt


@pytest.mark.parametrize(("count", "trials", "doubt"), [(-1, 5, 0.1), (6, 5, 0.1), (0, 0, 0.1), (1, 5, 0.0), (1, 5, 1)])
def test_nonsense_is_refused(count: int, trials: int, doubt: float) -> None:
    with pytest.raises(InputError):
        lower_bound(count, trials, doubt)
