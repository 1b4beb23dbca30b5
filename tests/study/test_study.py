"""Studies, identities and data files: read strictly, and turned into one and the same terms by everybody."""

from __future__ import annotations

import copy
import math
import os
import tomllib
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

from tests.queries.cases import statistic
from tpmdp import FileError, InputError, Study
from tpmdp.data.source import read_table
from tpmdp.study.answers import answers as answers_from
from tpmdp.study.file import parse_deadline
from tpmdp.study.identity import public_text, read_key, write_key

KEYS = [Ed25519PrivateKey.from_private_bytes(bytes([i]) * 32) for i in range(3)]
DOCUMENT: dict[str, Any] = {
    "name": "stay",
    "threshold": 1,
    "receivers": ["north"],
    "delta": 1e-6,
    "parties": [
        {"name": "north", "epsilon": 0.5, "records": 4, "public_key": public_text(KEYS[0])},
        {"name": "south", "epsilon": 1.0, "records": 9, "public_key": public_text(KEYS[1])},
        {"name": "office", "records": 0, "public_key": public_text(KEYS[2])},
    ],
    "queries": [
        {"name": "old", "kind": "count", "column": "age", "at_least": 65},
        {"name": "stay", "kind": "mean", "column": "days", "low": 0, "high": 30.5},
    ],
}


def changed(**changes: Any) -> dict[str, Any]:
    return {**copy.deepcopy(DOCUMENT), **changes}


def party(place: int, **changes: Any) -> dict[str, Any]:
    document = copy.deepcopy(DOCUMENT)
    document["parties"][place].update(changes)
    return document


def query(place: int, **changes: Any) -> dict[str, Any]:
    document = copy.deepcopy(DOCUMENT)
    document["queries"][place].update(changes)
    return document


def test_a_study_becomes_a_spec() -> None:
    spec = Study.parse(DOCUMENT).spec()
    assert spec.epsilon.tolist() == [0.5, 1.0, math.inf]
    assert spec.sensitivity == pytest.approx([1, 1, 0])  # two queries, half of the budget each
    assert (spec.sensitivity[:2] >= 1).all()
    assert Study.parse(changed(unit="party")).spec().sensitivity == pytest.approx([4, 9, 0])
    assert spec.receivers.tolist() == [True, False, False]


def test_a_study_survives_its_file() -> None:
    for document in (DOCUMENT, changed(deadline=datetime(2027, 1, 1, tzinfo=UTC), receivers="all", session=7)):
        study = Study.parse(document)
        again = Study.parse(tomllib.loads(study.toml()))
        assert again == study
        assert again.terms().plan_hash == study.terms().plan_hash


def test_the_deadline_is_no_part_of_the_terms_and_everything_else_is() -> None:
    terms = Study.parse(DOCUMENT).terms()
    assert Study.parse(changed(deadline="5m")).terms().plan_hash == terms.plan_hash
    for other in (
        changed(session=2),
        changed(name="other"),
        changed(threshold=2),
        changed(unit="party"),
        changed(guarantee="statistical"),
        changed(receivers=["south"]),
        party(0, epsilon=0.6),
        party(0, records=5),
        query(0, at_least=66),
        query(1, high=31),
        query(0, column="years"),
    ):
        assert Study.parse(other).terms().plan_hash != terms.plan_hash


def test_queries_and_answers_fit_together() -> None:
    study = Study.parse(DOCUMENT)
    north = {"age": np.array([70.0, 20, 65, 64]), "days": np.array([0.0, 30.5, 99, 15.25])}
    south = {"age": np.full(9, 80.0), "days": np.zeros(9)}
    total = statistic(study, "north", north) + statistic(study, "south", south) + statistic(study, "office", {})
    terms = study.terms()
    steps = terms.grid.encode(total, 1e6)
    old, stay = answers_from(study, terms, steps)
    assert old.value == pytest.approx(11, abs=1e-3)  # scaled, so no longer on the grid
    assert stay.value == pytest.approx((0 + 30.5 + 30.5 + 15.25) / 13, abs=1e-3)
    assert old.standard_error == pytest.approx(terms.standard_deviation * math.sqrt(2))
    assert stay.standard_error == pytest.approx(terms.standard_deviation * math.sqrt(2) * 30.5 / 13)


