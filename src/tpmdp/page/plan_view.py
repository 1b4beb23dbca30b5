"""Plan: budgets, threshold and receivers in; error, noise, protection and the worst coalition out."""

from __future__ import annotations

import json
import math
import tempfile
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Final

import numpy as np
from starlette.responses import Response
from starlette.routing import Route

from tpmdp.errors import InputError, NoNoiseWarning
from tpmdp.page.answers import file_answer
from tpmdp.page.folder import Folder
from tpmdp.page.forms import PageForm, button, choice, parse_number, parse_whole, problem, slider, text_field
from tpmdp.page.party_table import PartyTable
from tpmdp.page.pictures import bars, ring
from tpmdp.page.routes import view
from tpmdp.planning.baselines import totals_by_threshold
from tpmdp.planning.inverse import budget_factor, checked_error, largest_threshold
from tpmdp.planning.plan import Plan, tolerant
from tpmdp.planning.plan import plan as make_plan
from tpmdp.planning.plan_file import plan_document
from tpmdp.queries.answer import Z_95
from tpmdp.report.markup import Html, joined, name, names, table, tag
from tpmdp.report.numbers import number, plural, three_digits
from tpmdp.report.plan import PlanReport, epsilon_text
from tpmdp.report.plan_promise import plan_promises
from tpmdp.report.promise import PartyPromise, percent_up
from tpmdp.report.style import BLUE, GREY, ORANGE
from tpmdp.report.svg import Chart, Line, lines
from tpmdp.study.model import Study

WEIGHTINGS: Final = {"equal": "all records count the same", "balanced": "balanced: least expected error"}
_POINTS_MAX: Final = 60
_ROWS_MAX: Final = 60
_SAME: Final = 0.005  # factors on budgets that nobody would tell apart


@dataclass(frozen=True)
class PlanForm:
    """What the form asks for."""

    parties: PartyTable = field(default_factory=PartyTable)
    threshold: int = 2
    tolerate: int = 0
    weighting: str = "equal"
    sensitivity: float = 1.0
    wanted: str = ""
    pointed: int = 0

    @classmethod
    def of(cls, form: PageForm) -> PlanForm:
        """The form, after its action."""
        asked = cls(
            PartyTable.of(form),
            form.whole("threshold", "threshold", 1),
            form.whole("tolerate", "losses tolerated", 0),
            weighting=form.text("weighting", "equal"),
            sensitivity=form.number("sensitivity", "largest change by one record", 1.0),
            wanted=form.text("wanted"),
            pointed=form.whole("pointed", "party", 0),
        )
        action, _, value = form.text("action").partition("=")
        if action == "use-threshold":
            return replace(asked, threshold=parse_whole("threshold", value))
        if action == "use-factor":
            factor = parse_number("factor", value)
            rows = [
                replace(row, epsilon=number(epsilon * factor).replace(",", ""))
                for row, epsilon in zip(asked.parties.rows, asked.parties.epsilons(), strict=True)
            ]
            return replace(asked, parties=PartyTable(tuple(rows)))
        if action == "use-epsilon":
            place, _, epsilon = value.partition(":")
            return replace(asked, parties=asked.parties.with_epsilon(parse_whole("party", place), epsilon))
        return asked.within()

    def within(self) -> PlanForm:
        """With a threshold and losses that fit the number of parties, and a party to point at."""
        count = len(self.parties.rows)
        threshold = max(0, min(self.threshold, count - 1))
        losses = max(0, min(self.tolerate, count - 1 - threshold)) if threshold else 0
        return replace(self, threshold=threshold, tolerate=losses, pointed=max(0, min(self.pointed, count - 1)))

    @property
    def weights(self) -> dict[str, Any]:
        """Arguments of `plan`."""
        return {"weighting": self.weighting, "records": self.parties.records(), "width": self.sensitivity}

    @cached_property
    def plan(self) -> Plan:
        """The plan of least noise."""
        spec = tolerant(self.parties.spec(self.threshold, self.sensitivity), self.tolerate)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", NoNoiseWarning)  # the page says so in its own words
            return make_plan(spec, **self.weights)

    @cached_property
    def report(self) -> PlanReport:
        """The plan beside its baselines."""
        return PlanReport.of(self.plan)


# The page -------------------------------------------------------------------------------------------------------------


