"""The CSV reader.

The Python reader defines what is valid, and its errors name the line. DuckDB reads large files faster but accepts more:
an extra empty value, blanks around quotes, bytes that are not UTF-8 in unread columns. So one pass over the bytes first
checks that the file is so regular that both readers give the same; the Python reader reads every other file.
"""

from __future__ import annotations

import codecs
import csv
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Literal

import numpy as np
from numpy.typing import NDArray

from tpmdp._util.arrays import BoolArray
from tpmdp._util.progress import Progress
from tpmdp.data.columns import Wanted, column_builders, find_columns
from tpmdp.data.duck import Pick, check_path, connected, fetch
from tpmdp.data.faults import Faults
from tpmdp.data.quoting import literal
from tpmdp.data.table import Column
from tpmdp.errors import FileError, MissingDependencyError

_LARGE: Final = 1 << 17  # bytes; the Python reader finishes a smaller file before DuckDB has started
_PROGRESS_ROWS: Final = 65_536
_UTF_16: Final = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)


def read_csv(path: Path, wanted: Wanted, faults: Faults | None = None) -> dict[str, Column]:
    """The wanted columns of a CSV file; with `faults`, bad values are counted and do not stop the reader.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     file = Path(folder) / "bank.csv"
    ...     _ = file.write_text("age,region" + chr(10) + "70,north" + chr(10) + "41,south" + chr(10))
    ...     table = read_csv(file, {"age": "number", "region": "text"})
    >>> table["age"], table["region"].values
    (array([70., 41.]), ('north', 'south'))
    """
    table = read_with_duckdb(path, wanted) if path.stat().st_size >= _LARGE else None
    return read_with_python(path, wanted, faults) if table is None else table


# The Python reader ----------------------------------------------------------------------------------------------------


def csv_rows(path: Path, progress: Progress | None = None) -> Iterator[tuple[int, list[str]]]:
    """Every row with the number of its last line. Progress is counted in bytes.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     file = Path(folder) / "bank.csv"
    ...     _ = file.write_text("age,stay" + chr(10) + "70,3" + chr(10))
    ...     list(csv_rows(file))
    [(1, ['age', 'stay']), (2, ['70', '3'])]
    """
    size = path.stat().st_size
    with path.open(encoding="utf-8-sig", newline="") as text:
        reader = csv.reader(text, strict=True)
        try:
            for count, row in enumerate(reader, 1):
                yield reader.line_num, row
                if progress is not None and count % _PROGRESS_ROWS == 0:
                    progress(min(text.buffer.raw.tell(), size), size)  # type: ignore[attr-defined]
        except UnicodeDecodeError:
            with path.open("rb") as raw:
                encoding = "UTF-16 text" if raw.read(2) in _UTF_16 else "not UTF-8 text"
            raise FileError(path, f"is {encoding}", "save it as CSV UTF-8") from None
        except csv.Error as error:
            raise FileError(path, f"line {reader.line_num} is not valid CSV ({error})", "fix the quotes") from None


def check_width(path: Path, line: int, row: list[str], header: list[str]) -> None:
    """Refuse a row that does not have one value per column.

    >>> check_width(Path("a.csv"), 7, ["1"], header=["age", "stay"])
    Traceback (most recent call last):
        ...
    tpmdp.errors.FileError: a.csv line 7 has 1 values for 2 columns: give every column one value
    """
    if len(row) != len(header):
        problem = f"line {line} has {len(row)} values for {len(header)} columns"
        raise FileError(path, problem, "give every column one value")


