"""Mechanisms that add Gaussian noise to the true sum: G, TMDP, non-thre, MIN, and no noise at all."""

from __future__ import annotations

from abc import abstractmethod

import numpy as np

from tpmdp._util.arrays import FloatArray
from tpmdp._util.exact import exact_sum, to_float
from tpmdp.gaussian.calibration import epsilon_at
from tpmdp.mechanisms.mechanism import Mechanism, Setting
from tpmdp.planning.closed_form import optimal_variance
from tpmdp.planning.coalition import worst_coalitions


def _enjoyed(setting: Setting, honest: FloatArray) -> FloatArray:
    """The epsilon of each party if its worst coalition does not know this much noise."""
    spec = setting.spec
    epsilon = epsilon_at(np.sqrt(honest), spec.delta, spec.sensitivity)
    # The need is proven enough for the budget, so where it is met the budget itself is a valid bound.
    return np.asarray(np.where(honest >= setting.need, np.minimum(epsilon, spec.epsilon), epsilon), dtype=np.float64)


class Shared(Mechanism):
    """Every party adds noise, and a coalition knows its own noise."""

    trust = "no more than the threshold collude"

    @abstractmethod
    def variance(self, setting: Setting) -> FloatArray:
        """The noise of each party."""

    def noise(self, setting: Setting) -> float:
        return to_float(exact_sum(self.variance(setting)))

    def enjoyed(self, setting: Setting) -> FloatArray:
        spec = setting.spec
        return _enjoyed(
            setting, worst_coalitions(self.variance(setting), spec.threshold, spec.receivers).honest_variance
        )


class Optimal(Shared):
    """G, the mechanism of the paper and of this package.

    >>> from tpmdp.spec import Spec
    >>> round(Optimal().noise(Setting.of(Spec(epsilon=[0.5, 1, 2], delta=1e-6, threshold=1))), 2)
    73.85
    """

    name = "G"
    meaning = "the optimal plan"

    def variance(self, setting: Setting) -> FloatArray:
        return optimal_variance(setting.need, setting.threshold, setting.spec.receivers)[0]


class SameBudget(Shared):
    """TMDP (Beimel et al.): every need is replaced by the largest."""

    name = "TMDP"
    meaning = "one budget for all: the strictest"

    def variance(self, setting: Setting) -> FloatArray:
        strictest = np.full(setting.spec.count, setting.need.max())
        return optimal_variance(strictest, setting.threshold, setting.spec.receivers)[0]


class AnyCoalition(Shared):
    """non-thre: the plan against any number of colluders."""

    name = "non-thre"
    meaning = "all others may collude"
    trust = "nobody"

    def variance(self, setting: Setting) -> FloatArray:
        return optimal_variance(setting.need, setting.spec.count - 1, setting.spec.receivers)[0]


class TrustedCurator(Mechanism):
    """MIN: a curator sees all inputs and adds the noise that the strictest party needs, once."""

    name = "MIN"
    meaning = "a trusted curator"
    trust = "a curator who sees every input"

    def noise(self, setting: Setting) -> float:
        return float(setting.need.max())

    def enjoyed(self, setting: Setting) -> FloatArray:
        return _enjoyed(setting, np.full(setting.spec.count, self.noise(setting)))


class NonPrivate(Mechanism):
    """non-pri: the exact sum."""

    name = "non-pri"
    meaning = "no noise"
    trust = "everybody who sees the answer"

    def enjoyed(self, setting: Setting) -> FloatArray:
        return np.full(setting.spec.count, np.inf)
