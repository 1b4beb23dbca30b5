"""Holds: they set room aside, cost nothing, are charged once, and a cancelled one is never used again."""

from __future__ import annotations

import math
import sqlite3
from pathlib import Path

import pytest
from click.testing import CliRunner

import tpmdp
from tests.ledger.costs import cost
from tpmdp.cli.ledger import ledger as group
from tpmdp.errors import InputError
from tpmdp.ledger import Hold, Ledger, LedgerError, OverspendError, SessionKey, Stored, promise, square_up

INF = math.inf


def key(session: int, plan: int = 0) -> SessionKey:
    return SessionKey(session.to_bytes(32, "big"), plan.to_bytes(32, "big"))


def mu_for(epsilon: float) -> float:
    return tpmdp.mu_at(tpmdp.calibrate(epsilon, 1e-6))


def hold(ledger: Ledger, which: SessionKey, mu: float, unit: str = "record", **private: bytes) -> Stored:
    return ledger.hold(which, "flu", cost(mu), unit=unit, private=private)


def charge(ledger: Ledger, which: SessionKey, mu: float, unit: str = "record", **private: bytes) -> Stored:
    return ledger.charge(which, "flu", cost(mu), unit=unit, private=private)


def kinds(ledger: Ledger) -> list[str]:
    return [entry.kind for entry in ledger.entries()]


# --- several sessions at once ---------------------------------------------------------------------------------------


def hold_all(ledger: Ledger, mus: dict[int, float], plan: int = 0) -> Stored:
    joint = math.sqrt(sum(mu * mu for mu in mus.values())) * (1 + 1e-12)
    holds = [Hold(key(each, plan), "flu", cost(mu), private={"n": bytes([each])}) for each, mu in mus.items()]
    return ledger.hold_all(holds, "flu", cost(joint), unit="record")


def test_several_sessions_are_held_together_or_not_at_all(ledger: Ledger) -> None:
    half = mu_for(1.0) / math.sqrt(2)
    with pytest.raises(OverspendError, match="study flu would cost"):
        hold_all(ledger, {1: half, 2: half, 3: half})
    assert kinds(ledger) == ["open"]
    fits = half * (1 - 1e-9)
    assert hold_all(ledger, {1: fits, 2: fits}).private == {"n": b"\x01"}
    assert ledger.spent().held == 2
    assert not hold_all(ledger, {1: fits, 2: fits}).new
    assert kinds(ledger) == ["open", "hold", "hold"]
    with pytest.raises(OverspendError):
        hold(ledger, key(3), 0.01)
    charge(ledger, key(2, plan=5), fits)  # another plan takes the room of the one that stands for it
    assert ledger.spent().held == 1
    hold_all(ledger, {1: fits, 4: 0.0}, plan=7)  # a mended study: the dearer plan of each session counts
    assert ledger.spent().held == 2
    charge(ledger, key(1), fits)
    assert [entry.session for entry in ledger.holds()] == [key(4).session.hex()]
    ledger.verify()


def test_a_session_that_is_over_is_not_held_among_others(ledger: Ledger) -> None:
    hold(ledger, key(2), 0.01)
    ledger.cancel(key(2))
    charge(ledger, key(3), 0.01)
    for other in (2, 3):
        with pytest.raises(LedgerError):
            hold_all(ledger, {1: 0.01, other: 0.01}, plan=0 if other == 2 else 1)
    assert kinds(ledger) == ["open", "hold", "cancel", "charge"]


# --- hold --------------------------------------------------------------------------------------------------------


def test_a_hold_costs_nothing_and_survives(path: Path, ledger: Ledger) -> None:
    before = ledger.spent()
    assert hold(ledger, key(1), 0.1, statistic=b"first").new
    ledger.close()
    with Ledger.open(path) as again:
        assert again.status(key(1)) == "held"
        resumed = hold(again, key(1), 0.1, statistic=b"second", more=b"x")
        assert (resumed.new, resumed.private) == (False, {"statistic": b"first"})
        spent = again.spent()
        assert (spent.mu, spent.epsilon, spent.sessions, spent.held) == (0.0, 0.0, 0, 1)
        assert spent.left < before.left
        assert [entry.session for entry in again.holds()] == [key(1).session.hex()]
        assert kinds(again) == ["open", "hold"]
        again.verify()


