"""Who the parties of an experiment are: three groups of budgets, a threshold, random receivers (the paper, Section 6).

Jorgensen et al.'s groups: conservative parties draw epsilon from [0.01, 0.2], moderate ones from [0.2, 1], liberal ones
have 1. delta = 1/(10 n).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from tpmdp._util.arrays import BoolArray, FloatArray
from tpmdp.mechanisms.mechanism import Setting
from tpmdp.spec import Spec

EPSILON_C, EPSILON_M, EPSILON_L = 0.01, 0.2, 1.0
MODERATE: Final = 0.37


@dataclass(frozen=True)
class Scenario:
    """How many parties there are, and of which kind; `threshold` None is half of them, as in the paper."""

    parties: int
    conservative: float = 0.54
    moderate: float = MODERATE
    threshold: int | None = None

    @property
    def colluders(self) -> int:
        """The threshold.

        >>> Scenario(7).colluders
        3
        """
        return self.parties // 2 if self.threshold is None else self.threshold

    def setting(
        self,
        random: np.random.Generator,
        sensitivity: float,
        people: int | None = None,
        spread: float | None = None,
    ) -> Setting:
        """Draw budgets and receivers; of more people than parties, for cross-validation.

        >>> Scenario(4).setting(np.random.default_rng(0), 1.0).spec.delta.tolist()
        [0.025, 0.025, 0.025, 0.025]
        """
        count = self.parties if people is None else people
        spec = Spec(
            epsilon=draw_epsilon(count, self.conservative, self.moderate, random=random),
            delta=1 / (10 * self.parties),
            sensitivity=sensitivity,
            threshold=self.colluders,
            receivers=draw_receivers(count, random),
        )
        return Setting.of(spec, spread)


DEFAULT: Final = Scenario(1000)


def with_x(scenario: Scenario, panel: str, x: float) -> Scenario:
    """The scenario at a point of a panel: another fraction, number of parties or threshold.

    >>> with_x(DEFAULT, "threshold", 7).colluders, with_x(DEFAULT, "parties", 50).colluders
    (7, 25)
    """
    if panel == "conservative":
        return replace(scenario, conservative=x, moderate=min(MODERATE, 1 - x))
    if panel == "parties":
        return replace(scenario, parties=int(x))
    if panel == "threshold":
        return replace(scenario, threshold=int(x))
    return scenario


def draw_epsilon(count: int, conservative: float, moderate: float, random: np.random.Generator) -> FloatArray:
    """The budgets of the three groups, which are put together at random.

    >>> epsilon = draw_epsilon(100, 0.5, 0.3, np.random.default_rng(0))
    >>> int((epsilon < 0.2).sum()), int((epsilon == 1.0).sum())
    (50, 20)
    """
    strict, middle = round(conservative * count), round(moderate * count)
    middle = min(middle, count - strict)
    epsilon = np.full(count, EPSILON_L)
    epsilon[:strict] = random.uniform(EPSILON_C, EPSILON_M, strict)
    epsilon[strict : strict + middle] = random.uniform(EPSILON_M, EPSILON_L, middle)
    random.shuffle(epsilon)
    return epsilon


def draw_receivers(count: int, random: np.random.Generator) -> BoolArray:
    """Any set of receivers but the empty one, each as likely as another.

    >>> bool(draw_receivers(1, np.random.default_rng(0)).any())
    True
    """
    while True:
        receivers = random.random(count) < 0.5
        if receivers.any():
            return receivers
