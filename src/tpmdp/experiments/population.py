"""Adults with five attributes, as in the paper's regression: from a census file, or drawn at random without one.

The synthetic population imitates the shape of the American Community Survey (means, spreads, ties, a skewed income
with many zeros that depends on the rest), not its numbers.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

import numpy as np

from tpmdp.data.source import read_table
from tpmdp.queries.shares import Range
from tpmdp.table import Table
from tpmdp.validate import FloatArray

RANGES: Final = (
    Range("children", 0.0, 10.0),
    Range("gender", 0.0, 1.0),
    Range("age", 18.0, 96.0),
    Range("education", 1.0, 24.0),
    Range("income", 0.0, 200_000.0),
)
COLUMNS: Final = tuple(one.column for one in RANGES)


def synthetic_adults(records: int, seed: int) -> dict[str, FloatArray]:
    """Draw a population; the same seed gives the same people.

    >>> people = synthetic_adults(1000, seed=0)
    >>> sorted(people) == sorted(COLUMNS), bool((people["age"] >= 18).all())
    (True, True)
    """
    random = np.random.default_rng(seed)
    gender = (random.random(records) < 0.52).astype(np.float64)
    age = np.floor(18 + 78 * random.beta(1.6, 2.0, records))
    education = np.clip(np.rint(random.normal(18.5, 3.2, records)), 1, 24)
    parents = random.random(records) < np.clip(1.1 - np.abs(age - 38) / 30, 0.02, 0.6)
    children = np.where(parents, 1 + random.poisson(0.8, records), 0).astype(np.float64)
    working = random.random(records) < np.where(age < 67, 0.82, 0.35)
    level = 9.6 + 0.09 * (education - 12) + 0.02 * np.minimum(age, 55) - 0.35 * gender + 0.03 * children
    wages = np.exp(level - 0.2 + 0.75 * random.normal(size=records))
    income = np.where(working, wages, 14_000 * random.random(records))
    income = np.where(random.random(records) < 0.08, 0.0, np.rint(income))
    return {"children": children, "gender": gender, "age": age, "education": education, "income": income}


def read_adults(path: Path | None, records: int, seed: int) -> Table:
    """So many adults of a file with the five columns, drawn at random; a synthetic population where there is no file.

    >>> len(read_adults(None, 10, seed=0)["income"])
    10
    """
    if path is None or not path.exists():
        return synthetic_adults(records, seed)
    whole = read_table(path, dict.fromkeys(COLUMNS, "number"))
    chosen = np.random.default_rng(seed).choice(len(whole["income"]), records, replace=False)
    return {column: whole[column][chosen] for column in COLUMNS}
