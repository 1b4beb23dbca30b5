"""Plans for whichever group is left, against a search over all coalitions: no noise is missing, and none is wasted.

The sessions are random: with ties, a very strict budget, parties without budget or without data, and sensitivities
that are tiny, huge or far apart. Each is planned for as many drop-outs as the protocol can bear.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Iterator
from dataclasses import replace
from fractions import Fraction
from functools import cache
from itertools import combinations
from typing import Any

import mpmath
import numpy as np
import pytest
from scipy.optimize import linprog

from tests.effort import tries
from tests.oracles import exact_delta
from tpmdp import InputError, NoNoiseWarning, Spec
from tpmdp.planning.closed_form import optimal_variance
from tpmdp.planning.grid_plan import plan_on_grid
from tpmdp.planning.losses import most_lost
from tpmdp.protocol import terms as terms_module
from tpmdp.protocol.terms import Guarantee, Terms

pytestmark = pytest.mark.slow  # the sessions of all tests are planned together

SMALL = tries(150, 600)  # sessions of which every group is tried
LARGE = tries(8, 40)  # sessions of which some groups are
GROUPS_OF_LARGE = 8
ROUNDING = 9  # squared steps that discrete noise is worth less

Random = np.random.Generator
Group = tuple[int, ...]


def random_epsilon(random: Random, count: int) -> Any:
    kind = random.choice(["tied", "apart", "strict", "infinite"])
    if kind == "tied":
        return random.choice([0.5, 1.0, 2.0], count)
    if kind == "apart":
        return 10.0 ** random.uniform(-2.0, 1.5, count)
    epsilon = random.choice([1.0, 1.0, 3.0], count)
    epsilon[random.integers(count)] = 0.003
    if kind == "infinite":
        epsilon[random.random(count) < 0.4] = math.inf
    return epsilon


def random_sensitivity(random: Random, count: int) -> Any:
    kind = random.choice(["same", "scaled", "missing", "apart"])
    if kind == "same":
        return np.ones(count)
    if kind == "scaled":
        return np.full(count, 10.0 ** int(random.integers(-12, 13))) * random.choice([1.0, 1.5], count)
    if kind == "missing":
        return random.choice([0.0, 1.0, 2.0], count)
    return 10.0 ** random.uniform(-3.0, 3.0, count)


def random_receivers(random: Random, count: int) -> list[int]:
    number = {"all": count, "single": 1, "some": int(random.integers(1, count + 1))}
    size = number[str(random.choice(["all", "single", "some"]))]
    return sorted(random.choice(count, size, replace=False).tolist())


BUDGET_NEEDS: dict[str, list[Fraction]] = {}  # what budgets alone ask for, in squared steps, by session


def budget_need(terms: Terms, party: int) -> Fraction:
    return BUDGET_NEEDS[terms.label][party]


def random_session(random: Random, count: int) -> Terms:
    """A session that nobody has to fit onto a grid by hand; `InputError` if its budgets are too far apart for any."""
    guarantee: Guarantee = "statistical" if count == 3 or random.random() < 0.25 else "computational"
    thresholds = [each for each in range(1, count) if most_lost(count, each, guarantee)]
    threshold = int(random.choice(thresholds[:4]))
    is_public = bool(random.random() < 0.2)
    sensitivity = random_sensitivity(random, count)
    spec = Spec(
        epsilon=random_epsilon(random, count),
        delta=random.choice([1e-9, 1e-6, 1e-3], count) if random.random() < 0.5 else 1e-6,
        sensitivity=sensitivity,
        threshold=threshold,
        receivers="all" if is_public else random_receivers(random, count),
    )
    bounds = np.where(random.random(count) < 0.2, 0.0, max(float(sensitivity.max()), 1e-12) * random.choice([1, 30]))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", NoNoiseWarning)
        plan = plan_on_grid(spec, bounds, int(random.choice([1, 3, 1000])), groups=True)
    lost = most_lost(count, threshold, guarantee)
    roster = tuple(bytes(31) + bytes([party]) for party in range(count))
    label = f"groups {len(BUDGET_NEEDS)}"
    terms = Terms.of(label, plan, bounds, roster=roster, guarantee=guarantee, tolerate=lost, public=is_public)
    BUDGET_NEEDS[label] = [Fraction(need) for need in (plan.plan.need / plan.grid.step**2).tolist()]
    if is_public:  # the lead publishes what it learns
        return replace(terms, spec=spec.replace(receivers=[int(random.integers(count))]))
    return terms


@cache
def sessions() -> list[Terms]:
    random, drawn, refusals = np.random.default_rng(20), list[Terms](), []
    while len(drawn) < SMALL + LARGE:
        count = int(random.integers(3, 8) if len(drawn) < SMALL else random.integers(8, 13))
        try:
            drawn.append(random_session(random, count))
        except InputError as error:
            refusals.append(str(error))
    assert len(refusals) < 0.05 * len(drawn)
    assert all("fits no grid" in refusal for refusal in refusals)
    return drawn


def groups_of(terms: Terms) -> list[Group]:
    """Every group with the lead that is large enough; of a large session some, from the smallest on."""
    others = [party for party in range(terms.count) if party != terms.lead]
    sizes = range(terms.count - terms.tolerate, terms.count + 1)
    every = [tuple(sorted((terms.lead, *rest))) for size in sizes for rest in combinations(others, size - 1)]
    return every if terms.count < 8 else every[:: len(every) // GROUPS_OF_LARGE]


@cache
def cases() -> list[tuple[Terms, Group]]:
    return [(terms, group) for terms in sessions() for group in groups_of(terms)]


def learners(terms: Terms, group: Group) -> set[int]:
    """Who of the group learns the answer, in the numbers of the group."""
    every = np.flatnonzero(terms.spec.receivers).tolist()
    return {rank for rank, party in enumerate(group) if terms.public or party in every}


def coalitions(terms: Terms, group: Group) -> Iterator[tuple[int, ...]]:
    """All that can attack: at most as many as may collude, and somebody among them learns the answer."""
    learning = learners(terms, group)
    for size in range(1, terms.colluders + 1):
        for coalition in combinations(range(len(group)), size):
            if not learning.isdisjoint(coalition):
                yield coalition


def least_honest(terms: Terms, group: Group, sigma: list[int]) -> list[int | None]:
    """For each of the group the least noise of honest parties, itself among them, in squared steps."""
    squares = [each * each for each in sigma]
    total = sum(squares)
    least: list[int | None] = [None] * len(group)
    for coalition in coalitions(terms, group):
        honest = total - sum(squares[rank] for rank in coalition)
        for rank, before in enumerate(least):
            if rank not in coalition and (before is None or honest < before):
                least[rank] = honest
    return least


@cache
def honest_cases() -> list[tuple[Terms, Group, list[int | None]]]:
    return [(terms, group, least_honest(terms, group, terms.among(group).sigma.tolist())) for terms, group in cases()]


def need_of(terms: Terms, party: int) -> Fraction:
    assert terms.needs is not None
    return Fraction(float(terms.needs[party]))


def is_protected(terms: Terms, party: int) -> bool:
    """Whether the party has data and a budget."""
    return bool(terms.spec.sensitivity[party] > 0 and terms.spec.epsilon[party] < math.inf)


def complaints(terms: Terms, group: Group) -> list[str]:
    """What each of the group says against the plan of the group, each for itself; nothing if it accepts."""
    said = []
    for party in group:
        try:
            terms.check_group(party, group)
            said.append("")
        except InputError as error:
            said.append(f"{error.field} {error.rule}")
    return said


def lack(terms: Terms, party: int) -> str:
    return f"honest noise in the group is less than {terms.spec.name(party)} needs in every group"


def test_the_sessions_are_of_all_kinds() -> None:
    every = sessions()
    assert {terms.count for terms in every} >= set(range(3, 8))
    assert {terms.guarantee for terms in every} == {"computational", "statistical"}
    assert {terms.grid.word for terms in every} == {32, 64}
    assert {terms.spec.receiver_count == 1 for terms in every} == {True, False}
    for kind in (
        sum(terms.public for terms in every),
        sum(not terms.spec.sensitivity.all() for terms in every),
        sum(not np.isfinite(terms.spec.epsilon).all() for terms in every),
        sum(float(terms.spec.sensitivity.max()) > 1e6 for terms in every),
        sum(float(terms.spec.sensitivity.max()) < 1e-6 for terms in every),
        sum(terms.tolerate > 1 for terms in every),
        sum(terms.colluders > 1 for terms in every),
        sum(terms.lead > 0 for terms in every),
    ):
        assert kind >= 5
    assert len(cases()) > 8 * len(every)


def test_no_coalition_in_any_group_leaves_less_honest_noise_than_a_party_needs() -> None:
    attacked = 0
    for terms, group, honest in honest_cases():
        for party, least in zip(group, honest, strict=True):
            if least is not None:
                attacked += 1
                assert least >= need_of(terms, party), (terms.spec, group, party)
            else:  # nobody else learns the answer
                assert learners(terms, group) == {group.index(party)}
    assert attacked > len(cases())


def test_what_a_party_needs_keeps_its_budget_and_a_billionth_less_would_not() -> None:
    """In 80 digits, for a sensitivity that rounding to the grid has raised."""
    for terms in sessions():
        grid, spec = terms.grid, terms.spec
        for party in range(terms.count):
            assert need_of(terms, party) >= budget_need(terms, party)
            if not is_protected(terms, party):
                assert spec.sensitivity[party] or need_of(terms, party) == 0
                continue
            change = mpmath.mpf(float(spec.sensitivity[party])) + mpmath.mpf(grid.step) * mpmath.sqrt(grid.dimension)
            epsilon, delta, need = float(spec.epsilon[party]), float(spec.delta[party]), budget_need(terms, party)
            for fraction, is_enough in ((Fraction(1), True), (1 - Fraction(1, 10**9), False)):
                variance = (need * fraction - ROUNDING) * Fraction(grid.step) ** 2
                noise = mpmath.sqrt(mpmath.mpf(variance.numerator) / variance.denominator)
                assert (exact_delta(change / noise, epsilon) <= delta) == is_enough, (spec, party)


def least_total(terms: Terms, group: Group) -> float:
    """The least total variance in squared steps, by linear programming over all largest coalitions."""
    needs = [float(budget_need(terms, party)) for party in group]
    rows, lows = [], []
    for coalition in coalitions(terms, group):
        if len(coalition) == terms.colluders:
            honest = [rank for rank in range(len(group)) if rank not in coalition]
            rows.append([-1.0 if rank in honest else 0.0 for rank in range(len(group))])
            lows.append(-max(needs[rank] for rank in honest))
    scale = -min(lows) or 1.0  # the solver's tolerances are those of numbers about 1
    result = linprog(np.ones(len(group)), A_ub=np.array(rows), b_ub=np.array(lows) / scale, method="highs")
    assert result.status == 0
    assert result.x is not None
    return float(result.x.sum()) * scale


def test_the_noise_of_a_group_is_the_least_possible_but_for_rounding() -> None:
    """A sigma is rounded up to whole steps, and to 4 at least: both together add at most 2 sigma + 16."""
    every = cases()
    for terms, group in every[:: max(1, len(every) // tries(300, 2000))]:
        sigma = terms.among(group).sigma.tolist()
        least, total = least_total(terms, group), sum(each * each for each in sigma)
        rounding = sum(2 * each + 16 for each in sigma if each)
        assert least * (1 - 1e-6) <= total <= least * (1 + 1e-6) + rounding, (terms.spec, group)


def test_a_group_has_more_noise_than_its_share_of_the_first_plan_where_it_needs_it() -> None:
    """Five equal parties, and any of them is lost: what is left of the first plan would not do."""
    spec = Spec(epsilon=[1.0] * 5, delta=1e-6, threshold=1)
    roster = tuple(bytes(31) + bytes([party]) for party in range(5))
    terms = Terms.of("equal", plan_on_grid(spec, 1.0, groups=True), 1.0, roster, tolerate=1)
    for group in groups_of(terms)[:-1]:
        sigma = [int(terms.sigma[party]) for party in group]
        assert min(least for least in least_honest(terms, group, sigma) if least) < need_of(terms, 0)
        ratio = terms.among(group).sigma / terms.sigma[list(group)]
        np.testing.assert_allclose(ratio, math.sqrt(4 / 3), rtol=1e-4)


def test_a_group_is_made_of_its_members_in_any_order() -> None:
    for terms, group in cases()[::7]:
        left, members = terms.among(group), list(group)
        assert terms.among(reversed(group)) is left
        if len(group) == terms.count:
            assert left is terms
            continue
        for field in ("epsilon", "delta", "sensitivity", "receivers"):
            assert (getattr(left.spec, field) == getattr(terms.spec, field)[members]).all()
        assert [left.spec.name(rank) for rank in range(left.count)] == [terms.spec.name(party) for party in group]
        assert left.roster == tuple(terms.roster[party] for party in group)
        assert (left.bounds == terms.bounds[members]).all()
        assert (left.grid, left.public, left.colluders) == (terms.grid, terms.public, terms.colluders)
        assert group[left.lead] == terms.lead


def test_a_party_is_charged_for_the_group_that_costs_it_most() -> None:
    """Squares of mu exactly, at a sensitivity from below: the charge is never less than the truth of any group."""
    for terms, group, honest in honest_cases():
        step, left = Fraction(terms.grid.step), terms.among(group)
        root = Fraction(math.isqrt(terms.grid.dimension * 10**40), 10**20)
        for rank, (party, least) in enumerate(zip(group, honest, strict=True)):
            (mu, closeness), (mu_left, closeness_left) = terms.charge(party), left.charge(rank)
            assert mu >= mu_left, (terms.spec, group, party)
            if least is None or terms.spec.sensitivity[party] == 0:
                assert mu_left == 0
                continue
            if mu < math.inf:
                assert closeness >= closeness_left > 0
                change = Fraction(float(terms.spec.sensitivity[party])) + step * root
                assert Fraction(mu) ** 2 * (least - ROUNDING) * step**2 >= change**2, (terms.spec, group, party)
            else:
                assert not is_protected(terms, party)


def test_a_charge_against_more_parties_than_the_threshold_is_at_least_that_in_any_group() -> None:
    """By trying all larger coalitions in all groups."""
    finite = 0
    for terms, group in [(terms, group) for terms, group in cases()[::3] if terms.count < 8]:
        left, squares = terms.among(group), [each * each for each in terms.among(group).sigma.tolist()]
        hears = learners(terms, group)
        for size in range(1, len(group) - 1):
            for coalition in combinations(range(len(group)), size):
                if hears.isdisjoint(coalition):
                    continue
                honest = sum(squares) - sum(squares[rank] for rank in coalition)
                for rank in set(range(len(group))) - set(coalition):
                    change = float(terms.spec.sensitivity[group[rank]])
                    mu = terms.charge(group[rank], size)[0]
                    if change and mu < math.inf:
                        finite += size > terms.colluders
                        assert mu * math.sqrt(honest) * terms.grid.step >= change, (terms.spec, group, coalition)
        assert left.colluders == terms.colluders
    assert finite > 100


def least_against(terms: Terms, group: Group, person: tuple[int, int]) -> dict[tuple[int, ...], int]:
    """The least honest noise, by which of the person's records the coalition does not hold; in numbers of the group."""
    squares = [each * each for each in terms.among(group).sigma.tolist()]
    least: dict[tuple[int, ...], int] = {}
    for coalition in coalitions(terms, group):
        exposed = tuple(rank for rank in person if rank not in coalition)
        honest = sum(squares) - sum(squares[rank] for rank in coalition)
        if exposed and honest < least.get(exposed, honest + 1):
            least[exposed] = honest
    return least


