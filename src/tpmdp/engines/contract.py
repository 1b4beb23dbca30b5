"""The contract of every engine: from the vectors of all parties, noise included, to the outcome of the session."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Protocol

import numpy as np
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from tpmdp._util.arrays import IntArray
from tpmdp.protocol.masks import Mask
from tpmdp.protocol.party import PartySession
from tpmdp.protocol.terms import Terms

NO_GUARANTEE: Final = "NONE: this plan adds no noise, so receivers learn the exact answer"


@dataclass(frozen=True, eq=False)
class Outcome:
    """The outcome of a session among all its parties, by party index, as every engine gives it.

    Only receivers get the result; every other party that took part to the end gets a receipt.
    """

    sums: dict[int, IntArray]
    """The result at each receiver, in grid steps."""
    receipts: frozenset[int]
    bytes_sent: tuple[int, ...]
    """One per party; 0 for a party that dropped out."""
    guarantee: str
    """What the result promises, in words."""
    missing: frozenset[int] = frozenset()
    """Parties that dropped out; their data are not in the result."""


class Engine(Protocol):
    """Runs a session among all its parties."""

    name: str

    def run(
        self,
        terms: Terms,
        identities: Sequence[Ed25519PrivateKey],
        vectors: Sequence[Mask],
        deadline_s: float = 60.0,
        plain: Sequence[IntArray] | None = None,
    ) -> Outcome:
        """Run the session to its end, or raise within the deadline.

        `vectors` hold the noise of the plan for all. `plain` are the same without noise: where parties may drop out,
        others draw the noise of the group that is left.
        """


def stuck(lead: PartySession) -> str:
    """Why a session cannot continue, as its lead receiver sees it."""
    names = ", ".join(lead.terms.spec.name(party) for party in lead.lost() or lead.waiting_for())
    return f"{names} dropped out in step {lead.step}, and the session cannot go on without: start a new session"


def guarantee_text(terms: Terms) -> str:
    """What a result of these terms promises.

    >>> from tpmdp.planning.grid_plan import plan_on_grid
    >>> from tpmdp.spec import Spec
    >>> plan = plan_on_grid(Spec(epsilon=[1.0, 2.0], delta=1e-6, threshold=1), bound=1.0)
    >>> print(guarantee_text(Terms.of("demo", plan, 1.0, roster=(bytes(32), bytes(31) + b"1"))))
    computational: holds against coalitions of at most 1 party that cannot break AES-256, HKDF, or both X25519 and
    ML-KEM-768
    """
    if lacks_noise(terms):
        return NO_GUARANTEE
    many = coalitions_of(terms)
    if terms.guarantee == "statistical":
        return f"statistical: holds against {many} of any computing power; pads travel over encrypted channels"
    return f"computational: holds against {many} that cannot break AES-256, HKDF, or both X25519 and ML-KEM-768"


def lacks_noise(terms: Terms) -> bool:
    """Whether the plan protects nobody although somebody's data count."""
    return not terms.sigma.any() and bool((terms.spec.sensitivity > 0).any())


def coalitions_text(most: int) -> str:
    """The coalitions that a guarantee holds against.

    >>> coalitions_text(2)
    'coalitions of at most 2 parties'
    """
    return f"coalitions of at most {most} {'party' if most == 1 else 'parties'}"


def coalitions_of(terms: Terms) -> str:
    """The coalitions that a guarantee of these terms holds against; with personal thresholds, each party's own.

    >>> from tpmdp.planning.grid_plan import plan_on_grid
    >>> from tpmdp.spec import Spec
    >>> plan = plan_on_grid(Spec(epsilon=[1.0] * 3, delta=1e-6, threshold=[1, 2, 1], names=["a", "b", "c"]), bound=1.0)
    >>> coalitions_of(Terms.of("demo", plan, 1.0, roster=(bytes(32), bytes(31) + b"1", bytes(31) + b"2")))
    'coalitions of at most 1 party for a, c and of at most 2 parties for b'
    """
    each = np.broadcast_to(terms.spec.threshold, (terms.count,)).tolist()
    levels = sorted(set(each))
    if len(levels) == 1:
        return coalitions_text(levels[0])
    parts = []
    for level in levels:
        names = ", ".join(terms.spec.name(party) for party, own in enumerate(each) if own == level)
        parts.append(f"{coalitions_text(level).removeprefix('coalitions ')} for {names}")
    return f"coalitions {' and '.join(parts)}"
