"""Study: queries composed by forms; what they ask, how exact and how costly they would be; invitations."""

from __future__ import annotations

import math
import secrets
import threading
import warnings
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Final

from starlette.responses import Response
from starlette.routing import Route

from tpmdp.errors import NoNoiseWarning, TpmdpError
from tpmdp.ledger import rounded_up
from tpmdp.page.answers import file_answer
from tpmdp.page.folder import Folder
from tpmdp.page.forms import PageForm, button, choice, problem, text_field, tick, void
from tpmdp.page.plan_view import WEIGHTINGS, sliders
from tpmdp.page.query_form import queries_html
from tpmdp.page.routes import Parts, view
from tpmdp.page.study_files import StudyShelf, relay_of, zipped_invitations
from tpmdp.page.study_form import StudyForm
from tpmdp.report.html_report import expected_rows
from tpmdp.report.markup import Html, joined, name, names, table, tag
from tpmdp.report.numbers import number, plural
from tpmdp.report.queries import assumed_text, no_noise_text
from tpmdp.report.questions import question_text
from tpmdp.study.expectation import Expectation, expect
from tpmdp.study.fingerprint import phrase_of
from tpmdp.study.model import Study

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

    # Whole pages ------------------------------------------------------------------------------------------------------

    def show(self) -> Html:
        """The view: an example that can be changed, or what was composed last."""
        return self._page(self._last or StudyForm())

    def from_plan(self, form: PageForm) -> Html:
        """The view with the parties of Plan."""
        asked = StudyForm.of_plan(form)
        queries = asked.queries if self._last is None else self._last.queries
        self._last = replace(asked, queries=queries, file=self.shelf.folder.free_name(asked.file))
        return self._page(self._last)

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
            tag("h2", "Invite the parties"),
            tag(
                "ol",
                tag("li", "Write the invitations, and send each party its file."),
                tag("li", "Each party makes a key (on its own page, in Take part) and returns a line. Paste it below."),
                tag("li", "When all keys are there, write the invitations again, and send them again."),
                tag("li", "Ten words then stand here. Compare them with every party by telephone."),
            ),
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
        self._last = asked
        if action == "open":
            opened = StudyForm.of_study(self.shelf.open(form.text("open-file")), form.text("open-file"))
            text = joined(["Opened ", name(opened.file), ". Nothing was written."])
            fresh = self._fields(opened) | self._results(opened)
            self._last = opened
            return fresh | {"saved": tag("p", text, class_="good"), "invited": ""}
        if action == "save":
            return self._save(asked, form.has("may-replace"))
        if action == "invite":
            return self._invite(asked, form.has("may-replace"))
        if action and action != "expect":
            return _QUIET | self._fields(asked) | self._results_or_problem(asked)  # what was typed wrongly stays
        fresh = _QUIET | {"sliders": sliders(asked.plan)}
        if form.all("key-party") != asked.plan.parties.names:
            fresh["keys"] = _keys(asked)
        with self._busy:
            if self._turns.is_over(asker, turn):
                return {}
            return fresh | self._results(asked, is_asked=action == "expect")

    def _save(self, form: StudyForm, may_replace: bool) -> Parts:
        path = self.shelf.save(form.study(), form.file, may_replace=may_replace)
        line = tag("p", "Saved ", name(path.name), " in the page's folder.", class_="good")
        return {"saved": line, "files": self._files(form)}

    def _invite(self, form: StudyForm, may_replace: bool) -> Parts:
        study, relay = form.study(), relay_of(form.relay)
        self.shelf.save(study, form.file, may_replace=may_replace)
        paths = self.shelf.invite(study, form.file, relay=relay)
        lacking = [party.name for party in study.parties if party.public_key is None]
        folder = paths[0].parent.name
        lines = [
            tag(
                "p",
                f"Wrote {plural(len(paths), 'invitation')} into the folder ",
                tag("strong", name(folder)),
                ".",
                class_="good",
            ),
            tag("p", "Files: ", names([path.name for path in paths]), "."),
            tag("p", "To take part on this machine, choose ", name(form.file), " in Take part."),
        ]
        if lacking:
            wait = ". Nobody can join before all keys are there."
            lines.append(tag("p", "They ask for the public keys of ", names(lacking), wait))
        return {"invited": joined(lines), "saved": "", "files": self._files(form)}

    def _results_or_problem(self, form: StudyForm) -> dict[str, Html]:
        """The results, or one line about what is typed wrongly."""
        try:
            return self._results(form)
        except TpmdpError as error:
            waiting = tag("p", "Errors and costs are shown once all fields are right.", class_="empty")
            return {"problem": problem(error), "preview": waiting, "key-status": _key_status(form, None)}

    def _results(self, form: StudyForm, *, is_asked: bool = False) -> dict[str, Html]:
        study = form.plain_study()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", NoNoiseWarning)  # the page says so in its own words
            return {"preview": self._preview(study, is_asked), "key-status": _key_status(form, study)}

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
            "files": self._files(form),
            "invite": _invite_fields(form),
            "keys": _keys(form),
        }

    def _files(self, form: StudyForm) -> Html:
        listed = self.shelf.names()
        if listed:
            chosen = form.file if form.file in listed else listed[0]
            opening = joined(
                [
                    choice("Study in the folder", "open-file", {each: each for each in listed}, chosen=chosen),
                    tag("p", button("Open it", "open", class_="quiet")),
                ]
            )
        else:
            opening = tag("p", "There is no study file in the page's folder yet.", class_="empty")
        return joined(
            [
                tag(
                    "p", button("Download study.toml", formaction="/study/study.toml", class_="save"), class_="buttons"
                ),
                text_field("File in the folder", "file", form.file, hint="It ends in .toml.", spellcheck="false"),
                tick("Replace another study that has this file name", "may-replace"),
                tag("p", button("Save in the folder", "save")),
                tag("h3", "Open a study"),
                opening,
            ]
        )

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
        class_="fields",
    )


