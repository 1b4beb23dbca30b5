"""Records from a PostgreSQL server, read only.

Keep the password out of the source file: PGPASSWORD, ~/.pgpass and PGSERVICE work as with psql.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from tpmdp.data.columns import Wanted, column_builders, find_columns, wrong_type
from tpmdp.data.faults import Faults
from tpmdp.data.table import Column
from tpmdp.errors import FileError, MissingDependencyError, shown

if TYPE_CHECKING:
    import psycopg
    from psycopg import sql

_CONNECT_S: Final = 10
_ROWS_AT_ONCE: Final = 10_000
_MESSAGE_SHOWN: Final = 200
_NUMBER_TYPES: Final = frozenset({"bool", "int2", "int4", "int8", "float4", "float8", "numeric"})
_TEXT_TYPES: Final = frozenset({"text", "varchar", "bpchar", "name"})
_READ_ONLY: Final = "25006"
_ABOUT_THE_SQL: Final = "42"  # the class of syntax errors, unknown names and missing rights


def read_postgresql(
    path: Path,
    wanted: Wanted,
    server: str,
    *,
    table: str = "",
    query: str = "",
    timeout_s: int = 600,
    faults: Faults | None = None,
) -> dict[str, Column]:
    """The wanted columns of a table or of a query. `path` is the source file, which errors name.

    Everything happens in one read-only transaction that is rolled back. No error shows a password.

    >>> read_postgresql(Path("bank.toml"), {"age": "number"}, "no connection", table="stays")
    Traceback (most recent call last):
        ...
    tpmdp.errors.FileError: bank.toml has no valid connection in `postgresql`: write "host=... dbname=..."
    """
    end = time.monotonic() + timeout_s
    with _connected(path, server) as connection, _explained(path, timeout_s):
        connection.read_only = True
        # These statements also take the snapshot; after that, nothing can make the transaction writable.
        connection.execute("SELECT set_config('statement_timeout', %s, true)", [str(timeout_s * 1000)])
        connection.execute("SELECT set_config('cursor_tuple_fraction', '1', true)")  # all rows will be read
        with _cursor(connection, _whole(table) if table else query.encode()) as cursor:
            places = _places(path, wanted, cursor)
        if table:
            places = list(range(len(wanted)))
        columns = column_builders(path, wanted, faults)
        with _cursor(connection, _part(table, wanted) if table else query.encode()) as cursor:
            while rows := cursor.fetchmany(_ROWS_AT_ONCE):
                for place, column in zip(places, columns.values(), strict=True):
                    column.extend([row[place] for row in rows])
                if time.monotonic() > end:
                    raise _too_slow(path, timeout_s)
    return {name: column.finish() for name, column in columns.items()}


def _whole(table: str) -> sql.Composed:
    from psycopg import sql

    return sql.SQL("SELECT * FROM {}").format(sql.Identifier(*table.split(".")))


def _part(table: str, wanted: Wanted) -> sql.Composed:
    from psycopg import sql

    names = sql.SQL(", ").join(map(sql.Identifier, wanted))
    return sql.SQL("SELECT {} FROM {}").format(names, sql.Identifier(*table.split(".")))


@contextmanager
def _cursor(connection: psycopg.Connection[Any], query: sql.Composed | bytes) -> Iterator[psycopg.ServerCursor[Any]]:
    """A cursor on the server. It accepts only a single SELECT, and sends a few rows at a time."""
    with connection.cursor("tpmdp") as cursor:
        yield cursor.execute(query, binary=True)


def _places(path: Path, wanted: Wanted, cursor: psycopg.ServerCursor[Any]) -> list[int]:
    """The positions of the wanted columns; their types must fit."""
    from psycopg import adapters

    entries = cursor.description or []
    places = find_columns(path, wanted, [entry.name for entry in entries])
    for (name, kind), place in zip(wanted.items(), places, strict=True):
        known = adapters.types.get(entries[place].type_code)
        type_name = known.name if known else "custom"
        if type_name not in (_NUMBER_TYPES if kind == "number" else _TEXT_TYPES):
            raise wrong_type(path, name, type_name, kind=kind)
    return places


@contextmanager
def _connected(path: Path, server: str) -> Iterator[psycopg.Connection[Any]]:
    try:
        import psycopg
        from psycopg.conninfo import conninfo_to_dict
    except ImportError:
        raise MissingDependencyError("psycopg", "postgresql", "to read from PostgreSQL") from None
    try:
        options: dict[str, Any] = {"connect_timeout": _CONNECT_S, "application_name": "tpmdp"}
        options |= conninfo_to_dict(server) | {"client_encoding": "utf8"}
    except psycopg.Error:  # its message may quote a password
        raise FileError(path, "has no valid connection in `postgresql`", 'write "host=... dbname=..."') from None
    try:
        connection = psycopg.connect(**options)
    except psycopg.Error as error:
        message = " ".join(str(error).split())
        if str(options.get("password") or "\0") in message:
            message = type(error).__name__
        problem = f"names a PostgreSQL server that cannot be reached ({shown(message, _MESSAGE_SHOWN)})"
        raise FileError(path, problem, "check host, user and password; PGPASSWORD and ~/.pgpass work") from None
    with closing(connection):  # closing without a commit rolls back
        yield connection


@contextmanager
def _explained(path: Path, timeout_s: int) -> Iterator[None]:
    """Errors of the server as a FileError, without what the server says about data."""
    import psycopg

    try:
        yield
    except psycopg.errors.QueryCanceled:
        raise _too_slow(path, timeout_s) from None
    except UnicodeDecodeError:
        raise FileError(path, "names a database with text that is not UTF-8", "correct its encoding") from None
    except psycopg.Error as error:
        state = error.sqlstate or ""
        public = state == _READ_ONLY or state.startswith(_ABOUT_THE_SQL)
        message = shown(error.diag.message_primary, _MESSAGE_SHOWN) if public else type(error).__name__
        raise FileError(
            path, f"has a query that fails in PostgreSQL ({message})", "give one SELECT that works"
        ) from None


def _too_slow(path: Path, timeout_s: int) -> FileError:
    return FileError(path, f"has a query that takes longer than {timeout_s} s", 'set a longer `timeout`, such as "1h"')
