"""Plan: budgets, threshold and receivers in; error, noise, protection and the worst coalition out."""

from __future__ import annotations

from collections.abc import Mapping

from starlette.routing import Route

from tpmdp.page.folder import Folder
from tpmdp.page.forms import OUTDATED, PageForm, button, choice, text_field, void
from tpmdp.page.history import History
from tpmdp.page.plan_files import DOWNLOADS
from tpmdp.page.plan_form import WEIGHTINGS, PlanForm, plan_places
from tpmdp.page.plan_parts import fragments, pointed_parts
from tpmdp.page.routes import view
from tpmdp.report.markup import Html, joined, tag
from tpmdp.report.numbers import number
from tpmdp.report.plan_promise import plan_promises


class PlanView:
    """The view, which remembers what was planned last: a person who comes back from another view finds it again."""

    def __init__(self) -> None:
        self._last = PlanForm()
        self._history = History()

    def show(self) -> Html:
        """The view: an example that can be changed, or the last plan."""
        return page_of(self._last, self._history)

    def answer(self, form: PageForm) -> Mapping[str, object]:
        """New contents after a change: of the whole view, or of what is about the party that is pointed at."""
        action, asked = form.text("action"), PlanForm.of(form)
        if action == "point":
            return pointed_parts(asked, plan_promises(asked.plan))
        if action == "undo":
            asked = self._history.undo(asked).within()
        fresh: dict[str, object] = dict(fragments(asked))  # an error is found before anything is remembered
        if action:  # else the fields stay as they are typed
            self._history.note(form, PlanForm.of(form.without_action()), asked)
            fresh["parties"] = asked.parties.html()
        if action == "add-party":
            fresh["x-focus"] = asked.parties.newest
        self._last = asked
        return fresh | changes(asked, self._history, fresh["backwards"])


def changes(form: PlanForm, history: History, backwards: object) -> dict[str, object]:
    """What buttons have changed, said where they are."""
    said = history.html("backwards", form)
    noted = joined([form.parties.names_note(), history.html("parties", form)])
    return {"changed": noted, "backwards": joined([said, backwards])}


def page_of(form: PlanForm, history: History) -> Html:
    """The view for these parties."""
    contents: dict[str, object] = dict(fragments(form))
    contents |= changes(form, history, contents["backwards"])
    left = tag(
        "section",
        tag("h2", "Parties and budgets"),
        tag(
            "p",
            "An example: change anything, and the results follow. Each party states a budget: epsilon is how much one "
            "record may show (smaller is stricter), delta the chance that this fails. Numbers of records are public, "
            "and exact in a study.",
            class_="hint",
        ),
        tag("div", form.parties.html(), id="parties"),
        tag("div", contents["changed"], id="changed", aria_live="polite"),
        tag("div", contents["sliders"], id="sliders"),
        choice(
            "Weights",
            "weighting",
            WEIGHTINGS,
            chosen=form.weighting,
            hint="Balanced weights let records of very strict parties count less. They assume that weights have "
            "nothing to do with the data.",
        ),
        text_field(
            "One record changes the answer by at most",
            "sensitivity",
            number(form.sensitivity),
            kind="decimal",
            hint="1 for a count. For the sum of a column its range, high minus low: any record may replace another.",
        ),
        class_="inputs",
    )
    right = tag(
        "section",
        OUTDATED,
        tag("div", contents["answer"], id="answer", aria_live="polite"),
        tag("figure", tag("figcaption", "Error of the answer, beside other ways"), _part("baselines", contents)),
        tag("figure", tag("figcaption", "Error against the threshold"), _part("curve", contents)),
        class_="results",
    )
    below = tag(
        "section",
        tag("h2", "What each party is promised, and against whom"),
        tag(
            "p",
            "One party is chosen, at first the one at the top: it is marked, and the picture and the words below are "
            "about it. Press another name, or point at it, to see who would have to collude against that party.",
            class_="hint",
        ),
        tag("div", OUTDATED, _part("promises", contents), _part("ring", contents), class_="columns whole"),
        tag("h2", "In plain words"),
        _part("words", contents),
        tag("h2", "Backwards: from an error to a threshold or budgets"),
        text_field(
            "Error that you can accept",
            "wanted",
            form.wanted,
            kind="decimal",
            hint="The expected error (standard deviation) of the answer, in its own units.",
        ),
        _part("backwards", contents),
        tag("h2", "Keep it"),
        tag(
            "p",
            *(
                button(text, formaction=f"/plan/{file}", class_="save", data_says="plan-saved")
                for file, text in {
                    "plan.json": "plan.json, with its proof",
                    "study.toml": "study.toml, with an example query",
                    "plan.svg": "picture",
                }.items()
            ),
            button("Go on to the study", formaction="/study/from-plan", class_="save"),
            class_="buttons",
        ),
        tag("p", id="plan-saved", class_="said", aria_live="polite"),
        tag(
            "p",
            "Go on to the study to choose what is asked: parties, threshold, losses and weights come along, and the "
            "rest of the study stays as it is there.",
            class_="hint",
        ),
        tag("details", tag("summary", "The same in Python"), _part("code", contents)),
    )
    hidden = void("input", type="hidden", name="pointed", id="pointed", value=form.pointed)
    glance = tag("p", contents["glance"], id="glance", class_="glance", aria_hidden="true")
    form_ = tag(
        "form",
        hidden,
        tag("div", left, right, class_="columns"),
        below,
        glance,
        id="plan",
        method="post",
        action="/plan/plan.json",
        data_live="/plan",
        autocomplete="off",
    )
    intro = "How much noise must each party add, so that every promise holds even if some parties pool what they see?"
    return joined([tag("h1", "Plan"), tag("p", intro, class_="lead"), tag("div", id="problem"), form_])


def _part(part: str, contents: Mapping[str, object]) -> Html:
    return tag("div", contents[part], id=part)


def routes(folder: Folder) -> list[Route]:
    """The routes of this view, which needs no files."""
    del folder
    shown = PlanView()
    return view("/plan", shown.show, shown.answer, downloads=DOWNLOADS, places=plan_places)
