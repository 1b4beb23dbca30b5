"""What one party has spent on privacy: a durable, append-only, hash-chained ledger in one SQLite file.

The ledger never under-charges. A session is reserved before its first message leaves and never refunded; every sum is
rounded up; a reservation that returns is on the disk. Sessions k with mu_k and closeness tau_k promise together, at the
limit's delta, the epsilon of `promise`: epsilon_of(sqrt(sum mu_k^2), delta e^(-sum tau_k)) + 2 sum tau_k.

Each entry's hash is SHA-256 over the hash before it and the entry's fields as JSON (keys sorted, no blanks, numbers as
`float.hex`); the first entry's predecessor is the hash of the ledger's random id, party and unit. A whole chain can be
rewritten by whoever may write the file: only a head noted elsewhere (`Ledger.verify(head=...)`) shows that.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import secrets
import sqlite3
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, fields
from datetime import UTC, datetime
from decimal import ROUND_CEILING, ROUND_FLOOR, Context
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Literal, Self

import numpy as np

from tpmdp.calibration import calibrate, mu_at
from tpmdp.composition import epsilon_of
from tpmdp.errors import FileError, InputError, TpmdpError, shown
from tpmdp.files import check_output, readable
from tpmdp.progress import Progress
from tpmdp.validate import DELTA_MIN, EPSILON_MIN, as_floats, check_delta, check_epsilon

UNITS: Final = ("record", "party")
TEXT_MAX: Final = 200  # characters of a party's or study's name
SESSION_BYTES: Final = 32
NEXT_CLOSENESS: Final = 1e-30  # `Spent.left` leaves room for this much in the next release; real ones have about 1e-50

_APPLICATION: Final = 0x54504D4C  # "TPML"
_VERSION: Final = 1
_SIZE_MAX: Final = 1 << 44
_OUTCOME_MAX: Final = 500
_BUSY_MS: Final = 30_000
_PAGE: Final = 2048  # entries read at a time: between pages no lock is held, so a slow reader delays nobody
_U: Final = 2.0**-53
_ROOM_WIDTH: Final = 1e-14  # relative, of the search for what is left
_ROOM_STEPS: Final = 32
_ROOM_LEAST: Final = 1e-10  # of the whole: below it rounding hides what is left
# Another machine's logarithm may differ in the last digits, so a check years later allows for that much.
_OTHER_MACHINE: Final = 1e-12

_SCHEMA: Final = (
    "CREATE TABLE ledger (id TEXT NOT NULL, party TEXT NOT NULL, unit TEXT NOT NULL) STRICT",
    "CREATE TABLE entries (number INTEGER PRIMARY KEY, kind TEXT NOT NULL, time TEXT NOT NULL, session TEXT NOT NULL, "
    "study TEXT NOT NULL, mu REAL NOT NULL, closeness REAL NOT NULL, epsilon REAL NOT NULL, delta REAL NOT NULL, "
    "mu_squared_total REAL NOT NULL, closeness_total REAL NOT NULL, limit_epsilon REAL NOT NULL, "
    "limit_delta REAL NOT NULL, outcome TEXT NOT NULL, previous TEXT NOT NULL, hash TEXT NOT NULL) STRICT",
    "CREATE TABLE private (session TEXT NOT NULL, name TEXT NOT NULL, value BLOB NOT NULL, "
    "PRIMARY KEY (session, name)) STRICT",
    "CREATE UNIQUE INDEX once ON entries (session, kind) WHERE session <> ''",
    "CREATE TRIGGER no_change BEFORE UPDATE ON entries BEGIN SELECT RAISE(ABORT, 'the ledger is append-only'); END",
    "CREATE TRIGGER no_deletion BEFORE DELETE ON entries BEGIN SELECT RAISE(ABORT, 'the ledger is append-only'); END",
    # INSERT OR REPLACE deletes without asking the trigger above, so it must not get that far.
    "CREATE TRIGGER in_order BEFORE INSERT ON entries "
    "WHEN NEW.number IS NOT (SELECT coalesce(max(number), 0) + 1 FROM entries) OR (NEW.session <> '' AND EXISTS "
    "(SELECT 1 FROM entries WHERE session = NEW.session AND kind = NEW.kind AND session <> '')) "
    "BEGIN SELECT RAISE(ABORT, 'the ledger is append-only'); END",
    "CREATE TRIGGER no_new_owner BEFORE UPDATE ON ledger BEGIN SELECT RAISE(ABORT, 'the ledger is append-only'); END",
    "CREATE TRIGGER no_orphan BEFORE DELETE ON ledger BEGIN SELECT RAISE(ABORT, 'the ledger is append-only'); END",
)

_canonical = json.JSONEncoder(sort_keys=True, separators=(",", ":"), allow_nan=False).encode

Status = Literal["unknown", "reserved", "settled"]


class LedgerError(TpmdpError):
    """A request the ledger must refuse, or an entry that is not as it was written.

    >>> str(LedgerError("session ab12", "is finished", "start a new session"))
    'session ab12 is finished: start a new session'
    """

    def __init__(self, subject: str, problem: str, remedy: str) -> None:
        self.subject, self.problem, self.remedy = subject, problem, remedy
        super().__init__(f"{subject} {problem}: {remedy}")


class OverspendError(TpmdpError):
    """A reservation that would break the limit: says what it costs, what it would make, the limit and what is left."""

    def __init__(self, path: Path, party: str, study: str, cost: float, after: float, spent: Spent) -> None:
        self.party, self.study, self.cost, self.after, self.spent = party, study, cost, after, spent
        total, left = rounded_up(after), rounded_down(spent.left)
        less = f", or plan a study with epsilon at most {left}" if spent.left > 0 else ""
        super().__init__(
            f"study {shown(study)} would cost {shown(party)} epsilon {rounded_up(cost)} and make {total} in all, over "
            f"the limit epsilon {spent.limit_epsilon!r} at delta {spent.limit_delta!r}, of which {left} is left: "
            f"raise the limit (tpmdp ledger limit {shown(str(path), 300)} --epsilon {total}){less}"
        )


@dataclass(frozen=True)
class Charge:
    """What a session costs: its Gaussian mu and its closeness tau; epsilon and delta are the study's, for the reader.

    >>> Charge(mu=0.25, closeness=1e-50, epsilon=1, delta=1e-6).epsilon
    1.0
    """

    mu: float
    closeness: float
    epsilon: float
    delta: float

    def __post_init__(self) -> None:
        rules = {"mu": math.inf, "closeness": math.nextafter(math.inf, 0), "epsilon": math.inf, "delta": 1.0}
        for name, most in rules.items():
            value = float(as_floats(name, [getattr(self, name)])[0])
            if not 0 <= value <= most:
                rule = "must not be negative or NaN" if most > 1 else "must lie in [0, 1]"
                rule = "must be finite and not negative" if name == "closeness" else rule
                raise InputError(name, value, rule, "give what the session costs")
            object.__setattr__(self, name, value + 0.0)  # SQLite has no negative zero


@dataclass(frozen=True)
class Entry:
    """One line of the ledger. `time` is for the reader only: no decision uses a clock.

    >>> [item.name for item in fields(Entry)][:5]
    ['number', 'kind', 'time', 'session', 'study']
    """

    number: int
    kind: str  # "open", "limit", "reserve" or "settle"
    time: str  # ISO, UTC
    session: str  # hex, or "" where there is none
    study: str
    mu: float
    closeness: float
    epsilon: float
    delta: float
    mu_squared_total: float  # of all reservations up to this entry, rounded up at each
    closeness_total: float
    limit_epsilon: float  # in force from this entry on
    limit_delta: float
    outcome: str  # of a settled session: "answer", "receipt", "failed: ..."
    previous: str
    hash: str

    @property
    def charge(self) -> Charge:
        """What was reserved; zeros for other kinds.

        >>> Entry(1, "open", "", "", "", 0, 0, 0, 0, 0, 0, 1, 1e-6, "", "", "").charge.mu
        0.0
        """
        return Charge(self.mu, self.closeness, self.epsilon, self.delta)


_COLUMNS: Final = tuple(item.name for item in fields(Entry))
_SELECT: Final = f"SELECT {', '.join(_COLUMNS)} FROM entries"  # noqa: S608 - our own column names
_INSERT: Final = f"INSERT INTO entries VALUES ({', '.join('?' * len(_COLUMNS))})"  # noqa: S608


@dataclass(frozen=True)
class Reservation:
    """A session's place in the ledger. `private` is what was stored first: a retry must use that, not its own.

    >>> Reservation(True, {"seed": b"secret"}, 0.5)
    Reservation(new=True, epsilon_after=0.5)
    """

    new: bool
    private: dict[str, bytes] = field(repr=False)
    epsilon_after: float


@dataclass(frozen=True)
class Spent:
    """What is spent and what is left, at the limit's delta; spent is rounded up, left is rounded down.

    >>> Spent(0.1, 0.0, 1, 0.4, 1.0, 1e-6, 0.2, 0.9).left
    0.9
    """

    mu: float
    closeness: float
    sessions: int
    epsilon: float
    limit_epsilon: float
    limit_delta: float
    mu_left: float  # a release with this mu is accepted
    left: float  # and so is one calibrated to this epsilon at the limit's delta


def rounded_up(value: float) -> str:
    """A cost in six digits, never shown smaller than it is.

    >>> rounded_up(1.0000000000000002), rounded_up(0.25), rounded_up(float("inf"))
    ('1.00001', '0.25', 'inf')
    """
    return _six_digits(value, ROUND_CEILING)


def rounded_down(value: float) -> str:
    """What is left in six digits, never shown larger than it is.

    >>> rounded_down(0.9999999), rounded_down(0.0)
    ('0.999999', '0')
    """
    return _six_digits(value, ROUND_FLOOR)


def _six_digits(value: float, rounding: str) -> str:
    if not math.isfinite(value):
        return "inf"
    digits = Context(prec=6, rounding=rounding).create_decimal_from_float(value).normalize()
    return f"{digits:f}" if digits == 0 or -5 < digits.adjusted() < 7 else f"{digits:e}"


def add_up(total: float, cost: float) -> float:
    """The sum of two costs, rounded up; nothing costs nothing.

    >>> add_up(1.0, 1e-50) > 1.0, add_up(1.0, 0.0)
    (True, 1.0)
    """
    if total == 0 or cost == 0:
        return total + cost
    return math.nextafter(total + cost, math.inf)


def square_up(mu: float) -> float:
    """mu^2, rounded up.

    >>> square_up(0.1) > 0.1 * 0.1, square_up(1e-200) > 0, square_up(1e200), square_up(0.0)
    (True, True, inf, 0.0)
    """
    return math.nextafter(mu * mu, math.inf) if mu else 0.0


def promise(mu_squared: float, closeness: float, delta: float) -> float:
    """The epsilon at this delta of sessions with this sum of mu^2 and of closeness; never too small.

    >>> print(f"{promise(0.25, 1e-50, 1e-6):.6f}")
    2.254085
    """
    return promises([mu_squared], [closeness], [delta])[0]


def promises(mu_squared: Sequence[float], closeness: Sequence[float], delta: Sequence[float]) -> list[float]:
    """`promise` for many at once.

    >>> promises([0.0, float("inf")], [0.0, 0.0], [1e-6, 1e-6])
    [0.0, inf]
    """
    if not mu_squared:
        return []
    mu = [math.nextafter(math.sqrt(total), math.inf) if total else 0.0 for total in mu_squared]
    scaled = [_delta_down(d, tau) for d, tau in zip(delta, closeness, strict=True)]
    epsilons: list[float] = np.atleast_1d(np.asarray(epsilon_of(np.array(mu), np.array(scaled)))).tolist()
    return [add_up(epsilon, 2.0 * tau) for epsilon, tau in zip(epsilons, closeness, strict=True)]


def _delta_down(delta: float, closeness: float) -> float:
    """delta e^(-closeness), rounded down; what calibration cannot handle becomes 0, whose epsilon is infinite."""
    if closeness == 0:
        return delta
    scaled = delta * math.exp(-closeness) * (1.0 - 8 * _U)
    return scaled if scaled >= DELTA_MIN else 0.0


def _text(name: str, value: object) -> str:
    if not isinstance(value, str) or not value.strip() or len(value) > TEXT_MAX or not value.isprintable():
        raise InputError(name, value, f"must be 1 to {TEXT_MAX} printable characters", "give a plain name")
    return value


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


def _limit(epsilon: float, delta: float) -> tuple[float, float]:
    eps, dlt = as_floats("epsilon", [epsilon]), as_floats("delta", [delta])
    check_epsilon(eps.reshape(()))
    check_delta(dlt.reshape(()), eps.reshape(()))
    return float(eps[0]), float(dlt[0]) + 0.0


def _now() -> str:
    return datetime.fromtimestamp(time.time(), UTC).isoformat(timespec="seconds")


def _origin(identity: str, party: str, unit: str) -> str:
    """What stands before the first entry: binds the chain to this ledger, its party and its unit."""
    return hashlib.sha256(_canonical({"id": identity, "party": party, "unit": unit}).encode()).hexdigest()


def _digest(row: Sequence[Any]) -> str:
    """The hash an entry must have: over the hash before it and all its fields."""
    content = {
        name: value.hex() if isinstance(value, float) else value
        for name, value in zip(_COLUMNS[:-2], row[:-2], strict=True)
    }
    return hashlib.sha256((row[-2] + _canonical(content)).encode()).hexdigest()


def _file_error(path: Path, error: sqlite3.Error) -> FileError:
    """What SQLite says, in words of ours and with a remedy."""
    name = getattr(error, "sqlite_errorname", "") or ""
    for prefix, problem, remedy in (
        ("SQLITE_FULL", "cannot be written (the disk is full)", "free some space; nothing was changed"),
        ("SQLITE_BUSY", "is in use by another process", "try again, or end the process that holds it"),
        ("SQLITE_LOCKED", "is in use by another process", "try again, or end the process that holds it"),
        ("SQLITE_READONLY", "cannot be written (read-only)", "check the rights of the file and its folder"),
        ("SQLITE_PERM", "cannot be written (no rights)", "check the rights of the file and its folder"),
        ("SQLITE_CANTOPEN", "cannot be opened", "check the rights of the file and its folder"),
        ("SQLITE_NOTADB", "is not a ledger", "name a file made by tpmdp ledger create"),
        ("SQLITE_CORRUPT", "is damaged", "restore the newest copy and compare its head with one noted earlier"),
        ("SQLITE_IOERR", f"cannot be read or written (disk error {name})", "check the disk and its space"),
    ):
        if name.startswith(prefix):
            return FileError(path, problem, remedy)
    return FileError(path, f"cannot be used ({shown(str(error))})", "check that it is a ledger; nothing was changed")


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

        An empty file is taken over: a process that was killed while it made a ledger leaves one.

        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     with Ledger.create(Path(folder) / "a.ledger", "hospital", 1.0, 1e-6) as ledger:
        ...         ledger.party, ledger.unit, oct(ledger.path.stat().st_mode & 0o777)
        ('hospital', 'record', '0o600')
        """
        _text("party", party)
        if unit not in UNITS:
            raise InputError("unit", unit, "must be record or party", "say whose data one budget protects")
        limit = _limit(epsilon, delta)
        ours = True
        try:
            os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600))
        except FileExistsError:
            if not path.is_file() or path.is_symlink() or path.stat().st_size:
                raise _exists(path) from None
            ours = False
        except OSError as error:
            check_output(path)
            problem = f"cannot be written ({error.strerror or error})"
            raise FileError(path, problem, "check the disk and the rights of the folder") from None
        try:
            path.chmod(0o600)  # whatever the umask took away
            ledger = cls(path, _connect(path))
            try:
                ledger._fill(party, unit, limit)
                ledger._load()
            except BaseException:
                ledger.close()
                raise
        except BaseException:
            for leftover in (path, Path(f"{os.path.realpath(path)}-journal")) if ours else ():
                with suppress(OSError):
                    leftover.unlink()
            raise
        return ledger

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
            status = path.stat()
            if size == 0:
                raise FileError(path, "is empty, not a ledger", "name a file made by tpmdp ledger create")
            if os.name == "posix" and status.st_mode & 0o077:
                raise FileError(path, f"is open to others (mode {status.st_mode & 0o777:04o})", f"chmod 600 {path}")
            if status.st_nlink > 1:
                # Under its other name a crash half-way could not be undone: the journal goes by the file's name.
                raise FileError(path, "has a second name (hard link)", "remove that link, or make a copy instead")
        ledger = cls(path, _connect(path))
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
            if self._connection.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]:
                self._connection.execute("ROLLBACK")
                raise _exists(self.path)  # another process made it at the same time
            self._connection.execute(f"PRAGMA application_id={_APPLICATION}")
            self._connection.execute(f"PRAGMA user_version={_VERSION}")
            for statement in _SCHEMA:
                self._connection.execute(statement)
            self._connection.execute("INSERT INTO ledger VALUES (?, ?, ?)", (identity, party, unit))
            start = Entry(
                0, "", "", "", "", 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, *limit, "", "", _origin(identity, party, unit)
            )
            self._append(start, "open")
            self._connection.execute("COMMIT")

    def _load(self) -> None:
        """Check that this is a ledger of our version, and its first and last entry."""
        with self._guard():
            found = self._connection.execute("PRAGMA application_id").fetchone()[0]
            version = self._connection.execute("PRAGMA user_version").fetchone()[0]
            if found != _APPLICATION:
                raise FileError(self.path, "is not a ledger", "name a file made by tpmdp ledger create")
            if version != _VERSION:
                problem = f"has format {version}, and this tpmdp reads format {_VERSION}"
                raise FileError(self.path, problem, "use the tpmdp that wrote it")
            mode = self._connection.execute("PRAGMA journal_mode=DELETE").fetchone()[0]
            if mode != "delete":
                raise FileError(self.path, f"is in journal mode {mode}", "end the process that holds it")
            owners = self._connection.execute("SELECT id, party, unit FROM ledger").fetchall()
            if len(owners) != 1:
                raise self._altered(1, "has no owner")
            identity, self.party, self.unit = owners[0]
            self._origin = _origin(identity, self.party, self.unit)
            first = self._connection.execute(f"{_SELECT} ORDER BY number LIMIT 1").fetchone()
            if first is None or first[0] != 1 or first[-2] != self._origin or first[-1] != _digest(first):
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
                    raise _file_error(self.path, error) from None
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
        if row[-1] != _digest(row):
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
        mu_squared, closeness = _totals(last, cost.mu, cost.closeness)
        row: list[Any] = [last.number + 1, kind, _now(), session, study]
        row += [cost.mu, cost.closeness, cost.epsilon, cost.delta, mu_squared, closeness]
        row += [*(limit or (last.limit_epsilon, last.limit_delta)), outcome, last.hash, ""]
        row[-1] = _digest(row)
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
        tpmdp.ledger.OverspendError: study flu would cost hospital epsilon 4.33618 and make 4.33618 in all, over ...
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
            after = promise(*_totals(last, charge.mu, charge.closeness), last.limit_delta)
            if not after <= last.limit_epsilon:
                alone = promise(square_up(charge.mu), charge.closeness, last.limit_delta)
                raise OverspendError(self.path, self.party, study, alone, after, self._spent(last))
            self._append(last, "reserve", key, study, charge)
            self._store(key, stored)
        return Reservation(True, stored, after)

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
        key, wanted = _key(session), _private({name: value})
        with self._transaction():
            if self._find(key, "reserve") is None:
                raise LedgerError(f"session {key[:16]}", "is not reserved", "reserve it first")
            if self._find(key, "settle") is not None:
                raise LedgerError(f"session {key[:16]}", "is finished", "start a new session")
            stored = self._stored(key)
            if name in stored:
                return stored[name]
            self._store(key, wanted)
        return wanted[name]

    def kept(self, session: bytes) -> dict[str, bytes]:
        """The private state kept for the session; empty if there is none.

        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     with Ledger.create(Path(folder) / "a.ledger", "hospital", 1.0, 1e-6) as ledger:
        ...         ledger.kept(bytes(32))
        {}
        """
        return self._stored(_key(session))

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
        limit = _limit(epsilon, delta)
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
        return Spent(mu, last.closeness_total, sessions, epsilon, *limit, *_room(last))

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
        check = _Check(self._origin)
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
        if found != set(_SCHEMA):
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