def test_a_person_at_two_parties_is_charged_for_the_group_that_costs_most() -> None:
    """Members of a coalition know the records that they hold; the others' sensitivities add up."""
    charged = 0
    for terms, group in [(terms, group) for terms, group in cases()[::3] if terms.count < 8]:
        step, left, sensitivity = Fraction(terms.grid.step), terms.among(group), terms.spec.sensitivity.tolist()
        root = Fraction(math.isqrt(terms.grid.dimension * 10**40), 10**20)
        for person in combinations(range(len(group)), 2):
            mu, _, _ = terms.person_charge([group[rank] for rank in person])
            assert mu >= left.person_charge(person)[0], (terms.spec, group, person)
            for exposed, honest in least_against(terms, group, person).items():
                changes = [Fraction(sensitivity[group[rank]]) + step * root for rank in exposed]
                change = sum(each for each in changes if each > step * root)  # without data nothing changes
                if change and mu < math.inf:
                    charged += 1
                    assert Fraction(mu) ** 2 * (honest - ROUNDING) * step**2 >= change**2, (terms.spec, group, person)
    assert charged > 1000


def test_a_charge_is_no_more_than_the_budget_is_worth() -> None:
    """It is exactly that of the noise which the party needs."""
    for terms in sessions():
        step = terms.grid.step
        for party in range(terms.count):
            if is_protected(terms, party) and learners(terms, tuple(range(terms.count))) != {party}:
                change = float(terms.spec.sensitivity[party]) + step * math.sqrt(terms.grid.dimension)
                worth = change / (math.sqrt(need_of(terms, party) - ROUNDING) * step)
                assert terms.charge(party)[0] == pytest.approx(worth, rel=1e-9)


