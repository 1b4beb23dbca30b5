"""The picture of a release: a panel for each query, answers with their 95 % intervals."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from tpmdp.queries.answer import Answer
from tpmdp.queries.base import BaseQuery
from tpmdp.report.numbers import rounded
from tpmdp.report.style import BLUE, GREY, LIGHT_GREY, RED, literal_text, picture

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from tpmdp.study.model import Study

_NAMES_MAX: Final = 40  # rows of a panel that are named
_NAME_SHOWN: Final = 28
_TITLE_SHOWN: Final = 70
_LABELS_MAX: Final = 14  # under bars
_ROW_INCH: Final = 0.24


def draw_answers(study: Study, answers: Sequence[Answer], path: Path) -> None:
    """Draw the answers into a .svg, .pdf or .png file."""
    panels = [_panel(query.name, answers) for query in study.queries]
    kinds = [str(query.settings()["kind"]) for query in study.queries]
    heights = [_height(kind, rows) for kind, rows in zip(kinds, panels, strict=True)]
    with picture(path, 7.5, sum(heights) + 0.6) as figure:
        every = figure.subplots(len(panels), 1, squeeze=False, height_ratios=heights)
        figure.suptitle(_text(study.label, _TITLE_SHOWN), x=0.01, ha="left", fontsize=10)
        for query, rows, axes in zip(study.queries, panels, every[:, 0], strict=True):
            axes.set_title(_text(query.name, _TITLE_SHOWN))
            _draw(axes, query, rows)
        figure.supxlabel(_bars_text(answers), fontsize=7)


def _panel(name: str, answers: Sequence[Answer]) -> list[Answer]:
    return [answer for answer in answers if answer.query == name]


def _is_upright(kind: str, rows: Sequence[Answer]) -> bool:
    return kind == "histogram" and len(rows) > 1


def _height(kind: str, rows: Sequence[Answer]) -> float:
    return 2.6 if _is_upright(kind, rows) else 0.75 + _ROW_INCH * min(max(len(rows), 2), _NAMES_MAX)


def _text(name: str, most: int = _NAME_SHOWN) -> str:
    """A name, shortened."""
    return literal_text(name if len(name) <= most else name[: most - 3] + "...")


def _bars_text(answers: Sequence[Answer]) -> str:
    if any(answer.always is not None for answer in answers):
        black = "95 % intervals if weights have nothing to do with the data (black)"
        return f"Error bars: {black}, and whatever the data (grey; not drawn where there is none)."
    return "Error bars are 95 % intervals of the noise added for privacy, not of sampling."


def _bars(rows: Sequence[Answer], always: bool = False) -> Any:
    """Lengths of the error bars to both sides; 0 if there is no interval."""
    limits = [(row.always or row.interval) if always else row.interval for row in rows]
    lows = [max(0.0, row.value - low) for row, (low, _) in zip(rows, limits, strict=True)]
    highs = [max(0.0, high - row.value) for row, (_, high) in zip(rows, limits, strict=True)]
    return np.array([[each if math.isfinite(each) else 0.0 for each in side] for side in (lows, highs)])


def _draw(axes: Axes, query: BaseQuery, rows: Sequence[Answer]) -> None:
    kind = str(query.settings()["kind"])
    if _is_upright(kind, rows):
        _draw_bars(axes, rows)
    elif kind.endswith("regression"):
        _draw_coefficients(axes, rows, {bounds.column: bounds.width for bounds in query.settings()["bounds"]})
    else:
        _draw_dots(axes, rows)


def _draw_bars(axes: Axes, rows: Sequence[Answer]) -> None:
    """A histogram."""
    places = np.arange(len(rows))
    axes.grid(visible=False, axis="x")
    axes.bar(places, [row.value for row in rows], width=0.85, color=BLUE, alpha=0.75)
    many = len(rows) > _NAMES_MAX
    if any(row.always for row in rows):
        values, wide = [row.value for row in rows], _bars(rows, always=True)
        axes.errorbar(places, values, yerr=wide, fmt="none", ecolor=LIGHT_GREY, elinewidth=1 if many else 4)
    axes.errorbar(
        places,
        [row.value for row in rows],
        yerr=_bars(rows),
        fmt="none",
        ecolor="black",
        elinewidth=0.5 if many else 1,
        capsize=0 if many else 3,
    )
    axes.axhline(0, color=GREY, linewidth=0.8)
    axes.set_ylabel("records")
    axes.yaxis.set_major_formatter("{x:,.10g}")
    step = max(1, math.ceil(len(rows) / _LABELS_MAX))
    long = sum(len(row.part) for row in rows[::step]) > 80
    names = [_text(row.part) for row in rows[::step]]
    if step > 1:  # many bins: the edge where each begins
        names = [_text(row.part.split(" to below ")[0]) for row in rows[::step]]
        long = False
    axes.set_xticks(places[::step], names, rotation=30 if long else 0, ha="right" if long else "center", fontsize=8)


def _draw_dots(axes: Axes, rows: Sequence[Answer]) -> None:
    """Answers one below the other."""
    places = np.arange(len(rows))
    colours = [RED if row.note else BLUE for row in rows]
    values = [row.value for row in rows]
    if any(row.always for row in rows):
        wide = _bars(rows, always=True)
        axes.errorbar(values, places, xerr=wide, fmt="none", ecolor=LIGHT_GREY, elinewidth=4)
    axes.errorbar(values, places, xerr=_bars(rows), fmt="none", ecolor="black", capsize=3)
    axes.scatter([row.value for row in rows], places, c=colours, s=22, zorder=3)
    shown = places if len(rows) <= _NAMES_MAX else places[:: math.ceil(len(rows) / _NAMES_MAX)]
    axes.set_yticks(shown, [_text(rows[place].part) for place in shown], fontsize=8)
    if len(rows) == 1:
        axes.tick_params(left=False)
    axes.xaxis.set_major_formatter("{x:,.10g}")
    axes.set_ylim(len(rows) - 0.4, -0.6)
    axes.margins(x=0.1)
    _note(axes, rows)


def _draw_coefficients(axes: Axes, rows: Sequence[Answer], widths: Mapping[str, float]) -> None:
    """How much the answer changes from one end of an input's bounds to the other, to compare inputs."""
    slopes = [(row, widths[row.part.split(", ")[-1]]) for row in rows if row.part.split(", ")[-1] in widths]
    effects = [
        replace(
            row,
            part=f"{row.part} = {rounded(row.value, row.standard_error)}",
            value=row.value * width,
            limits=(row.interval[0] * width, row.interval[1] * width),
            always=None if row.always is None else (row.always[0] * width, row.always[1] * width),
        )
        for row, width in slopes
    ]
    _draw_dots(axes, effects)
    axes.axvline(0, color=GREY, linewidth=0.8)
    axes.set_xlabel("effect from one end of the input's bounds to the other", fontsize=8)


def _note(axes: Axes, rows: Sequence[Answer]) -> None:
    notes = list(dict.fromkeys(row.note for row in rows if row.note))
    if notes:
        axes.annotate(
            notes[0], (0, 0), (4, 4), xycoords="axes fraction", textcoords="offset points", color=RED, fontsize=7
        )
