"""Sessions and messages in the relay's database, within its limits.

Only rosters in use and the number of bytes stored are held in memory; the file is the truth.
"""

from __future__ import annotations

import json
import sqlite3
import time
from collections.abc import AsyncIterator, Sequence
from functools import partial
from pathlib import Path
from typing import Final

from tpmdp.engines.relay.database import ROW_BYTES, Database, RelayFullError
from tpmdp.engines.relay.limits import RelaySettings
from tpmdp.engines.relay.requests import Wanted
from tpmdp.engines.relay.session_rows import (
    PLANS_MAX,
    Batch,
    CheckedMessage,
    PlansSpentError,
    SessionGoneError,
    SlotTakenError,
    StoredSession,
)
from tpmdp.engines.relay.status import SessionStatus, query_status
from tpmdp.engines.relay.wire import BATCH_MAX, frame, frame_head
from tpmdp.protocol.messages import EVERYONE, HASH_BYTES, OVERHEAD

SMALL: Final = 64 << 10  # answers up to here are read at once; larger ones while they are sent
SLICE: Final = 256 << 10  # bytes of an answer in memory at once
_KEYS_CACHED: Final = 1_000_000  # public keys of sessions in use
_EMPTY_KEEP_S: Final = 3_600.0  # a session without a message
_EMPTY_GRACE_S: Final = 60.0  # the same where there is no room left
_EVICTED_MAX: Final = 1_000  # at once
_TOUCH_S: Final = 3_600  # how exactly the last use is known; saves one page per write


