"""Where a party's records are: a .csv or .parquet file, or a .toml file that names files, SQL or a database.

A source file has exactly one of `files`, `sql`, `sqlite` and `postgresql`; the last two need `table` or `query`.
"""

from __future__ import annotations

import re
import tomllib
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Literal

from tpmdp._util.files import StrPath, as_path, readable
from tpmdp._util.party_files import party_file
from tpmdp.data.columns import SIZE_MAX, ColumnError, Wanted, join_tables
from tpmdp.data.faults import Faults
from tpmdp.data.table import Column
from tpmdp.errors import FileError, shown

SUFFIXES: Final = (".csv", ".parquet", ".toml")
_SOURCE_SIZE_MAX: Final = 1 << 20
_FILES_MAX: Final = 10_000
_KEYS: Final = {  # the further keys of each kind
    "files": (),
    "sql": (),
    "sqlite": ("table", "query"),
    "postgresql": ("table", "query", "timeout"),
}
_TIMEOUT: Final = re.compile(r"([1-9]\d{0,5})([smhd])", re.ASCII)
_SECONDS: Final = {"s": 1, "m": 60, "h": 3600, "d": 86400}
_TIMEOUT_MAX_S: Final = 20 * 86400  # PostgreSQL counts milliseconds in 31 bits
_TABLE: Final = re.compile(r"[^.\0]{1,63}(\.[^.\0]{1,63})?")

Kind = Literal["files", "sql", "sqlite", "postgresql"]


@dataclass(frozen=True)
class Source:
    """Where a party's records are. `path` is the file the party named; a connection is not shown in a repr."""

    path: Path
    kind: Kind
    files: tuple[Path, ...] = ()  # files of records, or the SQLite database
    table: str = ""
    query: str = ""
    server: str = field(default="", repr=False)
    timeout_s: int = 600

    @classmethod
    def read(cls, path: Path) -> Source:
        """The source that a file is or describes.

        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     file = Path(folder) / "bank.toml"
        ...     _ = file.write_text('sql = "SELECT age FROM visits.parquet"')
        ...     Source.read(file).query
        'SELECT age FROM visits.parquet'
        """
        suffix = path.suffix.lower()
        if suffix not in SUFFIXES:
            raise FileError(path, "is of no known kind", "use a .csv, .parquet or .toml file")
        if suffix != ".toml":
            return cls(path, "files", (path,))
        with readable(path, _SOURCE_SIZE_MAX):
            data = path.read_bytes()
        try:
            document = tomllib.loads(data.decode("utf-8-sig"))
        except UnicodeDecodeError:
            raise FileError(path, "is not UTF-8 text", "save it as UTF-8") from None
        except (ValueError, RecursionError) as error:
            raise FileError(path, f"is not valid TOML ({shown(str(error))})", "fix it") from None
        return _parse(path, document)

    def columns(self, wanted: Wanted, faults: Faults | None = None) -> dict[str, Column]:
        """The wanted columns, all in the same order of records; with `faults`, bad values are counted, not refused.

        >>> Source(Path("no.csv"), "files", (Path("no.csv"),)).columns({"age": "number"})
        Traceback (most recent call last):
            ...
        tpmdp.errors.FileError: no.csv does not exist: check the path
        """
        if self.kind == "files":
            return join_tables(
                self.path,
                wanted,
                [_read_file(file, wanted, faults, several=len(self.files) > 1) for file in self.files],
            )
        if self.kind == "sql":
            from tpmdp.data.duck import read_sql

            return read_sql(self.path, self.query, wanted, faults=faults)
        if self.kind == "sqlite":
            from tpmdp.data.sqlite import read_sqlite

            return read_sqlite(self.path, wanted, self.files[0], table=self.table, query=self.query, faults=faults)
        from tpmdp.data.postgresql import read_postgresql

        which = {"table": self.table, "query": self.query}
        return read_postgresql(self.path, wanted, self.server, **which, timeout_s=self.timeout_s, faults=faults)


def find_source(folder: Path, name: str) -> Path:
    """The file of a party's records in a folder: NAME.csv, NAME.parquet or NAME.toml; see `party_file`.

    >>> find_source(Path("no-such-folder"), "bank")
    Traceback (most recent call last):
        ...
    tpmdp.errors.FileError: no-such-folder/bank.csv does not exist: put the records there, or name another folder
    """
    files = [file for suffix in SUFFIXES if (file := party_file(folder, name, suffix)).is_file()]
    if not files:
        raise FileError(
            party_file(folder, name, ".csv"), "does not exist", "put the records there, or name another folder"
        )
    if len(files) > 1:
        raise FileError(files[0], f"is there, and so is {shown(files[1].name)}", "keep one of them")
    return files[0]