@pytest.mark.parametrize("unit", ["record", "party"])
def test_no_change_of_records_moves_the_vector_by_more_than_the_sensitivity(unit: str) -> None:
    document = changed(unit=unit)
    document["queries"][1].update(low=-7.3, high=1e9)
    study = Study.parse(document)
    random = np.random.default_rng(0)
    sensitivity = study.spec().sensitivity[1]
    bounds = study.bounds()[1]
    largest = 0.0
    for trial in range(400):
        kind = [random.normal(0, 1e9, 9), random.choice([-1e300, -7.3, 1e9, 1e300, 5e-324], 9)][trial % 2]
        table = {"age": random.choice([0.0, 64.999999, 65, 1e300], 9), "days": kind}
        if trial == 0:  # the worst case, which random tables do not find for nine records at once
            table = {"age": np.zeros(9), "days": np.full(9, -1e300)}
        other = {name: column.copy() for name, column in table.items()}
        rows = slice(0, 1) if unit == "record" else slice(0, 9)
        for name in other:
            other[name][rows] = 1e300 if trial == 0 else random.choice([-1e300, 0, 65, 1e300])
        one, two = statistic(study, "south", table), statistic(study, "south", other)
        assert max(np.abs(one).max(), np.abs(two).max()) <= bounds
        largest = max(largest, float(np.linalg.norm(one - two)))
    assert 0.9 * sensitivity <= largest <= sensitivity


@pytest.mark.parametrize(
    ("document", "words"),
    [
        (changed(threshold=3), "threshold"),
        (changed(threshold=-1), "threshold"),
        (changed(threshold=1.5), "whole number"),
        (changed(threshold=True), "whole number"),
        (changed(session=0), "session"),
        (changed(receivers=["nobody"]), "not one of the parties"),
        (changed(receivers=[]), "receivers"),
        (changed(receivers="none"), "receivers"),
        (changed(receivers=[1]), "receivers"),
        (changed(deadline="soon"), "duration"),
        (changed(deadline="0s"), "duration"),
        (changed(deadline=5), "duration"),
        (changed(deadline=datetime(2027, 1, 1)), "offset"),
        (changed(unit="row"), "must be one of record, party"),
        (changed(guarantee="perfect"), "must be one of"),
        (changed(name=""), "printable"),
        (changed(name="x" * 101), "printable"),
        (changed(name="a\nb"), "printable"),
        (changed(surprise=1), "is unknown"),
        (changed(parties=[]), "one table or more"),
        (changed(parties="all"), "one table or more"),
        (changed(parties=DOCUMENT["parties"][:1]), "at least 2"),
        (changed(queries=[]), "one table or more"),
        (changed(queries=[DOCUMENT["queries"][0]] * 2), "different names"),
        (party(0, name="South"), "upper and lower case"),
        (party(0, name="south"), "listed twice"),
        (party(0, name="../x"), "letters, digits"),
        (party(0, name=3), "letters, digits"),
        (party(0, epsilon=-1), "epsilon"),
        (party(0, epsilon="1"), "not a number"),
        (party(0, epsilon=math.nan), "not a number"),
        (party(0, epsilon=10**400), "out of range"),
        (party(0, delta=0), "delta"),
        (party(0, records=-1), "records"),
        (party(0, records=1.5), "records"),
        (party(0, public_key="ssh-rsa AAAA"), "not a public key"),
        (party(0, public_key="ed25519:AAAA"), "not a public key"),
        (party(0, budget=1), "is unknown"),
        (query(0, kind="median"), "must be one of count"),
        (query(0, column=""), "column"),
        (query(1, low=30.5), "finite range"),
        (changed(queries=[{"name": "h", "kind": "histogram", "column": "age", "edges": [1]}]), "2 to"),
        (changed(queries=[{"name": "h", "kind": "histogram", "column": "age", "edges": [2, 1]}]), "must rise"),
        (changed(queries=[{"name": "h", "kind": "histogram", "column": "age", "edges": [1, "2"]}]), "not a number"),
        (query(1, low=1e17, high=1e17 + 16), "finite range"),
        (query(0, below=65), "hold no value"),
        (query(0, at_least=math.inf), "hold no value"),
        (changed(session="1"), "remove the quotes"),
        (query(1, high=math.inf), "finite range"),
        (query(1, high="30"), "not a number"),
        (query(0, low=3), "is unknown"),
    ],
)
def test_bad_studies_are_refused_with_one_line(document: dict[str, Any], words: str) -> None:
    with pytest.raises(InputError, match=words) as caught:
        Study.parse(document)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("key", ["name", "threshold", "receivers", "parties", "queries"])
