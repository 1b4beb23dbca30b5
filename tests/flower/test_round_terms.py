"""The plan of a round against every coalition, by brute force; the oracle shares nothing with the planner."""

from __future__ import annotations

import dataclasses
import math
from itertools import combinations

import mpmath
import numpy as np
import pytest

from tpmdp.flower.client_settings import ClientSettings
from tpmdp.flower.round_terms import Ask, Training, published
from tpmdp.flower.update import diameter
from tpmdp.planning.grid_plan import plan_on_grid
from tpmdp.protocol.terms import Terms
from tpmdp.spec import Party


def clients_of(epsilons: list[float], threshold: int = 1) -> list[Party]:
    return [
        Party(f"c{place}", epsilon, 1e-5, public_key=bytes(31) + bytes([place + 1]), threshold=threshold)
        for place, epsilon in enumerate(epsilons)
    ]


def delta_of(mu: float, epsilon: float) -> mpmath.mpf:
    """Of a Gaussian release (Balle and Wang 2018, Theorem 8)."""
    with mpmath.workdps(50):
        ratio = mpmath.mpf(epsilon) / mu
        return mpmath.ncdf(mu / 2 - ratio) - mpmath.exp(epsilon) * mpmath.ncdf(-mu / 2 - ratio)


def worst_delta(terms: Terms, party: int, sizes: int, with_server: bool | None = None) -> mpmath.mpf:
    """The largest delta of a client over all coalitions of others up to a size, at its epsilon of the round."""
    sensitivity = float(terms.spec.sensitivity[party]) + terms.grid.step * math.sqrt(terms.grid.dimension)
    others = [other for other in range(terms.count) if other != party]
    worst = mpmath.mpf(0)
    for size in range(1, min(sizes, len(others)) + 1):
        for coalition in combinations(others, size):
            if with_server is not None and (0 in coalition) != with_server:
                continue
            honest = sum(int(terms.sigma[other]) ** 2 for other in range(terms.count) if other not in coalition)
            deviation = math.sqrt(honest - 9) * terms.grid.step if honest > 9 else 0.0
            found = delta_of(sensitivity / deviation, float(terms.spec.epsilon[party])) if deviation else mpmath.mpf(1)
            worst = max(worst, found)
    return worst


@pytest.mark.parametrize("weighting", ["equal", "balanced"])
@pytest.mark.parametrize(("threshold", "tolerate"), [(1, 0), (2, 0), (3, 1), (1, 2), (4, 1)])
def test_every_coalition_with_the_server_and_without_it_is_counted(
    weighting: str, threshold: int, tolerate: int
) -> None:
    """Among all, and in every group that is left when clients drop out, which has a plan of its own."""
    clients = clients_of([0.2, 0.5, 0.5, 1.0, 2.0, 4.0])
    training = Training("x", 1.0, 7, threshold=threshold, tolerate=tolerate, weighting=weighting)
    terms = training.terms("one", 1, bytes(32), clients)
    assert terms.public
    for lost in range(tolerate + 1):
        for missing in combinations(range(1, terms.count), lost):
            members = [party for party in range(terms.count) if party not in missing]
            group = terms.among(members)
            assert [group.spec.name(place) for place in range(group.count)] == [
                terms.spec.name(party) for party in members
            ]
            worst = [worst_delta(group, place, threshold) for place in range(1, group.count)]
            assert max(worst) <= 1e-5
            assert max(worst) > 0.5e-5  # and no more noise than that


def test_clients_that_may_drop_out_cost_no_noise() -> None:
    """While all are there, the noise is that of a training that tolerates nobody's loss."""
    clients = clients_of([0.2, 0.5, 0.5, 1.0, 2.0, 4.0])
    noise = [
        Training("x", 1.0, 7, threshold=1, tolerate=tolerate).terms("one", 1, bytes(32), clients).standard_deviation
        for tolerate in (0, 2)
    ]
    assert noise[1] == pytest.approx(noise[0], rel=1e-3)


def test_a_plan_for_the_server_as_the_only_receiver_forgets_clients_that_collude() -> None:
    """Everybody gets the model: two clients without the server know the sum as well."""
    training = Training("x", 1.0, 7, threshold=2)
    clients = clients_of([0.5] * 4)
    spec = training.spec(clients, np.ones(4)).replace(receivers=[0])
    made = plan_on_grid(spec, np.array([0.0, 1.0, 1.0, 1.0, 1.0]), 7)
    good = training.terms("one", 1, bytes(32), clients)
    weak = dataclasses.replace(good, sigma=made.sigma, grid=made.grid, public=False)
    assert worst_delta(weak, 1, 2, with_server=True) <= 1e-5
    assert worst_delta(weak, 1, 2, with_server=False) > 1e-5
    weak.check(1)  # it looks good where only the server counts as a receiver
    for honest in (published(weak), dataclasses.replace(weak, public=True)):
        with pytest.raises(ValueError, match="breaks the budget"):
            honest.check(1)


def test_the_server_adds_noise_where_the_plan_wants_it() -> None:
    """Against clients that collude without it; a coalition with the server does without."""
    terms = Training("x", 1.0, 7, threshold=3, weighting="balanced").terms("one", 1, bytes(32), clients_of([0.5] * 5))
    assert terms.sigma[0] > 0
    assert worst_delta(terms, 1, 3, with_server=True) <= 1e-5


def test_an_ask_knows_its_own_text_only() -> None:
    ask = Ask("x", 3, 0.5, 100, (0.0, 1.0, 0.25))
    assert Ask.parse(ask.text()) == ask
    assert diameter(ask.clip, 0.25) >= 0.25
    for wrong in ("", "{}", "[]", ask.text() + " ", ask.text().replace('"round":3', '"round":3.0')):
        with pytest.raises(ValueError, match="not a round of training"):
            Ask.parse(wrong)


def test_settings_show_no_key() -> None:
    from pathlib import Path

    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

    key = Ed25519PrivateKey.generate()
    settings = ClientSettings(Party("lab", 1.0, 1e-5, threshold=1), key, Path("x.ledger"), rounds=3, peers=None)
    assert key.private_bytes_raw().hex() not in repr(settings) + str(vars(settings.round_party))
