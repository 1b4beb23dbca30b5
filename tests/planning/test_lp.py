"""The linear programs: solvers agree with each other, personal thresholds are planned, private and certified."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tpmdp
from tests.oracles import least_honest
from tpmdp import CertificateError, SolverError, Spec
from tpmdp.planning.closed_form import Case
from tpmdp.planning.lp import PERSONAL_PARTIES_MAX, enumerate_constraints, solve_compact, solve_enumerated

pytestmark = pytest.mark.filterwarnings("ignore::tpmdp.errors.NoNoiseWarning")

NEEDS = st.one_of(st.sampled_from([0.0, 1.0, 1.0, 2.0, 1e-9, 1e9]), st.floats(0.001, 1000))


@st.composite
def problems(draw: st.DrawFn) -> tuple[Any, Any, Any]:
    count = draw(st.integers(2, 7))

    def column(entries: st.SearchStrategy[Any]) -> Any:
        return np.array(draw(st.lists(entries, min_size=count, max_size=count)))

    return column(NEEDS), column(st.integers(0, count - 1)), column(st.booleans())


@pytest.mark.slow
@settings(max_examples=300, deadline=None)
@given(problems())
def test_the_compact_dual_equals_the_enumerated_program(problem: tuple[Any, Any, Any]) -> None:
    need, thresholds, receivers = problem
    for threshold in (thresholds, int(thresholds[0])):
        full = solve_enumerated(need, threshold, receivers)
        assert solve_compact(need, threshold, receivers).total == pytest.approx(full.total, rel=1e-7, abs=1e-12)


@pytest.mark.slow
@settings(max_examples=200, deadline=None)
@given(st.data())
def test_personal_thresholds_are_private_optimal_and_certified(data: st.DataObject) -> None:
    count = data.draw(st.integers(2, 7))
    spec = Spec(
        epsilon=data.draw(
            st.lists(st.sampled_from([0.01, 0.1, 1.0, 1.0, 5.0, float("inf")]), min_size=count, max_size=count)
        ),
        delta=1e-6,
        threshold=data.draw(st.lists(st.integers(0, count - 1), min_size=count, max_size=count)),
        receivers=np.array(data.draw(st.lists(st.booleans(), min_size=count, max_size=count))),
    )
    plan = tpmdp.plan(spec)
    for honest, need in zip(least_honest(plan.variance, spec.threshold, spec.receivers), plan.need, strict=True):
        assert honest is None or honest >= need
    verdict = plan.certificate().check(spec)
    assert verdict.is_optimal
    assert verdict.gap <= 1e-8
    full = solve_enumerated(plan.need, spec.threshold, spec.receivers)
    assert plan.total_variance == pytest.approx(full.total, rel=1e-7)


def personal_spec(count: int = 30) -> Spec:
    rng = np.random.default_rng(count)
    return Spec(
        epsilon=rng.uniform(0.05, 2, count),
        delta=1e-6,
        threshold=rng.integers(1, count, count),
        receivers=rng.random(count) < 0.5,
    )


@pytest.mark.parametrize(("surplus", "is_optimal"), [(1e-9, True), (1e-7, False), (0.9, False)])
def test_a_personal_plan_is_optimal_up_to_the_tolerance_of_the_solver(surplus: float, is_optimal: bool) -> None:
    spec = personal_spec(12)
    certificate = tpmdp.plan(spec).certificate()
    more = dataclasses.replace(certificate, variance=np.array(certificate.variance) * (1 + surplus), gap=0.95)
    assert more.check(spec).is_optimal is is_optimal


def test_a_tampered_personal_certificate_is_refused() -> None:
    spec = personal_spec()
    plan = tpmdp.plan(spec)
    assert plan.case is Case.PERSONAL_THRESHOLDS
    certificate = plan.certificate()
    assert certificate.check(spec).gap < 1e-8
    party = int(np.argmax(certificate.variance))
    variance = np.array(certificate.variance)
    variance[party] *= 0.999
    with pytest.raises(CertificateError, match="privacy violated"):
        dataclasses.replace(certificate, variance=variance).check(spec)
    bundles = tuple(dataclasses.replace(b, weight=b.weight * 2) for b in certificate.bundles)
    with pytest.raises(CertificateError, match="load violated"):
        dataclasses.replace(certificate, bundles=bundles).check(spec)
    thresholds = np.array(spec.threshold)
    thresholds[0] = (thresholds[0] + 1) % spec.count
    with pytest.raises(CertificateError, match="threshold violated"):
        certificate.check(spec.replace(threshold=thresholds))


def test_the_largest_common_threshold_costs_at_least_as_much_as_personal_ones() -> None:
    spec = personal_spec()
    common = spec.replace(threshold=int(np.max(spec.threshold)))
    assert tpmdp.plan(spec).total_variance <= tpmdp.plan(common).total_variance * (1 + 1e-9)


def test_too_many_personal_thresholds_are_refused_with_the_limit() -> None:
    count = PERSONAL_PARTIES_MAX + 1
    spec = Spec(epsilon=1.0, delta=1e-6, threshold=np.arange(count) % 5)
    with pytest.raises(
        SolverError, match=f"{count} parties are too many .* {PERSONAL_PARTIES_MAX}.* one common threshold"
    ):
        tpmdp.plan(spec)


def test_too_many_coalitions_are_refused_with_the_remedy() -> None:
    with pytest.raises(SolverError, match=r"coalitions are more than .* use plan\(\)"):
        enumerate_constraints(np.ones(40), 20, np.ones(40, dtype=bool))


def test_gurobi_agrees_and_its_licence_limit_is_explained() -> None:
    pytest.importorskip("gurobipy")
    rng = np.random.default_rng(1)
    need, receivers = rng.lognormal(0, 1, 10), np.ones(10, dtype=bool)
    highs, gurobi = (solve_enumerated(need, 5, receivers, solver) for solver in ("highs", "gurobi"))
    assert gurobi.total == pytest.approx(highs.total, rel=1e-6)
    assert gurobi.constraints == highs.constraints == 252
    with pytest.raises(SolverError, match=r"Gurobi refused 3432 constraints .* use HiGHS"):
        solve_enumerated(np.ones(14), 7, np.ones(14, dtype=bool), "gurobi")
