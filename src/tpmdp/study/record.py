"""The record of a session: study, plan, ledger entries and, if wanted, the answer, in one document that can be checked.

`tpmdp join --out answer.json` writes it, and every report has it inside. `SessionRecord.check` trusts nothing in it: it
parses study and plan, proves again that the plan keeps every budget, and recomputes hashes and charges.
"""

from __future__ import annotations

import math
import re
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import astuple, dataclass, fields
from functools import cached_property
from typing import Any, Final

from tpmdp._util import fields as read
from tpmdp._util.canonical import canonical_json
from tpmdp._version import __version__
from tpmdp.engines.contract import guarantee_text, lacks_noise
from tpmdp.errors import CertificateError, InputError, shown
from tpmdp.ledger import Entry, Ledger, promise, rounded_up
from tpmdp.ledger.entry import entry_hash
from tpmdp.ledger.spending import check_limit
from tpmdp.protocol.terms import Terms
from tpmdp.queries.answer import Answer
from tpmdp.queries.catalogue import KINDS, Kinds
from tpmdp.queries.computation import SharedFunction
from tpmdp.queries.rounds import Point
from tpmdp.study.cost import JointTerms, all_terms, check_joint, joint_epsilon
from tpmdp.study.expectation import trial_terms
from tpmdp.study.model import Study
from tpmdp.study.party_record import LedgerBalance, LedgerComparison, OpenPoints, PartyRecord, party_of
from tpmdp.study.progress import sessions_in, stand_ins
from tpmdp.study.session import key_of
from tpmdp.study.shared_job import shared_job

FORMAT: Final = "tpmdp.session"
VERSION: Final = 2
_REMEDY: Final = "make it again with tpmdp report, from the study and the ledger"
_ORDER: Final = ("hold", "charge", "settle")  # of the entries of a session
_HASH: Final = re.compile(r"[0-9a-f]{64}", re.ASCII)
_RELEASE: Final = re.compile(r"[0-9]{1,4}(\.[0-9]{1,4}){1,3}", re.ASCII)  # a version of tpmdp
_OTHER_MACHINE: Final = 1e-9  # logarithms differ between machines in the last digits


@dataclass(frozen=True, eq=False)
class LaterRound:
    """A round after the first: the points at which it asks, and its terms."""

    points: Mapping[str, Point]
    terms: Terms


