"""Tables as plain lists, and what a reader gives or says."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from tpmdp.data.source import read_table
from tpmdp.data.table import Column, ColumnKind, Text
from tpmdp.errors import FileError

Wanted = Mapping[str, ColumnKind]
Plain = dict[str, list[float] | list[str]]
NUMBER: dict[str, ColumnKind] = {"age": "number"}
BOTH: dict[str, ColumnKind] = {"age": "number", "region": "text"}


def plain(table: Mapping[str, Column]) -> Plain:
    """One value a record; checks on the way that coded text is as promised."""
    result: Plain = {}
    for name, column in table.items():
        if isinstance(column, Text):
            assert column.codes.dtype.name == "int32"
            assert list(column.values) == sorted({column.values[code] for code in column.codes})
            result[name] = [column.values[code] for code in column.codes]
        else:
            assert column.dtype.name == "float64"
            assert type(column).__name__ == "ndarray"
            result[name] = column.tolist()
    return result


def read_plain(path: Path, wanted: Wanted) -> Plain:
    return plain(read_table(path, wanted))


def complaint(path: Path, wanted: Wanted) -> str:
    with pytest.raises(FileError) as caught:
        read_table(path, wanted)
    message = str(caught.value)
    assert "\n" not in message
    return message


def outcome(reader: Callable[[Path, Wanted], Mapping[str, Column]], path: Path, wanted: Wanted) -> str:
    """What a reader gives, to the last bit, or what it says."""
    try:
        return repr(plain(reader(path, wanted)))
    except FileError as error:
        return str(error)
