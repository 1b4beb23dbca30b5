"""Ledgers of format 1: they open, verify and are shown as they are, and are upgraded at their first change."""

from __future__ import annotations

import shutil
import sqlite3
from dataclasses import astuple
from pathlib import Path

import pytest
from click.testing import CliRunner

import tpmdp.ledger.file as ledger_file
from tests.golden.observe import HERE
from tpmdp.cli.ledger import ledger as group
from tpmdp.errors import FileError
from tpmdp.ledger import Charge, Entry, Ledger, LedgerError, OverspendError, SessionKey
from tpmdp.ledger.entry import COLUMNS, entry_hash, origin_hash
from tpmdp.ledger.schema import APPLICATION, SCHEMA, UPGRADE
from tpmdp.ledger.spending import NOTHING, Totals

PLAN = b"p" * 32
COST = Charge(0.1, 1e-50, 0.5, 1e-6)
OLD_COLUMNS = COLUMNS[: COLUMNS.index("plan")]


def key(number: int, plan: bytes = PLAN) -> SessionKey:
    return SessionKey(number.to_bytes(32, "big"), plan)


@pytest.fixture(params=["record", "party"])
def old(tmp_path: Path, request: pytest.FixtureRequest) -> Path:
    """As the version before wrote it: session 1 is settled, 2 reserved, 3 reserved with a plan that is not known."""
    path, unit = tmp_path / "north.ledger", request.param
    path.touch(0o600)
    with sqlite3.connect(path) as connection:
        connection.execute(f"PRAGMA application_id={APPLICATION}")
        connection.execute("PRAGMA user_version=1")
        for statement in SCHEMA:
            connection.execute(statement)
        connection.execute("INSERT INTO ledger VALUES ('id', 'north', ?)", (unit,))
        totals, head, number = Totals(0.0, 0.0, 1.0, 1e-6), origin_hash("id", "north", unit), 0
        for kind, session, outcome in (
            ("open", 0, ""),
            ("reserve", 1, ""),
            ("settle", 1, "answer"),
            ("reserve", 2, ""),
            ("reserve", 3, ""),
        ):
            cost, number = COST if kind == "reserve" else NOTHING, number + 1
            if kind == "reserve":
                totals = totals.with_charge(COST.mu, COST.closeness)
            name = key(session).session.hex() if session else ""
            study = "flu" if session else ""
            row = [
                number,
                kind,
                "2026-11-01T00:00:00+00:00",
                name,
                study,
                *astuple(cost),
                *astuple(totals),
                outcome,
                head,
            ]
            head = entry_hash([*row, ""])
            assert len(row) + 1 == len(OLD_COLUMNS)
            connection.execute(f"INSERT INTO entries VALUES ({', '.join('?' * len(OLD_COLUMNS))})", [*row, head])  # noqa: S608
        for session, name, value in ((1, "plan", PLAN), (1, "told", b"t"), (2, "plan", PLAN), (2, "vector", b"v")):
            connection.execute("INSERT INTO private VALUES (?, ?, ?)", (key(session).session.hex(), name, value))
    connection.close()
    return path


def version(path: Path) -> int:
    connection = sqlite3.connect(path)
    try:
        return int(connection.execute("PRAGMA user_version").fetchone()[0])
    finally:
        connection.close()


def test_reading_changes_nothing(old: Path) -> None:
    before = old.read_bytes()
    with Ledger.open(old) as ledger:
        head = ledger.verify()
        assert [entry.kind for entry in ledger.entries()] == ["open", "reserve", "settle", "reserve", "reserve"]
        assert [ledger.status(key(number)) for number in (1, 2, 3, 4)] == ["settled", "charged", "unknown", "unknown"]
        assert ledger.status(key(2, b"q" * 32)) == "unknown"
        assert ledger.private_state(key(1)) == {"plan": PLAN, "told": b"t"}
        assert ledger.private_names(key(2)) == ["plan", "vector"]
        spent = ledger.spent()
        assert (spent.sessions, spent.held, spent.limit_epsilon) == (3, 0, 1.0)
        assert ledger.charged_plan(key(2).session) == PLAN
        assert ledger.charged_plan(key(3).session) == b""
        assert (ledger.owner, ledger.holds(), ledger.has_limit(ledger.unit)) == (None, [], True)
        assert len(list(ledger.export())) == 5
        ledger.check_room(key(2), "flu", COST, unit=ledger.unit)
        with pytest.raises(LedgerError, match="was charged with another plan"):
            ledger.check_room(key(3), "flu", COST, unit=ledger.unit)
    for words in (["show", str(old)], ["verify", str(old), "--head", head], ["export", str(old)]):
        done = CliRunner().invoke(group, words, catch_exceptions=False)
        assert done.exit_code == 0
        assert head in done.output
    assert old.read_bytes() == before


def test_the_first_change_upgrades_and_the_chain_goes_on(old: Path) -> None:
    with Ledger.open(old) as ledger:
        head, unit = ledger.verify(), ledger.unit
        spent = ledger.spent()
        ledger.bind(b"k" * 32)
        assert version(old) == 2
        assert ledger.verify(head) != head
        assert ledger.spent() == spent
        assert ledger.hold(key(4), "flu", COST, unit=unit, private={}).new
        ledger.charge(key(4), "flu", COST, unit=unit, private={})
    with Ledger.open(old) as ledger:
        ledger.verify(head)
        assert ledger.owner == b"k" * 32
        assert ledger.spent().sessions == 4
        assert ledger.spent().mu == pytest.approx(0.2)
        assert [entry.unit for entry in ledger.entries()] == [""] * 5 + [unit] * 3