def _connect(path: Path) -> sqlite3.Connection:
    """A connection that waits for other processes, syncs fully and erases what it deletes.

    A rollback journal, not a write-ahead log: the file alone is then the whole ledger, so a copy of it never lacks the
    newest charges, and what `settle` erases is not left behind in a log. EXTRA, not FULL: else a power cut could bring
    the deleted journal back, and it would undo a reservation that was reported as made.
    """
    try:
        address = Path(os.path.realpath(path)).as_uri() + "?mode=rw"  # never makes a file
        connection = sqlite3.connect(
            address, uri=True, timeout=_BUSY_MS / 1000, isolation_level=None, check_same_thread=False
        )
    except sqlite3.Error as error:
        raise _file_error(path, error) from None
    try:
        for setting in ("trusted_schema=OFF", "secure_delete=ON", "synchronous=EXTRA", "fullfsync=ON"):
            connection.execute(f"PRAGMA {setting}").fetchall()
    except sqlite3.Error as error:
        connection.close()
        raise _file_error(path, error) from None
    return connection


def _exists(path: Path) -> FileError:
    return FileError(path, "exists already", "choose another name; a ledger is never replaced")


def _head(text: str) -> str:
    head = text.strip().lower()
    if len(head) != 64 or set(head) - set("0123456789abcdef"):
        raise InputError("head", text, "must be 64 hex digits", "give a hash that verify or show printed earlier")
    return head


