"""CSV files: the fast reader and the Python reader accept and refuse the same, with the same words."""

from __future__ import annotations

import csv
import io
import random
import struct
import sys
from decimal import Decimal
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.data.tables import BOTH, NUMBER, complaint, outcome, plain, read_plain
from tpmdp.data import columns
from tpmdp.data.csv import measure, read_csv, read_with_duckdb, read_with_python
from tpmdp.data.table import Text

REGULAR = [
    (b"age,region\n70,north\n41,south\n", [70.0, 41.0], ["north", "south"]),
    (b"age,region\r\n70,north\r\n41,south\r\n", [70.0, 41.0], ["north", "south"]),
    (b"age,region\n70,north\n41,south", [70.0, 41.0], ["north", "south"]),
    (b"\xef\xbb\xbfage,region\n70,north\n", [70.0], ["north"]),
    (b'\xef\xbb\xbf"age","region"\n"70","north"\n', [70.0], ["north"]),
    (b" age , region\n70,north\n", [70.0], ["north"]),
    (b"region,age,note\nnorth,70,\nsouth,41,x\n", [70.0, 41.0], ["north", "south"]),
    (b"note,note,age,region\n,,70,north\n", [70.0], ["north"]),
    (b"age,region\n\n70,north\n\n\n41,south\n\n", [70.0, 41.0], ["north", "south"]),
    (b'age,region\n70,"a,b"\n41,"say ""x"""\n', [70.0, 41.0], ["a,b", 'say "x"']),
    (b'age,region\n70,"a\nb"\n41,"c\n\nd"\n', [70.0, 41.0], ["a\nb", "c\n\nd"]),
    (b"age,region\n70, north \n41,\t\n1,NULL\n", [70.0, 41.0, 1.0], [" north ", "\t", "NULL"]),
    ("age,region\n7,Süd\n4,\U0001f600\n1,\ufb01\n".encode(), [7.0, 4.0, 1.0], ["Süd", "\U0001f600", "\ufb01"]),
    (b"age,region\n7 ,x\n-1.5e3,y_z\n.5,+-\n5.,x\n+1,x\n", [7.0, -1500.0, 0.5, 5.0, 1.0], ["x", "y_z", "+-", "x", "x"]),
    (b"age,region\n", [], []),
    (b"age,region", [], []),
]  # fmt: skip
UNUSUAL = [  # right, but only the Python reader may say so
    (b"age,region\r70,north\r41,south\r", [70.0, 41.0], ["north", "south"]),
    (b"age,region\n70,north\r\n41,south\n", [70.0, 41.0], ["north", "south"]),
    (b'age,region\n70, "x"\n41,a"b\n', [70.0, 41.0], [' "x"', 'a"b']),
    ("age,region\n\u0661,x\n\u00a07,y\n1e-400,z\n".encode(), [1.0, 7.0, 0.0], ["x", "y", "z"]),
    (b"age,region\n70,a\0b\n", [70.0], ["a\0b"]),
    (b'age,region,"a\nb"\n70,north,1\n', [70.0], ["north"]),
]
WRONG = [
    (b"", "is empty"),
    (b"\xef\xbb\xbf", "is empty"),
    (b"\nage,region\n1,x\n", "is empty"),
    (b"years,region\n1,x\n", "has no column age (it has years, region): rename or add it"),
    (b"Age,region\n1,x\n", "has no column age"),
    (b"age;region\n1;x\n", "separate with commas"),
    (b"70,north\n41,south\n", "its first line looks like a record: begin with a line of column names"),
    (b"70;north\n41;south\n", "its first line looks like a record"),
    (b"age,age,region\n1,2,x\n", "has the column age twice"),
    (b"age,region\n1,x,\n2,y\n", "line 2 has 3 values for 2 columns"),
    (b"age,region\n1,x\n2\n", "line 3 has 1 values for 2 columns"),
    (b'age,region\n1,"x\ny"\n\n2\n', "line 5 has 1 values for 2 columns"),
    (b"age,region\n1,x\n,y\n", "line 3 has no finite number in column age"),
    (b"age,region\n1,x\n2,\n", "line 3 has no value in column region"),
    (b'age,region\n1,x\n2,""\n', "line 3 has no value in column region"),
    (b'age,region\n1,"x\n', "line 2 is not valid CSV"),
    (b'age,region\n1,"x" \n', "line 2 is not valid CSV"),
    (b"age,region\n1,s\xfcd\n", "is not UTF-8 text"),
    (b"age,region,note\n1,x,s\xfcd\n", "is not UTF-8 text"),  # in a column nobody wants
    (b"age,region\n1," + b"x" * 1001 + b"\n", "line 2 has more than 1,000 characters in column region"),
    (b"age,region,note\n1,x," + b"y" * 200_000 + b"\n", "not valid CSV (field larger than field limit"),
]  # fmt: skip
NO_NUMBERS = ["nan", "NaN", "inf", "-Infinity", "1_0", "+-1", "0x1F", "1e999", "secret", "1 2", "true", "1e", ".", "-"]


