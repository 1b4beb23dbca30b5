"""Baselines that need no data, and the curve of error against threshold."""

from __future__ import annotations

import numpy as np
import pytest

from tpmdp.planning.baselines import (
    non_threshold,
    planning_baselines,
    tmdp,
    total,
    totals_by_threshold,
    trusted_curator,
)


def test_baselines_by_hand() -> None:
    need, everyone = np.array([4.0, 1.0, 1.0, 1.0]), np.ones(4, dtype=bool)
    assert tmdp(need, 2, everyone).total_variance == pytest.approx(8.0)  # four shares of 4/2
    assert non_threshold(need, everyone).total_variance == pytest.approx(7.0)  # everybody its own need
    assert trusted_curator(need).total_variance == 4.0
    assert trusted_curator(need).standard_deviation == 2.0


def test_the_plan_lies_between_the_curator_and_the_other_baselines() -> None:
    rng = np.random.default_rng(0)
    for _ in range(200):
        count = int(rng.integers(3, 40))
        need, receivers = rng.lognormal(0, 2, count), rng.random(count) < 0.5
        receivers[:2] = True
        threshold = int(rng.integers(1, count))
        ours = total(need, threshold, receivers)
        strict, alone, curator = planning_baselines(need, threshold, receivers)
        assert curator.total_variance <= ours * (1 + 1e-9)
        assert ours <= strict.total_variance * (1 + 1e-9)
        assert ours <= alone.total_variance * (1 + 1e-9)


def test_the_threshold_curve_is_the_plan_at_every_threshold() -> None:
    rng = np.random.default_rng(1)
    for count in (1, 2, 3, 7, 20):
        for _ in range(20):
            need, receivers = rng.lognormal(0, 2, count), rng.random(count) < rng.random()
            curve = totals_by_threshold(need, list(range(count)), receivers)
            assert np.allclose(curve, [total(need, t, receivers) for t in range(count)], rtol=1e-12)
            assert (np.diff(curve) >= -1e-9 * curve.max()).all()
