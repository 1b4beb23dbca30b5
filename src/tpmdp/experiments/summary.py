"""Summaries of rows of single repetitions: points with 95 % intervals; and CSV files of both."""

from __future__ import annotations

import csv
import math
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Final

import numpy as np
from scipy import stats

from tpmdp._util.arrays import FloatArray
from tpmdp._util.files import replacing
from tpmdp.experiments.jobs import Row, Value

CONFIDENCE: Final = 0.95
Key = tuple[Value, ...]


def grouped(rows: Iterable[Row], *columns: str) -> dict[Key, list[Row]]:
    """Rows by the values of some columns, in the order in which they come.

    >>> list(grouped([{"x": 1, "y": 2}, {"x": 1, "y": 3}], "x"))
    [(1,)]
    """
    result: dict[Key, list[Row]] = {}
    for row in rows:
        result.setdefault(tuple(row[column] for column in columns), []).append(row)
    return result


def column(rows: Iterable[Row], name: str) -> FloatArray:
    """The numbers of a column.

    >>> column([{"x": 1}, {"x": 2}], "x")
    array([1., 2.])
    """
    return np.array([float(row[name] or 0.0) for row in rows])


def mean_interval(values: FloatArray, confidence: float = CONFIDENCE) -> tuple[float, float, float]:
    """Mean, and Student's 95 % interval; no interval for a single value.

    >>> [round(value, 2) for value in mean_interval(np.array([1.0, 2.0, 3.0]))]
    [2.0, -0.48, 4.48]
    """
    mean = float(values.mean())
    if len(values) < 2:
        return mean, mean, mean
    half = (
        float(stats.t.ppf((1 + confidence) / 2, len(values) - 1)) * float(values.std(ddof=1)) / math.sqrt(len(values))
    )
    return mean, mean - half, mean + half


def ratio_interval(above: FloatArray, below: FloatArray) -> tuple[float, float, float]:
    """Ratio of the means of pairs, and its 95 % interval from that of its logarithm (delta method).

    >>> [round(value, 3) for value in ratio_interval(np.array([2.0, 4.0]), np.array([1.0, 2.0]))]
    [2.0, 2.0, 2.0]
    """
    mean_above, mean_below = float(above.mean()), float(below.mean())
    ratio = mean_above / mean_below
    if mean_above <= 0 or mean_below <= 0:
        return ratio, -math.inf, math.inf
    _, low, high = mean_interval(above / mean_above - below / mean_below)
    return ratio, ratio * math.exp(low), ratio * math.exp(high)


def root_mean_square(errors: FloatArray) -> tuple[float, float, float]:
    """Root mean square of errors, with an interval for it from that of the mean square.

    >>> root_mean_square(np.array([3.0, -3.0]))
    (3.0, 3.0, 3.0)
    """
    mean, low, high = mean_interval(errors**2)
    return math.sqrt(mean), math.sqrt(max(low, 0.0)), math.sqrt(max(high, 0.0))


def count_points(rows: Sequence[Row]) -> list[Row]:
    """RMSE of each mechanism at each point; `expected` is what was computed without simulation."""
    points: list[Row] = []
    for (panel, x, mechanism), some in grouped(rows, "panel", "x", "mechanism").items():
        rmse, low, high = root_mean_square(column(some, "error"))
        expected = math.sqrt(float(np.mean(column(some, "expected") ** 2)))
        points.append(
            {
                "panel": panel,
                "x": x,
                "mechanism": mechanism,
                "rmse": rmse,
                "low": low,
                "high": high,
                "expected": expected,
                "repetitions": len(some),
            }
        )
    return points


def regression_points(rows: Sequence[Row]) -> list[Row]:
    """Prediction error of each mechanism at each point: the mean over folds, then over runs."""
    points: list[Row] = []
    for (panel, x, mechanism), some in grouped(rows, "panel", "x", "mechanism").items():
        runs = np.array([column(folds, "error").mean() for folds in grouped(some, "run").values()])
        rmse, low, high = mean_interval(runs)
        points.append(
            {
                "panel": panel,
                "x": x,
                "mechanism": mechanism,
                "rmse": rmse,
                "low": max(low, 0.0),
                "high": high,
                "repetitions": len(runs),
            }
        )
    return points


