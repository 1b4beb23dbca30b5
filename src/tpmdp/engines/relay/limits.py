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
_NO_NUMBERS: Final = ("sessions", "forwarded_by", "log", "public_metrics")


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
    memory_max: int = 512 << 20  # bytes of whole bodies in memory at once, while they are checked and stored
    uploads_bytes_max: int = 4 << 30  # bytes of bodies that are still arriving, on the disk; one address: half of it
    party_uploads_max: int = 4  # bodies of one party in one session that are still arriving
    address_uploads_max: int = 256  # the same for one address
    connections_max: int = 2048
    address_connections_max: int = 1024  # of one address, unless it is a trusted proxy
    keep_days: float = 30.0  # a session is deleted when nothing was written to it for this long
    head_timeout_s: float = 10.0  # for a whole request head; three times as long for each pause in a body
    sessions: frozenset[bytes] | None = None  # when given, the relay serves only these
    forwarded_by: frozenset[str] = frozenset()  # addresses of proxies whose X-Forwarded-For is believed
    log: bool = False  # a line of JSON on standard error for every message, refusal and completed session
    public_metrics: bool = False  # /metrics for other machines, too

    def __post_init__(self) -> None:
        object.__setattr__(self, "forwarded_by", frozenset(map(_proxy, self.forwarded_by)))
        for field in fields(self):
            value = getattr(self, field.name)
            if field.name not in _NO_NUMBERS and not (isinstance(value, (int, float)) and 0 < value < math.inf):
                raise InputError(field.name, value, "must be a positive number", "raise it")
        if not OVERHEAD < self.message_max <= MESSAGE_MAX:
            rule = f"must be more than {OVERHEAD} and at most {MESSAGE_MAX} bytes"
            raise InputError("message_max", self.message_max, rule, "choose a size between")
        if min(self.party_burst, self.address_burst) < 1:
            raise InputError("burst", min(self.party_burst, self.address_burst), "must be at least 1", "raise it")
        if self.memory_max < self.body_max:
            raise InputError("memory_max", self.memory_max, f"must be at least {self.body_max} bytes", "raise it")
        if self.uploads_bytes_max < self.body_max:
            rule = f"must be at least {self.body_max} bytes"
            raise InputError("uploads_bytes_max", self.uploads_bytes_max, rule, "raise it")

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

    >>> address_key("127.0.0.1"), address_key("::ffff:192.0.2.1"), address_key("2001:db8::1:2"), address_key("")
    ('127.0.0.1', '192.0.2.1', '2001:db8::', '')
    """
    address = parsed_address(host)
    if address is None or address.version == 4:
        return host if address is None else str(address)
    return str(ipaddress.IPv6Address(int(address) >> 64 << 64))


def parsed_address(text: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    """An address in text, perhaps with brackets, port or zone, or None. IPv4 inside IPv6 is IPv4.

    >>> [str(parsed_address(text)) for text in ("192.0.2.1:80", "[2001:db8::1]:443", "::ffff:192.0.2.1", "unknown")]
    ['192.0.2.1', '2001:db8::1', '192.0.2.1', 'None']
    """
    text = text.strip()
    if text.startswith("["):
        text = text[1:].partition("]")[0]
    elif text.count(":") == 1:
        text = text.partition(":")[0]
    try:
        address = ipaddress.ip_address(text.partition("%")[0])
    except ValueError:
        return None
    return getattr(address, "ipv4_mapped", None) or address


def client_address(peer: str, forwarded: str, proxies: frozenset[str]) -> str:
    """Where a request comes from: the peer, or what a trusted proxy says about it. `forwarded`: X-Forwarded-For.

    Only the last entry was written by the proxy itself; the others are what the client claims.

    >>> client_address("192.0.2.1", "203.0.113.9, 198.51.100.7", frozenset({"192.0.2.1"}))
    '198.51.100.7'
    >>> client_address("192.0.2.2", "203.0.113.9, 198.51.100.7", frozenset({"192.0.2.1"}))
    '192.0.2.2'
    """
    if not is_proxy(peer, proxies):
        return peer
    client = parsed_address(forwarded.rpartition(",")[2])
    return peer if client is None else str(client)


def is_proxy(peer: str, proxies: frozenset[str]) -> bool:
    """Whether a peer is a trusted proxy.

    >>> is_proxy("::ffff:192.0.2.1", frozenset({"192.0.2.1"})), is_proxy("192.0.2.2", frozenset())
    (True, False)
    """
    return bool(proxies) and str(parsed_address(peer)) in proxies


def _proxy(text: str) -> str:
    address = parsed_address(text)
    if address is None:
        raise InputError("forwarded_by", text, "must be an address such as 192.0.2.1", "name the proxy's address")
    return str(address)
