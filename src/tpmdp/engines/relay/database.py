"""The relay's SQLite file: one thread writes, two read, and what is acknowledged is on the disk.

The writing thread takes all jobs that wait into one transaction, so that many senders share one sync to the disk.
"""

from __future__ import annotations

import asyncio
import errno
import os
import queue
import sqlite3
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, ClassVar, Final, TypeVar

from tpmdp._util.files import check_output
from tpmdp.errors import FileError, TpmdpError

_Result = TypeVar("_Result")
_Job = Callable[[sqlite3.Connection], Any]

ROW_BYTES: Final = 256  # roughly what a message or a session costs beside its content
APPLICATION: Final = 0x74706D72  # "tpmr"
VERSION: Final = 2
_READERS: Final = 2
_JOBS_MAX: Final = 64  # in one transaction
_SCHEMA: Final = f"""
PRAGMA page_size = 16384;
PRAGMA journal_mode = WAL;
BEGIN;
CREATE TABLE IF NOT EXISTS sessions (
    id INTEGER PRIMARY KEY AUTOINCREMENT, name BLOB NOT NULL UNIQUE, touched INTEGER NOT NULL);
CREATE TABLE IF NOT EXISTS rosters (session INTEGER PRIMARY KEY, keys BLOB NOT NULL);
CREATE TABLE IF NOT EXISTS messages (
    number INTEGER PRIMARY KEY AUTOINCREMENT, session INTEGER NOT NULL, kind INTEGER NOT NULL,
    attempt INTEGER NOT NULL, sender INTEGER NOT NULL, recipient INTEGER NOT NULL, plan BLOB NOT NULL,
    size INTEGER NOT NULL, digest BLOB NOT NULL, data BLOB NOT NULL);
CREATE UNIQUE INDEX IF NOT EXISTS slots ON messages (session, sender, plan, attempt, kind, recipient);
CREATE INDEX IF NOT EXISTS mail ON messages (session, kind, recipient, number, sender, size);
CREATE TABLE IF NOT EXISTS usage (
    session INTEGER, party INTEGER, plan BLOB, attempt INTEGER, slots INTEGER NOT NULL, bytes INTEGER NOT NULL,
    PRIMARY KEY (session, party, plan, attempt)) WITHOUT ROWID;
PRAGMA application_id = {APPLICATION};
PRAGMA user_version = {VERSION};
COMMIT;
"""
# Version 1 did not know slots by plan hash. It stands in the header of each message, after the session.
_FROM_VERSION_1: Final = """
BEGIN EXCLUSIVE;
DROP INDEX slots;
DROP INDEX mail;
ALTER TABLE messages RENAME TO old_messages;
ALTER TABLE usage RENAME TO old_usage;
CREATE TABLE messages (
    number INTEGER PRIMARY KEY AUTOINCREMENT, session INTEGER NOT NULL, kind INTEGER NOT NULL,
    attempt INTEGER NOT NULL, sender INTEGER NOT NULL, recipient INTEGER NOT NULL, plan BLOB NOT NULL,
    size INTEGER NOT NULL, digest BLOB NOT NULL, data BLOB NOT NULL);
INSERT INTO messages
    SELECT number, session, kind, attempt, sender, recipient, substr(data, 50, 32), size, digest,
    data FROM old_messages;
CREATE TABLE usage (
    session INTEGER, party INTEGER, plan BLOB, attempt INTEGER, slots INTEGER NOT NULL, bytes INTEGER NOT NULL,
    PRIMARY KEY (session, party, plan, attempt)) WITHOUT ROWID;
INSERT INTO usage
    SELECT session, sender, plan, attempt, COUNT(*), SUM(size + 256) FROM messages GROUP BY 1, 2, 3, 4;
DELETE FROM sqlite_sequence WHERE name = 'messages';
UPDATE sqlite_sequence SET name = 'messages' WHERE name = 'old_messages';  -- numbers are never used twice
DROP TABLE old_messages;
DROP TABLE old_usage;
PRAGMA user_version = 2;
COMMIT;
"""


