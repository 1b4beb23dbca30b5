"""The paper's regression experiment: prediction error against conservative parties, number of parties, threshold.

Each party holds one record. A run draws 1.25 n people and divides them in five folds; each fold is predicted by what n
parties, the other four folds, have released. The number of parties and the threshold are those of a release.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from tpmdp._util.arrays import FloatArray
from tpmdp.experiments.jobs import Job, Row
from tpmdp.experiments.population import People
from tpmdp.experiments.scenario import Scenario, with_x
from tpmdp.mechanisms.functional_mechanism import fit, predict
from tpmdp.mechanisms.problem import RegressionProblem
from tpmdp.mechanisms.registry import MECHANISMS

PARTIES, QUICK_PARTIES = 50_000, 5_000
FOLDS: Final = 5
MEAN: Final = "mean"
"""Beside the mechanisms: a guess of the mean of the target for all. A larger error is of no use."""
RUNS, QUICK_RUNS = 20, 2
_BLOCK: Final = 5
SYNTHETIC: Final = 1 << 18
"""People of a synthetic population, where a point needs no more."""
PANELS: Final[dict[str, tuple[float, ...]]] = {
    "conservative": (0.0, 0.002, 0.01, 0.04, 0.1, 0.2, 0.3, 0.4, 0.54, 0.6),
    "parties": (10_000, 20_000, 50_000, 100_000, 160_000, 300_000, 500_000, 700_000, 900_000, 1_000_000),
    "threshold": (500, 2500, 5000, 12_500, 25_000, 37_500, 45_000, 47_500, 49_000, 49_500, 49_900, 49_990, 49_999),
}
QUICK: Final[dict[str, tuple[float, ...]]] = {
    "conservative": (0.0, 0.01, 0.1, 0.54),
    "parties": (5_000, 50_000, 200_000),
    "threshold": (250, 2500, 4500, 4900, 4999),
}


def people_needed(parties: int) -> int:
    """How many people are drawn for so many parties.

    >>> people_needed(50_000)
    62500
    """
    return parties * FOLDS // (FOLDS - 1)


def jobs(quick: bool, seed: int, people: People | None = None) -> list[Job]:
    """All points of the three panels; those that need more people than a file has are left out.

    >>> {job.panel for job in jobs(True, 1)} == set(PANELS)
    True
    """
    people = people or People()
    runs = QUICK_RUNS if quick else RUNS
    default = QUICK_PARTIES if quick else PARTIES
    settings = (("parties", default), ("data", people.data), ("bounds", people.bounds), ("digest", people.digest))
    result = []
    for panel, points in (QUICK if quick else PANELS).items():
        for x in points:
            size = with_x(Scenario(default), panel, x).parties
            if people.count is not None and people_needed(size) > people.count:
                continue
            step = 1 if size > PARTIES else _BLOCK
            for first in range(0, runs, step):
                count = min(step, runs - first)
                weight = 0.1 + count * size / 200_000  # about seconds
                result.append(
                    Job(
                        "regression",
                        panel,
                        float(x),
                        first=first,
                        count=count,
                        seed=seed,
                        settings=settings,
                        weight=weight,
                    )
                )
    return result


def run(job: Job) -> list[Row]:
    """Each run draws people, folds, budgets, receivers and noise anew; `error` is the RMSE on the fold left out.

    >>> rows = run(Job("regression", "parties", 80, 0, 1, 1, (("parties", 80),)))
    >>> len(rows) == FOLDS * (len(MECHANISMS) + 1)
    True
    """
    setting = job.setting
    scenario = with_x(Scenario(int(setting["parties"] or 0)), job.panel, job.x)
    size = people_needed(scenario.parties)
    everyone = people_of(job).records(job.seed, max(size, SYNTHETIC))
    rows: list[Row] = []
    for number in range(job.first, job.first + job.count):
        random = job.random(number)
        chosen = random.choice(len(everyone), size, replace=False)
        for fold, errors in enumerate(cross_validate(everyone[chosen], scenario, random)):
            for name, error in errors.items():
                rows.append(
                    {
                        "panel": job.panel,
                        "x": job.x,
                        "run": number,
                        "fold": fold,
                        "mechanism": name,
                        "error": error,
                        "seed": job.seed,
                    }
                )
    return rows


def people_of(job: Job) -> People:
    """Whose records a job uses.

    >>> people_of(Job("regression", "parties", 80, 0, 1, 1)).data is None
    True
    """
    data, bounds, digest = (job.setting.get(name) for name in ("data", "bounds", "digest"))
    return People(str(data) if data else None, str(bounds) if bounds else None, str(digest or ""))


def cross_validate(people: FloatArray, scenario: Scenario, random: np.random.Generator) -> list[dict[str, float]]:
    """The prediction error of each mechanism on each fold.

    >>> people = np.random.default_rng(0).uniform(-1, 1, (50, 3))
    >>> len(cross_validate(people, Scenario(40), np.random.default_rng(1)))
    5
    """
    kind = RegressionProblem(people[:1])
    everyone = scenario.setting(random, kind.sensitivity, len(people), spread=kind.spread)
    fold_of = random.permutation(len(people)) % FOLDS
    result = []
    for fold in range(FOLDS):
        training, testing = fold_of != fold, people[fold_of == fold]
        problem = RegressionProblem(people[training])
        setting = everyone.part(training, scenario.colluders)
        errors = {}
        noise = int(random.integers(1 << 62))  # the same numbers for all: differences between mechanisms are sharper
        for name, mechanism in MECHANISMS.items():
            released = mechanism.release(setting, problem, np.random.default_rng(noise))[0]
            coefficients = fit(problem.matrix(released), float(np.sqrt(mechanism.noise(setting))))
            residuals = predict(coefficients, testing[:, :-1]) - testing[:, -1]
            errors[name] = float(np.sqrt(np.mean(residuals**2)))
        blind = testing[:, -1] - people[training, -1].mean()
        errors[MEAN] = float(np.sqrt(np.mean(blind**2)))
        result.append(errors)
    return result
