"""What one party has spent on privacy: a durable, append-only, hash-chained ledger in one SQLite file.

The ledger never under-charges. A session is reserved before its first message leaves and never refunded; every sum is
rounded up; a reservation that returns is on the disk. Sessions k with mu_k and closeness tau_k promise together, at the
limit's delta, the epsilon of `promise`: epsilon_of(sqrt(sum mu_k^2), delta e^(-sum tau_k)) + 2 sum tau_k.

Each entry's hash is SHA-256 over the hash before it and the entry's fields as JSON (keys sorted, no blanks, numbers as
`float.hex`); the first entry's predecessor is the hash of the ledger's random id, party and unit. A whole chain can be
rewritten by whoever may write the file: only a head noted elsewhere (`Ledger.verify(head=...)`) shows that.
"""

from __future__ import annotations

import math
import os
import secrets
import sqlite3
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, fields
from datetime import UTC, datetime
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Literal, Self

from tpmdp._util.files import check_output, readable
from tpmdp._util.progress import Progress
from tpmdp.errors import FileError, InputError, shown
from tpmdp.ledger.check import Verification
from tpmdp.ledger.entry import COLUMNS, SESSION_BYTES, Entry, entry_hash, origin_hash
from tpmdp.ledger.file import APPLICATION, SCHEMA, VERSION, connect, exists_error, file_error
from tpmdp.ledger.room import room_left, totals_with
from tpmdp.ledger.spending import (
    Charge,
    LedgerError,
    OverspendError,
    Spent,
    check_limit,
    promise,
    square_up,
)

UNITS: Final = ("record", "party")
TEXT_MAX: Final = 200  # characters of a party's or study's name
_SIZE_MAX: Final = 1 << 44
_OUTCOME_MAX: Final = 500
_PAGE: Final = 2048  # entries read at a time: between pages no lock is held, so a slow reader delays nobody
Status = Literal["unknown", "reserved", "settled"]
_SELECT: Final = f"SELECT {', '.join(COLUMNS)} FROM entries"  # noqa: S608 - our own column names
_INSERT: Final = f"INSERT INTO entries VALUES ({', '.join('?' * len(COLUMNS))})"  # noqa: S608


@dataclass(frozen=True)
class Reservation:
    """A session's place in the ledger. `private` is what was stored first: a retry must use that, not its own.

    >>> Reservation(True, {"seed": b"secret"}, 0.5)
    Reservation(new=True, epsilon_after=0.5)
    """

    new: bool
    private: dict[str, bytes] = field(repr=False)
    epsilon_after: float


def _text(name: str, value: object) -> str:
    if not isinstance(value, str) or not value.strip() or len(value) > TEXT_MAX or not value.isprintable():
        raise InputError(name, value, f"must be 1 to {TEXT_MAX} printable characters", "give a plain name")
    return value


def _settled_status(path: Path) -> os.stat_result:
    """The status of a file, after a moment if another process is just giving it its name."""
    for _ in range(20):
        status = path.stat()
        if status.st_nlink == 1:
            return status
        time.sleep(0.05)
    for other in path.parent.glob(".tpmdp-*.ledger"):  # left by a process that was killed while it made the ledger
        with suppress(OSError):
            if other.samefile(path):
                other.unlink()
    return path.stat()


def _key(session: bytes) -> str:
    if not isinstance(session, bytes | bytearray) or len(session) != SESSION_BYTES:
        found = f"{len(session)} bytes" if isinstance(session, bytes | bytearray) else type(session).__name__
        raise InputError("session", found, f"must be {SESSION_BYTES} bytes", "use the session's id")
    return bytes(session).hex()


def _private(values: Mapping[str, bytes]) -> dict[str, bytes]:
    for name, value in values.items():
        _text("name of private state", name)
        if not isinstance(value, bytes | bytearray | memoryview):
            raise InputError(f"private state {name}", type(value).__name__, "must be bytes", "encode it first")
    return {name: bytes(value) for name, value in values.items()}


def _now() -> str:
    return datetime.fromtimestamp(time.time(), UTC).isoformat(timespec="seconds")