def write(folder: Path, content: bytes) -> Path:
    path = folder / "bank.csv"
    path.write_bytes(content)
    return path


@pytest.fixture(autouse=True)
def no_file_is_small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tpmdp.data.csv._LARGE", 0)


@pytest.mark.parametrize(("content", "ages", "regions"), REGULAR)
def test_regular_files_are_read_fast(tmp_path: Path, content: bytes, ages: list[float], regions: list[str]) -> None:
    path = write(tmp_path, content)
    fast = read_with_duckdb(path, BOTH)
    assert fast is not None
    assert plain(fast) == plain(read_with_python(path, BOTH)) == {"age": ages, "region": regions}


@pytest.mark.parametrize(("content", "ages", "regions"), UNUSUAL)
def test_unusual_files_are_read_all_the_same(
    tmp_path: Path, content: bytes, ages: list[float], regions: list[str]
) -> None:
    path = write(tmp_path, content)
    assert read_with_duckdb(path, BOTH) is None
    assert read_plain(path, BOTH) == {"age": ages, "region": regions}


@pytest.mark.parametrize(("content", "message"), WRONG)
def test_wrong_files_are_refused_with_the_line(tmp_path: Path, content: bytes, message: str) -> None:
    path = write(tmp_path, content)
    found = complaint(path, BOTH)
    assert message in found
    said = found.replace(str(path), "")  # pytest numbers its folders
    assert not any(secret in said for secret in ("north", "xx", "yy", "70", "41"))
    assert found == outcome(read_with_python, path, BOTH)


@pytest.mark.parametrize("value", NO_NUMBERS)
def test_what_is_no_number_is_refused_and_not_shown(tmp_path: Path, value: str) -> None:
    path = write(tmp_path, f"age\n1\n{value}\n".encode())
    found = complaint(path, NUMBER)
    assert "line 3 has no finite number in column age" in found
    assert "secret" not in found


def test_one_column_with_empty_lines(tmp_path: Path) -> None:
    assert read_plain(write(tmp_path, b"age\n\n1\n\n2\n\n"), NUMBER) == {"age": [1.0, 2.0]}


def test_order_of_columns_is_as_wanted(tmp_path: Path) -> None:
    path = write(tmp_path, b"age,region\n1,x\n")
    assert list(read_csv(path, {"region": "text", "age": "number"})) == ["region", "age"]
    assert read_plain(path, {"age": "text"}) == {"age": ["1"]}


