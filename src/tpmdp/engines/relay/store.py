"""The relay's file: SQLite with a write-ahead log, synced to the disk before anything is acknowledged.

One thread writes. It takes all that waits into one transaction, so that many senders share one sync. Two threads read.
Nothing is kept in memory but rosters in use and the number of bytes stored; the file is the truth.
"""

from __future__ import annotations

import asyncio
import errno
import json
import os
import queue
import sqlite3
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Final, TypeVar

from tpmdp._util.files import check_output
from tpmdp.engines.relay.wire import BATCH_MAX, frame
from tpmdp.errors import FileError, TpmdpError
from tpmdp.protocol.messages import EVERYONE, HASH_BYTES, OVERHEAD

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tpmdp.engines.relay.limits import RelaySettings

_Result = TypeVar("_Result")
_Job = Callable[[sqlite3.Connection], Any]

ROW_BYTES: Final = 256  # what a message or a session costs beside its content, roughly
SMALL: Final = 64 << 10  # answers up to here are read at once; larger ones when memory is granted
_APPLICATION: Final = 0x74706D72  # "tpmr"
_VERSION: Final = 1
_READERS: Final = 2
_JOBS_MAX: Final = 64  # in one transaction
_KEYS_CACHED: Final = 1_000_000  # public keys of sessions in use
_EMPTY_KEEP_S: Final = 3_600.0  # a session without a message
_EMPTY_GRACE_S: Final = 60.0  # where there is no room left, so much
_EVICTED_MAX: Final = 1_000  # at once
_TOUCH_S: Final = 3_600  # how exactly the last use is known; saves a page a write
_SCHEMA: Final = f"""
PRAGMA page_size = 16384;
PRAGMA journal_mode = WAL;
BEGIN;
CREATE TABLE IF NOT EXISTS sessions (
    id INTEGER PRIMARY KEY AUTOINCREMENT, name BLOB NOT NULL UNIQUE, touched INTEGER NOT NULL);
CREATE TABLE IF NOT EXISTS rosters (session INTEGER PRIMARY KEY, keys BLOB NOT NULL);
CREATE TABLE IF NOT EXISTS messages (
    number INTEGER PRIMARY KEY AUTOINCREMENT, session INTEGER NOT NULL, kind INTEGER NOT NULL,
    attempt INTEGER NOT NULL, sender INTEGER NOT NULL, recipient INTEGER NOT NULL,
    size INTEGER NOT NULL, digest BLOB NOT NULL, data BLOB NOT NULL);
CREATE UNIQUE INDEX IF NOT EXISTS slots ON messages (session, sender, attempt, kind, recipient);
CREATE INDEX IF NOT EXISTS mail ON messages (session, kind, recipient, number, sender, size);
CREATE TABLE IF NOT EXISTS usage (
    session INTEGER, party INTEGER, attempt INTEGER, slots INTEGER NOT NULL, bytes INTEGER NOT NULL,
    PRIMARY KEY (session, party, attempt)) WITHOUT ROWID;
PRAGMA application_id = {_APPLICATION};
PRAGMA user_version = {_VERSION};
COMMIT;
"""


class StoreError(TpmdpError):
    """Something the store refuses; nothing of the request was kept."""

    status: ClassVar[int] = 503


class SessionGoneError(StoreError):
    """No such session, or it was deleted."""

    status = 404


class SlotTakenError(StoreError):
    """Another message already fills the slot."""

    status = 409


class StoreLockedError(StoreError):
    """Another program holds the file."""


class RelayFullError(StoreError):
    """A cap, or the disk, leaves no room."""

    status = 507


@dataclass(frozen=True)
class Session:
    """A session and its public keys."""

    id: int
    name: bytes
    roster: tuple[bytes, ...]

    @property
    def slots_max(self) -> int:
        """Slots of a party in one attempt.

        The protocol needs agreement, key, submission, and a pad and a result or receipt for every other party.

        >>> Session(1, bytes(32), (bytes(32),) * 3).slots_max
        10
        """
        return 4 + 2 * len(self.roster)


@dataclass(frozen=True)
class Item:
    """A message that was checked, ready to be stored."""

    kind: int
    attempt: int
    sender: int
    recipient: int
    digest: bytes
    data: bytes


@dataclass(frozen=True)
class Picked:
    """What an answer will hold: its bytes if they are few, else only their number until memory is granted."""

    numbers: Sequence[int]
    size: int
    body: bytes | None


