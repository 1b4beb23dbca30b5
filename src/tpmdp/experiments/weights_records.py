"""Where weights gain and where they do not: the number of records per party, and how much is known of the parties.

Nothing is simulated. Twenty parties have the budgets of a consortium, ten may collude and all receive. Values lie in a
range of width 1.
"""

from __future__ import annotations

import math
from typing import Any, Final

import numpy as np

import tpmdp.experiments.consortium_experiment as consortium
from tpmdp._util.arrays import FloatArray
from tpmdp.experiments.jobs import Job, Row
from tpmdp.planning.plan import needs, plan
from tpmdp.planning.weights import baseline_weights
from tpmdp.spec import Spec

PARTIES: Final = 20
RECORDS: Final[dict[str, tuple[int, int]]] = {
    "1": (1, 1),
    "1 to 100": (1, 100),
    "100": (100, 100),
    "100 to 10,000": (100, 10_000),
    "10,000": (10_000, 10_000),
}
"""The fewest and the most records of a party; in between they are spread evenly on a logarithmic scale."""
SPREADS: Final = (0.5, 0.05)
"""Nothing is known of the parties' averages; or they vary by a tenth of the most."""
NAMES: Final = ("G", "W", "two levels", "T")


def draw_records(fewest: int, most: int, random: np.random.Generator) -> FloatArray:
    """The records of each party.

    >>> draw_records(1, 1, np.random.default_rng(0)).tolist() == [1.0] * PARTIES
    True
    """
    return np.rint(np.exp(random.uniform(math.log(fewest), math.log(most), PARTIES)))


def expected_errors(spec: Spec, records: FloatArray, spread: float) -> dict[str, float]:
    """The expected error of a sum with each kind of weights.

    >>> spec = Spec(epsilon=[0.1, 1.0, 1.0], delta=1e-6, threshold=1)
    >>> {name: round(error, 1) for name, error in expected_errors(spec, np.ones(3), 0.5).items()}
    {'G': 36.4, 'W': 7.4, 'two levels': 7.4, 'T': 7.8}
    """
    known: dict[str, Any] = {"spread": spread, "records": records, "width": 1.0}
    need = needs(spec)
    weights: dict[str, Any] = {
        "G": "equal",
        "W": "balanced",
        "two levels": baseline_weights(spec, need, "two levels", **known).each,
        "T": baseline_weights(spec, need, "one budget", **known).each,
    }
    return {name: plan(spec, weighting=weights[name], **known).expected_error for name in NAMES}


def record_rows(job: Job, random: np.random.Generator) -> list[Row]:
    """The rows of a draw: for the same budgets, every number of records and every spread."""
    del job
    epsilon = consortium.draw_budgets(PARTIES, random)
    spec = Spec(epsilon=epsilon, delta=consortium.DELTA, threshold=PARTIES // 2)
    rows: list[Row] = []
    for records, (fewest, most) in RECORDS.items():
        sizes = draw_records(fewest, most, random)
        for spread in SPREADS:
            for name, error in expected_errors(spec, sizes, spread).items():
                rows.append({"records": records, "spread": spread, "mechanism": name, "error": error})
    return rows
