"""The picture of a plan: noise per party, and expected error against the threshold beside the baselines."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from tpmdp._util.arrays import FloatArray
from tpmdp.errors import MissingDependencyError
from tpmdp.planning.balance import balance
from tpmdp.planning.baselines import totals_by_threshold
from tpmdp.report.numbers import short_name
from tpmdp.report.plan import PlanReport

if TYPE_CHECKING:
    from matplotlib.axes import Axes

FORMATS: Final = {".png": "png", ".svg": "svg"}
_CURVE_POINTS_MAX: Final = 400
_BARS_MAX: Final = 40
_BALANCED_WORK: Final = 1 << 22  # parties times thresholds for which weights are computed
_LOG_FROM: Final = 30.0  # ratio of largest to smallest shown value from which an axis is logarithmic
# Okabe and Ito's palette: distinct to colour-blind readers and in grey print.
_BLUE, _ORANGE, _GREEN, _RED, _GREY = "#0072B2", "#E69F00", "#009E73", "#D55E00", "#666666"
# The salt makes SVG files repeatable.
_STYLE: Final[dict[str, Any]] = {
    "font.size": 9,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "svg.hashsalt": "tpmdp",
}


def draw_plan(report: PlanReport, path: Path, file_format: str) -> None:
    """Draw the picture into a file of the given format, png or svg."""
    try:
        import matplotlib
    except ImportError:
        raise MissingDependencyError("matplotlib", "plot", "to draw pictures") from None
    matplotlib.use("Agg")
    from matplotlib import pyplot

    style: Any = _STYLE
    with matplotlib.rc_context(style), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # about glyphs a font lacks: the reader sees a box
        figure, (left, right) = pyplot.subplots(1, 2, figsize=(10, 4.6), layout="constrained")
        _draw_noise(report, left)
        _draw_thresholds(report, right)
        reason = report.plan.no_noise_reason
        if reason:
            figure.suptitle(f"NO NOISE IS ADDED: {reason}", color=_RED, fontsize=10)
        figure.savefig(path, format=file_format, dpi=150, metadata={"Date": None} if file_format == "svg" else None)
        pyplot.close(figure)


def _text(name: str) -> str:
    """A name drawn as it is: a dollar sign starts no formula."""
    return name.replace("$", r"\$")


def _legend(axes: Axes, columns: int) -> None:
    """Above the axes, where it hides nothing."""
    axes.legend(
        frameon=False,
        loc="lower left",
        bbox_to_anchor=(0, 1),
        ncols=columns,
        borderaxespad=0,
        fontsize=8,
        columnspacing=1,
        handlelength=1.8,
    )


def _scale(axes: Axes, values: FloatArray) -> None:
    """A logarithmic axis where the values span much, else one from 0."""
    shown = values[np.isfinite(values) & (values > 0)]
    if len(shown) and shown.max() > _LOG_FROM * shown.min():
        axes.set_yscale("log")
        axes.set_ylim(shown.min() / 2, shown.max() * 2)
    else:
        axes.set_ylim(0, shown.max() * 1.05 if len(shown) else 1)


def _draw_noise(report: PlanReport, axes: Axes) -> None:
    """Need, own noise and honest noise of each party; sorted curves when there are too many for bars."""
    plan, spec = report.plan, report.plan.spec
    honest = np.where(np.isfinite(report.protection.honest_variance), report.protection.honest_variance, np.nan)
    if spec.count <= _BARS_MAX:
        places = np.arange(spec.count)
        axes.bar(places, plan.variance, width=0.6, color=_BLUE, label="own noise")
        axes.hlines(plan.need, places - 0.4, places + 0.4, color=_RED, linewidth=2, label="need")
        axes.plot(places, honest, "v", color=_GREEN, markersize=5, label="honest noise, worst coalition")
        mark = "" if spec.receivers.all() else " (receives)"
        labels = [_text(short_name(spec, party)) + mark * bool(spec.receivers[party]) for party in range(spec.count)]
        upright = spec.count > 12
        size = 9 if spec.count <= 20 else 6
        axes.set_xticks(
            places, labels, rotation=90 if upright else 30, ha="center" if upright else "right", fontsize=size
        )
    else:
        order = np.argsort(-plan.need, kind="stable")
        ranks = np.unique(np.geomspace(1, spec.count, 1000).astype(int))  # every one of the first, then ever fewer
        for values, colour, label in (
            (plan.variance, _BLUE, "own noise"),
            (plan.need, _RED, "need"),
            (honest, _GREEN, "honest noise, worst coalition"),
        ):
            axes.step(ranks, values[order[ranks - 1]], where="mid", color=colour, label=label)
        axes.set_xscale("log")
        axes.set_xlabel("parties, strictest first")
    _scale(axes, np.concatenate((plan.variance, plan.need, honest)))
    axes.set_ylabel("variance")
    axes.set_title("Noise per party", loc="left", pad=34)
    _legend(axes, columns=3)


def _balanced(report: PlanReport, thresholds: list[int]) -> tuple[list[int], FloatArray]:
    """Some of the thresholds and the expected error with the best weights for each."""
    plan, spec = report.plan, report.plan.spec
    most = max(_BALANCED_WORK // spec.count, 8)
    places = {0, min(1, len(thresholds) - 1), *np.linspace(0, len(thresholds) - 1, most).astype(int).tolist()}
    some = [thresholds[place] for place in sorted(places)]
    spread = plan.weights.spread
    if not spread:
        return some, np.zeros(len(some))
    found = [balance(report.plain_need, t, spec.receivers, spread, plan.weights.records).bound for t in some]
    return some, np.sqrt(np.array(found))


def _draw_thresholds(report: PlanReport, axes: Axes) -> None:
    """Expected error against every threshold, with the baselines."""
    plan, spec = report.plan, report.plan.spec
    count = spec.count
    thresholds = np.unique(np.linspace(0, count - 1, min(count, _CURVE_POINTS_MAX)).astype(int)).tolist()
    marker = "o" if count <= 15 else None
    need = report.plain_need
    ours = np.sqrt(totals_by_threshold(need, thresholds, spec.receivers))
    theirs = np.sqrt(totals_by_threshold(np.full(count, need.max()), thresholds, spec.receivers))
    some, balanced = _balanced(report, thresholds)
    axes.plot(
        thresholds, theirs, color=_ORANGE, marker=marker, markersize=6, linewidth=2.5, linestyle="--", label="TMDP"
    )
    axes.plot(thresholds, ours, color=_BLUE, marker=marker, markersize=4, label="optimal plan")
    axes.plot(some, balanced, color=_GREEN, marker=marker, markersize=4, label="balanced weights")
    for baseline, colour, line in zip(report.baselines[1:], (_RED, _GREY), ("-.", ":"), strict=True):
        axes.axhline(baseline.standard_deviation, color=colour, linestyle=line, label=baseline.name)
    levels = np.array([baseline.standard_deviation for baseline in report.baselines])
    _scale(axes, np.concatenate((ours, theirs, levels, balanced)))
    if isinstance(spec.threshold, int):
        colour = _BLUE if plan.weights.are_equal else _GREEN
        here: Any = {"marker": "s", "color": colour, "markersize": 9, "linestyle": "none", "clip_on": False}
        if axes.get_yscale() != "log" or plan.expected_error:
            axes.plot([spec.threshold], [plan.expected_error], label="this plan", **here)
    else:
        axes.axhline(plan.expected_error, color=_GREY, linewidth=1, label="this plan")
    axes.set_xlabel("threshold: how many may collude")
    axes.set_ylabel("expected error of the answer (RMSE)")
    axes.set_title("Error against threshold", loc="left", pad=34)
    _legend(axes, columns=3)
    if count <= 12:
        axes.set_xticks(thresholds)
