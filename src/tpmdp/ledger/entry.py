"""One line of the ledger, and the hash that chains it to the line before."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Any, Final

from tpmdp._util.canonical import canonical_json
from tpmdp.ledger.spending import Charge

SESSION_BYTES: Final = 32


@dataclass(frozen=True)
class Entry:
    """One line of the ledger. `time` is for people only: no decision uses a clock.

    >>> [item.name for item in fields(Entry)][:5]
    ['number', 'kind', 'time', 'session', 'study']
    """

    number: int
    kind: str  # "open", "limit", "reserve" or "settle"
    time: str  # ISO, UTC
    session: str  # hex, or "" where there is none
    study: str
    mu: float
    closeness: float
    epsilon: float
    delta: float
    mu_squared_total: float  # of all reservations up to this entry, rounded up at each
    closeness_total: float
    limit_epsilon: float  # in force from this entry on
    limit_delta: float
    outcome: str  # of a settled session: "answer", "receipt", "failed: ..."
    previous: str
    hash: str

    @property
    def charge(self) -> Charge:
        """What was reserved; zeros for other kinds.

        >>> Entry(1, "open", "", "", "", 0, 0, 0, 0, 0, 0, 1, 1e-6, "", "", "").charge.mu
        0.0
        """
        return Charge(self.mu, self.closeness, self.epsilon, delta=self.delta)


def before_first(limit: tuple[float, float], origin: str) -> Entry:
    """What an empty ledger counts as its last entry."""
    texts, numbers = ("",) * 4, (0.0,) * 6
    return Entry(0, *texts, *numbers, *limit, outcome="", previous="", hash=origin)


COLUMNS: Final = tuple(item.name for item in fields(Entry))


def origin_hash(identity: str, party: str, unit: str) -> str:
    """The hash before the first entry. It binds the chain to this ledger, its party and its unit."""
    return hashlib.sha256(canonical_json({"id": identity, "party": party, "unit": unit}).encode()).hexdigest()


def entry_hash(row: Sequence[Any]) -> str:
    """The hash of an entry: over the hash before it and all its fields."""
    content = {
        name: value.hex() if isinstance(value, float) else value
        for name, value in zip(COLUMNS[:-2], row[:-2], strict=True)
    }
    return hashlib.sha256((row[-2] + canonical_json(content)).encode()).hexdigest()
