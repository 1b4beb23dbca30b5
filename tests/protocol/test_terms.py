"""Terms: equal for equal studies, different for any difference, and a bad plan is refused by whom it harms."""

from __future__ import annotations

import dataclasses
import math
from fractions import Fraction
from itertools import combinations
from typing import Any

import numpy as np
import pytest

from tests.protocol.sessions import World
from tpmdp import InputError, Spec, calibrate, mu_at
from tpmdp.noise.grid import ROUNDING_VARIANCE, Grid
from tpmdp.planning.grid_plan import plan_on_grid
from tpmdp.protocol.terms import Terms

WORLD = World(5, 2, [0, 4])
TERMS = WORLD.terms


@pytest.mark.parametrize(
    "change",
    [
        {"label": "other"},
        {"query": "another"},
        {"guarantee": "statistical"},
        {"sigma": TERMS.sigma + 1},
        {"bounds": TERMS.bounds / 2},
        {"grid": Grid(TERMS.grid.step / 2, TERMS.grid.dimension, TERMS.grid.word)},
        {"roster": TERMS.roster[::-1]},
        {"spec": TERMS.spec.replace(threshold=1)},
        {"spec": TERMS.spec.replace(epsilon=TERMS.spec.epsilon * 1.01)},
        {"spec": TERMS.spec.replace(receivers=[0, 3])},
        {"spec": TERMS.spec.replace(names=list("abcde"))},
    ],
)
def test_any_change_changes_the_plan_hash(change: dict[str, Any]) -> None:
    changed = dataclasses.replace(TERMS, **change)
    assert changed.plan_hash != TERMS.plan_hash
    if "label" in change or "roster" in change:
        assert changed.session != TERMS.session
    assert Terms.parse(changed.canonical()).plan_hash == changed.plan_hash


def test_the_hash_without_keys_depends_on_all_but_the_keys() -> None:
    other_keys = dataclasses.replace(TERMS, roster=TERMS.roster[::-1])
    assert other_keys.keyless_hash == TERMS.keyless_hash
    for change in (
        {"label": "other"},
        {"query": "another"},
        {"sigma": TERMS.sigma + 1},
        {"guarantee": "statistical"},
        {"public": True},
    ):
        assert dataclasses.replace(TERMS, **change).keyless_hash != TERMS.keyless_hash


@pytest.mark.parametrize("receivers", [[0], [1, 3], [0, 1, 2, 3, 4]])
@pytest.mark.parametrize("threshold", [1, 2, 3])
def test_the_cost_of_a_person_is_that_against_every_coalition(threshold: int, receivers: list[int]) -> None:
    """The oracle lists all coalitions."""
    spec = Spec(
        epsilon=[0.5, 0.8, 1.0, 2.0, 3.0],
        delta=1e-6,
        sensitivity=[1, 2, 1, 3, 0],
        threshold=threshold,
        receivers=receivers,
    )
    roster = tuple(bytes(31) + bytes([place]) for place in range(5))
    terms = Terms.of("person", plan_on_grid(spec, bound=1.0), 1.0, roster)
    step, sigma = Fraction(terms.grid.step), terms.sigma.tolist()
    for size in (1, 2, 3):
        for person in combinations(range(4), size):
            most = 0.0
            for count in range(threshold + 1):
                for coalition in combinations(range(5), count):
                    unknown = [party for party in person if party not in coalition]
                    if not unknown or not set(coalition) & set(receivers):
                        continue
                    change = sum(float(spec.sensitivity[party]) + float(step) for party in unknown)
                    honest = sum(sigma[party] ** 2 for party in range(5) if party not in coalition)
                    least = (honest - ROUNDING_VARIANCE) * float(step) ** 2
                    most = max(most, change / math.sqrt(least) if least > 0 else math.inf)
            mu, _, coalition = terms.person_charge(person)
            assert mu == most or most * (1 - 1e-15) <= mu <= most * (1 + 1e-9)
            assert bool(coalition) == bool(most)
            assert len(coalition) <= threshold


def test_terms_are_read_only_in_canonical_form() -> None:
    text = TERMS.canonical()
    assert Terms.parse(text).canonical() == text
    for bad in (text + " ", text[:-1], "{}", "[]", "null", text.replace('"word":32', '"word":32.0'), "[" * 100_000):
        with pytest.raises(InputError):
            Terms.parse(bad)


def test_every_party_accepts_an_honest_plan() -> None:
    for count, threshold, receivers in [(2, 1, "all"), (2, 1, [0]), (5, 4, [1, 2]), (9, 3, [8]), (4, 0, "all")]:
        terms = World(count, threshold, receivers).terms
        for party in range(count):
            terms.check(party)


