"""To whom the noise is due: slopes of the least total, computed by an independent linear program; ties share."""

from __future__ import annotations

import numpy as np
import pytest

from tests.planning.test_plan_weights import least_total
from tpmdp import Spec, plan

CASES = [
    ([0.5, 1.0, 1.0, 2.0], 2, [0, 1]),
    ([1.0, 1.0, 1.0], 1, "all"),
    ([0.3, 0.8, 0.8, 2.0, 2.0], 3, [0, 4]),
    ([1.0, 1.0, 2.0, 2.0], 2, [0]),
    ([1.0, 1.0], 1, [0]),
    ([0.5, 0.5, 1.0, 1.0, 1.0, 4.0], 2, [0, 3]),
    ([1.0, float("inf"), float("inf")], 2, [1]),
]


@pytest.mark.parametrize(("epsilon", "threshold", "receivers"), CASES)
def test_a_group_that_asks_for_less_saves_its_share(epsilon: list[float], threshold: int, receivers: object) -> None:
    """If all of a group need a little less, the least total falls by the share of the group: a slope of the program."""
    spec = Spec(epsilon=epsilon, delta=1e-6, threshold=threshold, receivers=receivers)
    result = plan(spec)
    drivers = result.drivers_together()
    assert drivers.shares.sum() == pytest.approx(1.0)
    whole = least_total(result.need, threshold, spec.receivers)
    for party in range(spec.count):
        group = list(drivers.group(party))
        less = result.need.copy()
        less[group] *= 1 - 1e-4
        saved = (whole - least_total(less, threshold, spec.receivers)) / (1e-4 * whole)
        # Within a set of equal needs outside any group each has the same slope both ways.
        assert saved == pytest.approx(drivers.share(party), abs=2e-3)


@pytest.mark.parametrize(("epsilon", "threshold", "receivers"), CASES)
def test_parties_alike_share_alike(epsilon: list[float], threshold: int, receivers: object) -> None:
    spec = Spec(epsilon=epsilon, delta=1e-6, threshold=threshold, receivers=receivers)
    result = plan(spec)
    shares = result.drivers()
    attacked = np.isfinite(result.protection().honest_variance)
    for first in range(spec.count):
        for other in range(spec.count):
            if epsilon[first] == epsilon[other] and attacked[first] == attacked[other]:
                assert shares[first] == shares[other]


def test_one_of_a_group_alone_saves_less() -> None:
    """A larger epsilon of one of them changes nothing. Once all of their share stood beside one of the two."""
    spec = Spec(epsilon=[0.5, 1.0, 1.0, 2.0, 2.0], delta=1e-6, threshold=2, receivers="all")
    result = plan(spec)
    drivers = result.drivers_together()
    assert drivers.groups == ((1, 2),)
    before = result.expected_error
    alone = plan(spec.replace(epsilon=[0.5, 1.5, 1.0, 2.0, 2.0])).expected_error
    both = plan(spec.replace(epsilon=[0.5, 1.5, 1.5, 2.0, 2.0])).expected_error
    assert alone == pytest.approx(before)
    assert both < before


def test_the_only_receiver_has_no_share() -> None:
    result = plan(Spec(epsilon=[1.0, 1.0, 1.0], delta=1e-6, threshold=1, receivers=[0]))
    assert result.drivers()[0] == 0
    assert result.drivers_together().largest() == (1, 2)


def test_identical_parties_have_identical_shares_with_balanced_weights() -> None:
    spec = Spec(epsilon=[0.3, 1.0, 1.0, 1.0, 3.0], delta=1e-6, threshold=2)
    shares = plan(spec, weighting="balanced", records=[500, 400, 400, 400, 300], width=1.0).drivers()
    assert shares[1] == shares[2] == shares[3]
    assert shares.sum() == pytest.approx(1.0)


def test_personal_thresholds_share_too() -> None:
    spec = Spec(epsilon=[0.5, 1.0, 1.0, 1.0], delta=1e-6, threshold=[1, 2, 2, 1], receivers="all")
    shares = plan(spec).drivers()
    assert shares[1] == pytest.approx(shares[2])
    assert shares.sum() == pytest.approx(1.0)


def test_without_noise_nothing_is_due_to_anybody() -> None:
    spec = Spec(epsilon=[float("inf")] * 3, delta=1e-6, threshold=1)
    drivers = plan(spec).drivers_together()
    assert drivers.shares.tolist() == [0.0, 0.0, 0.0]
    assert drivers.groups == ()
    assert drivers.largest() == (0,)
