"""The plan against HiGHS, Gurobi and numpy.partition; the certificate check against HiGHS."""

from __future__ import annotations

import time
import tracemalloc
from collections.abc import Callable
from dataclasses import dataclass
from math import comb

import numpy as np

import tpmdp
from benchmarks.timing import Row, best_seconds, times
from tpmdp._util.arrays import FloatArray
from tpmdp.planning.closed_form import optimal_variance, ranking
from tpmdp.planning.lp import solve_enumerated


@dataclass(frozen=True)
class Size:
    highs: tuple[int, int] = (20, 10)
    """Parties and threshold for HiGHS, which enumerates all coalitions."""
    gurobi: tuple[tuple[int, int], ...] = ((13, 6), (2000, 1))
    """The most coalitions and the most parties that Gurobi's free licence takes."""
    checked: int = 10_000
    growth: tuple[int, ...] = (100_000, 1_000_000, 10_000_000)


FULL, TOY = Size(), Size(highs=(6, 3), gurobi=((5, 2), (20, 1)), checked=20, growth=(100, 1000))


def seconds(work: Callable[[], object]) -> float:
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def rows(size: Size = FULL) -> list[Row]:
    """The rows on planning."""
    rng = np.random.default_rng(0)
    parties, most = size.highs
    everyone = np.ones(parties, dtype=bool)
    need = rng.lognormal(0, 1, parties)
    ours = best_seconds(lambda: optimal_variance(need, most, everyone))
    highs = seconds(lambda: solve_enumerated(need, most, everyone))
    what, note = f"plan against HiGHS, n = {parties}, t = {most}", f"{comb(parties, most):,} coalitions"
    result = [Row(what, times(highs / ours), "at least 10,000x", note)]
    for (count, threshold), label in zip(size.gurobi, ("most coalitions", "most parties"), strict=True):
        result.append(against_gurobi(rng.lognormal(0, 1, count), threshold, label))
    result += scaling(size.growth)
    checked = size.checked
    spec = tpmdp.Spec(
        epsilon=rng.uniform(0.01, 1, checked), delta=1e-6, threshold=checked // 2, receivers=rng.random(checked) < 0.5
    )
    certificate = tpmdp.plan(spec).certificate()
    check = seconds(lambda: certificate.check(spec))
    result.append(
        Row(
            f"exact check of {checked:,} parties against HiGHS on {parties}",
            times(highs / check),
            "",
            "higher is faster",
        )
    )
    return result


def against_gurobi(need: FloatArray, threshold: int, label: str) -> Row:
    everyone = np.ones(len(need), dtype=bool)
    ours = best_seconds(lambda: optimal_variance(need, threshold, everyone))
    theirs = seconds(lambda: solve_enumerated(need, threshold, everyone, "gurobi"))
    wanted = "at least 10,000x" if threshold == 1 else ""
    what = f"plan against Gurobi, n = {len(need)}, t = {threshold}"
    return Row(what, times(theirs / ours), wanted, f"{label} its licence takes")


def scaling(counts: tuple[int, ...]) -> list[Row]:
    """Growth with the number of parties, and the plan against numpy.partition on the same array."""
    first, last = min(counts), max(counts)
    rng = np.random.default_rng(1)
    result, per_party, selecting = [], {}, {}
    for count in counts:
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
        if count == last:
            what = f"plan against numpy.partition, n = {count:,}, worst of four cases"
            result.append(Row(what, times(worst), "at most 3x", "lower is better"))
            tracemalloc.start()
            optimal_variance(need, count // 2, receivers)
            peak = tracemalloc.get_traced_memory()[1] / need.nbytes
            tracemalloc.stop()
            result.append(
                Row(f"peak memory of the plan, n = {count:,}", f"{peak:.2f} arrays", "a handful", "beside the needs")
            )
    growth, peer = (taken[last] / taken[first] for taken in (per_party, selecting))
    note = f"lower is better; numpy.partition itself: {times(peer)} (the smaller array fits a cache)"
    result.append(Row(f"time per party, n = {last:,} against n = {first:,}", times(growth), "about 1x", note))
    return result
