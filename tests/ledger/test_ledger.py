"""The ledger: never under-charges, whatever the numbers, the other processes, the disk or the clock do."""

from __future__ import annotations

import csv
import json
import math
import os
import random
import re
import sqlite3
import threading
import time
from collections.abc import Callable
from dataclasses import fields
from pathlib import Path
from typing import Any

import mpmath
import pytest
from click.testing import CliRunner

import tpmdp
import tpmdp.ledger as module
import tpmdp.ledger.file as ledger_file
import tpmdp.ledger.schema as ledger_schema
from tests.effort import THOROUGH
from tests.ledger.costs import cost
from tests.oracles import DIGITS, exact_delta
from tests.patience import HANG_S
from tests.processes import Process
from tpmdp.cli.ledger import ledger as group
from tpmdp.errors import FileError, InputError, TpmdpError
from tpmdp.ledger import Charge, Entry, Ledger, LedgerError, OverspendError, SessionKey, promise, promises, square_up
from tpmdp.ledger.entry import entry_hash
from tpmdp.ledger.schema import APPLICATION, SCHEMA, VERSION, statements_of

ROOT = Path(__file__).parents[2]
INF = math.inf


PLAN = bytes(range(32))


def session(number: int, plan: bytes = PLAN) -> SessionKey:
    return SessionKey(number.to_bytes(32, "big"), plan)


def spend(ledger: Ledger, number: int, mu: float, closeness: float = 1e-50) -> float:
    ledger.charge(session(number), "flu", cost(mu, closeness), unit=ledger.unit, private={})
    return ledger.spent().epsilon


def worker(*arguments: object) -> Process:
    return Process("tests.ledger.ledger_worker", *arguments, folder=ROOT)


def finish(process: Process) -> Any:
    out, err = process.communicate(timeout=HANG_S)
    assert process.returncode == 0, err
    return json.loads(out.splitlines()[-1])


def run_together(start: Path, *commands: tuple[object, ...]) -> list[Any]:
    processes = [worker(*command) for command in commands]
    for process in processes:
        assert process.line() == '"ready"\n'
    start.touch()
    return [finish(process) for process in processes]


def one_line(error: BaseException) -> str:
    assert "\n" not in str(error)
    return str(error)


# --- what is written is what is read -----------------------------------------------------------------------------


def test_what_is_charged_and_settled_is_there_after_reopening(path: Path, ledger: Ledger) -> None:
    first = ledger.charge(session(1), "flu", cost(0.1), unit="record", private={"seed": b"\0\xff", "key": b""})
    assert first.new
    assert first.private == {"seed": b"\0\xff", "key": b""}
    ledger.close()
    with Ledger.open(path) as again:
        assert (again.party, again.unit, again.status(session(1))) == ("north", "record", "charged")
        assert again.private_state(session(1)) == {"seed": b"\0\xff", "key": b""}
        again.settle(session(1), "answer", {"receipt": b"r"})
        assert again.private_state(session(1)) == {"receipt": b"r"}
        kinds = [(entry.number, entry.kind, entry.study, entry.outcome) for entry in again.entries()]
        assert kinds == [(1, "open", "", ""), (2, "charge", "flu", ""), (3, "settle", "flu", "answer")]
        assert list(again.entries())[1].charge == cost(0.1)
        assert again.verify() == list(again.entries())[-1].hash
        assert again.status(session(2)) == "unknown"


@pytest.mark.parametrize("mu", [0.0, -0.0, 5e-324, 1e-150, 0.1, 1 / 3, 7.0, 1e150, 1e200, INF])
def test_every_double_comes_back_exactly(path: Path, mu: float) -> None:
    with Ledger.create(path, "north", INF, 1e-6) as ledger:
        spend(ledger, 1, mu, closeness=mu if mu < INF else 0.0)
        ledger.set_limit(1e9, 1e-300)
        ledger.set_limit(INF, 0.0)
    with Ledger.open(path) as ledger:
        entries = list(ledger.entries())
        assert entries[1].mu == mu
        assert math.copysign(1.0, entries[1].mu) == 1.0
        assert (entries[2].limit_epsilon, entries[2].limit_delta) == (1e9, 1e-300)
        assert ledger.verify() == entries[-1].hash


# --- the sums ----------------------------------------------------------------------------------------------------


def exact_promise_holds(epsilon: float, charges: list[Charge], delta: float) -> bool:
    """In 80 digits: do these charges meet (epsilon, delta)? With closeness tau: delta e^-tau at epsilon - 2 tau."""
    mu = mpmath.sqrt(sum((DIGITS(charge.mu) ** 2 for charge in charges), DIGITS(0)))
    tau = sum((DIGITS(charge.closeness) for charge in charges), DIGITS(0))
    rest = DIGITS(epsilon) - 2 * tau
    return bool(rest >= 0 and (mu == 0 or exact_delta(mu, rest) <= DIGITS(delta) * mpmath.exp(-tau)))


@pytest.mark.slow
def test_composition_is_never_below_the_oracle_and_tight(tmp_path: Path) -> None:
    chance = random.Random(7)
    for case in range(60):
        delta = 10 ** chance.uniform(-12, -2)
        scale = 10 ** chance.uniform(-4, 0.5)
        tau = chance.choice([0.0, 1e-50, 1e-18, 1e-9, 1e-3])
        count = chance.randrange(1, 12)
        charges = [cost(scale * chance.random(), tau * chance.random()) for _ in range(count)]
        with Ledger.create(tmp_path / f"{case}", "north", INF, delta) as ledger:
            for number, charge in enumerate(charges):
                ledger.charge(session(number), "s", charge, unit="record", private={})
                after = ledger.spent().epsilon
                assert exact_promise_holds(after, charges[: number + 1], delta)
            spent = ledger.spent()
            assert spent.epsilon == after
            assert not after or not exact_promise_holds(after * (1 - 1e-9), charges, delta)
            assert DIGITS(spent.mu) ** 2 >= sum(DIGITS(charge.mu) ** 2 for charge in charges)
            assert DIGITS(spent.closeness) >= sum(DIGITS(charge.closeness) for charge in charges)
            ledger.verify()


