"""A certificate: a plan's variances and needs with a witness of optimality, which anybody can check exactly.

`Certificate.check` calls neither planner, calibration nor solver. It proves, in rational arithmetic, that (1) each need
is enough for its budget, (2) every party keeps its need against every dangerous coalition, and (3) how far its total
noise is, at most, above the least of any plan that meets the same needs: the stated gap. Theory, "Certificate", proves
that this suffices. The author of a plan states the gap, so only a small one is called optimal (`Verdict.is_optimal`).
Weights are taken as given: needs are those of the weighted contributions.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import Final

import numpy as np

from tpmdp._util.arrays import BoolArray, FloatArray, IntArray
from tpmdp._util.exact import exact_sum, to_float, to_fraction, to_integer
from tpmdp._util.progress import Progress
from tpmdp.errors import CertificateError
from tpmdp.planning.coalition import VARIANCE_MAX, WorstCoalitions, worst_coalitions
from tpmdp.planning.enclosure import is_enough, is_too_little
from tpmdp.planning.witness import Bundle
from tpmdp.spec import Spec

CLOSED_FORM_GAP: Final = 1e-12
"""Up to this gap a plan with one threshold for all is called optimal: rounding explains no more."""
SOLVER_GAP: Final = 1e-8
"""The same for personal thresholds, where a solver finds the plan: what it reaches at its tightest tolerances."""
NEED_GAP: Final = Fraction(4, 10**12)  # how far above the least possible variance a need may lie, relative


@dataclass(frozen=True)
class Verdict:
    """What a successful check proved."""

    parties: int
    total_variance: float
    lower_bound: float
    gap: float  # (total - lower bound) / lower bound, relative to the stated needs
    need_gap: float  # how far, at most, the needs that decide the bound lie above the least possible, relative
    gap_max: float  # up to which the plan is optimal, whatever gap its author stated

    @property
    def is_optimal(self) -> bool:
        """Whether no plan for the same needs has less noise, but for rounding.

        >>> Verdict(2, 1.9, 1.0, gap=0.9, need_gap=0.0, gap_max=1e-12).is_optimal
        False
        """
        return self.gap <= self.gap_max

    @property
    def factor(self) -> float:
        """How many times the lower bound the total variance is."""
        return 1.0 + self.gap


@dataclass(frozen=True, eq=False)
class Certificate:
    """Primal and dual witness of a plan; O(n) in size for the closed forms."""

    variance: FloatArray
    need: FloatArray
    threshold: int | IntArray
    receivers: BoolArray
    classes: IntArray
    bundles: tuple[Bundle, ...]
    gap: float = CLOSED_FORM_GAP
    weights: FloatArray | None = None
    """The weight of each party; None: 1 for all."""
    records: FloatArray | None = None
    """How many records each party has, for the receiver; the check does not depend on it."""
    width: float = 0.0
    """The width of the range of all records' values, likewise."""

    def check(self, spec: Spec, progress: Progress | None = None) -> Verdict:
        """Prove privacy and the stated gap for this spec, or raise `CertificateError` with the violated inequality.

        >>> import tpmdp
        >>> spec = tpmdp.Spec(epsilon=[0.5, 1, 2, 2], delta=1e-6, threshold=2, receivers=[0, 1])
        >>> certificate = tpmdp.plan(spec).certificate()
        >>> certificate.check(spec).gap < 1e-12
        True
        >>> certificate.check(spec.replace(threshold=1))
        Traceback (most recent call last):
            ...
        tpmdp.errors.CertificateError: threshold violated: the certificate is for threshold 2, the spec has 1
        """
        self._check_form(spec)
        self._check_needs(self._weighted(spec), progress)
        self._check_privacy(spec)
        bound = self._check_witness(spec)
        total = to_fraction(exact_sum(self.variance))
        if total > bound * (1 + Fraction(self.gap)):
            raise CertificateError(
                f"optimality violated: total variance {float(total)!r} > lower bound {float(bound)!r} "
                f"x (1 + stated gap {self.gap:g})"
            )
        measured = float((total - bound) / bound) if bound else 0.0
        gap_max = CLOSED_FORM_GAP if isinstance(self.threshold, int) else SOLVER_GAP
        return Verdict(spec.count, float(total), float(bound), gap=measured, need_gap=float(NEED_GAP), gap_max=gap_max)

    def _weighted(self, spec: Spec) -> Spec:
        """The spec of the weighted contributions."""
        return spec if self.weights is None else spec.weighted(self.weights)

    def _check_form(self, spec: Spec) -> None:
        """The certificate is for this threshold and these receivers, and is well formed."""
        count = spec.count
        self._check_types()
        for field in ("variance", "need"):
            column = getattr(self, field)
            if len(column) != count:
                raise CertificateError(f"form violated: {len(column)} values of {field} for {count} parties")
            if not ((column >= 0) & (column <= VARIANCE_MAX)).all():
                raise CertificateError(f"form violated: {field} of a party is negative or above {VARIANCE_MAX:g}")
        if self.weights is not None:
            if len(self.weights) != count:
                raise CertificateError(f"form violated: {len(self.weights)} weights for {count} parties")
            if not ((self.weights >= 0) & (self.weights <= 1)).all():
                raise CertificateError("form violated: the weight of a party is negative or above 1")
            if not self.weights.any():
                raise CertificateError("form violated: the weights of all parties are 0")
        if not np.array_equal(self.threshold, spec.threshold):
            shown = [value if isinstance(value, int) else "personal" for value in (self.threshold, spec.threshold)]
            raise CertificateError(
                f"threshold violated: the certificate is for threshold {shown[0]}, the spec has {shown[1]}"
            )
        if not np.array_equal(self.receivers, spec.receivers):
            party = spec.name(int(np.argmax(self.receivers != spec.receivers))) if len(self.receivers) == count else "?"
            raise CertificateError(f"receivers violated: certificate and spec disagree whether {party} receives")
        sizes = {len(bundle.marginals) for bundle in self.bundles}
        if len(self.classes) != count or (
            self.bundles and (len(sizes) != 1 or self.classes.min() < 0 or self.classes.max() >= min(sizes))
        ):
            raise CertificateError("form violated: classes do not match parties and marginals")
        fixed = np.concatenate([bundle.members for bundle in self.bundles] or [np.empty(0, dtype=np.int64)])
        if len(fixed) and (fixed.min() < 0 or fixed.max() >= count or len(np.unique(fixed)) != len(fixed)):
            raise CertificateError("form violated: a group is fixed at an unknown party, or two at the same party")
        if not (0 <= self.gap < 1):
            raise CertificateError(f"form violated: stated gap {self.gap!r} is not in [0, 1)")

    def _check_types(self) -> None:
        """Doubles, integers and fractions only: anything else would not be compared exactly."""
        columns = [(self.variance, "f"), (self.need, "f"), (self.receivers, "b"), (self.classes, "i")]
        columns += [(bundle.members, "i") for bundle in self.bundles]
        columns += [] if self.weights is None else [(self.weights, "f")]
        for column, kind in columns:
            if (
                not isinstance(column, np.ndarray)
                or column.ndim != 1
                or column.dtype.kind != kind
                or column.itemsize > 8
            ):
                raise CertificateError(
                    "form violated: a column is not a flat array of doubles, integers or truth values"
                )
        if not isinstance(self.gap, float):
            raise CertificateError(f"form violated: stated gap {self.gap!r} is not a number")
        for bundle in self.bundles:
            if not all(isinstance(value, Fraction) for value in (bundle.weight, *bundle.marginals)):
                raise CertificateError("form violated: a weight or marginal is not a fraction")

    def _check_needs(self, spec: Spec, progress: Progress | None) -> None:
        """Each need is enough for its budget; those in the witness are within NEED_GAP of the least possible."""
        decisive = np.zeros(spec.count, dtype=np.bool_)
        for bundle in self.bundles:
            if bundle.weight > 0:
                decisive[bundle.members] = True
        free = np.isinf(spec.epsilon) | (spec.sensitivity == 0)
        surplus = np.flatnonzero(free & decisive & (self.need > 0))
        if len(surplus):
            raise CertificateError(
                f"need violated: {spec.name(int(surplus[0]))} needs no noise, yet its need is positive"
            )
        rows = np.stack((self.need, spec.epsilon, spec.delta, spec.sensitivity, decisive.astype(float)))[:, ~free]
        unique, first = np.unique(rows, axis=1, return_index=True)
        parties = np.flatnonzero(~free)[first]
        for done, (row, party) in enumerate(zip(unique.T.tolist(), parties.tolist(), strict=True)):
            need, epsilon, delta, sensitivity = (Fraction(value) for value in row[:4])
            if not is_enough(need, epsilon, delta, sensitivity=sensitivity):
                raise CertificateError(
                    f"need violated: delta at variance {row[0]!r} and epsilon {row[1]!r} > {row[2]!r} "
                    f"for {spec.name(party)}"
                )
            if row[4] and not is_too_little(need * (1 - NEED_GAP), epsilon, delta, sensitivity=sensitivity):
                raise CertificateError(
                    f"need violated: {row[0]!r} is more than {spec.name(party)} needs, "
                    "so the lower bound proves nothing"
                )
            if progress is not None and done % 256 == 0:
                progress(done, len(parties))

    def _check_privacy(self, spec: Spec) -> None:
        """Theorem 1: against every dangerous coalition the honest noise is at least the need, exactly."""
        worst = worst_coalitions(self.variance, spec.threshold, spec.receivers)
        for party, honest in enumerate(worst.exact_honest()):
            if honest is not None and honest < to_integer(float(self.need[party])):
                need = float(self.need[party])
                raise CertificateError(_privacy_message(spec, worst, party, honest=honest, need=need))

    def _check_witness(self, spec: Spec) -> Fraction:
        """The witness is valid for these thresholds and receivers; returns the lower bound it proves."""
        if not self.bundles:
            return Fraction(0)
        kinds = len(self.bundles[0].marginals)
        sizes = np.bincount(self.classes, minlength=kinds).tolist()
        receiver_sizes = np.bincount(self.classes[spec.receivers], minlength=kinds).tolist()
        loads = [Fraction(0)] * kinds
        bound = Fraction(0)
        for number, bundle in enumerate(self.bundles):
            if bundle.weight < 0:
                raise CertificateError(f"weight violated: weight {bundle.weight} of group {number} < 0")
            if min(bundle.marginals) < 0 or max(bundle.marginals) > 1:
                raise CertificateError(f"marginal violated: a marginal of group {number} is outside [0, 1]")
            self._check_bundle(spec, number, bundle, sizes=sizes, receiver_sizes=receiver_sizes)
            every = bundle.weight * len(bundle.members)
            loads = [load + every * marginal for load, marginal in zip(loads, bundle.marginals, strict=True)]
            bound += bundle.weight * to_fraction(exact_sum(self.need[bundle.members]))
        self._check_loads(spec, loads)
        return bound

    def _check_bundle(
        self, spec: Spec, number: int, bundle: Bundle, sizes: list[int], receiver_sizes: list[int]
    ) -> None:
        """Size and danger of the groups of a bundle: sum of marginals, and sum over the receivers."""
        thresholds = np.broadcast_to(np.asarray(spec.threshold), (spec.count,))[bundle.members]
        total = sum((m * size for m, size in zip(bundle.marginals, sizes, strict=True) if m), Fraction(0))
        received = sum((m * size for m, size in zip(bundle.marginals, receiver_sizes, strict=True) if m), Fraction(0))
        looks = np.stack((self.classes[bundle.members], spec.receivers[bundle.members], thresholds))
        for own_class, receives, threshold in np.unique(looks, axis=1).T.tolist():
            own = bundle.marginals[own_class]
            if total - own < spec.count - threshold - 1:
                raise CertificateError(
                    f"group size violated: marginals of group {number} sum to {float(total - own):g} "
                    f"< {spec.count - threshold - 1}"
                )
            others = spec.receiver_count - receives
            if received - own * receives > others - 1 and bundle.weight > 0:
                raise CertificateError(
                    f"danger violated: receivers of group {number} sum to {float(received - own * receives):g} "
                    f"> {others - 1}"
                )

    def _check_loads(self, spec: Spec, loads: list[Fraction]) -> None:
        """No party is loaded more than once: own weight plus weighted marginals <= 1."""
        membership = np.full(spec.count, -1, dtype=np.int64)
        for number, bundle in enumerate(self.bundles):
            membership[bundle.members] = number
        pairs, first = np.unique(np.stack((self.classes, membership)), axis=1, return_index=True)
        for (own_class, number), party in zip(pairs.T.tolist(), first.tolist(), strict=True):
            load = loads[own_class]
            if number >= 0:
                bundle = self.bundles[number]
                load += bundle.weight * (1 - bundle.marginals[own_class])
            if load > 1:
                raise CertificateError(f"load violated: load of {spec.name(party)} is {float(load)!r} > 1")


def _privacy_message(spec: Spec, worst: WorstCoalitions, party: int, honest: int, need: float) -> str:
    members = worst.coalition(party)
    named = ", ".join(spec.name(int(member)) for member in members[:5])
    more = f" and {len(members) - 5} more" if len(members) > 5 else ""
    return (
        f"privacy violated: honest noise {to_float(honest)!r} < need {need!r} of {spec.name(party)} "
        f"against the coalition {named}{more}"
    )