def _errors(study: Study, expected: Expectation) -> Html:
    rows = [row for each in expected.queries for row in expected_rows(each)]
    cut = len(rows) - _ROWS_MAX
    assumed = assumed_text(study, expected.queries)
    notes = [f"{cut} more answers are not shown."] if cut > 0 else []
    notes += [f"Assumed: {study.assumes}."] if study.assumes else []
    notes += [assumed] if assumed else []
    shown = table(["answer", "95 % of the time within"], rows[:_ROWS_MAX], has_cards=True)
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
    note = "charged: what a run would write into the party's ledger. Nothing was run or charged."
    shown = table(headings, rows, numbers=set(range(1, len(headings))), has_cards=True)
    return joined([shown, *cut, tag("p", note, class_="note")])


def _invite_fields(form: StudyForm) -> Html:
    hint = "Optional: of the relay that carries the parties' messages. The command to join in each file then has it."
    write = "Write invitations into the folder"
    return joined(
        [
            text_field("Address of the relay", "relay", form.relay, hint=hint, spellcheck="false", inputmode="url"),
            tag(
                "p",
                button(write, "invite"),
                button("Download all as a zip file", formaction="/study/invitations.zip", class_="save"),
                class_="buttons",
            ),
            tag("p", "Writing them also saves the study under its file name.", class_="hint"),
        ]
    )


def _key_status(form: StudyForm, study: Study | None) -> Html:
    """Who has returned a key; with all keys, the words to compare."""
    states = form.keys()
    wrong = [tag("p", state.problem, class_="problem") for state in states if state.problem]
    lacking = [state.party for state in states if state.key is None]
    if lacking:
        have = plural(len(states) - len(lacking), "public key")
        return joined([*wrong[:_ROWS_MAX], tag("p", f"{have} of {len(states)}. Missing: ", names(lacking), ".")])
    if study is None:
        return tag("p", "All public keys are there.")
    phrase = phrase_of(study.with_keys({each.party: each.key for each in states if each.key}).terms().plan_hash)
    text = "All public keys are there. Compare these words with every party by telephone: they are the same for all."
    return tag("div", tag("p", text), tag("p", " ".join(phrase), class_="phrase"), class_="good")


def _keys(form: StudyForm) -> Html:
    """A field for the line of each party, in the order of the table."""
    lines = (*form.lines, *[""] * len(form.plan.parties.rows))
    rows = []
    for place, (party, line) in enumerate(zip(form.plan.parties.names, lines, strict=False)):
        label = tag("label", "Line from ", name(party), for_=f"key-line-{place}")
        hidden = void("input", type="hidden", name="key-party", value=party)
        entry = void(
            "input",
            type="text",
            id=f"key-line-{place}",
            name="key-line",
            value=line,
            autocomplete="off",
            spellcheck="false",
            maxlength=300,
            class_="line",
            aria_describedby="keys-hint",
        )
        rows.append(tag("div", label, hidden, entry, class_="control"))
    hint = 'Such as its name = "ed25519:...". Public keys are not secret; key files are.'
    return joined([tag("p", hint, class_="hint", id="keys-hint"), *rows])


def routes(folder: Folder) -> list[Route]:
    """The routes of this view."""
    page = StudyPage(StudyShelf(folder))
    downloads = {"study.toml": page.study_toml, "invitations.zip": page.invitations_zip}
    return view("/study", page.show, page.answer, pages={"from-plan": page.from_plan}, downloads=downloads)
