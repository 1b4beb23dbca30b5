"""The checkable sentences of the paper's results section, each held against what was measured.

The words are given one meaning for all claims, here and in the report (`WORDS`). What holds by a narrow margin, or by
the choice of a word's meaning, says so in a remark.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from tpmdp.experiments.results import NotMeasuredError, Results

SIMILAR: Final = 1.5
MUCH: Final = 2.0
CONSTANT: Final = 1.1
BETTER: Final = 1.01
OURS: Final = "a question of ours"
WORDS: Final = (
    "*better*: the error is at least 1 % less; *significantly*: at least 10 % less, and the paired 95 % interval "
    "excludes equality; *similar*, *close*: within a factor of 1.5; *much*: a factor of 2 or more; *constant*, *the "
    "same*: within 10 %. For the count these are computed errors of the budgets drawn; for regression, where most of "
    "the error is there without noise, the error beyond that of the fit without noise, with Wilcoxon's signed-rank "
    "test on the runs"
)


class ClaimStatus(StrEnum):
    """What became of a claim."""

    HOLDS = "holds"
    FAILS = "does not hold"
    DEPENDS = "depends"
    UNKNOWN = "not measured"


@dataclass(frozen=True)
class ClaimResult:
    """A verdict and the numbers it rests on."""

    verdict: ClaimStatus
    measured: str


@dataclass(frozen=True)
class Claim:
    """A sentence of the paper, how to check it, and what is to be said of it."""

    where: str
    text: str
    check: Callable[[Results], ClaimResult]
    why: str = ""
    """Told where it does not simply hold."""
    remark: str = ""
    """Told always."""

    def finding(self, results: Results) -> ClaimResult:
        """The finding; "not measured" where a needed point was not run."""
        try:
            return self.check(results)
        except NotMeasuredError:
            return ClaimResult(ClaimStatus.UNKNOWN, "")

    def note(self, finding: ClaimResult) -> str:
        """What is to be said of it, given what was found."""
        wanting = finding.verdict in (ClaimStatus.FAILS, ClaimStatus.DEPENDS)
        return " ".join(text for text in (self.why if wanting else "", self.remark) if text)


def judged(holds: int, of: int, measured: str) -> ClaimResult:
    """Holds everywhere, nowhere, or at some points.

    >>> judged(1, 3, "...").verdict.value
    'depends'
    """
    if not of:
        raise NotMeasuredError("no points")
    verdict = ClaimStatus.HOLDS if holds == of else ClaimStatus.FAILS if not holds else ClaimStatus.DEPENDS
    return ClaimResult(verdict, measured)


def span(values: list[float], digits: int = 2) -> str:
    """The smallest and the largest, as text.

    >>> span([1.234, 1.0]), span([2.0])
    ('1.00 to 1.23', '2.00')
    """
    if not values:
        raise NotMeasuredError("no points")
    low, high = f"{min(values):.{digits}f}", f"{max(values):.{digits}f}"
    return low if low == high else f"{low} to {high}"


def measured(xs: list[float]) -> list[float]:
    """The points at which a panel was measured, of which there must be two.

    >>> measured([1.0, 2.0])
    [1.0, 2.0]
    """
    if len(xs) < 2:
        raise NotMeasuredError("too few points")
    return xs


def rounded(value: float) -> str:
    """Two digits that mean something, as text.

    >>> rounded(3132413.0), rounded(352.0)
    ('3,100,000', '350')
    """
    return f"{float(f'{value:.2g}'):,.0f}"
