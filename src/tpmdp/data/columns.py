"""Builders of columns, and the errors about them. An error names file, line and column, never a value."""

from __future__ import annotations

import math
from array import array
from collections.abc import Mapping, Sequence
from decimal import Decimal
from pathlib import Path
from typing import Final

import numpy as np

from tpmdp._util.arrays import FloatArray
from tpmdp.data.faults import FaultKind, Faults, number_fault
from tpmdp.data.table import Column, ColumnKind, Text
from tpmdp.errors import FileError, shown

SIZE_MAX: Final = 64 << 30
TEXT_LENGTH_MAX: Final = 1_000  # characters in one value
TEXT_VALUES_MAX: Final = 1_000_000  # distinct values in one column
_CORRECT: Final = "correct the record, or remove it and lower `records` in the study"
_NAMES: Final = {int: "whole number", float: "number", Decimal: "number", bool: "truth value", str: "text"}
_NAMED_SHOWN: Final = 200
_BAD: Final = -1  # the code of a text that is not there

Wanted = Mapping[str, ColumnKind]


class ColumnError(FileError):
    """A column that cannot be used at all; other columns of the file may be fine."""

    def __init__(self, path: Path, column: str, problem: str, *, remedy: str) -> None:
        self.column = column
        super().__init__(path, problem, remedy)


def find_columns(path: Path, wanted: Wanted, header: Sequence[str]) -> list[int]:
    """The positions of the wanted columns in the header, which must name each once.

    >>> find_columns(Path("a.csv"), {"stay": "number"}, ["age", "stay"])
    [1]
    >>> find_columns(Path("a.csv"), {"cost": "number"}, ["age", "stay"])
    Traceback (most recent call last):
        ...
    tpmdp.data.columns.ColumnError: a.csv has no column cost (it has age, stay): rename or add it
    """
    for name in wanted:
        count = header.count(name)
        if not count:
            raise _missing(path, name, header)
        if count > 1:
            raise ColumnError(path, name, f"has the column {shown(name)} twice", remedy="keep one of them")
    return [header.index(name) for name in wanted]


def _missing(path: Path, name: str, header: Sequence[str]) -> FileError:
    if not header:
        return FileError(path, "is empty", "give a line of column names, then one line per record")
    if any(_looks_like_a_number(entry) for entry in header):  # then it is a record, and private
        problem = f"has no column {shown(name)}, and its first line looks like a record"
        return FileError(path, problem, "begin with a line of column names")
    problem = f"has no column {shown(name)} (it has {shown(', '.join(header), _NAMED_SHOWN)})"
    alike = [entry for entry in header if entry.strip().lower() == name.strip().lower()]
    if alike:
        return ColumnError(path, name, problem, remedy=f"rename {shown(repr(alike[0]))} to {shown(name)}")
    remedy = "separate with commas" if len(header) == 1 and ";" in header[0] else "rename or add it"
    return ColumnError(path, name, problem, remedy=remedy)


def _looks_like_a_number(text: str) -> bool:
    try:
        float(text.partition(";")[0])
    except ValueError:
        return False
    return True


def bad_number(path: Path, place: str, name: str) -> FileError:
    """The error for a value that is missing, not a number or not finite.

    >>> print(bad_number(Path("a.csv"), "line 7", "age").problem)
    line 7 has no finite number in column age
    """
    return FileError(path, f"{place} has no finite number in column {shown(name)}", _CORRECT)


def missing_value(path: Path, place: str, name: str) -> FileError:
    """The error for text that is missing or empty.

    >>> print(missing_value(Path("a.csv"), "line 7", "region").problem)
    line 7 has no value in column region
    """
    return FileError(path, f"{place} has no value in column {shown(name)}", _CORRECT)


def too_long(path: Path, place: str, name: str) -> FileError:
    """The error for a text that is too long.

    >>> print(too_long(Path("a.csv"), "line 7", "region").problem)
    line 7 has more than 1,000 characters in column region
    """
    problem = f"{place} has more than {TEXT_LENGTH_MAX:,} characters in column {shown(name)}"
    return FileError(path, problem, "shorten it, or choose another column")


