"""Parquet files as NumPy columns, through DuckDB."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

from tpmdp.errors import FileError, MissingDependencyError, shown

_GLOB: Final = frozenset("*?[]{}")


def read_parquet(path: Path) -> dict[str, Any]:
    """All columns of one file; masked arrays where values are missing."""
    try:
        import duckdb
    except ImportError:
        raise MissingDependencyError("duckdb", "parquet", "to read Parquet files") from None
    if _GLOB & set(str(path)):
        raise FileError(path, "has a wildcard in its path", "rename it")
    try:
        with duckdb.connect(":memory:") as connection:
            found: dict[str, Any] = connection.execute("SELECT * FROM read_parquet(?)", [str(path)]).fetchnumpy()
            return found
    except duckdb.Error as error:
        raise FileError(path, f"is not a readable Parquet file ({shown(str(error))})", "write it anew") from None