def read_with_python(path: Path, wanted: Wanted, faults: Faults | None = None) -> dict[str, Column]:
    """The wanted columns. Empty lines are skipped; every other line has one value per column of the header.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     file = Path(folder) / "bank.csv"
    ...     _ = file.write_text("age,stay" + chr(10) + "70,3" + chr(10) + "41,1.5" + chr(10))
    ...     read_with_python(file, {"stay": "number"})
    {'stay': array([3. , 1.5])}
    """
    columns = column_builders(path, wanted, faults)
    rows = csv_rows(path)
    _, header = _header(rows)
    pairs = list(zip(find_columns(path, wanted, header), columns.values(), strict=True))
    for line, row in rows:
        if not row:
            continue
        if faults is not None and len(row) != len(header):
            faults.add("", "another number of values", f"line {line}")
            for builder in columns.values():
                builder.skip()
            continue
        check_width(path, line, row, header=header)
        for place, column in pairs:
            column.append(row[place], line)
    return {name: column.finish() for name, column in columns.items()}


def _header(rows: Iterator[tuple[int, list[str]]]) -> tuple[int, list[str]]:
    """How many lines the header takes, and its column names without surrounding blanks."""
    lines, names = next(rows, (0, []))
    return lines, [name.strip() for name in names]


# DuckDB ---------------------------------------------------------------------------------------------------------------


def read_with_duckdb(path: Path, wanted: Wanted) -> dict[str, Column] | None:
    """The wanted columns, or None if DuckDB is missing or the file is in any way unusual.

    >>> read_with_duckdb(Path("no-wildcards*.csv"), {"age": "number"})
    """
    try:
        source = check_path(path)
        lines, header = _header(csv_rows(path))
        places = find_columns(path, wanted, header)
        shape = measure(path)
        if shape is None or lines != 1 or shape.commas != (len(header) - 1) * shape.lines:
            return None
        with connected("to read CSV files") as connection:
            relation, picks = _relation(source, len(header), shape), _picks(wanted, places, shape)
            table = _try_to_fetch(connection, path, relation, picks=picks)
    except (FileError, MissingDependencyError):  # the Python reader reports the problem, with the line
        return None
    return table if table and all(len(column) == shape.lines - 1 for column in table.values()) else None


def _try_to_fetch(connection: Any, path: Path, relation: str, picks: list[Pick]) -> dict[str, Column] | None:
    import duckdb

    try:
        return fetch(connection, path, relation, picks=picks)
    except duckdb.Error:
        return None


def _relation(source: str, width: int, shape: Shape) -> str:
    """The file as a DuckDB relation of text columns c0, c1, ...; DuckDB guesses nothing."""
    columns = ", ".join(f"'c{place}': 'VARCHAR'" for place in range(width))
    line_end = "\\r\\n" if shape.line_end == "\r\n" else "\\n"
    options = {
        "auto_detect": "false",
        "header": "false",
        "skip": "1",
        "delim": "','",
        "quote": "'\"'",
        "escape": "'\"'",
        "new_line": f"'{line_end}'",
        "compression": "'none'",
        "hive_partitioning": "false",
        "parallel": str(not shape.quoted_line_ends).lower(),  # threads start at line ends, which may be inside quotes
        "columns": f"{{{columns}}}",
    }
    return f"read_csv({literal(source)}, {', '.join(f'{key} = {value}' for key, value in options.items())})"


def _picks(wanted: Wanted, places: list[int], shape: Shape) -> list[Pick]:
    picks = []
    for (name, kind), place in zip(wanted.items(), places, strict=True):
        text = f"c{place}"
        number = f"TRY_CAST({text} AS DOUBLE)"  # DuckDB rounds as float() does
        if shape.odd_numbers:
            number = f"CASE WHEN NOT contains({text}, '_') AND NOT contains({text}, '+-') THEN {number} END"
        picks.append(Pick(name, kind, number if kind == "number" else text))
    return picks


# The shape of a file --------------------------------------------------------------------------------------------------

_BLOCK: Final = 1 << 20  # fits into a cache
_COMMA, _LINE_FEED, _QUOTE, _RETURN = b',\n"\r'
_AFTER_QUOTE: Final = np.isin(np.arange(256), list(b',\n\r"'))
_BEFORE_QUOTE: Final = np.isin(np.arange(256), list(b',\n"'))


