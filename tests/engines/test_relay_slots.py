"""The slots of the relay: enough for an honest party in every mode, known by plan hash, and bounded."""

from __future__ import annotations

import asyncio
import dataclasses
import os
import sqlite3
from collections import defaultdict, deque
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from tests.protocol.sessions import World
from tpmdp.engines.relay import wire
from tpmdp.engines.relay.database import RelayFullError
from tpmdp.engines.relay.limits import RelaySettings
from tpmdp.engines.relay.requests import Wanted, check_messages
from tpmdp.engines.relay.session_rows import (
    PLANS_MAX,
    CheckedMessage,
    PlansSpentError,
    SlotTakenError,
    StoredSession,
    slots_of,
)
from tpmdp.engines.relay.store import RelayStore
from tpmdp.errors import FileError
from tpmdp.planning.losses import most_lost
from tpmdp.protocol.messages import EVERYONE, Kind, Message, decode, encode
from tpmdp.protocol.party import PartySession, TooEarlyError
from tpmdp.protocol.secrets import FreshSecrets
from tpmdp.protocol.terms import Guarantee
from tpmdp.protocol.vectors import attempt_vectors

Posted = dict[tuple[int, int], list[bytes]]  # by sender and attempt


def honest_posts(world: World, silent: frozenset[int]) -> Posted:
    """All that the parties of a session post, while those that are `silent` only agree and send a key."""
    terms = world.terms
    parties = [
        PartySession(
            terms, i, world.identities[i], attempt_vectors(terms, i, world.vectors[i], world.inputs[i]), FreshSecrets()
        )
        for i in range(terms.count)
    ]
    posted: Posted = defaultdict(list)
    queue: deque[tuple[int, bytes]] = deque()

    def post(sender: int, messages: Sequence[bytes]) -> None:
        for data in messages:
            message = decode(data)
            posted[sender, message.attempt].append(data)
            others = range(terms.count) if message.recipient == EVERYONE else [message.recipient]
            queue.extend((other, data) for other in others if other not in silent | {sender})

    for party in parties:
        post(party.index, party.start())
    lead, early = parties[terms.lead], 0
    while not all(party.done for party in parties if party.index in lead.members - silent):
        if early >= len(queue):
            again = lead.drop_missing()
            assert again, "the session is stuck"
            post(lead.index, again)
            early = 0
        recipient, data = queue.popleft()
        try:
            post(recipient, parties[recipient].receive(data))
            early = 0
        except TooEarlyError:
            queue.append((recipient, data))
            early += 1
    assert lead.result is not None
    return posted


def sessions() -> list[tuple[int, Guarantee, int, str]]:
    guarantees: tuple[Guarantee, ...] = ("computational", "statistical")
    return [
        (count, guarantee, tolerate, receivers)
        for count in range(2, 13)
        for guarantee in guarantees
        for tolerate in (0, 1, 2)
        for receivers in ("one", "all")
        if tolerate <= most_lost(count, 1, guarantee)
    ]


@pytest.mark.parametrize(
    ("count", "guarantee", "tolerate", "receivers"),
    [pytest.param(*each, marks=[] if each[0] in (2, 3, 7) else pytest.mark.long) for each in sessions()],
)
@pytest.mark.slow
def test_honest_parties_find_room_for_all_they_post(
    count: int, guarantee: Guarantee, tolerate: int, receivers: str, tmp_path: Path
) -> None:
    """And for one more message to each other party, in every attempt."""
    chosen = [0] if receivers == "one" else list(range(count))
    # The densest graph that is possible: without drop-outs, everybody is everybody's neighbour.
    fitting = (each for each in range(1, count) if most_lost(count, each, guarantee) >= tolerate)
    world = World(count, max(fitting), chosen, guarantee, tolerate=tolerate, has_noise=False)
    posted = honest_posts(world, frozenset(range(count - tolerate, count)))
    assert (max(attempt for _, attempt in posted) > 1) == (tolerate > 0)
    assert max(map(len, posted.values())) + count - 1 <= slots_of(count)

    async def act() -> None:
        store = RelayStore(tmp_path / "relay.sqlite", RelaySettings())
        terms = world.terms
        await store.open_session(terms.session, b"".join(terms.roster))
        session = await store.session(terms.session)
        for (sender, _), messages in posted.items():
            body = wire.join_frames(messages)
            items = check_messages(body, session, sender, message_max=1 << 20)
            assert len(await store.add(session, items)) == len(messages)
        store.close()

    asyncio.run(act())


def message(kind: Kind = Kind.AGREE, plan: int = 0, attempt: int = 0, sender: int = 0) -> CheckedMessage:
    return CheckedMessage(
        kind, attempt, sender, recipient=1, plan=bytes([plan]) * 32, digest=os.urandom(32), data=b"data"
    )


def in_store(path: Path, work: Callable[[RelayStore, StoredSession], object]) -> None:
    """Run a coroutine with the session of a fresh store."""

    async def act() -> None:
        store = RelayStore(path, RelaySettings())
        await store.open_session(bytes(32), bytes(range(96)))
        await work(store, await store.session(bytes(32)))  # type: ignore[misc]
        store.close()

    asyncio.run(act())


