"""The form of Plan: what is asked, as a plan, and what its buttons change."""

from __future__ import annotations

import warnings
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Final

from tpmdp.errors import InputError, NoNoiseWarning, TpmdpError
from tpmdp.page.forms import PageForm, Place, button, gather, parse_number, parse_whole, slider, void
from tpmdp.page.party_table import PartyTable, party_places
from tpmdp.planning.drivers import Drivers
from tpmdp.planning.losses import most_lost
from tpmdp.planning.plan import Plan
from tpmdp.planning.plan import plan as make_plan
from tpmdp.report.markup import Html, joined, tag
from tpmdp.report.plan import PlanReport, epsilon_text

WEIGHTINGS: Final = {"equal": "all records count the same", "balanced": "balanced: least expected error"}
NOBODY_YET: Final = "Nobody receives an answer yet."
DEADLINE: Final = "1d"  # people come to the page when they have time
_CHANGE: Final = "largest change by one record"
PLACES: Final = (
    Place("threshold", "threshold"),
    Place("losses tolerated", "tolerate"),
    Place("tolerate", "tolerate"),
    Place("weights", "weighting"),
)


@dataclass(frozen=True)
class Lowered:
    """A slider that had to be lowered because parties were removed: from where, and to where."""

    before: int
    now: int

    @classmethod
    def of(cls, text: str) -> Lowered | None:
        """What a hidden field says; None if it says nothing.

        >>> Lowered.of("5:1"), Lowered.of("x")
        (Lowered(before=5, now=1), None)
        """
        before, _, now = text.partition(":")
        return cls(int(before), int(now)) if _is_small(before) and _is_small(now) else None

    def __str__(self) -> str:
        return f"{self.before}:{self.now}"


def _is_small(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) < 6


def _lowered(asked: int, allowed: int, past: Lowered | None) -> Lowered | None:
    """What to say about a slider, which had been lowered before, perhaps."""
    if allowed < asked:
        return Lowered(past.before if past is not None and past.now == asked else asked, allowed)
    return past if past is not None and past.now == allowed < past.before else None


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
    lowered: Lowered | None = None
    lowered_losses: Lowered | None = None

    @classmethod
    def of(cls, form: PageForm) -> PlanForm:
        """The form, after its action."""
        parties = PartyTable.of(form)
        _check_settings(form, parties)
        asked = cls(
            parties,
            form.whole("threshold", "threshold", 1),
            form.whole("tolerate", "losses tolerated", 0),
            weighting=form.text("weighting", "equal"),
            sensitivity=form.number("sensitivity", _CHANGE, 1.0),
            wanted=form.text("wanted"),
            pointed=form.whole("pointed", "party", 0),
            lowered=Lowered.of(form.text("threshold-lowered")),
            lowered_losses=Lowered.of(form.text("tolerate-lowered")),
        )
        action, _, value = form.text("action").partition("=")
        if action == "use-threshold":
            asked = replace(asked, threshold=parse_whole("threshold", value), lowered=None)
        elif action == "use-factor":
            factor = parse_number("factor", value)
            rows = [
                replace(row, epsilon=plain_epsilon(epsilon * factor))
                for row, epsilon in zip(asked.parties.rows, asked.parties.epsilons(), strict=True)
            ]
            asked = replace(asked, parties=PartyTable(tuple(rows)))
        elif action == "use-epsilon":
            parties = asked.parties
            for pair in value.split(","):
                place, _, epsilon = pair.partition(":")
                parties = parties.with_epsilon(parse_whole("party", place), epsilon)
            asked = replace(asked, parties=parties)
        elif action == "use-receiver":
            asked = replace(asked, parties=asked.parties.with_receiver(parse_whole("party", value)))
        return asked.within()

    def within(self) -> PlanForm:
        """With a threshold and losses that fit the number of parties, and a party to point at."""
        count = len(self.parties.rows)
        threshold = max(0, min(self.threshold, count - 1))
        losses = max(0, min(self.tolerate, most_lost(count, threshold)))
        return replace(
            self,
            threshold=threshold,
            tolerate=losses,
            pointed=max(0, min(self.pointed, count - 1)),
            lowered=_lowered(self.threshold, threshold, self.lowered),
            lowered_losses=_lowered(self.tolerate, losses, self.lowered_losses),
        )

    def with_settings(self, other: PlanForm) -> PlanForm:
        """With the parties, the threshold and the losses of another form."""
        return replace(
            self,
            parties=other.parties,
            threshold=other.threshold,
            tolerate=other.tolerate,
            lowered=other.lowered,
            lowered_losses=other.lowered_losses,
        )

    @property
    def weights(self) -> dict[str, Any]:
        """Arguments of `plan`."""
        return {"weighting": self.weighting, "records": self.parties.records(), "width": self.sensitivity}

    @cached_property
    def plan(self) -> Plan:
        """The plan of least noise."""
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", NoNoiseWarning)  # the page says so in its own words
            try:
                spec = self.parties.spec(self.threshold, self.sensitivity)
                return make_plan(spec, **self.weights)
            except InputError as error:
                if error.field.startswith("sensitivity") or error.field == "width":  # the page has one field for both
                    remedy = "write how much one record can change the answer at most, such as 1"
                    raise InputError(_CHANGE, error.value, error.rule, remedy) from None
                raise

    @cached_property
    def drivers(self) -> Drivers:
        """To whom the noise is due."""
        return self.plan.drivers_together()

    @cached_property
    def report(self) -> PlanReport:
        """The plan beside its baselines."""
        return PlanReport.of(self.plan)