class Store:
    """The file of a relay. Its coroutines may be called from one event loop; `close` ends the threads.

    >>> import tempfile
    >>> from tpmdp.engines.relay.limits import RelaySettings
    >>> async def use(path: Path) -> tuple[bool, bool, int]:
    ...     store = Store(path, RelaySettings())
    ...     new = await store.open_session(bytes(32), bytes(range(64)))
    ...     again = await store.open_session(bytes(32), bytes(range(64)))
    ...     session = await store.session(bytes(32))
    ...     await store.add(session, [Item(1, 0, 0, EVERYONE, bytes(32), b"hello")])
    ...     picked = await store.pick(session, 1, {1: 0})
    ...     store.close()
    ...     return new, again, len(picked.numbers)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     asyncio.run(use(Path(folder) / "relay.sqlite"))
    (True, False, 1)
    """

    def __init__(self, path: Path, settings: RelaySettings) -> None:
        self.path = path
        self._settings = settings
        self._cached: dict[bytes, Session] = {}  # oldest use first
        self._cached_keys = 0
        self._lock = _locked(path)
        self._connections: list[sqlite3.Connection] = []
        try:
            with _start_up(path):
                self._writer = _opened(path)
                self._connections.append(self._writer)
                self._total = _stored_bytes(self._writer)
                self._connections += (_connect(path) for _ in range(_READERS))
        except BaseException:
            for connection in self._connections:
                connection.close()
            os.close(self._lock)
            raise
        self._free: queue.SimpleQueue[sqlite3.Connection] = queue.SimpleQueue()
        for connection in self._connections[1:]:
            self._free.put(connection)
        self._readers = ThreadPoolExecutor(_READERS, "relay-read")
        self._jobs: queue.SimpleQueue[tuple[_Job, Future[Any]] | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._write_jobs, name="relay-write", daemon=True)
        self._thread.start()
        self._closed = False

    def close(self) -> None:
        """Finish what is being written and close the file. May be called twice."""
        if self._closed:
            return
        self._closed = True
        self._jobs.put(None)
        self._thread.join()
        self._readers.shutdown()
        for connection in reversed(self._connections):  # the writer last: it then empties the log
            with suppress(sqlite3.Error):
                connection.close()
        os.close(self._lock)

    # Sessions --------------------------------------------------------------------------------------------------------

    def cached(self, name: bytes) -> Session | None:
        """A session in use, without waiting for the disk."""
        session = self._cached.pop(name, None)
        if session is not None:
            self._cached[name] = session
        return session

    async def session(self, name: bytes) -> Session:
        """The session of this name; SessionGoneError if there is none."""
        found = self.cached(name)
        if found is not None:
            return found

        def read(connection: sqlite3.Connection) -> tuple[int, bytes] | None:
            statement = "SELECT id, keys FROM sessions JOIN rosters ON session = id WHERE name = ?"
            row: tuple[int, bytes] | None = connection.execute(statement, (name,)).fetchone()
            return row

        row = await self._read(read)
        if row is None:
            raise SessionGoneError(f"session = {name.hex()[:12]}... is not known here: PUT it first")
        session_id, keys = row
        roster = tuple(keys[start : start + HASH_BYTES] for start in range(0, len(keys), HASH_BYTES))
        session = Session(session_id, name, roster)
        if name not in self._cached:
            self._cached[name] = session
            self._cached_keys += len(roster)
        while self._cached_keys > _KEYS_CACHED and len(self._cached) > 1:
            self._forget(next(iter(self._cached)))
        return session

    def _forget(self, name: bytes) -> None:
        session = self._cached.pop(name, None)
        self._cached_keys -= 0 if session is None else len(session.roster)

    async def open_session(self, name: bytes, keys: bytes) -> bool:
        """Store a session; whether it is new."""

        def write(connection: sqlite3.Connection) -> bool:
            if connection.execute("SELECT 1 FROM sessions WHERE name = ?", (name,)).fetchone():
                return False
            count = connection.execute("SELECT COUNT(*) FROM sessions").fetchone()[0]
            if count >= self._settings.sessions_max and not self._evict(connection):
                limit = self._settings.sessions_max
                raise RelayFullError(
                    f"sessions = {count} is all this relay holds ({limit}): wait until old ones expire"
                )
            self._grow(connection, len(keys) + ROW_BYTES)
            added = connection.execute("INSERT INTO sessions (name, touched) VALUES (?, ?)", (name, int(time.time())))
            connection.execute("INSERT INTO rosters (session, keys) VALUES (?, ?)", (added.lastrowid, keys))
            return True

        return await self._write(write)

    async def sweep(self, keep_s: float) -> int:
        """Delete sessions not written to for so long, and those nobody ever wrote to sooner; how many."""
        now = time.time()
        old = (
            "SELECT id, name FROM sessions WHERE touched < ? OR "
            "(touched < ? AND NOT EXISTS (SELECT 1 FROM usage WHERE session = id))"
        )
        limits = (int(now - keep_s), int(now - min(keep_s, _EMPTY_KEEP_S)))
        expired = await self._read(lambda connection: connection.execute(old, limits).fetchall())
        for session_id, name in expired:  # one transaction each, so that senders need not wait for all
            await self._write(partial(self._delete, session_id))
            self._forget(name)
        return len(expired)

    def _delete(self, key: int, connection: sqlite3.Connection) -> None:
        self._total -= _stored_bytes(connection, key)
        for table in ("messages", "usage", "rosters"):
            connection.execute(f"DELETE FROM {table} WHERE session = ?", (key,))  # noqa: S608
        connection.execute("DELETE FROM sessions WHERE id = ?", (key,))

    # Messages --------------------------------------------------------------------------------------------------------

    async def add(self, session: Session, items: Sequence[Item]) -> list[Item]:
        """Store the messages of one sender, all or none; returns those that are new. On the disk when it returns."""
        return await self._write(lambda connection: self._add(connection, session, items))

    def _add(self, connection: sqlite3.Connection, session: Session, items: Sequence[Item]) -> list[Item]:
        """Everything is checked before the first change: the transaction is shared with other senders."""
        row = connection.execute("SELECT touched FROM sessions WHERE id = ?", (session.id,)).fetchone()
        if row is None:
            raise SessionGoneError(f"session = {session.name.hex()[:12]}... has expired: PUT it again")
        new = _new_items(connection, session, items)
        if not new:
            return []
        used = self._check_caps(connection, session, new)
        self._grow(connection, sum(size for _, size in used.values()))
        connection.executemany(
            "INSERT INTO messages (session, kind, attempt, sender, recipient, size, digest, data) "
            "VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
            (
                (
                    session.id,
                    item.kind,
                    item.attempt,
                    item.sender,
                    item.recipient,
                    len(item.data),
                    item.digest,
                    item.data,
                )
                for item in new
            ),
        )
        connection.executemany(
            "INSERT INTO usage (session, party, attempt, slots, bytes) VALUES (?, ?, ?, ?, ?) "
            "ON CONFLICT DO UPDATE SET slots = slots + excluded.slots, bytes = bytes + excluded.bytes",
            ((session.id, new[0].sender, attempt, slots, size) for attempt, (slots, size) in used.items()),
        )
        now = int(time.time())
        if now - row[0] > _TOUCH_S:
            connection.execute("UPDATE sessions SET touched = ? WHERE id = ?", (now, session.id))
        return new

    def _check_caps(
        self, connection: sqlite3.Connection, session: Session, new: Sequence[Item]
    ) -> dict[int, tuple[int, int]]:
        """Slots and bytes the new messages use, by attempt."""
        party = new[0].sender
        used: dict[int, tuple[int, int]] = {}
        for item in new:
            slots, size = used.get(item.attempt, (0, 0))
            used[item.attempt] = slots + 1, size + len(item.data) + ROW_BYTES
        statement = "SELECT attempt, slots, bytes FROM usage WHERE session = ? AND party = ?"
        known = connection.execute(statement, (session.id, party)).fetchall()
        before = {attempt: slots for attempt, slots, _ in known}
        if any(before.get(attempt, 0) + slots > session.slots_max for attempt, (slots, _) in used.items()):
            rule = f"fills more than the {session.slots_max} slots a party has in one attempt"
            raise RelayFullError(f"party = {party} {rule}: send each message of an attempt once")
        total = sum(size for _, _, size in known) + sum(size for _, size in used.values())
        if total > self._settings.party_bytes_max:
            rule = f"would store {total} bytes, more than the {self._settings.party_bytes_max} a party may in a session"
            raise RelayFullError(f"party = {party} {rule}: ask the relay's operator for more")
        return used

    def _evict(self, connection: sqlite3.Connection) -> bool:
        """Make room by deleting sessions that nobody wrote to: strangers must not keep parties out that way."""
        statement = (
            "SELECT id FROM sessions WHERE touched < ? AND NOT EXISTS (SELECT 1 FROM usage WHERE session = id) "
            "ORDER BY touched LIMIT ?"
        )
        found = connection.execute(statement, (int(time.time() - _EMPTY_GRACE_S), _EVICTED_MAX)).fetchall()
        for (session_id,) in found:
            self._delete(session_id, connection)
        return bool(found)

    def _grow(self, connection: sqlite3.Connection, size: int) -> None:
        while self._total + size > self._settings.store_bytes_max and self._evict(connection):
            pass
        if self._total + size > self._settings.store_bytes_max:
            rule = f"would be more than all sessions may store ({self._settings.store_bytes_max})"
            raise RelayFullError(f"bytes = {self._total + size} {rule}: ask the relay's operator for more, or wait")
        self._total += size

    async def pick(self, session: Session, party: int, cursors: Mapping[int, int]) -> Picked:
        """The oldest messages for a party, by kind and after the number given, as many as one answer holds."""
        statement = (
            "SELECT number, size FROM messages INDEXED BY mail "
            "WHERE session = ? AND kind = ? AND recipient = ? AND number > ? AND sender <> ? ORDER BY number LIMIT ?"
        )
        most = BATCH_MAX // OVERHEAD + 1

        def read(connection: sqlite3.Connection) -> Picked:
            rows: list[tuple[int, int]] = []
            for kind, after in cursors.items():
                for recipient in (party, EVERYONE):
                    rows += connection.execute(statement, (session.id, kind, recipient, after, party, most))
            numbers: list[int] = []
            total = 0
            for number, size in sorted(rows):
                if numbers and total + size > BATCH_MAX:
                    break
                numbers.append(number)
                total += size
            return Picked(numbers, total, _frames(connection, numbers) if total <= SMALL else None)

        return await self._read(read)

    async def load(self, numbers: Sequence[int]) -> bytes:
        """The messages of these numbers in frames."""
        return await self._read(lambda connection: _frames(connection, numbers))

    # Threads ---------------------------------------------------------------------------------------------------------

    async def _read(self, job: Callable[[sqlite3.Connection], _Result]) -> _Result:
        def run() -> _Result:
            connection = self._free.get()
            try:
                return job(connection)
            except sqlite3.Error as error:
                raise _worded(error) from None
            finally:
                self._free.put(connection)

        self._check_open()
        return await asyncio.get_running_loop().run_in_executor(self._readers, run)

    def _check_open(self) -> None:
        if self._closed:
            raise StoreError("relay = (stopping) takes no more requests: try again soon")

    async def _write(self, job: Callable[[sqlite3.Connection], _Result]) -> _Result:
        self._check_open()
        future: Future[_Result] = Future()
        self._jobs.put((job, future))
        return await asyncio.wrap_future(future)

    def _write_jobs(self) -> None:
        while True:
            waiting = [self._jobs.get()]
            with suppress(queue.Empty):
                while len(waiting) < _JOBS_MAX:
                    waiting.append(self._jobs.get_nowait())
            jobs = [job for job in waiting if job is not None and job[1].set_running_or_notify_cancel()]
            if jobs:
                self._run(jobs)
            if None in waiting:
                return
            del waiting, jobs  # the bodies in them, while this thread waits

    def _run(self, jobs: Sequence[tuple[_Job, Future[Any]]]) -> None:
        try:
            outcomes = self._transaction([job for job, _ in jobs])
        except BaseException as error:
            problem = _worded(error) if isinstance(error, sqlite3.Error) else error
            if len(jobs) > 1 and not isinstance(problem, StoreLockedError):
                for job in jobs:  # one of them may be at fault, such as the one that fills the disk
                    self._run([job])
                return
            outcomes = [problem] * len(jobs)  # waiting for the lock again, for each, would take long
        for (_, future), outcome in zip(jobs, outcomes, strict=True):
            if isinstance(outcome, BaseException):
                future.set_exception(outcome)
            else:
                future.set_result(outcome)

    def _transaction(self, jobs: Sequence[_Job]) -> list[Any]:
        total = self._total
        outcomes: list[Any] = []
        try:
            self._writer.execute("BEGIN IMMEDIATE")
            for job in jobs:
                try:
                    outcomes.append(job(self._writer))
                except StoreError as refusal:
                    outcomes.append(refusal)
            self._writer.execute("COMMIT")
        except BaseException:
            self._total = total
            if self._writer.in_transaction:
                with suppress(sqlite3.Error):  # the first error tells more
                    self._writer.execute("ROLLBACK")
            raise
        return outcomes