def test_holds_set_room_aside_the_sum_over_sessions(ledger: Ledger) -> None:
    """Three quarters of the room in mu^2 are held: another half does not fit, neither as a hold nor as a charge."""
    mu = mu_for(1.0)
    hold(ledger, key(1), mu / 2)
    hold(ledger, key(2), mu / 2)
    hold(ledger, key(3), mu / 2)
    for enter in (hold, charge):
        with pytest.raises(OverspendError, match="flu would cost north"):
            enter(ledger, key(4), mu * 0.51)
    with pytest.raises(OverspendError):
        ledger.check_room(key(4), "flu", cost(mu * 0.51), unit="record")
    assert kinds(ledger) == ["open", "hold", "hold", "hold"]
    left = ledger.spent()
    assert left.mu_left == pytest.approx(mu / 2, rel=1e-6)
    assert (left.epsilon, left.held) == (0.0, 3)
    charge(ledger, key(1), mu / 2)
    assert ledger.spent().mu_left == pytest.approx(left.mu_left, rel=1e-9)  # what was held is charged, not both
    hold(ledger, key(4), left.mu_left * (1 - 1e-9))
    ledger.verify()


def test_of_two_plans_of_one_session_the_dearer_counts(ledger: Ledger) -> None:
    mu = mu_for(1.0)
    hold(ledger, key(1, plan=1), mu * 0.6)
    hold(ledger, key(1, plan=2), mu * 0.8)
    hold(ledger, key(1, plan=3), mu * 0.7)
    assert ledger.spent().held == 1
    assert ledger.spent().mu_left == pytest.approx(mu * 0.6, rel=1e-6)  # 0.6^2 + 0.8^2 = 1
    with pytest.raises(OverspendError):
        hold(ledger, key(2), mu * 0.61)
    hold(ledger, key(2), mu * 0.599)
    ledger.cancel(key(1, plan=2))
    assert ledger.spent().mu_left == pytest.approx(mu * math.sqrt(1 - 0.7**2 - 0.599**2), rel=1e-6)
    ledger.verify()


def test_the_charge_checks_the_limit_in_force_again(ledger: Ledger) -> None:
    hold(ledger, key(1), 0.2, statistic=b"s")
    ledger.set_limit(0.1, 1e-6)
    with pytest.raises(OverspendError, match=r"over the limit epsilon 0.1"):
        charge(ledger, key(1), 0.2, vector=b"v")
    assert ledger.status(key(1)) == "held"
    assert ledger.private_state(key(1)) == {"statistic": b"s"}
    assert ledger.spent().sessions == 0
    ledger.set_limit(1.0, 1e-6)
    assert charge(ledger, key(1), 0.2, vector=b"v").private == {"statistic": b"s", "vector": b"v"}
    assert ledger.spent().epsilon == promise(square_up(0.2), 1e-50, 1e-6)
    ledger.verify()


def test_a_held_session_keeps_its_room_whatever_others_ask(ledger: Ledger) -> None:
    mu = mu_for(1.0)
    hold(ledger, key(1), mu * 0.9)
    for number in range(2, 6):
        with pytest.raises(OverspendError):
            charge(ledger, key(number), mu * 0.5)
    assert charge(ledger, key(1), mu * 0.9).new


# --- charge ------------------------------------------------------------------------------------------------------


def test_two_plans_of_a_session_may_be_held_and_one_charged(ledger: Ledger) -> None:
    hold(ledger, key(1, plan=1), 0.1, a=b"1")
    hold(ledger, key(1, plan=2), 0.1, a=b"2")
    assert charge(ledger, key(1, plan=2), 0.1, vector=b"v").private == {"a": b"2", "vector": b"v"}
    assert ledger.charged_plan(key(1).session) == key(1, plan=2).plan
    for state in ("charged", "settled"):
        for other in (key(1, plan=1), key(1, plan=3)):
            for enter in (hold, charge):
                with pytest.raises(LedgerError, match="was charged with another plan or query: set another number"):
                    enter(ledger, other, 0.1)
        with pytest.raises(LedgerError, match="was charged with another plan"):
            ledger.check_room(key(1, plan=3), "flu", cost(0.1), unit="record")
        if state == "charged":
            ledger.settle(key(1, plan=2), "answer", {})
    assert [ledger.status(key(1, plan=number)) for number in (1, 2, 3)] == ["held", "settled", "unknown"]
    assert ledger.holds() == []  # what cannot be charged any more sets nothing aside
    assert ledger.spent().sessions == 1
    ledger.cancel(key(1, plan=1))
    assert ledger.private_state(key(1, plan=1)) == {}
    ledger.verify()


