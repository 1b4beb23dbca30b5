"""How a sentence of the paper's results section is checked against what was measured.

Words such as "similar" have one meaning for all claims, given here and in the report (`WORDS`). A remark says where a
claim holds only by a narrow margin, or by the choice of a word's meaning.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
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
    "same*: within 10 %. For the count these are errors computed for the budgets drawn. For the regression, where "
    "most of the error remains without noise, they are errors beyond that of the fit without noise, with Wilcoxon's "
    "signed-rank test on the runs"
)


class ClaimStatus(StrEnum):
    """Whether a claim holds."""

    HOLDS = "holds"
    FAILS = "does not hold"
    DEPENDS = "depends"
    UNKNOWN = "not measured"
    UNDECIDED = "not decided by --quick"


@dataclass(frozen=True)
class ClaimResult:
    """Whether a claim holds, and the numbers that show it."""

    status: ClaimStatus
    measured: str


Check = Callable[[Results], ClaimResult]


@dataclass(frozen=True)
class Claim:
    """A sentence of the paper, how to check it, and a comment."""

    where: str
    text: str
    check: Check
    why: str = ""
    """Shown if the claim does not simply hold."""
    remark: str = ""
    """Always shown."""
    too_quick: str = ""
    """Why a quick run cannot decide it, although it has the points; empty if it can."""

    def result(self, results: Results, *, quick: bool = False) -> ClaimResult:
        """The result; "not measured" if a point that the check needs was not run.

        A `quick` run has fewer points and repetitions. It leaves a claim undecided rather than judge it differently.
        """
        try:
            result = self.check(results)
        except NotMeasuredError:
            return ClaimResult(ClaimStatus.UNDECIDED if quick else ClaimStatus.UNKNOWN, "")
        return ClaimResult(ClaimStatus.UNDECIDED, result.measured) if quick and self.too_quick else result

    def note(self, result: ClaimResult) -> str:
        """The comment on this result."""
        if result.status is ClaimStatus.UNDECIDED:
            return self.too_quick or "The quick run leaves out points that this claim needs."
        fails = result.status in (ClaimStatus.FAILS, ClaimStatus.DEPENDS)
        return " ".join(text for text in (self.why if fails else "", self.remark) if text)


def claim_in(
    claims: list[Claim], where: str, text: str, *, why: str = "", remark: str = "", too_quick: str = ""
) -> Callable[[Check], Check]:
    """A decorator: the function checks this sentence of the paper.

    >>> claims = []
    >>> @claim_in(claims, "Fig. 1", "G is better than TMDP")
    ... def _better(results):
    ...     return result_of([True], "by 3 %")
    >>> claims[0].result(Results()).measured
    'by 3 %'
    """

    def register(check: Check) -> Check:
        claims.append(Claim(where, text, check, why=why, remark=remark, too_quick=too_quick))
        return check

    return register


def result_of(checks: Iterable[bool], measured: str) -> ClaimResult:
    """A claim holds if it does at all points, fails if it does at none, and else depends.

    >>> result_of([True, False, False], "...").status.value
    'depends'
    """
    passed = list(checks)
    if not passed:
        raise NotMeasuredError("no points")
    status = ClaimStatus.HOLDS if all(passed) else ClaimStatus.DEPENDS if any(passed) else ClaimStatus.FAILS
    return ClaimResult(status, measured)


def result_in_most(checks: Iterable[bool], measured: str) -> ClaimResult:
    """A claim about "most cases" holds if it does at more than half of the points.

    >>> result_in_most([True, True, False], "...").status.value
    'holds'
    """
    passed = list(checks)
    return ClaimResult(ClaimStatus.HOLDS if sum(passed) > len(passed) / 2 else ClaimStatus.FAILS, measured)


def span(values: Iterable[float], digits: int = 2) -> str:
    """The smallest and the largest, as text.

    >>> span([1.234, 1.0]), span([2.0])
    ('1.00 to 1.23', '2.00')
    """
    shown = [f"{value:.{digits}f}" for value in sorted(values)]
    if not shown:
        raise NotMeasuredError("no points")
    return shown[0] if shown[0] == shown[-1] else f"{shown[0]} to {shown[-1]}"


def at_each(ratios: Mapping[float, float], digits: int = 2) -> str:
    """Every ratio with its x, as text.

    >>> at_each({0.1: 1.25, 0.2: 1.5})
    '1.25 at 0.1, 1.50 at 0.2'
    """
    return ", ".join(f"{ratio:.{digits}f} at {x:g}" for x, ratio in ratios.items())


def except_at(words: str, points: Iterable[str]) -> str:
    """The points at which something is not so, as the end of a sentence; nothing if there are none.

    >>> except_at("not at", ["density 0.5"])
    '; not at density 0.5'
    """
    listed = ", ".join(points)
    return f"; {words} {listed}" if listed else ""


def two_or_more(xs: list[float]) -> list[float]:
    """The points at which a panel was measured, of which there must be two.

    >>> two_or_more([1.0, 2.0])
    [1.0, 2.0]
    """
    if len(xs) < 2:
        raise NotMeasuredError("too few points")
    return xs


def rounded(value: float) -> str:
    """Two significant digits, as text.

    >>> rounded(3132413.0), rounded(352.0)
    ('3,100,000', '350')
    """
    return f"{float(f'{value:.2g}'):,.0f}"
