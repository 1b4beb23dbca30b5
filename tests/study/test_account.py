"""A party's session in its ledger: what a mended file changes, and what nothing in the data changes any more."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from tpmdp import InputError, Ledger, Study
from tpmdp.data.table import Table
from tpmdp.ledger import LedgerError
from tpmdp.study.contribution import Contribution, contribute
from tpmdp.study.join import join
from tpmdp.study.session import SessionAccount, party_release

KEYS = [Ed25519PrivateKey.from_private_bytes(bytes([place]) * 32) for place in (1, 2)]
OLD = {"age": np.array([70.0, 80, 90, 20])}
NEW = {"age": np.array([70.0, 20, 20, 20])}


def study(**changes: Any) -> Study:
    document = {
        "name": "test",
        "threshold": 1,
        "receivers": ["lab"],
        "delta": 1e-6,
        "parties": [{"name": "north", "epsilon": 1.0, "records": 4}, {"name": "lab", "epsilon": 2.0, "records": 4}],
        "queries": [{"name": "old", "kind": "count", "column": "age", "at_least": 65}],
        **changes,
    }
    made = Study.parse(document)
    return made.with_keys(
        dict(zip(("north", "lab"), (key.public_key().public_bytes_raw() for key in KEYS), strict=True))
    )


def contribution(table: Table, made: Study | None = None) -> Contribution:
    made = made or study()
    return contribute(made, made.terms(), "north", table)


def account(ledger: Ledger, made: Study | None = None, identity: Ed25519PrivateKey = KEYS[0]) -> SessionAccount:
    made = made or study()
    return SessionAccount(made, made.terms(), "north", identity=identity, ledger=ledger)


@pytest.fixture
def ledger(tmp_path: Path) -> Iterator[Ledger]:
    with Ledger.create(tmp_path / "north.ledger", "north", 10.0, 1e-6) as made:
        yield made


def test_mended_data_replace_the_statistic_until_the_agreement_leaves(ledger: Ledger) -> None:
    wrong, right = contribution(OLD), contribution(NEW)
    assert account(ledger).hold(wrong) is wrong
    assert account(ledger).stored_contribution() is None  # the file is read again
    assert account(ledger).hold(right) is right
    assert not account(ledger).has_agreed
    account(ledger).agree()
    stored = account(ledger).stored_contribution()
    assert stored is not None
    assert stored.encoded.tolist() == right.encoded.tolist() != wrong.encoded.tolist()
    assert account(ledger).hold(wrong).encoded.tolist() == right.encoded.tolist()
    assert ledger.spent().sessions == 0


def test_after_the_agreement_the_data_are_not_read_again(ledger: Ledger) -> None:
    """Not even opened: a file that is gone or damaged by then stops nobody."""

    def gone() -> Table:
        raise FileNotFoundError

    with pytest.raises(FileNotFoundError):
        join(study(), "north", KEYS[0], gone, ledger, None)
    account(ledger).hold(contribution(OLD))
    with pytest.raises(FileNotFoundError):
        join(study(), "north", KEYS[0], gone, ledger, None)
    account(ledger).agree()
    for _ in range(2):
        with pytest.raises(InputError, match=r"relay = .none. is missing"):  # it came past the data
            join(study(), "north", KEYS[0], gone, ledger, None)
        stored = account(ledger).stored_contribution()
        assert stored is not None
        account(ledger).charge(stored)


def test_a_process_that_read_other_data_before_the_agreement_submits_what_was_agreed(ledger: Ledger) -> None:
    first, second = account(ledger), account(ledger)
    first.hold(contribution(OLD))
    late = contribution(NEW)  # read meanwhile, by the second
    first.agree()
    agreed = second.hold(late)
    assert agreed.encoded.tolist() == contribution(OLD).encoded.tolist()
    assert second.charge(agreed).tolist() == first.charge(contribution(OLD)).tolist()
    assert ledger.spent().sessions == 1


def test_a_mended_study_is_another_entry_until_one_is_charged(ledger: Ledger) -> None:
    typo = study(queries=[{"name": "old", "kind": "count", "column": "age", "at_least": 66}])
    account(ledger, typo).hold(contribution(OLD, typo))
    account(ledger, typo).agree()
    assert not account(ledger).has_agreed
    account(ledger).hold(contribution(OLD))
    account(ledger).agree()
    assert ledger.spent().sessions == 0
    account(ledger).charge(contribution(OLD))
    with pytest.raises(LedgerError, match="was charged with another plan or query: set another number"):
        account(ledger, typo).charge(contribution(OLD, typo))
    assert ledger.spent().sessions == 1
    ledger.verify()


def test_a_cancelled_session_agrees_to_nothing_and_is_not_charged(ledger: Ledger) -> None:
    account(ledger).hold(contribution(OLD))
    ledger.cancel(account(ledger).key)
    for step in (account(ledger).agree, lambda: account(ledger).charge(contribution(OLD))):
        with pytest.raises(LedgerError, match=r"is finished|was cancelled"):
            step()
    with pytest.raises(LedgerError, match="was cancelled"):
        account(ledger).hold(contribution(OLD))


def test_the_statistic_is_sealed_with_a_key_of_the_identity(ledger: Ledger) -> None:
    held = contribution(OLD)
    account(ledger).hold(held)
    account(ledger).agree()
    assert held.encoded.astype("<i8").tobytes() not in ledger.path.read_bytes()
    with pytest.raises(LedgerError, match="has a statistic that this key does not open"):
        account(ledger, identity=KEYS[1]).stored_contribution()


def test_from_a_settled_ledger_no_value_is_found_by_trying(ledger: Ledger) -> None:
    """The hash of the data is keyed by the identity; every key that lies in the ledger is tried."""
    account(ledger).hold(contribution(OLD))
    account(ledger).agree()
    account(ledger).charge(contribution(OLD))
    account(ledger).settle(party_release(contribution(OLD), None, sent=9))
    stored = account(ledger).stored()
    assert set(stored) == {"plan", "data", "told"}
    step = int(contribution(OLD).encoded[0]) // 3
    assert step
    keys = [value for value in (*stored.values(), *account(ledger).key, b"") if len(value) <= 64]
    for count in range(5):
        for key in keys:
            tried = np.array([count * step], dtype="<i8").tobytes()
            assert hashlib.blake2b(tried, key=key, digest_size=32).digest() != stored["data"]
    with pytest.raises(InputError, match="was begun with other data"):  # and it still serves its purpose
        account(ledger).check_same(contribution(NEW), stored)
    account(ledger).check_same(contribution(OLD), stored)
