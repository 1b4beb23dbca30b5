"""Files of parties: three formats, and every way they go wrong, each named by line."""

from __future__ import annotations

import os
from pathlib import Path

import duckdb
import numpy as np
import pytest

from tpmdp import FileError
from tpmdp.planning.parties_file import read_parties

GOOD = "name,epsilon,delta,sensitivity\nbank,0.5,1e-6,1\nlab,inf,0,2.5\n"


def csv(folder: Path, content: str | bytes) -> Path:
    path = folder / "parties.csv"
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return path


def test_csv_with_all_columns(tmp_path: Path) -> None:
    parties = read_parties(csv(tmp_path, GOOD))
    assert parties.names == ("bank", "lab")
    spec = parties.spec(1, ["bank"])
    assert spec.epsilon.tolist() == [0.5, float("inf")]
    assert spec.sensitivity.tolist() == [1.0, 2.5]


@pytest.mark.parametrize(
    "content",
    [
        b"\xef\xbb\xbf" + GOOD.encode(),  # the byte-order mark Excel writes
        GOOD.replace("\n", "\r\n").encode(),
        GOOD.encode() + b"\n\n",  # blank lines at the very end mean nothing
        GOOD.replace("name,", '"Name ",').replace("bank", '"bank"').encode(),
        GOOD.rstrip().encode(),
    ],
)
def test_harmless_variations_read_the_same(tmp_path: Path, content: bytes) -> None:
    parties = read_parties(csv(tmp_path, content))
    assert parties.names == ("bank", "lab")
    assert parties.columns["delta"].tolist() == [1e-6, 0.0]


def test_names_and_sensitivity_have_defaults(tmp_path: Path) -> None:
    parties = read_parties(csv(tmp_path, "epsilon,delta\n1,1e-6\n2,1e-6\n"))
    assert parties.names == ("party_1", "party_2")
    assert parties.spec(1, "all").sensitivity.tolist() == [1.0, 1.0]