def test_a_session_that_was_under_way_goes_on_and_is_settled(old: Path) -> None:
    with Ledger.open(old) as ledger:
        again = ledger.charge(key(2), "flu", COST, unit=ledger.unit, private={"vector": b"other"})
        assert (again.new, again.private) == (False, {"plan": PLAN, "vector": b"v"})
        assert ledger.keep(key(2), "key 1", b"k") == b"k"
        with pytest.raises(LedgerError, match="is charged, not held"):
            ledger.cancel(key(2))
        ledger.settle(key(2), "answer", {"plan": PLAN, "told": b"answer"})
        for _ in range(2):
            assert ledger.status(key(2)) == "settled"
            assert ledger.private_state(key(2)) == {"plan": PLAN, "told": b"answer"}
            ledger.settle(key(2), "answer", {})  # changes nothing
        with pytest.raises(LedgerError, match="is finished"):
            ledger.charge(key(2), "flu", COST, unit=ledger.unit, private={})
        assert ledger.spent().sessions == 3
        ledger.verify()
    with sqlite3.connect(old) as connection:
        assert {row[0] for row in connection.execute("SELECT session FROM private")} == {
            key(number).session.hex() for number in (1, 2)
        }


def test_other_plans_of_its_sessions_are_refused(old: Path) -> None:
    with Ledger.open(old) as ledger:
        for which in (key(1, b"q" * 32), key(2, b"q" * 32), key(3)):
            for enter in (ledger.hold, ledger.charge):
                with pytest.raises(LedgerError, match="was charged with another plan or query"):
                    enter(which, "flu", COST, unit=ledger.unit, private={})
        ledger.verify()
        assert ledger.spent().sessions == 3


def test_a_refused_first_change_leaves_the_file_as_it_was(old: Path) -> None:
    """And the ledger that was open stays usable: the upgrade is undone together with the change."""
    before = old.read_bytes()
    with Ledger.open(old) as ledger:
        spent, head = ledger.spent(), ledger.verify()
        with pytest.raises(OverspendError):
            ledger.hold(key(4), "flu", Charge(0.9, 0.0, 1.0, 1e-6), unit=ledger.unit, private={})
        assert version(old) == 1
        assert ledger.spent() == spent
        assert ledger.status(key(2)) == "charged"
        assert ledger.verify() == head
        assert old.read_bytes() == before
        ledger.hold(key(4), "flu", COST, unit=ledger.unit, private={})
        ledger.verify(head)


def test_a_reader_notices_that_another_process_upgraded_the_file(old: Path) -> None:
    with Ledger.open(old) as reader, Ledger.open(old) as writer:
        head = reader.verify()
        writer.hold(key(4), "flu", COST, unit=writer.unit, private={"a": b"1"})
        assert reader.status(key(4)) == "held"
        assert reader.spent() == writer.spent()
        assert reader.private_state(key(4)) == {"a": b"1"}
        assert reader.verify(head) == writer.verify()
        assert reader.newest(1)[0].plan == PLAN.hex()


def test_two_that_upgrade_at_once_both_go_on(old: Path) -> None:
    with Ledger.open(old) as one, Ledger.open(old) as two:
        one.hold(key(4), "flu", COST, unit=one.unit, private={})
        two.charge(key(4), "flu", COST, unit=two.unit, private={})
        one.settle(key(4), "answer", {})
        assert two.status(key(4)) == "settled"
        assert one.verify() == two.verify()


@pytest.mark.parametrize("place", range(len(UPGRADE)))
def test_an_upgrade_that_fails_at_any_statement_changes_nothing(
    old: Path, place: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = old.read_bytes()
    with Ledger.open(old) as ledger:
        with monkeypatch.context() as patch:
            patch.setattr(ledger_file, "UPGRADE", (*UPGRADE[:place], "NONSENSE"))
            with pytest.raises(FileError, match="cannot be used"):
                ledger.bind(b"k" * 32)
        assert old.read_bytes() == before
        assert ledger.spent().sessions == 3
        ledger.bind(b"k" * 32)
        ledger.verify()


def test_tables_of_a_mixed_format_are_refused(old: Path) -> None:
    """Somebody who sets the number of the format back gets an error, not an empty account."""
    with Ledger.open(old) as ledger:
        ledger.bind(b"k" * 32)
    connection = sqlite3.connect(old)
    connection.execute("PRAGMA user_version=1")
    connection.close()
    with pytest.raises((LedgerError, FileError)), Ledger.open(old) as ledger:
        ledger.verify()


@pytest.mark.parametrize("name", ["north", "south", "begun"])
def test_ledgers_that_the_version_before_wrote_are_upgraded(tmp_path: Path, name: str) -> None:
    path = tmp_path / f"{name}.ledger"
    shutil.copy(HERE / "state" / f"{name}.ledger", path)
    path.chmod(0o600)
    with Ledger.open(path) as ledger:
        assert version(path) == 1
        head, before = ledger.verify(), list(ledger.entries())
        spent = ledger.spent()
        last = next(entry for entry in reversed(before) if entry.session)
        plan = ledger.charged_plan(bytes.fromhex(last.session))
        assert plan
        known = SessionKey(bytes.fromhex(last.session), plan)
        status, private = ledger.status(known), ledger.private_state(known)
        ledger.bind(b"k" * 32)
        assert version(path) == 2
        assert ledger.verify(head) == ledger.newest(1)[0].hash
        assert list(ledger.entries())[:-1] == before
        assert ledger.spent() == spent
        if status == "settled":  # from a hash of the data beside its salt, the data can be found by trying
            assert {"salt", "data"} <= set(private)
            private = {name: value for name, value in private.items() if name not in ("salt", "data")}
        assert (ledger.status(known), ledger.private_state(known)) == (status, private)
        assert {entry.unit for entry in before} == {""}
        assert isinstance(before[0], Entry)
