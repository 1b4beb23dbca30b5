"""Studies and releases as HTML, for notebooks."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from typing import Any, Final

from tpmdp._util.html import html_table, html_text
from tpmdp._util.numbers import interval, number, rounded
from tpmdp.ledger import rounded_up
from tpmdp.queries.answer import Answer, further_names
from tpmdp.queries.base import BaseQuery
from tpmdp.queries.ranges import Range
from tpmdp.spec import Party

ERROR_BARS: Final = "Error bars cover the noise and rounding added for privacy, not sampling."
WEIGHTED_BARS: Final = "Error bars cover the effect of weights, and the noise and rounding added for privacy."


def study_html(
    title: str, summary: str, parties: Sequence[Party], *, receivers: Collection[str], queries: Sequence[BaseQuery]
) -> str:
    """A study: its parties with their budgets, and its queries."""
    members = [
        [
            each.name,
            str(each.records),
            number(each.epsilon),
            number(each.delta),
            "yes" if each.name in receivers else "",
        ]
        for each in parties
    ]
    asked = [[query.name, query.kind_name(), settings_text(query)] for query in queries]
    return (
        html_text(title, "h4")
        + html_text(summary, "p")
        + html_table(["party", "records", "epsilon", "delta", "receives"], members)
        + html_table(["query", "kind", "settings"], asked)
    )


def settings_text(query: BaseQuery) -> str:
    """What a query reads and how, in one line.

    >>> from tpmdp.queries.catalogue import make_query
    >>> settings_text(make_query({"name": "stay", "kind": "mean", "column": "days", "low": 0, "high": 30}))
    'column days, low 0, high 30'
    """
    pairs = [(key, value) for key, value in query.settings().items() if key not in ("name", "kind")]
    return ", ".join(f"{key} {_value(value)}" for key, value in pairs)


def _value(value: Any) -> str:
    if isinstance(value, Range):
        return f"{value.column} from {number(value.low)} to {number(value.high)}"
    if isinstance(value, float):
        return number(value)
    if isinstance(value, Mapping):
        return ", ".join(f"{key}: {_value(each)}" for key, each in value.items())
    return " and ".join(map(_value, value)) if isinstance(value, tuple | list) else str(value)


def answers_html(answers: Sequence[Answer]) -> str:
    """Answers with their error bars, and what the error bars cover."""
    weighted = any(answer.always is not None for answer in answers)
    noted = any(answer.note for answer in answers)
    parted = any(answer.part for answer in answers)
    headings = ["query", *["part"] * parted, "answer", "standard error", "95 % interval"]
    further = further_names(answers)
    headings += ["95 % interval, whatever the data"] * weighted
    headings += [*(f"95 % interval of {name}" for name in further), *["note"] * noted]
    rows = []
    for answer in answers:
        error = answer.standard_error
        drowned = math.isnan(answer.value)
        value = ["-", ""] if drowned else [rounded(answer.value, error), rounded(error, error)]
        cells = [answer.query, *[answer.part] * parted, *value, interval(*answer.interval, error)]
        cells += [interval(*(answer.always or answer.interval), error)] * weighted
        others = map(answer.further_interval, further)
        cells += [*("" if each is None else interval(*each, error) for each in others), *[answer.note] * noted]
        rows.append(cells)
    return html_table(headings, rows) + html_text(WEIGHTED_BARS if weighted else ERROR_BARS, "p")


def charges_html(charges: Sequence[tuple[str, bool, float, float]]) -> str:
    """What parties got and were charged: name, whether it received the answer, epsilon and delta of each."""
    rows = [
        [name, "answer" if got else "receipt", rounded_up(epsilon), number(delta)]
        for name, got, epsilon, delta in charges
    ]
    return html_table(["party", "got", "charged epsilon", "at delta"], rows)


def answer_rows(answers: Sequence[Answer]) -> list[dict[str, Any]]:
    """One mapping per answer, for a data frame; infinite where there is no error bar.

    >>> answer_rows([Answer("old", 12.0, 2.0)])[0]["standard_error"]
    2.0
    """
    weighted, further = any(answer.always is not None for answer in answers), further_names(answers)
    rows = []
    for answer in answers:
        low, high = answer.interval
        row = {"query": answer.query, "part": answer.part, "value": answer.value}
        row |= {"standard_error": answer.standard_error, "low": low, "high": high}
        if weighted:
            always = answer.always or answer.interval
            row |= {"noise": answer.noise, "always_low": always[0], "always_high": always[1]}
        for name in further:
            ends = answer.further_interval(name) or (math.nan, math.nan)
            row |= {f"{name.replace(' ', '_')}_{end}": each for end, each in zip(("low", "high"), ends, strict=True)}
        rows.append({**row, "note": answer.note})
    return rows
