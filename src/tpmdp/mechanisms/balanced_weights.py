"""W: the optimal plan for weighted inputs. Strict parties count less, so that they do not set the noise of all."""

from __future__ import annotations

from typing import Final

import numpy as np

from tpmdp._util.arrays import FloatArray
from tpmdp.mechanisms.additive import Optimal
from tpmdp.mechanisms.mechanism import Mechanism, Setting
from tpmdp.mechanisms.problem import Accuracy, Problem

_PLAN: Final = Optimal()


class Weighted(Mechanism):
    """Party j contributes w_j x_j and the receiver multiplies by n / sum w: right on average if budgets have nothing to
    do with the data. Weights are those of `tpmdp.plan(spec, weighting="balanced")`.

    >>> from tpmdp.spec import Spec
    >>> setting = Setting.of(Spec(epsilon=[0.1, 1, 1, 1, 1, 1], delta=1e-6, threshold=2))
    >>> round(Weighted().noise(setting), 1), round(Optimal().noise(setting), 1)
    (36.8, 1327.0)
    """

    name = "W"
    meaning = "strict parties count less"
    trust = Optimal.trust

    def noise(self, setting: Setting) -> float:
        """The plan's for the weighted needs, scaled back."""
        return setting.weights.scale**2 * _PLAN.noise(setting.weighted)

    def enjoyed(self, setting: Setting) -> FloatArray:
        """Against the coalition that knows most of the noise; an input changes the sum by its weight's part only."""
        return _PLAN.enjoyed(setting.weighted)

    def _sum(self, setting: Setting, problem: Problem, random: np.random.Generator) -> FloatArray:
        del random
        weights = setting.weights
        return weights.scale * problem.weighted(weights.each)

    def _error(self, setting: Setting, problem: Problem) -> Accuracy:
        """Some parties count too much, others too little: given the data that is no chance, but fixed."""
        return Accuracy(problem.weighted(setting.weights.excess), np.zeros_like(problem.total))
