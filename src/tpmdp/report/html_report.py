"""A report on a session as one HTML page that needs nothing else: no network, no script, no other file.

The page is a function of the record inside it, so `read_page` can tell whether anything in it was changed.
"""

from __future__ import annotations

import html
import json
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

from tpmdp._util.fields import in_file
from tpmdp._util.files import readable
from tpmdp._version import __version__
from tpmdp.engines.contract import lacks_noise
from tpmdp.errors import FileError
from tpmdp.ledger import rounded_up
from tpmdp.queries.answer import Answer, further_names
from tpmdp.queries.catalogue import KINDS, Kinds
from tpmdp.report.html_asked import deadline_words, leaving_list, stated_rows
from tpmdp.report.html_promise import ROWS_MAX, coalitions_section, learns_section, person_section, promise_section
from tpmdp.report.html_sections import charges_section, show_time, sweep_section, verify_section
from tpmdp.report.html_style import STYLE
from tpmdp.report.markup import Html, joined, name, names, table, tag
from tpmdp.report.numbers import interval, plural, with_sign
from tpmdp.report.panels import interval_text, panels
from tpmdp.report.promise import promises_of
from tpmdp.report.queries import assumed_text, error_text, rounds_text
from tpmdp.report.questions import question_text
from tpmdp.report.release import count_queries, covered_text, in_tables
from tpmdp.report.svg import bars, curves, intervals
from tpmdp.study.expectation import ExpectedQuery, expect
from tpmdp.study.record import SessionRecord

SIZE_MAX: Final = 64 << 20
_MARK: Final = "tpmdp-record"
_RECORD: Final = re.compile(rf'<pre id="{_MARK}">([^<]*)</pre>')
_POLICY: Final = "default-src 'none'; style-src 'unsafe-inline'"
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
    if not isinstance(document, dict):
        raise FileError(path, "is not the record of a session", _REMEDY)
    with in_file(path):
        return SessionRecord.parse(document, kinds)


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
    promised = promises_of(record.joint_terms, not record.study.computation.is_sum)
    yield _header(record)
    yield _glance(record)
    yield _asked(record)
    yield answer_section(record) if record.answers is not None else _expected(record)
    yield learns_section(record)
    yield promise_section(record, promised)
    yield coalitions_section(record, promised)
    yield from person_section(record)
    yield charges_section(record)
    yield sweep_section(record)
    yield verify_section(record)


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
        return "Draft: not all parties have keys yet. Nothing was signed, run or charged."
    if record.status == "planned":
        return "A plan: no ledger was given, so this report shows no session and no charge, and what it would cost."
    if record.status == "settled":
        ended = max(each.entries[-1].time for each in record.parties if each.status == "settled")
        return f"The session ended on {show_time(ended)}."
    if record.status == "charged":
        return "The session was charged and has not ended."
    return "Room is set aside for the session; nothing was charged."


def who_may_see(record: SessionRecord) -> Html:
    """Who may see the answer, and why nobody else."""
    study = record.study
    if len(study.receivers) == len(study.parties):
        return Html("All parties receive it, and the promises below hold if it is published.")
    only = joined(["Only ", names(study.receivers), " may see it: "])
    rest = "the promises below assume that nobody else does. To publish it breaks the promise to "
    return joined([only, rest, names([party.name for party in study.parties if party.records]), "."])


def _glance(record: SessionRecord) -> Html:
    study = record.study
    protects = "each record" if study.unit == "record" else "all records of a party at once"
    many = plural(study.threshold, "party", "parties")
    drop = f"; {plural(study.tolerate, 'party', 'parties')} may drop out" if study.tolerate else ""
    rows: list[tuple[str, object]] = [
        *stated_rows(study),
        ("Parties", f"{len(study.parties)}, with {study.records:,} records"),
        ("Protected", protects),
        ("May work together", f"up to {many}{drop}"),
        ("Receive the answer", names(study.receivers)),
        ("Kind of guarantee", record.guarantee),
        ("Deadline", deadline_words(study)),
    ]
    charged = [each for each in record.parties if each.charge is not None][:ROWS_MAX]
    if charged:
        costs = [
            tag("div", name(each.party), f": epsilon {rounded_up(record.charge_of(each.party))}") for each in charged
        ]
        rows.append(("Charged", joined(costs)))
    cells = [cell for key, value in rows for cell in (tag("dt", key), tag("dd", value))]
    return tag("section", tag("h2", "At a glance"), tag("dl", *cells))


