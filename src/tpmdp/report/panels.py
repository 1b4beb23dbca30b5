"""What a picture of answers shows: a panel for each query, with its rows and the words on its axes."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

from tpmdp.queries.answer import Answer
from tpmdp.queries.base import BaseQuery
from tpmdp.queries.kaplan_meier import WITH_SAMPLING, risk_part, survival_part
from tpmdp.queries.log_rank import survival_groups
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
    "distribution": "share of records",
    "covariance": "covariance",
    "correlation": "correlation coefficient",
    "vertical_covariance": "covariance",
    "vertical_correlation": "correlation coefficient",
    "joint_table": "people",
}
_EFFECT: Final = "change in {target} from one end of an input's bounds to the other"
_LOG_MEAN: Final = "change in the logarithm of the mean of {target} from one end of an input's bounds to the other"
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
    full: tuple[float, float] | None = None  # an interval that covers more than the noise

    @property
    def is_drawn(self) -> bool:
        """Whether there is a number to draw."""
        return math.isfinite(self.value)


@dataclass(frozen=True)
class Curve:
    """Answers over places on the axis `across` of a panel: each holds from its place to the next."""

    label: str
    places: tuple[float, ...]
    rows: tuple[Row, ...]
    at_risk: tuple[tuple[float, str], ...] = ()  # numbers below the axis

    def corners(self) -> list[tuple[float, Row]]:
        """The places with their answers, each twice: where a step begins and where it ends.

        >>> rows = tuple(Row("", "", value, value, value) for value in (0.25, 0.75))
        >>> [(place, row.value) for place, row in Curve("", (1.0, 4.0), rows).corners()]
        [(1.0, 0.25), (4.0, 0.25), (4.0, 0.75)]
        """
        ends = (*self.places[1:], self.places[-1])
        pairs = [pair for pair in zip(self.places, self.rows, strict=True) for _ in range(2)]
        shifted = [place for pair in zip(self.places, ends, strict=True) for place in pair]
        return [(place, row) for place, (_, row) in zip(shifted, pairs, strict=True)][:-1]


@dataclass(frozen=True)
class Panel:
    """The answers of one query.

    `upright`: a histogram, whose bars stand side by side over the axis `across`; `curves`: steps over that axis.
    """

    title: str
    axis: str
    rows: tuple[Row, ...]
    upright: bool = False
    across: str = ""
    curves: tuple[Curve, ...] = ()
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
    pairs = [(query, [answer for answer in answers if answer.query == query.name]) for query in study.queries]
    return [
        _survival(query, own) or _with_curves(_panel(query.settings(), own, whole_numbers(query)), query.curve_at)
        for query, own in pairs
        if own
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
    if not math.isfinite(high - low) and not math.isfinite(low):
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
    upright = kind == "histogram" and len(rows) > 1 and "by" not in settings and "ranges" not in settings
    across = str(settings.get("column", ""))
    return Panel(name, axis_text(settings), rows, upright=upright, across=across, notes=notes)


def _with_curves(panel: Panel, curve_at: Sequence[float]) -> Panel:
    """The panel of a query whose answers make up curves, one for each group."""
    places = tuple(curve_at)
    if len(places) < 2 or len(panel.rows) % len(places):
        return panel
    groups = [panel.rows[start : start + len(places)] for start in range(0, len(panel.rows), len(places))]
    names = [rows[0].label.rpartition(", ")[0] for rows in groups]
    return replace(panel, curves=tuple(Curve(name, places, rows) for name, rows in zip(names, groups, strict=True)))


def _survival(query: BaseQuery, answers: Sequence[Answer]) -> Panel | None:
    """The panel of survival curves, which is wide; what else is answered is written below. None for other kinds."""
    groups = survival_groups(query)
    if not groups:
        return None
    by_part, drawn, curves = {answer.part: answer for answer in answers}, set(), []
    for group, each in groups:
        start, times = f"{group}, " if group else "", each.times.tolist()
        survival = {time: start + survival_part(time) for time in times[1:]}
        risks = {time: start + risk_part(time) for time in times}
        drawn |= {*survival.values(), *risks.values()}
        rows = [
            Row("", "", 1.0, low=1.0, high=1.0, full=(1.0, 1.0)),
            *(_row(by_part[part]) for part in survival.values()),
        ]
        at_risk = [(time, by_part[part].value) for time, part in risks.items() if part in by_part]
        numbers = tuple((time, f"{max(round(value), 0):,}") for time, value in at_risk)
        curves.append(Curve(group, tuple(times), tuple(rows), at_risk=numbers))
    others = [answer for answer in answers if answer.part not in drawn]
    notes = [f"{each.part}: {interval_text(each)}{f'; {each.note}' if each.note else ''}" for each in others]
    axis, across = f"survival ({groups[0][1].event})", groups[0][1].time
    return Panel(query.name, axis, tuple(map(_row, others)), across=across, curves=tuple(curves), notes=tuple(notes))


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
        full=answer.further_interval(WITH_SAMPLING),
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
    logarithms = {"logistic_regression": _LOG_ODDS, "poisson_regression": _LOG_MEAN}
    axis = logarithms.get(str(settings["kind"]), _EFFECT).format(target=target)
    return Panel(str(settings["name"]), axis, tuple(rows), from_zero=True, notes=(*others, *notes))
