"""What the relay's store takes and gives: sessions, checked messages, batches, and the errors of a request."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tpmdp.engines.relay.database import StoreError


class SessionGoneError(StoreError):
    """No such session, or it was deleted."""

    status = 404


class SlotTakenError(StoreError):
    """Another message already fills the slot."""

    status = 409


@dataclass(frozen=True)
class StoredSession:
    """A session and its public keys."""

    id: int
    name: bytes
    roster: tuple[bytes, ...]

    @property
    def slots_max(self) -> int:
        """Slots of a party in one attempt.

        The protocol needs agreement, key, submission, and a pad and a result or receipt for every other party.

        >>> StoredSession(1, bytes(32), (bytes(32),) * 3).slots_max
        10
        """
        return 4 + 2 * len(self.roster)


@dataclass(frozen=True)
class CheckedMessage:
    """A message that was checked and may be stored."""

    kind: int
    attempt: int
    sender: int
    recipient: int
    digest: bytes
    data: bytes


@dataclass(frozen=True)
class Batch:
    """The messages of an answer: their bytes if few, else only their numbers until memory is granted."""

    numbers: Sequence[int]
    size: int
    body: bytes | None
