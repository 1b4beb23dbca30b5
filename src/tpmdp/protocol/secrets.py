"""What a party must store of its attempts, and where: in memory here, in its ledger in `ledger.session_store`."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Collection, Mapping, MutableMapping
from typing import Final, NamedTuple, Protocol

from tpmdp.protocol.hybrid import PUBLIC_BYTES, SECRET_BYTES, Capsule

_OPENED: Final = "opened"


class Submitted(NamedTuple):
    """What is needed to accept the answer to a submission: the lead receiver's key and the submission's digest."""

    lead_key: bytes
    digest: bytes


class Secrets(Protocol):
    """Where a party stores the secrets of its attempts. Asked again, it must give the same answer."""

    def key(self, attempt: int) -> bytes:
        """Random bytes, the private key of the attempt."""

    def capsules(self, attempt: int, publics: Mapping[int, bytes]) -> dict[int, Capsule]:
        """What we encapsulate to these public keys, one of each other party; see `hybrid`."""

    def pad(self, attempt: int, other: int, size: int) -> bytes:
        """Random bytes from the operating system, shared with one neighbour."""

    def parts_capsule(self, number: int, other: int, public: bytes) -> Capsule:
        """The same for a message to a party with another plan, which this number tells from others."""

    def forget_before(self, attempt: int, with_keys: bool = False) -> None:
        """Erase the pads, capsules and noise of attempts that were given up, all before this one.

        Keys, too, where none of these attempts can have an answer.
        """

    def note_submission(self, attempt: int, submitted: Submitted, bound: bytes) -> bool:
        """Store a submission before it leaves: the answer may come after a restart, and after later attempts began.

        `bound` is what its masks are bound to, stored together with it as by `bind`. Returns whether both are the
        values stored first.
        """

    def submissions(self) -> dict[int, Submitted]:
        """The submissions noted, by attempt."""

    def group(self, attempt: int, members: bytes) -> bytes:
        """At the lead receiver: the group of this attempt. The first one stored holds; empty bytes only ask."""

    def bind(self, attempt: int, transcript: bytes) -> bytes:
        """The group and keys that masks of this attempt are bound to. The first value stored holds."""

    def opening(self, attempt: int) -> int:
        """The one attempt of the session that is opened. The first one stored holds; 0 only asks."""


class Store(Protocol):
    """Named bytes of one session. The first value stored under a name holds."""

    def keep(self, name: str, value: bytes) -> bytes:
        """Store the value unless the name is taken; returns what is stored."""

    def keep_all(self, values: Mapping[str, bytes]) -> dict[str, bytes]:
        """The same for several values: all are stored or none."""

    def names(self) -> list[str]:
        """The names in use."""

    def discard(self, names: list[str]) -> None:
        """Erase values that are no longer needed."""


class MappingStore:
    """A store in a mapping, such as a dictionary; it lives as long as the mapping.

    >>> store = MappingStore({})
    >>> store.keep("a", b"1"), store.keep("a", b"2"), store.names()
    (b'1', b'1', ['a'])
    """

    def __init__(self, mapping: MutableMapping[str, bytes]) -> None:
        self._mapping = mapping

    def keep(self, name: str, value: bytes) -> bytes:
        return self._mapping.setdefault(name, value)

    def keep_all(self, values: Mapping[str, bytes]) -> dict[str, bytes]:
        return {name: self.keep(name, value) for name, value in values.items()}

    def names(self) -> list[str]:
        return list(self._mapping)

    def discard(self, names: list[str]) -> None:
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
        return self._store.keep(f"key {attempt}", os.urandom(SECRET_BYTES))

    def pad(self, attempt: int, other: int, size: int) -> bytes:
        return self._store.keep(f"pad {attempt} {other}", os.urandom(size))

    def capsules(self, attempt: int, publics: Mapping[int, bytes]) -> dict[int, Capsule]:
        return self._capsules({f"capsule {attempt} {other}": (other, public) for other, public in publics.items()})

    def parts_capsule(self, number: int, other: int, public: bytes) -> Capsule:
        name = f"parts {number} {other} {hashlib.sha256(public).hexdigest()[:16]}"
        return self._capsules({name: (other, public)})[other]

    def _capsules(self, publics: Mapping[str, tuple[int, bytes]]) -> dict[int, Capsule]:
        taken = set(self._store.names())
        fresh = {name: b"" if name in taken else Capsule.to(public).joined() for name, (_, public) in publics.items()}
        stored = self._store.keep_all(fresh)
        return {publics[name][0]: Capsule.parse(value) for name, value in stored.items()}

    def forget_before(self, attempt: int, with_keys: bool = False) -> None:
        kinds = ("pad", "capsule", "vector", "key") if with_keys else ("pad", "capsule", "vector")
        given_up = [name for name in self._store.names() if _is_of_earlier(name, attempt, kinds)]
        if given_up:
            self._store.discard(given_up)

    def vector(self, attempt: int, draw: Callable[[], bytes]) -> bytes:
        """What is contributed to an attempt; drawn once."""
        name = f"vector {attempt}"
        return self._store.keep(name, b"" if name in self._store.names() else draw())

    def note_submission(self, attempt: int, submitted: Submitted, bound: bytes) -> bool:
        noted = {f"submitted {attempt}": submitted.lead_key + submitted.digest, f"bound {attempt}": bound}
        return self._store.keep_all(noted) == noted

    def submissions(self) -> dict[int, Submitted]:
        noted = {}
        for name in self._store.names():
            if name.startswith("submitted "):
                value = self._store.keep(name, b"")
                noted[int(name.removeprefix("submitted "))] = Submitted(value[:PUBLIC_BYTES], value[PUBLIC_BYTES:])
        return noted

    def group(self, attempt: int, members: bytes) -> bytes:
        name = f"group {attempt}"
        if not members and name not in self._store.names():
            return b""
        return self._store.keep(name, members)

    def bind(self, attempt: int, transcript: bytes) -> bytes:
        return self._store.keep(f"bound {attempt}", transcript)

    def opening(self, attempt: int) -> int:
        if not attempt and _OPENED not in self._store.names():
            return 0
        return int.from_bytes(self._store.keep(_OPENED, attempt.to_bytes(4, "big")), "big")

    def __repr__(self) -> str:
        return f"{type(self).__name__}()"


def _is_of_earlier(name: str, attempt: int, kinds: Collection[str]) -> bool:
    """Whether the name is that of something of these kinds of an attempt before this one."""
    kind, _, rest = name.partition(" ")
    return kind in kinds and rest != "" and int(rest.split(" ")[0]) < attempt


class FreshSecrets(StoredSecrets):
    """Secrets in memory, for a process that will not be resumed.

    >>> secrets = FreshSecrets()
    >>> secrets.key(1) == secrets.key(1), secrets.key(1) == secrets.key(2)
    (True, False)
    """

    def __init__(self) -> None:
        super().__init__(MappingStore({}))
