"""The figures of the experiments, all in one style: readable on paper, in grey, and by colour-blind readers.

Each function writes SVG, PDF or PNG, by the name of the file. A panel without data is left out.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final

from tpmdp.experiments.consortium_experiment import PAPER_PARTIES
from tpmdp.experiments.figures.axes import (
    WIDTH,
    Stretched,
    legend,
    log_axis,
    number,
    panels,
    place_legend,
    plain,
    title,
)
from tpmdp.experiments.figures.panels import (
    chosen,
    conservative_panel,
    cost_legend,
    cost_panel,
    density_panel,
    draw_arrow,
    enjoyed_panel,
    enjoyed_rows,
    error_range,
    parties_panel,
    price_panel,
    relax_panel,
    threshold_panel,
)
from tpmdp.experiments.jobs import Row
from tpmdp.experiments.regression_experiment import PARTIES, QUICK_PARTIES
from tpmdp.experiments.scenario import DEFAULT
from tpmdp.mechanisms.registry import MECHANISMS
from tpmdp.report.style import picture

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Panel = tuple[Sequence[Row], str, Callable[["Axes", Sequence[Row]], None]]
"""Rows, a title, and what draws them."""
_WIDE: Final = 9.0  # inches, on a screen
_COSTS: Final = (
    ("peak_bytes", "Memory", "memory taken at the peak"),
    ("seconds", "Time", "time to find the noise plan"),
)
_ENJOYED: Final = ("G", "W", "two levels", "T", "TMDP", "Sample", "Sample, scaled back", "PLDP")


def draw_count(points: Sequence[Row], path: Path) -> None:
    """Error of a count, from `count_points`: four panels as in the paper; bands are 95 % intervals."""
    _draw_errors(
        points,
        path,
        2,
        height=2.7,
        what="error of the count (RMSE)",
        parties=_parties(points, (DEFAULT.parties,)),
        labels=4,
    )


def draw_regression(points: Sequence[Row], path: Path) -> None:
    """Prediction error, from `regression_points`: three panels as in the paper; bands are 95 % intervals."""
    parties = _parties(points, (QUICK_PARTIES, PARTIES))
    _draw_errors(points, path, 3, height=3.0, what="prediction error (RMSE)", parties=parties, labels=2)


def _parties(points: Sequence[Row], known: Sequence[int]) -> int:
    """Of how many parties thresholds are: points do not say."""
    most = max((int(number(point, "x")) for point in chosen(points, panel="threshold")), default=0)
    return next((parties for parties in known if parties > most), most + 1)


def _draw_errors(
    points: Sequence[Row], path: Path, columns: int, height: float, what: str, parties: int, labels: int
) -> None:
    """The panels that have points, with one axis of errors for all."""
    every: list[Panel] = [
        (chosen(points, panel="density"), "Density of the data", density_panel),
        (chosen(points, panel="conservative"), "Conservative parties", conservative_panel),
        (chosen(points, panel="parties"), "Number of parties", parties_panel),
        (chosen(points, panel="threshold"), "Threshold", partial(threshold_panel, parties=parties, labels=labels)),
    ]
    lines = max(1, math.ceil(sum(bool(panel[0]) for panel in every) / columns))
    with picture(path, WIDTH, height * lines + 0.4) as figure:
        names = _draw_panels(figure, every, columns, share_y=True)
        for place, axes in enumerate(figure.axes):
            log_axis(axes, "y", *error_range(points))
            axes.set_ylabel("" if place % columns else what)
        legend(figure, names, 7 if len(names) <= 7 else 4)


def draw_efficiency(rows: Sequence[Row], path: Path) -> None:
    """Time and memory of our method and of solvers, from the rows of `efficiency`."""
    rows = [row for row in rows if row["outcome"] != "missing"]
    with picture(path, WIDTH, 3.7) as figure:
        for place, axes in enumerate(panels(figure, 2 if rows else 0, 2)):
            column, text, what = _COSTS[place]
            cost_panel(axes, rows, column)
            title(axes, place, text)
            axes.set_ylabel(what)
        place_legend(figure, cost_legend(rows), 3)


def draw_consortium(points: Sequence[Row], rows: Sequence[Row], path: Path) -> None:
    """Price of a threshold and one party that relaxes, from `consortium_points`; protection, from the rows.

    Of budgets drawn at random, prices and errors are medians (the band is the middle 90 %); protection is of one draw.
    """
    price = _by(chosen(points, panel="price", receivers="all"), ("G", "TMDP"))
    enjoyed = _by(enjoyed_rows(rows, PAPER_PARTIES), _ENJOYED)
    every: list[Panel] = [
        (price, "Price of a threshold", price_panel),
        (chosen(points, panel="relax", who="strictest"), "The strictest relaxes", relax_panel),
        (enjoyed, "Protection enjoyed", enjoyed_panel),
    ]
    with picture(path, WIDTH, 3.1) as figure:
        legend(figure, _draw_panels(figure, every), 5)


def draw_telling(count_points: Sequence[Row], consortium_rows: Sequence[Row], path: Path) -> None:
    """For readers who do not know the paper: a count's error by threshold, and what privacy parties get."""
    enjoyed = _by(enjoyed_rows(consortium_rows, PAPER_PARTIES), _ENJOYED)
    every: list[Panel] = [
        (chosen(count_points, panel="threshold"), "Error of a private count", _tell_errors),
        (enjoyed, "Privacy asked for, and enjoyed: a smaller ε is stronger", _tell_enjoyed),
    ]
    labels = {name: f"{name}: {mechanism.meaning}" for name, mechanism in MECHANISMS.items()}
    for ours in ("G", "W"):
        labels[ours] += " (this package)"
    with picture(path, _WIDE, 4.8) as figure:
        legend(figure, _draw_panels(figure, every), 2, labels=labels)


