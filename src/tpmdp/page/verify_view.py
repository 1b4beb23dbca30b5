"""Verify: a plan, a report or an exported ledger from anybody; or a ledger on this machine, by its name."""

from __future__ import annotations

import secrets
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from starlette.routing import Route

from tpmdp.errors import CertificateError, FileError, InputError, TpmdpError, shown
from tpmdp.ledger import Ledger, LedgerError
from tpmdp.ledger.exported import check_export
from tpmdp.page.folder import Folder
from tpmdp.page.forms import PageForm, button, choice, problem, text_field, tick, void
from tpmdp.page.routes import Parts, RefusedFormError, upload, view
from tpmdp.report.markup import Html, joined, name, names, table, tag
from tpmdp.report.numbers import number
from tpmdp.report.plan import headline, weights_text
from tpmdp.report.verify import (
    CheckStep,
    PlanVerdict,
    ReadRecord,
    RecordVerdict,
    balance_text,
    export_open_points,
    kind_of,
    ledger_steps,
    live_open_points,
    meaning_of,
    read_record,
    verdict_words,
    verify_plan,
    verify_record,
)
from tpmdp.study.fingerprint import phrase_of
from tpmdp.study.party_record import OpenPoints

FILE_MAX: Final = 64 << 20
_RECENT_MAX: Final = 8
_ROWS_MAX: Final = 1_000
_LEDGERS_SHOWN: Final = 20
_NAME_SHOWN: Final = 100
_WHOLE_MAX: Final = 1e15
_PLAN_POINTS: Final = OpenPoints(never=("that the budgets in the plan are the right ones: look up your own below",))
_DIGITS_HINT: Final = "64 characters (0-9, a-f)"
_KINDS: Final = "Choose a plan.json, a report .html, the .json of a session, or what tpmdp ledger export wrote."


# Reports that were read, for a comparison -----------------------------------------------------------------------------


@dataclass(frozen=True)
class RecentReport:
    """A report that was read, and the name of its file."""

    name: str
    read: ReadRecord


@dataclass
class RecentReports:
    """The reports that were read last, by a random id: in memory only, until others take their place."""

    _reports: dict[str, RecentReport] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def add(self, report: RecentReport) -> str:
        """Remember a report; returns its id."""
        own = secrets.token_hex(16)
        with self._lock:
            self._reports[own] = report
            while len(self._reports) > _RECENT_MAX:
                del self._reports[next(iter(self._reports))]
        return own

    def get(self, own: str) -> RecentReport:
        """The report with this id."""
        with self._lock:
            report = self._reports.get(own)
        if report is None:
            raise InputError("report", "(earlier)", "is not in memory any more", "choose its file again")
        return report


