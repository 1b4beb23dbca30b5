"""The picture of a release: a panel for each query, answers with their 95 % intervals, in a grid."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Sequence
from itertools import cycle
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from tpmdp.queries.answer import Answer, further_names
from tpmdp.queries.kaplan_meier import WITH_SAMPLING
from tpmdp.report.panels import Panel, Row, panels
from tpmdp.report.plot_survival import draw_at_risk, inches_at_risk
from tpmdp.report.style import BLUE, CURVES, GREY, LIGHT_GREY, RED, literal_text, picture

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from tpmdp.study.model import Study

_NAMES_MAX: Final = 40  # rows of a panel that are named
_NAME_SHOWN: Final = 34
_TITLE_SHOWN: Final = 70
_LABELS_MAX: Final = 10  # under bars
_ROW_INCH: Final = 0.26
_DENSE_INCH: Final = 0.2
_SURVIVAL_INCH: Final = 3.2
_UPRIGHT_INCH: Final = 2.5
_WIDE_ROWS: Final = 12  # a panel with more rows takes the whole width
_WIDTH: Final = 7.5
_COLUMN_CHARACTERS: Final = {1: 96, 2: 46}  # of a line of small print, by number of columns


def draw_answers(study: Study, answers: Sequence[Answer], path: Path) -> None:
    """Draw the answers into a .svg, .pdf or .png file; unless all parties receive them, only its owner can read it."""
    private = len(study.receivers) < len(study.parties)
    lines = _lines(panels(study, answers))
    has_curves = any(panel.curves for line in lines for panel in line)
    heights = [max(_height(panel) for panel in line) for line in lines]
    with picture(path, _WIDTH, sum(heights) + 0.6, private=private) as figure:
        figure.suptitle(_text(study.label, _TITLE_SHOWN), x=0.01, ha="left", fontsize=10)
        parts = figure.subfigures(len(lines), 1, squeeze=False, height_ratios=heights)  # lines need not be aligned
        for part, line in zip(parts[:, 0], lines, strict=True):
            for axes, panel in zip(part.subplots(1, len(line), squeeze=False)[0], line, strict=True):
                _draw(axes, panel, len(line))
        figure.supxlabel(_bars_text(answers, has_curves), fontsize=7)


def _lines(drawn: Sequence[Panel]) -> list[list[Panel]]:
    """Panels in lines of two; a regression, one with many rows, or one left over has a line of its own."""
    lines: list[list[Panel]] = []
    waiting: list[Panel] = []
    for panel in drawn:
        if (len(panel.rows) > _WIDE_ROWS and not panel.curves) or panel.from_zero or _is_survival(panel):
            lines.append([panel])
            continue
        waiting.append(panel)
        if len(waiting) == 2:
            lines.append(waiting)
            waiting = []
    return [*lines, waiting] if waiting else lines


def _height(panel: Panel) -> float:
    notes = 0.16 * len(panel.notes)
    if _is_survival(panel):
        return _SURVIVAL_INCH + inches_at_risk(panel.curves) + notes
    if panel.upright or panel.curves:
        return _UPRIGHT_INCH + notes
    rows = min(max(len(panel.rows), 2), _NAMES_MAX)
    return 0.95 + (_ROW_INCH if rows <= _WIDE_ROWS else _DENSE_INCH) * rows + notes


def _is_survival(panel: Panel) -> bool:
    """Whether it has numbers at risk below its curves."""
    return any(curve.at_risk for curve in panel.curves)


def _text(name: str, most: int = _NAME_SHOWN) -> str:
    """A name, shortened."""
    return literal_text(name if len(name) <= most else name[: most - 3] + "...")


def _bars_text(answers: Sequence[Answer], has_curves: bool) -> str:
    if any(answer.always is not None for answer in answers):
        black = "95 % intervals if weights have nothing to do with the data (black)"
        return f"Error bars: {black}, and whatever the data (grey; not drawn where there is none)."
    if WITH_SAMPLING in further_names(answers):
        darker = "Error bars and darker bands are 95 % intervals, point by point, of the noise added for privacy"
        return f"{darker}; lighter bands are of {WITH_SAMPLING}."
    bars = "Error bars and bands are 95 % intervals, point by point," if has_curves else "Error bars are 95 % intervals"
    return f"{bars} of the noise added for privacy, not of sampling."


def _bars(rows: Sequence[Row], always: bool = False) -> Any:
    """Lengths of the error bars to both sides; 0 if there is no interval."""
    limits = [(row.always or (row.low, row.high)) if always else (row.low, row.high) for row in rows]
    lows = [max(0.0, row.value - low) for row, (low, _) in zip(rows, limits, strict=True)]
    highs = [max(0.0, high - row.value) for row, (_, high) in zip(rows, limits, strict=True)]
    return np.array([[each if math.isfinite(each) else 0.0 for each in side] for side in (lows, highs)])


def _draw(axes: Axes, panel: Panel, columns: int) -> None:
    axes.set_title(_text(panel.title, _TITLE_SHOWN // columns))
    if panel.curves:
        _draw_curves(axes, panel)
    elif panel.upright:
        _draw_bars(axes, panel, columns)
    else:
        _draw_dots(axes, panel, columns)
    _note(axes, panel, columns)


def _draw_bars(axes: Axes, panel: Panel, columns: int) -> None:
    """A histogram."""
    rows = panel.rows
    places, values = np.arange(len(rows)), [row.value for row in rows]
    axes.grid(visible=False, axis="x")
    axes.bar(places, values, width=0.85, color=BLUE, alpha=0.75)
    many = len(rows) > _NAMES_MAX
    if any(row.always for row in rows):
        wide = _bars(rows, always=True)
        axes.errorbar(places, values, yerr=wide, fmt="none", ecolor=LIGHT_GREY, elinewidth=1 if many else 4)
    axes.errorbar(
        places,
        values,
        yerr=_bars(rows),
        fmt="none",
        ecolor="black",
        elinewidth=0.5 if many else 1,
        capsize=0 if many else 3,
    )
    axes.axhline(0, color=GREY, linewidth=0.8)
    axes.set_ylabel(_text(panel.axis))
    axes.set_xlabel(_text(panel.across))
    axes.yaxis.set_major_formatter("{x:,.10g}")
    if all(" to below " in row.label for row in rows):  # bins: the edges between them
        edges = [row.label.split(" to below ")[0] for row in rows] + [rows[-1].label.split(" to below ")[1]]
        step = max(1, math.ceil(len(edges) / _LABELS_MAX))
        axes.set_xticks(np.arange(len(edges))[::step] - 0.5, [_text(edge) for edge in edges[::step]], fontsize=8)
        return
    step = max(1, math.ceil(len(rows) / _LABELS_MAX))
    names = [_text(row.label) for row in rows[::step]]
    long = sum(map(len, names)) > 80 // columns
    axes.set_xticks(places[::step], names, rotation=30 if long else 0, ha="right" if long else "center", fontsize=8)


def _draw_curves(axes: Axes, panel: Panel) -> None:
    """Steps with their bands; whatever the data, a paler band around them."""
    for curve, colour in zip(panel.curves, cycle(CURVES), strict=False):
        corners = curve.corners()
        places, rows = [place for place, _ in corners], [row for _, row in corners]
        if any(row.always or row.full for row in rows):
            wide = [row.always or row.full or (row.low, row.high) for row in rows]
            ends = np.array(wide)
            axes.fill_between(places, ends[:, 0], ends[:, 1], color=colour, alpha=0.12, linewidth=0)
        lows, highs = [row.low for row in rows], [row.high for row in rows]
        axes.fill_between(places, lows, highs, color=colour, alpha=0.25, linewidth=0)
        axes.plot(places, [row.value for row in rows], color=colour, linewidth=1.3, label=_text(curve.label))
    if len(panel.curves) > 1:
        axes.legend(fontsize=7.5)
    if _is_survival(panel):
        draw_at_risk(axes, panel.curves)
    axes.set_ylabel(_text(panel.axis))
    axes.set_xlabel(_text(panel.across))
    axes.xaxis.set_major_formatter("{x:,.10g}")
    axes.margins(x=0.02)


def _draw_dots(axes: Axes, panel: Panel, columns: int) -> None:
    """Answers one below the other, each with its numbers beside it."""
    drawn = [(place, row) for place, row in enumerate(panel.rows) if row.is_drawn]
    places, rows = np.array([place for place, _ in drawn]), [row for _, row in drawn]
    values = [row.value for row in rows]
    axes.grid(visible=False, axis="y")
    if rows:
        if any(row.always for row in rows):
            wide = _bars(rows, always=True)
            axes.errorbar(values, places, xerr=wide, fmt="none", ecolor=LIGHT_GREY, elinewidth=4)
        axes.errorbar(values, places, xerr=_bars(rows), fmt="none", ecolor="black", elinewidth=1, capsize=3)
        axes.scatter(values, places, c=[RED if row.note else BLUE for row in rows], s=22, zorder=3)
    count = len(panel.rows)
    shown = list(range(count))[:: max(1, math.ceil(count / _NAMES_MAX))]
    for place in shown:
        _number_beside(axes, panel.rows[place].text, place, is_above=columns > 1)
    names = [_text(panel.rows[place].label, _NAME_SHOWN // columns) for place in shown]
    axes.set_yticks(shown, names)
    axes.tick_params(axis="y", length=0)
    axes.spines["left"].set_visible(False)
    if panel.from_zero:
        axes.axvline(0, color=GREY, linewidth=0.8)
    axes.set_xlabel(textwrap.fill(literal_text(panel.axis), _COLUMN_CHARACTERS[columns]))
    axes.xaxis.set_major_formatter("{x:,.10g}")
    axes.locator_params(axis="x", nbins=8 if columns == 1 else 4)
    axes.set_ylim(max(count, 2) - 0.5, -0.9 if columns > 1 else -0.6)
    axes.margins(x=0.1)


def _number_beside(axes: Axes, text: str, place: int, *, is_above: bool) -> None:
    """An answer in words: above its interval in a narrow panel, to the right of the axes in a wide one."""
    style: dict[str, Any] = {"bbox": {"facecolor": "white", "edgecolor": "none", "pad": 0.6}} if is_above else {}
    axes.annotate(
        text,
        (0.0 if is_above else 1.0, place),
        (2, 5) if is_above else (8, 0),
        xycoords=("axes fraction", "data"),
        textcoords="offset points",
        va="bottom" if is_above else "center",
        fontsize=7.5,
        **style,
    )


def _note(axes: Axes, panel: Panel, columns: int) -> None:
    """Small print under the axes."""
    if panel.notes:
        lines = [
            textwrap.shorten(literal_text(note), _COLUMN_CHARACTERS[columns], placeholder=" ...")
            for note in panel.notes
        ]
        axes.set_xlabel("\n".join([axes.get_xlabel(), *lines]), fontsize=8)
