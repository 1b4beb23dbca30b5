"""The look of the experiments' figures: colour, marker and line of each mechanism, axes and legends."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Literal

from tpmdp.experiments.jobs import Row
from tpmdp.report.style import BLACK, BLUE, BROWN, GREEN, GREY, ORANGE, PURPLE, RED, SKY, VIOLET, WINE

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.axis import Axis
    from matplotlib.figure import Figure
    from matplotlib.lines import Line2D

WIDTH: Final = 7.0
"""Of a printed page, in inches."""
_LABELS_MAX: Final = 10  # on a logarithmic axis
_TICK_STEPS: Final = ((1, 1.5, 2, 3, 4, 5, 6, 7, 8, 9), (1, 1.5, 2, 3, 5, 7), (1, 2, 5), (1, 3), (1,))
_ROUNDING: Final = 1e-9


@dataclass(frozen=True)
class Look:
    """The look of a line. Colour, marker and dashes all differ, so lines can be told apart in grey too."""

    colour: str
    marker: str
    dashes: Any = "-"
    width: float = 1.2
    size: float = 4.5
    filled: bool = False

    def drawn(self) -> dict[str, Any]:
        """The look as arguments of Matplotlib.

        >>> Look(BLUE, "o").drawn()["markerfacecolor"]
        'white'
        """
        return {
            "color": self.colour,
            "marker": self.marker,
            "linestyle": self.dashes,
            "linewidth": self.width,
            "markersize": self.size,
            "markerfacecolor": self.colour if self.filled else "white",
            "markeredgewidth": 1.0,
        }


# In the order of drawing, last on top: where lines meet, smaller markers lie within larger ones.
LOOKS: Final[dict[str, Look]] = {
    "mean": Look(BLACK, "", (0, (6, 4)), width=0.8),
    "non-pri": Look(BLACK, "", (0, (1, 1)), width=1.4),
    "PLDP": Look(GREEN, "D", (0, (4, 1, 1, 1, 1, 1)), size=4),
    "Sample": Look(PURPLE, "v", (0, (8, 2))),
    "Sample, scaled back": Look(VIOLET, "<", (0, (8, 2, 2, 2)), size=4),
    "non-thre": Look(RED, "P", "-.", size=5),
    "TMDP": Look(ORANGE, "s", "--", width=1.5, size=6.5),
    "MIN": Look(GREY, "^", ":", width=1.6, size=4),
    "G": Look(BLUE, "o", "-", width=2.2, size=4, filled=True),
    "T": Look(BROWN, "p", (0, (2, 1.5)), size=5),
    "two levels": Look(SKY, ">", (0, (5, 1, 1, 1)), size=4.5),
    "W": Look(WINE, "*", (0, (3, 0.7)), width=2.2, size=6.5, filled=True),
}
LEGEND_ORDER: Final = (
    *("G", "W", "two levels", "T", "TMDP", "non-thre", "MIN", "Sample", "Sample, scaled back", "PLDP"),
    *("non-pri", "mean"),
)


def number(row: Row, name: str) -> float:
    """A number of a row; 0 if it is missing.

    >>> number({"x": None}, "x")
    0.0
    """
    return float(row.get(name) or 0.0)


def plain(value: float) -> str:
    """A number with commas between thousands.

    >>> plain(0.002), plain(10_000)
    ('0.002', '10,000')
    """
    return f"{value:,.10g}"


def short(value: float) -> str:
    """A number of parties in few characters.

    >>> short(500), short(45_000), short(1e6)
    ('500', '45k', '1M')
    """
    for unit, name in ((1e6, "M"), (1e3, "k")):
        if value >= unit:
            return f"{value / unit:g}{name}"
    return f"{value:g}"


def panels(figure: Figure, count: int, columns: int, share_y: bool = False) -> list[Axes]:
    """This many empty panels, row by row."""
    columns = max(1, min(columns, count))
    rows = math.ceil(count / columns)
    result: list[Axes] = []
    for place in range(count):
        other = result[0] if share_y and result else None
        axes = figure.add_subplot(rows, columns, place + 1, sharey=other)
        if other is not None and place % columns:
            axes.tick_params(labelleft=False)
        result.append(axes)
    return result


def title(axes: Axes, place: int, text: str) -> None:
    """Name a panel: (a) and so on."""
    axes.set_title(f"({'abcdef'[place]}) {text}")


def legend(figure: Figure, names: Collection[str], columns: int, labels: dict[str, str] | None = None) -> None:
    """A legend of these mechanisms above the panels."""
    from matplotlib.lines import Line2D

    shown = [name for name in LEGEND_ORDER if name in names]
    handles = [Line2D([], [], label=(labels or {}).get(name, name), **LOOKS[name].drawn()) for name in shown]
    place_legend(figure, handles, columns)


def place_legend(figure: Figure, handles: Sequence[Line2D], columns: int) -> None:
    """Put a legend above the panels, where it hides nothing."""
    if handles and figure.axes:
        figure.legend(handles=handles, loc="outside upper center", ncols=columns)


def log_axis(
    axes: Axes,
    side: Literal["x", "y"],
    low: float,
    high: float,
    text: Callable[[float], str] = plain,
    most: int = _LABELS_MAX,
) -> None:
    """A logarithmic axis with plain numbers."""
    from matplotlib.ticker import LogLocator, NullFormatter

    if high < 2 * low:  # a single point, or nearly so
        low, high = low / 1.5, high * 1.5
    axis: Axis = axes.xaxis if side == "x" else axes.yaxis
    if side == "x":  # limits first: else matplotlib warns where no value is positive
        axes.set_xlim(low, high)
        axes.set_xscale("log")
    else:
        axes.set_ylim(low, high)
        axes.set_yscale("log")
    ticks = log_ticks(low, high, most)
    axis.set_ticks(ticks, [text(tick) for tick in ticks])
    axis.set_minor_locator(LogLocator(subs=range(2, 10), numticks=99))
    axis.set_minor_formatter(NullFormatter())


def log_ticks(low: float, high: float, most: int) -> list[float]:
    """The labelled numbers of a logarithmic axis: as many of each power of ten as there is room for.

    >>> log_ticks(90, 1100, 6)
    [100.0, 200.0, 500.0, 1000.0]
    >>> log_ticks(1e-5, 1, 10)
    [1e-05, 0.0001, 0.001, 0.01, 0.1, 1.0]
    """
    first, last = math.floor(math.log10(low)), math.ceil(math.log10(high))
    ticks: list[float] = []
    for steps in _TICK_STEPS:
        every = [float(f"{step}e{power}") for power in range(first, last + 1) for step in steps]
        ticks = [tick for tick in every if low * (1 - _ROUNDING) <= tick <= high * (1 + _ROUNDING)]
        if len(ticks) <= most:
            return ticks
    return ticks[:: math.ceil(len(ticks) / most)]


@dataclass(frozen=True)
class Stretched:
    """Where a threshold t lies on an axis from 0 to 1 whose right half stretches the last tenth before n.

    There, equal steps are equal ratios of n - t, the parties that are surely honest.
    """

    parties: int

    @property
    def turn(self) -> float:
        """From where the axis is stretched."""
        return 0.9 * self.parties

    def place(self, threshold: float) -> float:
        """The place of a threshold.

        >>> axis = Stretched(1000)
        >>> [round(axis.place(t), 3) for t in (0, 450, 900, 990, 999)]
        [0.0, 0.25, 0.5, 0.75, 1.0]
        """
        if threshold <= self.turn:
            return 0.5 * threshold / self.turn
        tenth = max(self.parties - self.turn, 2.0)
        return 1 - 0.5 * math.log(max(self.parties - threshold, 1.0)) / math.log(tenth)

    def apply(self, axes: Axes, labels: int) -> None:
        """Ticks, with at most so many labels right of the turn, and a shade there."""
        parts = (0.0, 0.3, 0.6, 0.9) if labels > 2 else (0.0, 0.5, 0.9)
        left = [self.parties * part for part in parts]
        tenth = max(self.parties - self.turn, 2.0)
        honest = log_ticks(1.0, tenth ** (1 - 0.8 / labels), labels)  # not beside the label of the turn
        places = [self.place(tick) for tick in (*left, *(self.parties - count for count in honest))]
        axes.set_xticks(places, [*(self._text(tick) for tick in left), *(self._text_before_end(k) for k in honest)])
        axes.set_xlim(-0.03, 1.03)
        axes.axvspan(0.5, 1.03, color="#F3F3F3", zorder=0, linewidth=0)

    @property
    def _long(self) -> bool:
        return self.parties >= 10_000

    def _text(self, threshold: float) -> str:
        return short(threshold) if self._long else f"{threshold:g}"

    def _text_before_end(self, honest: float) -> str:
        return f"n\N{MINUS SIGN}{honest:g}" if self._long else f"{self.parties - honest:g}"
