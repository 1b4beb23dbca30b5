"""Below survival curves: how many are at risk, in the columns of the axis above."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import cycle
from typing import TYPE_CHECKING, Final

from tpmdp.report.style import CURVES, literal_text

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from tpmdp.report.panels import Curve

_ROWS_MAX: Final = 12
_LABEL_SHOWN: Final = 22
_TOP: Final = 22  # points below the axis, where the table begins
_ROW: Final = 11
_ASIDE: Final = -26


def inches_at_risk(curves: Sequence[Curve]) -> float:
    """The height of the table.

    >>> inches_at_risk([]) < 0.5
    True
    """
    return (_ROW * (min(len(curves), _ROWS_MAX) + 1) + 6) / 72


def draw_at_risk(axes: Axes, curves: Sequence[Curve]) -> None:
    """The axis with its table; the share begins at 0, and the axis has marks where numbers are."""
    shown = curves[:_ROWS_MAX]
    times = sorted({time for curve in shown for time, _ in curve.at_risk})
    start, end = curves[0].places[0], curves[0].places[-1]
    axes.set_xticks([*times, end])
    axes.set_xlim(start, end)
    axes.set_ylim(0.0, 1.02)
    axes.xaxis.labelpad = _ROW * (len(shown) + 1) + 8
    _write(axes, "at risk, noisy", start, row=0, offset=_ASIDE, anchor="right")
    for row, (curve, colour) in enumerate(zip(shown, cycle(CURVES), strict=False), start=1):
        name = curve.label if len(curve.label) <= _LABEL_SHOWN else curve.label[: _LABEL_SHOWN - 3] + "..."
        _write(axes, literal_text(name), start, row=row, offset=_ASIDE, anchor="right", colour=colour)
        for time, number in curve.at_risk:
            _write(axes, number, time, row=row, colour=colour)


def _write(
    axes: Axes, text: str, time: float, *, row: int, offset: float = 0.0, anchor: str = "center", colour: str = "black"
) -> None:
    axes.annotate(
        text,
        (time, 0.0),
        (offset, -_TOP - _ROW * row),
        xycoords=("data", "axes fraction"),
        textcoords="offset points",
        ha=anchor,
        va="top",
        fontsize=7.5,
        color=colour,
        annotation_clip=False,
    )
