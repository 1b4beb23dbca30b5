"""A report on a session as one HTML page that needs nothing else: no network, no script, no other file.

The page is a function of the record inside it, so `read_page` can tell whether anything in it was changed.
"""

from __future__ import annotations

import html
import json
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from tpmdp._util.files import readable
from tpmdp._version import __version__
from tpmdp.engines.contract import lacks_noise
from tpmdp.errors import FileError, InputError
from tpmdp.ledger import Entry, promise, rounded_up, square_up
from tpmdp.queries.answer import Z_95, Answer
from tpmdp.queries.base import BaseQuery
from tpmdp.queries.catalogue import KINDS, Kinds
from tpmdp.queries.subset import SubsetQuery
from tpmdp.report.markup import Html, joined, name, names, table, tag
from tpmdp.report.numbers import number, plural
from tpmdp.report.page_style import STYLE
from tpmdp.report.panels import interval_text, panels
from tpmdp.report.promise import PartyPromise, percent_up, promises_of
from tpmdp.report.style import BLUE, GREY
from tpmdp.report.svg import Chart, Line, bars, intervals, lines
from tpmdp.report.sweep import Sweep, sweep
from tpmdp.study.expectation import expect
from tpmdp.study.fingerprint import phrase_of
from tpmdp.study.identity import public_key_text
from tpmdp.study.record import SessionRecord

SIZE_MAX: Final = 64 << 20
_MARK: Final = "tpmdp-record"
_RECORD: Final = re.compile(rf'<pre id="{_MARK}">([^<]*)</pre>')
_POLICY: Final = "default-src 'none'; style-src 'unsafe-inline'"
_ROWS_MAX: Final = 60  # longer tables show the first ones
_ANSWERS_MAX: Final = 200
_REMEDY: Final = "name a file that tpmdp report or tpmdp join --out wrote"


def page(record: SessionRecord) -> str:
    """The report as HTML."""
    study = record.study
    title = f"Privacy report: {study.label}"
    body = joined([*_sections(record), _record(record)])
    head = joined(
        [
            Html('<meta charset="utf-8">'),
            Html(f'<meta http-equiv="Content-Security-Policy" content="{html.escape(_POLICY, quote=True)}">'),
            Html('<meta name="viewport" content="width=device-width, initial-scale=1">'),
            Html('<meta name="robots" content="noindex">'),
            tag("title", title),
            Html(f"<style>{STYLE}</style>"),
        ],
        "\n",
    )
    return f'<!DOCTYPE html>\n<html lang="en">\n<head>\n{head}\n</head>\n<body>\n{body}\n</body>\n</html>\n'


def read_page(path: Path, kinds: Kinds = KINDS) -> tuple[SessionRecord, bool | None]:
    """The record inside a report, and whether the page around it is what the record says.

    None: another version of tpmdp wrote it, so that pages cannot be compared.
    """
    text = read_text(path)
    matches = _RECORD.findall(text)
    if len(matches) != 1:
        raise FileError(path, "is not a report of tpmdp", _REMEDY)
    record = parse_record(path, html.unescape(matches[0]), kinds)
    if record.written_by != __version__:
        return record, None
    return record, page(record) == text


def parse_record(path: Path, text: str, kinds: Kinds = KINDS) -> SessionRecord:
    """The record in a text that came from this file."""
    try:
        document = json.loads(text)
    except (ValueError, RecursionError):
        raise FileError(path, "is not the record of a session", _REMEDY) from None
    try:
        return SessionRecord.parse(document, kinds)
    except InputError as error:
        raise FileError(path, f"holds a record that cannot be read ({error})", _REMEDY) from None


def read_text(path: Path) -> str:
    """The text of a file that may come from anybody."""
    with readable(path, SIZE_MAX):
        data = path.read_bytes()
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError:
        raise FileError(path, "is not UTF-8 text", _REMEDY) from None


# Sections -------------------------------------------------------------------------------------------------------------


