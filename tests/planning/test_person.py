"""One person at several parties, against every coalition tried one by one, in fractions and in 80 digits."""

from __future__ import annotations

import math
from fractions import Fraction
from functools import lru_cache
from itertools import combinations
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.effort import tries
from tests.oracles import DIGITS, exact_delta
from tpmdp import InputError, Plan, Spec, plan
from tpmdp.planning.person import PLACES_MAX, person_protection
from tpmdp.planning.weights import Weights

pytestmark = pytest.mark.filterwarnings("ignore:the plan adds no noise")


# The oracle shares no code with the package: it lists all coalitions and looks at what each one sees.


def attacks(
    variance: list[float], sensitivity: list[float], threshold: list[int], *, receivers: list[bool], person: list[int]
) -> list[tuple[Any, tuple[int, ...]]]:
    """For each coalition that is dangerous for the person: squared change over honest noise, and the coalition."""
    count, result = len(variance), []
    for size in range(count + 1):
        for coalition in combinations(range(count), size):
            unknown = [party for party in person if party not in coalition]
            if not unknown or not any(receivers[party] for party in coalition):
                continue
            if any(size > threshold[party] for party in unknown):
                continue
            change = sum((Fraction(sensitivity[party]) for party in unknown), Fraction(0))
            honest = sum((Fraction(variance[i]) for i in range(count) if i not in coalition), Fraction(0))
            ratio = math.inf if change and not honest else change**2 / honest if honest else Fraction(0)
            result.append((ratio, coalition))
    return result


def plan_with(variance: list[float], spec: Spec) -> Plan:
    """A plan with any variances, as somebody else may have made it."""
    made = plan(spec)
    return Plan(spec, np.array(variance), made.need, case=made.case, weights=made.weights)


def check(made: Plan, person: list[int]) -> None:
    spec = made.spec
    thresholds = np.broadcast_to(np.asarray(spec.threshold), (spec.count,)).tolist()
    weighted = spec.weighted(made.weights.each).sensitivity.tolist()
    all_attacks = attacks(
        made.variance.tolist(), weighted, thresholds, receivers=spec.receivers.tolist(), person=person
    )
    truth = max((ratio for ratio, _ in all_attacks), default=Fraction(0))
    result = person_protection(made, person)
    assert result.parties == tuple(sorted(person))
    assert result.delta == min(float(spec.delta[party]) for party in person)
    if truth == 0:
        assert (result.epsilon, result.coalition, result.honest_variance) == (0.0, (), math.inf)
        return
    assert {coalition: ratio for ratio, coalition in all_attacks}[result.coalition] == truth
    assert result.exposed == tuple(party for party in sorted(person) if party not in result.coalition)
    if truth == math.inf:
        assert result.epsilon == math.inf
        return
    mu = (DIGITS(truth.numerator) / DIGITS(truth.denominator)) ** DIGITS("0.5")
    assert exact_delta(mu, result.epsilon) <= result.delta or one_budget_is_proven(made, result.exposed, result.epsilon)
    if result.epsilon > 1e-9:  # not too small, and not much too large
        assert exact_delta(mu, result.epsilon - 1e-9 * max(result.epsilon, float(mu))) > result.delta


def one_budget_is_proven(made: Plan, exposed: tuple[int, ...], epsilon: float) -> bool:
    """Where one party is exposed its own budget is a bound: its need was rounded up, the honest noise is no less."""
    return len(exposed) == 1 and epsilon == made.spec.epsilon[exposed[0]]


@lru_cache
def mu_of(epsilon: float, delta: float) -> Any:
    """The largest mu that a budget allows, by bisection."""
    low, high = DIGITS(0), DIGITS(10)
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (low, middle) if exact_delta(middle, epsilon) > delta else (middle, high)
    return high


VALUES = st.one_of(st.sampled_from([0.0, 1.0, 1.0, 2.0, 0.1, 5.0, 30.0]), st.floats(1e-3, 1e3))


@st.composite
def cases(draw: st.DrawFn, personal: bool) -> tuple[list[float], Spec, list[int]]:
    count = draw(st.integers(2, 7))

    def many(values: st.SearchStrategy[Any]) -> list[Any]:
        return draw(st.lists(values, min_size=count, max_size=count))

    one = st.integers(0, count - 1)
    spec = Spec(
        epsilon=many(st.sampled_from([0.3, 1.0, 4.0, math.inf])),
        delta=many(st.sampled_from([1e-6, 1e-5, 0.01])),
        sensitivity=many(st.sampled_from([0.0, 0.5, 1.0, 1.0, 3.0])),
        threshold=many(one) if personal else draw(one),
        receivers=np.array(many(st.booleans())),
    )
    person = draw(st.lists(one, min_size=1, max_size=count, unique=True))
    return many(VALUES), spec, person