def _totals(last: Entry, mu: float, closeness: float) -> tuple[float, float]:
    """The running totals with one more session, rounded up."""
    return add_up(last.mu_squared_total, square_up(mu)), add_up(last.closeness_total, closeness)


def _room(last: Entry) -> tuple[float, float]:
    """The mu and the epsilon one further release may have: both found by trying what `reserve` would say."""
    if last.limit_epsilon == math.inf:
        return math.inf, math.inf

    def count_fitting(values: Sequence[float]) -> int:
        """How many from the start would all be accepted, with closeness or without."""
        totals = [_totals(last, mu, tau) for mu in values for tau in (0.0, NEXT_CLOSENESS)]
        after = promises([t[0] for t in totals], [t[1] for t in totals], [last.limit_delta] * len(totals))
        worst = zip(after[::2], after[1::2], strict=True)
        return next((place for place, both in enumerate(worst) if not max(both) <= last.limit_epsilon), len(values))

    def accepted(mu: float) -> bool:
        return all(
            promise(*_totals(last, mu, tau), last.limit_delta) <= last.limit_epsilon for tau in (0.0, NEXT_CLOSENESS)
        )

    low, high = 0.0, mu_at(calibrate(last.limit_epsilon, last.limit_delta))
    if not accepted(low):
        return 0.0, 0.0
    while count_fitting([high]):
        low, high = high, 2.0 * high
    least = _ROOM_LEAST * high
    while high - low > _ROOM_WIDTH * high and high > least:
        steps = [low + (high - low) * part / _ROOM_STEPS for part in range(1, _ROOM_STEPS)]
        fitting = count_fitting(steps)
        low, high = [low, *steps][fitting], [*steps, high][fitting]
    mu_left = _shrunk(low, accepted)
    left = min(promise(square_up(mu_left), 0.0, last.limit_delta), last.limit_epsilon)
    left = _shrunk(left, lambda eps: eps < EPSILON_MIN or accepted(mu_at(calibrate(eps, last.limit_delta))))
    return mu_left, left if left >= EPSILON_MIN else 0.0


