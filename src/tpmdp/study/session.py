"""One party's side of a session: hold room in its ledger, agree, charge, settle.

The charge is durable, together with the noisy vector, before the first byte leaves that depends on data. A party that
resumes a session finds that vector in its ledger and sends it again; nobody draws noise twice for one session.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from tpmdp._util.arrays import IntArray
from tpmdp.engines.contract import guarantee_text
from tpmdp.engines.relay.wire import join_frames
from tpmdp.errors import FileError, InputError, shown
from tpmdp.ledger import Charge, Ledger, LedgerError, OverspendError, SessionKey, Stored
from tpmdp.protocol.masks import Mask, word_type
from tpmdp.protocol.party import ProtocolError
from tpmdp.protocol.terms import Terms
from tpmdp.protocol.vectors import noise_source, noisy_vector
from tpmdp.queries.base import Unit
from tpmdp.study.answers import answers, points_after
from tpmdp.study.contribution import Contribution
from tpmdp.study.cost import all_terms, charge_among, charge_of, joint_charge, joint_epsilon, top_up
from tpmdp.study.model import Study
from tpmdp.study.release import PartyRelease

RELEASE: Final = "told"  # under this name the ledger stores the release of a settled session
_AGREED: Final = "agreed"  # stored before the party's agreement leaves
FEWER: Final = ", with fewer parties"  # in the label of what is charged later
STATISTIC: Final = "statistic"
_DATA: Final = "data"
_KEPT: Final[tuple[str, ...]] = ("plan", _DATA)  # of a settled session, to recognise it
_NONCE_BYTES: Final = 12


def draw_vector(contribution: Contribution) -> Mask:
    """The party's noisy vector among all, with fresh noise."""
    terms = contribution.terms
    return noisy_vector(terms, contribution.index, contribution.under_noise, source=noise_source(terms))


class StatisticSeal:
    """Seals what a party contributes, before noise, for its own disk: with a key of its identity."""

    def __init__(self, identity: Ed25519PrivateKey, key: SessionKey) -> None:
        derived = HKDF(hashes.SHA256(), 64, salt=key.session, info=b"tpmdp ledger 2")
        secret = derived.derive(identity.private_bytes_raw())
        self._key, self._cipher, self._hash_key = key, AESGCM(secret[:32]), secret[32:]

    def sealed(self, encoded: IntArray) -> bytes:
        """For the disk."""
        nonce = os.urandom(_NONCE_BYTES)
        return nonce + self._cipher.encrypt(nonce, encoded.astype("<i8").tobytes(), self._key.plan)

    def opened(self, sealed: bytes) -> IntArray:
        """From the disk."""
        try:
            data = self._cipher.decrypt(sealed[:_NONCE_BYTES], sealed[_NONCE_BYTES:], self._key.plan)
        except InvalidTag:
            problem = "has a statistic that this key does not open"
            raise LedgerError(f"session {self._key.session.hex()[:16]}", problem, "restore the ledger") from None
        return np.frombuffer(data, dtype="<i8").astype(np.int64)

    def fingerprint(self, encoded: IntArray, salt: bytes | None = None) -> bytes:
        """Shows whether data have changed. Its key is the party's own: from the ledger alone nobody can try values."""
        key = self._hash_key if salt is None else salt
        return hashlib.blake2b(encoded.astype("<i8").tobytes(), key=key, digest_size=32).digest()


def vector_name(terms: Terms, attempt: int) -> str:
    """Under which name the ledger stores what is contributed to an attempt: the same to all if nobody may drop out."""
    return f"vector {attempt}" if terms.tolerate else "vector"


