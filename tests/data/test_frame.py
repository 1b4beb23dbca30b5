"""Tables of pandas, Polars and Arrow, and columns of theirs; the rules are those of files. No error shows a value."""

from __future__ import annotations

import builtins
from collections.abc import Callable
from datetime import datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd  # type: ignore[import-untyped]
import pyarrow as pa
import pytest

from tpmdp import FileError, InputError, MissingDependencyError
from tpmdp.data.frame import as_table
from tpmdp.data.table import ColumnKind, Text

WANTED: dict[str, ColumnKind] = {"age": "number", "region": "text"}
AGES, REGIONS = [70, 41, 5], ["south", "north", "south"]
SECRET = 31415


class Stream:
    """A table of a library we do not know, with the Arrow C stream interface only."""

    def __init__(self, table: Any) -> None:
        self._table = table

    def __arrow_c_stream__(self, requested_schema: Any = None) -> Any:
        return self._table.__arrow_c_stream__(requested_schema)


def polars(columns: dict[str, Any]) -> Any:
    return pytest.importorskip("polars", reason="Polars is not installed").DataFrame(columns, strict=False)


def lazy(columns: dict[str, Any]) -> Any:
    return polars(columns).lazy()


def duck(columns: dict[str, Any]) -> Any:
    import duckdb

    return duckdb.connect().from_arrow(pa.table(columns))


MAKERS: dict[str, Callable[[dict[str, Any]], Any]] = {
    "pandas": pd.DataFrame,
    "pandas, Arrow types": lambda columns: pd.DataFrame(columns).convert_dtypes(dtype_backend="pyarrow"),
    "pandas, nullable types": lambda columns: pd.DataFrame(columns).convert_dtypes(),
    "Arrow table": pa.table,
    "Arrow batch": pa.RecordBatch.from_pydict,
    "Arrow stream": lambda columns: Stream(pa.table(columns)),
    "DuckDB": duck,
    "Polars": polars,
    "Polars, lazy": lazy,
    "columns of pandas": lambda columns: {name: pd.Series(column) for name, column in columns.items()},
    "lists": dict,
    "arrays of objects": lambda columns: {name: np.array(column, dtype=object) for name, column in columns.items()},
    "columns of Arrow": lambda columns: {name: pa.array(column) for name, column in columns.items()},
}
LISTS = ("lists", "arrays of objects")  # without missing values they are checked where they are used
every_maker = pytest.mark.parametrize("make", MAKERS.values(), ids=MAKERS)
every_table = pytest.mark.parametrize(
    "make",
    [make for name, make in MAKERS.items() if name not in LISTS],
    ids=[name for name in MAKERS if name not in LISTS],
)


@every_table
def test_numbers_and_text_are_read(make: Callable[[dict[str, Any]], Any]) -> None:
    table = as_table(make({"note": [1, 2, 3], "region": REGIONS, "age": AGES}), WANTED, "bank")
    age, region = table["age"], table["region"]
    assert isinstance(age, np.ndarray)
    assert age.dtype == np.float64
    assert age.tolist() == AGES
    assert isinstance(region, Text)
    assert region.values == ("north", "south")
    assert region.codes.tolist() == [1, 0, 1]


@every_maker
@pytest.mark.parametrize(
    "values", [[True, False], [1.5, -2.0], [Decimal("0.1"), Decimal("12.5")], [2**53 - 1, 0]], ids=str
)
def test_every_kind_of_number_is_read(make: Callable[[dict[str, Any]], Any], values: list[Any]) -> None:
    table = as_table(make({"age": values}), {"age": "number"}, "bank")
    assert np.asarray(table["age"]).tolist() == [float(value) for value in values]


@every_table
@pytest.mark.parametrize(
    ("columns", "complaint"),
    [
        ({"age": [SECRET, None], "region": ["a", "b"]}, "row 2 has no finite number in column age"),
        ({"age": [SECRET, 2], "region": ["a", None]}, "row 2 has no value in column region"),
        ({"age": [SECRET, 2], "region": ["a", ""]}, "row 2 has no value in column region"),
        ({"age": ["31415", "x"], "region": ["a", "b"]}, "has age of type text, not numbers"),
        ({"age": [1, 2], "region": [SECRET, 7]}, "has region of type whole number, not text"),
        ({"age": [1, 2], "region": ["a" * 1001, "b"]}, "row 1 has more than 1,000 characters in column region"),
    ],
    ids=["no number", "no text", "empty text", "text for numbers", "numbers for text", "long text"],
)
def test_bad_records_are_named_without_their_values(
    make: Callable[[dict[str, Any]], Any], columns: dict[str, Any], complaint: str
) -> None:
    with pytest.raises(InputError) as caught:
        as_table(make(columns), WANTED, "bank")
    assert complaint in str(caught.value)
    assert "data of bank" in str(caught.value)
    assert str(SECRET) not in str(caught.value)


