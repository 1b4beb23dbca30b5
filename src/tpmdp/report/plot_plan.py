"""The picture of a plan: noise per party, and expected error against the threshold beside the baselines."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from tpmdp._util.arrays import FloatArray
from tpmdp.planning.balance import balance
from tpmdp.planning.baselines import totals_by_threshold
from tpmdp.planning.weights import BASELINES, Kind
from tpmdp.report.numbers import short_name
from tpmdp.report.plan import BASELINE_WORDS, PlanReport
from tpmdp.report.style import BLUE, BROWN, GREEN, GREY, ORANGE, RED, SKY, literal_text, picture
from tpmdp.report.weights import KIND_WORDS

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_CURVE_POINTS_MAX: Final = 400
_BARS_MAX: Final = 40
_TITLE_PAD: Final = 58  # above a legend of four rows
_BALANCED_WORK: Final = 1 << 22  # parties times thresholds for which weights are computed
_WEIGHTED: Final[dict[Kind, dict[str, Any]]] = {
    "balanced": {"color": GREEN},
    "two levels": {"color": SKY, "linestyle": (0, (5, 1, 1, 1)), "linewidth": 1.2},
    "one budget": {"color": BROWN, "linestyle": (0, (2, 1.5)), "linewidth": 1.2},
}
_LOG_FROM: Final = 30.0  # ratio of largest to smallest shown value from which an axis is logarithmic


def draw_plan(report: PlanReport, path: Path) -> None:
    """Draw the picture into a .svg, .pdf or .png file."""
    with picture(path, 10, 4.6) as figure:
        left, right = figure.subplots(1, 2)
        _draw_noise(report, left)
        _draw_thresholds(report, right)
        reason = report.plan.no_noise_reason
        if reason:
            figure.suptitle(f"NO NOISE IS ADDED: {reason}", color=RED, fontsize=10)


def _legend(axes: Axes, columns: int) -> None:
    """A legend above the axes, where it hides nothing."""
    axes.legend(
        loc="lower left",
        bbox_to_anchor=(0, 1),
        ncols=columns,
        borderaxespad=0,
        fontsize=8,
        columnspacing=1,
        handlelength=1.8,
    )


def _scale(axes: Axes, values: FloatArray) -> None:
    """A logarithmic axis if the values span much, else an axis from 0."""
    shown = values[np.isfinite(values) & (values > 0)]
    if len(shown) and shown.max() > _LOG_FROM * shown.min():
        axes.set_yscale("log")
        axes.set_ylim(shown.min() / 2, shown.max() * 2)
    else:
        axes.set_ylim(0, shown.max() * 1.05 if len(shown) else 1)


def _draw_noise(report: PlanReport, axes: Axes) -> None:
    """Need, own noise and honest noise of each party: bars, or sorted curves for many parties."""
    plan, spec = report.plan, report.plan.spec
    honest = np.where(np.isfinite(report.protection.honest_variance), report.protection.honest_variance, np.nan)
    if spec.count <= _BARS_MAX:
        places = np.arange(spec.count)
        axes.grid(visible=False, axis="x")
        axes.bar(places, plan.variance, width=0.6, color=BLUE, label="own noise")
        axes.hlines(plan.need, places - 0.4, places + 0.4, color=RED, linewidth=2, label="need")
        axes.plot(places, honest, "v", color=GREEN, markersize=5, label="honest noise, worst coalition")
        mark = "" if spec.receivers.all() else " (receives)"
        labels = [
            literal_text(short_name(spec, party)) + mark * bool(spec.receivers[party]) for party in range(spec.count)
        ]
        upright = spec.count > 12
        size = 9 if spec.count <= 20 else 6
        axes.set_xticks(
            places, labels, rotation=90 if upright else 30, ha="center" if upright else "right", fontsize=size
        )
    else:
        order = np.argsort(-plan.need, kind="stable")
        ranks = np.unique(np.geomspace(1, spec.count, 1000).astype(int))  # all of the first, then ever fewer
        for values, colour, label in (
            (plan.variance, BLUE, "own noise"),
            (plan.need, RED, "need"),
            (honest, GREEN, "honest noise, worst coalition"),
        ):
            axes.step(ranks, values[order[ranks - 1]], where="mid", color=colour, label=label)
        axes.set_xscale("log")
        axes.set_xlabel("parties, strictest first")
    _scale(axes, np.concatenate((plan.variance, plan.need, honest)))
    axes.set_ylabel("variance")
    axes.set_title("Noise per party", pad=_TITLE_PAD)
    _legend(axes, columns=3)


def _weighted(report: PlanReport, thresholds: list[int]) -> tuple[list[int], dict[Kind, FloatArray]]:
    """Some of the thresholds, and the expected error of balanced weights and of their baselines for each."""
    plan, spec = report.plan, report.plan.spec
    most = max(_BALANCED_WORK // spec.count, 8)
    places = {0, min(1, len(thresholds) - 1), *np.linspace(0, len(thresholds) - 1, most).astype(int).tolist()}
    some = [thresholds[place] for place in sorted(places)]
    spread = plan.weights.spread
    if not spread:
        return some, {"balanced": np.zeros(len(some))}
    known: dict[str, Any] = {"spread": spread, "records": plan.weights.records}
    squares: dict[Kind, list[float]] = {
        "balanced": [balance(report.plain_need, t, spec.receivers, **known).bound for t in some]
    }
    for kind, best in BASELINES.items():
        squares[kind] = [best(report.plain_need, t, spec.receivers, **known).expected_square for t in some]
    return some, {kind: np.sqrt(np.array(values)) for kind, values in squares.items()}


def _draw_thresholds(report: PlanReport, axes: Axes) -> None:
    """Expected error against the threshold, with the baselines."""
    plan, spec = report.plan, report.plan.spec
    count = spec.count
    thresholds = np.unique(np.linspace(0, count - 1, min(count, _CURVE_POINTS_MAX)).astype(int)).tolist()
    marker = "o" if count <= 15 else None
    need = report.plain_need
    ours = np.sqrt(totals_by_threshold(need, thresholds, spec.receivers))
    theirs = np.sqrt(totals_by_threshold(np.full(count, need.max()), thresholds, spec.receivers))
    some, weighted = _weighted(report, thresholds)
    axes.plot(
        thresholds,
        theirs,
        color=ORANGE,
        marker=marker,
        markersize=6,
        linewidth=2.5,
        linestyle="--",
        label=BASELINE_WORDS["TMDP"],
    )
    axes.plot(thresholds, ours, color=BLUE, marker=marker, markersize=4, label="least noise")
    for kind, errors in reversed(weighted.items()):
        axes.plot(some, errors, marker=marker, markersize=4, label=KIND_WORDS[kind], **_WEIGHTED[kind])
    for baseline, colour, line in zip(report.baselines[1:], (RED, GREY), ("-.", ":"), strict=True):
        axes.axhline(
            baseline.standard_deviation,
            color=colour,
            linestyle=line,
            label=BASELINE_WORDS.get(baseline.name, baseline.name),
        )
    levels = np.array([baseline.standard_deviation for baseline in report.baselines])
    _scale(axes, np.concatenate((ours, theirs, levels, *weighted.values())))
    if isinstance(spec.threshold, int):
        colour = BLUE if plan.weights.are_equal else GREEN
        here: Any = {"marker": "s", "color": colour, "markersize": 9, "linestyle": "none", "clip_on": False}
        if axes.get_yscale() != "log" or plan.expected_error:
            axes.plot([spec.threshold], [plan.expected_error], label="this plan", **here)
    else:
        axes.axhline(plan.expected_error, color=GREY, linewidth=1, label="this plan")
    axes.set_xlabel("threshold: how many may collude")
    axes.set_ylabel("expected error of the answer (RMSE)")
    axes.set_title("Error against threshold", pad=_TITLE_PAD)
    _legend(axes, columns=2)
    if count <= 12:
        axes.set_xticks(thresholds)