@dataclass(frozen=True)
class Payer:
    """Charges one session to a ledger, attempt by attempt."""

    ledger: Ledger
    key: SessionKey
    label: str
    unit: Unit

    def pay(
        self, attempt: int, charge: Charge, *, private: Mapping[str, bytes], stand_in: SessionKey | None = None
    ) -> dict[str, bytes]:
        """Charge an attempt, or what it costs more than those before, and store its private state.

        What is charged later has an entry of its own: one session is charged once.
        """
        is_new = False
        if self.ledger.status(self.key) != "charged":
            stored = self.ledger.charge(
                self.key,
                self.label,
                charge,
                unit=self.unit,
                private=private,
                stand_in=stand_in,
                may_be_less=True,
            )
            is_new = stored.new
        if not is_new:  # perhaps by another process, just now, for less
            self._top_up(attempt, charge)
        return self.ledger.keep_all(self.key, private)

    def _top_up(self, attempt: int, charge: Charge) -> None:
        place, earlier = self._place(attempt), [self._place(each) for each in range(1, attempt)]
        if self.ledger.status(place) == "unknown":
            entries = [entry for key in (self.key, *earlier) for entry in self.ledger.entries_of(key)]
            rest = top_up([entry.mu for entry in entries if entry.is_charge], charge)
            if rest is not None:
                with suppress(LedgerError):  # another process was faster, and has charged and settled it
                    self.ledger.charge(place, f"{self.label}{FEWER}", rest, unit=self.unit, private={})
                if self.ledger.status(place) == "unknown":
                    problem = "could not be charged for fewer parties"
                    raise LedgerError(shown(self.label), problem, "run the same command again")
        for each in (*earlier, place):  # a process may have been killed before it settled one
            if self.ledger.status(each) == "charged":
                self.ledger.settle(each, "added to its session", {})

    def _place(self, attempt: int) -> SessionKey:
        """Under which the ledger has what an attempt costs more than those before."""
        session = hashlib.sha256(b"tpmdp top-up 1" + self.key.session + attempt.to_bytes(4, "big")).digest()
        return SessionKey(session, self.key.plan)


def _has_vector(names: Iterable[str]) -> bool:
    return any(name.split(" ")[0] == "vector" for name in names)


def check_room(study: Study, terms: Terms, index: int, ledger: Ledger) -> None:
    """Refuse what the party's ledger would refuse, before anybody sends a message; for the first round, of all."""
    check_noise(terms, index, ledger.limit(study.unit)[0])
    try:
        _check_entries(study, terms, index, ledger=ledger)
    except (LedgerError, OverspendError):
        if ledger.status(key_of(terms)) in ("unknown", "cancelled"):  # else another process entered it meanwhile
            raise


def _check_entries(study: Study, terms: Terms, index: int, *, ledger: Ledger) -> None:
    key = key_of(terms)
    if ledger.status(key) == "unknown" and (plan := ledger.charged_plan(key.session)) not in (None, key.plan):
        remedy = f"set another number for the session, which is charged anew ({_another(study)})"
        if plan == terms.before.plan_hash:
            remedy += ", or finish it with that version at all parties"
            raise LedgerError(shown(study.label), "was begun by a version of tpmdp before 0.12.0", remedy)
        raise LedgerError(
            shown(study.label), "was charged with another plan or query", f"{remedy}, or take back the change"
        )
    every = all_terms(study, terms)
    others = [each.session for each in every[1:]]
    label = study.label if len(every) == 1 or study.part is None else study.part.whole.label
    ledger.check_room(key, label, joint_charge(study, index, every), unit=study.unit, others=others)


def _another(study: Study) -> str:
    """How to begin a new session."""
    return f"session = {study.session + 1} in the study, or --session {study.session + 1} for every party"


def check_noise(terms: Terms, index: int, limit: float) -> None:
    """Refuse an exact answer where the party's ledger has a finite limit."""
    if charge_of(terms, index).mu == np.inf and limit != np.inf:
        rule = f"lets receivers learn the exact answer, which no finite limit of {terms.spec.name(index)} allows"
        remedy = "set it to 1 or more and give budgets, or a ledger without limit"
        raise InputError("threshold", terms.spec.threshold, rule, remedy)


