"""What a picture of answers shows: a panel for each query, with its rows and the words on its axes."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

from tpmdp.queries.answer import Answer
from tpmdp.queries.base import BaseQuery
from tpmdp.report.numbers import interval, rounded

if TYPE_CHECKING:
    from tpmdp.study.model import Study

_AXES: Final[Mapping[str, str]] = {  # what is drawn, by kind of query; the names of columns are filled in
    "count": "records",
    "histogram": "records",
    "sum": "sum of {column}",
    "mean": "mean of {column}",
    "variance": "variance of {column}, in its units squared",
    "quantiles": "{column}",
    "covariance": "covariance",
    "correlation": "correlation coefficient",
}
_EFFECT: Final = "change in {target} from one end of an input's bounds to the other"
_LOG_ODDS: Final = "change in log-odds from one end of an input's bounds to the other"


@dataclass(frozen=True)
class Row:
    """One number of a panel, as it is drawn, and the answer in words beside it."""

    label: str
    text: str
    value: float
    low: float
    high: float
    always: tuple[float, float] | None = None
    note: str = ""

    @property
    def is_drawn(self) -> bool:
        """Whether there is a number to draw."""
        return math.isfinite(self.value)


@dataclass(frozen=True)
class Panel:
    """The answers of one query. `upright`: a histogram, whose bars stand side by side over the axis `across`."""

    title: str
    axis: str
    rows: tuple[Row, ...]
    upright: bool = False
    across: str = ""
    from_zero: bool = False
    notes: tuple[str, ...] = ()


def panels(study: Study, answers: Sequence[Answer]) -> list[Panel]:
    """A panel for each query of the study that has answers.

    >>> from tpmdp.study.model import Study
    >>> parties = [{"name": "bank", "epsilon": 1, "records": 9}, {"name": "lab", "epsilon": 2, "records": 5}]
    >>> query = {"name": "old", "kind": "count", "column": "age", "at_least": 65}
    >>> study = Study.parse({"name": "demo", "delta": 1e-6, "threshold": 1, "receivers": ["bank"],
    ...                      "parties": parties, "queries": [query]})
    >>> [(panel.title, panel.axis, panel.rows[0].text) for panel in panels(study, [Answer("old", 7.2, 1.0)])]
    [('old', 'records', '7 (5 to 10)')]
    """
    return [
        _panel(query.settings(), [answer for answer in answers if answer.query == query.name], whole_numbers(query))
        for query in study.queries
        if any(answer.query == query.name for answer in answers)
    ]


def whole_numbers(query: BaseQuery) -> bool:
    """Whether the answers are numbers of records, and shown as whole numbers."""
    return query.counts and not query.code


def interval_text(answer: Answer, whole: bool = False) -> str:
    """An answer with its 95 % interval, which is rounded outwards.

    >>> interval_text(Answer("old", 7.25, 1.0)), interval_text(Answer("old", 7.25, math.inf))
    ('7.2 (5.2 to 9.3)', '7.25 (no interval)')
    """
    (low, high), error = answer.interval, answer.standard_error
    if not math.isfinite(answer.value):
        return "-"
    if not math.isfinite(high - low):
        return f"{rounded(answer.value, error, whole)} (no interval)"
    return f"{rounded(answer.value, error, whole)} ({interval(low, high, error, whole=whole)})"


def axis_text(settings: Mapping[str, Any]) -> str:
    """The words on the axis of a query's answers.

    >>> axis_text({"kind": "mean", "column": "days"}), axis_text({"kind": "of my own"})
    ('mean of days', 'answer')
    """
    inner = settings.get("of")
    if inner is not None:  # the largest of the parties' answers
        return f"{axis_text(inner)}, largest of all parties"
    return _AXES.get(settings["kind"], "answer").format(column=settings.get("column", "the column"))


def _panel(settings: Mapping[str, Any], answers: Sequence[Answer], whole: bool) -> Panel:
    kind, name = str(settings["kind"]), str(settings["name"])
    notes = tuple(dict.fromkeys(answer.note for answer in answers if answer.note))
    if kind.endswith("regression"):
        return _coefficients(settings, answers, notes)
    rows = tuple(replace(_row(answer), text=interval_text(answer, whole)) for answer in answers)
    upright = kind == "histogram" and len(rows) > 1 and "by" not in settings
    across = str(settings.get("column", ""))
    return Panel(name, axis_text(settings), rows, upright=upright, across=across, notes=notes)


def _row(answer: Answer, label: str | None = None, scale: float = 1.0) -> Row:
    low, high = answer.interval
    always = None if answer.always is None else (answer.always[0] * scale, answer.always[1] * scale)
    return Row(
        answer.part if label is None else label,
        interval_text(answer),
        answer.value * scale,
        low=low * scale,
        high=high * scale,
        always=always,
        note=answer.note,
    )


def _coefficients(settings: Mapping[str, Any], answers: Sequence[Answer], notes: tuple[str, ...]) -> Panel:
    """Coefficients have different units: drawn is what each input changes over its bounds, beside the coefficient."""
    bounds = {each.column: each for each in settings["bounds"]}
    rows, others = [], []
    for answer in answers:
        *groups, last = answer.part.split(", ")
        if last in bounds:
            where = bounds[last]
            ends = f"{last}, {where.low:g} to {where.high:g}"
            row = _row(answer, ", ".join([*groups, ends]), scale=where.width)
            rows.append(replace(row, text=f"{row.text} per unit"))
        else:
            others.append(f"{answer.part}: {interval_text(answer)}")
    target = str(settings.get("target", "the target"))
    axis = _LOG_ODDS if settings["kind"] == "logistic_regression" else _EFFECT.format(target=target)
    return Panel(str(settings["name"]), axis, tuple(rows), from_zero=True, notes=(*others, *notes))
