"""What the relay allows: settings, rates of requests and a quota of memory. Each of them takes bounded memory."""

from __future__ import annotations

import asyncio
import ipaddress
import math
import time
from collections.abc import AsyncIterator, Callable, Hashable
from contextlib import asynccontextmanager
from dataclasses import dataclass, fields
from typing import Final

from tpmdp.errors import InputError
from tpmdp.protocol.messages import MESSAGE_MAX, OVERHEAD

BODY_SLACK: Final = 64 << 10  # bytes of frames and small messages beside one message of the greatest size
_KEYS_MAX: Final = 65_536


@dataclass(frozen=True)
class RelaySettings:
    """Limits of a relay. The defaults never hinder a hundred parties that share one address and behave.

    >>> RelaySettings(message_max=1 << 20).body_max
    1114112
    >>> RelaySettings(party_rate=0)
    Traceback (most recent call last):
        ...
    tpmdp.errors.InputError: party_rate = 0 must be a positive number: raise it
    """

    message_max: int = MESSAGE_MAX  # bytes of one message
    party_rate: float = 100.0  # requests per second of one party in one session, in the long run
    party_burst: float = 2000.0  # and at once: a party may be woken by each message of every other party
    address_rate: float = 100.0  # the same for requests without a valid token, by address
    address_burst: float = 2000.0
    party_bytes_max: int = 2 << 30  # what one party may store in one session
    store_bytes_max: int = 16 << 30  # what all sessions may store
    sessions_max: int = 100_000
    memory_max: int = 512 << 20  # bytes of messages in memory at once, the same again for answers
    connections_max: int = 2048
    keep_days: float = 30.0  # a session is deleted when nothing was written to it for this long
    head_timeout_s: float = 10.0  # for a whole request head; three times as long for each pause in a body
    sessions: frozenset[bytes] | None = None  # when given, the relay serves only these

    def __post_init__(self) -> None:
        for field in fields(self):
            value = getattr(self, field.name)
            if field.name != "sessions" and not (isinstance(value, (int, float)) and 0 < value < math.inf):
                raise InputError(field.name, value, "must be a positive number", "raise it")
        if not OVERHEAD < self.message_max <= MESSAGE_MAX:
            rule = f"must be more than {OVERHEAD} and at most {MESSAGE_MAX} bytes"
            raise InputError("message_max", self.message_max, rule, "choose a size between")
        if min(self.party_burst, self.address_burst) < 1:
            raise InputError("burst", min(self.party_burst, self.address_burst), "must be at least 1", "raise it")
        if self.memory_max < self.body_max:
            raise InputError("memory_max", self.memory_max, f"must be at least {self.body_max} bytes", "raise it")

    @property
    def body_max(self) -> int:
        """Bytes of one request."""
        return self.message_max + BODY_SLACK

    @property
    def body_timeout_s(self) -> float:
        """Seconds a body, or the reader of an answer, may pause."""
        return 3 * self.head_timeout_s


class Buckets:
    """Token buckets by key: `rate` per second in the long run, `burst` at once. Forgets keys not used lately.

    >>> now = [0.0]
    >>> buckets = Buckets(rate=2.0, burst=3.0, clock=lambda: now[0])
    >>> [buckets.take("a") for _ in range(4)], buckets.take("b")
    ([0.0, 0.0, 0.0, 0.5], 0.0)
    >>> now[0] = 0.5
    >>> buckets.take("a")
    0.0
    """

    def __init__(
        self, rate: float, burst: float, most: int = _KEYS_MAX, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._interval, self._tolerance = 1 / rate, (burst - 1) / rate
        self._most, self._clock = most, clock
        self._full_at: dict[Hashable, float] = {}  # when the bucket will be full again; oldest use first

    def peek(self, key: Hashable) -> float:
        """Seconds until the key may take a token; 0 is now."""
        return max(0.0, self._full_at.get(key, 0.0) - self._clock() - self._tolerance)

    def take(self, key: Hashable) -> float:
        """Take a token and return 0, or the seconds until there is one."""
        wait = self.peek(key)
        if wait > 0:
            return wait
        self._full_at[key] = max(self._full_at.pop(key, 0.0), self._clock()) + self._interval
        if len(self._full_at) > self._most:
            del self._full_at[next(iter(self._full_at))]
        return 0.0


class MemoryQuota:
    """An amount of memory that requests share while they run; those that do not fit wait.

    >>> async def use() -> bool:
    ...     quota = MemoryQuota(10)
    ...     async with quota.hold(8, timeout_s=1.0):
    ...         try:
    ...             async with quota.hold(3, timeout_s=0.01):
    ...                 return True
    ...         except TimeoutError:
    ...             return False
    >>> asyncio.run(use())
    False
    """

    def __init__(self, most: int) -> None:
        self._most, self._held = most, 0
        self._changed = asyncio.Condition()

    @asynccontextmanager
    async def hold(self, amount: int, timeout_s: float) -> AsyncIterator[None]:
        """Hold an amount in the block; TimeoutError if it does not become free in time."""
        async with self._changed, asyncio.timeout(timeout_s):
            await self._changed.wait_for(lambda: self._held + amount <= self._most)
            self._held += amount
        try:
            yield
        finally:
            async with self._changed:
                self._held -= amount
                self._changed.notify_all()


def address_key(host: str) -> str:
    """The key of a client's address: for IPv6 its /64, since one client may have all of that.

    >>> address_key("127.0.0.1"), address_key("2001:db8::1:2"), address_key("")
    ('127.0.0.1', '2001:db8::', '')
    """
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return host
    if address.version == 4:
        return host
    return str(ipaddress.IPv6Address(int(address) >> 64 << 64))
