"""Reading records: CSV and Parquet against pandas, CSV also against DuckDB alone.

The peers accept what tpmdp refuses: missing values, nan and, in DuckDB, rows of another length. pandas reads in
parallel.
"""

from __future__ import annotations

import importlib
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import duckdb
import numpy as np

from benchmarks.timing import Row, best_seconds, times
from tpmdp.data.source import read_table
from tpmdp.data.table import ColumnKind, Text

PANDAS: Any = importlib.import_module("pandas")  # it has no types
NUMBERS: dict[str, ColumnKind] = {"age": "number", "stay": "number", "cost": "number"}
TEXT: dict[str, ColumnKind] = {"age": "number", "stay": "number", "region": "text"}


@dataclass(frozen=True)
class Size:
    records: int = 10_000_000
    repeats: int = 3


FULL, TOY = Size(), Size(records=2000, repeats=1)


def write(folder: Path, records: int) -> None:
    """Write the same records as CSV and as Parquet."""
    fields = (
        "i * 7919 % 90 AS age, i * 104729 % 30000 / 1000 AS stay, i * 15485863 % 10000019 / 97 AS cost,"
        " 'region ' || i * 31 % 500 AS region"
    )
    with duckdb.connect() as connection:
        connection.execute("SET enable_progress_bar = false")
        connection.execute(f"CREATE TABLE records AS SELECT {fields} FROM range({records}) AS t(i)")  # noqa: S608
        for columns, name in ((NUMBERS, "numbers"), (TEXT, "text")):
            for kind in ("csv", "parquet"):
                target = folder / f"{name}.{kind}"
                connection.execute(f"COPY (SELECT {', '.join(columns)} FROM records) TO '{target}'")  # noqa: S608


def check(ours: dict[str, Any], theirs: Any) -> None:
    """Assert that both have read the same values."""
    for name, column in ours.items():
        if isinstance(column, Text):
            assert theirs[name].iloc[-1] == column.values[column.codes[-1]]
            assert theirs[name].nunique() == len(column.values)
        else:
            assert np.array_equal(column, theirs[name].to_numpy())


def compare(what: str, path: Path, wanted: dict[str, ColumnKind], peer: Callable[[], Any], *, size: Size) -> Row:
    check(read_table(path, wanted), peer())
    mine, other = (best_seconds(work, size.repeats) for work in (lambda: read_table(path, wanted), peer))
    note = f"{mine:.1f} s for {size.records:,} records of 3 columns, every value checked; peer {other:.1f} s"
    return Row(f"time to read {what}", times(mine / other), "seconds", note)


def rows(size: Size = FULL) -> list[Row]:
    """The rows on reading records."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write(folder, size.records)
        number_csv, text_csv = folder / "numbers.csv", folder / "text.csv"
        number_parquet, text_parquet = folder / "numbers.parquet", folder / "text.parquet"
        coded = {"region": "category"}  # text as codes, as tpmdp stores it

        def in_duckdb(path: Path) -> Any:
            with duckdb.connect() as connection:
                connection.execute("SET enable_progress_bar = false")
                return connection.execute("SELECT * FROM read_csv(?)", [str(path)]).df()

        def csv_text() -> Any:
            return PANDAS.read_csv(text_csv, dtype=coded)

        def parquet_text() -> Any:
            return PANDAS.read_parquet(text_parquet).astype(coded)

        return [
            compare("numbers from CSV over duckdb", number_csv, NUMBERS, lambda: in_duckdb(number_csv), size=size),
            compare(
                "numbers from CSV over pandas", number_csv, NUMBERS, lambda: PANDAS.read_csv(number_csv), size=size
            ),
            compare("numbers and text from CSV over pandas", text_csv, TEXT, csv_text, size=size),
            compare(
                "numbers from Parquet over pandas",
                number_parquet,
                NUMBERS,
                lambda: PANDAS.read_parquet(number_parquet),
                size=size,
            ),
            compare("numbers and text from Parquet over pandas", text_parquet, TEXT, parquet_text, size=size),
        ]
