"""The closed forms against the full linear program, brute-force privacy and exact certificates; then tampering."""

from __future__ import annotations

import dataclasses
from fractions import Fraction
from itertools import product
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

import tpmdp
from tests.effort import tries
from tests.oracles import least_honest
from tpmdp import CertificateError, NoNoiseWarning, Plan, Spec
from tpmdp.planning.certificate import Certificate
from tpmdp.planning.closed_form import Case, case_of, optimal_variance
from tpmdp.planning.lp import solve_enumerated
from tpmdp.planning.witness import Bundle, build_witness

pytestmark = pytest.mark.filterwarnings("ignore::tpmdp.errors.NoNoiseWarning")

EPSILONS = st.one_of(
    st.sampled_from([0.1, 0.1, 0.5, 1.0, 2.0, float("inf")]),  # ties and parties that need nothing
    st.floats(-5, 3).map(lambda x: 10**x),
)


@st.composite
def specs(draw: st.DrawFn, most: int = 9) -> Spec:
    """Specs up to nine parties over all cases: few, many, one and no receivers, every threshold, heavy tails, ties."""
    count = draw(st.integers(1, most))
    receivers = draw(
        st.one_of(
            st.lists(st.booleans(), min_size=count, max_size=count),
            st.integers(0, count).map(lambda k: [i < k for i in range(count)]),
            st.integers(0, count - 1).map(lambda k: [i == k for i in range(count)]),
        )
    )
    return Spec(
        epsilon=draw(st.lists(EPSILONS, min_size=count, max_size=count)),
        delta=draw(st.sampled_from([1e-6, 1e-9, 0.01])),
        sensitivity=draw(st.sampled_from([1.0, 3.0, 0.0, 1e-6, 1e6])),
        threshold=draw(st.integers(0, count - 1)),
        receivers=np.array(receivers, dtype=bool),
    )


def assert_private(plan: Plan) -> None:
    """Theorem 1 for the stored doubles, exactly, against every coalition."""
    honest = least_honest(plan.variance, plan.spec.threshold, plan.spec.receivers)
    for least, need in zip(honest, plan.need.tolist(), strict=True):
        assert least is None or least >= Fraction(need)


@pytest.mark.slow
@settings(max_examples=tries(400, 2400), deadline=None)
@given(specs())
def test_plans_are_optimal_private_and_certified(spec: Spec) -> None:
    plan = tpmdp.plan(spec)
    assert_private(plan)
    full = solve_enumerated(plan.need, spec.threshold, spec.receivers)
    assert plan.total_variance == pytest.approx(full.total, rel=1e-7, abs=1e-300)
    verdict = plan.certificate().check(spec)
    assert verdict.gap <= 1e-12
    assert verdict.total_variance == plan.total_variance
    protection = plan.protection()
    assert (protection.epsilon <= spec.epsilon).all()
    assert (protection.slack >= 1).all()


def ordered_needs(count: int) -> Any:
    """Distinct needs, largest first, so that a receiver mask fixes every receiver's rank."""
    return (
        np.geomspace(1e12, 1e-12, count)
        if count % 2
        else np.sort(np.random.default_rng(count).lognormal(0, 1, count))[::-1].copy()
    )


def certificate_of(need: Any, threshold: int, receivers: Any) -> Certificate:
    variance, _ = optimal_variance(need, threshold, receivers)
    witness = build_witness(need, threshold, receivers)
    return Certificate(variance, need, threshold, receivers, witness.classes, witness.bundles)


def assert_certified(certificate: Certificate) -> None:
    """Privacy, witness and gap, with the needs taken as given."""
    count = len(certificate.need)
    spec = Spec(epsilon=np.ones(count), delta=1e-6, threshold=certificate.threshold, receivers=certificate.receivers)
    certificate._check_form(spec)
    certificate._check_privacy(spec)
    bound = certificate._check_witness(spec)
    total = sum((Fraction(value) for value in certificate.variance.tolist()), Fraction(0))
    assert bound <= total <= bound * (1 + Fraction(1, 10**12))


