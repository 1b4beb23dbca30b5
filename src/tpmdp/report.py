"""Plans for people: tables, pictures and JSON. Everything shown is computed elsewhere; here it is only laid out."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from tpmdp.baselines import Baseline, planning_baselines, totals_by_threshold
from tpmdp.errors import MissingDependencyError
from tpmdp.planning.certificate import Verdict
from tpmdp.planning.closed_form import Case
from tpmdp.planning.plan import Plan, Protection
from tpmdp.spec import Spec

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from rich.console import Console
    from rich.table import Table

ROWS_MAX: Final = 40  # longer tables show the strictest and the most liberal parties only
_CURVE_POINTS_MAX: Final = 400
_BARS_MAX: Final = 40
# Okabe and Ito's palette: distinct to colour-blind readers and in grey print.
_BLUE, _ORANGE, _GREEN, _RED, _GREY = "#0072B2", "#E69F00", "#009E73", "#D55E00", "#666666"


@dataclass(frozen=True, eq=False)
class PlanReport:
    """A plan with what people ask about it: the protection it gives and the baselines beside it."""

    plan: Plan
    protection: Protection
    baselines: list[Baseline]

    @classmethod
    def of(cls, plan: Plan) -> PlanReport:
        """Compute protection and baselines for the plan.

        >>> import tpmdp
        >>> report = PlanReport.of(tpmdp.plan(tpmdp.Spec(epsilon=[1, 2], delta=1e-6, threshold=1)))
        >>> [baseline.name for baseline in report.baselines]
        ['TMDP', 'non-threshold', 'trusted curator']
        """
        spec = plan.spec
        # TMDP has one threshold for all: under personal thresholds that is the largest.
        threshold = spec.threshold if isinstance(spec.threshold, int) else int(spec.threshold.max())
        return cls(plan, plan.protection(), planning_baselines(plan.need, threshold, spec.receivers))


def number(value: float) -> str:
    """A number for a table: four significant digits.

    >>> number(17.84791), number(float("inf")), number(0.0)
    ('17.85', 'inf', '0')
    """
    return f"{value:.4g}"


def _times(value: float) -> str:
    return "-" if math.isinf(value) else f"{value:.3g}x"


def _shown_rows(plan: Plan) -> tuple[list[int], int]:
    """The parties to list and how many are left out in the middle: the strictest and the most liberal."""
    count = plan.spec.count
    if count <= ROWS_MAX:
        return list(range(count)), 0
    half = ROWS_MAX // 4
    order = np.argsort(-plan.need, kind="stable")
    return [*order[:half].tolist(), *order[-half:].tolist()], count - 2 * half


def _coalition_text(report: PlanReport, party: int) -> str:
    spec = report.plan.spec
    members = report.protection.coalition(party)
    if not len(members):
        return "nobody can"
    if len(members) <= 3:
        return ", ".join(spec.name(int(member)) for member in members)
    return f"{spec.name(int(members[0]))} and {len(members) - 1} more"


def plan_table(report: PlanReport) -> Table:
    """One row a party: budget, need, own noise, real protection and who would have to collude."""
    from rich.markup import escape
    from rich.table import Table

    plan, spec, protection = report.plan, report.plan.spec, report.protection
    personal = not isinstance(spec.threshold, int)
    table = Table(title="Noise plan", title_justify="left", caption_justify="left")
    table.add_column("party", overflow="fold")
    table.add_column("receives")
    for heading in ("epsilon", "delta", "sensitivity", *(["threshold"] if personal else [])):
        table.add_column(heading, justify="right", no_wrap=True)
    for heading in ("need", "own noise", "real epsilon", "slack"):
        table.add_column(heading, justify="right", no_wrap=True)
    table.add_column("if these collude", overflow="fold")
    rows, hidden = _shown_rows(plan)
    for place, party in enumerate(rows):
        if hidden and place == len(rows) // 2:
            table.add_row(f"... {hidden} more", end_section=True)
        table.add_row(
            escape(spec.name(party)),
            "yes" if spec.receivers[party] else "",
            number(spec.epsilon[party]),
            number(spec.delta[party]),
            number(spec.sensitivity[party]),
            *([str(spec.threshold[party])] if not isinstance(spec.threshold, int) else []),
            number(plan.need[party]),
            number(plan.variance[party]),
            number(protection.epsilon[party]),
            _times(protection.slack[party]),
            escape(_coalition_text(report, party)),
        )
    table.caption = (
        "need: variance the party's budget asks for; own noise: variance it adds; real epsilon: what it gets at its\n"
        "delta against the worst coalition; slack: honest noise over need."
    )
    return table


def error_table(report: PlanReport) -> Table:
    """Total noise and expected error of this plan beside the baselines."""
    from rich.table import Table

    plan = report.plan
    table = Table(title="Noise in the answer", title_justify="left")
    table.add_column("mechanism")
    for heading in ("total variance", "expected error (RMSE)", "relative"):
        table.add_column(heading, justify="right")
    table.add_column("assumes")
    threshold = plan.spec.threshold
    assumes = f"at most {threshold} collude" if isinstance(threshold, int) else "personal thresholds"
    rows = [Baseline("this plan", assumes, plan.total_variance), *report.baselines]
    for row in rows:
        own = plan.standard_deviation
        relative = f"{row.standard_deviation / own:.3g}x" if own else "-"
        table.add_row(row.name, number(row.total_variance), number(row.standard_deviation), relative, row.meaning)
    return table


def print_plan(report: PlanReport, console: Console) -> None:
    """The whole report on a terminal."""
    plan, spec = report.plan, report.plan.spec
    threshold = f"threshold {spec.threshold}" if isinstance(spec.threshold, int) else "personal thresholds"
    console.print(f"{spec.count} parties, {threshold}, {spec.receiver_count} receivers; planned by {plan.case.value}")
    if plan.case is Case.NO_ADVERSARY:
        reason = "the threshold is 0" if spec.threshold == 0 else "there are no receivers"
        console.print(f"[bold red]NO NOISE IS ADDED[/]: {reason}, so nobody is assumed to attack.")
    console.print(plan_table(report))
    console.print(error_table(report))


def print_verdict(spec: Spec, need: Any, variance: Any, verdict: Verdict, console: Console) -> None:
    """What a check of somebody else's plan proved, and the budgets it was proved for."""
    from rich.markup import escape
    from rich.table import Table

    table = Table(title="Checked for these budgets", title_justify="left")
    table.add_column("party", overflow="fold")
    table.add_column("receives")
    for heading in ("epsilon", "delta", "sensitivity", "need", "own noise"):
        table.add_column(heading, justify="right", no_wrap=True)
    for party in range(min(spec.count, ROWS_MAX)):
        cells = (spec.epsilon[party], spec.delta[party], spec.sensitivity[party], need[party], variance[party])
        table.add_row(
            escape(spec.name(party)), "yes" if spec.receivers[party] else "", *(number(cell) for cell in cells)
        )
    if spec.count > ROWS_MAX:
        table.add_row(f"... {spec.count - ROWS_MAX} more")
    console.print(table)
    threshold = str(spec.threshold) if isinstance(spec.threshold, int) else "its own threshold of"
    console.print(
        f"[bold green]VALID[/]: proved in exact arithmetic for {verdict.parties} parties\n"
        f"  private: every budget above holds against any coalition of up to {threshold} parties\n"
        f"  optimal: total variance {number(verdict.total_variance)}; no plan for these needs has less, up to a "
        f"relative gap of {verdict.gap:.1e}\n"
        "Look up your own budget in the table: the proof is for the budgets it shows."
    )


