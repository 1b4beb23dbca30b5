"""All parties of a study in this process: `tpmdp.run`."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from tpmdp.data.frame import Records
from tpmdp.engines.contract import Engine, Outcome
from tpmdp.engines.memory import MemoryEngine
from tpmdp.engines.mpyc.engine import MpycEngine
from tpmdp.errors import InputError, NoNoiseWarning
from tpmdp.ledger import Ledger
from tpmdp.protocol.masks import Mask, from_words
from tpmdp.queries.computation import SharedFunction
from tpmdp.study.contribution import Contribution, contribute
from tpmdp.study.model import Study
from tpmdp.study.release import Release
from tpmdp.study.session import SessionAccount, check_room, draw_vector, party_release


def run(
    study: Study,
    tables: Mapping[str, Records],
    ledgers: Mapping[str, Ledger] | None = None,
    engine: Engine | None = None,
) -> Release:
    """Run a whole study in this process: for trying things out, and where one machine holds all the data.

    `tables` holds each party's records: columns by name, a pandas, Polars or Arrow table, or the path of a file. The
    keys are new ones. With `ledgers` every party is charged.

    >>> import numpy as np
    >>> parties = [{"name": "bank", "epsilon": 1, "records": 2}, {"name": "lab", "epsilon": 2, "records": 1}]
    >>> query = {"name": "old", "kind": "count", "column": "age", "at_least": 65}
    >>> study = Study.parse({"name": "demo", "delta": 1e-6, "threshold": 1, "receivers": ["bank"],
    ...                      "parties": parties, "queries": [query]})
    >>> release = run(study, {"bank": {"age": np.array([70.0, 20.0])}, "lab": {"age": np.array([66.0])}})
    >>> release.answers[0].query, release.parties["lab"].answers
    ('old', None)
    """
    study.check_custom()
    names = [party.name for party in study.parties]
    for party in study.parties:
        if party.records and party.name not in tables:
            rule = f"has no data of {party.name}"
            raise InputError("tables", ", ".join(tables), rule, "give columns for every party")
    identities = {name: Ed25519PrivateKey.generate() for name in names}
    keyed = study.with_keys({name: key.public_key().public_bytes_raw() for name, key in identities.items()})
    terms = keyed.terms()
    if not terms.sigma.any() and (terms.spec.sensitivity > 0).any():
        warnings.warn("the plan adds no noise: receivers learn the exact answer", NoNoiseWarning, stacklevel=2)
    if ledgers is not None:
        for index, name in enumerate(names):
            check_room(study, terms, index, ledger=ledgers[name])
    contributions = [contribute(keyed, terms, name, table=tables.get(name, {})) for name in names]
    accounts = {
        name: SessionAccount(keyed, terms, name, identity=identities[name], ledger=ledger)
        for name, ledger in (ledgers or {}).items()
    }
    vectors = [
        accounts[contribution.party].charge(contribution) if accounts else draw_vector(contribution)
        for contribution in contributions
    ]
    outcome = _compute(contributions, vectors, list(identities.values()), engine=engine)
    releases = {}
    for contribution in contributions:
        index, name = contribution.index, contribution.party
        if index in outcome.missing:
            continue  # charged, if it got that far, and without a release
        releases[name] = party_release(
            contribution,
            outcome.sums.get(index),
            sent=outcome.bytes_sent[index],
            guarantee=outcome.guarantee,
            missing=outcome.missing,
        )
        if accounts:
            releases[name] = accounts[name].settle(releases[name])
    return Release(releases, study)


def _compute(
    contributions: Sequence[Contribution],
    vectors: Sequence[Mask],
    identities: Sequence[Ed25519PrivateKey],
    engine: Engine | None,
) -> Outcome:
    study, terms = contributions[0].study, contributions[0].terms
    seconds = max(1.0, study.seconds_left())
    computation = study.computation
    if not isinstance(computation, SharedFunction):
        return (engine or MemoryEngine()).run(terms, identities, vectors, deadline_s=seconds)
    if engine is not None:
        rule = "computes sums only, and this query is not additive"
        raise InputError("engine", engine.name, rule, "leave it out: mpyc is used")
    query = computation.query
    on_shares = MpycEngine(query.function, query.parameters(study.party_records, terms.grid))
    values = [contribution.encoded for contribution in contributions]
    noises = [from_words(vector, terms.grid.word) for vector in vectors]
    return on_shares.run_function(terms, identities, values, noises=noises, deadline_s=seconds)