@dataclass(frozen=True, eq=False)
class SessionRecord:
    """A session, planned or run. `answers` is None where the record must not have them, or nobody has them yet."""

    study: Study
    terms: Terms
    parties: tuple[PartyRecord, ...] = ()
    answers: tuple[Answer, ...] | None = None
    written_by: str = __version__
    is_draft: bool = False  # parties have no keys yet: nothing can be signed
    later: tuple[LaterRound, ...] = ()  # of a study by rounds: those after the first that are known

    @classmethod
    def of(
        cls, study: Study, ledgers: Sequence[Ledger] = (), terms: Terms | None = None, *, with_answer: bool = False
    ) -> SessionRecord:
        """The record of the study's session, from the ledgers of parties that took part; without any, of the plan.

        >>> parties = [{"name": "bank", "epsilon": 1, "records": 900}, {"name": "lab", "epsilon": 2, "records": 500}]
        >>> query = {"name": "old", "kind": "count", "column": "age", "at_least": 65}
        >>> record = SessionRecord.of(Study.parse({"name": "demo", "delta": 1e-6, "threshold": 1,
        ...                                        "receivers": ["bank"], "parties": parties, "queries": [query]}))
        >>> record.status, record.is_draft
        ('planned', True)
        """
        if any(party.public_key is None for party in study.parties):
            if ledgers:
                remedy = "give the file the parties joined with; tpmdp run leaves it in its state folder"
                raise InputError("study", study.name, "has no public keys, so its session is not known", remedy)
            return cls(study, trial_terms(study), is_draft=True)
        if terms is not None:
            study.check_terms(terms)
        signed = study.terms() if terms is None else terms
        pairs = [PartyRecord.of(study, signed, ledger) for ledger in ledgers]
        names = [record.party for record, _ in pairs]
        if len(set(names)) < len(names):
            raise InputError("ledger", ", ".join(names), "has a party twice", "give one ledger per party")
        answers = next((answers for _, answers in pairs if answers is not None), None)
        if with_answer and answers is None:
            who = ", ".join(study.receivers)
            rule = "has no answer of this session" if ledgers else "is missing: only a receiver's ledger has the answer"
            value = ", ".join(str(ledger.path) for ledger in ledgers) or "(none)"
            raise InputError("ledger", value, rule, f"give the ledger of a receiver whose session has ended: {who}")
        records = tuple(sorted((record for record, _ in pairs), key=lambda record: study.index(record.party)))
        reached = max((sessions_in(ledger, study, signed) for ledger in ledgers), key=len, default=[])
        later = tuple(LaterRound(dict(each.study.part.points), each.terms) for each in reached[1:] if each.study.part)
        return cls(study, signed, records, answers=answers if with_answer else None, later=later)

    @cached_property
    def sessions(self) -> tuple[tuple[Study, Terms], ...]:
        """The sessions of the study that are known: one, or several rounds."""
        try:
            rounds = [(self.study.round(number, each.points), each.terms) for number, each in enumerate(self.later, 2)]
        except (ArithmeticError, LookupError, TypeError, ValueError):  # of points that no round led to
            raise CertificateError("points violated: a round cannot be asked at these points") from None
        return ((self.study.first, self.terms), *rounds)

    @cached_property
    def every_terms(self) -> tuple[Terms, ...]:
        """The terms of all sessions; of rounds that are not known yet, at guessed points."""
        known = [terms for _, terms in self.sessions]
        return (*known, *all_terms(self.study, self.terms)[len(known) :])

    @cached_property
    def joint_terms(self) -> Terms:
        """The terms with what all sessions together cost each party, against the budgets that the parties offer."""
        every = self.every_terms
        return self.terms if len(every) == 1 else JointTerms.of_rounds(self.study, every)

    @property
    def status(self) -> str:
        """How far the session has come: planned, held, charged or settled."""
        order = ("planned", "held", "charged", "settled")
        return max((record.status for record in self.parties), key=order.index, default="planned")

    @property
    def missing(self) -> tuple[str, ...]:
        """Parties that dropped out."""
        return next((record.missing for record in self.parties if record.missing), ())

    @cached_property
    def guarantee(self) -> str:
        """What a result of this session promises."""
        computation = self.study.computation
        if not isinstance(computation, SharedFunction):
            return guarantee_text(self.terms)
        return shared_job(self.study, self.terms).guarantee()

    def charge_of(self, party: str) -> float:
        """What the session costs a party: its real epsilon at its own delta, rounded up; by rounds, those charged."""
        index = self.study.index(party)
        record = next((each for each in self.parties if each.party == party), None)
        charged = {entry.session for entry in record.entries if entry.is_charge} if record is not None else set()
        every = [terms for terms in self.every_terms if not charged or terms.session.hex() in charged]
        return joint_epsilon(self.study, index, every)

    # As a document ----------------------------------------------------------------------------------------------------

    def document(self) -> dict[str, Any]:
        """As plain JSON values; what hashes cover is exact."""
        return {
            "format": FORMAT,
            "version": VERSION,
            "written_by": self.written_by,
            "session": self.study.label,
            "receivers": list(self.study.receivers),
            "answers": None if self.answers is None else [answer.plain() for answer in self.answers],
            "draft": self.is_draft,
            "study": self.study.toml(),
            "terms": self.terms.canonical(),
            "plan_hash": self.terms.plan_hash.hex(),
            "keyless_hash": self.terms.keyless_hash.hex(),
            **({"rounds": [_plain_round(each) for each in self.later]} if self.study.rounds > 1 else {}),
            "parties": [
                {
                    "party": record.party,
                    "entries": [_plain_entry(entry) for entry in record.entries],
                    "head": list(record.head),
                    "balance": {item.name: getattr(record.balance, item.name).hex() for item in fields(LedgerBalance)},
                    "bytes_sent": record.bytes_sent,
                    "missing": list(record.missing),
                }
                for record in self.parties
            ],
        }

    def text(self) -> str:
        """The document as canonical text: equal records have equal texts."""
        return canonical_json(self.document())

    @classmethod
    def parse(cls, document: Any, kinds: Kinds = KINDS) -> SessionRecord:
        """The record of a document from any author; `check` says whether it holds."""
        keys = ("format", "version", "written_by", "session", "receivers", "answers", "draft", "study", "terms")
        if not isinstance(document, dict) or (document.get("format"), document.get("version")) != (FORMAT, VERSION):
            given = document if isinstance(document, dict) else {}
            value = f"{read.written(given.get('format'))} version {read.written(given.get('version'))}"
            remedy = "use the tpmdp that wrote it, or make it again with tpmdp report, from the study and the ledger"
            raise InputError("format", value, f"is not {FORMAT} version {VERSION}", remedy)
        root = read.table("record", document, [*keys, "plan_hash", "keyless_hash", "parties"], optional=("rounds",))
        study = _read_study(root["study"], kinds)
        answers = root["answers"]
        record = cls(
            study,
            Terms.parse(_text("terms", root["terms"])),
            tuple(_read_party(study, each) for each in read.entries("parties", root["parties"])),
            answers=None if answers is None else tuple(_read_answer(each) for each in read.entries("answers", answers)),
            written_by=_version("written_by", root["written_by"]),
            is_draft=read.truth("draft", root["draft"]),
            later=tuple(_read_round(each) for each in read.entries("rounds", root["rounds"]) if study.rounds > 1)
            if "rounds" in root
            else (),
        )
        if canonical_json(record.document()) != canonical_json(document):
            problem = "does not agree with itself: it was changed or damaged, or another version of tpmdp wrote it"
            raise CertificateError(f"record violated: {shown(study.label)} {problem}")
        return record

    # Checks -----------------------------------------------------------------------------------------------------------

    def check(self) -> list[str]:
        """Prove what can be proved from the record alone, in words; a `CertificateError` says what does not hold."""
        try:
            if len(self.sessions) > self.study.rounds:
                raise InputError("rounds", len(self.sessions), f"must be at most {self.study.rounds}", _REMEDY)
            for study, terms in self.sessions:
                study.check_terms(terms)
                for index in range(terms.count):
                    terms.check(index)
                if 0 < len(self.missing) <= terms.tolerate:
                    left = frozenset(range(terms.count)) - {study.index(name) for name in self.missing}
                    for index in left:
                        terms.check_group(index, left)
        except InputError as error:
            raise CertificateError(str(error)) from None
        statements = [f"the plan is for this study: {len(self.study.parties)} parties and {self._queries}"]
        if lacks_noise(self.terms):
            statements.append("NO NOISE IS ADDED: receivers learn the exact answer, and no budget is promised")
        else:
            most = f"coalitions of up to {self.terms.colluders}"
            drop = f", also if up to {self.terms.tolerate} parties drop out" if self.terms.tolerate else ""
            statements.append(f"every budget holds against {most}{drop}, proved in exact arithmetic")
        if self.study.rounds > 1:
            done = len(self.sessions)
            text = "that of the first" if done == 1 else f"those of the first {done}"
            statements.append(f"of the plans of {self.study.rounds} rounds, {text}, with the points at which they ask")
            statements.append("all rounds together cost each party what it offers at most, by exact composition")
            self._check_joint()
        if self.is_draft:
            if self.parties or self.answers is not None:
                raise CertificateError("draft violated: a study without keys has no session")
            return [*statements, "not all parties have keys yet: nothing was signed or charged"]
        for record in self.parties:
            statements.append(self._check_party(record))
        if self.answers is not None:
            self._check_answers()
        return statements

    @property
    def _queries(self) -> str:
        count = len(self.study.queries)
        return "1 query" if count == 1 else f"{count} queries"

    def _check_party(self, record: PartyRecord) -> str:
        """The entries of a party are about this session, unaltered, and charge what it costs."""
        name = record.party
        self._check_kinds(record)
        allowed = self._allowed(self.study.index(name))
        previous = None
        for entry in record.entries:
            if entry.hash != entry_hash(astuple(entry)):
                raise CertificateError(f"ledger violated: entry {entry.number} of {name} does not match its hash")
            if previous is not None and (
                entry.number <= previous.number
                or (entry.number == previous.number + 1 and entry.previous != previous.hash)
            ):
                raise CertificateError(f"ledger violated: entry {entry.number} of {name} is out of order")
            label, cost = allowed.get((entry.session, entry.plan), ("", (0.0, 0.0)))
            if entry.study != label:
                raise CertificateError(f"ledger violated: entry {entry.number} of {name} is about another session")
            if not self._is_cost(entry, self.study.index(name), cost):
                raise CertificateError(f"charge violated: entry {entry.number} of {name} is not what the plan costs")
            previous = entry
        self._check_order(record)
        if len(record.missing) > self.study.tolerate or name in record.missing:
            raise CertificateError(f"drop-outs violated: {name} says that {len(record.missing)} dropped out")
        number, head = record.head
        newest = record.entries[-1]
        if number < newest.number or (number == newest.number and head != newest.hash):
            raise CertificateError(f"ledger violated: the head of {name} is not a later entry")
        if not record.later and record.balance.limit != (newest.limit_epsilon, newest.limit_delta):
            raise CertificateError(f"limit violated: that of {name} is not the one in its newest entry")
        spent = promise(newest.mu_squared_total, newest.closeness_total, record.balance.limit_delta)
        if not spent <= record.balance.spent * (1 + _OTHER_MACHINE):
            raise CertificateError(f"balance violated: {name} has spent more than the record says")
        if not 0 <= record.balance.left <= record.balance.limit_epsilon:
            raise CertificateError(f"balance violated: {name} cannot have so much left")
        epsilon = rounded_up(self.charge_of(name))
        charged = "charged epsilon at most" if self.study.tolerate else "charged epsilon"
        what = f"room set aside for epsilon {epsilon}" if record.status == "held" else f"{charged} {epsilon}"
        entries = f"{len(record.entries)} of the {number} entries in its ledger"
        return (
            f"the entries of {name} in this file fit together: {what} for this session and plan ({entries}, with their "
            f"hashes; head {head[:16]})"
        )

    def _is_cost(self, entry: Entry, index: int, cost: tuple[float, float]) -> bool:
        """Whether an entry states what the plan costs; where parties may drop out, at least what it does with all."""
        if not (entry.is_charge or entry.kind == "hold") or (entry.mu, entry.closeness) == cost:
            return True
        if not entry.is_charge or not self.study.tolerate or entry.closeness != cost[1]:
            return False
        return self.terms.charge_among(index, range(self.terms.count))[0] <= entry.mu <= cost[0]

    def _allowed(self, index: int) -> dict[tuple[str, str], tuple[str, tuple[float, float]]]:
        """The entries that a party may have, by session and plan: their label, mu and closeness."""
        places = [(study.label, key_of(terms), terms) for study, terms in self.sessions]
        rest = zip(stand_ins(self.study, self.terms), self.every_terms[1:], strict=True)
        places += [(terms.label, key, terms) for key, terms in rest]
        return {(key.session.hex(), key.plan.hex()): (label, terms.charge(index)) for label, key, terms in places}

    def _check_kinds(self, record: PartyRecord) -> None:
        """Every session is held, charged and settled, in this order."""
        groups: dict[tuple[str, str], list[str]] = {}
        for entry in record.entries:
            place = (entry.session, entry.plan) if self.study.rounds > 1 else ("", "")
            groups.setdefault(place, []).append("charge" if entry.is_charge else entry.kind)
        for kinds in groups.values():
            if kinds != [kind for kind in _ORDER if kind in kinds] or (kinds[-1] == "settle" and "charge" not in kinds):
                raise CertificateError(f"ledger violated: entries of {record.party} are {', '.join(kinds)}")

    def _check_order(self, record: PartyRecord) -> None:
        """Each round is charged after the one before has ended."""
        charged = [entry.session for entry in record.entries if entry.is_charge]
        ended = [entry.session for entry in record.entries if entry.kind == "settle"]
        order = [terms.session.hex() for _, terms in self.sessions]
        if charged != order[: len(charged)] or ended != order[: len(ended)] or len(charged) > len(ended) + 1:
            raise CertificateError(f"ledger violated: the rounds of {record.party} are not in order")

    def _check_joint(self) -> None:
        """All rounds together cost every party what it offers at most."""
        try:
            for index in range(self.terms.count):
                check_joint(self.study, index, self.every_terms)
        except InputError as error:
            raise CertificateError(f"budget violated: {error}") from None

    def _check_answers(self) -> None:
        names = {query.name for query in self.study.queries}
        for answer in self.answers or ():
            if answer.query not in names:
                raise CertificateError(f"answer violated: {shown(answer.query)} is not a query of the study")
        if not any(record.party in self.study.receivers and record.rounds_done for record in self.parties):
            raise CertificateError("answer violated: no receiver in this record has finished the session")

    def check_ledger(self, ledger: Ledger) -> LedgerComparison:
        """Compare with a party's ledger; a `CertificateError` says what differs."""
        name = party_of(self.study, ledger)
        record = next((each for each in self.parties if each.party == name), None)
        if record is None:
            raise InputError("ledger", str(ledger.path), f"is of {name}, who is not in the record", "give another one")
        for entry in record.entries:
            if not ledger.has_entry(entry.number, entry.hash):
                raise CertificateError(f"ledger violated: the ledger of {name} has no such entry {entry.number}")
        if not ledger.has_entry(*record.head):
            raise CertificateError(f"ledger violated: the ledger of {name} does not have the record's head")
        if ledger.limit(self.study.unit, record.head[0]) != record.balance.limit:
            raise CertificateError(f"limit violated: the ledger of {name} had another one at entry {record.head[0]}")
        mine, answers = PartyRecord.of(self.study, self.terms, ledger)
        if record.status == "settled":
            for field in ("bytes_sent", "missing"):
                if getattr(mine, field) != getattr(record, field):
                    raise CertificateError(f"{field} violated: the ledger of {name} has another value")
        proved, open_points = self._compare_heads(record, mine)
        has_answer = self.answers is not None and answers is not None
        if has_answer:
            if answers != self.answers:
                raise CertificateError(f"answer violated: the ledger of {name} has another answer")
            proved.append(f"the answer is the one in the ledger of {name}")
        return LedgerComparison(name, tuple(proved), tuple(open_points), has_answer=has_answer)

    def _compare_heads(self, record: PartyRecord, mine: PartyRecord) -> tuple[list[str], list[str]]:
        """What the ledger says now against what it said then: what agrees, and what cannot be compared any more."""
        name, then, now = record.party, record.balance, mine.balance
        newer = mine.head[0] - record.head[0]
        if not newer:
            for field in ("spent", "left"):
                if not math.isclose(getattr(then, field), getattr(now, field), rel_tol=_OTHER_MACHINE):
                    raise CertificateError(f"balance violated: {field} is another number in the ledger of {name}")
            return [f"the ledger of {name} has these entries, this limit and this head"], []
        followed = "1 newer entry followed" if newer == 1 else f"{newer} newer ones followed"
        proved = [f"the ledger of {name} has these entries; {followed}"]
        if now.limit != then.limit:
            limits = [f"epsilon {epsilon:g} at delta {delta:g}" for epsilon, delta in (then.limit, now.limit)]
            proved.append(f"the limit of {name} was {limits[0]} then and is {limits[1]} now")
        return proved, [f"what {name} had spent and left in all when the report was made: its ledger has moved on"]

    def check_approved(self, text: str) -> str:
        """Compare with the hash of a draft that was approved."""
        digits, own = text.strip().lower(), self.terms.keyless_hash.hex()
        if not _HASH.fullmatch(digits):
            rule = "must be 64 characters (0-9, a-f)"
            raise InputError("approved", text, rule, "copy it from the draft, or from tpmdp fingerprint")
        if digits != own:
            raise CertificateError(f"approval violated: the approved study has another hash than {own}")
        return "this is the study that was approved, by its hash without keys"

    def open_points(
        self,
        compared: Sequence[LedgerComparison] = (),
        *,
        is_approved: bool = False,
        by_ledger: str = "with --ledger",
        by_hash: str = "with --approved",
        by_words: str = "tpmdp fingerprint",
    ) -> OpenPoints:
        """What neither the record alone nor a comparison with these ledgers proves, in words.

        `by_ledger` and `by_hash` say where a ledger and the hash of the draft are given; `by_words` has the ten words.
        """
        to_give, never = [], [point for each in compared for point in each.open_points]
        done = {each.party for each in compared}
        others = [record.party for record in self.parties if record.party not in done]
        if others:
            whose = "yours" if not done else "theirs"
            have, has = ("the ledgers", "have") if len(others) > 1 else ("the ledger", "has")
            to_give.append(f"that {have} of {_some(others)} really {has} these entries: give {whose} {by_ledger}")
            to_give.append(
                f"limits, sums spent, bytes sent and drop-outs as {_some(others)} saw them: only their ledgers tell"
            )
        absent = [party.name for party in self.study.parties if party.name not in {each.party for each in self.parties}]
        if self.parties and absent:
            never.append(f"what {_some(absent)} did: this report has no entries of theirs")
        if not is_approved:
            to_give.append(f"that this is the study you approved: give the hash of the draft {by_hash}")
        if not self.is_draft:
            never.append(f"who holds the keys: one person can make them all; compare {by_words} by telephone")
        if self.answers is not None and not any(each.has_answer for each in compared):
            to_give.append(f"that this is the answer: give the ledger of a receiver {by_ledger}")
        if self.study.purpose or self.study.contact:
            never.append("purpose and contact: nobody signs them")
        never.append("whether every party adds its noise: nobody can see whether another one did")
        never.append("whether the data of the other parties are true: nobody can see it")
        return OpenPoints(tuple(to_give), tuple(never))


