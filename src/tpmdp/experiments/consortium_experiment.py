"""Beyond the paper: the price of a threshold in consortia, one party that relaxes, the protection enjoyed.

Nothing is simulated: noise, errors and protection are computed for budgets drawn at random. A consortium's budgets
are spread evenly on a logarithmic scale from 0.1 to 2, with delta = 1e-6.
"""

from __future__ import annotations

import math
from typing import Final

import numpy as np

from tpmdp._util.arrays import FloatArray
from tpmdp.experiments.jobs import Job, Row, rows_of_draws
from tpmdp.experiments.scenario import Scenario, draw_receivers
from tpmdp.mechanisms.mechanism import Setting
from tpmdp.mechanisms.problem import CountProblem
from tpmdp.mechanisms.registry import MECHANISMS
from tpmdp.spec import Spec

SIZES: Final = (5, 10, 20, 50)
EPSILON_LOW, EPSILON_HIGH, DELTA = 0.1, 2.0, 1e-6
SHARED: Final = ("G", "TMDP", "non-thre")
COMPARED: Final = ("G", "W", "two levels", "T", "TMDP", "non-thre", "MIN", "Sample", "Sample, scaled back", "PLDP")
RECEIVERS: Final = ("all", "random", "one")
RELAXING: Final = 10
"""Parties of the consortium in which one relaxes."""
FACTORS: Final = (1.0, 1.2, 1.5, 2.0, 2.5, 3.0, 4.0, 5.0, 6.0, 8.0, 10.0)
DRAWS, QUICK_DRAWS = 100, 10
PAPER_PARTIES: Final = 1000
ENJOYED: Final = {20: 100, PAPER_PARTIES: 5}
"""Draws of budgets for each number of parties."""


def jobs(quick: bool, seed: int) -> list[Job]:
    """All points of the three panels.

    >>> sorted({job.panel for job in jobs(True, 1)})
    ['enjoyed', 'price', 'relax']
    """
    draws = QUICK_DRAWS if quick else DRAWS
    price = [
        Job("consortium", "price", float(size), first=0, count=draws, seed=seed, weight=size / 5) for size in SIZES
    ]
    relax = [Job("consortium", "relax", 0.0, first=0, count=draws, seed=seed)]
    enjoyed = [
        Job("consortium", "enjoyed", float(size), first=0, count=times, seed=seed, weight=size * times / 1000)
        for size, times in ENJOYED.items()
    ]
    return [*price, *relax, *enjoyed]


def run(job: Job) -> list[Row]:
    """The rows of a panel.

    >>> run(Job("consortium", "price", 5, 0, 1, 1))[0]["mechanism"]
    'G'
    """
    work = {"price": _price, "relax": _relax, "enjoyed": _enjoyed}[job.panel]
    return rows_of_draws(job, work)


def draw_budgets(count: int, random: np.random.Generator) -> FloatArray:
    """Budgets of a consortium.

    >>> bool((draw_budgets(5, np.random.default_rng(0)) <= EPSILON_HIGH).all())
    True
    """
    return np.exp(random.uniform(math.log(EPSILON_LOW), math.log(EPSILON_HIGH), count))


def _setting(epsilon: FloatArray, threshold: int) -> Setting:
    return Setting.of(Spec(epsilon=epsilon, delta=DELTA, threshold=threshold))


def _price(job: Job, random: np.random.Generator) -> list[Row]:
    """How much larger the error is than a trusted curator's, at every threshold and for three kinds of receivers."""
    count = int(job.x)
    epsilon = draw_budgets(count, random)
    single = np.arange(count) == random.integers(count)
    who = dict(zip(RECEIVERS, (np.ones(count, dtype=np.bool_), draw_receivers(count, random), single), strict=True))
    budgets = _setting(epsilon, 1)
    curator = MECHANISMS["MIN"].noise(budgets)
    rows: list[Row] = []
    for kind, receivers in who.items():
        for threshold in range(1, count):
            setting = budgets.against(threshold, receivers)
            for name in SHARED:
                ratio = math.sqrt(MECHANISMS[name].noise(setting) / curator)
                rows.append({"receivers": kind, "threshold": threshold, "mechanism": name, "ratio": ratio})
    return rows


def _relax(job: Job, random: np.random.Generator) -> list[Row]:
    """Error when one party multiplies its epsilon, over the error before: the strictest, and one in the middle."""
    del job
    epsilon = np.sort(draw_budgets(RELAXING, random))
    problem = CountProblem(np.arange(RELAXING) % 2)  # as many ones among strict parties as among liberal ones
    first = _setting(epsilon, RELAXING // 2)
    before = {name: MECHANISMS[name].error(first, problem).rmse[0] for name in COMPARED}
    rows: list[Row] = []
    for who, party in (("strictest", 0), ("middle", RELAXING // 2)):
        for factor in FACTORS:
            relaxed = epsilon.copy()
            relaxed[party] *= factor
            setting = _setting(relaxed, RELAXING // 2)
            for name in COMPARED:
                ratio = float(MECHANISMS[name].error(setting, problem).rmse[0] / before[name])
                rows.append({"who": who, "factor": factor, "mechanism": name, "ratio": ratio})
    return rows


def _enjoyed(job: Job, random: np.random.Generator) -> list[Row]:
    """What each party asked for, and what each mechanism gives it: the paper's budgets, or a consortium's."""
    count = int(job.x)
    if count == PAPER_PARTIES:
        setting = Scenario(count).setting(random, 1.0)
    else:
        setting = _setting(draw_budgets(count, random), count // 2)
    rows: list[Row] = []
    for name in COMPARED:
        for asked, given in zip(setting.spec.epsilon.tolist(), MECHANISMS[name].enjoyed(setting).tolist(), strict=True):
            rows.append({"asked": asked, "mechanism": name, "enjoyed": given})
    return rows
