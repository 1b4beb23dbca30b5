"""All parties of a study in this process: `tpmdp.run`."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from tpmdp.data.frame import Records
from tpmdp.engines.contract import Engine, Outcome
from tpmdp.engines.direct.engine import DirectEngine
from tpmdp.engines.memory import MemoryEngine
from tpmdp.errors import InputError, NoNoiseWarning, TpmdpError
from tpmdp.ledger import Ledger
from tpmdp.protocol.masks import Mask, from_words
from tpmdp.protocol.terms import Terms
from tpmdp.queries.computation import SharedFunction
from tpmdp.study.contribution import Contribution, contribute
from tpmdp.study.cost import joint_epsilon
from tpmdp.study.model import Study
from tpmdp.study.release import PartyRelease, Release
from tpmdp.study.round_account import RoundAccount, account_of
from tpmdp.study.session import SessionAccount, check_room, draw_vector, key_of, party_release
from tpmdp.study.shared_job import check_installed, shared_job


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
    check_installed(study)
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
            check_room(keyed.first, terms, index, ledger=ledgers[name])
    run_all = _Run(study, keyed, identities, ledgers=ledgers or {}, engine=engine)
    return run_all.by_rounds(terms, tables) if keyed.rounds > 1 else run_all.once(terms, tables)


@dataclass(frozen=True)
class _Run:
    """All parties of a study, with keys for this run."""

    study: Study
    keyed: Study
    identities: Mapping[str, Ed25519PrivateKey]
    ledgers: Mapping[str, Ledger]
    engine: Engine | None

    def once(self, terms: Terms, tables: Mapping[str, Records]) -> Release:
        """A study of one session."""
        contributions = [contribute(self.keyed, terms, name, table=tables.get(name, {})) for name in self.identities]
        return Release(self._session(contributions), self.study)

    def by_rounds(self, terms: Terms, tables: Mapping[str, Records]) -> Release:
        """A study by rounds: the records are read once, and room is set aside for all rounds before the first."""
        now = [contribute(self.keyed, terms, name, table=tables.get(name, {})) for name in self.identities]
        columns = {each.party: each.columns or {} for each in now}
        accounts = self._accounts(now[0].study, terms)
        done: list[dict[str, PartyRelease]] = []
        signed, problem = [terms], ""
        try:
            for contribution in now:
                if accounts:
                    accounts[contribution.party].hold(replace(contribution, columns=None))
            done.append(self._session(now))
            while len(done) < self.keyed.rounds and not problem:
                points = next(iter(done[-1].values())).points
                part = self.keyed.round(len(done) + 1, points)
                signed.append(part.terms())
                try:
                    now = [contribute(part, signed[-1], name, table=columns[name]) for name in self.identities]
                    done.append(self._session(now))
                except TpmdpError as error:
                    problem = f"stopped after round {len(done)} of {self.keyed.rounds}: {error}"
        finally:
            for account in accounts.values():
                assert isinstance(account, RoundAccount)
                account.give_up()
        releases = {}
        for index, name in enumerate(self.identities):
            each = [releases_of_round[name] for releases_of_round in done]
            epsilon = joint_epsilon(self.keyed, index, [each for each in signed if self._is_charged(name, each)])
            releases[name] = PartyRelease.of_rounds(each, self.keyed, epsilon=epsilon, note=problem)
        return Release(releases, self.study)

    def _is_charged(self, party: str, terms: Terms) -> bool:
        """Whether the party has paid for this session, or might have sent something, where it has no ledger."""
        return not self.ledgers or self.ledgers[party].status(key_of(terms)) in ("charged", "settled")

    def _accounts(self, study: Study, terms: Terms) -> dict[str, SessionAccount]:
        return {
            name: account_of(study, terms, name, identity=self.identities[name], ledger=ledger)
            for name, ledger in self.ledgers.items()
        }

    def _session(self, contributions: Sequence[Contribution]) -> dict[str, PartyRelease]:
        """One session: charge, compute, settle."""
        accounts = self._accounts(contributions[0].study, contributions[0].terms)
        vectors = [
            accounts[contribution.party].charge(contribution) if accounts else draw_vector(contribution)
            for contribution in contributions
        ]
        outcome = _compute(contributions, vectors, list(self.identities.values()), engine=self.engine)
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
        return releases


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
        return (engine or MemoryEngine()).run(
            terms,
            identities,
            vectors,
            deadline_s=seconds,
            **({"plain": [contribution.under_noise for contribution in contributions]} if terms.tolerate else {}),
        )
    if engine is not None:
        rule = "computes sums only, and this query is not additive"
        raise InputError("engine", engine.name, rule, "leave it out: the study says which is used")
    job = shared_job(study, terms)
    on_shares = DirectEngine(job.engine, job.function, job.parameters)
    values = [contribution.encoded for contribution in contributions]
    noises = [from_words(vector, terms.grid.word) for vector in vectors]
    return on_shares.run_function(terms, identities, values, noises=noises, deadline_s=seconds)
