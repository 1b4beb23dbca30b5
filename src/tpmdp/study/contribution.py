"""What one party puts into a session: read, checked and encoded once, then handed on as a frozen value."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from tpmdp._util.arrays import IntArray
from tpmdp.data.faults import Faults
from tpmdp.data.frame import Records, as_table
from tpmdp.data.table import Column, ColumnKind, Table, Text
from tpmdp.errors import FileError, InputError
from tpmdp.protocol.terms import Terms
from tpmdp.study.model import Study


@dataclass(frozen=True, eq=False, repr=False)
class Contribution:
    """A party's data as whole numbers, under terms that are about the study and keep the party's budget.

    For sums, `encoded` is the party's statistic on the grid; for a function on shares, its input. `uncounted` are the
    queries for which none of the party's records counts: perhaps a category or a condition is misspelt. `columns` are
    kept for the rounds to come, if there are any.
    """

    study: Study
    terms: Terms
    party: str
    encoded: IntArray
    uncounted: tuple[str, ...] = ()
    columns: Table | None = None

    @classmethod
    def spent(cls, study: Study, terms: Terms, party: str) -> Contribution:
        """In place of the contribution to a session that has ended: nothing is put in again."""
        return cls(study, terms, party, encoded=np.zeros(terms.grid.dimension, dtype=np.int64))

    @property
    def index(self) -> int:
        """The position of the party in the study."""
        return self.study.index(self.party)

    @property
    def under_noise(self) -> IntArray:
        """The part of the data that is added to the party's noise before anything is sent."""
        return self.study.computation.under_noise(self.encoded, self.terms.grid.dimension)

    @property
    def is_receiver(self) -> bool:
        """Whether the party learns the answer."""
        return bool(self.terms.spec.receivers[self.index])


def contribute(study: Study, terms: Terms, name: str, table: Records) -> Contribution:
    """Check terms and data of a party, and encode the data; nothing is charged or written.

    The terms may come from anybody: they must be about this study, and keep this party's budget.
    """
    study = study.first
    index = study.index(name)
    study.check_terms(terms)
    terms.check(index)
    given = as_table(table, study.columns_of(name), name) if study.parties[index].records else {}
    columns = checked_table(study, name, given)
    encoded = study.computation.encode(
        study.parties[index],
        columns,
        terms.grid,
        bound=float(terms.bounds[index]),
        weight=float(study.weights.each[index]),
    )
    encoded.flags.writeable = False
    whole = study if study.part is None else study.part.whole
    uncounted = [query.name for query in whole.computation.sums if columns and query.has_nothing(columns)]
    later = columns if study.part is not None and not study.part.is_last else None
    return Contribution(study, terms, name, encoded=encoded, uncounted=tuple(uncounted), columns=later)


class RecordCountError(InputError):
    """A party has another number of records than the study states."""

    def __init__(self, party: str, count: int, stated: int) -> None:
        self.count, self.stated = count, stated
        rule = f"must be the number the study states ({stated}), which is public"
        super().__init__(f"records of {party}", count, rule, "correct the data or the study")


class BadRecordsError(FileError):
    """A file with records that cannot be used; `places` are those of the first."""

    def __init__(self, path: object, bad: int, count: int, *, places: str, remedy: str) -> None:
        self.bad, self.count, self.places = bad, count, places
        super().__init__(path, f"has bad values in {bad} of {count} records ({places})", remedy)


def uncounted_text(contribution: Contribution) -> list[str]:
    """A line for each query for which none of the party's records counts; for that party only."""
    name = contribution.party
    records = contribution.study.party(name).records
    return [
        f"none of the {records} records of {name} counts for {query}: check the spelling of categories and conditions"
        for query in contribution.uncounted
    ]


def check_given(study: Study, name: str, data: object) -> None:
    """Refuse data of a party that has no records in the study, and missing data of one that has."""
    records = study.party(name).records
    if not records and data is not None:
        rule = f"is given, but the study says that {name} has no records"
        value = str(data) if isinstance(data, str | Path) else "(a table)"
        raise InputError("data", value, rule, "correct records in the study, or leave it out")
    if records and data is None:
        raise InputError("data", "(none)", f"is missing for a party with {records} records", "name your file")


def checked_table(study: Study, name: str, table: Table) -> Table:
    """A party's columns as the queries' proofs need them; refuses another number of records than the study states."""
    records = study.party(name).records
    if not records:
        return {}
    columns = study.columns_of(name).items()
    return {column: check_column(name, column, kind, table=table, records=records) for column, kind in columns}


def check_column(
    name: str, column: str, kind: ColumnKind, *, table: Table, records: int | None, faults: Faults | None = None
) -> Column:
    """One finite double or text per record. Values are private, so errors do not show them.

    With `faults`, values that are not finite are counted and become NaN. Any number of records goes without `records`.
    """
    if column not in table:
        raise InputError(f"data of {name}", ", ".join(table), f"has no column {column}", "add it")
    if kind == "text":
        return _check_text(name, column, table[column], records=records)
    values = np.asarray(table[column])
    if values.ndim != 1 or values.dtype.kind not in "fiub":
        rule = "must be one number per record"
        raise InputError(f"column {column} of {name}", f"{values.dtype}{values.shape}", rule, "give a flat array")
    _check_length(name, len(values), records)
    numbers = values.astype(np.float64)
    if not np.isfinite(numbers).all():
        if faults is not None:
            faults.add_rows(column, "missing", np.isnan(numbers), unit="record")
            faults.add_rows(column, "not a finite number", np.isinf(numbers), unit="record")
            return np.where(np.isfinite(numbers), numbers, np.nan)
        first = int(np.argmin(np.isfinite(numbers)))
        raise InputError(f"column {column} of {name}", f"record {first + 1}", "is not a finite number", "correct it")
    return numbers


def _check_text(name: str, column: str, values: Any, *, records: int | None) -> Text:
    if not isinstance(values, Text):
        entries = values.tolist() if isinstance(values, np.ndarray) else values
        if not isinstance(entries, list | tuple) or not all(isinstance(entry, str) for entry in entries):
            rule = "must be one text per record"
            raise InputError(f"column {column} of {name}", type(values).__name__, rule, "give a list of texts")
        return _check_text(name, column, Text.of(entries), records=records)
    _check_length(name, len(values), records)
    return values


def _check_length(name: str, length: int, records: int | None) -> None:
    if records is not None and length != records:
        raise RecordCountError(name, length, records)