def _by(rows: Sequence[Row], names: Sequence[str]) -> list[Row]:
    """The rows of these mechanisms."""
    return [row for row in rows if row["mechanism"] in names]


def _draw_panels(figure: Figure, every: Sequence[Panel], columns: int = 3, share_y: bool = False) -> set[str]:
    """Draw those that have rows; gives the mechanisms in them."""
    shown = [panel for panel in every if panel[0]]
    for place, axes in enumerate(panels(figure, len(shown), columns, share_y=share_y)):
        rows, text, draw = shown[place]
        draw(axes, rows)
        title(axes, place, text)
    return {str(row["mechanism"]) for rows, _, _ in shown for row in rows}


def _tell_errors(axes: Axes, points: Sequence[Row]) -> None:
    parties = _parties(points, (DEFAULT.parties,))
    threshold_panel(axes, points, parties, labels=4)
    low, high = error_range(points)
    log_axis(axes, "y", low, high=high * 1.2)
    axes.set_xlabel(f"how many of {plain(parties)} parties may collude (shaded: axis stretched)")
    axes.set_ylabel("error of the count (RMSE)")
    last = {str(point["mechanism"]): point for point in sorted(points, key=lambda point: number(point, "x"))}
    ours, theirs = (number(last.get(name, {}), "rmse") for name in ("G", "TMDP"))
    if theirs > ours > 0:
        place = Stretched(parties).place(number(last["G"], "x"))
        computed = [number(last[name], "expected") or number(last[name], "rmse") for name in ("TMDP", "G")]
        text = f"G errs {computed[0] / computed[1]:.2g} times\nless than TMDP"
        draw_arrow(axes, place, theirs, low=ours, text=text, text_y=theirs * 1.1)


def _tell_enjoyed(axes: Axes, rows: Sequence[Row]) -> None:
    enjoyed_panel(axes, rows)
    axes.set_xlabel("privacy loss ε that a party allows")
    axes.set_ylabel("privacy loss ε that it bears")
    ours = chosen(rows, mechanism="G")
    if ours:
        last = max(ours, key=lambda row: number(row, "asked"))
        asked, given = (number(last, name) for name in ("asked", "enjoyed"))
        text = f"asks for ε = {asked:.2g},\ngets ε = {given:.2g} from G"
        draw_arrow(axes, asked, asked, low=given, text=text, text_y=math.sqrt(asked * given))
