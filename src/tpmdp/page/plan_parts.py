"""The results of Plan: error, other ways, the curve, promises, and the worst coalition of one party."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final

import numpy as np

from tpmdp.page.pictures import bars, ring
from tpmdp.page.plan_backwards import backwards_html, wanted_of
from tpmdp.page.plan_files import python_lines
from tpmdp.page.plan_form import NOBODY_YET, PlanForm, sliders
from tpmdp.planning.baselines import totals_by_threshold
from tpmdp.planning.equally_bad import equally_bad
from tpmdp.queries.answer import Z_95
from tpmdp.report.markup import Html, joined, name, names, table, tag
from tpmdp.report.numbers import number, plural, plus_minus, three_digits
from tpmdp.report.plan import BASELINE_WORDS, epsilon_text
from tpmdp.report.plan_promise import plan_promises
from tpmdp.report.promise import PartyPromise, coalition_text, factor_text, percent_up, several_text
from tpmdp.report.style import BLUE, GREY, ORANGE
from tpmdp.report.svg import Chart, Line, lines
from tpmdp.report.weights import KIND_WORDS

_POINTS_MAX: Final = 60
_ROWS_MAX: Final = 60
_ALIKE_MAX: Final = 3  # coalitions that are named besides the first


def fragments(form: PlanForm) -> dict[str, Html]:
    """The contents of every part that follows from the form."""
    form = form.within()
    promised = plan_promises(form.plan)
    error = "no noise" if form.plan.no_noise_reason else plus_minus(three_digits(form.plan.expected_error))
    glance = joined(["Expected error ", tag("strong", error)])
    return {
        "sliders": sliders(form),
        "answer": _answer(form),
        "baselines": _baselines(form),
        "curve": _curve(form),
        **pointed_parts(form, promised),
        "backwards": backwards_html(form),
        "code": tag("pre", tag("code", python_lines(form)), tabindex="0"),
        "glance": glance if form.parties.receivers() else Html(NOBODY_YET),
    }


def pointed_parts(form: PlanForm, promised: Sequence[PartyPromise]) -> dict[str, Html]:
    """What changes if another party is pointed at."""
    return {"promises": _promises(form, promised), "ring": _ring(form), "words": _words(form, promised)}


def _answer(form: PlanForm) -> Html:
    plan = form.plan
    error, within = plan.expected_error, Z_95 * plan.expected_error
    if not form.parties.receivers():
        return tag(
            "p", tag("strong", "Tick who receives the answer."), " Without a receiver there is none.", class_="warning"
        )
    if plan.no_noise_reason:
        return tag(
            "p",
            tag("strong", "No noise is added: "),
            f"{plan.no_noise_reason}. Nothing is protected.",
            class_="warning",
        )
    records = sum(form.parties.records())
    is_count = form.sensitivity == 1 and records
    share = f", {100 * error / records:.2g} % of a count of all {records:,} records" if is_count else ""
    weights = plan.weights
    assumed = (
        f" Assumed: {weights.assumes}; if not, the answer may be off by up to {three_digits(weights.bias_bound)} more."
        if weights.assumes
        else ""
    )
    return joined(
        [
            tag("p", "Expected error of the answer", class_="label"),
            tag("p", plus_minus(three_digits(error)), class_="big"),
            tag(
                "p",
                f"For one question: the standard deviation of the noise{share}. 95 % of the time the answer is within "
                f"{plus_minus(three_digits(within))}, which is the figure that Study gives.{assumed}",
            ),
        ]
    )


def _baselines(form: PlanForm) -> Html:
    if not form.parties.receivers():
        return _nobody_yet()
    pairs = [("this plan", form.plan.expected_error)]
    pairs += [(BASELINE_WORDS.get(each.name, each.name), each.standard_deviation) for each in form.report.baselines]
    if not form.plan.weights.are_equal:
        others = [choice for choice in form.report.choices if not choice.chosen]
        pairs += [(KIND_WORDS[choice.kind], choice.expected_error) for choice in others]
    rows = [(label, error, three_digits(error) if error else "no noise, no protection") for label, error in pairs]
    note = _curator_note(form)
    return joined(
        [bars("Error of this plan and of other ways", rows), *([tag("p", note, class_="note")] if note else [])]
    )


def _curator_note(form: PlanForm) -> str:
    """Why one office that all trust would need more noise than this plan; empty where it does not."""
    plan = form.plan
    office = next(each.standard_deviation for each in form.report.baselines if each.name == "trusted curator")
    if not plan.total_variance or plan.expected_error >= office:
        return ""
    begins = "one office that all trust: it publishes the answer to everybody, with one noise for all"
    receivers = form.parties.receivers()
    why = [] if plan.weights.are_equal else ["its records all count the same"]
    if len(receivers) == 1:
        only = plan.spec.name(receivers[0])
        why.append(f"it must protect {only}, too; here only {only} receives it, and needs no protection from itself")
    return f"{begins}{''.join(f', and {each}' for each in why)}. So it can have more noise than this plan."


def _nobody_yet() -> Html:
    return tag("p", NOBODY_YET, class_="empty")


def _curve(form: PlanForm) -> Html:
    spec = form.plan.spec
    if not form.parties.receivers():
        return _nobody_yet()
    most = spec.count - 1
    spread = np.linspace(1, most, min(most, _POINTS_MAX)).round().astype(int).tolist()
    shown = sorted({*spread, max(form.threshold, 1)})
    equal = np.sqrt(totals_by_threshold(form.report.plain_need, shown, spec.receivers)).tolist()
    none = tag("p", "At threshold 0 there is no noise, and no protection.", class_="note")
    if not any(equal):
        return joined([tag("p", "There is no noise at any threshold.", class_="empty"), none])
    drawn = [Line("least noise", BLUE, list(zip(map(float, shown), equal, strict=True)), has_dots=len(shown) < 16)]
    drawn += _levels(form, (float(shown[0]), float(shown[-1])))
    step = max(1, math.ceil(len(shown) / 9))
    ticks = [(float(each), str(each)) for each in shown[::step]]
    mark = (float(form.threshold), form.plan.expected_error) if form.threshold else None
    across = "threshold: how many may collude"
    chart = Chart(across, "expected error", drawn, mark=mark, ticks=ticks, mark_label="this plan")
    return joined([lines(chart, "Expected error against the threshold; the square is this plan"), none])


def _levels(form: PlanForm, ends: tuple[float, float]) -> list[Line]:
    """What does not change with the threshold."""
    level = next(each.standard_deviation for each in form.report.baselines if each.name == "trusted curator")
    wanted = wanted_of(form) if form.wanted else None
    drawn = []
    if level:
        points = [(end, level) for end in ends]
        drawn.append(Line(BASELINE_WORDS["trusted curator"], GREY, points, dash="4 3", has_dots=False))
    if isinstance(wanted, float):
        drawn.append(Line("wanted", ORANGE, [(end, wanted) for end in ends], dash="2 2", has_dots=False))
    return drawn


# Promises and coalitions ----------------------------------------------------------------------------------------------


def _promises(form: PlanForm, promised: Sequence[PartyPromise]) -> Html:
    chosen = min(form.pointed, len(promised) - 1)
    rows = []
    for place, each in enumerate(promised[:_ROWS_MAX]):
        is_chosen = place == chosen
        press = tag(
            "button",
            name(each.party),
            type="button",
            class_="link",
            data_point=place,
            id=f"point-{place}",
            aria_pressed="true" if is_chosen else "false",
        )
        against = tag("span", _against(form, place), class_="against") if is_chosen else ""
        rows.append(
            [
                joined([press, against]),
                number(each.offered),
                *(_kept(form, place, each) if form.parties.receivers() else [""] * 4),
            ]
        )
    headings = ["party", "offered epsilon", "real epsilon", "best guess", "adds", "due to it"]
    more = len(promised) - len(rows)
    note = (
        "real epsilon: against the worst coalition. best guess: how often an attacker's best guess about one record is "
        "right, where a blind guess is right 50 % of the time. adds: its share of the noise in the answer. due "
        "to it: the share of the noise that is there because of this party's budget."
    )
    if form.parties.receivers() and form.drivers.groups:
        note += (
            " jointly with: the budgets are equally strict, so a change of one of them alone changes less, or nothing."
        )
    cut = [tag("p", f"{more} more parties are not shown.", class_="note")] if more > 0 else []
    shown = table(headings, rows, numbers={1, 2, 3, 4, 5}, has_cards=True)
    return joined([shown, *cut, tag("p", note, class_="note")])


def _kept(form: PlanForm, place: int, promised: PartyPromise) -> list[object]:
    """What a party is promised, what it adds, and what is there for its sake."""
    plan = form.plan
    is_protected = plan.no_noise_reason is None
    return [
        _epsilon(promised.epsilon) if is_protected else "none",
        percent_up(promised.guess) if is_protected else "100 %",
        f"{100 * plan.variance[place] / (plan.total_variance or 1.0):.0f} %",
        _due(form, place),
    ]


def _due(form: PlanForm, place: int) -> Html:
    """The share of the noise that is there for a party, with those that share it."""
    drivers, spec = form.drivers, form.plan.spec
    others = [spec.name(each) for each in drivers.group(place) if each != place]
    share = f"{100 * drivers.share(place):.0f} %"
    return joined([share, tag("span", "jointly with ", names(others, 3), class_="with")]) if others else Html(share)


def _epsilon(value: float) -> str:
    return epsilon_text(value) if math.isfinite(value) else "no protection"


def _against(form: PlanForm, party: int) -> Html:
    members = form.plan.protection().coalition(party).tolist()
    if not form.parties.receivers():
        return Html(NOBODY_YET)
    if form.plan.no_noise_reason:
        return Html("Nothing protects it.")
    spec = form.plan.spec
    who = names([spec.name(each) for each in members], 6)
    return joined(["Worst: ", who, "."]) if members else Html("Nobody can attack it under these assumptions.")


def _ring(form: PlanForm) -> Html:
    plan, party = form.plan, form.pointed
    spec = plan.spec
    if not form.parties.receivers():
        return _nobody_yet()
    members = [] if plan.no_noise_reason else plan.protection().coalition(party).tolist()
    total = plan.total_variance or 1.0
    picture = ring(
        [spec.name(each) for each in range(spec.count)],
        (plan.variance / total).tolist(),
        set(np.flatnonzero(spec.receivers).tolist()),
        party=party,
        coalition=set(members),
    )
    legend = (
        "Blue: the party. Orange, with lines: who colludes. Dashed outline: receives the answer. Size: noise "
        "that it adds."
    )
    return joined([picture, *_ring_words(form, members), tag("p", legend, class_="note")])


def _ring_words(form: PlanForm, colluders: list[int]) -> list[Html]:
    """Who is worst for the party that is pointed at, why they are, and who else would be as bad."""
    plan, party = form.plan, form.pointed
    spec = plan.spec
    own = tag("strong", name(spec.name(party)))
    if plan.no_noise_reason:
        return [tag("p", "Nothing protects ", own, f": {plan.no_noise_reason}, so no noise is added.")]
    if not colluders:
        return [tag("p", own, ": nobody can attack it under these assumptions.")]
    left = plan.protection().honest_variance[party]
    who = names([spec.name(each) for each in colluders], 8)
    share = float(plan.variance[colluders].sum()) / (plan.total_variance or 1.0)
    protects = coalition_text(
        share,
        members=len(colluders),
        left=float(left) * plan.weights.scale**2,
        need=float(plan.need[party]) * plan.weights.scale**2,
    )
    brings = [spec.name(each) for each in colluders if spec.receivers[each]]
    bring = "bring" if len(brings) > 1 else "brings"
    why = ["A coalition needs a receiver, as only receivers see the answer: here ", names(brings, 4), f" {bring} it."]
    return [tag("p", "Worst for ", own, ": ", who, ". ", protects), tag("p", *why, *_equally_bad(form, colluders))]


def _equally_bad(form: PlanForm, coalition: list[int]) -> list[Html]:
    spec = form.plan.spec
    mask = spec.receivers
    most = _ALIKE_MAX + 1
    others = equally_bad(form.plan.variance, mask, form.pointed, coalition=coalition, most=most)
    if not others or len(coalition) > 8:
        return [Html(" Others are equally bad.")] if others else []
    listed = joined([names([spec.name(each) for each in other], 8) for other in others[:_ALIKE_MAX]], "; ")
    more = "; and others" if len(others) > _ALIKE_MAX else ""
    return [joined([" Equally bad: ", listed, more, "."])]


# In plain words -------------------------------------------------------------------------------------------------------


def _words(form: PlanForm, promised: Sequence[PartyPromise]) -> Html:
    plan = form.plan
    if not form.parties.receivers():
        return _nobody_yet()
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
        f"{most}, the best guess is right at most {percent_up(each.guess)} of the time, over all answers that may "
        f"come: odds of {against}. Without the person's record the answer would have looked almost the same.",
    )
    drop = (
        f" Up to {plural(form.tolerate, 'party', 'parties')} may drop out; that weakens nothing and costs no noise."
        if form.tolerate
        else ""
    )
    texts = [factor_text(each), several_text(), _one_more(form, each) + drop]
    return joined([tag("p", *first), *(tag("p", text) for text in texts if text)])


def _one_more(form: PlanForm, each: PartyPromise) -> str:
    begins = f"If {plural(form.threshold + 1, 'party', 'parties')} colluded, one more than planned for, "
    if each.beyond is None:
        return "No larger coalition is possible: all other parties are covered."
    if not math.isfinite(each.beyond):
        return f"{begins}nothing would protect this party."
    instead = f"{_epsilon(each.beyond)} instead of {_epsilon(each.epsilon)}"
    return f"{begins}this party's epsilon could be up to {instead}. {_still(each)}"


def _still(each: PartyPromise) -> str:
    """Whether the budget that a party offered would hold with one colluder more."""
    if each.beyond is not None and each.beyond <= each.offered:
        return f"That is still within the {number(each.offered)} that it offers, but nobody promises it."
    return f"That is more than the {number(each.offered)} that it offers: its budget would be broken."
