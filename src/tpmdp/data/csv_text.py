"""CSV files in pure Python: the reader that decides what is right, and says exactly what is wrong."""

from __future__ import annotations

import csv
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tpmdp.data.columns import Wanted, find_columns, growing
from tpmdp.data.table import Column
from tpmdp.errors import FileError


@contextmanager
def _rows(path: Path) -> Iterator[Any]:
    """The rows of a file, as csv.reader gives them; what is no CSV becomes a FileError."""
    with path.open(encoding="utf-8-sig", newline="") as text:
        rows = csv.reader(text, strict=True)
        try:
            yield rows
        except UnicodeDecodeError:
            raise FileError(path, "is not UTF-8 text", "save it as CSV UTF-8") from None
        except csv.Error as error:
            raise FileError(path, f"line {rows.line_num} is not valid CSV ({error})", "fix the quotes") from None


def read_header(path: Path) -> tuple[list[str], int]:
    """The column names, without surrounding blanks, and how many lines they take.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     file = Path(folder) / "bank.csv"
    ...     _ = file.write_text("age, stay" + chr(10) + "70,3" + chr(10))
    ...     read_header(file)
    (['age', 'stay'], 1)
    """
    with _rows(path) as rows:
        return [name.strip() for name in next(rows, [])], rows.line_num


def read_csv_text(path: Path, wanted: Wanted) -> dict[str, Column]:
    """The wanted columns. Empty lines are skipped; every other line has one value for each column of the header.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     file = Path(folder) / "bank.csv"
    ...     _ = file.write_text("age,stay" + chr(10) + "70,3" + chr(10) + "41,1.5" + chr(10))
    ...     read_csv_text(file, {"stay": "number"})
    {'stay': array([3. , 1.5])}
    """
    columns = growing(path, wanted)
    with _rows(path) as rows:
        header = [name.strip() for name in next(rows, [])]
        pairs = list(zip(find_columns(path, wanted, header), columns.values(), strict=True))
        for row in rows:
            if not row:
                continue
            if len(row) != len(header):
                problem = f"line {rows.line_num} has {len(row)} values for {len(header)} columns"
                raise FileError(path, problem, "give every column one value")
            for place, column in pairs:
                column.append(row[place], rows.line_num)
    return {name: column.finish() for name, column in columns.items()}
