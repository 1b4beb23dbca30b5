"""The panels of the experiments' figures: each draws some rows on given axes."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import cycle
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from tpmdp.experiments.figures.axes import (
    LOOKS,
    Look,
    Stretched,
    log_axis,
    number,
    plain,
    short,
)
from tpmdp.experiments.jobs import Row, Value
from tpmdp.report.style import BLACK, BLUE, GREEN, GREY, RED

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.lines import Line2D

_ROOM: Final = 1.25  # between the data and the ends of a logarithmic axis
_LINEAR_TO: Final = 0.002  # fractions of parties below are drawn evenly, so that 0 has a place
_FRACTIONS: Final = (0.0, 0.002, 0.01, 0.05, 0.2, 0.6)
_CURVE_POINTS_MAX: Final = 60
_PAGE: Final = 4096  # bytes: memory is counted in pages
_TIMES: Final = ((1.0, "s"), (1e-3, "ms"), (1e-6, "µs"), (1e-9, "ns"))
_SIZES: Final = ((1e9, "GB"), (1e6, "MB"), (1e3, "kB"), (1.0, "B"))
_METHODS: Final[dict[str, tuple[str, Look]]] = {
    "ours": ("ours", Look(BLUE, "", "-", width=2.0)),
    "highs": ("HiGHS", Look(RED, "", "--", width=1.3)),
    "gurobi": ("Gurobi", Look(GREEN, "", ":", width=1.8)),
}
_MARKERS: Final = ("o", "s", "^", "D", "v")
_ENDS: Final = {
    "memory": ("x", "stops: out of memory"),
    "time": ("*", "stops: over the time limit"),
    "licence": ("+", "stops: over the licence's limit"),
}
_END_LOOK: Final[dict[str, Any]] = {
    "color": BLACK,
    "linestyle": "none",
    "markersize": 7,
    "markeredgewidth": 1.5,
    "zorder": 5,
}


def chosen(rows: Sequence[Row], **wanted: Value) -> list[Row]:
    """The rows with these values.

    >>> chosen([{"panel": "a"}, {"panel": "b"}], panel="b")
    [{'panel': 'b'}]
    """
    return [row for row in rows if all(row.get(name) == value for name, value in wanted.items())]


def draw_lines(
    axes: Axes,
    points: Sequence[Row],
    x: str,
    y: str,
    place: Callable[[float], float] = float,
    band: bool = False,
    every: int = 1,
) -> None:
    """A line for each mechanism, in its look, with a band from `low` to `high` where one is wanted.

    Where points are close, only some have a marker: one of so many.
    """
    for name, look in LOOKS.items():
        some = sorted(chosen(points, mechanism=name), key=lambda point: number(point, x))
        if not some:
            continue
        across = [place(number(point, x)) for point in some]
        axes.plot(across, [number(point, y) for point in some], **look.drawn(), markevery=every)
        if band:
            _draw_band(axes, across, some, look=look)


def _draw_band(axes: Axes, across: Sequence[float], points: Sequence[Row], look: Look) -> None:
    low, high = ([number(point, side) for point in points] for side in ("low", "high"))
    axes.fill_between(across, low, high, color=look.colour, alpha=0.15, linewidth=0)


def error_range(points: Sequence[Row]) -> tuple[float, float]:
    """The ends of a logarithmic axis of errors; bands that reach far beyond all points are cut.

    >>> low, high = error_range([{"rmse": 10.0}, {"rmse": 1000.0}])
    >>> round(low, 1), round(high, 1)
    (7.6, 1318.3)
    """
    values = [value for point in points if (value := number(point, "rmse")) > 0] or [1.0]
    room = max((max(values) / min(values)) ** 0.06, 1.05)
    return min(values) / room, max(values) * room


def density_panel(axes: Axes, points: Sequence[Row]) -> None:
    """Error against the fraction of ones."""
    draw_lines(axes, points, "x", y="rmse", band=True)
    axes.set_xlim(-0.03, 1.03)
    axes.set_xlabel("fraction of ones in the data")


def conservative_panel(axes: Axes, points: Sequence[Row]) -> None:
    """Error against the fraction of conservative parties: logarithmic, but from 0."""
    draw_lines(axes, points, "x", y="rmse", band=True)
    axes.set_xscale("symlog", linthresh=_LINEAR_TO, linscale=0.5)
    axes.set_xlim(-0.0004, 0.75)
    axes.set_xticks(_FRACTIONS, [plain(tick) for tick in _FRACTIONS])
    axes.set_xticks([], minor=True)
    axes.set_xlabel("fraction of conservative parties")


def parties_panel(axes: Axes, points: Sequence[Row]) -> None:
    """Error against the number of parties, of which half may collude."""
    draw_lines(axes, points, "x", y="rmse", band=True)
    sizes = [number(point, "x") for point in points]
    small = max(sizes) <= 10_000
    log_axis(axes, "x", min(sizes) / 1.1, high=max(sizes) * 1.1, text=plain if small else short, most=7 if small else 5)
    axes.set_xlabel("parties n (threshold n/2)")


def threshold_panel(axes: Axes, points: Sequence[Row], parties: int, labels: int) -> None:
    """Error against the threshold, of which so many are labelled where the axis is stretched."""
    axis = Stretched(parties)
    draw_lines(axes, points, "x", y="rmse", place=axis.place, band=True)
    axis.apply(axes, labels)
    axes.set_xlabel(f"threshold t of n = {plain(parties)} parties\n(shaded: axis stretched)")


def price_panel(axes: Axes, points: Sequence[Row]) -> None:
    """Error over that of a trusted curator against t/n, for each n; the middle 90 % for the largest."""
    sizes = sorted({number(point, "parties") for point in points})
    for name in ("TMDP", "G"):
        for size, marker in zip(sizes, cycle(_MARKERS), strict=False):
            some = sorted(chosen(points, mechanism=name, parties=size), key=lambda point: number(point, "threshold"))
            if not some:
                continue
            across = [number(point, "threshold") / size for point in some]
            median = [number(point, "median") for point in some]
            marked = list(range(len(some) - 1, -1, -max(1, len(some) // 4)))  # the last one, and few others
            look = replace(LOOKS[name], marker=marker, size=4)
            axes.plot(across, median, **look.drawn(), markevery=marked)
            if name != "G":
                continue
            end = (across[-1], median[-1])
            axes.annotate(f"n = {size:g}", end, (5, -6), textcoords="offset points", fontsize=8, color=look.colour)
            if size == sizes[-1]:
                _draw_band(axes, across, some, look=look)
    log_axis(axes, "y", 0.96, high=max(number(point, "median") for point in points) * 1.1, most=7)
    axes.set_xlim(0, 1.3)  # room for the last name
    axes.set_xticks([0, 0.25, 0.5, 0.75, 1], ["0", "0.25", "0.5", "0.75", "1"])
    axes.set_xlabel("threshold t / parties n")
    axes.set_ylabel("error relative to a trusted curator")


def relax_panel(axes: Axes, points: Sequence[Row]) -> None:
    """Error after one party multiplies its epsilon over that before."""
    draw_lines(axes, points, "factor", y="median")
    log_axis(axes, "x", 0.95, high=max(number(point, "factor") for point in points) * 1.06, most=5)
    axes.yaxis.set_major_formatter("{x:g}")
    axes.set_xlabel("its ε is multiplied by")
    axes.set_ylabel("error relative to before")


def enjoyed_rows(rows: Sequence[Row], parties: int) -> list[Row]:
    """One draw of budgets of so many parties, or of the most there are.

    >>> rows = [{"panel": "enjoyed", "x": 20.0, "draw": draw} for draw in (0, 1)]
    >>> len(enjoyed_rows(rows, 1000))
    1
    """
    every = chosen(rows, panel="enjoyed")
    if not every:
        return []
    sizes = {number(row, "x") for row in every}
    some = chosen(every, x=float(parties) if parties in sizes else max(sizes))
    return chosen(some, draw=min(int(number(row, "draw")) for row in some))


def enjoyed_panel(axes: Axes, rows: Sequence[Row]) -> None:
    """The epsilon that each party asked for against the one that it enjoys, by mechanism."""
    values = [number(row, name) for row in rows for name in ("asked", "enjoyed")]
    values = [value for value in values if value > 0 and math.isfinite(value)] or [1.0]
    low, high = min(values) / _ROOM, max(values) * _ROOM
    axes.plot([low, high], [low, high], color=GREY, linewidth=1, zorder=1)
    middle, above = math.sqrt(low * high), (high / low) ** 0.03
    axes.text(
        middle / above,
        middle * above,
        "what was asked",
        rotation=math.degrees(math.atan(above**2)),  # of the diagonal, seen from there
        rotation_mode="anchor",
        transform_rotates_text=True,
        ha="center",
        va="bottom",
        color=GREY,
        fontsize=8,
    )
    for name, look in LOOKS.items():
        some = sorted(chosen(rows, mechanism=name), key=lambda row: number(row, "asked"))
        some = [row for row in some if number(row, "enjoyed") > 0]  # a party that is left out has no place on the axis
        if not some:
            continue
        # every one of the first, then ever fewer: they are uniform, and the axis is logarithmic
        ranks = np.unique(np.geomspace(1, len(some), _CURVE_POINTS_MAX).astype(int)) - 1
        across, up = ([number(some[rank], column) for rank in ranks] for column in ("asked", "enjoyed"))
        axes.plot(across, up, **look.drawn(), markevery=max(1, len(ranks) // 6))
    for side in ("x", "y"):
        log_axis(axes, side, low, high=high, most=5)
    axes.set_xlabel("ε that a party asked for")
    axes.set_ylabel("ε that it enjoys")


def draw_arrow(axes: Axes, x: float, high: float, low: float, text: str, text_y: float) -> None:
    """An arrow from one height down to another, and what it means left of it."""
    arrow = {"arrowstyle": "->", "color": BLACK, "shrinkA": 5, "shrinkB": 5}
    axes.annotate("", (x, low), (x, high), arrowprops=arrow)
    blank = {"facecolor": "white", "edgecolor": "none", "alpha": 0.8, "pad": 1}  # lines may pass behind
    axes.annotate(text, (x, text_y), (-10, 0), textcoords="offset points", ha="right", va="center", bbox=blank)


def with_unit(units: Sequence[tuple[float, str]]) -> Callable[[float], str]:
    """Writes a value in the largest unit that is not larger.

    >>> with_unit(((1.0, "s"), (1e-3, "ms")))(0.01)
    '10 ms'
    """

    def text(value: float) -> str:
        size, name = next((unit for unit in units if value >= unit[0] * 0.999), units[-1])
        return f"{value / size:g} {name}"

    return text


def cost_panel(axes: Axes, rows: Sequence[Row], column: str) -> None:
    """Time or memory against n, for each method and rule; a mark where a line cannot go on.

    Memory that is too little to be measured is drawn as one page, for a logarithmic axis has no 0.
    """
    least, units = (_PAGE, _SIZES) if column == "peak_bytes" else (1e-9, _TIMES)
    shown: list[float] = []
    for method, rule, look in _series(rows):
        series = sorted(chosen(rows, method=method, rule=rule), key=lambda row: number(row, "n"))
        done = [(number(row, "n"), max(number(row, column), least)) for row in series if row["outcome"] == "ok"]
        shown += [value for _, value in done]
        axes.plot([n for n, _ in done], [value for _, value in done], **look.drawn())
        failed = next((row for row in series if row["outcome"] in _ENDS), None)
        if failed is not None:
            # Its value is unknown: it lies as high as the last one before, or at the bottom.
            before = [value for n, value in done if n < number(failed, "n")]
            axes.plot(
                [number(failed, "n")],
                [before[-1] if before else 0.04],
                marker=_ENDS[str(failed["outcome"])][0],
                transform=axes.transData if before else axes.get_xaxis_transform(),
                **_END_LOOK,
            )
    sizes = [number(row, "n") for row in rows]
    log_axis(axes, "x", min(sizes) / 1.3, high=max(sizes) * 1.3, text=short)
    log_axis(axes, "y", min(shown, default=least) / 2, high=max(shown, default=least) * 4, text=with_unit(units))
    axes.set_xlabel("parties n")


def _series(rows: Sequence[Row]) -> list[tuple[str, Value, Look]]:
    """Every method with every rule, and the look of its line: colour and dashes of the method, marker of the rule."""
    rules = list(dict.fromkeys(row["rule"] for row in rows))
    return [
        (method, rule, replace(look, marker=marker, size=3.5))
        for method, (_, look) in _METHODS.items()
        for rule, marker in zip(rules, cycle(_MARKERS), strict=False)
    ]


def cost_legend(rows: Sequence[Row]) -> list[Line2D]:
    """Columns of equal length: methods, rules, and why lines end."""
    from matplotlib.lines import Line2D

    methods = [
        Line2D([], [], label=text, **look.drawn())
        for name, (text, look) in _METHODS.items()
        if chosen(rows, method=name)
    ]
    rules = [
        Line2D([], [], label=str(rule), marker=marker, color=BLACK, markerfacecolor="white", linestyle="none")
        for rule, marker in zip(dict.fromkeys(row["rule"] for row in rows), cycle(_MARKERS), strict=False)
    ]
    ends = [
        Line2D([], [], label=text, marker=marker, **_END_LOOK)
        for outcome, (marker, text) in _ENDS.items()
        if chosen(rows, outcome=outcome)
    ]
    groups = [group for group in (methods, rules, ends) if group]
    longest = max((len(group) for group in groups), default=0)
    blank = [Line2D([], [], label=" ", linestyle="none")]
    return [handle for group in groups for handle in [*group, *blank * (longest - len(group))]]
