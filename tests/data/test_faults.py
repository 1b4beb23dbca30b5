"""Readers that count bad values: the same table as without, all bad rows counted, the first few named."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest

from tpmdp.data.columns import Wanted
from tpmdp.data.faults import PLACES_MAX, Fault, bad_values
from tpmdp.data.source import read_table, survey_table
from tpmdp.data.table import Text
from tpmdp.errors import FileError

WANTED: Wanted = {"age": "number", "region": "text"}


def faults_of(path: Path, wanted: Wanted = WANTED) -> dict[tuple[str, str], tuple[int, tuple[str, ...]]]:
    _, faults, _ = survey_table(path, wanted)
    return {(fault.column, fault.kind): (fault.count, fault.places) for fault in faults.report()}


def test_all_bad_rows_of_a_csv_file_are_counted(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    rows = ["70,north", ",south", "x,north", "1_0,", "NA,north", "5", "inf,south", f"3,{'z' * 1001}", "41,south"]
    path.write_text("\n".join(["age,region", *rows]) + "\n")
    assert faults_of(path) == {
        ("age", "missing"): (2, ("line 3", "line 6")),
        ("age", "not a finite number"): (3, ("line 4", "line 5", "line 8")),
        ("region", "missing"): (1, ("line 5",)),
        ("region", "too long"): (1, ("line 9",)),
        ("", "another number of values"): (1, ("line 7",)),
    }
    table, _, _ = survey_table(path, WANTED)
    assert bad_values(table["age"]).tolist() == [False, True, True, True, True, True, True, False, False]
    assert bad_values(table["region"]).tolist() == [False, False, False, True, False, True, False, True, False]
    with pytest.raises(FileError, match="line 3 has no finite number in column age"):
        read_table(path, WANTED)


@pytest.mark.slow
def test_a_large_file_with_bad_rows_is_counted_by_line(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_text("age,region\n" + "".join(f"{row if row % 1000 else ''},north\n" for row in range(20_000)))
    assert faults_of(path) == {("age", "missing"): (20, ("line 2", "line 1002", "line 2002", "line 3002", "line 4002"))}


def test_a_good_file_gives_the_same_table(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_text("age,region\n70,north\n41,south\n")
    table, faults, lost = survey_table(path, WANTED)
    plain = read_table(path, WANTED)
    assert not faults.report()
    assert not lost
    age, same = table["age"], plain["age"]
    assert isinstance(age, np.ndarray)
    assert isinstance(same, np.ndarray)
    assert age.tolist() == same.tolist()
    region, other = table["region"], plain["region"]
    assert isinstance(region, Text)
    assert isinstance(other, Text)
    assert (region.values, region.codes.tolist()) == (other.values, other.codes.tolist())


def test_columns_that_cannot_be_used_are_left_out_with_why(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_text("age,age,stay\n1,2,3\n")
    table, _, lost = survey_table(path, {"age": "number", "stay": "number", "cost": "number"})
    assert list(table) == ["stay"]
    assert {name: error.problem for name, error in lost.items()} == {
        "age": "has the column age twice",
        "cost": "has no column cost (it has age, age, stay)",
    }
    assert survey_table(path, {"no": "number"})[0] == {}


def test_parquet_and_sql(tmp_path: Path) -> None:
    import duckdb

    path = tmp_path / "a.parquet"
    select = (
        "SELECT * FROM (VALUES (1.5, 'n'), (NULL, ''), ('inf'::DOUBLE, NULL), (2.0, repeat('z', 1001)), (3.0, 's'))"
    )
    duckdb.connect().execute(f"COPY ({select} AS t(age, region)) TO '{path}'")
    (tmp_path / "b.toml").write_text("sql = \"SELECT age, region FROM 'a.parquet'\"")
    expected = {
        ("age", "missing"): (1, ("row 2",)),
        ("age", "not a finite number"): (1, ("row 3",)),
        ("region", "missing"): (2, ("row 2", "row 3")),
        ("region", "too long"): (1, ("row 4",)),
    }
    assert faults_of(path) == faults_of(tmp_path / "b.toml") == expected
    table, _, _ = survey_table(path, WANTED)
    assert bad_values(table["region"]).tolist() == [False, True, True, True, False]
    age = table["age"]
    assert isinstance(age, np.ndarray)
    assert age[[0, 3, 4]].tolist() == [1.5, 2.0, 3.0]


def test_sqlite_with_types_per_value(tmp_path: Path) -> None:
    with closing(sqlite3.connect(tmp_path / "a.db")) as connection, connection:
        connection.execute("CREATE TABLE t (age, region)")
        rows = [(70, "north"), ("old", "south"), (None, 5), (41, None), *[(None, "north")] * 10]
        connection.executemany("INSERT INTO t VALUES (?, ?)", rows)
    (tmp_path / "a.toml").write_text('sqlite = "a.db"\ntable = "t"')
    faults = faults_of(tmp_path / "a.toml")
    assert faults["age", "not a finite number"] == (1, ("row 2",))
    assert faults["age", "missing"] == (11, ("row 3", "row 5", "row 6", "row 7", "row 8"))
    assert faults["region", "not text"] == (1, ("row 3",))
    assert faults["region", "missing"] == (1, ("row 4",))


def test_places_in_several_files_have_the_name_of_the_file(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("age\n1\n\nx\n")
    (tmp_path / "b.csv").write_text("age\n" + "x\n" * 9)
    (tmp_path / "c.toml").write_text('files = ["a.csv", "b.csv"]')
    faults = faults_of(tmp_path / "c.toml", {"age": "number"})
    count, places = faults["age", "not a finite number"]
    assert (count, len(places)) == (10, PLACES_MAX)
    assert places[:2] == ("a.csv line 4", "b.csv line 2")


def test_no_value_is_in_a_report() -> None:
    assert "secret" not in repr(Fault("age", "missing", 1, ("line 2",)))
