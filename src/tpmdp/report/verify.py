"""What a file from any author proves: a plan, a report or the record of a session, or an exported ledger.

The command `tpmdp verify` and the page share these rules. Nothing in a file is trusted, run or believed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal

from tpmdp._util.progress import Progress
from tpmdp.errors import CertificateError, FileError
from tpmdp.ledger import Ledger, LedgerError, Spent, Totals, rounded_up
from tpmdp.ledger.exported import ExportCheck, is_export
from tpmdp.planning.certificate import Certificate, Verdict
from tpmdp.planning.plan import no_noise_reason
from tpmdp.planning.plan_file import read_plan
from tpmdp.queries.catalogue import KINDS, Kinds
from tpmdp.report.html_report import parse_record, read_page, read_text
from tpmdp.report.numbers import plural
from tpmdp.report.plan import factor_text, headline, optimality_text
from tpmdp.spec import Spec
from tpmdp.study.party_record import LedgerComparison, OpenPoints
from tpmdp.study.record import SessionRecord

FileKind = Literal["plan", "record", "page", "export", "ledger"]
PAGES: Final = (".html", ".htm")
SQLITE: Final = b"SQLite format 3\0"
_START: Final = 200  # bytes that tell what a file is
_REMEDY: Final = "name a plan.json, a report.html, the .json of a session or an exported ledger"

State = Literal["proved", "failed", "open"]


@dataclass(frozen=True)
class CheckStep:
    """A step of a check: what it shows, and what that means."""

    state: State
    text: str
    meaning: str = ""


def kind_of(path: Path, name: str | None = None) -> FileKind:
    """What a file is, from its name and its first bytes; refuses a file that is nothing of the kind.

    `name` is the one that it has for its owner, if that is not its name here. An empty or missing file counts as a
    plan, whose reader says what is wrong.
    """
    if Path(name or path.name).suffix.lower() in PAGES:
        return "page"
    start = b""
    with suppress(OSError):
        if path.is_file():
            with path.open("rb") as stream:
                start = stream.read(_START)
    if start.startswith(SQLITE):
        return "ledger"
    if is_export(start):
        return "export"
    if start.lstrip()[:1] == b"<":
        return "page"
    if b"PRIVATE KEY" in start:
        raise FileError(path, "is a secret key", "keep it on this machine, and give it to nobody; choose another file")
    if start.strip() and not start.lstrip().startswith((b"{", b"[")):
        raise FileError(path, "is neither a plan nor a report nor an exported ledger", _REMEDY)
    return "record" if b'"tpmdp.session"' in start else "plan"


# A report or a record -------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class ReadRecord:
    """The record in a file, not checked yet."""

    record: SessionRecord
    is_page: bool
    agrees: bool | None
    """Whether the page around the record says the same; None if there is no page that can be compared."""


@dataclass(frozen=True)
class RecordVerdict:
    """What a check of a report or a record proved."""

    read: ReadRecord
    proved: tuple[str, ...]
    compared: tuple[LedgerComparison, ...] = ()
    is_approved: bool = False

    @property
    def record(self) -> SessionRecord:
        """The record that was checked."""
        return self.read.record

    @property
    def is_verified(self) -> bool:
        """Whether everything that the file says was compared; a page of another version cannot be."""
        return not self.read.is_page or bool(self.read.agrees)

    @property
    def why_not(self) -> str:
        """Why a page is not verified, though its record holds; empty if it is."""
        text = f"the page was written by tpmdp {self.record.written_by} and cannot be compared"
        return "" if self.is_verified else text

    @property
    def plan_hash(self) -> str | None:
        """The hash of study and plan; None for a draft."""
        return None if self.record.is_draft else self.record.terms.plan_hash.hex()

    @property
    def keyless_hash(self) -> str:
        """The hash of the study without keys, which a draft has, too."""
        return self.record.terms.keyless_hash.hex()

    def open_points(self, **where: str) -> OpenPoints:
        """What was not checked, in words; `where` says how more can be given, as `SessionRecord.open_points` does."""
        points = self.record.open_points(self.compared, is_approved=self.is_approved, **where)
        return OpenPoints((self.why_not, *points.to_give), points.never) if self.why_not else points


def read_record(path: Path, kinds: Kinds = KINDS, *, is_page: bool) -> ReadRecord:
    """The record in a report or in a file of its own."""
    if is_page:
        record, agrees = read_page(path, kinds)
        return ReadRecord(record, is_page=True, agrees=agrees)
    return ReadRecord(parse_record(path, read_text(path), kinds), is_page=False, agrees=None)


def verify_record(read: ReadRecord, ledger_files: Sequence[Path] = (), approved: str | None = None) -> RecordVerdict:
    """Check a record alone, and against ledgers and the hash of the draft that was approved.

    A `CertificateError` says what does not hold.
    """
    record = read.record
    statements = record.check()
    if read.agrees is False:
        raise CertificateError("page violated: the page says something else than the record inside it")
    if read.agrees:
        statements.append("the page says what the record says")
    if approved is not None:
        statements.append(record.check_approved(approved))
    compared = []
    for file in ledger_files:
        with Ledger.open(file) as ledger:
            compared.append(record.check_ledger(ledger))
    statements += [text for each in compared for text in each.proved]
    return RecordVerdict(read, tuple(statements), tuple(compared), is_approved=approved is not None)


# A plan ---------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class PlanVerdict:
    """What a check of a plan proved, step by step; without a verdict one of the steps failed."""

    spec: Spec
    certificate: Certificate
    verdict: Verdict | None
    steps: tuple[CheckStep, ...]

    @property
    def no_noise(self) -> str | None:
        """Why the plan adds no noise, if it adds none."""
        return no_noise_reason(self.spec, self.certificate.variance, self.certificate.need)


def verify_plan(path: Path, progress: Progress | None = None) -> PlanVerdict:
    """Check a plan and say what each step means; a plan that does not hold has a step that failed."""
    spec, certificate = read_plan(path)
    try:
        verdict = certificate.check(spec, progress)
    except CertificateError as error:
        return PlanVerdict(spec, certificate, None, steps=tuple(_failed_steps(spec, error)))
    return PlanVerdict(spec, certificate, verdict, steps=tuple(_plan_steps(spec, certificate, verdict)))


def _coalitions(spec: Spec, which: str = "every") -> str:
    if isinstance(spec.threshold, int):
        return f"{which} coalition of up to {plural(spec.threshold, 'party', 'parties')}"
    return f"{which} coalition up to the size of each party's own threshold"


_BOUND: Final = "The bound on the noise holds"
_LEAST: Final = "Optimal: no plan with less noise keeps these budgets"
_MORE: Final = "Not shown to be optimal: the total is {} the proven lower bound"


def _failures(spec: Spec) -> dict[str, str]:
    """The same steps where they do not hold."""
    return {
        "form": "The proof is for another question than the plan",
        "need": "A need is too small for its budget",
        "privacy": f"Not private against {_coalitions(spec, 'some')}",
        "bound": "The bound on the noise does not hold",
        "optimality": "Not of the least noise, or not of the noise that it states",
    }


def _titles(spec: Spec) -> dict[str, str]:
    """The steps of a check of a plan, in its order, by what their errors begin with."""
    return {
        "form": f"The proof is for this question: {headline(spec)}",
        "need": "Each need is enough for its budget",
        "privacy": f"Private against {_coalitions(spec)}",
        "bound": _BOUND,
        "optimality": _LEAST,
    }


def _plan_steps(spec: Spec, certificate: Certificate, verdict: Verdict) -> list[CheckStep]:
    noise = optimality_text(certificate, verdict)
    meanings = {
        "form": "Parties, threshold and receivers of the proof are those of the plan.",
        "need": (
            "A party's need is the noise that hides one of its records up to its epsilon and delta. It was checked "
            "with bounds on the Gaussian distribution, in exact arithmetic."
        ),
        "privacy": (
            "Whichever of these parties pool what they see: the noise of the others is at least the need. So each "
            "budget in the table below holds."
        ),
        "bound": "A second calculation, which is in the file, shows how little noise any plan could have.",
        "optimality": f"{noise[0].upper()}{noise[1:]}.",
    }
    steps = [CheckStep("proved", title, meanings[key]) for key, title in _titles(spec).items()]
    if not verdict.is_optimal:
        meaning = f"{meanings['optimality']} The budgets hold. {_ASK_AGAIN}"
        steps[-1] = CheckStep("open", _MORE.format(factor_text(verdict)), meaning)
    return steps


def _failed_steps(spec: Spec, error: CertificateError) -> list[CheckStep]:
    """The steps before the one that failed, that one with the violated inequality, and those not reached."""
    failed = _step_of(error)
    states: dict[str, State] = {}
    for key in _titles(spec):
        states[key] = "failed" if key == failed else ("open" if "failed" in states.values() else "proved")
    return [
        CheckStep(
            state,
            _failures(spec)[key] if state == "failed" else title,
            {"failed": f"{error}. {meaning_of(error)}", "open": "Not checked.", "proved": ""}[state],
        )
        for (key, title), state in zip(_titles(spec).items(), states.values(), strict=True)
    ]


def _step_of(error: CertificateError) -> str:
    kind = _violated(error)
    if kind in ("form", "threshold", "receivers"):
        return "form"
    return kind if kind in ("need", "privacy", "optimality") else "bound"


# What a failure means -------------------------------------------------------------------------------------------------

_BY_HAND: Final = "The file is damaged or was changed by hand. Nothing in it is proved."
_ASK_AGAIN: Final = "Ask its author for the plan again."
_WITNESS: Final = f"The budgets hold, but the file does not prove that no plan needs less noise. {_ASK_AGAIN}"
_MEANINGS: Final[Mapping[str, str]] = {
    "form": _BY_HAND,
    "threshold": "The proof is for another threshold than the plan claims. Nothing is proved.",
    "receivers": "The proof is for other receivers than the plan claims. Nothing is proved.",
    "need": (
        "The noise that the plan calls enough for this party is too little for its budget: the promise to its records "
        "does not hold. Do not agree to this plan."
    ),
    "privacy": (
        "If the parties of this coalition pool what they see, the noise of the others is too little: they could learn "
        "more about a record than its budget allows. Do not agree to this plan."
    ),
    "optimality": (
        "The budgets hold, but the plan adds more noise than its author states, or nothing shows how little would do. "
        f"{_ASK_AGAIN}"
    ),
    **dict.fromkeys(("weight", "marginal", "group size", "danger", "load"), _WITNESS),
    "page": (
        "Somebody changed the page after tpmdp wrote it, or changed the record inside. Believe nothing on the page; "
        "ask for the report again."
    ),
    "record": (
        "Somebody changed the record after tpmdp wrote it, or the file is damaged. Believe nothing in it; ask for the "
        "report again."
    ),
    "draft": "The file calls itself a draft and yet tells of a session. It was changed by hand.",
    "ledger": (
        "The entries that the file shows are not those that a party's ledger has for this session. Somebody changed "
        "them, or they are of another session."
    ),
    "charge": "A party was charged something else than this plan costs. Its ledger does not fit this session.",
    "limit": "The limit that the file shows for a party is not the one in its ledger.",
    "balance": "What the file says that a party has spent or left cannot be right.",
    "answer": "The answer in the file is not one that this session gave. Do not use it.",
    "approval": "This is another study than the one that was approved: compare both before you go on.",
    "drop-outs": "More parties are said to have dropped out than the study allows.",
    "bytes_sent": "The file says something else than the party's ledger about what it sent.",
    "missing": "The file says something else than the party's ledger about which parties dropped out.",
}
_OTHER: Final = "Study and plan in this file do not belong together, or the plan does not keep what it promises."


def _violated(error: CertificateError) -> str:
    kind, violated, _ = str(error).partition(" violated: ")
    return kind if violated else ""


def meaning_of(error: CertificateError | LedgerError) -> str:
    """What it means for people that a check failed.

    >>> meaning_of(CertificateError("approval violated: the approved study has another hash than 00"))
    'This is another study than the one that was approved: compare both before you go on.'
    """
    if isinstance(error, LedgerError):
        return "The ledger was changed after it was written, or is not complete. What it says was spent is not proved."
    if "need violated" in str(error) and ("so the lower bound" in str(error) or "needs no noise" in str(error)):
        return "The plan asks for more noise than its budgets do, so it is not shown to be the best one."
    return _MEANINGS.get(_violated(error), _OTHER)


# A ledger -------------------------------------------------------------------------------------------------------------


def ledger_steps(entries: int, has_noted: bool) -> list[CheckStep]:
    """What a check of all entries of a ledger proved."""
    each = "1 entry, as it was written" if entries == 1 else f"{entries:,} entries, each as it was written"
    steps = [
        CheckStep("proved", each, "Each hash covers the entry and the hash before it: a changed entry would break it."),
        CheckStep("proved", "All totals add up", "Every sum was computed again, rounded up at each step."),
        CheckStep("proved", "No charge was over the limit of its time", "Computed again from the totals."),
        CheckStep("proved", "No session was charged twice", "And none was charged after it was cancelled."),
    ]
    if has_noted:
        text = "The hash that you noted earlier is among them"
        steps.append(CheckStep("proved", text, "Nothing up to it was cut off or rewritten since."))
    return steps


OTHER_LEDGERS: Final = "whether the party has other ledgers: what it spends there is not counted here"


def live_open_points(has_noted: bool, is_bound: bool) -> OpenPoints:
    """What a check of a ledger on this machine cannot show, in words.

    >>> points = live_open_points(has_noted=True, is_bound=True)
    >>> len(points.to_give), len(points.never)
    (0, 2)
    """
    anew = "that the ledger was never written anew as a whole: only a hash noted earlier shows that"
    cut = "whether entries after the newest one here were cut off: compare the head with one that somebody else noted"
    unbound = [] if is_bound else ["whose key it belongs to: it was not used with one yet"]
    return OpenPoints(() if has_noted else (anew,), (cut, *unbound, OTHER_LEDGERS))


def verdict_words(what: str, open_points: int) -> str:
    """The first words of a verdict, which claim no more than was checked; `open_points` can still be checked.

    >>> verdict_words("VALID", 2), verdict_words("VALID plan", 0)
    ('VALID as far as it can be checked here: 2 points open', 'VALID plan as far as a file can show')
    """
    if not open_points:
        return f"{what} as far as a file can show"
    return f"{what} as far as it can be checked here: {plural(open_points, 'point')} open"


def export_open_points(check: ExportCheck) -> OpenPoints:
    """What an export cannot show, in words."""
    points = [
        "whose ledger this is: an export has neither the party's name nor the ledger's id, so the hash before its "
        "first entry is taken as given",
    ]
    if check.public_key:
        points[0] += f"; its entries name the key {check.public_key[:16]}..."
    if len(check.units) > 1:
        points.append("whether a budget protects a record or a whole party: this old ledger does not say it")
    points.append("that the newest entries are there: the end can be cut off unseen; compare the head with the party")
    if not check.has_noted:
        points.append("that the ledger was never written anew as a whole: only a hash noted earlier shows that")
    return OpenPoints(never=(*points, OTHER_LEDGERS))


def balance_text(unit: str, balance: Totals | Spent) -> str:
    """What is spent and allowed.

    >>> balance_text("record", Totals(0.0, 0.0, 1.0, 1e-6))
    'epsilon 0 of 1 at delta 1e-06, by record'
    """
    limit = f"{balance.limit_epsilon:.12g} at delta {balance.limit_delta:g}"
    return f"epsilon {rounded_up(balance.epsilon)} of {limit}, by {unit}"
