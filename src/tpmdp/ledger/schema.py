"""A ledger as an SQLite database: tables and triggers, settings, and SQLite's errors in plain words."""

from __future__ import annotations

import os
import sqlite3
from contextlib import closing
from functools import cache
from pathlib import Path
from typing import Final

from tpmdp.errors import FileError, shown

APPLICATION: Final = 0x54504D4C  # "TPML"

VERSION: Final = 2
UNITS: Final = ("record", "party")

_BUSY_MS: Final = 30_000

SCHEMA: Final = (
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
    # INSERT OR REPLACE deletes without firing the trigger above, so it is refused before.
    "CREATE TRIGGER in_order BEFORE INSERT ON entries "
    "WHEN NEW.number IS NOT (SELECT coalesce(max(number), 0) + 1 FROM entries) OR (NEW.session <> '' AND EXISTS "
    "(SELECT 1 FROM entries WHERE session = NEW.session AND kind = NEW.kind AND session <> '')) "
    "BEGIN SELECT RAISE(ABORT, 'the ledger is append-only'); END",
    "CREATE TRIGGER no_new_owner BEFORE UPDATE ON ledger BEGIN SELECT RAISE(ABORT, 'the ledger is append-only'); END",
    "CREATE TRIGGER no_orphan BEFORE DELETE ON ledger BEGIN SELECT RAISE(ABORT, 'the ledger is append-only'); END",
)

# Wherever a session is looked up, `session <> ''` lets SQLite use the index `once`.
# From format 1 to 2: an entry is known by session, plan and unit. A new ledger is made in both steps, too, so that its
# tables have the same text as those of a ledger that was upgraded.
UPGRADE: Final = (
    "ALTER TABLE entries ADD COLUMN plan TEXT NOT NULL DEFAULT ''",
    "ALTER TABLE entries ADD COLUMN unit TEXT NOT NULL DEFAULT ''",
    "DROP INDEX once",
    "CREATE UNIQUE INDEX once ON entries (session, plan, kind) WHERE session <> ''",
    "DROP TRIGGER in_order",
    "CREATE TRIGGER in_order BEFORE INSERT ON entries "
    "WHEN NEW.number IS NOT (SELECT coalesce(max(number), 0) + 1 FROM entries) OR (NEW.session <> '' AND EXISTS "
    "(SELECT 1 FROM entries WHERE session = NEW.session AND plan = NEW.plan AND kind = NEW.kind AND session <> '')) "
    "OR (NEW.kind = 'charge' AND EXISTS "
    "(SELECT 1 FROM entries WHERE session = NEW.session AND kind IN ('charge', 'reserve') AND session <> '')) "
    "BEGIN SELECT RAISE(ABORT, 'the ledger is append-only'); END",
    # From a hash of data beside its salt, values can be tried.
    "DELETE FROM private WHERE name IN ('salt', 'data') AND session IN "
    "(SELECT session FROM entries WHERE kind = 'settle')",
    f"PRAGMA user_version={VERSION}",
)


@cache
def statements_of(version: int) -> frozenset[str]:
    """The tables, indexes and triggers of a ledger of this format, as SQLite stores them."""
    with closing(sqlite3.connect(":memory:")) as connection:
        for statement in (*SCHEMA, *(UPGRADE if version > 1 else ())):
            connection.execute(statement)
        return frozenset(row[0] for row in connection.execute("SELECT sql FROM sqlite_master WHERE sql IS NOT NULL"))


def file_error(path: Path, error: sqlite3.Error) -> FileError:
    """An SQLite error in plain words, with a remedy."""
    name = getattr(error, "sqlite_errorname", "") or ""
    for prefix, problem, remedy in (
        ("SQLITE_FULL", "cannot be written (the disk is full)", "free some space; nothing was changed"),
        ("SQLITE_BUSY", "is in use by another process", "try again, or end the process that holds it"),
        ("SQLITE_LOCKED", "is in use by another process", "try again, or end the process that holds it"),
        ("SQLITE_READONLY", "cannot be written (read-only)", "check the permissions of the file and its folder"),
        ("SQLITE_PERM", "cannot be written (no rights)", "check the permissions of the file and its folder"),
        ("SQLITE_CANTOPEN", "cannot be opened", "check the permissions of the file and its folder"),
        ("SQLITE_NOTADB", "is not a ledger", "name a file made by tpmdp ledger create"),
        ("SQLITE_CORRUPT", "is damaged", "restore the newest copy and compare its head with one noted earlier"),
        ("SQLITE_IOERR", f"cannot be read or written (disk error {name})", "check the disk and its space"),
    ):
        if name.startswith(prefix):
            return FileError(path, problem, remedy)
    return FileError(path, f"cannot be used ({shown(str(error))})", "check that it is a ledger; nothing was changed")


def connect(path: Path) -> sqlite3.Connection:
    """A connection that waits for other processes, syncs fully and erases what it deletes.

    A rollback journal, not a write-ahead log: the file alone is then the whole ledger, so a copy never lacks the newest
    charges, and erased data does not remain in a log. EXTRA, not FULL: otherwise a power cut could restore the deleted
    journal, which would undo a reservation that was reported as done.
    """
    try:
        address = Path(os.path.realpath(path)).as_uri() + "?mode=rw"  # never creates a file
        connection = sqlite3.connect(
            address, uri=True, timeout=_BUSY_MS / 1000, isolation_level=None, check_same_thread=False
        )
    except sqlite3.Error as error:
        raise file_error(path, error) from None
    try:
        for setting in ("trusted_schema=OFF", "secure_delete=ON", "synchronous=EXTRA", "fullfsync=ON"):
            connection.execute(f"PRAGMA {setting}").fetchall()
    except sqlite3.Error as error:
        connection.close()
        raise file_error(path, error) from None
    return connection


def exists_error(path: Path) -> FileError:
    """A ledger is never replaced."""
    return FileError(path, "exists already", "choose another name; a ledger is never replaced")
