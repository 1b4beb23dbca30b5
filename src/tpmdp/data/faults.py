"""Bad values in a party's records: counted, where a reader would otherwise stop at the first. No value is kept."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import Final, Literal

import numpy as np

from tpmdp._util.arrays import BoolArray
from tpmdp.data.table import Column, Text

PLACES_MAX: Final = 5  # of each fault that are named
_BLANK: Final = frozenset({"", "na", "n/a", "nan", "null", "none"})
FaultKind = Literal["missing", "not a finite number", "not text", "too long", "another number of values"]


@dataclass(frozen=True)
class Fault:
    """One kind of bad value in a column (or in whole rows, where the column is empty), how often, and where first."""

    column: str
    kind: FaultKind
    count: int
    places: tuple[str, ...]


class Faults:
    """Collects bad values while records are read; the reader puts NaN or an empty text in their place.

    >>> faults = Faults()
    >>> for line in range(2, 12):
    ...     faults.add("age", "missing", f"line {line}")
    >>> faults.report()[0].count, faults.report()[0].places[:2]
    (10, ('line 2', 'line 3'))
    """

    def __init__(self) -> None:
        self._counts: Counter[tuple[str, FaultKind]] = Counter()
        self._places: dict[tuple[str, FaultKind], list[str]] = {}
        self.file = ""  # named before each place, where records lie in several files

    def add(self, column: str, kind: FaultKind, place: str, count: int = 1) -> None:
        """Count a bad value, or several of which this is the first."""
        self._counts[column, kind] += count
        places = self._places.setdefault((column, kind), [])
        if len(places) < PLACES_MAX:
            places.append(f"{self.file} {place}" if self.file else place)

    def add_rows(self, column: str, kind: FaultKind, bad: BoolArray, unit: str = "row") -> None:
        """Count the marked rows."""
        rows = np.flatnonzero(bad)
        for row in rows[:PLACES_MAX].tolist():
            self.add(column, kind, f"{unit} {row + 1}")
        self._counts[column, kind] += max(0, len(rows) - PLACES_MAX)

    def report(self) -> tuple[Fault, ...]:
        """The faults in the order in which they were met first."""
        return tuple(
            Fault(column, kind, self._counts[column, kind], places=tuple(places))
            for (column, kind), places in self._places.items()
        )


def number_fault(text: str) -> FaultKind:
    """What is wrong with a text that is not a finite number.

    >>> number_fault(" "), number_fault("NA"), number_fault("1,5")
    ('missing', 'missing', 'not a finite number')
    """
    return "missing" if text.strip().lower() in _BLANK else "not a finite number"


def bad_values(column: Column) -> BoolArray:
    """Which values a reader has put in place of bad ones.

    >>> bad_values(np.array([1.0, np.nan])).tolist(), bad_values(Text.of(["", "north"])).tolist()
    ([False, True], [True, False])
    """
    if isinstance(column, Text):
        return np.asarray(column.places([""]) == 0, dtype=np.bool_)
    return ~np.isfinite(column)
