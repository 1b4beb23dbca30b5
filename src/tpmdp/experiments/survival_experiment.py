"""Survival curves of a made-up trial: their error against that of a histogram, coverage, and the log-rank test.

Each repetition draws 2,000 patients of two arms anew, and noise as five hospitals would add it that are each promised
epsilon 1 while any two of them collude. lifelines, if it is installed, analyses the same patients without privacy.
"""

from __future__ import annotations

import math
import warnings
from functools import cache
from importlib.util import find_spec
from typing import Final

import numpy as np

from tpmdp._util.arrays import FloatArray, IntArray
from tpmdp.experiments.jobs import Job, Row
from tpmdp.experiments.summary import column, grouped
from tpmdp.planning.plan import plan
from tpmdp.queries.log_rank_test import LogRankTest
from tpmdp.queries.prefix_factor import PrefixFactor, prefix_factor
from tpmdp.queries.survival_curve import FollowUp, SurvivalCurve
from tpmdp.spec import Spec

PATIENTS: Final = 2000
HOSPITALS: Final = 5
THRESHOLD: Final = 2
BINS: Final = (50, 200)
RATIOS: Final = (1.0, 0.7)
REPETITIONS, QUICK_REPETITIONS = 1000, 20
_BLOCK: Final = 50
_RATE, _LOST = 0.9, 0.25  # events, and patients who leave, in the time of the trial
_LEVEL: Final = 0.05


def jobs(quick: bool, seed: int) -> list[Job]:
    """Blocks of repetitions for each number of bins and ratio of hazards.

    >>> {job.panel for job in jobs(True, 1)} == {"50 bins", "200 bins"}
    True
    """
    repetitions = QUICK_REPETITIONS if quick else REPETITIONS
    return [
        Job("survival", f"{bins} bins", ratio, first=first, count=min(_BLOCK, repetitions - first), seed=seed)
        for bins in BINS
        for ratio in RATIOS
        for first in range(0, repetitions, _BLOCK)
    ]


def run(job: Job) -> list[Row]:
    """One row for each repetition; errors are mean squares over the bins.

    >>> rows = run(Job("survival", "50 bins", 1.0, 0, 1, 1))
    >>> 0 < rows[0]["factor"] < rows[0]["histogram"]
    True
    """
    bins = int(job.panel.split()[0])
    return [_row(job, bins, job.random(number)) | {"repetition": number} for number in _numbers(job)]


def _numbers(job: Job) -> range:
    return range(job.first, job.first + job.count)


@cache
def noise_of_sum() -> float:
    """Standard error of a sum of sensitivity 1 in the plan."""
    spec = Spec(epsilon=[1.0] * HOSPITALS, delta=1e-6, threshold=THRESHOLD)
    return math.sqrt(plan(spec).total_variance)


