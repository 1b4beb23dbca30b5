"""How far a session is, on a terminal."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tpmdp.report.tables import new_table
from tpmdp.study.events import names_text

if TYPE_CHECKING:
    from rich.console import Console

    from tpmdp.study.status import StudyStatus


def print_status(status: StudyStatus, console: Console) -> None:
    """What the relay holds of each party."""
    from rich.text import Text

    attempt = f", attempt {status.attempt}" if status.attempt > 1 else ""
    console.print(Text(f"{status.session}{attempt}: {status.summary()}"))
    table = new_table("")
    table.add_column("party", overflow="fold", min_width=8)
    for heading in ("agreed", "key", "submitted", "answer"):
        table.add_column(heading, no_wrap=True)
    for party in status.parties:
        submitted = "adds up" if party.party == status.lead else _word(party.submitted)
        agreed = "other" if party.other_plan else _word(party.agreed)
        answer = ("has it" if party.party == status.lead else "sent") if party.answered else "-"
        table.add_row(Text(party.party), agreed, _word(party.key), submitted, answer)
    console.print(table)
    others = [party.party for party in status.parties if party.other_plan]
    if others:
        remedy = "compare tpmdp fingerprint and the study files; nothing is charged meanwhile"
        console.print(Text(f"Another study or plan: {names_text(others)}. To do: {remedy}."))
    console.print("As the relay says, which nobody need trust. Asking has changed nothing.")


def _word(done: bool) -> str:
    return "yes" if done else "-"