def too_many(path: Path, name: str) -> FileError:
    """The error for a text column with too many distinct values to be a category.

    >>> print(too_many(Path("a.csv"), "note").problem)
    has more than 1,000,000 distinct values in column note
    """
    problem = f"has more than {TEXT_VALUES_MAX:,} distinct values in column {shown(name)}"
    return ColumnError(path, name, problem, remedy="choose a column of categories")


def wrong_type(path: Path, name: str, type_name: str, kind: ColumnKind) -> FileError:
    """The error for a column of another type than wanted.

    >>> print(wrong_type(Path("a.parquet"), "day", "DATE", kind="number").problem)
    has day of type DATE, not numbers
    """
    problem = f"has {shown(name)} of type {shown(type_name)}, not "
    if kind == "number":
        return ColumnError(path, name, problem + "numbers", remedy="store plain numbers")
    return ColumnError(path, name, problem + "text", remedy="store text, or ask for numbers")


class NumberBuilder:
    """A column of numbers while it is read: 8 bytes per record.

    With `faults`, a bad value is counted and becomes NaN.
    """

    def __init__(self, path: Path, name: str, faults: Faults | None = None) -> None:
        self._path, self._name, self._faults = path, name, faults
        self._entries = array("d")

    def append(self, text: str, line: int) -> None:
        """Add a value as written in a CSV file.

        >>> NumberBuilder(Path("a.csv"), "age").append("1_0", 7)
        Traceback (most recent call last):
            ...
        tpmdp.errors.FileError: a.csv line 7 has no finite number in column age: correct the record, or remove it
        and lower `records` in the study
        """
        try:
            number = float(text)
        except ValueError:
            number = math.nan
        if "_" in text or not math.isfinite(number):
            number = self._refuse(f"line {line}", number_fault(text))
        self._entries.append(number)

    def skip(self) -> None:
        """Add a place for a record that is bad as a whole, and counted elsewhere."""
        self._entries.append(math.nan)

    def _refuse(self, place: str, kind: FaultKind) -> float:
        if self._faults is None:
            raise bad_number(self._path, place, self._name)
        self._faults.add(self._name, kind, place)
        return math.nan

    def extend(self, values: Sequence[object]) -> None:
        """Add values from a database, in order.

        >>> column = NumberBuilder(Path("a.db"), "age")
        >>> column.extend([70, 1.5, Decimal("0.1"), True])
        >>> column.finish()
        array([70. ,  1.5,  0.1,  1. ])
        """
        for value in values:
            if not isinstance(value, int | float | Decimal | None):
                if self._faults is None:
                    raise wrong_type(self._path, self._name, _type_name(value), kind="number")
                value = math.inf
            try:
                number = math.nan if value is None else float(value)
            except (OverflowError, ValueError):  # a whole number beyond the doubles, a signalling NaN
                number = math.inf
            if not math.isfinite(number):
                kind: FaultKind = "missing" if math.isnan(number) else "not a finite number"
                number = self._refuse(f"row {len(self._entries) + 1}", kind)
            self._entries.append(number)

    def finish(self) -> FloatArray:
        """The column as doubles."""
        return np.array(self._entries, dtype=np.float64)