class Ledger:
    """One party's ledger; a context manager. Threads may share it; a forked process opens its own.

    >>> import tempfile
    >>> folder = tempfile.TemporaryDirectory()
    >>> with Ledger.create(Path(folder.name) / "a.ledger", "hospital", epsilon=1.0, delta=1e-6) as ledger:
    ...     session = bytes(32)
    ...     before = ledger.reserve(session, "flu", Charge(0.1, 1e-50, 0.5, 1e-6), "record", {"seed": b"1"})
    ...     again = ledger.reserve(session, "flu", Charge(0.1, 1e-50, 0.5, 1e-6), "record", {"seed": b"2"})
    ...     ledger.settle(session, "answer", {})
    ...     before.new, again.new, again.private, ledger.status(session), ledger.spent().sessions
    (True, False, {'seed': b'1'}, 'settled', 1)
    >>> folder.cleanup()
    """

    def __init__(self, path: Path, connection: sqlite3.Connection) -> None:
        """For `create` and `open`; takes over the connection."""
        self.path: Final = path
        self.party = self.unit = ""
        self._origin = ""
        self._connection: Final = connection
        self._lock: Final = threading.RLock()
        self._process: Final = os.getpid()
        self._file: Final = self._identity()

    def __repr__(self) -> str:
        return f"Ledger({str(self.path)!r}, party={self.party!r})"

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Let go of the file; may be called twice."""
        with self._lock:
            self._connection.close()

    @classmethod
    def create(cls, path: Path, party: str, epsilon: float, delta: float, unit: str = "record") -> Self:
        """A new ledger with this limit, for its owner's eyes only (mode 0600); refuses a file that exists.

        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     with Ledger.create(Path(folder) / "a.ledger", "hospital", 1.0, 1e-6) as ledger:
        ...         ledger.party, ledger.unit, oct(ledger.path.stat().st_mode & 0o777)
        ('hospital', 'record', '0o600')
        """
        _text("party", party)
        if unit not in UNITS:
            raise InputError("unit", unit, "must be record or party", "say whose data one budget protects")
        limit = check_limit(epsilon, delta)
        check_output(path)
        if os.path.lexists(path):
            raise exists_error(path)
        # Made under another name and then linked: nobody ever sees a ledger that is not whole.
        try:
            handle, name = tempfile.mkstemp(dir=path.parent, prefix=".tpmdp-", suffix=".ledger")
            os.close(handle)
            os.chmod(name, 0o600)  # whatever the umask took away
        except OSError as error:
            problem = f"cannot be written ({error.strerror or error})"
            raise FileError(path, problem, "check the disk and the rights of the folder") from None
        try:
            with cls(Path(name), connect(Path(name))) as made:
                made._fill(party, unit, limit)
            os.link(name, path)
        except FileExistsError:
            raise exists_error(path) from None
        except FileError as error:
            raise FileError(path, error.problem, error.remedy) from None
        except OSError as error:
            problem = f"cannot be written ({error.strerror or error})"
            raise FileError(path, problem, "use a disk that knows hard links") from None
        finally:
            for leftover in (Path(name), Path(f"{os.path.realpath(name)}-journal")):
                with suppress(OSError):
                    leftover.unlink()
        return cls.open(path)

    @classmethod
    def open(cls, path: Path) -> Self:
        """The ledger in this file, after a quick check of its first and last entry; `verify` checks them all.

        >>> Ledger.open(Path("no.ledger"))
        Traceback (most recent call last):
            ...
        tpmdp.errors.FileError: no.ledger does not exist: check the path, or make one with tpmdp ledger create
        """
        if not os.path.lexists(path):
            raise FileError(path, "does not exist", "check the path, or make one with tpmdp ledger create")
        # Only looked at, never opened by us: closing a second handle would drop SQLite's locks in this process.
        with readable(path, _SIZE_MAX) as size:
            status = _settled_status(path)
            if size == 0:
                raise FileError(path, "is empty, not a ledger", "name a file made by tpmdp ledger create")
            if os.name == "posix" and status.st_mode & 0o077:
                raise FileError(path, f"is open to others (mode {status.st_mode & 0o777:04o})", f"chmod 600 {path}")
            if status.st_nlink > 1:
                # Under its other name a crash half-way could not be undone: the journal goes by the file's name.
                raise FileError(path, "has a second name (hard link)", "remove that link, or make a copy instead")
        ledger = cls(path, connect(path))
        try:
            ledger._load()
        except BaseException:
            ledger.close()
            raise
        return ledger

    def _fill(self, party: str, unit: str, limit: tuple[float, float]) -> None:
        """Make tables and the first entry, all at once."""
        identity = secrets.token_hex(16)
        with self._guard():
            # All or nothing, these two settings included: they lie in the file's first page.
            self._connection.execute("BEGIN IMMEDIATE")
            self._connection.execute(f"PRAGMA application_id={APPLICATION}")
            self._connection.execute(f"PRAGMA user_version={VERSION}")
            for statement in SCHEMA:
                self._connection.execute(statement)
            self._connection.execute("INSERT INTO ledger VALUES (?, ?, ?)", (identity, party, unit))
            start = Entry(
                0, "", "", "", "", 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, *limit, "", "", origin_hash(identity, party, unit)
            )
            self._append(start, "open")
            self._connection.execute("COMMIT")

    def _load(self) -> None:
        """Check that this is a ledger of our version, and its first and last entry."""
        with self._guard():
            found = self._connection.execute("PRAGMA application_id").fetchone()[0]
            version = self._connection.execute("PRAGMA user_version").fetchone()[0]
            if found != APPLICATION:
                raise FileError(self.path, "is not a ledger", "name a file made by tpmdp ledger create")
            if version != VERSION:
                problem = f"has format {version}, and this tpmdp reads format {VERSION}"
                raise FileError(self.path, problem, "use the tpmdp that wrote it")
            mode = self._connection.execute("PRAGMA journal_mode=DELETE").fetchone()[0]
            if mode != "delete":
                raise FileError(self.path, f"is in journal mode {mode}", "end the process that holds it")
            owners = self._connection.execute("SELECT id, party, unit FROM ledger").fetchall()
            if len(owners) != 1:
                raise self._altered(1, "has no owner")
            identity, self.party, self.unit = owners[0]
            self._origin = origin_hash(identity, self.party, self.unit)
            first = self._connection.execute(f"{_SELECT} ORDER BY number LIMIT 1").fetchone()
            if first is None or first[0] != 1 or first[-2] != self._origin or first[-1] != entry_hash(first):
                raise self._altered(1, "does not match its hash")
            self._last()

    @contextmanager
    def _guard(self) -> Iterator[None]:
        """Alone in this process; what SQLite complains about becomes one line, and an open transaction is undone."""
        if os.getpid() != self._process:
            raise LedgerError("the ledger", "was opened before this process was forked", "open it again")
        with self._lock:
            try:
                yield
            except BaseException as error:
                with suppress(sqlite3.Error):
                    if self._connection.in_transaction:
                        self._connection.execute("ROLLBACK")
                if isinstance(error, sqlite3.Error):
                    raise file_error(self.path, error) from None
                raise

    @contextmanager
    def _transaction(self) -> Iterator[Entry]:
        """One writer at a time among all processes; yields the last entry, and commits when the block succeeds."""
        with self._guard():
            self._connection.execute("BEGIN IMMEDIATE")
            if self._identity() != self._file:
                raise FileError(self.path, "was moved or replaced while in use", "open the ledger again")
            yield self._last()
            self._connection.execute("COMMIT")

    def _identity(self) -> tuple[int, int]:
        try:
            status = self.path.stat()
        except OSError:
            return (-1, -1)
        return status.st_dev, status.st_ino

    def _read(self, query: str, values: Sequence[object] = ()) -> list[tuple[Any, ...]]:
        with self._guard():
            return self._connection.execute(query, values).fetchall()

    def _last(self) -> Entry:
        row = self._connection.execute(f"{_SELECT} ORDER BY number DESC LIMIT 1").fetchone()
        if row is None:
            raise self._altered(1, "is missing")
        if row[-1] != entry_hash(row):
            raise self._altered(row[0], "does not match its hash")
        return Entry(*row)

    def _find(self, key: str, kind: str) -> Entry | None:
        query = f"{_SELECT} WHERE session = ? AND kind = ? AND session <> ''"
        rows = self._read(query, (key, kind))
        return Entry(*rows[0]) if rows else None

    def _append(
        self,
        last: Entry,
        kind: str,
        session: str = "",
        study: str = "",
        charge: Charge | None = None,
        limit: tuple[float, float] | None = None,
        outcome: str = "",
    ) -> Entry:
        """Write the entry after `last`, within a transaction."""
        cost = charge or Charge(0.0, 0.0, 0.0, 0.0)
        mu_squared, closeness = totals_with(last, cost.mu, cost.closeness)
        row: list[Any] = [last.number + 1, kind, _now(), session, study]
        row += [cost.mu, cost.closeness, cost.epsilon, cost.delta, mu_squared, closeness]
        row += [*(limit or (last.limit_epsilon, last.limit_delta)), outcome, last.hash, ""]
        row[-1] = entry_hash(row)
        self._connection.execute(_INSERT, row)
        return Entry(*row)

    def _store(self, key: str, private: Mapping[str, bytes]) -> None:
        rows = [(key, name, value) for name, value in private.items()]
        self._connection.executemany("INSERT INTO private VALUES (?, ?, ?)", rows)

    def _stored(self, key: str) -> dict[str, bytes]:
        return dict(self._read("SELECT name, value FROM private WHERE session = ? ORDER BY name", (key,)))

    def reserve(
        self, session: bytes, study: str, charge: Charge, unit: str, private: Mapping[str, bytes]
    ) -> Reservation:
        """Charge the session and keep its private state; once this returns, both are on the disk.

        The same session again is not charged again, and gets the private state stored first.

        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     with Ledger.create(Path(folder) / "a.ledger", "hospital", 1.0, 1e-6) as ledger:
        ...         ledger.reserve(bytes(32), "flu", Charge(0.9, 0, 5, 1e-6), "record", {})  # doctest: +ELLIPSIS
        Traceback (most recent call last):
            ...
        tpmdp.ledger.spending.OverspendError: study flu would cost hospital epsilon 4.33618 and make ...
        """
        key, stored = _key(session), _private(private)
        _text("study", study)
        if unit != self.unit:
            problem = f"protects one {shown(unit)}, and the ledger of {shown(self.party)} counts by {self.unit}"
            raise LedgerError(f"study {shown(study)}", problem, "use a ledger made with that --unit")
        with self._transaction() as last:
            found = self._find(key, "reserve")
            if found is not None:
                self._check_retry(found, study, charge)
                now = promise(last.mu_squared_total, last.closeness_total, last.limit_delta)
                return Reservation(False, self._stored(key), now)
            after = self._after(last, study, charge)
            self._append(last, "reserve", key, study, charge)
            self._store(key, stored)
        return Reservation(True, stored, after)

    def _after(self, last: Entry, study: str, charge: Charge) -> float:
        """What would be spent with this charge; refused where that is over the limit."""
        after = promise(*totals_with(last, charge.mu, charge.closeness), last.limit_delta)
        if not after <= last.limit_epsilon:
            alone = promise(square_up(charge.mu), charge.closeness, last.limit_delta)
            raise OverspendError(self.path, self.party, study, alone, after, self._spent(last))
        return after

    def check_room(self, session: bytes, study: str, charge: Charge) -> None:
        """Refuse as `reserve` would, and change nothing; a session that is known has its room.

        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     with Ledger.create(Path(folder) / "a.ledger", "hospital", 1.0, 1e-6) as ledger:
        ...         ledger.check_room(bytes(32), "flu", Charge(0.1, 0, 0.5, 1e-6))
        """
        if self.status(session) == "unknown":
            with self._guard():
                self._after(self._last(), study, charge)

    def _check_retry(self, found: Entry, study: str, charge: Charge) -> None:
        name = f"session {found.session[:16]}"
        if self._find(found.session, "settle") is not None:
            raise LedgerError(name, "is finished", "start a new session")
        if study != found.study:
            problem = f"is reserved for study {shown(found.study)}, not {shown(study)}"
            raise LedgerError(name, problem, "start a new session")
        for item in fields(Charge):
            before, now = getattr(found, item.name), getattr(charge, item.name)
            if before != now:
                raise LedgerError(name, f"is reserved with {item.name} {before!r}, not {now!r}", "start a new session")

    def keep(self, session: bytes, name: str, value: bytes) -> bytes:
        """Keep private state of a reserved session, unless there is some by that name; returns what is kept.

        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     with Ledger.create(Path(folder) / "a.ledger", "hospital", 1.0, 1e-6) as ledger:
        ...         _ = ledger.reserve(bytes(32), "flu", Charge(0, 0, 1, 1e-6), "record", {})
        ...         ledger.keep(bytes(32), "seed", b"1"), ledger.keep(bytes(32), "seed", b"2")
        (b'1', b'1')
        """
        return self.keep_all(session, {name: value})[name]

    def keep_all(self, session: bytes, values: Mapping[str, bytes]) -> dict[str, bytes]:
        """The same for several at once: on the disk together or not at all.

        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     with Ledger.create(Path(folder) / "a.ledger", "hospital", 1.0, 1e-6) as ledger:
        ...         _ = ledger.reserve(bytes(32), "flu", Charge(0, 0, 1, 1e-6), "record", {"a": b"1"})
        ...         ledger.keep_all(bytes(32), {"a": b"2", "b": b"2"})
        {'a': b'1', 'b': b'2'}
        """
        key, wanted = _key(session), _private(values)
        found = self._kept_of(key, wanted)
        if len(found) == len(wanted):  # nothing to write
            self._check_open(key)
            return found
        with self._transaction():
            self._check_open(key)
            found = self._kept_of(key, wanted)
            self._store(key, {name: value for name, value in wanted.items() if name not in found})
        return {**wanted, **found}

    def _kept_of(self, key: str, names: Mapping[str, bytes]) -> dict[str, bytes]:
        places = ", ".join("?" * len(names))
        query = f"SELECT name, value FROM private WHERE session = ? AND name IN ({places})"  # noqa: S608
        return dict(self._read(query, (key, *names)))

    def _check_open(self, key: str) -> None:
        if self._find(key, "reserve") is None:
            raise LedgerError(f"session {key[:16]}", "is not reserved", "reserve it first")
        if self._find(key, "settle") is not None:
            raise LedgerError(f"session {key[:16]}", "is finished", "start a new session")

    def kept(self, session: bytes) -> dict[str, bytes]:
        """The private state kept for the session; empty if there is none.

        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     with Ledger.create(Path(folder) / "a.ledger", "hospital", 1.0, 1e-6) as ledger:
        ...         ledger.kept(bytes(32))
        {}
        """
        return self._stored(_key(session))

    def kept_names(self, session: bytes) -> list[str]:
        """The names of the private state kept for the session.

        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     with Ledger.create(Path(folder) / "a.ledger", "hospital", 1.0, 1e-6) as ledger:
        ...         _ = ledger.reserve(bytes(32), "flu", Charge(0, 0, 1, 1e-6), "record", {"a": b"1", "b": b"2"})
        ...         ledger.discard(bytes(32), ["a"])
        ...         ledger.kept_names(bytes(32))
        ['b']
        """
        rows = self._read("SELECT name FROM private WHERE session = ? ORDER BY name", (_key(session),))
        return [row[0] for row in rows]

    def discard(self, session: bytes, names: Sequence[str]) -> None:
        """Erase private state that is of no use any more, such as the pads of an attempt that was given up."""
        key = _key(session)
        with self._transaction():
            for name in names:
                self._connection.execute("DELETE FROM private WHERE session = ? AND name = ?", (key, name))

    def settle(self, session: bytes, outcome: str, keep: Mapping[str, bytes]) -> None:
        """Note how the session ended, and erase its private state but for `keep`. The charge stays. The first wins.

        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     with Ledger.create(Path(folder) / "a.ledger", "hospital", 1.0, 1e-6) as ledger:
        ...         _ = ledger.reserve(bytes(32), "flu", Charge(0.1, 0, 1, 1e-6), "record", {"seed": b"1"})
        ...         ledger.settle(bytes(32), "failed: no answer", {"receipt": b"2"})
        ...         ledger.kept(bytes(32)), round(ledger.spent().mu, 9)
        ({'receipt': b'2'}, 0.1)
        """
        key, kept = _key(session), _private(keep)
        with self._transaction() as last:
            reserved = self._find(key, "reserve")
            if reserved is None:
                raise LedgerError(f"session {key[:16]}", "is not reserved", "reserve it first")
            if self._find(key, "settle") is not None:
                return
            self._append(last, "settle", key, reserved.study, outcome=shown(outcome, _OUTCOME_MAX))
            self._connection.execute("DELETE FROM private WHERE session = ?", (key,))
            self._store(key, kept)

    def status(self, session: bytes) -> Status:
        """How far the session is.

        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     with Ledger.create(Path(folder) / "a.ledger", "hospital", 1.0, 1e-6) as ledger:
        ...         ledger.status(bytes(32))
        'unknown'
        """
        kinds = {
            row[0]
            for row in self._read("SELECT kind FROM entries WHERE session = ? AND session <> ''", (_key(session),))
        }
        return "settled" if "settle" in kinds else "reserved" if kinds else "unknown"

    def set_limit(self, epsilon: float, delta: float) -> None:
        """A new limit from now on, for all that was and will be spent. Below what is spent it refuses everything.

        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     with Ledger.create(Path(folder) / "a.ledger", "hospital", 1.0, 1e-6) as ledger:
        ...         ledger.set_limit(2.0, 1e-7)
        ...         ledger.spent().limit_epsilon
        2.0
        """
        limit = check_limit(epsilon, delta)
        with self._transaction() as last:
            self._append(last, "limit", limit=limit)

    def spent(self) -> Spent:
        """What is spent and what is left.

        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     with Ledger.create(Path(folder) / "a.ledger", "hospital", 1.0, 1e-6) as ledger:
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
        limit = last.limit_epsilon, last.limit_delta
        return Spent(mu, last.closeness_total, sessions, epsilon, *limit, *room_left(last))

    def entries(self, after: int = 0) -> Iterator[Entry]:
        """The entries from the oldest on, or those numbered above `after`. A slow reader holds up nobody.

        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     with Ledger.create(Path(folder) / "a.ledger", "hospital", 1.0, 1e-6) as ledger:
        ...         [entry.kind for entry in ledger.entries()]
        ['open']
        """
        for page in self._pages(after):
            for row in page:
                yield Entry(*row)

    def newest(self, count: int) -> list[Entry]:
        """The last entries, oldest first.

        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     with Ledger.create(Path(folder) / "a.ledger", "hospital", 1.0, 1e-6) as ledger:
        ...         ledger.set_limit(2.0, 1e-6)
        ...         [entry.kind for entry in ledger.newest(1)]
        ['limit']
        """
        rows = self._read(f"{_SELECT} ORDER BY number DESC LIMIT ?", (count,))
        return [Entry(*row) for row in reversed(rows)]

    def _pages(self, after: int = 0) -> Iterator[list[tuple[Any, ...]]]:
        while page := self._read(f"{_SELECT} WHERE number > ? ORDER BY number LIMIT {_PAGE}", (after,)):
            yield page
            after = page[-1][0]

    def verify(self, head: str | None = None, progress: Progress | None = None) -> str:
        """Recompute every hash, total and limit; returns the head, the hash of the last entry.

        `head`: a hash noted earlier, which must be in the chain; else entries were cut off or rewritten since.

        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     with Ledger.create(Path(folder) / "a.ledger", "hospital", 1.0, 1e-6) as ledger:
        ...         head = ledger.verify()
        ...         ledger.set_limit(2.0, 1e-6)
        ...         ledger.verify(head) == head
        False
        """
        noted = None if head is None else _head(head)
        check = Verification(self._origin)
        count = self._read("SELECT count(*) FROM entries")[0][0]
        for page in self._pages():
            problem = check.page(page)
            if problem is not None:
                raise self._altered(*problem)
            if noted is not None and any(row[-1] == noted for row in page):
                noted = None
            if progress is not None:
                progress(min(check.number, count), count)
        if check.number == 0:
            raise self._altered(1, "is missing")
        if noted is not None:
            raise LedgerError(
                f"the hash {noted[:16]}... noted earlier",
                f"is not among the {check.number} entries of {shown(str(self.path), 300)}",
                "entries were cut off or rewritten since; restore the newest copy that has it",
            )
        self._check_file()
        return check.hash

    def _check_file(self) -> None:
        """The tables, triggers and pages are as they should be."""
        found = {row[0] for row in self._read("SELECT sql FROM sqlite_master WHERE sql IS NOT NULL")}
        if found != set(SCHEMA):
            remedy = "somebody changed the file; restore a copy from before"
            raise LedgerError(f"the ledger {shown(str(self.path), 300)}", "has altered tables or triggers", remedy)
        result = self._read("PRAGMA integrity_check(1)")[0][0]
        if result != "ok":
            raise FileError(self.path, f"is damaged ({shown(result)})", "restore the newest copy")

    def _altered(self, number: int, problem: str) -> LedgerError:
        remedy = "the file was changed by something else; restore the newest copy that verifies"
        return LedgerError(f"entry {number} of {shown(str(self.path), 300)}", problem, remedy)

    def export(self) -> Iterator[dict[str, object]]:
        """Every entry as plain JSON values, infinity as "inf"; private state stays out.

        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     with Ledger.create(Path(folder) / "a.ledger", "hospital", float("inf"), 1e-6) as ledger:
        ...         [(entry["kind"], entry["limit_epsilon"]) for entry in ledger.export()]
        [('open', 'inf')]
        """
        for entry in self.entries():
            yield {name: "inf" if value == math.inf else value for name, value in vars(entry).items()}


def _head(text: str) -> str:
    head = text.strip().lower()
    if len(head) != 64 or set(head) - set("0123456789abcdef"):
        raise InputError("head", text, "must be 64 hex digits", "give a hash that verify or show printed earlier")
    return head
