"""Every order in which two processes and a cancel can take the steps of one session with two plans, on a real ledger.

Each step is one transaction, so an order of steps is all that matters. What leaves a process is written down; the
invariants are about that. The same enumeration finds each of the weaker rules planted below.
"""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import product
from pathlib import Path
from typing import Any

import pytest

import tpmdp.ledger.book as book
from tpmdp.ledger import Charge, Entry, Ledger, LedgerError, SessionKey, promise, square_up

SESSION = bytes(32)
PLANS = (SessionKey(SESSION, b"1" * 32), SessionKey(SESSION, b"2" * 32))  # a study file, and the same file mended
COST = Charge(0.1, 0.0, 0.5, 1e-6)
Script = tuple[tuple[str, int], ...]  # steps, each with the plan it is about

JOIN = ("hold", "agree", "charge", "settle")


def script(plan: int, *steps: str) -> Script:
    return tuple((step, plan) for step in steps)


WORLDS: dict[str, tuple[Script, ...]] = {
    "two processes, one study": (script(0, *JOIN), script(0, *JOIN)),
    "two processes, two studies": (script(0, *JOIN), script(1, *JOIN)),
    "two processes, one study, a cancel": (script(0, *JOIN), script(0, *JOIN), script(0, "cancel")),
    "two processes, two studies, a cancel": (script(0, *JOIN), script(1, *JOIN), script(0, "cancel")),
    "a cancel, and the same command again": (script(0, *JOIN), script(0, "cancel", *JOIN)),
    "two processes of one study, and a mended one": (
        script(0, "hold", "agree"),
        script(0, "hold", "agree"),
        script(1, "hold", "charge"),
    ),
    "two cancels": (script(0, *JOIN), script(0, "cancel"), script(0, "cancel")),
}


def orders(lengths: Sequence[int]) -> Iterator[tuple[int, ...]]:
    """Every way to merge sequences of these lengths: which of them goes next."""
    if not any(lengths):
        yield ()
        return
    for place, left in enumerate(lengths):
        if left:
            rest = [*lengths[:place], left - 1, *lengths[place + 1 :]]
            for after in orders(rest):
                yield (place, *after)


@dataclass
class History:
    """What left the party in one order, and what was in the ledger when it did."""

    submitted: set[tuple[bytes, bytes]] = field(default_factory=set)  # plan and vector
    agreed: set[tuple[bytes, bytes]] = field(default_factory=set)  # plan and key of the attempt
    problems: list[str] = field(default_factory=list)


class Party:
    """A process: it takes its steps in order, and stops at the first that is refused, as `join` does."""

    def __init__(self, number: int, ledger: Ledger, steps: Script, history: History) -> None:
        self._number, self._ledger, self._history = number, ledger, history
        self._steps = iter(steps)
        self.stopped = False

    def step(self) -> None:
        name, plan = next(self._steps)
        if self.stopped:
            return
        try:
            getattr(self, name)(PLANS[plan])
        except LedgerError:
            self.stopped = name != "cancel"  # a cancel that is refused changes nothing

    def _own(self, what: str) -> bytes:
        return f"{what} of process {self._number}".encode()

    def hold(self, key: SessionKey) -> None:
        self._ledger.hold(key, "flu", COST, unit="record", private={"statistic": self._own("statistic")})

    def agree(self, key: SessionKey) -> None:
        stored = self._ledger.keep(key, "key 1", self._own("key"))
        self._history.agreed.add((key.plan, stored))

    def charge(self, key: SessionKey) -> None:
        private = {"vector": self._own("vector")}
        stored = self._ledger.charge(key, "flu", COST, unit="record", private=private).private
        if self._ledger.status(key) not in ("charged", "settled"):
            self._history.problems.append("submitted without a charge")
        self._history.submitted.add((key.plan, stored["vector"]))

    def settle(self, key: SessionKey) -> None:
        self._ledger.settle(key, "answer", {})

    def cancel(self, key: SessionKey) -> None:
        self._ledger.cancel(key)


def check(ledger: Ledger, history: History) -> list[str]:
    """What is wrong after an order of steps."""
    problems = list(history.problems)
    entries = list(ledger.entries())
    charges = [entry for entry in entries if entry.kind == "charge"]
    if len({entry.plan for entry in charges}) > 1:
        problems.append("two plans of a session are charged")
    if len(charges) > 1:
        problems.append("a session is charged twice")
    if len(history.submitted) > 1:
        problems.append("two vectors left for one session")
    for plan in PLANS:
        if len({sent for name, sent in history.agreed if name == plan.plan}) > 1:
            problems.append("two keys left for one attempt")
    problems += [f"a {entry.kind} after a cancel" for entry in entries if _after_cancel(entry, entries)]
    if {plan for plan, _ in history.submitted} - {bytes.fromhex(entry.plan) for entry in charges}:
        problems.append("a vector left and nothing was charged")
    expected = promise(square_up(COST.mu), 0.0, 1e-6) if charges else 0.0
    if ledger.spent().epsilon != expected:
        problems.append("the total is not what was charged")
    with contextlib.suppress(LedgerError):
        ledger.verify()
        return problems
    return [*problems, "the ledger does not verify"]