def test_running_totals_are_rounded_up_over_thousands_of_entries() -> None:
    chance = random.Random(3)
    total, truth = 0.0, DIGITS(0)
    for _ in range(5000):
        mu = 10 ** chance.uniform(-9, 1)
        assert DIGITS(square_up(mu)) >= DIGITS(mu) ** 2
        total, truth = module.add_up(total, square_up(mu)), truth + DIGITS(mu) ** 2
        assert DIGITS(total) >= truth
    assert total <= truth * (1 + DIGITS(5000 * 4e-16))


def test_extreme_costs(path: Path) -> None:
    with Ledger.create(path, "north", 1.0, 1e-6) as ledger:
        assert spend(ledger, 1, 0.0, 0.0) == 0.0
        assert spend(ledger, 2, 1e-150) == 2e-50
        assert spend(ledger, 3, 1e-200) <= math.nextafter(math.nextafter(4e-50, 1), 1)
        assert ledger.newest(1)[0].mu_squared_total > 0
        for number, mu in enumerate((1e59, 1e61, 1e150, 1e200, INF)):
            with pytest.raises(OverspendError):
                spend(ledger, 10 + number, mu)
        assert ledger.spent().sessions == 3
        ledger.verify()
    with Ledger.create(path.with_name("free.ledger"), "north", INF, 1e-6) as ledger:
        assert spend(ledger, 1, 1e150) == INF
        assert spend(ledger, 2, INF) == INF
        assert spend(ledger, 3, 0.1) == INF
        spent = ledger.spent()
        assert (spent.epsilon, spent.left, spent.mu_left, spent.mu) == (INF, INF, INF, INF)
        ledger.verify()
        ledger.set_limit(5.0, 1e-6)  # what was given away stays given away
        assert ledger.spent().left == 0.0
        with pytest.raises(OverspendError, match=r"of which none is left: raise the limit .* --epsilon inf"):
            spend(ledger, 4, 0.0, 0.0)
        assert ledger.charge(session(2), "flu", cost(INF), unit="record", private={}).new is False
        ledger.verify()


def test_closeness_that_uses_up_delta_costs_everything() -> None:
    assert promise(0.01, 1e4, 1e-6) == INF
    assert promise(0.01, 1e-50, 1e-300) == INF  # delta e^-tau is below what calibration handles
    assert promise(0.0, 1e308, 1e-6) == INF
    assert promise(0.01, 0.0, 0.0) == INF
    assert promise(0.0, 0.0, 0.0) == 0.0
    assert promise(0.01, 0.5, 1e-6) > promise(0.01, 0.0, 1e-6) + 1.0


def test_many_promises_are_the_same_as_one_by_one() -> None:
    chance = random.Random(5)
    cases = [(10 ** chance.uniform(-9, 3), chance.choice([0, 1e-50, 0.1]), 1e-6) for _ in range(300)]
    together = promises(*(list(column) for column in zip(*cases, strict=True)))
    assert together == pytest.approx([promise(*case) for case in cases], rel=1e-13)
    assert promises([], [], []) == []


# --- the limit ---------------------------------------------------------------------------------------------------


def test_overspending_is_refused_and_says_what_is_left(path: Path, ledger: Ledger) -> None:
    spend(ledger, 1, 0.15)
    before = list(ledger.entries())
    with pytest.raises(OverspendError) as refused:
        ledger.charge(session(2), "big study", cost(0.5), unit="record", private={"seed": b"SECRET"})
    text = one_line(refused.value)
    spent = ledger.spent()
    assert "study big study would cost north epsilon 2.25409 and make" in text
    assert "over the limit epsilon 1.0 at delta 1e-06" in text
    assert f"of which {module.rounded_down(spent.left)} is left" in text
    assert f"tpmdp ledger limit {path} --epsilon {module.rounded_up(refused.value.after)}" in text
    assert "SECRET" not in text
    assert list(ledger.entries()) == before
    assert ledger.private_state(session(2)) == {}
    assert ledger.status(session(2)) == "unknown"
    ledger.set_limit(float(module.rounded_up(refused.value.after)), 1e-6)  # the remedy it names
    spend(ledger, 2, 0.5)
    ledger.verify()


@pytest.mark.parametrize("closeness", [0.0, 1e-50, module.NEXT_CLOSENESS])
@pytest.mark.slow
def test_what_is_left_can_be_spent_and_nothing_after_it(tmp_path: Path, closeness: float) -> None:
    chance = random.Random(11)
    for case in range(12):
        epsilon, delta = 10 ** chance.uniform(-2, 1.5), 10 ** chance.uniform(-10, -3)
        share = chance.choice([0.0, 0.3, 0.9, 0.999999, 1 - 1e-12])
        mu_max = tpmdp.mu_at(tpmdp.calibrate(epsilon, delta))
        for kind in ("mu", "epsilon"):
            with Ledger.create(tmp_path / f"{kind}{case}", "north", epsilon, delta) as ledger:
                spend(ledger, 1, mu_max * share, closeness)
                spent = ledger.spent()
                assert 0 < spent.mu_left <= mu_max
                assert spent.mu_left == pytest.approx(mu_max * math.sqrt(1 - share * share), rel=1e-2)
                assert spent.left <= epsilon
                mu = spent.mu_left
                if kind == "epsilon":
                    if spent.left == 0:
                        continue
                    mu = tpmdp.mu_at(tpmdp.calibrate(spent.left, delta))
                    assert mu == pytest.approx(spent.mu_left, rel=1e-6)
                assert spend(ledger, 2, mu, closeness) <= epsilon
                with pytest.raises(OverspendError):
                    spend(ledger, 3, mu_max * 1e-3, closeness)
                ledger.verify()