@every_table
def test_dates_are_no_numbers(make: Callable[[dict[str, Any]], Any]) -> None:
    with pytest.raises(InputError, match=r"has age of type \S+, not numbers"):
        as_table(make({"age": [datetime(2026, 1, 1), datetime(2026, 1, 2)]}), {"age": "number"}, "bank")


@pytest.mark.parametrize(
    "make", [make for name, make in MAKERS.items() if not name.startswith("columns") and name not in LISTS]
)
def test_a_missing_column_is_named_with_those_there_are(make: Callable[[dict[str, Any]], Any]) -> None:
    with pytest.raises(InputError, match="data of bank = note has no column age: rename or add it"):
        as_table(make({"note": [1]}), WANTED, "bank")


def test_a_column_twice_and_columns_without_names_are_refused() -> None:
    twice = pd.DataFrame([[1, 2]], columns=["age", "age"])
    with pytest.raises(InputError, match="data of bank = age is the name of two columns: rename one"):
        as_table(twice, {"age": "number"}, "bank")
    with pytest.raises(InputError, match="has no column age"):
        as_table(pd.DataFrame([[1, 2]]), {"age": "number"}, "bank")
    with pytest.raises(InputError, match="DataFrame without columns has no column age"):
        as_table(pd.DataFrame(), {"age": "number"}, "bank")


@pytest.mark.parametrize("records", [7, None, [1, 2], object(), np.zeros((2, 2))])
def test_what_is_no_table_is_refused(records: Any) -> None:
    with pytest.raises(InputError, match="is not a table: give a pandas, Polars or Arrow table, columns by name"):
        as_table(records, WANTED, "bank")


@pytest.mark.parametrize("make", [MAKERS[name] for name in LISTS], ids=LISTS)
def test_missing_entries_of_lists_are_named(make: Callable[[dict[str, Any]], Any]) -> None:
    with pytest.raises(InputError, match="data of bank = dict row 2 has no finite number in column age"):
        as_table(make({"age": [SECRET, None], "region": ["a", "b"]}), WANTED, "bank")
    with pytest.raises(InputError, match="data of bank = dict row 2 has no value in column region"):
        as_table(make({"age": [SECRET, 2], "region": ["a", None]}), WANTED, "bank")


def test_what_is_no_column_is_refused() -> None:
    with pytest.raises(InputError, match="column age of bank = object is not a column"):
        as_table({"age": object(), "region": ["a"]}, WANTED, "bank")


def test_categories_and_chunks_are_read() -> None:
    frame = pd.DataFrame({"age": [1, 2, 3], "region": pd.Categorical(REGIONS)})
    chunks = pa.chunked_array([["south"], ["north", "south"]]).dictionary_encode()
    arrow = pa.table({"age": pa.chunked_array([[1.0], [2.0, 3.0]]), "region": chunks})
    for records in (frame, frame.iloc[::-1].iloc[::-1], arrow):
        table = as_table(records, WANTED, "bank")
        assert np.asarray(table["age"]).tolist() == [1, 2, 3]
        assert isinstance(table["region"], Text)
        assert table["region"].codes.tolist() == [1, 0, 1]


def test_a_path_is_read_as_text_or_as_a_path(tmp_path: Path) -> None:
    (tmp_path / "bank.csv").write_text("age,region\n70,south\n41,north\n")
    for path in (tmp_path / "bank.csv", str(tmp_path / "bank.csv")):
        assert np.asarray(as_table(path, WANTED, "bank")["age"]).tolist() == [70, 41]
    with pytest.raises(FileError, match="does not exist"):
        as_table(str(tmp_path / "no.csv"), WANTED, "bank")


def test_a_stream_needs_pyarrow(monkeypatch: pytest.MonkeyPatch) -> None:
    real = builtins.__import__

    def without(name: str, *arguments: Any, **options: Any) -> Any:
        if name == "pyarrow":
            raise ImportError(name)
        return real(name, *arguments, **options)

    stream, frame = Stream(pa.table({"age": [1]})), pd.DataFrame({"age": [1]})
    monkeypatch.setattr(builtins, "__import__", without)
    assert np.asarray(as_table(frame, {"age": "number"}, "bank")["age"]).tolist() == [1]
    with pytest.raises(MissingDependencyError, match=r"pyarrow is not installed and is needed to read a Stream: pip"):
        as_table(stream, {"age": "number"}, "bank")
