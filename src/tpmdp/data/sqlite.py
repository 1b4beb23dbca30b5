"""Records from a SQLite file, read only."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Final

from tpmdp._util.files import readable
from tpmdp.data.columns import SIZE_MAX, Wanted, column_builders, find_columns
from tpmdp.data.faults import Faults
from tpmdp.data.quoting import identifier
from tpmdp.data.table import Column
from tpmdp.errors import FileError, shown

_ALLOWED: Final = (sqlite3.SQLITE_SELECT, sqlite3.SQLITE_READ, sqlite3.SQLITE_FUNCTION, sqlite3.SQLITE_RECURSIVE)
_ROWS_AT_ONCE: Final = 10_000
_LOCK_WAIT_S: Final = 10.0
# How messages about the SQL or the file begin; other messages may quote a record.
_PUBLIC: Final = ("no such ", "near ", "ambiguous column name", "incomplete input", "unrecognized token", "not auth")
_PUBLIC_FILE: Final = ("database is locked", "file is not a database", "unable to open database file", "disk I/O error")


def read_sqlite(
    path: Path, wanted: Wanted, database: Path, *, table: str = "", query: str = "", faults: Faults | None = None
) -> dict[str, Column]:
    """The wanted columns of a table or of a query. `path` is the source file, which errors name.

    SQLite has types per value, not per column: a number column must hold only numbers, a text column only text.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     file = Path(folder) / "clinic.db"
    ...     with closing(sqlite3.connect(file)) as connection, connection:
    ...         _ = connection.execute("CREATE TABLE stays AS SELECT 70 AS age")
    ...     read_sqlite(Path("bank.toml"), {"age": "number"}, file, table="stays")
    {'age': array([70.])}
    """
    with readable(database, SIZE_MAX), _opened(path, database) as connection:
        if table:
            target = ".".join(identifier(part) for part in table.split("."))
            _positions(path, wanted, connection.execute(f"SELECT * FROM {target} LIMIT 0"))  # noqa: S608
            query = f"SELECT {', '.join(map(identifier, wanted))} FROM {target}"  # noqa: S608
        cursor = connection.execute(query)
        places = _positions(path, wanted, cursor)
        columns = column_builders(path, wanted, faults)
        while rows := cursor.fetchmany(_ROWS_AT_ONCE):
            for place, column in zip(places, columns.values(), strict=True):
                column.extend([row[place] for row in rows])
    return {name: column.finish() for name, column in columns.items()}


def _positions(path: Path, wanted: Wanted, cursor: sqlite3.Cursor) -> list[int]:
    if cursor.description is None:
        raise FileError(path, "has a query that gives no records", "give one SELECT")
    return find_columns(path, wanted, [entry[0] for entry in cursor.description])


@contextmanager
def _opened(path: Path, database: Path) -> Iterator[sqlite3.Connection]:
    """A connection that can only read. Errors do not repeat what the database says about data."""
    address = database.absolute().as_uri() + "?mode=ro"
    try:
        with closing(sqlite3.connect(address, uri=True, timeout=_LOCK_WAIT_S)) as connection:
            connection.set_authorizer(_authorize)
            yield connection
    except (sqlite3.Error, sqlite3.Warning) as error:
        message = str(error)
        if message.startswith(_PUBLIC_FILE):
            raise FileError(database, f"cannot be read ({shown(message)})", "check the database") from None
        if isinstance(error, sqlite3.DatabaseError) and "prohibited" in message:
            message = "not authorized"
        problem = shown(message, 200) if message.startswith(_PUBLIC) else type(error).__name__
        raise FileError(path, f"has a query that fails in SQLite ({problem})", "give one SELECT that works") from None


def _authorize(action: int, *_: object) -> int:
    return sqlite3.SQLITE_OK if action in _ALLOWED else sqlite3.SQLITE_DENY
