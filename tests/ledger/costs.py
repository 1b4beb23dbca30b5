"""What a session costs in tests."""

from __future__ import annotations

from tpmdp.ledger import Charge


def cost(mu: float, closeness: float = 1e-50) -> Charge:
    return Charge(mu, closeness, 0.5, 1e-6)
