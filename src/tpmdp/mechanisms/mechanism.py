"""The interface of every mechanism: whom it trusts, its noise, its release, its error, its protection."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar, Final

import numpy as np

from tpmdp._util.arrays import BoolArray, FloatArray, IntArray
from tpmdp.errors import InputError
from tpmdp.mechanisms.problem import Accuracy, Problem
from tpmdp.planning.plan import needs
from tpmdp.planning.weights import Weights, baseline_weights, make_weights
from tpmdp.spec import Spec

_UP: Final = 1 + 2.0**-50  # more than the rounding of a few products


@dataclass(frozen=True, eq=False)
class Setting:
    """Budgets, threshold and receivers, with the variance each party needs, which all mechanisms share."""

    spec: Spec
    need: FloatArray
    spread: float | None = None
    """For weights: `Problem.spread`; None is half the largest sensitivity. No promise depends on it."""

    @classmethod
    def of(cls, spec: Spec, spread: float | None = None) -> Setting:
        """Calibrate each party's need.

        >>> Setting.of(Spec(epsilon=[0.5, 1.0], delta=1e-6, threshold=1)).need.round(1)
        array([64.9, 17.8])
        """
        if not spec.common_threshold:
            rule = "differs between parties, which the baselines do not know"
            raise InputError("threshold", "personal", rule, "give one threshold for all")
        return cls(spec, needs(spec), spread)

    def part(self, chosen: IntArray | BoolArray, threshold: int) -> Setting:
        """Some of the parties, with another threshold.

        >>> Setting.of(Spec(epsilon=[0.5, 1.0, 2.0], delta=1e-6, threshold=1)).part(np.array([0, 2]), 0).spec.count
        2
        """
        spec = self.spec
        part = Spec(
            epsilon=spec.epsilon[chosen],
            delta=spec.delta[chosen],
            sensitivity=spec.sensitivity[chosen],
            threshold=threshold,
            receivers=spec.receivers[chosen],
        )
        return Setting(part, self.need[chosen], self.spread)

    def against(self, threshold: int, receivers: BoolArray | None = None) -> Setting:
        """The same budgets, so the same needs, against other coalitions.

        >>> Setting.of(Spec(epsilon=[0.5, 1.0, 2.0], delta=1e-6, threshold=1)).against(2).threshold
        2
        """
        seen = self.spec.receivers if receivers is None else receivers
        return Setting(self.spec.replace(threshold=threshold, receivers=seen), self.need, self.spread)

    @property
    def threshold(self) -> int:
        """How many may collude."""
        assert isinstance(self.spec.threshold, int)  # checked in `of`
        return self.spec.threshold

    @cached_property
    def weights(self) -> Weights:
        """The weights of least expected error.

        >>> Setting.of(Spec(epsilon=[0.1, 1.0, 1.0], delta=1e-6, threshold=1)).weights.each.round(3)
        array([0.116, 1.   , 1.   ])
        """
        return make_weights(self.spec, lambda: self.need, "balanced", spread=self.spread)

    @cached_property
    def one_budget(self) -> Weights:
        """Weight 1 for the most liberal parties and 0 for the others, of least expected error.

        >>> Setting.of(Spec(epsilon=[0.1, 1.0, 1.0], delta=1e-6, threshold=1)).one_budget.each
        array([0., 1., 1.])
        """
        return baseline_weights(self.spec, self.need, "one budget", spread=self.spread)

    @cached_property
    def two_levels(self) -> Weights:
        """Weight 1 for the most liberal parties and one weight for the others, of least expected error."""
        return baseline_weights(self.spec, self.need, "two levels", spread=self.spread)

    def weighted(self, weights: Weights) -> Setting:
        """The same parties when each contributes its input times its weight: they need less noise.

        >>> setting = Setting.of(Spec(epsilon=[0.1, 1.0, 1.0], delta=1e-6, threshold=1))
        >>> setting.need.round(1), setting.weighted(setting.weights).need.round(1)
        (array([1318. ,   17.8,   17.8]), array([17.8, 17.8, 17.8]))
        """
        each = weights.each
        need = np.where(each == 1, self.need, self.need * each**2 * _UP)
        return Setting(self.spec.weighted(each), need, self.spread)


class Mechanism(ABC):
    """A way to release a sum of parties' inputs under their budgets."""

    name: ClassVar[str]
    """As in the paper."""
    meaning: ClassVar[str]
    trust: ClassVar[str]
    """Whom a party must trust with its input."""

    def noise(self, setting: Setting) -> float:
        """Variance of the noise added to each coordinate of the sum, without changes to inputs."""
        del setting
        return 0.0

    def release(
        self, setting: Setting, problem: Problem, random: np.random.Generator, repetitions: int = 1
    ) -> FloatArray:
        """Released sums, one per row. This is a simulation with floating-point noise: never use it for real data."""
        check_fit(setting, problem)
        if repetitions < 1:
            raise InputError("repetitions", repetitions, "must be at least 1", "ask for one or more")
        deviation = np.sqrt(self.noise(setting))
        sums = np.stack([self._sum(setting, problem, random) for _ in range(repetitions)])
        return np.asarray(sums + deviation * random.normal(size=sums.shape), dtype=np.float64)

    def error(self, setting: Setting, problem: Problem) -> Accuracy:
        """Bias and variance of the released sum, computed, not simulated."""
        check_fit(setting, problem)
        own = self._error(setting, problem)
        return Accuracy(own.bias, own.variance + self.noise(setting))

    @abstractmethod
    def enjoyed(self, setting: Setting) -> FloatArray:
        """The epsilon, at its own delta, that each party is promised against every coalition of the setting."""

    def _sum(self, setting: Setting, problem: Problem, random: np.random.Generator) -> FloatArray:
        """The sum before noise is added; random if inputs are dropped or perturbed."""
        del setting, random
        return problem.total

    def _error(self, setting: Setting, problem: Problem) -> Accuracy:
        """The error of `_sum`."""
        del setting
        return Accuracy(np.zeros_like(problem.total), np.zeros_like(problem.total))


def check_fit(setting: Setting, problem: Problem) -> None:
    """Refuse budgets that do not fit the inputs: another number of parties, or a smaller sensitivity.

    >>> from tpmdp.mechanisms.problem import CountProblem
    >>> check_fit(Setting.of(Spec(epsilon=[1, 1], delta=1e-6, threshold=1, sensitivity=0.5)), CountProblem([0, 1]))
    Traceback (most recent call last):
        ...
    tpmdp.errors.InputError: sensitivity = 0.5 is less than that of the problem (1): calibrate for that
    """
    spec = setting.spec
    if spec.count != problem.count:
        rule = f"are not one for each input ({problem.count})"
        raise InputError("budgets", spec.count, rule, "give as many budgets as inputs")
    smallest = float(spec.sensitivity.min())
    if smallest < problem.sensitivity:
        rule = f"is less than that of the problem ({problem.sensitivity:.6g})"
        raise InputError("sensitivity", smallest, rule, "calibrate for that")