def test_a_plan_with_a_little_less_noise_is_refused_by_the_party_it_harms() -> None:
    """All budgets are tight for somebody: take one part in a hundred of everyone's noise away."""
    less = dataclasses.replace(TERMS, sigma=np.where(TERMS.sigma > 0, TERMS.sigma * 99 // 100, 0))
    with pytest.raises(InputError, match=r"breaks the budget of party 1 \(epsilon 0.5"):
        less.check(0)
    less.check(4)  # its budget has room: it may sign


def test_a_plan_without_noise_is_refused() -> None:
    with pytest.raises(InputError, match="breaks the budget"):
        dataclasses.replace(TERMS, sigma=np.zeros(5, dtype=np.int64)).check(1)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"sigma": np.array([3, 9, 9, 9, 9])}, "must be 0 or from 4"),
        ({"sigma": np.array([-9, 9, 9, 9, 9])}, "must be 0 or from 4"),
        ({"sigma": np.array([2**27, 9, 9, 9, 9])}, "must be 0 or from 4"),
        ({"bounds": TERMS.bounds * 1e9}, "could wrap 32 bits"),
        ({"grid": Grid(0.3, 3, 32)}, "power of two"),
        ({"grid": Grid(0.5, 3, 16)}, "power of two"),
        ({"grid": Grid(0.5, 10**60, 32)}, "longer than"),
    ],
)
def test_a_plan_that_cannot_be_run_exactly_is_refused(change: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        dataclasses.replace(TERMS, **change).check(0)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"roster": TERMS.roster[:4]}, "must be 5 different"),
        ({"roster": (TERMS.roster[0],) * 5}, "must be 5 different"),
        ({"roster": tuple(bytes([i]) for i in range(5))}, "must have 32 bytes"),
        ({"guarantee": "perfect"}, "must be one of"),
        ({"label": ""}, "must be short"),
        ({"spec": TERMS.spec.replace(receivers=[])}, "leaves nobody"),
        ({"sigma": TERMS.sigma[:2]}, "must have 5 entries"),
    ],
)
def test_bad_terms_are_refused_in_one_line(change: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        dataclasses.replace(TERMS, **change)


def test_the_charge_is_the_real_protection_rounded_up() -> None:
    """The strictest party pays its own budget and a little for the grid; never less than the continuous bound."""
    for party in range(5):
        mu, closeness = TERMS.charge(party)
        asked = mu_at(calibrate(float(TERMS.spec.epsilon[party]), 1e-6))
        assert 0 < mu <= asked
        assert 0 < closeness < 1e-50
    strict = mu_at(calibrate(0.5, 1e-6))
    assert TERMS.charge(0)[0] == pytest.approx(strict, rel=0.02)


def test_the_charge_against_every_coalition_by_brute_force() -> None:
    from itertools import combinations

    for count, threshold, receivers in [(4, 1, [0]), (5, 2, [1, 3]), (5, 4, [0, 1]), (6, 3, "all")]:
        terms = World(count, threshold, receivers).terms
        mask = terms.spec.receivers
        for party in range(count):
            worst = math.inf
            for coalition in combinations([other for other in range(count) if other != party], threshold):
                if mask[list(coalition)].any():
                    honest = sum(int(terms.sigma[i]) ** 2 for i in range(count) if i not in coalition)
                    worst = min(worst, honest)
            mu = terms.charge(party)[0]
            if math.isinf(worst):
                assert mu == 0
            else:
                true = float(terms.spec.sensitivity[party]) / (math.sqrt(worst) * terms.grid.step)
                assert true <= mu <= 1.05 * true


def test_a_release_without_noise_costs_everything_but_the_only_receiver_nothing() -> None:
    terms = World(4, 0, [1]).terms
    assert [terms.charge(party)[0] for party in range(4)] == [math.inf, 0, math.inf, math.inf]


def test_no_data_costs_nothing() -> None:
    spec = Spec(epsilon=[1.0, 1.0, math.inf], delta=1e-6, sensitivity=[1.0, 1.0, 0.0], threshold=1)
    terms = Terms.of("x", plan_on_grid(spec, 1.0), 1.0, tuple(bytes(31) + bytes([i]) for i in range(3)))
    assert terms.charge(2) == (0.0, 0.0)
    terms.check(2)


def test_a_published_answer_is_worth_less_than_was_charged() -> None:
    """The assumption behind charges (theory, Section 13): only receivers learn the answer. Here one of three does.

    A colluding non-receiver that reads it in the newspaper is a coalition the plan did not fear."""
    from tpmdp import epsilon_at
    from tpmdp.planning.coalition import worst_coalitions

    spec = Spec(epsilon=1.0, delta=np.full(3, 1e-6), threshold=1, receivers=[0])
    plan = plan_on_grid(spec, 1.0).plan
    promised = worst_coalitions(plan.variance, 1, [0]).honest_variance
    published = worst_coalitions(plan.variance, 1, "all").honest_variance
    real = [float(epsilon_at(math.sqrt(variance), 1e-6)) for variance in (promised[1], published[1])]
    assert real[0] == pytest.approx(1.0, abs=0.03)
    assert real[1] == pytest.approx(1.45, abs=0.03)
    assert math.isinf(promised[0])  # the only receiver is charged nothing


def test_beyond_the_threshold_all_masks_of_a_party_may_be_known() -> None:
    """With an odd threshold, one colluder more can be all neighbours of a party, whose own noise is then all."""
    spec = Spec(epsilon=[1.0] * 6, delta=1e-6, threshold=1)
    roster = tuple(bytes(31) + bytes([place]) for place in range(6))
    odd = Terms.of("odd", plan_on_grid(spec, bound=1.0), 1.0, roster)
    assert len(odd.neighbours(2)) == 2
    own = float(odd.sigma[2]) ** 2 - ROUNDING_VARIANCE
    assert odd.charge(2, 2)[0] == pytest.approx((1 / odd.grid.step + 1) / math.sqrt(own))
    even = Terms.of("even", plan_on_grid(spec.replace(threshold=2), bound=1.0), 1.0, roster)
    assert len(even.neighbours(2)) == 4  # three cannot be all of them
    honest = float((even.sigma[3:] ** 2).sum()) - ROUNDING_VARIANCE
    assert even.charge(2, 3)[0] == pytest.approx((1 / even.grid.step + 1) / math.sqrt(honest), rel=0.01)
    for terms in (odd, even):
        assert terms.charge(2, terms.colluders) == terms.charge(2)
