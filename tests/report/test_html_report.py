"""The report as a page: complete, self-contained, without the answer unless asked, and safe from hostile names."""

from __future__ import annotations

import csv
import json
import math
import re
import stat
import tomllib
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

from tests.queries.cases import VERTICAL_KINDS, records_at
from tests.study.sessions import TABLES, Finished, finish, study
from tpmdp import InputError, Study
from tpmdp.errors import FileError
from tpmdp.ledger import left_text, promise, rounded_up, square_up
from tpmdp.planning.person import person_protection
from tpmdp.planning.plan import plan
from tpmdp.queries.answer import Answer
from tpmdp.queries.catalogue import EXAMPLES, KINDS
from tpmdp.queries.rounds import RoundsQuery
from tpmdp.report.answer_file import check_answer_file, write_answer_file
from tpmdp.report.html_report import page, read_page
from tpmdp.report.noise_sweep import noise_sweep
from tpmdp.report.panels import interval_text
from tpmdp.report.plot_release import draw_answers
from tpmdp.report.promise import pair_promises, percent_up, promises_of
from tpmdp.report.questions import question_text
from tpmdp.report.svg import nice_ticks
from tpmdp.study.expectation import expect
from tpmdp.study.record import SessionRecord

EVIL = (
    "<script>alert(1)</script>",
    "\"><img src=x onerror=alert(1)>'",
    "</pre></details><b>&lt;",
    "</style><h1>$x$ \\frac",
    "שלום עולם 1",
    "=cmd|' /C calc'!A0",
)
TAGS = (
    "html head meta title style body header section details summary pre p h1 h2 h3 ul ol li dl dt dd div span strong "
    "code bdi table thead tbody tr th td figure figcaption svg line text circle rect polyline polygon"
)