@settings(max_examples=tries(150, 3000), deadline=None)
@given(cases(personal=False))
@pytest.mark.slow
def test_any_variances_against_every_coalition(case: tuple[list[float], Spec, list[int]]) -> None:
    variance, spec, person = case
    check(plan_with(variance, spec), person)


@settings(max_examples=tries(100, 2000), deadline=None)
@given(cases(personal=True))
@pytest.mark.slow
def test_personal_thresholds_against_every_coalition(case: tuple[list[float], Spec, list[int]]) -> None:
    variance, spec, person = case
    made = plan(spec)
    check(Plan(spec, np.array(variance), made.need, case=made.case, weights=made.weights), person)
    check(made, person)


@settings(max_examples=tries(100, 2000), deadline=None)
@given(cases(personal=False))
@pytest.mark.slow
def test_plans_and_the_bound_by_the_sum_of_mus(case: tuple[list[float], Spec, list[int]]) -> None:
    """No person has more than the sum of what the budgets of its parties allow, each as a mu."""
    _, spec, person = case
    made = plan(spec)
    check(made, person)
    result = person_protection(made, person)
    budgets = [(float(spec.epsilon[party]), float(spec.delta[party])) for party in person]
    if all(epsilon < math.inf for epsilon, _ in budgets) and result.epsilon > 0:
        total = sum((mu_of(epsilon, delta) for epsilon, delta in budgets), DIGITS(0))
        assert exact_delta(total, result.epsilon) >= result.delta * DIGITS("0.999999")


def test_weights_scale_what_a_record_moves() -> None:
    spec = Spec(epsilon=[0.5, 1.0, 2.0, 2.0], delta=1e-6, threshold=1)
    made = plan(spec, weighting=[0.5, 1.0, 0.0, 0.25])
    assert isinstance(made.weights, Weights)
    for person in ([0], [0, 1], [1, 2], [2], [0, 1, 2, 3]):
        check(made, person)


def test_a_person_at_one_party_has_that_partys_protection() -> None:
    for spec in (
        Spec(epsilon=[0.5, 0.8, 1, 2, 3], delta=1e-6, threshold=2, receivers=[0, 4]),
        Spec(epsilon=[0.5, 0.8, 1, 2, 3], delta=1e-6, threshold=[1, 2, 3, 4, 0], receivers=[0, 4]),
        Spec(epsilon=[1, math.inf], delta=1e-6, threshold=1, receivers=[1]),
    ):
        made = plan(spec)
        protection = made.protection()
        for party in range(spec.count):
            person = person_protection(made, [party])
            assert person.epsilon == pytest.approx(float(protection.epsilon[party]), rel=1e-12)
            assert person.alone == (float(protection.epsilon[party]),)


def test_the_numbers_of_the_how_to_page() -> None:
    spec = Spec(epsilon=[0.5, 0.8, 1, 2, 3], delta=1e-6, threshold=2, receivers=[0, 4])
    made = plan(spec)
    assert [round(person_protection(made, person).epsilon, 2) for person in ([1], [1, 2], [1, 2, 3])] == [
        *(0.8, 1.69, 2.11)
    ]


def test_the_worst_coalition_may_have_one_of_the_persons_own_parties() -> None:
    """The first party adds most of the noise and its record moves little: it is the one to win over."""
    spec = Spec(epsilon=[1.0] * 4, delta=1e-6, sensitivity=[0.1, 1, 1, 1], threshold=1)
    person = person_protection(plan_with([100.0, 1.0, 1.0, 1.0], spec), [0, 1])
    assert person.coalition == (0,)
    assert person.exposed == (1,)


def test_many_parties_are_quick_and_exact() -> None:
    spec = Spec(epsilon=np.linspace(0.1, 3.0, 20_000), delta=1e-6, threshold=9_000, receivers=[3])
    made = plan(spec)
    person = person_protection(made, list(range(0, 20_000, 2_000)))
    assert len(person.coalition) == 9_000
    assert 3 in person.coalition
    honest = set(range(20_000)) - set(person.coalition)
    assert person.honest_variance == pytest.approx(math.fsum(made.variance[list(honest)].tolist()), rel=1e-12)


@pytest.mark.parametrize(
    ("person", "message"),
    [
        ([], "must have from 1 to"),
        (list(range(PLACES_MAX + 1)), "must have from 1 to"),
        ([1, 1], "is named twice"),
        ([-1], "is not a party"),
        ([20], "is not a party"),
    ],
)
def test_people_that_cannot_be(person: list[int], message: str) -> None:
    made = plan(Spec(epsilon=[1.0] * 20, delta=1e-6, threshold=1))
    with pytest.raises(InputError, match=message):
        person_protection(made, person)
