"""One party's side of a session: reserve the charge, then settle.

The charge is durable, together with the noisy vector, before the first message leaves. A party that resumes a session
finds that vector in its ledger and sends it again; nobody draws noise twice for one session.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Final

import numpy as np

from tpmdp._util.arrays import IntArray
from tpmdp.engines.contract import guarantee_text
from tpmdp.engines.relay.wire import join_frames
from tpmdp.errors import FileError, InputError
from tpmdp.ledger import Charge, Ledger, LedgerError, promise, square_up
from tpmdp.noise.discrete_gaussian import discrete_gaussian
from tpmdp.noise.source import NoiseSource, system_source, unexpanded_source
from tpmdp.protocol.masks import Mask, to_words, word_type
from tpmdp.protocol.party import ProtocolError
from tpmdp.protocol.terms import Terms
from tpmdp.study.answers import answers
from tpmdp.study.contribution import Contribution
from tpmdp.study.model import Study
from tpmdp.study.release import PartyRelease

SALT_BYTES: Final = 32
RELEASE: Final = "told"  # under this name the ledger stores the release of a settled session
_STORED: Final[tuple[str, ...]] = ("plan", "salt", "data")  # of a settled session, to recognise it


def charge_of(terms: Terms, index: int) -> Charge:
    """What the session costs the party: the protection it really has, not the budget it offered."""
    mu, closeness = terms.charge(index)
    return Charge(mu, closeness, float(terms.spec.epsilon[index]), delta=float(terms.spec.delta[index]))


def noise_source(terms: Terms) -> NoiseSource:
    """Secure random bits of the kind the guarantee needs."""
    return unexpanded_source() if terms.guarantee == "statistical" else system_source()


def noisy_vector(terms: Terms, index: int, encoded: IntArray, source: NoiseSource) -> Mask:
    """The party's vector on the grid with its share of noise; refuses a seeded source.

    >>> from tpmdp import Spec
    >>> from tpmdp.noise.source import seeded_source
    >>> from tpmdp.planning.grid_plan import plan_on_grid
    >>> plan = plan_on_grid(Spec(epsilon=[1.0, 2.0], delta=1e-6, threshold=1), bound=1.0)
    >>> terms = Terms.of("demo", plan, 1.0, roster=(bytes(32), bytes(31) + b"1"))
    >>> noisy_vector(terms, 0, np.array([0]), source=seeded_source(1))
    Traceback (most recent call last):
        ...
    tpmdp.errors.InputError: noise source = seeded must be secure for a release: use system_source()
    """
    if not source.secure:
        raise InputError("noise source", "seeded", "must be secure for a release", "use system_source()")
    noise = discrete_gaussian(int(terms.sigma[index]), terms.grid.dimension, source)
    return to_words(encoded + noise, terms.grid.word)


def draw_vector(contribution: Contribution) -> Mask:
    """The party's noisy vector, with fresh noise."""
    terms = contribution.terms
    return noisy_vector(terms, contribution.index, contribution.under_noise, source=noise_source(terms))


def _fingerprint(salt: bytes, encoded: IntArray) -> bytes:
    """Shows whether data have changed; salted, and stored where only the party can read it."""
    return hashlib.blake2b(encoded.astype("<i8").tobytes(), key=salt, digest_size=32).digest()


def check_same(contribution: Contribution, stored: Mapping[str, bytes]) -> None:
    """Refuse to resume a session with another plan or other data: that is a new session with a new charge."""
    study = contribution.study
    remedy = f"set session = {study.session + 1} for a new session, which is charged anew"
    if stored["plan"] != contribution.terms.plan_hash:
        raise InputError("session", study.label, "was begun with another plan or query", remedy)
    if stored["data"] != _fingerprint(stored["salt"], contribution.encoded):
        raise InputError("session", study.label, "was begun with other data", remedy)