def plan_json(report: PlanReport) -> dict[str, Any]:
    """The report as plain JSON values; infinity as "inf".

    >>> import tpmdp
    >>> report = PlanReport.of(tpmdp.plan(tpmdp.Spec(epsilon=[1, 2], delta=1e-6, threshold=1)))
    >>> plan_json(report)["parties"][0]["receives"]
    True
    """
    plan, spec, protection = report.plan, report.plan.spec, report.protection

    def plain(value: float) -> float | str:
        return "inf" if math.isinf(value) else float(value)

    thresholds = np.broadcast_to(np.asarray(spec.threshold), (spec.count,)).tolist()
    parties = [
        {
            "name": spec.name(party),
            "receives": bool(spec.receivers[party]),
            "epsilon": plain(spec.epsilon[party]),
            "delta": plain(spec.delta[party]),
            "sensitivity": plain(spec.sensitivity[party]),
            "threshold": thresholds[party],
            "need": plain(plan.need[party]),
            "variance": plain(plan.variance[party]),
            "real_epsilon": plain(protection.epsilon[party]),
            "slack": plain(protection.slack[party]),
        }
        for party in range(spec.count)
    ]
    if spec.count <= ROWS_MAX:
        for party, row in enumerate(parties):
            row["worst_coalition"] = [spec.name(int(member)) for member in protection.coalition(party)]
    return {
        "case": plan.case.value,
        "total_variance": plan.total_variance,
        "expected_error": plan.standard_deviation,
        "baselines": [
            {"name": row.name, "total_variance": row.total_variance, "expected_error": row.standard_deviation}
            for row in report.baselines
        ],
        "parties": parties,
    }