def test_a_charge_is_never_refunded(ledger: Ledger) -> None:
    after = spend(ledger, 1, 0.2)
    ledger.settle(session(1), "failed: connection lost", {})
    ledger.settle(session(1), "answer", {"more": b"x"})  # the first outcome stands
    assert ledger.private_state(session(1)) == {}
    assert [entry.outcome for entry in ledger.entries() if entry.kind == "settle"] == ["failed: connection lost"]
    assert ledger.spent().epsilon == after
    for name in ("refund", "delete", "remove", "reopen"):
        assert not hasattr(ledger, name)
    with pytest.raises(LedgerError, match="is settled, not held: nothing was changed; only a hold is cancelled"):
        ledger.cancel(session(1))
    spend(ledger, 2, 0.01)
    with pytest.raises(LedgerError, match="is charged, not held"):
        ledger.cancel(session(2))
    assert ledger.spent().sessions == 2
    ledger.verify()


def test_a_lower_limit_refuses_everything_and_a_higher_one_continues(ledger: Ledger) -> None:
    spend(ledger, 1, 0.2)
    ledger.set_limit(0.1, 1e-6)
    assert ledger.spent().left == ledger.spent().mu_left == 0.0
    with pytest.raises(OverspendError):
        spend(ledger, 2, 0.0, 0.0)
    ledger.set_limit(2.0, 1e-9)
    assert ledger.spent().epsilon == promise(ledger.newest(1)[0].mu_squared_total, 1e-50, 1e-9)
    spend(ledger, 2, 0.1)
    ledger.verify()


def test_a_retry_is_charged_once_and_gets_the_first_private_state(ledger: Ledger) -> None:
    ledger.charge(session(1), "flu", cost(0.1), unit="record", private={"seed": b"1"})
    again = ledger.charge(session(1), "flu", cost(0.1), unit="record", private={"seed": b"2", "more": b"3"})
    assert (again.new, again.private) == (False, {"seed": b"1"})
    assert ledger.spent().sessions == 1
    assert ledger.keep(session(1), "mask", b"4") == b"4"
    assert ledger.keep(session(1), "mask", b"5") == b"4"
    assert ledger.charge(session(1), "flu", cost(0.1), unit="record", private={}).private == {
        "mask": b"4",
        "seed": b"1",
    }


@pytest.mark.parametrize(
    ("study", "charge", "words"),
    [
        ("other", cost(0.1), "is entered for study flu, not other: start a new session"),
        ("flu", cost(0.2), "is entered with mu 0.1, not 0.2"),
        ("flu", cost(0.1, 2e-50), "is entered with closeness 1e-50, not 2e-50"),
        ("flu", Charge(0.1, 1e-50, 0.6, 1e-6), "is entered with epsilon 0.5, not 0.6"),
        ("flu", Charge(0.1, 1e-50, 0.5, 1e-7), "is entered with delta 1e-06, not 1e-07"),
    ],
)
def test_a_retry_with_another_charge_is_refused(ledger: Ledger, study: str, charge: Charge, words: str) -> None:
    spend(ledger, 1, 0.1)
    with pytest.raises(LedgerError, match=words) as refused:
        ledger.charge(session(1), study, charge, unit="record", private={})
    one_line(refused.value)
    assert ledger.spent().sessions == 1


def test_requests_out_of_order_are_refused(ledger: Ledger) -> None:
    with pytest.raises(LedgerError, match="is unknown, not charged: charge it first"):
        ledger.settle(session(1), "answer", {})
    with pytest.raises(LedgerError, match="is not in the ledger: hold or charge it first"):
        ledger.keep(session(1), "a", b"")
    with pytest.raises(LedgerError, match="is not in the ledger: hold or charge it first"):
        ledger.replace_unless(session(1), {"a": b""}, unless="b")
    with pytest.raises(LedgerError, match="is unknown, not held"):
        ledger.cancel(session(1))
    spend(ledger, 1, 0.1)
    ledger.settle(session(1), "answer", {"receipt": b"r"})
    with pytest.raises(LedgerError, match="is finished: start a new session"):
        ledger.keep(session(1), "a", b"")
    with pytest.raises(LedgerError, match="is finished: start a new session"):
        spend(ledger, 1, 0.1)
    with pytest.raises(LedgerError, match="is finished: start a new session"):
        ledger.replace_unless(session(1), {"receipt": b""}, unless="b")
    with pytest.raises(LedgerError, match="was charged with another plan or query: set another number"):
        ledger.charge(session(1, bytes(32)), "flu", cost(0.1), unit="record", private={})
    assert ledger.private_state(session(1)) == {"receipt": b"r"}
    ledger.verify()


def test_bad_input_is_refused_before_anything_is_written(path: Path, ledger: Ledger) -> None:
    for bad in (-1.0, math.nan, "x", None, True):
        with pytest.raises(InputError, match=r"^mu = "):
            Charge(bad, 0.0, 1.0, 1e-6)  # type: ignore[arg-type]
    with pytest.raises(InputError, match="closeness = inf must be finite"):
        Charge(0.1, INF, 1.0, 1e-6)
    with pytest.raises(InputError, match=r"delta = 1.5 must lie in \[0, 1\]"):
        Charge(0.1, 0.0, 1.0, 1.5)
    for key in (
        SessionKey(b"short", PLAN),
        SessionKey(bytes(33), PLAN),
        SessionKey("a" * 32, PLAN),  # type: ignore[arg-type]
        SessionKey(PLAN, b""),
        SessionKey(PLAN, bytes(33)),
    ):
        with pytest.raises(InputError, match="must be 32 bytes"):
            ledger.hold(key, "s", cost(0.1), unit="record", private={})
        with pytest.raises(InputError, match="must be 32 bytes"):
            ledger.charge(key, "s", cost(0.1), unit="record", private={})
    for name in ("", " ", "a\nb", "x" * 201, "\ud800"):
        with pytest.raises(InputError, match=r"study = .* must be 1 to 200 printable characters"):
            ledger.charge(session(1), name, cost(0.1), unit="record", private={})
        with pytest.raises(InputError, match="party = "):
            Ledger.create(path.with_name("b"), name, 1.0, 1e-6)
    with pytest.raises(InputError, match="private state seed = str must be bytes"):
        ledger.charge(session(1), "s", cost(0.1), unit="record", private={"seed": "SECRET"})  # type: ignore[dict-item]
    for epsilon, delta in ((0.0, 1e-6), (math.nan, 1e-6), (-1.0, 1e-6), (1.0, 0.0), (1.0, 1.0), (1.0, math.nan)):
        with pytest.raises(InputError):
            ledger.set_limit(epsilon, delta)
        with pytest.raises(InputError):
            Ledger.create(path.with_name("b"), "north", epsilon, delta)
    with pytest.raises(InputError, match="unit = person must be record or party"):
        Ledger.create(path.with_name("b"), "north", 1.0, 1e-6, "person")
    assert os.listdir(path.parent) == [path.name]
    assert [entry.kind for entry in ledger.entries()] == ["open"]


