"""Records from real SQLite files."""

from __future__ import annotations

import hashlib
import os
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from tests.data.tables import BOTH, NUMBER, complaint, read_plain
from tpmdp.data.table import ColumnKind


def database(path: Path) -> Path:
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("CREATE TABLE stays (age INTEGER, stay REAL, region TEXT, mixed, secret BLOB)")
        rows = [(70, 3.5, "north", 1, b"x"), (41, 1e300, "Süd 'x' ", "hidden", b"\xff")]
        connection.executemany("INSERT INTO stays VALUES (?, ?, ?, ?, ?)", rows)
        connection.execute('CREATE TABLE "odd ""name""" AS SELECT 5 AS age')
        connection.execute("CREATE TABLE faulty AS SELECT 1 AS age, 'x' AS region UNION ALL SELECT NULL, ''")
        connection.execute("CREATE TABLE infinite AS SELECT 1.0 AS age UNION ALL SELECT 9e999")
        connection.execute("CREATE TABLE bad AS SELECT CAST(x'6869646465ff' AS TEXT) AS region, 1 AS age")
        connection.execute("CREATE TABLE empty (age, region)")
    return path


def source(folder: Path, rest: str, name: str = "clinic.db") -> Path:
    path = folder / "bank.toml"
    path.write_text(f"sqlite = '''{name}'''\n{rest}\n", encoding="utf-8")
    return path


@pytest.mark.parametrize(
    "rest", ['table = "stays"', 'table = "main.stays"', 'query = "SELECT stay, age, region FROM stays -- all"']
)
def test_tables_and_queries(tmp_path: Path, rest: str) -> None:
    database(tmp_path / "clinic.db")
    found = read_plain(source(tmp_path, rest), {"region": "text", "stay": "number", "age": "number"})
    assert list(found) == ["region", "stay", "age"]
    assert found == {"region": ["north", "Süd 'x' "], "stay": [3.5, 1e300], "age": [70.0, 41.0]}


def test_queries_may_use_functions_and_recursion(tmp_path: Path) -> None:
    database(tmp_path / "clinic.db")
    query = "WITH RECURSIVE t(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM t WHERE i < 25001) SELECT i AS age,"
    path = source(tmp_path, f"query = \"{query} 'r' || (i % 7) AS region FROM t\"")
    expected = {"age": [float(i) for i in range(1, 25002)], "region": [f"r{i % 7}" for i in range(1, 25002)]}
    assert read_plain(path, BOTH) == expected


def test_no_records_are_legal(tmp_path: Path) -> None:
    database(tmp_path / "clinic.db")
    assert read_plain(source(tmp_path, 'table = "empty"'), BOTH) == {"age": [], "region": []}


@pytest.mark.parametrize(
    ("rest", "column", "kind", "message"),
    [
        ('table = "stays"', "years", "number", "has no column years (it has age, stay, region, mixed, secret)"),
        ('table = "stays"', "region", "number", "has region of type text, not numbers"),
        ('table = "stays"', "mixed", "number", "has mixed of type text, not numbers"),
        ('table = "stays"', "age", "text", "has age of type whole number, not text"),
        ('table = "stays"', "secret", "text", "has secret of type bytes, not text"),
        ('table = "faulty"', "age", "number", "row 2 has no finite number in column age"),
        ('table = "faulty"', "region", "text", "row 2 has no value in column region"),
        ('table = "infinite"', "age", "number", "row 2 has no finite number in column age"),
        ('table = "bad"', "region", "text", "(OperationalError)"),
        ('table = "nowhere"', "age", "number", "no such table: nowhere"),
        ('query = "SELECT 1 AS age, 2 AS age"', "age", "number", "has the column age twice"),
        ('query = "SELEC"', "age", "number", "syntax error"),
        ("query = \"SELECT json_extract(region, 'x') AS age FROM stays\"", "age", "number", "fails in SQLite ("),
        ('query = "SELECT 1 AS age; SELECT 2"', "age", "number", "fails in SQLite ("),
        ('query = "SELECT ? AS age"', "age", "number", "fails in SQLite ("),
        ('query = "-- nothing"', "age", "number", "gives no records"),
    ],
)
def test_complaints(tmp_path: Path, rest: str, column: str, kind: ColumnKind, message: str) -> None:
    database(tmp_path / "clinic.db")
    found = complaint(source(tmp_path, rest), {column: kind})
    assert message in found
    assert not any(secret in found for secret in ("north", "hidde"))


def test_names_are_quoted(tmp_path: Path) -> None:
    database(tmp_path / "clinic.db")
    assert read_plain(source(tmp_path, "table = 'odd \"name\"'"), NUMBER) == {"age": [5.0]}
    for name in ("stays; DROP TABLE stays", 'stays"; DROP TABLE stays; --', "stays WHERE 0", "(SELECT 1 AS age)"):
        assert "no such table" in complaint(source(tmp_path, f"table = '{name}'"), NUMBER)


@pytest.mark.parametrize(
    "statement",
    [
        "INSERT INTO stays (age) VALUES (1) RETURNING age",
        "DROP TABLE stays",
        "DELETE FROM stays",
        "CREATE TEMP TABLE t AS SELECT 1 AS age",
        "ATTACH 'new.db' AS other",
        "PRAGMA writable_schema = 1",
        "PRAGMA journal_mode = WAL",
        "VACUUM INTO 'new.db'",
        "BEGIN",
    ],
)
def test_nothing_can_be_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, statement: str) -> None:
    monkeypatch.chdir(tmp_path)
    path = database(tmp_path / "clinic.db")
    before = hashlib.sha256(path.read_bytes()).digest()
    assert "fails in SQLite" in complaint(source(tmp_path, f'query = "{statement}"'), NUMBER)
    assert hashlib.sha256(path.read_bytes()).digest() == before
    assert sorted(os.listdir(tmp_path)) == ["bank.toml", "clinic.db"]


@pytest.mark.parametrize(
    "name", ["it's.db", 'a "b".db', "50%.db", "a%3Fmode=rwc.db", "a?mode=rwc", "a#b.db", "*.db", "ü .db"]
)
def test_odd_names_of_files(tmp_path: Path, name: str) -> None:
    database(tmp_path / name)
    assert read_plain(source(tmp_path, 'table = "stays"', name), NUMBER) == {"age": [70.0, 41.0]}
    assert sorted(os.listdir(tmp_path)) == sorted([name, "bank.toml"])


def test_what_is_no_database(tmp_path: Path) -> None:
    path = source(tmp_path, 'table = "stays"')
    assert "does not exist" in complaint(path, NUMBER)
    (tmp_path / "clinic.db").write_bytes(b"north, south" * 200)
    assert "clinic.db cannot be read (file is not a database)" in complaint(path, NUMBER)
    (tmp_path / "clinic.db").unlink()
    (tmp_path / "clinic.db").mkdir()
    assert "is a folder" in complaint(path, NUMBER)
