"""The sections of a report on what is promised, what it costs and how to check it."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Final

from tpmdp.engines.contract import lacks_noise
from tpmdp.ledger import Entry, promise, rounded_up, square_up
from tpmdp.report.markup import Html, joined, name, names, table, tag
from tpmdp.report.noise_sweep import NoiseSweep, noise_sweep
from tpmdp.report.numbers import number, plural
from tpmdp.report.promise import PartyPromise, percent_up
from tpmdp.report.style import BLUE, GREY
from tpmdp.report.svg import Chart, Line, lines
from tpmdp.study.fingerprint import phrase_of
from tpmdp.study.identity import public_key_text
from tpmdp.study.record import SessionRecord

ROWS_MAX: Final = 60  # longer tables show the first ones


def promise_section(record: SessionRecord, promised: Sequence[PartyPromise]) -> Html:
    """The promise in plain words, and what it leaves out."""
    study, terms = record.study, record.terms
    if lacks_noise(terms):
        text = "Nothing is promised: no noise is added, so a receiver may learn about a single record from the answer."
        return tag("section", tag("h2", "The promise in plain words"), tag("p", text))
    unit = "one record" if study.unit == "record" else "all records of one party"
    most = plural(terms.colluders, "party", "parties")
    limited = [each for each in promised if math.isfinite(each.offered)]
    weakest = max(limited, key=lambda each: each.guess, default=None)
    words = [
        tag(
            "p",
            f"Think of somebody who wants to find out about {unit}, who knows all other data, and who has the help "
            f"of up to {most}: all that these hold, sent and received. From all of it they learn hardly anything about "
            f"{'that record' if study.unit == 'record' else 'those records'}, because the answer would have looked "
            "almost the same if it had said something else.",
        )
    ]
    if weakest is not None:
        words.append(
            tag(
                "p",
                "In numbers: suppose two values are as likely as each other. A blind guess between them is right 50 % "
                f"of the time. With the answer, the best guess is right at most {percent_up(weakest.guess)} of the "
                "time, for ",
                name(weakest.party),
                "; the table below has each party.",
            )
        )
    not_promised = [
        f"If more than {most} work together, the promise does not hold.",
        "It counts on the other parties to add their noise, as this software does.",
        "What is true of many people stays visible: a study may show that a habit harms, and that says something about "
        "everybody who has it.",
        "The promise is for this session. Further sessions about the same records add up; each party's ledger counts "
        "them and refuses what goes over its limit.",
        f"It protects {'a record' if study.unit == 'record' else 'a party'}. A person with records at several parties "
        "has less: tpmdp plan --person says how much.",
    ]
    if not study.computation.uses_relay:
        not_promised.append(
            "It holds against parties that pool what they see, not against some that send wrong messages."
        )
    if len(study.receivers) < len(study.parties):
        not_promised.append("The answer must stay with its receivers. To publish it, all parties must be receivers.")
    heading = tag("h3", "What it does not promise")
    items = tag("ul", *(tag("li", text) for text in not_promised))
    return tag("section", tag("h2", "The promise in plain words"), *words, heading, items)


def coalitions_section(record: SessionRecord, promised: Sequence[PartyPromise]) -> Html:
    """What each party offers and is promised, against whom."""
    study = record.study
    mine = {each.party for each in record.parties}
    shown = list(promised[:ROWS_MAX]) + [each for each in promised[ROWS_MAX:] if each.party in mine]
    rows = []
    for each in shown:
        who = names(each.coalition) if each.coalition else Html("nobody can attack")
        rows.append(
            [
                name(each.party),
                f"{study.party(each.party).records:,}",
                "yes" if each.receives else "",
                number(each.offered),
                number(each.delta),
                rounded_up(each.epsilon),
                percent_up(each.guess),
                who,
            ]
        )
    headings = ["party", "records", "receives", "offered epsilon", "at delta", "real epsilon", "best guess", "against"]
    more = len(promised) - len(shown)
    drop = " Those that drop out count as members." if study.tolerate else ""
    return tag(
        "section",
        tag("h2", "Each party and its worst coalition"),
        table(headings, rows, numbers={1, 3, 4, 5, 6}, has_cards=True),
        *([tag("p", f"{more} more parties are in the record below.", class_="note")] if more > 0 else []),
        tag(
            "p",
            "offered: the budget in the study. real: what the session costs the party against the worst coalition that "
            f"the threshold allows; smaller is safer. against: who would have to work together for that.{drop} "
            "best guess: how often the best guess is right where a blind one is right half the time.",
            class_="note",
        ),
    )


def charges_section(record: SessionRecord) -> Html:
    """What the session cost, by the ledgers, or would cost."""
    heading = tag("h2", "Charges")
    if not record.parties:
        rows = [
            [name(party.name), number(party.epsilon), rounded_up(record.charge_of(party.name)), number(party.delta)]
            for party in record.study.parties[:ROWS_MAX]
        ]
        text = tag("p", "What the session would cost. Nothing in this report was charged.")
        return tag(
            "section",
            heading,
            text,
            table(["party", "offered epsilon", "would be charged", "at delta"], rows, numbers={1, 2, 3}),
        )
    cells = [[name(each.party), *_entry_row(entry)] for each in record.parties[:ROWS_MAX] for entry in each.entries]
    headings = ["ledger of", "entry", "what", "time (UTC)", "epsilon", "in all", "limit", "hash begins"]
    note = "epsilon: of this session alone. in all: of every session in this ledger until then. At the limit's delta."
    entries = table(headings, cells, numbers={1, 4, 5, 6}, has_cards=True)
    return tag("section", heading, entries, tag("p", note, class_="note"))


def _entry_row(entry: Entry) -> list[object]:
    priced = entry.is_charge or entry.kind == "hold"
    delta = entry.limit_delta
    alone = rounded_up(promise(square_up(entry.mu), entry.closeness, delta)) if priced else ""
    total = rounded_up(promise(entry.mu_squared_total, entry.closeness_total, delta))
    limit = f"{number(entry.limit_epsilon)} at {number(delta)}"
    words = {"hold": "room set aside", "settle": f"ended: {entry.outcome}"}
    return [
        entry.number,
        words.get(entry.kind, "charged"),
        show_time(entry.time).removesuffix(" UTC"),
        alone,
        total,
        limit,
        tag("code", entry.hash[:16]),
    ]


def sweep_section(record: SessionRecord) -> Html:
    """The noise for other thresholds and budgets."""
    result = noise_sweep(record.study.spec(), record.study.tolerate)
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
        table(headings, rows, numbers=set(range(1, len(headings)))),
        tag("p", f"{unit} (standard deviation). 0: no noise, and no protection from a receiver.", class_="note"),
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
        drawn.append(Line("trusted curator", GREY, [(ends[0], level), (ends[1], level)], dash="4 3", has_dots=False))
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
                tag("code", "tpmdp verify report.html"),
                ": reads the record at the end of this file, proves in exact arithmetic that the plan keeps every "
                "budget, recomputes hashes and charges, and compares this page with the record.",
            ]
        )
    ]
    rows: list[list[object]] = [["version of tpmdp", record.written_by]]
    if record.is_draft:
        steps.append(Html("Once all parties have keys, a new report has the hash of what they will sign."))
    else:
        steps.append(
            joined(
                [
                    tag("code", "tpmdp verify report.html --ledger YOUR.ledger"),
                    ": also compares with your ledger, which whoever made this file cannot have changed.",
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
