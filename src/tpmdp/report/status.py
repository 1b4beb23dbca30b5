"""How far a session is, on a terminal."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from tpmdp.report.tables import new_table
from tpmdp.study.events import names_text

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

    from tpmdp.study.status import PartyStatus, StudyStatus

_WIDE: Final = 60  # columns from which each kind of message has its own


def print_status(status: StudyStatus, console: Console) -> None:
    """What the relay holds of each party."""
    from rich.text import Text

    attempt = f", attempt {status.attempt}" if status.attempt > 1 else ""
    console.print(Text(f"{status.session}{attempt}: {status.summary()}"))
    console.print(_table(status, console.width))
    others = [party.party for party in status.parties if party.other_plan]
    if others:
        remedy = "compare tpmdp fingerprint and the study files; nothing is charged meanwhile"
        console.print(Text(f"Another study or plan: {names_text(others)}. To do: {remedy}."))
    console.print(Text(f"(lead): {status.lead} adds up what the others submit."))
    console.print(
        "The table is what was sent so far, as the relay says, which nobody need trust. It cannot tell who waits. "
        "Asking has changed nothing."
    )


def _table(status: StudyStatus, width: int) -> Table:
    """A narrow one says only how far each party is."""
    from rich.text import Text

    table = new_table("")
    table.add_column("party", overflow="fold", min_width=8)
    for heading in ("agreed", "key", "submitted", "answer") if width >= _WIDE else ("has",):
        table.add_column(heading, no_wrap=True)
    for party in status.parties:
        is_lead = party.party == status.lead
        cells = _cells(party, is_lead) if width >= _WIDE else [_stage(party, is_lead)]
        table.add_row(Text(party.party), *cells)
    return table


def _cells(party: PartyStatus, is_lead: bool) -> list[str]:
    agreed = "other" if party.other_plan else _word(party.agreed)
    submitted = "(lead)" if is_lead else _word(party.submitted)
    answer = ("has it" if is_lead else "sent") if party.answered else "-"
    return [agreed, _word(party.key), submitted, answer]


def _stage(party: PartyStatus, is_lead: bool) -> str:
    """How far a party is, in a few words."""
    if party.other_plan:
        return "another study"
    stages = {
        "the answer" if is_lead else "been answered": party.answered,
        "submitted": party.submitted,
        "sent a key": party.key,
        "agreed": party.agreed,
    }
    return next((stage for stage, reached in stages.items() if reached), "-")


def _word(done: bool) -> str:
    return "yes" if done else "-"
