"""Secrets of attempts in the ledger: the same after a crash, and none for an attempt that was given up."""

from __future__ import annotations

from pathlib import Path

import pytest

from tpmdp.ledger import Charge, Ledger, LedgerError, SessionKey
from tpmdp.ledger.session_store import LedgerSecrets

SESSION = SessionKey(bytes(range(32)), bytes(32))


def begun(folder: Path) -> Ledger:
    ledger = Ledger.create(folder / "north.ledger", "north", 10.0, 1e-6)
    ledger.hold(SESSION, "study / session 1", Charge(0.1, 1e-50, 1.0, 1e-6), unit="record", private={"plan": b"x"})
    return ledger


def test_two_processes_of_a_party_have_the_same_key_and_pads(tmp_path: Path) -> None:
    with begun(tmp_path) as ledger, Ledger.open(tmp_path / "north.ledger") as twin:
        one, two = LedgerSecrets(ledger, SESSION), LedgerSecrets(twin, SESSION)
        assert one.key(1) == two.key(1)
        assert one.pad(1, 2, 100) == two.pad(1, 2, 100)
        assert one.key(1) != one.key(2)
        assert "secret" not in repr(one).lower().replace("ledgersecrets", "")


def test_a_process_that_lags_behind_draws_no_pad_for_a_given_up_attempt(tmp_path: Path) -> None:
    """A second pad for one attempt would let the difference of two submissions show."""
    with begun(tmp_path) as ledger, Ledger.open(tmp_path / "north.ledger") as twin:
        ahead, behind = LedgerSecrets(ledger, SESSION), LedgerSecrets(twin, SESSION)
        ahead.key(1)
        ahead.pad(1, 2, 100)
        ahead.note_failure(1)
        assert behind.failed_attempt() == 1
        ahead.key(2)
        ahead.forget_before(2)
        with pytest.raises(LedgerError, match="later attempt"):
            behind.pad(1, 2, 100)
        assert len(behind.pad(2, 2, 100)) == 100
