"""One party's files for a study: what `tpmdp check` and `tpmdp join`, and the page, do with them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from tpmdp._util.files import check_output
from tpmdp.data.source import read_table
from tpmdp.data.table import Table
from tpmdp.engines.relay.mailbox import check_url
from tpmdp.errors import InputError
from tpmdp.ledger import Ledger, Status
from tpmdp.protocol.terms import Terms
from tpmdp.study.begun import begun_sessions, give_up
from tpmdp.study.check import check_party
from tpmdp.study.contribution import Contribution, check_given, contribute, uncounted_text
from tpmdp.study.events import SessionEvent
from tpmdp.study.identity import read_key
from tpmdp.study.join import check_in, take_part
from tpmdp.study.model import Study
from tpmdp.study.party_check import Begun, PartyCheck
from tpmdp.study.peers import author_notice, check_peers, find_peers, has_no_session
from tpmdp.study.progress import finished_release, sessions_in, status_of
from tpmdp.study.record import SessionRecord
from tpmdp.study.release import PartyRelease
from tpmdp.study.round_account import account_of
from tpmdp.study.session import key_of, open_or_create_ledger

_OUTBOX: Final = "outbox"


@dataclass(frozen=True)
class PartyFiles:
    """Where a party has its key, its records and its ledger.

    `ledger` is by default the key file's name with .ledger, and `peers` the file peers.toml beside the key, if there is
    one. `terms` gives the plan that the party would sign, if that is not the one that the study gives.

    >>> parties = [{"name": "bank", "epsilon": 1, "records": 3}, {"name": "lab", "epsilon": 2, "records": 5}]
    >>> study = Study.parse({"name": "demo", "delta": 1e-6, "threshold": 1, "receivers": "all", "parties": parties,
    ...                      "queries": [{"name": "old", "kind": "count", "column": "age", "at_least": 65}]})
    >>> PartyFiles(study, "bank", Path("keys/bank.key")).ledger_file
    PosixPath('keys/bank.ledger')
    """

    study: Study
    name: str
    key: Path | None
    data: Path | None = None
    ledger: Path | None = None
    peers: Path | None = None
    terms: Callable[[], Terms] | None = None

    @property
    def ledger_file(self) -> Path | None:
        """Where the ledger is, or will be; None if neither it nor a key was given."""
        return self.ledger if self.ledger is not None or self.key is None else self.key.with_suffix(".ledger")

    @property
    def peers_file(self) -> Path | None:
        """The file that pins the other parties' keys, if there is one."""
        return self.peers if self.key is None else find_peers(self.peers, self.key)

    def check(self) -> PartyCheck:
        """Everything that can be known before the party joins; nothing is charged, sent or written."""
        key, path = self.key, self.ledger_file
        opened: list[Ledger] = []

        def open_ledger() -> Ledger | None:
            assert path is not None
            if not path.exists():
                check_output(path)
                return None
            opened.append(Ledger.open(path))
            return opened[0]

        try:
            return check_party(
                self.study,
                self.name,
                self.data,
                ledger=None if path is None else open_ledger,
                identity=None if key is None else lambda: read_key(key),
                terms=None if self.terms is None else self.terms(),
                peers=self.peers_file,
            )
        finally:
            for ledger in opened:
                ledger.close()

    @contextmanager
    def begin(
        self,
        study_file: Path,
        url: str | None,
        *,
        plain_http: bool = False,
        warns_of_author: bool = True,
        notice: Callable[[str], None] = lambda _: None,
    ) -> Iterator[Participation]:
        """Everything that is checked before the party takes part, in this order; the ledger is open within.

        `notice` is called with what the party should know: queries for which none of its records counts, and a new
        ledger, which brings a new budget. A party without peers is told once what the author of the study could have
        done, if `warns_of_author`.
        """
        study, name, path = self.study.first, self.name, self.ledger_file
        if self.key is None or path is None:
            raise InputError(f"key of {name}", "(none)", "is missing", "make one with tpmdp keygen")
        identity = read_key(self.key)
        relay = check_relay(study, url, plain_http)
        offered = check_in(self.study, name, identity, terms=None if self.terms is None else self.terms())
        peers = self.peers_file
        if peers is not None:
            check_peers(offered, identity.public_key().public_bytes_raw(), peers)

        def read_contribution() -> Contribution:
            contribution = contribute(study, offered, name, table=read_records(self.study, name, self.data))
            for text in uncounted_text(contribution):
                notice(text)
            return contribution

        contribution = None if path.exists() else read_contribution()  # bad data make no new ledger
        with open_or_create_ledger(path, self.study, name, identity=identity) as ledger:
            if contribution is not None:
                epsilon, delta = ledger.limit(study.unit)
                notice(f"made a new ledger {path}: at most epsilon {epsilon:g} at delta {delta:g}")
            else:
                account = account_of(study, offered, name, identity=identity, ledger=ledger)
                contribution = account.stored_contribution()
                if contribution is not None and self.data is not None:
                    notice(f"{name} has agreed before: its data are as they were then, not read again")
                contribution = contribution or read_contribution()
            if peers is None and warns_of_author and has_no_session(ledger):
                notice(author_notice(study_file, self.key))
            yield Participation(contribution, identity, ledger, relay=relay)

    def record(self, with_answer: bool) -> SessionRecord:
        """The record of the session, from the party's ledger."""
        path = self.ledger_file
        assert path is not None
        with Ledger.open(path) as ledger:
            return SessionRecord.of(self.study, [ledger], self._signed(), with_answer=with_answer)

    def status(self) -> Status:
        """How far the session has come, by the party's ledger."""
        path = self.ledger_file
        if path is None or not path.exists():
            return "unknown"
        with Ledger.open(path) as ledger:
            return status_of(sessions_in(ledger, self.study, self._signed()))

    def begun(self) -> list[Begun]:
        """All sessions in the party's ledger that were begun and have not ended."""
        path = self.ledger_file
        if path is None or not path.exists():
            return []
        with Ledger.open(path) as ledger:
            return begun_sessions(ledger)

    def withdraw(self) -> None:
        """Give up this session before it is charged: what is held for it is free again, and it is never resumed.

        A LedgerError if it is not held, or was charged. `withdrawal_text` says what it means for the others.
        """
        path = self.ledger_file
        assert path is not None
        with Ledger.open(path) as ledger:
            key = key_of(self._signed())
            holds = [
                each for each in ledger.holds() if (each.session, each.plan) == (key.session.hex(), key.plan.hex())
            ]
            if not holds:
                ledger.cancel(key)  # which says why not
            give_up(ledger, holds)

    def finished(self) -> PartyRelease | None:
        """What a finished session gave, from the ledger; None if it is not finished. Nothing is read, sent or charged.

        A note says so if other parties may still wait for their answers.
        """
        path = self.ledger_file
        if path is None or not path.exists():
            return None
        with Ledger.open(path) as ledger:
            reached = sessions_in(ledger, self.study, self._signed())
            release = finished_release(self.study, self.name, reached)
            if release is None:
                return None
            is_lead = _OUTBOX in ledger.private_names(key_of(reached[-1].terms))
            note = "the others may not have their answers yet; they can be sent again" if is_lead else ""
            return replace(release.with_ledger(ledger, self.study.unit, again=True), note=note)

    def _signed(self) -> Terms:
        return self.study.terms() if self.terms is None else self.terms()


