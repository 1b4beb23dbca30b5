"""What the relay's store takes and gives: sessions, checked messages, batches, and the errors of a request."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from tpmdp.engines.relay.database import StoreError

PLANS_MAX: Final = 8  # plan hashes of one party in one session: one for each time its study file was mended
_SINGLE: Final = 5  # agreement, key, group, submission, self-mask: each at most once in an attempt
_PAIRWISE: Final = (
    4  # hashes of the terms' parts, pad, request to open, answer (result or receipt): to each other party
)


def slots_of(count: int) -> int:
    """Slots of a party under one plan hash and in one attempt, of `count` parties: what any mode of the protocol needs.

    >>> slots_of(2), slots_of(10)
    (9, 41)
    """
    return _SINGLE + _PAIRWISE * (count - 1)


class SessionGoneError(StoreError):
    """No such session, or it was deleted."""

    status = 404


class SlotTakenError(StoreError):
    """Another message already fills the slot."""

    status = 409


class PlansSpentError(StoreError):
    """The sender has used too many plan hashes in this session."""

    status = 403  # trying again does not help


@dataclass(frozen=True)
class StoredSession:
    """A session and its public keys."""

    id: int
    name: bytes
    roster: tuple[bytes, ...]

    @property
    def slots_max(self) -> int:
        """Slots of a party under one plan hash and in one attempt.

        >>> StoredSession(1, bytes(32), (bytes(32),) * 3).slots_max
        13
        """
        return slots_of(len(self.roster))


@dataclass(frozen=True)
class CheckedMessage:
    """A message that was checked and may be stored."""

    kind: int
    attempt: int
    sender: int
    recipient: int
    plan: bytes  # the hash of study and plan: a mended study file has another, and its own slots
    digest: bytes
    data: bytes


@dataclass(frozen=True)
class Batch:
    """The messages of an answer: their bytes if few, else only their numbers and sizes, to be read while it is sent."""

    numbers: Sequence[int]
    sizes: Sequence[int]
    body: bytes | None

    @property
    def size(self) -> int:
        """Bytes of the messages, without frames."""
        return sum(self.sizes)
