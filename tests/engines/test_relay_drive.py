"""The loop of one party at the relay: nothing is said before what lies there was read."""

from __future__ import annotations

from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, cast

import pytest

from tests.patience import HANG_S
from tests.protocol.sessions import World
from tpmdp._util.clock import now_s
from tpmdp.engines.relay.drive import drive
from tpmdp.engines.relay.engine import relay_process
from tpmdp.engines.relay.mailbox import Mailbox
from tpmdp.errors import DeadlineError
from tpmdp.protocol.messages import EVERYONE, Kind, decode
from tpmdp.protocol.party import PartySession
from tpmdp.protocol.state import FEW


class FilledMailbox:
    """A relay that holds the first messages of others; asked to wait for more, it says that the deadline passed."""

    bytes_sent = 0

    def __init__(self, party: int, held: list[bytes]) -> None:
        self.waits: list[float] = []
        self._messages = [data for data in held if decode(data).recipient in (EVERYONE, party)]

    def post(self, messages: list[bytes]) -> None:
        self.bytes_sent += sum(map(len, messages))

    def fetch(
        self, after: Mapping[Kind, int], wait_s: float, least: int, senders: Mapping[Kind, frozenset[int]]
    ) -> list[tuple[int, bytes]]:
        del after, least, senders
        self.waits.append(wait_s)
        if len(self.waits) > 1:
            raise DeadlineError("the deadline passed")
        return list(enumerate(self._messages, 1))


def test_a_party_that_comes_late_never_says_that_it_is_alone() -> None:
    world = World(4, 1, [0])
    others = [world.party(index) for index in (0, 2)]
    mailbox = FilledMailbox(1, [data for party in others for data in party.start()])
    seen: list[int] = []

    def watch(party: PartySession, sent: int) -> None:
        assert sent > 0
        seen.append(len(party.agreed))

    with pytest.raises(DeadlineError):
        drive(lambda: world.party(1), cast(Mailbox, mailbox), now_s() + 60.0, watch=watch)
    assert seen == [3]
    assert mailbox.waits[0] == 0.0  # the first look does not wait
    assert mailbox.waits[1] > 0.0


@pytest.mark.process
def test_among_many_parties_each_hears_of_its_neighbours_and_the_sum_is_exact(tmp_path: Path) -> None:
    """Real parties at a real relay, as threads; each reads the keys and notes of a few."""
    count = FEW + 4
    world = World(count, 3, [0, 9])
    read: dict[int, set[tuple[Kind, int]]] = {index: set() for index in range(count)}

    class Reading(Mailbox):
        def fetch(self, *arguments: Any, **options: Any) -> list[tuple[int, bytes]]:
            batch = super().fetch(*arguments, **options)
            read[self._index] |= {(decode(data).kind, decode(data).sender) for _, data in batch}
            return batch

    def take_part(index: int) -> PartySession:
        with Reading(url, world.terms, index, world.identities[index], now_s() + HANG_S) as mailbox:
            party, left = drive(lambda: world.party(index), mailbox, now_s() + HANG_S)
            mailbox.post(left)
            return party

    with relay_process(tmp_path / "relay.sqlite") as url, ThreadPoolExecutor(count) as pool:
        parties = list(pool.map(take_part, range(count)))
    for index in (0, 9):
        assert parties[index].result is not None
        assert parties[index].result.tolist() == world.total  # type: ignore[union-attr]
    assert all(party.receipt for party in parties if party.index not in (0, 9))
    for party in parties[1:]:
        keys = {sender for kind, sender in read[party.index] if kind == Kind.KEYS}
        assert keys <= party.current.needed
        assert len(keys) <= 5
    assert {sender for kind, sender in read[0] if kind == Kind.KEYS} == set(range(1, count))