class RelayStore:
    """The sessions and messages of a relay. Its coroutines belong to one event loop; `close` ends the threads.

    >>> import asyncio, tempfile
    >>> async def use(path: Path) -> tuple[bool, bool, int]:
    ...     store = RelayStore(path, RelaySettings())
    ...     new = await store.open_session(bytes(32), bytes(range(64)))
    ...     again = await store.open_session(bytes(32), bytes(range(64)))
    ...     session = await store.session(bytes(32))
    ...     message = CheckedMessage(1, 0, 0, recipient=EVERYONE, plan=bytes(32), digest=bytes(32), data=b"hello")
    ...     await store.add(session, [message])
    ...     picked = await store.pick(session, 1, Wanted({1: 0}))
    ...     store.close()
    ...     return new, again, len(picked.numbers)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     asyncio.run(use(Path(folder) / "relay.sqlite"))
    (True, False, 1)
    """

    def __init__(self, path: Path, settings: RelaySettings) -> None:
        self.path = path
        self._settings = settings
        self._cached: dict[bytes, StoredSession] = {}  # oldest use first
        self._cached_keys = 0
        self._database = Database(path, _stored_bytes)

    def close(self) -> None:
        """Finish what is being written and close the file. May be called twice."""
        self._database.close()

    # Sessions --------------------------------------------------------------------------------------------------------

    def cached(self, name: bytes) -> StoredSession | None:
        """A session in use, without reading from the disk."""
        session = self._cached.pop(name, None)
        if session is not None:
            self._cached[name] = session
        return session

    async def session(self, name: bytes) -> StoredSession:
        """The session of this name; SessionGoneError if there is none."""
        cached = self.cached(name)
        if cached is not None:
            return cached

        def read(connection: sqlite3.Connection) -> tuple[int, bytes] | None:
            statement = "SELECT id, keys FROM sessions JOIN rosters ON session = id WHERE name = ?"
            row: tuple[int, bytes] | None = connection.execute(statement, (name,)).fetchone()
            return row

        row = await self._database.read(read)
        if row is None:
            raise SessionGoneError(f"session = {name.hex()[:12]}... is not known here: PUT it first")
        session_id, keys = row
        roster = tuple(keys[start : start + HASH_BYTES] for start in range(0, len(keys), HASH_BYTES))
        session = StoredSession(session_id, name, roster)
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
        """Store a session; returns whether it is new."""

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

        return await self._database.write(write)

    async def sweep(self, keep_s: float) -> int:
        """Delete sessions without a new message for `keep_s`, and sooner those without any; returns how many."""
        now = time.time()
        old = (
            "SELECT id, name FROM sessions WHERE touched < ? OR "
            "(touched < ? AND NOT EXISTS (SELECT 1 FROM usage WHERE session = id))"
        )
        limits = (int(now - keep_s), int(now - min(keep_s, _EMPTY_KEEP_S)))
        expired = await self._database.read(lambda connection: connection.execute(old, limits).fetchall())
        for session_id, name in expired:  # one transaction each, so that senders need not wait for all
            await self._database.write(partial(self._delete, session_id))
            self._forget(name)
        return len(expired)

    def _delete(self, key: int, connection: sqlite3.Connection) -> None:
        self._database.stored_bytes -= _stored_bytes(connection, key)
        for table in ("messages", "usage", "rosters"):
            connection.execute(f"DELETE FROM {table} WHERE session = ?", (key,))  # noqa: S608
        connection.execute("DELETE FROM sessions WHERE id = ?", (key,))

    # Messages --------------------------------------------------------------------------------------------------------

    async def add(self, session: StoredSession, items: Sequence[CheckedMessage]) -> list[CheckedMessage]:
        """Store the messages of one sender, all or none, on the disk; returns those that are new."""
        return await self._database.write(lambda connection: self._add(connection, session, items))

    def _add(
        self, connection: sqlite3.Connection, session: StoredSession, items: Sequence[CheckedMessage]
    ) -> list[CheckedMessage]:
        """Everything is checked before the first change: the transaction is shared with other senders."""
        row = connection.execute("SELECT touched FROM sessions WHERE id = ?", (session.id,)).fetchone()
        if row is None:
            raise SessionGoneError(f"session = {session.name.hex()[:12]}... has expired: PUT it again")
        new = _new_messages(connection, session, items)
        if not new:
            return []
        used = self._check_caps(connection, session, new)
        self._grow(connection, sum(size for _, size in used.values()))
        connection.executemany(
            "INSERT INTO messages (session, kind, attempt, sender, recipient, plan, size, digest, data) "
            "VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)",
            (
                (session.id, m.kind, m.attempt, m.sender, m.recipient, m.plan, len(m.data), m.digest, m.data)
                for m in new
            ),
        )
        connection.executemany(
            "INSERT INTO usage (session, party, plan, attempt, slots, bytes) VALUES (?, ?, ?, ?, ?, ?) "
            "ON CONFLICT DO UPDATE SET slots = slots + excluded.slots, bytes = bytes + excluded.bytes",
            ((session.id, new[0].sender, *place, slots, size) for place, (slots, size) in used.items()),
        )
        now = int(time.time())
        if now - row[0] > _TOUCH_S:
            connection.execute("UPDATE sessions SET touched = ? WHERE id = ?", (now, session.id))
        return new

    def _check_caps(
        self, connection: sqlite3.Connection, session: StoredSession, new: Sequence[CheckedMessage]
    ) -> dict[tuple[bytes, int], tuple[int, int]]:
        """Slots and bytes the new messages use, by plan hash and attempt."""
        party = new[0].sender
        used: dict[tuple[bytes, int], tuple[int, int]] = {}
        for item in new:
            slots, size = used.get((item.plan, item.attempt), (0, 0))
            used[item.plan, item.attempt] = slots + 1, size + len(item.data) + ROW_BYTES
        statement = "SELECT plan, attempt, slots, bytes FROM usage WHERE session = ? AND party = ?"
        known = connection.execute(statement, (session.id, party)).fetchall()
        before = {(plan, attempt): slots for plan, attempt, slots, _ in known}
        if any(before.get(place, 0) + slots > session.slots_max for place, (slots, _) in used.items()):
            rule = f"fills more than the {session.slots_max} slots a party has in one attempt"
            raise RelayFullError(f"party = {party} {rule}: send each message of an attempt once")
        if len({plan for plan, _ in before.keys() | used.keys()}) > PLANS_MAX:
            rule = f"has used {PLANS_MAX} plan hashes, all a party has in one session"
            raise PlansSpentError(
                f"party = {party} {rule}: compare the study files, and begin a session of a new number"
            )
        total = sum(size for *_, size in known) + sum(size for _, size in used.values())
        if total > self._settings.party_bytes_max:
            rule = f"would store {total} bytes, more than the {self._settings.party_bytes_max} a party may in a session"
            raise RelayFullError(f"party = {party} {rule}: ask the relay's operator for more")
        return used

    def _evict(self, connection: sqlite3.Connection) -> bool:
        """Make room by deleting sessions without a message: strangers must not fill the relay with them."""
        statement = (
            "SELECT id FROM sessions WHERE touched < ? AND NOT EXISTS (SELECT 1 FROM usage WHERE session = id) "
            "ORDER BY touched LIMIT ?"
        )
        unused = connection.execute(statement, (int(time.time() - _EMPTY_GRACE_S), _EVICTED_MAX)).fetchall()
        for (session_id,) in unused:
            self._delete(session_id, connection)
        return bool(unused)

    def _grow(self, connection: sqlite3.Connection, size: int) -> None:
        while self._database.stored_bytes + size > self._settings.store_bytes_max and self._evict(connection):
            pass
        if self._database.stored_bytes + size > self._settings.store_bytes_max:
            rule = f"would be more than all sessions may store ({self._settings.store_bytes_max})"
            raise RelayFullError(
                f"bytes = {self._database.stored_bytes + size} {rule}: ask the relay's operator for more, or wait"
            )
        self._database.stored_bytes += size

    async def pick(self, session: StoredSession, party: int, wanted: Wanted) -> Batch:
        """The oldest messages for a party of those that it wants, as many as one answer holds."""
        statement = (
            "SELECT number, size FROM messages INDEXED BY mail "
            "WHERE session = ? AND kind = ? AND recipient = ? AND number > ? AND sender <> ? {} ORDER BY number LIMIT ?"
        )
        most = BATCH_MAX // OVERHEAD + 1

        def read(connection: sqlite3.Connection) -> Batch:
            rows: list[tuple[int, int]] = []
            for kind, after in wanted.cursors.items():
                senders = sorted(wanted.senders.get(kind, ()))
                only = f"AND sender IN ({', '.join('?' * len(senders))})" if senders else ""
                for recipient in (party, EVERYONE):
                    values = (session.id, kind, recipient, after, party, *senders, most)
                    rows += connection.execute(statement.format(only), values)
            numbers: list[int] = []
            sizes: list[int] = []
            total = 0
            for number, size in sorted(rows):
                if numbers and total + size > BATCH_MAX:
                    break
                numbers.append(number)
                sizes.append(size)
                total += size
            return Batch(numbers, sizes, _frames(connection, numbers) if total <= SMALL else None)

        return await self._database.read(read)

    async def slices(self, batch: Batch) -> AsyncIterator[bytes]:
        """The messages of a batch, in frames and in slices: a slow reader holds no more than one in memory."""
        for group in _groups(batch):
            if group[0][1] <= SLICE:
                numbers = [number for number, _ in group]
                yield await self._database.read(partial(_frames, numbers=numbers))
                continue
            ((number, size),) = group
            yield frame_head(number, size)
            for start in range(0, size, SLICE):
                yield await self._database.read(partial(_slice, number=number, start=start))

    async def status(self, session: StoredSession, plan: bytes) -> SessionStatus:
        """Which parties have sent what under a plan hash."""
        count = len(session.roster)
        return await self._database.read(partial(query_status, session=session.id, plan=plan, count=count))

    async def check(self) -> None:
        """StoreError if the file cannot be read."""
        await self._database.read(lambda connection: connection.execute("SELECT 1 FROM sessions LIMIT 1").fetchall())

    @property
    def stored_bytes(self) -> int:
        """Bytes that count as stored."""
        return self._database.stored_bytes


