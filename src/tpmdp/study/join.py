"""One party among many: `join` takes part in a study, and resumes what was begun."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from tpmdp._util.arrays import IntArray
from tpmdp._util.clock import now_s
from tpmdp.data.table import Table
from tpmdp.engines.mpyc.job import MpycJob, guarantee_of
from tpmdp.engines.mpyc.worker_process import run_in_process
from tpmdp.engines.relay.drive import Watch, drive
from tpmdp.engines.relay.mailbox import Mailbox, RelayChangedError, RelayError
from tpmdp.engines.relay.wire import frames
from tpmdp.errors import DeadlineError, InputError, shown
from tpmdp.ledger import Ledger, LedgerError
from tpmdp.ledger.session_store import LedgerSecrets
from tpmdp.protocol.masks import from_words
from tpmdp.protocol.party import PartySession, check_identity
from tpmdp.protocol.terms import Terms
from tpmdp.queries.computation import SharedFunction
from tpmdp.queries.share_query import ShareQuery
from tpmdp.spec import Party
from tpmdp.study.contribution import Contribution, contribute
from tpmdp.study.file import parse_address
from tpmdp.study.model import Study
from tpmdp.study.release import PartyRelease
from tpmdp.study.session import RELEASE, check_same, party_release, reserve, settle

_RESEND_S: Final = 30.0
_OPENING: Final = "opening"  # stored in the ledger before any share of a result leaves


def check_in(
    study: Study, name: str, identity: Ed25519PrivateKey, *, table: Table, terms: Terms | None = None
) -> Contribution:
    """The party's contribution, if it may sign the terms and has a fitting key and data; nothing is charged."""
    study.check_custom()
    agreed = study.terms() if terms is None else terms
    study.check_terms(agreed)
    check_identity(agreed, study.index(name), identity)
    return contribute(study, agreed, name, table=table)


def join(
    study: Study,
    name: str,
    identity: Ed25519PrivateKey,
    table: Table,
    ledger: Ledger,
    relay: str | None,
    *,
    certificate_authority: Path | None = None,
    watch: Watch = lambda *_: None,
    on_trouble: Callable[[str], None] = lambda _: None,
    terms: Terms | None = None,
    listen: str | None = None,
    on_step: Callable[[str], None] = lambda _: None,
) -> PartyRelease:
    """Take part in a study as one party; resumes a session that was begun.

    Sums go through a relay. A non-additive query needs none: parties then connect to the addresses that the study
    gives. `listen` is the address to wait at if that is not the party's own address, as behind a router; `on_step` is
    called with each step.

    Raises DeadlineError, which names the missing parties, when the study's deadline passes.
    """
    return take_part(
        check_in(study, name, identity, table=table, terms=terms),
        identity,
        ledger,
        relay=relay,
        certificate_authority=certificate_authority,
        watch=watch,
        on_trouble=on_trouble,
        listen=listen,
        on_step=on_step,
    )


def take_part(
    contribution: Contribution,
    identity: Ed25519PrivateKey,
    ledger: Ledger,
    *,
    relay: str | None,
    certificate_authority: Path | None = None,
    watch: Watch = lambda *_: None,
    on_trouble: Callable[[str], None] = lambda _: None,
    listen: str | None = None,
    on_step: Callable[[str], None] = lambda _: None,
) -> PartyRelease:
    """`join` with a contribution that has been checked."""
    study = contribution.study
    deadline = now_s() + study.seconds_left()
    computation = study.computation
    joined: _Joined
    if isinstance(computation, SharedFunction):
        joined = _SharesJoined(contribution, identity, ledger, query=computation.query, listen=listen, on_step=on_step)
    elif relay is None:
        raise InputError("relay", "(none)", "is missing for a study of sums", "give the address of the relay")
    else:
        address = _Relay(relay, certificate_authority)
        joined = _RelayJoined(contribution, identity, ledger, relay=address, watch=watch, on_trouble=on_trouble)
    if joined.is_settled:
        return joined.repeat()
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
        return self.ledger.status(self.terms.session) == "settled"

    def compute(self, deadline: float) -> PartyRelease:
        """Run or resume the session."""
        raise NotImplementedError

    def repeat(self) -> PartyRelease:
        """What a finished session gave."""
        stored = self.ledger.private_state(self.terms.session)
        check_same(self.contribution, stored)
        return PartyRelease.of_plain(json.loads(stored[RELEASE])).with_ledger(self.ledger, again=True)


