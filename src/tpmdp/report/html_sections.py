"""The sections of a report on what the session costs, how noise changes, and how to check the report."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from typing import Final

from tpmdp.ledger import Entry, left_text, promise, rounded_up, square_up
from tpmdp.report.html_promise import ROWS_MAX
from tpmdp.report.markup import Html, joined, name, table, tag
from tpmdp.report.noise_sweep import NoiseSweep, noise_sweep
from tpmdp.report.numbers import number
from tpmdp.report.style import BLUE, GREY
from tpmdp.report.svg import Chart, Line, lines
from tpmdp.study.fingerprint import phrase_of
from tpmdp.study.identity import public_key_text
from tpmdp.study.record import SessionRecord

_ROUND: Final = re.compile(r" / session \d+, (round \d+)$")


def charges_section(record: SessionRecord) -> Html:
    """What the session cost, by the ledgers, or would cost."""
    if not record.parties:
        heading = tag("h2", "What it would cost")
        rows = [
            [name(party.name), number(party.epsilon), rounded_up(record.charge_of(party.name)), number(party.delta)]
            for party in record.study.parties[:ROWS_MAX]
        ]
        charged = "Nothing was charged yet." if record.is_draft else "This report shows no charge."
        text = tag("p", f"Each party, if the session is held. {charged}")
        return tag(
            "section",
            heading,
            text,
            table(["party", "offered epsilon", "would be charged", "at delta"], rows, numbers={1, 2, 3}),
        )
    heading = tag("h2", "Charges")
    cells = [[name(each.party), *_entry_row(entry)] for each in record.parties[:ROWS_MAX] for entry in each.entries]
    headings = ["ledger of", "entry", "what", "time (UTC)", "epsilon", "in all", "limit", "hash begins"]
    note = "epsilon: of this session alone. in all: of every session in this ledger until then. At the limit's delta."
    entries = table(headings, cells, numbers={1, 4, 5, 6}, has_cards=True)
    return tag("section", heading, entries, tag("p", note, class_="note"), *_balances(record))


def _balances(record: SessionRecord) -> Iterator[Html]:
    """The ledgers when the report was made, and which limits were changed after the session."""
    yield tag("h3", "The ledgers when this report was made")
    rows, changed = [], []
    for each in record.parties[:ROWS_MAX]:
        balance, last = each.balance, each.entries[-1]
        limit = _limit_text(*balance.limit)
        left = left_text(balance.left, balance.limit_epsilon)
        rows.append([name(each.party), limit, rounded_up(balance.spent), left, each.head[0], each.later])
        before = _limit_text(last.limit_epsilon, last.limit_delta)
        if balance.limit != (last.limit_epsilon, last.limit_delta):
            text = f" was changed after this session: it was {before} and is {limit}."
            changed.append(tag("p", tag("strong", "The limit of ", name(each.party), text)))
    headings = ["ledger of", "limit", "spent in all", "left for one more", "entries in all", "after this session"]
    yield table(headings, rows, numbers={1, 2, 3, 4, 5}, has_cards=True)
    yield from changed
    yield tag(
        "p",
        "left for one more: the largest epsilon of one further session; it is more than limit less spent, because the "
        "noise of several sessions adds up in squares. entries in all: as tpmdp ledger verify counts "
        "them; besides those of sessions a ledger has one when it is made, one for its key and one for each new limit.",
        class_="note",
    )


def _limit_text(epsilon: float, delta: float) -> str:
    return f"{number(epsilon)} at {number(delta)}"


def _entry_row(entry: Entry) -> list[object]:
    priced = entry.is_charge or entry.kind == "hold"
    delta = entry.limit_delta
    alone = rounded_up(promise(square_up(entry.mu), entry.closeness, delta)) if priced else ""
    total = rounded_up(promise(entry.mu_squared_total, entry.closeness_total, delta))
    limit = _limit_text(entry.limit_epsilon, delta)
    words = {"hold": "room set aside", "settle": f"ended: {entry.outcome}"}
    part = _ROUND.search(entry.study)
    return [
        entry.number,
        f"{part[1]}: {words.get(entry.kind, 'charged')}" if part else words.get(entry.kind, "charged"),
        show_time(entry.time).removesuffix(" UTC"),
        alone,
        total,
        limit,
        tag("code", entry.hash[:16]),
    ]


def sweep_section(record: SessionRecord) -> Html:
    """The noise for other thresholds and budgets."""
    result = noise_sweep(record.study.spec())
    unit = "noise, against this study" if result.is_relative else "noise in the sum that is released"
    headings = ["may collude", *(f"budgets x {number(factor)}" for factor in result.columns)]
    rows = []
    for threshold, cells in zip(result.rows, result.cells, strict=True):
        here = threshold == result.threshold
        label = tag("span", f"{threshold} (this study)", class_="here") if here else str(threshold)
        texts = [_times(value, result) for value in cells]
        marked = [
            tag("span", text, class_="here") if here and factor == 1.0 else text
            for factor, text in zip(result.columns, texts, strict=True)
        ]
        rows.append([label, *marked])
    weights = "" if record.study.weights.are_equal else " The weights are those of this study throughout."
    return tag(
        "section",
        tag("h2", "Other thresholds and budgets"),
        tag(
            "p",
            "How much noise the answer would have if more or fewer parties might work together, and if all budgets "
            f"were larger or smaller by a factor.{weights}",
        ),
        tag("div", *_sweep_pictures(result, unit), class_="pictures"),
        table(headings, rows, numbers=set(range(1, len(headings))), has_cards=True),
        tag(
            "p",
            f"{unit} (standard deviation). 0: no noise, and no protection from a receiver. one trusted office: if one "
            "that all trust held all data.",
            class_="note",
        ),
    )


def _times(value: float, result: NoiseSweep) -> str:
    return f"{value:.3g}{' x' if result.is_relative else ''}" if value else "0"


def _sweep_pictures(result: NoiseSweep, unit: str) -> Iterator[Html]:
    curve = list(zip(map(float, result.thresholds), result.by_threshold, strict=True))
    step = max(1, math.ceil(len(result.thresholds) / 9))
    ticks = [(float(each), str(each)) for each in result.thresholds[::step]]
    ends = (curve[0][0], curve[-1][0])
    drawn = [Line("plan of least noise", BLUE, curve, has_dots=len(curve) <= 15)]
    if result.is_relative:
        level = result.curator
        drawn.append(
            Line(
                "one trusted office",
                GREY,
                [(ends[0], level), (ends[1], level)],
                dash="4 3",
                has_dots=False,
            )
        )
    mark = (float(result.threshold), 1.0) if result.is_relative else None
    chart = Chart("threshold: how many parties may collude", unit, drawn, mark=mark, ticks=ticks)
    yield tag("figure", tag("figcaption", "Noise against the threshold"), lines(chart, "Noise against the threshold"))
    points = list(zip(result.factors, result.by_factor, strict=True))
    if result.is_relative and len(points) > 1 and all(y > 0 for _, y in points):
        texts = {0.125: "1/8", 0.25: "1/4", 0.5: "1/2", 1.0: "1", 2.0: "2", 4.0: "4", 8.0: "8"}
        marks = [(x, texts[x]) for x, _ in points if x in texts]
        line = Line("this threshold", BLUE, points)
        chart = Chart("all budgets (epsilon), times", unit, [line], mark=(1.0, 1.0), is_log=True, ticks=marks)
        yield tag("figure", tag("figcaption", "Noise against the budgets"), lines(chart, "Noise against the budgets"))


def verify_section(record: SessionRecord) -> Html:
    """How to check the report, with all hashes."""
    terms = record.terms
    steps = [
        joined(
            [
                "Open Verify on the page (",
                tag("code", "tpmdp page"),
                ") and drop this file there; or ",
                tag("code", "tpmdp verify report.html"),
                ". It reads the record at the end of this file, proves in exact arithmetic that the plan keeps every "
                "budget, recomputes hashes and charges, and compares this page with the record.",
            ]
        )
    ]
    keyless = _long(terms.keyless_hash.hex())
    rows: list[list[object]] = [["version of tpmdp", record.written_by], ["hash of the study without keys", keyless]]
    if record.is_draft:
        steps.append(
            joined(
                [
                    "Keep the hash of the study without keys with your approval. Once all parties have keys, ",
                    tag("code", "tpmdp fingerprint study.toml"),
                    " and every report print it again: the same hash means the study that you approved.",
                ]
            )
        )
    else:
        steps.append(
            joined(
                [
                    "Compare it with your ledger, on the page or with ",
                    tag("code", "tpmdp verify report.html --ledger YOUR.ledger"),
                    ". Who holds the ledger and the key of a party can make another "
                    "ledger; so auditors keep its head from earlier, and compare (",
                    tag("code", "tpmdp ledger verify YOUR.ledger --head HEAD"),
                    ").",
                ]
            )
        )
        steps.append(
            joined(
                [
                    "Compare the ten words with the other parties by telephone, or with ",
                    tag("code", "tpmdp fingerprint study.toml"),
                    ": the same words mean the same parties, keys, budgets, queries and plan.",
                ]
            )
        )
        steps.append(Html("Compare the hash of the study without keys with the draft that you approved."))
        rows.append(["ten words", tag("strong", " ".join(phrase_of(terms.plan_hash)))])
        rows.append(["hash of study and plan", _long(terms.plan_hash.hex())])
        rows.append(["session", _long(terms.session.hex())])
        rows += [
            [joined(["key of ", name(terms.spec.name(index))]), _long(public_key_text(key))]
            for index, key in enumerate(terms.roster[:ROWS_MAX])
        ]
        rows += [
            [
                joined(["ledger of ", name(each.party)]),
                joined([f"head at entry {each.head[0]}: ", _long(each.head[1])]),
            ]
            for each in record.parties[:ROWS_MAX]
        ]
    return tag(
        "section",
        tag("h2", "How to check this report"),
        tag("p", tag("strong", "Keep this HTML file: "), "only it can be verified, not a print of it."),
        tag("ol", *(tag("li", step) for step in steps)),
        table(["what", "value"], rows),
    )


def _long(text: str) -> Html:
    return tag("code", text, class_="long")


def show_time(text: str) -> str:
    """A moment in a ledger, for people.

    >>> show_time("2026-11-16T15:30:32+00:00")
    '2026-11-16 15:30:32 UTC'
    """
    return text.removesuffix("+00:00").replace("T", " ") + " UTC"
