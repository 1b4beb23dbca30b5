"""The file of a ledger: how it is made, opened, read page by page, appended to and verified.

Each entry's hash is SHA-256 over the hash before it and the entry's fields as JSON (keys sorted, no blanks, numbers as
`float.hex`); the first entry's predecessor is the hash of the ledger's random id, party and unit. Anybody who may write
the file can rewrite the whole chain: only a head noted elsewhere (`verify(head=...)`) shows that.
"""

from __future__ import annotations

import math
import os
import secrets
import sqlite3
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, astuple, replace
from datetime import UTC, datetime
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

from tpmdp._util.files import StrPath, as_path, check_output, readable
from tpmdp._util.progress import Progress
from tpmdp.errors import FileError, InputError, shown
from tpmdp.ledger.check import Verification
from tpmdp.ledger.entry import COLUMNS, Entry, SessionKey, before_first, entry_hash, origin_hash
from tpmdp.ledger.schema import (
    APPLICATION,
    SCHEMA,
    UNITS,
    UPGRADE,
    VERSION,
    connect,
    exists_error,
    file_error,
    statements_of,
)
from tpmdp.ledger.spending import NOTHING, Charge, LedgerError, Totals, check_limit

TEXT_MAX: Final = 200  # characters of a party's or study's name
_SELECT: Final = {  # by format; noqa: S608 - our own column names
    1: f"SELECT {', '.join(COLUMNS[:-2])}, '' AS plan, '' AS unit FROM entries",  # noqa: S608
    VERSION: f"SELECT {', '.join(COLUMNS)} FROM entries",  # noqa: S608
}
_SIZE_MAX: Final = 1 << 44
_PAGE: Final = 2048  # entries read at a time: between pages no lock is held, so a slow reader delays nobody
_HASH: Final = COLUMNS.index("hash")
_INSERT: Final = f"INSERT INTO entries VALUES ({', '.join('?' * len(COLUMNS))})"  # noqa: S608


def check_text(name: str, value: object) -> str:
    """A short printable name."""
    if not isinstance(value, str) or not value.strip() or len(value) > TEXT_MAX or not value.isprintable():
        raise InputError(name, value, f"must be 1 to {TEXT_MAX} printable characters", "give a plain name")
    return value


def _settled_status(path: Path) -> os.stat_result:
    """The status of a file; waits a moment if another process is about to name it."""
    for _ in range(20):
        status = path.stat()
        if status.st_nlink == 1:
            return status
        time.sleep(0.05)
    for other in path.parent.glob(".tpmdp-*.ledger"):  # left by a process killed while it created the ledger
        with suppress(OSError):
            if other.samefile(path):
                other.unlink()
    return path.stat()


def parse_head(text: str) -> str:
    """A hash of an entry that somebody noted."""
    head = text.strip().lower()
    if len(head) != 64 or set(head) - set("0123456789abcdef"):
        raise InputError("head", text, "must be 64 characters (0-9, a-f)", "give one that was printed earlier")
    return head


def _now() -> str:
    return datetime.fromtimestamp(time.time(), UTC).isoformat(timespec="seconds")


