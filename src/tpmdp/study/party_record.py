"""One party's side of a session, from its ledger: the entries, the head and the balance, and what it reported."""

from __future__ import annotations

from dataclasses import dataclass, replace

from tpmdp.errors import InputError, shown
from tpmdp.ledger import Entry, Ledger
from tpmdp.protocol.terms import Terms
from tpmdp.queries.answer import Answer
from tpmdp.study.model import Study
from tpmdp.study.progress import sessions_in, stand_ins
from tpmdp.study.session import key_of


@dataclass(frozen=True)
class LedgerBalance:
    """What a ledger says in all, in the unit of the study, when the record is made; spent up, left down."""

    limit_epsilon: float
    limit_delta: float
    spent: float
    left: float  # for one more release

    @classmethod
    def of(cls, ledger: Ledger, unit: str) -> LedgerBalance:
        """The balance of a ledger as it is."""
        spent = ledger.spent(unit)
        return cls(spent.limit_epsilon, spent.limit_delta, spent.epsilon, left=spent.left)

    @property
    def limit(self) -> tuple[float, float]:
        """The most that may be spent, epsilon and delta."""
        return self.limit_epsilon, self.limit_delta


@dataclass(frozen=True)
class PartyRecord:
    """One party's side of a session: the entries in its ledger, the ledger's head and balance, and what it reported."""

    party: str
    entries: tuple[Entry, ...]
    head: tuple[int, str]  # number and hash of the ledger's newest entry when the record was made
    balance: LedgerBalance
    bytes_sent: int | None = None  # None: the session has not ended for this party
    missing: tuple[str, ...] = ()  # parties that dropped out
    rounds: int = 1  # sessions of the study

    @property
    def charge(self) -> Entry | None:
        """The entry that charges the session, or the first round; None if it was not charged."""
        return next((entry for entry in self.entries if entry.is_charge), None)

    @property
    def status(self) -> str:
        """How far the session has come for this party: held, charged or settled; by rounds, the last one."""
        if self.rounds_done == self.rounds:
            return "settled"
        return "held" if self.charge is None else "charged"

    @property
    def rounds_done(self) -> int:
        """How many sessions of the study have ended for this party."""
        return sum(entry.kind == "settle" for entry in self.entries)

    @property
    def later(self) -> int:
        """How many entries came after those of the session."""
        return self.head[0] - self.entries[-1].number

    @classmethod
    def of(cls, study: Study, terms: Terms, ledger: Ledger) -> tuple[PartyRecord, tuple[Answer, ...] | None]:
        """The record of the party that the ledger belongs to, and the answers if the ledger has them."""
        party, key = party_of(study, ledger), key_of(terms)
        reached = sessions_in(ledger, study, terms)
        keys = [*(key_of(each.terms) for each in reached), *stand_ins(study, terms)]
        entries = sorted((entry for each in keys for entry in ledger.entries_of(each)), key=lambda entry: entry.number)
        if not ledger.entries_of(key):
            other = ledger.charged_plan(key.session)
            rule = f"has no entry of {shown(terms.label)} with this plan"
            remedy = "check the number of the session; for a report on the plan, name the study without a ledger"
            if other is not None:
                rule = f"has {shown(terms.label)} with another plan or query"
                remedy = "give the study file, and the terms if there were any, with which the party joined"
            raise InputError("ledger", str(ledger.path), rule, remedy)
        newest = ledger.newest(1)[0]
        head, balance = (newest.number, newest.hash), LedgerBalance.of(ledger, study.unit)
        record = cls(party, tuple(entries), head, balance=balance, rounds=study.rounds)
        done = [each.release for each in reached if each.release is not None]
        if not done:
            return record, None
        sent = sum(release.bytes_sent for release in done) if len(done) == study.rounds else None
        return replace(record, bytes_sent=sent, missing=done[-1].missing), done[-1].answers


@dataclass(frozen=True)
class OpenPoints:
    """What a check has not proved, in words: what somebody can still give, and what no file can show.

    >>> points = OpenPoints(("the answer: give a ledger",), ("whether the data are true",))
    >>> len(points.every), "the answer: give a ledger" in points.every
    (2, True)
    """

    to_give: tuple[str, ...] = ()
    never: tuple[str, ...] = ()

    @property
    def every(self) -> list[str]:
        """All of them."""
        return [*self.to_give, *self.never]


@dataclass(frozen=True)
class LedgerComparison:
    """What a ledger shows about a record: what agrees, in words, and what the ledger cannot tell any more."""

    party: str
    proved: tuple[str, ...]
    open_points: tuple[str, ...] = ()
    has_answer: bool = False  # the answer in the record is that in the ledger


def party_of(study: Study, ledger: Ledger) -> str:
    """The party that a ledger belongs to: by its key, or by name if it was never bound to one."""
    owner = ledger.owner
    for party in study.parties:
        if party.public_key == owner if owner is not None else party.name == ledger.party:
            return party.name
    rule = f"belongs to {shown(ledger.party)}, whose key is not in the study"
    raise InputError("ledger", str(ledger.path), rule, "give the ledger of a party of the study")
