"""Balanced weights (W) against all mechanisms: at every threshold, for budgets related to the data, and coverage.

Except for the regression nothing is simulated: errors and coverage are computed for budgets and bits drawn at random.
Up to 50 parties are a consortium, with its budgets and fair coins for bits; more parties are the paper's groups.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

import numpy as np
from scipy import stats

import tpmdp.experiments.consortium_experiment as consortium
import tpmdp.experiments.count_experiment as count
import tpmdp.experiments.regression_experiment as regression
from tpmdp._util.arrays import FloatArray
from tpmdp._util.clock import now_s
from tpmdp.experiments.jobs import Job, Row, Value, rows_of_draws
from tpmdp.experiments.population import People
from tpmdp.experiments.scenario import DEFAULT, Scenario
from tpmdp.experiments.weights_records import PARTIES, record_rows
from tpmdp.mechanisms.local_sample import LocalSample
from tpmdp.mechanisms.mechanism import Mechanism, Setting
from tpmdp.mechanisms.problem import CountProblem
from tpmdp.mechanisms.registry import MECHANISMS
from tpmdp.planning.balance import balance
from tpmdp.planning.plan import plan
from tpmdp.spec import Spec

SMALL: Final = consortium.SIZES
LARGE: Final = DEFAULT.parties
SIZES: Final = (*SMALL, LARGE)
COMPARED: Final = count.NAMES
RIVALS: Final = ("G", "W", "two levels", "T", "Sample", "Sample, scaled back")
"""W, what it improves on, and what is nearest to it."""
MEASURED: Final = (1_000, 10_000)
"""Numbers of parties at which the targets for W are checked."""
HALF: Final = 0.5
"""The share of bits that are 1 when budgets are related to the data: then weights can do most harm."""
CORRELATIONS: Final = tuple(step / 10 for step in range(-10, 11))
QUICK_CORRELATIONS: Final = (-1.0, -0.5, -0.2, 0.0, 0.2, 0.5, 1.0)
COVERED: Final = (5, 20, 100, 1000)
DENSITIES: Final = (0.05, 0.15, 0.5, 0.9)
_DATA: Final = 40
"""Sets of bits for each draw of budgets, for coverage."""
DRAWS, QUICK_DRAWS = 100, 10
RUNS, QUICK_RUNS = 300, 6
_BLOCK: Final = 20
_RUNS_BLOCK: Final = 6
TIMED: Final = 1_000_000
_TIMES: Final = 3
_Z: Final = float(stats.norm.ppf(0.975))


def jobs(quick: bool, seed: int, people: People | None = None) -> list[Job]:
    """All panels; the regression is left out where a file has too few people.

    >>> sorted({job.panel for job in jobs(True, 1)})
    ['adversary', 'coverage', 'default', 'records', 'regression', 'threshold', 'worst']
    """
    people = people or People()
    draws = QUICK_DRAWS if quick else DRAWS
    points: dict[str, tuple[float, ...]] = {
        "threshold": SIZES,
        "default": MEASURED,
        "adversary": QUICK_CORRELATIONS if quick else CORRELATIONS,
        "worst": (-1.0, 1.0),
        "coverage": COVERED,
        "records": (PARTIES,),
    }
    settings: tuple[tuple[str, Value], ...] = (("quick", quick), ("intervals", "of answers"), ("scaled", True))
    result = [
        Job(
            "weights",
            panel,
            float(x),
            first=first,
            count=min(_BLOCK, draws - first),
            seed=seed,
            settings=settings,
            weight=_weight(panel, x),
        )
        for panel, xs in points.items()
        for x in xs
        for first in range(0, draws, _BLOCK)
    ]
    parties = regression.PARTIES
    if people.count is None or people.count >= regression.people_needed(parties):
        whose = (("data", people.data), ("bounds", people.bounds), ("digest", people.digest))
        runs = QUICK_RUNS if quick else RUNS
        result += [
            Job(
                "weights",
                "regression",
                float(parties),
                first=first,
                count=min(_RUNS_BLOCK, runs - first),
                seed=seed,
                settings=whose,
                weight=2.0,
            )
            for first in range(0, runs, _RUNS_BLOCK)
        ]
    return result


def _weight(panel: str, x: float) -> float:
    """About seconds."""
    if panel == "threshold":
        return 2.0 if x >= LARGE else 0.01 * x
    return {"default": x / 500, "coverage": 0.1 + x / 1000, "records": 1.0}.get(panel, 0.1)


def run(job: Job) -> list[Row]:
    """The rows of a panel.

    >>> {row["mechanism"] for row in run(Job("weights", "threshold", 5.0, 0, 1, 1))} == set(COMPARED)
    True
    """
    work = {
        "threshold": _threshold,
        "default": _default,
        "adversary": _adversary,
        "worst": _worst,
        "coverage": _coverage,
        "records": record_rows,
        "regression": _regression,
    }[job.panel]
    return rows_of_draws(job, work)


def thresholds(parties: int, quick: bool) -> list[int]:
    """Where error is computed.

    >>> thresholds(5, True)
    [1, 2, 3, 4]
    """
    if parties < LARGE:
        return list(range(1, parties))
    return [int(x) for x in (count.QUICK if quick else count.PANELS)["threshold"]]


def draw_setting(parties: int, random: np.random.Generator) -> Setting:
    """Budgets of a consortium, where all receive, or of the paper's groups; half may collude.

    >>> draw_setting(5, np.random.default_rng(0)).threshold
    2
    """
    if parties >= LARGE:
        return Scenario(parties).setting(random, CountProblem.sensitivity, spread=CountProblem.spread)
    epsilon = consortium.draw_budgets(parties, random)
    return Setting.of(Spec(epsilon=epsilon, delta=consortium.DELTA, threshold=parties // 2), CountProblem.spread)


def draw_bits(parties: int, density: float, random: np.random.Generator) -> FloatArray:
    """Bits of which this share is 1, at random places.

    >>> float(draw_bits(20, 0.15, np.random.default_rng(0)).sum())
    3.0
    """
    bits = np.zeros(parties)
    bits[: round(density * parties)] = 1.0
    random.shuffle(bits)
    return bits


def _threshold(job: Job, random: np.random.Generator) -> list[Row]:
    """Error of every mechanism at every threshold, for the same budgets and bits."""
    parties = int(job.x)
    bits = (random.random(parties) < HALF) if parties < LARGE else draw_bits(parties, count.DENSITY, random)
    setting, problem = draw_setting(parties, random), CountProblem(bits)
    rows: list[Row] = []
    for threshold in thresholds(parties, bool(job.setting.get("quick"))):
        here = setting.against(threshold)
        for name in COMPARED:
            error = float(MECHANISMS[name].error(here, problem).rmse[0])
            rows.append({"threshold": threshold, "mechanism": name, "error": error})
    return rows


def _default(job: Job, random: np.random.Generator) -> list[Row]:
    """The paper's count at half the parties, for the targets of W; and sampling by private coins."""
    parties = int(job.x)
    problem = CountProblem(draw_bits(parties, count.DENSITY, random))
    setting = draw_setting(parties, random)
    shown: dict[str, Mechanism] = {name: MECHANISMS[name] for name in RIVALS}
    if parties == LARGE:
        shown["LS"] = LocalSample()
    return [
        {"threshold": setting.threshold, "mechanism": name, "error": float(mechanism.error(setting, problem).rmse[0])}
        for name, mechanism in shown.items()
    ]