def test_a_charge_is_what_was_held(ledger: Ledger) -> None:
    hold(ledger, key(1), 0.1)
    with pytest.raises(LedgerError, match=r"is entered with mu 0.1, not 0.05: start a new one"):
        charge(ledger, key(1), 0.05)
    with pytest.raises(LedgerError, match="is entered for study flu, not cold"):
        ledger.charge(key(1), "cold", cost(0.1), unit="record", private={})
    with pytest.raises(LedgerError, match="is entered by record, not by party"):
        charge(ledger, key(1), 0.1, unit="party")
    assert ledger.status(key(1)) == "held"
    assert charge(ledger, key(1), 0.1, vector=b"1").new
    again = charge(ledger, key(1), 0.1, vector=b"2")
    assert (again.new, again.private) == (False, {"vector": b"1"})
    resumed = hold(ledger, key(1), 0.1, vector=b"3")
    assert (resumed.new, resumed.private) == (False, {"vector": b"1"})
    assert kinds(ledger) == ["open", "hold", "charge"]


def test_a_held_session_is_not_settled(ledger: Ledger) -> None:
    hold(ledger, key(1), 0.1, a=b"1")
    with pytest.raises(LedgerError, match="is held, not charged: charge it first"):
        ledger.settle(key(1), "answer", {})
    assert ledger.private_state(key(1)) == {"a": b"1"}


# --- cancel ------------------------------------------------------------------------------------------------------


def test_a_cancelled_entry_is_never_used_again(path: Path, ledger: Ledger) -> None:
    hold(ledger, key(1), 0.2, statistic=b"SECRETDATA" * 1000)
    assert b"SECRETDATA" in path.read_bytes()
    ledger.cancel(key(1))
    assert b"SECRET" not in path.read_bytes()
    assert ledger.spent().held == 0
    assert ledger.spent().left == pytest.approx(1.0)
    for enter in (hold, charge):
        with pytest.raises(LedgerError, match="was cancelled: set another number for the session in the study"):
            enter(ledger, key(1), 0.2)
    with pytest.raises(LedgerError, match="was cancelled"):
        ledger.check_room(key(1), "flu", cost(0.2), unit="record")
    for store in (
        lambda: ledger.keep(key(1), "agreed", b"1"),
        lambda: ledger.keep_all(key(1), {"key 1": b"1"}),
        lambda: ledger.replace_unless(key(1), {"statistic": b""}, unless="agreed"),
    ):
        with pytest.raises(LedgerError, match="is finished"):
            store()
    with pytest.raises(LedgerError, match="is cancelled, not held"):
        ledger.cancel(key(1))
    with pytest.raises(LedgerError, match="is cancelled, not charged"):
        ledger.settle(key(1), "answer", {})
    assert (ledger.status(key(1)), ledger.private_state(key(1))) == ("cancelled", {})
    hold(ledger, key(1, plan=1), 0.2)  # a mended study file is another entry
    charge(ledger, key(1, plan=1), 0.2)
    ledger.verify()


def test_an_entry_after_a_cancel_does_not_verify(path: Path, ledger: Ledger) -> None:
    """Not even one that somebody writes who knows the format."""
    hold(ledger, key(1), 0.2)
    ledger.cancel(key(1))
    with ledger._transaction() as last:
        totals = ledger._own_balance("record").with_charge(0.2, 1e-50)
        ledger._append(last, "charge", balance=totals, unit="record", key=key(1), study="flu", charge=cost(0.2))
    with pytest.raises(LedgerError, match=r"entry 4 of .* has kind charge where its session does not allow that"):
        ledger.verify()


def test_the_tables_refuse_a_second_charge_of_a_session(path: Path, ledger: Ledger) -> None:
    charge(ledger, key(1), 0.1)
    with (
        pytest.raises(tpmdp.FileError, match="the ledger is append-only"),
        ledger._transaction() as last,
    ):
        ledger._append(last, "charge", balance=last.balance, unit="record", key=key(1, plan=2), study="flu")
    ledger.verify()
    with sqlite3.connect(path) as connection, pytest.raises(sqlite3.IntegrityError, match="append-only"):
        connection.execute("INSERT INTO entries SELECT * FROM entries WHERE kind = 'charge'")


