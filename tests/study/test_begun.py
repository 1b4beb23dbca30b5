"""What a ledger has begun, what it has answered before, and giving it up."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.study.sessions import study
from tpmdp.ledger import Charge, Hold, Ledger, LedgerError, SessionKey
from tpmdp.ledger.entry import stand_in_plan
from tpmdp.study.begun import begun_sessions, earlier_sessions, give_up, withdrawal_text

COST = Charge(0.1, 0.0, 0.5, 1e-6)
FOUR = [{"name": name, "epsilon": 1.0, "records": 3} for name in ("north", "south", "lab", "office")]


@pytest.fixture
def ledger(tmp_path: Path) -> Iterator[Ledger]:
    with Ledger.create(tmp_path / "a.ledger", "a", 5.0, 1e-6) as made:
        yield made


def key(number: int, plan: int = 9) -> SessionKey:
    return SessionKey(bytes([number]) * 32, bytes([plan]) * 32)


def begun(ledger: Ledger) -> list[tuple[str, SessionKey, bool, bool]]:
    return [(each.study, each.key, each.is_charged, each.has_agreed) for each in begun_sessions(ledger)]


def test_a_session_is_begun_from_its_hold_until_it_is_settled(ledger: Ledger) -> None:
    label = "flu / session 1"
    ledger.hold(key(1), label, COST, unit="record", private={})
    assert begun(ledger) == [(label, key(1), False, False)]
    ledger.keep(key(1), "agreed", b"1")
    assert begun(ledger) == [(label, key(1), False, True)]
    ledger.charge(key(1), label, COST, unit="record", private={"vector": b"1"})
    assert begun(ledger) == [(label, key(1), True, True)]
    ledger.hold(key(2), "flu / session 2", COST, unit="record", private={})
    assert [each[0] for each in begun(ledger)] == [label, "flu / session 2"]
    ledger.settle(key(1), "answer", {})
    ledger.cancel(key(2))
    assert begun(ledger) == []


def held_rounds(ledger: Ledger) -> list[SessionKey]:
    stand_in = stand_in_plan(key(1).plan)
    keys = [key(1), *(SessionKey(key(number).session, stand_in) for number in (2, 3))]
    holds = [Hold(each, f"flu / session 1, round {n}", COST, private={}) for n, each in enumerate(keys, 1)]
    ledger.hold_all(holds, "flu / session 1", Charge(0.2, 0.0, 1.0, 1e-6), unit="record")
    return keys


def test_a_study_by_rounds_counts_once_and_is_given_up_as_a_whole(ledger: Ledger) -> None:
    keys = held_rounds(ledger)
    ledger.keep(keys[0], "agreed", b"1")
    assert begun(ledger) == [("flu / session 1", keys[0], False, True)]
    ledger.charge(keys[0], "flu / session 1, round 1", COST, unit="record", private={"vector": b"1"})
    ledger.settle(keys[0], "answer", {})
    assert begun(ledger) == [("flu / session 1", keys[0], True, True)]  # its other rounds are held
    ledger.hold(key(4, 8), "flu / session 2", COST, unit="record", private={})
    assert give_up(ledger, ledger.holds()[:1]) == 2
    assert begun(ledger) == [("flu / session 2", key(4, 8), False, False)]


def test_what_is_charged_is_not_given_up(ledger: Ledger) -> None:
    ledger.charge(key(1), "flu / session 1", COST, unit="record", private={})
    with pytest.raises(LedgerError, match="is charged, not held"):
        give_up(ledger, ledger.newest(1))


def test_other_sessions_of_the_same_study_are_found(ledger: Ledger) -> None:
    asked = study(name="flu", session=3)
    for number, label in enumerate(
        [
            "flu / session 1",
            "flu / session 3",
            "flu / session 2, round 1",
            "flu / session 2, round 2",
            "flux / session 1",
        ],
        1,
    ):
        ledger.charge(key(number), label, COST, unit="record", private={})
        ledger.settle(key(number), "answer", {})
    ledger.hold(key(9), "flu / session 7", COST, unit="record", private={})
    earlier = earlier_sessions(asked, ledger, COST, session=key(2).session)
    assert earlier is not None
    assert [label for label, _ in earlier.sessions] == ["flu / session 1", "flu / session 2"]
    assert earlier.mu_squared == pytest.approx(4 * 0.01)
    assert earlier.mu_squared >= 4 * 0.01
    assert earlier_sessions(study(name="other"), ledger, COST, session=key(2).session) is None


def test_what_a_withdrawal_means_depends_on_how_the_study_is_computed() -> None:
    assert withdrawal_text(study()).endswith("without you they get no answer. Tell them.")
    assert "unless the study lets enough parties drop out" in withdrawal_text()
    assert "unless the study lets enough parties drop out" in withdrawal_text(study(tolerate=1, parties=FOUR))
