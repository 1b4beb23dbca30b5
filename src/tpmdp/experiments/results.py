"""The results of experiments, for claims: errors at points, intervals, ratios and paired comparisons."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import numpy as np
from scipy import stats

from tpmdp.experiments.coverage_experiment import coverage_points
from tpmdp.experiments.jobs import Row
from tpmdp.experiments.summary import (
    agreement_points,
    column,
    consortium_points,
    count_points,
    grouped,
    mean_interval,
    regression_points,
    weights_points,
)


class NotMeasuredError(LookupError):
    """A point that a claim needs was not run."""


@dataclass(frozen=True)
class Curves:
    """The error of each mechanism against x, by panel."""

    points: Sequence[Row]
    default_key: str = "rmse"

    def xs(self, panel: str) -> list[float]:
        """The points at which the panel was measured.

        >>> Curves([{"panel": "a", "x": 2.0, "mechanism": "G"}, {"panel": "a", "x": 1.0, "mechanism": "G"}]).xs("a")
        [1.0, 2.0]
        """
        return sorted({float(point["x"] or 0) for point in self.points if point["panel"] == panel})

    def at(self, panel: str, x: float, mechanism: str, key: str | None = None) -> float:
        """A number of a point.

        >>> Curves([{"panel": "a", "x": 1.0, "mechanism": "G", "rmse": 3.0}]).at("a", 1.0, "G")
        3.0
        """
        for point in self.points:
            if point["panel"] == panel and point["x"] == x and point["mechanism"] == mechanism:
                return float(point[key or self.default_key] or 0.0)
        raise NotMeasuredError(panel, x, mechanism)

    def ratio(self, panel: str, x: float, above: str, below: str) -> float:
        """The error of `above` over that of `below`."""
        return self.at(panel, x, above) / self.at(panel, x, below)

    def apart(self, panel: str, x: float, worse: str, better: str) -> bool:
        """Whether the simulated 95 % intervals do not overlap, the worse above the better."""
        return self.at(panel, x, worse, key="low") > self.at(panel, x, better, key="high")

    def rises(self, panel: str, before: float, after: float, mechanism: str) -> bool:
        """Whether a mechanism's error is larger at one point than at another, beyond the 95 % intervals."""
        return self.at(panel, after, mechanism, key="low") > self.at(panel, before, mechanism, key="high")


@dataclass(frozen=True)
class Results:
    """All rows that were measured; empty for experiments that were not run."""

    count_rows: Sequence[Row] = ()
    regression_rows: Sequence[Row] = ()
    efficiency_rows: Sequence[Row] = ()
    consortium_rows: Sequence[Row] = ()
    agreement_rows: Sequence[Row] = ()
    weights_rows: Sequence[Row] = ()
    weights_time_rows: Sequence[Row] = ()
    coverage_rows: Sequence[Row] = ()
    rounds_rows: Sequence[Row] = ()
    survival_rows: Sequence[Row] = ()
    count: Curves = field(init=False)
    """Computed errors of the count (`expected`), and simulated ones with their intervals (`rmse`, `low`, `high`)."""
    regression: Curves = field(init=False)
    consortium: Sequence[Row] = field(init=False)
    agreement: Sequence[Row] = field(init=False)
    weights: Sequence[Row] = field(init=False)
    coverage: Sequence[Row] = field(init=False)

    def __post_init__(self) -> None:
        put = object.__setattr__
        put(self, "count", Curves(count_points(self.count_rows), "expected"))
        put(self, "regression", Curves(regression_points(self.regression_rows)))
        put(self, "consortium", consortium_points(self.consortium_rows))
        put(self, "agreement", agreement_points(self.agreement_rows))
        put(self, "weights", weights_points(self.weights_rows))
        put(self, "coverage", coverage_points(self.coverage_rows))

    def points(self, name: str) -> Sequence[Row]:
        """The points of an experiment; none for one that only has rows.

        >>> Results().points("efficiency")
        ()
        """
        points = getattr(self, name, ())
        return points.points if isinstance(points, Curves) else points

    def clearly(self, panel: str, x: float, worse: str, better: str) -> bool:
        """Whether the computed error of a count is at least 10 % larger, and so in the same draws: significantly."""
        here = [row for row in self.count_rows if row["panel"] == panel and row["x"] == x]
        errors = [column([row for row in here if row["mechanism"] == name], "expected") for name in (worse, better)]
        if not len(errors[0]):
            raise NotMeasuredError(panel, x)
        return self.count.ratio(panel, x, worse, below=better) >= 1.1 and mean_interval(errors[0] - errors[1])[1] > 0

    def difference(self, panel: str, x: float, worse: str, better: str) -> tuple[float, float, float]:
        """Prediction error of one mechanism less that of another on the same folds: its mean, its share of the larger
        error beyond that of the fit without noise, and p of Wilcoxon's test over runs (robust to single huge folds).
        """
        here = [row for row in self.regression_rows if row["panel"] == panel and row["x"] == x]
        if not here:
            raise NotMeasuredError(panel, x)
        by_mechanism = {
            name: np.array(
                [
                    column(folds, "error").mean()
                    for folds in grouped([row for row in here if row["mechanism"] == name], "run").values()
                ]
            )
            for name in (worse, better, "non-pri")
        }
        gap = by_mechanism[worse] - by_mechanism[better]
        larger = max(by_mechanism[worse].mean(), by_mechanism[better].mean()) - by_mechanism["non-pri"].mean()
        chance = float(stats.wilcoxon(gap, method="approx").pvalue) if np.ptp(gap) else 1.0
        return float(gap.mean()), float(gap.mean() / larger) if larger > 0 else 0.0, chance


def slope(xs: Iterable[float], ys: Iterable[float]) -> float:
    """The exponent of the power law that fits best: the slope on logarithmic axes.

    >>> round(slope([1, 10, 100], [2, 20, 200]), 6)
    1.0
    """
    xs, ys = list(xs), list(ys)
    if len(xs) < 2:
        raise NotMeasuredError("a slope needs two points")
    pairs = [(math.log(x), math.log(y)) for x, y in zip(xs, ys, strict=True)]
    return float(np.polyfit([x for x, _ in pairs], [y for _, y in pairs], 1)[0])


def linearity(xs: Sequence[float], ys: Sequence[float]) -> float:
    """How much of the variation a straight line explains (R squared).

    >>> linearity([0.0, 1.0, 2.0], [1.0, 3.0, 5.0])
    1.0
    """
    if len(xs) < 3:
        raise NotMeasuredError("a line through less than three points")
    line = np.polyval(np.polyfit(xs, ys, 1), xs)
    spread = float(np.sum((np.array(ys) - np.mean(ys)) ** 2))
    return round(1.0 - float(np.sum((np.array(ys) - line) ** 2)) / spread, 9) if spread else 1.0
