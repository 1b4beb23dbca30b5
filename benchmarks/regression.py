"""Linear regression on census-like data: error on other people, against least squares without privacy and diffprivlib.

tpmdp runs among five parties, of which two may collude. diffprivlib has a trusted curator and pure epsilon. Without a
census file the population is synthetic.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from benchmarks.timing import Row
from tpmdp import Study
from tpmdp._util.arrays import FloatArray
from tpmdp.engines.ideal import IdealEngine
from tpmdp.experiments.population import COLUMNS, RANGES, read_adults
from tpmdp.study.run import run

PARTIES, DELTA = 5, 1e-6
INPUTS = [name for name in COLUMNS if name != "income"]
BOUNDS = {column.column: [column.low, column.high] for column in RANGES}


@dataclass(frozen=True)
class Size:
    records: tuple[int, ...] = (10_000, 50_000)
    epsilons: tuple[float, ...] = (0.2, 1.0)
    runs: int = 20
    census: Path | None = None


FULL, TOY = Size(), Size(records=(500,), epsilons=(1.0,), runs=1)


def clipped(people: dict[str, FloatArray]) -> tuple[FloatArray, FloatArray]:
    """Inputs with a column of ones, and incomes."""
    columns = {name: np.clip(people[name], low, high) for name, (low, high) in BOUNDS.items()}
    ones = np.ones(len(columns["income"]))
    return np.column_stack([ones, *(columns[name] for name in INPUTS)]), columns["income"]


def rmse(coefficients: FloatArray, inputs: FloatArray, truth: FloatArray) -> float:
    low, high = BOUNDS["income"]
    return float(np.sqrt(np.mean((np.clip(inputs @ coefficients, low, high) - truth) ** 2)))


def ours(people: dict[str, FloatArray], epsilon: float) -> FloatArray:
    """A release among five parties with the usual noise and grid, added up by a trusted engine to save time."""
    records = len(people["income"]) // PARTIES
    names = [f"party{i}" for i in range(PARTIES)]
    study = Study.parse(
        {
            "name": "regression",
            "threshold": 2,
            "receivers": "all",
            "epsilon": epsilon,
            "delta": DELTA,
            "parties": [{"name": name, "records": records} for name in names],
            "queries": [{"name": "income", "kind": "linear_regression", "target": "income", "bounds": BOUNDS}],
        }
    )
    tables = {
        name: {column: values[i * records : (i + 1) * records] for column, values in people.items()}
        for i, name in enumerate(names)
    }
    answers = {answer.part: answer.value for answer in run(study, tables, engine=IdealEngine()).answers}
    return np.array([answers["intercept"], *(answers[name] for name in INPUTS)])


def theirs(people: dict[str, FloatArray], epsilon: float, seed: int) -> FloatArray:
    from diffprivlib.models import LinearRegression

    inputs, income = clipped(people)
    lows, highs = np.array([BOUNDS[name] for name in INPUTS]).T
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = LinearRegression(
            epsilon=epsilon, bounds_X=(lows, highs), bounds_y=tuple(BOUNDS["income"]), random_state=seed
        )
        model.fit(inputs[:, 1:], income)
    return np.array([float(np.ravel(model.intercept_)[0]), *np.ravel(model.coef_)])


def excess(errors: list[float], best: float) -> str:
    """Percent above least squares: median of the runs, and the worst."""
    above = 100 * (np.array(errors) / best - 1)
    return f"{np.median(above):.2g} % (worst {above.max():.2g} %)"


def compare(records: int, epsilon: float, size: Size) -> Row:
    people = {name: np.asarray(values) for name, values in read_adults(size.census, 2 * records, seed=1).items()}
    training = {name: values[:records] for name, values in people.items()}
    inputs, income = clipped({name: values[records:] for name, values in people.items()})
    fitted = np.asarray(np.linalg.lstsq(*clipped(training), rcond=None)[0], dtype=np.float64)
    best = rmse(fitted, inputs, income)
    mine = [rmse(ours(training, epsilon), inputs, income) for _ in range(size.runs)]
    other = [rmse(theirs(training, epsilon, seed), inputs, income) for seed in range(size.runs)]
    source = "synthetic" if size.census is None else "census"
    note = (
        f"diffprivlib, trusted curator, pure epsilon: {excess(other, best)}; least squares: RMSE {best:,.0f}; {source}"
    )
    what = f"regression error above least squares, {records:,} people, epsilon {epsilon:g}"
    return Row(what, excess(mine, best), "", note)


def rows(size: Size = FULL) -> list[Row]:
    """The rows on regression."""
    return [compare(records, epsilon, size) for records in size.records for epsilon in size.epsilons]
