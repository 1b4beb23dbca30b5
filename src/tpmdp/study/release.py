"""The only orchestrator: reserve, run, settle. Here for all parties in one process; `participation` is one among many.

The charge is durable, together with the noisy vector, before the first message leaves. Whoever resumes a session finds
that vector in the ledger and sends it again; nobody draws noise twice for one session.
"""

from __future__ import annotations

import hashlib
import json
import os
import warnings
from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

import numpy as np
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from tpmdp._util.arrays import IntArray
from tpmdp.data.table import Table
from tpmdp.engines.contract import Engine, Outcome, guarantee_text
from tpmdp.engines.memory import MemoryEngine
from tpmdp.engines.mpyc.engine import MpycEngine
from tpmdp.engines.relay.wire import join_frames
from tpmdp.errors import FileError, InputError, NoNoiseWarning
from tpmdp.ledger import Charge, Ledger, LedgerError, promise, square_up
from tpmdp.noise.discrete_gaussian import discrete_gaussian
from tpmdp.noise.source import NoiseSource, system_source, unexpanded_source
from tpmdp.protocol.masks import Mask, from_words, to_words, word_type
from tpmdp.protocol.party import ProtocolError, check_identity
from tpmdp.protocol.terms import Terms
from tpmdp.queries.base import Answer
from tpmdp.study.model import Study

SALT_BYTES: Final = 32
_KEPT: Final[tuple[str, ...]] = ("plan", "salt", "data")  # of a settled session, to know it again


@dataclass(frozen=True)
class PartyRelease:
    """What a session gave one party, what it cost it, and which guarantee it carries.

    `answers` is None for a party that is no receiver: it has a receipt. `epsilon` is the real cost at the party's
    delta; `spent` and `left` are its ledger's (None without one).
    """

    party: str
    answers: tuple[Answer, ...] | None
    guarantee: str
    epsilon: float
    delta: float
    spent: float | None
    left: float | None
    bytes_sent: int
    attempt: int
    again: bool = False  # the session was finished before; nothing new was sent or charged
    note: str = ""  # what the party should still do, if anything
    assumes: str = ""  # what the answers rest on besides, with weights
    missing: tuple[str, ...] = ()  # parties that dropped out: their data are not in the answers


@dataclass(frozen=True)
class Release:
    """What a session gave all parties that did not drop out, by name."""

    parties: Mapping[str, PartyRelease]

    @property
    def answers(self) -> tuple[Answer, ...]:
        """The answers; every receiver has the same."""
        return next(one.answers for one in self.parties.values() if one.answers is not None)


@dataclass(frozen=True, eq=False, repr=False)
class Prepared:
    """A party ready to run: charged, with its noisy vector on the disk.

    For a query that is no sum the vector is the noise alone, and `values` what the party puts into the computation.
    """

    terms: Terms
    index: int
    vector: Mask
    values: IntArray


def charge_of(terms: Terms, index: int) -> Charge:
    """What the session costs the party: the protection it really has, not the budget it offered."""
    mu, closeness = terms.charge(index)
    return Charge(mu, closeness, float(terms.spec.epsilon[index]), float(terms.spec.delta[index]))


def noise_source(terms: Terms) -> NoiseSource:
    """Secure random bits of the kind the guarantee needs."""
    return unexpanded_source() if terms.guarantee == "statistical" else system_source()


def noisy_vector(terms: Terms, index: int, encoded: IntArray, source: NoiseSource) -> Mask:
    """The party's vector on the grid with its share of noise; refuses a seeded source.

    >>> from tpmdp import Spec
    >>> from tpmdp.noise.source import seeded_source
    >>> from tpmdp.planning.grid_plan import plan_on_grid
    >>> made = plan_on_grid(Spec(epsilon=[1.0, 2.0], delta=1e-6, threshold=1), bound=1.0)
    >>> terms = Terms.of("demo", made, 1.0, (bytes(32), bytes(31) + b"1"))
    >>> noisy_vector(terms, 0, np.array([0]), seeded_source(1))
    Traceback (most recent call last):
        ...
    tpmdp.errors.InputError: noise source = seeded must be secure for a release: use system_source()
    """
    if not source.secure:
        raise InputError("noise source", "seeded", "must be secure for a release", "use system_source()")
    noise = discrete_gaussian(int(terms.sigma[index]), terms.grid.dimension, source)
    return to_words(encoded + noise, terms.grid.word)