def _new_items(connection: sqlite3.Connection, session: Session, items: Sequence[Item]) -> list[Item]:
    """The items whose slot is free; SlotTakenError if one holds something else."""
    statement = (
        "SELECT digest FROM messages WHERE session = ? AND sender = ? AND attempt = ? AND kind = ? AND recipient = ?"
    )
    seen: dict[tuple[int, ...], bytes] = {}
    new: list[Item] = []
    for item in items:
        slot = (session.id, item.sender, item.attempt, item.kind, item.recipient)
        known = seen.get(slot)
        if known is None:
            row = connection.execute(statement, slot).fetchone()
            known = None if row is None else row[0]
        if known is None:
            new.append(item)
        elif known != item.digest:
            what = f"kind {item.kind}, attempt {item.attempt}, to {item.recipient}"
            raise SlotTakenError(f"message = {what} differs from the one already here: send each message once")
        seen[slot] = item.digest
    return new


def _frames(connection: sqlite3.Connection, numbers: Sequence[int]) -> bytes:
    statement = "SELECT number, data FROM messages WHERE number IN (SELECT value FROM json_each(?)) ORDER BY number"
    found = connection.execute(statement, (json.dumps(list(numbers)),))
    return b"".join(frame(data, number) for number, data in found)


def _stored_bytes(connection: sqlite3.Connection, key: int | None = None) -> int:
    """What counts as stored, in all sessions or in one."""
    where = "" if key is None else "WHERE session = ?"
    arguments = () if key is None else (key,)
    messages = connection.execute(f"SELECT TOTAL(bytes) FROM usage {where}", arguments).fetchone()[0]  # noqa: S608
    statement = f"SELECT TOTAL(LENGTH(keys) + {ROW_BYTES}) FROM rosters {where}"  # noqa: S608
    return int(messages + connection.execute(statement, arguments).fetchone()[0])


