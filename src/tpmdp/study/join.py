"""One party among many: `join` takes part in a study, and resumes what was begun."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from pathlib import Path
from typing import Final

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from tpmdp._util.arrays import IntArray
from tpmdp._util.clock import now_s
from tpmdp._util.files import StrPath, as_path
from tpmdp.data.frame import Records
from tpmdp.engines.direct.job import DirectJob
from tpmdp.engines.direct.session import Notes, Numbers
from tpmdp.engines.direct.worker_process import run_in_process
from tpmdp.engines.relay.drive import drive
from tpmdp.engines.relay.mailbox import Mailbox, RelayChangedError, RelayError
from tpmdp.engines.relay.wire import frames
from tpmdp.errors import DeadlineError, InputError, shown
from tpmdp.ledger import Ledger, LedgerError
from tpmdp.ledger.session_store import LedgerSecrets
from tpmdp.ledger.witness import LedgerNotes
from tpmdp.protocol.masks import from_words
from tpmdp.protocol.notes import notes_for, take_notes
from tpmdp.protocol.parts import encode_parts
from tpmdp.protocol.party import PartySession, check_identity
from tpmdp.protocol.terms import Terms
from tpmdp.queries.computation import SharedFunction
from tpmdp.queries.share_query import ShareQuery
from tpmdp.spec import Party
from tpmdp.study.contribution import Contribution, contribute
from tpmdp.study.cost import all_terms, check_joint
from tpmdp.study.events import EventTracker, SessionEvent
from tpmdp.study.file import parse_address
from tpmdp.study.model import Study
from tpmdp.study.pair_shares import PairShares
from tpmdp.study.release import PartyRelease
from tpmdp.study.round_account import account_of
from tpmdp.study.rounds_join import PartyRounds
from tpmdp.study.rounds_stop import check_stopped, stop_messages
from tpmdp.study.session import RELEASE, SessionAccount, check_room, key_of, party_release
from tpmdp.study.shared_job import shared_job

_RESEND_S: Final = 30.0
_OPENING: Final = "opening"  # stored in the ledger before any share of a result leaves


def check_in(study: Study, name: str, identity: Ed25519PrivateKey | None, *, terms: Terms | None = None) -> Terms:
    """The terms that the party would sign, if it may and has a fitting key; nothing is read, charged or sent.

    Without an identity the key is not checked.
    """
    study.check_custom()
    offered = study.terms() if terms is None else terms
    if terms is not None and study.rounds > 1 and terms.plan_hash != study.terms().plan_hash:
        rule = "cannot be given for a study by rounds: every round has a plan of its own"
        raise InputError("terms", terms.label, rule, "leave them out, and use the same versions of tpmdp and libraries")
    study.check_terms(offered)
    offered.check(study.index(name))
    check_joint(study, study.index(name), all_terms(study, offered))
    if identity is not None:
        check_identity(offered, study.index(name), identity)
    return offered


def join(
    study: Study,
    name: str,
    identity: Ed25519PrivateKey,
    table: Records | Callable[[], Records],
    ledger: Ledger,
    relay: str | None,
    *,
    certificate_authority: StrPath | None = None,
    terms: Terms | None = None,
    listen: str | None = None,
    on_event: Callable[[SessionEvent], None] = lambda _: None,
) -> PartyRelease:
    """Take part in a study as one party; resumes a session that was begun.

    Sums go through a relay. A non-additive query needs none: parties then connect to the addresses that the study
    gives. `listen` is the address to wait at if that is not the party's own address, as behind a router. `on_event` is
    called with everything that happens: who has joined, what is waited for, what a party with another study has
    different. `table` is columns by name, a pandas, Polars or Arrow table, a path, or a function that gives one of
    these: it is not called for a session that the party has agreed to before, since that goes on with the data it had
    then.

    Raises DeadlineError, which names the missing parties, when the study's deadline passes. A study by rounds that has
    finished one gives the result of the last round that was done instead, and says why it stopped; the same call goes
    on with it.
    """
    offered = check_in(study, name, identity, terms=terms)
    account = account_of(study.first, offered, name, identity=identity, ledger=ledger)
    contribution = account.stored_contribution()
    if contribution is None:
        contribution = contribute(study, offered, name, table=table() if callable(table) else table)
    return take_part(
        contribution,
        identity,
        ledger,
        relay=relay,
        certificate_authority=None if certificate_authority is None else as_path(certificate_authority),
        listen=listen,
        on_event=on_event,
    )


def take_part(
    contribution: Contribution,
    identity: Ed25519PrivateKey,
    ledger: Ledger,
    *,
    relay: str | None,
    certificate_authority: Path | None = None,
    listen: str | None = None,
    on_event: Callable[[SessionEvent], None] = lambda _: None,
) -> PartyRelease:
    """`join` with a contribution that has been checked; of a study by rounds, that to the first."""
    ledger.bind(identity.public_key().public_bytes_raw())
    session = partial(
        _take_part_once,
        identity=identity,
        ledger=ledger,
        deadline=now_s() + contribution.study.seconds_left(),
        relay=relay,
        certificate_authority=certificate_authority,
        listen=listen,
        on_event=on_event,
    )
    if contribution.study.part is None:
        return session(contribution)

    def stop(terms: Terms) -> None:
        if relay is not None:
            index, until = contribution.index, now_s() + _RESEND_S
            with Mailbox(
                relay,
                terms,
                index,
                identity=identity,
                deadline=until,
                certificate_authority=certificate_authority,
            ) as mailbox:
                mailbox.post(stop_messages(terms, index, identity))

    return PartyRounds(contribution, identity, ledger, session=session, stop=stop).take_part()


def _take_part_once(
    contribution: Contribution,
    *,
    identity: Ed25519PrivateKey,
    ledger: Ledger,
    deadline: float,
    relay: str | None,
    certificate_authority: Path | None,
    listen: str | None,
    on_event: Callable[[SessionEvent], None],
) -> PartyRelease:
    """One session."""
    before = replace(contribution, terms=contribution.terms.before)
    if ledger.status(key_of(before.terms)) == "settled":  # by an earlier version, whose answers hold
        contribution = before
    study = contribution.study
    computation = study.computation
    place = (1, 1) if study.part is None else (study.part.number, study.part.count)
    tracker = EventTracker(contribution.terms, contribution.index, deadline, on_event=on_event, place=place)
    joined: _Joined
    if isinstance(computation, SharedFunction) and not study.uses_relay:
        joined = _SharesJoined(contribution, identity, ledger, tracker=tracker, query=computation.query, listen=listen)
    elif relay is None:
        raise InputError("relay", "(none)", "is missing for this study", "give the address of the relay")
    else:
        address = _Relay(relay, certificate_authority)
        joined = _RelayJoined(contribution, identity, ledger, tracker=tracker, relay=address, listen=listen)
    if joined.is_settled:
        return joined.repeat()
    if ledger.status(joined.account.key) == "unknown":  # before the relay is asked
        check_room(study, contribution.terms, contribution.index, ledger=ledger)
    if deadline <= now_s():
        raise DeadlineError("the deadline of the study has passed: join with a later one")
    try:
        return joined.compute(deadline)
    except LedgerError:
        if joined.is_settled:  # another process of this party was faster
            return joined.repeat()
        raise


@dataclass(frozen=True, eq=False, repr=False)
class _Joined:
    """A party in a session, however its queries are computed."""

    contribution: Contribution
    identity: Ed25519PrivateKey
    ledger: Ledger
    tracker: EventTracker

    @property
    def study(self) -> Study:
        return self.contribution.study

    @property
    def terms(self) -> Terms:
        return self.contribution.terms

    @property
    def index(self) -> int:
        return self.contribution.index

    @property
    def is_settled(self) -> bool:
        return self.account.is_settled

    @cached_property
    def account(self) -> SessionAccount:
        return account_of(self.study, self.terms, self.contribution.party, identity=self.identity, ledger=self.ledger)

    def compute(self, deadline: float) -> PartyRelease:
        """Run or resume the session."""
        raise NotImplementedError

    def repeat(self) -> PartyRelease:
        """What a finished session gave."""
        stored = self.account.stored()
        self.account.check_same(self.contribution, stored)
        release = PartyRelease.of_plain(json.loads(stored[RELEASE]))
        self.ledger.erase_other_plans(self.account.sessions)
        return release.with_ledger(self.ledger, self.study.unit, again=True)


@dataclass(frozen=True)
class _Relay:
    url: str
    certificate_authority: Path | None


@dataclass(frozen=True, eq=False, repr=False)
class _RelayJoined(_Joined):
    """Masked vectors through a relay: sums, or shares of what pairs have computed."""

    relay: _Relay
    listen: str | None

    def _mailbox(self, deadline: float, on_trouble: Callable[[str], None] = lambda _: None) -> Mailbox:
        return Mailbox(
            self.relay.url,
            self.terms,
            self.index,
            identity=self.identity,
            deadline=deadline,
            certificate_authority=self.relay.certificate_authority,
            on_trouble=on_trouble,
        )

    def _on_trouble(self, problem: str) -> None:
        self.tracker.trouble(f"cannot use {self.relay.url} now ({problem})")

    def _watch(self, party: PartySession, sent: int) -> None:
        if self.study.part is not None:
            check_stopped(party)
        self.tracker.watch(party, sent)

    def compute(self, deadline: float) -> PartyRelease:
        terms, account = self.terms, self.account
        pairs = None if self.study.computation.is_sum else self._pairs(deadline)
        secrets = LedgerSecrets(self.ledger, account.key)
        notes = LedgerNotes(self.ledger, account.key, self.identity)
        with self._mailbox(deadline, self._on_trouble) as mailbox:
            mailbox.connect()  # a relay that cannot be used leaves no trace
            account.hold(self.contribution)
            account.agree()
            contribution = account.stored_contribution() or self.contribution
            vector = partial(account.charge, contribution)
            if pairs is not None:
                pairs.contribution = contribution

            def make() -> PartySession:
                attempt = secrets.last_attempt()
                if pairs is not None and pairs.is_cut_off(attempt):
                    attempt += 1
                return PartySession(
                    terms,
                    self.index,
                    self.identity,
                    vector=vector,
                    secrets=secrets,
                    attempt=attempt,
                    parts=encode_parts(self.study.parts()),
                    notes=notes,
                    pairs=pairs,
                )

            try:
                failed, patience = secrets.failed_attempt(), self.study.patience
                party, left = drive(make, mailbox, deadline, failed=failed, watch=self._watch, patience_s=patience)
            except DeadlineError as error:
                secrets.note_failure(getattr(error, "attempt", secrets.last_attempt()))
                raise
            # Settled first: whatever happens to this process now, a later call finds what the others still need.
            release = party_release(
                self.contribution,
                party.result,
                sent=mailbox.bytes_sent + sum(map(len, left)) + (0 if pairs is None else pairs.bytes_sent),
                attempt=party.attempt,
                guarantee=None if pairs is None else pairs.job(1).guarantee(),
                missing=frozenset(range(terms.count)) - party.members,
            )
            release = account.settle(release, outbox=left)
            return replace(release, note=_send(mailbox, left))

    def _pairs(self, deadline: float) -> PairShares:
        """What the holders of columns compute before the sum, at their addresses."""
        job = shared_job(self.study, self.terms, 1)
        job.check_values(self.index, self.contribution.encoded)  # now: after the agreement no data may stop it
        return PairShares(
            self.contribution,
            self.identity,
            ledger=self.ledger,
            account=self.account,
            tracker=self.tracker,
            addresses={member: _address_of(self.study.parties[member]) for member in job.members},
            deadline=deadline,
            bind=None if self.listen is None else parse_address("listen", self.listen),
        )

    def repeat(self) -> PartyRelease:
        """The lead receiver sends the others their answers again: they may have been lost."""
        release = super().repeat()
        stored = self.account.stored()
        if "outbox" not in stored:
            return release
        messages = [data for _, data in frames(stored["outbox"])]
        with self._mailbox(now_s() + _RESEND_S) as mailbox:
            return replace(release, note=_send(mailbox, messages))


@dataclass(frozen=True, eq=False, repr=False)
class _SharesJoined(_Joined):
    """A non-additive query: no messages of the protocol, but a computation on shares among all parties.

    It can be run again until its result is opened, and never afterwards: a party that changes its input would see two
    results with the same noise. Theory, "Functions on shares".
    """

    query: ShareQuery
    listen: str | None

    def compute(self, deadline: float) -> PartyRelease:
        terms, account = self.terms, self.account
        if _OPENING in account.stored():
            return self._opened_before()
        addresses = addresses_of(self.study)
        bind = None if self.listen is None else parse_address("listen", self.listen)
        job = self._job()
        releases: list[PartyRelease] = []
        job.check_values(self.index, self.contribution.encoded)  # now: after the agreement no data may stop it
        account.hold(self.contribution)
        account.agree()
        contribution = account.stored_contribution() or self.contribution
        notes, roster = LedgerNotes(self.ledger, account.key, self.identity), terms.roster
        others = [party for party in range(terms.count) if party != self.index]

        def connected(theirs: Notes) -> Numbers:
            for peer, body in theirs.items():
                take_notes(notes, self.index, roster[peer], body=body)
            self.tracker.step("compute")
            noise = from_words(account.charge(contribution), terms.grid.word)
            return Numbers(contribution.encoded, noise, note=notes.own())

        def opening(theirs: Notes) -> None:
            for peer, note in theirs.items():
                notes.keep(roster[peer], note)
            self.tracker.step("open")
            self._note_opening()

        def on_result(result: IntArray | None, sent: int) -> None:
            release = party_release(contribution, result, sent=sent, guarantee=job.guarantee())
            releases.append(account.settle(release))
            self.tracker.step("done", sent)

        self.tracker.connected(others)
        run_in_process(
            job,
            self.index,
            self.identity,
            addresses=addresses,
            deadline=deadline,
            on_connected=connected,
            on_opening=opening,
            on_result=on_result,
            bind=bind,
            parts=encode_parts(self.study.parts()),
            on_difference=self.tracker.difference,
            on_missing=self.tracker.connected,
            notes={peer: notes_for(notes, roster, [peer]) for peer in others},
        )
        return releases[0]

    def _job(self) -> DirectJob:
        return shared_job(self.study, self.terms)

    def _note_opening(self) -> None:
        """Permanently, and for one process of this party only."""
        ours = os.urandom(16)
        if self.ledger.keep(self.account.key, _OPENING, ours) != ours:
            raise self._opened_error()

    def _opened_error(self) -> LedgerError:
        problem = "was opened before and did not arrive; with the same noise it must not be opened again"
        remedy = f"set session = {self.study.session + 1} for a new session, which is charged anew"
        return LedgerError(f"the result of {shown(self.study.label)}", problem, remedy)

    def _opened_before(self) -> PartyRelease:
        """A receiver has lost the result; any other party has nothing more to get, and sends nothing more."""
        if self.contribution.is_receiver:
            raise self._opened_error()
        release = party_release(self.contribution, None, sent=0, guarantee=self._job().guarantee())
        release = self.account.settle(release)
        note = "cut off before a receiver confirmed the result; this party has nothing more to do"
        return replace(release, note=note)


def addresses_of(study: Study) -> list[tuple[str, int]]:
    """Where the parties of a non-additive query wait for each other; refuses a study that does not say."""
    return [_address_of(party) for party in study.parties]


def _address_of(party: Party) -> tuple[str, int]:
    if party.address is None:
        rule = "is missing: parties of a non-additive query connect to each other"
        raise InputError(f"address of {party.name}", "(none)", rule, 'add address = "host:port" to the study')
    return parse_address(f"address of {party.name}", party.address)


def _send(mailbox: Mailbox, messages: Sequence[bytes]) -> str:
    """Send the answers of a settled session; returns what to do if that fails, or nothing."""
    while True:
        try:
            mailbox.post(list(messages))
            return ""
        except RelayChangedError:
            continue
        except (DeadlineError, RelayError) as error:
            return f"the others may not have their answers yet ({error}); the same command sends them again"
