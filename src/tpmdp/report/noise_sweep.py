"""How much noise other thresholds and budgets would bring, against a study as it is."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from tpmdp.errors import InputError
from tpmdp.planning.baselines import totals_by_threshold, trusted_curator
from tpmdp.planning.plan import needs
from tpmdp.spec import Spec

FACTORS: Final = (0.25, 0.5, 1.0, 2.0, 4.0)  # of all budgets
_CURVE: Final = tuple(2.0 ** (step / 2) for step in range(-6, 7))
_THRESHOLDS_MAX: Final = 60
_ROWS_MAX: Final = 9


@dataclass(frozen=True)
class NoiseSweep:
    """Noise of the answers (standard deviation) against that of the study, which is 1.

    Where the study adds no noise, in units of the sum that is released.
    """

    is_relative: bool
    threshold: int
    thresholds: tuple[int, ...]
    by_threshold: tuple[float, ...]
    curator: float  # a trusted third party that sees all the data
    factors: tuple[float, ...]
    by_factor: tuple[float, ...]
    rows: tuple[int, ...]  # thresholds of the table
    columns: tuple[float, ...]  # factors of the table
    cells: tuple[tuple[float, ...], ...]


def noise_sweep(spec: Spec) -> NoiseSweep:
    """Plan for other thresholds and for budgets that are all larger or smaller by a factor.

    >>> result = noise_sweep(Spec(epsilon=[1.0, 1.0, 1.0, 2.0], delta=1e-6, threshold=2))
    >>> [round(noise, 2) for noise in result.by_threshold], result.rows
    ([0.0, 0.82, 1.0, 1.28], (0, 1, 2, 3))
    """
    assert isinstance(spec.threshold, int)
    here, most = spec.threshold, spec.count - 1
    plain = needs(spec)
    own = math.sqrt(float(totals_by_threshold(plain, [spec.threshold], spec.receivers)[0]))
    unit = own or 1.0

    def noise(need: np.ndarray, thresholds: Sequence[int]) -> tuple[float, ...]:
        totals = totals_by_threshold(need, list(thresholds), spec.receivers)
        return tuple((np.sqrt(totals) / unit).tolist())

    by_budget = {}
    for factor in sorted({*FACTORS, *_CURVE}):
        try:
            by_budget[factor] = needs(spec.replace(epsilon=spec.epsilon * factor))
        except InputError:  # beyond what calibration can do
            continue
    thresholds, rows = _spread_out(here, most, _THRESHOLDS_MAX), _spread_out(here, most, _ROWS_MAX)
    factors = tuple(factor for factor in _CURVE if factor in by_budget)
    columns = tuple(factor for factor in FACTORS if factor in by_budget)
    by_column = [noise(by_budget[factor], rows) for factor in columns]
    return NoiseSweep(
        own > 0,
        here,
        thresholds,
        by_threshold=noise(plain, thresholds),
        curator=trusted_curator(plain).standard_deviation / unit,
        factors=factors,
        by_factor=tuple(noise(by_budget[factor], [here])[0] for factor in factors),
        rows=rows,
        columns=columns,
        cells=tuple(zip(*by_column, strict=True)),
    )


def _spread_out(here: int, most: int, count: int) -> tuple[int, ...]:
    """Some thresholds from 0 to the most, among them this one, 0 and 1."""
    some = np.linspace(0, most, min(count, most + 1)).round().astype(int).tolist()
    return tuple(sorted({*some, here, 0, min(1, most)}))