# The page -------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class VerifyView:
    """The view over a folder."""

    folder: Folder
    recent: RecentReports = field(default_factory=RecentReports)

    def show(self) -> Html:
        """The view before anything was checked."""
        file = void(
            "input",
            type="file",
            id="file",
            data_upload="/verify/upload",
            data_most=FILE_MAX,
            accept=".json,.jsonl,.html,.htm,.csv",
            aria_describedby="file-hint",
        )
        drop = tag(
            "div",
            tag("label", "Drop a file here, or choose it", for_="file"),
            tag("p", file),
            tag(
                "p",
                "A plan.json; a report (.html) or the record of a session (.json); or a ledger that tpmdp ledger "
                "export wrote (.jsonl or .csv). At most 64 MiB. It is checked on this machine, and not stored.",
                class_="hint",
                id="file-hint",
            ),
            class_="drop",
            data_drop="file",
        )
        form = tag(
            "form",
            tag(
                "div",
                tag("section", tag("h2", "A file from anybody"), drop),
                tag("section", tag("h2", "A ledger on this machine"), self._ledgers()),
                class_="columns",
            ),
            tag("p", "Checking ...", class_="when-busy", role="status"),
            tag("div", tag("p", "Nothing was checked yet.", class_="empty"), id="verdict", aria_live="polite"),
            id="verify",
            method="post",
            action="/verify",
            data_live="/verify",
            data_when="asked",
            autocomplete="off",
        )
        lead = (
            "Does it hold what it claims? What a file can show is computed again here, in exact arithmetic. What no "
            "file can show is listed apart."
        )
        return joined([tag("h1", "Verify"), tag("p", lead, class_="lead"), tag("div", id="problem"), form])

    def _ledgers(self) -> Html:
        listed = self.folder.names(".ledger")
        why = tag(
            "p",
            "A ledger in use holds the noise of its sessions, so it is never uploaded. It is read where it lies: in "
            "the page's folder, ",
            tag("code", name(str(self.folder.path))),
            ".",
            class_="hint",
        )
        if not listed:
            return joined([why, tag("p", "There is no ledger in the folder.", class_="empty")])
        return joined(
            [
                why,
                choice("Ledger", "ledger", {each: each for each in listed}, chosen=listed[0]),
                _head_field(),
                tag("p", button("Check the ledger", "ledger"), class_="buttons"),
            ]
        )

    def answer(self, form: PageForm) -> Parts:
        """Check a ledger in the folder, or compare a report that was read."""
        action = form.text("action")
        if action == "ledger":
            file = form.text("ledger")
            return _settled(file, lambda: self._check_ledger(file, form.text("head")))
        if action == "compare":
            own = form.text("report")
            report = self.recent.get(own)
            files = [self.folder.file("ledger", each) for each in form.all("with-ledger")]
            approved = form.text("approved")

            def compare() -> Html:
                return self._record(report, own, verify_record(report.read, files, approved or None), form=form)

            return _settled(report.name, compare, again=self._comparison(own, form))
        return {}

    def take(self, file_name: str, path: Path) -> Parts:
        """Check a file from the browser."""
        shown_name = shown(file_name or "the file", _NAME_SHOWN)
        return _settled(shown_name, lambda: self._check(shown_name, path), path=path)

    def _check(self, file_name: str, path: Path) -> Html:
        if not path.stat().st_size:
            raise FileError(path, "is empty", _KINDS[0].lower() + _KINDS[1:-1])
        kind = kind_of(path, file_name)
        if kind == "ledger":
            problem_text = "is a ledger in use, which holds noise and must not be passed on or copied"
            remedy = "choose it from the list of ledgers in the page's folder, or give what tpmdp ledger export wrote"
            raise FileError(path, problem_text, remedy)
        if kind == "export":
            return _export(file_name, path)
        if kind == "plan":
            return _plan(file_name, verify_plan(path))
        report = RecentReport(file_name, read_record(path, is_page=kind == "page"))
        verdict = verify_record(report.read)
        return self._record(report, self.recent.add(report), verdict, form=PageForm({}))

    # Verdicts ---------------------------------------------------------------------------------------------------------

    def _record(self, report: RecentReport, own: str, verdict: RecordVerdict, form: PageForm) -> Html:
        record = verdict.record
        what = "report" if report.read.is_page else "record"
        points = verdict.open_points(by_ledger="below", by_hash="below", by_words="the ten words below")
        if verdict.is_verified and not record.parties:
            shows = ": no session and no charge is shown by this file"
            line = _valid(report.name, len(points.to_give), "for ", name(record.study.label), shows, word="VALID plan")
        elif verdict.is_verified:
            line = _valid(report.name, len(points.to_give), f"the {what} of ", name(record.study.label))
        else:
            text = f": the record inside holds, but {verdict.why_not}. Ask for a report of this version."
            line = tag("p", tag("strong", "NOT VERIFIED"), ": ", name(report.name), text, class_="warning")
        hashes = [
            ("Hash of study and plan", verdict.plan_hash),
            ("Hash of the study without keys", verdict.keyless_hash),
        ]
        cells = [
            cell
            for key, value in hashes
            if value is not None
            for cell in (tag("dt", key), tag("dd", tag("code", value, class_="long")))
        ]
        answer = []
        if record.answers is not None:
            answer.append(
                tag("p", "The file holds the answer, for ", names(record.study.receivers), " only.", class_="note")
            )
        steps = [CheckStep("proved", text) for text in verdict.proved]
        return joined(
            [
                tag("h2", "Result"),
                line,
                *answer,
                tag("h3", "Proved"),
                _steps(steps),
                *_open(points),
                *_words(verdict),
                tag("h3", "Hashes"),
                tag("p", "Every party that signed the study and its plan has the same first hash.", class_="hint"),
                tag("dl", *cells),
                self._comparison(own, form),
            ]
        )

    def _comparison(self, own: str, form: PageForm) -> Html:
        listed = self.folder.names(".ledger")[:_LEDGERS_SHOWN]
        chosen = form.all("with-ledger")
        ledgers: list[object]
        if listed:
            boxes = [
                tick(name(each), "with-ledger", value=each, checked=each in chosen, id=f"with-{place}")
                for place, each in enumerate(listed)
            ]
            ledgers = [tag("fieldset", tag("legend", "With ledgers in the page's folder"), *boxes)]
        else:
            ledgers = [tag("p", "There is no ledger in the page's folder to compare with.", class_="empty")]
        return tag(
            "section",
            tag("h3", "Compare it further"),
            void("input", type="hidden", name="report", value=own),
            text_field(
                "Hash of the draft that you approved",
                "approved",
                form.text("approved"),
                hint=f"{_DIGITS_HINT}; the draft's report shows it as the hash of the study without keys.",
                spellcheck="false",
                maxlength=100,
            ),
            *ledgers,
            tag("p", button("Compare", "compare"), class_="buttons"),
            class_="panel",
        )

    def _check_ledger(self, file: str, head: str) -> Html:
        with Ledger.open(self.folder.file("ledger", file)) as ledger:
            newest = ledger.verify(head or None)
            count = ledger.newest(1)[0].number
            spent = {unit: ledger.spent(unit) for unit in ("record", "party") if ledger.has_limit(unit)}
            party, owner = ledger.party, ledger.owner
        steps = [
            *ledger_steps(count, bool(head)),
            CheckStep("proved", "The file is a whole ledger", "Its tables and its rules against changes are in place."),
        ]
        rows = [("Spent", balance_text(unit, each)) for unit, each in spent.items()]
        rows += [(f"Left for one more release, by {unit}", each.left_text) for unit, each in spent.items()]
        points = live_open_points(bool(head), owner is not None)
        what = joined(["the ledger of ", name(party)])
        return _ledger_verdict(file, what, steps, rows=rows, points=points, head=newest)


