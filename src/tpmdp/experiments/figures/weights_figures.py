"""The figures of balanced weights: error against the threshold for few and many parties, and budgets that go with data.

As all figures, they are written as SVG, PDF or PNG, by the name of the file; a panel without data is left out.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from tpmdp.experiments.count_experiment import DENSITY
from tpmdp.experiments.figures.axes import (
    LEGEND_ORDER,
    LOOKS,
    WIDTH,
    Look,
    Stretched,
    log_axis,
    number,
    panels,
    place_legend,
    plain,
    title,
)
from tpmdp.experiments.figures.panels import chosen, draw_lines, error_range
from tpmdp.experiments.jobs import Row
from tpmdp.experiments.weights_experiment import LARGE, RIVALS
from tpmdp.report.style import BLACK, GREY, picture

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.ticker import MaxNLocator

_GUESS: Final = "mean"
_STRETCHED_FROM: Final = 100
_AT_MOST: Final = Look(LOOKS["W"].colour, "", (0, (1, 1.2)), width=1.6)
_WIDENED: Final = replace(LOOKS["W"], marker="h", dashes="-", size=5.5, filled=False, width=1.4)
_NARROW: Final = replace(LOOKS["W"], marker="X", dashes=(0, (5, 2)), size=5.5, width=1.8)


def draw_weights(points: Sequence[Row], path: Path) -> None:
    """Error of a count against the threshold, from `weights_points`: a panel for each number of parties."""
    here = chosen(points, panel="threshold")
    sizes = sorted({int(number(point, "x")) for point in here})
    with picture(path, WIDTH, 2.5 * max(1, -(-len(sizes) // 3)) + 0.5) as figure:
        for place, axes in enumerate(panels(figure, len(sizes) + 1 if sizes else 0, 3)):
            if place == len(sizes):
                _legend_panel(axes, {str(point["mechanism"]) for point in here})
                break
            parties = sizes[place]
            _threshold_panel(axes, chosen(here, x=float(parties)), parties)
            title(axes, place, f"n = {plain(parties)} parties")
            axes.set_ylabel("" if place % 3 else "error of the count (RMSE)")


def _legend_panel(axes: Axes, names: Collection[str]) -> None:
    """Names, in the place of a panel."""
    from matplotlib.lines import Line2D

    shown = [name for name in LEGEND_ORDER if name in names]
    lines = [Line2D([], [], label=name, **LOOKS[name].drawn()) for name in shown]
    guess = Line2D([], [], label="the answer n/2,\nwithout any data", **LOOKS[_GUESS].drawn())
    axes.legend(handles=[*lines, guess], loc="center left", labelspacing=0.7)
    axes.set_axis_off()


def _threshold_panel(axes: Axes, points: Sequence[Row], parties: int) -> None:
    """One number of parties, with the error of the answer n/2, which needs no data."""
    blind = _blind(parties)
    low, high = error_range([*points, {"rmse": blind}])
    if parties >= _STRETCHED_FROM:
        axis = Stretched(parties)
        draw_lines(axes, points, "threshold", y="rmse", place=axis.place, band=True)
        axis.apply(axes, 2)
        axes.set_xlabel("threshold t (shaded: stretched)")
    else:
        draw_lines(axes, points, "threshold", y="rmse", band=True, every=max(1, parties // 12))
        axes.set_xlim(1 - 0.04 * parties, parties - 1 + 0.04 * parties)
        axes.xaxis.set_major_locator(_whole_numbers())
        axes.set_xlabel("threshold t")
    guess = LOOKS[_GUESS].drawn()
    axes.axhline(blind, color=guess["color"], linestyle=guess["linestyle"], linewidth=guess["linewidth"])
    log_axis(axes, "y", low, high=high, most=6)


def _blind(parties: int) -> float:
    """The error (RMSE) of the answer n/2: for fair coins, or for the paper's density."""
    return math.sqrt(parties) / 2 if parties < LARGE else abs(0.5 - DENSITY) * parties


def _whole_numbers() -> MaxNLocator:
    from matplotlib.ticker import MaxNLocator

    return MaxNLocator(5, integer=True)


def draw_adversary(points: Sequence[Row], path: Path) -> None:
    """Error and coverage of W where budgets go with the data, from `weights_points`."""
    from matplotlib.lines import Line2D

    here = chosen(points, panel="adversary")
    with picture(path, WIDTH, 3.5) as figure:
        for place, axes in enumerate(panels(figure, 2 if here else 0, 2)):
            (_error_panel, _coverage_panel)[place](axes, here)
            title(axes, place, ("Error of a count", "How often W's intervals hold the truth")[place])
            axes.set_xlim(-1.05, 1.05)
            axes.set_xticks([-1, -0.5, 0, 0.5, 1], ["\N{MINUS SIGN}1", "\N{MINUS SIGN}0.5", "0", "0.5", "1"])
            axes.set_xlabel("ones placed by budget\n(\N{MINUS SIGN}1: with the strictest, 1: with the most liberal)")
        shown: list[tuple[str, dict[str, Any]]] = [
            *((name, LOOKS[name].drawn()) for name in RIVALS),
            ("W at most (bound)", _AT_MOST.drawn()),
            ("95 % interval", _NARROW.drawn()),
            ("95 % interval, widened", _WIDENED.drawn()),
        ]
        place_legend(figure, [Line2D([], [], label=text, **look) for text, look in shown], 3)


def _error_panel(axes: Axes, points: Sequence[Row]) -> None:
    draw_lines(axes, points, "x", y="rmse", band=True)
    ours = sorted(chosen(points, mechanism="W"), key=lambda point: number(point, "x"))
    across, most = [number(point, "x") for point in ours], [number(point, "at_most") for point in ours]
    axes.plot(across, most, **_AT_MOST.drawn())
    axes.fill_between(across, [number(point, "rmse") for point in ours], most, color=_AT_MOST.colour, alpha=0.06)
    highest: list[Row] = [{"rmse": value} for value in most]
    log_axis(axes, "y", *error_range([*points, *highest]), most=8)
    axes.set_ylabel("error of the count (RMSE)")


def _coverage_panel(axes: Axes, points: Sequence[Row]) -> None:
    ours = sorted(chosen(points, mechanism="W"), key=lambda point: number(point, "x"))
    across = [number(point, "x") for point in ours]
    for name, look in (("covered_wide", _WIDENED), ("covered", _NARROW)):
        axes.plot(across, [100 * number(point, name) for point in ours], **look.drawn())
    axes.axhline(95, color=GREY, linewidth=1, zorder=1)
    axes.annotate("95 %", (-1.0, 95), (2, -3), textcoords="offset points", va="top", fontsize=8, color=BLACK)
    axes.set_ylim(-4, 106)
    axes.set_yticks([0, 20, 40, 60, 80, 100])
    axes.set_ylabel("of all draws, in %")
