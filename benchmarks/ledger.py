"""The ledger against plain SQLite: reservations one by one, and verification of a long chain."""

from __future__ import annotations

import hashlib
import math
import sqlite3
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from benchmarks.timing import Row, times
from tpmdp.ledger import Charge, Ledger

RESERVATIONS, ENTRIES, REPEATS = 50, 100_000, 5
COST = Charge(0.001, 1e-50, 0.01, 1e-6)


def seconds(*works: Callable[[int], object]) -> list[float]:
    """The best of a few rounds of each, in turns: the disk is shared. The ledger grows, so no round is repeated."""
    best = [math.inf] * len(works)
    for turn in range(REPEATS):
        for place, work in enumerate(works):
            start = time.perf_counter()
            work(turn)
            best[place] = min(best[place], time.perf_counter() - start)
    return best


def fill(ledger: Ledger, count: int) -> None:
    """Many reservations in one transaction, without asking the limit."""
    with ledger._transaction() as last:
        for number in range(count):
            last = ledger._append(last, "reserve", (1 << 250 | number).to_bytes(32, "big").hex(), "study", COST)


def plain(path: Path) -> sqlite3.Connection:
    """A table for the same rows, with the same journal and sync, and nothing else."""
    connection = sqlite3.connect(path, isolation_level=None)
    for setting in ("journal_mode=DELETE", "synchronous=EXTRA", "secure_delete=ON", "fullfsync=ON"):
        connection.execute(f"PRAGMA {setting}").fetchall()
    connection.execute("CREATE TABLE entries (number INTEGER PRIMARY KEY, session TEXT, mu REAL, content TEXT)")
    return connection


def reserving(folder: Path) -> Row:
    peer = plain(folder / "plain.db")
    content = "x" * 300  # about as long as an entry

    def theirs(turn: int) -> None:
        for number in range(RESERVATIONS):
            peer.execute("BEGIN IMMEDIATE")
            peer.execute("INSERT INTO entries VALUES (NULL, ?, ?, ?)", (f"{turn} {number}", 0.001, content))
            peer.execute("COMMIT")

    with Ledger.create(folder / "a.ledger", "north", 10.0, 1e-6) as ledger:

        def ours(turn: int) -> None:
            for number in range(RESERVATIONS):
                session = (turn * RESERVATIONS + number).to_bytes(32, "big")
                ledger.reserve(session, "study", COST, "record", {"seed": bytes(32)})

        mine, other = seconds(ours, theirs)
    peer.close()
    note = f"{RESERVATIONS / mine:,.0f} a second, each on the disk; a bare INSERT: {RESERVATIONS / other:,.0f}"
    return Row("time of a reservation over a bare SQLite INSERT", times(mine / other), "at most 3x", note)


def verifying(folder: Path) -> Row:
    with Ledger.create(folder / "b.ledger", "north", math.inf, 1e-6) as ledger:
        fill(ledger, ENTRIES)
        ledger.set_limit(10.0, 1e-6)
        peer = sqlite3.connect(folder / "b.ledger")

        def theirs(_: int) -> None:
            for row in peer.execute("SELECT * FROM entries ORDER BY number"):
                hashlib.sha256(repr(row).encode()).hexdigest()

        mine, other = seconds(lambda _: ledger.verify(), theirs)
        peer.close()
    note = f"{mine:.1f} s; hashes, sums, epsilon and sessions checked"
    return Row(f"time to verify {ENTRIES:,} entries over SELECT and SHA-256", times(mine / other), "at most 5x", note)


def rows() -> list[Row]:
    """The rows on the ledger."""
    with tempfile.TemporaryDirectory() as folder:
        return [reserving(Path(folder)), verifying(Path(folder))]
