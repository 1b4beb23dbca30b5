"""One party among many: `join` takes part in a study through a relay, and resumes what was begun."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from tpmdp.clock import now_s
from tpmdp.engines.relay.client import Mailbox, RelayChangedError, RelayError, Watch, drive
from tpmdp.engines.relay.wire import frames
from tpmdp.errors import DeadlineError
from tpmdp.ledger import Ledger, LedgerError
from tpmdp.ledger_secrets import LedgerSecrets
from tpmdp.protocol.party import Party
from tpmdp.protocol.terms import Terms
from tpmdp.queries.base import Answer, Table
from tpmdp.release import PartyRelease, check_same, encode, prepare, settle, with_ledger
from tpmdp.study import Study

_RESEND_S: Final = 30.0


def join(
    study: Study,
    name: str,
    identity: Ed25519PrivateKey,
    table: Table,
    ledger: Ledger,
    relay: str,
    *,
    certificate_authority: Path | None = None,
    watch: Watch = lambda *_: None,
    on_trouble: Callable[[str], None] = lambda _: None,
    terms: Terms | None = None,
) -> PartyRelease:
    """Take part in a study as one party, through a relay; resumes a session that was begun.

    Raises DeadlineError, which names who was missing, when the study's deadline passes.
    """
    deadline = now_s() + study.seconds_left()
    agreed = study.terms() if terms is None else terms
    seat = _Seat(study, agreed, name, identity, table, ledger, relay, certificate_authority)
    if seat.is_settled:
        return seat.tell_again()
    if deadline <= now_s():
        raise DeadlineError("the deadline of the study has passed: join with a later one")
    try:
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

            def make() -> Party:
                attempt = secrets.last_attempt()
                return Party(terms, prepared.index, self.identity, prepared.vector, secrets, attempt)

            try:
                party, left = drive(make, mailbox, deadline, secrets.failed_attempt(), watch)
            except DeadlineError as error:
                secrets.note_failure(getattr(error, "attempt", secrets.last_attempt()))
                raise
            # Settled first: whatever happens to us now, a later call finds what the others are still to get.
            sent = mailbox.bytes_sent + sum(map(len, left))
            told = settle(study, terms, party.index, party.result, party.attempt, sent, ledger, left)
            return replace(told, note=_send(mailbox, left))

    def tell_again(self) -> PartyRelease:
        """What a finished session gave. The lead receiver sends the others theirs again: they may have been lost."""
        kept = self.ledger.kept(self.terms.session)
        check_same(self.study, self.terms, encode(self.study, self.terms, self.name, self.table), kept)
        fields = json.loads(kept["told"])
        if fields["answers"] is not None:
            fields["answers"] = tuple(Answer(**answer) for answer in fields["answers"])
        told = with_ledger(PartyRelease(**fields), self.ledger, again=True)
        if "outbox" in kept:
            messages = [data for _, data in frames(kept["outbox"])]
            with self.mailbox(now_s() + _RESEND_S) as mailbox:
                told = replace(told, note=_send(mailbox, messages))
        return told


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
