"""What a party must keep of its attempts, and where: in memory here, in the ledger in `ledger_secrets`."""

from __future__ import annotations

import os
from typing import Final, NamedTuple, Protocol

KEY_BYTES: Final = 32


class Submitted(NamedTuple):
    """What is needed to take the answer to a submission: the lead receiver's key and the submission's digest."""

    lead_key: bytes
    digest: bytes


class Secrets(Protocol):
    """Where a party keeps the secrets of its attempts: asked again, it must give the same answer."""

    def key(self, attempt: int) -> bytes:
        """32 random bytes, the private key of the attempt."""

    def pad(self, attempt: int, other: int, size: int) -> bytes:
        """Random bytes from the operating system, shared with one neighbour."""

    def forget_pads(self, attempt: int) -> None:
        """An attempt was given up."""

    def note_submission(self, attempt: int, submitted: Submitted) -> None:
        """About to submit: the answer may come after a restart, and after later attempts were begun."""

    def submissions(self) -> dict[int, Submitted]:
        """What was noted, by attempt."""

    def group(self, attempt: int, members: bytes) -> bytes:
        """At the lead receiver: who is in this attempt; what was said first holds. Nothing asks without saying."""

    def bind(self, attempt: int, transcript: bytes) -> bytes:
        """The group and keys that masks of this attempt are bound to; what was said first holds."""

    def opening(self, attempt: int) -> int:
        """The one attempt of the session that is opened; what was said first holds. 0 asks without saying."""


class FreshSecrets:
    """Secrets in memory, for a process that will not be resumed.

    >>> secrets = FreshSecrets()
    >>> secrets.key(1) == secrets.key(1), secrets.key(1) == secrets.key(2)
    (True, False)
    """

    def __init__(self) -> None:
        self._kept: dict[tuple[int, int], bytes] = {}
        self._submissions: dict[int, Submitted] = {}
        self._groups: dict[int, bytes] = {}
        self._bound: dict[int, bytes] = {}
        self._opening = 0

    def last_attempt(self) -> int:
        """The highest attempt begun."""
        return max((attempt for attempt, other in self._kept if other < 0), default=1)

    def key(self, attempt: int) -> bytes:
        """The private key of the attempt."""
        return self._kept.setdefault((attempt, -1), os.urandom(KEY_BYTES))

    def pad(self, attempt: int, other: int, size: int) -> bytes:
        """The pad shared with a neighbour."""
        return self._kept.setdefault((attempt, other), os.urandom(size))

    def forget_pads(self, attempt: int) -> None:
        """An attempt was given up."""
        for place in [place for place in self._kept if place[0] == attempt and place[1] >= 0]:
            del self._kept[place]

    def note_submission(self, attempt: int, submitted: Submitted) -> None:
        """About to submit."""
        self._submissions[attempt] = submitted

    def submissions(self) -> dict[int, Submitted]:
        """What was noted."""
        return dict(self._submissions)

    def group(self, attempt: int, members: bytes) -> bytes:
        """Who is in this attempt."""
        return self._groups.setdefault(attempt, members) if members else self._groups.get(attempt, b"")

    def bind(self, attempt: int, transcript: bytes) -> bytes:
        """What masks are bound to."""
        return self._bound.setdefault(attempt, transcript)

    def opening(self, attempt: int) -> int:
        """The attempt that is opened."""
        self._opening = self._opening or attempt
        return self._opening

    def __repr__(self) -> str:
        return "FreshSecrets()"