def test_an_outcome_of_any_text_can_be_noted(ledger: Ledger) -> None:
    for number, text in enumerate(("failed: " + "x" * 10_000, "failed: a\nb\x1b[2J\ud800", "")):
        spend(ledger, number, 0.01)
        ledger.settle(session(number), text, {})
    noted = [entry.outcome for entry in ledger.entries() if entry.kind == "settle"]
    assert [len(text) for text in noted] == [500, 16, 7]
    assert noted[1] == "failed: a?b?[2J?"
    ledger.verify()


# --- other processes, crashes, full disks ------------------------------------------------------------------------


@pytest.mark.process
@pytest.mark.parametrize("count", [2, 8])
def test_processes_that_spend_at_once_never_exceed_the_limit(path: Path, tmp_path: Path, count: int) -> None:
    rounds = 40 // count + 5
    Ledger.create(path, "north", 1.0, 1e-6).close()
    results = run_together(
        tmp_path / "start", *(("hammer", path, tmp_path / "start", f"w{n}", rounds) for n in range(count))
    )
    accepted = [name for names, _ in results for name in names]
    with Ledger.open(path) as ledger:
        ledger.verify()
        found = [entry for entry in ledger.entries() if entry.kind == "charge"]
        assert sorted(entry.session for entry in found) == sorted(accepted)
        assert len(accepted) + sum(refused for _, refused in results) == count * rounds
        assert sum(refused for _, refused in results) > 0
        spent = ledger.spent()
        assert exact_promise_holds(spent.epsilon, [entry.charge for entry in found], 1e-6)
        assert spent.epsilon <= 1.0
        assert not exact_promise_holds(1.0, [cost(0.05)] * (len(found) + 1), 1e-6)  # it could not have taken more


@pytest.mark.process
@pytest.mark.parametrize("count", [2, 8])
def test_processes_that_race_for_a_session_use_the_same_noise(path: Path, tmp_path: Path, count: int) -> None:
    Ledger.create(path, "north", 10.0, 1e-6).close()
    results = run_together(tmp_path / "start", *[("race", path, tmp_path / "start", 12)] * count)
    for number in range(12):
        seen = [result[number] for result in results]
        assert sum(new for new, _, _ in seen) == 1
        assert len({(seed, late) for _, seed, late in seen}) == 1
    with Ledger.open(path) as ledger:
        ledger.verify()
        assert ledger.spent().sessions == 12
        assert ledger.private_state(session(3))["seed"].hex() == results[0][3][1]