def _shrunk(value: float, accepted: Callable[[float], bool]) -> float:
    """The value, or the first a little below it that is accepted, going down ever faster; 0 always is."""
    step = 2.0 * _U
    while value > 0 and not accepted(value):
        value *= 1.0 - step
        step = min(2.0 * step, 0.5)
    return value


class _Check:
    """The state of a verification that runs through the pages of a ledger."""

    def __init__(self, origin: str) -> None:
        self.number, self.hash = 0, origin
        self._mu_squared = self._closeness = 0.0
        self._limit = (0.0, 0.0)
        self._open: dict[str, bool] = {}  # by session: still unsettled

    def page(self, rows: Sequence[tuple[Any, ...]]) -> tuple[int, str] | None:
        """The number of the first wrong entry of the page and what is wrong; None if all is well."""
        reserved: list[tuple[int, float, float, float, float]] = []
        problem: tuple[int, str] | None = None
        for row in rows:
            wrong = self._entry(row, Entry(*row))
            if wrong is not None:
                problem = (self.number + 1, wrong)
                break
            self.number, self.hash = row[0], row[-1]
            if row[1] == "reserve":
                reserved.append((self.number, self._mu_squared, self._closeness, *self._limit))
        epsilons = promises([r[1] for r in reserved], [r[2] for r in reserved], [r[4] for r in reserved])
        for (number, _, _, limit, _), epsilon in zip(reserved, epsilons, strict=True):
            if not epsilon <= limit * (1.0 + _OTHER_MACHINE):
                return number, f"makes epsilon {rounded_up(epsilon)}, over the limit {limit!r} of its time"
        return problem

    def _entry(self, row: Sequence[Any], entry: Entry) -> str | None:
        """What is wrong with the next entry, if anything."""
        if entry.number != self.number + 1:
            return "is missing"
        if entry.previous != self.hash:
            return "does not follow from the entry before it"
        if entry.hash != _digest(row):
            return "does not match its hash"
        if (entry.kind == "open") != (entry.number == 1):
            return f"is of kind {shown(entry.kind)} out of place"
        return self._content(entry)

    def _content(self, entry: Entry) -> str | None:
        costs = entry.mu, entry.closeness, entry.epsilon, entry.delta
        if not all(cost >= 0 for cost in costs) or entry.delta > 1 or (entry.kind != "reserve" and any(costs)):
            return "has a charge that cannot be"
        self._mu_squared = add_up(self._mu_squared, square_up(entry.mu))
        self._closeness = add_up(self._closeness, entry.closeness)
        if (entry.mu_squared_total, entry.closeness_total) != (self._mu_squared, self._closeness):
            return "has totals that do not add up"
        limit = entry.limit_epsilon, entry.limit_delta
        if entry.kind in ("open", "limit"):
            try:
                self._limit = _limit(*limit)
            except InputError as error:
                return f"sets a limit that cannot be ({error.field} {error.value!r})"
        elif limit != self._limit:
            return "changes the limit without saying so"
        return self._session(entry)

    def _session(self, entry: Entry) -> str | None:
        state = self._open.get(entry.session)
        if entry.kind in ("open", "limit"):
            return "has a session" if entry.session else None
        if len(entry.session) != 2 * SESSION_BYTES:
            return "has no session"
        if entry.kind == "reserve":
            if state is not None:
                return "reserves a session again"
        elif entry.kind != "settle":
            return f"is of unknown kind {shown(entry.kind)}"
        elif not state:
            return "settles a session that is not reserved" if state is None else "settles a session again"
        self._open[entry.session] = entry.kind == "reserve"
        return None
