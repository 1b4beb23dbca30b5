"""What the Take part view shows: the offer, the checks, the progress of a session and its outcome."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Final

from tpmdp.errors import TpmdpError
from tpmdp.ledger import left_text, rounded_up
from tpmdp.page.forms import button
from tpmdp.page.join_files import StudyFile
from tpmdp.page.pictures import ring
from tpmdp.page.runs import SessionRun
from tpmdp.report.check import (
    EYES_ONLY,
    NOBODY,
    clipped_advice,
    coalition_role,
    coalitions_text,
    cost_texts,
    fault_texts,
    names_text,
    records_text,
)
from tpmdp.report.html_promise import coalitions_section, learns_section, person_section, promise_section
from tpmdp.report.html_report import answer_section
from tpmdp.report.markup import Html, joined, name, names, table, tag
from tpmdp.report.numbers import number, plural
from tpmdp.report.promise import promises_of
from tpmdp.report.queries import assumed_text, error_text, leaves_text, no_noise_text
from tpmdp.report.questions import question_text
from tpmdp.study.events import time_text
from tpmdp.study.expectation import trial_terms
from tpmdp.study.identity import public_key_text
from tpmdp.study.model import Study
from tpmdp.study.party_check import PartyCheck
from tpmdp.study.peers import PEERS_FILE, check_peers, peer_line
from tpmdp.study.record import SessionRecord
from tpmdp.study.release import PartyRelease

_ROWS_MAX: Final = 60
_LINES_SHOWN: Final = 40
_PROMISES: Final[dict[str, Html]] = {}  # of the studies shown last
_PROMISES_MAX: Final = 8
_COST_LABELS: Final = {True: "Charged epsilon", False: "Charged before: epsilon"}


def question_part(study: Study) -> Html:
    """Who asks what, and with whom."""
    rows = [[name(query.name), question_text(query)] for query in study.queries]
    leaves = dict.fromkeys(leaves_text(query) for query in study.queries)
    asking = {text: [query.name for query in study.queries if leaves_text(query) == text] for text in leaves}
    how = (
        "Your records stay here. This leaves you, with noise in it, and masked so that only the sum over all parties "
        "can be read:"
        if study.computation.uses_relay
        else "Your records stay here. This leaves you, split into shares; noise is added before the result is opened:"
    )
    return joined(
        [
            tag("h2", "What is asked"),
            tag("p", tag("strong", name(study.label))),
            table(["query", "question"], rows, has_cards=True),
            tag("p", how),
            tag("ul", *(tag("li", "For ", names(asking[text]), f": {text}.") for text in leaves)),
        ]
    )


def parties_part(study: Study, party: str) -> Html:
    """The parties with their budgets, and who receives."""
    rows = []
    for each in study.parties[:_ROWS_MAX]:
        you = [" ", tag("strong", "(you)")] if each.name == party else []
        receives = "the answer" if each.name in study.receivers else "a receipt"
        key = "missing" if each.public_key is None else "given"
        rows.append(
            [
                joined([name(each.name), *you]),
                f"{each.records:,}",
                number(each.epsilon),
                number(each.delta),
                receives,
                key,
            ]
        )
    more = len(study.parties) - len(rows)
    unit = "each record" if study.unit == "record" else "all records of a party at once"
    drop = f" {plural(study.tolerate, 'party', 'parties')} may drop out." if study.tolerate else ""
    many = plural(study.threshold, "party", "parties")
    return joined(
        [
            tag("h2", "With whom"),
            table(
                ["party", "records", "epsilon", "delta", "receives", "public key"],
                rows,
                numbers={1, 2, 3},
                has_cards=True,
            ),
            *([tag("p", f"{more} more parties are not shown.", class_="note")] if more > 0 else []),
            tag("p", f"Protected is {unit}, as long as no more than {many} pool what they see.{drop}"),
            *_lead(study),
            learns_section(SessionRecord.of(study)),
        ]
    )


def _lead(study: Study) -> list[Html]:
    """Who adds up, in a study of sums."""
    if not study.computation.uses_relay:
        return []
    spec = trial_terms(study)
    lead = name(spec.spec.name(spec.lead))
    text = " adds up what the others submit. It sees masked numbers, and learns the sum only."
    return [tag("p", tag("strong", lead), text)]


def promise_part(study: Study) -> Html:
    """What is promised in plain words, and what is not: what a party should know before it agrees.

    It takes up to seconds for many parties, and the same study is shown again after every change of the form.
    """
    key = study.toml()
    if key not in _PROMISES:
        record = SessionRecord.of(study)
        promised = promises_of(record.terms, not study.computation.uses_relay)
        parts = [promise_section(record, promised), coalitions_section(record, promised), *person_section(record)]
        shown = joined(parts)
        while len(_PROMISES) >= _PROMISES_MAX:
            _PROMISES.pop(next(iter(_PROMISES)), None)
        _PROMISES[key] = shown
        return shown
    return _PROMISES[key]


def cost_part(study: Study, party: str, check: PartyCheck) -> Html:
    """What it costs, what is left, who would have to collude, and the error to expect."""
    parts: list[Html] = [tag("h2", "What it costs you")]
    if check.cost is None:
        parts.append(tag("p", "The cost cannot be known yet: see the problems below.", class_="empty"))
        return joined(parts)
    if check.expected is not None and (text := no_noise_text(study, check.expected)):
        parts.append(tag("p", text, class_="warning"))
    parts += [
        tag("p", f"{_COST_LABELS[check.charged_now]}, at delta {number(check.offered[1])}", class_="label"),
        tag("p", rounded_up(check.cost), class_="big"),
        *(tag("p", text) for text in cost_texts(check)),
    ]
    if check.ledger != "settled":
        parts += [tag("p", f"{note[:1].upper()}{note[1:]}.", class_="note") for note in check.notes]
    parts += [tag("h2", "Who would have to collude against you"), _coalitions(study, party, check)]
    if check.expected is not None:
        rows = [
            [name(answer.label), error_text(error).replace("+-", "±")]
            for each in check.expected.queries
            for answer, error in zip(each.answers, each.errors, strict=True)
        ]
        assumed = assumed_text(study, check.expected.queries)
        parts += [
            tag("h2", "How exact the answer will be"),
            table(["answer", "95 % of the time within"], rows[:_ROWS_MAX], numbers={1}, has_cards=True),
            *([tag("p", f"{len(rows) - _ROWS_MAX} more are not shown.", class_="note")] * (len(rows) > _ROWS_MAX)),
            *([tag("p", assumed, class_="note")] if assumed else []),
            *([tag("p", f"Assumed: {study.assumes}.", class_="note")] if study.assumes else []),
        ]
    return joined(parts)


def _coalitions(study: Study, party: str, check: PartyCheck) -> Html:
    if not check.records_stated:
        return tag("p", "You have no records in this study, so there is nothing to learn about yours.")
    if not check.coalitions:
        return tag("p", NOBODY[:1].upper() + NOBODY[1:])
    rows = [
        [names_text(coalition), coalition_role(check, place), rounded_up(coalition.epsilon)]
        for place, coalition in enumerate(check.coalitions)
    ]
    shown = table(["coalition", "what it is", "epsilon"], rows, numbers={2}, has_cards=True)
    note = tag("p", coalitions_text(study, check), class_="note")
    within = [each for each in check.coalitions if each.is_within]
    if not within:
        return joined([shown, note])
    everybody = [each.name for each in study.parties]
    places = {each: place for place, each in enumerate(everybody)}
    picture = ring(
        everybody,
        [1.0] * len(everybody),
        {places[each] for each in study.receivers},
        party=places[party],
        coalition={places[each] for each in within[-1].members if each in places},
    )
    legend = "Blue: you. Red: the worst coalition within the threshold. Dashed outline: receives the answer."
    return tag("div", tag("div", shown, note), tag("div", picture, tag("p", legend, class_="note")), class_="columns")


def trust_part(file: StudyFile, party: str, *, own: bytes | None, peers: Path | None) -> Html:
    """The words to compare, and whether the others' keys are pinned."""
    parts: list[Html] = [tag("h2", "Are the others real?")]
    terms = file.terms
    if terms is None:
        lacks = joined(["The study lacks the public keys of ", names(file.lacking), "."])
        parts.append(tag("p", lacks, " The ten words to compare come with the file that has them all.", class_="empty"))
        return joined(parts)
    words = tag("p", tag("code", " ".join(file.phrase)), class_="phrase", id="phrase")
    parts += [
        tag("p", "Compare these ten words with the other parties, by telephone. All must have the same:"),
        words,
    ]
    if peers is None:
        text = (
            "The author of the study chose the other parties and their keys, and could have invented them. Different "
            "words, or nobody to call: do not take part. For later studies, keep the keys below in a file "
            f"{PEERS_FILE} in your folder; the page then compares them by itself."
        )
        parts.append(tag("p", text, class_="warning"))
    else:
        try:
            check_peers(terms, own or terms.roster[file.study.index(party)], peers)
            text = f"{peers.name} in your folder has the same names and keys as this study."
            parts.append(tag("p", text, class_="good"))
        except TpmdpError as error:
            parts.append(tag("p", str(error), class_="problem"))
    pairs = zip(file.study.parties, terms.roster, strict=True)
    lines = [peer_line(each.name, raw) for each, raw in pairs if each.name != party]
    parts.append(
        tag(
            "details",
            tag("summary", "The others' keys, as lines for peers.toml"),
            tag("pre", tag("code", "\n".join(lines), id="peer-lines"), tabindex="0"),
            tag("button", "Copy", type="button", data_copy="peer-lines", class_="small"),
            id="peer-details",
        )
    )
    return joined(parts)