def _sections(record: SessionRecord) -> Iterator[Html]:
    promised = promises_of(record.terms)
    yield _header(record)
    yield _glance(record)
    yield _asked(record)
    yield _answer(record) if record.answers is not None else _expected(record)
    yield _promise(record, promised)
    yield _coalitions(record, promised)
    yield _charges(record)
    yield _sweep(record)
    yield _verify(record)


def _header(record: SessionRecord) -> Html:
    parts = [
        tag("p", "Privacy report", class_="kind"),
        tag("h1", name(record.study.label)),
        tag("p", _status(record), class_="status"),
    ]
    boxes = []
    if record.answers is not None:
        boxes.append(tag("p", tag("strong", "This file holds the answer. "), who_may_see(record), class_="warning"))
    if lacks_noise(record.terms):
        text = "Receivers learn the exact answer, and no budget is kept."
        boxes.append(tag("p", tag("strong", "No noise is added. "), text, class_="warning"))
    if record.missing:
        lost = sum(record.study.party(each).records for each in record.missing)
        text = joined(["Dropped out: ", names(record.missing), f". Their {lost:,} records are not counted."])
        boxes.append(tag("p", text, class_="warning"))
    return joined([tag("header", *parts), *boxes])


def _status(record: SessionRecord) -> str:
    if record.is_draft:
        return "Draft: the parties have no keys yet. Nothing was signed, run or charged."
    if record.status == "planned":
        return "Before the session: a plan. No ledger was given, so this report says nothing about charges."
    if record.status == "settled":
        ended = max(each.entries[-1].time for each in record.parties if each.status == "settled")
        return f"The session ended on {_time(ended)}."
    if record.status == "charged":
        return "The session was charged and has not ended."
    return "Room is set aside for the session; nothing was charged."


def who_may_see(record: SessionRecord) -> Html:
    """Who may see the answer, and why nobody else."""
    study = record.study
    if len(study.receivers) == len(study.parties):
        return Html("All parties receive it, and the promises below hold if it is published.")
    only = joined(["Only ", names(study.receivers), " may see it: "])
    return joined([only, "the promises and charges below assume that nobody else does."])


def _glance(record: SessionRecord) -> Html:
    study = record.study
    protects = "each record" if study.unit == "record" else "all records of a party at once"
    many = plural(study.threshold, "party", "parties")
    drop = f"; {plural(study.tolerate, 'party', 'parties')} may drop out" if study.tolerate else ""
    rows: list[tuple[str, object]] = [
        ("Parties", f"{len(study.parties)}, with {study.records:,} records"),
        ("Protected", protects),
        ("May work together", f"up to {many}{drop}"),
        ("Receive the answer", names(study.receivers)),
        ("Kind of guarantee", record.guarantee),
    ]
    charged = [each for each in record.parties if each.charge is not None][:_ROWS_MAX]
    if charged:
        costs = [
            tag("div", name(each.party), f": epsilon {rounded_up(record.charge_of(each.party))}") for each in charged
        ]
        rows.append(("Charged", joined(costs)))
    cells = [cell for key, value in rows for cell in (tag("dt", key), tag("dd", value))]
    return tag("section", tag("h2", "At a glance"), tag("dl", *cells))


def _asked(record: SessionRecord) -> Html:
    rows = [[name(query.name), question_text(query)] for query in record.study.queries]
    leaves = dict.fromkeys(_inner(query).leaves for query in record.study.queries)
    what = [tag("li", text) for text in leaves if text]
    return tag(
        "section",
        tag("h2", "What is asked"),
        table(["query", "question"], rows),
        tag("p", "Records stay with their party. This leaves it, only with noise, and masked or shared:"),
        tag("ul", *what),
        tag("p", "All queries are one release: each has its share of one budget.", class_="note"),
    )