def _row(job: Job, bins: int, random: np.random.Generator) -> Row:
    factor, alone = prefix_factor(bins), noise_of_sum()
    error = alone * factor.pair_distance
    arms = [_arm(PATIENTS // 2, rate, random) for rate in (_RATE, _RATE * job.x)]
    counts = [_binned(*arm, bins) for arm in arms]
    total = [counts[0][place] + counts[1][place] for place in (0, 1)]
    truth = _read(factor, total, np.zeros(2 * bins), error=0.0).values
    curve = SurvivalCurve(_read(factor, total, random.normal(0, error, 2 * bins), error=error))
    clear, band = curve.clear, curve.noise_band
    inside = (band.low <= truth + 1e-9) & (truth <= band.high + 1e-9)
    ends = np.arange(1, bins + 1) / bins
    people = (np.exp(-_RATE * ends) + np.exp(-_RATE * job.x * ends)) / 2
    row: Row = {
        "panel": job.panel,
        "ratio": job.x,
        "factor": float(np.mean((curve.values - truth) ** 2)),
        "histogram": float(np.mean((_of_histogram(factor, total, alone, random=random) - truth) ** 2)),
        "sampling": float(np.mean((truth - people) ** 2)),
        "inside": int(inside[:clear].sum()),
        "told": clear,
        "seed": job.seed,
    }
    noise = [random.normal(0, error, 2 * bins) for _ in arms]
    for name, size in (("known", PATIENTS / 2), ("noisy", None)):
        groups = [_read(factor, arm, each, error=error, size=size) for arm, each in zip(counts, noise, strict=True)]
        test = LogRankTest(groups)
        for kind, with_noise in (("counted", True), ("ignored", False)):
            p_value = test.p_value(test.chi_square(with_noise=with_noise)) if test.is_told else 1.0
            row[f"{name} {kind}"] = p_value <= _LEVEL
    exact = LogRankTest([_read(factor, arm, np.zeros(2 * bins), error=0.0, size=None) for arm in counts])
    row["exact"] = exact.p_value(exact.chi_square()) <= _LEVEL
    return row | _lifelines(arms, ends, people)


def _arm(count: int, rate: float, random: np.random.Generator) -> tuple[FloatArray, FloatArray]:
    """Times, as shares of the time of the trial, and whether they are those of an event."""
    event = random.exponential(1 / rate, count)
    followed = np.minimum(random.exponential(1 / _LOST, count), random.uniform(0.6, 1.4, count))
    return np.minimum(event, followed), (event <= followed).astype(np.float64)


def _binned(times: FloatArray, events: FloatArray, bins: int) -> tuple[IntArray, IntArray]:
    place = np.minimum((times * bins).astype(np.int64), bins - 1)
    happened = (events == 1) & (times < 1)
    return np.bincount(place[happened], minlength=bins), np.bincount(place[~happened], minlength=bins)


def _read(
    factor: PrefixFactor,
    counts: list[IntArray] | tuple[IntArray, IntArray],
    noise: FloatArray,
    *,
    error: float,
    size: float | None = PATIENTS,
) -> FollowUp:
    return FollowUp.read(np.concatenate([factor.applied(each) for each in counts]) + noise, error, size=size)


def _of_histogram(
    factor: PrefixFactor, counts: list[IntArray], alone: float, *, random: np.random.Generator
) -> FloatArray:
    """The curve that comes the same way from noisy counts of bins, with the public total."""
    error = alone * math.sqrt(2)
    noisy = np.concatenate(counts) + random.normal(0, error, 2 * factor.bins)
    noisy -= (noisy.sum() - PATIENTS) / len(noisy)
    vector = np.concatenate([factor.product(each) for each in np.split(noisy, 2)])
    return FollowUp.read(vector, error, size=PATIENTS).values


def _lifelines(arms: list[tuple[FloatArray, FloatArray]], ends: FloatArray, people: FloatArray) -> Row:
    """What lifelines finds from the times themselves; None where it is not installed."""
    if find_spec("lifelines") is None:
        return {"lifelines": None, "lifelines test": None}
    from lifelines import KaplanMeierFitter
    from lifelines.statistics import logrank_test

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of pandas
        (first, second) = arms
        fitted = KaplanMeierFitter().fit(np.concatenate([first[0], second[0]]), np.concatenate([first[1], second[1]]))
        test = logrank_test(first[0], second[0], first[1], second[1])
        curve = np.asarray(fitted.predict(ends), dtype=np.float64)
    return {"lifelines": float(np.mean((curve - people) ** 2)), "lifelines test": bool(test.p_value <= _LEVEL)}


def survival_points(rows: list[Row]) -> list[Row]:
    """Root mean square errors, coverage and shares of rejections for each panel and ratio of hazards."""
    points: list[Row] = []
    for (panel, ratio), some in grouped(rows, "panel", "ratio").items():
        errors = {
            name: math.sqrt(float(column(some, name).mean()))
            for name in ("factor", "histogram", "sampling", "lifelines")
            if some[0][name] is not None
        }
        tests = ("known counted", "known ignored", "noisy counted", "noisy ignored", "exact", "lifelines test")
        shares = {name: float(column(some, name).mean()) for name in tests if some[0][name] is not None}
        points.append(
            {
                "panel": panel,
                "ratio": ratio,
                "runs": len(some),
                **errors,
                "gain": errors["histogram"] / errors["factor"],
                "coverage": float(column(some, "inside").sum() / column(some, "told").sum()),
                "told": float(column(some, "told").mean()) / int(str(panel).split()[0]),
                **shares,
            }
        )
    return points
