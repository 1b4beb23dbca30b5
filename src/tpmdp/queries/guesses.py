"""Public guesses about the data, for previews only: nothing that is signed, computed or charged depends on them."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any, Final

from tpmdp._util import fields as read
from tpmdp.errors import InputError
from tpmdp.queries.ranges import Range

EVEN: Final = 1 / math.sqrt(3)  # the standard deviation of values that spread evenly over [-1, 1]
CORRELATION_MAX: Final = 0.99
_YES_NO: Final = 2.4  # times the deviation of other columns: 0.4 in the likely case, as where 1 in 5 is 1


@dataclass(frozen=True)
class TypicalColumn:
    """What a column may look like, in its own units; None where nothing is guessed."""

    column: str
    mean: float | None = None
    spread: float | None = None  # standard deviation


@dataclass(frozen=True)
class Guesses:
    """The table `typical` of a study file.

    >>> Guesses.parse({"columns": {"age": {"mean": 45, "spread": 18}}, "share": 0.2}).share
    0.2
    """

    columns: tuple[TypicalColumn, ...] = ()
    correlation: float | None = None  # of any two columns
    share: float | None = None  # of the records that meet a condition

    @classmethod
    def parse(cls, value: Any) -> Guesses:
        """From a table of a study file."""
        remedy = "write such as [typical] and share = 0.2, correlation = 0.3, columns = { age = { mean = 45 } }"
        if not isinstance(value, dict):
            raise InputError("typical", read.written(value), "must be a table", remedy)
        read.check_keys("typical", value, (), optional=("columns", "correlation", "share"))
        columns = value.get("columns", {})
        if not isinstance(columns, dict) or not all(isinstance(entry, dict) for entry in columns.values()):
            rule = "must give columns their mean and spread"
            raise InputError("columns of typical", read.written(columns), rule, remedy)
        return cls(
            tuple(_column(read.title("columns of typical", name), entry) for name, entry in columns.items()),
            _share("correlation of typical", value.get("correlation"), 0.0, high=CORRELATION_MAX),
            _share("share of typical", value.get("share"), 1e-9, high=1.0),
        )

    def settings(self) -> dict[str, Any]:
        """As in a study file; empty if nothing is guessed.

        >>> Guesses.parse({"columns": {"age": {"mean": 45}}}).settings()
        {'columns': {'age': {'mean': 45.0}}}
        """
        columns = {
            each.column: {
                key: value for key, value in (("mean", each.mean), ("spread", each.spread)) if value is not None
            }
            for each in self.columns
        }
        values = {"columns": columns or None, "correlation": self.correlation, "share": self.share}
        return {key: value for key, value in values.items() if value is not None}

    def scenarios(self) -> list[TypicalData]:
        """The likely one first, then a kind and a hard one; they differ only in what is not guessed."""
        likely = TypicalData(self.columns)
        kind = replace(likely, deviation=EVEN, is_even=True, correlation=0.0, share=1.0)
        hard = replace(likely, middle=-0.8, deviation=likely.deviation / 3, correlation=0.6, share=0.1, crowd=0.25)
        known = {"correlation": self.correlation, "share": self.share}
        given = {key: value for key, value in known.items() if value is not None}
        return [replace(each, **given) for each in (likely, kind, hard)]  # type: ignore[arg-type]


NO_GUESSES: Final = Guesses()


def _column(name: str, entry: dict[str, Any]) -> TypicalColumn:
    where = f"{name} in columns of typical"
    read.check_keys(where, entry, (), optional=("mean", "spread"))
    numbers = {key: read.number(f"{key} of {where}", value, finite=True) for key, value in entry.items()}
    if numbers.get("spread", 1.0) <= 0:
        rule = "must be more than 0: a standard deviation"
        raise InputError(f"spread of {where}", numbers["spread"], rule, "guess how much the values vary")
    return TypicalColumn(name, numbers.get("mean"), numbers.get("spread"))


def _share(field: str, value: Any, low: float, high: float) -> float | None:
    if value is None:
        return None
    share = read.number(field, value)
    if not low <= share <= high:
        raise InputError(field, share, f"must lie in [{low:g}, {high:g}]", "guess, or leave it out")
    return share


@dataclass(frozen=True)
class TypicalData:
    """One way that the data might be. Where a column has no guess: its values in units of half its range.

    Columns from 0 to 1 are mostly answers to yes or no, which vary more.

    >>> TypicalData().shape(Range("age", 0.0, 120.0))[1] * 60
    20.0
    >>> round(TypicalData().shape(Range("smoker", 0.0, 1.0))[1] / 2, 3)
    0.4
    """

    columns: tuple[TypicalColumn, ...] = ()
    middle: float = 0.0  # of the values, in [-1, 1]
    deviation: float = 1 / 3
    is_even: bool = False  # values spread evenly; otherwise like a bell
    correlation: float = 0.3
    share: float = 0.5
    crowd: float = 1.0  # size of a group against groups of equal size

    def shape(self, bounds: Range) -> tuple[float, float]:
        """Mean and standard deviation of a column scaled to [-1, 1], within what is possible."""
        half, centre = bounds.width / 2, (bounds.low + bounds.high) / 2
        guess = next((each for each in self.columns if each.column == bounds.column), TypicalColumn(bounds.column))
        mean = self.middle if guess.mean is None else (guess.mean - centre) / half
        mean = min(max(mean, -0.999), 0.999)
        usual = self.deviation * (_YES_NO if (bounds.low, bounds.high) == (0.0, 1.0) else 1.0)
        deviation = usual if guess.spread is None else guess.spread / half
        return mean, min(deviation, math.sqrt(1 - mean * mean))

    def spreads_evenly(self, column: str) -> bool:
        """Whether the values of a column are taken to lie evenly over its bounds."""
        return self.is_even and all(each.column != column for each in self.columns)
