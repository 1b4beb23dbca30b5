"""One party among many: `join` takes part in a study through a relay, and resumes what was begun."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
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
from tpmdp.protocol.party import PartySession
from tpmdp.protocol.terms import Terms
from tpmdp.spec import Party
from tpmdp.study.file import parse_address
from tpmdp.study.model import Study
from tpmdp.study.release import PartyRelease, check_same, encode, prepare, release_of_plain, settle, with_ledger

_RESEND_S: Final = 30.0
_OPENING: Final = "opening"  # kept in the ledger before any share of a result leaves


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
    """Take part in a study as one party, through a relay; resumes a session that was begun.

    A query that is no sum needs no relay: parties then connect to the addresses that the study gives. `listen` is where
    to wait for the others if that is not the party's own address, as behind a router; `on_step` hears what is done.

    Raises DeadlineError, which names who was missing, when the study's deadline passes.
    """
    deadline = now_s() + study.seconds_left()
    agreed = study.terms() if terms is None else terms
    if study.joint is None and relay is None:
        raise InputError("--relay", "(none)", "is missing for a study of sums", "give the address of the relay")
    seat = _Seat(study, agreed, name, identity, table, ledger, relay or "", certificate_authority)
    if seat.is_settled:
        return seat.tell_again()
    if deadline <= now_s():
        raise DeadlineError("the deadline of the study has passed: join with a later one")
    try:
        if study.joint is not None:
            return seat.compute_on_shares(deadline, listen, on_step)
        return seat.take_part(deadline, watch, on_trouble)
    except LedgerError:
        if seat.is_settled:  # another process of this party was faster
            return seat.tell_again()
        raise


@dataclass(frozen=True, eq=False, repr=False)
class _Seat:
    """A party's place in a session."""

    study: Study
    terms: Terms
    name: str
    identity: Ed25519PrivateKey
    table: Table
    ledger: Ledger
    relay: str
    certificate_authority: Path | None

    @property
    def is_settled(self) -> bool:
        return self.ledger.status(self.terms.session) == "settled"

    def mailbox(self, deadline: float, on_trouble: Callable[[str], None] = lambda _: None) -> Mailbox:
        index = self.study.index(self.name)
        return Mailbox(self.relay, self.terms, index, self.identity, deadline, self.certificate_authority, on_trouble)

    def take_part(self, deadline: float, watch: Watch, on_trouble: Callable[[str], None]) -> PartyRelease:
        study, terms, ledger = self.study, self.terms, self.ledger
        secrets = LedgerSecrets(ledger, terms.session)
        with self.mailbox(deadline, on_trouble) as mailbox:
            mailbox.connect()  # a relay that cannot be used must not cost anything
            prepared = prepare(study, terms, self.name, self.table, ledger)

            def make() -> PartySession:
                attempt = secrets.last_attempt()
                return PartySession(terms, prepared.index, self.identity, prepared.vector, secrets, attempt)

            try:
                party, left = drive(make, mailbox, deadline, secrets.failed_attempt(), watch, study.patience)
            except DeadlineError as error:
                secrets.note_failure(getattr(error, "attempt", secrets.last_attempt()))
                raise
            # Settled first: whatever happens to us now, a later call finds what the others are still to get.
            sent = mailbox.bytes_sent + sum(map(len, left))
            lost = frozenset(range(terms.count)) - party.members
            told = settle(study, terms, party.index, party.result, party.attempt, sent, ledger, left, missing=lost)
            return replace(told, note=_send(mailbox, left))

    def compute_on_shares(self, deadline: float, listen: str | None, on_step: Callable[[str], None]) -> PartyRelease:
        """A query that is no sum: no messages of ours, but a computation on shares among all parties.

        Run again it is the same until its result is opened, and never afterwards: a party that changes its input would
        see two results with the same noise. docs/theory.md, "Functions on shares".
        """
        study, terms, ledger = self.study, self.terms, self.ledger
        index = study.index(self.name)
        if _OPENING in ledger.kept_names(terms.session):
            return self._opened_before()
        addresses = [_address_of(member) for member in study.members]
        bind = None if listen is None else parse_address("--listen", listen)
        job = self._job()
        told: list[PartyRelease] = []

        def give() -> tuple[IntArray, IntArray]:
            on_step("connect and compute")
            job.check_values(index, encode(study, terms, self.name, self.table))
            prepared = prepare(study, terms, self.name, self.table, ledger)
            return prepared.values, from_words(prepared.vector, terms.grid.word)

        def opening() -> None:
            on_step("open the result")
            self._note_opening()

        def keep(result: IntArray | None, sent: int) -> None:
            told.append(settle(study, terms, index, result, 1, sent, ledger, [], guarantee_of(job)))

        run_in_process(
            job,
            index,
            self.identity,
            addresses,
            give,
            deadline,
            on_opening=opening,
            on_result=keep,
            bind=bind,
        )
        return told[0]

    def _job(self) -> MpycJob:
        joint, parties = self.study.joint, self.study.party_records
        assert joint is not None
        parameters = joint.parameters(parties, self.terms.grid)
        return MpycJob.of(self.terms, joint.function, parameters, joint.sizes(parties))

    def _note_opening(self) -> None:
        """For ever, and for one process of this party only."""
        ours = os.urandom(16)
        if self.ledger.keep(self.terms.session, _OPENING, ours) != ours:
            raise self._opened_error()

    def _opened_error(self) -> LedgerError:
        problem = "was opened before and did not get here; with the same noise it must not be opened again"
        remedy = f"set session = {self.study.session + 1} for a new session, which is charged anew"
        return LedgerError(f"the result of {shown(self.study.label)}", problem, remedy)

    def _opened_before(self) -> PartyRelease:
        """A receiver has lost the result; any other party has nothing more to get, and sends nothing more."""
        study, terms, index = self.study, self.terms, self.study.index(self.name)
        encoded = encode(study, terms, self.name, self.table)
        check_same(study, terms, encoded, self.ledger.kept(terms.session))
        if terms.spec.receivers[index]:
            raise self._opened_error()
        told = settle(study, terms, index, None, 1, 0, self.ledger, [], guarantee_of(self._job()))
        return replace(told, note="cut off before a receiver confirmed the result; this party has nothing more to do")

    def tell_again(self) -> PartyRelease:
        """What a finished session gave. The lead receiver sends the others theirs again: they may have been lost."""
        kept = self.ledger.kept(self.terms.session)
        check_same(self.study, self.terms, encode(self.study, self.terms, self.name, self.table), kept)
        told = with_ledger(release_of_plain(json.loads(kept["told"])), self.ledger, again=True)
        if "outbox" in kept:
            messages = [data for _, data in frames(kept["outbox"])]
            with self.mailbox(now_s() + _RESEND_S) as mailbox:
                told = replace(told, note=_send(mailbox, messages))
        return told


def _address_of(member: Party) -> tuple[str, int]:
    if member.address is None:
        rule = "is missing: parties of a query that is no sum connect to each other"
        raise InputError(f"address of {member.name}", "(none)", rule, 'add address = "host:port" to the study')
    return parse_address(f"address of {member.name}", member.address)


def _send(mailbox: Mailbox, messages: list[bytes]) -> str:
    """Send the answers of a session that is settled; what to do if that fails, or nothing."""
    while True:
        try:
            mailbox.post(messages)
            return ""
        except RelayChangedError:
            continue
        except (DeadlineError, RelayError) as error:
            return f"the others may not have their answers yet ({error}); the same command sends them again"
