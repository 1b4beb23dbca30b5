"""Tables: the catalogue of queries, what a study would give, and results of a search for sensitivities."""

from __future__ import annotations

import inspect
import math
from collections.abc import Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from tpmdp.ledger import rounded_up
from tpmdp.queries.answer import Z_95, Answer
from tpmdp.queries.base import BaseQuery
from tpmdp.queries.catalogue import EXAMPLES, Kinds, keys_of
from tpmdp.queries.preview import PreviewedError
from tpmdp.queries.subset import SubsetQuery
from tpmdp.queries.vertical_moments import VerticalMoments
from tpmdp.report.numbers import number, plain_number, three_digits
from tpmdp.report.tables import add_numbers, new_table

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

    from tpmdp.queries.search import SearchResult
    from tpmdp.study.expectation import Expectation, ExpectedQuery
    from tpmdp.study.model import Study

_ANSWERS_MAX = 12  # a query with more answers shows its first ones


def about(kind: type[BaseQuery]) -> str:
    """The first line of the docstring of the class."""
    return (inspect.getdoc(kind) or "").split("\n", 1)[0]


def keys_text(kind: type[BaseQuery]) -> str:
    """The keys of a kind in a study file, optional ones in brackets."""
    required, optional = keys_of(kind)
    parts = ["[where]", "[by]"] if kind.has_parts else []
    return ", ".join([*required, *(f"[{key}]" for key in optional), *parts])


def print_kinds(kinds: Kinds, console: Console) -> None:
    """The catalogue."""
    from rich.markup import escape

    table = new_table("Kinds of queries", "kind", "what it tells", "keys")
    for name, kind in kinds.items():
        table.add_row(name, escape(about(kind)), escape(keys_text(kind)))
    table.caption = escape("[key]: may be left out. where: a condition; by: groups. More: tpmdp query explain KIND.")
    console.print(table)


def print_kind(name: str, kinds: Kinds, console: Console) -> None:
    """One kind: its answers, what leaves the party, and an example."""
    from rich.markup import escape

    kind = kinds[name]
    console.print(escape(f"{name}: {about(kind)}"))
    console.print(escape(f"Leaves the party, with noise, and masked or shared: {kind.leaves or 'see its author'}."))
    console.print(escape(f"Keys: name, {keys_text(kind)}"))
    if name in EXAMPLES:
        console.print("In a study file:\n")
        console.print(escape("[[queries]]\n" + EXAMPLES[name].strip() + "\n"), soft_wrap=True)
    console.print("With --study FILE: its sensitivity and expected error in that study.")


def print_expectation(study: Study, expected: Expectation, kind: str | None, console: Console) -> None:
    """Sensitivity and expected error of each query of a study, and the charges."""
    from rich.markup import escape

    shown = [each for each in expected.queries if kind in (None, each.query.settings()["kind"])]
    if text := no_noise_text(study, expected):
        console.print(escape(text))
    table = new_table(escape(f"Queries of {study.label}"), "query", "kind")
    apart = any(each.apart is not None for each in shown)
    for heading in ["entries", "sensi-\ntivity", "noise of\nan entry", *(["if asked\napart"] if apart else [])]:
        table.add_column(heading, justify="right", no_wrap=True)
    for each in shown:
        low, high = map(number, each.sensitivity)
        cells = [each.query.name, each.query.settings()["kind"], f"{each.entries:,}"]
        cells += [high if low == high else f"{low} to {high}", number(each.noise)]
        cells += [] if each.apart is None else [f"{each.apart:.2f} x"]
        table.add_row(*map(escape, cells))
    table.caption = "noise: standard error." + (
        " apart: in separate studies that share the budgets equally." if apart else ""
    )
    console.print(table)
    for text in dict.fromkeys(leaves_text(each.query) for each in shown):
        names = ", ".join(each.query.name for each in shown if leaves_text(each.query) == text)
        console.print(escape(f"Leaves each party for {names}, with noise: {text}."))
    if text := rounds_text(study):
        console.print(escape(text))
    console.print()
    console.print(expected_table(study, shown))
    if study.assumes:
        console.print(escape(f"Assumed: {study.assumes}."))
    console.print(_charges_table(study, expected))


def rounds_text(study: Study) -> str:
    """How a study goes on by rounds, in words; empty if it has one session only."""
    if study.rounds == 1:
        return ""
    last = [query.name for query in study.queries if study.schedule.own_number(query, study.rounds) == 1]
    by_rounds = ", ".join(query.name for query in study.queries if query.name not in last)
    rest = f" {', '.join(last)} {'is' if len(last) == 1 else 'are'} asked in the last one." if last else ""
    return (
        f"{study.rounds} rounds, one after the other, each with noise of its own: {by_rounds} goes on in each from "
        f"what the round before gave.{rest} All parties learn the result of every round, and what it costs is for all "
        "rounds together."
    )


