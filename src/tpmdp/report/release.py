"""The outcome of a session on a terminal: answers with error bars, receipts, charges and traffic."""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from tpmdp.ledger import left_text, rounded_up
from tpmdp.queries.answer import further_names
from tpmdp.report.numbers import interval, number, rounded
from tpmdp.report.panels import whole_numbers
from tpmdp.report.tables import add_numbers, new_table

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

    from tpmdp.queries.answer import Answer
    from tpmdp.study.model import Study
    from tpmdp.study.release import PartyRelease

_MEDIUM, _WIDE = 72, 92  # columns from which more is shown
_HEADINGS: Final = {  # from how many columns on each is shown
    "offered\nepsilon": _MEDIUM,
    "charged\nepsilon": 0,
    "at\ndelta": _WIDE,
    "spent\nin all": _MEDIUM,
    "left for\none more": 0,
    "bytes\nsent": _WIDE,
}


def count_queries(study: Study) -> frozenset[str]:
    """The queries whose answers are numbers of records, and shown as whole numbers."""
    return frozenset(query.name for query in study.queries if whole_numbers(query))


def in_tables(study: Study, answers: Sequence[Answer]) -> list[Answer]:
    """The answers that tables show: not every point of a curve."""
    fine = {query.name: query.fine_parts for query in study.queries}
    return [answer for answer in answers if answer.part not in fine.get(answer.query, ())]


def answer_table(
    releases: Sequence[PartyRelease], width: int = 140, counts: Collection[str] = frozenset()
) -> Table | None:
    """The answers, for the receivers among these parties; None without receivers. `counts`: see `count_queries`."""
    from rich.markup import escape

    receivers = [release for release in releases if release.answers is not None]
    if not receivers:
        return None
    names = ", ".join(release.party for release in receivers)
    table = new_table(escape(f"Answer for {names}"))
    table.add_column("query", overflow="fold")
    weighted = any(answer.always is not None for answer in receivers[0].answers or ())
    split = ["of it\nnoise", "of it\nweights"] if weighted and width >= _WIDE else []
    wider = ["95 % interval,\nwhatever the data"] if weighted else []
    further = further_names(receivers[0].answers or ())
    wider += [f"95 % interval,\n{name}" for name in further]
    add_numbers(table, "answer", "standard\nerror", *split, "95 % interval", *wider)
    marks: dict[str, int] = {}
    for answer in receivers[0].answers or ():
        error = answer.standard_error
        whole = answer.query in counts
        bars = interval(*answer.interval, error, whole=whole)
        mark = "" if not answer.note else f" [{marks.setdefault(answer.note, len(marks) + 1)}]"
        shows = bars != "none" and not answer.is_drowned
        cells = ["-" if answer.is_drowned else rounded(answer.value, error, whole)]
        cells += [rounded(error, error) if shows and math.isfinite(error) else ""]
        if split:
            cells += _terms(answer) if shows else ["", ""]
        always = answer.always or answer.interval
        cells += [bars, *([interval(*always, error, whole=whole)] if weighted else [])]
        others = map(answer.further_interval, further)
        cells += ["" if each is None else interval(*each, error, whole=whole) for each in others]
        table.add_row(escape(answer.label + mark), *cells)
    notes = [f"[{mark}] {note}" for note, mark in marks.items()]
    covered = "the effect of weights, and the noise" if weighted else "the noise"
    table.caption = escape("\n".join([covered_text(covered, further), *notes]))
    return table


def covered_text(covered: str, further: Sequence[str]) -> str:
    """What error bars cover, and what further intervals do.

    >>> covered_text("the noise", ["noise and sampling"])
    'Error bars cover the noise and rounding added for privacy, not sampling; further intervals: noise and sampling.'
    """
    more = f"; further intervals: {', '.join(further)}" if further else ""
    return f"Error bars cover {covered} and rounding added for privacy, not sampling{more}."


def _terms(answer: Answer) -> list[str]:
    """The two parts of a standard error: noise and weights."""
    error, noise = answer.standard_error, answer.noise
    if noise is None:
        return ["", ""]
    weights = math.sqrt(max(error * error - noise * noise, 0.0)) if math.isfinite(noise) else math.inf
    return [rounded(noise, error), rounded(weights, error)]


