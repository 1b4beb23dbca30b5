"""`plan(spec)`: the least-noise plan, its protection and its certificate, as frozen values."""

from __future__ import annotations

import math
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final

import numpy as np
from numpy.typing import ArrayLike, NDArray

from tpmdp._util.arrays import FloatArray
from tpmdp._util.exact import exact_sum, to_float
from tpmdp._util.frames import data_frame
from tpmdp._util.html import ROWS_MAX, html_table, html_text
from tpmdp._util.numbers import number, number_up
from tpmdp._util.progress import Progress
from tpmdp.errors import NoNoiseWarning
from tpmdp.gaussian.calibration import calibrate_checked, epsilon_at
from tpmdp.planning.certificate import Certificate
from tpmdp.planning.closed_form import Case, optimal_variance
from tpmdp.planning.coalition import WorstCoalitions, worst_coalitions
from tpmdp.planning.drivers import Drivers, shared
from tpmdp.planning.weights import Weights, make_weights
from tpmdp.planning.witness import Witness, build_witness
from tpmdp.spec import Spec

_NAMES_SHOWN: Final = 3


@dataclass(frozen=True, eq=False)
class Protection:
    """The protection each party gets: its epsilon at its own delta, against the worst dangerous coalition.

    `slack` is honest variance over need, at least 1; infinite if nothing is needed or nobody can attack.
    """

    epsilon: FloatArray
    slack: FloatArray
    honest_variance: FloatArray
    worst: WorstCoalitions

    def coalition(self, party: int) -> NDArray[np.int64]:
        """The parties that would have to collude to reduce this party's protection to the reported epsilon."""
        return self.worst.coalition(party)


