"""The loop of one party at the relay: nothing is said before what lies there was read."""

from __future__ import annotations

from collections.abc import Mapping
from typing import cast

import pytest

from tests.protocol.sessions import World
from tpmdp._util.clock import now_s
from tpmdp.engines.relay.drive import drive
from tpmdp.engines.relay.mailbox import Mailbox
from tpmdp.errors import DeadlineError
from tpmdp.protocol.messages import EVERYONE, Kind, decode
from tpmdp.protocol.party import PartySession


class FilledMailbox:
    """A relay that holds the first messages of others; asked to wait for more, it says that the deadline passed."""

    bytes_sent = 0

    def __init__(self, party: int, held: list[bytes]) -> None:
        self.waits: list[float] = []
        self._messages = [data for data in held if decode(data).recipient in (EVERYONE, party)]

    def post(self, messages: list[bytes]) -> None:
        self.bytes_sent += sum(map(len, messages))

    def fetch(self, after: Mapping[Kind, int], wait_s: float, least: int = 1) -> list[tuple[int, bytes]]:
        del after, least
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