def _connect(path: Path) -> sqlite3.Connection:
    connection = sqlite3.connect(path, timeout=5.0, isolation_level=None, check_same_thread=False)
    try:
        for pragma in (
            "synchronous = FULL",
            "fullfsync = ON",
            "checkpoint_fullfsync = ON",
            "journal_size_limit = 67108864",
        ):
            connection.execute(f"PRAGMA {pragma}")
    except sqlite3.Error:  # not a database
        connection.close()
        raise
    return connection


def _opened(path: Path) -> sqlite3.Connection:
    """The writing connection of a store that exists now and is ours."""
    handle = os.open(path, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
    try:
        fresh = os.fstat(handle).st_size == 0
    finally:
        os.close(handle)
    connection = _connect(path)
    try:
        if not fresh:
            application = connection.execute("PRAGMA application_id").fetchone()[0]
            version = connection.execute("PRAGMA user_version").fetchone()[0]
            empty = connection.execute("SELECT COUNT(*) FROM sqlite_master").fetchone()[0] == 0
            if application != _APPLICATION and not empty:
                raise FileError(path, "is the database of another program", "name another file")
            if version != _VERSION and not empty:
                raise FileError(path, f"is a relay store of version {version}", f"this relay reads version {_VERSION}")
        connection.executescript(_SCHEMA)
        path.chmod(0o600)
        with suppress(OSError):  # the name of a new file must survive a power loss too; not all systems can
            folder = os.open(path.parent, os.O_RDONLY)
            try:
                os.fsync(folder)
            finally:
                os.close(folder)
    except BaseException:
        connection.close()
        raise
    return connection


def _locked(path: Path) -> int:
    """A lock beside the file that ends with the process: a second relay would not hear of the first one's messages."""
    check_output(path)
    lock = path.with_name(path.name + "-lock")
    try:
        handle = os.open(lock, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
    except OSError as error:
        problem = f"cannot be written ({error.strerror or error})"
        raise FileError(lock, problem, "check the rights of the folder") from None
    try:
        import fcntl

        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except ImportError:  # Windows: no lock, the operator has to take care
        pass
    except OSError as error:
        os.close(handle)
        if error.errno in (errno.EWOULDBLOCK, errno.EACCES):
            raise FileError(path, "is in use by another relay", "stop that one or name another file") from None
        raise FileError(lock, f"cannot be locked ({error.strerror})", "put it on a local disk") from None
    return handle


@contextmanager
def _start_up(path: Path) -> Iterator[None]:
    """What goes wrong with the file at the start becomes a FileError."""
    try:
        yield
    except sqlite3.Error as error:
        problem = f"cannot be used as a relay store ({error})"
        raise FileError(path, problem, "name another file, or restore this one") from None
    except OSError as error:
        problem = f"cannot be written ({error.strerror or error})"
        raise FileError(path, problem, "check the disk and the rights") from None


def _worded(error: sqlite3.Error) -> StoreError:
    """What a client is told; the text of SQLite names no content."""
    code = getattr(error, "sqlite_errorcode", 0) & 0xFF
    if code == sqlite3.SQLITE_FULL:
        return RelayFullError("store = (disk full) has no room: tell the relay's operator")
    if code in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED):
        return StoreLockedError("store = (locked) is in use by another program: try again soon")
    return StoreError(f"store = ({' '.join(str(error).split())[:100]}) cannot be used: tell the relay's operator")
