"""Targets for balanced weights, and what was measured."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from tpmdp._util.arrays import FloatArray
from tpmdp.experiments.claims.claim import ClaimStatus
from tpmdp.experiments.jobs import Row, Value
from tpmdp.experiments.results import NotMeasuredError, Results
from tpmdp.experiments.summary import CONFIDENCE, column, grouped, mean_interval, ratio_interval
from tpmdp.experiments.weights_experiment import MEASURED, RIVALS
from tpmdp.experiments.weights_records import SPREADS

SHOWN: Final = (-1.0, -0.5, -0.2, -0.1, 0.0, 0.1, 0.2, 0.5, 1.0)
"""Correlations in the table; the figure has all."""
_MET: Final = {ClaimStatus.HOLDS: "yes", ClaimStatus.FAILS: "no", ClaimStatus.UNKNOWN: "not measured"}


@dataclass(frozen=True)
class Measure:
    """A target, and the number that was measured."""

    what: str
    wanted: str
    measured: str
    status: ClaimStatus

    @property
    def met(self) -> str:
        """Whether the target is met.

        >>> Measure("error", "at most 1", "0.5", ClaimStatus.HOLDS).met
        'yes'
        """
        return _MET[self.status]


@dataclass(frozen=True)
class _Wanted:
    what: str
    wanted: str
    check: Callable[[Results], tuple[str, bool]]


def measures(results: Results) -> list[Measure]:
    """All targets, in the order of the report; none if weights were not run.

    >>> measures(Results())
    []
    """
    if not results.weights_rows:
        return []
    checked = []
    for target in WANTED:
        try:
            measured, good = target.check(results)
            status = ClaimStatus.HOLDS if good else ClaimStatus.FAILS
        except NotMeasuredError:
            measured, status = "", ClaimStatus.UNKNOWN
        checked.append(Measure(target.what, target.wanted, measured, status=status))
    return checked


def _rows(results: Results, panel: str) -> list[Row]:
    rows = [row for row in results.weights_rows if row["panel"] == panel]
    if not rows:
        raise NotMeasuredError(panel)
    return rows


def _with_interval(ratio: float, low: float, high: float) -> str:
    return f"{ratio:.3f} ({low:.3f} to {high:.3f})" if high > low else f"{ratio:.3f}"


def _count(
    parties: int, above: str, below: str, good: Callable[[float], bool]
) -> Callable[[Results], tuple[str, bool]]:
    """The ratio of two errors of a count, over the same draws."""

    def check(results: Results) -> tuple[str, bool]:
        panel = "default" if parties in MEASURED else "threshold"
        here = [
            row
            for row in _rows(results, panel)
            if row["x"] == parties and (panel == "default" or row["threshold"] == parties // 2)
        ]
        squares = [column([row for row in here if row["mechanism"] == name], "error") ** 2 for name in (above, below)]
        if not all(map(len, squares)):
            raise NotMeasuredError(parties)
        ratio, low, high = (float(np.sqrt(value)) for value in ratio_interval(squares[0], squares[1]))
        errors = [float(np.sqrt(values.mean())) for values in squares]
        return f"{_with_interval(ratio, low, high)}: {errors[0]:.1f} against {errors[1]:.1f}", good(ratio)

    return check


def excess(results: Results, name: str) -> FloatArray:
    """Prediction error of a mechanism beyond that of the fit without noise: the mean over folds, for each run."""
    runs = grouped(_rows(results, "regression"), "draw").values()
    return np.array([_mean(folds, name) - _mean(folds, "non-pri") for folds in runs])


def _mean(folds: Sequence[Row], name: str) -> float:
    return float(column([row for row in folds if row["mechanism"] == name], "error").mean())


def _regression(below: str, most: float) -> Callable[[Results], tuple[str, bool]]:
    """The ratio of what W adds to the prediction error to what another adds."""

    def check(results: Results) -> tuple[str, bool]:
        ours, other = excess(results, "W"), excess(results, below)
        ratio, low, high = ratio_interval(ours, other)
        text = f"{_with_interval(ratio, low, high)}: {ours.mean():.5f} against {other.mean():.5f}"
        return text, ratio <= most

    return check


def _time(results: Results) -> tuple[str, bool]:
    if not results.weights_time_rows:
        raise NotMeasuredError("time")
    row = results.weights_time_rows[0]
    ours, other = (float(row[name] or 0) for name in ("balance_s", "plan_s"))
    return f"{ours / other:.2f}: {1000 * ours:.0f} ms against {1000 * other:.0f} ms", ours <= 20 * other


def _covers(results: Results) -> tuple[str, bool]:
    """The least of all points, with an interval that allows for there being many."""
    points = grouped(_rows(results, "coverage"), "x", "threshold", "density")
    confidence = 1 - (1 - CONFIDENCE) / len(points)
    intervals = [mean_interval(column(some, "covered"), confidence) for some in points.values()]
    mean, low, high = min(intervals)
    sure = f"{100 * low:.2f} to {100 * high:.2f} %, for all at once"
    text = f"{100 * mean:.2f} % ({sure}) at the least of {len(points)} points"
    return text, all(end >= CONFIDENCE for _, _, end in intervals)


def _covers_always(results: Results) -> tuple[str, bool]:
    panels = ("coverage", "adversary", "worst")
    every = [row for panel in panels for row in _rows(results, panel) if row["mechanism"] == "W"]
    covered = column(every, "covered_wide")
    text = f"{100 * covered.min():.2f} % at the least of {len(every):,} draws, the worst data included"
    return text, bool((covered >= CONFIDENCE - 1e-9).all())


def _bounded(results: Results) -> tuple[str, bool]:
    every = [row for panel in ("adversary", "worst") for row in _rows(results, panel) if row["mechanism"] == "W"]
    used = np.abs(column(every, "bias")) / column(every, "bound")
    return f"{used.max():.6f} of the bound at most, over {len(every):,} draws", bool((used <= 1).all())


def _at_most(most: float) -> Callable[[float], bool]:
    return lambda ratio: ratio <= most


def adversary_table(results: Results) -> list[Row]:
    """Budgets that go with the data: errors, and how often W's intervals cover; then data chosen against weights."""
    rows: list[Row] = []
    for panel, words in (("adversary", "{:g}"), ("worst", "chosen against W ({:+g})")):
        here = [point for point in results.weights if point["panel"] == panel]
        for (x,), some in grouped(here, "x").items():
            by = {str(point["mechanism"]): point for point in some}
            if panel == "adversary" and x not in SHOWN:
                continue
            ours = by["W"]
            row: Row = {"ones placed by budget": words.format(x)}
            row |= {f"RMSE of {name}": _decimal(by[name]["rmse"]) if name in by else "" for name in RIVALS}
            row |= {"bias of W": _decimal(ours["bias"]), "stated bound": _decimal(ours["bound"])}
            row |= {"interval covers": _percent(ours["covered"]), "widened one": _percent(ours["covered_wide"])}
            rows.append(row)
    return rows