def test_a_mended_study_file_has_its_own_slots(tmp_path: Path) -> None:
    async def work(store: RelayStore, session: StoredSession) -> None:
        first, mended = message(plan=1), message(plan=2)
        assert await store.add(session, [first]) == [first]
        with pytest.raises(SlotTakenError, match="differs"):
            await store.add(session, [message(plan=1)])
        assert await store.add(session, [mended]) == [mended]
        assert await store.add(session, [first, mended]) == []
        assert len((await store.pick(session, 1, Wanted({Kind.AGREE: 0}))).numbers) == 2

    in_store(tmp_path / "relay.sqlite", work)


def test_the_slots_of_each_plan_hash_are_counted_for_themselves(tmp_path: Path) -> None:
    async def work(store: RelayStore, session: StoredSession) -> None:
        kinds = [dataclasses.replace(message(kind, 1), recipient=to) for kind in Kind for to in (0, 1, EVERYONE)]
        most = slots_of(3)
        await store.add(session, kinds[:most])
        with pytest.raises(RelayFullError, match="slots"):
            await store.add(session, kinds[most : most + 1])
        await store.add(session, [dataclasses.replace(item, plan=bytes(32)) for item in kinds[:most]])

    in_store(tmp_path / "relay.sqlite", work)


def test_plan_hashes_of_a_sender_are_capped(tmp_path: Path) -> None:
    async def work(store: RelayStore, session: StoredSession) -> None:
        for plan in range(PLANS_MAX):
            await store.add(session, [message(plan=plan)])
        for attempt in (0, 1):
            with pytest.raises(PlansSpentError, match=f"party = 0 has used {PLANS_MAX} plan hashes"):
                await store.add(session, [message(plan=PLANS_MAX, attempt=attempt)])
        await store.add(session, [message(plan=0, attempt=1)])  # a known one goes on
        await store.add(session, [message(plan=PLANS_MAX, sender=2)])  # and another sender has its own

    in_store(tmp_path / "relay.sqlite", work)


VERSION_1 = """
CREATE TABLE sessions (
    id INTEGER PRIMARY KEY AUTOINCREMENT, name BLOB NOT NULL UNIQUE, touched INTEGER NOT NULL);
CREATE TABLE rosters (session INTEGER PRIMARY KEY, keys BLOB NOT NULL);
CREATE TABLE messages (
    number INTEGER PRIMARY KEY AUTOINCREMENT, session INTEGER NOT NULL, kind INTEGER NOT NULL,
    attempt INTEGER NOT NULL, sender INTEGER NOT NULL, recipient INTEGER NOT NULL,
    size INTEGER NOT NULL, digest BLOB NOT NULL, data BLOB NOT NULL);
CREATE UNIQUE INDEX slots ON messages (session, sender, attempt, kind, recipient);
CREATE INDEX mail ON messages (session, kind, recipient, number, sender, size);
CREATE TABLE usage (
    session INTEGER, party INTEGER, attempt INTEGER, slots INTEGER NOT NULL, bytes INTEGER NOT NULL,
    PRIMARY KEY (session, party, attempt)) WITHOUT ROWID;
PRAGMA application_id = 1953525106;
PRAGMA user_version = 1;
"""


def test_a_store_of_the_version_before_is_upgraded(tmp_path: Path) -> None:
    world = World(2, 1)
    terms, path = world.terms, tmp_path / "relay.sqlite"
    agree = Message(Kind.AGREE, 0, 0, EVERYONE, terms.session, terms.plan_hash, b"")
    data = encode(agree, world.identities[0])
    session = StoredSession(1, terms.session, terms.roster)
    (item,) = check_messages(wire.frame(data), session, 0, message_max=1 << 20)
    connection = sqlite3.connect(path)
    connection.executescript(VERSION_1)
    connection.execute("INSERT INTO sessions VALUES (1, ?, 2000000000)", (terms.session,))
    connection.execute("INSERT INTO rosters VALUES (1, ?)", (b"".join(terms.roster),))
    row = (item.kind, item.recipient, len(data), item.digest, data)
    connection.execute("INSERT INTO messages VALUES (7, 1, ?, 0, 0, ?, ?, ?, ?)", row)
    connection.execute("UPDATE sqlite_sequence SET seq = 9 WHERE name = 'messages'")  # two were deleted
    connection.execute("INSERT INTO usage VALUES (1, 0, 0, 1, ?)", (len(data) + 256,))
    connection.commit()
    connection.close()

    async def act() -> None:
        store = RelayStore(path, RelaySettings())
        session = await store.session(terms.session)
        assert store._database.stored_bytes == len(data) + 256 + 64 + 256
        assert await store.add(session, [item]) == []
        again = dataclasses.replace(item, plan=bytes(32))
        assert await store.add(session, [again]) == [again]
        assert list((await store.pick(session, 1, Wanted({1: 0}))).numbers) == [7, 10]
        store.close()

    asyncio.run(act())
    connection = sqlite3.connect(path)
    connection.execute("PRAGMA user_version = 3")
    connection.close()
    with pytest.raises(FileError, match="version 3, and this relay reads versions 1 and 2: name another file"):
        RelayStore(path, RelaySettings())