def _fingerprint(salt: bytes, encoded: IntArray) -> bytes:
    """Tells changed data from the same; salted, and kept where only the party can read it."""
    return hashlib.blake2b(encoded.astype("<i8").tobytes(), key=salt, digest_size=32).digest()


def check_same(study: Study, terms: Terms, encoded: IntArray, kept: Mapping[str, bytes]) -> None:
    """A session goes on only with the same plan and data: anything else is a new session with a new charge."""
    remedy = f"set session = {study.session + 1} for a new session, which is charged anew"
    if kept["plan"] != terms.plan_hash:
        raise InputError("session", study.label, "was begun with another plan or query", remedy)
    if kept["data"] != _fingerprint(kept["salt"], encoded):
        raise InputError("session", study.label, "was begun with other data", remedy)


def check_room(study: Study, terms: Terms, index: int, ledger: Ledger) -> None:
    """Refuse what the party's ledger would refuse, before anybody is charged."""
    charge = charge_of(terms, index)
    if charge.mu == np.inf and ledger.spent().limit_epsilon != np.inf:
        rule = f"lets receivers learn the exact answer, which no finite limit of {terms.spec.name(index)} allows"
        remedy = "set it to 1 or more and give budgets, or a ledger without limit"
        raise InputError("threshold", terms.spec.threshold, rule, remedy)
    ledger.check_room(terms.session, study.label, charge)


def prepare(study: Study, terms: Terms, name: str, table: Table, ledger: Ledger) -> Prepared:
    """Reserve the charge and fix the noise, in one transaction; a resumed session gets what was fixed first."""
    index = study.index(name)
    study.check_terms(terms)
    terms.check(index)
    encoded = encode(study, terms, name, table)
    if ledger.status(terms.session) == "reserved":
        kept: Mapping[str, bytes] = ledger.kept(terms.session)
    else:
        check_room(study, terms, index, ledger)
        salt = os.urandom(SALT_BYTES)
        private = {
            "plan": terms.plan_hash,
            "salt": salt,
            "data": _fingerprint(salt, encoded),
            "vector": noisy_vector(terms, index, _inside(study, terms, encoded), noise_source(terms)).tobytes(),
        }
        kept = ledger.reserve(terms.session, study.label, charge_of(terms, index), study.unit, private).private
    if "vector" not in kept:  # another process of this party has just settled it
        raise LedgerError(f"session {terms.session.hex()[:16]}", "is finished", "start a new session")
    check_same(study, terms, encoded, kept)
    vector = np.frombuffer(kept["vector"], dtype=word_type(terms.grid.word))
    return Prepared(terms, index, vector, encoded)


def _inside(study: Study, terms: Terms, encoded: IntArray) -> IntArray:
    """What of the party's data is added to its noise: all of it for sums, nothing where shares are computed on."""
    return encoded if study.joint is None else np.zeros(terms.grid.dimension, dtype=np.int64)


def encode(study: Study, terms: Terms, name: str, table: Table) -> IntArray:
    """The party's statistic on the grid of the session, or what it puts into a computation on shares."""
    index = study.index(name)
    if study.joint is not None:
        return study.joint.encode(name, study.checked_table(name, table), terms.grid)
    return terms.grid.encode(study.statistic(name, table), float(terms.bounds[index]))


