"""LS: each party drops its own input by a private coin. It is the distributed form of Sample, to compare with weights.

A party kept with chance p, whose needs are for (epsilon*, delta/p), has epsilon = log(1 + p (e^epsilon* - 1)) at delta
(Theory, "Baselines"): nobody else knows its coin. The others plan as they are.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np

from tpmdp._util.arrays import FloatArray
from tpmdp.mechanisms.additive import Optimal
from tpmdp.mechanisms.mechanism import Mechanism, Setting
from tpmdp.mechanisms.problem import Accuracy, Problem

_PLAN: Final = Optimal()
_TRIED: Final = 40
_STAR_MAX: Final = 30.0
"""Beyond it, a strict party would almost never be kept."""
_DELTA_MAX: Final = 0.5
_DOWN: Final = 1 - 2.0**-48  # more than the rounding of chances and deltas
_SQUARE: Final = 2.0
"""Mean square over variance of a coordinate: that of bits half of which are 1."""


@dataclass(frozen=True, eq=False)
class Dropping:
    """The chance that each party is kept, and the budgets that the noise is then planned for."""

    chance: FloatArray
    inner: Setting

    @property
    def scale(self) -> float:
        """The factor that the receiver multiplies by.

        >>> from tpmdp.spec import Spec
        >>> setting = Setting.of(Spec(epsilon=[0.5, 0.5], delta=1e-6, threshold=1))
        >>> Dropping(np.array([0.5, 1.0]), setting).scale
        1.3333333333333333
        """
        return len(self.chance) / float(self.chance.sum())

    def expected(self, spread: float) -> float:
        """Expected squared error for data of this spread that are unrelated to budgets."""
        chance, scale = self.chance, self.scale
        by_chance = _SQUARE * scale**2 * float((chance * (1 - chance)).sum())
        by_share = float(((scale * chance - 1) ** 2).sum())
        return scale**2 * _PLAN.noise(self.inner) + spread**2 * (by_chance + by_share)


def drop_below(setting: Setting, star: float) -> Dropping:
    """Parties below epsilon* are kept with the chance that lets them plan as if they had it.

    >>> from tpmdp.spec import Spec
    >>> setting = Setting.of(Spec(epsilon=[0.1, 1.0, 2.0], delta=1e-6, threshold=1))
    >>> drop = drop_below(setting, 1.0)
    >>> drop.chance.round(3), drop.inner.spec.epsilon
    (array([0.061, 1.   , 1.   ]), array([1., 1., 2.]))
    """
    spec = setting.spec
    lower = np.minimum(spec.epsilon, star)
    chance = np.exp(lower - star) * (np.expm1(-lower) / np.expm1(-star)) * _DOWN
    chance = np.where(spec.epsilon < star, chance, 1.0)
    delta = np.where(
        chance < 1, np.minimum(spec.delta / chance * _DOWN, np.maximum(spec.delta, _DELTA_MAX)), spec.delta
    )
    return Dropping(chance, Setting.of(spec.replace(epsilon=np.maximum(spec.epsilon, star), delta=delta)))


def best_dropping(setting: Setting) -> Dropping:
    """The epsilon* of least expected error among those tried. It is public: it depends only on budgets.

    >>> from tpmdp.spec import Spec
    >>> setting = Setting.of(Spec(epsilon=[0.1, 1.0, 1.0], delta=1e-6, threshold=1))
    >>> round(float(best_dropping(setting).inner.spec.epsilon.min()), 2)
    0.89
    """
    epsilon, spread = setting.spec.epsilon, setting.weights.spread
    finite = np.minimum(epsilon[np.isfinite(epsilon)], _STAR_MAX)
    if not len(finite):
        return Dropping(np.ones(len(epsilon)), setting)
    stars = np.unique(np.geomspace(finite.min(), finite.max(), _TRIED))
    return min((drop_below(setting, float(star)) for star in stars), key=lambda drop: drop.expected(spread))


class LocalSample(Mechanism):
    """Strict parties drop their inputs at random, each by its own coin; the plan is for the remaining budgets."""

    name = "LS"
    meaning = "strict parties drop their input by a private coin"
    trust = Optimal.trust

    def noise(self, setting: Setting) -> float:
        drop = best_dropping(setting)
        return drop.scale**2 * _PLAN.noise(drop.inner)

    def enjoyed(self, setting: Setting) -> FloatArray:
        drop = best_dropping(setting)
        inner = _PLAN.enjoyed(drop.inner)
        small = np.minimum(inner, _STAR_MAX)  # which holds for every party that has a coin
        epsilon = np.where(drop.chance < 1, np.log1p(drop.chance * np.expm1(small)), inner)
        return np.minimum(epsilon, setting.spec.epsilon)

    def _sum(self, setting: Setting, problem: Problem, random: np.random.Generator) -> FloatArray:
        drop = best_dropping(setting)
        keep = random.random(problem.count) < drop.chance
        return drop.scale * problem.weighted(keep.astype(np.float64))

    def _error(self, setting: Setting, problem: Problem) -> Accuracy:
        drop = best_dropping(setting)
        chance, scale = drop.chance, drop.scale
        return Accuracy(
            problem.weighted(scale * chance - 1), scale**2 * problem.weighted_squares(chance * (1 - chance))
        )