def _after_cancel(entry: Entry, entries: Sequence[Entry]) -> bool:
    same = [other for other in entries if (other.session, other.plan) == (entry.session, entry.plan)]
    return bool(entry.session) and any(other.kind == "cancel" and other.number < entry.number for other in same)


@pytest.fixture
def empty(tmp_path: Path) -> Path:
    path = tmp_path / "empty.ledger"
    Ledger.create(path, "north", float("inf"), 1e-6).close()
    return path


def explore(empty: Path, scripts: Sequence[Script], until: str = "") -> tuple[int, set[str]]:
    """Try every order, or until this problem shows; the number of orders, and the problems.

    Steps of a process that has stopped do nothing, so they are left to the end: other orders are the same.
    """
    count, problems, same = 0, set[str](), tuple[int, ...]()
    file = empty.with_name("copy.ledger")
    for order in orders([len(steps) for steps in scripts]):
        if same and order[: len(same)] == same:
            continue
        shutil.copyfile(empty, file)
        file.chmod(0o600)
        history = History()
        with contextlib.ExitStack() as stack:
            ledgers = [stack.enter_context(unsynced(file)) for _ in scripts]
            parties = [
                Party(number, ledger, steps, history)
                for number, (ledger, steps) in enumerate(zip(ledgers, scripts, strict=True))
            ]
            for depth, place in enumerate(order):
                if parties[place].stopped and not all(parties[other].stopped for other in order[depth:]):
                    same = order[: depth + 1]
                    break
                parties[place].step()
            else:
                count, problems = count + 1, problems | set(check(ledgers[0], history))
        file.unlink()
        if until in problems:
            break
    return count, problems


@contextmanager
def unsynced(file: Path) -> Iterator[Ledger]:
    """Nobody cuts the power here: without waiting for the disk, thousands of orders take seconds."""
    with Ledger.open(file) as ledger:
        ledger._connection.execute("PRAGMA synchronous=OFF")
        yield ledger


@pytest.mark.parametrize(
    "world",
    [pytest.param(name, marks=pytest.mark.long if len(scripts) > 2 else []) for name, scripts in WORLDS.items()],
)
@pytest.mark.slow
def test_no_order_of_steps_charges_twice_or_uses_what_was_cancelled(empty: Path, world: str) -> None:
    count, problems = explore(empty, WORLDS[world])
    assert problems == set()
    assert count > 10


def test_all_orders_are_tried() -> None:
    assert len(set(orders([4, 4]))) == 70
    assert len(set(orders([4, 4, 1]))) == 630
    assert len(set(orders([4, 1, 1]))) == 30
    assert all(sorted(order) == [0] * 4 + [1] * 5 for order in orders([4, 5]))


# --- weaker rules, each of which the enumeration must find --------------------------------------------------------


def cancel_can_be_undone(patch: pytest.MonkeyPatch) -> None:
    """A cancelled entry counts as if it had never been."""
    original = Ledger._entries_of

    def entries_of(self: Ledger, key: SessionKey) -> list[Entry]:
        entries = original(self, key)
        last = max((place for place, entry in enumerate(entries) if entry.kind == "cancel"), default=-1)
        return entries[last + 1 :]

    patch.setattr(Ledger, "_entries_of", entries_of)
    _without_indexes(patch)


def charge_is_not_conditional(patch: pytest.MonkeyPatch) -> None:
    """Whatever the state before is, a charge is entered with this process's own vector."""

    def charge(
        self: Ledger, key: SessionKey, study: str, charge: Charge, *, unit: str, private: Mapping[str, bytes]
    ) -> book.Stored:
        with self._transaction() as last:
            totals = self._own_balance(unit).with_charge(charge.mu, charge.closeness)
            self._append(last, "charge", balance=totals, unit=unit, key=key, study=study, charge=charge)
        return book.Stored(True, dict(private))

    patch.setattr(Ledger, "charge", charge)
    _without_indexes(patch)