def records_table(results: Results) -> list[Row]:
    """The error by records per party and what is known of the parties, and W's over that of the others."""
    here = [point for point in results.weights if point["panel"] == "records"]
    rows: list[Row] = []
    for (records, spread), some in grouped(here, "records", "spread").items():
        errors = {str(point["mechanism"]): float(point["rmse"] or 0) for point in some}
        row: Row = {"records per party": records, "spread": f"{float(spread or 0):g}"}
        row |= {name: _decimal(error) for name, error in errors.items()}
        rows.append(row | {f"W/{name}": f"{errors['W'] / errors[name]:.2f}" for name in errors if name != "W"})
    return rows


def _records(records: str, below: str) -> Callable[[Results], tuple[str, bool]]:
    """The ratio of W's expected error to another's, where nothing is known of the parties' averages."""

    def check(results: Results) -> tuple[str, bool]:
        here = [row for row in _rows(results, "records") if (row["records"], row["spread"]) == (records, SPREADS[0])]
        squares = [column([row for row in here if row["mechanism"] == name], "error") ** 2 for name in ("W", below)]
        ratio, low, high = (float(np.sqrt(value)) for value in ratio_interval(squares[0], squares[1]))
        errors = [float(np.sqrt(values.mean())) for values in squares]
        return f"{_with_interval(ratio, low, high)}: {errors[0]:.1f} against {errors[1]:.1f}", ratio < 1

    return check


def _decimal(value: Value) -> str:
    return f"{float(value or 0):.1f}"


def _percent(value: Value) -> str:
    return f"{100 * float(value or 0):.1f} %"


_NEAREST: Final = {
    "two levels": "two levels",
    "T": "one effective budget (T)",
    "Sample, scaled back": "Sample that is scaled back, as W is",
}
WANTED: Final = (
    _Wanted(
        "Count, n = 1000, t = 500: RMSE of W over that of G",
        "at most 0.08",
        _count(1000, "W", "G", good=_at_most(0.08)),
    ),
    _Wanted("Count, n = 1000, t = 500: W over Sample", "at most 0.3", _count(1000, "W", "Sample", good=_at_most(0.3))),
    _Wanted("Count, n = 10,000, t = 5000: W over G", "at most 0.1", _count(10_000, "W", "G", good=_at_most(0.1))),
    _Wanted(
        "Count, n = 10,000, t = 5000: W over Sample", "at most 0.1", _count(10_000, "W", "Sample", good=_at_most(0.1))
    ),
    _Wanted("Regression, n = 50,000: excess RMSE of W over that of G", "at most 0.1", _regression("G", 0.1)),
    _Wanted("Regression, n = 50,000: W over Sample", "at most 1.2", _regression("Sample", 1.2)),
    _Wanted("Weights of 1,000,000 parties: time over that of a plan", "at most 20", _time),
    _Wanted("95 % intervals where budgets have nothing to do with the data", "cover 95 %", _covers),
    _Wanted("Widened intervals, whatever the data", "cover 95 %", _covers_always),
    _Wanted("Bias, whatever the data", "within its bound", _bounded),
    _Wanted(
        "Count, n = 1000: sampling by private coins (LS) over W",
        "above 1",
        _count(1000, "LS", "W", good=lambda x: x > 1),
    ),
    *(
        _Wanted(f"Count, n = {parties:,}: W over {words}", "below 1", _count(parties, "W", name, good=lambda x: x < 1))
        for parties in (5, 20, *MEASURED)
        for name, words in (_NEAREST if parties in MEASURED else {"G": "G", **_NEAREST}).items()
    ),
    *(
        _Wanted(f"Regression, n = 50,000: W over {_NEAREST[name]}", f"at most {most:g}", _regression(name, most))
        for name, most in (("two levels", 1.0), ("T", 1.0), ("Sample, scaled back", 1.2))
    ),
    *(
        _Wanted(f"20 parties, records per party {records}: expected error of W over {name}", "below 1", check)
        for records in ("1", "100 to 10,000")
        for name in ("G", "two levels", "T")
        for check in [_records(records, name)]
    ),
)
"""What weights are for, and what is claimed of them."""
