"""All claims of the paper, in its order."""

from __future__ import annotations

from typing import Final

from tpmdp.experiments.claims import of_count, of_efficiency, of_regression

CLAIMS: Final = {
    "count": of_count.CLAIMS,
    "regression": of_regression.CLAIMS,
    "efficiency": of_efficiency.CLAIMS,
}
"""By the experiment that checks them."""