def _plain_entry(entry: Entry) -> dict[str, Any]:
    """An entry as JSON values; numbers in hexadecimal, as its hash has them."""
    values = {item.name: getattr(entry, item.name) for item in fields(Entry)}
    return {name: value.hex() if isinstance(value, float) else value for name, value in values.items()}


def _read_entry(value: Any) -> Entry:
    table = read.table("entry", value, [item.name for item in fields(Entry)])
    values: dict[str, Any] = {}
    for item in fields(Entry):
        raw = table[item.name]
        if item.type == "float":
            values[item.name] = _hex(item.name, raw)
        elif item.name == "number":
            values[item.name] = read.whole("number", raw, 1, high=1 << 53)
        else:
            values[item.name] = _text(item.name, raw)
    return Entry(**values)


def _read_party(study: Study, value: Any) -> PartyRecord:
    table = read.table("party", value, ("party", "entries", "head", "balance", "bytes_sent", "missing"))
    name = _text("party", table["party"])
    study.index(name)  # refuses a party that is not in the study
    entries = tuple(_read_entry(each) for each in read.entries("entries", table["entries"]))
    head, sent = read.entries("head", table["head"]), table["bytes_sent"]
    if not entries or len(head) != 2:
        raise InputError("entries", len(entries), f"of {name} lack something", _REMEDY)
    balance = read.table("balance", table["balance"], [item.name for item in fields(LedgerBalance)])
    check_limit(*(_hex(key, balance[key]) for key in ("limit_epsilon", "limit_delta")))
    missing = tuple(_text("missing", each) for each in read.entries("missing", table["missing"]))
    for each in missing:
        study.index(each)
    return PartyRecord(
        name,
        entries,
        (read.whole("head", head[0], 1, high=1 << 53), _text("head", head[1])),
        balance=LedgerBalance(**{key: _hex(key, each) for key, each in balance.items()}),
        bytes_sent=None if sent is None else read.whole("bytes_sent", sent, 0, high=1 << 53),
        missing=missing,
        rounds=study.rounds,
    )