@pytest.mark.slow
def test_threads_may_share_a_ledger(path: Path) -> None:
    with Ledger.create(path, "north", 10.0, 1e-6) as ledger:
        threads = [
            threading.Thread(target=lambda part=part: [spend(ledger, n, 0.01) for n in range(part, 40, 4)])
            for part in range(4)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert ledger.spent().sessions == 40
        ledger.verify()


@pytest.mark.process
def test_a_killed_process_loses_nothing_it_had_reported(path: Path) -> None:
    Ledger.create(path, "north", INF, 1e-6).close()
    result = finish(worker("kill", path, 40, 1))
    told = {step: {line[:-1] for line in result["reported"] if line.endswith(step)} for step in "hcrs"}
    assert len(told["h"]) >= 40
    assert all(told.values())
    assert result["hot"] > 0  # some were killed half-way through writing
    with Ledger.open(path) as ledger:
        ledger.verify()
        entries = list(ledger.entries())
        kinds = {"h": "hold", "c": "cancel", "r": "charge", "s": "settle"}
        found = {step: {entry.session for entry in entries if entry.kind == kind} for step, kind in kinds.items()}
        for step in "hcrs":
            assert told[step] <= found[step]
            assert len(found[step] - told[step]) <= 40  # at most the one at work in each round
        assert not found["c"] & found["r"]
        assert ledger.spent().sessions == len(found["r"])
        assert len(ledger.holds()) == len(found["h"] - found["r"] - found["c"])
        for name in found["h"]:  # an entry and its private state stand or fall together
            kept = ledger.private_state(SessionKey(bytes.fromhex(name), PLAN))
            if name in found["s"] or name in found["c"]:
                assert kept == ({"receipt": b"x"} if name in found["s"] else {})
            else:
                assert len(kept["statistic"]) == 3000
                assert (len(kept.get("seed", b"")) == 9000) == (name in found["r"])


@pytest.mark.process
@pytest.mark.parametrize("old", [False, True])
def test_a_kill_at_every_statement_leaves_the_state_before_or_after(tmp_path: Path, old: bool) -> None:
    """Also within a statement: at every 53rd instruction of SQLite's machine, at every one if thorough.

    `old`: the ledger is of format 1, so that the operation on a new session also upgrades it.
    """
    stride = 1 if THOROUGH else 53
    more = [ROOT / "tests" / "golden" / "state" / "begun.ledger"] if old else []
    seen = finish(worker("crash", tmp_path, stride, *more))
    assert len(seen) == 2 if old else 8
    for name, counts in seen.items():
        assert counts["statements"] >= 4, name
        assert counts["instructions"] >= 3, name
        assert counts["before"] >= 8, name
        assert counts["after"] >= 2, name


@pytest.mark.process
def test_a_full_disk_changes_nothing_and_the_ledger_stays_usable(path: Path) -> None:
    with Ledger.create(path, "north", INF, 1e-6) as ledger:
        spend(ledger, 1000, 0.1)
    result = finish(worker("disk_full", path))
    assert len(result["errors"]) > 5
    for text in (*result["errors"], result["create"]):
        assert "cannot be read or written (disk error" in text or "the disk is full" in text
        assert "SECRET" not in text
        assert "\n" not in text
    assert result["done"] == 2
    assert result["left"] == [path.name]
    with Ledger.open(path) as ledger:
        ledger.verify()
        assert ledger.spent().sessions == 4


@pytest.mark.process
def test_a_ledger_held_by_another_process_is_reported(
    path: Path, tmp_path: Path, ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ledger_schema, "_BUSY_MS", 50)
    process = worker("hold", path, tmp_path / "start")
    assert process.line() == '"ready"\n'
    with Ledger.open(path) as impatient:
        assert impatient.status(session(1)) == "unknown"  # readers need not wait
        with pytest.raises(FileError, match="is in use by another process: try again"):
            spend(impatient, 1, 0.1)
        (tmp_path / "start").touch()
        process.communicate(timeout=HANG_S)
        spend(impatient, 1, 0.1)
    spend(ledger, 2, 0.1)
    ledger.verify()


def test_a_power_cut_is_provided_for(ledger: Ledger) -> None:
    """No test can cut the power: at least the settings are those that survive it (EXTRA is 3)."""
    settings = {name: ledger._read(f"PRAGMA {name}")[0][0] for name in ("synchronous", "journal_mode", "secure_delete")}
    assert settings == {"synchronous": 3, "journal_mode": "delete", "secure_delete": 1}


def test_an_error_inside_a_transaction_undoes_it(ledger: Ledger, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(ledger, "_store", interrupted)
        with pytest.raises(KeyboardInterrupt):
            spend(ledger, 1, 0.1)
    assert [entry.kind for entry in ledger.entries()] == ["open"]
    spend(ledger, 1, 0.1)
    ledger.verify()


def test_a_ledger_replaced_by_an_old_copy_while_in_use_is_noticed(path: Path, ledger: Ledger) -> None:
    copy = path.with_name("copy")
    copy.write_bytes(path.read_bytes())
    copy.chmod(0o600)
    spend(ledger, 1, 0.1)
    copy.replace(path)
    with pytest.raises(FileError, match="was moved or replaced while in use: open the ledger again"):
        spend(ledger, 2, 0.1)
    path.unlink()
    with pytest.raises(FileError, match="was moved or replaced while in use"):
        spend(ledger, 2, 0.1)


def test_a_forked_process_must_open_its_own(ledger: Ledger, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "getpid", lambda: -1)
    with pytest.raises(LedgerError, match="was opened before this process was forked: open it again"):
        spend(ledger, 1, 0.1)


def test_clocks_decide_nothing(path: Path, ledger: Ledger, monkeypatch: pytest.MonkeyPatch) -> None:
    for number, now in enumerate((2e9, 1e9, 0.0, -1e9)):
        monkeypatch.setattr(time, "time", lambda now=now: now)
        spend(ledger, number, 0.05)
        ledger.settle(session(number), "answer", {})
    times = [entry.time for entry in ledger.entries() if entry.kind == "charge"]
    assert times == sorted(times, reverse=True)
    assert [entry.number for entry in ledger.entries()] == list(range(1, 10))
    assert ledger.spent().mu == pytest.approx(0.1)
    ledger.close()
    with Ledger.open(path) as again:
        again.verify()


# --- tampering ---------------------------------------------------------------------------------------------------

TRIGGERS = sorted(sql for sql in statements_of(VERSION) if sql.startswith("CREATE TRIGGER"))


def tamper(path: Path, *statements: str) -> None:
    connection = sqlite3.connect(path, isolation_level=None)
    try:
        for sql in TRIGGERS:
            connection.execute(f"DROP TRIGGER {sql.split()[2]}")
        for statement in statements:
            connection.execute(statement)
        for sql in TRIGGERS:
            connection.execute(sql)
    finally:
        connection.close()


def verdict(path: Path, head: str | None = None) -> str:
    with pytest.raises(TpmdpError) as found, Ledger.open(path) as ledger:
        ledger.verify(head)
    return one_line(found.value)


@pytest.fixture
def written(path: Path) -> Path:
    """Entries 1 open, 2 charge, 3 limit, 4 charge, 5 settle, 6 charge."""
    with Ledger.create(path, "north", 1.0, 1e-6) as ledger:
        spend(ledger, 1, 0.1)
        ledger.set_limit(2.0, 1e-6)
        spend(ledger, 2, 0.1)
        ledger.settle(session(2), "answer", {})
        spend(ledger, 3, 0.1)
    return path


CHANGES = {
    "number": "number + 100",
    "kind": "'limit'",
    "time": "'2020-01-01T00:00:00+00:00'",
    "session": "'ff' || substr(session, 3)",
    "study": "'other'",
    **dict.fromkeys(("previous", "hash"), "'" + "0" * 64 + "'"),
    "outcome": "'receipt'",
    "plan": "'ff' || substr(plan, 3)",
    "unit": "'party'",
}


@pytest.mark.parametrize("column", [item.name for item in fields(Entry)])
@pytest.mark.parametrize("number", [1, 2, 4, 6])
@pytest.mark.slow
def test_a_change_of_any_column_is_caught_and_its_entry_named(written: Path, column: str, number: int) -> None:
    change = CHANGES.get(column, f"{column} * 0.9999999999999 + 1e-320")
    tamper(written, f"UPDATE entries SET {column} = {change} WHERE number = {number}")  # noqa: S608
    text = verdict(written)
    named = {f"entry {number} of", f"entry {number + 1} of"} if column in ("hash", "number") else {f"entry {number} of"}
    if column == "number":
        named.add(f"entry {number + 100} of")
    assert any(name in text for name in named), text
    assert "restore the newest copy" in text


def rechain(path: Path, change: Callable[[dict[str, Any]], None]) -> None:
    """Somebody who knows the format changes entries and recomputes every hash."""
    connection = sqlite3.connect(path, isolation_level=None)
    connection.row_factory = sqlite3.Row
    rows = [dict(row) for row in connection.execute("SELECT * FROM entries ORDER BY number")]
    connection.close()
    before = rows[0]["previous"]
    statements = []
    for row in rows:
        number = row["number"]
        change(row)
        row["previous"] = before
        row["hash"] = before = entry_hash(list(row.values()))
        values = ", ".join(f"{key} = {value!r}" for key, value in row.items())
        statements.append(f"UPDATE entries SET {values} WHERE number = {number}")  # noqa: S608
    tamper(path, "DROP INDEX once", *statements)


@pytest.mark.parametrize(
    ("numbers", "change", "words"),
    [
        ({4}, {"mu": 0.05}, "entry 4 of .* has totals that do not add up"),
        ({4}, {"closeness_total": 0.0}, "entry 4 of .* has totals that do not add up"),
        ({4}, {"limit_epsilon": 9.0}, "entry 4 of .* changes the limit without saying so"),
        ({4}, {"session": session(1).session.hex()}, "entry 4 of .* has kind charge where its session does not allow"),
        ({4}, {"session": session(1).session.hex(), "plan": "ab" * 32}, "entry 4 of .* charges a session again"),
        ({4}, {"kind": "reserve", "session": session(1).session.hex(), "plan": ""}, "charges a session again"),
        ({4}, {"unit": "party"}, "entry 4 of .* has totals that do not add up"),
        ({4}, {"plan": "ab"}, "entry 4 of .* has no plan"),
        ({4}, {"unit": "person"}, "entry 4 of .* counts by unknown unit person"),
        ({5}, {"plan": "ab" * 32}, "entry 5 of .* has kind settle where its session does not allow"),
        ({5}, {"kind": "cancel"}, "entry 5 of .* has kind cancel where its session does not allow"),
        ({5}, {"kind": "hold"}, "entry 5 of .* has kind hold where its session does not allow"),
        ({3}, {"kind": "bind", "limit_epsilon": 1.0, "outcome": "ab"}, "entry 3 of .* binds the ledger to no key"),
        ({4}, {"session": ""}, "entry 4 of .* has no session"),
        ({5}, {"session": session(3).session.hex()}, "entry 5 of .* has kind settle where its session does not allow"),
        ({5}, {"kind": "refund"}, "entry 5 of .* is of unknown kind refund"),
        ({5}, {"kind": "open"}, "entry 5 of .* is of kind open out of place"),
        ({5}, {"mu": 0.1}, "entry 5 of .* has a charge that cannot be"),
        ({4}, {"mu": -0.1}, "entry 4 of .* has a charge that cannot be"),
        ({3}, {"limit_delta": 5.0}, "entry 3 of .* sets a limit that cannot be"),
        ({3}, {"session": session(9).session.hex()}, "entry 3 of .* has a session"),
        ({1, 2}, {"limit_epsilon": 0.3}, "entry 2 of .* makes epsilon 0.396858, over the limit 0.3 of its time"),
    ],
)
@pytest.mark.slow
def test_a_forged_chain_must_still_add_up(written: Path, numbers: set[int], change: dict[str, Any], words: str) -> None:
    rechain(written, lambda row: row.update(change) if row["number"] in numbers else None)
    text = verdict(written)
    assert re.search(words, text), text


def test_another_owner_or_unit_is_caught(written: Path) -> None:
    tamper(written, "UPDATE ledger SET unit = 'party'")
    assert "entry 1 of" in verdict(written)
    tamper(written, "DELETE FROM ledger")
    assert "has no owner" in verdict(written)


def test_entries_cut_off_are_caught_with_a_head_noted_earlier(written: Path) -> None:
    with Ledger.open(written) as ledger:
        head = ledger.verify()
        earlier = list(ledger.entries())[2].hash
        assert ledger.verify(earlier.upper()) == head
        with pytest.raises(InputError, match="head = 12 must be 64 characters"):
            ledger.verify("12")
    tamper(written, "DELETE FROM entries WHERE number > 4")
    with Ledger.open(written) as ledger:
        ledger.verify()
        ledger.verify(earlier)
        with pytest.raises(LedgerError, match=f"the hash {head[:16]}... noted earlier is not among the 4 entries"):
            ledger.verify(head)
    tamper(written, "DELETE FROM entries WHERE number = 2")
    assert "entry 2 of" in verdict(written)
    assert "is missing" in verdict(written)
    tamper(written, "DELETE FROM entries")
    assert "entry 1 of" in verdict(written)


def test_dropped_triggers_and_damaged_pages_are_caught(written: Path) -> None:
    connection = sqlite3.connect(written, isolation_level=None)
    connection.execute("DROP TRIGGER no_change")
    connection.close()
    assert "has altered tables or triggers: somebody changed the file" in verdict(written)
    raw = bytearray(written.read_bytes())
    raw[4096 * 2 : 4096 * 3] = bytes(4096)
    written.write_bytes(raw)
    assert "\n" not in verdict(written)


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE entries SET mu = 0 WHERE number = 2",
        "DELETE FROM entries WHERE number = 6",
        "DELETE FROM entries",
        "INSERT OR REPLACE INTO entries SELECT * FROM entries WHERE number = 2",
        "REPLACE INTO entries SELECT 7, kind, time, session, study, 0, closeness, epsilon, delta, mu_squared_total, "
        "closeness_total, limit_epsilon, limit_delta, outcome, previous, hash, plan, unit FROM entries WHERE number=2",
        "INSERT INTO entries SELECT 7, kind, time, session, study, mu, closeness, epsilon, delta, mu_squared_total, "
        "closeness_total, limit_epsilon, limit_delta, outcome, previous, hash, 'ab', unit FROM entries WHERE number=2",
        "UPDATE ledger SET party = 'south'",
        "DELETE FROM ledger",
    ],
)
@pytest.mark.parametrize("recursive", ["ON", "OFF"])
@pytest.mark.slow
def test_the_tables_refuse_changes(written: Path, statement: str, recursive: str) -> None:
    connection = sqlite3.connect(written, isolation_level=None)
    connection.execute(f"PRAGMA recursive_triggers={recursive}")
    try:
        with pytest.raises(sqlite3.IntegrityError, match="the ledger is append-only"):
            connection.execute(statement)
    finally:
        connection.close()
    with Ledger.open(written) as ledger:
        ledger.verify()