class LedgerFile:
    """One party's ledger file; a context manager. Threads may share it; a forked process opens its own."""

    def __init__(self, path: Path, connection: sqlite3.Connection) -> None:
        """Used by `create` and `open`; owns the connection from now on."""
        self.path: Final = path
        self.party = self.unit = ""
        self._version = VERSION
        self._origin = ""
        self._connection: Final = connection
        self._lock: Final = threading.RLock()
        self._process: Final = os.getpid()
        self._file: Final = self._identity()

    def __repr__(self) -> str:
        return f"{type(self).__name__}({str(self.path)!r}, party={self.party!r})"

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the file; may be called twice."""
        with self._lock:
            self._connection.close()

    @classmethod
    def create(cls, path: StrPath, party: str, epsilon: float, delta: float, unit: str = "record") -> Self:
        """A new ledger with this limit, readable by its owner only (mode 0600); refuses a file that exists.

        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     with LedgerFile.create(Path(folder) / "a.ledger", "hospital", 1.0, 1e-6) as ledger:
        ...         ledger.party, ledger.unit, oct(ledger.path.stat().st_mode & 0o777)
        ('hospital', 'record', '0o600')
        """
        path = as_path(path)
        check_text("party", party)
        if unit not in UNITS:
            raise InputError("unit", unit, "must be record or party", "say whose data one budget protects")
        limit = check_limit(epsilon, delta)
        check_output(path)
        if os.path.lexists(path):
            raise exists_error(path)
        # Written under another name and then linked: no process ever sees an incomplete ledger.
        try:
            handle, name = tempfile.mkstemp(dir=path.parent, prefix=".tpmdp-", suffix=".ledger")
            os.close(handle)
            os.chmod(name, 0o600)  # whatever the umask is
        except OSError as error:
            problem = f"cannot be written ({error.strerror or error})"
            raise FileError(path, problem, "check the disk and the rights of the folder") from None
        try:
            with cls(Path(name), connect(Path(name))) as ledger:
                ledger._fill(party, unit, limit)
            os.link(name, path)
        except FileExistsError:
            raise exists_error(path) from None
        except FileError as error:
            raise FileError(path, error.problem, error.remedy) from None
        except OSError as error:
            problem = f"cannot be written ({error.strerror or error})"
            raise FileError(path, problem, "use a file system with hard links") from None
        finally:
            for leftover in (Path(name), Path(f"{os.path.realpath(name)}-journal")):
                with suppress(OSError):
                    leftover.unlink()
        return cls.open(path)

    @classmethod
    def open(cls, path: StrPath) -> Self:
        """The ledger in this file, after a quick check of its first and last entry; `verify` checks them all.

        >>> LedgerFile.open(Path("no.ledger"))
        Traceback (most recent call last):
            ...
        tpmdp.errors.FileError: no.ledger does not exist: check the path, or make one with tpmdp ledger create
        """
        path = as_path(path)
        if not os.path.lexists(path):
            raise FileError(path, "does not exist", "check the path, or make one with tpmdp ledger create")
        # Never opened here: closing a second handle would drop SQLite's locks in this process.
        with readable(path, _SIZE_MAX) as size:
            status = _settled_status(path)
            if size == 0:
                raise FileError(path, "is empty, not a ledger", "name a file made by tpmdp ledger create")
            if os.name == "posix" and status.st_mode & 0o077:
                raise FileError(path, f"is open to others (mode {status.st_mode & 0o777:04o})", f"chmod 600 {path}")
            if status.st_nlink > 1:
                # After a crash under its other name SQLite would not find the journal, which is named after the file.
                raise FileError(path, "has a second name (hard link)", "remove that link, or make a copy instead")
        ledger = cls(path, connect(path))
        try:
            ledger._load()
        except BaseException:
            ledger.close()
            raise
        return ledger

    def _fill(self, party: str, unit: str, limit: tuple[float, float]) -> None:
        """Write the tables and the first entry in one transaction."""
        identity = secrets.token_hex(16)
        with self._guard():
            # All or nothing, including these two settings, which are in the file's first page.
            self._connection.execute("BEGIN IMMEDIATE")
            self._connection.execute(f"PRAGMA application_id={APPLICATION}")
            for statement in (*SCHEMA, *UPGRADE):
                self._connection.execute(statement)
            self._connection.execute("INSERT INTO ledger VALUES (?, ?, ?)", (identity, party, unit))
            self._version = VERSION
            first = before_first(limit, origin_hash(identity, party, unit))
            self._append(first, "open", balance=first.balance, unit=unit)
            self._connection.execute("COMMIT")

    def _load(self) -> None:
        """Check that this is a ledger of this version, and its first and last entry."""
        with self._guard():
            application = self._connection.execute("PRAGMA application_id").fetchone()[0]
            version = self._format()
            if application != APPLICATION:
                raise FileError(self.path, "is not a ledger", "name a file made by tpmdp ledger create")
            if version not in _SELECT:
                problem = f"has format {version}, and this tpmdp reads formats up to {VERSION}"
                raise FileError(self.path, problem, "use the tpmdp that wrote it")
            self._version = version
            mode = self._connection.execute("PRAGMA journal_mode=DELETE").fetchone()[0]
            if mode != "delete":
                raise FileError(self.path, f"is in journal mode {mode}", "end the process that holds it")
            owners = self._connection.execute("SELECT id, party, unit FROM ledger").fetchall()
            if len(owners) != 1:
                raise self._altered(1, "has no owner")
            identity, self.party, self.unit = owners[0]
            self._origin = origin_hash(identity, self.party, self.unit)
            row = self._connection.execute(f"{self._select} ORDER BY number LIMIT 1").fetchone()
            first = None if row is None else Entry(*row)
            if first is None or (first.number, first.previous, first.hash) != (1, self._origin, entry_hash(row)):
                raise self._altered(1, "does not match its hash")
            self._last()

    @contextmanager
    def _guard(self) -> Iterator[None]:
        """One thread at a time. On an error an open transaction is undone; SQLite's errors become a FileError."""
        if os.getpid() != self._process:
            raise LedgerError("the ledger", "was opened before this process was forked", "open it again")
        with self._lock:
            try:
                yield
            except BaseException as error:
                with suppress(sqlite3.Error):
                    if self._connection.in_transaction:
                        self._connection.execute("ROLLBACK")
                        self._version = self._format()  # an upgrade is undone, too
                if isinstance(error, sqlite3.Error):
                    raise file_error(self.path, error) from None
                raise

    @contextmanager
    def _transaction(self) -> Iterator[Entry]:
        """One writer at a time, among all processes. Yields the last entry and commits if the block succeeds."""
        with self._guard():
            self._connection.execute("BEGIN IMMEDIATE")
            if self._identity() != self._file:
                raise FileError(self.path, "was moved or replaced while in use", "open the ledger again")
            self._upgrade()
            yield self._last()
            self._connection.execute("COMMIT")

    @property
    def _select(self) -> str:
        if self._version < VERSION:  # another process may have upgraded the file
            with self._guard():
                self._version = self._format()
        return _SELECT[self._version]

    def _format(self) -> int:
        return int(self._connection.execute("PRAGMA user_version").fetchone()[0])

    def _upgrade(self) -> None:
        """Bring an older file to today's format, in the transaction of its first change; another process may have."""
        if self._format() < VERSION:
            for statement in UPGRADE:
                self._connection.execute(statement)
        self._version = VERSION

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
        row = self._connection.execute(f"{self._select} ORDER BY number DESC LIMIT 1").fetchone()
        if row is None:
            raise self._altered(1, "is missing")
        entry = Entry(*row)
        if entry.hash != entry_hash(row):
            raise self._altered(entry.number, "does not match its hash")
        return entry

    def _append(
        self,
        last: Entry,
        kind: str,
        *,
        balance: Totals,
        unit: str,
        key: SessionKey | None = None,
        study: str = "",
        charge: Charge = NOTHING,
        outcome: str = "",
    ) -> Entry:
        """Write the entry after `last`, within a transaction. `balance` is that of its unit, this entry included."""
        session, plan = ("", "") if key is None else (key.session.hex(), key.plan.hex())
        entry = Entry(
            last.number + 1,
            kind,
            _now(),
            session=session,
            study=study,
            **asdict(charge),
            **asdict(balance),
            outcome=outcome,
            previous=last.hash,
            hash="",
            plan=plan,
            unit=unit,
        )
        entry = replace(entry, hash=entry_hash(astuple(entry)))
        self._connection.execute(_INSERT, astuple(entry))
        return entry

    def _altered(self, number: int, problem: str) -> LedgerError:
        remedy = "the file was changed by something else; restore the newest copy that verifies"
        return LedgerError(f"entry {number} of {shown(str(self.path), 300)}", problem, remedy)

    def entries(self, after: int = 0) -> Iterator[Entry]:
        """The entries, oldest first, or those numbered above `after`. A slow reader delays nobody.

        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     with LedgerFile.create(Path(folder) / "a.ledger", "hospital", 1.0, 1e-6) as ledger:
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
        ...     with LedgerFile.create(Path(folder) / "a.ledger", "hospital", 1.0, 1e-6) as ledger:
        ...         [entry.kind for entry in ledger.newest(1)]
        ['open']
        """
        rows = self._read(f"{self._select} ORDER BY number DESC LIMIT ?", (count,))
        return [Entry(*row) for row in reversed(rows)]

    def export(self) -> Iterator[dict[str, object]]:
        """Every entry as plain JSON values, infinity as "inf"; without private state.

        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     with LedgerFile.create(Path(folder) / "a.ledger", "hospital", float("inf"), 1e-6) as ledger:
        ...         [(entry["kind"], entry["limit_epsilon"]) for entry in ledger.export()]
        [('open', 'inf')]
        """
        for page in self._pages():
            for row in page:
                yield {name: "inf" if value == math.inf else value for name, value in zip(COLUMNS, row, strict=True)}

    def _pages(self, after: int = 0) -> Iterator[list[tuple[Any, ...]]]:
        while page := self._read(f"{self._select} WHERE number > ? ORDER BY number LIMIT {_PAGE}", (after,)):
            yield page
            after = page[-1][0]

    def verify(self, head: str | None = None, progress: Progress | None = None) -> str:
        """Recompute every hash, total and limit; returns the head, the hash of the last entry.

        `head`: a hash noted earlier. It must be in the chain; otherwise entries were cut off or rewritten since.

        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     with LedgerFile.create(Path(folder) / "a.ledger", "hospital", 1.0, 1e-6) as ledger:
        ...         head = ledger.verify()
        ...         ledger.verify(head) == head
        True
        """
        noted = None if head is None else parse_head(head)
        check = Verification(self._origin, self.unit)
        count = self._read("SELECT count(*) FROM entries")[0][0]
        for page in self._pages():
            problem = check.page(page)
            if problem is not None:
                raise self._altered(*problem)
            if noted is not None and any(row[_HASH] == noted for row in page):
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
        """Check tables, triggers and pages."""
        with self._guard():
            version = self._format()
        statements = {row[0] for row in self._read("SELECT sql FROM sqlite_master WHERE sql IS NOT NULL")}
        if statements != statements_of(version):
            remedy = "somebody changed the file; restore a copy from before"
            raise LedgerError(f"the ledger {shown(str(self.path), 300)}", "has altered tables or triggers", remedy)
        result = self._read("PRAGMA integrity_check(1)")[0][0]
        if result != "ok":
            raise FileError(self.path, f"is damaged ({shown(result)})", "restore the newest copy")