def _asked(record: SessionRecord) -> Html:
    queries = record.study.queries
    rows = [[name(query.name), question_text(query)] for query in queries]
    shared = "All queries are one release: each has its share of one budget."
    by_rounds = rounds_text(record.study)
    shared = by_rounds or shared
    return tag(
        "section",
        tag("h2", "What is asked"),
        table(["query", "question"], rows),
        *([tag("p", shared, class_="note")] if len(queries) > 1 or by_rounds else []),
        tag("h3", "What leaves a party"),
        leaving_list(record.study),
    )


def answer_section(record: SessionRecord, *, has_cards: bool = False) -> Html:
    """The answers with their intervals, as a table and as pictures."""
    answers = record.answers or ()
    weighted = any(answer.always is not None for answer in answers)
    further = further_names(answers)
    headings = ["query", "answer", "95 % interval", *(["whatever the data"] if weighted else []), *further]
    whole, shown = count_queries(record.study), in_tables(record.study, answers)
    rows = [_answer_row(answer, weighted, further, whole=answer.query in whole) for answer in shown[:_ANSWERS_MAX]]
    pictures = []
    for panel in panels(record.study, answers):
        drawn = (curves if panel.curves else bars if panel.upright else intervals)(panel)
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
        table([*headings, ""], rows, numbers=set(range(1, len(headings))), has_cards=has_cards),
        *cut,
        tag("p", covered_text(covered, further).replace("Error bars", "Intervals"), class_="note"),
        *([tag("p", f"Assumed: {assumed}.", class_="note")] if assumed else []),
        tag("div", *pictures, class_="pictures"),
    )


def _answer_row(answer: Answer, weighted: bool, further: Sequence[str], *, whole: bool) -> list[object]:
    text = interval_text(answer, whole)
    value, _, rest = text.partition(" (")
    cells: list[object] = [name(answer.label), value, rest.rstrip(")")]
    if weighted:
        always = interval(*(answer.always or answer.interval), answer.standard_error, whole=whole)
        cells.append("no interval" if always == "none" else always)
    others = map(answer.further_interval, further)
    cells += ["" if each is None else interval(*each, answer.standard_error, whole=whole) for each in others]
    return [*cells, answer.note]


def _expected(record: SessionRecord) -> Html:
    expected = expect(record.study).queries
    rows = [[label, with_sign(str(text))] for each in expected for label, text in expected_rows(each)]
    assumed = assumed_text(record.study, expected)
    hint = "The answer is not in this file. A receiver can make a report that has it, on the page or with tpmdp report."
    return tag(
        "section",
        tag("h2", "How exact the answer is"),
        *([tag("p", hint)] if record.status == "settled" else []),
        table(["answer", "95 % of the time within"], rows[:_ANSWERS_MAX], numbers={1}),
        *([tag("p", assumed, class_="note")] if assumed else []),
    )


def expected_rows(expected: ExpectedQuery) -> list[list[object]]:
    """A row for each answer of a query; one row if they are many and alike."""
    texts = [error_text(error) for error in expected.errors]
    if len(texts) > 3 and len(set(texts)) == 1:
        return [[joined([name(expected.query.name), f": each of {len(texts)}"]), texts[0]]]
    pairs = zip(expected.answers, texts, strict=True)
    return [[name(answer.label), text] for answer, text in list(pairs)[:ROWS_MAX]]


def _record(record: SessionRecord) -> Html:
    """The record as text. It is ASCII, and escaped, so no part of it is markup."""
    summary = tag("summary", "The record: study, plan, ledger entries and hashes, for programs")
    return tag("details", summary, tag("pre", record.text(), id=_MARK))
