"""What every query declares. All statistics are sums of one vector a record.

Replacing one record (unit "record") or all records of a party (unit "party") moves the local statistic by at most the
declared sensitivity in L2 norm, exactly: not up to floating-point errors. Queries scale their entries to about 1, so
that several in one study are one vector with equal noise, whose joint sensitivity is the root of the sum of squares.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Literal, Protocol

from tpmdp.validate import FloatArray

Z_95: Final = 1.959963984540054  # 97.5 % quantile of the standard normal distribution
Table = Mapping[str, FloatArray]  # columns of equal length
Unit = Literal["record", "party"]


def units_of(unit: Unit, records: int) -> int:
    """How many records may change at once.

    >>> units_of("record", 9), units_of("party", 9), units_of("record", 0)
    (1, 9, 0)
    """
    return min(records, 1) if unit == "record" else records


@dataclass(frozen=True)
class Answer:
    """One number with its error bars. They cover the noise and rounding added for privacy, not sampling."""

    query: str
    value: float
    standard_error: float

    @property
    def interval(self) -> tuple[float, float]:
        """The 95 % interval.

        >>> low, high = Answer("count", 10.0, 1.0).interval
        >>> round(low, 2), round(high, 2)
        (8.04, 11.96)
        """
        return self.value - Z_95 * self.standard_error, self.value + Z_95 * self.standard_error


class Query(Protocol):
    """One question of a study."""

    @property
    def name(self) -> str:
        """What the answer is called."""

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns it reads."""

    @property
    def dimension(self) -> int:
        """How many entries it adds to the vector."""

    def statistic(self, table: Table) -> FloatArray:
        """A party's sum over its records."""

    def sensitivity(self, unit: Unit, records: int) -> float:
        """How far the statistic of a party with so many records can move, in L2 norm."""

    def bound(self, records: int) -> float:
        """The largest absolute value of an entry of the statistic of this many records."""

    def answers(self, total: FloatArray, records: int, standard_error: float) -> list[Answer]:
        """From the noisy sum over all parties, which has this standard error in each entry."""