def _sentence(text: str) -> str:
    return f"{text[:1].upper()}{text[1:]}."


def key_part(party: str, public: bytes | None, in_study: bytes | None, *, problem: str = "") -> Html:
    """The party's key: its public line, or the button that makes one. The secret is never shown."""
    heading = tag("h2", "Your key")
    if problem:
        return joined([heading, tag("p", problem, class_="problem")])
    if public is None:
        text = f"There is no {party}.key in your folder. The key shows the others that it is you; it stays here."
        return joined([heading, tag("p", text, class_="empty"), tag("p", button("Make my key", "make-key"))])
    line = tag("pre", tag("code", peer_line(party, public), id="public-line"), tabindex="0")
    copy = tag("button", "Copy", type="button", data_copy="public-line", class_="small")
    if in_study is None:
        return joined(
            [
                heading,
                tag("p", "Send this line to the author of the study. It is public; the secret part stays here."),
                line,
                tag("p", copy),
            ]
        )
    if in_study == public:
        text = f"Your key file {party}.key fits: the study has its public part."
        return joined([heading, tag("p", text, class_="good")])
    other = f"The study has another key for you: {public_key_text(in_study)}. Send this line to its author:"
    return joined([heading, tag("p", other, class_="problem"), line, tag("p", copy)])


