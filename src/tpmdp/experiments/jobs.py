"""A piece of an experiment that can be computed by itself, anywhere, and kept: what it depends on, and its rows."""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict, dataclass
from typing import Final

import numpy as np

Value = str | int | float | bool | None
Row = dict[str, Value]

RECIPE: Final = 3
"""Raised when what a job computes changes, so that what was kept of earlier runs is not used again."""


@dataclass(frozen=True)
class Job:
    """One point of one panel, or a part of its repetitions. Two jobs with equal fields give equal rows."""

    experiment: str
    panel: str
    x: float
    """Where on the panel's horizontal axis."""
    first: int
    """The number of its first repetition; a repetition's randomness depends on its number, not on the job."""
    count: int
    """How many repetitions."""
    seed: int
    settings: tuple[tuple[str, Value], ...] = ()
    """All else that the result depends on."""
    weight: float = 1.0
    """How long it takes, relative to others: for the time left and the order of work."""

    @property
    def setting(self) -> dict[str, Value]:
        """The settings by name.

        >>> Job("count", "density", 0.1, 0, 5, 1, (("parties", 10),)).setting
        {'parties': 10}
        """
        return dict(self.settings)

    @property
    def key(self) -> str:
        """A name for the file that keeps its rows; jobs that differ have different ones.

        >>> Job("count", "density", 0.1, 0, 5, 1).key == Job("count", "density", 0.1, 0, 5, 2).key
        False
        """
        fields = {**asdict(self), "weight": None, "recipe": RECIPE}
        digest = hashlib.sha256(json.dumps(fields, sort_keys=True).encode()).hexdigest()
        return f"{self.experiment}-{self.panel}-{digest[:20]}"

    def random(self, repetition: int) -> np.random.Generator:
        """The randomness of a repetition: the same on every machine, however the work is divided.

        >>> one, other = Job("count", "density", 0.1, 0, 5, 1), Job("count", "density", 0.1, 3, 1, 1)
        >>> bool(one.random(3).random() == other.random(3).random())
        True
        """
        fields = [self.experiment, self.panel, float(self.x).hex(), self.seed, repetition]
        digest = hashlib.sha256(json.dumps(fields).encode()).digest()
        return np.random.default_rng(np.random.SeedSequence(int.from_bytes(digest, "big")))
