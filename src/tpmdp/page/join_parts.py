"""What Take part shows beside the offer: the other parties, the checks, the progress of a session and its outcome."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Final

from tpmdp.errors import TpmdpError
from tpmdp.ledger import left_text, rounded_up
from tpmdp.page.folder import Folder
from tpmdp.page.forms import button
from tpmdp.page.join_choice import Words
from tpmdp.page.join_controls import WORDS_SAID, delete_part, not_meant_text, withdraw_part
from tpmdp.page.join_files import StudyFile, copies
from tpmdp.page.join_offer import ROWS_MAX
from tpmdp.page.runs import SessionRun
from tpmdp.report.check import EYES_ONLY, clipped_advice, fault_texts, records_text
from tpmdp.report.html_report import answer_section
from tpmdp.report.html_sections import show_time
from tpmdp.report.markup import Html, joined, name, names, table, tag
from tpmdp.report.numbers import number
from tpmdp.report.questions import question_text
from tpmdp.study.begun import withdrawal_text
from tpmdp.study.events import time_text
from tpmdp.study.identity import public_key_text
from tpmdp.study.model import Study
from tpmdp.study.party_check import Begun, PartyCheck
from tpmdp.study.peers import PEERS_FILE, check_peers, peer_line
from tpmdp.study.record import SessionRecord
from tpmdp.study.release import PartyRelease

_NOT_COVERED: Final = (
    "Read out the purpose and the contact, too: the words do not cover them. Who wrote this invitation is not proven."
)
_LINES_SHOWN: Final = 40
_HELD: Final = "You have agreed, and nothing is charged yet. It is charged when all parties have agreed."
_CHARGED: Final = "The session was charged when all parties had agreed: it cannot be withdrawn any more."
_FITS: Final = "Your file and key fit."
_READY: Final[dict[Words, str]] = {
    "": f"{_FITS} Still open: the ten words. Compare them, and say so at Decide.",
    "not compared": f"{_FITS} You take part without having compared the ten words.",
    "compared": "Nothing stands in the way: you can take part.",
    "pinned": "Nothing stands in the way: you can take part.",
}


def trust_part(file: StudyFile, party: str, *, own: bytes | None, peers: Path | None) -> Html:
    """The words to compare, and whether the others' keys are pinned."""
    parts: list[Html] = [tag("h2", "Are the others real?", id="words")]
    terms = file.terms
    if terms is None:
        lacks = joined(["The study lacks the public keys of ", names(file.lacking), "."])
        parts.append(tag("p", lacks, " The ten words to compare come with the file that has them all.", class_="empty"))
        return joined(parts)
    words = tag("p", tag("code", " ".join(file.phrase)), class_="phrase", id="phrase")
    parts += [
        tag("p", "Compare these ten words with the other parties, by telephone. All must have the same:"),
        words,
        tag("p", _NOT_COVERED, class_="note"),
    ]
    if peers is None:
        text = (
            "The author of the study chose the other parties and their keys, and could have invented them. Different "
            "words, or nobody to call: do not take part. Say at Decide what you have done. For later studies, keep the "
            f"keys below in a file {PEERS_FILE} in your folder; the page then compares them by itself."
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
            tag("summary", "The others' keys, as lines for your own file of keys"),
            tag("pre", tag("code", "\n".join(lines), id="peer-lines"), tabindex="0"),
            tag("button", "Copy", type="button", data_copy="peer-lines", class_="small"),
            id="peer-details",
        )
    )
    return joined(parts)


def _sentence(text: str) -> str:
    return f"{text[:1].upper()}{text[1:]}."


def key_part(
    party: str, public: bytes | None, in_study: bytes | None, *, problem: str = "", meant_for: str = ""
) -> Html:
    """The party's key: its public line, or the button that makes one. The secret is never shown."""
    heading = tag("h2", "Your key")
    if problem:
        return joined([heading, tag("p", problem, class_="problem")])
    if public is None and meant_for:
        return joined([heading, tag("p", not_meant_text(meant_for, party), class_="empty")])
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


def refused_part(file: str, check: PartyCheck, why: Sequence[str], needed: str) -> Html:
    """Why a file of records that somebody brought was not kept."""
    items = tag("ul", *(tag("li", text) for text in why))
    text = [tag("strong", name(file)), " does not fit, and no copy of it was kept:"]
    refusal = tag("div", tag("p", *text), items, tag("p", needed), class_="problem", role="alert")
    return joined([records_part(check), refusal])


def problems_part(problems: Sequence[str], compared: Words) -> Html:
    """What stands in the way, in order, each with its remedy; or what is still open."""
    if not problems:
        return tag("p", _READY[compared], class_="good", id="ready")
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
    if run.is_withdrawn:
        return "You have withdrawn."
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


def live_news(run: SessionRun) -> Html | str:
    """`news`, marked as old as soon as the page has lost its program."""
    return _live(run, news(run), "How the session stands is not known.")


def live_time(run: SessionRun) -> Html | str:
    """`time_left`, which stops as soon as the page has lost its program."""
    return _live(run, time_left(run), "Time left: not known.")


def _live(run: SessionRun, text: str, otherwise: str) -> Html | str:
    return tag("span", text, data_clock=otherwise) if run.is_running and text else text