def _answer(record: SessionRecord) -> Html:
    answers = record.answers or ()
    weighted = any(answer.always is not None for answer in answers)
    headings = ["query", "answer", "95 % interval", *(["whatever the data"] if weighted else []), ""]
    rows = [_answer_row(answer, weighted) for answer in answers[:_ANSWERS_MAX]]
    pictures = []
    for panel in panels(record.study, answers):
        drawn = bars(panel) if panel.upright else intervals(panel)
        notes = [tag("p", note, class_="note") for note in panel.notes]
        pictures.append(tag("figure", tag("figcaption", name(panel.title)), drawn, *notes))
    covered = "the effect of weights, and the noise" if weighted else "the noise"
    more = len(answers) - len(rows)
    cut = [tag("p", f"{more} more are in the record below.", class_="note")] if more > 0 else []
    assumed = record.study.assumes
    return tag(
        "section",
        tag("h2", "The answer"),
        tag("p", who_may_see(record)),
        table(headings, rows, numbers={1, 2, *([3] if weighted else [])}),
        *cut,
        tag("p", f"Intervals cover {covered} and rounding added for privacy, not sampling.", class_="note"),
        *([tag("p", f"Assumed: {assumed}.", class_="note")] if assumed else []),
        tag("div", *pictures, class_="pictures"),
    )


def _answer_row(answer: Answer, weighted: bool) -> list[object]:
    text = interval_text(answer)
    value, _, interval = text.partition(" (")
    cells: list[object] = [name(answer.label), value, interval.rstrip(")")]
    if weighted:
        low, high = answer.always or answer.interval
        is_known = math.isfinite(high - low)
        cells.append(f"{number(low)} to {number(high)}" if is_known else "no interval")
    return [*cells, answer.note]


def _expected(record: SessionRecord) -> Html:
    rows = []
    for each in expect(record.study).queries:
        for answer in each.answers[:_ROWS_MAX]:
            rows.append([name(answer.label), _within(answer)])
    told = "The answer is not in this file. A receiver can make a report that has it: tpmdp report --with-answer."
    return tag(
        "section",
        tag("h2", "How exact the answer is"),
        *([tag("p", told)] if record.status == "settled" else []),
        table(["answer", "95 % of the time within"], rows[:_ANSWERS_MAX], numbers={1}),
        tag("p", "Expected error of the noise, if values spread evenly over their bounds.", class_="note"),
    )


def _within(answer: Answer) -> str:
    if answer.note:
        return answer.note
    error = answer.standard_error
    return f"+- {number(Z_95 * error)}" if error and math.isfinite(error) else "depends on the data"


def _promise(record: SessionRecord, promised: Sequence[PartyPromise]) -> Html:
    study, terms = record.study, record.terms
    if lacks_noise(terms):
        text = "Nothing is promised: no noise is added, so a receiver may learn about a single record from the answer."
        return tag("section", tag("h2", "The promise in plain words"), tag("p", text))
    unit = "one record" if study.unit == "record" else "all records of one party"
    most = plural(terms.colluders, "party", "parties")
    strongest = max((each for each in promised if math.isfinite(each.offered)), key=lambda each: each.guess, default=None)
    lines_ = [
        tag(
            "p",
            f"Think of somebody who wants to find out about {unit}, who knows all the other data, and who gets the help "
            f"of up to {most}: all that these hold, sent and received. From all of it they learn hardly anything about "
            f"{'that record' if study.unit == 'record' else 'those records'}, because the answer would have looked "
            "almost the same if it had said something else.",
        )
    ]
    if strongest is not None:
        lines_.append(
            tag(
                "p",
                "In numbers: suppose two values are as likely as each other. A blind guess between them is right 50 % of "
                f"the time. With the answer, the best guess is right at most {percent_up(strongest.guess)} of the time "
                "(",
                name(strongest.party),
                "); the table below has each party.",
            )
        )
    not_promised = [
        f"If more than {most} work together, the promise does not hold.",
        "What is true of many people stays visible: a study may show that a habit harms, and that says something about "
        "everybody who has it.",
        "The promise is for this session. Further sessions about the same records add up; each party's ledger counts "
        "them and refuses what goes over its limit.",
        f"It protects {'a record' if study.unit == 'record' else 'a party'}. A person with records at several parties "
        "has less: tpmdp plan --person says how much.",
    ]
    if len(study.receivers) < len(study.parties):
        not_promised.append("The answer must stay with its receivers. To publish it, all parties must be receivers.")
    heading = tag("h3", "What it does not promise")
    items = tag("ul", *(tag("li", text) for text in not_promised))
    return tag("section", tag("h2", "The promise in plain words"), *lines_, heading, items)


