"""Records as people have them in Python: columns by name, a pandas, Polars or Arrow table, or the path of a file.

None of these libraries is needed: their tables are known by their methods. A table of any other library that has the
Arrow C stream interface is read with pyarrow, if that is installed.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from decimal import Decimal
from pathlib import Path
from typing import Any, Final, Protocol

import numpy as np

from tpmdp._util.files import StrPath
from tpmdp.data.columns import Wanted, bad_number, column_builders, missing_value, wrong_type
from tpmdp.data.faults import Faults
from tpmdp.data.source import read_table
from tpmdp.data.table import Column, ColumnKind, Table, Text
from tpmdp.errors import FileError, InputError, MissingDependencyError

_NUMBER_KINDS: Final = "fiub"
_TEXT_KINDS: Final = "UST"
_LISTS: Final = ("to_pylist", "to_list", "tolist")  # of Arrow, Polars and pandas
_MISSING: Final = ("isna", "is_null")  # of pandas; of Polars and Arrow


class Frame(Protocol):
    """A table of pandas or Polars."""

    @property
    def columns(self) -> Any:
        """The names of its columns."""


class ArrowStream(Protocol):
    """A table with the Arrow C stream interface."""

    def __arrow_c_stream__(self, requested_schema: Any = None) -> Any:
        """A capsule with the stream."""


Records = Table | Mapping[str, Any] | Frame | ArrowStream | StrPath


def as_table(records: Records, wanted: Wanted, owner: str, faults: Faults | None = None) -> Table:
    """The wanted columns of a party's records. An error names party, row and column, never a value.

    Columns by name are handed on, but for columns of pandas, Polars or Arrow among them. With `faults`, bad entries of
    such columns are counted, as when a file is read.

    >>> import pandas
    >>> as_table(pandas.DataFrame({"age": [70, 41]}), {"age": "number"}, "bank")
    {'age': array([70., 41.])}
    >>> as_table(pandas.DataFrame({"age": [70, None]}), {"age": "number"}, "bank")
    Traceback (most recent call last):
        ...
    tpmdp.errors.InputError: data of bank = DataFrame row 2 has no finite number in column age (the first row is
    row 1): correct the record, or remove it and lower `records` in the study
    """
    if isinstance(records, str | os.PathLike):
        return read_table(records, wanted)
    columns = records if isinstance(records, Mapping) else _columns(records, wanted, owner)
    result: dict[str, Column] = {}
    for name, column in columns.items():
        try:
            if name in wanted:
                column = _column(owner, name, wanted[name], column=column, faults=faults)
            result[name] = column
        except FileError as error:
            first = " (the first row is row 1)" if error.problem.startswith("row ") else ""
            raise InputError(f"data of {owner}", type(records).__name__, error.problem + first, error.remedy) from None
    return result


def _columns(records: Any, wanted: Wanted, owner: str) -> dict[str, Any]:
    """The wanted columns in the library's own type."""
    if hasattr(records, "collect_schema") and hasattr(records, "collect"):  # a query of Polars that has not run yet
        _check_header(records, list(records.collect_schema().names()), wanted, owner=owner)
        records = records.select(list(wanted)).collect()
    if hasattr(records, "iloc"):  # pandas
        _check_header(records, list(records.columns), wanted, owner=owner)
        return {name: records[name] for name in wanted}
    if hasattr(records, "get_column"):  # Polars
        _check_header(records, list(records.columns), wanted, owner=owner)
        return {name: records.get_column(name) for name in wanted}
    if not hasattr(records, "column_names"):
        records = _from_stream(records, owner)
    _check_header(records, list(records.column_names), wanted, owner=owner)
    return {name: records.column(name) for name in wanted}


def _from_stream(records: Any, owner: str) -> Any:
    if not hasattr(records, "__arrow_c_stream__"):
        remedy = "give a pandas, Polars or Arrow table, columns by name, or the path of a file"
        raise InputError(f"data of {owner}", type(records).__name__, "is not a table", remedy)
    try:
        import pyarrow
    except ImportError:
        raise MissingDependencyError("pyarrow", "arrow", f"to read a {type(records).__name__}") from None
    return pyarrow.RecordBatchReader.from_stream(records).read_all()


def _check_header(records: Any, header: Sequence[Any], wanted: Wanted, *, owner: str) -> None:
    for name in wanted:
        count = header.count(name)
        if not count:
            listed = ", ".join(map(str, header)) or f"{type(records).__name__} without columns"
            raise InputError(f"data of {owner}", listed, f"has no column {name}", "rename or add it")
        if count > 1:
            raise InputError(f"data of {owner}", name, "is the name of two columns", "rename one")


def _column(owner: str, name: str, kind: ColumnKind, *, column: Any, faults: Faults | None) -> Any:
    """A column of a library as numbers or text; arrays and lists are checked where they are used."""
    label = Path(f"data of {owner}")  # in place of a file, for the rules that files have too
    if isinstance(column, Text):
        return column
    if isinstance(column, np.ndarray | list | tuple):
        return _list(label, name, kind, column=column, faults=faults)
    missing = _missing(column)
    if missing is not None and missing.any():
        if faults is not None:
            filled = [None if gap else entry for gap, entry in zip(missing, _entries(column) or (), strict=True)]
            return _built(label, name, kind, entries=filled, faults=faults)
        problem = missing_value if kind == "text" else bad_number
        raise problem(label, f"row {int(np.argmax(missing)) + 1}", name)
    values = np.asarray(column) if kind == "number" else None
    if values is not None and values.dtype.kind in _NUMBER_KINDS:
        return values.astype(np.float64)
    if values is not None and values.dtype.kind != "O":
        raise wrong_type(label, name, "text" if values.dtype.kind in _TEXT_KINDS else str(values.dtype), kind=kind)
    entries = _entries(column)
    if entries is None:
        raise InputError(f"column {name} of {owner}", type(column).__name__, "is not a column", "give an array or list")
    return _built(label, name, kind, entries=entries, faults=faults)


def _entries(column: Any) -> list[Any] | None:
    return next((getattr(column, method)() for method in _LISTS if hasattr(column, method)), None)


def _list(label: Path, name: str, kind: ColumnKind, *, column: Any, faults: Faults | None) -> Any:
    """An array or list is checked where it is used; with missing entries or decimals, by the rules of files."""
    if isinstance(column, np.ndarray) and column.dtype.kind != "O":
        return column
    if not any(entry is None or isinstance(entry, Decimal) for entry in column):
        return column
    return _built(label, name, kind, entries=list(column), faults=faults)


def _built(label: Path, name: str, kind: ColumnKind, *, entries: Sequence[object], faults: Faults | None) -> Column:
    builder = column_builders(label, {name: kind}, faults)[name]
    builder.extend(entries)
    return builder.finish()


def _missing(column: Any) -> Any:
    """Which entries are missing, if the library has a notion of that."""
    check = next((getattr(column, method) for method in _MISSING if hasattr(column, method)), None)
    return None if check is None else np.asarray(check(), dtype=np.bool_)
