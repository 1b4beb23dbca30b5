"""Equal and balanced weights and their baselines: their errors, and the parties that drive the noise."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from tpmdp.errors import NoNoiseWarning
from tpmdp.planning.plan import Plan, needs
from tpmdp.planning.plan import plan as make_plan
from tpmdp.planning.weights import BASELINES, Kind, Weights, baseline_weights
from tpmdp.report.numbers import number, short_name
from tpmdp.report.tables import add_numbers, keep_numbers, new_table

if TYPE_CHECKING:
    from rich.table import Table

DRIVERS_MAX: Final = 3
WIDE: Final = 84  # columns of a terminal from which all fits in
_SHARE_MIN: Final = 0.005
KIND_WORDS: Final[dict[Kind, str]] = {
    "equal": "equal weights",
    "balanced": "balanced weights",
    "own": "your own weights",
    "two levels": "weights with two levels",
    "one budget": "strict parties left out",
}
"""Weightings in pictures."""
_BASELINE_WORDS: Final = (
    "\nBaselines for balanced weights: with two levels, strict parties have one smaller weight in common; with one "
    "budget, they are left out."
)


@dataclass(frozen=True)
class Choice:
    """A weighting: its error if the assumption holds, in two terms, and its largest bias if not."""

    kind: Kind
    noise: float
    spread_error: float
    expected_error: float
    bias_bound: float
    drivers: tuple[tuple[int, float], ...]
    """The parties that most of the noise is for, with their shares of it."""
    chosen: bool

    @classmethod
    def of(cls, plan: Plan, chosen: bool, kind: Kind | None = None) -> Choice:
        """The weighting of a plan; `kind` is what it is called, if that is not what the plan calls it.

        >>> from tpmdp.spec import Spec
        >>> equal = make_plan(Spec(epsilon=[0.1, 0.9, 1], delta=1e-6, threshold=1))
        >>> [(party, round(share, 2)) for party, share in Choice.of(equal, True).drivers]
        [(0, 0.99), (1, 0.01)]
        """
        share = plan.drivers()
        first = np.argsort(-share, kind="stable")[:DRIVERS_MAX]
        drivers = tuple((int(party), float(share[party])) for party in first if share[party] >= _SHARE_MIN)
        weights = plan.weights
        errors = (plan.standard_deviation, weights.spread_error, plan.expected_error, weights.bias_bound)
        return cls(kind or weights.kind, *errors, drivers=drivers, chosen=chosen)


def choices(plan: Plan) -> list[Choice]:
    """The plan's weighting, and if planning them is quick, equal and balanced ones and the baselines of the latter.

    None if no noise is added: there is nothing to gain.

    >>> from tpmdp.spec import Spec
    >>> [choice.kind for choice in choices(make_plan(Spec(epsilon=[0.1, 1, 1], delta=1e-6, threshold=1)))]
    ['equal', 'balanced', 'two levels', 'one budget']
    """
    spec, own = plan.spec, plan.weights
    if not plan.variance.any():
        return []
    others = ("equal", "balanced") if spec.common_threshold else ()
    known: dict[str, Any] = {"spread": own.spread or None, "records": own.records, "width": own.width or None}
    listed: list[Choice] = []
    simpler: list[Choice] = []
    for kind in others:
        if kind == own.kind:
            listed.append(Choice.of(plan, True))
        else:
            other = make_plan(spec, weighting=kind, **known)
            if other.weights.kind == kind:
                listed.append(Choice.of(other, False))
    if any(choice.kind == "balanced" for choice in listed):
        need = needs(spec)
        each = {kind: baseline_weights(spec, need, kind, **known).each for kind in BASELINES}
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", NoNoiseWarning)  # a baseline may count the only receiver alone
            simpler = [Choice.of(make_plan(spec, weighting=each[kind], **known), False, kind) for kind in BASELINES]
    return listed + ([] if own.kind in others else [Choice.of(plan, True)]) + simpler


def weights_table(plan: Plan, every: list[Choice], width: int = 140) -> Table:
    """Error and worst-case bias of each weighting."""
    from rich.markup import escape

    table = new_table("What weights would do")
    table.add_column("weights", overflow="fold", min_width=8)
    add_numbers(table, "expected\nerror (RMSE)", "of it\nnoise", "of it\nweights", "worst-case\nbias")
    if width >= WIDE:  # otherwise `drivers_table` has it
        table.add_column("the noise is there for", overflow="fold")
    for choice in every:
        numbers = (choice.expected_error, choice.noise, choice.spread_error, choice.bias_bound)
        table.add_row(
            _name(choice), *map(number, numbers), *([escape(drivers_text(plan, choice))] if width >= WIDE else [])
        )
    weights = plan.weights
    table.caption = (
        "Weights other than equal ones assume that they have nothing to do with the data. If not, the answer may be "
        f"off by as much as the worst-case bias. Counted on: {_records(weights)}, values in a range of "
        f"{number(weights.width)}, standard deviation of a party's average {number(weights.spread)}."
    )
    if any(choice.kind in BASELINES for choice in every):
        table.caption += _BASELINE_WORDS
    return keep_numbers(table)


def drivers_table(plan: Plan, every: list[Choice]) -> Table:
    """Whom the noise is there for, where the terminal is too narrow for one table with all columns."""
    from rich.markup import escape

    table = new_table("Who drives the noise", "weights", "the noise is there for")
    for choice in every:
        table.add_row(_name(choice), escape(drivers_text(plan, choice)))
    return table


def _name(choice: Choice) -> str:
    return f"{choice.kind} (this plan)" if choice.chosen else choice.kind


def _records(weights: Weights) -> str:
    """How many records the table is for: weights gain most if each party has one record."""
    if (weights.records == 1).all():
        return "one record per party (a column `records` sets how many)"
    return f"{int(weights.records.min()):,} to {int(weights.records.max()):,} records per party"


def drivers_text(plan: Plan, choice: Choice) -> str:
    """The parties that drive the noise.

    >>> from tpmdp.spec import Spec
    >>> equal = make_plan(Spec(epsilon=[0.1, 0.9, 1], delta=1e-6, threshold=1, names=["bank", "lab", "city"]))
    >>> drivers_text(equal, choices(equal)[0])
    'bank 99 %, lab 1 %'
    """
    named = [f"{short_name(plan.spec, party, 18)} {100 * share:.0f} %" for party, share in choice.drivers]
    rest = 1 - sum(share for _, share in choice.drivers)
    if not named:
        return "many parties" if choice.noise else "nobody"
    return ", ".join(named) + (", others" if rest > _SHARE_MIN else "")


def choices_json(plan: Plan, every: list[Choice]) -> dict[str, Any]:
    """The weightings as JSON values."""
    return {
        "kind": plan.weights.kind,
        "assumes": plan.weights.assumes or None,
        "scale": plan.weights.scale,
        "width": plan.weights.width,
        "spread": plan.weights.spread,
        "choices": [
            {
                "weights": choice.kind,
                "expected_error": choice.expected_error,
                "noise": choice.noise,
                "spread_error": choice.spread_error,
                "bias_bound": choice.bias_bound,
                "drivers": {plan.spec.name(party): share for party, share in choice.drivers},
                "other_drivers": max(0.0, 1 - sum(share for _, share in choice.drivers)) if choice.noise else 0.0,
                "this_plan": choice.chosen,
                "baseline": choice.kind in BASELINES,
            }
            for choice in every
        ],
    }