def _plain_round(later: LaterRound) -> dict[str, Any]:
    points = {name: [number.hex() for number in point] for name, point in later.points.items()}
    return {"points": points, "terms": later.terms.canonical()}


def _read_round(value: Any) -> LaterRound:
    table = read.table("round", value, ("points", "terms"))
    if not isinstance(table["points"], dict):
        raise InputError("points", read.written(table["points"]), "must be a table", _REMEDY)
    points = {
        name: tuple(_hex(f"point of {name}", each) for each in read.entries("point", point))
        for name, point in table["points"].items()
    }
    return LaterRound(points, Terms.parse(_text("terms", table["terms"])))


def _read_answer(value: Any) -> Answer:
    keys = ("query", "part", "value", "standard_error", "low", "high", "note")
    table = read.table("answer", value, keys, optional=("noise", "always_low", "always_high", "further"))
    for key, each in table.items():
        if key in ("query", "part", "note"):
            _text(key, each)
        elif key == "further":
            _check_further(each)
        elif each is not None:
            read.number(key, each, finite=True)
    try:
        return Answer.of_plain(table)
    except (KeyError, TypeError, ValueError):
        raise InputError("answer", read.written(value), "is not an answer", _REMEDY) from None


def _check_further(value: Any) -> None:
    """Refuse what are not further intervals by what they cover: two ends each, of which None stands for infinity."""
    if not isinstance(value, dict):
        raise InputError("further", read.written(value), "are not intervals", _REMEDY)
    for ends in value.values():
        if not isinstance(ends, list) or len(ends) != 2:
            raise InputError("further", read.written(ends), "is not an interval", _REMEDY)
        for end in ends:
            if end is not None:
                read.number("further", end, finite=True)


def _read_study(value: Any, kinds: Kinds) -> Study:
    try:
        document: Mapping[str, Any] = tomllib.loads(_text("study", value), parse_float=read.parse_float)
    except (ValueError, RecursionError):
        raise InputError("study", value, "is not valid TOML", _REMEDY) from None
    return Study.parse(document, kinds)


def _text(field: str, value: Any) -> str:
    if not isinstance(value, str):
        raise InputError(field, read.written(value), "is not text", _REMEDY)
    return value


def _version(field: str, value: Any) -> str:
    if not isinstance(value, str) or not _RELEASE.fullmatch(value):
        raise InputError(field, read.written(value), "is not a version such as 0.9.0", _REMEDY)
    return value


def _some(names: Sequence[str], most: int = 12) -> str:
    return ", ".join(names[:most]) + (f" and {len(names) - most} more" if len(names) > most else "")


def _hex(field: str, value: Any) -> float:
    try:
        number = float.fromhex(_text(field, value))
    except (ValueError, OverflowError):
        raise InputError(field, read.written(value), "is not a number in hexadecimal", _REMEDY) from None
    if math.isnan(number):
        raise InputError(field, read.written(value), "is not a number", _REMEDY)
    return number