def no_noise_text(study: Study, expected: Expectation) -> str:
    """A warning that receivers learn the exact answer; empty if noise is added."""
    if study.threshold == 0:
        learn = "every receiver learns" if len(study.receivers) > 1 else f"{study.receivers[0]} learns"
        return (
            f"WARNING: threshold = 0 adds no noise: {learn} the exact answer. No budget is kept, and no ledger with a "
            "limit takes part. Set threshold = 1 or more."
        )
    if not any(expected.charges.values()):
        return "No noise would be added, as there is nobody to protect: receivers learn the exact answer."
    return ""


def _charges_table(study: Study, expected: Expectation) -> Table:
    from rich.markup import escape

    charges = new_table("What it would cost", "party")
    weighted = not study.weights.are_equal
    for heading in ("offered\nepsilon", "charged\nepsilon", "at\ndelta", *(["weight"] if weighted else [])):
        charges.add_column(heading, justify="right")
    for party, weight in zip(study.parties, study.weights.each.tolist(), strict=True):
        cells = [party.name, rounded_up(party.epsilon), rounded_up(expected.charges[party.name]), number(party.delta)]
        cells += [number(weight)] if weighted else []
        charges.add_row(*map(escape, cells))
    charges.caption = "Nothing was run or charged."
    return charges


def leaves_text(query: BaseQuery) -> str:
    """What leaves the party for a query, in words; that of the inner query for `where` and `by`."""
    if isinstance(query, SubsetQuery):
        return f"{leaves_text(query.query)}; and how many records count, where the answer needs it"
    return query.leaves or "what its author says"


def expected_table(study: Study, shown: Sequence[ExpectedQuery]) -> Table:
    """The error to expect of each answer."""
    from rich.markup import escape

    table = new_table("Expected error", "answer")
    table.add_column("95 % of the time within", justify="right")
    weighted = any(answer.always is not None for each in shown for answer in each.answers)
    if weighted:
        table.add_column("whatever the data", justify="right")
    for each in shown:
        pairs = [
            (answer, error)
            for answer, error in zip(each.answers, each.errors, strict=True)
            if answer.part not in each.query.fine_parts
        ]
        for answer, error in pairs[:_ANSWERS_MAX]:
            cells = [_half(answer)] if weighted else []
            table.add_row(escape(answer.label), escape(error_text(error)), *cells)
        if len(pairs) > _ANSWERS_MAX:
            table.add_row(escape(f"{each.query.name}: {len(pairs) - _ANSWERS_MAX} more"), "")
    table.caption = escape(assumed_text(study, shown)) or None
    return table


def error_text(error: PreviewedError) -> str:
    """The error of an answer in words.

    >>> from tpmdp.queries.preview import PreviewedError
    >>> error_text(PreviewedError(1.0, 1.0, 1.0)), error_text(PreviewedError(1.0, 0.5, 4.0, weak_most=0.2))
    ('+- 1.96', 'about +- 1.96 (0.980 to 7.84), depends on the data; may drown')
    >>> error_text(PreviewedError(None, 0.5, 0.5, drowned=1.0, reason="too few records"))
    '- (would drown: too few records)'
    """
    if error.is_guess and error.likely is None:
        return "cannot be known"
    if error.would_drown or error.likely is None or error.least is None or error.most is None:
        reason = error.reason.removeprefix("drowned by the noise").removeprefix("drowned: ")
        return f"- (would drown: {reason})" if reason else "- (would drown in the noise)"
    likely, least, most = (three_digits(Z_95 * each) for each in (error.likely, error.least, error.most))
    if error.is_known:
        return f"+- {number(Z_95 * error.likely)}" if error.likely else "exact"
    drown = "; may drown" if error.may_drown else ""
    if error.weak >= 0.5:
        return f"about +- {likely}, without an interval: {error.reason.partition(';')[0]}"
    if error.is_fine:
        return f"less than a bin ({three_digits(error.resolution)}){drown}"
    if error.is_guess:
        return f"perhaps +- {likely}: it cannot be known{drown}"
    if error.most <= error.least:
        return f"+- {likely}{drown}"
    return f"about +- {likely} ({least} to {most}), depends on the data{drown}"


