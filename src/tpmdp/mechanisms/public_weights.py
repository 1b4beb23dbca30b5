"""W, T and two levels: the optimal plan for inputs with public weights, so that strict parties do not set all noise."""

from __future__ import annotations

from abc import abstractmethod
from typing import Final

import numpy as np

from tpmdp._util.arrays import FloatArray
from tpmdp.mechanisms.additive import Optimal
from tpmdp.mechanisms.mechanism import Mechanism, Setting
from tpmdp.mechanisms.problem import Accuracy, Problem
from tpmdp.planning.weights import Weights

_PLAN: Final = Optimal()


class PublicWeights(Mechanism):
    """Party j contributes w_j x_j and the receiver multiplies by n / sum w: unbiased if budgets are unrelated to the
    data.
    """

    trust = Optimal.trust

    @abstractmethod
    def weights(self, setting: Setting) -> Weights:
        """The weights, which are public."""

    def noise(self, setting: Setting) -> float:
        weights = self.weights(setting)
        return weights.scale**2 * _PLAN.noise(setting.weighted(weights))

    def enjoyed(self, setting: Setting) -> FloatArray:
        """An input changes the sum only by its weight's share."""
        return _PLAN.enjoyed(setting.weighted(self.weights(setting)))

    def _sum(self, setting: Setting, problem: Problem, random: np.random.Generator) -> FloatArray:
        del random
        weights = self.weights(setting)
        return weights.scale * problem.weighted(weights.each)

    def _error(self, setting: Setting, problem: Problem) -> Accuracy:
        """Some parties count too much, others too little. For given data this is a fixed bias, not a variance."""
        return Accuracy(problem.weighted(self.weights(setting).excess), np.zeros_like(problem.total))


class Weighted(PublicWeights):
    """The weights of `tpmdp.plan(spec, weighting="balanced")`: no weights have a smaller expected error.

    >>> from tpmdp.spec import Spec
    >>> setting = Setting.of(Spec(epsilon=[0.1, 1, 1, 1, 1, 1], delta=1e-6, threshold=2))
    >>> round(Weighted().noise(setting), 1), round(Optimal().noise(setting), 1)
    (36.8, 1327.0)
    """

    name = "W"
    meaning = "strict parties count less"

    def weights(self, setting: Setting) -> Weights:
        return setting.weights


class OneBudget(PublicWeights):
    """T: the strictest parties are left out, and the others count alike.

    >>> from tpmdp.spec import Spec
    >>> setting = Setting.of(Spec(epsilon=[0.1, 1, 1, 1, 1, 1], delta=1e-6, threshold=2))
    >>> round(OneBudget().noise(setting), 1)
    38.6
    """

    name = "T"
    meaning = "strict parties are left out"

    def weights(self, setting: Setting) -> Weights:
        return setting.one_budget


class TwoLevels(PublicWeights):
    """The strict parties have one weight, the others 1."""

    name = "two levels"
    meaning = "strict parties have one smaller weight"

    def weights(self, setting: Setting) -> Weights:
        return setting.two_levels
