"""Records from a real PostgreSQL server."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tests.data import tables
from tests.data.server import PASSWORD, Server
from tests.data.tables import BOTH, NUMBER, Wanted, read_plain
from tpmdp.data.source import Source, read_table
from tpmdp.data.table import ColumnKind
from tpmdp.errors import MissingDependencyError

pytestmark = pytest.mark.process


@pytest.fixture(scope="module", autouse=True)
def rows(server: Server) -> None:
    server.execute(
        "CREATE TABLE stays (id int, age int, stay numeric(6,2), cost float8, small float4, big int8, old bool,"
        " region text, code varchar(5), day date)",
        "INSERT INTO stays VALUES (1, 70, 3.25, 1e300, 0.1, 9007199254740993, true, 'north', 'a ', now()),"
        " (2, 41, 0.1, -0.5, 2, -1, false, 'Süd ''x''', 'b', now())",
        "CREATE SCHEMA clinic",
        'CREATE TABLE clinic."Odd ""name""" AS SELECT 5 AS age, 6 AS "Age"',
        "CREATE TABLE empty (age int, region text)",
        "CREATE TABLE faulty (age float8, region text, amount numeric)",
        "INSERT INTO faulty VALUES (1, 'x', 1), (NULL, '', 'NaN')",
        "CREATE TYPE mood AS ENUM ('sad')",
        "CREATE TABLE typed (age mood)",
        "CREATE ROLE reader LOGIN PASSWORD 'of-the-reader'",
    )


def source(folder: Path, address: str, rest: str) -> Path:
    path = folder / "bank.toml"
    path.write_text(f'postgresql = "{address}"\n{rest}\n', encoding="utf-8")
    return path


def complaint(path: Path, wanted: Wanted) -> str:
    message = tables.complaint(path, wanted)
    assert PASSWORD not in message
    assert PASSWORD not in repr(Source.read(path))
    return message


def test_tables_and_queries_give_numbers_and_text(tmp_path: Path, server: Server) -> None:
    wanted: dict[str, ColumnKind] = dict.fromkeys(("stay", "age", "cost", "small", "big", "old"), "number")
    wanted |= {"region": "text", "code": "text"}
    rows = 'query = "SELECT * FROM stays ORDER BY id; -- all"'
    for rest in ('table = "stays"', 'table = "public.stays"', rows):
        found = read_plain(source(tmp_path, server.address, rest), wanted)
        assert list(found) == list(wanted)
        assert found == {
            "stay": [3.25, 0.1],
            "age": [70.0, 41.0],
            "cost": [1e300, -0.5],
            "small": [0.10000000149011612, 2.0],
            "big": [9007199254740992.0, -1.0],
            "old": [1.0, 0.0],
            "region": ["north", "Süd 'x'"],
            "code": ["a ", "b"],
        }


