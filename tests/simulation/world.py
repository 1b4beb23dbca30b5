"""The simulated world: parties with real ledgers, their processes, a relay that does anything, and hostile parties."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field, replace
from functools import cache, partial
from pathlib import Path
from typing import Any, Final

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from tests.simulation.symbols import PLACES, Symbols, SymbolSecrets
from tpmdp.ledger import Ledger, LedgerError
from tpmdp.ledger.entry import Entry
from tpmdp.ledger.witness import LedgerNotes
from tpmdp.protocol.channel import seal
from tpmdp.protocol.group import from_bits, to_bits
from tpmdp.protocol.hybrid import SECRET_BYTES, Capsule, HybridKey
from tpmdp.protocol.messages import EVERYONE, HASH_BYTES, Kind, Message, MessageError, decode, digest_of, encode
from tpmdp.protocol.parts import encode_parts
from tpmdp.protocol.party import PartySession, ProtocolError, TooEarlyError
from tpmdp.protocol.shares import SHARE_BYTES, check_value
from tpmdp.protocol.terms import Terms
from tpmdp.study.contribution import Contribution
from tpmdp.study.model import Study
from tpmdp.study.session import SessionAccount, key_of

PLANS: Final = 2  # as the study was, and with a mistake mended
EPSILON: Final = 1.0


@dataclass(frozen=True)
class Shape:
    """Who takes part."""

    count: int
    threshold: int  # colluders
    tolerate: int
    receivers: tuple[int, ...]
    corrupt: tuple[int, ...]
    guarantee: str


class CrashError(Exception):
    """The process was killed."""


class CrashingLedger(Ledger):
    """A ledger whose process can be killed around a transaction."""

    crash_in: int | None = None  # so many transactions from now
    crash_after: bool = False  # the commit, or before it

    @contextmanager
    def _transaction(self) -> Iterator[Entry]:
        now = self.crash_in == 0
        if self.crash_in is not None:
            self.crash_in -= 1
        with super()._transaction() as last:
            yield last
            if now and not self.crash_after:
                raise CrashError
        if now:
            raise CrashError


@dataclass(eq=False)
class Process:
    """One process of an honest party, in one session with one plan."""

    party: int
    plan: int
    ledger: CrashingLedger
    account: SessionAccount
    session: PartySession
    cursor: int = 0  # how far it has read the relay's log in order
    early: list[int] = field(default_factory=list)


@dataclass
class World:
    """Everything, and what happened."""

    shape: Shape
    folder: Path
    stack: ExitStack

    def __post_init__(self) -> None:
        shape = self.shape
        self.identities = [_identity(index) for index in range(shape.count)]
        self.studies = [_study(replace(shape, corrupt=()), plan)[0] for plan in range(PLANS)]
        self.terms = [_study(replace(shape, corrupt=()), plan)[1] for plan in range(PLANS)]
        self.symbols = Symbols(self.terms[0].grid.word, shape.guarantee == "statistical")
        self.stack.enter_context(self.symbols.in_use())
        self.honest = [index for index in range(shape.count) if index not in shape.corrupt]
        self._capsules: dict[tuple[int, bytes], Capsule] = {}  # of hostile parties, by party and key
        self.log: list[bytes] = []  # all that was ever sent
        self.stored: set[bytes] = set()
        self.processes: list[Process] = []
        self.outboxes: dict[int, list[bytes]] = {}  # what a party has yet to send once it has settled
        self.results: dict[int, list[tuple[int, list[int]]]] = {}  # by receiver: plan and sum
        self.opened: list[tuple[int, list[int]]] = []  # sums that honest receivers learned
        self.cancelled = False
        self.keepers_of: dict[tuple[bytes, int, int], tuple[int, ...]] = {}  # of what parties have opened
        self.blamed: set[str] = set()
        self.problems: list[str] = []
        self.groups: set[frozenset[int]] = {frozenset(range(shape.count))}
        for index in self.honest:
            with Ledger.create(self.file(index), self.name(index), 4 * EPSILON, 1e-6):
                pass

    # Files

    def name(self, index: int) -> str:
        return f"p{index}"

    def file(self, index: int) -> Path:
        return self.folder / f"{index}.ledger"

    def charged(self, index: int, plan: int) -> bool:
        """Read by somebody else, from the disk."""
        key = key_of(self.terms[plan])
        with Ledger.open(self.file(index)) as ledger:
            return ledger.status(key) in ("charged", "settled")

    # What processes do

    def start(self, index: int, plan: int) -> None:
        """Start or resume: as `tpmdp join` does, up to its first messages."""
        study, terms, identity = self.studies[plan], self.terms[plan], self.identities[index]
        ledger = self.stack.enter_context(CrashingLedger.open(self.file(index)))
        account = SessionAccount(study, terms, self.name(index), identity=identity, ledger=ledger)
        if account.is_settled:
            self._post(self.outboxes.get(index, []))  # the others may not have their answers
            return
        contribution = Contribution(study, terms, self.name(index), encoded=self.symbols.statistic(index))
        try:
            account.hold(contribution)
            account.agree()
            contribution = account.stored_contribution() or contribution
        except LedgerError:  # cancelled, or another plan of the session is charged
            ledger.close()
            return
        secrets = SymbolSecrets(ledger, account.key, symbols=self.symbols, index=index)
        session = PartySession(
            terms,
            index,
            identity,
            vector=partial(account.charge, contribution),
            secrets=secrets,
            attempt=secrets.last_attempt(),
            parts=encode_parts(study.parts()),
            notes=LedgerNotes(ledger, account.key, identity),
        )
        process = Process(index, plan, ledger, account, session)
        self.processes.append(process)
        self.post(process, session.start())

    def post(self, process: Process, messages: list[bytes]) -> None:
        """The relay takes messages; one that depends on data must find the charge on the disk."""
        for data in messages:
            message = decode(data)
            if message.kind in (Kind.SUBMIT, Kind.RESULT, Kind.REVEAL, Kind.OPEN) and not self.charged(
                process.party, process.plan
            ):
                self.problems.append(f"{message!r} left before party {process.party} was charged")
            if message.kind == Kind.REVEAL:
                keepers = process.session.current.keepers
                self.keepers_of[message.plan_hash, message.attempt, message.sender] = keepers
            if message.kind == Kind.GROUP:
                self.groups.add(from_bits(message.body, self.shape.count))
        self._post(messages)

    def _post(self, messages: list[bytes]) -> None:
        for data in messages:
            if data not in self.stored:
                self.stored.add(data)
                self.log.append(data)

    def deliver(self, process: Process, number: int) -> bool:
        """Whether the message was of use; a process that ends is gone afterwards."""
        data = self.log[number]
        try:
            message = decode(data)
            if message.recipient not in (process.party, EVERYONE) or message.sender == process.party:
                return False
            sent = process.session.receive(data)
        except MessageError:
            return False
        except TooEarlyError:
            process.early.append(number)
            return False
        except ProtocolError as error:
            self.blamed.add(str(error))
            self.end(process)
            return False
        except (CrashError, LedgerError):
            self.end(process)
            return False
        if process.session.done:
            self.settle(process, sent)
            return True
        try:
            self.post(process, sent)
        except CrashError:
            self.end(process)
        if sent:
            process.cursor = min([process.cursor, *process.early])
            process.early.clear()
        return True

    def settle(self, process: Process, sent: list[bytes]) -> None:
        session = process.session
        self.outboxes[process.party] = sent  # `tpmdp join` stores it in the same transaction
        try:
            process.ledger.settle(process.account.key, "answer" if session.result is not None else "receipt", {})
        except (CrashError, LedgerError):
            self.end(process)
            return
        if session.result is not None:
            self.opened.append((process.plan, session.result.tolist()))
            self.results.setdefault(process.party, []).append((process.plan, session.result.tolist()))
        self.post(process, sent)
        self.end(process)

    def go_on(self, process: Process) -> None:
        """Patience is over: the lead receiver goes on without the parties that are missing."""
        self._post_all(process, PartySession.drop_missing)

    def retry(self, process: Process) -> None:
        """The deadline passed; the same command begins a new attempt."""
        self._post_all(process, PartySession.retry)

    def _post_all(self, process: Process, action: Callable[[PartySession], list[bytes]]) -> None:
        with suppress(ProtocolError):
            try:
                self.post(process, action(process.session))
            except (CrashError, LedgerError):
                self.end(process)

    def end(self, process: Process) -> None:
        process.ledger.close()
        with suppress(ValueError):
            self.processes.remove(process)

    def cancel(self, index: int, plan: int) -> None:
        """`tpmdp ledger cancel`."""
        with Ledger.open(self.file(index)) as ledger, suppress(LedgerError):
            ledger.cancel(key_of(self.terms[plan]))
            self.cancelled = True

    # What hostile parties say

    def private(self, corrupt: int, attempt: int, variant: int) -> HybridKey:
        return _key(bytes([corrupt, attempt, variant]))

    def say(self, kind: Kind, attempt: int, sender: int, recipient: int, *, body: bytes, plan: int = 0) -> int:
        """The number of the message in the log."""
        terms = self.terms[plan]
        message = Message(kind, attempt, sender, recipient, session=terms.session, plan_hash=terms.plan_hash, body=body)
        return self._note(encode(message, self.identities[sender]))

    def _note(self, data: bytes) -> int:
        if data not in self.stored:
            self.stored.add(data)
            self.log.append(data)
        return self.log.index(data)

    def say_keys(self, corrupt: int, attempt: int, variant: int, plan: int) -> int:
        public = self.private(corrupt, attempt, variant).public
        if attempt == 1:
            self.say(Kind.AGREE, 0, corrupt, EVERYONE, body=b"", plan=plan)
        return self.say(Kind.KEYS, attempt, corrupt, EVERYONE, body=public, plan=plan)

    def say_group(self, attempt: int, members: frozenset[int]) -> list[int]:
        lead = self.terms[0].lead
        if lead not in self.shape.corrupt or attempt == 1:
            return []
        self.groups.add(members)
        return [self.say(Kind.GROUP, attempt, lead, EVERYONE, body=to_bits(members, self.shape.count))]

    def say_list(self, attempt: int, members: frozenset[int], keys: Iterable[int] = ()) -> list[int]:
        """The keys that the lead receiver lists, once all are there; `keys` are the messages of hostile parties."""
        lead = self.terms[0].lead
        if lead not in self.shape.corrupt:
            return []
        known: dict[int, bytes] = {}
        for number, data in enumerate(self.log):
            message = decode(data)
            about = (message.kind, message.attempt, message.plan_hash)
            is_meant = message.sender in self.honest or number in set(keys) or message.sender not in known
            if about == (Kind.KEYS, attempt, self.terms[0].plan_hash) and message.sender in members and is_meant:
                known[message.sender] = digest_of(data)
        if set(known) != members:
            return []
        body = b"".join(known.get(party, bytes(HASH_BYTES)) for party in range(self.shape.count))
        return [self.say(Kind.LIST, attempt, lead, EVERYONE, body=body)]

    def say_open(self, attempt: int) -> list[int]:
        """Ask everybody to open an attempt."""
        lead, numbers = self.terms[0].lead, []
        for data in [data for data in self.log if decode(data).kind == Kind.SUBMIT]:
            message = decode(data)
            if (
                lead in self.shape.corrupt
                and message.attempt == attempt
                and message.plan_hash == self.terms[0].plan_hash
            ):
                numbers.append(self.say(Kind.OPEN, attempt, lead, message.sender, body=digest_of(data)))
        return numbers

    def say_pads(self, process: Process) -> list[int]:
        """The pads and shares that a process lacks from hostile parties: zeros."""
        session, terms, numbers = process.session, self.terms[process.plan], list[int]()
        if not session.ready or session.done:
            return numbers
        bound, nothing = session.current.transcript, bytes(SHARE_BYTES)
        for corrupt in self.shape.corrupt:
            if session.step == "pads" and corrupt in session.waiting_for():
                content = bound + bytes(terms.masked_bytes) if terms.guarantee == "statistical" else None
                numbers += self._say_between(process, Kind.PAD, corrupt, content=content)
            if corrupt in set(session.current.keepers) - set(session.current.shares):
                content = bound + check_value(nothing) + nothing
                numbers += self._say_between(process, Kind.SHARE, corrupt, content=content)
        return numbers

    def _say_between(self, process: Process, kind: Kind, corrupt: int, *, content: bytes | None) -> list[int]:
        """A message of a hostile party to a process, with each of its keys; without content, a ciphertext alone."""
        session, terms, numbers = process.session, self.terms[process.plan], list[int]()
        public, place = session.current.keys[process.party], (session.attempt, corrupt, process.party)
        capsule = self._capsules.setdefault((corrupt, public), Capsule.to(public))
        for variant in range(2):
            own = self.private(corrupt, session.attempt, variant)
            if own.public == session.current.keys[corrupt]:
                envelope = Message(kind, *place, session=terms.session, plan_hash=terms.plan_hash, body=b"")
                message = replace(envelope, body=capsule.ciphertext)
                if content is not None:
                    message = seal(own, public, envelope, capsule=capsule, content=content)
                numbers.append(self._note(encode(message, self.identities[corrupt])))
        return numbers


@cache
def _key(seed: bytes) -> HybridKey:
    return HybridKey(hashlib.shake_256(seed).digest(SECRET_BYTES))


def _identity(index: int) -> Ed25519PrivateKey:
    return Ed25519PrivateKey.from_private_bytes(bytes([7]) * 31 + bytes([index]))


@cache
def _study(shape: Shape, plan: int) -> tuple[Study, Terms]:
    """A histogram with as many bins as there are symbols; the second plan has another epsilon of the last party."""
    threshold = shape.threshold
    parties: list[dict[str, Any]] = [
        {"name": f"p{index}", "epsilon": EPSILON + 0.25 * index, "records": 3} for index in range(shape.count)
    ]
    parties[-1]["epsilon"] += 0.125 * plan
    study = Study.parse(
        {
            "name": "simulation",
            "delta": 1e-6,
            "threshold": threshold,
            "receivers": [f"p{index}" for index in shape.receivers],
            "guarantee": shape.guarantee,
            **({"tolerate": shape.tolerate} if shape.tolerate else {}),
            "parties": parties,
            "queries": [
                {"name": "h", "kind": "histogram", "column": "x", "edges": list(map(float, range(PLACES + 1)))}
            ],
        }
    )
    keys = {f"p{index}": _identity(index).public_key().public_bytes_raw() for index in range(shape.count)}
    assert study.dimension == PLACES
    keyed = study.with_keys(keys)
    return keyed, keyed.terms()