def draw_plan(report: PlanReport, path: Path, file_format: str) -> None:
    """Draw noise per party, and expected error against the threshold beside the baselines."""
    try:
        import matplotlib
    except ImportError:
        raise MissingDependencyError("matplotlib", "plot", "to draw pictures") from None
    matplotlib.use("Agg")
    from matplotlib import pyplot

    style: Any = {"font.size": 9, "axes.spines.top": False, "axes.spines.right": False, "svg.hashsalt": "tpmdp"}
    with matplotlib.rc_context(style):
        figure, (left, right) = pyplot.subplots(1, 2, figsize=(10, 4), layout="constrained")
        _draw_noise(report, left)
        _draw_thresholds(report, right)
        figure.savefig(path, format=file_format, dpi=150, metadata={"Date": None} if file_format == "svg" else None)
        pyplot.close(figure)


def _draw_noise(report: PlanReport, axes: Axes) -> None:
    """Need and own noise of each party; sorted curves when there are too many for bars."""
    plan, spec = report.plan, report.plan.spec
    honest = report.protection.honest_variance
    if spec.count <= _BARS_MAX:
        places = np.arange(spec.count)
        axes.bar(places, plan.variance, width=0.6, color=_BLUE, label="own noise")
        axes.plot(places, plan.need, "_", color=_RED, markersize=18, markeredgewidth=2, label="need")
        finite = np.where(np.isfinite(honest), honest, np.nan)
        axes.plot(places, finite, "v", color=_GREEN, markersize=5, label="honest noise, worst coalition")
        labels = [spec.name(party) + (" (receives)" if spec.receivers[party] else "") for party in range(spec.count)]
        axes.set_xticks(places, labels, rotation=30 if spec.count <= 12 else 90, ha="right")
    else:
        order = np.argsort(-plan.need, kind="stable")
        step = max(1, spec.count // 5000)
        places = np.arange(1, spec.count + 1)[::step]
        axes.plot(places, plan.need[order][::step], color=_RED, label="need")
        axes.plot(places, plan.variance[order][::step], color=_BLUE, label="own noise")
        axes.set_yscale("symlog", linthresh=float(max(plan.need.max() * 1e-6, 1e-300)))
        axes.set_xscale("log")
        axes.set_xlabel("parties, strictest first")
    axes.set_ylabel("variance")
    axes.set_ylim(bottom=0)
    axes.set_title("Noise per party", loc="left")
    axes.legend(frameon=False)


def _draw_thresholds(report: PlanReport, axes: Axes) -> None:
    """Expected error against every threshold, with the baselines."""
    plan, spec = report.plan, report.plan.spec
    count = spec.count
    thresholds = np.unique(np.linspace(0, count - 1, min(count, _CURVE_POINTS_MAX)).astype(int)).tolist()
    marker = "o" if count <= _BARS_MAX else None
    ours = np.sqrt(totals_by_threshold(plan.need, thresholds, spec.receivers))
    strictest = np.full(count, plan.need.max())
    theirs = np.sqrt(totals_by_threshold(strictest, thresholds, spec.receivers))
    axes.plot(thresholds, theirs, color=_ORANGE, marker=marker, markersize=4, linestyle="--", label="TMDP")
    axes.plot(thresholds, ours, color=_BLUE, marker=marker, markersize=4, label="this plan's mechanism")
    for baseline, colour, line in zip(report.baselines[1:], (_RED, _GREY), ("-.", ":"), strict=True):
        axes.axhline(baseline.standard_deviation, color=colour, linestyle=line, label=baseline.name)
    if isinstance(spec.threshold, int):
        axes.plot([spec.threshold], [plan.standard_deviation], "s", color=_BLUE, markersize=9, label="this plan")
    else:
        axes.axhline(plan.standard_deviation, color=_BLUE, linewidth=1, label="this plan (personal thresholds)")
    axes.set_xlabel("threshold: how many may collude")
    axes.set_ylabel("expected error of the answer (RMSE)")
    axes.set_ylim(bottom=0)
    axes.set_title("Error against threshold", loc="left")
    axes.legend(frameon=False)
    if count <= 12:
        axes.set_xticks(thresholds)