@pytest.mark.parametrize("name", ["it's.csv", 'a "b".csv', "50%.csv", "%41 .csv", "a*[b]?{c}.csv", "ü;--.csv", "-.CSV"])
def test_odd_names_of_files(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    path.write_bytes(b"age\n1\n")
    (tmp_path / "ab.csv").write_bytes(b"age\n2\n")  # what a wildcard would find
    assert read_plain(path, NUMBER) == {"age": [1.0]}


def test_a_folder_named_like_a_partition_adds_no_column(tmp_path: Path) -> None:
    folder = tmp_path / "age=5"
    folder.mkdir()
    assert "has no column age" in complaint(write(folder, b"stay\n1\n"), NUMBER)


def test_too_many_distinct_texts_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(columns, "TEXT_VALUES_MAX", 3)
    monkeypatch.setattr("tpmdp.data.duck.TEXT_VALUES_MAX", 3)
    path = write(tmp_path, b"age,region\n1,a\n2,b\n3,c\n4,a\n")
    assert read_with_duckdb(path, BOTH) is not None
    assert len(read_plain(path, BOTH)["region"]) == 4
    path = write(tmp_path, b"age,region\n1,a\n2,b\n3,c\n4,d\n")
    assert read_with_duckdb(path, BOTH) is None
    assert "distinct values in column region" in complaint(path, BOTH)


def test_without_duckdb_everything_still_works(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write(tmp_path, REGULAR[0][0])
    monkeypatch.setitem(sys.modules, "duckdb", None)
    assert read_with_duckdb(path, BOTH) is None
    assert read_plain(path, BOTH) == {"age": [70.0, 41.0], "region": ["north", "south"]}


@pytest.mark.slow
def test_many_records_keep_their_order(tmp_path: Path) -> None:
    count = 300_000  # several blocks for several threads
    lines = [f'{i},"region, {i * i % 1009}",{"x" * 100}' for i in range(count)]
    path = write(tmp_path, "\n".join(["age,region,note", *lines]).encode())
    fast = read_with_duckdb(path, BOTH)
    assert fast is not None
    assert plain(fast) == {
        "age": [float(i) for i in range(count)],
        "region": [f"region, {i * i % 1009}" for i in range(count)],
    }


def number_texts(draw: random.Random, count: int) -> list[str]:
    """Doubles as Python writes them, long decimals, points just halfway between two doubles, and the smallest."""
    texts = ["1.7976931348623157e308", "4.9e-324", "2.2250738585072011e-308", "-0.0", "-0", "0e999", "9" * 300]
    while len(texts) < count:
        double = struct.unpack("d", draw.randbytes(8))[0]
        if double - double != 0:
            continue
        digits = "".join(draw.choices("0123456789", k=draw.randint(1, 60)))
        step = Decimal(double) * (1 + Decimal(2) ** -53)
        texts += [repr(double), digits, f"-0.{digits}", f"{digits}.{digits}E{draw.randint(-340, 240)}"]
        texts += [repr(draw.randint(1, 1 << 52) * 5e-324), format(step, ".60e") if abs(step) < 1e308 else "1"]
    return texts


def test_numbers_are_the_same_to_the_last_bit(tmp_path: Path) -> None:
    texts = [text for text in number_texts(random.Random(7), 60_000) if abs(float(text)) < float("inf")]
    texts = [text for text in texts if float(text) or not text.strip("-0.").partition("E")[0]]  # DuckDB refuses 1e-400
    path = write(tmp_path, "\n".join(["age", *texts]).encode())
    fast = read_with_duckdb(path, NUMBER)
    assert fast is not None
    age = fast["age"]
    assert not isinstance(age, Text)
    assert age.tobytes() == struct.pack(f"{len(texts)}d", *map(float, texts))


TOKENS = [
    "age",
    "region",
    "1",
    "2.5",
    "x",
    ",",
    ",",
    "\n",
    "\n",
    "\r\n",
    "\r",
    '"',
    '""',
    '"x\ny"',
    " ",
    "é",
    "_",
    "+",
    "-",
]
TOKENS += [
    "e5",
    "\0",
    "\ufeff",
    "nan",
    "0x1",
    "\t",
    ";",
    "\x0b",
    "\x1c",
    "\u2028",
    "#",
    "\\",
    "'",
    "NULL",
    "1e-400",
    "\x1a",
]
VALUES = st.one_of(
    st.sampled_from(["1", "2.5", "-3e2", "70", "+4", "x", "Süd", "a,b", 'q"q', "two\nlines", "", " b ", "1_0", "+-1"]),
    st.text(alphabet="01.e+-_ ,\"\n\rxé#\\'", max_size=6),
    st.floats(allow_nan=False).map(repr),
)  # fmt: skip


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("agreement")


def agree(folder: Path, content: bytes) -> bool:
    """What the fast reader gives is what the Python reader gives; True where the fast one was at work."""
    path = write(folder, content)
    fast = {tuple(wanted): read_with_duckdb(path, wanted) for wanted in (BOTH, NUMBER)}
    for wanted in (BOTH, NUMBER):
        found = fast[tuple(wanted)]
        assert found is None or repr(plain(found)) == outcome(read_with_python, path, wanted)
    return any(found is not None for found in fast.values())


@pytest.mark.slow
@settings(deadline=None, max_examples=300)
@given(st.lists(st.sampled_from(TOKENS), max_size=25).map("".join), st.sampled_from(["", "age,region\n", "age\n"]))
def test_both_readers_agree_on_any_text(folder: Path, text: str, header: str) -> None:
    agree(folder, (header + text).encode())


@pytest.mark.slow
@settings(deadline=None, max_examples=300)
@given(
    st.lists(st.tuples(st.integers(-99, 99).map(str) | VALUES, VALUES), max_size=6),
    st.sampled_from(["\n", "\r\n", "\r"]),
    st.sampled_from([csv.QUOTE_MINIMAL, csv.QUOTE_ALL, csv.QUOTE_NONNUMERIC]),
    st.lists(st.tuples(st.integers(0, 200), st.sampled_from(TOKENS)), max_size=1),
)
@pytest.mark.long
def test_both_readers_agree_on_written_files(
    folder: Path, rows: list[tuple[str, str]], line_end: str, quoting: int, changes: list[tuple[int, str]]
) -> None:
    text = io.StringIO()
    writer = csv.writer(text, lineterminator=line_end, quoting=quoting)  # type: ignore[arg-type]
    writer.writerows([("age", "region"), *rows])
    content = text.getvalue()
    for place, token in changes:
        content = content[:place] + token + content[place:]
    agree(folder, content.encode())


@settings(deadline=None, max_examples=300)
@given(st.lists(st.sampled_from([*TOKENS, '\n"', '",', '"\n']), max_size=30).map("".join), st.integers(1, 9))
@pytest.mark.slow
def test_blocks_make_no_difference(folder: Path, text: str, size: int) -> None:
    path = write(folder, text.encode())
    whole = measure(path)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("tpmdp.data.csv._BLOCK", size)
        assert measure(path) == whole


def test_a_folder_and_a_missing_file(tmp_path: Path) -> None:
    (tmp_path / "a.csv").mkdir()
    assert "is a folder" in complaint(tmp_path / "a.csv", NUMBER)
    assert "does not exist" in complaint(tmp_path / "b.csv", NUMBER)
