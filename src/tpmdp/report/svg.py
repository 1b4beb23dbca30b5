"""Small pictures as SVG text for a page that needs nothing else: intervals, bars and lines.

The same values always give the same text, so that a page can be compared with its data.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import cycle
from typing import Final

from tpmdp.report.markup import Html, joined, tag
from tpmdp.report.numbers import number
from tpmdp.report.panels import Panel
from tpmdp.report.style import BLACK, BLUE, CURVES, GREY, LIGHT_GREY, RED

_WIDTH: Final = 440.0
_ROW: Final = 34.0
_ROWS_MAX: Final = 60
_LABEL_SHOWN: Final = 56
_GRID: Final = "#E6E6E6"
_BARS_NAMED: Final = 9
_TO_BELOW: Final = " to below "
_LINE: Final = 14.0  # height of a line of text
_CHARACTER: Final = 6.0  # width of a character, about
_WIDE_CHARACTER: Final = 7.6  # the same on a narrow screen, where letters are larger
Place = Callable[[float], float]
Pair = tuple[float, float]


@dataclass(frozen=True)
class Line:
    """One line of a chart; `points` are (x, y)."""

    label: str
    colour: str
    points: Sequence[tuple[float, float]]
    dash: str = ""
    has_dots: bool = True
    band: Sequence[tuple[float, float]] = field(default=())  # lowest and highest y at each point


@dataclass(frozen=True)
class Chart:
    """Lines over two axes, and one point that is marked."""

    across: str
    up: str
    lines: Sequence[Line]
    mark: tuple[float, float] | None = None
    is_log: bool = False  # both axes
    ticks: Sequence[tuple[float, str]] = field(default=())  # of the lower axis
    mark_label: str = "this study"


def nice_ticks(low: float, high: float, most: int = 6) -> list[float]:
    """Round numbers between two values.

    >>> nice_ticks(0.0, 10.0), nice_ticks(5.0, 5.0)
    ([0.0, 2.0, 4.0, 6.0, 8.0, 10.0], [5.0])
    """
    if not high > low or not math.isfinite(high - low):
        return [low]
    raw = (high - low) / (most - 1)
    power = 10.0 ** math.floor(math.log10(raw))
    step = next(factor * power for factor in (1.0, 2.0, 2.5, 5.0, 10.0) if factor * power >= raw * (1 - 1e-9))
    first = math.ceil(low / step - 1e-9)
    count = math.floor(high / step + 1e-9) - first + 1
    return [(first + place) * step + 0.0 for place in range(min(count, 50))]


def intervals(panel: Panel) -> Html:
    """Answers one below the other, each with its label above it."""
    rows = panel.rows[:_ROWS_MAX]
    ends = [end for row in rows for end in (row.value, row.low, row.high, *(row.always or ())) if math.isfinite(end)]
    ends += [0.0] if panel.from_zero else []
    if not ends:
        return Html("")
    low, high = min(ends), max(ends)
    room = 0.06 * (high - low) or max(abs(high), 1.0) * 0.05
    across = _place((low - room, high + room), (8, _WIDTH - 8))
    bottom = _ROW * len(rows) + 10
    parts: list[Html] = _lower_axis(nice_ticks(low - room, high + room), across, top=4, bottom=bottom)
    if panel.from_zero:
        parts.append(_line((across(0.0), 4), (across(0.0), bottom), colour=GREY))
    for place, row in enumerate(rows):
        y = _ROW * place + 26
        words = f"{_isolated(_short(row.label, 34))}: {row.text}" if row.label else row.text
        parts.append(_words(_short(words), 8, y - 9, halo=True))
        if not row.is_drawn:
            continue
        if row.always is not None and math.isfinite(row.always[1] - row.always[0]):
            ends_at = across(row.always[0]), across(row.always[1])
            parts.append(_line((ends_at[0], y), (ends_at[1], y), colour=LIGHT_GREY, width=5))
        if math.isfinite(row.high - row.low):
            left, right = across(row.low), across(row.high)
            parts.append(_line((left, y), (right, y), colour=BLACK))
            parts += [_line((end, y - 4), (end, y + 4), colour=BLACK) for end in (left, right)]
        parts.append(_dot(across(row.value), y, RED if row.note else BLUE))
    parts.append(_words(_short(panel.axis, 57), _WIDTH / 2, bottom + 34, anchor="middle"))
    return _svg(bottom + 42, f"{panel.title}: 95 % intervals", parts)


def bars(panel: Panel) -> Html:
    """A histogram with error bars."""
    rows = panel.rows
    ends = [end for row in rows for end in (row.value, row.low, row.high) if math.isfinite(end)]
    if not ends:
        return Html("")
    low, high = min(0.0, *ends), max(0.0, *ends)
    top, bottom, left = 10.0, 200.0, 58.0
    up = _place((low, high + 0.04 * (high - low or 1.0)), (bottom, top))
    parts = _left_axis(nice_ticks(low, high), up, left=left)
    width = (_WIDTH - 8 - left) / len(rows)
    for place, row in enumerate(rows):
        x, level = left + width * (place + 0.08), sorted((up(0.0), up(row.value)))
        box = {"x": _c(x), "y": _c(level[0]), "width": _c(width * 0.84), "height": _c(level[1] - level[0])}
        parts.append(tag("rect", **box, fill=BLUE, fill_opacity="0.75"))
        if math.isfinite(row.high - row.low):
            middle = left + width * (place + 0.5)
            parts.append(_line((middle, up(row.low)), (middle, up(row.high)), colour=BLACK))
    parts.append(_line((left, up(0.0)), (_WIDTH - 8, up(0.0)), colour=GREY))
    parts += _bar_names([row.label for row in rows], left, width, y=bottom + 16)
    end = bottom + 36 + _LINE * any(_TO_BELOW in row.label for row in rows)
    parts.append(_words(_short(panel.across, 50), (left + _WIDTH) / 2, end, anchor="middle"))
    parts.append(_upright_words(panel.axis, 12, (top + bottom) / 2))
    return _svg(end + 8, f"{panel.title}: histogram with 95 % intervals", parts)


def lines(chart: Chart, title: str) -> Html:
    """Lines over two axes."""
    points = [point for line in chart.lines for point in line.points]
    if not points:
        return Html("")
    top, bottom, left = 12.0, 200.0, 58.0
    xs, ys = [x for x, _ in points], [y for _, y in points] + [high for line in chart.lines for _, high in line.band]
    if chart.is_log:
        across = _log_place((min(xs), max(xs)), (left + 8, _WIDTH - 14))
        up = _log_place((min(ys) / 1.15, max(ys) * 1.15), (bottom, top))
        levels = _log_ticks(min(ys) / 1.15, max(ys) * 1.15)
    else:
        across = _place((min(xs), max(xs) if max(xs) > min(xs) else min(xs) + 1), (left + 8, _WIDTH - 14))
        up = _place((0.0, max(ys) * 1.06 or 1.0), (bottom, top))
        levels = nice_ticks(0.0, max(ys) * 1.06 or 1.0)
    parts = _left_axis(levels, up, left=left)
    parts.append(_line((left, bottom), (_WIDTH - 8, bottom), colour=BLACK))
    for x, text in chart.ticks:
        parts.append(_line((across(x), bottom), (across(x), bottom + 4), colour=BLACK))
        parts.append(_words(text, across(x), bottom + 16, anchor="middle"))
    for line in chart.lines:
        around = [(x, high) for (x, _), (_, high) in zip(line.points, line.band, strict=bool(line.band))]
        around += [(x, low) for (x, _), (low, _) in zip(line.points, line.band, strict=bool(line.band))][::-1]
        if around:
            outline = " ".join(f"{_c(across(x))},{_c(up(y))}" for x, y in around)
            parts.append(tag("polygon", points=outline, fill=line.colour, fill_opacity="0.2"))
        path = " ".join(f"{_c(across(x))},{_c(up(y))}" for x, y in line.points)
        style = {"stroke_dasharray": line.dash} if line.dash else {}
        parts.append(tag("polyline", points=path, fill="none", stroke=line.colour, stroke_width="1.6", **style))
        if line.has_dots:
            parts += [_dot(across(x), up(y), line.colour, radius=2.6) for x, y in line.points]
    if chart.mark is not None:
        x, y = across(chart.mark[0]), up(chart.mark[1])
        box = {"x": _c(x - 5), "y": _c(y - 5), "width": "10", "height": "10"}
        parts.append(tag("rect", **box, fill="none", stroke=BLACK, stroke_width="1.6"))
    parts.append(_words(chart.across, (left + _WIDTH) / 2, bottom + 34, anchor="middle"))
    parts.append(_upright_words(chart.up, 12, (top + bottom) / 2))
    legend, last = _legend(chart, left + 8, bottom + 52)
    return _svg(last + 8, title, [*parts, *legend])


def curves(panel: Panel) -> Html:
    """Steps with their bands; an answer that the noise drowned leaves its band only."""
    drawn = []
    for curve, colour in zip(panel.curves, cycle(CURVES), strict=False):
        corners = curve.corners()
        points = [(place, row.value if row.is_drawn else row.low) for place, row in corners]
        band = [(row.low, row.high) for _, row in corners]
        drawn.append(Line(curve.label or "answer and 95 % interval", colour, points, has_dots=False, band=band))
    places = panel.curves[0].places
    ticks = [(value, _tick(value)) for value in nice_ticks(places[0], places[-1])]
    chart = Chart(panel.across, panel.axis, drawn, ticks=ticks)
    return lines(chart, f"{panel.title}: curve with 95 % intervals")


def _legend(chart: Chart, left: float, y: float) -> tuple[list[Html], float]:
    """What the lines are, in as many rows as it takes, and where the last one stands."""
    parts: list[Html] = []
    labels = [(line.label, line) for line in chart.lines]
    x = left
    for label, line in [*labels, *([(chart.mark_label, None)] if chart.mark is not None else [])]:
        width = (27 if line is not None else 15) + _WIDE_CHARACTER * len(label)
        if x > left and x + width > _WIDTH - 4:
            x, y = left, y + 17
        if line is not None:
            style = {"stroke_dasharray": line.dash} if line.dash else {}
            ends = {"x1": _c(x), "x2": _c(x + 22), "y1": _c(y - 4), "y2": _c(y - 4)}
            parts.append(tag("line", **ends, stroke=line.colour, stroke_width="1.6", **style))
            parts.append(_words(label, x + 27, y))
        else:
            box = {"x": _c(x), "y": _c(y - 9), "width": "10", "height": "10"}
            parts.append(tag("rect", **box, fill="none", stroke=BLACK, stroke_width="1.6"))
            parts.append(_words(label, x + 15, y))
        x += width + 13
    return parts, y


def _lower_axis(values: Sequence[float], across: Place, *, top: float, bottom: float) -> list[Html]:
    parts = [_line((across(value), top), (across(value), bottom), colour=_GRID) for value in values]
    parts.append(_line((8, bottom), (_WIDTH - 8, bottom), colour=BLACK))
    parts += [_words(_tick(value), across(value), bottom + 16, anchor="middle") for value in values]
    return parts


def _left_axis(values: Sequence[float], up: Place, *, left: float) -> list[Html]:
    parts = [_line((left, up(value)), (_WIDTH - 8, up(value)), colour=_GRID) for value in values]
    return parts + [_words(_tick(value), left - 6, up(value) + 4, anchor="end") for value in values]


def _bar_names(labels: Sequence[str], left: float, width: float, y: float) -> list[Html]:
    """Names under bars; those of bins have two lines. Bins are drawn as wide as each other: there is no number axis."""
    step = max(1, math.ceil(len(labels) / _BARS_NAMED))
    most = max(4, int(step * width / _CHARACTER))
    lines = [label.partition(_TO_BELOW) for label in labels]
    return [
        _words(_short(text, most), left + width * (place + 0.5), y + _LINE * line, anchor="middle")
        for place, (low, to, high) in list(enumerate(lines))[::step]
        for line, text in enumerate([f"{low} to", f"below {high}"] if to else [low])
    ]


def _place(ends: Pair, onto: Pair) -> Place:
    """Values between two ends as places between two others."""
    (low, high), (start, end) = ends, onto
    return lambda value: start + (end - start) * (value - low) / (high - low)


def _log_place(ends: Pair, onto: Pair) -> Place:
    low, high = math.log(ends[0]), math.log(ends[1])
    inner = _place((low, high if high > low else low + 1), onto)
    return lambda value: inner(math.log(value))


def _log_ticks(low: float, high: float) -> list[float]:
    powers = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    fine = [factor * 10.0**power for power in powers for factor in (1.0, 2.0, 5.0)]
    inside = [value for value in fine if low <= value <= high]
    coarse = [value for value in inside if abs(math.log10(value) - round(math.log10(value))) < 1e-9]
    return inside if len(inside) <= 8 else coarse


def _tick(value: float) -> str:
    return f"{value:,.10g}" if abs(value) < 1e7 else number(value)


def _short(text: str, most: int = _LABEL_SHOWN) -> str:
    return text if len(text) <= most else text[: max(most - 3, 1)] + "..."


def _isolated(text: str) -> str:
    """Right-to-left letters must not reorder the numbers beside them."""
    return text if text.isascii() else f"\u2068{text}\u2069"


def _c(value: float) -> str:
    """A coordinate."""
    return f"{value:.1f}"


def _line(start: Pair, end: Pair, *, colour: str, width: float = 1.0) -> Html:
    ends = {"x1": _c(start[0]), "y1": _c(start[1]), "x2": _c(end[0]), "y2": _c(end[1])}
    return tag("line", **ends, stroke=colour, stroke_width=f"{width:g}")


def _dot(x: float, y: float, colour: str, radius: float = 4.0) -> Html:
    return tag("circle", cx=_c(x), cy=_c(y), r=f"{radius:g}", fill=colour)


def _words(text: str, x: float, y: float, *, anchor: str = "start", halo: bool = False) -> Html:
    if anchor == "middle":  # stay inside the picture
        half = min(_WIDE_CHARACTER * len(text), _WIDTH) / 2
        x = min(max(x, half), max(_WIDTH - half, half))
    style = {"class_": "halo"} if halo else {}
    return tag("text", text, x=_c(x), y=_c(y), text_anchor=anchor, **style)


def _upright_words(text: str, x: float, y: float) -> Html:
    turned = f"rotate(-90 {_c(x)} {_c(y)})"
    return tag("text", _short(text, 34), x=_c(x), y=_c(y), text_anchor="middle", transform=turned)


def _svg(height: float, title: str, parts: Sequence[Html]) -> Html:
    box = f"0 0 {_WIDTH:g} {height:g}"
    inner = joined([tag("title", title), *parts])
    return Html(f'<svg viewBox="{box}" role="img">{inner}</svg>')
