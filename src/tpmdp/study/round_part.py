"""One round of a study by rounds, as a study of its own: what it adds to the queries and budgets of that round."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

from tpmdp._util.canonical import canonical_json
from tpmdp.queries.rounds import Point
from tpmdp.spec import Party

StudyType = TypeVar("StudyType")


@dataclass(frozen=True)
class RoundPart(Generic[StudyType]):
    """Which round of which study this is, and the points at which it asks."""

    number: int
    count: int
    whole: StudyType
    points: tuple[tuple[str, Point], ...] = ()  # by query

    @property
    def is_last(self) -> bool:
        """Whether it gives the answers of the study."""
        return self.number == self.count

    @property
    def text(self) -> str:
        """For people."""
        return f"round {self.number} of {self.count}"

    @property
    def point_texts(self) -> dict[str, str]:
        """Every point as exact text."""
        return {name: " ".join(number.hex() for number in point) for name, point in self.points}

    def bound_text(self, asked: str, parties: Sequence[Party]) -> str:
        """What the parties sign besides the round: what the whole study asks, its budgets, and the points."""
        budgets = [[party.epsilon.hex(), party.delta.hex()] for party in parties]
        document = {"round": [self.number, self.count], "whole": asked, "budgets": budgets, "points": self.point_texts}
        return canonical_json(document)