class TextBuilder:
    """A column of text while it is read: 4 bytes per record, and each distinct value once.

    With `faults`, a bad value is counted and becomes an empty text.
    """

    def __init__(self, path: Path, name: str, faults: Faults | None = None) -> None:
        self._path, self._name, self._faults = path, name, faults
        self._codes = array("i")
        self._code_of: dict[str, int] = {}

    def append(self, text: str, line: int) -> None:
        """One value as written in a CSV file, without its quotes.

        >>> TextBuilder(Path("a.csv"), "region").append("", 7)
        Traceback (most recent call last):
            ...
        tpmdp.errors.FileError: a.csv line 7 has no value in column region: correct the record, or remove it
        and lower `records` in the study
        """
        self._add(text, "line", line)

    def extend(self, values: Sequence[object]) -> None:
        """Add values from a database, in order.

        >>> column = TextBuilder(Path("a.db"), "region")
        >>> column.extend(["south", "north"])
        >>> column.finish().values, column.finish().codes.tolist()
        (('north', 'south'), [1, 0])
        """
        for value in values:
            if isinstance(value, str | None):
                self._add(value or "", "row", len(self._codes) + 1)
            elif self._faults is None:
                raise wrong_type(self._path, self._name, _type_name(value), kind="text")
            else:
                self._faults.add(self._name, "not text", f"row {len(self._codes) + 1}")
                self.skip()

    def _add(self, text: str, unit: str, number: int) -> None:
        code = self._code_of.get(text)
        if code is None:
            if not text or len(text) > TEXT_LENGTH_MAX:
                if self._faults is None:
                    error = missing_value if not text else too_long
                    raise error(self._path, f"{unit} {number}", self._name)
                self._faults.add(self._name, "missing" if not text else "too long", f"{unit} {number}")
                self.skip()
                return
            code = self._code_of[text] = len(self._code_of)
            if code >= TEXT_VALUES_MAX:
                raise too_many(self._path, self._name)
        self._codes.append(code)

    def skip(self) -> None:
        """Add a place for a record that is bad as a whole, and counted elsewhere."""
        self._codes.append(_BAD)

    def finish(self) -> Text:
        """The column with its values sorted."""
        codes = np.array(self._codes, dtype=np.int32)
        values = sorted(self._code_of)
        first = int((codes == _BAD).any())  # the empty text is the first value, if it is one
        rank = np.zeros(len(values) + 1, dtype=np.int32)  # the last entry is that of a bad value
        rank[[self._code_of[value] for value in values]] = np.arange(first, first + len(values), dtype=np.int32)
        return Text(rank[codes], ("",) * first + tuple(values))


def _type_name(value: object) -> str:
    return _NAMES.get(type(value), type(value).__name__)


def column_builders(path: Path, wanted: Wanted, faults: Faults | None = None) -> dict[str, NumberBuilder | TextBuilder]:
    """An empty builder for each wanted column.

    >>> sorted(column_builders(Path("a.csv"), {"age": "number"}))
    ['age']
    """
    kinds: dict[ColumnKind, type[NumberBuilder] | type[TextBuilder]] = {"number": NumberBuilder, "text": TextBuilder}
    return {name: kinds[kind](path, name, faults) for name, kind in wanted.items()}


def join_tables(path: Path, wanted: Wanted, tables: Sequence[Mapping[str, Column]]) -> dict[str, Column]:
    """The records of several tables, one after the other.

    >>> parts = [{"region": Text.of(["south"])}, {"region": Text.of(["north", "south"])}]
    >>> joined = join_tables(Path("a.toml"), {"region": "text"}, parts)["region"]
    >>> joined.values, joined.codes.tolist()
    (('north', 'south'), [1, 0, 1])
    """
    if len(tables) == 1:
        return dict(tables[0])
    result: dict[str, Column] = {}
    for name in wanted:
        parts = [table[name] for table in tables]
        texts = [part for part in parts if isinstance(part, Text)]
        numbers = [part for part in parts if not isinstance(part, Text)]
        result[name] = _join_texts(path, name, texts) if texts else np.concatenate(numbers)
    return result


def _join_texts(path: Path, name: str, parts: Sequence[Text]) -> Text:
    values = sorted(set().union(*(part.values for part in parts)))
    if len(values) > TEXT_VALUES_MAX:
        raise too_many(path, name)
    place = {value: code for code, value in enumerate(values)}
    codes = [np.array([place[value] for value in part.values] or [0], dtype=np.int32)[part.codes] for part in parts]
    return Text(np.concatenate(codes), tuple(values))