def test_the_command_gives_up_all_plans_of_a_session(path: Path, ledger: Ledger) -> None:
    hold(ledger, key(1 << 200, plan=1), 0.1)
    hold(ledger, key(1 << 200, plan=2), 0.1)
    charge(ledger, key(2), 0.1)
    name = key(1 << 200).session.hex()
    for wrong in ("00", name[:3], key(2).session.hex(), "zz" * 8):
        done = CliRunner().invoke(group, ["cancel", str(path), wrong])
        assert isinstance(done.exception, InputError)
        assert "of one session that is held" in str(done.exception)
    assert [entry.kind for entry in ledger.entries()].count("cancel") == 0
    done = CliRunner().invoke(group, ["cancel", str(path), name[:16].upper()], catch_exceptions=False)
    assert done.output.startswith("cancelled flu; spent epsilon 0.396858")
    assert ledger.holds() == []
    ledger.verify()


# --- private state -----------------------------------------------------------------------------------------------


def test_what_was_agreed_is_not_replaced(ledger: Ledger) -> None:
    hold(ledger, key(1), 0.1, statistic=b"1", data=b"1")
    assert ledger.replace_unless(key(1), {"statistic": b"2", "data": b"2"}, unless="agreed")["statistic"] == b"2"
    ledger.keep(key(1), "agreed", b"1")
    kept = ledger.replace_unless(key(1), {"statistic": b"3", "data": b"3"}, unless="agreed")
    assert kept == {"agreed": b"1", "data": b"2", "statistic": b"2"}
    charge(ledger, key(1), 0.1, vector=b"v")
    assert ledger.replace_unless(key(1), {"vector": b"w"}, unless="agreed")["vector"] == b"v"


def test_private_state_of_two_plans_is_apart(ledger: Ledger) -> None:
    hold(ledger, key(1, plan=1), 0.1, statistic=b"1")
    hold(ledger, key(1, plan=2), 0.1, statistic=b"2")
    ledger.keep(key(1, plan=1), "key 1", b"k")
    assert ledger.private_names(key(1, plan=2)) == ["statistic"]
    ledger.cancel(key(1, plan=1))
    assert ledger.private_state(key(1, plan=2)) == {"statistic": b"2"}


def test_a_charge_erases_what_other_plans_of_its_session_store_and_nothing_else(ledger: Ledger) -> None:
    hold(ledger, key(1, plan=1), 0.1, statistic=b"1")
    hold(ledger, key(1, plan=2), 0.1, statistic=b"2")
    hold(ledger, key(2, plan=1), 0.1, statistic=b"3")
    charge(ledger, key(1, plan=2), 0.1, vector=b"v")
    assert ledger.private_state(key(1, plan=1)) == {}
    assert ledger.private_state(key(1, plan=2)) == {"statistic": b"2", "vector": b"v"}
    assert ledger.private_state(key(2, plan=1)) == {"statistic": b"3"}
    for store in (
        lambda: ledger.keep(key(1, plan=1), "key 1", b"1"),
        lambda: ledger.replace_unless(key(1, plan=1), {"statistic": b"4"}, unless="agreed"),
    ):
        with pytest.raises(LedgerError, match="was charged with another plan or query"):
            store()
    assert ledger.private_state(key(1, plan=1)) == {}
    ledger.verify()


# --- one ledger per key ------------------------------------------------------------------------------------------


def test_a_ledger_is_bound_once_and_for_good(path: Path, ledger: Ledger) -> None:
    assert ledger.owner is None
    for bad in (b"", b"x" * 31, b"x" * 33):
        with pytest.raises(InputError, match=r"public key = .* must be 32 bytes"):
            ledger.bind(bad)
    ledger.bind(b"a" * 32)
    ledger.bind(b"a" * 32)
    assert kinds(ledger) == ["open", "bind"]
    with Ledger.open(path) as again:
        assert again.owner == b"a" * 32
        with pytest.raises(LedgerError, match=r"belongs to the key 6161.* and this one is 6262.*: give the ledger of"):
            again.bind(b"b" * 32)
        again.verify()
    with ledger._transaction() as last:
        ledger._append(last, "bind", balance=last.balance, unit="record", outcome="62" * 32)
    with pytest.raises(LedgerError, match=r"entry 3 of .* binds the ledger to a second key"):
        ledger.verify()


# --- units -------------------------------------------------------------------------------------------------------


