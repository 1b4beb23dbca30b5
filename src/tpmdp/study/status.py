"""How far a session is, for any of its parties: what the relay holds. Nothing is joined, charged, sent or changed."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from typing import Any, Final

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from tpmdp._util.clock import now_s
from tpmdp._util.files import StrPath, as_path
from tpmdp.engines.relay.mailbox import Mailbox
from tpmdp.engines.relay.status import SessionStatus
from tpmdp.errors import InputError
from tpmdp.protocol.terms import Terms
from tpmdp.study.cost import all_terms
from tpmdp.study.events import names_text
from tpmdp.study.model import Study

_TIMEOUT_S: Final = 20.0


@dataclass(frozen=True)
class PartyStatus:
    """What the relay holds of one party."""

    party: str
    agreed: bool
    key: bool
    """A key for the newest attempt."""
    submitted: bool
    """In the newest attempt. The lead receiver never submits: it adds up what the others do."""
    answered: bool
    """An answer or a receipt has been sent to it; the lead receiver has the answer by then."""
    other_plan: bool
    """It has joined with another study or plan."""
    receives: bool = True
    """Whether it is sent the answer, and not a receipt."""


@dataclass(frozen=True)
class StudyStatus:
    """What the relay holds of a session. Nobody need trust the relay, so this is what it says, and no proof."""

    session: str
    """Name of the study and number of the session."""
    known: bool
    """Whether the relay knows the session; otherwise nobody has joined there."""
    attempt: int
    lead: str
    """The receiver that adds up."""
    parties: tuple[PartyStatus, ...]
    round: int = 1
    """The last round that the relay knows of."""
    rounds: int = 1

    def plain(self) -> dict[str, Any]:
        """As values for JSON, with the summary."""
        return {**asdict(self), "summary": self.summary()}

    @property
    def is_finished(self) -> bool:
        """Whether the lead receiver has sent answers and receipts; by rounds, of the last one."""
        return self.round == self.rounds and self._is_answered

    @property
    def _is_answered(self) -> bool:
        return any(party.answered for party in self.parties)

    def summary(self) -> str:
        """Where the session stands, in one sentence.

        >>> here = PartyStatus("north", agreed=True, key=True, submitted=False, answered=False, other_plan=False)
        >>> away = PartyStatus("south", agreed=False, key=False, submitted=False, answered=False, other_plan=False)
        >>> StudyStatus("demo / session 1", known=True, attempt=1, lead="north", parties=(here, away)).summary()
        '1 of 2 have joined; waiting for south'
        """
        return self._summary() if self.rounds == 1 else f"round {self.round} of {self.rounds}: {self._summary()}"

    def _summary(self) -> str:
        if not any(party.agreed or party.other_plan for party in self.parties):
            return "nobody has joined at this relay yet"
        if self._is_answered:
            return "finished: the lead receiver has sent answers and receipts"
        count = len(self.parties)
        agreed = [party for party in self.parties if party.agreed]
        if len(agreed) < count:
            return f"{len(agreed)} of {count} have joined; waiting for {self._lacking(lambda party: party.agreed)}"
        keys = self._lacking(lambda party: party.key)
        if keys:
            return f"all {count} have joined; waiting for the key of {keys}"
        submissions = self._lacking(lambda party: party.submitted or party.party == self.lead)
        if submissions:
            return f"all {count} have joined; waiting for the submission of {submissions}"
        return f"all have submitted; waiting for {self.lead}, which adds up"

    def _lacking(self, has: Callable[[PartyStatus], bool]) -> str:
        return names_text([party.party for party in self.parties if not has(party)])


def study_status(
    study: Study,
    identity: Ed25519PrivateKey,
    relay: str,
    *,
    certificate_authority: StrPath | None = None,
    terms: Terms | None = None,
) -> StudyStatus:
    """Ask the relay how far the study's session is, as the party that this key belongs to.

    RelayError if the relay cannot be used now.
    """
    offered = study.terms() if terms is None else terms
    asking_party(study, identity, relay, terms=offered)
    every = all_terms(study, offered)
    for number in range(len(every), 0, -1):  # the plan of a later round binds points that only its parties know
        status = _look(every[number - 1], identity, relay, authority=certificate_authority, any_plan=number > 1)
        if status is not None or number == 1:
            break
    return replace(_standing(study, offered.lead, status), round=number, rounds=len(every))


def _look(
    terms: Terms,
    identity: Ed25519PrivateKey,
    relay: str,
    *,
    authority: StrPath | None,
    any_plan: bool,
) -> SessionStatus | None:
    mailbox = Mailbox(
        relay,
        terms,
        terms.roster.index(identity.public_key().public_bytes_raw()),
        identity=identity,
        deadline=now_s() + _TIMEOUT_S,
        certificate_authority=None if authority is None else as_path(authority),
    )
    with mailbox:
        return mailbox.look(any_plan=any_plan)


def asking_party(study: Study, identity: Ed25519PrivateKey, relay: str, *, terms: Terms) -> int:
    """The number of the party that this key belongs to; refuses what no relay could answer. Asks nobody."""
    if not study.uses_relay:
        rule = "is not used by this study, whose parties connect to each other"
        raise InputError("relay", relay, rule, "ask the parties; tpmdp join shows who is connected")
    study.check_terms(terms)
    public = identity.public_key().public_bytes_raw()
    if public not in terms.roster:
        raise InputError("key", "(not shown)", "is of no party of this study", "give the key file of a party")
    return terms.roster.index(public)


def stored_status(study: Study, status: SessionStatus) -> StudyStatus:
    """What a relay's store holds of the study's session, with the names of its parties."""
    return _standing(study, min(study.index(each) for each in study.receivers), status)


def _standing(study: Study, lead: int, status: SessionStatus | None) -> StudyStatus:
    names = [party.name for party in study.parties]
    return StudyStatus(
        study.label,
        known=status is not None,
        attempt=0 if status is None else status.attempt,
        lead=names[lead],
        parties=tuple(
            replace(_party_status(party, index, status), receives=party in study.receivers)
            for index, party in enumerate(names)
        ),
    )


def _party_status(party: str, index: int, status: SessionStatus | None) -> PartyStatus:
    return PartyStatus(
        party,
        agreed=status is not None and index in status.agreed,
        key=status is not None and index in status.keys,
        submitted=status is not None and index in status.submitted,
        answered=status is not None and index in status.answered,
        other_plan=status is not None and index in status.other_plan,
    )
