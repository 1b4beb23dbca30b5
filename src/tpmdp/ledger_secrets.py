"""The secrets of a session's attempts, in the party's ledger: on the disk before anything made from them leaves."""

from __future__ import annotations

import os
from typing import Final

from tpmdp.ledger import Ledger, LedgerError
from tpmdp.protocol.secrets import KEY_BYTES, Submitted

_OPENED: Final = "opened"


class LedgerSecrets:
    """Keys and pads of the attempts, kept in the ledger until the session is settled."""

    def __init__(self, ledger: Ledger, session: bytes) -> None:
        self._ledger, self._session = ledger, session

    def key(self, attempt: int) -> bytes:
        """The private key of the attempt."""
        return self._ledger.keep(self._session, f"key {attempt}", os.urandom(KEY_BYTES))

    def pad(self, attempt: int, other: int, size: int) -> bytes:
        """The pad shared with a neighbour; never drawn anew for an attempt that another process has given up."""
        if self.last_attempt() > attempt:
            problem = "has gone on to a later attempt in another process of this party"
            raise LedgerError(f"session {self._session.hex()[:16]}", problem, "run the same command again")
        return self._ledger.keep(self._session, f"pad {attempt} {other}", os.urandom(size))

    def forget_pads(self, attempt: int) -> None:
        """An attempt was given up."""
        names = self._ledger.kept_names(self._session)
        self._ledger.discard(self._session, [name for name in names if name.startswith(f"pad {attempt} ")])

    def note_submission(self, attempt: int, submitted: Submitted) -> None:
        """About to submit: durable before the message leaves."""
        self._ledger.keep(self._session, f"submitted {attempt}", submitted.lead_key + submitted.digest)

    def submissions(self) -> dict[int, Submitted]:
        """What was noted, by attempt."""
        found = {}
        for name in self._ledger.kept_names(self._session):
            if name.startswith("submitted "):
                value = self._ledger.keep(self._session, name, b"")
                found[int(name.removeprefix("submitted "))] = Submitted(value[:KEY_BYTES], value[KEY_BYTES:])
        return found

    def group(self, attempt: int, members: bytes) -> bytes:
        """At the lead receiver: who is in this attempt, durable before it is said."""
        name = f"group {attempt}"
        if not members and name not in self._ledger.kept_names(self._session):
            return b""
        return self._ledger.keep(self._session, name, members)

    def bind(self, attempt: int, transcript: bytes) -> bytes:
        """What masks of this attempt are bound to, for all processes of this party and for ever."""
        return self._ledger.keep(self._session, f"bound {attempt}", transcript)

    def opening(self, attempt: int) -> int:
        """The one attempt that is opened, durable before anything of it is revealed."""
        if not attempt and _OPENED not in self._ledger.kept_names(self._session):
            return 0
        return int.from_bytes(self._ledger.keep(self._session, _OPENED, attempt.to_bytes(4, "big")), "big")

    def last_attempt(self) -> int:
        """The highest attempt begun."""
        names = self._ledger.kept_names(self._session)
        return max((int(name.removeprefix("key ")) for name in names if name.startswith("key ")), default=1)

    def failed_attempt(self) -> int:
        """The last attempt, if it failed; else 0."""
        last = self.last_attempt()
        return last if f"failed {last}" in self._ledger.kept_names(self._session) else 0

    def note_failure(self, attempt: int) -> None:
        """The next try must use fresh keys."""
        self._ledger.keep(self._session, f"failed {attempt}", b"1")

    def __repr__(self) -> str:
        return "LedgerSecrets()"