@dataclass(frozen=True, eq=False)
class Plan:
    """How much noise each party adds. `variance` and `need` hold one entry per party, in the spec's order.

    With weights, both are those of the weighted contributions, and the receiver multiplies the sum by `weights.scale`.
    """

    spec: Spec
    variance: FloatArray
    need: FloatArray
    case: Case
    weights: Weights
    witness: Witness | None = None  # given by the linear program; the closed forms build theirs on demand
    gap: float | None = None

    @cached_property
    def total_variance(self) -> float:
        """Variance of the noise in the (weighted) sum, per coordinate: the exact sum, rounded once."""
        return to_float(exact_sum(self.variance))

    @property
    def standard_deviation(self) -> float:
        """Standard deviation of the noise in each coordinate of the answer: its expected error if weights are equal."""
        return math.sqrt(self.total_variance) * self.weights.scale

    @property
    def expected_error(self) -> float:
        """Expected error (RMSE) of each coordinate of the answer, if budgets are unrelated to the data.

        >>> spec = Spec(epsilon=[0.1, 1.0, 1.0, 1.0, 1.0, 1.0], delta=1e-6, threshold=2)
        >>> [round(plan(spec, weighting=kind).expected_error, 1) for kind in ("equal", "balanced")]
        [36.4, 6.1]
        """
        return math.hypot(self.standard_deviation, self.weights.spread_error)

    @property
    def bias_bound(self) -> float:
        """The largest error that weights can cause in the answer (L2), whatever the data; 0 with equal weights."""
        return self.weights.bias_bound

    @property
    def no_noise_reason(self) -> str | None:
        """Why no noise is added although a budget asks for some, or None."""
        return no_noise_reason(self.spec, self.variance, self.need)

    def __repr__(self) -> str:
        weights = "" if self.weights.are_equal else f", {self.weights.kind} weights"
        noise = f"total variance {self.total_variance:.6g}"
        return f"Plan({self.spec.count} parties, {self.case.value}{weights}, {noise})"

    def rows(self) -> list[dict[str, Any]]:
        """One mapping per party: its budget, the noise it adds, its real epsilon and who would have to collude.

        Of a coalition the first three are named; `protection().coalition(party)` has them all.

        >>> plan(Spec(epsilon=[0.5, 1, 2], delta=1e-6, threshold=1, names=["a", "b", "c"])).rows()[2]["coalition"]
        'a'
        """
        return self.first_rows(self.spec.count)

    def first_rows(self, count: int) -> list[dict[str, Any]]:
        """The rows of the first parties only."""
        spec, protection = self.spec, self.protection()
        return [
            {
                "party": spec.name(party),
                "receives": bool(spec.receivers[party]),
                "epsilon": float(spec.epsilon[party]),
                "delta": float(spec.delta[party]),
                "variance": float(self.variance[party]),
                "real_epsilon": float(protection.epsilon[party]),
                "coalition": _few(spec, protection.coalition(party).tolist()),
            }
            for party in range(min(count, spec.count))
        ]

    def to_frame(self) -> Any:
        """The rows as a pandas DataFrame."""
        return data_frame(self.rows())

    def _repr_html_(self) -> str:
        answer = f"Noise in the answer: standard deviation {number(self.standard_deviation)}."
        return plan_html(self.first_rows(ROWS_MAX), self.spec.count, answer, reason=self.no_noise_reason)

    def protection(self) -> Protection:
        """Each party's actual epsilon at its delta, its slack, and the worst coalition.

        >>> plan(Spec(epsilon=[0.5, 1, 2, 2], delta=1e-6, threshold=1)).protection().epsilon.round(3)
        array([0.5, 1. , 1. , 1. ])
        """
        spec = self.spec
        worst = worst_coalitions(self.variance, spec.threshold, spec.receivers)
        honest = worst.honest_variance
        epsilon = epsilon_at(np.sqrt(honest), spec.delta, spec.weighted(self.weights.each).sensitivity)
        # The need is proven enough for the budget, so where it is met the budget itself is a valid bound.
        epsilon = np.where(honest >= self.need, np.minimum(epsilon, spec.epsilon), epsilon)
        with np.errstate(divide="ignore", invalid="ignore"):
            slack = np.where(self.need > 0, honest / self.need, np.inf)
        return Protection(epsilon, slack, honest, worst=worst)

    def _witness(self) -> Witness:
        if self.witness is not None:
            return self.witness
        assert isinstance(self.spec.threshold, int)  # personal thresholds always carry the solver's witness
        return build_witness(self.need, self.spec.threshold, self.spec.receivers)

    def drivers(self) -> FloatArray:
        """Each party's share of the noise: how much of it is there for this party's need. They add up to 1, or to 0.

        >>> plan(Spec(epsilon=[0.1, 1.0, 1.0, 1.0], delta=1e-6, threshold=2)).drivers().round(4).tolist()
        [0.9866, 0.0045, 0.0045, 0.0045]
        """
        return self.drivers_together().shares

    def drivers_together(self) -> Drivers:
        """The same, with the parties that share: their needs are equal, and each alone would change less, or nothing.

        >>> plan(Spec(epsilon=[0.1, 1.0, 1.0, 1.0], delta=1e-6, threshold=2)).drivers_together().groups
        ((1, 2, 3),)
        """
        spec, share = self.spec, np.zeros(self.spec.count)
        pressure = self.weights.pressure
        if pressure is not None:  # balanced weights make many needs equal, whose order is no basis
            share = pressure * self.need
        else:
            for bundle in self._witness().bundles:
                share[bundle.members] = float(bundle.weight) * self.need[bundle.members]
        share = share / (share.sum() or 1.0)
        columns = [
            self.need,
            np.isfinite(self.protection().honest_variance),
            np.broadcast_to(spec.threshold, share.shape),
        ]
        columns += [] if pressure is None else [self.weights.each]
        columns += [] if spec.common_threshold else [spec.receivers]
        return shared(share, list(zip(*(column.tolist() for column in columns), strict=True)))

    def certificate(self) -> Certificate:
        """A proof that this plan is private and of least noise for its weights; checking it needs no planner.

        >>> spec = Spec(epsilon=[0.5, 1, 2], delta=1e-6, threshold=1)
        >>> plan(spec).certificate().check(spec).parties
        3
        """
        spec, witness = self.spec, self._witness()
        stated = {} if self.gap is None else {"gap": self.gap}
        return Certificate(
            self.variance,
            self.need,
            spec.threshold,
            receivers=spec.receivers,
            classes=witness.classes,
            bundles=witness.bundles,
            weights=None if (self.weights.each == 1).all() else self.weights.each,
            records=self.weights.records,
            width=self.weights.width,
            **stated,
        )


