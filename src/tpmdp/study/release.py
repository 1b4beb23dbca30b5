"""What a session gave: to one party, and to all of them."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any, Final

from tpmdp._util.frames import data_frame
from tpmdp._util.html import html_text
from tpmdp._util.numbers import plural
from tpmdp.errors import InputError
from tpmdp.ledger import Ledger, rounded_up
from tpmdp.queries.answer import Answer
from tpmdp.queries.rounds import Point
from tpmdp.study.display import answer_rows, answers_html, charges_html
from tpmdp.study.model import Study

_NUMBERS: Final = ("epsilon", "delta", "spent", "left")


@dataclass(frozen=True)
class PartyRelease:
    """What a session gave one party, what it cost, and which guarantee it carries.

    `answers` is None for a party that is not a receiver: it has a receipt. `epsilon` is the real cost at the party's
    delta; `spent` and `left` are its ledger's (None without a ledger).
    """

    party: str
    answers: tuple[Answer, ...] | None
    guarantee: str
    epsilon: float
    delta: float
    spent: float | None
    left: float | None
    bytes_sent: int
    attempt: int
    again: bool = False  # the session was finished before; nothing new was sent or charged
    note: str = ""  # what the party should still do, if anything
    assumes: str = ""  # what the answers assume besides, with weights
    missing: tuple[str, ...] = ()  # parties that dropped out: their data are not in the answers
    rounds: int = 1  # of the study
    rounds_done: int = 1  # fewer: it ended early, and `answers` are those of the last round that was done
    points: Mapping[str, Point] = field(default_factory=dict)  # of a round: at which the next one asks, by query

    def __repr__(self) -> str:
        got = "a receipt" if self.answers is None else plural(len(self.answers), "answer")
        return f"PartyRelease({self.party}: {got}, charged epsilon {rounded_up(self.epsilon)})"

    def _repr_html_(self) -> str:
        answers = "" if self.answers is None else answers_html(self.answers)
        charges = charges_html([(self.party, self.answers is not None, self.epsilon, self.delta)])
        return html_text(f"Release for {self.party}", "h4") + answers + charges + html_text(self.guarantee, "p")

    @property
    def is_stopped(self) -> bool:
        """Whether the study ended before its last round."""
        return self.rounds_done < self.rounds

    def rows(self) -> list[dict[str, Any]]:
        """The answers as one mapping each; infinite where there is no error bar."""
        if self.answers is None:
            remedy = "ask one of the receivers of the study"
            raise InputError("answers", "(none)", f"are not for {self.party}, which is not a receiver", remedy)
        return answer_rows(self.answers)

    def to_frame(self) -> Any:
        """The answers as a pandas DataFrame, one row each."""
        return data_frame(self.rows())

    def plain(self) -> dict[str, Any]:
        """As values for JSON; infinite numbers as text."""
        values = {each.name: getattr(self, each.name) for each in fields(self)}
        values |= {key: str(values[key]) for key in _NUMBERS if values[key] == math.inf}
        values["answers"] = None if self.answers is None else [answer.plain() for answer in self.answers]
        values["points"] = {name: list(point) for name, point in self.points.items()}
        if self.rounds == 1:
            unused = {"rounds", "rounds_done", *([] if self.points else ["points"])}
            values = {key: value for key, value in values.items() if key not in unused}
        return values

    @classmethod
    def of_plain(cls, values: Mapping[str, Any]) -> PartyRelease:
        """The inverse of `plain`."""
        numbers = {key: None if values[key] is None else float(values[key]) for key in _NUMBERS}
        answers = values["answers"]
        if answers is not None:
            answers = tuple(Answer.of_plain(answer) for answer in answers)
        points = {name: tuple(map(float, point)) for name, point in values.get("points", {}).items()}
        more = {"answers": answers, "missing": tuple(values.get("missing", ())), "points": points}
        return cls(**{**values, **numbers, **more})

    @classmethod
    def of_rounds(cls, done: Sequence[PartyRelease], whole: Study, *, epsilon: float, note: str = "") -> PartyRelease:
        """What a study by rounds gave, from the rounds that were done; `epsilon` is what they cost together.

        `note` says why it was not all of them.
        """
        last = done[-1]
        return replace(
            last,
            epsilon=epsilon,
            bytes_sent=sum(each.bytes_sent for each in done),
            attempt=max(each.attempt for each in done),
            again=all(each.again for each in done),
            note=note or last.note,
            rounds=whole.rounds,
            rounds_done=len(done),
            points={},
        )

    def with_ledger(self, ledger: Ledger, unit: str, again: bool = False) -> PartyRelease:
        """The same with what the ledger says now about this unit."""
        spent = ledger.spent(unit)
        return replace(self, spent=spent.epsilon, left=spent.left, again=again)


@dataclass(frozen=True)
class Release:
    """What a session gave all parties that did not drop out, by name."""

    parties: Mapping[str, PartyRelease]
    study: Study | None = field(default=None, compare=False)

    def __repr__(self) -> str:
        return (
            f"Release({self._title}: {plural(len(self._rows), 'answer')} for {', '.join(self.receivers) or 'nobody'})"
        )

    def _repr_html_(self) -> str:
        charges = [(name, each.answers is not None, each.epsilon, each.delta) for name, each in self.parties.items()]
        answers = answers_html(self._rows) if self.receivers else ""
        few = len(self.receivers) < len(self.parties)
        only = f"The charges assume that only these parties see the answer: {', '.join(self.receivers)}."
        return html_text(self._title, "h4") + answers + charges_html(charges) + (html_text(only, "p") if few else "")

    @property
    def _title(self) -> str:
        return "session" if self.study is None else self.study.label

    @property
    def _rows(self) -> tuple[Answer, ...]:
        return self.answers if self.receivers else ()

    @property
    def receivers(self) -> tuple[str, ...]:
        """The parties that got the answers."""
        return tuple(name for name, release in self.parties.items() if release.answers is not None)

    def rows(self) -> list[dict[str, Any]]:
        """The answers as one mapping each; infinite where there is no error bar."""
        return answer_rows(self._rows)

    def to_frame(self) -> Any:
        """The answers as a pandas DataFrame: one row each, with value, standard error and 95 % interval."""
        return data_frame(self.rows())

    @property
    def answers(self) -> tuple[Answer, ...]:
        """The answers; every receiver has the same."""
        return next(release.answers for release in self.parties.values() if release.answers is not None)
