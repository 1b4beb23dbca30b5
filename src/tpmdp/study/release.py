"""What a session gave: to one party, and to all of them."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from typing import Any, Final

from tpmdp.ledger import Ledger
from tpmdp.queries.answer import Answer

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

    def plain(self) -> dict[str, Any]:
        """As values for JSON; infinite numbers as text."""
        values = {each.name: getattr(self, each.name) for each in fields(self)}
        values |= {key: str(values[key]) for key in _NUMBERS if values[key] == math.inf}
        values["answers"] = None if self.answers is None else [answer.plain() for answer in self.answers]
        return values

    @classmethod
    def of_plain(cls, values: Mapping[str, Any]) -> PartyRelease:
        """The inverse of `plain`."""
        numbers = {key: None if values[key] is None else float(values[key]) for key in _NUMBERS}
        answers = values["answers"]
        if answers is not None:
            answers = tuple(Answer.of_plain(answer) for answer in answers)
        return cls(**{**values, **numbers, "answers": answers, "missing": tuple(values.get("missing", ()))})

    def with_ledger(self, ledger: Ledger, unit: str, again: bool = False) -> PartyRelease:
        """The same with what the ledger says now about this unit."""
        spent = ledger.spent(unit)
        return replace(self, spent=spent.epsilon, left=spent.left, again=again)


@dataclass(frozen=True)
class Release:
    """What a session gave all parties that did not drop out, by name."""

    parties: Mapping[str, PartyRelease]

    @property
    def answers(self) -> tuple[Answer, ...]:
        """The answers; every receiver has the same."""
        return next(release.answers for release in self.parties.values() if release.answers is not None)
