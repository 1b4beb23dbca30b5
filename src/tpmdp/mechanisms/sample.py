"""Sample (Jorgensen et al. 2015): a trusted curator drops strict parties at random, and adds noise for the average.

A party kept with chance p, in a sum released under (epsilon*, delta*), has epsilon = log(1 + p (e^epsilon* - 1)) and
delta = p delta* (Theory, "Baselines"): by substitution too, as the noise covers leaving an input out.
"""

from __future__ import annotations

import numpy as np

from tpmdp._util.arrays import FloatArray
from tpmdp.gaussian.calibration import calibrate
from tpmdp.mechanisms.mechanism import Mechanism, Setting
from tpmdp.mechanisms.problem import Accuracy, Problem


def kept_chance(epsilon: FloatArray) -> FloatArray:
    """The chance that each party is kept: (e^epsilon - 1)/(e^mean - 1), at most 1.

    >>> kept_chance(np.array([0.1, 0.1, 1.0])).round(3)
    array([0.214, 0.214, 1.   ])
    """
    mean = float(np.mean(epsilon))
    if np.isinf(mean):
        return np.where(np.isinf(epsilon), 1.0, 0.0)
    lower = np.minimum(epsilon, mean)
    chance = np.exp(lower - mean) * (np.expm1(-lower) / np.expm1(-mean))
    return np.where(epsilon < mean, np.minimum(chance, 1.0), 1.0)


class Sample(Mechanism):
    """Drop strict parties at random, then add noise for the average epsilon."""

    name = "Sample"
    meaning = "a trusted curator drops strict parties"
    trust = "a curator who sees every input"

    def noise(self, setting: Setting) -> float:
        spec = setting.spec
        mean = float(np.mean(spec.epsilon))
        if np.isinf(mean):
            return 0.0
        deviation = calibrate(mean, float(spec.delta.min()), float(spec.sensitivity.max()))
        return float(np.nextafter(deviation * deviation, np.inf))

    def enjoyed(self, setting: Setting) -> FloatArray:
        epsilon = setting.spec.epsilon
        return np.minimum(epsilon, float(np.mean(epsilon)))

    def _sum(self, setting: Setting, problem: Problem, random: np.random.Generator) -> FloatArray:
        keep = random.random(problem.count) < kept_chance(setting.spec.epsilon)
        return problem.weighted(keep.astype(np.float64))

    def _error(self, setting: Setting, problem: Problem) -> Accuracy:
        chance = kept_chance(setting.spec.epsilon)
        return Accuracy(-problem.weighted(1 - chance), problem.weighted_squares(chance * (1 - chance)))


class ScaledSample(Sample):
    """Sample, scaled back by n over the sum of chances: unbiased if budgets are unrelated to the data.

    >>> from tpmdp.mechanisms.problem import CountProblem
    >>> from tpmdp.spec import Spec
    >>> setting = Setting.of(Spec(epsilon=[0.1, 1.0], delta=1e-6, threshold=1))
    >>> error = ScaledSample().error(setting, CountProblem([1, 1]))
    >>> bool(abs(error.bias[0]) < 1e-9 < error.variance[0])
    True
    """

    name = "Sample, scaled back"
    meaning = "a trusted curator drops strict parties, and scales back"

    def noise(self, setting: Setting) -> float:
        return super().noise(setting) * self._scale(setting) ** 2

    def _scale(self, setting: Setting) -> float:
        return setting.spec.count / float(kept_chance(setting.spec.epsilon).sum())

    def _sum(self, setting: Setting, problem: Problem, random: np.random.Generator) -> FloatArray:
        return self._scale(setting) * super()._sum(setting, problem, random)

    def _error(self, setting: Setting, problem: Problem) -> Accuracy:
        chance, scale = kept_chance(setting.spec.epsilon), self._scale(setting)
        return Accuracy(
            problem.weighted(scale * chance - 1), scale**2 * problem.weighted_squares(chance * (1 - chance))
        )