def test_there_is_a_total_for_each_unit_and_a_charge_by_party_counts_towards_both(ledger: Ledger) -> None:
    assert ledger.has_limit("record")
    assert not ledger.has_limit("party")
    ledger.set_limit(3.0, 1e-7, unit="party")
    assert ledger.has_limit("party")
    charge(ledger, key(1), 0.1)
    charge(ledger, key(2), 0.05, unit="party")
    record, party = ledger.spent("record"), ledger.spent("party")
    assert (record.sessions, party.sessions) == (2, 1)
    assert party.epsilon == promise(square_up(0.05), 1e-50, 1e-7)
    assert record.mu >= math.hypot(0.1, 0.05)
    assert record.mu == pytest.approx(math.hypot(0.1, 0.05), rel=1e-12)
    assert (record.limit_epsilon, party.limit_epsilon, party.limit_delta) == (1.0, 3.0, 1e-7)
    assert ledger.spent() == record
    ledger.settle(key(2), "answer", {})
    ledger.set_limit(0.9, 1e-6)
    assert ledger.spent("party") == party
    ledger.verify()


def test_a_charge_by_party_must_fit_into_both_limits(ledger: Ledger) -> None:
    mu = mu_for(1.0)
    ledger.set_limit(0.5, 1e-6, unit="party")
    with pytest.raises(OverspendError, match=r"over the limit epsilon 0.5"):
        charge(ledger, key(1), mu_for(0.6), unit="party")
    charge(ledger, key(1), mu * 0.95)
    with pytest.raises(OverspendError, match=r"over the limit epsilon 1.0"):
        charge(ledger, key(2), mu_for(0.45), unit="party")
    for enter in (hold, charge):
        with pytest.raises(OverspendError):
            enter(ledger, key(2), mu_for(0.45), unit="party")
    assert ledger.spent("party").sessions == 0
    ledger.verify()


def test_holds_by_party_count_towards_both_and_holds_by_record_do_not(ledger: Ledger) -> None:
    mu = mu_for(1.0)
    ledger.set_limit(1.0, 1e-6, unit="party")
    hold(ledger, key(1), mu * 0.6)
    assert ledger.spent("party").mu_left == pytest.approx(mu, rel=1e-6)
    assert ledger.spent("record").mu_left == pytest.approx(mu * 0.8, rel=1e-6)
    hold(ledger, key(2), mu * 0.6, unit="party")
    assert ledger.spent("party").mu_left == pytest.approx(mu * 0.8, rel=1e-6)
    assert ledger.spent("record").mu_left == pytest.approx(mu * math.sqrt(1 - 0.72), rel=1e-6)
    assert (ledger.spent("party").held, ledger.spent("record").held) == (1, 2)
    with pytest.raises(InputError, match="unit = person must be one of record, party"):
        hold(ledger, key(3), 0.1, unit="person")
    with pytest.raises(InputError, match="unit = person"):
        ledger.spent("person")


def test_a_ledger_by_party_takes_studies_by_record_too(path: Path) -> None:
    with Ledger.create(path, "north", 1.0, 1e-6, "party") as ledger:
        charge(ledger, key(1), 0.1, unit="party")
        charge(ledger, key(2), 5.0)  # no limit by record was set
        assert ledger.spent().sessions == 1
        assert ledger.spent("record").sessions == 2
        assert not ledger.has_limit("record")
        ledger.set_limit(0.5, 1e-6, unit="record")
        assert ledger.spent("record").left == 0.0
        with pytest.raises(OverspendError, match=r"over the limit epsilon 0.5"):
            charge(ledger, key(3), 0.1, unit="party")  # which costs each record, too
        ledger.verify()


def test_verification_checks_the_limit_of_both_units(path: Path) -> None:
    with Ledger.create(path, "north", 1.0, 1e-6) as ledger:
        charge(ledger, key(1), 0.2)
        with ledger._transaction() as last:
            totals = ledger._own_balance("party").with_charge(0.2, 1e-50)
            ledger._append(last, "charge", balance=totals, unit="party", key=key(2), study="s", charge=cost(0.2))
        with pytest.raises(LedgerError, match=r"entry 3 of .* makes epsilon .*, over the limit 1.0 of its time"):
            ledger.verify()


def test_an_entry_costs_as_much_in_a_long_ledger_as_in_a_short_one(ledger: Ledger) -> None:
    """Steps of SQLite's machine, not seconds: what guards the order of entries must not read all of them."""
    steps: list[int] = []

    def append(numbers: range) -> None:
        steps.append(0)
        with ledger._transaction() as last:
            for number in numbers:
                last = ledger._append(last, "charge", balance=last.balance, unit="record", key=key(number), study="flu")

    def count() -> None:
        steps[-1] += 1

    ledger._connection.set_progress_handler(count, 10)
    for numbers in (range(10), range(10, 11), range(11, 2000), range(2000, 2001)):
        append(numbers)
    assert 0 < steps[3] < 2 * steps[1]
