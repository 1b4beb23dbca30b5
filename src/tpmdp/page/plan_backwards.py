"""Backwards: from an error to a threshold or budgets that reach it."""

from __future__ import annotations

from typing import Final

from tpmdp.errors import InputError
from tpmdp.page.forms import button, parse_number, problem
from tpmdp.page.plan_form import NOBODY_YET, PlanForm, plain_epsilon
from tpmdp.planning.inverse import (
    best_single_receiver,
    budget_factor,
    budget_floor,
    checked_error,
    error_at_threshold,
    highest_threshold,
    largest_threshold,
    raised_budgets,
    unused_budgets,
)
from tpmdp.report.markup import Html, joined, name, names, tag
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
    if not form.parties.receivers():
        return tag("p", NOBODY_YET, class_="empty")
    if form.plan.no_noise_reason:
        return tag("p", f"There is no noise, so every error is reached, and nothing is protected: {_reason(form)}.")
    is_reached = form.plan.expected_error <= wanted * _REACHED
    return joined([*(_reached(form, wanted) if is_reached else _not_reached(form, wanted)), _matters(form)])


def _reason(form: PlanForm) -> str:
    return form.plan.no_noise_reason or ""


def _reached(form: PlanForm, wanted: float) -> list[Html]:
    """How much stronger the promises could be for this error."""
    shown = [tag("p", tag("strong", f"Reached: this plan has an error of {_now(form)}."))]
    threshold = largest_threshold(form.plan.spec, wanted, form.tolerate, **form.weights)
    higher = threshold is not None and threshold > form.threshold
    shown += [*_threshold(form, wanted, threshold), *_one_receiver(form, wanted)]
    factor = budget_factor(form.plan.spec, wanted, **form.weights)
    if factor is not None and factor < 1 - _WORTH:
        text = f"You could even tighten all budgets: all epsilons times {number(factor)} still give {_goal(wanted)}, "
        shown.append(tag("p", f"{text}{_ends(form, factor)}. ", _use_factor(factor)))
    elif not higher:
        shown.append(_no_room(form))
    return shown


def _no_room(form: PlanForm) -> Html:
    """That nothing can be stronger for all at once; but some may offer more than is used."""
    unused, spec = unused_budgets(form.plan, **form.weights), form.plan.spec
    text = "No room for a higher threshold, or for smaller epsilons of all at once."
    if not unused:
        return tag("p", text)
    alike: dict[float, list[str]] = {}
    for place, epsilon in unused.items():
        alike.setdefault(epsilon, []).append(spec.name(place))
    could = joined(
        [joined([names(who, 6), f" could offer {plain_epsilon(epsilon)}"]) for epsilon, who in list(alike.items())[:4]],
        ", ",
    )
    more = ", and others less, too" if len(alike) > 4 else ""
    action = "use-epsilon=" + ",".join(f"{place}:{plain_epsilon(epsilon)}" for place, epsilon in unused.items())
    use = button("Use these smaller epsilons", action, class_="quiet")
    return tag("p", f"{text} Some offer more than is used: ", could, f"{more} at the same error. ", use)


def _threshold(form: PlanForm, wanted: float, threshold: int | None) -> list[Html]:
    """The largest threshold that reaches the error, with the error that it has."""
    spec = form.plan.spec
    most = highest_threshold(spec.count, form.tolerate)
    if threshold is None:
        text = f"No threshold from 1 on reaches {_goal(wanted)} with these budgets."
        return [tag("p", text)]
    if threshold == form.threshold:
        if threshold == most:
            return [tag("p", f"{threshold} is the largest threshold that is possible here.")]
        beyond = three_digits(error_at_threshold(spec, threshold + 1, **form.weights))
        text = f"{threshold} is the largest threshold within {number(wanted)} ({threshold + 1} would give {beyond})."
        return [tag("p", text)]
    error = three_digits(error_at_threshold(spec, threshold, **form.weights))
    text = f"Up to {threshold} may collude: the error is then {error}, within your {number(wanted)}. "
    quiet = {"class_": "quiet"} if threshold > form.threshold else {}
    return [tag("p", text, button(f"Use threshold {threshold}", f"use-threshold={threshold}", **quiet))]


def _one_receiver(form: PlanForm, wanted: float) -> list[Html]:
    """The error if one party alone received the answer, where that is less."""
    best = best_single_receiver(form.plan.spec, **form.weights)
    if best is None or best[1] >= form.plan.expected_error * (1 - _WORTH):
        return []
    place, error = best
    within = f", within your {number(wanted)}" if form.plan.expected_error > wanted * _REACHED >= error else ""
    who = name(form.plan.spec.name(place))
    text = f" received it: {three_digits(error)}{within}. All budgets still hold. "
    return [
        tag(
            "p",
            "If only ",
            tag("strong", who),
            text,
            button("Use one receiver", f"use-receiver={place}", class_="quiet"),
        )
    ]


def _goal(wanted: float) -> str:
    return f"an error of {number(wanted)}"


def _not_reached(form: PlanForm, wanted: float) -> list[Html]:
    """What would have to be weaker."""
    shown = [tag("p", tag("strong", f"Not reached: this plan has an error of {_now(form)}."))]
    threshold = largest_threshold(form.plan.spec, wanted, form.tolerate, **form.weights)
    shown += [*_one_receiver(form, wanted), *_threshold(form, wanted, threshold)]
    factor = budget_factor(form.plan.spec, wanted, **form.weights)
    if factor is None:
        text = f"At threshold {form.threshold} no budgets give {_goal(wanted)}. Try something nearer to {_now(form)}."
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
    if tuple(asked) == form.drivers.largest() and len(asked) == 1:
        return []  # what it can do alone is the same
    action = "use-epsilon=" + ",".join(f"{place}:{plain_epsilon(floor)}" for place in asked)
    who, rest = names([form.plan.spec.name(place) for place in asked], 6), len(before) - len(asked)
    others = f" {plural(rest, 'party keeps its', 'parties keep their')} epsilon." if rest else " That is everybody."
    text = f"Raise every epsilon below {number(floor)} to {number(floor)}: the error is reached. This asks "
    return [tag("p", text, tag("strong", who), f".{others} ", button("Raise these", action))]


def _now(form: PlanForm) -> str:
    return three_digits(form.plan.expected_error)


def _ends(form: PlanForm, factor: float) -> str:
    low, high = (plain_epsilon(end * factor) for end in (min(form.parties.epsilons()), max(form.parties.epsilons())))
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
    raised = raised_budgets(spec, wanted, group, **form.weights)
    who, is_single = names([spec.name(each) for each in group], 6), len(group) == 1
    if raised is None:
        return [tag("p", "A larger epsilon of ", tag("strong", who), " alone does not reach the error.")]
    pairs = [(each, plain_epsilon(epsilon)) for each, epsilon in zip(group, raised, strict=True)]
    values = ", ".join(dict.fromkeys(epsilon for _, epsilon in pairs))
    before = ", ".join(dict.fromkeys(number(form.parties.epsilons()[each]) for each in group))
    text = f"alone at {values}, instead of {before}, reaches the error. "
    action = "use-epsilon=" + ",".join(f"{each}:{epsilon}" for each, epsilon in pairs)
    use = button("Use this epsilon" if is_single else "Use this epsilon for them", action)
    return [tag("p", "Epsilon of ", tag("strong", who), f" {text}", use)]
