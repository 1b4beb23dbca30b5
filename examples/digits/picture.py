"""The picture: accuracy against rounds, one line a method."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from textwrap import fill

import matplotlib
import numpy as np
from digits.task import Floats

matplotlib.use("Agg")
from matplotlib import pyplot
from matplotlib.ticker import MaxNLocator

# Okabe and Ito's palette: distinct to colour-blind readers and in grey print.
COLOURS = ("#0072B2", "#D55E00", "#E69F00", "#009E73", "#666666")


@dataclass(frozen=True, eq=False)
class Line:
    """What is shown of a method."""

    name: str
    flower: list[float]  # after every round
    mean: Floats
    band: Floats  # low and high, after every round
    noise: float
    assumes: str


def draw(lines: list[Line], alone: float, seeds: int, title: str, path: Path) -> None:
    """Write the picture; names stand at the ends of the lines."""
    figure, axes = pyplot.subplots(figsize=(9, 5), layout="constrained")
    rounds = np.arange(1, len(lines[0].flower) + 1)
    for line, colour in zip(lines, COLOURS, strict=False):
        axes.fill_between(rounds, *line.band, color=colour, alpha=0.18, linewidth=0)
        axes.plot(rounds, line.mean, color=colour, linewidth=1, linestyle="--")
        axes.plot(rounds, line.flower, color=colour, linewidth=2.2)
    axes.axhline(alone, color="#999999", linewidth=1, linestyle=":")
    ends = [(float(line.mean[-1]), line.name, colour) for line, colour in zip(lines, COLOURS, strict=False)]
    ends.append((alone, "each client alone, no noise", "#777777"))
    height = -1.0
    for value, name, colour in sorted(ends):
        height = max(value, height + 0.08)
        label = fill(name, 20)
        axes.annotate(label, (1.01, height), xycoords=("axes fraction", "data"), color=colour, va="center")
    axes.set(xlim=(1, max(2, rounds[-1])), ylim=(0, 1), xlabel="round", ylabel="accuracy on test images")
    axes.set_title(title, loc="left")
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    axes.spines[["top", "right"]].set_visible(False)
    note = f"thick: one training in Flower; dashed and shaded: mean and 5-95 % of {seeds} seeds in numpy"
    figure.supxlabel(note, fontsize=8, color="#555555")
    figure.savefig(path, dpi=130)
    pyplot.close(figure)
