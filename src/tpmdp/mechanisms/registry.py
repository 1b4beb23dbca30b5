"""All mechanisms, in the order in which tables show them."""

from __future__ import annotations

from typing import Final

from tpmdp.mechanisms.additive import AnyCoalition, NonPrivate, Optimal, SameBudget, TrustedCurator
from tpmdp.mechanisms.local import Local
from tpmdp.mechanisms.mechanism import Mechanism
from tpmdp.mechanisms.public_weights import OneBudget, TwoLevels, Weighted
from tpmdp.mechanisms.sample import Sample, ScaledSample

MECHANISMS: Final[dict[str, Mechanism]] = {
    mechanism.name: mechanism
    for mechanism in (
        Optimal(),
        Weighted(),
        TwoLevels(),
        OneBudget(),
        SameBudget(),
        AnyCoalition(),
        TrustedCurator(),
        Sample(),
        ScaledSample(),
        Local(),
        NonPrivate(),
    )
}
"""By their names in the paper; W is new, and so are what it is compared with: T, two levels and Sample, scaled back."""
