"""Tables of the kinds of queries, of what a study would give, and of a search for sensitivities."""

from __future__ import annotations

import inspect
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from tpmdp.queries.base import Z_95, Answer, Query
from tpmdp.queries.catalogue import EXAMPLES, JOINT_KINDS, Kinds, keys_of
from tpmdp.queries.joint import JointQuery
from tpmdp.report.numbers import number, plain_number
from tpmdp.report.tables import add_numbers, new_table

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

    from tpmdp.queries.search import Finding
    from tpmdp.study.expectation import Expectation, ExpectedQuery
    from tpmdp.study.model import Study

_ANSWERS_MAX = 12  # a query with more answers shows its first ones


def about(kind: type[Query] | type[JointQuery]) -> str:
    """The first line of what the class says of itself."""
    return (inspect.getdoc(kind) or "").split("\n", 1)[0]


def every_kind(kinds: Kinds) -> Mapping[str, type[Query] | type[JointQuery]]:
    """Sums and others."""
    return {**kinds, **JOINT_KINDS}


def keys_text(kind: type[Query] | type[JointQuery]) -> str:
    """Its keys in a study file, optional ones in brackets."""
    if not issubclass(kind, Query):
        return {"maximum": "of", "vertical_regression": "target, bounds, held_by"}[kind.kind]
    required, optional = keys_of(kind)
    parts = ["[where]", "[by]"] if kind.has_parts else []
    return ", ".join([*required, *(f"[{key}]" for key in optional), *parts])


def print_kinds(kinds: Kinds, console: Console) -> None:
    """The catalogue."""
    from rich.markup import escape

    table = new_table("Kinds of queries", "kind", "what it tells", "keys")
    for name, kind in every_kind(kinds).items():
        table.add_row(name, escape(about(kind)), escape(keys_text(kind)))
    table.caption = "[key]: may be left out. where: a condition; by: groups. More: tpmdp query explain KIND."
    console.print(table)


def print_kind(name: str, kinds: Kinds, console: Console) -> None:
    """One kind: what it tells, what leaves the party, and how to ask for it."""
    from rich.markup import escape

    kind = every_kind(kinds)[name]
    console.print(escape(f"{name}: {about(kind)}"))
    console.print(escape(f"Leaves the party, with noise, and masked or shared: {kind.leaves or 'see its author'}."))
    console.print(escape(f"Keys: name, {keys_text(kind)}"))
    if name in EXAMPLES:
        console.print("In a study file:\n")
        console.print(escape("[[queries]]\n" + EXAMPLES[name].strip() + "\n"), soft_wrap=True)
    console.print("With --study FILE: its sensitivity and expected error in that study.")


def print_expectation(study: Study, expectation: Expectation, kind: str | None, console: Console) -> None:
    """What a study would give: sensitivity and expected error of each query, and the charges."""
    from rich.markup import escape

    shown = [expected for expected in expectation.queries if kind in (None, expected.query.settings()["kind"])]
    if not any(expectation.charges.values()) or study.threshold == 0:
        console.print("No noise would be added (threshold 0, or nobody to protect): receivers learn the exact answer.")
    table = new_table(escape(f"Queries of {study.label}"), "query", "kind")
    apart = any(expected.apart is not None for expected in shown)
    add_numbers(table, "entries", "sensi-\ntivity", "noise of\nan entry", *(["if asked\napart"] if apart else []))
    for expected in shown:
        low, high = map(number, expected.sensitivity)
        cells = [expected.query.name, expected.query.settings()["kind"], f"{expected.entries:,}"]
        cells += [high if low == high else f"{low} to {high}", number(expected.noise)]
        cells += [] if expected.apart is None else [f"{expected.apart:.2f} x"]
        table.add_row(*map(escape, cells))
    caption = "noise: standard error." + (
        " apart: in studies of their own that share the budgets equally." if apart else ""
    )
    table.caption = caption
    console.print(table)
    for text in dict.fromkeys(_leaves(expected.query) for expected in shown):
        names = ", ".join(expected.query.name for expected in shown if _leaves(expected.query) == text)
        console.print(escape(f"Leaves each party for {names}, with noise: {text}."))
    console.print()
    console.print(_expected_table(shown))
    if study.assumes:
        console.print(escape(f"Assumed: {study.assumes}."))
    charges = new_table("What it would cost", "party")
    weighted = not study.weights.are_equal
    add_numbers(charges, "offered\nepsilon", "charged\nepsilon", "at\ndelta", *(["weight"] if weighted else []))
    for member in study.members:
        cells = [member.name, number(member.epsilon), number(expectation.charges[member.name]), number(member.delta)]
        cells += [number(float(study.weights.each[study.index(member.name)]))] if weighted else []
        charges.add_row(*map(escape, cells))
    charges.caption = "Nothing was run or charged."
    console.print(charges)