def check_ready(
    study: Study, name: str, identity: Ed25519PrivateKey, table: Table, given: Terms | None = None
) -> Terms:
    """The terms, if this party may sign them and has fitting key and data; nothing is charged or written.

    `given` terms may come from anybody: they must be about this study, and keep this party's budget.
    """
    study.check_own()
    terms = study.terms() if given is None else given
    study.check_terms(terms)
    index = study.index(name)
    check_identity(terms, index, identity)
    terms.check(index)
    encode(study, terms, name, table)
    return terms


def settle(
    study: Study,
    terms: Terms,
    index: int,
    result: IntArray | None,
    attempt: int,
    sent: int,
    ledger: Ledger,
    outbox: list[bytes],
    guarantee: str | None = None,
    missing: Collection[int] = (),
) -> PartyRelease:
    """Note the end of a session in the ledger, with what a later call needs to tell it again; erase the noise."""
    if result is None and terms.spec.receivers[index]:
        raise ProtocolError(f"{terms.spec.name(index)} is a receiver and got no answer: run the same command again")
    names = tuple(terms.spec.name(party) for party in sorted(missing))
    answers = None if result is None else tuple(study.answers(terms, result, names))
    told = _party_release(study, terms, index, answers, attempt, sent, guarantee, names)
    kept = ledger.kept(terms.session)
    if ledger.status(terms.session) == "settled":  # another process of this party was faster
        return with_ledger(told, ledger)
    keep = {name: kept[name] for name in _KEPT}
    keep["told"] = json.dumps(plain_release(told)).encode()
    if outbox:
        keep["outbox"] = join_frames(outbox)
    ledger.settle(terms.session, "receipt" if answers is None else "answer", keep)
    return with_ledger(told, ledger)


def _party_release(
    study: Study,
    terms: Terms,
    index: int,
    answers: tuple[Answer, ...] | None,
    attempt: int,
    sent: int,
    guarantee: str | None = None,
    missing: tuple[str, ...] = (),
) -> PartyRelease:
    delta = float(terms.spec.delta[index])
    mu, closeness = terms.charge(index)
    epsilon = promise(square_up(mu), closeness, delta)
    name = terms.spec.name(index)
    text = guarantee_text(terms) if guarantee is None else guarantee
    told = PartyRelease(name, answers, text, epsilon, delta, None, None, sent, attempt, missing=missing)
    return replace(told, assumes=study.assumes)


def plain_release(told: PartyRelease) -> dict[str, Any]:
    """As values for JSON; infinite numbers as text."""
    fields = dict(vars(told))
    for key in ("epsilon", "delta", "spent", "left"):
        fields[key] = str(fields[key]) if fields[key] == np.inf else fields[key]
    fields["answers"] = None if told.answers is None else [answer.plain() for answer in told.answers]
    return fields


def release_of_plain(told: Mapping[str, Any]) -> PartyRelease:
    """From what `plain_release` gave."""
    fields = dict(told)
    for key in ("epsilon", "delta", "spent", "left"):
        fields[key] = None if told[key] is None else float(told[key])
    if told["answers"] is not None:
        fields["answers"] = tuple(Answer.of_plain(answer) for answer in told["answers"])
    fields["missing"] = tuple(told.get("missing", ()))
    return PartyRelease(**fields)


def with_ledger(told: PartyRelease, ledger: Ledger, again: bool = False) -> PartyRelease:
    """The same with what the ledger says now."""
    spent = ledger.spent()
    fields = {**vars(told), "spent": spent.epsilon, "left": spent.left, "again": again}
    return PartyRelease(**fields)


