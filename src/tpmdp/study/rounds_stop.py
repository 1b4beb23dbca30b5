"""How a party that cannot pay for the next round, or has withdrawn, says so: the others end at once.

It joins the session of that round with a plan of its own, whose hash follows from the plan that it refuses. Every party
knows that hash. The messages are signed and depend on no data, and nothing is charged for them. Once the party has
agreed after all, because its limit was raised, the note no longer counts.
"""

from __future__ import annotations

from dataclasses import replace

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from tpmdp.errors import TpmdpError
from tpmdp.protocol.masks import Mask
from tpmdp.protocol.party import PartySession
from tpmdp.protocol.secrets import FreshSecrets
from tpmdp.protocol.terms import Terms


class PeerStoppedError(TpmdpError):
    """Another party has ended the study before this round."""

    def __init__(self, party: str) -> None:
        self.party = party
        problem = f"{party} takes no part in the next round (it cannot pay for it, or has withdrawn)"
        super().__init__(f"{problem}: once it has joined again, run the same command again")


def stop_messages(terms: Terms, index: int, identity: Ed25519PrivateKey) -> list[bytes]:
    """What a party sends that does not take part in the session with these terms."""

    def nothing(_attempt: int, _members: frozenset[int]) -> Mask:
        raise AssertionError("a party that has stopped sends no vector")

    return PartySession(_stopped(terms), index, identity, vector=nothing, secrets=FreshSecrets()).start()


def check_stopped(party: PartySession) -> None:
    """Raise `PeerStoppedError` if another party has ended the study before this session."""
    for sender, plans in party.other_plans.items():
        if sender in party.agreed or sender in party.current.keys:
            continue
        if any(plan == _stopped(party.terms).plan_hash for plan, _ in plans):
            raise PeerStoppedError(party.terms.spec.name(sender))


def _stopped(terms: Terms) -> Terms:
    return replace(terms, query=f"stopped before {terms.plan_hash.hex()}")