class StoreError(TpmdpError):
    """The store refuses a request; nothing of the request was stored."""

    status: ClassVar[int] = 503


class StoreLockedError(StoreError):
    """Another program holds the file."""


class RelayFullError(StoreError):
    """A limit, or the disk, leaves no room."""

    status = 507


class Database:
    """The file and its threads. Its coroutines belong to one event loop; `close` ends the threads.

    Writing jobs keep the count `stored_bytes`; it is restored when their transaction is rolled back.
    """

    def __init__(self, path: Path, count_bytes: Callable[[sqlite3.Connection], int]) -> None:
        self._lock = _locked(path)
        self._connections: list[sqlite3.Connection] = []
        try:
            with _start_up(path):
                self._writer = _opened(path)
                self._connections.append(self._writer)
                self.stored_bytes = count_bytes(self._writer)
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

    async def read(self, job: Callable[[sqlite3.Connection], _Result]) -> _Result:
        """Run a job in a reading thread."""

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

    async def write(self, job: Callable[[sqlite3.Connection], _Result]) -> _Result:
        """Run a job in a transaction that others may share; it is on the disk when this returns."""
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
            del waiting, jobs  # and the bodies in them, while this thread waits

    def _run(self, jobs: Sequence[tuple[_Job, Future[Any]]]) -> None:
        try:
            outcomes = self._transaction([job for job, _ in jobs])
        except BaseException as error:
            problem = _worded(error) if isinstance(error, sqlite3.Error) else error
            if len(jobs) > 1 and not isinstance(problem, StoreLockedError):
                for job in jobs:  # one of them may be at fault, such as the one that fills the disk
                    self._run([job])
                return
            outcomes = [problem] * len(jobs)  # waiting for the lock again for each would take long
        for (_, future), outcome in zip(jobs, outcomes, strict=True):
            if isinstance(outcome, BaseException):
                future.set_exception(outcome)
            else:
                future.set_result(outcome)

    def _transaction(self, jobs: Sequence[_Job]) -> list[Any]:
        stored_bytes = self.stored_bytes
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
            self.stored_bytes = stored_bytes
            if self._writer.in_transaction:
                with suppress(sqlite3.Error):  # the first error says more
                    self._writer.execute("ROLLBACK")
            raise
        return outcomes


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
    """The writing connection to our store, which is created if it does not exist."""
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
            if application != APPLICATION and not empty:
                raise FileError(path, "is the database of another program", "name another file")
            if version == 1 and not empty:
                connection.executescript(_FROM_VERSION_1)
            elif version != VERSION and not empty:
                problem = f"is a relay store of version {version}, and this relay reads versions 1 and {VERSION}"
                raise FileError(path, problem, "name another file, or use the tpmdp that wrote it")
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
    """Lock a file beside the store until the process ends: a second relay would miss the messages of the first."""
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
    """Turn errors with the file at the start into a FileError."""
    try:
        yield
    except sqlite3.Error as error:
        problem = f"cannot be used as a relay store ({error})"
        raise FileError(path, problem, "name another file, or restore this one") from None
    except OSError as error:
        problem = f"cannot be written ({error.strerror or error})"
        raise FileError(path, problem, "check the disk and the rights") from None


def _worded(error: sqlite3.Error) -> StoreError:
    """The error for a client; the text of SQLite names no content."""
    code = getattr(error, "sqlite_errorcode", 0) & 0xFF
    if code == sqlite3.SQLITE_FULL:
        return RelayFullError("store = (disk full) has no room: tell the relay's operator")
    if code in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED):
        return StoreLockedError("store = (locked) is in use by another program: try again soon")
    return StoreError(f"store = ({' '.join(str(error).split())[:100]}) cannot be used: tell the relay's operator")