# --- files -------------------------------------------------------------------------------------------------------


def test_files_are_for_the_owner_alone_whatever_the_umask(path: Path) -> None:
    for mask in (0o000, 0o077, 0o777):
        before = os.umask(mask)
        try:
            with Ledger.create(path, "north", 1.0, 1e-6) as ledger:
                with ledger._transaction() as last:
                    ledger._append(last, "limit", balance=last.balance, unit=ledger.unit)
                    files = sorted(file.name for file in path.parent.iterdir())
                    assert files == [path.name, path.name + "-journal"]
                    assert {file.stat().st_mode & 0o777 for file in path.parent.iterdir()} == {0o600}
                ledger.verify()
        finally:
            os.umask(before)
        assert [file.name for file in path.parent.iterdir()] == [path.name]  # one file is the whole ledger
        path.unlink()


def test_a_ledger_open_to_others_is_refused(written: Path) -> None:
    for mode in (0o644, 0o640, 0o602):
        written.chmod(mode)
        with pytest.raises(FileError, match=f"is open to others .mode {mode:04o}.: chmod 600 {written}"):
            Ledger.open(written)
    written.chmod(0o600)
    os.link(written, written.with_name("twin"))
    with pytest.raises(FileError, match="has a second name"):
        Ledger.open(written)