def run(
    study: Study,
    tables: Mapping[str, Table],
    ledgers: Mapping[str, Ledger] | None = None,
    engine: Engine | None = None,
) -> Release:
    """Run a whole study in this process: for trying things out, and where one machine holds all the data.

    `tables` are columns by party. Keys are made for the occasion. With `ledgers` every party is charged.

    >>> parties = [{"name": "bank", "epsilon": 1, "records": 2}, {"name": "lab", "epsilon": 2, "records": 1}]
    >>> query = {"name": "old", "kind": "count", "column": "age", "at_least": 65}
    >>> study = Study.parse({"name": "demo", "delta": 1e-6, "threshold": 1, "receivers": ["bank"],
    ...                      "parties": parties, "queries": [query]})
    >>> found = run(study, {"bank": {"age": np.array([70.0, 20.0])}, "lab": {"age": np.array([66.0])}})
    >>> found.answers[0].query, found.parties["lab"].answers
    ('old', None)
    """
    study.check_own()
    names = [member.name for member in study.members]
    for name in names:
        if name not in tables and study.members[study.index(name)].records:
            raise InputError("tables", ", ".join(tables), f"has no data of {name}", "give columns for every party")
    identities = [Ed25519PrivateKey.generate() for _ in names]
    keys = [identity.public_key().public_bytes_raw() for identity in identities]
    terms = study.with_keys(dict(zip(names, keys, strict=True))).terms()
    if not terms.sigma.any() and (terms.spec.sensitivity > 0).any():
        warnings.warn("the plan adds no noise: receivers learn the exact answer", NoNoiseWarning, stacklevel=2)
    if ledgers is not None:
        for index, name in enumerate(names):
            check_room(study, terms, index, ledgers[name])
    ready = []
    for index, name in enumerate(names):
        table = tables.get(name, {})
        if ledgers is not None:
            ready.append(prepare(study, terms, name, table, ledgers[name]))
        else:
            encoded = encode(study, terms, name, table)
            vector = noisy_vector(terms, index, _inside(study, terms, encoded), noise_source(terms))
            ready.append(Prepared(terms, index, vector, encoded))
    outcome = _carry_through(study, terms, identities, ready, engine)
    found = {}
    missing = tuple(names[index] for index in sorted(outcome.missing))
    for index, name in enumerate(names):
        if index in outcome.missing:
            continue  # charged, if it got so far, and without an outcome
        result, sent = outcome.sums.get(index), outcome.bytes_sent[index]
        if ledgers is not None:
            one = settle(study, terms, index, result, 1, sent, ledgers[name], [], missing=outcome.missing)
        else:
            answers = None if result is None else tuple(study.answers(terms, result, missing))
            one = _party_release(study, terms, index, answers, 1, sent, None, missing)
        found[name] = PartyRelease(**{**vars(one), "guarantee": outcome.guarantee})
    return Release(found)


def _carry_through(
    study: Study, terms: Terms, identities: list[Ed25519PrivateKey], ready: list[Prepared], engine: Engine | None
) -> Outcome:
    left = max(1.0, study.seconds_left())
    joint = study.joint
    if joint is None:
        used: Engine = engine or MemoryEngine()
        return used.run(terms, identities, [one.vector for one in ready], left)
    if engine is not None:
        raise InputError("engine", engine.name, "adds up, and this query is no sum", "leave it out: mpyc is used")
    on_shares = MpycEngine(joint.function, joint.parameters(study.party_records, terms.grid))
    noises = [from_words(one.vector, terms.grid.word) for one in ready]
    return on_shares.run_function(terms, identities, [one.values for one in ready], noises, left)


def open_or_create_ledger(path: Path, study: Study, name: str) -> Ledger:
    """The party's ledger; a new one is limited to the budget the party has in this study."""
    if not path.exists():
        member = study.members[study.index(name)]
        try:
            return Ledger.create(path, name, member.epsilon, member.delta, study.unit)
        except FileError:
            if not path.exists():  # otherwise another process of the party was faster
                raise
    ledger = Ledger.open(path)
    if ledger.party != name:
        party = ledger.party
        ledger.close()
        raise InputError("--ledger", str(path), f"belongs to {party}, not {name}", "give the party's own ledger")
    return ledger