def check_room(study: Study, terms: Terms, index: int, ledger: Ledger) -> None:
    """Refuse what the party's ledger would refuse, before anybody is charged."""
    charge = charge_of(terms, index)
    if charge.mu == np.inf and ledger.spent().limit_epsilon != np.inf:
        rule = f"lets receivers learn the exact answer, which no finite limit of {terms.spec.name(index)} allows"
        remedy = "set it to 1 or more and give budgets, or a ledger without limit"
        raise InputError("threshold", terms.spec.threshold, rule, remedy)
    ledger.check_room(terms.session, study.label, charge)


def reserve(contribution: Contribution, ledger: Ledger) -> Mask:
    """Reserve the charge and fix the noisy vector, in one transaction; a resumed session gets the first vector."""
    study, terms, index = contribution.study, contribution.terms, contribution.index
    if ledger.status(terms.session) == "reserved":
        stored: Mapping[str, bytes] = ledger.private_state(terms.session)
    else:
        check_room(study, terms, index, ledger=ledger)
        salt = os.urandom(SALT_BYTES)
        private = {
            "plan": terms.plan_hash,
            "salt": salt,
            "data": _fingerprint(salt, contribution.encoded),
            "vector": draw_vector(contribution).tobytes(),
        }
        charge = charge_of(terms, index)
        stored = ledger.reserve(terms.session, study.label, charge, unit=study.unit, private=private).private
    if "vector" not in stored:  # another process of this party has just settled it
        raise LedgerError(f"session {terms.session.hex()[:16]}", "is finished", "start a new session")
    check_same(contribution, stored)
    return np.frombuffer(stored["vector"], dtype=word_type(terms.grid.word))


def party_release(
    contribution: Contribution,
    result: IntArray | None,
    *,
    sent: int,
    attempt: int = 1,
    guarantee: str | None = None,
    missing: Collection[int] = (),
) -> PartyRelease:
    """What the party learns and pays; `result` is the sum in grid steps, or None for a receipt."""
    study, terms, index = contribution.study, contribution.terms, contribution.index
    if result is None and contribution.is_receiver:
        raise ProtocolError(f"{contribution.party} is a receiver and got no answer: run the same command again")
    names = tuple(terms.spec.name(party) for party in sorted(missing))
    delta = float(terms.spec.delta[index])
    mu, closeness = terms.charge(index)
    return PartyRelease(
        party=contribution.party,
        answers=None if result is None else tuple(answers(study, terms, result, missing=names)),
        guarantee=guarantee_text(terms) if guarantee is None else guarantee,
        epsilon=promise(square_up(mu), closeness, delta),
        delta=delta,
        spent=None,
        left=None,
        bytes_sent=sent,
        attempt=attempt,
        assumes=study.assumes,
        missing=names,
    )


def settle(
    contribution: Contribution, release: PartyRelease, ledger: Ledger, outbox: Sequence[bytes] = ()
) -> PartyRelease:
    """Note the end of a session in the ledger, with what a later call needs to repeat it, and erase the noise."""
    session = contribution.terms.session
    stored = ledger.private_state(session)
    if ledger.status(session) != "settled":  # otherwise another process of this party was faster
        private = {name: stored[name] for name in _STORED}
        private[RELEASE] = json.dumps(release.plain()).encode()
        if outbox:
            private["outbox"] = join_frames(outbox)
        ledger.settle(session, "receipt" if release.answers is None else "answer", private)
    return release.with_ledger(ledger)


def open_or_create_ledger(path: Path, study: Study, name: str) -> Ledger:
    """The party's ledger; a new one is limited to the budget the party has in this study."""
    if not path.exists():
        party = study.party(name)
        try:
            return Ledger.create(path, name, party.epsilon, delta=party.delta, unit=study.unit)
        except FileError:
            if not path.exists():  # otherwise another process of the party was faster
                raise
    ledger = Ledger.open(path)
    if ledger.party != name:
        owner = ledger.party
        ledger.close()
        raise InputError("ledger", str(path), f"belongs to {owner}, not {name}", "give the party's own ledger")
    return ledger
