"""Sessions that this page runs: each in a thread, one for a party and a session, however many tabs ask for it."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from tpmdp.errors import InputError, TpmdpError
from tpmdp.page.join_words import invitee_text
from tpmdp.study.events import SessionEvent, time_text
from tpmdp.study.release import PartyRelease

_LINES_MAX: Final = 200
_LOGGER: Final = logging.getLogger("tpmdp.page")


class WithdrawnError(TpmdpError):
    """Ends the thread of a session that the party has withdrawn from."""


class RunKey(NamedTuple):
    """What may run once at a time: a party's session, with the ledger in this folder."""

    folder: str
    session: bytes
    party: str


@dataclass(eq=False, repr=False)
class SessionRun:
    """A session as the page follows it. Its thread writes, and every tab reads."""

    number: int
    key: RunKey
    plan: bytes
    about: Any  # what the view needs to show it again
    event: SessionEvent | None = None
    heard_s: float = field(default_factory=time.monotonic)
    lines: tuple[str, ...] = ()
    joined: frozenset[str] = frozenset()
    problems: tuple[str, ...] = ()
    release: PartyRelease | None = None
    error: str = ""
    is_withdrawn: bool = False
    ended: threading.Event = field(default_factory=threading.Event)
    _troubles: tuple[str, ...] = ()

    @property
    def is_running(self) -> bool:
        """Whether it goes on."""
        return not self.ended.is_set()

    @property
    def is_complete(self) -> bool:
        """Whether it has given all it can: nothing is left to send either."""
        return self.release is not None and not self.release.note

    def withdraw(self) -> None:
        """The party has withdrawn: its ledger refuses all that the thread may still try, and nobody waits for it."""
        self.is_withdrawn = True
        self.ended.set()

    def seconds_left(self) -> float:
        """Until the deadline, by the clock of this machine."""
        if self.event is None:
            return 0.0
        return max(0.0, self.event.seconds_left - (time.monotonic() - self.heard_s))

    def note(self, text: str) -> None:
        """Take in something that the party should know."""
        self.lines = (*self.lines, text)[-_LINES_MAX:]

    def take(self, event: SessionEvent) -> None:
        """Take in an event. Trouble stays in view until there is other news, a difference until all have joined."""
        if self.is_withdrawn:
            raise WithdrawnError("the party has withdrawn")
        text = event.line().removesuffix(f"; {time_text(event.seconds_left)} left")
        differences = [each for each in self.problems if each not in self._troubles]
        if event.kind == "trouble":
            self._troubles = (event.text,)
            self.problems = (*differences, event.text)
        else:
            self._troubles = ()
            more = [event.text] if event.kind == "difference" else []
            self.problems = () if event.joined == event.parties else (*differences, *more)
        if self.event is not None and event.round != self.event.round:
            self.joined = frozenset()
        if event.kind == "joined":
            self.joined |= set(event.names)
        self.event, self.heard_s = event, time.monotonic()
        if self.lines[-1:] != (text,):
            self.note(text)


class SessionRuns:
    """All sessions of this page."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._runs: dict[RunKey, SessionRun] = {}
        self._count = 0

    def begin(
        self, key: RunKey, plan: bytes, about: Any, *, work: Callable[[SessionRun], PartyRelease]
    ) -> tuple[SessionRun, bool]:
        """Run `work` in a thread, and whether it was begun: the run that there is goes on if it has not ended.

        >>> runs, gate = SessionRuns(), threading.Event()
        >>> def wait(run: SessionRun) -> PartyRelease:
        ...     gate.wait()
        ...     raise TpmdpError("nobody came")
        >>> key = RunKey("/data", b"1", "north")
        >>> first, is_new = runs.begin(key, b"plan", None, work=wait)
        >>> second, is_second_new = runs.begin(key, b"plan", None, work=wait)
        >>> is_new, is_second_new, first is second
        (True, False, True)
        >>> gate.set(); first.ended.wait(); first.error
        True
        'nobody came'
        """
        with self._lock:
            before = self._runs.get(key)
            if before is not None and before.is_running and before.plan != plan:
                rule = "runs on this page with another study or plan"
                raise InputError("session", key.party, rule, "wait until it has ended, or take back the change")
            if before is not None and before.plan == plan and (before.is_running or before.is_complete):
                return before, False
            self._count += 1
            run = SessionRun(self._count, key, plan, about=about)
            self._runs[key] = run
        threading.Thread(target=_work, args=(run, work), name=f"session-{run.number}", daemon=True).start()
        return run, True

    def of(self, key: RunKey) -> SessionRun | None:
        """The latest run of a party's session."""
        with self._lock:
            return self._runs.get(key)

    def all(self) -> list[SessionRun]:
        """The latest run of every session, the newest last."""
        with self._lock:
            return sorted(self._runs.values(), key=lambda run: run.number)


def _work(run: SessionRun, work: Callable[[SessionRun], PartyRelease]) -> None:
    try:
        run.release = work(run)
    except TpmdpError as error:
        run.error = "" if run.is_withdrawn else invitee_text(error)
    except BaseException as error:
        run.error = "The page has failed here: that is a mistake in tpmdp. Try again: nothing is charged twice."
        _LOGGER.error("%s", f"session {run.number}: {type(error).__name__}")
    finally:
        run.ended.set()
