"""How far a session is, on a terminal."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final

from tpmdp.report.tables import new_table
from tpmdp.study.events import names_text, time_text

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

    from tpmdp.study.model import Study
    from tpmdp.study.status import PartyStatus, StudyStatus

STATUS_COLUMNS: Final = ("agreed", "key", "submitted", "answer")
STATUS_NOTE: Final = (
    "The table is what was sent so far, as the relay says. It does not show whose program runs now. "
    "Asking has changed nothing."
)
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
    console.print(STATUS_NOTE)


def deadline_text(study: Study) -> str:
    """Until when the parties of a study wait for each other."""
    if not isinstance(study.deadline, datetime):
        return f"each party waits {time_text(study.seconds_left())} from when it joins"
    left = study.seconds_left()
    moment = f"{study.deadline.astimezone(UTC):%Y-%m-%d %H:%M} UTC"
    return f"{moment}, {time_text(left)} left" if left > 0 else f"{moment}, which has passed"


def _table(status: StudyStatus, width: int) -> Table:
    """A narrow one says only how far each party is."""
    from rich.text import Text

    table = new_table("")
    table.add_column("party", overflow="fold", min_width=8)
    for heading in STATUS_COLUMNS if width >= _WIDE else ("has",):
        table.add_column(heading, no_wrap=True)
    for party in status.parties:
        is_lead = party.party == status.lead
        cells = status_cells(party, is_lead) if width >= _WIDE else [_stage(party, is_lead)]
        table.add_row(Text(party.party), *cells)
    return table


def status_cells(party: PartyStatus, is_lead: bool) -> list[str]:
    """What a party has sent and got: agreed, key, submitted, answer."""
    agreed = "other" if party.other_plan else _word(party.agreed)
    submitted = "(lead)" if is_lead else _word(party.submitted)
    sent = "sent" if party.receives else "receipt sent"
    answer = ("has it" if is_lead else sent) if party.answered else "-"
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