def test_a_missing_key_is_named(key: str) -> None:
    document = copy.deepcopy(DOCUMENT)
    del document[key]
    with pytest.raises(InputError, match=f"{key} in study"):
        Study.parse(document)


def test_missing_budgets_keys_and_records_are_named() -> None:
    document = copy.deepcopy(DOCUMENT)
    del document["parties"][0]["epsilon"]
    with pytest.raises(InputError, match="epsilon of north"):
        Study.parse(document)
    bare = copy.deepcopy(DOCUMENT)
    del bare["parties"][0]["public_key"]
    with pytest.raises(InputError, match="public_key of north"):
        Study.parse(bare).terms()
    with pytest.raises(InputError, match="must be the number the study states"):
        statistic(Study.parse(DOCUMENT), "north", {"age": np.zeros(3), "days": np.zeros(3)})
    with pytest.raises(InputError, match="must not be 0 for all"):
        Study.parse(changed(parties=[{"name": "a", "records": 0}, {"name": "b", "records": 0}], receivers=["a"]))


def test_study_files_that_cannot_be_read_are_named(tmp_path: Path) -> None:
    cases = {"a.toml": b"\xff\xfe", "b.toml": b"= 1", "c.toml": b"a = 1\n", "d.toml": b"x = [" * 5000}
    for name, content in cases.items():
        (tmp_path / name).write_bytes(content)
        with pytest.raises(FileError, match=name):
            Study.read(tmp_path / name)
    with pytest.raises(FileError, match="does not exist"):
        Study.read(tmp_path / "no.toml")


def test_a_number_too_large_for_a_double_is_not_infinity(tmp_path: Path) -> None:
    text = Study.parse(DOCUMENT).toml()
    for number in ("1e400", "9" * 400):
        (tmp_path / "a.toml").write_text(text.replace("epsilon = 0.5", f"epsilon = {number}"))
        with pytest.raises(FileError, match="out of range"):
            Study.read(tmp_path / "a.toml")


def test_a_mean_of_many_equal_records_is_not_biased_by_rounding() -> None:
    from tpmdp.queries.mean import Mean

    query = Mean("x", "x", 0.0, 1.0)
    count = 3_000_000
    total = query.statistic({"x": np.full(count, 0.3)})
    (answer,) = query.answers(total, count, 1.0)
    assert answer.value == pytest.approx(0.3, abs=1e-12)


def test_deadlines() -> None:
    assert parse_deadline("90s") == 90
    assert parse_deadline("3d") == 3 * 86400
    now = datetime(2026, 1, 1, tzinfo=UTC)
    study = Study.parse(changed(deadline=now + timedelta(hours=1)))
    assert study.seconds_left(now) == 3600
    assert study.seconds_left(now + timedelta(hours=2)) == -3600
    assert parse_deadline("2027-01-01T00:00:00Z") == datetime(2027, 1, 1, tzinfo=UTC)
    for bad in ("", "10", "m", "-5s", "2027-01-01T00:00:00", "1e9s"):
        with pytest.raises(InputError, match="duration"):
            parse_deadline(bad)


