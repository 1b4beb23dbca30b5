"""All claims of the paper, in its order, by the experiment that checks them."""

from __future__ import annotations

from typing import Final

from tpmdp.experiments.claims import count_claims, efficiency_claims, regression_claims

CLAIMS: Final = {
    "count": count_claims.CLAIMS,
    "regression": regression_claims.CLAIMS,
    "efficiency": efficiency_claims.CLAIMS,
}
