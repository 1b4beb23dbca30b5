"""What a session gave, on a terminal: answers with error bars, receipts, charges and traffic."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from tpmdp.report import number

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

    from tpmdp.release import PartyRelease
    from tpmdp.study import Study


def _new_table(title: str) -> Table:
    from rich.box import SIMPLE_HEAD
    from rich.table import Table

    return Table(title=title, box=SIMPLE_HEAD, title_justify="left", caption_justify="left")


def answer_table(told: Sequence[PartyRelease]) -> Table | None:
    """The answers, for the receivers among these parties; None if there is none."""
    from rich.markup import escape

    receivers = [one for one in told if one.answers is not None]
    if not receivers:
        return None
    names = ", ".join(one.party for one in receivers)
    table = _new_table(escape(f"Answer for {names}"))
    table.add_column("query", overflow="fold")
    for heading in ("answer", "standard\nerror", "95 % interval"):
        table.add_column(heading, justify="right")
    for answer in receivers[0].answers or ():
        low, high = answer.interval
        cells = number(answer.value), number(answer.standard_error), f"{number(low)} to {number(high)}"
        table.add_row(escape(answer.query), *cells)
    table.caption = "Error bars cover the noise and rounding added for privacy, not sampling."
    return table


def party_table(study: Study, told: Sequence[PartyRelease]) -> Table:
    """What each of these parties got, was charged and sent."""
    from rich.markup import escape

    table = _new_table("Parties")
    for heading in ("party", "got"):
        table.add_column(heading, overflow="fold")
    for heading in ("epsilon\noffered", "epsilon\ncharged", "at\ndelta", "ledger:\nspent", "left", "bytes\nsent"):
        table.add_column(heading, justify="right", no_wrap=True)
    for one in told:
        member = study.members[study.index(one.party)]
        table.add_row(
            escape(one.party),
            "receipt" if one.answers is None else "answer",
            number(member.epsilon),
            number(one.epsilon),
            number(one.delta),
            "-" if one.spent is None else number(one.spent),
            "-" if one.left is None else number(one.left),
            f"{one.bytes_sent:,}",
        )
    table.caption = "charged: the real cost against the worst coalition; it may be less than offered."
    return table


def print_releases(study: Study, told: Sequence[PartyRelease], console: Console) -> None:
    """The outcome of a session for one party, or for all of them."""
    from rich.markup import escape

    threshold = f"threshold {study.threshold}, protecting each {study.unit}"
    console.print(escape(f"{study.label}: {len(study.members)} parties, {study.records} records, {threshold}"))
    if all(one.again for one in told):
        again = f"--session {study.session + 1}"
        console.print(f"This session was finished before: nothing was sent or charged. A new one: {again}.")
    table = answer_table(told)
    if table is not None:
        console.print(table)
    console.print(party_table(study, told))
    console.print(escape(f"Guarantee: {told[0].guarantee}."))