# Identities -----------------------------------------------------------------------------------------------------------


def test_a_key_file_is_for_its_owner_and_is_never_replaced(tmp_path: Path) -> None:
    path = tmp_path / "north.key"
    write_key(path, KEYS[0])
    assert path.stat().st_mode & 0o777 == 0o600
    assert public_text(read_key(path)) == public_text(KEYS[0])
    with pytest.raises(FileError, match="exists already"):
        write_key(path, KEYS[1])
    assert public_text(read_key(path)) == public_text(KEYS[0])
    path.chmod(0o640)
    with pytest.raises(FileError, match="can be read by others: run chmod 600"):
        read_key(path)


def test_files_that_are_no_key_are_refused_without_showing_them(tmp_path: Path) -> None:
    path = tmp_path / "x.key"
    other = X25519PrivateKey.generate().private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    for content in (b"", b"secret words", other, KEYS[0].private_bytes_raw()):
        path.write_bytes(content)
        os.chmod(path, 0o600)
        with pytest.raises(FileError) as caught:
            read_key(path)
        assert "secret" not in str(caught.value)


# Data files -----------------------------------------------------------------------------------------------------------


def read_columns(path: Path, columns: list[str]) -> dict[str, Any]:
    return dict(read_table(path, dict.fromkeys(columns, "number")))


def test_columns_are_read_from_csv_and_parquet(tmp_path: Path) -> None:
    import duckdb

    csv = tmp_path / "a.csv"
    csv.write_bytes(b"\xef\xbb\xbf" + b'age,"note, long",days\r\n70,"x\ny",1.5\r\n20,,2\r\n\r\n')
    assert {name: column.tolist() for name, column in read_columns(csv, ["days", "age", "days"]).items()} == {
        "days": [1.5, 2.0],
        "age": [70.0, 20.0],
    }
    parquet = tmp_path / "a.parquet"
    duckdb.sql("SELECT 70 AS age, 1.5::DOUBLE AS days, 'x' AS note").write_parquet(str(parquet))
    assert read_columns(parquet, ["age"])["age"].tolist() == [70.0]
    with pytest.raises(FileError, match="not numbers"):
        read_columns(parquet, ["note"])
    with pytest.raises(FileError, match="has no column years"):
        read_columns(parquet, ["years"])
    duckdb.sql("SELECT NULL::DOUBLE AS days").write_parquet(str(parquet))
    with pytest.raises(FileError, match="row 1 has no finite number in column days"):
        read_columns(parquet, ["days"])


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"age\n1,2\n", "line 2 has 2 values for 1 columns"),
        (b"age,age\n1,2\n", "twice"),
        (b"age\ninf\n", "line 2 has no finite number in column age"),
        (b"age\n1_0\n", "no finite number"),
        (b"", "is empty"),
        (b"age;days\n1;2\n", "separate with commas"),
        (b'age\n"1\n', "not valid CSV"),
        (b"age\n\xff\n", "UTF-8"),
        (b"Age\n1\n", "has no column age"),
    ],
)
def test_bad_data_files_are_named_with_the_line(tmp_path: Path, content: bytes, message: str) -> None:
    path = tmp_path / "a.csv"
    path.write_bytes(content)
    with pytest.raises(FileError, match=message):
        read_columns(path, ["age"])


def test_other_kinds_of_files_are_refused(tmp_path: Path) -> None:
    (tmp_path / "a.xlsx").write_bytes(b"PK")
    for name, message in (("a.xlsx", "no known kind"), ("b.csv", "does not exist"), ("c*.parquet", "does not exist")):
        with pytest.raises(FileError, match=message):
            read_columns(tmp_path / name, ["age"])
