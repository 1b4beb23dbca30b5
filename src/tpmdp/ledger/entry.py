"""One line of the ledger, and the hash that chains it to the line before."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Any, Final, NamedTuple

from tpmdp._util.canonical import canonical_json
from tpmdp.ledger.spending import Charge, Totals

SESSION_BYTES: Final = 32
CHARGES: Final = ("charge", "reserve")


class SessionKey(NamedTuple):
    """What an entry is known by: a session, and the plan that was signed for it."""

    session: bytes
    plan: bytes


def stand_in_plan(first: bytes) -> bytes:
    """Under which plan the later rounds of a study are held while theirs are not known: it follows from the first's.

    >>> stand_in_plan(bytes(32)) == stand_in_plan(bytes(32)) != bytes(32)
    True
    """
    return hashlib.sha256(b"tpmdp rounds 1" + first).digest()


@dataclass(frozen=True)
class Entry:
    """One line of the ledger. `time` is for people only: no decision uses a clock.

    >>> [item.name for item in fields(Entry)][:5]
    ['number', 'kind', 'time', 'session', 'study']
    """

    number: int
    kind: (
        str  # "open", "limit", "bind", "hold", "cancel", "charge" or "settle"; before format 2 a charge is a "reserve"
    )
    time: str  # ISO, UTC
    session: str  # hex, or "" where there is none
    study: str
    mu: float
    closeness: float
    epsilon: float
    delta: float
    mu_squared_total: float  # of all charges of the entry's unit up to this entry, rounded up at each
    closeness_total: float
    limit_epsilon: float  # of the entry's unit, in force from this entry on
    limit_delta: float
    outcome: str  # of a settled session: "answer", "receipt", "failed: ..."; of a bound ledger: the public key
    previous: str
    hash: str
    plan: str = ""  # hex; "" before format 2, and where there is none
    unit: str = ""  # what the charge protects; "" before format 2: the ledger's own unit

    @property
    def balance(self) -> Totals:
        """Totals and limit of its unit, from this entry on."""
        return Totals(self.mu_squared_total, self.closeness_total, self.limit_epsilon, limit_delta=self.limit_delta)

    @property
    def is_charge(self) -> bool:
        """Whether this entry counts towards the totals."""
        return self.kind in CHARGES

    @property
    def charge(self) -> Charge:
        """What was charged or set aside; zeros for other kinds.

        >>> Entry(1, "open", "", "", "", 0, 0, 0, 0, 0, 0, 1, 1e-6, "", "", "").charge.mu
        0.0
        """
        return Charge(self.mu, self.closeness, self.epsilon, delta=self.delta)


def before_first(limit: tuple[float, float], origin: str) -> Entry:
    """What an empty ledger counts as its last entry."""
    texts, numbers = ("",) * 4, (0.0,) * 6
    return Entry(0, *texts, *numbers, *limit, outcome="", previous="", hash=origin)


COLUMNS: Final = tuple(item.name for item in fields(Entry))
_HASHED: Final = COLUMNS[: COLUMNS.index("previous")]
_SINCE_2: Final = COLUMNS[COLUMNS.index("hash") + 1 :]


def origin_hash(identity: str, party: str, unit: str) -> str:
    """The hash before the first entry. It binds the chain to this ledger, its party and its unit."""
    return hashlib.sha256(canonical_json({"id": identity, "party": party, "unit": unit}).encode()).hexdigest()


def entry_hash(row: Sequence[Any]) -> str:
    """The hash of an entry: over the hash before it and all its fields; those since format 2 only if not empty."""
    values = dict(zip(COLUMNS, row, strict=False))
    content = {name: value.hex() if isinstance(value := values[name], float) else value for name in _HASHED}
    content |= {name: values[name] for name in _SINCE_2 if values.get(name)}
    return hashlib.sha256((values["previous"] + canonical_json(content)).encode()).hexdigest()
