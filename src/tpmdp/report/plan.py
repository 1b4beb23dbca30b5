"""A plan as tables and as JSON. Everything shown is computed elsewhere."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from tpmdp._util.arrays import FloatArray
from tpmdp.errors import InputError
from tpmdp.ledger import rounded_up
from tpmdp.planning.baselines import Baseline, planning_baselines
from tpmdp.planning.certificate import Certificate, Verdict
from tpmdp.planning.plan import Plan, Protection, needs, no_noise_reason
from tpmdp.planning.weights import Weights
from tpmdp.report.numbers import number, plain_number, plural, short_name
from tpmdp.report.tables import add_numbers, keep_numbers, new_table
from tpmdp.report.weights import WIDE, Choice, choices, choices_json, drivers_table, weights_table
from tpmdp.spec import Spec

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

_EPSILON_DIGITS: Final = 4
_SAME: Final = 1e-9  # relative
_PLAIN_GAP: Final = 1e-3  # a smaller one would be lost in four digits of a factor
BASELINE_WORDS: Final[Mapping[str, str]] = {
    "TMDP": "one budget for all, the strictest",
    "non-threshold": "against all others colluding",
    "trusted curator": "one office that all trust",
}
"""Baselines for people who do not know the names in the paper."""
ROWS_MAX: Final = 40  # longer tables show the strictest and the most liberal parties only
_WIDE: Final = 110  # columns of a terminal from which the worst coalition fits in


@dataclass(frozen=True, eq=False)
class PlanReport:
    """A plan with the protection it gives, the baselines and other weightings."""

    plan: Plan
    protection: Protection
    baselines: list[Baseline]
    choices: list[Choice]
    plain_need: FloatArray
    """Needs without weights."""

    @classmethod
    def of(cls, plan: Plan) -> PlanReport:
        """Compute protection and baselines for the plan.

        >>> import tpmdp
        >>> report = PlanReport.of(tpmdp.plan(tpmdp.Spec(epsilon=[1, 2], delta=1e-6, threshold=1)))
        >>> [baseline.name for baseline in report.baselines]
        ['TMDP', 'non-threshold', 'trusted curator']
        """
        spec = plan.spec
        # TMDP has a common threshold: with personal thresholds that is the largest.
        threshold = spec.threshold if isinstance(spec.threshold, int) else int(spec.threshold.max())
        plain = plan.need if (plan.weights.each == 1).all() else needs(spec)
        baselines = planning_baselines(plain, threshold, spec.receivers)
        return cls(plan, plan.protection(), baselines, choices=choices(plan), plain_need=plain)


def headline(spec: Spec) -> str:
    """Numbers of parties and receivers, and the threshold.

    >>> headline(Spec(epsilon=[1, 2], delta=0.1, threshold=1))
    '2 parties, threshold 1, 2 receivers'
    """
    threshold = f"threshold {spec.threshold}" if isinstance(spec.threshold, int) else "personal thresholds"
    return f"{plural(spec.count, 'party', 'parties')}, {threshold}, {plural(spec.receiver_count, 'receiver')}"


def _print_no_noise(reason: str | None, console: Console) -> None:
    if reason:
        console.print(f"[bold red]NO NOISE IS ADDED[/]: {reason}.")


def _budget_columns(spec: Spec, fixed: bool) -> list[tuple[str, Any]]:
    """Headings and values of the budget. Unless `fixed`, `_common` shows columns with the same value for all."""
    columns: list[tuple[str, Any]] = [("epsilon", spec.epsilon)]
    columns += [
        (field, values)
        for field, values in (("delta", spec.delta), ("sensi-\ntivity", spec.sensitivity))
        if fixed or not _are_same(values)
    ]
    if not isinstance(spec.threshold, int):
        columns.append(("thres-\nhold", spec.threshold))
    return columns


def _are_same(values: FloatArray) -> bool:
    """Whether they look the same in a table; sensitivities of a study differ by rounding errors."""
    return bool((np.abs(values - values[0]) <= _SAME * values[0]).all())


def _common(spec: Spec) -> str:
    """The values that all parties share, for the line under the table."""
    fields = (("delta", spec.delta), ("sensitivity", spec.sensitivity))
    same = [f"{field} {number(float(values[0]))}" for field, values in fields if _are_same(values)]
    return f"For all parties: {', '.join(same)}.\n" if same else ""


def _party_table(title: str, spec: Spec, fixed: bool) -> tuple[Table, list[Any]]:
    """A table with the columns party, receives and budget, and the values of the budget columns."""
    table = new_table(title)
    table.add_column("party", overflow="fold", min_width=8)
    table.add_column("recei-\nves", min_width=6)
    columns = _budget_columns(spec, fixed)
    add_numbers(table, *(heading for heading, _ in columns))
    return table, [values for _, values in columns]


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
    members = report.protection.coalition(party).tolist()
    if not members:
        return "nobody can attack"
    named = [short_name(spec, member, 18) for member in members[:2]]
    return ", ".join(named) + (f" and {len(members) - 2} more" if len(members) > 2 else "")


def epsilon_text(epsilon: float) -> str:
    """An epsilon in four digits, rounded up unless all that is cut off is a rounding error.

    >>> epsilon_text(0.8000000000000002), epsilon_text(0.80003), epsilon_text(math.inf)
    ('0.8', '0.8001', 'inf')
    """
    text = number(epsilon)
    return text if float(text) >= epsilon * (1 - _SAME) else rounded_up(epsilon, _EPSILON_DIGITS)


def plan_table(report: PlanReport, width: int = 140) -> Table:
    """One row per party: budget, need, its noise, real protection and, in a wide terminal, the worst coalition."""
    from rich.markup import escape

    plan, spec, protection = report.plan, report.plan.spec, report.protection
    table, budget = _party_table("Noise plan", spec, fixed=False)
    weights = plan.weights
    if not weights.are_equal:
        add_numbers(table, "weight")
        budget.append(weights.each)
    add_numbers(table, "need", "own\nnoise", "real\nepsilon", "margin")
    if width >= _WIDE:  # otherwise `coalition_table` has it
        table.add_column("if these\ncollude", overflow="fold")
    rows, hidden = _shown_rows(plan)
    for place, party in enumerate(rows):
        if hidden and place == len(rows) // 2:
            table.add_row(f"... {hidden} more")
        slack = protection.slack[party]
        cells = [
            escape(short_name(spec, party)),
            "yes" if spec.receivers[party] else "",
            epsilon_text(float(spec.epsilon[party])),
            *(number(values[party]) for values in budget[1:]),
            number(plan.need[party]),
            number(plan.variance[party]),
            epsilon_text(float(protection.epsilon[party])),
            "-" if math.isinf(slack) else f"{slack:.3g}x",
        ]
        table.add_row(*cells, *([escape(_coalition_text(report, party))] if width >= _WIDE else []))
    keep_numbers(table).caption = (
        f"{_common(spec)}need: variance the budget asks for{'' if weights.are_equal else ' at this weight'}. "
        "own noise: variance the party adds.\n"
        "real epsilon: what it gets against the worst coalition. margin: honest noise over need."
    )
    return table


def coalition_table(report: PlanReport) -> Table:
    """The worst coalition for each party, where the terminal is too narrow for one table with all columns."""
    from rich.markup import escape

    table = new_table("Worst coalitions", "party", "if these collude")
    rows, hidden = _shown_rows(report.plan)
    for place, party in enumerate(rows):
        if hidden and place == len(rows) // 2:
            table.add_row(f"... {hidden} more")
        table.add_row(escape(short_name(report.plan.spec, party)), escape(_coalition_text(report, party)))
    return table


def error_table(report: PlanReport) -> Table:
    """Total noise and expected error of this plan and of the baselines."""
    plan = report.plan
    table = new_table("Noise in the answer", "mechanism")
    error = "expected\nerror (RMSE)" if plan.weights.are_equal else "its standard\ndeviation"
    add_numbers(table, "total\nvariance", error, "relative")
    table.add_column("assumes", overflow="fold")
    threshold = plan.spec.threshold
    assumes = f"at most {threshold} collude" if isinstance(threshold, int) else "personal thresholds"
    own = plan.standard_deviation
    answer = plan.total_variance * plan.weights.scale**2
    for row in (Baseline("this plan", assumes, answer), *report.baselines):
        relative = f"{row.standard_deviation / own:.3g}x" if own else "-"
        table.add_row(row.name, number(row.total_variance), number(row.standard_deviation), relative, row.meaning)
    return keep_numbers(table)


def print_plan(report: PlanReport, console: Console, tolerate: int = 0) -> None:
    """The whole report on a terminal."""
    console.print(f"{headline(report.plan.spec)}; planned by {report.plan.case.value}")
    if tolerate:
        console.print(f"{plural(tolerate, 'party', 'parties')} may drop out of the session, at no cost in noise.")
    _print_no_noise(report.plan.no_noise_reason, console)
    console.print(plan_table(report, console.width))
    if console.width < _WIDE:
        console.print(coalition_table(report))
    console.print(error_table(report))
    if report.choices:
        console.print(weights_table(report.plan, report.choices, console.width))
        if console.width < WIDE:
            console.print(drivers_table(report.plan, report.choices))


def _chosen(spec: Spec, names: Sequence[str]) -> list[int]:
    """The parties with these names; without names, all parties of a short list."""
    if not names:
        return list(range(min(spec.count, ROWS_MAX)))
    index = {spec.name(party): party for party in range(spec.count)}
    for name in names:
        if name not in index:
            raise InputError("party", name, "is not in the plan", "ask its author")
    return [index[name] for name in names]


def weights_text(certificate: Certificate) -> str:
    """What weights require of the parties and of the receiver, and what they assume."""
    assert certificate.weights is not None
    records = np.ones(len(certificate.weights)) if certificate.records is None else certificate.records
    weights = Weights(certificate.weights, records, certificate.width, spread=0.0)
    if weights.are_equal:
        return f"Weights: all the same; the receiver multiplies the sum by {number(weights.scale)}."
    return (
        "Weights: the proof is for parties that multiply what they contribute by their weight; the receiver then "
        f"multiplies the sum by {number(weights.scale)}. Right on average if weights have nothing to do with the data; "
        f"if not, off by up to {number(weights.bias_bound)}, beside the noise."
    )


def optimality_text(certificate: Certificate, verdict: Verdict) -> str:
    """How the noise of a plan that holds compares with the least: optimal, or so many times the proven lower bound."""
    needs_text = "needs" if certificate.weights is None else "needs and weights"
    total = f"total variance {number(verdict.total_variance)}"
    if verdict.is_optimal:
        return f"{total}; no plan for these {needs_text} has less, up to a relative gap of {verdict.gap:.1e}"
    return (
        f"{total}, which is {factor_text(verdict)} {number(verdict.lower_bound)}, the lower bound that is proven for "
        f"these {needs_text}: a plan with less noise may exist"
    )


def factor_text(verdict: Verdict) -> str:
    """How many times the lower bound the total is.

    >>> factor_text(Verdict(2, 19.0, 10.0, gap=0.9, need_gap=0.0, gap_max=1e-12))
    '1.9 times'
    >>> factor_text(Verdict(2, 1.0, 1.0, gap=2.5e-8, need_gap=0.0, gap_max=1e-12))
    '(1 + 2.5e-08) times'
    """
    return f"{number(verdict.factor)} times" if verdict.gap >= _PLAIN_GAP else f"(1 + {verdict.gap:.1e}) times"


def print_verdict(
    spec: Spec, certificate: Certificate, verdict: Verdict, names: Sequence[str], console: Console
) -> None:
    """What a check of another party's plan proved, and for which budgets and thresholds."""
    from rich.markup import escape

    rows = _chosen(spec, names)
    table, budget = _party_table("Checked for these budgets", spec, fixed=True)
    if certificate.weights is not None:
        add_numbers(table, "weight")
        budget.append(certificate.weights)
    add_numbers(table, "need", "own\nnoise")
    for party in rows:
        budgets = [f"{values[party]:.12g}" for values in budget]  # all digits: a party compares them with its own
        noise = [number(values[party]) for values in (certificate.need, certificate.variance)]
        receives = "yes" if spec.receivers[party] else ""
        table.add_row(escape(short_name(spec, party)), receives, *budgets, *noise)
    if not names and spec.count > len(rows):
        table.add_row(f"... {spec.count - len(rows)} more")
    console.print(keep_numbers(table))
    _print_no_noise(no_noise_reason(spec, certificate.variance, certificate.need), console)
    many = (
        f"up to {plural(spec.threshold, 'party', 'parties')}"
        if isinstance(spec.threshold, int)
        else "its threshold's size"
    )
    if certificate.weights is not None:
        console.print(weights_text(certificate))
    yours = "in the table" if spec.count <= len(rows) or names else "with --party NAME"
    console.print(
        f"[bold green]VALID[/]{'' if verdict.is_optimal else ', but not shown to be optimal,'} for {headline(spec)}; "
        "proved in exact arithmetic:\n"
        f"  private: each budget holds against any coalition of {many}\n"
        f"  {'optimal' if verdict.is_optimal else 'noise'}: {optimality_text(certificate, verdict)}\n"
        f"Look up your own budget {yours}: the proof is for the budgets it shows."
    )


