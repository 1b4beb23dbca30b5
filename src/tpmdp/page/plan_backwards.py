"""Backwards: from an error to a threshold or budgets that reach it."""

from __future__ import annotations

from typing import Final

from tpmdp.errors import InputError
from tpmdp.page.forms import button, parse_number, problem
from tpmdp.page.plan_form import PlanForm, plain_epsilon
from tpmdp.planning.inverse import budget_factor, budget_floor, checked_error, largest_threshold
from tpmdp.report.markup import Html, joined, names, tag
from tpmdp.report.numbers import number, plural, three_digits

_LABEL: Final = "error that you can accept"
_REACHED: Final = 1.001  # budgets are typed with four digits
_USE: Final = "Use these budgets"
_AGREE: Final = "A larger epsilon is a weaker promise: each party whose epsilon grows has to agree to it."
_WORTH: Final = 0.02  # a smaller change of all budgets is not worth a button


def wanted_of(form: PlanForm) -> float | InputError:
    """The error that is wanted, or what is wrong with what was typed: the plan itself does not need it."""
    try:
        return checked_error(parse_number(_LABEL, form.wanted))
    except InputError as error:
        return InputError(_LABEL, form.wanted, error.rule, error.remedy)


def backwards_html(form: PlanForm) -> Html:
    """Whether the error is reached, and what would reach it."""
    if not form.wanted:
        return tag("p", "Write an error, and this says which threshold or which budgets reach it.", class_="hint")
    wanted = wanted_of(form)
    if isinstance(wanted, InputError):
        return problem(wanted)
    if form.plan.no_noise_reason:
        return tag("p", f"There is no noise, so every error is reached, and nothing is protected: {_reason(form)}.")
    is_reached = form.plan.expected_error <= wanted * _REACHED
    return joined([*(_reached(form, wanted) if is_reached else _not_reached(form, wanted)), _matters(form)])


def _reason(form: PlanForm) -> str:
    return form.plan.no_noise_reason or ""


def _reached(form: PlanForm, wanted: float) -> list[Html]:
    """How much stronger the promises could be for this error."""
    now, goal = three_digits(form.plan.expected_error), f"an error of {three_digits(wanted)}"
    shown = [tag("p", tag("strong", f"Reached: this plan has an error of {now}."))]
    threshold = largest_threshold(form.plan.spec, wanted, form.tolerate, **form.weights)
    if threshold is not None and threshold > form.threshold:
        text = f"With these budgets, up to {plural(threshold, 'party', 'parties')} may collude for {goal}. "
        use = button(f"Use threshold {threshold}", f"use-threshold={threshold}", class_="quiet")
        shown.append(tag("p", text, use))
    factor = budget_factor(form.plan.spec, wanted, **form.weights)
    if factor is not None and factor < 1 - _WORTH:
        text = f"You could even tighten all budgets: all epsilons times {number(factor)} still give {goal}, "
        shown.append(tag("p", f"{text}{_ends(form, factor)}. ", _use_factor(factor)))
    elif len(shown) == 1:
        shown.append(tag("p", "There is no room for a higher threshold or for smaller epsilons."))
    return shown


def _not_reached(form: PlanForm, wanted: float) -> list[Html]:
    """What would have to be weaker."""
    goal = f"an error of {three_digits(wanted)}"
    shown = [tag("p", tag("strong", f"Not reached: this plan has an error of {_now(form)}."))]
    threshold = largest_threshold(form.plan.spec, wanted, form.tolerate, **form.weights)
    if threshold is None:
        shown.append(tag("p", f"No threshold from 1 on reaches {goal} with these budgets."))
    else:
        text = f"With these budgets, up to {plural(threshold, 'party', 'parties')} may collude for {goal}. "
        shown.append(tag("p", text, button(f"Use threshold {threshold}", f"use-threshold={threshold}")))
    factor = budget_factor(form.plan.spec, wanted, **form.weights)
    if factor is None:
        text = f"At threshold {form.threshold} no budgets give {goal}. Try something nearer to {_now(form)}."
        return [*shown, tag("p", text)]
    text = f"At threshold {form.threshold}, all epsilons times {number(factor)} (larger) reach it and ask everybody: "
    everybody = tag("p", f"{text}{_ends(form, factor)}. ", button(_USE, f"use-factor={factor}", class_="quiet"))
    agree = tag("p", _AGREE, class_="note")
    return [*shown, *_few(form, wanted), *_alone(form, wanted), everybody, agree]


def _few(form: PlanForm, wanted: float) -> list[Html]:
    """The request that asks only those whose epsilons are small: each is raised to one and the same."""
    floor, before = budget_floor(form.plan.spec, wanted, **form.weights), form.parties.epsilons()
    if floor is None:
        return []
    asked = [place for place, epsilon in enumerate(before) if epsilon < floor]
    action = "use-epsilon=" + ",".join(f"{place}:{plain_epsilon(floor)}" for place in asked)
    who, rest = names([form.plan.spec.name(place) for place in asked], 6), len(before) - len(asked)
    others = f" {plural(rest, 'party keeps its', 'parties keep their')} epsilon." if rest else " That is everybody."
    text = f"Raise every epsilon below {number(floor)} to {number(floor)}: the error is reached. This asks "
    return [tag("p", text, tag("strong", who), f".{others} ", button("Raise these", action))]


def _now(form: PlanForm) -> str:
    return three_digits(form.plan.expected_error)


def _ends(form: PlanForm, factor: float) -> str:
    low, high = (number(end * factor) for end in (min(form.parties.epsilons()), max(form.parties.epsilons())))
    return f"epsilon {low}" if low == high else f"epsilon from {low} to {high}"


def _use_factor(factor: float) -> Html:
    quiet = {"class_": "quiet"} if factor < 1 else {}
    return button(_USE, f"use-factor={factor}", **quiet)


def _matters(form: PlanForm) -> Html:
    """The party, or the parties together, that most of the noise is due to."""
    drivers, spec = form.drivers, form.plan.spec
    group = drivers.largest()
    who = names([spec.name(each) for each in group], 6)
    together = " together" if len(group) > 1 else ""
    share = f"{100 * drivers.share(group[0]):.0f} %"
    return tag("p", f"{share} of the noise is there because of ", tag("strong", who), f"{together}.")


def _alone(form: PlanForm, wanted: float) -> list[Html]:
    """What those that most noise is due to could do alone, and who has to agree."""
    group, spec = form.drivers.largest(), form.plan.spec
    factor = budget_factor(spec, wanted, group, **form.weights)
    who, is_single = names([spec.name(each) for each in group], 6), len(group) == 1
    if factor is None:
        alone = tag("p", "A larger epsilon of ", tag("strong", who), " alone does not reach the error.")
    else:
        pairs = [(each, plain_epsilon(form.parties.epsilons()[each] * factor)) for each in group]
        values = ", ".join(dict.fromkeys(epsilon for _, epsilon in pairs))
        before = ", ".join(dict.fromkeys(number(form.parties.epsilons()[each]) for each in group))
        text = f"alone at {values}, instead of {before}, reaches the error. "
        action = "use-epsilon=" + ",".join(f"{each}:{epsilon}" for each, epsilon in pairs)
        use = button("Use this epsilon" if is_single else "Use this epsilon for them", action)
        alone = tag("p", "Epsilon of ", tag("strong", who), f" {text}", use)
    return [alone]
