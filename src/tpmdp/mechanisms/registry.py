"""All mechanisms, in the order in which tables show them."""

from __future__ import annotations

from typing import Final

from tpmdp.mechanisms.additive import AnyCoalition, NonPrivate, Optimal, SameBudget, TrustedCurator
from tpmdp.mechanisms.balanced_weights import Weighted
from tpmdp.mechanisms.local import Local
from tpmdp.mechanisms.mechanism import Mechanism
from tpmdp.mechanisms.sample import Sample

MECHANISMS: Final[dict[str, Mechanism]] = {
    mechanism.name: mechanism
    for mechanism in (
        Optimal(),
        Weighted(),
        SameBudget(),
        AnyCoalition(),
        TrustedCurator(),
        Sample(),
        Local(),
        NonPrivate(),
    )
}
"""By their names in the paper; W is new."""