def test_through_a_link_it_is_the_same_ledger(written: Path) -> None:
    link = written.with_name("link")
    link.symlink_to(written)
    with Ledger.open(link) as one, Ledger.open(written) as two:
        spend(one, 7, 0.1)
        assert two.status(session(7)) == "charged"
        two.verify()


def test_files_that_are_no_ledger_give_one_line(tmp_path: Path) -> None:
    def make(name: str, content: bytes) -> Path:
        file = tmp_path / name
        file.write_bytes(content)
        file.chmod(0o600)
        return file

    database = tmp_path / "other.db"
    connection = sqlite3.connect(database)
    connection.execute("CREATE TABLE t (x)")
    connection.close()
    database.chmod(0o600)
    newer = tmp_path / "newer"
    Ledger.create(newer, "north", 1.0, 1e-6).close()
    connection = sqlite3.connect(newer)
    connection.execute("PRAGMA user_version=3")
    connection.close()
    hollow = tmp_path / "hollow"
    connection = sqlite3.connect(hollow)
    connection.execute(f"PRAGMA application_id={APPLICATION}")
    connection.execute("PRAGMA user_version=1")
    connection.close()
    hollow.chmod(0o600)
    half = make("half", newer.read_bytes()[:5000])
    loop = tmp_path / "loop"
    loop.symlink_to(loop)
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    for file, words in (
        (make("text", b"hello " * 1000), "is not a ledger: name a file made by tpmdp ledger create"),
        (make("empty", b""), "is empty, not a ledger"),
        (make("short", b"x"), "is not a ledger"),
        (database, "is not a ledger"),
        (newer, "has format 3, and this tpmdp reads formats up to 2: use the tpmdp that wrote it"),
        (hollow, "cannot be used"),
        (half, ""),
        (tmp_path, "is a folder"),
        (tmp_path / "missing", "does not exist: check the path, or make one with tpmdp ledger create"),
        (loop, "cannot be read (Too many levels of symbolic links)"),
        (pipe, "is a device or a pipe"),
    ):
        with pytest.raises(FileError) as refused:
            Ledger.open(file)
        assert words in one_line(refused.value)
        assert one_line(refused.value).startswith(str(file))


def test_a_ledger_whose_maker_was_killed_between_link_and_unlink_can_be_used(tmp_path: Path) -> None:
    Ledger.create(tmp_path / "a", "north", 1.0, 1e-6).close()
    os.link(tmp_path / "a", tmp_path / ".tpmdp-x.ledger")
    with Ledger.open(tmp_path / "a") as ledger:
        ledger.verify()
    assert os.listdir(tmp_path) == ["a"]


def test_create_never_replaces_and_leaves_nothing_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "a"
    file.write_text("mine")
    dangling = tmp_path / "dangling"
    dangling.symlink_to(tmp_path / "nowhere")
    for taken in (file, dangling):
        with pytest.raises(FileError, match="exists already: choose another name"):
            Ledger.create(taken, "north", 1.0, 1e-6)
    assert file.read_text() == "mine"
    with pytest.raises(FileError, match="lies in a folder that does not exist"):
        Ledger.create(tmp_path / "no" / "a", "north", 1.0, 1e-6)
    with pytest.raises(FileError, match="cannot be written"):
        Ledger.create(tmp_path / ("x" * 300), "north", 1.0, 1e-6)
    before = sorted(os.listdir(tmp_path))
    monkeypatch.setattr(ledger_file, "SCHEMA", (*SCHEMA, "CREATE NONSENSE"))
    with pytest.raises(FileError, match="cannot be used"):
        Ledger.create(tmp_path / "b", "north", 1.0, 1e-6)
    assert sorted(os.listdir(tmp_path)) == before


