"""The contract of every engine: from the vectors of all parties, noise included, to what each party gets.

Only receivers get the sum; everybody else gets a receipt. An outcome says which guarantee it carries.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from tpmdp._util.arrays import IntArray
from tpmdp.protocol.masks import Mask
from tpmdp.protocol.party import PartySession
from tpmdp.protocol.terms import Terms


@dataclass(frozen=True, eq=False)
class Outcome:
    """What a session gave: the sum in grid steps by receiver, who got a receipt, and how much each party sent."""

    sums: dict[int, IntArray]
    receipts: frozenset[int]
    bytes_sent: tuple[int, ...]
    guarantee: str
    missing: frozenset[int] = frozenset()
    """Who dropped out, and is not counted."""


class Engine(Protocol):
    """Runs a session among all its parties."""

    name: str

    def run(
        self, terms: Terms, identities: Sequence[Ed25519PrivateKey], vectors: Sequence[Mask], deadline_s: float = 60.0
    ) -> Outcome:
        """Carry the session through, or raise within the deadline."""


def stuck(lead: PartySession) -> str:
    """Why a session does not go on, by its lead receiver."""
    names = ", ".join(lead.terms.spec.name(party) for party in lead.waiting_for())
    return f"{names} dropped out in step {lead.step}, and the session cannot go on without: start a new session"


def guarantee_text(terms: Terms) -> str:
    """What a result of these terms promises, in words.

    >>> from tpmdp.planning.grid_plan import plan_on_grid
    >>> from tpmdp.spec import Spec
    >>> made = plan_on_grid(Spec(epsilon=[1.0, 2.0], delta=1e-6, threshold=1), bound=1.0)
    >>> guarantee_text(Terms.of("demo", made, 1.0, (bytes(32), bytes(31) + b"1")))
    'computational: holds against coalitions of at most 1 party that cannot break X25519, AES-256 and HKDF'
    """
    if not terms.sigma.any() and (terms.spec.sensitivity > 0).any():
        return "NONE: this plan adds no noise, so receivers learn the exact answer"
    most = terms.colluders
    many = f"coalitions of at most {most} {'party' if most == 1 else 'parties'}"
    if terms.tolerate:
        many += f", and whichever {terms.tolerate} drop out,"
    if terms.guarantee == "statistical":
        return f"statistical: holds against {many} of any computing power; pads travel over encrypted channels"
    return f"computational: holds against {many} that cannot break X25519, AES-256 and HKDF"