# Parts of verdicts ----------------------------------------------------------------------------------------------------


def _head_field() -> Html:
    return text_field(
        "Hash noted earlier, if you have one",
        "head",
        hint=f"{_DIGITS_HINT}: the head that an earlier check showed. It must still be among the entries.",
        spellcheck="false",
        maxlength=100,
    )


def _settled(
    file_name: str, check: Callable[[], Html], *, path: Path | None = None, again: Html | None = None
) -> dict[str, Html]:
    """The verdict of a check. What does not hold is a verdict, too; what cannot be read is a problem.

    `path` is where the file lies for the moment, which errors must not show.
    """
    try:
        return {"verdict": _clean(check())}
    except (CertificateError, LedgerError) as error:
        text = str(error) if path is None else str(error).replace(str(path), file_name)
        failed = tag("p", tag("strong", "NOT VALID"), ": ", name(file_name), class_="problem", role="alert")
        steps = _steps([CheckStep("failed", text, meaning_of(error))])
        more = [] if again is None else [again]
        return {"verdict": _clean(joined([tag("h2", "Result"), failed, steps, *more]))}
    except TpmdpError as error:
        nothing = tag("p", "Nothing was checked.", class_="empty")  # an older verdict must not stay beside the problem
        if path is None:
            more = [nothing] if again is None else [nothing, again]
            raise RefusedFormError(_worded(error), {"verdict": _clean(joined(more))}) from None
        return {"problem": _clean(problem(str(error).replace(str(path), file_name))), "verdict": nothing}


def _worded(error: TpmdpError) -> TpmdpError:
    """The error with the names of the fields on this page."""
    labels = {"approved": "the hash of the draft", "head": "the hash noted earlier"}
    if not isinstance(error, InputError) or error.field not in labels:
        return error
    return InputError(labels[error.field], error.value, error.rule, "copy it whole")


def _clean(html: Html) -> Html:
    """Without half characters, which a file can hold and no page can show."""
    return Html(html.encode("utf-8", "replace").decode("utf-8"))


def _valid(file_name: str, open_points: int, *what: object, word: str = "VALID") -> Html:
    """The banner: it claims no more than was checked."""
    return tag(
        "p",
        tag("strong", verdict_words(word, open_points)),
        ". ",
        name(file_name),
        ", ",
        *what,
        ".",
        class_="good",
    )


def _words(verdict: RecordVerdict) -> list[Html]:
    """The ten words of a study that can be signed."""
    if verdict.plan_hash is None:
        return []
    phrase = " ".join(phrase_of(bytes.fromhex(verdict.plan_hash)))
    hint = "The other parties read out the same words, if they have the same study, keys and plan."
    return [
        tag("h3", "The ten words, to compare by telephone"),
        tag("p", tag("code", phrase), class_="phrase"),
        tag("p", hint, class_="hint"),
    ]


def _steps(steps: Sequence[CheckStep]) -> Html:
    classes = {"proved": "proved", "failed": "failed", "open": "open"}
    words = {"proved": "Proved: ", "failed": "Does not hold: ", "open": "Not proved: "}
    items = []
    for step in steps:
        parts: list[object] = [tag("span", words[step.state], class_="hidden"), tag("strong", step.text)]
        if not step.meaning:
            parts[1] = step.text
        else:
            parts.append(tag("div", step.meaning))
        items.append(tag("li", *parts, class_=classes[step.state]))
    return tag("ul", *items, class_="steps")


