"""The log-rank test from noisy sums: it counts the noise beside sampling: Theory, "Survival"."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Final

import numpy as np
from scipy.special import chdtrc, chdtri

from tpmdp._util.arrays import FloatArray
from tpmdp.queries.survival_curve import FollowUp

_NOTHING: Final = 1e-9  # a variance of no events


@dataclass(frozen=True, eq=False)
class LogRankTest:
    """Observed less expected events of each group, over the bins in which noise hides no group."""

    groups: Sequence[FollowUp]

    @cached_property
    def clear(self) -> int:
        """The number of first bins that count; without noise all do in which somebody is at risk."""
        if not self.groups[0].error:
            return int((self._at_risk.sum(axis=0) > 0.5).sum())
        return min(group.clear for group in self.groups)

    @cached_property
    def _at_risk(self) -> FloatArray:
        """Calm numbers at risk: a row per group."""
        return np.array([group.calm_at_risk for group in self.groups])

    @cached_property
    def _shares(self) -> FloatArray:
        """Of each group among all at risk, in the bins that count."""
        at_risk = self._at_risk[:, : self.clear]
        return np.asarray(at_risk / at_risk.sum(axis=0), dtype=np.float64)

    @cached_property
    def _calm_events(self) -> FloatArray:
        events: FloatArray = np.sum([group.calm_events[: self.clear] for group in self.groups], axis=0)
        return events

    @cached_property
    def observed_less_expected(self) -> FloatArray:
        """By group; they add up to 0. Events are the noisy ones, which have no bias."""
        events = np.array([group.at_risk - group.staying for group in self.groups])[:, : self.clear]
        return np.asarray((events - events.sum(axis=0) * self._shares).sum(axis=1), dtype=np.float64)

    @cached_property
    def sampling(self) -> FloatArray:
        """Their covariances if survival is the same in all groups (hypergeometric)."""
        total = self._at_risk[:, : self.clear].sum(axis=0)
        rest = np.maximum(total - self._calm_events, 0.0) / np.maximum(total - 1, 1e-9)
        factors = self._calm_events * np.where(total > 1 + 1e-9, rest, 0.0)
        alone = np.diag(self._shares @ factors)
        return np.asarray(alone - (self._shares * factors) @ self._shares.T, dtype=np.float64)

    @cached_property
    def gradients(self) -> FloatArray:
        """How the noise of each entry of each group moves `observed_less_expected`: to group, from group, by entry."""
        count, total = len(self.groups), self._at_risk[:, : self.clear].sum(axis=0)
        rates = self._calm_events / total
        rows = []
        for group in range(count):
            for other, source in enumerate(self.groups):
                of_events = float(group == other) - self._shares[group]
                of_risk = -rates * (float(group == other) - self._shares[group])
                reading = source.reading
                rows.append(of_events @ reading.events[: self.clear] + of_risk @ reading.at_risk[: self.clear])
        return np.array(rows).reshape(count, count, -1)

    @cached_property
    def noise(self) -> FloatArray:
        """Covariances of the noise, to first order."""
        flat = self.gradients.reshape(len(self.groups), -1)
        return np.asarray(self.groups[0].error ** 2 * flat @ flat.T, dtype=np.float64)

    @property
    def freedom(self) -> int:
        """Degrees of freedom."""
        return len(self.groups) - 1

    @cached_property
    def is_told(self) -> bool:
        """Whether there is anything to compare."""
        return self.clear > 0 and bool(np.diag(self.sampling).min() > _NOTHING)

    def chi_square(self, *, with_noise: bool = True) -> float:
        """The statistic: with the noise in its denominator, or as it would be for exact sums."""
        covariances = self.sampling + (self.noise if with_noise else 0.0)
        differences = self.observed_less_expected[1:]
        return float(differences @ np.linalg.solve(covariances[1:, 1:], differences))

    def chi_square_limits(self) -> tuple[float, float]:
        """What the statistic for exact sums may be: a 95 % interval of the noise."""
        root = np.linalg.cholesky(self.sampling[1:, 1:])
        scaled = np.linalg.solve(root, self.noise[1:, 1:]) @ np.linalg.inv(root).T
        reach = math.sqrt(chdtri(self.freedom, 0.05) * max(float(np.linalg.eigvalsh(scaled).max()), 0.0))
        middle = math.sqrt(self.chi_square(with_noise=False))
        return max(middle - reach, 0.0) ** 2, (middle + reach) ** 2

    def p_value(self, statistic: float) -> float:
        """The chance of so large a statistic if survival is the same in all groups."""
        return float(chdtrc(self.freedom, statistic))

    @cached_property
    def variance_error(self) -> float:
        """Standard error of the noise in the variance of the second group's difference, for two groups."""
        rows = self._shares[0] * self._shares[1] @ self.groups[0].reading.events[: self.clear]
        return self.groups[0].error * math.sqrt(2) * float(np.linalg.norm(rows))
