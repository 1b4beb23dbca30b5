"""The style of every picture: colours, fonts, axes, and how a file is written."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from tpmdp._util.files import replacing
from tpmdp.errors import InputError, MissingDependencyError

if TYPE_CHECKING:
    from matplotlib.figure import Figure

FORMATS: Final = {".svg": "svg", ".pdf": "pdf", ".png": "png"}
# Okabe and Ito's palette (distinct to colour-blind readers and in grey print), greys and a dark red.
BLUE, ORANGE, RED, GREEN, PURPLE = "#0072B2", "#E69F00", "#D55E00", "#009E73", "#CC79A7"
BLACK, GREY, LIGHT_GREY = "#000000", "#666666", "#BBBBBB"
WINE, BROWN, VIOLET = "#661144", "#8B5A2B", "#6A3D9A"  # darker than the palette
SKY: Final = "#56B4E9"
CURVES: Final = (BLUE, RED, GREEN, PURPLE, ORANGE, GREY)  # of several in one picture; more begin anew
# Without a date, files are repeatable.
_METADATA: Final[dict[str, dict[str, Any]]] = {"svg": {"Date": None}, "pdf": {"CreationDate": None}, "png": {}}
_STYLE: Final[dict[str, Any]] = {
    "font.size": 8.5,
    "axes.titlesize": 9.5,
    "axes.titlelocation": "left",
    "axes.labelsize": 8.5,
    "xtick.labelsize": 8,
    "ytick.labelsize": 8,
    "legend.fontsize": 8.5,
    "legend.frameon": False,
    "legend.handlelength": 2.8,
    "legend.columnspacing": 1.2,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": "#E6E6E6",
    "grid.linewidth": 0.6,
    "xtick.minor.size": 1.5,
    "ytick.minor.size": 1.5,
    "svg.hashsalt": "tpmdp",  # makes SVG files repeatable
    "pdf.fonttype": 42,
}


def file_format(path: Path) -> str:
    """The format for the suffix of a file.

    >>> file_format(Path("count.gif"))
    Traceback (most recent call last):
        ...
    tpmdp.errors.InputError: path = count.gif must end in .svg, .pdf or .png: choose one of these formats
    """
    name = FORMATS.get(path.suffix.lower())
    if name is None:
        raise InputError("path", path.name, "must end in .svg, .pdf or .png", "choose one of these formats")
    return name


@contextmanager
def picture(path: Path, width: float, height: float, *, private: bool = False) -> Iterator[Figure]:
    """A figure of this size in inches to draw on; its file is written when the block succeeds.

    Only its owner can read a `private` one.
    """
    kind = file_format(path)
    try:
        import matplotlib
    except ImportError:
        raise MissingDependencyError("matplotlib", "plot", "to draw pictures") from None
    from matplotlib.figure import Figure

    with matplotlib.rc_context(), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # about glyphs that a font lacks: the reader sees a box
        matplotlib.rcdefaults()  # the user's own settings do not apply
        style: Any = _STYLE
        matplotlib.rcParams.update(style)
        figure = Figure(figsize=(width, height), layout="constrained")  # not of pyplot: nothing stays open
        yield figure
        if not figure.axes:
            figure.text(0.5, 0.5, "no data", ha="center", va="center")
        with replacing(path, private) as file:
            figure.savefig(file, format=kind, dpi=150, metadata=_METADATA[kind])


def literal_text(name: str) -> str:
    r"""A name drawn as it is: without this, a dollar sign would start a formula.

    >>> print(literal_text("a $ b"))
    a \$ b
    """
    return name.replace("$", r"\$")
