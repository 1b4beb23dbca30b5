"""PLDP: every party perturbs its own input for its own budget, and trusts nobody."""

from __future__ import annotations

import numpy as np

from tpmdp._util.arrays import FloatArray
from tpmdp.mechanisms.mechanism import Mechanism, Setting
from tpmdp.mechanisms.problem import Accuracy, Problem


class Local(Mechanism):
    """Randomised response for a count, Gaussian noise on the record for a regression: see `Problem.local`."""

    name = "PLDP"
    meaning = "each perturbs its own input"
    trust = "nobody"

    def enjoyed(self, setting: Setting) -> FloatArray:
        return setting.spec.epsilon.copy()

    def _sum(self, setting: Setting, problem: Problem, random: np.random.Generator) -> FloatArray:
        return problem.local(setting.spec.epsilon, setting.spec.delta, random)

    def _error(self, setting: Setting, problem: Problem) -> Accuracy:
        return problem.local_error(setting.spec.epsilon, setting.spec.delta)
