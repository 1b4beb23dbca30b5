"""What a session costs where parties drop out: that of the group, topped up if a later one costs more."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from tpmdp.ledger import Charge, Ledger, OverspendError
from tpmdp.study.contribution import Contribution
from tpmdp.study.cost import charge_among, top_up
from tpmdp.study.model import Study
from tpmdp.study.session import FEWER, SessionAccount

NAMES = ["north", "south", "east", "west", "coast", "isle"]
EPSILONS = [0.25, 0.5, 1.0, 2.0, 3.0, 4.0]
INDEX = 5  # of the party with the largest budget: others bring it the more noise the more of them are there
EVERYBODY = frozenset(range(6))
WITHOUT_ONE, WITHOUT_TWO = EVERYBODY - {1}, EVERYBODY - {1, 2}


def study_of(tolerate: int = 2) -> Study:
    keys = {name: Ed25519PrivateKey.from_private_bytes(bytes([number]) * 32) for number, name in enumerate(NAMES)}
    document = {
        "name": "losses",
        "delta": 1e-6,
        "threshold": 1,
        "receivers": ["north"],
        "tolerate": tolerate,
        "parties": [
            {"name": name, "epsilon": epsilon, "records": 10} for name, epsilon in zip(NAMES, EPSILONS, strict=True)
        ],
        "queries": [{"name": "old", "kind": "count", "column": "age", "at_least": 65}],
    }
    return Study.parse(document).with_keys({name: key.public_key().public_bytes_raw() for name, key in keys.items()})


@pytest.fixture
def ledger(tmp_path: Path) -> Iterator[Ledger]:
    with Ledger.create(tmp_path / "isle.ledger", "isle", 10.0, 1e-6) as opened:
        yield opened


def account_of(study: Study, ledger: Ledger) -> tuple[SessionAccount, Contribution]:
    terms = study.terms()
    identity = Ed25519PrivateKey.from_private_bytes(bytes([INDEX]) * 32)
    account = SessionAccount(study, terms, "isle", identity=identity, ledger=ledger)
    contribution = Contribution(study, terms, "isle", encoded=np.zeros(terms.grid.dimension, dtype=np.int64))
    account.hold(contribution)
    return account, contribution


def squares(ledger: Ledger) -> Fraction:
    return sum((Fraction(entry.mu) ** 2 for entry in ledger.entries() if entry.is_charge), Fraction(0))


def cost(study: Study, group: frozenset[int]) -> float:
    return charge_among(study.terms(), INDEX, group).mu


def test_a_session_without_losses_costs_what_it_does_where_nobody_may_drop_out(ledger: Ledger) -> None:
    account, contribution = account_of(study_of(), ledger)
    account.charge(contribution, 1, EVERYBODY)
    alone = study_of(0).terms().charge(INDEX)[0]
    assert float(squares(ledger)) == pytest.approx(alone**2, rel=1e-3)  # of another grid
    assert study_of().terms().charge(INDEX)[0] > 1.2 * alone  # room was held for the worst group


@pytest.mark.parametrize("groups", list(itertools.permutations([EVERYBODY, WITHOUT_ONE, WITHOUT_TWO])))
def test_the_charge_is_the_largest_of_all_attempts_in_any_order(
    ledger: Ledger, groups: tuple[frozenset[int], ...]
) -> None:
    study = study_of()
    account, contribution = account_of(study, ledger)
    worst = 0.0
    for attempt, group in enumerate(groups, start=1):
        first = account.charge(contribution, attempt, group)
        worst = max(worst, cost(study, group))
        assert Fraction(worst) ** 2 <= squares(ledger) <= Fraction(worst) ** 2 * (1 + Fraction(1, 10**12))
        before = len(list(ledger.entries()))
        assert (account.charge(contribution, attempt, group) == first).all()
        assert len(list(ledger.entries())) == before
    assert worst < study.terms().charge(INDEX)[0] * (1 + 1e-12)
    ledger.verify()
    later = [entry.study for entry in ledger.entries() if entry.kind == "settle"]
    assert all(label == f"{study.label}{FEWER}" for label in later)


def test_costs_differ_in_this_study() -> None:
    study = study_of()
    assert cost(study, EVERYBODY) < cost(study, WITHOUT_ONE) < cost(study, WITHOUT_TWO)


def test_a_process_killed_before_the_rest_is_settled_goes_on(ledger: Ledger, monkeypatch: pytest.MonkeyPatch) -> None:
    study = study_of()
    account, contribution = account_of(study, ledger)
    account.charge(contribution, 1, EVERYBODY)
    with monkeypatch.context() as patch:
        patch.setattr(Ledger, "settle", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            account.charge(contribution, 2, WITHOUT_TWO)
    charged = squares(ledger)
    assert "vector 2" not in account.stored()  # nothing could leave
    account.charge(contribution, 2, WITHOUT_TWO)
    assert squares(ledger) == charged
    assert [entry.study for entry in ledger.under_way()] == [study.label]
    ledger.verify()


def test_a_limit_that_has_no_room_for_the_rest_stops_the_party_before_anything_leaves(ledger: Ledger) -> None:
    study = study_of()
    account, contribution = account_of(study, ledger)
    account.charge(contribution, 1, EVERYBODY)
    ledger.set_limit(ledger.spent().epsilon * 1.01, 1e-6)
    with pytest.raises(OverspendError, match="with fewer parties would cost isle"):
        account.charge(contribution, 2, WITHOUT_TWO)
    assert "vector 2" not in account.stored()


def test_nothing_is_added_to_what_covers_a_cost_already() -> None:
    wanted = Charge(0.5, 1e-50, 1.0, 1e-6)
    assert top_up([0.5], wanted) is None
    assert top_up([0.3, 0.4], wanted) is None
    assert top_up([float("inf")], wanted) is None
    everything = Charge(float("inf"), 0.0, 1.0, 1e-6)
    assert top_up([0.5], everything) == everything
    rest = top_up([0.3], wanted)
    assert rest is not None
    assert Fraction(rest.mu) ** 2 + Fraction(0.3) ** 2 >= Fraction(1, 4)
    assert rest.mu == pytest.approx(0.4)
    tiny = top_up([0.5 * (1 - 1e-16)], wanted)
    assert tiny is None or tiny.mu > 0


def test_a_process_that_charges_less_in_between_does_not_make_a_dear_attempt_free(
    ledger: Ledger, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both find the session not charged; the other one is faster, with the cheaper attempt."""
    study = study_of()
    account, contribution = account_of(study, ledger)
    with Ledger.open(tmp_path / "isle.ledger") as twin:
        other, _ = account_of(study, twin)
        charge = Ledger.charge

        def late(self: Ledger, *arguments: Any, **options: Any) -> Any:
            monkeypatch.setattr(Ledger, "charge", charge)
            other.charge(contribution, 1, EVERYBODY)
            return charge(self, *arguments, **options)

        monkeypatch.setattr(Ledger, "charge", late)
        account.charge(contribution, 2, WITHOUT_TWO)
    assert squares(ledger) >= Fraction(cost(study, WITHOUT_TWO)) ** 2
    ledger.verify()


def test_what_an_earlier_process_left_unsettled_is_settled_by_the_next_attempt(
    ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    study = study_of()
    account, contribution = account_of(study, ledger)
    account.charge(contribution, 1, EVERYBODY)
    with monkeypatch.context() as patch:
        patch.setattr(Ledger, "settle", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            account.charge(contribution, 2, WITHOUT_ONE)
    account.charge(contribution, 3, WITHOUT_TWO)
    assert [entry.study for entry in ledger.under_way()] == [study.label]
    assert squares(ledger) >= Fraction(cost(study, WITHOUT_TWO)) ** 2