def _coalitions(record: SessionRecord, promised: Sequence[PartyPromise]) -> Html:
    study = record.study
    mine = {each.party for each in record.parties}
    shown = list(promised[:_ROWS_MAX]) + [each for each in promised[_ROWS_MAX:] if each.party in mine]
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
        table(headings, rows, numbers={1, 3, 4, 5, 6}),
        *([tag("p", f"{more} more parties are in the record below.", class_="note")] if more > 0 else []),
        tag(
            "p",
            "offered: the budget in the study. real: what the session costs the party against the worst coalition that "
            f"the threshold allows; smaller is safer. against: who would have to work together for that.{drop} "
            "best guess: how often the best guess is right where a blind one is right half the time.",
            class_="note",
        ),
    )


def _charges(record: SessionRecord) -> Html:
    heading = tag("h2", "Charges")
    if not record.parties:
        rows = [
            [name(party.name), number(party.epsilon), rounded_up(record.charge_of(party.name)), number(party.delta)]
            for party in record.study.parties[:_ROWS_MAX]
        ]
        text = tag("p", "What the session would cost. Nothing in this report was charged.")
        return tag(
            "section",
            heading,
            text,
            table(["party", "offered epsilon", "would be charged", "at delta"], rows, numbers={1, 2, 3}),
        )
    cells = [[name(each.party), *_entry_row(entry)] for each in record.parties[:_ROWS_MAX] for entry in each.entries]
    headings = ["ledger of", "entry", "what", "time (UTC)", "epsilon", "in all", "limit", "hash begins"]
    text = "epsilon: of this session alone. in all: of every session in this ledger until then. Both at the limit's delta."
    entries = table(headings, cells, numbers={1, 4, 5, 6})
    return tag("section", heading, entries, tag("p", text, class_="note"))


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
        _time(entry.time).removesuffix(" UTC"),
        alone,
        total,
        limit,
        tag("code", entry.hash[:16]),
    ]


def _sweep(record: SessionRecord) -> Html:
    result = sweep(record.study.spec(), record.study.tolerate)
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
            "How much noise the answer would have if more or fewer parties might work together, and if all budgets were "
            f"larger or smaller by a factor.{weights}",
        ),
        tag("div", *_sweep_pictures(result, unit), class_="pictures"),
        table(headings, rows, numbers=set(range(1, len(headings)))),
        tag("p", f"{unit} (standard deviation). 0: no noise, and no protection from a receiver.", class_="note"),
    )


def _times(value: float, result: Sweep) -> str:
    return f"{value:.3g}{' x' if result.is_relative else ''}" if value else "0"


def _sweep_pictures(result: Sweep, unit: str) -> Iterator[Html]:
    curve = list(zip(map(float, result.thresholds), result.by_threshold, strict=True))
    step = max(1, math.ceil(len(result.thresholds) / 9))
    ticks = [(float(each), str(each)) for each in result.thresholds[::step]]
    ends = (curve[0][0], curve[-1][0])
    drawn = [Line("plan of least noise", BLUE, curve, has_dots=len(curve) <= 15)]
    if result.is_relative:
        level = result.curator
        drawn.append(Line("trusted curator", GREY, [(ends[0], level), (ends[1], level)], "4 3", has_dots=False))
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