@dataclass(frozen=True, eq=False, repr=False)
class Participation:
    """A party that has passed all checks, with its ledger open."""

    contribution: Contribution
    identity: Ed25519PrivateKey
    ledger: Ledger
    relay: str | None

    def take_part(
        self,
        on_event: Callable[[SessionEvent], None] = lambda _: None,
        *,
        certificate_authority: Path | None = None,
        listen: str | None = None,
    ) -> PartyRelease:
        """Run the session, or resume it; one that is finished gives the same again."""
        return take_part(
            self.contribution,
            self.identity,
            self.ledger,
            relay=self.relay,
            certificate_authority=certificate_authority,
            listen=listen,
            on_event=on_event,
        )


def check_relay(study: Study, url: str | None, plain_http: bool = False) -> str | None:
    """The relay's address, checked; a study of sums needs one.

    >>> parties = [{"name": "bank", "epsilon": 1, "records": 3}, {"name": "lab", "epsilon": 2, "records": 5}]
    >>> study = Study.parse({"name": "demo", "delta": 1e-6, "threshold": 1, "receivers": "all", "parties": parties,
    ...                      "queries": [{"name": "old", "kind": "count", "column": "age", "at_least": 65}]})
    >>> check_relay(study, "https://relay.example.org/")
    'https://relay.example.org'
    """
    relay = None if url is None else check_url(url, plain_http)
    if relay is None and study.uses_relay:
        raise InputError("relay", "(none)", "is missing for a study of sums", "give the address of the relay")
    return relay


def read_records(study: Study, name: str, path: Path | None) -> Table:
    """The party's columns; a party without records has no file."""
    check_given(study, name, path)
    return {} if path is None else read_table(path, study.columns_of(name))