@pytest.mark.slow
@pytest.mark.parametrize("count", range(1, 9))
def test_every_threshold_and_every_receiver_pattern_has_a_certificate(count: int) -> None:
    need = ordered_needs(count)
    seen = set()
    for threshold in range(count):
        for pattern in product((False, True), repeat=count):
            receivers = np.array(pattern)
            assert_certified(certificate_of(need, threshold, receivers))
            seen.add(case_of(count, threshold, int(receivers.sum())))
    if count >= 6:
        assert seen == set(Case) - {Case.PERSONAL_THRESHOLDS}


@pytest.mark.slow
@settings(max_examples=tries(200, 500), deadline=None)
@given(st.integers(2, 60), st.data())
def test_larger_structures_have_certificates_too(count: int, data: st.DataObject) -> None:
    need = np.array(
        data.draw(st.lists(st.sampled_from([0.0, 1.0, 1.0, 2.0, 7.5, 1e-12, 1e12]), min_size=count, max_size=count))
    )
    threshold = data.draw(st.integers(1, count - 1))
    receivers = np.array(data.draw(st.lists(st.booleans(), min_size=count, max_size=count)))
    assert_certified(certificate_of(need, threshold, receivers))


def test_needs_over_24_orders_of_magnitude_keep_the_gap() -> None:
    rng = np.random.default_rng(0)
    for _ in range(100):
        count = int(rng.integers(2, 200))
        need = 10 ** rng.uniform(-12, 12, count)
        receivers = rng.random(count) < rng.random()
        assert_certified(certificate_of(need, int(rng.integers(1, count)), receivers))


@pytest.mark.parametrize(
    ("changes", "case", "variance_over_need"),
    [
        ({"epsilon": [1.0], "threshold": 0}, Case.NO_ADVERSARY, [0]),
        ({"epsilon": [1.0, 1.0], "threshold": 0}, Case.NO_ADVERSARY, [0, 0]),
        ({"epsilon": [1.0, 1.0], "threshold": 1}, Case.ALL_RECEIVE, [1, 1]),
        ({"epsilon": [1.0, 1.0], "threshold": 1, "receivers": [0]}, Case.ONE_RECEIVER, [0, 1]),
        ({"epsilon": [1.0] * 5, "threshold": 4}, Case.ALL_RECEIVE, [1] * 5),
        ({"epsilon": [1.0] * 4, "threshold": 2, "receivers": []}, Case.NO_ADVERSARY, [0] * 4),
        ({"epsilon": [1.0] * 4, "threshold": 2}, Case.ALL_RECEIVE, [0.5] * 4),
        ({"epsilon": [1.0] * 5, "threshold": 1, "receivers": [0, 1]}, Case.FEW_RECEIVERS, [0, 0, 1 / 3, 1 / 3, 1 / 3]),
        ({"epsilon": [1.0] * 4, "threshold": 2, "receivers": [0, 1]}, Case.SOME_RECEIVERS, [0.5] * 4),
        ({"epsilon": [1.0] * 4, "threshold": 2, "receivers": [0, 1, 2]}, Case.MANY_RECEIVERS, [0.5] * 4),
    ],
)
def test_small_plans_by_hand(changes: dict[str, Any], case: Case, variance_over_need: list[float]) -> None:
    spec = Spec(**{"delta": 1e-6, **changes})
    plan = tpmdp.plan(spec)
    assert plan.case is case
    assert np.allclose(plan.variance / plan.need, variance_over_need, rtol=1e-14)
    assert plan.certificate().check(spec).parties == spec.count


def test_an_exact_division_is_not_rounded_up() -> None:
    plan = tpmdp.plan(Spec(epsilon=[1.0] * 4, delta=1e-6, threshold=3))
    assert plan.variance.tolist() == plan.need.tolist()


