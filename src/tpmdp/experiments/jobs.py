"""A piece of an experiment that can be computed on its own, on any machine, and stored."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Final

import numpy as np

Value = str | int | float | bool | None
Row = dict[str, Value]

RECIPE: Final = 4
"""Raised when what a job computes changes, so that stored rows of earlier versions are not used."""


@dataclass(frozen=True)
class Job:
    """One point of a panel, or some of its repetitions. Two jobs with equal fields give equal rows."""

    experiment: str
    panel: str
    x: float
    """The place on the panel's horizontal axis."""
    first: int
    """The number of the first repetition. Its randomness depends on this number, not on the job."""
    count: int
    """How many repetitions."""
    seed: int
    settings: tuple[tuple[str, Value], ...] = ()
    """Everything else that the result depends on."""
    weight: float = 1.0
    """How long it takes, relative to other jobs."""

    @property
    def setting(self) -> dict[str, Value]:
        """The settings by name.

        >>> Job("count", "density", 0.1, 0, 5, 1, (("parties", 10),)).setting
        {'parties': 10}
        """
        return dict(self.settings)

    @property
    def key(self) -> str:
        """The name of the file of its rows; different jobs have different names.

        >>> Job("count", "density", 0.1, 0, 5, 1).key == Job("count", "density", 0.1, 0, 5, 2).key
        False
        """
        fields = {**asdict(self), "weight": None, "recipe": RECIPE}
        digest = hashlib.sha256(json.dumps(fields, sort_keys=True).encode()).hexdigest()
        return f"{self.experiment}-{self.panel}-{digest[:20]}"

    def random(self, repetition: int) -> np.random.Generator:
        """The randomness of a repetition: the same on every machine, however the work is divided.

        >>> large, small = Job("count", "density", 0.1, 0, 5, 1), Job("count", "density", 0.1, 3, 1, 1)
        >>> bool(large.random(3).random() == small.random(3).random())
        True
        """
        fields = [self.experiment, self.panel, float(self.x).hex(), self.seed, repetition]
        digest = hashlib.sha256(json.dumps(fields).encode()).digest()
        return np.random.default_rng(np.random.SeedSequence(int.from_bytes(digest, "big")))


def rows_of_draws(job: Job, work: Callable[[Job, np.random.Generator], list[Row]]) -> list[Row]:
    """The rows of every draw of a job, with the columns that all panels have.

    >>> rows_of_draws(Job("count", "density", 0.1, 0, 1, 1), lambda job, random: [{"error": 2.0}])
    [{'panel': 'density', 'x': 0.1, 'draw': 0, 'error': 2.0, 'seed': 1}]
    """
    return [
        {"panel": job.panel, "x": job.x, "draw": draw, **row, "seed": job.seed}
        for draw in range(job.first, job.first + job.count)
        for row in work(job, job.random(draw))
    ]
