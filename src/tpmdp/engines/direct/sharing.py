"""How one party computes on what nobody may see, in the middle of a session: after all have paid, before any opens."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from tpmdp._util.arrays import IntArray
from tpmdp.engines.direct.link import Link
from tpmdp.errors import TpmdpError


@dataclass(frozen=True)
class ConnectedPeers:
    """The parties of a session, as one of them sees them when all are connected."""

    index: int
    links: Mapping[int, Link]
    receivers: Sequence[int]
    fail: Callable[[TpmdpError], None]
    """Ends the session with an error that shows while nobody waits."""


class Sharing(ABC):
    """One party's part of one computation, made before the session."""

    @abstractmethod
    def prepare(self) -> None:
        """What takes a while and depends on no data, before the party says that it is ready."""

    @abstractmethod
    async def compute(self, peers: ConnectedPeers, values: IntArray, noise: IntArray | None) -> None:
        """Compute until this party holds its share of the noisy result, which nobody has seen."""

    @abstractmethod
    async def output(self) -> Sequence[int] | None:
        """Send the share to the receivers; the opened result at a receiver. Returns when all has been sent."""

    async def close(self) -> None:  # noqa: B027  # most have nothing to close
        """Leave nothing behind, whatever has happened."""