def party_table(study: Study, releases: Sequence[PartyRelease], width: int = 140) -> Table:
    """What each of these parties got, was charged and sent; a narrow terminal shows fewer columns."""
    from rich.markup import escape

    table = new_table("Parties")
    table.add_column("party", overflow="fold", min_width=8)
    table.add_column("got", no_wrap=True)
    headings = [heading for heading, least in _HEADINGS.items() if width >= least]
    if not study.weights.are_equal:
        headings.insert(0, "weight")
    for heading in headings:
        table.add_column(heading, justify="right", no_wrap=True)
    for release in releases:
        index = study.index(release.party)
        offered = study.parties[index].epsilon
        cells = {
            "weight": number(float(study.weights.each[index])),
            "offered\nepsilon": rounded_up(offered),
            "charged\nepsilon": rounded_up(release.epsilon),
            "at\ndelta": number(release.delta),
            "spent\nin all": "-" if release.spent is None else rounded_up(release.spent),
            "left for\none more": "-"
            if release.left is None
            else left_text(release.left, study.parties[index].epsilon),
            "bytes\nsent": f"{release.bytes_sent:,}",
        }
        got = "receipt" if release.answers is None else "answer"
        table.add_row(escape(release.party), got, *(cells[heading] for heading in headings))
    hidden = [_one_line(heading) for heading in _HEADINGS if heading not in headings]
    table.caption = "charged: the real cost against the worst coalition. left: for one more release, by the ledger." + (
        f" In a wider terminal also: {', '.join(hidden)}." if hidden else ""
    )
    return table


def _one_line(heading: str) -> str:
    return heading.replace("\n", " ")


def print_releases(study: Study, releases: Sequence[PartyRelease], console: Console) -> None:
    """The outcome of a session for one party, or for all of them."""
    from rich.markup import escape

    first = releases[0]
    drop = f", up to {study.tolerate} may drop out" if study.tolerate else ""
    threshold = f"threshold {study.threshold}{drop}, protecting each {study.unit}"
    console.print(escape(f"{study.label}: {len(study.parties)} parties, {study.records} records, {threshold}"))
    if all(release.again for release in releases):
        what = "receipt" if all(release.answers is None for release in releases) else "answer"
        console.print(
            f"Session {study.session} was finished before. This is its {what} again: nothing new was sent or charged."
        )
        room = all(release.left is None or release.left >= release.epsilon for release in releases)
        needs = "" if room else ", which needs higher limits (tpmdp ledger limit)"
        everybody = "" if len(releases) > 1 else " for every party"
        console.print(f"A new session has new noise and a new charge: --session {study.session + 1}{everybody}{needs}.")
    if first.missing:
        records = sum(study.party(name).records for name in first.missing)
        names = ", ".join(first.missing)
        console.print(escape(f"Dropped out: {names}. Their {records} records are not counted."))
    if first.is_stopped:
        far = f"after round {first.rounds_done} of {first.rounds}"
        console.print(f"Stopped {far}: this is its result, without intervals. The same command goes on.")
    answers = next((release.answers for release in releases if release.answers is not None), ())
    shown = tuple(in_tables(study, answers))
    receivers = [replace(release, answers=shown) for release in releases if release.answers is not None]
    table = answer_table(receivers, console.width, count_queries(study))
    if table is not None:
        console.print(table)
        if len(shown) < len(answers):
            more = f"{len(answers) - len(shown)} more points of curves: in files and pictures (--out, --plot)."
            console.print(escape(more))
        if first.assumes:
            console.print(escape(f"Assumed: {first.assumes}."))
    console.print()
    console.print(party_table(study, releases, console.width))
    console.print(escape(f"Guarantee: {first.guarantee}."))
    if len(study.receivers) < len(study.parties):
        only = ", ".join(study.receivers)
        learn = "learns" if len(study.receivers) == 1 else "learn"
        console.print(
            escape(f'The charges assume that only {only} {learn} the answer. To publish it: receivers = "all".')
        )
    for release in releases:
        if release.note:
            console.print(escape(f"{release.party}: {release.note}"))