class PlanView:
    """The view, which remembers what was planned last: a person who comes back from another view finds it again."""

    def __init__(self) -> None:
        self._last = PlanForm()
        self._before: PlanForm | None = None  # what a button of Backwards has changed

    def show(self) -> Html:
        """The view: an example that can be changed, or the last plan."""
        return page_of(self._last)

    def answer(self, form: PageForm) -> Mapping[str, object]:
        """New contents after a change: of the whole view, or of what is about the party that is pointed at."""
        action = form.text("action")
        asked = self._before if action == "undo" and self._before else PlanForm.of(form)
        if action == "point":
            return {"ring": _ring(asked), "words": _words(asked, plan_promises(asked.plan))}
        table = {"parties": asked.parties.html()} if action else {}  # else the fields stay as they are typed
        fresh = {**table, **fragments(asked)}
        if action.startswith("use-"):
            self._before = replace(self._last, wanted=asked.wanted)
            fresh["backwards"] = joined([tag("p", "Changed. ", button("Undo", "undo")), fresh["backwards"]])
        self._last = asked.within()
        return fresh


def page_of(form: PlanForm) -> Html:
    """The view for these parties."""
    contents = fragments(form)
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
            hint="1 for a count. For the sum of a column: its largest value.",
        ),
        class_="inputs",
    )
    right = tag(
        "section",
        tag("div", contents["answer"], id="answer", aria_live="polite"),
        tag("figure", tag("figcaption", "Error of the answer, beside other ways"), _part("baselines", contents)),
        tag("figure", tag("figcaption", "Error against the threshold"), _part("curve", contents)),
        class_="results",
    )
    below = tag(
        "section",
        tag("h2", "What each party is promised, and against whom"),
        tag("p", "Point at a party, or press its button, to see who would have to collude against it.", class_="hint"),
        tag("div", _part("promises", contents), _part("ring", contents), class_="columns"),
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
                button(text, formaction=f"/plan/{file}", class_="save")
                for file, text in {
                    "plan.json": "plan.json, with its proof",
                    "study.toml": "study.toml",
                    "plan.svg": "picture",
                }.items()
            ),
            button("Go on to the study", formaction="/study/from-plan", class_="save"),
            class_="buttons",
        ),
        tag("details", tag("summary", "The same in Python"), _part("code", contents)),
    )
    hidden = Html('<input type="hidden" name="pointed" id="pointed" value="0">')
    form_ = tag(
        "form",
        hidden,
        tag("div", left, right, class_="columns"),
        below,
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


def fragments(form: PlanForm) -> dict[str, Html]:
    """The contents of every part that follows from the form."""
    form = form.within()
    promised = plan_promises(form.plan)
    return {
        "sliders": sliders(form),
        "answer": _answer(form),
        "baselines": _baselines(form),
        "curve": _curve(form),
        "promises": _promises(form, promised),
        "ring": _ring(form),
        "words": _words(form, promised),
        "backwards": _backwards(form),
        "code": tag("pre", tag("code", python_lines(form)), tabindex="0"),
    }


def sliders(form: PlanForm) -> Html:
    """Threshold and losses, as far as the number of parties allows."""
    count = len(form.parties.rows)
    return joined(
        [
            slider(
                "Threshold: how many parties may collude",
                "threshold",
                form.threshold,
                most=count - 1,
                hint="The promises hold as long as no more than this many pool what they see.",
            ),
            slider(
                "Losses tolerated: how many parties may drop out",
                "tolerate",
                form.tolerate,
                most=max(0, count - 1 - form.threshold) if form.threshold else 0,
                hint="The answer still comes. The others add the noise of those that are lost.",
            ),
        ]
    )


def _answer(form: PlanForm) -> Html:
    plan = form.plan
    error, within = plan.expected_error, Z_95 * plan.expected_error
    if plan.no_noise_reason:
        return tag(
            "p",
            tag("strong", "No noise is added: "),
            f"{plan.no_noise_reason}. Nothing is protected.",
            class_="warning",
        )
    records = sum(form.parties.records())
    share = f" For a count among {records:,} records that is {100 * error / records:.2g} %." if records else ""
    weights = plan.weights
    assumed = (
        f" Assumed: {weights.assumes}; if not, the answer may be off by up to {three_digits(weights.bias_bound)} more."
        if weights.assumes
        else ""
    )
    return joined(
        [
            tag("p", "Expected error of the answer", class_="label"),
            tag("p", f"± {three_digits(error)}", class_="big"),
            tag(
                "p",
                "For one question: the standard deviation of the noise. 95 % of the time the answer is within "
                f"± {three_digits(within)}, which is the figure that Study gives."
                f"{share if form.sensitivity == 1 else ''}{assumed}",
            ),
        ]
    )


def _baselines(form: PlanForm) -> Html:
    meanings = {
        "TMDP": "one budget for all, the strictest (TMDP)",
        "non-threshold": "against all others colluding",
        "trusted curator": "one office that all trust",
    }
    rows = [("this plan", form.plan.expected_error, three_digits(form.plan.expected_error))]
    rows += [
        (meanings.get(each.name, each.name), each.standard_deviation, three_digits(each.standard_deviation))
        for each in form.report.baselines
    ]
    return bars("Error of this plan and of other ways", rows)


def _curve(form: PlanForm) -> Html:
    spec = form.plan.spec
    most = spec.count - 1 - form.tolerate
    here = form.threshold
    shown = sorted({here, *np.linspace(0, most, min(most + 1, _POINTS_MAX)).round().astype(int).tolist()})
    planned = [each + form.tolerate if each else 0 for each in shown]
    equal = np.sqrt(totals_by_threshold(form.report.plain_need, planned, spec.receivers)).tolist()
    points = list(zip(map(float, shown), equal, strict=True))
    drawn = [Line("least noise", BLUE, points, has_dots=len(shown) < 16)]
    level = next(each.standard_deviation for each in form.report.baselines if each.name == "trusted curator")
    if level:
        ends = [(float(shown[0]), level), (float(shown[-1]), level)]
        drawn.append(Line("one trusted office", GREY, ends, dash="4 3", has_dots=False))
    if form.wanted:
        wanted = _wanted(form)
        if isinstance(wanted, float):
            ends = [(float(shown[0]), wanted), (float(shown[-1]), wanted)]
            drawn.append(Line("wanted", ORANGE, ends, dash="2 2", has_dots=False))
    step = max(1, math.ceil(len(shown) / 9))
    ticks = [(float(each), str(each)) for each in shown[::step]]
    mark = (float(here), form.plan.expected_error)
    across = "threshold: how many may collude"
    chart = Chart(across, "expected error", drawn, mark=mark, ticks=ticks, mark_label="this plan")
    return lines(chart, "Expected error against the threshold; the square is this plan")


def _promises(form: PlanForm, promised: list[PartyPromise]) -> Html:
    plan = form.plan
    total = plan.total_variance or 1.0
    drivers = plan.drivers()
    is_protected = plan.no_noise_reason is None
    rows = []
    for place, each in enumerate(promised[:_ROWS_MAX]):
        share, reason = plan.variance[place] / total, float(drivers[place])
        rows.append(
            [
                tag("button", name(each.party), type="button", class_="link", data_point=place, id=f"point-{place}"),
                number(each.offered),
                _epsilon(each.epsilon) if is_protected else "none",
                percent_up(each.guess) if is_protected else "100 %",
                f"{100 * share:.0f} %",
                f"{100 * reason:.0f} %",
            ]
        )
    headings = ["party", "offered epsilon", "real epsilon", "best guess", "adds", "due to it"]
    more = len(promised) - len(rows)
    note = (
        "real epsilon: against the worst coalition. best guess: how often an attacker's best guess about one record is "
        "right, where a blind guess is right 50 % of the time. adds: its share of the noise in the answer. due "
        "to it: the share of the noise that is there because of this party's budget."
    )
    cut = [tag("p", f"{more} more parties are not shown.", class_="note")] if more > 0 else []
    shown = table(headings, rows, numbers={1, 2, 3, 4, 5}, has_cards=True)
    return joined([shown, *cut, tag("p", note, class_="note")])


def _epsilon(value: float) -> str:
    return epsilon_text(value) if math.isfinite(value) else "no protection"


def _ring(form: PlanForm) -> Html:
    plan, party = form.plan, form.within().pointed
    spec = plan.spec
    members = plan.protection().coalition(party).tolist()
    everybody = [spec.name(each) for each in range(spec.count)]
    total = plan.total_variance or 1.0
    picture = ring(
        everybody,
        (plan.variance / total).tolist(),
        set(np.flatnonzero(spec.receivers).tolist()),
        party=party,
        coalition=set(members),
    )
    if not members:
        text = joined([name(everybody[party]), ": nobody can attack it under these assumptions."])
    else:
        left = plan.protection().honest_variance[party]
        text = joined(
            [
                "Worst for ",
                tag("strong", name(everybody[party])),
                ": ",
                names([everybody[each] for each in members], 8),
                f". They know their own noise. What is left protects it: variance {number(left)}, where its budget "
                f"needs {number(plan.need[party])}.",
            ]
        )
    legend = "Blue: the party. Red: who colludes. Dashed outline: receives the answer. Size: noise that it adds."
    return joined([picture, tag("p", text), tag("p", legend, class_="note")])


def _still(each: PartyPromise) -> str:
    """Whether the budget that a party offered would hold with one colluder more."""
    if each.beyond is not None and each.beyond <= each.offered:
        return f"That is still within the {number(each.offered)} that it offers, but nobody promises it."
    return f"That is more than the {number(each.offered)} that it offers: its budget would be broken."


def _words(form: PlanForm, promised: list[PartyPromise]) -> Html:
    plan = form.plan
    if plan.no_noise_reason:
        return tag("p", f"Nothing is promised: {plan.no_noise_reason}.")
    each = promised[min(form.pointed, len(promised) - 1)]
    most = plural(form.threshold, "party", "parties")
    odds = each.guess / (1 - each.guess) if each.guess < 1 else math.inf
    against = f"{odds:.3g} to 1" if math.isfinite(odds) else "certainty"
    first = (
        "Suppose an attacker knows everything but one person's record at ",
        tag("strong", name(each.party)),
        f", and thinks that two values of it are equally likely (odds 1 to 1). With the answer and the help of up to "
        f"{most}, the best guess is right at most {percent_up(each.guess)} of the time: odds of {against}. Without the "
        "person's record the answer would have looked almost the same.",
    )
    one_more = f"If {plural(form.threshold + 1, 'party', 'parties')} colluded, one more than planned for, "
    if each.beyond is None:
        more = "No larger coalition is possible: all other parties are covered."
    elif math.isfinite(each.beyond):
        more = (
            f"{one_more}this party's epsilon could be up to {_epsilon(each.beyond)} instead of "
            f"{_epsilon(each.epsilon)}. {_still(each)}"
        )
    else:
        more = f"{one_more}nothing would protect this party."
    drop = (
        f" Up to {plural(form.tolerate, 'party', 'parties')} may drop out without weakening that."
        if form.tolerate
        else ""
    )
    return joined([tag("p", *first), tag("p", more + drop)])


# Backwards ------------------------------------------------------------------------------------------------------------


def _wanted(form: PlanForm) -> float | InputError:
    """The error that is wanted, or what is wrong with what was typed: the plan itself does not need it."""
    try:
        return checked_error(parse_number("error that you can accept", form.wanted))
    except InputError as error:
        return error


def _backwards(form: PlanForm) -> Html:
    if not form.wanted:
        return tag("p", "Write an error, and this says which threshold or which budgets reach it.", class_="hint")
    wanted = _wanted(form)
    if isinstance(wanted, InputError):
        return problem(wanted)
    spec = form.plan.spec
    threshold = largest_threshold(spec, wanted, form.tolerate, **form.weights)
    factor = budget_factor(spec, wanted, **form.weights)
    goal = f"an error of {three_digits(wanted)}"
    if threshold is None:
        first = tag("p", f"No threshold from 1 on reaches {goal} with these budgets.")
    else:
        text = f"With these budgets, up to {plural(threshold, 'party', 'parties')} may collude for {goal}. "
        use = (
            [] if threshold == form.threshold else [button(f"Use threshold {threshold}", f"use-threshold={threshold}")]
        )
        first = tag("p", text, *use)
    if factor is None:
        now = f"This plan has {three_digits(form.plan.expected_error)}: try something nearer to it."
        return joined([first, tag("p", f"At threshold {form.threshold} no budgets give {goal}. {now}")])
    if abs(factor - 1) < _SAME:
        second = tag("p", f"At threshold {form.threshold} these budgets give just {goal}.")
    else:
        low, high = min(form.parties.epsilons()) * factor, max(form.parties.epsilons()) * factor
        way = "smaller" if factor < 1 else "larger"
        ends = f"epsilon {number(low)}" if low == high else f"epsilon from {number(low)} to {number(high)}"
        text = f"At threshold {form.threshold}, all epsilons times {number(factor)} ({way}) reach it: {ends}. "
        second = tag("p", text, button("Use these budgets", f"use-factor={factor}"))
    more = _one_party(form, wanted) if factor > 1 + _SAME else []
    return joined([first, second, *more])


def _one_party(form: PlanForm, wanted: float) -> list[Html]:
    """What the party that most noise is due to could do alone, and who has to agree."""
    shares = form.plan.drivers()
    place = int(np.argmax(shares))
    party, epsilon = form.parties.names[place], form.parties.epsilons()[place]
    factor = budget_factor(form.plan.spec, wanted, place, **form.weights)
    begins = [f"{100 * shares[place]:.0f} % of the noise is there because of ", tag("strong", name(party)), ". "]
    if factor is None:
        alone = tag("p", *begins, "A larger epsilon of this party alone does not reach the error.")
    else:
        larger = number(epsilon * factor).replace(",", "")
        text = f"Its epsilon alone at {larger}, instead of {number(epsilon)}, reaches the error. "
        alone = tag("p", *begins, text, button("Use this epsilon", f"use-epsilon={place}:{larger}"))
    agree = "A larger epsilon is a weaker promise: each party whose epsilon grows has to agree to it."
    return [alone, tag("p", agree, class_="note")]


# Files ----------------------------------------------------------------------------------------------------------------


def python_lines(form: PlanForm) -> str:
    """The same plan in Python."""
    rows = form.parties
    receivers = [rows.rows[place].name for place in rows.receivers()]
    threshold = form.threshold + form.tolerate
    each = [form.sensitivity if count else 0.0 for count in rows.records()]
    weights = "" if form.weighting == "equal" else f', weighting="{form.weighting}", width={form.sensitivity!r}'
    lines = [
        "import tpmdp",
        "",
        "spec = tpmdp.Spec(",
        f"    names={rows.names!r},",
        f"    epsilon={_python(rows.epsilons())},",
        f"    delta={_python(rows.deltas())},",
        f"    sensitivity={_python(each)},",
        f"    threshold={threshold}," + (f"  # {form.tolerate} of them may drop out" if form.tolerate else ""),
        f"    receivers={receivers!r},",
        ")",
        f"plan = tpmdp.plan(spec, records={_python(rows.records())}{weights})",
        "print(plan.expected_error)",
    ]
    return "\n".join(lines)


def _python(values: list[Any]) -> str:
    text = repr(values[0]) if len(set(values)) == 1 else repr(values)
    return text.replace("inf", 'float("inf")')


def _plan_json(form: PageForm) -> Response:
    document = plan_document(PlanForm.of(form).plan)
    return file_answer(json.dumps(document, allow_nan=False) + "\n", "plan.json", "application/json")


def study_document(form: PlanForm) -> dict[str, Any]:
    """The parties as the document of a study, without queries."""
    rows = form.parties
    receivers = [rows.rows[place].name for place in rows.receivers()]
    if not receivers:
        raise InputError("receivers", "(none)", "are missing for a study", "tick at least one party")
    return {
        "name": "study",
        "threshold": form.threshold,
        "receivers": receivers,
        **({"tolerate": form.tolerate} if form.tolerate else {}),
        **({} if form.weighting == "equal" else {"weighting": form.weighting}),
        "parties": rows.entries(),
    }


def _study_toml(form: PageForm) -> Response:
    example = {"name": "example: change it", "kind": "count", "column": "age", "at_least": 65}
    study = Study.parse({**study_document(PlanForm.of(form)), "queries": [example]})
    head = "# Made by tpmdp page. The query is an example: change it, or compose queries on the page.\n\n"
    return file_answer(head + study.toml(), "study.toml", "application/toml")


def _picture(form: PageForm) -> Response:
    from tpmdp.report.plot_plan import draw_plan

    report = PlanForm.of(form).report
    with tempfile.TemporaryDirectory(prefix="tpmdp-") as folder:
        path = Path(folder) / "plan.svg"
        draw_plan(report, path)
        data = path.read_bytes()
    return file_answer(data, "plan.svg", "image/svg+xml")


DOWNLOADS: Final[Mapping[str, Callable[[PageForm], Response]]] = {
    "plan.json": _plan_json,
    "study.toml": _study_toml,
    "plan.svg": _picture,
}


def routes(folder: Folder) -> list[Route]:
    """The routes of this view, which needs no files."""
    del folder
    shown = PlanView()
    return view("/plan", shown.show, shown.answer, downloads=DOWNLOADS)
