"""Parquet files, and SQL over files."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import duckdb
import pytest

from tests.data.tables import BOTH, NUMBER, complaint, read_plain
from tpmdp.data.duck import connected
from tpmdp.data.table import ColumnKind
from tpmdp.errors import MissingDependencyError

NUMBER_TYPES = ["TINYINT", "SMALLINT", "INTEGER", "BIGINT", "UTINYINT", "USMALLINT", "UINTEGER", "UBIGINT"]
NUMBER_TYPES += ["HUGEINT", "UHUGEINT", "FLOAT", "DOUBLE", "DECIMAL(4,1)", "DECIMAL(38,9)", "BOOLEAN"]


def parquet(folder: Path, query: str, name: str = "bank.parquet") -> Path:
    duckdb.sql(query).write_parquet(str(folder / name))
    return folder / name


def source(folder: Path, sql: str) -> Path:
    (folder / "bank.toml").write_text(f"sql = '''\n{sql}\n'''\n", encoding="utf-8")
    return folder / "bank.toml"


# Parquet --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", NUMBER_TYPES)
def test_all_types_of_numbers(tmp_path: Path, kind: str) -> None:
    path = parquet(tmp_path, f"SELECT 1::{kind} AS age UNION ALL SELECT 0::{kind}")
    assert read_plain(path, NUMBER) == {"age": [1.0, 0.0]}


def test_large_and_fractional_numbers_are_rounded_once(tmp_path: Path) -> None:
    texts = ["123456789012345678.123456789", "0.1", "-99999999999999999999.999999999", "9007199254740993.000000001"]
    rows = " UNION ALL ".join(f"SELECT '{text}'::DECIMAL(38,9) AS age" for text in texts)
    assert read_plain(parquet(tmp_path, rows), NUMBER) == {"age": [float(text) for text in texts]}
    whole = 2**126 + 2**73 + 1  # just above halfway between two doubles
    path = parquet(tmp_path, f"SELECT '{whole}'::DECIMAL(38,0) AS age")
    assert read_plain(path, NUMBER) == {"age": [float(whole)]}
    assert read_plain(source(tmp_path, f"SELECT {whole}::HUGEINT AS age"), NUMBER) == {"age": [float(whole)]}


def test_text_is_coded_in_order(tmp_path: Path) -> None:
    rows = "SELECT i AS age, ['b', 'a ', 'Ü', chr(128512), chr(64257)][1 + i % 5] AS region FROM range(200000) AS t(i)"
    expected = ["b", "a ", "Ü", "\U0001f600", "\ufb01"]
    found = read_plain(parquet(tmp_path, rows), {"region": "text", "age": "number"})
    assert list(found) == ["region", "age"]
    assert found["age"] == [float(i) for i in range(200_000)]
    assert found["region"] == [expected[i % 5] for i in range(200_000)]
    enum = parquet(tmp_path, "SELECT 'x'::ENUM('x', 'y') AS region, 1 AS age")
    assert read_plain(enum, BOTH) == {"age": [1.0], "region": ["x"]}


def test_two_columns_of_text_and_no_number(tmp_path: Path) -> None:
    path = parquet(tmp_path, "SELECT 'x' AS a, 'y' AS b")
    assert read_plain(path, {"b": "text", "a": "text"}) == {"b": ["y"], "a": ["x"]}


def test_no_records_are_legal(tmp_path: Path) -> None:
    path = parquet(tmp_path, "SELECT 1 AS age, 'x' AS region WHERE false")
    assert read_plain(path, BOTH) == {"age": [], "region": []}


@pytest.mark.parametrize(
    ("query", "kind", "message"),
    [
        ("SELECT 1 AS years", "number", "has no column age (it has years): rename or add it"),
        ("SELECT 1 AS Age", "number", "has no column age"),
        ("SELECT 'north' AS age", "number", "has age of type VARCHAR, not numbers"),
        ("SELECT 1 AS age", "text", "has age of type INTEGER, not text"),
        ("SELECT 1.5::DECIMAL(5,2) AS age", "text", "has age of type DECIMAL, not text"),
        ("SELECT DATE '2020-01-01' AS age", "number", "has age of type DATE, not numbers"),
        ("SELECT [1, 2] AS age", "number", "not numbers"),
        ("SELECT {'north': 1} AS age", "number", "not numbers"),
        ("SELECT 'north'::BLOB AS age", "text", "has age of type BLOB, not text"),
        ("SELECT 1::DOUBLE AS age UNION ALL SELECT NULL", "number", "row 2 has no finite number in column age"),
        (
            "SELECT 1::DOUBLE AS age UNION ALL SELECT 'nan'::DOUBLE",
            "number",
            "row 2 has no finite number in column age",
        ),
        ("SELECT 1::FLOAT AS age UNION ALL SELECT '-inf'::FLOAT", "number", "row 2 has no finite number in column age"),
        ("SELECT 1::INT AS age UNION ALL SELECT NULL", "number", "row 2 has no finite number in column age"),
        ("SELECT 'x' AS age UNION ALL SELECT NULL", "text", "row 2 has no value in column age"),
        ("SELECT 'x' AS age UNION ALL SELECT ''", "text", "row 2 has no value in column age"),
        ("SELECT 'x' AS age UNION ALL SELECT repeat('ü', 1001)", "text", "row 2 has more than 1,000 characters"),
    ],
)
def test_complaints_about_parquet(tmp_path: Path, query: str, kind: ColumnKind, message: str) -> None:
    found = complaint(parquet(tmp_path, query), {"age": kind})
    assert message in found


def test_what_is_no_parquet(tmp_path: Path) -> None:
    path = tmp_path / "bank.parquet"
    whole = parquet(tmp_path, "SELECT 'north' AS age FROM range(9)", "whole.parquet").read_bytes()
    for content in (b"", b"PAR1", b"age\n1\n", whole[:-9], whole[:20] + b"\xff" * 40 + whole[60:]):
        path.write_bytes(content)
        found = complaint(path, {"age": "text"})
        assert "is not a readable Parquet file" in found
        assert "north" not in found


@pytest.mark.parametrize("name", ["it's.parquet", 'a "b".parquet', "50% of.parquet", "ü;--.PARQUET", "$x.parquet"])
def test_odd_names_of_files(tmp_path: Path, name: str) -> None:
    assert read_plain(parquet(tmp_path, "SELECT 1 AS age", name), NUMBER) == {"age": [1.0]}


def test_wildcards_and_partitions_in_a_path_mean_nothing(tmp_path: Path) -> None:
    content = parquet(tmp_path, "SELECT 1 AS stay").read_bytes()
    (tmp_path / "b*.parquet").write_bytes(content)
    assert "has a wildcard in its path" in complaint(tmp_path / "b*.parquet", NUMBER)
    (tmp_path / "age=5").mkdir()
    (tmp_path / "age=5" / "a.parquet").write_bytes(content)
    assert "has no column age" in complaint(tmp_path / "age=5" / "a.parquet", NUMBER)


def test_duckdb_is_asked_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = parquet(tmp_path, "SELECT 1 AS age")
    monkeypatch.setitem(sys.modules, "duckdb", None)
    for file in (path, source(tmp_path, "SELECT 1 AS age")):
        with pytest.raises(MissingDependencyError, match=r"pip install 'tpmdp\[data\]'"):
            read_plain(file, NUMBER)


def test_duckdb_fetches_nothing_and_spills_nothing() -> None:
    with connected("to test") as connection:
        names = ("autoinstall_known_extensions", "autoload_known_extensions", "temp_directory")
        found = [connection.execute(f"SELECT current_setting('{name}')").fetchone()[0] for name in names]
    assert found == [False, False, ""]


# SQL over files -------------------------------------------------------------------------------------------------------


def test_sql_reads_files_beside_it_and_not_in_the_working_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    here, elsewhere = tmp_path / "it's, here; 50%", tmp_path / "elsewhere"
    for folder, age in ((here, 70), (elsewhere, 1)):
        (folder / "sub").mkdir(parents=True)
        parquet(folder, f"SELECT {age} AS age, 'north' AS region")
        parquet(folder / "sub", f"SELECT {age + 1} AS age, 'south' AS region")
        (folder / "a 'b'.csv").write_text(f"age,region\n{age + 2},west\n")
    monkeypatch.chdir(elsewhere)
    names = ["'bank.parquet'", "'sub/bank.parquet'", "'a ''b''.csv'", '"bank.parquet"', f"read_parquet('{_sql(here)}')"]
    for name, age in zip(names, (70, 71, 72, 70, 70), strict=True):
        found = read_plain(source(here, f"SELECT * FROM {name} WHERE age > 2"), NUMBER)  # noqa: S608
        assert found == {"age": [float(age)]}
    both = "/*'ü*/ SELECT * FROM 'bank.parquet' UNION ALL SELECT * FROM 'sub/bank.parquet' ORDER BY age DESC -- both;"
    assert read_plain(source(here, both), BOTH) == {"age": [71.0, 70.0], "region": ["south", "north"]}


def _sql(folder: Path) -> str:
    return str(folder / "bank.parquet").replace("'", "''")


def test_columns_of_one_record_stay_together(tmp_path: Path) -> None:
    query = "SELECT r AS age, 'r' || r AS region FROM (SELECT (random() * 1000)::INT AS r FROM range(50000))"
    found = read_plain(source(tmp_path, query), BOTH)
    assert found["region"] == [f"r{int(age)}" for age in found["age"]]


@pytest.mark.parametrize(
    ("sql", "message"),
    [
        ("SELECT 1 AS age, 2 AS age", "has the column age twice"),
        ("SELECT 1 AS years", "has no column age (it has years)"),
        ("SELEC 1", "Parser Error"),
        ("SELECT age FROM nowhere", "Table with name nowhere does not exist"),
        ("SELECT years AS age FROM 'bank.parquet'", 'Referenced column "years" not found'),
        ("SELECT region::INT AS age FROM 'bank.parquet'", "fails (ConversionException)"),
        ("SELECT error(region)::INT AS age FROM 'bank.parquet'", "fails (InvalidInputException)"),
        ("SELECT 1 AS age; SELECT 2 AS age", "is not one SELECT"),
        ("", "that is not text, or is empty"),
        ("-- nothing", "is not one SELECT"),
        ("COPY (SELECT 1) TO 'new.csv'", "is not one SELECT"),
        ("DROP TABLE x", "is not one SELECT"),
        ("INSTALL httpfs", "is not one SELECT"),
        ("SELECT age FROM 'missing.parquet'", "reads a file elsewhere"),
        ("SELECT age FROM '../other.parquet'", "reads a file elsewhere"),
        ("SELECT age FROM '/etc/passwd.csv'", "reads a file elsewhere"),
        ("SELECT age FROM read_csv('/etc/passwd')", "reads a file elsewhere"),
        ("SELECT age FROM 'https://example.com/x.parquet'", "reads a file elsewhere"),
        ("SELECT age FROM wanted", "Table with name wanted does not exist"),  # a Python variable
        ("SELECT age FROM 'broken.csv'", "fails ("),
        ("SELECT * FROM 'bank.parquet'", "has age of type INTEGER, not text"),
    ],
)
def test_complaints_about_sql(tmp_path: Path, sql: str, message: str) -> None:
    folder = tmp_path / "in"
    folder.mkdir()
    parquet(folder, "SELECT 70 AS age, 'north' AS region")
    parquet(tmp_path, "SELECT 70 AS age", "other.parquet")
    (folder / "broken.csv").write_bytes(b"age,region\n" + b"1,north\n" * 30000 + b"x,north\nn\xfcrth,\n")
    before = sorted(os.listdir(folder))
    wanted: ColumnKind = "text" if message.endswith("not text") else "number"
    found = complaint(source(folder, sql), {"age": wanted})
    assert message in found
    assert "north" not in found
    assert sorted(os.listdir(folder)) == sorted([*before, "bank.toml"])
