"""Logistic regression by rounds on census data, against maximum likelihood, one round and a trusted curator.

The task: who earns 100,000 a year or more, by age, education and gender; 50,000 people at five parties of equal size,
epsilon 1, threshold 2, all receive. The people are the same in every run; the noise is drawn anew, with the variance
that the plan of each round has.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from importlib.util import find_spec
from typing import Any, Final

import numpy as np

from tpmdp._util.arrays import FloatArray
from tpmdp.experiments.jobs import Job, Row, rows_of_draws
from tpmdp.experiments.population import People
from tpmdp.experiments.regression_experiment import people_of
from tpmdp.queries.rounds import Point, RoundsQuery
from tpmdp.study.model import Study

PARTIES: Final = 5
PEOPLE: Final = 50_000
RUNS, QUICK_RUNS = 1000, 20
ROUNDS: Final = {"four rounds": 4, "three rounds": 3, "two rounds": 2, "one round": 1}
CURATOR: Final = "trusted curator"
"""diffprivlib's objective perturbation, which has epsilon 1 and needs everybody's records in one place."""
_EPSILON: Final = 1.0
_EDUCATION: Final = 2  # its place among the coefficients
_BLOCK: Final = 25


def jobs(quick: bool, seed: int, people: People | None = None) -> list[Job]:
    """Blocks of runs.

    >>> sum(job.count for job in jobs(True, 1))
    20
    """
    people = people or People()
    settings = (("parties", PARTIES), ("data", people.data), ("bounds", people.bounds), ("digest", people.digest))
    runs = QUICK_RUNS if quick else RUNS
    return [
        Job(
            "rounds",
            "census",
            float(PEOPLE),
            first=first,
            count=min(_BLOCK, runs - first),
            seed=seed,
            settings=settings,
        )
        for first in range(0, runs, _BLOCK)
    ]


def run(job: Job) -> list[Row]:
    """A row for each run and mechanism: the education slope, its truth and interval, and what gain is kept."""
    task = _task(people_of(job), job.seed)
    return rows_of_draws(job, lambda _, random: task.rows(random))


class _Task:
    """The records, the coefficients of maximum likelihood, and the noise of each round."""

    def __init__(self, columns: dict[str, FloatArray]) -> None:
        self.table = columns
        self.inputs = np.column_stack([columns[name] for name in ("age", "education", "gender")])
        self.outcome = columns["rich"]
        self.truth = self._likeliest()
        rate = self.outcome.mean()
        self.base = self.loss(np.array([np.log(rate / (1 - rate)), 0.0, 0.0, 0.0]))
        self.least = self.loss(self.truth)

    def loss(self, coefficients: FloatArray) -> float:
        """The mean log-loss."""
        predictor = coefficients[0] + self.inputs @ coefficients[1:]
        return float(np.mean(np.logaddexp(0.0, predictor) - self.outcome * predictor))

    def _likeliest(self) -> FloatArray:
        """Newton's method, without any code of queries."""
        design = np.column_stack((np.ones(len(self.inputs)), self.inputs))
        coefficients = np.zeros(design.shape[1])
        for _ in range(50):
            chance = 1 / (1 + np.exp(-design @ coefficients))
            form = (design * (chance * (1 - chance))[:, None]).T @ design
            step = np.linalg.solve(form, design.T @ (self.outcome - chance))
            coefficients = coefficients + step
            if np.abs(step).max() < 1e-12:
                break
        return coefficients

    def row(self, coefficients: FloatArray, interval: tuple[float, float] | None) -> Row:
        """What is stored of one run."""
        truth = float(self.truth[_EDUCATION])
        is_finite = bool(np.isfinite(coefficients).all())
        row: Row = {"slope": float(coefficients[_EDUCATION]) if is_finite else None, "truth": truth, "told": is_finite}
        row["kept"] = (self.base - self.loss(coefficients)) / (self.base - self.least) if is_finite else None
        row["covered"] = None if interval is None else interval[0] <= truth <= interval[1]
        return row

    def rows(self, random: np.random.Generator) -> list[Row]:
        """One run of every mechanism."""
        rows: list[Row] = [{"mechanism": name, **self.released(rounds, random)} for name, rounds in ROUNDS.items()]
        if find_spec("diffprivlib") is not None:
            rows.append({"mechanism": CURATOR, **self.curated(int(random.integers(1 << 31)))})
        return rows

    def released(self, rounds: int, random: np.random.Generator) -> Row:
        """One release by so many rounds."""
        query, errors = _plan(rounds)
        point: Point = ()
        for number, error in enumerate(errors, start=1):
            asked = query.asked(number, point)
            total = asked.statistic(self.table) + random.normal(0.0, error, asked.dimension)
            if number < rounds:
                point = query.next_point(number, point, total=total, records=PEOPLE, standard_error=error)
        answers = asked.answers(total, PEOPLE, error)
        slope = answers[_EDUCATION]
        return self.row(np.array([answer.value for answer in answers]), slope.interval if rounds > 1 else None)

    def curated(self, seed: int) -> Row:
        """The same by diffprivlib."""
        import warnings

        from diffprivlib.models import LogisticRegression  # type: ignore[import-not-coefficients,import-untyped,unused-ignore]

        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            model = LogisticRegression(epsilon=_EPSILON, data_norm=float(np.sqrt(3)), random_state=seed)
            model.fit(self.inputs, self.outcome)
        return self.row(np.array([*model.intercept_, *model.coef_[0]]), None)


