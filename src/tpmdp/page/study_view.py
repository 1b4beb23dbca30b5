"""Study: queries composed by forms; what they ask, how exact and how costly they would be; invitations."""

from __future__ import annotations

import math
import secrets
import threading
import warnings
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from starlette.responses import Response
from starlette.routing import Route

from tpmdp.errors import NoNoiseWarning, TpmdpError
from tpmdp.ledger import rounded_up
from tpmdp.page.answers import file_answer
from tpmdp.page.folder import Folder
from tpmdp.page.forms import OUTDATED, PageForm, button, choice, placed_problem, text_field, void
from tpmdp.page.history import History
from tpmdp.page.plan_form import WEIGHTINGS, sliders
from tpmdp.page.query_form import queries_html
from tpmdp.page.routes import Parts, upload, view
from tpmdp.page.study_files import STUDY_BYTES_MAX, StudyShelf, read_study, relay_of, zipped_invitations
from tpmdp.page.study_form import StudyForm, study_places
from tpmdp.page.study_invite import files_html, invite_html, key_status, keys_html, opening_html, steps_html
from tpmdp.report.html_report import expected_rows
from tpmdp.report.markup import Html, joined, name, names, table, tag
from tpmdp.report.numbers import number, plural, with_sign
from tpmdp.report.queries import assumed_text, no_noise_text
from tpmdp.report.questions import noise_notes, question_text
from tpmdp.study.expectation import Expectation, expect
from tpmdp.study.model import Study
from tpmdp.study.template import STUDY_FILE

_UNITS: Final = {"record": "each record", "party": "all records of a party at once"}
_ROWS_MAX: Final = 60
_LIVE_PARTIES: Final = 200  # larger studies take seconds: they are computed when asked
_LIVE_ENTRIES: Final = 500
_LIVE_QUERIES: Final = 25
_FORMS_MAX: Final = 200
_CACHED: Final = 8
_QUIET: Final = {"saved": Html(""), "invited": Html("")}  # after a change, what was written before is out of date


class Turns:
    """Lets only the newest question of each form be computed; the browser no longer waits for older ones."""

    def __init__(self) -> None:
        self._newest: OrderedDict[str, int] = OrderedDict()
        self._lock = threading.Lock()
        self._count = 0

    def take(self, form: str) -> int:
        """A number for a new question; earlier ones of this form are no longer the newest."""
        with self._lock:
            self._count += 1
            self._newest[form] = self._count
            self._newest.move_to_end(form)
            if len(self._newest) > _FORMS_MAX:
                self._newest.popitem(last=False)
            return self._count

    def is_over(self, form: str, turn: int) -> bool:
        """Whether the form has asked again since."""
        with self._lock:
            return self._newest.get(form, turn) != turn