def test_no_sum_of_any_group_leaves_its_word() -> None:
    """All inputs at their bounds, each rounded by half a step, and noise that is exceeded with chance 2^-100."""
    for terms, group in cases():
        left, grid = terms.among(group), terms.grid
        inputs = sum(Fraction(float(terms.bounds[party])) for party in group) / Fraction(grid.step)
        squares = sum(each * each for each in left.sigma.tolist())
        noise = math.sqrt(2 * squares * (100 * math.log(2) + math.log(2 * grid.dimension)))
        assert inputs + Fraction(len(group), 2) + Fraction(noise) < 2 ** (grid.word - 1), (terms.spec, group)


def test_every_party_accepts_the_terms_and_the_plan_of_every_group() -> None:
    for terms in sessions():
        for party in range(terms.count):
            terms.check(party)
    for terms, group in cases():
        assert not any(complaints(terms, group))


def test_what_every_group_gives_a_party_without_more_noise_is_promised_and_charged() -> None:
    """More than its budget needs, where others need more; often exactly the least of all groups."""
    raised = exact = 0
    for terms in sessions():
        if terms.count > 7:
            continue
        least: dict[int, int] = {}
        for group in groups_of(terms):
            honest = least_honest(terms, group, terms.among(group).sigma.tolist())
            for party, each in zip(group, honest, strict=True):
                if each is not None:
                    least[party] = min(each, least.get(party, each))
        for party, each in least.items():
            if need_of(terms, party) > budget_need(terms, party):
                raised += 1
                exact += each <= 1.01 * need_of(terms, party)
    assert raised > 50
    assert exact > raised / 3


