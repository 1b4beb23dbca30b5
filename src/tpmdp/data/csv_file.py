"""CSV files: DuckDB for a regular file, the Python reader for all others and for every complaint."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

from tpmdp.data.columns import Wanted, find_columns
from tpmdp.data.csv_shape import Shape, measure
from tpmdp.data.csv_text import read_csv_text, read_header
from tpmdp.data.duck import Pick, check_path, connected, fetch
from tpmdp.data.quoting import literal
from tpmdp.data.table import Column
from tpmdp.errors import FileError, MissingDependencyError

_LARGE: Final = 1 << 17  # bytes; a smaller file is read before DuckDB has even started


def read_csv(path: Path, wanted: Wanted) -> dict[str, Column]:
    """The wanted columns of a CSV file.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     file = Path(folder) / "bank.csv"
    ...     _ = file.write_text("age,region" + chr(10) + "70,north" + chr(10) + "41,south" + chr(10))
    ...     table = read_csv(file, {"age": "number", "region": "text"})
    >>> table["age"], table["region"].values
    (array([70., 41.]), ('north', 'south'))
    """
    table = read_csv_fast(path, wanted) if path.stat().st_size >= _LARGE else None
    return read_csv_text(path, wanted) if table is None else table


def read_csv_fast(path: Path, wanted: Wanted) -> dict[str, Column] | None:
    """The same through DuckDB, or None where DuckDB is missing or anything at all looks unusual.

    >>> read_csv_fast(Path("no-wildcards*.csv"), {"age": "number"})
    """
    try:
        source = check_path(path)
        header, lines = read_header(path)
        places = find_columns(path, wanted, header)
        shape = measure(path)
        if shape is None or lines != 1 or shape.commas != (len(header) - 1) * shape.lines:
            return None
        with connected("to read CSV files") as connection:
            relation, picks = _relation(source, len(header), shape), _picks(wanted, places, shape)
            table = _tried(connection, path, relation, picks)
    except (FileError, MissingDependencyError):  # the Python reader says it with the line
        return None
    return table if table and all(len(column) == shape.lines - 1 for column in table.values()) else None


def _tried(connection: Any, path: Path, relation: str, picks: list[Pick]) -> dict[str, Column] | None:
    import duckdb

    try:
        return fetch(connection, path, relation, picks)
    except duckdb.Error:
        return None


def _relation(source: str, width: int, shape: Shape) -> str:
    """The file as a DuckDB relation of text columns c0, c1, ...; nothing is guessed."""
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
        "parallel": str(not shape.quoted_line_ends).lower(),  # threads start at line ends, and some are none
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