@dataclass
class StudyPage:
    """The view of a folder."""

    shelf: StudyShelf
    _turns: Turns = field(default_factory=Turns)
    _busy: threading.Lock = field(default_factory=threading.Lock)
    _cache: OrderedDict[str, Expectation] = field(default_factory=OrderedDict)
    _last: StudyForm | None = None
    _history: History = field(default_factory=History)

    # Whole pages ------------------------------------------------------------------------------------------------------

    def show(self) -> Html:
        """The view: an example that can be changed, or what was composed last."""
        return self._page(self._last or StudyForm())

    def from_plan(self, form: PageForm) -> None:
        """Take the parties, threshold, losses and weights of Plan; the rest of the study stays as it is."""
        plan = StudyForm.of_plan(form).plan
        if self._last is None:
            self._last = StudyForm(file=self.shelf.folder.free_name(StudyForm().file))
        self._last = self._last.with_plan(plan)

    def _page(self, form: StudyForm) -> Html:
        contents = self._fields(form) | self._results_or_problem(form)
        left = tag(
            "section",
            tag("h2", "The study"),
            _part("settings", contents),
            tag("h2", "Parties and budgets"),
            tag(
                "p",
                "Each party states its budget for this study: epsilon is how much one record may show (smaller is "
                "stricter), delta the chance that this fails. Tick who receives the answer.",
                class_="hint",
            ),
            _part("parties", contents),
            tag("div", self._history.html("parties", form.plan), id="changed", aria_live="polite"),
            _part("sliders", contents),
            tag("h2", "Queries"),
            tag(
                "p",
                "All queries share the budgets, so each has more noise than one alone. The first ones are examples: "
                "change or remove them. Bounds are public: choose them without the data.",
                class_="hint",
            ),
            _part("queries", contents),
            class_="inputs",
        )
        right = tag(
            "section",
            OUTDATED,
            _part("preview", contents),
            class_="results follows",
            tabindex="0",
            aria_label="What this study would give and cost",
        )
        below = tag(
            "section",
            tag("h2", "Keep it"),
            _part("files", contents),
            tag("div", id="saved", aria_live="polite"),
            _part("opening", contents),
            tag("h2", "Invite the parties"),
            steps_html(),
            _part("invite", contents),
            tag("div", id="invited", aria_live="polite"),
            tag("h3", "Public keys of the parties"),
            tag("div", contents["key-status"], id="key-status", aria_live="polite"),
            _part("keys", contents),
        )
        whole = tag(
            "form",
            void("input", type="hidden", name="form-id", value=secrets.token_hex(8)),
            tag("div", left, right, class_="columns"),
            below,
            tag("p", contents.get("glance", ""), id="glance", class_="glance", aria_hidden="true"),
            id="study",
            method="post",
            action="/study/study.toml",
            data_live="/study",
            autocomplete="off",
        )
        intro = "What is asked of the parties' data, how exact the answers will be, and what it costs each party."
        wrong = tag("div", contents.get("problem", ""), id="problem")
        return joined([tag("h1", "Study"), tag("p", intro, class_="lead"), wrong, whole])

    # Answers ----------------------------------------------------------------------------------------------------------

    def answer(self, form: PageForm) -> Parts:
        """New contents after a change or a button."""
        turn, asker = self._turns.take(form.text("form-id")), form.text("form-id")
        action = form.text("action")
        asked = StudyForm.of(form)
        if action == "undo":
            asked = asked.with_plan(self._history.undo(asked.plan).within())
        self._last = asked
        if action == "open":
            name_ = form.text("open-file")
            return self._opened(StudyForm.of_study(self.shelf.open(name_), name_))
        if action == "save":
            return self._save(asked, form.has("may-replace"))
        if action == "invite":
            return self._invite(asked, form.has("may-replace"))
        if action and action != "expect":
            self._history.note(form, StudyForm.of_plan(form.without_action()).plan, asked.plan)
            focus = {"x-focus": asked.plan.parties.newest} if action == "add-party" else {}
            return focus | _QUIET | self._fields(asked) | self._results_or_problem(asked)  # wrong texts stay
        fresh = _QUIET | {"sliders": sliders(asked.plan), "changed": self._history.html("parties", asked.plan)}
        if form.all("key-party") != asked.plan.parties.names:
            fresh["keys"] = keys_html(asked)
        with self._busy:
            if self._turns.is_over(asker, turn):
                return {}
            return fresh | self._results(asked, is_asked=action == "expect")

    def uploaded(self, file: str, path: Path) -> Parts:
        """A study file from the browser, in place of what was composed."""
        return self._opened(StudyForm.of_study(read_study(path, file), self.shelf.folder.free_name(STUDY_FILE)), file)

    def _opened(self, form: StudyForm, file: str = "") -> Parts:
        text = joined(["Opened ", name(file or form.file), ". Nothing was written."])
        fresh = self._fields(form) | self._results(form)
        self._last = form
        return fresh | {"saved": tag("p", text, class_="good", data_look=""), "invited": ""}

    def _save(self, form: StudyForm, may_replace: bool) -> Parts:
        study = form.study()
        path = self.shelf.save(study, form.file, may_replace=may_replace)
        line = tag("p", "Saved as ", name(str(path)), ".", class_="good", data_look="")
        return {
            "saved": joined([line, self._twin(study, form.file)]),
            "opening": opening_html(form, self.shelf.names()),
        }

    def _invite(self, form: StudyForm, may_replace: bool) -> Parts:
        study, relay = form.study(), relay_of(form.relay)
        self.shelf.save(study, form.file, may_replace=may_replace)
        paths = self.shelf.invite(study, form.file, relay=relay)
        lacking = [party.name for party in study.parties if party.public_key is None]
        folder = tag("strong", name(str(paths[0].parent)))
        wrote = f"Wrote {plural(len(paths), 'invitation')} into the folder "
        lines = [
            tag("p", wrote, folder, ".", class_="good", data_look=""),
            tag("p", "Files: ", names([path.name for path in paths]), "."),
            tag("p", "To take part on this machine, choose ", name(form.file), " in Take part."),
        ]
        if lacking:
            wait = ". Nobody can join before all keys are there."
            lines.append(tag("p", "The invitations ask these parties for their public keys: ", names(lacking), wait))
        lines.append(self._twin(study, form.file))
        return {"invited": joined(lines), "saved": "", "opening": opening_html(form, self.shelf.names())}

    def _twin(self, study: Study, file: str) -> Html:
        """That another study of the folder has the same name and session; or nothing."""
        twin = self.shelf.twin(study, file)
        if not twin:
            return Html("")
        text = (
            " is another study of the same name and session. Parties could mistake one for the other: change the name "
        )
        return tag("p", name(twin), text, "or the session number of one of them.", class_="warning")

    def _results_or_problem(self, form: StudyForm) -> dict[str, Html]:
        """The results, or one line about what is typed wrongly."""
        try:
            return self._results(form)
        except TpmdpError as error:
            waiting = tag("p", "Errors and costs are shown once all fields are right.", class_="empty")
            wrong = placed_problem(error, study_places(form.as_sent()))
            return {"problem": wrong, "preview": waiting, "key-status": key_status(form, None)}

    def _results(self, form: StudyForm, *, is_asked: bool = False) -> dict[str, Html]:
        study = form.plain_study()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", NoNoiseWarning)  # the page says so in its own words
            shown = {"preview": self._preview(study, is_asked), "key-status": key_status(form, study)}
        return shown | {"glance": self._glance(study)}

    def _glance(self, study: Study) -> Html:
        """The first answer's error, for screens on which the results are far away."""
        expected = self._cache.get(study.toml())
        if expected is None:
            return Html("")
        label, error = expected_rows(expected.queries[0])[0]
        return joined([label, ": ", tag("strong", with_sign(str(error)))])

    def _preview(self, study: Study, is_asked: bool) -> Html:
        asked = [tag("li", tag("strong", name(query.name)), ": ", question_text(query)) for query in study.queries]
        first = joined([tag("h2", "What is asked"), tag("ol", *asked)])
        is_large = (
            len(study.parties) > _LIVE_PARTIES or study.dimension > _LIVE_ENTRIES or len(study.queries) > _LIVE_QUERIES
        )
        if is_large and not is_asked and study.toml() not in self._cache:
            text = "This study is large: its errors and costs take some seconds."
            return joined([first, tag("p", text, class_="empty"), tag("p", button("Compute them", "expect"))])
        expected = self._expected(study)
        warning = no_noise_text(study, expected)
        return joined(
            [
                *([tag("p", warning, class_="warning")] if warning else []),
                first,
                tag("h2", "How exact the answers will be"),
                _errors(study, expected),
                tag("h2", "What it costs each party"),
                _costs(study, expected),
            ]
        )

    def _expected(self, study: Study) -> Expectation:
        """Errors and charges; the last studies are remembered, as most changes do not touch them."""
        text = study.toml()
        expected = self._cache.get(text)
        if expected is None:
            expected = self._cache[text] = expect(study)
            while len(self._cache) > _CACHED:
                self._cache.popitem(last=False)
        return expected

    def _fields(self, form: StudyForm) -> dict[str, Html]:
        """The parts with fields: they stay as they are typed, unless a button changes them."""
        return {
            "settings": _settings(form),
            "parties": form.plan.parties.html(),
            "sliders": sliders(form.plan),
            "queries": queries_html(form.queries, form.new_kind),
            "files": files_html(form),
            "opening": opening_html(form, self.shelf.names()),
            "invite": invite_html(form),
            "keys": keys_html(form),
            "changed": self._history.html("parties", form.plan),
        }

    # Files ------------------------------------------------------------------------------------------------------------

    def study_toml(self, form: PageForm) -> Response:
        """The study as a file."""
        return file_answer(StudyForm.of(form).study().toml(), "study.toml", "application/toml")

    def invitations_zip(self, form: PageForm) -> Response:
        """The invitations of all parties."""
        asked = StudyForm.of(form)
        data = zipped_invitations(asked.study(), relay_of(asked.relay))
        return file_answer(data, "invitations.zip", "application/zip")