Planner = Callable[[Any, int, Any], tuple[Any, Any]]
OPTIMAL: Planner = optimal_variance


def for_fewer(need: Any, threshold: int, receivers: Any) -> tuple[Any, Any]:
    return OPTIMAL(need, threshold - 1, receivers)


def for_the_first_receiver(need: Any, threshold: int, receivers: Any) -> tuple[Any, Any]:
    return OPTIMAL(need, threshold, np.arange(len(need)) == np.argmax(receivers))


def without_the_strictest(need: Any, threshold: int, receivers: Any) -> tuple[Any, Any]:
    return OPTIMAL(np.where(np.arange(len(need)) == np.argmax(need), 0.0, need), threshold, receivers)


def a_thousandth_less(need: Any, threshold: int, receivers: Any) -> tuple[Any, Any]:
    return OPTIMAL(need * 0.999, threshold, receivers)


@pytest.mark.parametrize("planner", [for_fewer, for_the_first_receiver, without_the_strictest, a_thousandth_less])
def test_a_wrong_plan_of_a_group_is_refused_by_exactly_those_it_harms(
    planner: Planner, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(terms_module, "optimal_variance", planner)
    refused = accepted = 0
    for terms, group in [(terms, group) for terms, group in cases()[::5] if len(group) < terms.count]:
        wrong = replace(terms)  # without the groups that are planned already
        honest = least_honest(terms, group, wrong.among(group).sigma.tolist())
        pairs = list(zip(group, honest, strict=True))
        harmed = [least is not None and least < need_of(terms, party) for party, least in pairs]
        expected = [lack(terms, party) if bad else "" for party, bad in zip(group, harmed, strict=True)]
        assert complaints(wrong, group) == expected, (terms.spec, group)
        refused += any(harmed)
        accepted += not all(harmed)
    assert refused > 20
    assert accepted > 20


def changed_need(terms: Terms, party: int, factor: float) -> Terms:
    assert terms.needs is not None
    needs = terms.needs.copy()
    needs[party] *= factor
    return replace(terms, needs=needs)


def test_terms_that_say_less_than_a_party_needs_are_refused_by_it() -> None:
    """Even if the first plan has noise enough: a group could have less."""
    refused = 0
    for terms in sessions():
        everybody = tuple(range(terms.count))
        for party in everybody:
            if is_protected(terms, party) and learners(terms, everybody) != {party}:
                refused += 1
                less = changed_need(terms, party, float(budget_need(terms, party) / need_of(terms, party)) * (1 - 1e-6))
                with pytest.raises(InputError, match=r"breaks the budget of"):
                    less.check(party)
    assert refused > len(sessions())


def test_terms_that_say_more_than_a_party_has_in_the_first_plan_are_refused_by_it() -> None:
    """It would be charged for noise that is not there, where nobody drops out."""
    refused = accepted = 0
    for terms in sessions()[::2]:
        everybody = tuple(range(terms.count))
        honest = least_honest(terms, everybody, terms.sigma.tolist())
        for party, least in enumerate(honest):
            if least is None or not is_protected(terms, party):
                continue
            for factor in (1 + 1e-12, 1.01, 2.0):
                more = changed_need(terms, party, factor)
                if need_of(more, party) <= least:
                    more.check(party)
                    accepted += 1
                    continue
                refused += 1
                with pytest.raises(InputError, match=r"needs in every group|too large for the grid|could wrap"):
                    more.check(party)
    assert min(refused, accepted) > 20


def test_terms_that_say_more_than_a_party_needs_give_smaller_groups_more_noise() -> None:
    """Or are refused, if that no longer fits the grid."""
    refusals, accepted = [], 0
    for terms, group in [(terms, group) for terms, group in cases()[::7] if len(group) < terms.count]:
        more = changed_need(terms, group[-1], 1.5)
        try:
            sigma = more.among(group).sigma.tolist()
        except InputError as error:
            refusals.append(str(error))
            continue
        honest = least_honest(terms, group, sigma)
        assert all(least is None or least >= need_of(more, each) for each, least in zip(group, honest, strict=True))
        assert not any(complaints(more, group))
        accepted += 1
    assert len(refusals) < 0.1 * accepted
    assert all("could wrap" in refusal or "sigma = " in refusal for refusal in refusals)


def test_needs_that_no_group_could_meet_on_the_grid_are_refused_by_all() -> None:
    for terms in sessions()[::3]:
        for party in range(terms.count):
            if need_of(terms, party):
                more = changed_need(terms, party, 2.0**61 / float(need_of(terms, party)))
                for each in range(terms.count):
                    with pytest.raises(InputError, match="too large for the grid"):
                        more.check(each)
