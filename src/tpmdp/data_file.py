"""A party's own records, from a CSV or Parquet file. Complaints name file, line and column, never a value."""

from __future__ import annotations

import csv
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import numpy as np

from tpmdp.errors import FileError, shown
from tpmdp.files import readable
from tpmdp.parquet import read_parquet
from tpmdp.validate import FloatArray

_SIZE_MAX: Final = 64 << 30


def read_columns(path: Path, columns: Sequence[str]) -> dict[str, FloatArray]:
    """Read numeric columns, all of the same length; every value must be a finite number.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     file = Path(folder) / "bank.csv"
    ...     _ = file.write_text("age,stay" + chr(10) + "70,3" + chr(10) + "41,1.5" + chr(10))
    ...     read_columns(file, ["stay"])
    {'stay': array([3. , 1.5])}
    """
    readers = {".csv": _read_csv, ".parquet": _read_parquet}
    reader = readers.get(path.suffix.lower())
    if reader is None:
        raise FileError(path, "is of no known kind", "use a .csv or .parquet file of records")
    with readable(path, _SIZE_MAX):
        return reader(path, list(dict.fromkeys(columns)))


def find_records(folder: Path, name: str) -> Path:
    """The file of a party's records in a folder: NAME.csv or NAME.parquet.

    >>> find_records(Path("no-such-folder"), "bank")
    Traceback (most recent call last):
        ...
    tpmdp.errors.FileError: no-such-folder/bank.csv does not exist: put the records there, or name another folder
    """
    for suffix in (".csv", ".parquet"):
        if (folder / (name + suffix)).is_file():
            return folder / (name + suffix)
    raise FileError(folder / f"{name}.csv", "does not exist", "put the records there, or name another folder")


def _missing(path: Path, column: str, header: Sequence[str]) -> FileError:
    if not header:
        return FileError(path, "is empty", "give a line of column names, then one line a record")
    if len(header) == 1 and ";" in header[0]:
        return FileError(path, f"has no column {shown(column)} (it has {shown(header[0])})", "separate with commas")
    return FileError(path, f"has no column {shown(column)} (it has {shown(', '.join(header))})", "add it")


def _read_csv(path: Path, columns: list[str]) -> dict[str, FloatArray]:
    values: dict[str, list[float]] = {column: [] for column in columns}
    with path.open(encoding="utf-8-sig", newline="") as text:
        rows = csv.reader(text, strict=True)
        try:
            header = [name.strip() for name in next(rows, [])]
            for column in columns:
                if header.count(column) != 1:
                    if column in header:
                        raise FileError(path, f"has the column {shown(column)} twice", "keep one of them")
                    raise _missing(path, column, header)
            places = [(header.index(column), values[column]) for column in columns]
            for row in rows:
                if not row:
                    continue
                if len(row) != len(header):
                    problem = f"line {rows.line_num} has {len(row)} values for {len(header)} columns"
                    raise FileError(path, problem, "give every column one value")
                for place, column_values in places:
                    column_values.append(_number(path, rows.line_num, header[place], row[place]))
        except UnicodeDecodeError:
            raise FileError(path, "is not UTF-8 text", "save it as CSV UTF-8") from None
        except csv.Error as error:
            raise FileError(path, f"line {rows.line_num} is not valid CSV ({error})", "fix the quotes") from None
    return {column: np.array(entries, dtype=np.float64) for column, entries in values.items()}


def _number(path: Path, line: int, column: str, text: str) -> float:
    try:
        number = float(text)
        if "_" in text or not math.isfinite(number):
            raise ValueError
    except ValueError:
        problem = f"line {line} has no finite number in column {shown(column)}"  # the value itself is private
        raise FileError(path, problem, "correct the record, or remove it and lower `records` in the study") from None
    return number


def _read_parquet(path: Path, columns: list[str]) -> dict[str, FloatArray]:
    found = read_parquet(path)
    result = {}
    for column in columns:
        if column not in found:
            raise _missing(path, column, list(found))
        values = np.ma.getdata(found[column])
        if values.dtype.kind not in "fiub":
            raise FileError(path, f"has {shown(column)} of type {values.dtype}, not numbers", "store plain numbers")
        plain = values.astype(np.float64)
        bad = np.ma.getmaskarray(found[column]) | ~np.isfinite(plain)
        if bad.any():
            problem = f"row {int(np.argmax(bad)) + 1} has no finite number in column {shown(column)}"
            raise FileError(path, problem, "correct the record, or remove it and lower `records` in the study")
        result[column] = plain
    return result
