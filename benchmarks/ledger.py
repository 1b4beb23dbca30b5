"""The ledger against plain SQLite: reservations one by one, and verification of a long chain."""

from __future__ import annotations

import hashlib
import math
import sqlite3
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from benchmarks.timing import Row, times
from tpmdp.ledger import Charge, Ledger, SessionKey

COST = Charge(0.001, 1e-50, 0.01, 1e-6)


@dataclass(frozen=True)
class Size:
    reservations: int = 50
    entries: int = 100_000
    repeats: int = 5


FULL, TOY = Size(), Size(reservations=3, entries=100, repeats=1)


def seconds(repeats: int, *works: Callable[[int], object]) -> list[float]:
    """The best time of each work, in turns, as the disk is shared. A work gets its turn, as the ledger grows."""
    best = [math.inf] * len(works)
    for turn in range(repeats):
        for place, work in enumerate(works):
            start = time.perf_counter()
            work(turn)
            best[place] = min(best[place], time.perf_counter() - start)
    return best


def fill(ledger: Ledger, count: int) -> None:
    """Many charges in one transaction, without a check of the limit."""
    with ledger._transaction() as last:
        for number in range(count):
            session = (1 << 250 | number).to_bytes(32, "big")
            totals = last.balance.with_charge(COST.mu, COST.closeness)
            key = SessionKey(session, session)
            last = ledger._append(last, "charge", balance=totals, unit="record", key=key, study="study", charge=COST)


def plain(path: Path) -> sqlite3.Connection:
    """A table for the same rows, with the same journal and sync, and nothing else."""
    connection = sqlite3.connect(path, isolation_level=None)
    for setting in ("journal_mode=DELETE", "synchronous=EXTRA", "secure_delete=ON", "fullfsync=ON"):
        connection.execute(f"PRAGMA {setting}").fetchall()
    connection.execute("CREATE TABLE entries (number INTEGER PRIMARY KEY, session TEXT, mu REAL, content TEXT)")
    return connection


def reserving(folder: Path, size: Size) -> Row:
    peer = plain(folder / "plain.db")
    content = "x" * 300  # about as long as an entry

    def theirs(turn: int) -> None:
        for number in range(size.reservations):
            peer.execute("BEGIN IMMEDIATE")
            peer.execute("INSERT INTO entries VALUES (NULL, ?, ?, ?)", (f"{turn} {number}", 0.001, content))
            peer.execute("COMMIT")

    with Ledger.create(folder / "a.ledger", "north", 10.0, 1e-6) as ledger:

        def ours(turn: int) -> None:
            for number in range(size.reservations):
                session = (turn * size.reservations + number).to_bytes(32, "big")
                key = SessionKey(session, session)
                ledger.charge(key, "study", COST, unit="record", private={"seed": bytes(32)})

        mine, other = seconds(size.repeats, ours, theirs)
    peer.close()
    note = (
        f"{size.reservations / mine:,.0f} per second, each on the disk; a bare INSERT: {size.reservations / other:,.0f}"
    )
    return Row("time of a charge over a bare SQLite INSERT", times(mine / other), "at most 3x", note)


def verifying(folder: Path, size: Size) -> Row:
    with Ledger.create(folder / "b.ledger", "north", math.inf, 1e-6) as ledger:
        fill(ledger, size.entries)
        ledger.set_limit(10.0, 1e-6)
        peer = sqlite3.connect(folder / "b.ledger")

        def theirs(_: int) -> None:
            for row in peer.execute("SELECT * FROM entries ORDER BY number"):
                hashlib.sha256(repr(row).encode()).hexdigest()

        mine, other = seconds(size.repeats, lambda _: ledger.verify(), theirs)
        peer.close()
    note = f"{mine:.1f} s; hashes, sums, epsilon and sessions checked"
    return Row(
        f"time to verify {size.entries:,} entries over SELECT and SHA-256", times(mine / other), "at most 5x", note
    )


def rows(size: Size = FULL) -> list[Row]:
    """The rows on the ledger."""
    with tempfile.TemporaryDirectory() as folder:
        return [reserving(Path(folder), size), verifying(Path(folder), size)]