def records_part(check: PartyCheck) -> Html:
    """What the check says about the party's own records."""
    if not check.columns and not check.faults:
        return Html("")
    rows = []
    for column in check.columns:
        counted = check.records is not None and not column.problem
        cells = [f"{column.missing:,}", f"{column.unusable:,}"] if counted else ["-", "-"]
        rows.append([name(column.name), column.kind, *cells, column.problem])
    parts: list[Html] = [
        tag("p", EYES_ONLY, class_="note"),
        table(["column", "read as", "missing", "not usable", "problem"], rows, numbers={2, 3}, has_cards=True),
        tag("p", records_text(check)),
        *(tag("p", text) for text in fault_texts(check)),
    ]
    counting = dict(check.counting)
    against = []
    for row in check.clipped:
        counting.pop(row.query, None)
        bounds = f"{number(row.low)} to {number(row.high)}"
        against.append(
            [
                name(row.query),
                name(row.column),
                bounds,
                f"{row.below:,}",
                f"{row.above:,}",
                f"{100 * row.share:.1f} %",
                f"{row.records:,}",
            ]
        )
    against += [[name(query), "", "", "", "", "", f"{count:,}"] for query, count in counting.items()]
    if against:
        headings = ["query", "column", "bounds", "below", "above", "clipped", "records counting"]
        parts += [
            tag("h3", "Your values against the queries"),
            table(headings, against, numbers={3, 4, 5, 6}, has_cards=True),
        ]
        if advice := clipped_advice(check):
            parts.append(tag("p", advice, class_="warning"))
    return tag("div", *parts, class_="panel")


def problems_part(problems: Sequence[str]) -> Html:
    """What stands in the way, in order, each with its remedy."""
    if not problems:
        return tag("p", "Nothing stands in the way: you can take part.", class_="good", id="ready")
    return tag(
        "div",
        tag("p", tag("strong", "Before you can take part:")),
        tag("ol", *(tag("li", text) for text in problems)),
        class_="problem",
        id="problems",
    )


# A session that runs --------------------------------------------------------------------------------------------------


def news(run: SessionRun) -> str:
    """One sentence that changes only when something has happened, for screen readers."""
    if run.error:
        return "The session has stopped."
    if run.release is not None:
        return "The answer is here." if run.release.answers is not None else "Your receipt is here."
    return "Reading your data and reaching the others." if run.event is None else _sentence(run.event.place_text())


