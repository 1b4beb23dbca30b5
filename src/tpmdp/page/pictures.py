"""Pictures that only the page has: bars beside each other, and the parties around a circle."""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from typing import Final

from tpmdp.report.markup import Html, joined, tag
from tpmdp.report.style import BLUE, GREY, LIGHT_GREY, RED

_WIDTH: Final = 440
_ROW: Final = 38
_NODES_MAX: Final = 120
_NAMED_MAX: Final = 24
_RING: Final = (460, 330)  # width and height


def bars(title: str, rows: Sequence[tuple[str, float, str]]) -> Html:
    """A bar for each row (label, value, text), the first one in the colour of the plan."""
    most = max([value for _, value, _ in rows if math.isfinite(value)], default=0.0) or 1.0
    parts: list[Html] = [tag("title", title)]
    for place, (label, value, text) in enumerate(rows):
        y = place * _ROW
        length = max(1.0, (_WIDTH - 8) * min(value / most, 1.0)) if math.isfinite(value) else _WIDTH - 8
        fill = {"fill": BLUE if not place else LIGHT_GREY}
        parts.append(tag("text", label, x=4, y=y + 13))
        parts.append(tag("text", text, x=_WIDTH - 4, y=y + 13, text_anchor="end", class_="strong"))
        parts.append(tag("rect", x=4, y=y + 18, width=f"{length:.1f}", height=12, rx=2, **fill))
    return Html(f'<svg viewBox="0 0 {_WIDTH} {len(rows) * _ROW}" role="img">{joined(parts)}</svg>')


def ring(
    names: Sequence[str],
    shares: Sequence[float],
    receivers: Collection[int],
    *,
    party: int,
    coalition: Collection[int],
) -> Html:
    """The parties around a circle, sized by their noise: one of them, and who would have to collude against it.

    Of many parties, the coalition and those with most noise are drawn.
    """
    shown = _shown(shares, {party}, set(coalition))
    middle, height = _RING[0] / 2, _RING[1] / 2
    radius = height - (46 if len(shown) <= _NAMED_MAX else 14)
    most = max((shares[each] for each in shown), default=0.0) or 1.0
    places = {
        each: (
            middle + radius * math.sin(2 * math.pi * place / len(shown)),
            height - radius * math.cos(2 * math.pi * place / len(shown)),
        )
        for place, each in enumerate(shown)
    }
    lines, dots = [], []
    for each, (x, y) in places.items():
        kind = "party" if each == party else "member" if each in coalition else "other"
        if kind == "member":
            ends = {
                "x1": f"{x:.1f}",
                "y1": f"{y:.1f}",
                "x2": f"{places[party][0]:.1f}",
                "y2": f"{places[party][1]:.1f}",
            }
            lines.append(tag("line", **ends, stroke=RED, stroke_width=1.2))
        colour = {"party": BLUE, "member": RED, "other": LIGHT_GREY}[kind]
        size = (3 if len(shown) > _NAMED_MAX else 6) + (4 if len(shown) > _NAMED_MAX else 9) * math.sqrt(
            shares[each] / most
        )
        outline = {"stroke": GREY, "stroke_width": 2, "stroke_dasharray": "3 2"} if each in receivers else {}
        dots.append(tag("circle", cx=f"{x:.1f}", cy=f"{y:.1f}", r=f"{size:.1f}", fill=colour, **outline))
        if len(shown) <= _NAMED_MAX:
            dots.append(_name(names[each], x, y, middle=(middle, height), is_bold=kind != "other"))
    title = tag("title", f"The worst coalition against {names[party]}")
    box = f"0 0 {_RING[0]} {_RING[1]}"
    return Html(f'<svg viewBox="{box}" role="img" class="ring">{joined([title, *lines, *dots])}</svg>')


def _shown(shares: Sequence[float], first: Collection[int], coalition: Collection[int]) -> list[int]:
    if len(shares) <= _NODES_MAX:
        return list(range(len(shares)))
    order = sorted(range(len(shares)), key=lambda each: (each not in first, each not in coalition, -shares[each]))
    return sorted(order[:_NODES_MAX])


def _name(text: str, x: float, y: float, *, middle: tuple[float, float], is_bold: bool) -> Html:
    side = x - middle[0]
    anchor = "middle" if abs(side) < 8 else "start" if side > 0 else "end"
    x += 0 if anchor == "middle" else 18 if side > 0 else -18
    y += 4 if anchor != "middle" else 28 if y > middle[1] else -20
    short = text if len(text) <= 18 else text[:17] + "…"
    return tag("text", short, x=f"{x:.1f}", y=f"{y:.1f}", text_anchor=anchor, class_="strong" if is_bold else "")
