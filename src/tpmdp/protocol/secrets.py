"""What a party must keep of its attempts, and where: in memory here, in the ledger in `ledger_secrets`."""

from __future__ import annotations

import os
from collections.abc import Mapping, MutableMapping
from typing import Final, NamedTuple, Protocol

KEY_BYTES: Final = 32
_OPENED: Final = "opened"


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

    def note_submission(self, attempt: int, submitted: Submitted, bound: bytes = b"") -> bool:
        """About to submit: the answer may come after a restart, and after later attempts were begun.

        With what its masks are bound to, which is kept as by `bind`, at once. Whether both are what was said first.
        """

    def submissions(self) -> dict[int, Submitted]:
        """What was noted, by attempt."""

    def group(self, attempt: int, members: bytes) -> bytes:
        """At the lead receiver: who is in this attempt; what was said first holds. Nothing asks without saying."""

    def bind(self, attempt: int, transcript: bytes) -> bytes:
        """The group and keys that masks of this attempt are bound to; what was said first holds."""

    def opening(self, attempt: int) -> int:
        """The one attempt of the session that is opened; what was said first holds. 0 asks without saying."""


class Store(Protocol):
    """Named bytes of one session, where the first to say something under a name is right."""

    def keep(self, name: str, value: bytes) -> bytes:
        """Keep the value unless there is one by that name; returns what is kept."""

    def keep_all(self, values: Mapping[str, bytes]) -> dict[str, bytes]:
        """The same for several, all at once."""

    def names(self) -> list[str]:
        """What there is."""

    def discard(self, names: list[str]) -> None:
        """Erase what is of no use any more."""


class MappingStore:
    """A store in whatever behaves like a dictionary: gone when that is gone.

    >>> store = MappingStore({})
    >>> store.keep("a", b"1"), store.keep("a", b"2"), store.names()
    (b'1', b'1', ['a'])
    """

    def __init__(self, mapping: MutableMapping[str, bytes]) -> None:
        self._mapping = mapping

    def keep(self, name: str, value: bytes) -> bytes:
        """Keep the value unless there is one by that name."""
        return self._mapping.setdefault(name, value)

    def keep_all(self, values: Mapping[str, bytes]) -> dict[str, bytes]:
        """Keep several."""
        return {name: self.keep(name, value) for name, value in values.items()}

    def names(self) -> list[str]:
        """What there is."""
        return list(self._mapping)

    def discard(self, names: list[str]) -> None:
        """Erase."""
        for name in names:
            del self._mapping[name]


class StoredSecrets:
    """Secrets of a session's attempts in a store."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def last_attempt(self) -> int:
        """The highest attempt begun."""
        return max(
            (int(name.removeprefix("key ")) for name in self._store.names() if name.startswith("key ")), default=1
        )

    def key(self, attempt: int) -> bytes:
        """The private key of the attempt."""
        return self._store.keep(f"key {attempt}", os.urandom(KEY_BYTES))

    def pad(self, attempt: int, other: int, size: int) -> bytes:
        """The pad shared with a neighbour."""
        return self._store.keep(f"pad {attempt} {other}", os.urandom(size))

    def forget_pads(self, attempt: int) -> None:
        """An attempt was given up."""
        self._store.discard([name for name in self._store.names() if name.startswith(f"pad {attempt} ")])

    def note_submission(self, attempt: int, submitted: Submitted, bound: bytes = b"") -> bool:
        """About to submit: kept before the message leaves, with what its masks are bound to."""
        noted = {f"submitted {attempt}": submitted.lead_key + submitted.digest}
        if bound:
            noted[f"bound {attempt}"] = bound
        return self._store.keep_all(noted) == noted

    def submissions(self) -> dict[int, Submitted]:
        """What was noted, by attempt."""
        found = {}
        for name in self._store.names():
            if name.startswith("submitted "):
                value = self._store.keep(name, b"")
                found[int(name.removeprefix("submitted "))] = Submitted(value[:KEY_BYTES], value[KEY_BYTES:])
        return found

    def group(self, attempt: int, members: bytes) -> bytes:
        """At the lead receiver: who is in this attempt, kept before it is said."""
        name = f"group {attempt}"
        if not members and name not in self._store.names():
            return b""
        return self._store.keep(name, members)

    def bind(self, attempt: int, transcript: bytes) -> bytes:
        """What masks of this attempt are bound to, for all processes of this party and for ever."""
        return self._store.keep(f"bound {attempt}", transcript)

    def opening(self, attempt: int) -> int:
        """The one attempt that is opened, kept before anything of it is revealed."""
        if not attempt and _OPENED not in self._store.names():
            return 0
        return int.from_bytes(self._store.keep(_OPENED, attempt.to_bytes(4, "big")), "big")

    def __repr__(self) -> str:
        return f"{type(self).__name__}()"


class FreshSecrets(StoredSecrets):
    """Secrets in memory, for a process that will not be resumed.

    >>> secrets = FreshSecrets()
    >>> secrets.key(1) == secrets.key(1), secrets.key(1) == secrets.key(2)
    (True, False)
    """

    def __init__(self) -> None:
        super().__init__(MappingStore({}))