def _party_json(spec: Spec, party: int, **more: float) -> dict[str, Any]:
    threshold = spec.threshold if isinstance(spec.threshold, int) else int(spec.threshold[party])
    return {
        "name": spec.name(party),
        "receives": bool(spec.receivers[party]),
        "epsilon": plain_number(spec.epsilon[party]),
        "delta": plain_number(spec.delta[party]),
        "sensitivity": plain_number(spec.sensitivity[party]),
        "threshold": threshold,
        **{key: plain_number(value) for key, value in more.items()},
    }


def plan_json(report: PlanReport) -> dict[str, Any]:
    """The report as JSON values; infinity as "inf".

    >>> import tpmdp
    >>> report = PlanReport.of(tpmdp.plan(tpmdp.Spec(epsilon=[1, 2], delta=1e-6, threshold=1)))
    >>> plan_json(report)["parties"][0]["receives"]
    True
    """
    plan, spec, protection = report.plan, report.plan.spec, report.protection
    columns = (plan.need, plan.variance, protection.epsilon, protection.slack, plan.weights.each)
    parties = [
        _party_json(spec, party, need=need, variance=variance, real_epsilon=real, slack=slack, weight=weight)
        for party, (need, variance, real, slack, weight) in enumerate(zip(*(c.tolist() for c in columns), strict=True))
    ]
    if spec.count <= ROWS_MAX:
        for party, row in enumerate(parties):
            row["worst_coalition"] = [spec.name(int(member)) for member in protection.coalition(party)]
    baselines = [
        {"name": row.name, "total_variance": row.total_variance, "expected_error": row.standard_deviation}
        for row in report.baselines
    ]
    return {
        "case": plan.case.value,
        "no_noise_reason": plan.no_noise_reason,
        "total_variance": plan.total_variance,
        "noise": plan.standard_deviation,
        "expected_error": plan.expected_error,
        "weights": choices_json(plan, report.choices),
        "baselines": baselines,
        "parties": parties,
    }


def verdict_json(spec: Spec, certificate: Certificate, verdict: Verdict, names: Sequence[str]) -> dict[str, Any]:
    """What a check proved and for whom, as JSON values."""
    columns = (certificate.need, certificate.variance)
    each = np.ones(spec.count) if certificate.weights is None else certificate.weights
    parties = [
        _party_json(spec, p, need=columns[0][p], variance=columns[1][p], weight=each[p]) for p in _chosen(spec, names)
    ]
    reason = no_noise_reason(spec, certificate.variance, certificate.need)
    count = {"receivers": spec.receiver_count, "no_noise_reason": reason}
    optimal = {"optimal": verdict.is_optimal, "factor": verdict.factor}
    return {"valid": True, **asdict(verdict), **optimal, **count, "budgets": parties}