@dataclass
class Shape:
    """Counts over a regular file: lines that are not empty, commas between values, and how lines end."""

    lines: int = 0
    commas: int = 0
    line_end: Literal["\n", "\r\n"] = "\n"
    quoted_line_ends: bool = False
    odd_numbers: bool = False  # the file may hold 1_0 or +-1, which only one of DuckDB and float() accepts
    _open: bool = False  # a quoted value continues in the next block
    _line_start: int = 0
    _position: int = 0

    def add(self, block: bytes, line_max: int) -> bool:
        """Count the next block, which ends with a line feed or the file; False if it is not regular."""
        if b"\0" in block or not _is_utf8(block):
            return False
        if not self._position:
            self.line_end = "\r\n" if b"\r\n" in block else "\n"
        returns = block.count(b"\r")
        if returns and (self.line_end == "\n" or not returns == block.count(b"\r\n") == block.count(b"\n")):
            return False
        if self.line_end == "\r\n" and returns != block.count(b"\n"):
            return False
        self.odd_numbers |= b"_" in block or b"+-" in block
        content = np.frombuffer(block, dtype=np.uint8)
        separators, ends = content == _COMMA, content == _LINE_FEED
        if self._open or b'"' in block:
            outside = self._outside_quotes(content)
            if outside is None:
                return False
            self.quoted_line_ends |= bool((ends & ~outside).any())
            separators, ends = separators & outside, ends & outside
        self.commas += int(np.count_nonzero(separators))
        return self._count_lines(np.flatnonzero(ends), len(block), line_max)

    def _outside_quotes(self, content: NDArray[np.uint8]) -> BoolArray | None:
        """Which bytes are outside quotes; None if a quote is not at the edge of a value."""
        quotes = content == _QUOTE
        inside: BoolArray = ((np.cumsum(quotes, dtype=np.uint8) + np.uint8(self._open)) & 1).astype(np.bool_)
        opening, closing = np.flatnonzero(quotes & inside), np.flatnonzero(quotes & ~inside)
        before = content[opening[opening > 0] - 1]
        after = content[closing[closing < len(content) - 1] + 1]
        if not (_BEFORE_QUOTE[before].all() and _AFTER_QUOTE[after].all()):
            return None
        # A quote in front of an opening quote must be a closing one (`""` in a value): parity says it is.
        self._open = bool(inside[-1])
        return ~inside

    def _count_lines(self, ends: NDArray[np.intp], size: int, line_max: int) -> bool:
        starts = np.concatenate(([self._line_start], ends + self._position + 1))
        lengths = np.diff(starts)
        self._position += size
        self._line_start = int(starts[-1])
        self.lines += int(np.count_nonzero(lengths > len(self.line_end)))
        return max(int(lengths.max(initial=0)), self._position - self._line_start) <= line_max

    def finish(self) -> bool:
        """After the last block: count a last line without an end; False if a quote is still open."""
        self.lines += self._line_start < self._position
        return not self._open


def _is_utf8(block: bytes) -> bool:
    try:
        return block.isascii() or bool(block.decode())
    except UnicodeDecodeError:
        return False


def measure(path: Path) -> Shape | None:
    """The shape of a file, or None if it is not regular.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     file = Path(folder) / "bank.csv"
    ...     _ = file.write_text("age,stay" + chr(10) + "70,3" + chr(10) + "41,1.5" + chr(10))
    ...     shape = measure(file)
    ...     shape.lines, shape.commas
    (3, 3)
    """
    shape = Shape()
    line_max = csv.field_size_limit()  # no value of a shorter line exceeds the limit of the Python reader
    with path.open("rb") as file:
        while block := file.read(_BLOCK):
            block += file.readline(line_max)
            if not block.endswith(b"\n") and file.read(1):
                return None  # a line beyond the limit
            block = block.removeprefix(codecs.BOM_UTF8) if file.tell() == len(block) else block
            if not shape.add(block, line_max):
                return None
    return shape if shape.finish() else None