def test_a_pure_receiver_without_data_is_a_legal_party() -> None:
    spec = Spec(epsilon=[1.0, 2.0, float("inf")], delta=[1e-6, 1e-6, 0.0], threshold=1, receivers=[2])
    plan = tpmdp.plan(spec)
    assert plan.variance[2] == 0.0
    assert plan.protection().epsilon[2] == 0.0  # nobody else receives, so nobody learns anything of it
    assert plan.certificate().check(spec).gap <= 1e-12


def test_nobody_to_fear_means_no_noise_and_a_loud_warning() -> None:
    for threshold, receivers, reason in (
        (0, "all", "the threshold is 0"),
        ([1, 0], [0], "no coalition within the thresholds"),
        (1, [], "no receivers"),
        ([0, 1], [], "no receivers"),
    ):
        spec = Spec(epsilon=[1.0, 1.0], delta=1e-6, threshold=threshold, receivers=receivers)
        with pytest.warns(NoNoiseWarning, match=reason):
            plan = tpmdp.plan(spec)
        assert plan.total_variance == 0.0
        assert plan.certificate().check(spec).lower_bound == 0.0


def test_liberal_parties_get_more_than_they_asked_for() -> None:
    spec = Spec(epsilon=[0.1, 0.1, 5.0, 5.0], delta=1e-6, threshold=1, names=["a", "b", "c", "d"])
    protection = tpmdp.plan(spec).protection()
    assert protection.epsilon[2] < 0.11
    assert protection.coalition(2).tolist() in ([0], [1])
    assert protection.slack[2] > 100


def test_plans_are_frozen() -> None:
    plan = tpmdp.plan(Spec(epsilon=[1.0, 2.0], delta=1e-6, threshold=1))
    with pytest.raises(dataclasses.FrozenInstanceError):
        plan.case = Case.ALL_RECEIVE  # type: ignore[misc]
    with pytest.raises(ValueError, match="read-only"):
        plan.variance[0] = 0.0
    assert "2 parties, Alg. 2" in repr(plan)


# Tampering ------------------------------------------------------------------------------------------------------------


def lowered(values: Any, party: int, factor: float) -> Any:
    changed = np.array(values)
    changed[party] *= factor
    return changed


def refused(certificate: Certificate, spec: Spec) -> str:
    with pytest.raises(CertificateError) as caught:
        certificate.check(spec)
    assert "violated: " in str(caught.value)
    assert "\n" not in str(caught.value)
    return str(caught.value)


@pytest.mark.slow
@settings(max_examples=300, deadline=None)
@given(specs(most=7), st.data())
def test_any_single_tampering_is_refused(spec: Spec, data: st.DataObject) -> None:
    certificate = tpmdp.plan(spec).certificate()
    assume(len(certificate.bundles) and certificate.variance.any())
    replace = dataclasses.replace
    noisy = data.draw(st.sampled_from(np.flatnonzero(certificate.variance).tolist()))
    # A negligible share of a huge total is within the rounding gap; lower what matters.
    if certificate.variance[noisy] > 1e-6 * certificate.variance.max():
        message = refused(replace(certificate, variance=lowered(certificate.variance, noisy, 0.999)), spec)
        assert message.startswith("privacy violated: honest noise")
    bundles = list(certificate.bundles)
    which = data.draw(st.integers(0, len(bundles) - 1))
    bundles[which] = replace(bundles[which], weight=bundles[which].weight * Fraction(1001, 1000))
    assert refused(replace(certificate, bundles=tuple(bundles)), spec).startswith("load violated")
    silent = np.flatnonzero(~spec.receivers)
    if len(silent):
        receivers = np.array(spec.receivers)
        receivers[data.draw(st.sampled_from(silent.tolist()))] = True
        assert refused(certificate, spec.replace(receivers=receivers)).startswith("receivers violated")
        assert refused(replace(certificate, receivers=receivers), spec).startswith("receivers violated")
    decisive = [m for b in certificate.bundles if b.weight > 0 for m in b.members.tolist() if certificate.need[m] > 0]
    if decisive:
        party = data.draw(st.sampled_from(decisive))
        for factor in (0.999, 1.001):
            assert refused(replace(certificate, need=lowered(certificate.need, party, factor)), spec).startswith("need")
    if spec.count > 1:
        assert refused(certificate, spec.replace(threshold=(int(spec.threshold) + 1) % spec.count)).startswith(
            "threshold"
        )


