"""The paper's count experiment: error against density, conservative parties, number of parties and threshold."""

from __future__ import annotations

from typing import Final

import numpy as np

from tpmdp.experiments.jobs import Job, Row
from tpmdp.experiments.scenario import DEFAULT, with_x
from tpmdp.mechanisms.problem import CountProblem
from tpmdp.mechanisms.registry import MECHANISMS

DENSITY: Final = 0.15
NAMES: Final = ("G", "TMDP", "non-thre", "MIN", "Sample", "PLDP", "W", "two levels", "T", "Sample, scaled back")
"""In this order they draw from one generator: W, which is new, and what it is compared with come last."""
REPETITIONS, QUICK_REPETITIONS = 400, 20
_BLOCK: Final = 100
PANELS: Final[dict[str, tuple[float, ...]]] = {
    "density": (0.0, 0.05, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0),
    "conservative": (0.0, 0.002, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.2, 0.3, 0.4, 0.5, 0.54, 0.6),
    "parties": (100, 200, 500, 1000, 2000, 3000, 4000, 5000, 6000, 8000, 10_000),
    "threshold": (1, 100, 200, 300, 400, 500, 600, 700, 800, 850, 900, 925, 950, 975, 990, 995, 999),
}
QUICK: Final[dict[str, tuple[float, ...]]] = {
    "density": (0.0, 0.15, 0.5, 1.0),
    "conservative": (0.0, 0.01, 0.04, 0.1, 0.3, 0.54),
    "parties": (200, 1000, 5000),
    "threshold": (1, 300, 500, 600, 700, 900, 950, 999),
}


def jobs(quick: bool, seed: int) -> list[Job]:
    """All points of the four panels.

    >>> {job.panel for job in jobs(True, 1)} == set(PANELS)
    True
    """
    repetitions = QUICK_REPETITIONS if quick else REPETITIONS
    return [
        Job(
            "count",
            panel,
            float(x),
            first=first,
            count=min(_BLOCK, repetitions - first),
            seed=seed,
            weight=_weight(panel, x),
        )
        for panel, points in (QUICK if quick else PANELS).items()
        for x in points
        for first in range(0, repetitions, _BLOCK)
    ]


def _weight(panel: str, x: float) -> float:
    return 1 + with_x(DEFAULT, panel, x).parties / 1000


def run(job: Job) -> list[Row]:
    """Each repetition draws data, budgets, receivers and noise anew; `expected` is its computed root mean square error.

    >>> [row["mechanism"] for row in run(Job("count", "parties", 20, 0, 1, 1))] == list(NAMES)
    True
    """
    scenario = with_x(DEFAULT, job.panel, job.x)
    density = job.x if job.panel == "density" else DENSITY
    rows: list[Row] = []
    for repetition in range(job.first, job.first + job.count):
        random = job.random(repetition)
        bits = np.zeros(scenario.parties)
        bits[: round(density * scenario.parties)] = 1.0
        random.shuffle(bits)
        problem = CountProblem(bits)
        setting = scenario.setting(random, problem.sensitivity, spread=problem.spread)
        for name in NAMES:
            released = MECHANISMS[name].release(setting, problem, random)
            rows.append(
                {
                    "panel": job.panel,
                    "x": job.x,
                    "repetition": repetition,
                    "mechanism": name,
                    "error": float(released[0, 0] - problem.total[0]),
                    "expected": float(MECHANISMS[name].error(setting, problem).rmse[0]),
                    "seed": job.seed,
                }
            )
    return rows
