"""What weights would do to the answer: equal and balanced ones side by side, and who drives the noise."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from tpmdp.planning.plan import Plan, plan
from tpmdp.planning.weights import Weights
from tpmdp.report.numbers import keep_numbers, number, short_name

if TYPE_CHECKING:
    from rich.table import Table

DRIVERS_MAX: Final = 3
WIDE: Final = 84  # columns of a terminal from which all fits in
_SHARE_MIN: Final = 0.005


@dataclass(frozen=True)
class Choice:
    """A weighting: its error if the assumption holds, in two terms, and the most it can be off if not."""

    kind: str
    noise: float
    spread_error: float
    expected_error: float
    bias_bound: float
    drivers: tuple[tuple[int, float], ...]
    """The parties for which most of the noise is there, with their shares of it."""
    chosen: bool

    @classmethod
    def of(cls, made: Plan, chosen: bool) -> Choice:
        """Of a plan.

        >>> from tpmdp.spec import Spec
        >>> made = plan(Spec(epsilon=[0.1, 1, 1], delta=1e-6, threshold=1))
        >>> [(party, round(share, 2)) for party, share in Choice.of(made, True).drivers]
        [(0, 0.99), (1, 0.01)]
        """
        share = made.drivers()
        first = np.argsort(-share, kind="stable")[:DRIVERS_MAX]
        drivers = tuple((int(party), float(share[party])) for party in first if share[party] >= _SHARE_MIN)
        weights = made.weights
        errors = (made.standard_deviation, weights.spread_error, made.expected_error, weights.bias_bound)
        return cls(weights.kind, *errors, drivers, chosen)


def choices(made: Plan) -> list[Choice]:
    """The plan's own weighting beside equal and balanced ones; those only where planning them is quick.

    Nothing where no noise is added: there is nothing to gain.

    >>> from tpmdp.spec import Spec
    >>> [one.kind for one in choices(plan(Spec(epsilon=[0.1, 1, 1], delta=1e-6, threshold=1)))]
    ['equal', 'balanced']
    """
    spec, own = made.spec, made.weights
    if not made.variance.any():
        return []
    others = ("equal", "balanced") if spec.common_threshold else ()
    found = []
    for kind in others:
        if kind == own.kind:
            found.append(Choice.of(made, True))
        else:
            other = plan(spec, weighting=kind, spread=own.spread or None, records=own.records, width=own.width or None)
            if other.weights.kind == kind:
                found.append(Choice.of(other, False))
    return found if own.kind in others else [*found, Choice.of(made, True)]


def weights_table(made: Plan, every: list[Choice], width: int = 140) -> Table:
    """The trade: error and worst-case bias of each weighting."""
    from rich.box import SIMPLE_HEAD
    from rich.markup import escape
    from rich.table import Table

    table = Table(title="What weights would do", box=SIMPLE_HEAD, title_justify="left", caption_justify="left")
    table.add_column("weights", overflow="fold", min_width=8)
    for heading in ("expected\nerror (RMSE)", "of it\nnoise", "of it\nweights", "worst-case\nbias"):
        table.add_column(heading, justify="right")
    if width >= WIDE:
        table.add_column("the noise is there for", overflow="fold")
    for one in every:
        numbers = (one.expected_error, one.noise, one.spread_error, one.bias_bound)
        name = f"{one.kind} (this plan)" if one.chosen else one.kind
        table.add_row(name, *map(number, numbers), *([escape(drivers_text(made, one))] if width >= WIDE else []))
    weights = made.weights
    table.caption = (
        "Weights other than equal ones assume that they have nothing to do with the data. If not, the answer may be "
        f"off by as much as the worst-case bias. Counted on: {_records(weights)}, values in a range of "
        f"{number(weights.width)}, standard deviation of a party's average {number(weights.spread)}."
    )
    return keep_numbers(table)


def _records(weights: Weights) -> str:
    """How many records the table is for: weights gain most where parties have one."""
    if (weights.records == 1).all():
        return "one record a party (a column records says how many)"
    return f"{int(weights.records.min()):,} to {int(weights.records.max()):,} records a party"


def drivers_text(made: Plan, one: Choice) -> str:
    """Who drives the noise.

    >>> from tpmdp.spec import Spec
    >>> made = plan(Spec(epsilon=[0.1, 1, 1], delta=1e-6, threshold=1, names=["bank", "lab", "city"]))
    >>> drivers_text(made, choices(made)[0])
    'bank 99 %, lab 1 %'
    """
    named = [f"{short_name(made.spec, party, 18)} {100 * share:.0f} %" for party, share in one.drivers]
    rest = 1 - sum(share for _, share in one.drivers)
    if not named:
        return "many parties" if one.noise else "nobody"
    return ", ".join(named) + (", others" if rest > _SHARE_MIN else "")


def choices_json(made: Plan, every: list[Choice]) -> dict[str, Any]:
    """The same as plain JSON values."""
    return {
        "kind": made.weights.kind,
        "assumes": made.weights.assumes or None,
        "scale": made.weights.scale,
        "width": made.weights.width,
        "spread": made.weights.spread,
        "choices": [
            {
                "weights": one.kind,
                "expected_error": one.expected_error,
                "noise": one.noise,
                "spread_error": one.spread_error,
                "bias_bound": one.bias_bound,
                "drivers": {made.spec.name(party): share for party, share in one.drivers},
                "other_drivers": max(0.0, 1 - sum(share for _, share in one.drivers)) if one.noise else 0.0,
                "this_plan": one.chosen,
            }
            for one in every
        ],
    }