@pytest.fixture
def study() -> tuple[Spec, Certificate]:
    spec = Spec(epsilon=[0.3, 0.5, 1, 2, 2, 3], delta=1e-6, threshold=2, receivers=[0, 3, 4], names=list("abcdef"))
    return spec, tpmdp.plan(spec).certificate()


def test_a_stricter_budget_than_planned_for_is_refused(study: tuple[Spec, Certificate]) -> None:
    spec, certificate = study
    message = refused(certificate, spec.replace(epsilon=[0.3, 0.5, 1, 1.9, 2, 3]))
    assert message.startswith("need violated: delta at variance")
    assert message.endswith("for d")


def test_surplus_noise_is_refused_as_not_optimal(study: tuple[Spec, Certificate]) -> None:
    spec, certificate = study
    more = dataclasses.replace(certificate, variance=np.array(certificate.variance) * (1 + 1e-9))
    assert refused(more, spec).startswith("optimality violated: total variance")
    assert dataclasses.replace(more, gap=1e-8).check(spec).gap == pytest.approx(1e-9, rel=1e-3)


@pytest.mark.parametrize("stated", [1e-12, 2e-12, 0.95])
def test_a_plan_of_the_planner_is_optimal_whatever_gap_is_stated(
    study: tuple[Spec, Certificate], stated: float
) -> None:
    spec, certificate = study
    verdict = dataclasses.replace(certificate, gap=stated).check(spec)
    assert verdict.is_optimal
    assert verdict.factor == pytest.approx(1.0, abs=1e-12)


@pytest.mark.parametrize("surplus", [2e-12, 1e-9, 0.9])
def test_a_stated_gap_makes_no_plan_optimal(study: tuple[Spec, Certificate], surplus: float) -> None:
    spec, certificate = study
    more = dataclasses.replace(certificate, variance=np.array(certificate.variance) * (1 + surplus), gap=0.95)
    verdict = more.check(spec)
    assert not verdict.is_optimal
    assert verdict.factor - 1 == pytest.approx(surplus, rel=1e-2)


def test_a_poor_bound_makes_no_plan_optimal(study: tuple[Spec, Certificate]) -> None:
    """The variances are the least ones, but the file proves only half of them."""
    spec, certificate = study
    halved = tuple(dataclasses.replace(bundle, weight=bundle.weight / 2) for bundle in certificate.bundles)
    with pytest.raises(CertificateError, match="optimality violated"):
        dataclasses.replace(certificate, bundles=halved, gap=0.99).check(spec)
    weaker = tuple(dataclasses.replace(bundle, weight=bundle.weight * Fraction(3, 4)) for bundle in certificate.bundles)
    verdict = dataclasses.replace(certificate, bundles=weaker, gap=0.99).check(spec)
    assert not verdict.is_optimal
    assert verdict.factor == pytest.approx(4 / 3, rel=1e-9)