def _quantiles(values: FloatArray) -> Row:
    """The median and the middle 90 %."""
    low, median, high = np.quantile(values, (0.05, 0.5, 0.95)).tolist()
    return {"median": median, "low": low, "high": high, "draws": len(values)}


def consortium_points(rows: Sequence[Row]) -> list[Row]:
    """Medians over draws of budgets, with the middle 90 %; the panel of protection is left as it is."""
    points: list[Row] = []
    price = [row for row in rows if row["panel"] == "price"]
    for (n, receivers, threshold, mechanism), some in grouped(
        price, "x", "receivers", "threshold", "mechanism"
    ).items():
        point: Row = {"panel": "price", "parties": n, "receivers": receivers, "threshold": threshold}
        points.append({**point, "mechanism": mechanism, **_quantiles(column(some, "ratio"))})
    relax = [row for row in rows if row["panel"] == "relax"]
    for (who, factor, mechanism), some in grouped(relax, "who", "factor", "mechanism").items():
        point = {"panel": "relax", "who": who, "factor": factor, "mechanism": mechanism}
        points.append({**point, **_quantiles(column(some, "ratio"))})
    return points


def weights_points(rows: Sequence[Row]) -> list[Row]:
    """Errors with their intervals, and for budgets related to the data also bias, its bound and coverage."""
    points: list[Row] = []
    for panel, by in (("threshold", "threshold"), ("default", "x"), ("adversary", "x"), ("worst", "x")):
        here = [row for row in rows if row["panel"] == panel]
        for (x, _, mechanism), some in grouped(here, "x", by, "mechanism").items():
            rmse, low, high = root_mean_square(column(some, "error"))
            point: Row = {"panel": panel, "x": x, "threshold": some[0].get("threshold"), "mechanism": mechanism}
            point |= {"rmse": rmse, "low": low, "high": high, "draws": len(some)}
            averaged = [name for name in ("bias", "bound", "at_most", "covered", "covered_wide") if name in some[0]]
            points.append(point | {name: float(column(some, name).mean()) for name in averaged})
    here = [row for row in rows if row["panel"] == "records"]
    for (x, records, spread, mechanism), some in grouped(here, "x", "records", "spread", "mechanism").items():
        rmse, low, high = root_mean_square(column(some, "error"))
        point = {"panel": "records", "x": x, "records": records, "spread": spread, "mechanism": mechanism}
        points.append({**point, "rmse": rmse, "low": low, "high": high, "draws": len(some)})
    here = [row for row in rows if row["panel"] == "coverage"]
    for (x, threshold, density), some in grouped(here, "x", "threshold", "density").items():
        point = {"panel": "coverage", "x": x, "threshold": threshold, "density": density, "mechanism": "W"}
        covered, low, high = mean_interval(column(some, "covered"))
        point |= {"covered": covered, "low": low, "high": high}
        points.append(point | {"covered_wide": float(column(some, "covered_wide").mean()), "draws": len(some)})
    return points


def agreement_points(rows: Sequence[Row]) -> list[Row]:
    """Error of the real protocol over that of the simulation, with its exact interval (chi-square); then of all."""
    points: list[Row] = []
    kinds = grouped(rows, "engine", "problem", "parties", "threshold")
    together: dict[Key, list[Row]] = {("all", "all", "", ""): list(rows)} if len(kinds) > 1 else {}
    for (engine, problem, parties, threshold), some in (kinds | together).items():
        freedom, squares = column(some, "coordinates").sum(), column(some, "squares").sum()
        low, high = (float(squares / stats.chi2.ppf(side, freedom)) for side in (0.975, 0.025))
        points.append(
            {
                "engine": engine,
                "problem": problem,
                "parties": parties,
                "threshold": threshold,
                "sessions": len(some),
                "numbers": int(freedom),
                "ratio": math.sqrt(squares / freedom),
                "low": math.sqrt(low),
                "high": math.sqrt(high),
            }
        )
    return points


def write_rows(path: Path, rows: Sequence[Row]) -> None:
    """A CSV file with a column for every name that occurs.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     write_rows(Path(folder) / "a.csv", [{"x": 1}, {"x": 2, "y": None}])
    ...     (Path(folder) / "a.csv").read_text()
    'x,y\\n1,\\n2,\\n'
    """
    names = list(dict.fromkeys(name for row in rows for name in row))
    with replacing(path) as file, file.open("w", encoding="utf-8", newline="") as stream:
        writer = csv.DictWriter(stream, names, lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)