def correlated_bits(epsilon: FloatArray, correlation: float, random: np.random.Generator) -> FloatArray:
    """Half of the parties hold a 1. Of these, the part |correlation| is with the most liberal parties, or with the
    strictest if it is negative; the rest are at random.

    >>> correlated_bits(np.array([0.1, 0.2, 0.3, 0.4]), -1.0, np.random.default_rng(0))
    array([1., 1., 0., 0.])
    """
    parties = len(epsilon)
    ones = round(HALF * parties)
    shuffled = random.permutation(parties)  # ties are broken at random
    order = shuffled[np.argsort(np.copysign(1.0, -correlation) * epsilon[shuffled], kind="stable")]
    chosen = round(abs(correlation) * ones)
    bits = np.zeros(parties)
    bits[order[:chosen]] = 1.0
    bits[random.permutation(order[chosen:])[: ones - chosen]] = 1.0
    return bits


def _adversary(job: Job, random: np.random.Generator) -> list[Row]:
    """Budgets that are more or less related to the data."""
    setting = draw_setting(LARGE, random)
    problem = CountProblem(correlated_bits(setting.spec.epsilon, job.x, random))
    return [_judged(name, setting, problem) for name in RIVALS]


def _worst(job: Job, random: np.random.Generator) -> list[Row]:
    """Data chosen against the weights: 1 for parties that count too much, or too little."""
    setting = draw_setting(LARGE, random)
    problem = CountProblem(job.x * setting.weights.excess > 0)
    return [_judged(name, setting, problem) for name in ("G", "W")]