def _new_messages(
    connection: sqlite3.Connection, session: StoredSession, items: Sequence[CheckedMessage]
) -> list[CheckedMessage]:
    """The messages whose slot is free; SlotTakenError if one holds something else."""
    statement = (
        "SELECT digest FROM messages "
        "WHERE session = ? AND sender = ? AND plan = ? AND attempt = ? AND kind = ? AND recipient = ?"
    )
    seen: dict[tuple[object, ...], bytes] = {}
    new: list[CheckedMessage] = []
    for item in items:
        slot = (session.id, item.sender, item.plan, item.attempt, item.kind, item.recipient)
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


def _groups(batch: Batch) -> list[list[tuple[int, int]]]:
    """Numbers and sizes of messages that are read together; a message longer than a slice is alone."""
    groups: list[list[tuple[int, int]]] = []
    room = 0
    for number, size in zip(batch.numbers, batch.sizes, strict=True):
        if size > room:
            groups.append([])
            room = SLICE
        groups[-1].append((number, size))
        room -= size
    return groups


def _slice(connection: sqlite3.Connection, number: int, start: int) -> bytes:
    try:
        with connection.blobopen("messages", "data", number, readonly=True) as blob:
            blob.seek(start)
            return blob.read(SLICE)
    except sqlite3.OperationalError:
        raise SessionGoneError("session = (deleted) has expired: PUT it again") from None


def _frames(connection: sqlite3.Connection, numbers: Sequence[int]) -> bytes:
    statement = "SELECT number, data FROM messages WHERE number IN (SELECT value FROM json_each(?)) ORDER BY number"
    rows = connection.execute(statement, (json.dumps(list(numbers)),))
    return b"".join(frame(data, number) for number, data in rows)


def _stored_bytes(connection: sqlite3.Connection, key: int | None = None) -> int:
    """Bytes that count as stored, in all sessions or in one."""
    where = "" if key is None else "WHERE session = ?"
    arguments = () if key is None else (key,)
    messages = connection.execute(f"SELECT TOTAL(bytes) FROM usage {where}", arguments).fetchone()[0]  # noqa: S608
    statement = f"SELECT TOTAL(LENGTH(keys) + {ROW_BYTES}) FROM rosters {where}"  # noqa: S608
    return int(messages + connection.execute(statement, arguments).fetchone()[0])