def read_table(path: StrPath, wanted: Wanted) -> dict[str, Column]:
    """The wanted columns of a party's records: numbers as finite doubles, text as codes into its sorted values.

    `path` is a .csv or .parquet file, or a .toml source file. All columns have the same order of records.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     file = Path(folder) / "bank.csv"
    ...     _ = file.write_text("age,stay" + chr(10) + "70,3" + chr(10) + "41,1.5" + chr(10))
    ...     read_table(str(file), {"stay": "number"})
    {'stay': array([3. , 1.5])}
    """
    source = Source.read(as_path(path))
    return source.columns(wanted) if wanted else {}


def survey_table(path: Path, wanted: Wanted) -> tuple[dict[str, Column], Faults, dict[str, ColumnError]]:
    """As `read_table`, but goes on: bad values are counted, and columns that cannot be used are left out, with why.

    In place of a bad value there is NaN or an empty text; see `tpmdp.data.faults.bad_values`.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     file = Path(folder) / "bank.csv"
    ...     _ = file.write_text("age,stay" + chr(10) + "70,x" + chr(10) + "41,1.5" + chr(10))
    ...     table, faults, lost = survey_table(file, {"stay": "number", "cost": "number"})
    >>> table, faults.report()[0].places, list(lost)
    ({'stay': array([nan, 1.5])}, ('line 2',), ['cost'])
    """
    source = Source.read(path)
    lost: dict[str, ColumnError] = {}
    while left := {name: kind for name, kind in wanted.items() if name not in lost}:
        faults = Faults()
        try:
            return source.columns(left, faults), faults, lost
        except ColumnError as error:
            lost[error.column] = error
    return {}, Faults(), lost


def _read_file(path: Path, wanted: Wanted, faults: Faults | None, several: bool) -> dict[str, Column]:
    if faults is not None and several:
        faults.file = shown(path.name)
    with readable(path, SIZE_MAX):
        if path.suffix.lower() == ".csv":
            from tpmdp.data.csv import read_csv

            return read_csv(path, wanted, faults)
        from tpmdp.data.duck import read_parquet

        return read_parquet(path, wanted, faults)


# The source file ------------------------------------------------------------------------------------------------------


def _parse(path: Path, document: dict[str, Any]) -> Source:
    kinds: list[Kind] = [kind for kind in ("files", "sql", "sqlite", "postgresql") if kind in document]
    if len(kinds) != 1:
        problem = f"has {' and '.join(kinds) or 'no source'}"
        raise FileError(path, problem, "give exactly one of files, sql, sqlite and postgresql")
    kind = kinds[0]
    for key in document:
        if key != kind and key not in _KEYS[kind]:
            allowed = ", ".join((kind, *_KEYS[kind]))
            raise FileError(path, f"has an unknown key {shown(key)}", f"a source with {kind} may have: {allowed}")
    if kind == "files":
        return Source(path, kind, _files(path, document["files"]))
    main = _text(path, document, kind)
    if kind == "sql":
        return Source(path, kind, query=main)
    if ("table" in document) == ("query" in document):
        raise FileError(path, f"has {kind} with both or neither of table and query", "give one of them")
    table = _text(path, document, "table") if "table" in document else ""
    if table and not _TABLE.fullmatch(table):
        raise FileError(path, "has a `table` that is not a name", "write table or schema.table, or use `query`")
    query = "" if table else _text(path, document, "query")
    if kind == "sqlite":
        return Source(path, kind, (path.parent / main,), table=table, query=query)
    timeout_s = _timeout(path, document.get("timeout", "10m"))
    return Source(path, kind, table=table, query=query, server=main, timeout_s=timeout_s)


def _text(path: Path, document: dict[str, Any], key: str) -> str:
    """A text entry; its content is not shown, since it may hold a password."""
    value = document[key]
    if not isinstance(value, str) or not value.strip() or "\0" in value:
        raise FileError(path, f"has `{key}` that is not text, or is empty", "give a text in quotes")
    return value


def _files(path: Path, value: Any) -> tuple[Path, ...]:
    names = [value] if isinstance(value, str) else value
    if not isinstance(names, list) or not 1 <= len(names) <= _FILES_MAX:
        raise FileError(path, "has `files` that is not a list of files", f"name 1 to {_FILES_MAX:,} files")
    for name in names:
        if not isinstance(name, str) or "\0" in name or Path(name).suffix.lower() not in (".csv", ".parquet"):
            problem = f"has {shown(name)} in `files`, which is not a .csv or .parquet file"
            raise FileError(path, problem, "name plain files; wildcards do not work")
    return tuple(path.parent / name for name in names)


def _timeout(path: Path, value: Any) -> int:
    matched = _TIMEOUT.fullmatch(value) if isinstance(value, str) else None
    seconds = int(matched[1]) * _SECONDS[matched[2]] if matched else 0
    if not 1 <= seconds <= _TIMEOUT_MAX_S:
        raise FileError(path, f"has timeout = {shown(value)}", 'write a time such as "30s", "10m" or "2h", at most 20d')
    return seconds
