"""Queries of one study with the same features are read together: each has the noise of their budgets in one."""

from __future__ import annotations

import math
from typing import Any, Final

import numpy as np
import pytest

from tests.queries.cases import sum_query
from tpmdp.queries.base import Query
from tpmdp.queries.computation import MaskedSum

BOUNDS: Final = {"x": [0, 10], "y": [-5, 5]}
COVARIANCE: Final = {"kind": "covariance", "bounds": BOUNDS}
CORRELATION: Final = {"kind": "correlation", "bounds": BOUNDS}
LINE: Final = {"kind": "linear_regression", "target": "y", "bounds": BOUNDS}
QUANTILES: Final = {"kind": "quantiles", "column": "x", "low": 0, "high": 10, "bins": 6}
COUNT: Final = {"kind": "count", "column": "x", "at_least": 3}
WHERE: Final = {"where": "y > 0"}
BY: Final = {"by": {"g": [1, 2]}}


def queries_of(*entries: dict[str, Any]) -> tuple[Query, ...]:
    return tuple(sum_query({**entry, "name": f"q{place}"}) for place, entry in enumerate(entries))


@pytest.mark.parametrize(
    ("entries", "shares"),
    [
        ((COVARIANCE, CORRELATION), [1, 1]),
        ((COVARIANCE, LINE, CORRELATION, COUNT), [0.75, 0.75, 0.75, 0.25]),
        ((QUANTILES, {**QUANTILES, "probabilities": [0.1], "weight": 3}), [1, 1]),
        (({**QUANTILES, **BY}, {**QUANTILES, **BY, "probabilities": [0.9]}), [1, 1]),
        ((COVARIANCE, {**CORRELATION, **WHERE}), [0.5, 0.5]),
        (({**COVARIANCE, **WHERE}, {**CORRELATION, **WHERE}), [1, 1]),
        (({**COVARIANCE, **WHERE}, {**CORRELATION, "where": "y > 1"}), [0.5, 0.5]),
        ((QUANTILES, {**QUANTILES, "bins": 7}), [0.5, 0.5]),
        ((QUANTILES, {**QUANTILES, "high": 11}), [0.5, 0.5]),
        ((COUNT, COUNT), [0.5, 0.5]),
    ],
)
def test_noise_is_that_of_the_budgets_of_all_alike(entries: tuple[dict[str, Any], ...], shares: list[float]) -> None:
    computation = MaskedSum(queries_of(*entries))
    for query, scale, share in zip(computation.sums, computation.answer_scales, shares, strict=True):
        assert scale * query.spread == pytest.approx(math.sqrt(share))


def test_parts_are_exact_without_noise_and_have_the_noise_that_is_stated() -> None:
    computation = MaskedSum(queries_of(COVARIANCE, COUNT, {**LINE, "weight": 2}, QUANTILES))
    random = np.random.default_rng(3)
    table = {"x": random.uniform(0, 10, 200), "y": random.uniform(-5, 5, 200)}
    total = computation.statistic(table, 1.0)
    exact = [query.statistic(table) for query in computation.sums]
    for part, statistic in zip(computation.split(total, []), exact, strict=True):
        np.testing.assert_allclose(part, statistic, rtol=1e-12, atol=1e-12)
    runs = [computation.split(noise, []) for noise in random.normal(size=(4000, len(total)))]
    for place, scale in enumerate(computation.answer_scales):
        deviation = np.std([run[place] for run in runs], axis=0) * scale
        assert (np.abs(deviation - 1) < 0.07).all()  # six standard errors of a standard deviation of 4,000 draws
    together = {place: np.array([run[place][0] for run in runs]) for place in (0, 2)}
    assert (together[0] == together[2]).all()


def test_what_parties_send_and_how_far_it_moves_is_as_before() -> None:
    """Reading together is done with the noisy sum: scales and sensitivity do not know of it."""
    alike = MaskedSum(queries_of(COVARIANCE, CORRELATION))
    apart = MaskedSum(queries_of(COVARIANCE, {**CORRELATION, "bounds": {"x": [0, 10], "z": [-5, 5]}}))
    assert alike.scales == apart.scales
    assert alike.width == apart.width
