"""What happens in a session, as one of its parties sees it: for a terminal, a log or a program."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import pairwise
from typing import Any, Final, Literal

from tpmdp._util.clock import now_s
from tpmdp.errors import shown
from tpmdp.protocol.party import PartySession
from tpmdp.protocol.terms import Terms

EventKind = Literal["joined", "arrived", "step", "difference", "trouble"]

_NAMES_PLAIN: Final = 20  # in JSON
_NAMES_SHOWN: Final = 5  # in a sentence
_WIDTH: Final = 200  # characters of names in a sentence
_STEPS: Final = {"compute": "computing on shares", "open": "opening the result", "done": "done"}


@dataclass(frozen=True)
class SessionEvent:
    """One thing that has happened, and where the party stands after it.

    `kind` is `joined` (parties have agreed, or are connected), `arrived` (another message that was waited for),
    `step` (the party has gone on), `difference` (a party has another study) or `trouble` (with the relay).

    >>> event = SessionEvent("joined", "north", "agree", attempt=1, names=("south",), joined=2, parties=3,
    ...                      awaited="agreement", waiting_for=("lab",), waiting=1, sent=800, seconds_left=90.0)
    >>> event.line()
    'south has joined (2 of 3); waiting for lab; 1 min 30 s left'
    >>> SessionEvent.of_plain(event.plain()) == event
    True
    """

    kind: EventKind
    party: str
    """Who sees it."""
    step: str
    """connect, agree, group, keys, pads, receive, reveal or done; on shares: connect, compute, open or done."""
    attempt: int
    """0 before the first."""
    names: tuple[str, ...]
    """The parties that have joined, or whose message has arrived."""
    joined: int
    """How many parties have joined so far, this one included."""
    parties: int
    awaited: str
    """What is waited for: agreement, key, pad, submission, self-mask, answer, connection or message."""
    waiting_for: tuple[str, ...]
    """From whom; at most the first 20."""
    waiting: int
    """From how many."""
    sent: int
    """Bytes sent so far; of a computation on shares, known at its end."""
    seconds_left: float
    """Until the deadline."""
    text: str = ""
    """Of a difference or trouble: what it is."""
    round: int = 1
    """Which round of the study goes on."""
    rounds: int = 1

    def plain(self) -> dict[str, Any]:
        """As values for JSON."""
        values = asdict(self)
        kind, text = values.pop("kind"), values.pop("text")
        values["seconds_left"] = round(self.seconds_left, 1)
        if self.rounds == 1:
            del values["round"], values["rounds"]
        return {"event": kind, **values, **({"text": text} if text else {})}

    @classmethod
    def of_plain(cls, values: Mapping[str, Any]) -> SessionEvent:
        """The inverse of `plain`."""
        rest: dict[str, Any] = {
            key: tuple(value) if isinstance(value, list) else value for key, value in values.items()
        }
        return cls(kind=rest.pop("event"), **rest)

    @property
    def is_end(self) -> bool:
        """Whether the party has done the last round."""
        return self.step == "done" and self.round == self.rounds

    @property
    def is_problem(self) -> bool:
        """Whether somebody should do something."""
        return self.kind in ("difference", "trouble")

    def line(self) -> str:
        """What has happened, in one sentence for people."""
        return self._round_text + self._line()

    @property
    def _round_text(self) -> str:
        return "" if self.rounds == 1 else f"round {self.round} of {self.rounds}: "

    def _line(self) -> str:
        left = f"{time_text(self.seconds_left)} left"
        if self.kind == "difference":
            return f"{self.text}; nothing is charged, and the session goes on once it is mended; {left}"
        if self.kind == "trouble":
            return f"{self.text}; trying until the deadline; {left}"
        if self.kind == "joined":
            have = "has" if len(self.names) == 1 else "have"
            news = f"{names_text(self.names)} {have} joined ({self.joined} of {self.parties})"
            if self.joined == self.parties:
                return news  # a step follows
        elif self.kind == "arrived":
            news = f"{self.awaited} of {names_text(self.names)} is here"
        else:
            return self._standing(self.seconds_left)
        return "; ".join(part for part in (news, self.waiting_text(), left) if part)

    def standing(self, seconds_left: float) -> str:
        """Where the party stands, in one sentence for people."""
        return self._round_text + self._standing(seconds_left)

    def _standing(self, seconds_left: float) -> str:
        return "done" if self.step == "done" else f"{self._place_text()}; {time_text(seconds_left)} left"

    def place_text(self) -> str:
        """Where the party stands, without the time."""
        return self._round_text + self._place_text()

    def _place_text(self) -> str:
        if self.step == "done":
            return "done"
        return "; ".join(part for part in (self._progress(), self.waiting_text()) if part)

    def _progress(self) -> str:
        if self.step in _STEPS:
            return f"all {self.parties} have joined, {_STEPS[self.step]}"
        if self.joined < self.parties:
            return f"{self.joined} of {self.parties} have joined"
        return "submitted" if self.awaited == "answer" else f"all {self.parties} have joined"

    def waiting_text(self) -> str:
        """What is waited for, and from whom; nothing if the party waits for nobody."""
        if not self.waiting:
            return ""
        names = names_text(self.waiting_for, self.waiting)
        if self.awaited in ("agreement", "connection"):
            return f"waiting for {names}"
        return f"waiting for the {self.awaited} of {names}"


def names_text(names: Sequence[str], count: int | None = None) -> str:
    """A few names for a sentence; `count` is how many there are, if not all are given.

    >>> names_text(["a", "b", "c", "d", "e", "f"]), names_text(["a", "b"])
    ('a, b, c, d, e and 1 more', 'a, b')
    >>> names_text([])
    ''
    """
    first = shown(", ".join(names[:_NAMES_SHOWN]), _WIDTH) if names else ""
    more = (len(names) if count is None else count) - len(names[:_NAMES_SHOWN])
    return f"{first} and {more} more" if more > 0 else first


def time_text(seconds: float) -> str:
    """A span of time, rounded down to what matters.

    >>> [time_text(seconds) for seconds in (9.7, 75, 600, 7500, 200_000)]
    ['9 s', '1 min 15 s', '10 min 0 s', '2 h 5 min', '2 d 7 h']
    """
    whole = max(0, int(seconds))
    units = (("d", 86_400), ("h", 3_600), ("min", 60), ("s", 1))
    for (unit, size), (smaller, part) in pairwise(units):
        if whole >= size:
            return f"{whole // size} {unit} {whole % size // part} {smaller}"
    return f"{whole} s"


class EventTracker:
    """Turns what one party knows into events, each of which is handed on once."""

    def __init__(
        self,
        terms: Terms,
        index: int,
        deadline: float,
        on_event: Callable[[SessionEvent], None],
        *,
        place: tuple[int, int] = (1, 1),
    ) -> None:
        """`place` is which round of how many this is."""
        self._round, self._rounds = place
        self._terms, self._index, self._deadline, self._on_event = terms, index, deadline, on_event
        self._joined: frozenset[int] = frozenset({index})
        self._place: tuple[str, int] = ("connect", 0)  # step and attempt
        self._awaited, self._sent = "", 0
        self._waiting: tuple[int, ...] = ()
        self._differences: set[str] = set()

    def watch(self, party: PartySession, sent: int) -> None:
        """Note the state of a sum through a relay."""
        self._sent = sent
        for text in party.difference_texts():
            self.difference(text)
        joined = self._joined | party.agreed
        self._move(party.step, joined, party.waiting_for(), awaited=party.awaited, attempt=party.attempt)

    def connected(self, missing: Collection[int]) -> None:
        """Note which parties of a computation on shares are not connected."""
        joined = frozenset(range(self._terms.count)) - frozenset(missing)
        self._move("connect", joined, missing, awaited="connection")

    def step(self, name: str, sent: int = 0) -> None:
        """Note a step of a computation on shares, with all parties."""
        self._sent = sent
        self._move(name, frozenset(range(self._terms.count)), ())

    def difference(self, text: str) -> None:
        """Note what a party with another study has different."""
        if text not in self._differences:
            self._differences.add(text)
            self._emit("difference", text=text)

    def trouble(self, text: str) -> None:
        """Note what is wrong with the relay."""
        self._emit("trouble", text=text)

    def _move(
        self, step: str, joined: frozenset[int], waiting: Collection[int], *, awaited: str = "", attempt: int = 1
    ) -> None:
        new, moved = joined - self._joined, (step, attempt) != self._place
        arrived = frozenset[int]() if moved else frozenset(self._waiting) - frozenset(waiting)
        self._joined, self._place = joined, (step, attempt)
        self._awaited, self._waiting = awaited if waiting else "", tuple(sorted(waiting))
        if new:
            self._emit("joined", new)
        elif arrived:
            self._emit("arrived", arrived)
        if moved and (not new or len(joined) == self._terms.count):
            self._emit("step")

    def _emit(self, kind: EventKind, names: Iterable[int] = (), text: str = "") -> None:
        step, attempt = self._place
        self._on_event(
            SessionEvent(
                kind,
                self._name(self._index),
                step,
                attempt=attempt,
                names=tuple(map(self._name, sorted(names))),
                joined=len(self._joined),
                parties=self._terms.count,
                awaited=self._awaited,
                waiting_for=tuple(map(self._name, self._waiting[:_NAMES_PLAIN])),
                waiting=len(self._waiting),
                sent=self._sent,
                seconds_left=max(0.0, self._deadline - now_s()),
                text=text,
                round=self._round,
                rounds=self._rounds,
            )
        )

    def _name(self, party: int) -> str:
        return self._terms.spec.name(party)