def test_an_address_may_be_a_url_and_the_password_may_be_elsewhere(
    tmp_path: Path, server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    address = f"postgresql://postgres:{PASSWORD}@/postgres?host={server.folder}"
    assert read_plain(source(tmp_path, address, 'table = "stays"'), NUMBER) == {"age": [70.0, 41.0]}
    monkeypatch.setenv("PGPASSWORD", PASSWORD)
    bare = f"host={server.folder} dbname=postgres user=postgres"
    assert read_plain(source(tmp_path, bare, 'table = "stays"'), NUMBER) == {"age": [70.0, 41.0]}


def test_many_rows_come_in_order(tmp_path: Path, server: Server) -> None:
    query = "query = \"SELECT i AS age, 'r' || i % 7 AS region FROM generate_series(1, 25001) AS t(i) ORDER BY i\""
    assert read_plain(source(tmp_path, server.address, query), BOTH) == {
        "age": [float(i) for i in range(1, 25002)],
        "region": [f"r{i % 7}" for i in range(1, 25002)],
    }


def test_no_records_are_legal(tmp_path: Path, server: Server) -> None:
    for rest in ('table = "empty"', "query = \"SELECT 1 AS age, 'x' AS region WHERE 1 = 0\""):
        assert read_plain(source(tmp_path, server.address, rest), BOTH) == {"age": [], "region": []}


@pytest.mark.parametrize(
    ("rest", "column", "kind", "message"),
    [
        ('table = "stays"', "years", "number", "has no column years (it has id, age, stay"),
        ('table = "stays"', "region", "number", "has region of type text, not numbers"),
        ('table = "stays"', "age", "text", "has age of type int4, not text"),
        ('table = "stays"', "day", "number", "has day of type date, not numbers"),
        ('table = "typed"', "age", "text", "not text"),
        ('table = "faulty"', "age", "number", "row 2 has no finite number in column age"),
        ('table = "faulty"', "amount", "number", "row 2 has no finite number in column amount"),
        ('table = "faulty"', "region", "text", "row 2 has no value in column region"),
        ('table = "nowhere"', "age", "number", 'relation "nowhere" does not exist'),
        ('query = "SELECT 1 AS age, 2 AS age"', "age", "number", "has the column age twice"),
        ('query = "SELEC"', "age", "number", "syntax error"),
        ('query = "SELECT region::int AS age FROM stays"', "age", "number", "(InvalidTextRepresentation)"),
        ('query = "SELECT 1/(id-1) AS age FROM stays"', "age", "number", "(DivisionByZero)"),
        ('query = "SELECT pg_sleep(30), 1 AS age"\ntimeout = "1s"', "age", "number", "longer than 1 s"),
    ],
)
def test_complaints(tmp_path: Path, server: Server, rest: str, column: str, kind: ColumnKind, message: str) -> None:
    found = complaint(source(tmp_path, server.address, rest), {column: kind})
    assert message in found
    assert "north" not in found


def test_names_are_quoted(tmp_path: Path, server: Server) -> None:
    odd = source(tmp_path, server.address, "table = 'clinic.Odd \"name\"'")
    assert read_plain(odd, {"age": "number", "Age": "number"}) == {"age": [5.0], "Age": [6.0]}
    for name in ("stays; DROP TABLE stays", 'stays"; DROP TABLE stays; --', "stays WHERE false", "(SELECT 1 AS age) x"):
        assert "does not exist" in complaint(source(tmp_path, server.address, f"table = '{name}'"), NUMBER)
    assert server.fetch("SELECT count(*) FROM stays") == [(2,)]


@pytest.mark.parametrize(
    "statement",
    [
        "INSERT INTO stays (age) VALUES (1) RETURNING age",
        "DROP TABLE stays",
        "WITH gone AS (DELETE FROM stays RETURNING age) SELECT age FROM gone",
        "SELECT 1 AS age; COMMIT; DROP TABLE stays",
        "SELECT 1 AS age INTO TABLE other",
        "SELECT nextval('counter') AS age",
        "SELECT length(set_config('transaction_read_only', 'off', false)) AS age",
        "COMMIT",
        "DO $$ BEGIN DROP TABLE stays; END $$",
    ],
)
def test_nothing_can_be_written(tmp_path: Path, server: Server, statement: str) -> None:
    server.execute("CREATE SEQUENCE IF NOT EXISTS counter")
    before = server.fetch("SELECT last_value, is_called FROM counter")
    found = complaint(source(tmp_path, server.address, f'query = "{statement}"'), NUMBER)
    assert "fails in PostgreSQL" in found
    assert server.fetch("SELECT count(*), sum(age) FROM stays") == [(2, 111)]
    assert server.fetch("SELECT last_value, is_called FROM counter") == before


def test_a_role_without_rights_is_told_so(tmp_path: Path, server: Server) -> None:
    address = f"host={server.folder} dbname=postgres user=reader password=of-the-reader"
    found = complaint(source(tmp_path, address, 'table = "stays"'), NUMBER)
    assert "permission denied for table stays" in found


@pytest.mark.parametrize(
    "address",
    [
        f"host=FOLDER dbname=postgres user=nobody password={PASSWORD}",
        f"host=FOLDER dbname={PASSWORD} user=postgres password={PASSWORD}",
        f"host=/no/such/folder user=postgres password={PASSWORD}",
        f"host=127.0.0.1 port=1 user=postgres password={PASSWORD}",
        f"postgresql://postgres:{PASSWORD}@127.0.0.1:1/postgres",
    ],
)
def test_a_server_that_is_not_there_and_a_wrong_user(tmp_path: Path, server: Server, address: str) -> None:
    path = source(tmp_path, address.replace("FOLDER", str(server.folder)), 'table = "stays"')
    assert "cannot be reached" in complaint(path, NUMBER)


def test_a_wrong_password(tmp_path: Path, server: Server) -> None:
    path = source(tmp_path, server.address.replace(PASSWORD, "guessed-wrong"), 'table = "stays"')
    found = complaint(path, NUMBER)
    assert "password authentication failed" in found
    assert "guessed" not in found


@pytest.mark.parametrize("address", [f"password={PASSWORD} nonsense", f"postgresql://a:{PASSWORD}@[x", f"{PASSWORD}=1"])
def test_a_broken_address_is_not_shown(tmp_path: Path, address: str) -> None:
    assert "has no valid connection" in complaint(source(tmp_path, address, 'table = "stays"'), NUMBER)


def test_psycopg_is_asked_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "psycopg", None)
    with pytest.raises(MissingDependencyError, match=r"pip install 'tpmdp\[postgresql\]'"):
        read_table(source(tmp_path, "host=x", 'table = "stays"'), NUMBER)