@dataclass(frozen=True)
class _Relay:
    url: str
    certificate_authority: Path | None


@dataclass(frozen=True, eq=False, repr=False)
class _RelayJoined(_Joined):
    """Sums: masked vectors through a relay."""

    relay: _Relay
    watch: Watch
    on_trouble: Callable[[str], None]

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

    def compute(self, deadline: float) -> PartyRelease:
        terms, ledger = self.terms, self.ledger
        secrets = LedgerSecrets(ledger, terms.session)
        with self._mailbox(deadline, self.on_trouble) as mailbox:
            mailbox.connect()  # a relay that cannot be used must not cost anything
            vector = reserve(self.contribution, ledger)

            def make() -> PartySession:
                attempt = secrets.last_attempt()
                return PartySession(terms, self.index, self.identity, vector=vector, secrets=secrets, attempt=attempt)

            try:
                failed, patience = secrets.failed_attempt(), self.study.patience
                party, left = drive(make, mailbox, deadline, failed=failed, watch=self.watch, patience_s=patience)
            except DeadlineError as error:
                secrets.note_failure(getattr(error, "attempt", secrets.last_attempt()))
                raise
            # Settled first: whatever happens to this process now, a later call finds what the others still need.
            release = party_release(
                self.contribution,
                party.result,
                sent=mailbox.bytes_sent + sum(map(len, left)),
                attempt=party.attempt,
                missing=frozenset(range(terms.count)) - party.members,
            )
            release = settle(self.contribution, release, ledger, outbox=left)
            return replace(release, note=_send(mailbox, left))

    def repeat(self) -> PartyRelease:
        """The lead receiver sends the others their answers again: they may have been lost."""
        release = super().repeat()
        stored = self.ledger.private_state(self.terms.session)
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
    on_step: Callable[[str], None]

    def compute(self, deadline: float) -> PartyRelease:
        terms, ledger = self.terms, self.ledger
        if _OPENING in ledger.private_names(terms.session):
            return self._opened_before()
        addresses = [_address_of(party) for party in self.study.parties]
        bind = None if self.listen is None else parse_address("listen", self.listen)
        job = self._job()
        releases: list[PartyRelease] = []

        def give() -> tuple[IntArray, IntArray]:
            self.on_step("connect and compute")
            job.check_values(self.index, self.contribution.encoded)
            vector = reserve(self.contribution, ledger)
            return self.contribution.encoded, from_words(vector, terms.grid.word)

        def opening() -> None:
            self.on_step("open the result")
            self._note_opening()

        def on_result(result: IntArray | None, sent: int) -> None:
            release = party_release(self.contribution, result, sent=sent, guarantee=guarantee_of(job))
            releases.append(settle(self.contribution, release, ledger))

        run_in_process(
            job,
            self.index,
            self.identity,
            addresses=addresses,
            give=give,
            deadline=deadline,
            on_opening=opening,
            on_result=on_result,
            bind=bind,
        )
        return releases[0]

    def _job(self) -> MpycJob:
        parties = self.study.party_records
        parameters = self.query.parameters(parties, self.terms.grid)
        return MpycJob.of(self.terms, self.query.function, parameters, sizes=self.query.sizes(parties))

    def _note_opening(self) -> None:
        """Permanently, and for one process of this party only."""
        ours = os.urandom(16)
        if self.ledger.keep(self.terms.session, _OPENING, ours) != ours:
            raise self._opened_error()

    def _opened_error(self) -> LedgerError:
        problem = "was opened before and did not arrive; with the same noise it must not be opened again"
        remedy = f"set session = {self.study.session + 1} for a new session, which is charged anew"
        return LedgerError(f"the result of {shown(self.study.label)}", problem, remedy)

    def _opened_before(self) -> PartyRelease:
        """A receiver has lost the result; any other party has nothing more to get, and sends nothing more."""
        check_same(self.contribution, self.ledger.private_state(self.terms.session))
        if self.contribution.is_receiver:
            raise self._opened_error()
        release = party_release(self.contribution, None, sent=0, guarantee=guarantee_of(self._job()))
        release = settle(self.contribution, release, self.ledger)
        note = "cut off before a receiver confirmed the result; this party has nothing more to do"
        return replace(release, note=note)


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