def assumed_text(study: Study, shown: Sequence[ExpectedQuery]) -> str:
    """What the errors assume, where they depend on the data."""
    simulated = [each for each in shown if any(error.is_simulated and not error.is_known for error in each.errors)]
    if not simulated:
        return ""
    settings = [each.query.settings() for each in simulated]
    guesses, assumed = study.typical, []
    ranges = [bounds.column for each in simulated for bounds in each.query.ranges_of("")]
    vertical = [each.query for each in simulated if isinstance(each.query, VerticalMoments)]
    ranges += [bounds.column for query in vertical for bounds in query.bounds]
    guessed = {each.column for each in guesses.columns}
    if guesses.settings():
        assumed.append("the typical values that the study states")
    if set(ranges) - guessed:
        assumed.append(
            "values about the middle of their bounds, with a standard deviation of a sixth of the range, or of 0.4 for "
            "bounds 0 and 1 (or spread evenly; or with a third of that deviation, far from the middle)"
        )
    several = any(len(each.query.ranges_of("")) > 1 for each in simulated) or len(set(ranges)) > 1
    if several and guesses.correlation is None:
        assumed.append("any two columns correlated by 0.3 (or 0, or 0.6)")
    followed = [entry for entry in settings if "event" in entry and entry.get("time") not in guessed]
    if followed:
        known = {entry["event"] for entry in followed} <= guessed or guesses.share is not None
        shares = "" if known else "half the records have an event by the end (or all, or a tenth); "
        rate = "events come at a constant rate, and a fifth of the records drop out evenly (or all end early)"
        assumed.append(shares + rate)
    conditions = any("where" in entry or entry["kind"] == "logistic_regression" for entry in settings)
    if conditions and guesses.share is None:
        assumed.append("half the records meet a condition (or all, or a tenth)")
    if any("by" in entry for entry in settings):
        assumed.append("groups of equal size (or a quarter of that)")
    text = f"Assumed: {'; '.join(assumed)}." if assumed else ""
    errors = [error for each in simulated for error in each.errors]
    if any("depends on the data" in error_text(error) for error in errors):
        text += " In brackets: for other plausible data."
        text += (
            ""
            if guesses.settings()
            else " A study that states typical values (its table `typical`) can tell it better."
        )
    if any(error.is_guess for error in errors):
        text += " Cannot be known: a custom query without `typical` sums, or too large to simulate."
    if any(error.may_drown for error in errors):
        text += " May drown: more than 1 run in 40 would give no answer, or no interval."
    if any(error.may_drown or error.would_drown or error.weak >= 0.5 for error in errors):
        is_fit = any("regression" in entry["kind"] for entry in settings)  # narrow bounds hide what it looks for
        bounds = "" if is_fit else "narrower bounds, "
        text += f" Against large noise: larger budgets, {bounds}fewer queries, or `weight` for this query."
    return text.strip()


def _half(answer: Answer) -> str:
    """Half the interval that holds for any data."""
    low, high = answer.always or answer.interval
    return f"+- {number((high - low) / 2)}" if math.isfinite(high - low) else "no interval"


def expectation_json(study: Study, expected: Expectation) -> dict[str, Any]:
    """The same as plain JSON values."""
    return {
        "study": study.label,
        "weights": {
            "kind": study.weighting,
            "assumes": study.assumes or None,
            "parties": dict(zip(study.party_records, study.weights.each.tolist(), strict=True)),
        },
        "queries": [expected_json(each) for each in expected.queries],
        "charges": {name: plain_number(epsilon) for name, epsilon in expected.charges.items()},
    }


def expected_json(each: ExpectedQuery) -> dict[str, Any]:
    """One query as plain JSON values."""
    return {
        "query": each.query.name,
        "kind": each.query.settings()["kind"],
        "leaves": leaves_text(each.query),
        "entries": each.entries,
        "sensitivity": list(each.sensitivity),
        "noise_of_an_entry": each.noise,
        "noise_if_asked_apart": each.apart,
        "expected": [
            {**answer.plain(), "preview": _preview_json(error)}
            for answer, error in zip(each.answers, each.errors, strict=True)
        ],
    }


def _preview_json(error: PreviewedError) -> dict[str, Any]:
    return {
        "known": error.is_known,
        "standard_error": error.likely,
        "least": error.least,
        "most": error.most,
        "share_drowned": error.drowned,
        "share_weak": error.weak,
        "share_weak_most": error.weak_most,
        "reason": error.reason or None,
        "resolution": error.resolution or None,
    }


def print_searches(rows: Sequence[tuple[str, SearchResult]], skipped: Sequence[str], console: Console) -> None:
    """Results of searches, one line for each query and unit."""
    from rich.markup import escape

    table = new_table("Declared sensitivity against the largest change found", "query", "unit")
    add_numbers(table, "declared", "found", "share")
    table.add_column("verdict")
    for name, result in rows:
        share = f"{100 * result.largest / result.declared if result.declared else 0.0:.1f} %"
        cells = [name, result.unit, number(result.declared), number(result.largest), share, result.verdict]
        table.add_row(*map(escape, cells))
    table.caption = "For parties of five records. A search can show that a sensitivity is wrong, not prove it right."
    console.print(table)
    for name in skipped:
        console.print(escape(f"{name} is a non-additive query and was not searched; its proof is in the theory pages."))


def searches_json(rows: Sequence[tuple[str, SearchResult]]) -> list[dict[str, Any]]:
    """The same as plain JSON values."""
    return [{"query": name, **asdict(result), "verdict": result.verdict} for name, result in rows]