def plans_are_charged_apart(patch: pytest.MonkeyPatch) -> None:
    """Another plan of a session that is charged is no obstacle."""
    patch.setattr(Ledger, "_check_other_plans", lambda *_: None)
    _without_indexes(patch)


def known_by_session_only(patch: pytest.MonkeyPatch) -> None:
    """Entries and private state are known by the session, whatever its plan: keys of one plan serve another."""
    original = Ledger._entries_of
    patch.setattr(Ledger, "_entries_of", lambda self, key: original(self, SessionKey(key.session, PLANS[0].plan)))
    append = Ledger._append

    def under_one_plan(self: Ledger, *arguments: Any, key: SessionKey | None = None, **options: Any) -> Entry:
        return append(self, *arguments, key=key and SessionKey(key.session, PLANS[0].plan), **options)

    patch.setattr(Ledger, "_append", under_one_plan)


def checked_before_the_transaction(patch: pytest.MonkeyPatch) -> None:
    """The state is read when the process holds, and believed when it charges."""
    original = Ledger._entries_of

    def entries_of(self: Ledger, key: SessionKey) -> list[Entry]:
        remembered: dict[SessionKey, list[Entry]] = self.__dict__.setdefault("_remembered", {})
        fresh = original(self, key)
        if fresh and key not in remembered:
            remembered[key] = fresh[:1]
        return remembered.get(key, fresh)

    patch.setattr(Ledger, "_entries_of", entries_of)
    patch.setattr(Ledger, "_check_other_plans", lambda *_: None)
    _without_indexes(patch)


def vector_is_not_the_first(patch: pytest.MonkeyPatch) -> None:
    """A process that finds the session charged uses its own vector."""
    original = Ledger.charge

    def charge(self: Ledger, *arguments: Any, private: Mapping[str, bytes], **options: Any) -> book.Stored:
        return book.Stored(original(self, *arguments, private=private, **options).new, dict(private))

    patch.setattr(Ledger, "charge", charge)


def cancel_after_a_charge(patch: pytest.MonkeyPatch) -> None:
    """A cancel asks for nothing."""

    def cancel(self: Ledger, key: SessionKey) -> None:
        with self._transaction() as last:
            entries = self._entries_of(key)
            if entries:
                self._end(last, "cancel", entries[-1])

    patch.setattr(Ledger, "cancel", cancel)
    _without_indexes(patch)


def stored_after_another_plan_is_charged(patch: pytest.MonkeyPatch) -> None:
    """What is stored for a plan is erased when another one is charged, and can be stored again."""
    patch.setattr(Ledger, "_under_way", lambda self, key: self._entries_of(key)[-1])


def _without_indexes(patch: pytest.MonkeyPatch) -> None:
    """The tables refuse a second entry of a kind as well; a weaker rule would have weaker tables."""
    original = Ledger._transaction

    @contextmanager
    def transaction(self: Ledger) -> Iterator[Entry]:
        with original(self) as last:
            self._connection.execute("DROP TRIGGER IF EXISTS in_order")
            self._connection.execute("DROP INDEX IF EXISTS once")
            yield last

    patch.setattr(Ledger, "_transaction", transaction)
    patch.setattr(Ledger, "_check_file", lambda _: None)


FAULTS: dict[Callable[[pytest.MonkeyPatch], None], str] = {
    cancel_can_be_undone: "a hold after a cancel",
    charge_is_not_conditional: "two vectors left for one session",
    plans_are_charged_apart: "two plans of a session are charged",
    known_by_session_only: "a vector left and nothing was charged",
    checked_before_the_transaction: "a charge after a cancel",
    vector_is_not_the_first: "two vectors left for one session",
    stored_after_another_plan_is_charged: "two keys left for one attempt",
    cancel_after_a_charge: "the ledger does not verify",
}


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.__name__)
@pytest.mark.slow
def test_a_weaker_rule_is_found(
    empty: Path, fault: Callable[[pytest.MonkeyPatch], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    fault(monkeypatch)
    problems: set[str] = set()
    for scripts in sorted(WORLDS.values(), key=lambda scripts: sum(map(len, scripts))):
        problems |= explore(empty, scripts, until=FAULTS[fault])[1]
        if FAULTS[fault] in problems:
            return
    pytest.fail(f"found only {problems}")


@pytest.mark.slow
@pytest.mark.long
def test_the_same_orders_with_a_crash_between_any_two_steps(empty: Path) -> None:
    """A process that dies and starts again takes its steps from the first: the same invariants hold."""
    for cut, other in product((1, 3), (0, 1)):
        again = (*script(0, *JOIN[:cut]), *script(0, *JOIN))
        assert explore(empty, (again, script(other, "hold", "agree", "charge")))[1] == set()