def _check_settings(form: PageForm, parties: PartyTable) -> None:
    """Refuse settings that are no numbers, together with all that is wrong in the table."""
    reads = [
        lambda: form.whole("threshold", "threshold", 1),
        lambda: form.whole("tolerate", "losses tolerated", 0),
        lambda: form.number("sensitivity", _CHANGE, 1.0),
    ]
    try:
        gather(*reads)
    except TpmdpError:
        gather(*reads, parties.check)
        raise


def plain_epsilon(value: float) -> str:
    """An epsilon as it is typed: four digits, never too small for the error that it is to reach.

    >>> plain_epsilon(1234.56), plain_epsilon(0.491234), plain_epsilon(0.49)
    ('1235', '0.4913', '0.49')
    """
    return epsilon_text(value)


def plan_places(form: PageForm) -> list[Place]:
    """The fields of Plan, as errors name them."""
    change = Place(_CHANGE, "sensitivity", form.text("sensitivity"))
    return [*PLACES, change, *party_places(form)]


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
        "deadline": DEADLINE,
        **({"tolerate": form.tolerate} if form.tolerate else {}),
        **({} if form.weighting == "equal" else {"weighting": form.weighting}),
        "parties": rows.entries(),
    }


# Sliders --------------------------------------------------------------------------------------------------------------


def sliders(form: PlanForm) -> Html:
    """Threshold and losses, as far as the number of parties allows, and what had to be lowered."""
    count = len(form.parties.rows)
    most = most_lost(count, form.threshold)
    return joined(
        [
            slider(
                "Threshold: how many parties may collude",
                "threshold",
                form.threshold,
                most=count - 1,
                hint="The promises hold as long as no more than this many pool what they see.",
                note=_threshold_note(form),
            ),
            slider(
                "Losses tolerated: how many parties may drop out",
                "tolerate",
                form.tolerate,
                most=most,
                hint="The answer still comes, from the others. It costs no noise.",
                note=_losses_note(form, most),
            ),
        ]
    )


def _threshold_note(form: PlanForm) -> Html:
    lowered, count = form.lowered, len(form.parties.rows)
    if lowered is None:
        return Html("")
    hidden = void("input", type="hidden", name="threshold-lowered", value=str(lowered))
    text = f"Threshold lowered from {lowered.before} to {lowered.now}: it must be below the number of parties."
    again = min(lowered.before, count - 1)
    if again > form.threshold:
        back = button(f"Set it to {again}", f"use-threshold={again}", class_="small")
        return joined([hidden, tag("strong", f"{text} There is room again. "), back])
    return joined([hidden, tag("strong", text)])


def _losses_note(form: PlanForm, most: int) -> Html:
    """How many losses are possible, always, so that nothing moves when that changes."""
    hidden, before = Html(""), ""
    if form.lowered_losses is not None:
        hidden = void("input", type="hidden", name="tolerate-lowered", value=str(form.lowered_losses))
        before = f"Lowered from {form.lowered_losses.before} to {form.lowered_losses.now}. "
    if not form.threshold:
        rule = "None at threshold 0: losses need a threshold of at least 1."
    elif not most:
        rule = "None here: with this threshold, everybody is needed."
    else:
        rule = f"At most {most} here: with fewer parties left, colluders could open two answers."
    return joined([hidden, tag("strong", before) if before else "", rule])