def progress_part(
    run: SessionRun, study: Study, command: str, *, begun: Begun | None, place: str, is_withdrawing: bool
) -> Html:
    """Who has joined, what is waited for, and the way out as long as nothing is charged.

    `begun` is what the ledger says of the session, and `place` says which one it is to a button.
    """
    parts: list[Html] = [tag("p", text, class_="warning") for text in run.problems]
    waiting = set() if run.event is None else set(run.event.waiting_for)
    items = []
    for each in study.parties[:ROWS_MAX]:
        is_here = each.name == run.key.party or each.name in run.joined
        what = "you" if each.name == run.key.party else "has joined" if is_here else "has not joined yet"
        if is_here and each.name in waiting and run.event is not None:
            what += f"; its {run.event.awaited} is waited for"
        items.append(tag("li", name(each.name), f": {what}", **({} if is_here else {"class_": "open"})))
    more = len(study.parties) - len(items)
    parts.append(tag("ul", *items, class_="steps"))
    parts += [tag("p", f"{more} more parties are not shown.", class_="note")] if more > 0 else []
    parts.append(_story(run))
    if begun is not None and not begun.is_charged:
        parts += [tag("p", _HELD, class_="note"), withdraw_part(study, place, is_withdrawing=is_withdrawing)]
    elif begun is not None:
        parts.append(tag("p", _CHARGED, class_="note"))
    return joined([*parts, _elsewhere(command)])


def _story(run: SessionRun) -> Html:
    lines = [tag("li", text) for text in run.lines[-_LINES_SHOWN:]]
    summary = tag("summary", "What has happened", id="run-summary")
    return tag("details", summary, tag("ol", *lines), id="run-details") if lines else Html("")


def _elsewhere(command: str) -> Html:
    text = (
        "You may close this window: the session goes on as long as tpmdp page runs. If that ends, start it again and "
        "press Go on, or use the command line:"
    )
    return joined([tag("p", text, class_="note"), tag("pre", tag("code", command), tabindex="0")])


def withdrawn_part(study: Study) -> Html:
    """After a withdrawal: what it means for the others."""
    done = ["You have withdrawn from ", tag("strong", name(study.label)), ". Nothing was charged. "]
    return tag("p", *done, withdrawal_text(study), class_="warning", role="status")


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


def outcome_part(
    study: Study, release: PartyRelease, record: SessionRecord, *, compared: Words = "", hint: object = ""
) -> Html:
    """What the session was, the answer or the receipt, what it cost, and the report to keep."""
    mood = "warning" if release.is_stopped else "good"
    parts: list[Html] = [tag("p", *_took_part(study, release, record), class_=mood), _asked(study)]
    if compared:
        parts.append(tag("p", WORDS_SAID[compared], class_="note"))
    if release.missing:
        lost = sum(study.party(each).records for each in release.missing)
        missing = ["Dropped out: ", names(release.missing), f". Their {lost:,} records are not counted."]
        parts.append(tag("p", *missing, class_="warning"))
    if record.answers is not None:
        parts.append(answer_section(record, has_cards=True))
    else:
        learn = " have the answer." if len(study.receivers) > 1 else " has the answer."
        what = " The receipt says that your part arrived."
        parts.append(tag("p", "You are not a receiver. ", names(study.receivers), learn, what))
    parts += [tag("h2", "What it cost"), tag("dl", *_cost_cells(study, release))]
    if hint:
        parts.append(tag("div", hint))
    saves = [button("Report without the answer", formaction="/join/report.html", class_="save")]
    if record.answers is not None:
        saves.append(button("Report with the answer", formaction="/join/report-with-answer.html", class_="save"))
    return joined(
        [
            *parts,
            tag("h2", "Keep it"),
            tag("p", "The report can be checked by anybody: see Verify. Pass on the one without the answer."),
            tag("p", *saves, class_="buttons"),
        ]
    )


def _took_part(study: Study, release: PartyRelease, record: SessionRecord) -> list[object]:
    """Which session it was, when, and that it is paid for."""
    charge = next((each.charge for each in record.parties if each.charge is not None), None)
    when = "" if charge is None else f" on {show_time(charge.time)}"
    paid = "" if charge is None else " It was charged once; it cannot be charged again."
    if release.rounds > 1:
        done = "all" if not release.is_stopped else f"{release.rounds_done} of"
        paid = f" It has done {done} {release.rounds} rounds; each is charged once."
    again = " It was finished before: nothing new was sent or charged." if release.again else ""
    return ["You took part in ", tag("strong", name(study.label)), f"{when}.{paid}{again}"]


def _asked(study: Study) -> Html:
    rows = [[name(query.name), question_text(query)] for query in study.queries[:ROWS_MAX]]
    return table(["query", "question"], rows, has_cards=True)


def _cost_cells(study: Study, release: PartyRelease) -> list[Html]:
    epsilon = study.party(release.party).epsilon
    rows: list[tuple[str, object]] = [
        ("Charged", f"epsilon {rounded_up(release.epsilon)} at delta {number(release.delta)}"),
        ("Spent in all", "-" if release.spent is None else f"epsilon {rounded_up(release.spent)}"),
        ("Left for one more", "-" if release.left is None else left_text(release.left, epsilon)),
        ("Sent", f"{release.bytes_sent:,} bytes"),
        ("Guarantee", release.guarantee),
    ]
    return [cell for key, value in rows for cell in (tag("dt", key), tag("dd", value))]


def reminder_part(folder: Folder, file: str, deleting: str = "", *, uploaded: Collection[str] = ()) -> Html:
    """After a session: a copy of the records is still in the folder."""
    if file not in copies(folder):
        return Html("")
    text = [
        " is still in the folder of this page, ",
        tag("code", name(str(folder.path))),
        ". Delete it if you ",
    ]
    shown = tag("p", "Your file of records ", tag("strong", name(file)), *text, "need it no more.", class_="note")
    return tag(
        "section", tag("h2", "Your file of records"), shown, delete_part(folder, file, deleting, uploaded=uploaded)
    )
