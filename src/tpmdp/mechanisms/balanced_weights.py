"""W: the optimal plan for weighted inputs. Strict parties count less, so that they do not determine all noise."""

from __future__ import annotations

from typing import Final

import numpy as np

from tpmdp._util.arrays import FloatArray
from tpmdp.mechanisms.additive import Optimal
from tpmdp.mechanisms.mechanism import Mechanism, Setting
from tpmdp.mechanisms.problem import Accuracy, Problem

_PLAN: Final = Optimal()


class Weighted(Mechanism):
    """Party j contributes w_j x_j and the receiver multiplies by n / sum w: unbiased if budgets are unrelated to the
    data. Weights are those of `tpmdp.plan(spec, weighting="balanced")`.

    >>> from tpmdp.spec import Spec
    >>> setting = Setting.of(Spec(epsilon=[0.1, 1, 1, 1, 1, 1], delta=1e-6, threshold=2))
    >>> round(Weighted().noise(setting), 1), round(Optimal().noise(setting), 1)
    (36.8, 1327.0)
    """

    name = "W"
    meaning = "strict parties count less"
    trust = Optimal.trust

    def noise(self, setting: Setting) -> float:
        return setting.weights.scale**2 * _PLAN.noise(setting.weighted)

    def enjoyed(self, setting: Setting) -> FloatArray:
        """An input changes the sum only by its weight's share."""
        return _PLAN.enjoyed(setting.weighted)

    def _sum(self, setting: Setting, problem: Problem, random: np.random.Generator) -> FloatArray:
        del random
        weights = setting.weights
        return weights.scale * problem.weighted(weights.each)

    def _error(self, setting: Setting, problem: Problem) -> Accuracy:
        """Some parties count too much, others too little. For given data this is a fixed bias, not a variance."""
        return Accuracy(problem.weighted(setting.weights.excess), np.zeros_like(problem.total))