def test_a_threshold_column_is_personal(tmp_path: Path) -> None:
    parties = read_parties(csv(tmp_path, "epsilon,delta,threshold\n1,1e-6,0\n2,1e-6,1\n"))
    assert np.array_equal(parties.spec(parties.threshold, "all").threshold, [0, 1])


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("", "is empty"),
        ("name,delta\na,1e-6\n", "has no column epsilon (it has name, delta)"),
        ("epsilon\n1\n", "has no column delta"),
        ("epsilon,delta,sensitivty\n1,1e-6,1\n", "has an unknown column sensitivty"),
        ("epsilon,delta,delta\n1,1e-6,1\n", "has the column delta twice"),
        ("epsilon,delta\n", "has parties = none, which must be at least one"),
        ("epsilon,delta\n1,1e-6\n\n2,1e-6\n", "line 3 is blank"),
        ("epsilon,delta\n1,1e-6\n , \n2,1e-6\n", "has epsilon of line 3 = (blank), which is not a number in range"),
        ("epsilon,delta\n1,1e-6\ntwo,1e-6\n", "has epsilon of line 3 = two, which is not a number"),
        ("epsilon,delta\n1_0,1e-6\n", "has epsilon of line 2 = 1_0, which is not a number"),
        ("epsilon,delta\n1,1e-6\n1,1e-6,7\n", "line 3 has 3 values for 2 columns"),
        ("epsilon,delta\n1,1e-6\n1\n", "line 3 has 1 values for 2 columns"),
        ("epsilon,delta\n1,1e-6\n-1,1e-6\n", "epsilon of line 3 = -1.0, which must be greater than 0"),
        ("epsilon,delta\nnan,1e-6\n", "epsilon of line 2 = nan"),
        ("epsilon,delta\n1,0\n", "delta of line 2 = 0.0, which cannot be met by Gaussian noise"),
        ("epsilon,delta\n1,2\n", "delta of line 2 = 2.0, which must lie in (0, 1)"),
        ("epsilon,delta,sensitivity\n1,0.1,-1\n", "sensitivity of line 2 = -1.0"),
        ('epsilon,delta\n"1,1e-6\n', "is not valid CSV"),
        (b"epsilon,delta\n\xff\xfe1,1e-6\n", "is not UTF-8 text"),
        (b"\xff\xfee\x00p\x00", "is UTF-16 text: save it as CSV UTF-8"),
        (b"epsilon,delta\n1\x00,1e-6\n", "line"),
        ("epsilon,delta\n1e400,1e-6\n", "has epsilon of line 2 = 1e400, which is not a number in range"),
        ("epsilon;delta\n1;1e-6\n", "has no column epsilon (it has epsilon;delta)"),
        (
            "epsilon,delta,threshold\n1,0.1,\n",
            "has threshold of line 2 = (blank), which is not a number in range: write a whole",
        ),
        (
            "epsilon,delta,threshold\n1,0.1,5\n",
            "has threshold of line 2 = 5, which must be less than the number of parties (1)",
        ),
        ("name,epsilon,delta\nall,1,0.1\n", "has name of line 2 = all, which stands for a set of receivers"),
    ],
)
def test_bad_csv_names_the_line_and_the_remedy(tmp_path: Path, content: str | bytes, message: str) -> None:
    with pytest.raises(FileError) as caught:
        read_parties(csv(tmp_path, content))
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.slow
def test_one_bad_row_in_a_million_is_named(tmp_path: Path) -> None:
    rows = ["0.5,1e-6"] * 1_000_000
    rows[654_320] = "oops,1e-6"
    path = csv(tmp_path, "epsilon,delta\n" + "\n".join(rows) + "\n")
    with pytest.raises(FileError, match="has epsilon of line 654322 = oops"):
        read_parties(path)
    rows[654_320] = "-3,1e-6"
    path = csv(tmp_path, "epsilon,delta\n" + "\n".join(rows) + "\n")
    seen: list[int] = []
    with pytest.raises(FileError, match=r"epsilon of line 654322 = -3\.0"):
        read_parties(path, lambda done, total: seen.append(100 * done // total))
    assert seen
    assert seen == sorted(seen)
    assert seen[-1] <= 100


def test_duplicate_names_are_refused(tmp_path: Path) -> None:
    with pytest.raises(FileError, match="has name of line 3 = a, which is used twice"):
        read_parties(csv(tmp_path, "name,epsilon,delta\na,1,1e-6\na,2,1e-6\n"))


def parquet(folder: Path, query: str) -> Path:
    path = folder / "parties.parquet"
    duckdb.execute(f"COPY ({query}) TO '{path}' (FORMAT parquet)")
    return path


def test_parquet(tmp_path: Path) -> None:
    query = "SELECT * FROM (VALUES ('bank', 0.5::DOUBLE, 1e-6::DOUBLE), ('lab', 1, 1e-7)) t(name, epsilon, delta)"
    parties = read_parties(parquet(tmp_path, query))
    assert parties.names == ("bank", "lab")
    assert parties.columns["epsilon"].tolist() == [0.5, 1.0]


@pytest.mark.parametrize(
    ("query", "message"),
    [
        ("SELECT 1.0::DOUBLE AS epsilon", "has no column delta"),
        ("SELECT 'x' AS epsilon, 0.1::DOUBLE AS delta", "has epsilon of type object, not numbers"),
        ("SELECT unnest([1.0, NULL])::DOUBLE AS epsilon, 0.1::DOUBLE AS delta", "row 2 has no epsilon"),
        (
            "SELECT 1.5 AS name, 1.0::DOUBLE AS epsilon, 0.1::DOUBLE AS delta",
            "has name of row 1 = 1.5, which must be printable",
        ),
        ("SELECT -1.0::DOUBLE AS epsilon, 0.1::DOUBLE AS delta", "epsilon of row 1 = -1.0"),
        (
            "SELECT 1.0::DOUBLE AS epsilon, 0.1::DOUBLE AS delta LIMIT 0",
            "has parties = none, which must be at least one",
        ),
    ],
)
def test_bad_parquet(tmp_path: Path, query: str, message: str) -> None:
    with pytest.raises(FileError) as caught:
        read_parties(parquet(tmp_path, query))
    assert message in str(caught.value)


def test_a_file_that_is_not_parquet(tmp_path: Path) -> None:
    path = tmp_path / "parties.parquet"
    path.write_text("hello")
    with pytest.raises(FileError, match="is not a readable Parquet file"):
        read_parties(path)


def toml(folder: Path, text: str) -> Path:
    path = folder / "parties.toml"
    path.write_text(text)
    return path


def test_toml_with_defaults_threshold_and_receivers(tmp_path: Path) -> None:
    text = """
threshold = 1
receivers = ["lab"]
delta = 1e-6
[[parties]]
name = "bank"
epsilon = 0.5
[[parties]]
name = "lab"
epsilon = inf
sensitivity = 2
"""
    parties = read_parties(toml(tmp_path, text))
    spec = parties.spec(parties.threshold, parties.receivers)
    assert spec.receivers.tolist() == [False, True]
    assert spec.sensitivity.tolist() == [1.0, 2.0]
    assert spec.threshold == 1


def test_toml_thresholds_have_a_default_and_nobody_may_receive(tmp_path: Path) -> None:
    text = 'threshold = 1\nreceivers = "none"\ndelta = 0.1\nepsilon = 1\n[[parties]]\n[[parties]]\nthreshold = 0\n'
    parties = read_parties(toml(tmp_path, text))
    assert parties.threshold.tolist() == [1, 0]
    assert parties.receivers == []


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("threshold = 1", "has parties = None, which must be one table or more: add a [[parties]] table for each"),
        ("parties = 3", "has parties = 3, which must be one table or more"),
        (
            "[[parties]]\nepsilon = 1",
            "has delta of party 1 = (none), which is missing: give the party its own, or one for all at the top",
        ),
        (
            "[[parties]]\nepsilon = 'x'\ndelta = 0.1",
            'has epsilon of party 1 = "x", which is not a number: remove the quotes',
        ),
        ("[[parties]]\nepsilon = true\ndelta = 0.1", "has epsilon of party 1 = true, which is not a number"),
        ("[[parties]]\nepsilon = 1\ndelta = 0.1\ncolour = 2", "has key in party 1 = colour, which is unknown"),
        ("budget = 1\n[[parties]]\nepsilon = 1\ndelta = 0.1", "has key in the file = budget, which is unknown"),
        ("receivers = 5\n[[parties]]\nepsilon = 1\ndelta = 0.1", "has receivers = 5, which must be a list of names"),
        ("[[parties]]\nepsilon = -1\ndelta = 0.1", "epsilon of party 1 = -1.0"),
        ("[[parties]]\nepsilon = 1e400\ndelta = 0.1", "1e400 is out of range"),
        ("[[parties]]\nepsilon = 1" + "0" * 400 + "\ndelta = 0.1", "has epsilon of party 1 = 1000"),
        ("[[parties]]\nepsilon = 1" + "0" * 5000 + "\ndelta = 0.1", "is not valid TOML"),
        ("epsilon = 'x'\n[[parties]]\nepsilon = 1\ndelta = 0.1", 'has epsilon = "x", which is not a number'),
        ("[[parties]]\nname = 5\nepsilon = 1\ndelta = 0.1", "has name of party 1 = 5, which must be printable text"),
        ("not toml", "is not valid TOML"),
        ("x = " + "[" * 5000, "is not valid TOML"),
    ],
)
def test_bad_toml(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(FileError) as caught:
        read_parties(toml(tmp_path, text))
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def test_missing_files_folders_and_unknown_kinds(tmp_path: Path) -> None:
    with pytest.raises(FileError, match="does not exist"):
        read_parties(tmp_path / "none.csv")
    with pytest.raises(FileError, match="has an unknown type"):
        read_parties(tmp_path / "parties.xlsx")
    (tmp_path / "folder.csv").mkdir()
    with pytest.raises(FileError, match="is a folder"):
        read_parties(tmp_path / "folder.csv")
    os.mkfifo(tmp_path / "pipe.csv")
    (tmp_path / "zero.csv").symlink_to("/dev/zero")
    for name in ("pipe.csv", "zero.csv"):
        with pytest.raises(FileError, match="is a device or a pipe: name a plain file"):
            read_parties(tmp_path / name)