def test_a_plan_without_noise_is_optimal() -> None:
    spec = Spec(epsilon=[float("inf"), float("inf")], delta=1e-6, threshold=1)
    assert tpmdp.plan(spec).certificate().check(spec).is_optimal


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda c: {"variance": c.variance[:-1]}, "form violated: 5 values of variance for 6 parties"),
        (lambda c: {"need": lowered(c.need, 0, -1)}, "form violated: need of a party is negative"),
        (
            lambda c: {"variance": lowered(c.variance, 0, np.inf)},
            "form violated: variance of a party is negative or above",
        ),
        (lambda c: {"classes": c.classes + 9}, "form violated: classes do not match"),
        (lambda c: {"classes": c.classes - 9}, "form violated: classes do not match"),
        (lambda _: {"gap": float("nan")}, "form violated: stated gap nan"),
        (lambda c: {"bundles": (*c.bundles, c.bundles[0])}, "two at the same party"),
        (lambda c: {"bundles": (Bundle(np.array([99]), Fraction(1), c.bundles[0].marginals),)}, "unknown party"),
        (lambda _: {"bundles": (Bundle(np.array([0]), Fraction(1), ()),)}, "form violated: classes do not match"),
        (lambda _: {"bundles": ()}, "optimality violated"),
        (lambda c: {"bundles": (dataclasses.replace(c.bundles[0], weight=Fraction(-1)),)}, "weight violated"),
        (lambda c: {"bundles": (with_marginals(c.bundles[0], Fraction(2)),)}, "marginal violated"),
        (lambda c: {"bundles": (with_marginals(c.bundles[0], Fraction(-1)),)}, "marginal violated"),
        (lambda c: {"bundles": (with_marginals(c.bundles[0], Fraction(0)),)}, "group size violated"),
        (lambda c: {"bundles": (with_marginals(c.bundles[0], Fraction(1)),)}, "danger violated"),
    ],
)
def test_malformed_certificates_are_refused(study: tuple[Spec, Certificate], change: Any, message: str) -> None:
    spec, certificate = study
    assert message in refused(dataclasses.replace(certificate, **change(certificate)), spec)


@pytest.mark.parametrize(
    "change",
    [
        lambda c: {"bundles": (dataclasses.replace(c.bundles[0], weight=float("nan")),)},
        lambda c: {"bundles": (dataclasses.replace(c.bundles[0], weight=1.0),)},
        lambda c: {"bundles": (dataclasses.replace(c.bundles[0], marginals=(float("nan"),) * 4),)},
        lambda c: {"bundles": (dataclasses.replace(c.bundles[0], members=np.array([0.0])),)},
        lambda c: {"variance": c.variance.astype(np.longdouble)},
        lambda c: {"variance": c.variance.astype(object)},
        lambda c: {"need": c.need.reshape(2, 3)},
        lambda c: {"classes": c.classes.astype(float)},
        lambda c: {"variance": c.variance.tolist()},
        lambda _: {"gap": "large"},
    ],
)
def test_numbers_of_another_kind_are_refused(study: tuple[Spec, Certificate], change: Any) -> None:
    """NaN passes every comparison, and floats are not exact: a forger would use both."""
    spec, certificate = study
    assert refused(dataclasses.replace(certificate, **change(certificate)), spec).startswith("form violated")


def test_extreme_budgets_pass_their_own_check() -> None:
    rng = np.random.default_rng(5)
    spec = Spec(
        epsilon=np.concatenate((rng.uniform(4, 10, 60), 10 ** rng.uniform(-20, 9, 60))),
        delta=10 ** rng.uniform(-300, -290, 120),
        sensitivity=10 ** rng.uniform(-60, 60, 120),
        threshold=119,
    )
    assert tpmdp.plan(spec).certificate().check(spec).gap <= 1e-12


def with_marginals(bundle: Bundle, value: Fraction) -> Bundle:
    return dataclasses.replace(bundle, marginals=(value,) * len(bundle.marginals))


@pytest.mark.slow
def test_ten_thousand_parties_are_certified_with_progress() -> None:
    rng = np.random.default_rng(4)
    spec = Spec(epsilon=rng.uniform(0.01, 1, 10_000), delta=1e-6, threshold=5000, receivers=rng.random(10_000) < 0.5)
    seen: list[int] = []
    verdict = tpmdp.plan(spec).certificate().check(spec, lambda *at: seen.append(at[0]))
    assert verdict.gap <= 1e-12
    assert len(seen) > 10


def test_the_certificate_is_small() -> None:
    for threshold in (1, 50, 99):
        certificate = tpmdp.plan(Spec(epsilon=np.geomspace(0.1, 1, 100), delta=1e-6, threshold=threshold)).certificate()
        numbers = sum(len(b.members) + len(b.marginals) + 1 for b in certificate.bundles) + len(certificate.classes)
        assert numbers <= 2 * 100 + 20
