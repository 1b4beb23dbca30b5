"""Prefix sums read from a noisy vector, against plain least squares and against tests inverted one by one."""

from __future__ import annotations

import numpy as np
import pytest

from tpmdp._util.arrays import FloatArray
from tpmdp.queries.answer import Z_95
from tpmdp.queries.cumulated import Cumulated, rising_of
from tpmdp.queries.prefix_factor import prefix_factor
from tpmdp.queries.quantile import Quantiles


def plain(bins: int, total_known: bool) -> FloatArray:
    """The matrix of the best linear unbiased estimate of the prefix sums, from textbook formulas."""
    matrix = np.array([prefix_factor(bins).applied(row) for row in np.eye(bins, dtype=np.int64)]).T
    inverse = np.linalg.inv(matrix)
    prefix = np.tril(np.ones((bins, bins)))
    if total_known:  # weighted least squares under a constraint: remove what is wrong with the total
        covariance, ones = inverse @ inverse.T, np.ones(bins)
        gain = np.outer(covariance @ ones, ones) / (ones @ covariance @ ones)
        inverse = (np.eye(bins) - gain) @ inverse
    return np.asarray(prefix @ inverse, dtype=np.float64)


@pytest.mark.parametrize("is_known", [True, False], ids=["known total", "noisy total"])
@pytest.mark.parametrize("bins", [1, 2, 5, 33])
def test_sums_are_the_best_linear_estimate_and_their_errors_are_as_stated(bins: int, is_known: bool) -> None:
    random = np.random.default_rng(bins)
    counts, noise = random.integers(0, 50, size=bins), random.normal(size=bins)
    total = int(counts.sum())
    cumulated = Cumulated.read(prefix_factor(bins).applied(counts) + noise, total if is_known else None)
    reading = plain(bins, is_known)
    np.testing.assert_allclose(cumulated.below[1:], np.cumsum(counts) + reading @ noise, atol=1e-9)
    covariance = reading @ reading.T
    np.testing.assert_allclose(cumulated.variances[1:], np.diag(covariance), atol=1e-9)
    np.testing.assert_allclose(cumulated.with_total[1:], covariance[-1], atol=1e-9)
    assert cumulated.below[0] == cumulated.variances[0] == cumulated.with_total[0] == 0
    _, errors = cumulated.less_share(0.3)
    weights = np.vstack([np.zeros(bins), reading]) - 0.3 * reading[-1]
    np.testing.assert_allclose(errors, np.linalg.norm(weights, axis=1), atol=1e-7)


@pytest.mark.parametrize("is_known", [True, False], ids=["known total", "noisy total"])
@pytest.mark.parametrize("error", [1.0, 8.0, 60.0])
def test_limits_of_shares_are_those_that_a_likelihood_ratio_cannot_exclude(is_known: bool, error: float) -> None:
    """Every share is tried: how much worse it fits than the best possible share, in squared standard errors."""
    random = np.random.default_rng(7)
    counts = np.array([0, 3, 40, 7, 0, 10])
    shares = np.linspace(0, 1, 2001)
    wide, beyond = 0, 0
    for _ in range(20):
        vector = prefix_factor(6).applied(counts) + error * random.normal(size=6)
        cumulated = Cumulated.read(vector, 60 if is_known else None)
        lows, highs = cumulated.share_limits(Z_95, error)
        for place in range(1, 6):
            entry = [(gap[place], errors[place]) for gap, errors in map(cumulated.less_share, shares[::20].tolist())]
            assert lows[place] < highs[place]
            if cumulated.total <= 0 or (lows[place], highs[place]) == (0.0, 1.0):
                wide += 1
                continue
            misfit = np.array([(gap / (error * spread)) ** 2 for gap, spread in entry])
            inside = shares[::20][misfit <= Z_95**2 + misfit.min() + 1e-9]
            assert lows[place] == pytest.approx(inside.min(), abs=0.011)
            assert highs[place] == pytest.approx(inside.max(), abs=0.011)
            beyond += not 0 <= cumulated.below[place] <= cumulated.total
    assert (wide > 0) == (error == 60.0)
    assert beyond > 0 or error == 60.0


def test_sums_made_to_rise_rise_and_leave_rising_sums_alone() -> None:
    random = np.random.default_rng(3)
    for size in (1, 2, 10, 100):
        noisy = random.normal(size=size)
        assert (np.diff(rising_of(noisy)) >= 0).all()
        assert (rising_of(np.sort(noisy)) == np.sort(noisy)).all()


@pytest.mark.parametrize("bins", [2, 5, 64, 300])
def test_a_million_records_without_noise_give_the_exact_counts(bins: int) -> None:
    random = np.random.default_rng(bins)
    column = random.normal(5.0, 2.0, size=10**6)
    query = Quantiles("q", "x", 0.0, 10.0, bins=bins)
    cumulated = query.cumulated(query.statistic({"x": column}), len(column))
    places = np.minimum((np.clip(column, 0, 10) / 10 * bins).astype(int), bins - 1)
    assert cumulated.below.tolist() == [0, *np.cumsum(np.bincount(places, minlength=bins)).tolist()]


@pytest.mark.parametrize(("bins", "times"), [(64, 1.7), (256, 2.7), (1024, 4.5)])
def test_prefix_sums_err_less_than_those_of_a_histogram_with_the_known_total(bins: int, times: float) -> None:
    """What is missing from the total is spread over the bins of the histogram; by exact formulas."""
    place = np.arange(1, bins)
    histogram = 2.0 * np.mean(place * (bins - place) / bins)  # a record moves two bins
    query = Quantiles("q", "x", 0.0, 1.0, bins=bins)
    ours = query.spread**2 * np.mean(query.cumulated(np.zeros(bins), 0).variances[1:-1])
    assert histogram / ours >= times**2


@pytest.mark.parametrize("error", [20.0, 120.0])
@pytest.mark.parametrize("mode", ["all", "some"])
def test_quantiles_are_covered_also_where_data_leave_most_bins_empty(mode: str, error: float) -> None:
    """At most 2.5 % miss on either side: 25 and 3 values, in few bins; a false alarm has a probability below 1e-6."""
    query = Quantiles("q", "x", 0.0, 1.0, probabilities=(0.1, 0.5, 0.9), bins=50)
    column = np.repeat([0.305, 0.31, 0.97], [250, 200, 150])
    asked = query if mode == "all" else query.partial("some")
    truths = np.quantile(column, query.probabilities, method="inverted_cdf")
    vector, random, runs = query.statistic({"x": column}), np.random.default_rng(1), 400
    missed = np.zeros((2, 3))
    for _ in range(runs):
        noise = error * random.normal(size=50)
        for place, answer in enumerate(asked.answers(vector + noise, len(column), error)):
            missed[0, place] += truths[place] < answer.interval[0]
            missed[1, place] += truths[place] > answer.interval[1]
            assert answer.interval[0] <= answer.value <= answer.interval[1]
    assert (missed <= 0.025 * runs + 5.5 * np.sqrt(0.025 * runs)).all()