def _open(points: OpenPoints) -> list[Html]:
    """What is open: what somebody can still give, and what no file can show."""
    lists = (("You can still check", points.to_give), ("No file can show", points.never))
    return [
        part
        for title, texts in lists
        if texts
        for part in (tag("h3", f"{title} ({len(texts)})"), _steps([CheckStep("open", text) for text in texts]))
    ]


def _plan(file_name: str, verdict: PlanVerdict) -> Html:
    spec, certificate = verdict.spec, verdict.certificate
    failed = next((step for step in verdict.steps if step.state == "failed"), None)
    if failed is None:
        unproved = sum(step.state == "open" for step in verdict.steps)
        line = _valid(file_name, unproved, "a plan for ", headline(spec), word="VALID plan")
    else:
        line = tag("p", tag("strong", "NOT VALID"), ": ", name(file_name), class_="problem", role="alert")
    contents: list[object] = [tag("h2", "Result"), line]
    if verdict.no_noise:
        contents.append(tag("p", tag("strong", "No noise is added: "), f"{verdict.no_noise}.", class_="warning"))
    contents += [tag("h3", "Steps of the proof"), _steps(verdict.steps)]
    if failed is None:
        contents += _open(_PLAN_POINTS)
    if failed is None and certificate.weights is not None:
        contents += [tag("h3", "Weights"), tag("p", weights_text(certificate))]
    title = "Look up your own budget" if failed is None else "Budgets that the plan is said to keep"
    text = "The proof is for these budgets, with all their digits, and for no others."
    contents += [
        tag("h3", title),
        tag("p", text if failed is None else "The steps above say what is proved.", class_="hint"),
    ]
    return joined([*contents, _budgets(verdict)])


def _budgets(verdict: PlanVerdict) -> Html:
    spec, certificate = verdict.spec, verdict.certificate
    headings = ["party", "receives", "epsilon", "delta", "sensitivity"]
    columns: list[Sequence[float]] = [spec.epsilon.tolist(), spec.delta.tolist(), spec.sensitivity.tolist()]
    if not isinstance(spec.threshold, int):
        headings.append("threshold")
        columns.append(spec.threshold.tolist())
    if certificate.weights is not None:
        headings.append("weight")
        columns.append(certificate.weights.tolist())
    headings += ["need", "own noise"]
    rows = []
    for party in range(min(spec.count, _ROWS_MAX)):
        budget = [_digits(float(values[party])) for values in columns]
        noise = [number(float(values[party])) for values in (certificate.need, certificate.variance)]
        rows.append([name(spec.name(party)), "yes" if spec.receivers[party] else "", *budget, *noise])
    more = spec.count - len(rows)
    note = f"{more:,} more parties are not shown: tpmdp verify shows any of them by name."
    cut = [tag("p", note, class_="note")] if more > 0 else []
    legend = "need: the noise (variance) that hides one record of the party. own noise: what the party adds."
    shown_table = table(headings, rows, numbers=range(2, len(headings)), has_cards=True)
    return joined([shown_table, *cut, tag("p", legend, class_="note")])


def _digits(value: float) -> str:
    """A number with all its digits: a party compares it with its own."""
    return str(int(value)) if value.is_integer() and abs(value) < _WHOLE_MAX else repr(value)


def _export(file_name: str, path: Path) -> Html:
    check = check_export(path, FILE_MAX)
    rows = [("Spent", balance_text(unit, balance)) for unit, balance in check.balances.items()]
    rows.append(("Sessions charged", f"{check.charges:,}"))
    if check.public_key:
        rows.append(("Key of the ledger", check.public_key))
    steps = ledger_steps(check.entries, check.has_noted)
    points = export_open_points(check)
    return _ledger_verdict(file_name, "an exported ledger", steps, rows=rows, points=points, head=check.head)


def _ledger_verdict(
    file_name: str,
    what: object,
    steps: Sequence[CheckStep],
    *,
    rows: Sequence[tuple[str, str]],
    points: OpenPoints,
    head: str,
) -> Html:
    cells = [cell for key, value in rows for cell in (tag("dt", key), tag("dd", value))]
    return joined(
        [
            tag("h2", "Result"),
            _valid(file_name, len(points.to_give), what),
            tag("h3", "Proved"),
            _steps(steps),
            tag("dl", *cells),
            *_open(points),
            tag("h3", "Head"),
            tag("p", tag("code", head, class_="long", id="ledger-head")),
            tag(
                "p",
                "Note it, somewhere else: a later check can show that nothing before it was changed.",
                class_="hint",
            ),
        ]
    )


def routes(folder: Folder) -> list[Route]:
    """The routes of this view."""
    own = VerifyView(folder)
    return [upload("/verify/upload", FILE_MAX, own.take), *view("/verify", own.show, own.answer)]
