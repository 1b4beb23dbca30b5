"""Requests that wait for messages at the relay: a message wakes exactly those it is for."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from tpmdp.engines.relay.requests import Wanted
from tpmdp.engines.relay.session_rows import CheckedMessage
from tpmdp.protocol.messages import EVERYONE


@dataclass(eq=False)
class Waiter:
    """A request that waits for a number of messages."""

    wanted: Wanted
    woken: asyncio.Future[None]
    _arrived: int = 0
    _needed: int | None = None  # not known yet: the request does not wait yet

    def need(self, count: int) -> asyncio.Future[None]:
        """A future that is done when `count` messages have arrived since the waiter was registered."""
        self._needed = count
        self._check()
        return self.woken

    def count(self, item: CheckedMessage) -> None:
        """Count a message that has arrived."""
        self._arrived += self.wanted.is_for(item.kind, item.sender)
        self._check()

    def _check(self) -> None:
        if self._needed is not None and self._arrived >= self._needed and not self.woken.done():
            self.woken.set_result(None)


class Waiters:
    """All requests that wait, by session and party.

    >>> async def use() -> tuple[bool, bool]:
    ...     waiters = Waiters()
    ...     with waiters.waiting(7, 1, Wanted({4: 0})) as waiter:
    ...         waiters.wake(7, [CheckedMessage(4, 1, 0, recipient=1, plan=b"", digest=b"", data=b"")])
    ...         return waiter.need(2).done(), waiter.need(1).done()
    >>> asyncio.run(use())
    (False, True)
    """

    def __init__(self) -> None:
        self.stopped = False
        self._waiting: dict[int, dict[int, set[Waiter]]] = {}

    @property
    def count(self) -> int:
        """Requests that wait now."""
        return sum(len(waiting) for parties in self._waiting.values() for waiting in parties.values())

    @contextmanager
    def waiting(self, session: int, party: int, wanted: Wanted) -> Iterator[Waiter]:
        """In the block, the waiter counts messages for the party that it wants."""
        waiter = Waiter(wanted, asyncio.get_running_loop().create_future())
        parties = self._waiting.setdefault(session, {})
        parties.setdefault(party, set()).add(waiter)
        try:
            yield waiter
        finally:
            parties[party].remove(waiter)
            if not parties[party]:
                del parties[party]
            if not parties and self._waiting.get(session) is parties:
                del self._waiting[session]

    def wake(self, session: int, items: Sequence[CheckedMessage]) -> None:
        """Wake the requests that these messages are for."""
        parties = self._waiting.get(session)
        if not parties:
            return
        for item in items:
            for party in list(parties) if item.recipient == EVERYONE else (item.recipient,):
                if party != item.sender:
                    for waiter in parties.get(party, ()):
                        waiter.count(item)

    def stop(self) -> None:
        """Wake all requests for good: the relay ends."""
        self.stopped = True
        for parties in self._waiting.values():
            for waiting in parties.values():
                for waiter in waiting:
                    waiter.need(0)