@lru_cache(maxsize=1)
def _task(people: People, seed: int) -> _Task:
    everyone = people.records(seed, 1 << 18)
    chosen = np.random.default_rng(seed).choice(len(everyone), PEOPLE, replace=False)
    names = [bounds.column for bounds in people.ranges]
    columns = {name: everyone[chosen, place] for place, name in enumerate(names)}
    columns["rich"] = (columns["income"] >= 0).astype(np.float64)  # bounds 0 and 200,000: half is 100,000
    return _Task(columns)


@lru_cache
def _plan(rounds: int) -> tuple[RoundsQuery, list[float]]:
    """The query, and the standard error of every round in a study of it."""
    bounds = {name: [-1, 1] for name in ("age", "education", "gender")}
    entry: dict[str, Any] = {"name": "q", "kind": "logistic_regression", "target": "rich", "bounds": bounds}
    parties = [{"name": f"p{place}", "records": PEOPLE // PARTIES} for place in range(PARTIES)]
    base = {"name": "s", "threshold": 2, "receivers": "all", "delta": 1e-6, "epsilon": _EPSILON, "parties": parties}
    study = Study.parse({**base, "queries": [{**entry, "rounds": rounds}]})
    (query,) = study.queries
    assert isinstance(query, RoundsQuery)
    return query, [each.plan().standard_deviation for each in study.preview_rounds]


# The table ------------------------------------------------------------------------------------------------------------


def rounds_table(rows: Sequence[Row]) -> list[Row]:
    """A row for each mechanism, with standard errors in brackets."""
    result: list[Row] = []
    for name in (*ROUNDS, CURATOR):
        here = [row for row in rows if row["mechanism"] == name]
        if not here:
            continue
        errors = np.array([float(row["slope"]) / float(row["truth"]) - 1 for row in here if row["told"]])  # type: ignore[arg-type]
        covered = np.array([row["covered"] for row in here if row["covered"] is not None], dtype=np.float64)
        gains = np.array([row["kept"] for row in here if row["told"]], dtype=np.float64)
        result.append(
            {
                "logistic regression": name,
                "error of the slope": _text(errors**2, lambda mean: float(np.sqrt(mean))),
                "bias": _text(errors),
                "coverage": _text(covered) if len(covered) else "no interval",
                "log-loss gain kept": _text(gains),
                "runs": len(here),
            }
        )
    return result


def _text(values: FloatArray, change: Callable[[float], float] = float) -> str:
    """The mean in per cent and its standard error, both after a change; a dash if there is none."""
    if not len(values):
        return "-"
    mean, error = float(values.mean()), float(values.std(ddof=1)) / np.sqrt(len(values)) if len(values) > 1 else 0.0
    centre = change(mean)
    spread = (change(mean + error) - change(max(mean - error, 0.0))) / 2 if change is not float else error
    return f"{100 * centre:.2f} % ({100 * spread:.2f})"