def key_of(terms: Terms) -> SessionKey:
    """What the ledger knows the session by."""
    return SessionKey(terms.session, terms.plan_hash)


def agreed_before(ledger: Ledger, key: SessionKey) -> bool:
    """Whether the party's agreement to a session may have left, and the session goes on."""
    is_under_way = ledger.status(key) in ("held", "charged")
    names = ledger.private_names(key) if is_under_way else []
    return _AGREED in names or _has_vector(names)


class SessionAccount:
    """One party's session in its ledger: hold, agree, charge, settle.

    The statistic lies in the ledger, sealed with a key of the party's identity, from the hold on. It can be replaced
    until the party's agreement leaves. From then on the data are not read again: nothing in them may stop or delay the
    party, since a refusal would be a bit about them that costs nothing.
    """

    def __init__(self, study: Study, terms: Terms, party: str, *, identity: Ed25519PrivateKey, ledger: Ledger) -> None:
        self._study, self._terms, self._party, self._ledger = study, terms, party, ledger
        self.key = key_of(terms)
        self._seal = StatisticSeal(identity, self.key)

    @property
    def _own_stand_in(self) -> SessionKey | None:
        """What stood in the ledger for this session while its plan was not known."""
        return None

    @property
    def sessions(self) -> list[bytes]:
        """All sessions of the study, whatever its plan."""
        return [self.key.session]

    @property
    def is_settled(self) -> bool:
        """Whether the session has ended."""
        return self._ledger.status(self.key) == "settled"

    @property
    def has_agreed(self) -> bool:
        """Whether the party's agreement may have left, and the session goes on."""
        return agreed_before(self._ledger, self.key)

    def stored(self) -> dict[str, bytes]:
        """The private state of the session."""
        return self._ledger.private_state(self.key)

    def stored_contribution(self) -> Contribution | None:
        """The contribution as it was when the party agreed; None if it has not, or the session was begun long ago."""
        stored = self.stored() if self.has_agreed else {}
        if STATISTIC not in stored:
            return None
        return Contribution(self._study, self._terms, self._party, encoded=self._seal.opened(stored[STATISTIC]))

    def hold(self, contribution: Contribution) -> Contribution:
        """Set room aside and store the statistic; returns the contribution that counts: an agreement has fixed it."""
        study, terms = self._study, self._terms
        if self._ledger.status(self.key) == "unknown":
            check_room(study, terms, contribution.index, ledger=self._ledger)
        values = self._private(contribution)
        stored = self._enter(contribution, values)
        if stored.new:
            return contribution
        if _has_vector(stored.private):
            self.check_same(contribution, stored.private)
            return contribution
        self._ledger.replace_unless(self.key, values, unless=_AGREED)
        return self.stored_contribution() or contribution

    def _private(self, contribution: Contribution) -> dict[str, bytes]:
        """What is stored with the hold."""
        encoded = contribution.encoded
        return {"plan": self.key.plan, STATISTIC: self._seal.sealed(encoded), _DATA: self._seal.fingerprint(encoded)}

    def _enter(self, contribution: Contribution, values: Mapping[str, bytes]) -> Stored:
        """Hold the session in the ledger."""
        charge = charge_of(self._terms, contribution.index)
        study = self._study
        return self._ledger.hold(
            self.key, study.label, charge, unit=study.unit, private=values, stand_in=self._own_stand_in
        )

    def agree(self) -> None:
        """Note, before it happens, that the party's agreement leaves."""
        self._ledger.keep(self.key, _AGREED, b"1")

    def charge(self, contribution: Contribution, attempt: int = 1, members: frozenset[int] | None = None) -> Mask:
        """Charge the session and fix the noisy vector, in one transaction; a resumed session gets the first vector.

        Where parties may drop out, each attempt has a vector of its own, with the noise of its group. If that costs
        more than those before, the rest is charged first.
        """
        study, terms, name = self._study, self._terms, vector_name(self._terms, attempt)
        group = frozenset(range(terms.count)) if members is None else members
        stored = self.stored()
        if name not in stored:
            source, values = noise_source(terms), contribution.under_noise
            vector = noisy_vector(terms, contribution.index, values, source=source, members=group).tobytes()
            account = Payer(self._ledger, self.key, study.label, unit=study.unit)
            everybody = charge_among(terms, contribution.index, range(terms.count))  # at least: records show it
            charge = max(everybody, charge_among(terms, contribution.index, group), key=lambda each: each.mu)
            stored = account.pay(attempt, charge, private={name: vector}, stand_in=self._own_stand_in)
        return np.frombuffer(stored[name], dtype=word_type(terms.grid.word))

    def check_same(self, contribution: Contribution, stored: Mapping[str, bytes]) -> None:
        """Refuse to repeat a session with other data: that is a new session with a new charge."""
        salt = stored.get("salt")  # of a session before format 2 of the ledger
        if _DATA not in stored and self.is_settled:  # also before format 2: erased, since the salt lay beside it
            return
        if stored.get(_DATA) != self._seal.fingerprint(contribution.encoded, salt):
            remedy = f"set {_another(self._study)}, which is charged anew, or give the data as they were"
            raise InputError("session", self._study.label, "was begun with other data", remedy)

    def settle(self, release: PartyRelease, outbox: Sequence[bytes] = ()) -> PartyRelease:
        """Note the end of the session, with what a later call needs to repeat it, and erase noise and statistic."""
        stored = self.stored()
        if not self.is_settled:  # otherwise another process of this party was faster
            private = {name: stored[name] for name in _KEPT if name in stored}
            if "salt" in stored:  # from a hash beside its salt, values can be tried
                private.pop(_DATA, None)
            private[RELEASE] = json.dumps(release.plain()).encode()
            if outbox:
                private["outbox"] = join_frames(outbox)
            self._ledger.settle(self.key, "receipt" if release.answers is None else "answer", private)
        return release.with_ledger(self._ledger, self._study.unit)


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
    points = {} if study.part is None or study.part.is_last or result is None else points_after(study, terms, result)
    return PartyRelease(
        party=contribution.party,
        answers=None if result is None else tuple(answers(study, terms, result, missing=names)),
        guarantee=guarantee_text(terms) if guarantee is None else guarantee,
        epsilon=joint_epsilon(study, index, [terms]),
        delta=(study if study.part is None else study.part.whole).parties[index].delta,
        spent=None,
        left=None,
        bytes_sent=sent,
        attempt=attempt,
        assumes=study.assumes,
        missing=names,
        points=points,
    )


def check_holder(ledger: Ledger, name: str) -> None:
    """Refuse an old ledger, which knows a name only, of another party."""
    if ledger.owner is None and ledger.party != name:
        rule = f"belongs to {ledger.party}, not {name}"
        raise InputError("ledger", str(ledger.path), rule, "give the party's own ledger")


def open_or_create_ledger(path: Path, study: Study, name: str, identity: Ed25519PrivateKey) -> Ledger:
    """The ledger of a party's key; a new one is limited to the budget the party has in this study.

    It belongs to the key, whatever a study calls the party: another name brings no new budget.
    """
    party = study.party(name)
    if not path.exists():
        try:
            created = Ledger.create(path, name, party.epsilon, delta=party.delta, unit=study.unit)
        except FileError:
            if not path.exists():  # otherwise another process of the party was faster
                raise
        else:
            created.bind(identity.public_key().public_bytes_raw())
            return created
    ledger = Ledger.open(path)
    try:
        check_holder(ledger, name)
        ledger.bind(identity.public_key().public_bytes_raw())
        if not ledger.has_limit(study.unit):
            ledger.set_limit(party.epsilon, party.delta, unit=study.unit)
    except BaseException:
        ledger.close()
        raise
    return ledger
