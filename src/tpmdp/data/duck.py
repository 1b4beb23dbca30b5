"""Columns read by DuckDB: from Parquet files, from regular CSV files, and from SQL over files.

Text is coded inside DuckDB, so ten million records never become ten million Python strings. DuckDB may fetch nothing
from the network and may not write private records to a temporary file, so data must fit into memory.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np

from tpmdp._util.arrays import FloatArray
from tpmdp.data.columns import (
    TEXT_LENGTH_MAX,
    TEXT_VALUES_MAX,
    Wanted,
    bad_number,
    find_columns,
    missing_value,
    too_long,
    too_many,
    wrong_type,
)
from tpmdp.data.faults import PLACES_MAX, FaultKind, Faults
from tpmdp.data.quoting import identifier, literal
from tpmdp.data.table import Column, ColumnKind, Text
from tpmdp.errors import FileError, MissingDependencyError, shown

WILDCARDS: Final = frozenset("*?[]{}")
_SETTINGS: Final = {
    "autoinstall_known_extensions": False,
    "autoload_known_extensions": False,
    "python_enable_replacements": False,  # SQL must not see Python variables
    "temp_directory": "",
}
_EXACT: Final = frozenset(
    {"TINYINT", "SMALLINT", "INTEGER", "BIGINT", "UTINYINT", "USMALLINT", "UINTEGER", "UBIGINT"}
    | {"FLOAT", "DOUBLE", "BOOLEAN"}
)
_BY_WAY_OF_TEXT: Final = ("DECIMAL", "HUGEINT", "UHUGEINT")  # a direct cast to a double may round twice
_QUOTED: Final = re.compile(rb"""(['"])((?:(?!\1).|\1\1)+)\1""", re.DOTALL)
_MESSAGE_SHOWN: Final = 200


@dataclass(frozen=True)
class Pick:
    """A column to fetch, and the SQL expression that gives it: a DOUBLE or a VARCHAR."""

    name: str
    kind: ColumnKind
    expression: str


@contextmanager
def connected(purpose: str) -> Iterator[Any]:
    """A new DuckDB in memory.

    >>> with connected("to read Parquet files") as connection:
    ...     connection.execute("SELECT 1").fetchall()
    [(1,)]
    """
    try:
        import duckdb
    except ImportError:
        raise MissingDependencyError("duckdb", "data", purpose) from None
    with duckdb.connect(":memory:", config=_SETTINGS) as connection:
        connection.execute("SET enable_progress_bar = false")
        yield connection


def check_path(path: Path) -> str:
    """The path for DuckDB, without wildcards, which DuckDB would expand.

    >>> check_path(Path("a*.parquet"))
    Traceback (most recent call last):
        ...
    tpmdp.errors.FileError: a*.parquet has a wildcard in its path: rename it
    """
    full = os.path.abspath(path)
    if WILDCARDS & set(full):
        raise FileError(path, "has a wildcard in its path", "rename it")
    return full


def fetch(
    connection: Any, path: Path, relation: str, picks: Sequence[Pick], faults: Faults | None = None
) -> dict[str, Column]:
    """The columns of a relation, all in the same order of records.

    >>> with connected("to show") as connection:
    ...     fetch(connection, Path("a"), "range(3) AS t(age)", picks=[Pick("age", "number", "age::DOUBLE")])
    {'age': array([0., 1., 2.])}
    """
    selected = ", ".join(f"{pick.expression} AS c{place}" for place, pick in enumerate(picks))
    query = f"SELECT {selected} FROM {relation}"  # noqa: S608 - built from quoted parts
    if any(pick.kind == "text" for pick in picks):  # it is read twice below, and SQL may differ from run to run
        connection.execute(f"CREATE TEMP TABLE picked AS {query}")
        numbers = ", ".join(f"c{place}" for place, pick in enumerate(picks) if pick.kind == "number")
        query = f"SELECT {numbers} FROM picked" if numbers else ""  # noqa: S608
    arrays = connection.execute(query).fetchnumpy() if query else {}
    result: dict[str, Column] = {}
    for place, pick in enumerate(picks):
        if pick.kind == "number":
            result[pick.name] = _finite(path, pick.name, arrays.pop(f"c{place}"), faults=faults)
        else:
            result[pick.name] = _coded(connection, path, pick.name, column=f"c{place}", faults=faults)
    return result


def _finite(path: Path, name: str, values: Any, faults: Faults | None) -> FloatArray:
    plain: FloatArray = np.ma.getdata(values)
    absent = np.ma.getmaskarray(values)
    bad = ~np.isfinite(plain) | absent
    if not bad.any():
        return plain
    if faults is None:
        raise bad_number(path, f"row {int(np.argmax(bad)) + 1}", name)
    absent = absent | np.isnan(plain)
    faults.add_rows(name, "missing", absent)
    faults.add_rows(name, "not a finite number", bad & ~absent)
    return np.where(bad, np.nan, plain)


def _coded(connection: Any, path: Path, name: str, column: str, faults: Faults | None) -> Text:
    """The text column as codes into its sorted values."""
    kinds: dict[FaultKind, tuple[str, Callable[[Path, str, str], FileError]]] = {
        "missing": (f"{column} IS NULL OR {column} = ''", missing_value),
        "too long": (f"length({column}) > {TEXT_LENGTH_MAX}", too_long),
    }
    for kind, (condition, error) in kinds.items():
        bad = f"FROM picked WHERE {condition}"
        (count,) = connection.execute(f"SELECT count(*) {bad}").fetchone()
        if not count:
            continue
        rows = [row for (row,) in connection.execute(f"SELECT rowid {bad} ORDER BY 1 LIMIT {PLACES_MAX}").fetchall()]
        if faults is None:
            raise error(path, f"row {rows[0] + 1}", name)
        for place, row in enumerate(rows):
            faults.add(name, kind, f"row {row + 1}", count=1 if place else count - len(rows) + 1)
        connection.execute(f"UPDATE picked SET {column} = '' WHERE {condition}")  # noqa: S608
    distinct = f"SELECT DISTINCT {column} FROM picked ORDER BY 1"  # noqa: S608 - by bytes, which is Python's order
    values = connection.execute(f"{distinct} LIMIT {TEXT_VALUES_MAX + 1}").fetchnumpy()[column].tolist()
    if len(values) > TEXT_VALUES_MAX:
        raise too_many(path, name)
    if not values:
        return Text(np.zeros(0, dtype=np.int32), ())
    connection.execute(f"CREATE TYPE kind_{column} AS ENUM ({distinct})")
    codes = f"SELECT enum_code({column}::kind_{column})::INTEGER AS code FROM picked"  # noqa: S608
    return Text(connection.execute(codes).fetchnumpy()["code"], tuple(values))


def _typed_picks(connection: Any, path: Path, relation: str, wanted: Wanted) -> list[Pick]:
    """How to fetch typed columns; an error where a type is not as wanted."""
    described = connection.execute(f"DESCRIBE {relation}").fetchall()
    names, types = [row[0] for row in described], [row[1] for row in described]
    picks = []
    for (name, kind), place in zip(wanted.items(), find_columns(path, wanted, names), strict=True):
        type_name, quoted = types[place], identifier(name)
        if kind == "text" and (type_name == "VARCHAR" or type_name.startswith("ENUM")):
            picks.append(Pick(name, kind, f"{quoted}::VARCHAR"))
        elif kind == "number" and type_name in _EXACT:
            picks.append(Pick(name, kind, f"{quoted}::DOUBLE"))
        elif kind == "number" and type_name.partition("(")[0] in _BY_WAY_OF_TEXT:
            picks.append(Pick(name, kind, f"{quoted}::VARCHAR::DOUBLE"))
        else:
            raise wrong_type(path, name, type_name.partition("(")[0], kind=kind)
    return picks


@contextmanager
def _parquet(path: Path) -> Iterator[tuple[Any, str]]:
    """A connection, and a Parquet file as a relation."""
    with connected("to read Parquet files") as connection:
        import duckdb

        try:
            yield connection, f"read_parquet({literal(check_path(path))}, hive_partitioning = false)"
        except duckdb.OutOfMemoryException:
            raise _no_memory(path) from None
        except duckdb.Error as error:  # its message may quote a record
            problem = f"is not a readable Parquet file ({type(error).__name__})"
            raise FileError(path, problem, "write it anew") from None


def read_parquet(path: Path, wanted: Wanted, faults: Faults | None = None) -> dict[str, Column]:
    """The wanted columns of one Parquet file.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder, connected("to write") as connection:
    ...     file = Path(folder) / "bank.parquet"
    ...     _ = connection.execute(f"COPY (SELECT 70 AS age) TO '{file}'")
    ...     read_parquet(file, {"age": "number"})
    {'age': array([70.])}
    """
    with _parquet(path) as (connection, relation):
        picks = _typed_picks(connection, path, f"FROM {relation}", wanted=wanted)
        return fetch(connection, path, relation, picks=picks, faults=faults)


def read_whole_parquet(path: Path) -> dict[str, Any]:
    """All columns of one Parquet file in their own types; masked arrays where values are missing.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder, connected("to write") as connection:
    ...     file = Path(folder) / "parties.parquet"
    ...     _ = connection.execute(f"COPY (SELECT 0.5::DOUBLE AS epsilon) TO '{file}'")
    ...     read_whole_parquet(file)
    {'epsilon': array([0.5])}
    """
    with _parquet(path) as (connection, relation):
        columns: dict[str, Any] = connection.execute(f"FROM {relation}").fetchnumpy()
        return columns


def read_sql(path: Path, sql: str, wanted: Wanted, faults: Faults | None = None) -> dict[str, Column]:
    """The wanted columns of a SELECT over files in the folder of `path` or below; it can read no other file.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     _ = (Path(folder) / "visits.csv").write_text("age,stay" + chr(10) + "70,3" + chr(10) + "41,1" + chr(10))
    ...     read_sql(Path(folder) / "bank.toml", "SELECT age FROM 'visits.csv' WHERE stay > 2", {"age": "number"})
    {'age': array([70.])}
    """
    with connected("to run SQL over files") as connection:
        import duckdb

        try:
            statements = connection.extract_statements(sql)
            if [statement.type for statement in statements] != [duckdb.StatementType.SELECT]:
                raise FileError(path, "has `sql` that is not one SELECT", "give one SELECT")
            _offer_files(connection, path, sql)
            picks = _typed_picks(connection, path, sql, wanted=wanted)
            connection.execute(f"CREATE TEMP VIEW asked AS {sql}")
            return fetch(connection, path, "asked", picks=picks, faults=faults)
        except duckdb.OutOfMemoryException:
            raise _no_memory(path) from None
        except duckdb.PermissionException:
            problem = "has `sql` that reads a file elsewhere, or a relative path in a function"
            raise FileError(path, problem, "write FROM 'file.csv', a file in the same folder") from None
        except duckdb.Error as error:
            raise FileError(path, f"has `sql` that fails ({_public(error)})", "correct it") from None


def _offer_files(connection: Any, path: Path, sql: str) -> None:
    """Make the files named in the SQL readable under the names it uses, and lock everything else.

    DuckDB would look for a relative path in the working directory first. A view of that name has precedence.
    """
    folder = Path(check_path(path)).parent
    connection.execute(f"SET allowed_directories = [{literal(str(folder) + os.sep)}]")
    connection.execute("SET enable_external_access = false")
    connection.execute("SET lock_configuration = true")
    for name in _quoted(sql):
        file = folder / name
        suffix = file.suffix.lower()
        if suffix in (".csv", ".parquet") and not os.path.isabs(name) and not WILDCARDS & set(name) and file.is_file():
            source = f"read_{suffix[1:]}({literal(str(file))}, hive_partitioning = false)"
            connection.execute(f"CREATE TEMP VIEW {identifier(name)} AS FROM {source}")


def _quoted(sql: str) -> set[str]:
    """Everything in quotes. An extra view does no harm; DuckDB's own list of tables fails on valid SQL."""
    import duckdb

    data = sql.encode()  # tokens are counted in bytes
    matches = (_QUOTED.match(data, start) for start, _ in duckdb.tokenize(sql))
    return {match[2].decode().replace(match[1].decode() * 2, match[1].decode()) for match in matches if match}


def _public(error: Exception) -> str:
    """The part of an error that may be shown. Errors about the SQL are public; others may quote a record."""
    import duckdb

    if not isinstance(error, duckdb.ParserException | duckdb.CatalogException | duckdb.BinderException):
        return type(error).__name__
    return shown(str(error).partition("\n")[0], _MESSAGE_SHOWN)


def _no_memory(path: Path) -> FileError:
    return FileError(path, "needs more memory than there is", "use a larger machine, or fewer columns")
