"""All claims of the paper, in its order."""

from __future__ import annotations

from typing import Final

from tpmdp.experiments import claims_count, claims_efficiency, claims_regression

CLAIMS: Final = {
    "count": claims_count.CLAIMS,
    "regression": claims_regression.CLAIMS,
    "efficiency": claims_efficiency.CLAIMS,
}
"""By the experiment that checks them."""
