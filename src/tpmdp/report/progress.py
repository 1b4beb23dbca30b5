"""A session while it goes on: lines for a log, and what a terminal shows."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tpmdp._util.clock import now_s
from tpmdp.study.events import SessionEvent, names_text, time_text

if TYPE_CHECKING:
    from rich.console import RenderableType


class PartyProgress:
    """What one party sees."""

    def __init__(self) -> None:
        self._event: SessionEvent | None = None
        self._deadline = 0.0

    def take(self, event: SessionEvent) -> str:
        """Note an event; returns its line for a log."""
        if not event.is_problem:
            self._event = event
        self._deadline = now_s() + event.seconds_left
        return event.line()

    def picture(self) -> RenderableType:
        """The present state, for a terminal."""
        from rich.text import Text

        return Text("connecting" if self._event is None else self._event.standing(self._deadline - now_s()))


class RunProgress:
    """All parties of a run on this machine.

    >>> progress = RunProgress(["north", "south"])
    >>> event = SessionEvent("step", "north", "agree", attempt=1, names=(), joined=1, parties=2,
    ...                      awaited="agreement", waiting_for=("south",), waiting=1, sent=800, seconds_left=9.5)
    >>> progress.take(event)
    'north has joined (1 of 2); waiting for south; 9 s left'
    """

    def __init__(self, parties: list[str]) -> None:
        self._parties = parties
        self._events: dict[str, SessionEvent] = {}
        self._deadline = 0.0
        self._round = 1

    def take(self, event: SessionEvent) -> str:
        """Note an event; returns its line for a log, or nothing: a party's arrival and end are enough there."""
        first = event.party not in self._events
        if event.is_problem:
            return f"{event.party}: {event.line()}"
        self._deadline = now_s() + event.seconds_left
        self._events[event.party] = event
        left = f"{time_text(event.seconds_left)} left"
        if event.is_end:
            busy = [name for name in self._parties if name not in self._events or not self._events[name].is_end]
            rest = f"; waiting for {names_text(busy)}; {left}" if busy else ""
            return f"{event.party} is done ({len(self._parties) - len(busy)} of {len(self._parties)}){rest}"
        if not first:
            return self._round_line(event, left)
        missing = [name for name in self._parties if name not in self._events]
        rest = f"waiting for {names_text(missing)}; " if missing else ""
        return f"{event.party} has joined ({len(self._events)} of {len(self._parties)}); {rest}{left}"

    def _round_line(self, event: SessionEvent, left: str) -> str:
        """A line for the first party that begins a later round."""
        if event.round == self._round or event.step == "done":
            return ""
        self._round = event.round
        return f"round {event.round} of {event.rounds}; {left}"

    def picture(self) -> RenderableType:
        """A table of all parties, for a terminal."""
        from rich.table import Table
        from rich.text import Text

        table = Table(title="Parties at work", title_justify="left", caption_justify="left")
        for heading in ("party", "step", "waiting for", "bytes sent"):
            table.add_column(heading, overflow="fold", justify="right" if "bytes" in heading else "left")
        for name in self._parties:
            event = self._events.get(name)
            if event is None:
                table.add_row(Text(name), "starting", "", "")
                continue
            waiting = names_text(event.waiting_for, event.waiting) if event.waiting else ""
            number = "" if event.rounds == 1 else f"round {event.round}: "
            table.add_row(Text(name), number + event.step, Text(waiting), f"{event.sent:,}" if event.sent else "")
        if self._events:
            left = time_text(self._deadline - now_s())
            table.caption = f"{len(self._events)} of {len(self._parties)} have joined; {left} left"
        return table
