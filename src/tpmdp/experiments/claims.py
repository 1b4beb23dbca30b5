"""The checkable sentences of the paper's results section, each held against what was measured.

The words are given a meaning once, here, before anything is measured:
significantly: the simulated 95 % intervals do not overlap; similar: errors within a factor of 1.5;
much better: by a factor of 2 or more; constant, not sensitive: computed errors vary by at most 10 %.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from tpmdp.experiments.results import NotMeasured, Results

SIMILAR: Final = 1.5
MUCH: Final = 2.0
CONSTANT: Final = 1.1
WORDS: Final = (
    "*significantly*: the simulated 95 % intervals do not overlap; *similar*, *close*: errors within a factor of 1.5; "
    "*much better*: a factor of 2 or more; *constant*, *not sensitive*: computed errors vary by at most 10 %"
)


class Verdict(StrEnum):
    """What became of a claim."""

    HOLDS = "holds"
    FAILS = "does not hold"
    DEPENDS = "depends"
    UNKNOWN = "not measured"


@dataclass(frozen=True)
class Finding:
    """A verdict and the numbers it rests on."""

    verdict: Verdict
    measured: str


@dataclass(frozen=True)
class Claim:
    """A sentence of the paper, how to check it, and why it does not simply hold, where that is so."""

    where: str
    text: str
    check: Callable[[Results], Finding]
    why: str = ""

    def finding(self, results: Results) -> Finding:
        """The finding; "not measured" where a needed point was not run."""
        try:
            return self.check(results)
        except NotMeasured:
            return Finding(Verdict.UNKNOWN, "")


def judged(holds: int, of: int, measured: str) -> Finding:
    """Holds everywhere, nowhere, or at some points.

    >>> judged(1, 3, "...").verdict.value
    'depends'
    """
    if not of:
        raise NotMeasured("no points")
    verdict = Verdict.HOLDS if holds == of else Verdict.FAILS if not holds else Verdict.DEPENDS
    return Finding(verdict, measured)


def span(values: list[float], digits: int = 2) -> str:
    """The smallest and the largest, as text.

    >>> span([1.234, 1.0]), span([2.0])
    ('1.00 to 1.23', '2.00')
    """
    if not values:
        raise NotMeasured("no points")
    low, high = f"{min(values):.{digits}f}", f"{max(values):.{digits}f}"
    return low if low == high else f"{low} to {high}"


def measured(xs: list[float]) -> list[float]:
    """The points at which a panel was measured, of which there must be two.

    >>> measured([1.0, 2.0])
    [1.0, 2.0]
    """
    if len(xs) < 2:
        raise NotMeasured("too few points")
    return xs