def time_left(run: SessionRun) -> str:
    """How long the session may still take; empty when it has ended."""
    if run.event is None or not run.is_running:
        return ""
    return f"Time left: {time_text(run.seconds_left())}. Sent so far: {run.event.sent:,} bytes."


def progress_part(run: SessionRun, study: Study, command: str) -> Html:
    """Who has joined, and what is waited for."""
    parts: list[Html] = [tag("p", text, class_="warning") for text in run.problems]
    waiting = set() if run.event is None else set(run.event.waiting_for)
    items = []
    for each in study.parties[:_ROWS_MAX]:
        is_here = each.name == run.key.party or each.name in run.joined
        what = "you" if each.name == run.key.party else "has joined" if is_here else "has not joined yet"
        if is_here and each.name in waiting and run.event is not None:
            what += f"; its {run.event.awaited} is waited for"
        items.append(tag("li", name(each.name), f": {what}", **({} if is_here else {"class_": "open"})))
    more = len(study.parties) - len(items)
    parts.append(tag("ul", *items, class_="steps"))
    parts += [tag("p", f"{more} more parties are not shown.", class_="note")] if more > 0 else []
    parts += [_story(run), _elsewhere(command)]
    return joined(parts)


def _story(run: SessionRun) -> Html:
    lines = [tag("li", text) for text in run.lines[-_LINES_SHOWN:]]
    summary = tag("summary", "What has happened", id="run-summary")
    return tag("details", summary, tag("ol", *lines), id="run-details") if lines else Html("")


def _elsewhere(command: str) -> Html:
    text = (
        "You may close this window: the session goes on as long as tpmdp page runs. To withdraw, end tpmdp page before "
        "all have joined: nothing is charged until then. If it ends, this resumes the session:"
    )
    return joined([tag("p", text, class_="note"), tag("pre", tag("code", command), tabindex="0")])


def failure_part(run: SessionRun, charged: str) -> Html:
    """Why a session stopped, what it has cost, and what to do."""
    return joined(
        [
            tag("p", run.error, class_="problem"),
            tag("p", charged),
            tag(
                "p",
                button("Try again", "again"),
                button("Change something first", "change", class_="quiet"),
                class_="buttons",
            ),
            _story(run),
        ]
    )


def outcome_part(study: Study, release: PartyRelease, record: SessionRecord | None, *, hint: object = "") -> Html:
    """The answer or the receipt, what it cost, and the report to keep."""
    has_answer = release.answers is not None
    what = "answer" if has_answer else "receipt"
    text = f"The session is complete. Here is your {what}."
    if release.again:
        text = f"This session was finished before. This is its {what} again: nothing new was sent or charged."
    parts: list[Html] = [tag("p", text, class_="good")]
    if release.missing:
        lost = sum(study.party(each).records for each in release.missing)
        parts.append(
            tag(
                "p",
                "Dropped out: ",
                names(release.missing),
                f". Their {lost:,} records are not counted.",
                class_="warning",
            )
        )
    if has_answer and record is not None:
        parts.append(answer_section(record, has_cards=True))
    if not has_answer:
        learn = " have the answer." if len(study.receivers) > 1 else " has the answer."
        parts.append(
            tag(
                "p",
                "You are not a receiver. ",
                names(study.receivers),
                learn,
                " The receipt says that your part arrived.",
            )
        )
    epsilon = study.party(release.party).epsilon
    rows: list[tuple[str, object]] = [
        ("Charged", f"epsilon {rounded_up(release.epsilon)} at delta {number(release.delta)}"),
        ("Spent in all", "-" if release.spent is None else f"epsilon {rounded_up(release.spent)}"),
        ("Left for one more", "-" if release.left is None else left_text(release.left, epsilon)),
        ("Sent", f"{release.bytes_sent:,} bytes"),
        ("Guarantee", release.guarantee),
    ]
    cells = [cell for key, value in rows for cell in (tag("dt", key), tag("dd", value))]
    parts += [tag("h2", "What it cost"), tag("dl", *cells)]
    if hint:
        parts.append(tag("div", hint))
    saves = [button("Report without the answer", formaction="/join/report.html", class_="save")]
    if has_answer:
        saves.append(button("Report with the answer", formaction="/join/report-with-answer.html", class_="save"))
    parts += [
        tag("h2", "Keep it"),
        tag("p", "The report can be checked by anybody: see Verify. Pass on the one without the answer."),
        tag("p", *saves, class_="buttons"),
    ]
    return joined(parts)