def test_private_state_is_never_shown_and_erased_when_settled(path: Path, ledger: Ledger) -> None:
    marker = b"SECRETNOISE"
    for number in (1, 2):
        reservation = ledger.charge(
            session(number), "s", cost(0.01), unit="record", private={"seed": marker * 3000, "s": marker}
        )
        assert "SECRET" not in repr(reservation)
    ledger.keep(session(1), "mask", marker)
    assert marker in path.read_bytes()
    assert "SECRET" not in repr(ledger) + json.dumps(list(ledger.export())) + repr(list(ledger.entries()))
    with pytest.raises(LedgerError) as refused:
        ledger.charge(session(1), "s", cost(0.02), unit="record", private={"seed": marker})
    assert "SECRET" not in str(refused.value)
    ledger.settle(session(1), "answer", {})
    assert ledger.private_state(session(2))["s"] == marker
    ledger.settle(session(2), "failed: x", {"receipt": b"public"})
    assert marker not in path.read_bytes()
    assert marker[:6] not in path.read_bytes()
    assert os.listdir(path.parent) == [path.name]


def test_a_closed_ledger_says_so(ledger: Ledger) -> None:
    ledger.close()
    ledger.close()
    with pytest.raises(FileError, match="closed database"):
        spend(ledger, 1, 0.1)


def test_a_long_ledger_is_read_in_pages_and_verified(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ledger_file, "_PAGE", 7)
    seen: list[tuple[int, int]] = []
    with Ledger.create(path, "north", INF, 1e-6) as ledger:
        for number in range(30):
            spend(ledger, number, 0.01)
        reader = ledger.entries()
        next(reader)
        with Ledger.open(path) as other:
            spend(other, 99, 0.01)  # a reader half-way does not hold up a writer
        assert [entry.number for entry in reader] == list(range(2, 33))
        assert [entry.number for entry in ledger.entries(after=30)] == [31, 32]
        ledger.verify(progress=lambda done, total: seen.append((done, total)))
    assert seen == [(7, 32), (14, 32), (21, 32), (28, 32), (32, 32)]


# --- the command line --------------------------------------------------------------------------------------------


def command(*arguments: object) -> str:
    done = CliRunner().invoke(group, [str(argument) for argument in arguments], catch_exceptions=False)
    assert done.exit_code == 0, done.output
    return done.output


def test_commands(path: Path, tmp_path: Path) -> None:
    made = command("create", path, "--party", "north [bold]", "--epsilon", "1", "--delta", "1e-6")
    assert made == f"wrote {path}\n"
    with Ledger.open(path) as ledger:
        ledger.charge(session(1 << 250), "flu [red]", cost(0.1), unit="record", private={"seed": b"SECRET"})
        ledger.settle(session(1 << 250), "answer", {"receipt": b"SECRET"})
    text = command("show", path)
    for part in (
        "north [bold]: 1 session",
        "flu [red]",
        "04000000",
        "0.396858",
        "answer",
        "limit 1 at 1e-06",
    ):
        assert part in text
    assert "spent epsilon 0.396858, limit epsilon 1 at delta 1e-06; left for one more release: epsilon 0.89" in text
    summary = json.loads(command("show", path, "--json"))
    assert (summary["party"], summary["sessions"], summary["entries"]) == ("north [bold]", 1, 3)
    assert summary["head"] in text
    head = summary["head"]
    assert command("verify", path, "--head", head).startswith("VALID: 3 entries")
    assert "spent epsilon 0.396858, limit epsilon inf" in command("limit", path, "--epsilon", "inf")
    checked = json.loads(command("verify", path, "--json", "--head", head))
    assert checked["valid"]
    assert checked["entries"] == 4
    assert json.loads(command("show", path, "--json"))["left"] == "inf"
    lines = [json.loads(line) for line in command("export", path).splitlines()]
    assert [line["kind"] for line in lines] == ["open", "charge", "settle", "limit"]
    assert lines[3]["limit_epsilon"] == "inf"
    command("export", path, "--out", tmp_path / "a.jsonl")
    assert [json.loads(line) for line in (tmp_path / "a.jsonl").read_text().splitlines()] == lines
    command("export", path, "--out", tmp_path / "a.csv")
    with (tmp_path / "a.csv").open(newline="") as stream:
        rows = list(csv.DictReader(stream))
    assert [row["hash"] for row in rows] == [line["hash"] for line in lines]
    assert rows[1]["study"] == "flu [red]"
    assert all("SECRET" not in text for text in (str(lines), str(rows), text))


@pytest.mark.slow
def test_show_cuts_a_long_ledger(path: Path) -> None:
    with Ledger.create(path, "north", INF, 1e-6) as ledger:
        for number in range(50):
            spend(ledger, number, 0.01)
    text = command("show", path)
    assert "... 11 earlier" in text
    assert text.count("charge") == 40


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["create", "FILE", "--party", "x", "--epsilon", "1", "--delta", "1e-6"], "exists already"),
        (["create", "FILE2", "--party", "x", "--epsilon", "one", "--delta", "1e-6"], "--epsilon = one is not a number"),
        (["create", "FILE2", "--party", "x", "--epsilon", "nan", "--delta", "1e-6"], "epsilon = nan must be greater"),
        (["create", "FILE2", "--party", "x", "--epsilon", "1", "--delta", "0"], "delta = 0.0 cannot be met"),
        (["limit", "FILE"], "--epsilon = .none. is missing"),
        (["limit", "FILE", "--delta", "2"], "delta = 2.0 must lie"),
        (["verify", "FILE", "--head", "xyz"], "head = xyz must be 64 characters"),
        (["verify", "FILE", "--head", "0" * 64], "is not among the 1 entries"),
        (["export", "FILE", "--out", "FILE"], "is the ledger itself"),
        (["show", "FILE2"], "does not exist"),
    ],
)
def test_commands_refuse_bad_requests(path: Path, ledger: Ledger, arguments: list[str], words: str) -> None:
    before = path.read_bytes()
    real = [str(path) if a == "FILE" else str(path) + "2" if a == "FILE2" else a for a in arguments]
    with pytest.raises(TpmdpError, match=words) as refused:
        command(*real)
    one_line(refused.value)
    assert path.read_bytes() == before
    assert os.listdir(path.parent) == [path.name]
