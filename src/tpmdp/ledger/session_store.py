"""The secrets of a session's attempts, in the party's ledger: on the disk before anything derived from them leaves."""

from __future__ import annotations

from collections.abc import Mapping

from tpmdp.ledger import Ledger, LedgerError, SessionKey
from tpmdp.protocol.hybrid import Capsule
from tpmdp.protocol.secrets import StoredSecrets


class LedgerStore:
    """The private state of one session in a ledger, until the session is settled."""

    def __init__(self, ledger: Ledger, key: SessionKey) -> None:
        self._ledger, self._key = ledger, key

    def keep(self, name: str, value: bytes) -> bytes:
        return self._ledger.keep(self._key, name, value)

    def keep_all(self, values: Mapping[str, bytes]) -> dict[str, bytes]:
        return self._ledger.keep_all(self._key, values)

    def names(self) -> list[str]:
        return self._ledger.private_names(self._key)

    def discard(self, names: list[str]) -> None:
        self._ledger.discard(self._key, names)


class LedgerSecrets(StoredSecrets):
    """Keys and pads of the attempts, kept in the ledger until the session is settled."""

    def __init__(self, ledger: Ledger, key: SessionKey) -> None:
        super().__init__(LedgerStore(ledger, key))
        self._session = key.session

    def pad(self, attempt: int, other: int, size: int) -> bytes:
        self._check_newest(attempt)
        return super().pad(attempt, other, size)

    def capsules(self, attempt: int, publics: Mapping[int, bytes]) -> dict[int, Capsule]:
        self._check_newest(attempt)
        return super().capsules(attempt, publics)

    def _check_newest(self, attempt: int) -> None:
        """Never draw anything new for an attempt that another process has given up."""
        if self.last_attempt() > attempt:
            problem = "has gone on to a later attempt in another process of this party"
            raise LedgerError(f"session {self._session.hex()[:16]}", problem, "run the same command again")

    def failed_attempt(self) -> int:
        """The last attempt, if it failed; else 0."""
        last = self.last_attempt()
        return last if f"failed {last}" in self._store.names() else 0

    def note_failure(self, attempt: int) -> None:
        """Note that the attempt failed: the next one must use fresh keys."""
        self._store.keep(f"failed {attempt}", b"1")