def _judged(name: str, setting: Setting, problem: CountProblem) -> Row:
    """Error and bias of a mechanism; for W, how often its intervals contain the true sum."""
    error = MECHANISMS[name].error(setting, problem)
    row: Row = {"mechanism": name, "error": float(error.rmse[0]), "bias": float(error.bias[0])}
    if name != "W":
        return row
    deviation = float(np.sqrt(error.variance[0]))
    covered, wide = coverage(setting, error.bias, deviation)
    bound = setting.weights.bias_bound
    at_most = float(np.hypot(deviation, bound))
    return {**row, "bound": bound, "at_most": at_most, "covered": float(covered[0]), "covered_wide": float(wide[0])}


def coverage(setting: Setting, bias: FloatArray, deviation: float) -> tuple[FloatArray, FloatArray]:
    """The chance that W's 95 % interval contains the true sum, and that the interval widened by the bias bound does.

    Intervals as `tpmdp.queries.weighted_answers` makes them for a count.

    >>> setting = Setting.of(Spec(epsilon=[1.0, 1.0], delta=1e-6, threshold=1))
    >>> [float(chance.round(3)[0]) for chance in coverage(setting, np.zeros(1), 1.0)]
    [0.95, 0.95]
    """
    weights = setting.weights
    wide = _Z * deviation + weights.bias_bound
    narrow = min(_Z * float(np.hypot(deviation, weights.spread * weights.dealt)), wide)
    chances = [
        stats.norm.cdf((half - bias) / deviation) - stats.norm.cdf((-half - bias) / deviation)
        for half in (narrow, wide)
    ]
    return chances[0], chances[1]


def _coverage(job: Job, random: np.random.Generator) -> list[Row]:
    """Bits unrelated to budgets, at several thresholds and densities: means over sets of bits."""
    parties = int(job.x)
    setting = draw_setting(parties, random)
    rows: list[Row] = []
    for threshold in dict.fromkeys((1, parties // 2, parties - 1)):
        here = setting.against(threshold)
        deviation = float(np.sqrt(MECHANISMS["W"].noise(here)))
        for density in DENSITIES:
            bits = random.random((_DATA, parties)) < density
            covered, wide = coverage(here, bits @ here.weights.excess, deviation)
            means: Row = {"covered": float(covered.mean()), "covered_wide": float(wide.mean())}
            rows.append({"threshold": threshold, "mechanism": "W", "density": density, **means})
    return rows


def _regression(job: Job, random: np.random.Generator) -> list[Row]:
    """Prediction error of each fold, as in the regression experiment."""
    size = regression.people_needed(int(job.x))
    everyone = regression.people_of(job).records(job.seed, max(size, regression.SYNTHETIC))
    people = everyone[random.choice(len(everyone), size, replace=False)]
    return [
        {"fold": fold, "mechanism": name, "error": errors[name]}
        for fold, errors in enumerate(regression.cross_validate(people, Scenario(int(job.x)), random))
        for name in (*RIVALS, "non-pri")
    ]


def time_jobs(quick: bool, seed: int) -> list[Job]:
    """The jobs that are timed: alone, after all others.

    >>> [job.x for job in time_jobs(True, 1)]
    [1000000.0]
    """
    del quick
    return [Job("weights_time", "time", float(TIMED), first=0, count=_TIMES, seed=seed)]


def time_run(job: Job) -> list[Row]:
    """The least time over some runs of the weights, given the needs, and of a whole plan of the same budgets.

    >>> row, = time_run(Job("weights_time", "time", 100.0, 0, 1, 1))
    >>> row["balance_s"] > 0 and row["plan_s"] > 0
    True
    """
    setting = replace(DEFAULT, parties=int(job.x)).setting(
        job.random(0), CountProblem.sensitivity, spread=CountProblem.spread
    )
    spec, times = setting.spec, {"balance_s": np.inf, "plan_s": np.inf}
    for _ in range(job.count):
        start = now_s()
        balance(setting.need, setting.threshold, spec.receivers, spread=CountProblem.spread)
        middle = now_s()
        plan(spec)
        end = now_s()
        times = {"balance_s": min(times["balance_s"], middle - start), "plan_s": min(times["plan_s"], end - middle)}
    row: dict[str, Value] = {"panel": job.panel, "x": job.x, **times, "runs": job.count, "seed": job.seed}
    return [row]
