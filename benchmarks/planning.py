"""The plan against HiGHS, Gurobi and numpy.partition; the certificate check against HiGHS."""

from __future__ import annotations

import time
import tracemalloc

import numpy as np

import tpmdp
from benchmarks.timing import Row, best_seconds, times
from tpmdp.planning.closed_form import optimal_variance, ranking
from tpmdp.planning.lp import solve_enumerated


def once(work: object) -> float:
    start = time.perf_counter()
    work()  # type: ignore[operator]
    return time.perf_counter() - start


def rows() -> list[Row]:
    """The rows on planning."""
    rng = np.random.default_rng(0)
    everyone = np.ones(20, dtype=bool)
    need = rng.lognormal(0, 1, 20)
    ours = best_seconds(lambda: optimal_variance(need, 10, everyone))
    highs = once(lambda: solve_enumerated(need, 10, everyone))
    result = [Row("plan against HiGHS, n = 20, t = 10", times(highs / ours), "at least 10,000x", "184,756 coalitions")]
    for count, threshold, label in ((13, 6, "most coalitions"), (2000, 1, "most parties")):
        need, everyone = rng.lognormal(0, 1, count), np.ones(count, dtype=bool)
        mine = best_seconds(lambda need=need, t=threshold, who=everyone: optimal_variance(need, t, who))  # type: ignore[misc]
        theirs = once(lambda need=need, t=threshold, who=everyone: solve_enumerated(need, t, who, "gurobi"))
        what = f"plan against Gurobi, n = {count}, t = {threshold}"
        result.append(
            Row(what, times(theirs / mine), "at least 10,000x" if count > 13 else "", f"{label} its licence takes")
        )
    result += scaling()
    spec = tpmdp.Spec(
        epsilon=rng.uniform(0.01, 1, 10_000), delta=1e-6, threshold=5000, receivers=rng.random(10_000) < 0.5
    )
    certificate = tpmdp.plan(spec).certificate()
    check = once(lambda: certificate.check(spec))
    result.append(
        Row("exact check of 10,000 parties against HiGHS on 20", times(highs / check), "", "higher is faster")
    )
    return result


def scaling() -> list[Row]:
    """Growth from 1e5 to 1e7 parties, and the plan against numpy.partition on the same array."""
    rng = np.random.default_rng(1)
    result, per_party, selecting = [], {}, {}
    for count in (100_000, 1_000_000, 10_000_000):
        need, receivers = rng.lognormal(0, 2, count), rng.random(count) < 0.5
        few = np.zeros(count, dtype=bool)
        few[rng.choice(count, 10, replace=False)] = True
        cases = ((5, np.ones(count, dtype=bool)), (count // 2, receivers), (3, few), (count - 1, receivers))
        worst = 0.0
        for threshold, mask in cases:
            place = count - ranking(count, threshold).rank
            ours = best_seconds(lambda need=need, t=threshold, who=mask: optimal_variance(need, t, who), repeats=5)  # type: ignore[misc]
            select = best_seconds(lambda need=need, place=place: np.partition(need, place), repeats=5)  # type: ignore[misc]
            worst = max(worst, ours / select)
            if threshold == count // 2:
                per_party[count], selecting[count] = ours / count, select / count
        if count == 10_000_000:
            what = "plan against numpy.partition, n = 1e7, worst of four cases"
            result.append(Row(what, times(worst), "at most 3x", "lower is better"))
            tracemalloc.start()
            optimal_variance(need, count // 2, receivers)
            peak = tracemalloc.get_traced_memory()[1] / need.nbytes
            tracemalloc.stop()
            result.append(
                Row("peak memory of the plan, n = 1e7", f"{peak:.2f} arrays", "a handful", "beside the needs")
            )
    growth, peer = (taken[10_000_000] / taken[100_000] for taken in (per_party, selecting))
    note = f"lower is better; numpy.partition itself: {times(peer)} (1e5 numbers fit a cache, 1e7 do not)"
    result.append(Row("time a party, n = 1e7 against n = 1e5", times(growth), "about 1x", note))
    return result
