"""What a plan promises in words, against all coalitions, one by one."""

from __future__ import annotations

from itertools import combinations
from statistics import NormalDist

import pytest

import tpmdp
from tpmdp.report.plan_promise import plan_promises


@pytest.mark.parametrize("threshold", [1, 2, 3])
@pytest.mark.parametrize("receivers", [[0], [0, 3], [0, 1, 2, 3]])
def test_the_best_guess_is_that_of_the_worst_of_all_coalitions(threshold: int, receivers: list[int]) -> None:
    names = ["a", "b", "c", "d"]
    spec = tpmdp.Spec(epsilon=[0.3, 1, 1, 2], delta=1e-6, threshold=threshold, receivers=receivers, names=names)
    plan = tpmdp.plan(spec)
    for party, promise in enumerate(plan_promises(plan)):
        others = [each for each in range(4) if each != party]
        dangerous = [
            members
            for size in range(1, threshold + 1)
            for members in combinations(others, size)
            if set(members) & set(receivers)
        ]
        if not dangerous:
            assert (promise.guess, promise.coalition) == (0.5, ())
            continue
        left = min(sum(plan.variance[each] for each in range(4) if each not in members) for members in dangerous)
        assert promise.guess == pytest.approx(NormalDist().cdf(0.5 / left**0.5), rel=1e-9)
        assert promise.guess >= NormalDist().cdf(0.5 / left**0.5) * (1 - 1e-12)
        assert promise.beyond is None or promise.beyond >= promise.epsilon * (1 - 1e-9)