def _verify(record: SessionRecord) -> Html:
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
        rows.append(["hash of study and plan", tag("code", terms.plan_hash.hex(), class_="long")])
        rows.append(["session", tag("code", terms.session.hex(), class_="long")])
        rows += [
            [joined(["key of ", name(terms.spec.name(index))]), tag("code", public_key_text(key), class_="long")]
            for index, key in enumerate(terms.roster[:_ROWS_MAX])
        ]
        rows += [
            [joined(["ledger of ", name(each.party)]), joined([f"head at entry {each.head[0]}: ", tag("code", each.head[1], class_="long")])]
            for each in record.parties[:_ROWS_MAX]
        ]
    return tag(
        "section",
        tag("h2", "How to check this report"),
        tag("ol", *(tag("li", step) for step in steps)),
        table(["what", "value"], rows),
    )


def _record(record: SessionRecord) -> Html:
    """The record as text. It is ASCII, and escaped, so no part of it is markup."""
    summary = tag("summary", "The record: study, plan, ledger entries and hashes, for programs")
    return tag("details", summary, tag("pre", record.text(), id=_MARK))


# Words ----------------------------------------------------------------------------------------------------------------


def _inner(query: BaseQuery) -> BaseQuery:
    while isinstance(query, SubsetQuery):
        query = query.query
    return query


def question_text(query: BaseQuery) -> str:
    """What a query asks, in words.

    >>> from tpmdp.queries.catalogue import make_query
    >>> question_text(make_query({"name": "old", "kind": "count", "column": "age", "at_least": 65, "where": "sex = 1"}))
    'How many records have age at least 65, among records with sex = 1?'
    """
    settings = query.settings()
    text = _question(settings)
    text += f", among records with {settings['where']}" if "where" in settings else ""
    for column, values in settings.get("by", {}).items():
        text += f", for each {column} of {_value(values)}"
    weight = f" It has {number(settings['weight'])} times the usual share of the budget." if "weight" in settings else ""
    return f"{text}?{weight}"


def _question(settings: Mapping[str, Any]) -> str:
    kind, column = settings["kind"], settings.get("column")
    within = f"(values are cut to {_value(settings['low'])} to {_value(settings['high'])})" if "low" in settings else ""
    bounds = f"(bounds: {_value(settings['bounds'])})" if "bounds" in settings else ""
    if kind == "count" and column is not None:
        ends = [f"at least {_value(settings['at_least'])}"] if "at_least" in settings else []
        ends += [f"below {_value(settings['below'])}"] if "below" in settings else []
        return f"How many records have {column} {' and '.join(ends)}"
    if kind == "histogram":
        places = f"with edges {_value(settings['edges'])}" if "edges" in settings else ""
        places = places or (f"over {_value(settings['categories'])}" if "categories" in settings else "")
        return f"How many records fall into each part of {column} {places}".rstrip()
    if kind == "quantiles":
        return f"Which values of {column} lie above these shares of records: {_value(settings['probabilities'])} {within}"
    if kind == "maximum":
        return f"The largest of the parties' answers to: {_question(settings['of'].settings())}"
    words: dict[str, str] = {
        "count": "How many records are there",
        "sum": f"What is the sum of {column} {within}",
        "mean": f"What is the mean of {column} {within}",
        "variance": f"What is the variance of {column} {within}",
        "covariance": f"How do these columns vary together {bounds}",
        "correlation": f"How are these columns correlated {bounds}",
        "linear_regression": f"How does {settings.get('target')} depend on the others, by a line {bounds}",
        "vertical_regression": f"How does {settings.get('target')} depend on the others, by a line {bounds}",
    }
    if kind in words:
        return words[kind].strip()
    rest = {key: value for key, value in settings.items() if key not in ("name", "kind", "weight", "where", "by")}
    return f"{kind.replace('_', ' ')} ({'; '.join(f'{key}: {_value(value)}' for key, value in rest.items())})"


def _value(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:g}"
    if hasattr(value, "column") and hasattr(value, "width"):  # bounds of a column
        return f"{value.column} from {value.low:g} to {value.high:g}"
    if isinstance(value, tuple | list):
        return ", ".join(_value(each) for each in value)
    return str(value)


def _time(text: str) -> str:
    return text.removesuffix("+00:00").replace("T", " ") + " UTC"
