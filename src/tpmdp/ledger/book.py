"""What one party has spent on privacy: the account in its ledger file.

The ledger never under-charges. A session is reserved before its first message leaves and never refunded; every sum is
rounded up; a reservation that returns is on the disk. Sessions k with mu_k and closeness tau_k promise together, at the
limit's delta, the epsilon of `promise`: epsilon_of(sqrt(sum mu_k^2), delta e^(-sum tau_k)) + 2 sum tau_k.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Final, Literal

from tpmdp.errors import InputError, shown
from tpmdp.ledger.entry import SESSION_BYTES, Entry
from tpmdp.ledger.file import SELECT, LedgerFile, check_text
from tpmdp.ledger.remaining import room_left, totals_with
from tpmdp.ledger.spending import Charge, LedgerError, OverspendError, Spent, check_limit, promise, square_up

_OUTCOME_MAX: Final = 500
Status = Literal["unknown", "reserved", "settled"]


@dataclass(frozen=True)
class Reservation:
    """A session's place in the ledger. `private` is what was stored first: a retry must use that, not its own.

    >>> Reservation(True, {"seed": b"secret"}, 0.5)
    Reservation(new=True, epsilon_after=0.5)
    """

    new: bool
    private: dict[str, bytes] = field(repr=False)
    epsilon_after: float


def _key(session: bytes) -> str:
    if not isinstance(session, bytes | bytearray) or len(session) != SESSION_BYTES:
        value = f"{len(session)} bytes" if isinstance(session, bytes | bytearray) else type(session).__name__
        raise InputError("session", value, f"must be {SESSION_BYTES} bytes", "use the session's id")
    return bytes(session).hex()


def _private(values: Mapping[str, bytes]) -> dict[str, bytes]:
    for name, value in values.items():
        check_text("name of private state", name)
        if not isinstance(value, bytes | bytearray | memoryview):
            raise InputError(f"private state {name}", type(value).__name__, "must be bytes", "encode it first")
    return {name: bytes(value) for name, value in values.items()}


class Ledger(LedgerFile):
    """One party's account: what its sessions have cost, and the private state of those under way.

    >>> import pathlib, tempfile
    >>> folder = tempfile.TemporaryDirectory()
    >>> with Ledger.create(pathlib.Path(folder.name) / "a.ledger", "hospital", epsilon=1.0, delta=1e-6) as ledger:
    ...     session = bytes(32)
    ...     before = ledger.reserve(session, "flu", Charge(0.1, 1e-50, 0.5, 1e-6), "record", {"seed": b"1"})
    ...     again = ledger.reserve(session, "flu", Charge(0.1, 1e-50, 0.5, 1e-6), "record", {"seed": b"2"})
    ...     ledger.settle(session, "answer", {})
    ...     before.new, again.new, again.private, ledger.status(session), ledger.spent().sessions
    (True, False, {'seed': b'1'}, 'settled', 1)
    >>> folder.cleanup()
    """

    # Sessions ---------------------------------------------------------------------------------------------------------

    def reserve(
        self, session: bytes, study: str, charge: Charge, unit: str, private: Mapping[str, bytes]
    ) -> Reservation:
        """Charge the session and store its private state; once this returns, both are on the disk.

        A session that is reserved again is not charged again, and gets the private state stored first.

        >>> import pathlib, tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     with Ledger.create(pathlib.Path(folder) / "a.ledger", "hospital", 1.0, 1e-6) as ledger:
        ...         ledger.reserve(bytes(32), "flu", Charge(0.9, 0, 5, 1e-6), "record", {})  # doctest: +ELLIPSIS
        Traceback (most recent call last):
            ...
        tpmdp.ledger.spending.OverspendError: study flu would cost hospital epsilon 4.33618 and make ...
        """
        key, stored = _key(session), _private(private)
        check_text("study", study)
        if unit != self.unit:
            problem = f"protects one {shown(unit)}, and the ledger of {shown(self.party)} counts by {self.unit}"
            raise LedgerError(f"study {shown(study)}", problem, "use a ledger made with that --unit")
        with self._transaction() as last:
            reserved = self._find(key, "reserve")
            if reserved is not None:
                self._check_retry(reserved, study, charge)
                now = promise(last.mu_squared_total, last.closeness_total, last.limit_delta)
                return Reservation(False, self._stored(key), now)
            after = self._after(last, study, charge)
            self._append(last, "reserve", key, study=study, charge=charge)
            self._store(key, stored)
        return Reservation(True, stored, after)

    def _after(self, last: Entry, study: str, charge: Charge) -> float:
        """What would be spent with this charge; refused if that is over the limit."""
        after = promise(*totals_with(last, charge.mu, charge.closeness), last.limit_delta)
        if not after <= last.limit_epsilon:
            alone = promise(square_up(charge.mu), charge.closeness, last.limit_delta)
            raise OverspendError(self.path, self.party, study, cost=alone, after=after, spent=self._spent(last))
        return after

    def check_room(self, session: bytes, study: str, charge: Charge) -> None:
        """Refuse as `reserve` would, and change nothing; a session that is reserved already has its room.

        >>> import pathlib, tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     with Ledger.create(pathlib.Path(folder) / "a.ledger", "hospital", 1.0, 1e-6) as ledger:
        ...         ledger.check_room(bytes(32), "flu", Charge(0.1, 0, 0.5, 1e-6))
        """
        if self.status(session) == "unknown":
            with self._guard():
                self._after(self._last(), study, charge)

    def _check_retry(self, reserved: Entry, study: str, charge: Charge) -> None:
        name = f"session {reserved.session[:16]}"
        if self._find(reserved.session, "settle") is not None:
            raise LedgerError(name, "is finished", "start a new session")
        if study != reserved.study:
            problem = f"is reserved for study {shown(reserved.study)}, not {shown(study)}"
            raise LedgerError(name, problem, "start a new session")
        for item in fields(Charge):
            before, now = getattr(reserved, item.name), getattr(charge, item.name)
            if before != now:
                raise LedgerError(name, f"is reserved with {item.name} {before!r}, not {now!r}", "start a new session")

    def settle(self, session: bytes, outcome: str, keep: Mapping[str, bytes]) -> None:
        """Note how the session ended, and erase its private state except `keep`. The charge stays.

        A second call changes nothing.

        >>> import pathlib, tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     with Ledger.create(pathlib.Path(folder) / "a.ledger", "hospital", 1.0, 1e-6) as ledger:
        ...         _ = ledger.reserve(bytes(32), "flu", Charge(0.1, 0, 1, 1e-6), "record", {"seed": b"1"})
        ...         ledger.settle(bytes(32), "failed: no answer", {"receipt": b"2"})
        ...         ledger.private_state(bytes(32)), round(ledger.spent().mu, 9)
        ({'receipt': b'2'}, 0.1)
        """
        key, remaining = _key(session), _private(keep)
        with self._transaction() as last:
            reserved = self._find(key, "reserve")
            if reserved is None:
                raise LedgerError(f"session {key[:16]}", "is not reserved", "reserve it first")
            if self._find(key, "settle") is not None:
                return
            self._append(last, "settle", key, study=reserved.study, outcome=shown(outcome, _OUTCOME_MAX))
            self._connection.execute("DELETE FROM private WHERE session = ?", (key,))
            self._store(key, remaining)

    def status(self, session: bytes) -> Status:
        """Whether the session is unknown, reserved or settled.

        >>> import pathlib, tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     with Ledger.create(pathlib.Path(folder) / "a.ledger", "hospital", 1.0, 1e-6) as ledger:
        ...         ledger.status(bytes(32))
        'unknown'
        """
        kinds = {
            row[0]
            for row in self._read("SELECT kind FROM entries WHERE session = ? AND session <> ''", (_key(session),))
        }
        return "settled" if "settle" in kinds else "reserved" if kinds else "unknown"

    # Private state of a session, erased when it is settled ------------------------------------------------------------

    def keep(self, session: bytes, name: str, value: bytes) -> bytes:
        """Store private state of a reserved session unless the name is taken; returns what is stored.

        >>> import pathlib, tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     with Ledger.create(pathlib.Path(folder) / "a.ledger", "hospital", 1.0, 1e-6) as ledger:
        ...         _ = ledger.reserve(bytes(32), "flu", Charge(0, 0, 1, 1e-6), "record", {})
        ...         ledger.keep(bytes(32), "seed", b"1"), ledger.keep(bytes(32), "seed", b"2")
        (b'1', b'1')
        """
        return self.keep_all(session, {name: value})[name]

    def keep_all(self, session: bytes, values: Mapping[str, bytes]) -> dict[str, bytes]:
        """The same for several names: all are stored or none.

        >>> import pathlib, tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     with Ledger.create(pathlib.Path(folder) / "a.ledger", "hospital", 1.0, 1e-6) as ledger:
        ...         _ = ledger.reserve(bytes(32), "flu", Charge(0, 0, 1, 1e-6), "record", {"a": b"1"})
        ...         ledger.keep_all(bytes(32), {"a": b"2", "b": b"2"})
        {'a': b'1', 'b': b'2'}
        """
        key, wanted = _key(session), _private(values)
        stored = self._stored_under(key, wanted)
        if len(stored) == len(wanted):  # nothing to write
            self._check_open(key)
            return stored
        with self._transaction():
            self._check_open(key)
            stored = self._stored_under(key, wanted)
            self._store(key, {name: value for name, value in wanted.items() if name not in stored})
        return {**wanted, **stored}

    def private_state(self, session: bytes) -> dict[str, bytes]:
        """The private state of the session; empty if there is none.

        >>> import pathlib, tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     with Ledger.create(pathlib.Path(folder) / "a.ledger", "hospital", 1.0, 1e-6) as ledger:
        ...         ledger.private_state(bytes(32))
        {}
        """
        return self._stored(_key(session))

    def private_names(self, session: bytes) -> list[str]:
        """The names in the private state of the session.

        >>> import pathlib, tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     with Ledger.create(pathlib.Path(folder) / "a.ledger", "hospital", 1.0, 1e-6) as ledger:
        ...         _ = ledger.reserve(bytes(32), "flu", Charge(0, 0, 1, 1e-6), "record", {"a": b"1", "b": b"2"})
        ...         ledger.discard(bytes(32), ["a"])
        ...         ledger.private_names(bytes(32))
        ['b']
        """
        rows = self._read("SELECT name FROM private WHERE session = ? ORDER BY name", (_key(session),))
        return [row[0] for row in rows]

    def discard(self, session: bytes, names: Sequence[str]) -> None:
        """Erase private state that is no longer needed, such as the pads of an attempt that was given up."""
        key = _key(session)
        with self._transaction():
            for name in names:
                self._connection.execute("DELETE FROM private WHERE session = ? AND name = ?", (key, name))

    # The account ------------------------------------------------------------------------------------------------------

    def set_limit(self, epsilon: float, delta: float) -> None:
        """A new limit for all past and future sessions. If more is spent already, every new session is refused.

        >>> import pathlib, tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     with Ledger.create(pathlib.Path(folder) / "a.ledger", "hospital", 1.0, 1e-6) as ledger:
        ...         ledger.set_limit(2.0, 1e-7)
        ...         ledger.spent().limit_epsilon
        2.0
        """
        limit = check_limit(epsilon, delta)
        with self._transaction() as last:
            self._append(last, "limit", limit=limit)

    def spent(self) -> Spent:
        """What is spent and what is left.

        >>> import pathlib, tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     with Ledger.create(pathlib.Path(folder) / "a.ledger", "hospital", 1.0, 1e-6) as ledger:
        ...         spent = ledger.spent()
        ...         print(f"{spent.epsilon} {spent.left:.6f}")
        0.0 1.000000
        """
        with self._guard():
            return self._spent(self._last())

    def _spent(self, last: Entry) -> Spent:
        query = "SELECT count(*) FROM entries WHERE kind = 'reserve' AND session <> '' AND number <= ?"
        sessions = self._read(query, (last.number,))[0][0]
        mu = math.nextafter(math.sqrt(last.mu_squared_total), math.inf) if last.mu_squared_total else 0.0
        epsilon = promise(last.mu_squared_total, last.closeness_total, last.limit_delta)
        mu_left, left = room_left(last)
        return Spent(
            mu,
            last.closeness_total,
            sessions,
            epsilon=epsilon,
            limit_epsilon=last.limit_epsilon,
            limit_delta=last.limit_delta,
            mu_left=mu_left,
            left=left,
        )

    # Rows -------------------------------------------------------------------------------------------------------------

    def _find(self, key: str, kind: str) -> Entry | None:
        query = f"{SELECT} WHERE session = ? AND kind = ? AND session <> ''"
        rows = self._read(query, (key, kind))
        return Entry(*rows[0]) if rows else None

    def _check_open(self, key: str) -> None:
        if self._find(key, "reserve") is None:
            raise LedgerError(f"session {key[:16]}", "is not reserved", "reserve it first")
        if self._find(key, "settle") is not None:
            raise LedgerError(f"session {key[:16]}", "is finished", "start a new session")

    def _store(self, key: str, private: Mapping[str, bytes]) -> None:
        rows = [(key, name, value) for name, value in private.items()]
        self._connection.executemany("INSERT INTO private VALUES (?, ?, ?)", rows)

    def _stored(self, key: str) -> dict[str, bytes]:
        return dict(self._read("SELECT name, value FROM private WHERE session = ? ORDER BY name", (key,)))

    def _stored_under(self, key: str, names: Mapping[str, bytes]) -> dict[str, bytes]:
        places = ", ".join("?" * len(names))
        query = f"SELECT name, value FROM private WHERE session = ? AND name IN ({places})"  # noqa: S608
        return dict(self._read(query, (key, *names)))