def _leaves(query: Query | JointQuery) -> str:
    inner = query
    while isinstance(getattr(inner, "query", None), Query):
        inner = inner.query  # type: ignore[union-attr]  # of `where` and `by`
    return inner.leaves


def _expected_table(shown: Sequence[ExpectedQuery]) -> Table:
    from rich.markup import escape

    table = new_table("Expected error, if values spread evenly over their bounds", "answer")
    table.add_column("95 % of the time within", justify="right")
    weighted = any(answer.always is not None for expected in shown for answer in expected.answers)
    if weighted:
        table.add_column("whatever the data", justify="right")
    for expected in shown:
        for answer in expected.answers[:_ANSWERS_MAX]:
            error, (low, high) = answer.standard_error, answer.interval
            half = (high - low) / 2 if answer.always is not None and math.isfinite(high - low) else Z_95 * error
            text = f"+- {number(half)}" if error else "(depends on the data)"
            text = answer.note or text
            cells = [_half(answer)] if weighted else []
            table.add_row(escape(answer.label), escape(text), *cells)
        if len(expected.answers) > _ANSWERS_MAX:
            table.add_row(escape(f"{expected.query.name}: {len(expected.answers) - _ANSWERS_MAX} more"), "")
    kinds = {str(expected.query.settings()["kind"]) for expected in shown}
    assumed = (
        ["where: half the records meet it"] if any("where" in expected.query.settings() for expected in shown) else []
    )
    assumed += ["by: groups of equal size"] if any("by" in expected.query.settings() for expected in shown) else []
    if kinds & {"covariance", "correlation", "linear_regression", "logistic_regression", "vertical_regression"}:
        assumed.append("columns independent (real ones vary less and depend on each other: expect a few times more)")
    table.caption = "Assumed: " + "; ".join(assumed) + "." if assumed else None
    return table


def _half(answer: Answer) -> str:
    """Half the interval that holds whatever the data."""
    low, high = answer.always or answer.interval
    return f"+- {number((high - low) / 2)}" if math.isfinite(high - low) else "no interval"


def expectation_json(study: Study, expectation: Expectation) -> dict[str, Any]:
    """The same as JSON values."""
    return {
        "study": study.label,
        "weights": {
            "kind": study.weighting,
            "assumes": study.assumes or None,
            "parties": dict(zip(study.party_records, study.weights.each.tolist(), strict=True)),
        },
        "queries": [
            {
                "query": expected.query.name,
                "kind": expected.query.settings()["kind"],
                "leaves": _leaves(expected.query),
                "entries": expected.entries,
                "sensitivity": list(expected.sensitivity),
                "noise_of_an_entry": expected.noise,
                "noise_if_asked_apart": expected.apart,
                "expected": [answer.plain() for answer in expected.answers],
            }
            for expected in expectation.queries
        ],
        "charges": {name: plain_number(epsilon) for name, epsilon in expectation.charges.items()},
    }


def print_findings(rows: Sequence[tuple[str, Finding]], skipped: Sequence[str], console: Console) -> None:
    """The results of the search: one line per query and unit."""
    from rich.markup import escape

    table = new_table("Declared sensitivity against the largest change found", "query", "unit")
    add_numbers(table, "declared", "found", "share")
    table.add_column("verdict")
    for name, finding in rows:
        share = finding.largest / finding.declared if finding.declared else 0.0
        cells = [
            name,
            finding.unit,
            number(finding.declared),
            number(finding.largest),
            f"{100 * share:.1f} %",
            finding.verdict,
        ]
        table.add_row(*map(escape, cells))
    table.caption = "For parties of five records. A search can show that a sensitivity is wrong, not prove it right."
    console.print(table)
    for name in skipped:
        console.print(escape(f"{name} is no sum and was not searched; docs/theory.md has its proof."))


def findings_json(rows: Sequence[tuple[str, Finding]]) -> list[dict[str, Any]]:
    """The same as JSON values."""
    return [{"query": name, **asdict(finding), "verdict": finding.verdict} for name, finding in rows]