# Parts ----------------------------------------------------------------------------------------------------------------


def _part(part: str, contents: Mapping[str, object]) -> Html:
    return tag("div", contents[part], id=part)


def _settings(form: StudyForm) -> Html:
    weights_hint = "Balanced weights let records of very strict parties count less."
    return tag(
        "div",
        text_field(
            "Name of the study",
            "study-name",
            form.name,
            hint="Shown to all parties: say what it is for, such as length of stay 2026.",
            maxlength=200,
        ),
        text_field(
            "Session", "session", form.session, kind="numeric", hint="A new number is a new release, charged anew."
        ),
        choice("What is protected", "unit", _UNITS, chosen=form.unit, hint="All records at once need far more noise."),
        text_field(
            "Deadline",
            "deadline",
            form.deadline,
            hint="How long a party waits for the others: 90s, 10m, 2h, 3d; or a moment, such as 2027-01-31T12:00:00Z.",
        ),
        choice("Weights", "weighting", WEIGHTINGS, chosen=form.plan.weighting, hint=weights_hint),
        text_field(
            "Purpose", "purpose", form.purpose, hint="What the answer is for. Optional; nobody signs it.", maxlength=500
        ),
        text_field(
            "Contact", "contact", form.contact, hint="Whom to ask, and how. Optional; nobody signs it.", maxlength=500
        ),
        class_="fields",
    )


