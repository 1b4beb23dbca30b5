"""Finished sessions for tests: real ledgers, noise and answers, without a network."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from tpmdp import Ledger, Study
from tpmdp.protocol.masks import from_words
from tpmdp.study.contribution import contribute
from tpmdp.study.session import SessionAccount, party_release

TABLES = {
    "north": {"age": np.array([70.0, 20, 66, 41])},
    "south": {"age": np.array([65.0, 10, 99])},
    "lab": {"age": np.array([80.0, 64])},
}


def study(**changes: Any) -> Study:
    document = {
        "name": "test",
        "threshold": 1,
        "receivers": ["north", "lab"],
        "delta": 1e-6,
        "parties": [
            {"name": name, "epsilon": 1.0 + place, "records": len(table["age"])}
            for place, (name, table) in enumerate(TABLES.items())
        ],
        "queries": [{"name": "old", "kind": "count", "column": "age", "at_least": 65}],
        **changes,
    }
    return Study.parse(document)


@dataclass
class Finished:
    """A session that all parties have settled."""

    study: Study
    paths: dict[str, Path] = field(default_factory=dict)

    def ledger(self, name: str) -> Ledger:
        return Ledger.open(self.paths[name])


def finish(planned: Study, folder: Path, tables: Mapping[str, Any] = TABLES) -> Finished:
    identities = {party.name: Ed25519PrivateKey.generate() for party in planned.parties}
    keyed = planned.with_keys({name: key.public_key().public_bytes_raw() for name, key in identities.items()})
    terms = keyed.terms()
    done, accounts, total = Finished(keyed), [], None
    for name, identity in identities.items():
        done.paths[name] = folder / f"{name}.ledger"
        limit = float("inf") if planned.threshold == 0 else 10.0
        ledger = Ledger.create(done.paths[name], name, limit, 1e-6, unit=planned.unit)
        ledger.bind(identity.public_key().public_bytes_raw())
        contribution = contribute(keyed, terms, name, table=tables[name])
        account = SessionAccount(keyed, terms, name, identity=identity, ledger=ledger)
        vector = account.charge(account.hold(contribution))
        total = vector.copy() if total is None else total + vector
        accounts.append((account, contribution, ledger))
    assert total is not None
    steps = from_words(total, terms.grid.word)
    for account, contribution, ledger in accounts:
        account.settle(party_release(contribution, steps if contribution.is_receiver else None, sent=100))
        ledger.close()
    return done
