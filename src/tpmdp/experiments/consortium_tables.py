"""Tables beyond the paper: the price of a threshold, one party that relaxes, the protection enjoyed."""

from __future__ import annotations

from typing import Final

import numpy as np

from tpmdp.experiments.consortium_experiment import COMPARED, PAPER_PARTIES, SIZES
from tpmdp.experiments.jobs import Row
from tpmdp.experiments.results import Results
from tpmdp.experiments.summary import column

FACTORS: Final = (2.0, 5.0, 10.0)


def price_table(results: Results) -> list[Row]:
    """Error relative to a trusted curator's, for a few thresholds: medians over draws of budgets."""
    points = {
        (row["parties"], row["receivers"], row["threshold"], row["mechanism"]): row
        for row in results.consortium
        if row["panel"] == "price"
    }
    rows: list[Row] = []
    for size in SIZES:
        for threshold in dict.fromkeys((1, size // 4 or 1, size // 2, size - 1)):
            key = (float(size), "all", threshold)
            if (*key, "G") in points:
                row: Row = {"n": size, "t": threshold}
                row |= {name: _times(points[(*key, name)]["median"]) for name in ("G", "TMDP", "non-thre")}
                row["G, one receiver"] = _times(points[(float(size), "one", threshold, "G")]["median"])
                rows.append(row)
    return rows


def _times(value: object) -> str:
    return f"{float(str(value)):.2f}"


def relax_table(results: Results) -> list[Row]:
    """The error after one of ten parties multiplies its epsilon, relative to before."""
    points = {
        (row["who"], row["factor"], row["mechanism"]): row for row in results.consortium if row["panel"] == "relax"
    }
    rows: list[Row] = []
    for who in ("strictest", "middle"):
        for name in COMPARED:
            if (who, FACTORS[0], name) in points:
                row: Row = {"who relaxes": who, "mechanism": name}
                row |= {f"epsilon x {factor:g}": _percent(points[(who, factor, name)]["median"]) for factor in FACTORS}
                rows.append(row)
    return rows


def _gain(value: float) -> str:
    return "left out" if np.isinf(value) else f"{value:.1f}"


def _percent(value: object) -> str:
    return f"{100 * float(str(value)):.0f} %"


def enjoyed_table(results: Results) -> list[Row]:
    """How many times stronger the protection is than asked for, in epsilon."""
    rows: list[Row] = []
    for size in (20, PAPER_PARTIES):
        for name in COMPARED:
            some = [
                row
                for row in results.consortium_rows
                if row["panel"] == "enjoyed" and row["x"] == size and row["mechanism"] == name
            ]
            if not some:
                continue
            asked, given = column(some, "asked"), column(some, "enjoyed")
            gain = np.divide(asked, given, out=np.full(len(asked), np.inf), where=given > 0)
            liberal = asked >= np.quantile(asked, 0.9)
            rows.append(
                {
                    "n": size,
                    "mechanism": name,
                    "asked, median": f"{np.median(asked):.3g}",
                    "enjoyed, median": f"{np.median(given):.3g}",
                    "gain, median": _gain(float(np.median(gain))),
                    "gain, most liberal tenth": _gain(float(np.median(gain[liberal]))),
                    "get twice or more": _percent(np.mean(gain >= 2)),
                }
            )
    return rows
