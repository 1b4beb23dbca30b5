"""What one party has spent on privacy: the sessions in its ledger file.

The ledger never under-charges. A session passes through these states, each step one exclusive transaction that is
conditional on the state before:

    hold     room is set aside; nothing is spent, and the session can be resumed by the same command
    charge   irreversible, in one transaction with the noise; on the disk before a byte that depends on data leaves
    settle   how the session ended; what could undo the noise is erased
    cancel   of a hold: the entry is never used again

An entry is known by session and plan. Several plans of one session may be held, as after a mistake in a study file was
mended; one of them can be charged, which erases what is stored for the others. Every sum is rounded up. Sessions k with
mu_k and closeness tau_k promise together, at the limit's delta, the epsilon of `promise`: epsilon_of(sqrt(sum mu_k^2),
delta e^(-sum tau_k)) + 2 sum tau_k.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Final, Literal

from tpmdp.errors import InputError, shown
from tpmdp.ledger.account import Account, check_unit
from tpmdp.ledger.entry import SESSION_BYTES, Entry, SessionKey, stand_in_plan
from tpmdp.ledger.file import check_text
from tpmdp.ledger.spending import Charge, LedgerError

_OUTCOME_MAX: Final = 500
_WITNESSED: Final = "witnessed"  # in place of a session
Status = Literal["unknown", "held", "cancelled", "charged", "settled"]
_STATUS: Final[dict[str, Status]] = {  # by the last entry
    "hold": "held",
    "cancel": "cancelled",
    "charge": "charged",
    "reserve": "charged",
    "settle": "settled",
}


@dataclass(frozen=True)
class Stored:
    """A session's place in the ledger. `private` is what was stored first: a retry must use that, not its own.

    >>> Stored(True, {"seed": b"secret"})
    Stored(new=True)
    """

    new: bool
    private: dict[str, bytes] = field(repr=False)


@dataclass(frozen=True)
class Hold:
    """Room to set aside for a session, with the private state that is stored with it.

    >>> Hold(SessionKey(bytes(32), bytes(32)), "flu", Charge(0.1, 0.0, 0.5, 1e-6)).private
    {}
    """

    key: SessionKey
    study: str
    charge: Charge
    private: Mapping[str, bytes] = field(default_factory=dict, repr=False)


def _check_key(key: SessionKey) -> None:
    for name, value in zip(SessionKey._fields, key, strict=True):
        if not isinstance(value, bytes) or len(value) != SESSION_BYTES:
            shape = f"{len(value)} bytes" if isinstance(value, bytes) else type(value).__name__
            raise InputError(name, shape, f"must be {SESSION_BYTES} bytes", "use the session's id and its plan's hash")


def _check_private(values: Mapping[str, bytes]) -> dict[str, bytes]:
    for name, value in values.items():
        check_text("name of private state", name)
        if not isinstance(value, bytes | bytearray | memoryview):
            raise InputError(f"private state {name}", type(value).__name__, "must be bytes", "encode it first")
    return {name: bytes(value) for name, value in values.items()}


def _name(key: SessionKey) -> str:
    return f"session {key.session.hex()[:16]}"


def _cancelled(key: SessionKey) -> LedgerError:
    return LedgerError(_name(key), "was cancelled", "set another number for the session in the study")


class Ledger(Account):
    """One party's account: what its sessions have cost, and the private state of those under way.

    >>> import pathlib, tempfile
    >>> folder = tempfile.TemporaryDirectory()
    >>> with Ledger.create(pathlib.Path(folder.name) / "a.ledger", "hospital", epsilon=1.0, delta=1e-6) as ledger:
    ...     key, cost = SessionKey(bytes(32), bytes(32)), Charge(0.1, 1e-50, 0.5, 1e-6)
    ...     held = ledger.hold(key, "flu", cost, unit="record", private={})
    ...     spent_by_hold = ledger.spent().sessions
    ...     before = ledger.charge(key, "flu", cost, unit="record", private={"seed": b"1"})
    ...     again = ledger.charge(key, "flu", cost, unit="record", private={"seed": b"2"})
    ...     ledger.settle(key, "answer", {})
    ...     spent_by_hold, before.new, again.new, again.private, ledger.status(key), ledger.spent().sessions
    (0, True, False, {'seed': b'1'}, 'settled', 1)
    >>> folder.cleanup()
    """

    # Sessions ---------------------------------------------------------------------------------------------------------

    def hold(
        self,
        key: SessionKey,
        study: str,
        charge: Charge,
        *,
        unit: str,
        private: Mapping[str, bytes],
        stand_in: SessionKey | None = None,
    ) -> Stored:
        """Set room aside for the session and store its private state; nothing is spent.

        A session that is held or charged already gets the private state stored first. `stand_in` is what stood for it
        while its plan was not known: if that is cancelled, so is the session.

        >>> import pathlib, tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     with Ledger.create(pathlib.Path(folder) / "a.ledger", "hospital", 1.0, 1e-6) as ledger:
        ...         key = SessionKey(bytes(32), bytes(32))
        ...         ledger.hold(key, "flu", Charge(0.9, 0, 5, 1e-6), unit="record", private={})  # doctest: +ELLIPSIS
        Traceback (most recent call last):
            ...
        tpmdp.ledger.spending.OverspendError: study flu would cost hospital epsilon 4.33618 and make ...
        """
        return self._enter(key, "hold", study, charge=charge, unit=unit, private=private, stand_in=stand_in)

    def charge(
        self,
        key: SessionKey,
        study: str,
        charge: Charge,
        *,
        unit: str,
        private: Mapping[str, bytes],
        stand_in: SessionKey | None = None,
        may_be_less: bool = False,
    ) -> Stored:
        """Charge the session and store its private state; once this returns, both are on the disk.

        It may have been held before, and the limit in force is checked again. A session that is charged already is not
        charged again, and gets the private state stored first. `stand_in` is as in `hold`. With `may_be_less` room may
        have been held for more than the session comes to cost.

        >>> import pathlib, tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     with Ledger.create(pathlib.Path(folder) / "a.ledger", "hospital", 1.0, 1e-6) as ledger:
        ...         key = SessionKey(bytes(32), bytes(32))
        ...         stored = ledger.charge(key, "flu", Charge(0.1, 0, 5, 1e-6), unit="record", private={})
        ...         stored.new, ledger.status(key)
        (True, 'charged')
        """
        return self._enter(
            key,
            "charge",
            study,
            charge=charge,
            unit=unit,
            private=private,
            stand_in=stand_in,
            may_be_less=may_be_less,
        )

    def _enter(
        self,
        key: SessionKey,
        kind: Literal["hold", "charge"],
        study: str,
        *,
        charge: Charge,
        unit: str,
        private: Mapping[str, bytes],
        stand_in: SessionKey | None,
        may_be_less: bool = False,
    ) -> Stored:
        _check_key(key)
        values = _check_private(private)
        check_text("study", study)
        check_unit(unit)
        with self._transaction() as last:
            entries = self._entries_of(key)
            self._check_usable(key, entries, study, charge=charge, unit=unit, may_be_less=may_be_less)
            is_charged = bool(entries) and entries[-1].is_charge
            if not is_charged:
                self._check_other_plans(key)
                if stand_in is not None and self.status(stand_in) == "cancelled":
                    raise _cancelled(key)
            if is_charged or (entries and kind == "hold"):
                return Stored(False, self._stored(key))
            balance = self._own_balance(unit)
            # What was held has its room; what was not must leave the others theirs.
            self._check_limits(study, charge, unit=unit, besides=None if entries else [key.session])
            after = balance if kind == "hold" else balance.with_charge(charge.mu, charge.closeness)
            last = self._append(last, kind, balance=after, unit=unit, key=key, study=study, charge=charge)
            stored = self._stored(key)
            self._store(self._place_of(key), {name: value for name, value in values.items() if name not in stored})
            if kind == "charge":
                self._erase_other_plans(key)
                others = self._other_rounds(key)
                for entry in self.holds() if others else ():  # later rounds under a plan that is never charged
                    if entry.plan in others:
                        last = self._end(last, "cancel", entry)
        return Stored(True, {**values, **stored})

    def hold_all(self, holds: Sequence[Hold], study: str, joint: Charge, *, unit: str) -> Stored:
        """Set room aside for several sessions of one study, for all or for none; returns what the first one stores.

        `joint` is what they cost together. If the first is entered already, nothing is written: its room was set aside
        with that of the others.

        >>> import pathlib, tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     with Ledger.create(pathlib.Path(folder) / "a.ledger", "hospital", 1.0, 1e-6) as ledger:
        ...         keys = [SessionKey(bytes([each]) * 32, bytes(32)) for each in (1, 2)]
        ...         holds = [Hold(key, "flu", Charge(0.1, 0.0, 0.5, 1e-6)) for key in keys]
        ...         ledger.hold_all(holds, "flu", Charge(0.15, 0.0, 0.5, 1e-6), unit="record").new, ledger.spent().held
        (True, 2)
        """
        for hold in holds:
            _check_key(hold.key)
            check_text("study", hold.study)
        values = [_check_private(hold.private) for hold in holds]
        check_unit(unit)
        with self._transaction() as last:
            entries = self._entries_of(holds[0].key)
            self._check_usable(holds[0].key, entries, holds[0].study, charge=holds[0].charge, unit=unit)
            if entries:
                return Stored(False, self._stored(holds[0].key))
            for hold in holds:
                self._check_usable(hold.key, self._entries_of(hold.key), hold.study, charge=hold.charge, unit=unit)
                self._check_other_plans(hold.key)
            others = self._other_plans(holds[0].key) | self._other_rounds(holds[0].key)
            sessions = [hold.key.session for hold in holds]
            self._check_limits(study, joint, unit=unit, besides=sessions, plans_besides=others)
            for hold, private in zip(holds, values, strict=True):
                if self._entries_of(hold.key):
                    continue  # held already
                own = [hold.key.session]
                self._check_limits(hold.study, hold.charge, unit=unit, besides=own, plans_besides=others)
                balance = self._own_balance(unit)
                last = self._append(
                    last, "hold", balance=balance, unit=unit, key=hold.key, study=hold.study, charge=hold.charge
                )
                self._store(self._place_of(hold.key), private)
        return Stored(True, values[0])

    def _check_usable(
        self,
        key: SessionKey,
        entries: Sequence[Entry],
        study: str,
        *,
        charge: Charge,
        unit: str,
        may_be_less: bool = False,
    ) -> None:
        """Refuse a session that has ended, or was entered with something else."""
        if not entries:
            return
        status, first = _STATUS[entries[-1].kind], entries[0]
        if status == "settled":
            raise LedgerError(_name(key), "is finished", "start a new session")
        if status == "cancelled":
            raise _cancelled(key)
        if study != first.study:
            problem = f"is entered for study {shown(first.study)}, not {shown(study)}"
            raise LedgerError(_name(key), problem, "start a new session")
        if unit != (first.unit or self.unit):
            problem = f"is entered by {first.unit or self.unit}, not by {unit}"
            raise LedgerError(_name(key), problem, "start a new session")
        for item in fields(Charge):
            before, now = getattr(first, item.name), getattr(charge, item.name)
            if before != now and not (may_be_less and item.name == "mu" and now < before):
                raise LedgerError(_name(key), f"is entered with {item.name} {before!r}, not {now!r}", "start a new one")

    def _other_rounds(self, key: SessionKey) -> set[str]:
        """What stands for later rounds under the other plans that were entered for the session of a first round.

        One of all these plans is charged at most, with its rounds.
        """
        return {stand_in_plan(bytes.fromhex(plan)).hex() for plan in self._other_plans(key)}

    def _other_plans(self, key: SessionKey) -> set[str]:
        query = f"{self._select} WHERE session = ? AND session <> ''"
        return {Entry(*row).plan for row in self._read(query, (key.session.hex(),))} - {"", key.plan.hex()}

    def _check_other_plans(self, key: SessionKey) -> None:
        """One plan of a session can be charged: what the others would send depends on other noise."""
        if self.charged_plan(key.session) not in (None, key.plan):  # this one, perhaps by another process just now
            raise LedgerError(
                _name(key), "was charged with another plan or query", "set another number for the session"
            )

    def check_room(
        self, key: SessionKey, study: str, charge: Charge, *, unit: str, others: Collection[bytes] = ()
    ) -> None:
        """Refuse as `hold` would, and change nothing; a session that was entered already has its room.

        `others` are further sessions that the charge is for, as of `hold_all`.

        >>> import pathlib, tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     with Ledger.create(pathlib.Path(folder) / "a.ledger", "hospital", 1.0, 1e-6) as ledger:
        ...         key = SessionKey(bytes(32), bytes(32))
        ...         ledger.check_room(key, "flu", Charge(0.1, 0, 0.5, 1e-6), unit="record")
        """
        check_unit(unit)
        status = self.status(key)
        if status == "cancelled":
            raise _cancelled(key)
        if status == "unknown":
            with self._guard():
                self._check_other_plans(key)
                besides, plans = [key.session, *others], self._other_rounds(key)
                self._check_limits(study, charge, unit=unit, besides=besides, plans_besides=plans)

    def settle(self, key: SessionKey, outcome: str, keep: Mapping[str, bytes]) -> None:
        """Note how the session ended, and erase its private state except `keep`. The charge stays.

        A second call changes nothing.

        >>> import pathlib, tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     with Ledger.create(pathlib.Path(folder) / "a.ledger", "hospital", 1.0, 1e-6) as ledger:
        ...         key, cost = SessionKey(bytes(32), bytes(32)), Charge(0.1, 0, 1, 1e-6)
        ...         _ = ledger.charge(key, "flu", cost, unit="record", private={"seed": b"1"})
        ...         ledger.settle(key, "failed: no answer", {"receipt": b"2"})
        ...         ledger.private_state(key), round(ledger.spent().mu, 9)
        ({'receipt': b'2'}, 0.1)
        """
        values = _check_private(keep)
        with self._transaction() as last:
            if self.status(key) == "settled":
                return
            entry = self._charged(key)
            self._end(last, "settle", entry, outcome=shown(outcome, _OUTCOME_MAX))
            self._store(_place(entry), values)
            self._erase_other_plans(key)

    def cancel(self, key: SessionKey) -> None:
        """Give up a hold: its room is free, its private state is erased, and it is never used again.

        >>> import pathlib, tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     with Ledger.create(pathlib.Path(folder) / "a.ledger", "hospital", 1.0, 1e-6) as ledger:
        ...         key, cost = SessionKey(bytes(32), bytes(32)), Charge(0.1, 0, 1, 1e-6)
        ...         _ = ledger.hold(key, "flu", cost, unit="record", private={})
        ...         ledger.cancel(key)
        ...         ledger.charge(key, "flu", cost, unit="record", private={})
        Traceback (most recent call last):
            ...
        tpmdp.ledger.spending.LedgerError: session 0000000000000000 was cancelled: set another number for the session
        in the study
        """
        self.cancel_all(lambda: [key])

    def cancel_all(self, chosen: Callable[[], Iterable[SessionKey]]) -> None:
        """The same for several holds: all are cancelled or none. `chosen` is called when no other process can write.

        >>> import pathlib, tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     with Ledger.create(pathlib.Path(folder) / "a.ledger", "hospital", 1.0, 1e-6) as ledger:
        ...         keys = [SessionKey(bytes([each]) * 32, bytes(32)) for each in (1, 2)]
        ...         for key in keys:
        ...             _ = ledger.hold(key, "flu", Charge(0.1, 0, 1, 1e-6), unit="record", private={})
        ...         ledger.cancel_all(lambda: keys)
        ...         ledger.holds()
        []
        """
        with self._transaction() as last:
            for key in chosen():
                entries = self._entries_of(key)
                if not entries or entries[-1].kind != "hold":
                    problem = f"is {self.status(key)}, not held"
                    raise LedgerError(_name(key), problem, "nothing was changed; only a hold is cancelled")
                last = self._end(last, "cancel", entries[-1])

    def _end(self, last: Entry, kind: str, entry: Entry, outcome: str = "") -> Entry:
        """Append the entry that ends a session, and erase its private state."""
        key = SessionKey(bytes.fromhex(entry.session), bytes.fromhex(entry.plan))
        unit = entry.unit or self.unit
        ended = self._append(
            last, kind, balance=self._own_balance(unit), unit=unit, key=key, study=entry.study, outcome=outcome
        )
        self._connection.execute("DELETE FROM private WHERE session = ?", (_place(entry),))
        return ended

    def status(self, key: SessionKey) -> Status:
        """How far the session has come with this plan.

        >>> import pathlib, tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     with Ledger.create(pathlib.Path(folder) / "a.ledger", "hospital", 1.0, 1e-6) as ledger:
        ...         ledger.status(SessionKey(bytes(32), bytes(32)))
        'unknown'
        """
        _check_key(key)
        with self._guard():
            entries = self._entries_of(key)
        return _STATUS[entries[-1].kind] if entries else "unknown"

    def entries_of(self, key: SessionKey) -> list[Entry]:
        """The entries of a session with this plan, oldest first.

        >>> import pathlib, tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     with Ledger.create(pathlib.Path(folder) / "a.ledger", "hospital", 1.0, 1e-6) as ledger:
        ...         ledger.entries_of(SessionKey(bytes(32), bytes(32)))
        []
        """
        _check_key(key)
        with self._guard():
            return self._entries_of(key)

    # Private state of a session, erased when it is settled or cancelled, or another plan is charged -------------------

    def keep(self, key: SessionKey, name: str, value: bytes) -> bytes:
        """Store private state of a session under way unless the name is taken; returns what is stored.

        >>> import pathlib, tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     with Ledger.create(pathlib.Path(folder) / "a.ledger", "hospital", 1.0, 1e-6) as ledger:
        ...         key = SessionKey(bytes(32), bytes(32))
        ...         _ = ledger.hold(key, "flu", Charge(0, 0, 1, 1e-6), unit="record", private={})
        ...         ledger.keep(key, "seed", b"1"), ledger.keep(key, "seed", b"2")
        (b'1', b'1')
        """
        return self.keep_all(key, {name: value})[name]

    def keep_all(self, key: SessionKey, values: Mapping[str, bytes]) -> dict[str, bytes]:
        """The same for several names: all are stored or none.

        >>> import pathlib, tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     with Ledger.create(pathlib.Path(folder) / "a.ledger", "hospital", 1.0, 1e-6) as ledger:
        ...         key = SessionKey(bytes(32), bytes(32))
        ...         _ = ledger.hold(key, "flu", Charge(0, 0, 1, 1e-6), unit="record", private={"a": b"1"})
        ...         ledger.keep_all(key, {"a": b"2", "b": b"2"})
        {'a': b'1', 'b': b'2'}
        """
        wanted = _check_private(values)
        with self._guard():
            stored = self._stored_under(_place(self._under_way(key)), wanted)
        if len(stored) == len(wanted):  # nothing to write
            return stored
        with self._transaction():
            place = _place(self._under_way(key))
            stored = self._stored_under(place, wanted)
            self._store(place, {name: value for name, value in wanted.items() if name not in stored})
        return {**wanted, **stored}

    def replace_unless(self, key: SessionKey, values: Mapping[str, bytes], unless: str) -> dict[str, bytes]:
        """Store values in place of what is stored, unless the name `unless` is taken; returns what is stored then.

        >>> import pathlib, tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     with Ledger.create(pathlib.Path(folder) / "a.ledger", "hospital", 1.0, 1e-6) as ledger:
        ...         key = SessionKey(bytes(32), bytes(32))
        ...         _ = ledger.hold(key, "flu", Charge(0, 0, 1, 1e-6), unit="record", private={"a": b"1"})
        ...         first = ledger.replace_unless(key, {"a": b"2"}, unless="agreed")
        ...         _ = ledger.keep(key, "agreed", b"")
        ...         first, ledger.replace_unless(key, {"a": b"3"}, unless="agreed")
        ({'a': b'2'}, {'a': b'2', 'agreed': b''})
        """
        wanted = _check_private(values)
        with self._transaction():
            place = _place(self._under_way(key))
            if not self._stored_under(place, [unless]):
                rows = [(place, name) for name in wanted]
                self._connection.executemany("DELETE FROM private WHERE session = ? AND name = ?", rows)
                self._store(place, wanted)
            return self._stored(key)

    def private_state(self, key: SessionKey) -> dict[str, bytes]:
        """The private state of the session; empty if there is none.

        >>> import pathlib, tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     with Ledger.create(pathlib.Path(folder) / "a.ledger", "hospital", 1.0, 1e-6) as ledger:
        ...         ledger.private_state(SessionKey(bytes(32), bytes(32)))
        {}
        """
        _check_key(key)
        with self._guard():
            return self._stored(key)

    def private_names(self, key: SessionKey) -> list[str]:
        """The names in the private state of the session.

        >>> import pathlib, tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     with Ledger.create(pathlib.Path(folder) / "a.ledger", "hospital", 1.0, 1e-6) as ledger:
        ...         key, cost = SessionKey(bytes(32), bytes(32)), Charge(0, 0, 1, 1e-6)
        ...         _ = ledger.hold(key, "flu", cost, unit="record", private={"a": b"1", "b": b"2"})
        ...         ledger.discard(key, ["a"])
        ...         ledger.private_names(key)
        ['b']
        """
        _check_key(key)
        with self._guard():
            place = self._place_of(key)
            return [row[0] for row in self._read("SELECT name FROM private WHERE session = ? ORDER BY name", (place,))]

    def discard(self, key: SessionKey, names: Sequence[str]) -> None:
        """Erase private state that is no longer needed, such as the pads of an attempt that was given up."""
        with self._transaction():
            rows = [(self._place_of(key), name) for name in names]
            self._connection.executemany("DELETE FROM private WHERE session = ? AND name = ?", rows)

    def erase_other_plans(self, sessions: Iterable[bytes]) -> None:
        """Erase what is stored for plans of these sessions that can never be charged, since another one was.

        A charge does that itself; this is for ledgers in which older versions left something.
        """
        with self._transaction():
            for session in sessions:
                plan = self.charged_plan(session)
                if plan:
                    self._erase_other_plans(SessionKey(session, plan))

    def _erase_other_plans(self, key: SessionKey) -> None:
        session = key.session.hex()
        among = (session, f"{session}g", self._place_of(key))  # "g" comes after all digits of a plan
        self._connection.execute("DELETE FROM private WHERE session > ? AND session < ? AND session <> ?", among)

    # Notes of other parties' ledgers ----------------------------------------------------------------------------------

    def witnessed(self, public_keys: Iterable[bytes]) -> dict[bytes, bytes]:
        """The notes of other parties that this party keeps, by public key; nothing for those of whom it has none."""
        names = json.dumps([public_key.hex() for public_key in public_keys])
        query = "SELECT name, value FROM private WHERE session = ? AND name IN (SELECT value FROM json_each(?))"
        return {bytes.fromhex(name): bytes(value) for name, value in self._read(query, (_WITNESSED, names))}

    def keep_witnessed(self, notes: Mapping[bytes, bytes]) -> None:
        """Keep notes of other parties, by public key, in place of those before."""
        with self._transaction():
            rows = [(_WITNESSED, public_key.hex(), each) for public_key, each in notes.items()]
            self._connection.executemany("INSERT OR REPLACE INTO private VALUES (?, ?, ?)", rows)

    def has_entry(self, number: int, entry_hash: str) -> bool:
        """Whether the entry with this number has this hash."""
        return bool(self._read("SELECT 1 FROM entries WHERE number = ? AND hash = ?", (number, entry_hash)))

    # Rows -------------------------------------------------------------------------------------------------------------

    def _entries_of(self, key: SessionKey) -> list[Entry]:
        """The entries of a session with this plan. Before format 2 the plan is in the private state only."""
        query = f"{self._select} WHERE session = ? AND session <> '' ORDER BY number"
        entries = [Entry(*row) for row in self._read(query, (key.session.hex(),))]
        plan = self.charged_plan(key.session)
        return [entry for entry in entries if entry.plan == key.plan.hex() or (not entry.plan and plan == key.plan)]

    def _charged(self, key: SessionKey) -> Entry:
        entries = self._entries_of(key)
        if not entries or not entries[-1].is_charge:
            raise LedgerError(_name(key), f"is {self.status(key)}, not charged", "charge it first")
        return entries[-1]

    def _under_way(self, key: SessionKey) -> Entry:
        entries = self._entries_of(key)
        if not entries:
            raise LedgerError(_name(key), "is not in the ledger", "hold or charge it first")
        status = _STATUS[entries[-1].kind]
        if status not in ("held", "charged"):
            raise LedgerError(_name(key), "is finished", "start a new session")
        if status == "held":
            self._check_other_plans(key)  # whose charge has erased what was stored
        return entries[-1]

    def _place_of(self, key: SessionKey) -> str:
        entries = self._entries_of(key)
        return _place(entries[-1]) if entries else key.session.hex() + key.plan.hex()

    def _store(self, place: str, private: Mapping[str, bytes]) -> None:
        rows = [(place, name, value) for name, value in private.items()]
        self._connection.executemany("INSERT INTO private VALUES (?, ?, ?)", rows)

    def _stored(self, key: SessionKey) -> dict[str, bytes]:
        query = "SELECT name, value FROM private WHERE session = ? ORDER BY name"
        return dict(self._read(query, (self._place_of(key),)))


def _place(entry: Entry) -> str:
    """Where the private state of an entry's session lies; before format 2 under the session alone."""
    return entry.session + entry.plan