def _errors(study: Study, expected: Expectation) -> Html:
    rows = [row for each in expected.queries for row in expected_rows(each)]
    cut = len(rows) - _ROWS_MAX
    assumed = assumed_text(study, expected.queries)
    notes = [f"{cut} more answers are not shown."] if cut > 0 else []
    notes += [f"Assumed: {study.assumes}."] if study.assumes else []
    notes += [assumed.replace("`", "")] if assumed else []
    notes += noise_notes(study.queries)
    signed = [[label, with_sign(str(error))] for label, error in rows[:_ROWS_MAX]]
    shown = table(["answer", "95 % of the time within"], signed, has_cards=True)
    return joined([shown, *(tag("p", text, class_="note") for text in notes)])


def _costs(study: Study, expected: Expectation) -> Html:
    weighted = not study.weights.are_equal
    rows: list[list[object]] = []
    for party, weight in list(zip(study.parties, study.weights.each.tolist(), strict=True))[:_ROWS_MAX]:
        charge = expected.charges[party.name]
        charged = rounded_up(charge) if math.isfinite(charge) else "no protection"
        cells = [rounded_up(party.epsilon), charged, number(party.delta)]
        rows.append([name(party.name), *cells, *([number(weight)] if weighted else [])])
    headings = ["party", "offered epsilon", "charged epsilon", "at delta", *(["weight"] if weighted else [])]
    more = len(study.parties) - len(rows)
    cut = [tag("p", f"{more} more parties are not shown.", class_="note")] if more > 0 else []
    note = (
        "charged: what a run would write into the party's ledger. Nothing was run or charged. It is the same for any "
        "number of queries; more queries mean more noise each. A party may be charged less than it offers: the noise "
        "that stricter parties need protects it, too."
    )
    shown = table(headings, rows, numbers=set(range(1, len(headings))), has_cards=True)
    return joined([shown, *cut, tag("p", note, class_="note")])


def routes(folder: Folder) -> list[Route]:
    """The routes of this view."""
    page = StudyPage(StudyShelf(folder))
    downloads = {"study.toml": page.study_toml, "invitations.zip": page.invitations_zip}
    moves = {"from-plan": page.from_plan}
    return [
        upload("/study/upload", STUDY_BYTES_MAX, page.uploaded),
        *view("/study", page.show, page.answer, moves=moves, downloads=downloads, places=study_places),
    ]