class Reader(HTMLParser):
    """Elements, attributes and text of a page, as a browser would find them."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: set[str] = set()
        self.attributes: set[str] = set()
        self.words: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        self.attributes |= {name for name, _ in attrs}

    def handle_data(self, data: str) -> None:
        self.words.append(data)

    @property
    def text(self) -> str:
        return " ".join(self.words)


def record(done: Finished, *names: str, with_answer: bool = False) -> SessionRecord:
    ledgers = [done.ledger(name) for name in names]
    try:
        return SessionRecord.of(done.study, ledgers, with_answer=with_answer)
    finally:
        for ledger in ledgers:
            ledger.close()


@pytest.fixture(scope="module")
def done(tmp_path_factory: pytest.TempPathFactory) -> Finished:
    return finish(study(), tmp_path_factory.mktemp("ledgers"))


@pytest.fixture(autouse=True)
def quick_words(monkeypatch: pytest.MonkeyPatch) -> None:
    """The ten words are slow on purpose; tests of the commands have the real ones."""
    monkeypatch.setattr("tpmdp.report.html_sections.phrase_of", lambda digest: [digest.hex()[:8]])


def visible(text: str) -> str:
    """The page without the record."""
    return text[: text.index("<details>")]


def test_a_report_has_everything_a_data_protection_officer_asks_for(done: Finished) -> None:
    text = visible(page(record(done, "south")))
    words = Reader(text).text
    for expected in (
        "How many records have age at least 65?",
        "each record",
        "up to 1 party",
        "computational: holds against coalitions of at most 1 party",
        "the best guess is right at most",
        "What it does not promise",
        "Each party and its worst coalition",
        "room set aside",
        "ended: receipt",
        "Other thresholds and budgets",
        "tpmdp verify report.html --ledger",
        "Keep this HTML file:",
        "masked so that only the sum over all parties can be read",
        ": the number of records in the range, with noise in it, and masked",
        "Purpose not stated",
        "The exact number of records",
        "sealed proof of the state of every other party's ledger",
        "Its operator need not be trusted with data",
        "could have invented some",
        "Nobody can see whether a party did",
        "A party can lie about its data",
        "A party may be charged and get no answer",
        "by a factor of at most e^epsilon",
        "one in a million",
        "if one that all trust held all data",
        done.study.terms().keyless_hash.hex(),
        "The answer is not in this file",
        done.study.terms().plan_hash.hex(),
    ):
        assert expected in words, expected
    assert text.count("<svg") == 2  # thresholds and budgets


def test_the_answer_is_in_it_only_when_asked_and_then_says_who_may_see_it(done: Finished) -> None:
    shown = record(done, "north", with_answer=True)
    assert shown.answers is not None
    value = interval_text(shown.answers[0], whole=True).partition(" ")[0]
    words = Reader(visible(page(shown))).text
    assert "This file holds the answer." in words
    assert re.search(r"Only\s+north\s+and\s+lab\s+may see it", words)
    assert re.search(rf"(?<![\d.]){re.escape(value)}(?![\d.])", words)  # it may be negative
    hidden = page(record(done, "north"))
    assert "holds the answer" not in hidden
    assert repr(shown.answers[0].value)[:8] not in hidden


def test_all_parties_may_publish(tmp_path: Path) -> None:
    done = finish(study(receivers="all"), tmp_path)
    words = Reader(page(record(done, "south", with_answer=True))).text
    assert "All parties receive it, and the promises below hold if it is published." in words
    assert "must stay with its receivers" not in words


def test_the_best_guess_is_that_of_the_party_whose_report_it_is(done: Finished) -> None:
    promised = {each.party: each for each in promises_of(done.study.terms())}
    assert promised["north"].guess != promised["lab"].guess
    for party in ("north", "lab"):
        words = Reader(visible(page(record(done, party)))).text
        guess = percent_up(promised[party].guess)
        assert re.search(rf"right at most {re.escape(guess)} of the time, for\s+{party}", words)


def test_a_new_limit_and_what_is_left_are_shown(tmp_path: Path) -> None:
    done = finish(study(), tmp_path)
    with done.ledger("south") as ledger:
        spent = ledger.spent()
    words = Reader(visible(page(record(done, "south")))).text
    assert left_text(spent.left, 10.0) in words
    assert "was changed after this session" not in words
    with done.ledger("south") as ledger:
        ledger.set_limit(20.0, 1e-5)
    words = Reader(visible(page(record(done, "south")))).text
    assert re.search(
        r"The limit of\s+south\s+was changed after this session: it was 10 at 1e-06 and is 20 at 1e-05", words
    )


def test_a_person_at_two_parties_has_a_number_of_their_own(done: Finished) -> None:
    terms = done.study.terms()
    pairs = pair_promises(terms, range(terms.count))
    assert [each.party for each in pairs] == ["north", "south", "lab"]
    alone = {each.party: each for each in promises_of(terms)}
    for each in pairs:
        (other,) = each.others
        places = [done.study.index(each.party), done.study.index(other)]
        without_grid = person_protection(plan(done.study.spec()), places)
        assert each.epsilon == pytest.approx(without_grid.epsilon, rel=1e-3)
        assert each.epsilon >= max(alone[each.party].epsilon, alone[other].epsilon) * (1 - 1e-12)
        assert each.guess >= alone[each.party].guess
    shown = next(each for each in pairs if each.party == "south")
    words = Reader(visible(page(record(done, "south")))).text
    assert "A person with records at several parties" in words
    assert rounded_up(shown.epsilon, 4) in words
    assert percent_up(shown.guess) in words


def test_one_place_is_the_charge_and_many_parties_take_no_time(done: Finished) -> None:
    terms = done.study.terms()
    for index in range(terms.count):
        assert terms.person_charge([index])[:2] == terms.charge(index)
    parties = [{"name": f"p{place}", "epsilon": 1.0, "records": 5} for place in range(90)]
    many = SessionRecord.of(study(parties=parties, receivers="all"))
    assert pair_promises(many.terms, range(90)) == []
    assert "tpmdp plan study.toml --person a,b,c" in page(many)


def test_one_colluder_more_than_the_threshold_is_shown(done: Finished) -> None:
    terms = done.study.terms()
    for index, each in enumerate(promises_of(terms)):
        mu, closeness = terms.charge(index, 2)
        assert each.beyond == promise(square_up(mu), closeness, each.delta)
        assert each.beyond >= each.epsilon
        text = rounded_up(each.beyond, 4) if math.isfinite(each.beyond) else "no protection"
        assert f">{text}<" in page(record(done))
    two = SessionRecord.of(study(parties=[{"name": name, "epsilon": 1, "records": 2} for name in ("north", "lab")]))
    assert [each.beyond for each in promises_of(two.terms)] == [None, None]


def test_a_draft_can_be_signed() -> None:
    draft = SessionRecord.of(study())
    words = Reader(visible(page(draft))).text
    assert draft.terms.keyless_hash.hex() in words
    assert "Keep the hash of the study without keys with your approval" in words


def test_parties_that_dropped_out_are_named(done: Finished) -> None:
    whole = record(done, "north")
    lost = replace(whole, parties=(replace(whole.parties[0], missing=("south",)),))
    assert "Dropped out: <bdi>south</bdi>. Their 3 records are not counted." in page(lost)


def test_right_to_left_names_do_not_reorder_numbers() -> None:
    name = EVIL[4]
    answers = (Answer("old", 7.0, 1.0, part=name),)
    text = page(replace(SessionRecord.of(study()), answers=answers))
    assert f">\u2068{name}\u2069: 7 (5 to 9)<" in text


def test_nothing_is_fetched_or_executed(done: Finished) -> None:
    text = page(record(done, "north", with_answer=True))
    reader = Reader(text)
    assert reader.tags <= set(TAGS.split())
    assert not {name for name in reader.attributes if name.startswith("on") or name in ("src", "href", "action")}
    assert not re.search(r"https?://|url\(|@import", text)
    assert "default-src &#x27;none&#x27;" in text


@pytest.mark.slow
def test_names_from_outside_never_become_markup(tmp_path: Path) -> None:
    queries = [{"name": each, "kind": "count", "column": each, "at_least": 65} for each in EVIL]
    queries += [{"name": f"h {each}", "kind": "histogram", "column": each, "edges": [0, 50, 100]} for each in EVIL[1:3]]
    tables = {name: dict.fromkeys(EVIL, table["age"]) for name, table in TABLES.items()}
    done = finish(study(name=EVIL[0], queries=queries), tmp_path, tables)
    whole = record(done, "north", "south", "lab", with_answer=True)
    drafts = [SessionRecord.of(study(name=evil, queries=queries)) for evil in EVIL[1:3]]
    for each in (whole, *drafts):
        text = page(each)
        reader = Reader(text)
        assert reader.tags <= set(TAGS.split())
        assert not {name for name in reader.attributes if name.startswith("on") or name == "src"}
        assert all(evil in reader.text for evil in EVIL)
        file = tmp_path / "report.html"
        file.write_text(text, encoding="utf-8")
        again, same = read_page(file)
        assert same
        assert again.text() == each.text()
    draw_answers(done.study, whole.answers or (), tmp_path / "answers.svg")
    assert "<script>" not in (tmp_path / "answers.svg").read_text()
    write_answer_file(whole, tmp_path / "answer.csv")
    rows = read_csv(tmp_path / "answer.csv")
    assert not [row for row in rows if row["query"][0] in "=+@-"]
    assert f"'{EVIL[-1]}" in [row["query"] for row in rows]


def read_csv(path: Path) -> list[dict[str, str]]:
    with path.open(newline="") as stream:
        return list(csv.DictReader(stream))


@pytest.mark.parametrize("change", [("%", "&"), ("<p", "<p hidden"), ("north", "north "), ("</body>", "x</body>")])
def test_a_changed_page_is_noticed(done: Finished, tmp_path: Path, change: tuple[str, str]) -> None:
    file = tmp_path / "report.html"
    text = page(record(done, "north", with_answer=True))
    start = text.index("<body>")
    changed = text[:start] + text[start:].replace(*change, 1)
    file.write_text(changed)
    assert read_page(file)[1] is False


def test_a_page_of_another_version_is_not_compared(done: Finished, tmp_path: Path) -> None:
    file = tmp_path / "report.html"
    file.write_text(page(replace(record(done, "north"), written_by="9.9.9")) + "\n")
    read, same = read_page(file)
    assert (read.written_by, same) == ("9.9.9", None)


@pytest.mark.parametrize(
    ("data", "complaint"),
    [
        (b"", "is not a report"),
        (b"<html></html>", "is not a report"),
        (b"\xff\xfe", "is not UTF-8"),
        (b'<pre id="tpmdp-record">{</pre>', "is not the record"),
        (b'<pre id="tpmdp-record">[]</pre>', "is not the record"),
        (b'<pre id="tpmdp-record">{}</pre>', "is not tpmdp.session version 2"),
        (b'<pre id="tpmdp-record">{}</pre><pre id="tpmdp-record">{}</pre>', "is not a report"),
        (b'<pre id="tpmdp-record">' + b"[" * 100_000 + b"</pre>", "is not the record"),
    ],
)
def test_what_is_no_report_is_refused(tmp_path: Path, data: bytes, complaint: str) -> None:
    file = tmp_path / "report.html"
    file.write_bytes(data)
    with pytest.raises(FileError, match=complaint):
        read_page(file)


@pytest.mark.parametrize(
    "changes",
    [
        {"threshold": 0},
        {"unit": "party"},
        {
            "tolerate": 1,
            "parties": [{"name": f"p{place}", "epsilon": 1.0, "records": 5} for place in range(4)],
            "receivers": "all",
        },
        {"weighting": "balanced"},
        {"guarantee": "statistical"},
        {"parties": [{"name": f"p{place}", "epsilon": 1.0, "records": 5} for place in range(70)], "receivers": "all"},
        {
            "parties": [{"name": "a", "epsilon": math.inf, "records": 5}, {"name": "b", "records": 0}],
            "receivers": ["b"],
        },
    ],
    ids=["no noise", "by party", "drop-outs", "weights", "pads", "many", "without budgets"],
)
def test_every_kind_of_study_has_a_report(changes: dict[str, Any], tmp_path: Path) -> None:
    draft = SessionRecord.of(study(**changes))
    text = page(draft)
    assert ">nan" not in visible(text)
    assert "Draft:" in text
    if changes.get("threshold") == 0:
        assert "No noise is added." in text
        assert "Nothing is promised" in text
    file = tmp_path / "draft.html"
    file.write_text(text)
    assert read_page(file)[1]


def example(kind: str, **more: Any) -> Study:
    query = tomllib.loads(EXAMPLES[kind]) | more
    if kind in VERTICAL_KINDS:
        counts = records_at(query, ("bank", "school", "family"), 50)
        parties = [{"name": name, "epsilon": 1.0, "records": records} for name, records in counts.items()]
        return study(parties=parties, receivers=["bank"], queries=[query])
    return study(queries=[query], **({"receivers": "all"} if issubclass(KINDS[kind], RoundsQuery) else {}))


@pytest.mark.parametrize("kind", sorted(KINDS))
def test_every_kind_of_query_is_worded_and_drawn(kind: str, tmp_path: Path) -> None:
    planned = example(kind)
    (query,) = planned.queries
    assert question_text(query)[-1] in "?."
    assert "<" not in question_text(query).replace("<=", "")
    answers = tuple(answer for each in expect(planned).queries for answer in each.answers)
    text = page(replace(SessionRecord.of(planned), answers=answers))
    assert text.count("<svg") == 3
    assert "nan" not in "".join(re.findall(r"<svg.*?</svg>", text, re.DOTALL))
    draw_answers(planned, answers, tmp_path / "answers.png")


def test_functions_on_shares_say_that_data_leave_as_shares() -> None:
    words = Reader(visible(page(SessionRecord.of(example("vertical_regression"))))).text
    assert ", split into shares; noise is added before the result is opened." in words
    assert "masked" not in words
    assert "the relay" not in words
    assert "one record at every party" in words
    assert "no protection" in words  # with one party more, who can put the shares together


def test_an_answer_without_number_or_interval_is_not_drawn(tmp_path: Path) -> None:
    planned = study()
    for value, error in ((math.nan, math.inf), (3.0, math.inf)):
        answers = (Answer("old", value, error, note="drowned by the noise"),)
        draw_answers(planned, answers, tmp_path / "answers.svg")
        from tpmdp.report.panels import panels
        from tpmdp.report.svg import intervals

        (panel,) = panels(planned, answers)
        assert "nan" not in intervals(panel)


def test_promises_are_those_of_the_charges(done: Finished) -> None:
    terms = done.study.terms()
    for each in promises_of(terms):
        shown = record(done).charge_of(each.party)
        assert each.epsilon == shown <= each.offered
        assert set(each.coalition) & {"north", "lab"}  # somebody must see the answer
        assert len(each.coalition) <= 1
        ratio = math.exp(each.epsilon)
        assert each.guess <= (ratio + each.delta) / (1 + ratio)  # what epsilon and delta alone would allow


def test_the_sweep_agrees_with_plans(done: Finished) -> None:
    spec = done.study.spec()
    result = noise_sweep(spec)
    here = plan(spec).standard_deviation
    for threshold, noise in zip(result.thresholds, result.by_threshold, strict=True):
        if threshold:
            assert noise == pytest.approx(plan(spec.replace(threshold=threshold)).standard_deviation / here)
    for factor, noise in zip(result.factors, result.by_factor, strict=True):
        assert noise == pytest.approx(plan(spec.replace(epsilon=spec.epsilon * factor)).standard_deviation / here)


def test_files_with_an_answer_for_some_are_readable_by_their_owner_only(done: Finished, tmp_path: Path) -> None:
    for suffix in ("json", "csv", "html"):
        write_answer_file(record(done, "north", with_answer=True), tmp_path / f"a.{suffix}")
        assert stat.S_IMODE((tmp_path / f"a.{suffix}").stat().st_mode) == 0o600
    write_answer_file(record(done, "south"), tmp_path / "b.html")
    assert stat.S_IMODE((tmp_path / "b.html").stat().st_mode) & 0o044
    document = json.loads((tmp_path / "a.json").read_text())
    rows = read_csv(tmp_path / "a.csv")
    assert float(rows[0]["value"]) == document["answers"][0]["value"]
    SessionRecord.parse(document).check()


def test_a_file_that_is_something_else_is_not_replaced(tmp_path: Path, done: Finished) -> None:
    for suffix in ("json", "csv", "html"):
        file = tmp_path / f"a.{suffix}"
        write_answer_file(record(done, "north", with_answer=True), file)
        check_answer_file(file)  # our own is replaced
        file.write_text("age,stay\n70,3\n")
        with pytest.raises(InputError, match="exists and is something else"):
            check_answer_file(file)
    with pytest.raises(InputError, match="does not receive the answer"):
        check_answer_file(tmp_path / "b.csv", has_answer=False)


@pytest.mark.parametrize("ends", [(0.0, 1e-300), (-1e300, 1e300), (1e15, 1e15 + 2), (-3.0, 7.0), (0.0, math.inf)])
def test_ticks_are_few_and_within(ends: tuple[float, float]) -> None:
    ticks = nice_ticks(*ends)
    assert 1 <= len(ticks) <= 12
    assert all(math.isfinite(tick) for tick in ticks)


def test_a_plan_does_not_say_that_it_was_charged() -> None:
    draft, planned = (
        example("count"),
        example("count").with_keys(
            {party.name: bytes([place] * 32) for place, party in enumerate(example("count").parties)}
        ),
    )
    for each, line in ((draft, "Nothing was charged yet."), (planned, "This report shows no charge.")):
        words = Reader(visible(page(SessionRecord.of(each)))).text
        assert "What it would cost" in words
        assert "Charges" not in words
        assert line in words
        assert "+-" not in words