def plan_html(rows: Sequence[Mapping[str, Any]], parties: int, answer: str, reason: str | None) -> str:
    """The first rows of a plan as a table for notebooks, a sentence about the answer, and why there is no noise."""
    headings = ["party", "receives", "epsilon", "delta", "own noise (variance)", "real epsilon", "if these collude"]
    cells = [
        [
            row["party"],
            "yes" if row["receives"] else "",
            *(number(row[key]) for key in ("epsilon", "delta", "variance")),
            number_up(row["real_epsilon"]),
            row["coalition"] or "nobody can attack",
        ]
        for row in rows
    ]
    why = f" NO NOISE IS ADDED: {reason}." if reason else ""
    return html_text("Noise plan", "h4") + html_table(headings, cells, parties) + html_text(answer + why, "p")


def _few(spec: Spec, parties: Sequence[int]) -> str:
    more = len(parties) - _NAMES_SHOWN
    return ", ".join(map(spec.name, parties[:_NAMES_SHOWN])) + (f" and {more} more" if more > 0 else "")


def no_noise_reason(spec: Spec, variance: FloatArray, need: FloatArray) -> str | None:
    """Why these variances are all 0 although a budget asks for noise, or None.

    >>> no_noise_reason(Spec(epsilon=[1, 1], delta=1e-6, threshold=0), np.zeros(2), np.ones(2))
    'the threshold is 0: nobody is assumed to attack'
    """
    if variance.any() or not need.any():
        return None
    if not spec.receiver_count:
        return "there are no receivers: nobody learns the answer"
    if not np.any(spec.threshold):
        return "the threshold is 0: nobody is assumed to attack"
    return "no coalition within the thresholds can attack a party that asks for protection"


def needs(spec: Spec, progress: Progress | None = None) -> FloatArray:
    """The variance each party needs for its budget, rounded up.

    >>> needs(Spec(epsilon=[1.0, float("inf")], delta=1e-6, threshold=1)).round(3)
    array([17.848,  0.   ])
    """
    sigma = calibrate_checked(spec.epsilon, spec.delta, spec.sensitivity, progress=progress)
    need = sigma * sigma
    np.nextafter(need, np.inf, out=need, where=need > 0)
    return need


def plan(
    spec: Spec,
    progress: Progress | None = None,
    *,
    weighting: str | ArrayLike = "equal",
    spread: float | None = None,
    records: ArrayLike | None = None,
    width: float | None = None,
) -> Plan:
    """The plan of least total noise that keeps every party's budget against every coalition up to the threshold.

    `weighting`: "equal"; "balanced", the weights of least expected error; or one weight per party, from 0 to 1. The
    other arguments matter for weights only. `records`: how many each party has, 1 by default. `width`: the width of a
    range that holds all records' values, by default the largest sensitivity. `spread`: a bound on the standard
    deviation of the average of a party's records, by default half the width.
    docs/how-to/weights.md says what weights assume.

    >>> spec = Spec(epsilon=[0.5, 1.0, 2.0, 2.0], delta=1e-6, threshold=2, receivers=[0])
    >>> result = plan(spec)
    >>> result.case.value, result.variance.round(2).tolist(), round(result.standard_deviation, 2)
    ('Alg. 3, case 2', [0.0, 15.36, 2.49, 2.49], 4.51)
    """
    plain = needs(spec, progress)
    weights = make_weights(spec, lambda: plain, weighting, spread=spread, records=records, width=width)
    need = plain if (weights.each == 1).all() else needs(spec.weighted(weights.each), progress)
    witness, gap = None, None
    if isinstance(spec.threshold, int):
        variance, case = optimal_variance(need, spec.threshold, spec.receivers)
    else:
        from tpmdp.planning.lp import solve_personal  # SciPy's optimiser takes long to import

        variance, witness, gap = solve_personal(need, spec.threshold, spec.receivers, progress=progress)
        case = Case.PERSONAL_THRESHOLDS
    variance.flags.writeable = False
    need.flags.writeable = False
    result = Plan(spec, variance, need, case=case, weights=weights, witness=witness, gap=gap)
    if result.no_noise_reason:
        warnings.warn(f"the plan adds no noise, because {result.no_noise_reason}", NoNoiseWarning, 2)
    return result
