"""The picture of a sweep: a panel for each query, the error to expect against a threshold or a budget."""

from __future__ import annotations

import math
from pathlib import Path
from typing import TYPE_CHECKING, Final

from tpmdp._util.numbers import number
from tpmdp.queries.answer import Answer
from tpmdp.report.style import BLUE, GREEN, GREY, LIGHT_GREY, ORANGE, PURPLE, RED, WINE, literal_text, picture
from tpmdp.study.sweep import AXES, Sweep, SweepPoint, has_error

if TYPE_CHECKING:
    from matplotlib.axes import Axes

PANELS_MAX: Final = 12
_COLUMNS: Final = 3
_COLOURS: Final = (BLUE, ORANGE, GREEN, RED, PURPLE, WINE, GREY)
_LOG_FROM: Final = 30.0  # ratio of largest to smallest shown value from which an axis is logarithmic
_LOG_X_FROM: Final = 10.0
_TITLE_SHOWN: Final = 34


def draw_sweep(sweep: Sweep, path: Path) -> None:
    """Draw the picture into a .svg, .pdf or .png file."""
    queries = list(dict.fromkeys(answer.query for answer in sweep.points[0].answers))
    shown = queries[:PANELS_MAX]
    columns = 2 if len(shown) == 4 else min(_COLUMNS, len(shown))
    rows = math.ceil(len(shown) / columns)
    with picture(path, 0.8 + 3.1 * columns, 0.9 + 2.4 * rows) as figure:
        every = figure.subplots(rows, columns, squeeze=False)
        hidden = f" (the first {PANELS_MAX} of {len(queries)} queries)" if len(queries) > PANELS_MAX else ""
        mark = ". Square: this study" if any(point.is_study for point in sweep.points) else ""
        figure.suptitle(literal_text(_short(sweep.title, 60)) + hidden + mark, x=0.01, ha="left", fontsize=10)
        for place, axes in enumerate(every.flat):
            if place < len(shown):
                _draw(axes, sweep, shown[place])
            else:
                axes.set_axis_off()
        figure.supxlabel(AXES[sweep.axes[0]], fontsize=8.5)
        figure.supylabel("standard error to expect", fontsize=8.5)
        if len(sweep.axes) > 1:
            handles, labels = every[0, 0].get_legend_handles_labels()
            figure.legend(handles, labels, loc="outside right upper", title=sweep.axes[1], title_fontsize=8)


def _draw(axes: Axes, sweep: Sweep, query: str) -> None:
    """One line per value of the second axis; if there is none, one line."""
    first, second = sweep.axes[0], sweep.axes[1] if len(sweep.axes) > 1 else None
    groups: dict[float | None, list[SweepPoint]] = {}
    for point in sweep.points:
        groups.setdefault(None if second is None else point.values[second], []).append(point)
    every: list[float] = []
    for place, (value, points) in enumerate(groups.items()):
        values = [point.values[first] for point in points]
        errors = [_error(point, query) for point in points]
        label = None if value is None else number(value)
        colour = _COLOURS[place % len(_COLOURS)]
        axes.plot(values, errors, marker="o", markersize=4, color=colour, label=label)
        every += [error for error in errors if math.isfinite(error)]
        for point, error in zip(points, errors, strict=True):
            if point.is_study:
                axes.plot([point.values[first]], [error], marker="s", markersize=8, color=colour, clip_on=False)
                axes.axvline(point.values[first], color=LIGHT_GREY, linewidth=1, zorder=0)
            if point.is_exact:
                corner = (point.values[first], 0.0)
                axes.annotate("no noise", corner, xytext=(6, 5), textcoords="offset points", color=RED, fontsize=8)
    axes.set_title(literal_text(_title(sweep, query)))
    positive = [error for error in every if error > 0]
    if positive and len(positive) == len(every) and max(positive) > _LOG_FROM * min(positive):
        axes.set_yscale("log")
    else:
        axes.set_ylim(0, max(positive, default=1.0) * 1.08)
    if first == "threshold":
        ticks = sorted({int(point.values[first]) for point in sweep.points})
        axes.set_xticks(ticks[:: max(1, math.ceil(len(ticks) / 10))])
    elif _spans_much([point.values[first] for point in sweep.points]):
        axes.set_xscale("log")
        axes.xaxis.set_major_formatter("{x:g}")
    axes.yaxis.set_major_formatter("{x:,.4g}")


def _part(point: SweepPoint, query: str) -> Answer:
    """The answer of a query that is drawn: the one with the largest error of those that have one."""
    answers = [answer for answer in point.answers if answer.query == query]
    known = list(filter(has_error, answers))
    return max(known or answers, key=lambda answer: answer.standard_error)


def _error(point: SweepPoint, query: str) -> float:
    answer = _part(point, query)
    return 0.0 if point.is_exact else answer.standard_error if has_error(answer) else math.nan


def _title(sweep: Sweep, query: str) -> str:
    parts = [answer.part for answer in sweep.points[0].answers if answer.query == query]
    largest = f"\n(the largest error of {len(parts)} answers)" if len(parts) > 1 else ""
    return _short(query, _TITLE_SHOWN) + largest


def _short(name: str, most: int) -> str:
    return name if len(name) <= most else name[: most - 3] + "..."


def _spans_much(values: list[float]) -> bool:
    return min(values) > 0 and max(values) >= _LOG_X_FROM * min(values)
