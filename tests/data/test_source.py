"""Source files: found by name, read strictly."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import duckdb
import pytest

from tests.data.tables import BOTH, NUMBER, complaint, read_plain
from tests.patience import HANG_S
from tpmdp.data.source import Source, find_source
from tpmdp.errors import FileError


def write(folder: Path, content: str | bytes, name: str = "bank.toml") -> Path:
    (folder / name).write_bytes(content.encode() if isinstance(content, str) else content)
    return folder / name


def test_a_source_is_found_by_the_name_of_the_party(tmp_path: Path) -> None:
    for name in ("bank.csv", "lab.parquet", "shop.toml"):
        write(tmp_path, b"", name)
        assert find_source(tmp_path, Path(name).stem) == tmp_path / name
    with pytest.raises(FileError, match=r"nobody\.csv does not exist: put the records there, or name another folder"):
        find_source(tmp_path, "nobody")
    write(tmp_path, b"", "bank.toml")
    with pytest.raises(FileError, match=r"bank\.csv is there, and so is bank\.toml: keep one of them"):
        find_source(tmp_path, "bank")


def test_several_files_follow_one_another(tmp_path: Path) -> None:
    (tmp_path / "sub").mkdir()
    write(tmp_path, "region,age\nsouth,1\nnorth,2\n", "a.csv")
    duckdb.sql("SELECT 3 AS age, 'east' AS region").write_parquet(str(tmp_path / "sub" / "b.parquet"))
    write(tmp_path, "age,region,more\n", "empty.csv")
    path = write(tmp_path, 'files = ["a.csv", "sub/b.parquet", "empty.csv", "a.csv"]')
    ages, regions = [1.0, 2.0, 3.0, 1.0, 2.0], ["south", "north", "east", "south", "north"]
    assert read_plain(path, BOTH) == {"age": ages, "region": regions}
    assert read_plain(write(tmp_path, 'files = "a.csv"'), NUMBER) == {"age": [1.0, 2.0]}
    assert read_plain(write(tmp_path, f"files = '{tmp_path / 'a.csv'}'"), NUMBER) == {"age": [1.0, 2.0]}


def test_a_complaint_names_the_file_of_several(tmp_path: Path) -> None:
    write(tmp_path, "age\n1\n", "a.csv")
    path = write(tmp_path, 'files = ["a.csv", "b.csv"]')
    assert f"{tmp_path}/b.csv does not exist" in complaint(path, NUMBER)
    write(tmp_path, "stay\n1\n", "b.csv")
    assert f"{tmp_path}/b.csv has no column age" in complaint(path, NUMBER)


def test_nothing_wanted_is_nothing_read(tmp_path: Path) -> None:
    assert read_plain(write(tmp_path, 'files = "missing.csv"'), {}) == {}


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("", "has no source: give exactly one of files, sql, sqlite and postgresql"),
        ('files = "a.csv"\nsql = "SELECT 1"', "has files and sql: give exactly one"),
        ('files = "a.csv"\ncolour = 1', "has an unknown key colour: a source with files may have: files"),
        ('sql = "SELECT 1"\ntable = "x"', "has an unknown key table"),
        ('sqlite = "a.db"\ntable = "x"\ntimeout = "1m"', "has an unknown key timeout"),
        ('sqlite = "a.db"', "with both or neither of table and query"),
        ('sqlite = "a.db"\ntable = "x"\nquery = "SELECT 1"', "with both or neither of table and query"),
        ('sqlite = "a.db"\ntable = "a.b.c"', "has a `table` that is not a name"),
        ('sqlite = "a.db"\ntable = "a\\u0000"', "has `table` that is not text"),
        ('sqlite = ""\ntable = "x"', "has `sqlite` that is not text, or is empty"),
        ("sql = 7", "has `sql` that is not text"),
        ("files = []", "has `files` that is not a list of files"),
        ("files = 1", "has `files` that is not a list of files"),
        ('files = ["a.csv", 1]', "has 1 in `files`, which is not a .csv or .parquet file"),
        ('files = "*"', "wildcards do not work"),
        ('files = "other.toml"', "which is not a .csv or .parquet file"),
        ('files = "*.parquet"', "does not exist"),
        ('postgresql = "host=x"\ntable = "x"\ntimeout = "0s"', "has timeout = 0s: write a time such as"),
        ('postgresql = "host=x"\ntable = "x"\ntimeout = "21d"', "at most 20d"),
        ('postgresql = "host=x"\ntable = "x"\ntimeout = 60', "has timeout = 60"),
        ("postgresql = 1", "has `postgresql` that is not text"),
        ("[files]", "has `files` that is not a list of files"),
        ('files = "a.csv', "is not valid TOML"),
        (b'files = "\xff.csv"', "is not UTF-8 text"),
        ("#" * (1 << 20) + "#", "the limit is 1048576"),
    ],
)
def test_source_files_are_read_strictly(tmp_path: Path, content: str | bytes, message: str) -> None:
    assert message in complaint(write(tmp_path, content), NUMBER)


def test_a_broken_source_file_shows_no_password(tmp_path: Path) -> None:
    for content in ('postgresql = "password=hush', 'postgresql = "password=hush"', 'postgresql = ["password=hush"]'):
        assert "hush" not in complaint(write(tmp_path, content), NUMBER)
    source = Source.read(write(tmp_path, 'postgresql = "password=hush"\ntable = "x"\ntimeout = "2h"'))
    assert "hush" not in repr(source)
    assert source.timeout_s == 7200


def test_other_kinds_of_files_are_refused(tmp_path: Path) -> None:
    assert "is of no known kind" in complaint(write(tmp_path, b"PK", "a.xlsx"), NUMBER)
    assert "does not exist" in complaint(tmp_path / "b.toml", NUMBER)
    assert "does not exist" in complaint(tmp_path / "c*.parquet", NUMBER)


@pytest.mark.process
def test_a_small_csv_file_needs_no_heavy_import(tmp_path: Path) -> None:
    path = write(tmp_path, "age\n1\n", "a.csv")
    program = (
        "import sys; from pathlib import Path; from tpmdp.data.source import read_table; "
        f"read_table(Path({str(path)!r}), {{'age': 'number'}}); "
        "print([name for name in ('duckdb', 'psycopg', 'sqlite3') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=HANG_S)
    assert done.stdout.strip() == "[]"
